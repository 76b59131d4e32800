// Curves, shares, statements and files: what is computed of the first map once the page rests.
import { Superseded } from "./backend.js";
import { $, attempt, backend, clean, mapOf, open, question, remember, state, subject } from "./app.js";
import { bars, checklist, curve, element } from "./charts.js";
import { runTab } from "./run.js";

/** What was computed for the tabs, by tab, with the question it answers. */
const answers = new Map();

export const TABS = ["run", "curves", "shares", "verify", "files"];

/** Whether a tab is there: that of a run is only where one is shown. */
export const isOpenTab = (tab) => TABS.includes(tab) && !$(`tab-${tab}`).hidden;

export function chooseTab(tab, focus = false) {
  state.tab = TABS.includes(tab) ? tab : "curves";
  remember();
  for (const name of TABS) {
    const button = $(`tab-${name}`);
    button.setAttribute("aria-selected", String(name === state.tab));
    button.tabIndex = name === state.tab ? 0 : -1;
    if (focus && name === state.tab) button.focus();
  }
  $("panel").setAttribute("aria-labelledby", `tab-${state.tab}`);
  attempt(showTab);
}

/** The answer that a tab had to the same question about the same network. */
function knownAnswer(tab, request) {
  const known = answers.get(tab);
  return known?.network === open.network && known.key === JSON.stringify(request) ? known.answer : null;
}

/** An answer for a tab, computed once for each question. */
async function answered(tab, request) {
  const known = knownAnswer(tab, request);
  if (known) return known;
  $("panel").setAttribute("aria-busy", "true");
  try {
    const answer = await backend.ask(request);
    answers.set(tab, { network: open.network, key: JSON.stringify(request), answer });
    return answer;
  } finally {
    $("panel").removeAttribute("aria-busy");
  }
}

const paragraph = (text) => element("p", { class: "hint" }, text);

export async function showTab() {
  if (!open.base || !open.explained) return;
  const { tab } = state;
  const map = mapOf(state.methods[0]);
  let content;
  try {
    content = await { curves: curvesTab, shares: sharesTab, verify: verifyTab, files: filesTab, run: runTab }[tab](map);
  } catch (error) {
    if (error instanceof Superseded) return;
    content = [paragraph(clean(error.message))];
  }
  if (tab === state.tab) $("panel").replaceChildren(...content);
}

async function curvesTab(map) {
  const request = { type: "curves", ...question(), map, steps: 12 };
  if (!knownAnswer("curves", request)) $("panel").replaceChildren(paragraph("Computing the curves…"));
  const found = await answered("curves", request);
  const { shares, measure, deletion, insertion, randomDeletion, randomInsertion, title } = found;
  return [
    paragraph(
      `Deletion greys the pixels that ${title} ranks highest first: a good map makes the ${measure} of ${open.explained.name} fall early. ` +
        `Insertion puts them back into a blurred picture. Chance is the same map with its values shuffled.`,
    ),
    element(
      "div",
      { class: "charts" },
      curve({ title: "Deletion", explained: "pixels greyed", own: deletion, chance: randomDeletion, shares, measure }),
      curve({ title: "Insertion", explained: "pixels put back", own: insertion, chance: randomInsertion, shares, measure }),
    ),
  ];
}

async function sharesTab(map) {
  const found = await answered("shares", { type: "shares", ...question(), map });
  const said =
    found.kind === "relevance"
      ? "The relevance that lies on each layer, from the score down to the image."
      : `What each layer's hidden gradient contributes to ${found.title}, by the closed formula; the ordinary gradient is the first term.`;
  return [paragraph(said), bars(found)];
}

async function verifyTab() {
  const request = { type: "verify", subject: subject(), samples: 3 };
  const known = knownAnswer("verify", request);
  if (known) return [checklist(known.findings)];
  const start = element(
    "button",
    {
      type: "button",
      onclick: () =>
        attempt(async () => {
          start.disabled = true;
          start.textContent = "Checking…";
          await answered("verify", request);
          await showTab();
        }),
    },
    "Check the theory on this network and picture",
  );
  return [
    paragraph("f = g − h, streams that never decrease and are convex, relevance that is conserved: measured here, in double precision."),
    start,
  ];
}

async function filesTab(map) {
  const lines = await answered("lines", { type: "lines", ...question(), map });
  const download = (text, request) =>
    element("button", { type: "button", onclick: () => attempt(() => save(request)) }, text);
  const of = (format) => ({ type: "download", ...question(), map, format });
  const buttons = [
    download("PNG", of("png")),
    download("SVG", of("svg")),
    download("Values (.npy)", of("npy")),
    download("explained.onnx", { type: "compile", ...question(), maps: state.methods.map(mapOf) }),
  ];
  if (lines.edited) buttons.push(download("Changed picture", of("picture")));
  return [
    paragraph(
      lines.edited
        ? "The lines below read the changed picture: download it as edited.png first."
        : "The same map by the program, in Python and in Rust.",
    ),
    ...buttons,
    code("Command line", lines.command),
    code("Python", lines.python),
    code("Rust", lines.rust),
  ];
}

function code(title, text) {
  const copy = element("button", {
    type: "button",
    "aria-label": `Copy: ${title}`,
    onclick: () =>
      attempt(async () => {
        await navigator.clipboard.writeText(text);
        copy.textContent = "Copied";
        setTimeout(() => (copy.textContent = "Copy"), 1200);
      }),
  }, "Copy");
  return element("div", { class: "code" }, element("h3", {}, title), element("pre", {}, element("code", {}, text)), copy);
}

async function save(request) {
  const found = await backend.ask(request, { slot: "file" });
  const url = URL.createObjectURL(new Blob([found.arrays.file.values], { type: found.mediaType }));
  const link = element("a", { href: url, download: request.format === "picture" ? "edited.png" : found.file });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
