// The page: what is chosen, what is asked of the backend, what is shown.
import config from "./config.js";
import { Backend, ServerTransport, Superseded, WorkerTransport } from "./backend.js";
import { curve, bars, checklist, element, number, percent } from "./charts.js";
import { Panel, View, drawable, greyed, regions } from "./panels.js";
import * as address from "./state.js";

const $ = (id) => document.getElementById(id);
const BUILT_IN = { network: "pets-small.onnx", picture: "chelsea.png" };
/** How long the slider rests before what takes longer is computed. */
const REST = 350;
const MOST_MAPS = 4;

const state = address.read(location);
const backend = new Backend(config.backend === "server" ? new ServerTransport() : new WorkerTransport());
const view = new View();

/** What is open. */
const open = { network: null, methods: [], pictures: new Map(), base: null, grey: null, explained: null, own: null };
/** What the maps show, in the order of the page. */
let maps = [];
let panels = [];
/** What was computed for the tabs, by tab, with the question it answers. */
const answers = new Map();
let resting = 0;

const clean = (name) => String(name).replace(/[\u0000-\u001f\u007f]/g, "");

// --- Messages

function complain(error) {
  if (error instanceof Superseded) return;
  $("notice").hidden = false;
  $("notice").firstElementChild.textContent = clean(error.message || error);
}

/** Does something, and says in one line why it could not be done. */
async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    complain(error);
    return undefined;
  }
}

// --- The address

let written = 0;
function remember() {
  clearTimeout(written);
  written = setTimeout(() => history.replaceState(null, "", address.write(state)), 120);
}

// --- Questions

const picture = () => open.pictures.get(state.picture);

function subject(more = []) {
  const edits = [...state.edits, ...more].map(({ from, ...edit }) => {
    const other = from ? open.pictures.get(from)?.id : undefined;
    return other === undefined ? edit : { ...edit, with: other };
  });
  return { picture: picture().id, preset: state.preset, edits };
}

const question = () => ({ subject: subject(), class: state.class, rival: state.rival, alpha: state.alpha });
const mapOf = (method) => ({ method, layer: layerFor(method) });

/** The chosen layer goes to methods that are read at a layer of their own too. */
function layerFor() {
  return state.layer;
}

// --- Opening

async function bytesOf(url) {
  const target = new URL(url, document.baseURI);
  if (target.origin !== new URL(document.baseURI).origin) {
    throw new Error(`${url}: only files of this page's own server are opened; drop the file instead`);
  }
  let answer;
  try {
    answer = await fetch(target);
  } catch {
    throw new Error(`${url}: the file cannot be fetched`);
  }
  if (!answer.ok) throw new Error(`${url}: the server says ${answer.status} ${answer.statusText}`);
  return answer.arrayBuffer();
}

async function openNetwork(key, name, payload) {
  const network = await backend.ask({ type: "open-network", name }, { slot: "open", payload });
  takeNetwork(key, network);
}

function takeNetwork(key, network) {
  const isOther = open.network && state.network !== key;
  open.network = network;
  state.network = key;
  if (isOther) Object.assign(state, { class: null, rival: null, layer: null, preset: null, edits: [] });
  // An address may have been written for another network.
  if (state.class >= network.classes || state.rival >= network.classes) Object.assign(state, { class: null, rival: null });
  answers.clear();
  showNetwork();
}

/** Opens a picture in the session unless it is open, and chooses it. */
async function choosePicture(key) {
  const entry = open.pictures.get(key);
  if (!entry) throw new Error("that picture has to be dropped again");
  await openInSession(entry);
  if (state.picture !== key) state.edits = [];
  state.picture = key;
  showGallery();
  await refresh();
}

async function openInSession(entry) {
  if (entry.id !== undefined) return;
  const request = { type: "open-picture", name: entry.name };
  if (entry.gallery !== undefined) request.gallery = entry.gallery;
  const payload = entry.gallery === undefined ? await entry.bytes() : new ArrayBuffer(0);
  const opened = await backend.ask(request, { slot: "open", payload });
  entry.id = opened.picture;
  entry.size = [opened.width, opened.height];
}

async function dropped(files) {
  $("notice").hidden = true;
  let last = null;
  for (const file of files) {
    if (/\.onnx$/i.test(file.name)) {
      await attempt(async () => {
        await openNetwork(`file:${file.name}`, file.name, await file.arrayBuffer());
        await refresh();
      });
    } else {
      const key = `file:${file.name}`;
      const thumbnail = /^image\/(png|jpeg|gif|webp|bmp)$/.test(file.type) ? URL.createObjectURL(file) : null;
      open.pictures.set(key, { name: file.name, bytes: () => file.arrayBuffer(), thumbnail });
      last = key;
    }
  }
  showGallery();
  if (last) {
    const shown = await attempt(async () => (await choosePicture(last), true));
    if (!shown && open.pictures.get(last)?.id === undefined) {
      open.pictures.delete(last);
      showGallery();
    }
  }
}

// --- Asking

/** Asks for everything that depends on picture and network. */
async function refresh() {
  if (!open.network || picture()?.id === undefined) return;
  remember();
  const listed = [state.class, state.rival].filter((number) => number !== null);
  const found = await backend.ask({ type: "classes", subject: subject(), count: 10, and: listed });
  const [height, width] = found.arrays.picture.shape;
  open.base = drawable(found.arrays.picture.values, width, height, 3);
  open.grey = drawable(greyed(found.arrays.picture.values), width, height, 3);
  if (view.size[0] !== width || view.size[1] !== height) view.reset();
  view.size = [width, height];
  open.classes = found.classes;
  picture().drawn ??= open.base;
  showClasses();
  showEdits();
  showGallery();
  await explain();
}

async function explain() {
  if (!open.base) return;
  remember();
  const request = { type: "explain", ...question(), streams: state.streams, maps: state.methods.map(mapOf) };
  const found = await backend.ask(request);
  $("notice").hidden = true;
  open.explained = found.explained;
  maps = found.maps.map((map, index) => {
    const colours = found.arrays[`colours ${index}`];
    const values = found.arrays[`values ${index}`];
    const [height, width] = colours.shape;
    return { ...map, shape: values.shape, values: values.values, colours: drawable(colours.values, width, height, 4) };
  });
  open.own ??= state.layer === null ? maps[0]?.layer : null;
  showMaps();
  showExplained();
  later();
}

/** What takes longer waits until nothing moves. */
function later() {
  clearTimeout(resting);
  resting = setTimeout(() => {
    attempt(askLayers);
    attempt(showTab);
  }, REST);
}

async function askLayers() {
  const request = { type: "layers", ...question(), map: { method: state.methods[0] } };
  const key = JSON.stringify(request);
  if (open.layersKey === key || !open.network.layers.length) return;
  try {
    const found = await backend.ask(request);
    open.layersKey = key;
    const { shape, values } = found.arrays.thumbnails;
    const [, height, width] = shape;
    const each = height * width * 3;
    showThumbnails(found.layers.map((_, at) => drawable(values.subarray(at * each, (at + 1) * each), width, height, 3)));
  } catch (error) {
    if (error instanceof Superseded) return;
    open.layersKey = key;
    showThumbnails([]);
  }
}

// --- Network and gallery

function showNetwork() {
  const { name, classes, size, parameters, layers, presets, preset, presetReason, remarks } = open.network;
  const [, height, width] = size;
  const count = parameters >= 1e6 ? `${(parameters / 1e6).toFixed(1)} M` : parameters.toLocaleString("en");
  $("network").replaceChildren(
    element("strong", {}, clean(name)),
    ` · ${classes} classes · ${width}×${height} pixels · ${count} parameters`,
  );
  if (remarks.length) $("network").append(element("span", { title: remarks.join("\n") }, ` · ${remarks.length} remarks`));
  const select = $("preset");
  select.replaceChildren(...presets.map((one) => element("option", { value: one }, one === preset ? `${one}, as guessed` : one)));
  select.value = state.preset ?? preset;
  select.title = presetReason ?? "";
  open.layersKey = null;
  open.own = null;
  const strip = layers.map((layer, at) => layerOption(layer, at));
  $("layers").replaceChildren(...strip);
  $("layers-title").hidden = layers.length === 0;
}

function showGallery() {
  const options = [...open.pictures].map(([key, entry], at) => {
    const chosen = key === state.picture;
    const content = entry.thumbnail
      ? element("img", { src: entry.thumbnail, alt: entry.name, loading: "lazy" })
      : thumbnail(entry);
    return element(
      "div",
      { role: "option", id: `picture-${at}`, "aria-selected": String(chosen), "aria-label": entry.name, title: entry.name, "data-key": key },
      content,
    );
  });
  $("gallery").replaceChildren(...options);
  const at = [...open.pictures.keys()].indexOf(state.picture);
  if (at >= 0) $("gallery").setAttribute("aria-activedescendant", `picture-${at}`);
  const other = $("other");
  const others = [...open.pictures].filter(([key]) => key !== state.picture);
  const before = other.value;
  other.replaceChildren(...others.map(([key, entry]) => element("option", { value: key }, entry.name)));
  if (others.some(([key]) => key === before)) other.value = before;
}

function thumbnail(entry) {
  if (!entry.drawn) return element("span", {}, entry.name);
  const canvas = element("canvas", { width: 62, height: 62, "aria-hidden": "true" });
  const side = Math.min(entry.drawn.width, entry.drawn.height);
  const [left, top] = [(entry.drawn.width - side) / 2, (entry.drawn.height - side) / 2];
  canvas.getContext("2d").drawImage(entry.drawn, left, top, side, side, 0, 0, 62, 62);
  return canvas;
}

function chooseInGallery(step) {
  const keys = [...open.pictures.keys()];
  const next = keys[(keys.indexOf(state.picture) + step + keys.length) % keys.length];
  attempt(() => choosePicture(next));
}

// --- Classes

function showClasses() {
  const row = ({ class: id, name, probability, score }) => {
    const share = probability ?? 0;
    const fill = element("span", { class: "bar", "aria-hidden": "true" });
    fill.style.width = `${100 * share}%`;
    const isChosen = state.class === id || (state.class === null && id === open.classes[0].class);
    const isRival = state.rival === id;
    const said = probability === null ? number(score) : percent(probability);
    return element(
      "li",
      { class: `${isChosen ? "chosen" : ""} ${isRival ? "rival" : ""}` },
      fill,
      element(
        "button",
        { type: "button", class: "name", "aria-pressed": String(isChosen), title: `${name}: score ${number(score)}`, onclick: () => chooseClass(id) },
        element("span", {}, name),
        element("span", {}, said),
      ),
      element(
        "button",
        { type: "button", class: "versus", "aria-pressed": String(isRival), "aria-label": `against ${name}`, disabled: isChosen, onclick: () => chooseRival(id) },
        "vs",
      ),
    );
  };
  const focused = document.activeElement?.closest("#classes li button");
  const place = focused && [...$("classes").querySelectorAll("button")].indexOf(focused);
  $("classes").replaceChildren(...open.classes.map(row));
  if (focused) $("classes").querySelectorAll("button")[place]?.focus();
}

function chooseClass(id) {
  state.class = id;
  if (state.rival === id) state.rival = null;
  showClasses();
  attempt(explain);
}

function chooseRival(id) {
  state.class ??= open.classes[0].class;
  state.rival = state.rival === id ? null : id;
  showClasses();
  attempt(explain);
}

function showExplained() {
  const { name, probability, score } = open.explained;
  const said = probability === null || probability === undefined ? `score ${number(score)}` : percent(probability);
  $("explained").replaceChildren("Explained: ", element("strong", {}, name), ` (${said})`);
}

// --- Maps

function showMaps() {
  const grid = $("maps");
  const wanted = maps.length + 1;
  while (panels.length > wanted) panels.pop().figure.remove();
  while (panels.length < wanted) panels.push(newPanel(panels.length));
  grid.append(...panels.map(({ figure }) => figure).filter((figure) => figure.parentNode !== grid));
  showPicture(panels[0]);
  maps.forEach((map, index) => showMap(panels[index + 1], map));
  point();
}

function newPanel() {
  const canvas = element("canvas", { class: "picture", tabindex: "0", role: "img" });
  const head = element("div", { class: "head" });
  const key = element("div", { class: "key" });
  const about = element("p", { class: "about" });
  const figure = element("figure", { class: "map" }, head, canvas, key, about);
  const panel = new Panel(canvas, view, { cursor: moveCursor, view: drawAll, stroke: addStroke });
  return Object.assign(panel, { figure, head, key, about, said: null });
}

function showPicture(panel) {
  const isFull = state.methods.length >= MOST_MAPS;
  if (panel.said !== isFull) {
    panel.said = isFull;
    panel.head.replaceChildren(element("strong", {}, "Picture"), ...(isFull ? [] : [addButton()]));
    panel.key.replaceChildren();
    panel.canvas.setAttribute("aria-label", "The picture as the network reads it");
  }
  const [width, height] = view.size;
  panel.about.textContent = `${clean(picture().name)}, as the network reads it · ${width}×${height}${state.edits.length ? ` · ${state.edits.length} changes` : ""}`;
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
      if (map.choice === 0) open.layersKey = null;
      attempt(explain);
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
        attempt(explain);
      },
    },
    "×",
  );
  const stream = map.stream ? element("span", { class: "stream" }, "g") : null;
  return [select, stream, state.methods.length > 1 ? close : null].filter(Boolean);
}

function addButton() {
  const next = ["gradcam", "lrp", "splitgrad", "integrated-gradients", "splitcam"].find((name) => !state.methods.includes(name));
  const add = () => {
    state.methods.push(next);
    attempt(explain);
  };
  return element("button", { type: "button", class: "add", onclick: add, "aria-label": "Set another method beside it" }, "+ method");
}

function drawAll() {
  panels.forEach((panel) => panel.draw());
}

// --- Cursor

let pointedAt = null;
let asked = 0;

function moveCursor(panel, position) {
  view.cursor = position;
  pointedAt = panel;
  point();
}

/** Says what is under the cursor, and soon what the score is without it. */
function point() {
  const map = pointedAt?.map ?? maps[0];
  clearTimeout(asked);
  if (!view.cursor || !map) {
    view.pointed = null;
    drawAll();
    return;
  }
  const before = view.pointed;
  view.pointed = regions(map, view.size, view.cursor);
  drawAll();
  const { row, column, cell, field } = view.pointed;
  const values = maps.map((one) => {
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
  const share = (one) => (one.probability === null ? number(one.score) : percent(one.probability));
  if (!before || !after) return;
  view.greyed = `Greyed, ${before.name} goes from ${share(before)} to ${share(after)}.`;
  $("readout").textContent = `${said} ${view.greyed}`;
}

// --- Brush

function addStroke(points) {
  const from = view.tool === "swap" ? $("other").value : undefined;
  if (view.tool === "swap" && !from) return complain(new Error("open a second picture to take parts from"));
  const edit = { becomes: view.tool, stroke: { radius: view.radius, points: thinned(points) } };
  if (from) edit.from = from;
  state.edits.push(edit);
  attempt(async () => {
    if (from) await openInSession(open.pictures.get(from));
    await refresh();
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

function showEdits() {
  $("undo").hidden = $("restore").hidden = state.edits.length === 0;
}

// --- Layers

function layerOption({ name, op, shape }, at) {
  const [channels, height, width] = shape;
  const block = element("span", { class: "block", "aria-hidden": "true" });
  block.style.height = `${4 + 5 * Math.log2(Math.max(height, 1))}px`;
  block.style.width = `${Math.min(64, 5 + 5.5 * Math.log2(Math.max(channels, 1)))}px`;
  const canvas = element("canvas", { width: 64, height: 64, "aria-hidden": "true" });
  return element(
    "div",
    {
      class: "layer",
      role: "option",
      id: `layer-${at}`,
      "aria-selected": "false",
      tabindex: at === 0 ? "0" : "-1",
      title: `${op} ${name}: reads ${channels} channels of ${width}×${height}`,
      onclick: () => chooseLayer(name),
      onkeydown: (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step && event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        const next = open.network.layers[at + (step ?? 0)];
        if (next) chooseLayer(next.name, true);
      },
    },
    canvas,
    block,
    element("span", { class: "called" }, ...breakable(name)),
    element("span", { class: "shape" }, `${channels}×${width}×${height}`),
  );
}

/** A name that may be broken at its dots. */
function breakable(name) {
  return name.split(/(?<=[./])/).flatMap((part, at) => (at ? [element("wbr"), part] : [part]));
}

function chooseLayer(name, focus = false) {
  state.layer = name;
  markLayer(focus);
  attempt(explain);
}

function markLayer(focus) {
  const chosen = state.layer ?? maps[0]?.layer;
  const at = open.network.layers.findIndex((layer) => layer.name === chosen);
  [...$("layers").children].forEach((option, index) => {
    option.setAttribute("aria-selected", String(index === at));
    option.tabIndex = index === Math.max(at, 0) ? 0 : -1;
    if (index === at && focus) option.focus();
  });
  // Only the strip moves, not the page.
  const strip = $("layers");
  const option = strip.children[at];
  if (option) strip.scrollLeft = option.offsetLeft - strip.offsetLeft - (strip.clientWidth - option.clientWidth) / 2;
}

function showThumbnails(drawn) {
  [...$("layers").children].forEach((option, at) => {
    const canvas = option.firstElementChild;
    const ink = canvas.getContext("2d");
    if (!drawn[at]) return ink.clearRect(0, 0, canvas.width, canvas.height);
    canvas.width = drawn[at].width;
    canvas.height = drawn[at].height;
    ink.drawImage(drawn[at], 0, 0);
  });
  markLayer(false);
}

// --- Tabs

const TABS = ["curves", "shares", "verify", "files"];

function chooseTab(tab, focus = false) {
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

/** An answer for a tab, computed once for each question. */
async function answered(tab, request) {
  const key = JSON.stringify(request);
  const known = answers.get(tab);
  if (known?.key === key) return known.answer;
  $("panel").setAttribute("aria-busy", "true");
  try {
    const answer = await backend.ask(request);
    answers.set(tab, { key, answer });
    return answer;
  } finally {
    $("panel").removeAttribute("aria-busy");
  }
}

const paragraph = (text) => element("p", { class: "hint" }, text);

async function showTab() {
  if (!open.base || !open.explained) return;
  const { tab } = state;
  const map = mapOf(state.methods[0]);
  let content;
  try {
    content = await { curves: curvesTab, shares: sharesTab, verify: verifyTab, files: filesTab }[tab](map);
  } catch (error) {
    if (error instanceof Superseded) return;
    content = [paragraph(clean(error.message))];
  }
  if (tab === state.tab) $("panel").replaceChildren(...content);
}

async function curvesTab(map) {
  const request = { type: "curves", ...question(), map, steps: 12 };
  if (answers.get("curves")?.key !== JSON.stringify(request)) $("panel").replaceChildren(paragraph("Computing the curves…"));
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
  if (answers.get("verify")?.key === JSON.stringify(request)) return [checklist(answers.get("verify").answer.findings)];
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

// --- Controls

function listen() {
  $("alpha").addEventListener("input", (event) => {
    state.alpha = Number(event.target.value);
    $("alpha-value").textContent = number(state.alpha);
    clearTimeout(resting);
    attempt(explain);
  });
  $("streams").addEventListener("change", (event) => {
    state.streams = event.target.checked;
    attempt(explain);
  });
  $("opacity").addEventListener("input", (event) => {
    state.opacity = view.opacity = Number(event.target.value);
    remember();
    drawAll();
  });
  for (const radio of document.querySelectorAll("input[name=tool]")) {
    radio.addEventListener("change", () => {
      view.tool = radio.value;
      $("brush").hidden = view.tool === "look";
      $("other-label").hidden = view.tool !== "swap";
      drawAll();
    });
  }
  $("radius").addEventListener("input", (event) => {
    view.radius = (Number(event.target.value) / 128) * Math.max(...view.size);
    drawAll();
  });
  $("undo").addEventListener("click", () => {
    state.edits.pop();
    attempt(refresh);
  });
  $("restore").addEventListener("click", () => {
    state.edits = [];
    attempt(refresh);
  });
  $("preset").addEventListener("change", (event) => {
    state.preset = event.target.value === open.network.preset ? null : event.target.value;
    attempt(refresh);
  });
  $("gallery").addEventListener("click", (event) => {
    const key = event.target.closest("[data-key]")?.dataset.key;
    if (key) attempt(() => choosePicture(key));
  });
  $("gallery").addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    chooseInGallery(step);
  });
  for (const tab of TABS) $(`tab-${tab}`).addEventListener("click", () => chooseTab(tab));
  document.querySelector(".tabs").addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) chooseTab(TABS[(TABS.indexOf(state.tab) + step + TABS.length) % TABS.length], true);
  });
  $("notice").lastElementChild.addEventListener("click", () => ($("notice").hidden = true));
  $("open-network").addEventListener("click", () => $("network-file").click());
  $("open-pictures").addEventListener("click", () => $("picture-files").click());
  for (const id of ["network-file", "picture-files"]) {
    $(id).addEventListener("change", (event) => {
      dropped([...event.target.files]);
      event.target.value = "";
    });
  }
  addEventListener("dragover", (event) => {
    event.preventDefault();
    document.body.classList.add("dropping");
  });
  addEventListener("dragleave", (event) => event.relatedTarget ?? document.body.classList.remove("dropping"));
  addEventListener("drop", (event) => {
    event.preventDefault();
    document.body.classList.remove("dropping");
    dropped([...event.dataTransfer.files]);
  });
  $("theme").addEventListener("click", () => {
    const isDark = getComputedStyle(document.documentElement).colorScheme === "dark";
    state.theme = isDark ? "light" : "dark";
    showTheme();
    remember();
  });
  // The engine lost what was open: the page begins again.
  addEventListener("session-lost", () => {
    for (const entry of open.pictures.values()) delete entry.id;
    open.network = null;
    attempt(begin);
  });
}

function showTheme() {
  if (state.theme === "light" || state.theme === "dark") document.documentElement.dataset.theme = state.theme;
}

// --- The beginning

async function begin() {
  const said = await backend.ask({ type: "state" });
  open.methods = said.methods;
  const isKnown = (text) => open.methods.some(({ name }) => name === text.split(":")[0]);
  state.methods = state.methods.filter(isKnown);
  if (!state.methods.length) state.methods = [...address.START.methods];
  open.pictures.set("built-in", {
    name: BUILT_IN.picture,
    bytes: () => bytesOf(BUILT_IN.picture),
    thumbnail: BUILT_IN.picture,
  });
  for (const { gallery, name } of said.gallery ?? []) {
    open.pictures.set(`gallery:${gallery}`, { name, gallery, thumbnail: `pictures/${gallery}` });
  }
  let { network, picture: chosen } = state;
  if (said.network && (network === "built-in" || network.startsWith("file:"))) network = "served";
  if (network.startsWith("file:")) {
    complain(new Error(`${network.slice(5)} has to be dropped again; the built-in network is shown until then`));
    Object.assign(state, { class: null, rival: null, layer: null, preset: null });
    network = "built-in";
  }
  await attempt(() => beginNetwork(network, said.network));
  if (!open.network && network !== "built-in") await beginNetwork("built-in", null);
  if (chosen.startsWith("url:")) {
    const url = chosen.slice(4);
    open.pictures.set(chosen, { name: url.split("/").pop(), bytes: () => bytesOf(url), thumbnail: null });
  }
  if (chosen === "built-in" && said.gallery?.length && !location.hash.includes("picture=")) chosen = "gallery:0";
  if (!open.pictures.has(chosen)) chosen = "built-in";
  if (state.picture !== chosen) state.edits = [];
  state.picture = chosen;
  for (const { from } of state.edits) {
    if (from && open.pictures.has(from)) await openInSession(open.pictures.get(from));
  }
  const shown = await attempt(async () => (await choosePicture(chosen), true));
  if (!shown && !open.base && chosen !== "built-in") await choosePicture("built-in");
}

async function beginNetwork(key, served) {
  if (key === "served" && served) return takeNetwork("served", served);
  if (key.startsWith("url:")) {
    const url = key.slice(4);
    return openNetwork(key, url.split("/").pop(), await bytesOf(url));
  }
  return openNetwork("built-in", BUILT_IN.network, await bytesOf(BUILT_IN.network));
}

function showState() {
  showTheme();
  $("alpha").value = state.alpha;
  $("alpha-value").textContent = number(state.alpha);
  $("streams").checked = state.streams;
  $("opacity").value = view.opacity = state.opacity;
  view.radius = 12;
  $("place").textContent =
    config.backend === "server"
      ? "Computed by this machine's own engine; nothing leaves it."
      : "Computed in this page by WebAssembly; nothing leaves it.";
}

listen();
showState();
chooseTab(state.tab);
attempt(begin);
