// A run of an experiment: its tables, whose rows and images open in the maps.
import { $, attempt, changed, clean, open, remember, setAlpha, state } from "./app.js";
import { element, number } from "./charts.js";
import { choosePicture } from "./gallery.js";

/** The most images that are listed. */
const MOST_ROWS = 200;

let tables = null;

export async function loadRun() {
  const answer = await fetch("run.json");
  if (!answer.ok) throw new Error((await answer.text()).trim());
  tables = await answer.json();
  $("tab-run").hidden = false;
}

const stageOf = () => tables.stages[Math.min(state.run.stage, tables.stages.length - 1)];

function choose(what) {
  Object.assign(state.run, what);
  remember();
  $("panel").replaceChildren(...runTab());
}

/** The tables of the run: methods by metrics, and the images of the chosen method. */
export function runTab() {
  const report = element("a", { href: "report/", target: "_blank", rel: "noopener" }, "The whole report");
  const about = element("p", { class: "hint" }, `${clean(tables.name)}. A method opens at its layer, an image with the class it was measured for. `, report);
  if (!tables.stages.length) return [about, element("p", {}, "Nothing has been measured yet.")];
  const stage = stageOf();
  const select = element(
    "select",
    { "aria-label": "Stage", onchange: (event) => choose({ stage: Number(event.target.value), member: null, metric: 0 }) },
    ...tables.stages.map((one, at) => element("option", { value: at }, clean(one.name))),
  );
  select.value = tables.stages.indexOf(stage);
  const shown = [about, element("label", { class: "field stage" }, "Stage ", select), table(stage, "method", memberRows(stage))];
  const member = stage.members[state.run.member];
  if (!member) return shown;
  if (!member.values.length) return [...shown, element("p", { class: "hint" }, "This run has too many images to be listed here.")];
  const rows = imageRows(stage, member);
  const title = element("h3", {}, `Images by ${clean(member.title)}`);
  const left = rows.length > MOST_ROWS ? [element("p", { class: "hint" }, `The first ${MOST_ROWS} of ${rows.length}.`)] : [];
  return [...shown, title, table(stage, "image", rows.slice(0, MOST_ROWS)), ...left];
}

/** Rows in the order of the chosen metric, the best first unless it is turned round; what has no value comes last. */
function sorted(stage, rows) {
  const { metric, isReversed } = state.run;
  const sign = (stage.metrics[metric]?.isHigherBetter ? -1 : 1) * (isReversed ? -1 : 1);
  const key = ({ values }) => values[metric] ?? null;
  return rows.toSorted((a, b) => {
    if (key(a) === null || key(b) === null) return (key(a) === null) - (key(b) === null);
    return sign * (key(a) - key(b));
  });
}

function memberRows(stage) {
  const rows = stage.members.map((member, at) => {
    const isOpenable = member.method !== null && open.methods.some(({ name }) => name === member.method.split(":")[0]);
    const notes = [member.layer || "the image", member.isAbsolute ? "absolute values" : null].filter(Boolean).join(", ");
    const isChosen = at === state.run.member;
    const name = [element("strong", {}, clean(member.title)), element("span", { class: "quiet" }, ` ${clean(notes)}`)];
    const button = element("button", { type: "button", "aria-pressed": String(isChosen), onclick: () => openMember(at, isOpenable) }, ...name);
    return { head: button, values: member.means, isChosen };
  });
  return sorted(stage, rows);
}

function imageRows(stage, member) {
  const rows = stage.images.map((image, at) => {
    const values = member.values.map((values) => values[at]);
    const name = clean(image.name);
    const head = image.gallery === null ? name : element("button", { type: "button", onclick: () => openImage(image) }, name);
    return { head, values, isChosen: image.gallery !== null && state.picture === `gallery:${image.gallery}` };
  });
  return sorted(stage, rows);
}

function table(stage, kind, rows) {
  const heads = stage.metrics.map(({ title, isHigherBetter }, at) => {
    const isSorted = at === state.run.metric;
    const isDescending = isHigherBetter !== state.run.isReversed;
    const turn = () => choose({ metric: at, isReversed: isSorted && !state.run.isReversed });
    const arrow = isSorted ? (isDescending ? " ↓" : " ↑") : "";
    const hint = `${isHigherBetter ? "higher" : "lower"} is better`;
    const button = element("button", { type: "button", title: hint, onclick: turn }, `${clean(title)}${arrow}`);
    return element("th", { scope: "col", "aria-sort": isSorted ? (isDescending ? "descending" : "ascending") : null }, button);
  });
  const cell = (value) => element("td", { class: "number" }, value === null ? "–" : number(value));
  const row = ({ head, values, isChosen }) =>
    element("tr", { class: isChosen ? "chosen" : null }, element("th", { scope: "row" }, head), ...values.map(cell));
  const first = element("th", { scope: "col" }, kind);
  const content = [element("thead", {}, element("tr", {}, first, ...heads)), element("tbody", {}, ...rows.map(row))];
  return element("div", { class: "wide" }, element("table", { class: "run" }, ...content));
}

/** Shows the maps of a method as it was measured. */
function openMember(at, isOpenable) {
  const member = stageOf().members[at];
  choose({ member: at });
  if (!isOpenable) return;
  const [name, options = ""] = member.method.split(/:(.*)/s);
  let given = options.split(",").filter(Boolean);
  if (open.methods.find((method) => method.name === name).alpha) {
    const shift = given.find((option) => option.startsWith("alpha="));
    if (shift) setAlpha(Number(shift.slice(6)));
    given = given.filter((option) => option !== shift);
  }
  state.methods[0] = [name, given.join(",")].filter(Boolean).join(":");
  state.layer = member.layer;
  changed("question");
}

function openImage({ gallery, class: explained }) {
  Object.assign(state, { class: explained, rival: null });
  if (tables.preset) state.preset = tables.preset === open.network.preset ? null : tables.preset;
  attempt(async () => {
    await choosePicture(`gallery:${gallery}`);
    if (state.tab === "run") $("panel").replaceChildren(...runTab());
  });
}
