// Takes the screenshots of the explorer's page that the documentation shows: 1280 and 400 pixels, light and dark.
//
//     cargo build --release -p monosplit-cli
//     npm install --prefix FOLDER playwright-core
//     NODE_PATH=FOLDER/node_modules node scripts/take_explorer_screenshots.mjs target/release/monosplit docs/src/images
//
// Needs Chromium (the environment variable CHROMIUM names another than /usr/bin/chromium), and Python with Pillow, which stores the
// pictures with 256 colours.
import { execFileSync, spawn } from "node:child_process";
import { createRequire } from "node:module";
import { join } from "node:path";
import { createInterface } from "node:readline";

const { chromium } = createRequire(import.meta.url)("playwright-core");

const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];
const QUANTISE = `
import sys
from PIL import Image
for name in sys.argv[1:]:
    picture = Image.open(name).convert("RGB")
    colours = picture.quantize(256, method=Image.Quantize.FASTOCTREE)
    picture.quantize(palette=colours, dither=Image.Dither.FLOYDSTEINBERG).save(name, optimize=True)
`;
/** What is shown: where it is, and how the page is looked at. */
const SHOTS = [
  ["explorer-1280-light", 1280, "light", "#method=splitcam&method=gradcam"],
  ["explorer-1280-dark", 1280, "dark", "#streams=yes&layer=layer2.1.conv2&alpha=0.3&tab=shares"],
  ["explorer-400-light", 400, "light", "#layer=layer3.0.conv1&tab=files"],
  ["explorer-400-dark", 400, "dark", "#tab=curves"],
];

const [binary, out] = process.argv.slice(2);
const server = spawn(binary, ["serve", "--quiet"], { stdio: ["ignore", "pipe", "inherit"] });
try {
  const [address] = await new Promise((resolve) => createInterface(server.stdout).once("line", (line) => resolve([line])));
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: FLAGS });
  const files = [];
  for (const [name, width, colorScheme, hash] of SHOTS) {
    const page = await browser.newPage({ viewport: { width, height: 900 }, colorScheme });
    page.on("pageerror", (error) => console.error(`${name}: ${error}`));
    await page.goto(address + hash);
    // The thumbnails and the open tab are what comes last.
    await page.waitForSelector(".layer[aria-selected=true]", { timeout: 120_000 });
    await page.waitForSelector("#panel .curve, #panel .shares, #panel pre", { timeout: 120_000 });
    await page.waitForTimeout(1000);
    const path = join(out, `${name}.png`);
    await page.screenshot({ path, fullPage: true });
    files.push(path);
    console.log(path);
    await page.close();
  }
  await browser.close();
  execFileSync("python3", ["-c", QUANTISE, ...files], { stdio: "inherit" });
} finally {
  server.kill();
}
