// Curves, bars and lists, drawn from numbers.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes and content. */
export function element(name, attributes = {}, ...content) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...content.filter((part) => part !== null && part !== undefined));
  return made;
}

function svg(name, attributes = {}, text = null) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  return made;
}

/** A number as it is read: four digits, no more zeros than are needed. */
export function number(value) {
  if (value === 0) return "0";
  if (!Number.isFinite(value)) return String(value);
  const magnitude = Math.abs(value);
  const text = magnitude >= 1e5 || magnitude < 1e-3 ? value.toExponential(2) : String(Number(value.toPrecision(4)));
  return text.replace("-", "−");
}

export const percent = (value) => `${(100 * value).toFixed(Math.abs(value) < 0.0995 ? 1 : 0)}\u00a0%`.replace("-", "−");

/** A curve of the map beside one of chance. */
export function curve({ title, explained, own, chance, shares, measure }) {
  const [width, height, left, top, right, bottom] = [350, 190, 44, 12, 22, 34];
  const isShare = measure === "probability";
  const all = [...own.scores, ...chance.scores];
  const [low, high] = isShare ? [0, 1] : [Math.min(...all, 0), Math.max(...all, 0)];
  const x = (share) => left + share * (width - left - right);
  const y = (score) => top + (1 - (score - low) / (high - low || 1)) * (height - top - bottom);
  const path = (scores) => scores.map((score, at) => `${at ? "L" : "M"}${x(shares[at]).toFixed(1)} ${y(score).toFixed(1)}`).join("");
  const said = `${title}: area ${number(own.area)} by the map, ${number(chance.area)} at random.`;
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": said, class: "curve" });
  for (const step of [0, 0.5, 1]) {
    const score = low + step * (high - low);
    drawing.append(svg("line", { x1: left, x2: width - right, y1: y(score), y2: y(score), class: "grid" }));
    const label = isShare ? `${100 * step} %` : number(score);
    drawing.append(svg("text", { x: left - 6, y: y(score) + 4, class: "tick end" }, label));
    drawing.append(svg("text", { x: x(step), y: height - bottom + 16, class: "tick middle" }, `${100 * step} %`));
  }
  drawing.append(svg("text", { x: x(0.5), y: height - 3, class: "tick middle" }, explained));
  drawing.append(svg("path", { d: path(chance.scores), class: "line chance" }));
  drawing.append(svg("path", { d: path(own.scores), class: "line own" }));
  const caption = element(
    "figcaption",
    {},
    element("strong", {}, title),
    element("span", { class: "legend own" }, `map ${number(own.area)}`),
    element("span", { class: "legend chance" }, `chance ${number(chance.area)}`),
  );
  return element("figure", { class: "chart" }, caption, drawing);
}

/** Bars, one for each layer. */
export function bars({ bars, kind }) {
  const largest = Math.max(...bars.map(({ share }) => Math.abs(share)), 1e-12);
  const rows = bars.map(({ layer, value, share }) => {
    const bar = element("span", { class: share < 0 ? "bar negative" : "bar" });
    bar.style.width = `${(100 * Math.abs(share)) / largest}%`;
    return element(
      "tr",
      {},
      element("th", { scope: "row" }, layer),
      element("td", { class: "bars" }, bar),
      element("td", { class: "number" }, percent(share)),
      element("td", { class: "number quiet" }, number(value)),
    );
  });
  const head = kind === "relevance" ? ["layer", "", "of the score", "relevance"] : ["layer", "", "share", "mean magnitude"];
  const heads = head.map((text) => element("th", { scope: "col" }, text));
  return element(
    "table",
    { class: "shares" },
    element("thead", {}, element("tr", {}, ...heads)),
    element("tbody", {}, ...rows),
  );
}

/** Statements with their verdicts. */
export function checklist(findings) {
  const row = ({ claim, found, verdict, holds, fails }) => {
    const kind = fails ? "fails" : holds ? "holds" : "open";
    const mark = { fails: "✗", holds: "✓", open: "–" }[kind];
    return element(
      "li",
      { class: kind },
      element("span", { class: "mark", "aria-hidden": "true" }, mark),
      element("div", {}, element("strong", {}, claim), element("span", { class: "verdict" }, verdict), element("p", {}, found)),
    );
  };
  return element("ul", { class: "checklist" }, ...findings.map(row));
}
