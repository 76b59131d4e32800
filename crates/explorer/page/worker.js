// The engine as WebAssembly, away from the page's own thread. One worker holds the session: a message is a request with its file,
// and the answer is the bytes that `Response::encode` in crates/explorer writes. Others lend it their threads, where a memory can be
// shared.
const FOLDERS = { threads: "./threads", simd: ".", plain: "./plain" };

let engine;
let explorer;
let memory;

async function load(build) {
  engine = await import(`${FOLDERS[build]}/monosplit_web.js`);
}

/** What the page may ask of a worker, by the message's one name. */
const ACTS = {
  async start({ build }) {
    await load(build);
    if (build !== "threads") {
      ({ memory } = await engine.default());
      return { begun: {} };
    }
    // Compiled once, for all workers.
    const file = await fetch(new URL(`${FOLDERS[build]}/monosplit_web_bg.wasm`, import.meta.url));
    const module = await WebAssembly.compile(await file.arrayBuffer());
    ({ memory } = await engine.default({ module_or_path: module }));
    return { begun: { module, memory, interruption: engine.interruption_address() } };
  },

  async lend({ module, memory: shared, build }) {
    await load(build);
    engine.initSync({ module, memory: shared });
    self.postMessage({ lent: true });
    // Never returns: from now on the session's engine has this thread.
    engine.lend_thread();
  },

  open({ threads }) {
    if (threads > 0) engine.wait_for_threads(threads);
    explorer = new engine.Explorer();
    return { ready: true };
  },

  ask({ request, payload }) {
    const answer = explorer.handle(new TextEncoder().encode(request), new Uint8Array(payload));
    return { answer: answer.buffer, bytes: memory.buffer.byteLength };
  },
};

self.onmessage = async ({ data }) => {
  try {
    const answer = await ACTS[data.act](data);
    if (answer) self.postMessage(answer, answer.answer ? [answer.answer] : []);
  } catch (cause) {
    // A trap leaves the module unusable: the page starts it again.
    self.postMessage({ fault: String(cause) });
  }
};
