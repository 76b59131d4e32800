// The WebAssembly module in its workers: which build of it this browser can run, and how it is started, asked and given up.

/** How long workers may take to lend their threads, in milliseconds, before the page does without. */
const PATIENCE = 20_000;
const MOST_THREADS = 16;

/** Whether the browser has 128-bit vectors: the body of the module's one function is `i8x16.popcnt (i8x16.splat (i32.const 0))`. */
const hasVectors = () =>
  WebAssembly.validate(
    Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 10, 1, 8, 0, 65, 0, 253, 15, 253, 98, 11),
  );

/** The threads that the engine may have. Memory is shared only on pages whose server isolates them from others. */
const threads = () => (globalThis.crossOriginIsolated ? Math.min(navigator.hardwareConcurrency || 1, MOST_THREADS) : 1);

/** Of the builds that there are, those that this browser can run, fastest first. */
export function usable(builds) {
  const can = { threads: hasVectors() && threads() > 1, simd: hasVectors(), plain: true };
  return Object.keys(can).filter((build) => can[build] && builds.includes(build));
}

/** A module that runs: the worker with the session, and those that lend it their threads. */
export class RunningModule {
  #workers = [];
  #build;
  #waiting = null;
  #interruption = null;
  #whenLost;
  /** The threads that compute. */
  threads = 1;
  /** The bytes of memory that it has taken. It gives none back, but uses them again. */
  memoryBytes = 0;

  /** `whenLost` is called if the module cannot be used any more after it was started. */
  constructor(build, whenLost) {
    this.#build = build;
    this.#whenLost = whenLost;
  }

  async start() {
    const session = this.#spawn();
    const { begun } = await this.#tell(session, { act: "start", build: this.#build });
    const count = this.#build === "threads" ? threads() : 0;
    if (count > 0) {
      const { module, memory, interruption } = begun;
      this.#interruption = new Int32Array(memory.buffer, interruption, 1);
      await this.#lend(count, { act: "lend", build: this.#build, module, memory });
      this.threads = count;
    }
    await this.#tell(session, { act: "open", threads: count });
  }

  /** The bytes of the answer to a request. One is asked at a time. */
  async ask(request, payload) {
    if (this.#interruption) Atomics.store(this.#interruption, 0, 0);
    const { answer, bytes } = await this.#tell(this.#workers[0], { act: "ask", request, payload }, [payload]);
    this.memoryBytes = bytes;
    return answer;
  }

  /** Nobody waits any more for what is computed. Without shared memory it is computed to its end. */
  interrupt() {
    if (this.#interruption) Atomics.store(this.#interruption, 0, 1);
  }

  end() {
    for (const worker of this.#workers) worker.terminate();
    this.#workers = [];
  }

  #spawn() {
    const worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
    worker.onmessage = ({ data }) => (data.fault === undefined ? this.#answered(data) : this.#lose(data.fault));
    worker.onerror = (event) => this.#lose(event.message ?? "a worker cannot be started");
    this.#workers.push(worker);
    return worker;
  }

  #tell(worker, message, transfer = []) {
    return new Promise((resolve, reject) => {
      this.#waiting = { resolve, reject };
      worker.postMessage(message, transfer);
    });
  }

  #lend(count, message) {
    return new Promise((resolve, reject) => {
      const late = setTimeout(() => reject(new Error("the threads do not start")), PATIENCE);
      let missing = count;
      const lent = () => {
        missing -= 1;
        if (missing > 0) return;
        clearTimeout(late);
        resolve();
      };
      this.#waiting = { resolve: lent, reject };
      for (let number = 0; number < count; number += 1) this.#spawn().postMessage(message);
    });
  }

  #answered(data) {
    this.#waiting?.resolve(data);
  }

  #lose(fault) {
    this.end();
    this.#waiting?.reject(new Error(fault));
    this.#waiting = null;
    this.#whenLost();
  }
}
