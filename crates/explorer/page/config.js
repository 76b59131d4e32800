// What computes: "worker" is WebAssembly in this browser. A server sends another file in the place of this one.
export default { backend: "worker" };
