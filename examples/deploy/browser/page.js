// Explains a dropped picture with a compiled network. Everything happens in this page.

import * as ort from './ort.mjs';
import { inputOf, overlay, probability } from './picture.js';

const SIDE = 128;
const element = (id) => document.getElementById(id);
const say = (text) => (element('answer').textContent = text);

ort.env.wasm.wasmPaths = new URL('./', location.href).href;
ort.env.wasm.numThreads = 1;
const loading = Promise.all([
  ort.InferenceSession.create('explained.onnx', { executionProviders: ['wasm'] }),
  fetch('classes.txt').then((response) => response.text()),
]);

async function explain(file) {
  say('Looking…');
  const [session, classes] = await loading;
  const bitmap = await createImageBitmap(file, { resizeWidth: SIDE, resizeHeight: SIDE, resizeQuality: 'high' });
  const context = element('picture').getContext('2d');
  context.drawImage(bitmap, 0, 0);
  const picture = context.getImageData(0, 0, SIDE, SIDE);

  const image = new ort.Tensor('float32', inputOf(picture), [1, 3, SIDE, SIDE]);
  const outputs = await session.run({ [session.inputNames[0]]: image });

  const map = outputs[session.outputNames.find((name) => name.startsWith('saliency/'))].data;
  element('map').getContext('2d').putImageData(new ImageData(overlay(picture, map), SIDE, SIDE), 0, 0);
  const best = Number(outputs.explained_class.data[0]);
  say(`${(100 * probability(outputs.logits.data, best)).toFixed(2)} % ${classes.trim().split('\n')[best]}`);
}

const attempt = (file) => file && explain(file).catch((error) => say(`This did not work: ${error.message}`));
const drop = element('drop');
element('file').addEventListener('change', (event) => attempt(event.target.files[0]));
drop.addEventListener('dragover', (event) => {
  event.preventDefault();
  drop.classList.add('over');
});
drop.addEventListener('dragleave', () => drop.classList.remove('over'));
drop.addEventListener('drop', (event) => {
  event.preventDefault();
  drop.classList.remove('over');
  attempt(event.dataTransfer.files[0]);
});
loading.then(() => say('Ready.')).catch((error) => say(`The network could not be loaded: ${error.message}`));
