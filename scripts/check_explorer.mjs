// Checks the explorer in a real browser: what the page computes against the program and against ONNX Runtime, what it asks of the
// network, and what damaged files do to it. `scripts/check_explorer.sh` builds what is needed and calls this.
//
//     node scripts/check_explorer.mjs --folder target/explorer --program target/release/monosplit --packages target/tools/node
//         [--models FOLDER] [--hostile FOLDER] [--onnxruntime PYTHON] [--python PYTHON] [--rust] [--screenshots FOLDER] [--only CHECK]… [--times]
//
// --packages has playwright-core and onnxruntime-web of npm; --onnxruntime names a Python with onnxruntime and numpy, --python one
// with this package. --rust compiles the page's lines of Rust as an example of the library. Of the builds of the engine those are checked
// that the folder has. --times also holds
// the page to the times it should keep, which only a machine that does nothing else can be asked for; they are always printed.
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync, existsSync } from "node:fs";
import { tmpdir } from "node:os";
import { extname, join, resolve } from "node:path";
import { createInterface } from "node:readline";
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
    python: { type: "string" },
    rust: { type: "boolean", default: false },
    screenshots: { type: "string" },
    only: { type: "string", multiple: true },
    times: { type: "boolean", default: false },
  },
});
const root = resolve(options.folder);
const packages = resolve(options.packages, "node_modules");
const { chromium } = createRequire(join(packages, "x.js"))("playwright-core");
/** How long anything may take on a busy machine, in milliseconds. */
const TIMEOUT = 90_000;
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

const launch = (...more) => chromium.launch({
  executablePath: options.browser.includes("/") ? options.browser : `/usr/bin/${options.browser}`,
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", ...more],
});
const browser = await launch();

/** A page without content on which the backend of the page is ready, with the network and the photograph open. */
async function backend(files) {
  const page = await browser.newPage();
  await page.goto(`${origin}/empty.html`);
  await page.evaluate(async (files) => {
    const { Backend, WorkerTransport } = await import("/backend.js");
    const transport = new WorkerTransport();
    const backend = new Backend(transport);
    globalThis.memory = () => transport.memoryBytes;
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

/** Counts what the page asks its worker or its server to explain, and how long its own thread is blocked. */
function watch() {
  globalThis.watched = { explain: 0, longest: 0 };
  const count = (text) => { watched.explain += /"type":"explain"/.test(text); };
  const post = Worker.prototype.postMessage;
  Worker.prototype.postMessage = function (message, ...rest) {
    count(message.request);
    return post.call(this, message, ...rest);
  };
  const request = globalThis.fetch;
  globalThis.fetch = (url, options) => {
    options?.body?.slice?.(0, 4096).text().then(count);
    return request(url, options);
  };
  new PerformanceObserver((list) => {
    for (const { duration } of list.getEntries()) watched.longest = Math.max(watched.longest, duration);
  }).observe({ entryTypes: ["longtask"] });
}

/** Waits until nothing has been computed for a while: the page rests 350 ms before it asks for what takes longer. */
async function settled(page) {
  await page.waitForSelector("#maps canvas >> nth=1", { timeout: TIMEOUT });
  const begun = Date.now();
  for (let quiet = 0; quiet < 4; ) {
    const isWorking = await page.evaluate(() => document.body.classList.contains("working"));
    quiet = isWorking ? 0 : quiet + 1;
    if (Date.now() - begun > TIMEOUT) throw new Error("the page does not come to rest");
    await page.waitForTimeout(150);
  }
}

/** The program as a server; ends with what is returned. */
async function servedBy(files = []) {
  const program = spawn(options.program, ["serve", "--quiet", "--attached", ...files], { stdio: ["pipe", "pipe", "inherit"] });
  const [address] = await once(createInterface(program.stdout), "line");
  return { address, program, end: () => program.kill() };
}

/** A folder with the network and the photograph under the names that the page knows. */
function scratchWithInputs() {
  copyFileSync(network, join(scratch, "pets-small.onnx"));
  copyFileSync(photograph, join(scratch, "chelsea.png"));
  return scratch;
}

/** Everything that can be done on the page, with the engine behind it that `kind` says. */
async function everything(address, kind) {
  const say = (holds, what) => report(holds, `${kind}: ${what}`);
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, acceptDownloads: true });
  const page = await context.newPage();
  const [requests, complaints] = [[], []];
  page.on("request", (request) => requests.push(request));
  page.on("console", (message) => message.type() === "error" && complaints.push(message.text()));
  page.on("pageerror", (error) => complaints.push(error.message));
  await page.addInitScript(watch);
  await page.goto(address);
  await settled(page);
  const after = async (act) => {
    const before = await pixels(page);
    await act();
    await settled(page);
    return { before, now: await pixels(page) };
  };
  const text = async (selector) => (await page.locator(selector).first().textContent()).trim();
  const first = await text("#explained");
  say((await pixels(page)).length === 2 && first.includes("Bengal"), `the built-in photograph: ${first}`);

  const other = await after(() => page.locator("#classes .name").nth(1).click());
  say(other.now[1] !== other.before[1] && (await text("#explained")) !== first, `a click on a class: ${await text("#explained")}`);
  const contrast = await after(() => page.locator("#classes .versus").nth(0).click());
  say(contrast.now[1] !== contrast.before[1] && (await page.locator("#classes .rival").count()) === 1, `one class against another: ${await text("#explained")}`);
  await after(() => page.locator("#classes .versus").nth(0).click());

  const unit = await after(() => page.selectOption("#preset", "unit"));
  say(unit.now[1] !== unit.before[1], "another preprocessing, another map");
  const back = await after(() => page.selectOption("#preset", "imagenet"));
  say(back.now[1] === unit.before[1], "and the guessed one gives the same map again");

  const streams = await after(() => page.check("#streams"));
  say(streams.now.length === 4, `both streams and their difference: ${(await page.locator("#maps .about").allTextContents()).length - 1} maps`);
  await after(() => page.uncheck("#streams"));
  for (let more = 0; more < 3; more += 1) await after(() => page.locator(".add").click());
  const methods = await page.evaluate(() => [...document.querySelectorAll("#maps select")].map(({ value }) => value));
  say(new Set(methods).size === 4 && (await pixels(page)).length === 5 && (await page.locator(".add").count()) === 0, `four methods beside each other: ${methods.join(", ")}`);
  await page.locator("#maps canvas").nth(2).hover({ position: { x: 40, y: 60 } });
  await page.waitForFunction(() => document.getElementById("readout").textContent.includes("Greyed,"), null, { timeout: TIMEOUT });
  const readout = await text("#readout");
  say(/Row \d+, column \d+: SplitCAM.*It depends on/.test(readout), `under the cursor: ${readout}`);
  const zoom = await after(async () => {
    await page.keyboard.down("Control");
    await page.mouse.wheel(0, -200);
    await page.keyboard.up("Control");
  });
  say(zoom.now.every((image, at) => image !== zoom.before[at]), "Ctrl and the wheel zoom all of them");
  await page.locator("#maps canvas").nth(2).dblclick();
  for (let less = 0; less < 3; less += 1) await after(() => page.locator("#maps [aria-label^='Take ']").last().click());

  const layer = await after(() => page.locator(".layer").nth(1).click());
  say(layer.now[1] !== layer.before[1] && !(await page.isHidden("#own-layer")), `a click on a layer: ${await text("#maps figure:nth-child(2) .about")}`);
  const thumbnails = await page.evaluate(() => [...document.querySelectorAll(".layer canvas")].filter((canvas) => canvas.getContext("2d").getImageData(20, 20, 1, 1).data[3] > 0).length);
  say(thumbnails === (await page.locator(".layer").count()) && thumbnails > 5, `${thumbnails} layers have thumbnails`);
  const own = await after(() => page.click("#own-layer"));
  say(own.now[1] === layer.before[1], "and back to the method's own");

  await page.locator(".tools label").nth(1).click();
  const drawn = page.locator("#maps canvas").first();
  const stroke = await after(() => drawn.dragTo(drawn, { sourcePosition: { x: 60, y: 60 }, targetPosition: { x: 180, y: 180 } }));
  say(stroke.now[0] !== stroke.before[0] && stroke.now[1] !== stroke.before[1] && (await text("figure .about")).includes("1 change"), `the brush greys, and the map follows: ${await text("#explained")}`);
  await page.setInputFiles("#picture-files", { name: "noise.ppm", mimeType: "image/x-portable-pixmap", buffer: noise() });
  await settled(page);
  say((await text("figure .about")).startsWith("noise.ppm") && (await page.locator("#gallery [role=option]").count()) === 2, "a chosen picture is shown");
  await after(() => page.locator("#gallery [role=option]").first().click());
  await page.locator(".tools label").nth(3).click();
  const swap = await after(() => drawn.click({ position: { x: 100, y: 100 } }));
  say(swap.now[0] !== swap.before[0], "the brush takes parts from the other picture");
  await after(() => page.click("#undo"));
  await page.locator(".tools label").nth(2).click();
  const blur = await after(() => drawn.click({ position: { x: 100, y: 100 } }));
  say(blur.now[0] !== blur.before[0] && blur.now[0] !== swap.now[0], "and blurs them");
  await page.locator(".tools label").nth(0).click();
  await page.mouse.move(2, 2);
  await settled(page);
  const shown = await pixels(page);
  await page.reload();
  await settled(page);
  say(JSON.stringify(await pixels(page)) === JSON.stringify(shown), `the reloaded address gives the same pixels, strokes and all: ${new URL(page.url()).hash}`);
  await after(() => page.click("#restore"));

  await after(() => page.click("#tab-curves"));
  const curves = await page.locator("#panel svg").evaluateAll((all) => all.map((one) => one.getAttribute("aria-label")));
  say(curves.length === 2 && curves.every((label) => /area [\d.]+ by the map, [\d.]+ at random/.test(label)), curves.join(" "));
  await after(() => page.click("#tab-shares"));
  const shares = await page.locator("#panel tbody td:nth-child(3)").allTextContents();
  const total = shares.reduce((sum, share) => sum + Number.parseFloat(share), 0);
  say(shares.length > 1 && Math.abs(total - 100) < 0.06 * shares.length + 3, `shares of ${shares.length} layers, ${total.toFixed(1)} % in all`);
  await page.click("#tab-verify");
  await page.locator("#panel button").click();
  await page.waitForSelector(".checklist li", { timeout: TIMEOUT });
  const [claims, fails] = [await page.locator(".checklist li").count(), await page.locator(".checklist .fails").count()];
  say(claims > 5 && fails === 0, `${claims} statements, ${fails} of them fail`);

  await after(() => page.click("#tab-files"));
  const files = {};
  for (const [name, begins] of [["PNG", "\x89PNG"], ["SVG", "<"], ["Values", "\x93NUMPY"], ["explained.onnx", ""]]) {
    const [download] = await Promise.all([page.waitForEvent("download", { timeout: TIMEOUT }), page.locator("#panel button", { hasText: name }).click()]);
    files[name] = join(scratch, `${kind}-${download.suggestedFilename()}`);
    await download.saveAs(files[name]);
    const bytes = readFileSync(files[name]);
    say(bytes.length > 300 && bytes.subarray(0, begins.length).toString("latin1") === begins, `${download.suggestedFilename()}: ${bytes.length} bytes`);
  }
  if (options.program) {
    const [command, python, rust] = await page.locator(".code code").allTextContents();
    const pasted = command.replace(/^monosplit /, `'${resolve(options.program)}' `);
    execFileSync("bash", ["-c", pasted], { cwd: scratchWithInputs(), stdio: "pipe" });
    const apart = distance(npy(files.Values), npy(join(scratch, "map.npy")));
    say(apart <= 1e-4, `the pasted line gives the downloaded values (${apart.toExponential(1)}): ${command}`);
    if (options.python) {
      const distant = pythonDistance(python, npy(files.Values));
      say(distant <= 1e-4, `the Python lines give them too, enlarged to the input's size (${distant.toExponential(1)})`);
    }
    if (options.rust && kind === "worker") {
      runRust(rust);
      const distant = distance(npy(files.Values), npy(join(scratch, "rust.npy")));
      say(distant <= 1e-4, `the Rust lines give them too (${distant.toExponential(1)})`);
    }
  }
  timed(await page.evaluate(() => watched.longest), 50, `${kind}: the page's own thread was blocked since it was reloaded at most`);
  const foreign = requests.filter((request) => !/^(blob|data):/.test(request.url()) && !request.url().startsWith(new URL(address).origin));
  const posted = requests.filter((request) => request.method() !== "GET" && !(kind === "server" && /\/(ask|close)\?session=/.test(request.url())));
  say(foreign.length === 0 && posted.length === 0, `no request leaves the origin, none is posted elsewhere (${requests.length} requests)${[...foreign, ...posted].map((request) => ` ${request.url()}`)}`);
  say(complaints.length === 0, `no error is printed in the console${complaints.map((line) => ` ${line}`)}`);
  await context.close();
}

/** Values between those of a grid, bilinear; the corners of the picture are those of the grid's corner cells. */
function enlarged(values, [rows, columns], [height, width]) {
  const place = (at, size, cells) => {
    const here = Math.min(Math.max(((at + 0.5) * cells) / size - 0.5, 0), cells - 1);
    const low = Math.floor(here);
    return [low, Math.min(low + 1, cells - 1), here - low];
  };
  return Float32Array.from({ length: height * width }, (_, at) => {
    const [top, bottom, down] = place(Math.floor(at / width), height, rows);
    const [left, right, across] = place(at % width, width, columns);
    const line = (row) => values[row * columns + left] * (1 - across) + values[row * columns + right] * across;
    return line(top) * (1 - down) + line(bottom) * down;
  });
}

/** How far the map of the page's lines of Python is from these values. */
function pythonDistance(python, values) {
  const lines = `${python}\nimport numpy; numpy.save("python.npy", e.maps[0].astype("float32")); print(*e.maps[0].shape)`;
  const size = execFileSync(options.python, ["-c", lines], { cwd: scratchWithInputs(), encoding: "utf8" }).trim().split(" ").map(Number);
  // In Python maps have the size of the input.
  const side = Math.sqrt(values.length);
  return distance(npy(join(scratch, "python.npy")), enlarged(values, [side, side], size));
}

/** Compiles the page's lines of Rust as an example of the library, which is gone afterwards, and writes the map as rust.npy. */
function runRust(lines) {
  const [imports, body] = [/^use .*$/, /^(?!use )/].map((kind) => lines.split("\n").filter((line) => kind.test(line)).join("\n"));
  const example = resolve("crates/monosplit/examples/lines_of_the_page.rs");
  writeFileSync(example, `//! Written by scripts/check_explorer.mjs.\n${imports}\n\nfn main() -> Result<(), Box<dyn std::error::Error>> {\n${body}\n` +
    `std::fs::write("rust.npy", monosplit::graph::npy::write(&map.clone().into()))?;\nOk(())\n}\n`);
  try {
    execFileSync("cargo", ["build", "--quiet", "--locked", "-p", "monosplit", "--example", "lines_of_the_page"], { stdio: ["ignore", "pipe", "inherit"] });
    execFileSync(resolve("target/debug/examples/lines_of_the_page"), [], { cwd: scratchWithInputs(), stdio: "pipe" });
  } finally {
    rmSync(example);
  }
}

/** Drags a file over the page and drops it there, as a file manager does. */
async function drop(page, name, type, bytes) {
  const transfer = await page.evaluateHandle(([name, type, text]) => {
    const held = new DataTransfer();
    held.items.add(new File([Uint8Array.from(atob(text), (c) => c.charCodeAt(0))], name, { type }));
    return held;
  }, [name, type, bytes.toString("base64")]);
  await page.dispatchEvent("#maps", "dragover", { dataTransfer: transfer });
  const isSeen = await page.evaluate(() => document.body.classList.contains("dropping"));
  await page.dispatchEvent("#maps", "drop", { dataTransfer: transfer });
  return isSeen && !(await page.evaluate(() => document.body.classList.contains("dropping")));
}

/** A picture of coloured noise. */
function noise() {
  const [width, height] = [160, 140];
  const pixels = Buffer.alloc(3 * width * height);
  for (let at = 0, state = 1; at < pixels.length; at += 1) pixels[at] = (state = (state * 48271) % 2147483647) & 255;
  return Buffer.concat([Buffer.from(`P6 ${width} ${height} 255\n`), pixels]);
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
    timed(median(times), 120, `a step of α in the built-in network, fastest ${Math.min(...times).toFixed(1)} ms, median of twenty`);
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
    await page.waitForSelector("#maps canvas >> nth=1", { timeout: TIMEOUT });
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
    await other.waitForSelector("#maps canvas >> nth=1", { timeout: TIMEOUT });
    report((await other.locator("#network").textContent()).includes("pets-small.onnx"), "?url= opens a network of the same origin");
    await other.close();
  },

  async "what can be done on the page"() {
    await everything(`${origin}/`, "worker");
    if (!options.program) return report(true, "the same over the server: skipped, no --program");
    const server = await servedBy();
    try {
      await everything(server.address, "server");
    } finally {
      server.end();
    }
  },

  async "files that are dropped"() {
    const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
    await page.goto(`${origin}/`);
    await settled(page);
    const begun = await pixels(page);
    const about = () => page.locator("figure .about").first().textContent();
    const seen = await drop(page, "noise.ppm", "", noise());
    await page.waitForFunction(() => document.querySelector("figure .about").textContent.startsWith("noise.ppm"), null, { timeout: TIMEOUT });
    await settled(page);
    report(seen && (await pixels(page))[1] !== begun[1], `a picture is dropped: ${await about()}`);
    await drop(page, "the-cat.png", "image/png", readFileSync(photograph));
    await page.waitForFunction(() => document.querySelector("figure .about").textContent.startsWith("the-cat.png"), null, { timeout: TIMEOUT });
    await settled(page);
    const again = await drop(page, "of-mine.onnx", "", readFileSync(network));
    await page.waitForFunction(() => document.getElementById("network").textContent.includes("of-mine.onnx"), null, { timeout: TIMEOUT });
    await settled(page);
    report(again && (await pixels(page))[1] === begun[1], "the built-in network and photograph, dropped, give the same map");
    await drop(page, "cut.onnx", "", readFileSync(network).subarray(0, 10_000));
    await page.waitForSelector("#notice:not([hidden])");
    report((await pixels(page))[1] === begun[1], `a damaged one is refused: ${(await page.locator("#notice p").textContent()).trim()}`);
    await page.close();
  },

  async "lines with another preprocessing"() {
    if (!options.program || !options.python) return report(true, "another preprocessing in Python: skipped, no --program or no --python");
    const server = await servedBy();
    try {
      const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
      await page.goto(`${server.address}#preset=unit&tab=files`);
      await settled(page);
      const lines = await page.locator(".code code").nth(1).textContent();
      const [download] = await Promise.all([page.waitForEvent("download", { timeout: TIMEOUT }), page.locator("#panel button", { hasText: "Values" }).click()]);
      const file = join(scratch, "unit.npy");
      await download.saveAs(file);
      const distant = pythonDistance(lines, npy(file));
      report(lines.includes('preset="unit"') && distant <= 1e-4, `the Python lines say the preprocessing and give the map (${distant.toExponential(1)})`);
      await page.close();
    } finally {
      server.end();
    }
  },

  async "by keyboard and for screen readers"() {
    const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
    await page.addInitScript(watch);
    await page.goto(`${origin}/#tab=files`);
    await settled(page);
    // Tab reaches everything once, and nothing twice.
    const reached = [];
    for (let step = 0; step < 90; step += 1) {
      await page.keyboard.press("Tab");
      const at = await page.evaluate(() => {
        const { id, tagName, textContent, className } = document.activeElement;
        return id || `${tagName} ${className} ${textContent.trim().slice(0, 24)}`;
      });
      if (at.startsWith("BODY") || (step > 0 && at === reached[0])) break;
      reached.push(at);
    }
    const wanted = ["open-network", "open-pictures", "theme", "gallery", "preset", "alpha", "streams", "opacity", "tab-files", "panel"];
    const missing = wanted.filter((id) => !reached.includes(id));
    const canvases = reached.filter((at) => at.startsWith("CANVAS")).length;
    const layers = reached.filter((at) => at.startsWith("layer-")).length;
    report(missing.length === 0 && canvases === 2 && layers === 1, `Tab reaches ${reached.length} places${missing.map((id) => `, not ${id}`).join("")}`);
    const before = await pixels(page);
    await page.focus("#alpha");
    for (let press = 0; press < 5; press += 1) await page.keyboard.press("ArrowLeft");
    await settled(page);
    report((await page.locator("#alpha-value").textContent()) === "0.375" && (await pixels(page))[1] !== before[1], "arrow keys move α, and the map follows");
    await page.focus("#maps canvas >> nth=1");
    await page.keyboard.press("ArrowRight");
    await page.waitForFunction(() => document.getElementById("readout").textContent.includes("Greyed,"), null, { timeout: TIMEOUT });
    report(true, `arrow keys move on the map: ${await page.locator("#readout").textContent()}`);
    const zoomed = await pixels(page);
    await page.keyboard.press("+");
    const closer = await pixels(page);
    report(closer.every((image, at) => image !== zoomed[at]), "+ zooms all pictures at once");
    await page.keyboard.press("0");
    await page.locator("input[name=tool]:checked").focus();
    await page.keyboard.press("ArrowRight");
    await page.focus("#maps canvas >> nth=1");
    await page.keyboard.press(" ");
    await settled(page);
    report((await page.locator("figure .about").first().textContent()).includes("1 change"), "the space bar presses the brush down");
    await page.focus(".layer[tabindex='0']");
    await page.keyboard.press("ArrowLeft");
    await settled(page);
    const layer = await page.evaluate(() => new URLSearchParams(location.hash.slice(1)).get("layer"));
    report(layer !== null, `arrow keys walk through the layers: ${layer}`);
    await page.focus("#tab-files");
    await page.keyboard.press("ArrowLeft");
    await settled(page);
    report((await page.locator("[role=tab][aria-selected=true]").textContent()) === "Verify", "and through the tabs");
    // Everything that can be used has a name that is read out.
    const client = await page.context().newCDPSession(page);
    const { nodes } = await client.send("Accessibility.getFullAXTree");
    const roles = new Set(["button", "slider", "combobox", "option", "tab", "checkbox", "radio", "listbox", "application", "tabpanel", "link", "image", "textbox"]);
    const used = nodes.filter(({ ignored, role }) => !ignored && roles.has(role?.value));
    const nameless = used.filter(({ name }) => !name?.value?.trim());
    report(used.length > 40 && nameless.length === 0, `${used.length} controls have names${nameless.map(({ role }) => `, one ${role.value} has none`).join("")}`);
    await page.close();
  },

  async "the server is quick, and ends what nobody waits for"() {
    if (!options.program) return report(true, "skipped, no --program");
    const server = await servedBy();
    try {
      const page = await browser.newPage();
      await page.addInitScript(watch);
      await page.goto(server.address);
      await settled(page);
      const spent = () => {
        const fields = readFileSync(`/proc/${server.program.pid}/stat`, "latin1").split(") ")[1].split(" ");
        return Number(fields[11]) + Number(fields[12]);
      };
      const spentBefore = spent();
      const times = await page.evaluate(async () => {
        const { Backend, ServerTransport } = await import("./backend.js");
        const backend = new Backend(new ServerTransport());
        const get = async (path) => (await fetch(path)).arrayBuffer();
        await backend.ask({ type: "state" });
        await backend.ask({ type: "open-network", name: "pets-small.onnx" }, { payload: await get("pets-small.onnx") });
        const { picture } = await backend.ask({ type: "open-picture", name: "chelsea.png" }, { payload: await get("chelsea.png") });
        const times = [];
        for (let step = -2; step < 20; step += 1) {
          const begun = performance.now();
          await backend.ask({ type: "explain", subject: { picture }, alpha: Math.max(step, 0) / 40, maps: [{ method: "splitcam" }] });
          if (step >= 0) times.push(performance.now() - begun);
        }
        return times;
      });
      const used = (spent() - spentBefore) / 22;
      console.log(`     ${(10 * used).toFixed(1)} ms of processor time a step, on all threads`);
      timed(median(times), 30, `a step of α over the server, fastest ${Math.min(...times).toFixed(1)} ms, median of twenty`);
      await page.locator("#maps select").selectOption("occlusion");
      await page.waitForFunction(() => document.body.classList.contains("working"), null, { timeout: TIMEOUT });
      await page.close({ runBeforeUnload: false });
      // A killed page leaves no work: the processor time of the program stands still.
      const resting = async () => {
        for (let second = 0; second < 30; second += 1) {
          const before = spent();
          await new Promise((next) => setTimeout(next, 1000));
          if (spent() - before <= 5) return true;
        }
        return false;
      };
      report(await resting(), "a page that is gone ends its work");
    } finally {
      server.end();
    }
  },

  async "by touch"() {
    const context = await browser.newContext({ viewport: { width: 400, height: 860 }, hasTouch: true, isMobile: true, deviceScaleFactor: 2 });
    const page = await context.newPage();
    await page.addInitScript(watch);
    await page.goto(`${origin}/`);
    await settled(page);
    const wide = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    report(wide[0] <= 400 && wide[1] === 400, `on a phone of 400 pixels the page is ${wide[0]} wide, seen at ${wide[1]}`);
    const client = await context.newCDPSession(page);
    // Fingers: each of the steps has their places.
    const touch = async (steps) => {
      const points = (places) => places.map(([x, y], id) => ({ x, y, id }));
      await client.send("Input.dispatchTouchEvent", { type: "touchStart", touchPoints: points(steps[0]) });
      for (const places of steps.slice(1)) await client.send("Input.dispatchTouchEvent", { type: "touchMove", touchPoints: points(places) });
      await client.send("Input.dispatchTouchEvent", { type: "touchEnd", touchPoints: [] });
    };
    const boxOf = async (selector) => {
      await page.locator(selector).first().scrollIntoViewIfNeeded();
      return page.locator(selector).first().boundingBox();
    };
    const line = (from, to, steps = 12) => Array.from({ length: steps + 1 }, (_, at) => [[0, 1].map((axis) => from[axis] + ((to[axis] - from[axis]) * at) / steps)]);
    const before = await pixels(page);
    const slider = await boxOf("#alpha");
    const middle = slider.y + slider.height / 2;
    const alpha = Number(await page.inputValue("#alpha"));
    await page.evaluate(() => { watched.explain = 0; });
    await touch(line([slider.x + slider.width * (0.02 + 0.96 * alpha / 0.5), middle], [slider.x + slider.width * 0.2, middle]));
    await settled(page);
    const moved = Number(await page.inputValue("#alpha"));
    const asked = await page.evaluate(() => watched.explain);
    report(Math.abs(moved - 0.1) < 0.03 && asked > 0 && (await pixels(page))[1] !== before[1], `a finger drags α from ${alpha} to ${moved}, and the map follows`);
    report(slider.height >= 24, `the slider is ${slider.height.toFixed(0)} pixels high for a finger`);

    const map = await boxOf("#maps figure:nth-child(2) canvas");
    const [x, y] = [map.x + map.width / 2, map.y + map.height / 2];
    const whole = await pixels(page);
    await touch(Array.from({ length: 11 }, (_, at) => [[x - 30 - 6 * at, y], [x + 30 + 6 * at, y]]));
    await settled(page);
    const pinched = await pixels(page);
    report(pinched.every((image, at) => image !== whole[at]), "two fingers zoom all pictures at once");
    await touch(line([x, y], [x - 80, y - 60]));
    await settled(page);
    const panned = await pixels(page);
    report(panned.every((image, at) => image !== pinched[at]), "one finger moves what is seen");
    await touch(Array.from({ length: 21 }, (_, at) => [[x - 155 + 6 * at, y], [x + 155 - 6 * at, y]]));
    await settled(page);
    await page.locator("#maps figure:nth-child(2) canvas").tap({ position: { x: 60, y: 80 } });
    await page.waitForFunction(() => document.getElementById("readout").textContent.includes("Row"), null, { timeout: TIMEOUT });
    report(true, `a tap reads a place: ${(await page.locator("#readout").textContent()).trim()}`);

    await page.locator(".tools label").nth(1).tap();
    const picture = await boxOf("#maps canvas");
    const unpainted = await pixels(page);
    const scrolled = await page.evaluate(() => scrollY);
    await touch(line([picture.x + 90, picture.y + 90], [picture.x + 200, picture.y + 210]));
    await settled(page);
    const painted = await pixels(page);
    const about = await page.locator("figure .about").first().textContent();
    report(about.includes("1 change") && painted[1] !== unpainted[1] && (await page.evaluate(() => scrollY)) === scrolled, `a finger paints, and the page does not scroll: ${about}`);
    await page.locator("#undo").tap();
    await settled(page);
    await page.locator("#classes .name").nth(1).tap();
    await settled(page);
    report((await page.locator("#classes li.chosen").count()) === 1, "a tap chooses a class");
    const small = await page.evaluate(() => [...document.querySelectorAll("button, select, input:not([hidden])")]
      .filter((one) => one.offsetParent && one.type !== "radio" && one.getBoundingClientRect().height < 24)
      .map((one) => `${one.tagName.toLowerCase()} ${one.id || one.textContent.slice(0, 20)} ${one.getBoundingClientRect().height.toFixed(0)}`));
    report(small.length === 0, `every control is at least 24 pixels high${small.map((one) => `, not ${one}`).join("")}`);
    if (options.screenshots) await page.screenshot({ path: join(options.screenshots, "explorer-touch.png"), fullPage: true });
    await context.close();
  },

  async "the page chooses its build"() {
    const built = ["simd", "plain", "threads"].filter((build) => existsSync(join(root, build === "simd" ? "" : build, "monosplit_web_bg.wasm")));
    const values = async (page, build) => page.evaluate(async (build) => {
      const { Backend, WorkerTransport } = await import("./backend.js");
      const transport = new WorkerTransport([build]);
      const backend = new Backend(transport);
      const get = async (path) => (await fetch(path)).arrayBuffer();
      await backend.ask({ type: "open-network", name: "pets-small.onnx" }, { payload: await get("pets-small.onnx") });
      const { picture } = await backend.ask({ type: "open-picture", name: "chelsea.png" }, { payload: await get("chelsea.png") });
      const found = {};
      for (const method of ["splitcam", "splitgrad", "splitlrp", "lrp", "gradcam", "integrated-gradients"]) {
        const { arrays } = await backend.ask({ type: "explain", subject: { picture }, alpha: 0.3, maps: [{ method }] });
        found[method] = Array.from(new Uint32Array(arrays["values 0"].values.slice().buffer));
      }
      const times = [];
      for (let step = 0; step < 20; step += 1) {
        const begun = performance.now();
        await backend.ask({ type: "explain", subject: { picture }, alpha: step / 40, maps: [{ method: "splitcam" }] });
        times.push(performance.now() - begun);
      }
      // What nobody waits for: a curve of a method of very many passes, and a map that is wanted at once.
      let given = null;
      if (build === "threads") {
        const slow = backend.ask({ type: "explain", subject: { picture }, maps: [{ method: "occlusion:stride=1" }] }, { slot: "curves" })
          .then(() => "computed", (error) => error.constructor.name);
        await new Promise((next) => setTimeout(next, 300));
        const begun = performance.now();
        await backend.ask({ type: "explain", subject: { picture }, alpha: 0.1, maps: [{ method: "splitcam" }] });
        given = { waited: performance.now() - begun, slow: await slow };
      }
      return { found, times, given, memory: transport.memoryBytes };
    }, build);
    const opened = async (from, address) => {
      const page = await from.newPage();
      await page.goto(address);
      await settled(page);
      await page.waitForFunction(() => document.getElementById("place").textContent.length > 0);
      return { page, said: await page.locator("#place").textContent() };
    };
    const alone = await opened(browser, `${origin}/`);
    report(alone.said.includes("by WebAssembly;") === built.includes("simd"), `on a page that is not isolated: ${alone.said}`);
    const simd = await values(alone.page, "simd");
    await alone.page.close();

    if (!built.includes("plain")) report(true, "without vectors: skipped, not built");
    else {
      const old = await launch("--js-flags=--no-enable-sse4-1,--no-enable-ssse3,--no-enable-sse3,--no-enable-sse4-2,--no-enable-avx");
      try {
        const { page, said } = await opened(old, `${origin}/`);
        const hasVectors = await page.evaluate(async () => (await import("./module.js")).usable(["simd"]).length > 0);
        report(!hasVectors && said.includes("no vectors"), `in a browser without vectors: ${said}`);
        const plain = await values(page, "plain");
        const floats = (bits) => new Float32Array(Uint32Array.from(bits).buffer);
        const apart = Math.max(...["splitcam", "gradcam", "splitgrad"].map((name) => distance(floats(plain.found[name]), floats(simd.found[name]))));
        report(apart <= 1e-4, `its maps are ${apart.toExponential(1)} from those with vectors; a step of α takes ${median(plain.times).toFixed(0)} ms, with vectors ${median(simd.times).toFixed(0)} ms`);
      } finally {
        await old.close();
      }
    }

    if (!built.includes("threads") || !options.program) return report(true, "with threads: skipped, not built or no --program");
    const folder = scratchWithInputs();
    const server = await servedBy([join(folder, "pets-small.onnx"), join(folder, "chelsea.png"), `--in-browser=${root}`]);
    try {
      const requests = [];
      const context = await browser.newContext();
      context.on("request", (request) => requests.push(request));
      const { page, said } = await opened(context, server.address);
      const isolated = await page.evaluate(() => crossOriginIsolated);
      const threads = await page.evaluate(() => Math.min(navigator.hardwareConcurrency, 16));
      report(isolated && said.includes(`on ${threads} threads`), `served with --in-browser: ${said} ${await page.locator("#network").textContent()}`);
      const threaded = await values(page, "threads");
      const differing = Object.keys(simd.found).filter((name) => JSON.stringify(simd.found[name]) !== JSON.stringify(threaded.found[name]));
      report(differing.length === 0, `${Object.keys(simd.found).length} methods give the same bits with threads as without${differing.map((name) => `, not ${name}`).join("")}; a step of α takes ${median(threaded.times).toFixed(0)} ms, on one thread ${median(simd.times).toFixed(0)} ms`);
      report(threaded.given.slow === "Superseded", `what nobody waits for is given up: the next map came after ${threaded.given.waited.toFixed(0)} ms`);
      const posted = requests.filter((request) => request.method() !== "GET" || !request.url().startsWith("http://127.0.0.1") && !/^(blob|data):/.test(request.url()));
      report(posted.length === 0, `nothing is posted to that server (${requests.length} requests)${posted.map((request) => ` ${request.url()}`)}`);
      await context.close();
    } finally {
      server.end();
    }
  },

  async "a gallery of folders"() {
    if (!options.program) return report(true, "a gallery: skipped, no --program");
    const folder = join(scratch, "photos");
    mkdirSync(join(folder, "more"), { recursive: true });
    copyFileSync(photograph, join(folder, "a cat's photo.png"));
    writeFileSync(join(folder, "noise.ppm"), noise());
    writeFileSync(join(folder, "cut.png"), readFileSync(photograph).subarray(0, 4000));
    writeFileSync(join(folder, "notes.txt"), "no picture");
    copyFileSync(photograph, join(folder, "more", "deep.png"));
    const server = await servedBy([network, folder, "--recursive"]);
    try {
      const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
      const refused = [];
      page.on("response", (response) => response.status() >= 400 && refused.push(`${response.status()} ${response.url()}`));
      await page.goto(server.address);
      await settled(page);
      const names = await page.locator("#gallery [role=option]").evaluateAll((all) => all.map((one) => one.getAttribute("aria-label")));
      const wanted = ["a cat's photo.png", "cut.png", "noise.ppm", "deep.png"];
      report(wanted.every((name) => names.includes(name)) && !names.includes("notes.txt"), `the gallery has ${names.join(", ")}`);
      const before = await pixels(page);
      await page.locator("#gallery [aria-label='noise.ppm']").click();
      await settled(page);
      report((await pixels(page))[0] !== before[0], `another one is shown: ${await page.locator("figure .about").first().textContent()}`);
      await page.locator("#gallery [aria-label='cut.png']").click();
      await page.waitForSelector("#notice:not([hidden])");
      report((await page.locator("#notice p").textContent()).includes("cut.png"), `a damaged one: ${(await page.locator("#notice p").textContent()).trim()}`);
      await page.locator("#gallery").focus();
      await page.locator("#gallery [aria-label='deep.png']").click();
      await settled(page);
      const shown = await pixels(page);
      await page.reload();
      await settled(page);
      report(JSON.stringify(await pixels(page)) === JSON.stringify(shown), `its address gives the same pixels: ${new URL(page.url()).hash}`);
      report(refused.length === 0, `no file is refused${refused.join(", ")}`);
      await page.close();
    } finally {
      server.end();
    }
  },

  async "small and dark"() {
    for (const width of [1280, 400]) {
      for (const colorScheme of ["light", "dark"]) {
        const page = await browser.newPage({ viewport: { width, height: width === 400 ? 860 : 900 }, colorScheme });
        await page.addInitScript(watch);
        await page.goto(`${origin}/`);
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
    const before = await page.evaluate(() => globalThis.memory());
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
    const after = await page.evaluate(() => globalThis.memory());
    const mebibytes = (bytes) => `${(bytes / 2 ** 20).toFixed(0)} MiB`;
    // Memory of WebAssembly only grows: what is measured is the most that was ever in use. A readable file may rightly take more.
    const largest = files.reduce((most, [, bytes]) => Math.max(most, bytes.length), 0);
    report(after <= before + 64 * 2 ** 20 + 16 * largest, `the page's memory: ${mebibytes(before)} before the damaged files, ${mebibytes(after)} after ${files.length} of them, the largest of ${mebibytes(largest)}`);
    const grown = await page.evaluate(async () => {
      const file = await (await fetch("/pets-small.onnx")).arrayBuffer();
      const memory = [];
      for (let number = 0; number < 50; number += 1) {
        await globalThis.ask({ type: "open-network", name: `${number}.onnx` }, file.slice());
        await globalThis.explain([{ method: ["splitcam", "gradcam", "lrp"][number % 3] }], 0.4);
        memory.push(globalThis.memory());
      }
      return memory;
    });
    report(grown[49] <= grown[9] + 4 * 2 ** 20, `the page's memory after 1, 10 and 50 networks, one after the other: ${[0, 9, 49].map((at) => mebibytes(grown[at])).join(", ")}`);
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
