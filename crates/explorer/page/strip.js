// The network as a strip of layers, with the map of the first method above each.
import { $, changed, open, state } from "./app.js";
import { element } from "./charts.js";

/** The strip of the open network, without thumbnails. */
export function showStrip() {
  const { layers } = open.network;
  $("layers").replaceChildren(...layers.map((layer, at) => layerOption(layer, at)));
  $("layers-title").hidden = layers.length === 0;
}

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
  changed("question");
}

/** Reads each method at its own layer again. */
export function releaseLayer() {
  state.layer = null;
  changed("question");
}

function markLayer(focus) {
  $("own-layer").hidden = state.layer === null;
  const chosen = state.layer ?? open.maps[0]?.layer;
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

export function showThumbnails(drawn) {
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
