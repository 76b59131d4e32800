// What answers requests: WebAssembly in a worker, or a server. Both compute one request at a time. Requests wait in slots, one in
// each, so that of many in the same slot (a slider's) only the latest is sent.
import { RunningModule, usable } from "./module.js";

/** Slots in the order in which they are served. */
const ORDER = ["open", "state", "classes", "explain", "patch", "layers", "lines", "shares", "curves", "verify", "file"];
/** Slots whose running request is given up when one of the first four waits. */
const BACKGROUND = new Set(["patch", "layers", "curves", "verify"]);

/** Thrown to whoever asked for something that is not wanted any more. */
export class Superseded extends Error {}

/** Reads what `Response::encode` wrote. */
export function decode(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const arrays = {};
  for (const { name, kind, shape, start, bytes } of header.arrays) {
    const at = 4 + length + start;
    const values = kind === "f32" ? new Float32Array(buffer, at, bytes / 4) : new Uint8Array(buffer, at, bytes);
    arrays[name] = { shape, values };
  }
  return { ...header, arrays };
}

/** A queue of at most one request in each slot before something that computes one at a time. */
export class Backend {
  #waiting = new Map();
  #running = null;
  #transport;
  /** Whether anything is computed; the event "activity" says that this changed. */
  isWorking = false;

  constructor(transport) {
    this.#transport = transport;
  }

  /** Answers a request; rejects with `Superseded` if a later one takes its slot. */
  ask(request, { slot = request.type, payload = new ArrayBuffer(0) } = {}) {
    return new Promise((resolve, reject) => {
      this.#waiting.get(slot)?.reject(new Superseded());
      this.#waiting.set(slot, { request: { ...request, slot }, payload, slot, resolve, reject });
      if (this.#running && BACKGROUND.has(this.#running.slot) && ORDER.indexOf(slot) < 4) this.#transport.cancel();
      this.#next();
    });
  }

  /** Whether anything is computed or waits in a slot. */
  isBusy(slot) {
    return this.#running?.slot === slot || this.#waiting.has(slot);
  }

  #tell() {
    const isWorking = this.#running !== null || this.#waiting.size > 0;
    if (isWorking === this.isWorking) return;
    this.isWorking = isWorking;
    dispatchEvent(new Event("activity"));
  }

  async #next() {
    this.#tell();
    if (this.#running || this.#waiting.size === 0) return;
    const slot = ORDER.find((slot) => this.#waiting.has(slot)) ?? this.#waiting.keys().next().value;
    const job = this.#waiting.get(slot);
    this.#waiting.delete(slot);
    this.#running = job;
    try {
      const answer = decode(await this.#transport.send(job.request, job.payload));
      const isLost = answer.newSession && job.request.type !== "state";
      if (isLost) dispatchEvent(new Event("session-lost"));
      if (answer.cancelled || isLost) job.reject(new Superseded());
      else if (answer.error) job.reject(new Error(answer.error));
      else job.resolve(answer);
    } catch (cause) {
      job.reject(cause);
    } finally {
      this.#running = null;
      this.#next();
    }
  }
}

/** Requests go to the engine in a worker. */
export class WorkerTransport {
  /** Builds of the module that can be tried, best first. */
  #builds;
  #module = null;
  #starting = null;

  /** `builds` are those that there are beside the page: "threads", "simd", "plain". */
  constructor(builds = ["simd"]) {
    this.#builds = usable(builds);
  }

  async send(request, payload) {
    const module = await (this.#starting ??= this.#start());
    try {
      return await module.ask(JSON.stringify(request), payload);
    } catch {
      throw new Error("this is too large for the memory of the page; `monosplit serve` has more");
    }
  }

  /** The bytes of memory that the engine has taken. */
  get memoryBytes() {
    return this.#module?.memoryBytes ?? 0;
  }

  /** Only what is computed in shared memory can be told. */
  cancel() {
    this.#module?.interrupt();
  }

  /** Starts the best build that runs. */
  async #start() {
    for (; this.#builds.length > 0; this.#builds.shift()) {
      const module = new RunningModule(this.#builds[0], () => this.#lost(module));
      try {
        await module.start();
        this.#module = module;
        dispatchEvent(new CustomEvent("engine-started", { detail: { build: this.#builds[0], threads: module.threads } }));
        return module;
      } catch {
        module.end();
      }
    }
    throw new Error("the WebAssembly module cannot be loaded here; `monosplit serve` needs none");
  }

  /** A module that was started can compute no more: the next request starts another. */
  #lost(module) {
    if (this.#module !== module) return;
    this.#module = this.#starting = null;
    dispatchEvent(new Event("session-lost"));
  }
}

/** Requests go to the server that sent the page. */
export class ServerTransport {
  #session = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  #abort = null;

  constructor() {
    addEventListener("pagehide", () => navigator.sendBeacon(`close?session=${this.#session}`));
  }

  async send(request, payload) {
    const text = new TextEncoder().encode(JSON.stringify(request));
    const length = new Uint8Array(4);
    new DataView(length.buffer).setUint32(0, text.length, true);
    this.#abort = new AbortController();
    const body = new Blob([length, text, payload]);
    let answer;
    try {
      answer = await fetch(`ask?session=${this.#session}`, { method: "POST", body, signal: this.#abort.signal });
    } catch (cause) {
      if (cause.name === "AbortError") throw new Superseded();
      throw new Error("the server does not answer any more; start `monosplit serve` again");
    }
    if (!answer.ok) throw new Error((await answer.text()).trim());
    return answer.arrayBuffer();
  }

  /** The server sees that nobody waits, and stops. */
  cancel() {
    this.#abort?.abort();
  }
}
