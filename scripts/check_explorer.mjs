// Checks the explorer in a real browser: what the page computes against the program and against ONNX Runtime, what it asks of the
// network, and what damaged files do to it. `scripts/check_explorer.sh` builds what is needed and calls this.
//
//     node scripts/check_explorer.mjs --folder target/explorer --program target/release/monosplit --packages target/tools/node
//         [--models FOLDER] [--hostile FOLDER] [--onnxruntime PYTHON] [--screenshots FOLDER] [--only CHECK]… [--times]
//
// --packages has playwright-core and onnxruntime-web of npm; --onnxruntime a Python with onnxruntime and numpy. --times also holds
// the page to the times it should keep, which only a machine that does nothing else can be asked for; they are always printed.
import { execFileSync } from "node:child_process";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { copyFileSync, mkdtempSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync, existsSync } from "node:fs";
import { tmpdir } from "node:os";
import { extname, join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { gzipSync, brotliCompressSync } from "node:zlib";

const { values: options } = parseArgs({
  options: {
    folder: { type: "string", default: "target/explorer" },
    program: { type: "string" },
    packages: { type: "string", default: "target/tools/node" },
    browser: { type: "string", default: "chromium" },
    models: { type: "string" },
    hostile: { type: "string" },
    onnxruntime: { type: "string" },
    screenshots: { type: "string" },
    only: { type: "string", multiple: true },
    times: { type: "boolean", default: false },
  },
});
const root = resolve(options.folder);
const packages = resolve(options.packages, "node_modules");
const { chromium } = createRequire(join(packages, "x.js"))("playwright-core");
const scratch = mkdtempSync(join(tmpdir(), "monosplit-explorer-"));
const network = join(root, "pets-small.onnx");
const photograph = join(root, "chelsea.png");

let failures = 0;
function report(holds, what) {
  console.log(`${holds ? "ok  " : "FAIL"} ${what}`);
  if (!holds) failures += 1;
}
/** A time and its limit: printed, and held to with --times. */
function timed(milliseconds, limit, what) {
  report(!options.times || milliseconds <= limit, `${what}: ${milliseconds.toFixed(1)} ms (limit ${limit} ms on an idle machine)`);
}
const median = (numbers) => numbers.toSorted((a, b) => a - b)[numbers.length >> 1];

/** The values of a `.npy` file of single-precision numbers. */
function npy(path) {
  const bytes = readFileSync(path);
  const start = 10 + bytes.readUInt16LE(8);
  const header = bytes.subarray(10, start).toString("latin1");
  if (!header.includes("'<f4'")) throw new Error(`${path} holds no float32: ${header}`);
  return new Float32Array(bytes.buffer.slice(bytes.byteOffset + start, bytes.byteOffset + bytes.length));
}

/** The largest difference of two arrays over the largest value. */
function distance(found, expected) {
  if (found.length !== expected.length) return Number.POSITIVE_INFINITY;
  let largest = 0;
  let apart = 0;
  for (let i = 0; i < found.length; i += 1) {
    largest = Math.max(largest, Math.abs(expected[i]));
    apart = Math.max(apart, Math.abs(found[i] - expected[i]));
    if (Number.isNaN(found[i])) return Number.NaN;
  }
  return apart / Math.max(largest, Number.MIN_VALUE);
}

const TYPES = {
  ".html": "text/html", ".js": "text/javascript", ".mjs": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml",
  ".wasm": "application/wasm", ".png": "image/png", ".onnx": "application/octet-stream",
};

/** Sends the page, and below /peer/ the package it is compared with, which only this script asks for. */
const server = createServer((request, response) => {
  const path = decodeURIComponent(new URL(request.url, "http://localhost").pathname);
  let file = join(root, path.endsWith("/") ? "index.html" : path);
  if (path.startsWith("/peer/")) file = join(packages, "onnxruntime-web/dist", path.slice(6));
  if (path.startsWith("/models/") && options.models) file = join(options.models, path.slice(8));
  if (path === "/empty.html") return response.setHeader("content-type", "text/html").end("<!doctype html><title>empty</title>");
  if (!existsSync(file) || !statSync(file).isFile()) return response.writeHead(404).end();
  response.setHeader("content-type", TYPES[extname(file)] ?? "application/octet-stream");
  response.end(readFileSync(file));
});
await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
const origin = `http://127.0.0.1:${server.address().port}`;

const browser = await chromium.launch({
  executablePath: options.browser.includes("/") ? options.browser : `/usr/bin/${options.browser}`,
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync"],
});

/** A page without content on which the backend of the page is ready, with the network and the photograph open. */
async function backend(files) {
  const page = await browser.newPage();
  await page.goto(`${origin}/empty.html`);
  await page.evaluate(async (files) => {
    const { Backend, WorkerTransport } = await import("/backend.js");
    const backend = new Backend(new WorkerTransport());
    const get = async (path) => (await fetch(path)).arrayBuffer();
    globalThis.ask = (request, payload) => backend.ask(request, { payload });
    globalThis.open = async (file, type) => globalThis.ask({ type, name: file }, await get(file));
    globalThis.network = await globalThis.open(files.network, "open-network");
    globalThis.picture = (await globalThis.open(files.picture, "open-picture")).picture;
    globalThis.explain = async (maps, alpha, further = {}) =>
      globalThis.ask({ type: "explain", subject: { picture: globalThis.picture }, alpha, maps, ...further });
  }, files);
  return page;
}
const BUILT_IN = { network: "/pets-small.onnx", picture: "/chelsea.png" };

/** What the canvases of the maps show. */
const pixels = (page) => page.evaluate(() => [...document.querySelectorAll("#maps canvas")].map((canvas) => canvas.toDataURL()));

/** Counts what the page asks of its worker, and how long its own thread is blocked. */
function watch() {
  globalThis.watched = { explain: 0, pending: 0, longest: 0 };
  const send = Worker.prototype.postMessage;
  Worker.prototype.postMessage = function (message, ...rest) {
    watched.explain += JSON.parse(message.request).type === "explain";
    watched.pending += 1;
    if (!this.isWatched) this.addEventListener("message", () => { watched.pending -= 1; });
    this.isWatched = true;
    return send.call(this, message, ...rest);
  };
  new PerformanceObserver((list) => {
    for (const { duration } of list.getEntries()) watched.longest = Math.max(watched.longest, duration);
  }).observe({ entryTypes: ["longtask"] });
}

/** Waits until nothing has been computed and no map has changed for a second. */
async function settled(page) {
  let before = "";
  for (let second = 0; second < 120; second += 1) {
    const busy = await page.evaluate(() => globalThis.watched.pending > 0);
    const now = JSON.stringify(await pixels(page));
    if (now === before && !busy) return;
    before = busy ? "" : now;
    await page.waitForTimeout(1000);
  }
  throw new Error("the maps do not come to rest");
}

/** A folder with the network and the photograph under the names that the page knows. */
function scratchWithInputs() {
  copyFileSync(network, join(scratch, "pets-small.onnx"));
  copyFileSync(photograph, join(scratch, "chelsea.png"));
  return scratch;
}

const CHECKS = {
  async "what is sent is small"() {
    const module = readFileSync(join(root, "monosplit_web_bg.wasm"));
    const [zipped, packed] = [gzipSync(module, { level: 9 }).length, brotliCompressSync(module).length];
    const size = `the module has ${(module.length / 2 ** 20).toFixed(2)} MiB, by gzip ${(zipped / 2 ** 20).toFixed(2)}, by brotli ${(packed / 2 ** 20).toFixed(2)} (limit 3)`;
    report(zipped <= 3 * 2 ** 20, size);
  },

  async "maps are those of the program"() {
    if (!options.program) return report(true, "maps against the program: skipped, no --program");
    const page = await backend(BUILT_IN);
    for (const [method, alpha] of [["splitcam", 0.4], ["splitcam", 0.2], ["splitgrad", 0.3], ["splitlrp", null], ["gradcam", null], ["lrp", null]]) {
      const found = await page.evaluate(async ([method, alpha]) => {
        const answer = await globalThis.explain([{ method }], alpha);
        return { class: answer.explained.class, layer: answer.maps[0].layer, values: Array.from(answer.arrays["values 0"].values) };
      }, [method, alpha]);
      const file = join(scratch, "map.npy");
      const given = ["explain", network, photograph, "--method", method, "--raw", file, "--out", scratch, "--json"];
      if (found.layer !== null) given.push("--layer", found.layer);
      if (alpha !== null) given.push("--alpha", String(alpha));
      const written = execFileSync(options.program, given, { encoding: "utf8" });
      const said = JSON.parse(written);
      const apart = distance(found.values, npy(file));
      const same = JSON.stringify(said).includes(`"class":${found.class}`);
      report(apart <= 1e-4 && same, `${method}${alpha === null ? "" : ` α ${alpha}`}: class ${found.class}, ${apart.toExponential(1)} from the program`);
    }
    await page.close();
  },

  async "α is live"() {
    const page = await backend(BUILT_IN);
    const times = await page.evaluate(async () => {
      const times = [];
      await globalThis.explain([{ method: "splitcam" }], 0.4);
      for (let step = 0; step < 20; step += 1) {
        const begun = performance.now();
        await globalThis.explain([{ method: "splitcam" }], step / 40);
        times.push(performance.now() - begun);
      }
      return times;
    });
    timed(median(times), 120, "a step of α in the built-in network, median of twenty");
    await page.close();
    // The same module under Node, where its processor time can be asked for, which others on the machine hardly change.
    copyFileSync(join(root, "monosplit_web.js"), join(scratch, "monosplit_web.mjs"));
    const { initSync, Explorer } = await import(join(scratch, "monosplit_web.mjs"));
    const { memory } = initSync({ module: readFileSync(join(root, "monosplit_web_bg.wasm")) });
    const explorer = new Explorer();
    const ask = (request, payload = new Uint8Array()) => {
      const answer = explorer.handle(Buffer.from(JSON.stringify(request)), payload);
      const length = new DataView(answer.buffer, answer.byteOffset).getUint32(0, true);
      return JSON.parse(Buffer.from(answer.subarray(4, 4 + length)).toString());
    };
    ask({ type: "open-network", name: "pets-small.onnx" }, readFileSync(network));
    const { picture } = ask({ type: "open-picture", name: "chelsea.png" }, readFileSync(photograph));
    const step = (alpha) => ask({ type: "explain", subject: { picture }, alpha, maps: [{ method: "splitcam" }] });
    for (let warm = 0; warm < 10; warm += 1) step(0.4);
    const steps = Array.from({ length: 20 }, (_, at) => {
      const begun = process.cpuUsage();
      step(at / 40);
      return process.cpuUsage(begun).user / 1000;
    });
    report(true, `under Node a step takes ${median(steps).toFixed(1)} ms of processor time, ${(memory.buffer.byteLength / 2 ** 20).toFixed(0)} MiB of memory in all`);
  },

  async "the page"() {
    const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, acceptDownloads: true });
    const page = await context.newPage();
    const requests = [];
    const complaints = [];
    page.on("request", (request) => requests.push(request));
    page.on("console", (message) => message.type() === "error" && complaints.push(message.text()));
    page.on("pageerror", (error) => complaints.push(error.message));
    await page.addInitScript(watch);
    const begun = performance.now();
    await page.goto(`${origin}/`);
    await page.waitForSelector("#maps canvas >> nth=1");
    console.log(`     the first map is there after ${(performance.now() - begun).toFixed(0)} ms`);
    await settled(page);
    const before = await pixels(page);
    report(before.length === 2, "the built-in network and photograph are explained at once");

    // A slider that is dragged: events faster than maps.
    await page.evaluate(() => { watched.longest = 0; });
    const move = (count) => page.evaluate(async (count) => {
      const slider = document.getElementById("alpha");
      watched.explain = 0;
      for (let step = 0; step < count; step += 1) {
        slider.value = String(0.5 * step / count);
        slider.dispatchEvent(new Event("input", { bubbles: true }));
        if (step % 10 === 9) await new Promise((next) => requestAnimationFrame(next));
      }
      return watched.explain;
    }, count);
    const during = await move(200);
    await settled(page);
    const asked = await page.evaluate(() => watched.explain);
    report(asked > 0 && asked <= during + 1 && asked < 200, `200 slider events ask for ${asked} maps, ${asked - during} of them after the last event`);
    const longest = await page.evaluate(() => watched.longest);
    timed(longest, 50, "the page's own thread is blocked at most");

    const moved = await pixels(page);
    report(moved[1] !== before[1], "the map changes with α");
    await page.reload();
    await page.waitForSelector("#maps canvas >> nth=1");
    await settled(page);
    const again = await pixels(page);
    report(JSON.stringify(again) === JSON.stringify(moved), "the reloaded address gives the same pixels");

    // Files from the page, and its line for the program.
    await page.click("#tab-files");
    const download = page.waitForEvent("download");
    await page.getByRole("button", { name: "explained.onnx" }).click();
    const file = join(scratch, "downloaded.onnx");
    await (await download).saveAs(file);
    report(statSync(file).size > statSync(network).size, `explained.onnx is downloaded: ${statSync(file).size} bytes`);
    if (options.program) {
      const line = (await page.locator("#panel .code pre").first().textContent()).trim();
      const shown = await page.evaluate(async () => {
        const { Backend, WorkerTransport } = await import("/backend.js");
        const other = new Backend(new WorkerTransport());
        const get = async (path) => (await fetch(path)).arrayBuffer();
        await other.ask({ type: "open-network", name: "pets-small.onnx" }, { payload: await get("/pets-small.onnx") });
        const { picture } = await other.ask({ type: "open-picture", name: "chelsea.png" }, { payload: await get("/chelsea.png") });
        const alpha = Number(document.getElementById("alpha").value);
        const answer = await other.ask({ type: "explain", subject: { picture }, alpha, maps: [{ method: "splitcam" }] });
        return Array.from(answer.arrays["values 0"].values);
      });
      const command = line.replace(/^monosplit /, `'${resolve(options.program)}' `);
      execFileSync("bash", ["-c", command], { cwd: scratchWithInputs(), stdio: "pipe" });
      const apart = distance(shown, npy(join(scratch, "map.npy")));
      report(apart <= 1e-4, `the pasted line gives the same map (${apart.toExponential(1)}): ${line}`);
    }

    // Files that cannot be read, dropped on the page.
    const whole = readFileSync(network);
    await page.setInputFiles("#network-file", { name: "cut.onnx", mimeType: "application/octet-stream", buffer: whole.subarray(0, whole.length >> 1) });
    await page.waitForSelector("#notice:not([hidden])");
    const notice = (await page.locator("#notice p").textContent()).trim();
    report(notice.includes("cut.onnx") && !notice.includes("\n"), `a truncated network: ${notice}`);
    await page.setInputFiles("#picture-files", { name: "cut.png", mimeType: "image/png", buffer: readFileSync(photograph).subarray(0, 5000) });
    await page.waitForFunction(() => document.querySelector("#notice p").textContent.includes("cut.png"));
    await move(3);
    await settled(page);
    report((await pixels(page))[1] !== moved[1], "the page lives on");

    const foreign = requests.filter((request) => !/^(blob|data):/.test(request.url()) && !request.url().startsWith(`${origin}/`));
    const posted = requests.filter((request) => request.method() !== "GET");
    report(foreign.length === 0, `no request leaves the origin (${requests.length} requests)${foreign.map((request) => ` ${request.url()}`)}`);
    report(posted.length === 0, `nothing is posted${posted.map((request) => ` ${request.method()} ${request.url()}`)}`);
    report(complaints.length === 0, `no error is printed in the console${complaints.map((text) => ` ${text}`)}`);
    await context.close();

    const other = await browser.newPage();
    await other.goto(`${origin}/?url=pets-small.onnx`);
    await other.waitForSelector("#maps canvas >> nth=1");
    report((await other.locator("#network").textContent()).includes("pets-small.onnx"), "?url= opens a network of the same origin");
    await other.close();
  },

  async "small and dark"() {
    for (const width of [1280, 400]) {
      for (const colorScheme of ["light", "dark"]) {
        const page = await browser.newPage({ viewport: { width, height: width === 400 ? 860 : 900 }, colorScheme });
        await page.addInitScript(watch);
        await page.goto(`${origin}/`);
        await page.waitForSelector("#maps canvas >> nth=1");
        await settled(page);
        const wide = await page.evaluate(() => document.documentElement.scrollWidth);
        report(wide <= width, `${width} pixels, ${colorScheme}: the page is ${wide} wide`);
        if (options.screenshots) {
          await page.screenshot({ path: join(options.screenshots, `explorer-${width}-${colorScheme}.png`), fullPage: width === 400 });
        }
        await page.close();
      }
    }
  },

  async "other networks"() {
    if (!options.models) return report(true, "ResNet18 and SqueezeNet: skipped, no --models");
    for (const name of ["squeezenet1.1-imagenet.onnx", "resnet18-imagenet.onnx"]) {
      if (!existsSync(join(options.models, name))) { report(true, `${name}: skipped, not there`); continue; }
      const page = await backend({ network: `/models/${name}`, picture: "/chelsea.png" });
      const found = await page.evaluate(async () => {
        const first = await globalThis.explain([{ method: "splitcam" }], 0.4);
        const times = [];
        for (let step = 0; step < 7; step += 1) {
          const begun = performance.now();
          await globalThis.explain([{ method: "splitcam" }], 0.2 + step / 100);
          times.push(performance.now() - begun);
        }
        return { name: first.explained.name, size: globalThis.network.size, times, finite: first.arrays["values 0"].values.every(Number.isFinite) };
      });
      report(found.finite, `${name}: ${found.name}`);
      // The page above stays open and idle: both are measured on the same machine at the same time.
      const plain = await page.evaluate(async ({ path, size }) => {
        const ort = await import("/peer/ort.wasm.min.mjs");
        ort.env.wasm.numThreads = 1;
        ort.env.wasm.wasmPaths = "/peer/";
        const session = await ort.InferenceSession.create(new Uint8Array(await (await fetch(path)).arrayBuffer()));
        const image = new Float32Array(size[0] * size[1] * size[2]).map((_, i) => Math.sin(i));
        const feed = { [session.inputNames[0]]: new ort.Tensor("float32", image, [1, ...size]) };
        const times = [];
        for (let run = 0; run < 8; run += 1) {
          const begun = performance.now();
          await session.run(feed);
          times.push(performance.now() - begun);
        }
        return times.slice(1);
      }, { path: `/models/${name}`, size: found.size });
      const ratio = Math.min(...found.times) / Math.min(...plain);
      const numbers = `${name}: SplitCAM ${Math.min(...found.times).toFixed(0)} ms, plain forward pass of onnxruntime-web ${Math.min(...plain).toFixed(0)} ms (fastest of seven, one thread), ratio ${ratio.toFixed(2)} (limit 3)`;
      report(!options.times || ratio <= 3, numbers);
      await page.close();
    }
  },

  async "a compiled explanation"() {
    const page = await backend(BUILT_IN);
    const found = await page.evaluate(async () => {
      const map = { method: "splitcam" };
      const subject = { picture: globalThis.picture };
      const explained = await globalThis.explain([map], 0.4);
      const answer = await globalThis.ask({ type: "compile", subject, alpha: 0.4, maps: [map] });
      const [name] = Object.keys(answer.arrays);
      const file = answer.arrays[name].values;
      // The picture as it is shown, made ready as torchvision does.
      const { arrays } = await globalThis.ask({ type: "classes", subject });
      const { shape: [height, width], values: pixels } = arrays.picture;
      const [mean, deviation] = [[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]];
      const image = new Float32Array(3 * height * width);
      for (let at = 0; at < height * width; at += 1)
        for (let c = 0; c < 3; c += 1) image[c * height * width + at] = (pixels[3 * at + c] / 255 - mean[c]) / deviation[c];
      const ort = await import("/peer/ort.wasm.min.mjs");
      ort.env.wasm.numThreads = 1;
      ort.env.wasm.wasmPaths = "/peer/";
      const session = await ort.InferenceSession.create(file.slice());
      const outputs = await session.run({ [session.inputNames[0]]: new ort.Tensor("float32", image, [1, 3, height, width]) });
      const maps = Object.entries(outputs).filter(([, tensor]) => tensor.dims.length === 3);
      return {
        preset: globalThis.network.preset,
        file: Array.from(file),
        image: Array.from(image),
        shape: [1, 3, height, width],
        expected: Array.from(explained.arrays["values 0"].values),
        outputs: maps.map(([name, tensor]) => [name, Array.from(tensor.data)]),
      };
    });
    report(found.preset === "imagenet", `the built-in network's preset is ${found.preset}`);
    report(found.outputs.length === 1, `the file has one map: ${found.outputs.map(([name]) => name)}`);
    const apart = distance(found.outputs[0][1], found.expected);
    report(apart <= 1e-4, `explained.onnx in onnxruntime-web: ${apart.toExponential(1)} from the page`);
    await page.close();
    if (!options.onnxruntime) return report(true, "explained.onnx in onnxruntime: skipped, no --onnxruntime");
    writeFileSync(join(scratch, "explained.onnx"), Buffer.from(found.file));
    writeFileSync(join(scratch, "image.json"), JSON.stringify([found.image, found.shape, found.outputs[0][0]]));
    const lines = `
import json, sys, numpy, onnxruntime
folder = sys.argv[1]
image, shape, name = json.load(open(folder + "/image.json"))
session = onnxruntime.InferenceSession(folder + "/explained.onnx", providers=["CPUExecutionProvider"])
given = {session.get_inputs()[0].name: numpy.array(image, numpy.float32).reshape(shape)}
print(json.dumps(session.run([name], given)[0].ravel().tolist()))`;
    const printed = execFileSync(options.onnxruntime, ["-c", lines, scratch], { encoding: "utf8", maxBuffer: 1 << 28 });
    const other = distance(JSON.parse(printed), found.expected);
    report(other <= 1e-4, `explained.onnx in onnxruntime: ${other.toExponential(1)} from the page`);
  },

  async "damaged files"() {
    const page = await backend(BUILT_IN);
    const whole = readFileSync(network);
    const files = [
      ["empty.onnx", Buffer.alloc(0)],
      ["truncated.onnx", whole.subarray(0, whole.length >> 1)],
      ["few.onnx", whole.subarray(0, 1000)],
      ["picture.onnx", readFileSync(photograph)],
      ["text.onnx", Buffer.from("not a network ".repeat(1000))],
    ];
    for (const seed of [1, 2, 3, 4]) {
      const damaged = Buffer.from(whole);
      for (let i = 0; i < 40; i += 1) damaged[(seed * 7919 * (i + 1) * 104729) % (i % 2 ? 3000 : damaged.length)] ^= 255;
      files.push([`damaged-${seed}.onnx`, damaged]);
    }
    if (options.hostile) {
      for (const name of readdirSync(options.hostile, { recursive: true }))
        if (/\.(onnx|png|jpe?g|webp|gif|bmp|tiff?|ppm)$/.test(name)) {
          const path = join(options.hostile, name);
          if (statSync(path).isFile() && statSync(path).size < 20 << 20) files.push([name, readFileSync(path)]);
        }
    }
    let refused = 0;
    let taken = 0;
    for (const [name, bytes] of files) {
      const answer = await page.evaluate(async ([name, text, type]) => {
        const payload = Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;
        try {
          await globalThis.ask({ type, name }, payload);
          if (type === "open-network") await globalThis.explain([{ method: "splitcam" }], 0.4);
          return null;
        } catch (cause) {
          return cause.message;
        }
      }, [name, bytes.toString("base64"), name.endsWith(".onnx") ? "open-network" : "open-picture"]);
      if (answer === null) { taken += 1; continue; }
      refused += 1;
      const fits = answer.length > 0 && answer.length <= 700 && !answer.includes("\n") && !answer.includes("too large for the memory");
      if (!fits) report(false, `${name}: ${answer}`);
    }
    report(refused >= 5, `${refused} damaged files refused with one line each, ${taken} of them readable`);
    const alive = await page.evaluate(async () => {
      globalThis.network = await globalThis.open("/pets-small.onnx", "open-network");
      globalThis.picture = (await globalThis.open("/chelsea.png", "open-picture")).picture;
      return (await globalThis.explain([{ method: "splitcam" }], 0.4)).explained.name;
    });
    report(alive.length > 0, `after them the built-in photograph is explained: ${alive}`);
    await page.close();
  },
};

try {
  for (const [name, check] of Object.entries(CHECKS)) {
    if (options.only && !options.only.includes(name)) continue;
    console.log(`== ${name}`);
    try {
      await check();
    } catch (cause) {
      report(false, `${name}: ${cause.stack}`);
    }
  }
} finally {
  await browser.close();
  server.close();
  rmSync(scratch, { recursive: true });
}
process.exitCode = failures === 0 ? 0 : 1;
