// The network and the pictures that are open: dropping, fetching, choosing them.
import { $, attempt, backend, changed, clean, open, state } from "./app.js";
import { element } from "./charts.js";
import { showStrip } from "./strip.js";

export async function bytesOf(url) {
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

export async function openNetwork(key, name, payload) {
  const network = await backend.ask({ type: "open-network", name }, { slot: "open", payload });
  takeNetwork(key, network);
}

export function takeNetwork(key, network) {
  const isOther = open.network && state.network !== key;
  open.network = network;
  state.network = key;
  if (isOther) Object.assign(state, { class: null, rival: null, layer: null, preset: null, edits: [] });
  // An address may have been written for another network.
  if (state.class >= network.classes || state.rival >= network.classes) Object.assign(state, { class: null, rival: null });
  showNetwork();
}

/** Opens a picture in the session unless it is open, and chooses it. */
export async function choosePicture(key) {
  const entry = open.pictures.get(key);
  if (!entry) throw new Error("that picture has to be dropped again");
  await openInSession(entry);
  if (state.picture !== key) state.edits = [];
  state.picture = key;
  showGallery();
  changed("subject");
}

export async function openInSession(entry) {
  if (entry.id !== undefined) return;
  const request = { type: "open-picture", name: entry.name };
  if (entry.gallery !== undefined) request.gallery = entry.gallery;
  const payload = entry.gallery === undefined ? await entry.bytes() : new ArrayBuffer(0);
  const opened = await backend.ask(request, { slot: "open", payload });
  entry.id = opened.picture;
  entry.size = [opened.width, opened.height];
}

export async function dropped(files) {
  $("notice").hidden = true;
  let last = null;
  for (const file of files) {
    if (/\.onnx$/i.test(file.name)) {
      await attempt(async () => {
        await openNetwork(`file:${file.name}`, file.name, await file.arrayBuffer());
        open.file = file;
        changed("subject");
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

function showNetwork() {
  const { name, classes, size, parameters, presets, preset, presetReason, remarks } = open.network;
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
  showStrip();
}

export function showGallery() {
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

export function chooseInGallery(step) {
  const keys = [...open.pictures.keys()];
  const next = keys[(keys.indexOf(state.picture) + step + keys.length) % keys.length];
  attempt(() => choosePicture(next));
}
