// What is chosen, what is open, and how the rest of the page is told that either changed.
import config from "./config.js";
import { Backend, ServerTransport, Superseded, WorkerTransport } from "./backend.js";
import { number } from "./charts.js";
import { View } from "./panels.js";
import * as address from "./state.js";

export const $ = (id) => document.getElementById(id);
export const isServed = config.backend === "server";
export const state = address.read(location);
export const backend = new Backend(isServed ? new ServerTransport() : new WorkerTransport(config.builds));
export const view = new View();

/** What is open, and the last answers about it. */
export const open = {
  network: null,
  /** The file of a network that was dropped. */
  file: null,
  methods: [],
  pictures: new Map(),
  classes: [],
  /** The picture as the network reads it, in colour and in grey. */
  base: null,
  grey: null,
  explained: null,
  maps: [],
};

/** A name without what cannot be shown. */
export const clean = (name) => String(name).replace(/[\u0000-\u001f\u007f]/g, "");

/** Tells the page that the picture or its changes ("subject"), or what is asked of it ("question"), are others now. */
export const changed = (what) => dispatchEvent(new Event(`${what}-changed`));

export function complain(error) {
  if (error instanceof Superseded) return;
  $("notice").hidden = false;
  $("notice").firstElementChild.textContent = clean(error.message || error);
}

/** Does something, and says in one line why it could not be done. */
export async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    complain(error);
    return undefined;
  }
}

let written = 0;
export function remember() {
  clearTimeout(written);
  written = setTimeout(() => history.replaceState(null, "", address.write(state)), 120);
}

/** Sets α, and the slider with it. */
export function setAlpha(alpha) {
  state.alpha = Math.min(0.5, Math.max(0, alpha)) || 0;
  $("alpha").value = state.alpha;
  $("alpha-value").textContent = number(state.alpha);
}

export const picture = () => open.pictures.get(state.picture);

export function subject(more = []) {
  const edits = [...state.edits, ...more].map(({ from, ...edit }) => {
    const other = from ? open.pictures.get(from)?.id : undefined;
    return other === undefined ? edit : { ...edit, with: other };
  });
  return { picture: picture().id, preset: state.preset, edits };
}

export const question = () => ({ subject: subject(), class: state.class, rival: state.rival, alpha: state.alpha });
/** A method at the chosen layer; without one each method is read at its own. */
export const mapOf = (method) => ({ method, layer: state.layer });
