// Everything that can be chosen, and how it is written into the address.

export const START = {
  network: "built-in",
  picture: "built-in",
  preset: null,
  class: null,
  rival: null,
  alpha: 0.4,
  layer: null,
  methods: ["splitcam"],
  streams: false,
  opacity: 0.5,
  edits: [],
  tab: "curves",
  /** The tab that is open unless the address names another. */
  firstTab: "curves",
  /** What is chosen in the tables of a run. */
  run: { stage: 0, metric: 0, member: null, isReversed: false },
  theme: null,
};

const LETTERS = { grey: "g", blur: "b", swap: "s" };

/** `g12:5,6,7,8` is a grey stroke of radius 12 from (5, 6) to (7, 8); `s(b3)12:…` takes from the picture b3. */
function writtenEdits(edits) {
  return edits
    .map(({ becomes, from, stroke }) => {
      const other = from ? `(${encodeURIComponent(from)})` : "";
      return `${LETTERS[becomes]}${other}${stroke.radius}:${stroke.points.map((at) => Math.round(at * 10) / 10).join(",")}`;
    })
    .join(";");
}

function readEdits(text) {
  const edits = [];
  for (const part of text.split(";").slice(0, 200)) {
    const found = /^([gbs])(?:\(([^)]*)\))?([\d.]+):([\d.,-]+)$/.exec(part);
    if (!found) continue;
    const becomes = Object.keys(LETTERS).find((name) => LETTERS[name] === found[1]);
    const points = found[4].split(",").map(Number);
    const edit = { becomes, stroke: { radius: Number(found[3]), points } };
    if (found[2]) edit.from = decodeURIComponent(found[2]);
    if (edit.stroke.radius > 0 && points.length % 2 === 0 && points.every(Number.isFinite)) edits.push(edit);
  }
  return edits;
}

const within = (value, low, high, otherwise) => {
  const number = Number.parseFloat(value);
  return number >= low && number <= high ? number : otherwise;
};

const whole = (value) => (/^\d{1,6}$/.test(value ?? "") ? Number(value) : null);

/** The state that an address holds. */
export function read(location) {
  const state = structuredClone(START);
  const asked = new URLSearchParams(location.search);
  const held = new URLSearchParams(location.hash.slice(1));
  const url = asked.get("url");
  if (url) state.network = `url:${url}`;
  state.network = held.get("network") ?? state.network;
  state.picture = held.get("picture") ?? (asked.get("picture") ? `url:${asked.get("picture")}` : state.picture);
  state.preset = held.get("preset");
  state.class = whole(held.get("class"));
  state.rival = state.class === null ? null : whole(held.get("against"));
  state.alpha = within(held.get("alpha"), 0, 0.5, state.alpha);
  state.layer = held.get("layer");
  const methods = held.getAll("method").slice(0, 4);
  if (methods.length) state.methods = methods;
  state.streams = held.get("streams") === "yes";
  state.opacity = within(held.get("opacity"), 0, 1, state.opacity);
  state.edits = readEdits(held.get("edits") ?? "");
  state.tab = held.get("tab") ?? state.tab;
  const run = /^(\d{1,4})\.(\d{1,4})\.(\d{0,6})(r?)$/.exec(held.get("run") ?? "");
  if (run) state.run = { stage: Number(run[1]), metric: Number(run[2]), member: whole(run[3]), isReversed: run[4] === "r" };
  state.theme = held.get("theme");
  return state;
}

/** The address of a state: what differs from the start. */
export function write(state) {
  const held = new URLSearchParams();
  const set = (key, value, otherwise) => {
    if (value !== otherwise && value !== null) held.set(key, value);
  };
  set("network", state.network, START.network);
  set("picture", state.picture, START.picture);
  set("preset", state.preset, null);
  set("class", state.class, null);
  set("against", state.rival, null);
  set("alpha", state.alpha, START.alpha);
  set("layer", state.layer, null);
  if (state.methods.join() !== START.methods.join()) state.methods.forEach((name) => held.append("method", name));
  set("streams", state.streams ? "yes" : null, null);
  set("opacity", state.opacity, START.opacity);
  set("edits", writtenEdits(state.edits) || null, null);
  set("tab", state.tab, state.firstTab);
  const { stage, metric, member, isReversed } = state.run;
  set("run", `${stage}.${metric}.${member ?? ""}${isReversed ? "r" : ""}`, "0.0.");
  set("theme", state.theme, null);
  return `#${held}`;
}
