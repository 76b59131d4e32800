// The page: its controls, and what is asked of the backend when they change.
import { $, attempt, backend, complain, isServed, mapOf, open, picture, question, remember, setAlpha, state, subject, view } from "./app.js";
import { Superseded } from "./backend.js";
import config from "./config.js";
import { showClasses, showExplained } from "./classes.js";
import { bytesOf, chooseInGallery, choosePicture, dropped, openInSession, openNetwork, showGallery, takeNetwork } from "./gallery.js";
import { drawAll, showEdits, showMaps } from "./maps.js";
import { drawable, greyed } from "./panels.js";
import { loadRun } from "./run.js";
import { START } from "./state.js";
import { releaseLayer, showThumbnails } from "./strip.js";
import { TABS, chooseTab, isOpenTab, showTab } from "./tabs.js";

const BUILT_IN = { network: "pets-small.onnx", picture: "chelsea.png" };
/** How long the slider rests before what takes longer is computed. */
const REST = 350;

let resting = 0;
/** The network and the question that the thumbnails are about. */
let thumbnailsOf = {};

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
  open.maps = found.maps.map((map, index) => {
    const colours = found.arrays[`colours ${index}`];
    const values = found.arrays[`values ${index}`];
    const [height, width] = colours.shape;
    return { ...map, shape: values.shape, values: values.values, colours: drawable(colours.values, width, height, 4) };
  });
  view.greyed = null;
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
  const { network } = open;
  const key = JSON.stringify(request);
  if ((thumbnailsOf.network === network && thumbnailsOf.key === key) || !network.layers.length) return;
  try {
    const found = await backend.ask(request);
    thumbnailsOf = { network, key };
    const { shape, values } = found.arrays.thumbnails;
    const [, height, width] = shape;
    const each = height * width * 3;
    showThumbnails(found.layers.map((_, at) => drawable(values.subarray(at * each, (at + 1) * each), width, height, 3)));
  } catch (error) {
    if (error instanceof Superseded) return;
    thumbnailsOf = { network, key };
    showThumbnails([]);
  }
}

function listen() {
  addEventListener("activity", () => document.body.classList.toggle("working", backend.isWorking));
  addEventListener("engine-started", ({ detail: { build, threads } }) => {
    const how = { threads: ` on ${threads} threads`, simd: "", plain: ", slowly, because this browser has no vectors" }[build];
    $("place").textContent = `Computed in this page by WebAssembly${how}; nothing leaves it.`;
  });
  addEventListener("subject-changed", () => attempt(refresh));
  addEventListener("question-changed", () => attempt(explain));
  $("alpha").addEventListener("input", (event) => {
    setAlpha(Number(event.target.value));
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
  $("own-layer").addEventListener("click", () => {
    releaseLayer();
    $("layers").querySelector("[tabindex='0']")?.focus();
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
    const tabs = TABS.filter(isOpenTab);
    if (step) chooseTab(tabs[(tabs.indexOf(state.tab) + step + tabs.length) % tabs.length], true);
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

async function begin() {
  const said = await backend.ask({ type: "state" });
  open.methods = said.methods;
  const isKnown = (text) => open.methods.some(({ name }) => name === text.split(":")[0]);
  state.methods = state.methods.filter(isKnown);
  if (!state.methods.length) state.methods = [...START.methods];
  if (!open.pictures.has("built-in")) open.pictures.set("built-in", {
    name: BUILT_IN.picture,
    bytes: () => bytesOf(BUILT_IN.picture),
    thumbnail: BUILT_IN.picture,
  });
  // What a server was started with, where this page computes itself.
  (config.pictures ?? []).forEach((name, at) => {
    const file = `pictures/${at}`;
    if (!open.pictures.has(`gallery:${at}`)) open.pictures.set(`gallery:${at}`, { name, bytes: () => bytesOf(file), thumbnail: file });
  });
  for (const { gallery, name } of said.gallery ?? []) {
    if (!open.pictures.has(`gallery:${gallery}`)) open.pictures.set(`gallery:${gallery}`, { name, gallery, thumbnail: `pictures/${gallery}` });
  }
  if (said.run) {
    await attempt(loadRun);
    state.firstTab = "run";
    if (!location.hash.includes("tab=")) chooseTab("run");
  }
  if (!isOpenTab(state.tab)) chooseTab("curves");
  let { network, picture: chosen } = state;
  const isHeld = network === `file:${open.file?.name}`;
  if ((said.network || config.network) && !isHeld && (network === "built-in" || network.startsWith("file:"))) network = "served";
  if (network.startsWith("file:") && !isHeld) {
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
  const hasGallery = said.gallery?.length || config.pictures?.length;
  if (chosen === "built-in" && hasGallery && !location.hash.includes("picture=")) chosen = "gallery:0";
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
  if (key === "served" && config.network) return openNetwork(key, config.network, await bytesOf("network"));
  if (key === `file:${open.file?.name}`) return openNetwork(key, open.file.name, await open.file.arrayBuffer());
  if (key.startsWith("url:")) {
    const url = key.slice(4);
    return openNetwork(key, url.split("/").pop(), await bytesOf(url));
  }
  return openNetwork("built-in", BUILT_IN.network, await bytesOf(BUILT_IN.network));
}

function showState() {
  showTheme();
  setAlpha(state.alpha);
  $("streams").checked = state.streams;
  $("opacity").value = view.opacity = state.opacity;
  view.radius = 12;
  if (isServed) $("place").textContent = "Computed by this machine's own engine; nothing leaves it.";
}

listen();
showState();
if (isOpenTab(state.tab)) chooseTab(state.tab);
attempt(begin);
