// What the examples in JavaScript share: pictures to numbers, and numbers to pictures.

const MEAN = [0.485, 0.456, 0.406];
const STD = [0.229, 0.224, 0.225];

/** The pixels of a picture as the network reads them, channel by channel. */
export function inputOf({ width, height, data }) {
  const plane = width * height;
  return Float32Array.from({ length: 3 * plane }, (_, i) => {
    const channel = Math.floor(i / plane);
    return (data[4 * (i % plane) + channel] / 255 - MEAN[channel]) / STD[channel];
  });
}

/** The softmax of the scores at a class. */
export function probability(scores, at) {
  return 1 / scores.reduce((sum, score) => sum + Math.exp(score - scores[at]), 0);
}

/** The picture, red where the network found its answer and blue where it found the opposite. */
export function overlay({ data }, map) {
  const largest = map.reduce((most, value) => Math.max(most, Math.abs(value)), 1e-30);
  const drawn = new Uint8ClampedArray(data);
  map.forEach((value, i) => {
    const colour = value > 0 ? [200, 20, 30] : [30, 60, 200];
    const opacity = (0.75 * Math.abs(value)) / largest;
    colour.forEach((part, c) => {
      drawn[4 * i + c] = (1 - opacity) * data[4 * i + c] + opacity * part;
    });
  });
  return drawn;
}
