// Shows what a compiled network takes a picture for, and where it sees that: npm start -- PICTURE.

import { readFileSync, writeFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import jpeg from 'jpeg-js';
import ort from 'onnxruntime-node';
import { PNG } from 'pngjs';
import { inputOf, overlay, probability } from '../picture.js';

const here = (name) => fileURLToPath(new URL(name, import.meta.url));
const assets = '../../../crates/monosplit/assets/';

function open(path) {
  try {
    const bytes = readFileSync(path);
    return bytes[0] === 0xff ? jpeg.decode(bytes) : PNG.sync.read(bytes);
  } catch (why) {
    console.error(`${path} is not a JPEG or PNG that can be opened: ${why.message}`);
    process.exit(1);
  }
}

/** Every pixel is the mean of those it stands for. */
function scaled(picture, side) {
  const data = new Uint8ClampedArray(4 * side * side);
  const range = (i, length) => [Math.floor((i * length) / side), Math.max(Math.ceil(((i + 1) * length) / side), 1)];
  for (let y = 0; y < side; y++) {
    for (let x = 0; x < side; x++) {
      const [[top, bottom], [left, right]] = [range(y, picture.height), range(x, picture.width)];
      for (let c = 0; c < 4; c++) {
        let sum = 0;
        for (let i = top; i < bottom; i++) {
          for (let j = left; j < right; j++) sum += picture.data[4 * (i * picture.width + j) + c];
        }
        data[4 * (y * side + x) + c] = sum / ((bottom - top) * (right - left));
      }
    }
  }
  return { width: side, height: side, data };
}

const start = process.env.INIT_CWD ?? process.cwd();
const path = process.argv[2] ? resolve(start, process.argv[2]) : here(assets + 'chelsea.png');
const session = await ort.InferenceSession.create(here('../explained.onnx'), { logSeverityLevel: 3 });
const picture = scaled(open(path), 128);
const [name, map] = [session.inputNames[0], session.outputNames.find((output) => output.startsWith('saliency/'))];

// The class is an optional input: { class: new ort.Tensor('int64', [5n]) } asks for another than the one with the highest score.
const outputs = await session.run({ [name]: new ort.Tensor('float32', inputOf(picture), [1, 3, 128, 128]) });

const best = Number(outputs.explained_class.data[0]);
const classes = readFileSync(here(assets + 'pets-classes.txt'), 'utf8').trim().split('\n');
console.log(`${(100 * probability(outputs.logits.data, best)).toFixed(2)} % ${classes[best]}`);
const drawn = new PNG({ width: 128, height: 128 });
drawn.data = Buffer.from(overlay(picture, outputs[map].data));
writeFileSync(here('explained.png'), PNG.sync.write(drawn));
