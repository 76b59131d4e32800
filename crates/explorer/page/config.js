// What computes: "worker" is WebAssembly in this browser, of which there are these builds. `scripts/build_web.sh` and servers send
// another file in the place of this one.
export default { backend: "worker", builds: ["simd"] };
