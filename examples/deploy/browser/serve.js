// Serves the page, the runtime and the compiled network to this computer alone: npm start, PORT says where.

import { createReadStream } from 'node:fs';
import { createServer } from 'node:http';
import { fileURLToPath } from 'node:url';

const RUNTIME = 'node_modules/onnxruntime-web/dist/';
const FILES = {
  '/': ['page.html', 'text/html; charset=utf-8'],
  '/page.js': ['page.js', 'text/javascript'],
  '/picture.js': ['../picture.js', 'text/javascript'],
  '/explained.onnx': ['../explained.onnx', 'application/octet-stream'],
  '/classes.txt': ['../../../crates/monosplit/assets/pets-classes.txt', 'text/plain; charset=utf-8'],
  '/ort.mjs': [RUNTIME + 'ort.wasm.min.mjs', 'text/javascript'],
  '/ort-wasm-simd-threaded.mjs': [RUNTIME + 'ort-wasm-simd-threaded.mjs', 'text/javascript'],
  '/ort-wasm-simd-threaded.wasm': [RUNTIME + 'ort-wasm-simd-threaded.wasm', 'application/wasm'],
};

const server = createServer((request, response) => {
  const [file, type] = FILES[request.url] ?? [];
  if (!file) {
    response.writeHead(404).end();
    return;
  }
  // The policy is what keeps the promise that nothing leaves the page.
  response.writeHead(200, {
    'Content-Type': type,
    'Content-Security-Policy':
      "default-src 'self'; script-src 'self' 'wasm-unsafe-eval' blob:; worker-src 'self' blob:; img-src 'self' blob:; style-src 'self' 'unsafe-inline'",
  });
  createReadStream(fileURLToPath(new URL(file, import.meta.url))).pipe(response);
});

server.listen(Number(process.env.PORT ?? 8080), '127.0.0.1', () => {
  console.log(`Open http://localhost:${server.address().port}/`);
});
