// The picture and the maps beside each other: what is shown, what is under the cursor, what the brush does.
import { $, attempt, backend, changed, clean, complain, open, picture, state, subject, view } from "./app.js";
import { element, number, percent } from "./charts.js";
import { openInSession } from "./gallery.js";
import { Panel, regions } from "./panels.js";

const MOST_MAPS = 4;
const HINT = "Point at a place of a map, or move there with the arrow keys.";

let panels = [];

export function showMaps() {
  const grid = $("maps");
  const wanted = open.maps.length + 1;
  while (panels.length > wanted) panels.pop().figure.remove();
  while (panels.length < wanted) panels.push(newPanel(panels.length));
  grid.append(...panels.map(({ figure }) => figure).filter((figure) => figure.parentNode !== grid));
  showPicture(panels[0]);
  open.maps.forEach((map, index) => showMap(panels[index + 1], map));
  point();
}

function newPanel() {
  const canvas = element("canvas", { class: "picture", tabindex: "0", role: "application", "aria-roledescription": "map" });
  const head = element("div", { class: "head" });
  const key = element("div", { class: "key" });
  const about = element("p", { class: "about" });
  const figure = element("figure", { class: "map" }, head, canvas, key, about);
  const panel = new Panel(canvas, view, { cursor: moveCursor, view: drawAll, stroke: addStroke });
  return Object.assign(panel, { figure, head, key, about, said: null });
}

function showPicture(panel) {
  const isFull = state.methods.length >= MOST_MAPS;
  const said = state.methods.join();
  if (panel.said !== said) {
    panel.said = said;
    panel.head.replaceChildren(element("strong", {}, "Picture"), ...(isFull ? [] : [addButton()]));
    panel.key.replaceChildren();
    panel.canvas.setAttribute("aria-label", "The picture as the network reads it");
  }
  const [width, height] = view.size;
  const count = state.edits.length;
  const changes = count ? ` · ${count} ${count === 1 ? "change" : "changes"}` : "";
  panel.about.textContent = `${clean(picture().name)}, as the network reads it · ${width}×${height}${changes}`;
  panel.show(open.base, null, null);
}

function showMap(panel, map) {
  const said = JSON.stringify([map.title, map.method, map.stream, map.choice, state.methods]);
  if (panel.said !== said) {
    panel.said = said;
    panel.head.replaceChildren(...mapHead(map));
    panel.key.replaceChildren(element("span"), element("span", { class: "ramp" }), element("span"));
  }
  const [low, ramp, high] = panel.key.children;
  low.textContent = number(map.ends[0]);
  high.textContent = number(map.ends[1]);
  ramp.style.background = `linear-gradient(90deg, ${map.key.join(", ")})`;
  const where = map.layer ? `at ${map.layer}` : "at the image";
  const alpha = map.alpha === null ? "" : ` · α = ${number(map.alpha)}`;
  const power = map.exponent ? ` · times 2^${map.exponent}` : "";
  panel.about.textContent = `${where} · ${map.shape[1]}×${map.shape[0]}${alpha}${power}${map.note ? ` · ${map.note}` : ""}`;
  panel.canvas.setAttribute("aria-label", `${map.title} ${where}, values from ${number(map.range[0])} to ${number(map.range[1])}`);
  panel.show(open.grey, map.colours, map);
}

/** The head of a map: the method can be changed, and taken away where there are others. */
function mapHead(map) {
  if (map.stream && map.stream !== "g") return [element("strong", {}, map.title)];
  const name = state.methods[map.choice].split(":")[0];
  const select = element("select", {
    "aria-label": `Method of map ${map.choice + 1}`,
    onchange: (event) => {
      state.methods[map.choice] = event.target.value;
      changed("question");
    },
  });
  const families = new Map();
  for (const method of open.methods) {
    if (!families.has(method.family)) families.set(method.family, element("optgroup", { label: method.family }));
    const label = method.name === name && state.methods[map.choice] !== name ? state.methods[map.choice] : method.name;
    families.get(method.family).append(element("option", { value: label, title: method.summary }, label));
  }
  select.append(...families.values());
  select.value = state.methods[map.choice];
  const close = element(
    "button",
    {
      type: "button",
      class: "icon",
      "aria-label": `Take ${map.title} away`,
      onclick: () => {
        state.methods.splice(map.choice, 1);
        changed("question");
      },
    },
    "×",
  );
  const stream = map.stream ? element("span", { class: "stream" }, "g") : null;
  return [select, stream, state.methods.length > 1 ? close : null].filter(Boolean);
}

function addButton() {
  const isShown = (name) => state.methods.some((method) => method.split(":")[0] === name);
  const next = ["gradcam", "lrp", "splitgrad", "integrated-gradients", "splitcam"].find((name) => !isShown(name));
  const add = () => {
    state.methods.push(next);
    changed("question");
  };
  return element("button", { type: "button", class: "add", onclick: add, "aria-label": "Set another method beside it" }, "+ method");
}

export function drawAll() {
  panels.forEach((panel) => panel.draw());
}

let pointedAt = null;
let asked = 0;

function moveCursor(panel, position) {
  view.cursor = position;
  pointedAt = panel;
  point();
}

/** Says what is under the cursor, and soon what the score is without it. */
function point() {
  const map = pointedAt?.map ?? open.maps[0];
  clearTimeout(asked);
  if (!view.cursor || !map) {
    view.pointed = null;
    $("readout").textContent = HINT;
    drawAll();
    return;
  }
  const before = view.pointed;
  view.pointed = regions(map, view.size, view.cursor);
  drawAll();
  const { row, column, cell, field } = view.pointed;
  const values = open.maps.map((one) => {
    const here = regions(one, view.size, view.cursor);
    return `${one.title} ${number(one.values[here.row * one.shape[1] + here.column])}`;
  });
  const seen = field ? `${field[2] - field[0]}×${field[3] - field[1]} pixels` : "the whole picture";
  const said = `Row ${row + 1}, column ${column + 1}: ${values.join(" · ")}. It depends on ${seen}.`;
  const isSame = before && before.row === row && before.column === column && view.greyed;
  $("readout").textContent = isSame ? `${said} ${view.greyed}` : said;
  if (isSame || view.tool !== "look") return;
  view.greyed = null;
  asked = setTimeout(() => attempt(() => askPatch(cell, said)), 160);
}

async function askPatch(cell, said) {
  if (view.stroke) return;
  const explained = state.class ?? open.classes[0].class;
  const more = [{ becomes: "grey", rectangle: cell }];
  const and = [explained, state.rival].filter((id) => id !== null);
  const found = await backend.ask({ type: "classes", subject: subject(more), count: 1, and }, { slot: "patch" });
  if (!view.pointed || view.pointed.cell.join() !== cell.join()) return;
  const before = open.classes.find((one) => one.class === explained);
  const after = found.classes.find((one) => one.class === explained);
  // One digit more than elsewhere: a small patch changes little.
  const share = (one) => (one.probability === null ? number(one.score) : `${(100 * one.probability).toFixed(1)}\u00a0%`);
  if (!before || !after) return;
  view.greyed = `Greyed, ${before.name} goes from ${share(before)} to ${share(after)}.`;
  $("readout").textContent = `${said} ${view.greyed}`;
}

function addStroke(points) {
  const from = view.tool === "swap" ? $("other").value : undefined;
  if (view.tool === "swap" && !from) return complain(new Error("open a second picture to take parts from"));
  const edit = { becomes: view.tool, stroke: { radius: view.radius, points: thinned(points) } };
  if (from) edit.from = from;
  state.edits.push(edit);
  attempt(async () => {
    if (from) await openInSession(open.pictures.get(from));
    changed("subject");
  });
}

/** A stroke without the points that a brush of its size does not need. */
function thinned(points) {
  const kept = points.slice(0, 2);
  for (let at = 2; at < points.length; at += 2) {
    const [x, y] = kept.slice(-2);
    const isLast = at === points.length - 2;
    if (isLast || Math.hypot(points[at] - x, points[at + 1] - y) > view.radius / 3) kept.push(points[at], points[at + 1]);
  }
  return kept.map((at) => Math.round(at * 10) / 10).slice(0, 4000);
}

export function showEdits() {
  $("undo").hidden = $("restore").hidden = state.edits.length === 0;
}
