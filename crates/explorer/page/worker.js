// The engine as WebAssembly, away from the page's own thread. A message is a request with its file; the answer is the bytes that
// `Response::encode` in crates/explorer writes.
import init, { Explorer } from "./monosplit_web.js";

const ready = init().then(() => new Explorer());

self.onmessage = async ({ data }) => {
  const { number, request, payload } = data;
  try {
    const explorer = await ready;
    const answer = explorer.handle(new TextEncoder().encode(request), new Uint8Array(payload));
    self.postMessage({ number, answer: answer.buffer }, [answer.buffer]);
  } catch (cause) {
    // A trap leaves the module unusable: the page starts another worker.
    self.postMessage({ number, fault: String(cause) });
  }
};
