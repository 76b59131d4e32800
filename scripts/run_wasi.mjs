// Runs a WebAssembly program of the target wasm32-wasip1 under Node, with all files of the machine at their own paths.
// Cargo calls it as the target's runner: `scripts/check_wasm.sh`.
import { readFile } from "node:fs/promises";
import { WASI } from "node:wasi";

const [program, ...rest] = process.argv.slice(2);
const wasi = new WASI({
  version: "preview1",
  args: [program, ...rest],
  env: { PWD: process.cwd(), ...process.env },
  preopens: { "/": "/" },
  returnOnExit: true,
});
const module = await WebAssembly.compile(await readFile(program));
const instance = await WebAssembly.instantiate(module, wasi.getImportObject());
process.exitCode = wasi.start(instance);
