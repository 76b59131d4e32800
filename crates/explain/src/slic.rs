//! SLIC superpixels (simple linear iterative clustering): k-means over colour and position from a regular grid of centres, then
//! segments that are not connected or too small are merged into their neighbours.

/// The number of k-means iterations.
const ROUNDS: usize = 10;
/// Connected segments below this fraction of the expected size are merged into a neighbour.
const SMALLEST: f64 = 0.5;
/// Segments end at this multiple of the expected size.
const LARGEST: f64 = 3.0;

/// An image: `channels` numbers for each pixel, row by row.
pub(crate) struct Pixels {
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) channels: usize,
    pub(crate) values: Vec<f64>,
}

/// A cluster centre: its position and its colour.
struct Centre {
    y: f64,
    x: f64,
    colour: Vec<f64>,
}

/// The index of each pixel's superpixel, and the number of superpixels.
///
/// Values are first scaled to [0, 1]; three channels are taken as RGB and compared as CIE L*a*b*. `compactness` is the weight of
/// spatial distance against colour distance.
pub(crate) fn superpixels(mut pixels: Pixels, segments: usize, compactness: f64) -> (Vec<usize>, usize) {
    pixels.stretch();
    if pixels.channels == 3 {
        pixels.values.chunks_exact_mut(3).for_each(to_lab);
    }
    pixels.values.iter_mut().for_each(|v| *v /= compactness);
    let (mut centres, step) = pixels.centres(segments);
    let mut labels = vec![0; pixels.height * pixels.width];
    for _ in 0..ROUNDS {
        let before = labels.clone();
        pixels.assign(&centres, step, &mut labels);
        if labels == before {
            break;
        }
        pixels.recentre(&mut centres, &labels);
    }
    let expected = labels.len() as f64 / centres.len() as f64;
    connected(&labels, pixels.width, (SMALLEST * expected) as usize, (LARGEST * expected) as usize)
}

impl Pixels {
    fn stretch(&mut self) {
        let least = self.values.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = self.values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let span = if greatest > least { greatest - least } else { 1.0 };
        self.values.iter_mut().for_each(|v| *v = (*v - least) / span);
    }

    /// Centres on a regular grid, and its step. All colours are equal at first: the first iteration uses positions alone.
    fn centres(&self, segments: usize) -> (Vec<Centre>, usize) {
        let (height, width) = (self.height as f64, self.width as f64);
        let across = (height * width / segments as f64).sqrt();
        let (short, long) = if height <= width { (height, width) } else { (width, height) };
        // An image narrower than the step has one row of centres, which then lie closer.
        let steps = if short < across { (short, long / segments as f64) } else { (across, across) };
        let (down, right) = if height <= width { steps } else { (steps.1, steps.0) };
        let along = |length: usize, step: f64| {
            let (start, step) = ((step / 2.0).floor() as usize, (step.round() as usize).max(1));
            (start.min(length.saturating_sub(1))..length)
                .step_by(step)
                .map(|at| at as f64)
                .collect::<Vec<_>>()
        };
        let columns = along(self.width, right);
        let colour = vec![0.0; self.channels];
        let centres = along(self.height, down).into_iter().flat_map(|y| {
            let colour = &colour;
            columns.iter().map(move |&x| Centre { y, x, colour: colour.clone() })
        });
        (centres.collect(), (down.max(right).round() as usize).max(1))
    }

    /// Assigns each pixel to the nearest centre within twice the step.
    fn assign(&self, centres: &[Centre], step: usize, labels: &mut [usize]) {
        let mut nearest = vec![f64::INFINITY; labels.len()];
        let weight = 1.0 / (step * step) as f64;
        let reach = 2.0 * step as f64;
        let span = |at: f64, length: usize| {
            (at - reach).max(0.0) as usize..((at + reach + 1.0) as usize).min(length)
        };
        for (number, centre) in centres.iter().enumerate() {
            for y in span(centre.y, self.height) {
                let down = (centre.y - y as f64).powi(2);
                for x in span(centre.x, self.width) {
                    let at = y * self.width + x;
                    let colour = &self.values[at * self.channels..(at + 1) * self.channels];
                    let unlike: f64 = colour.iter().zip(&centre.colour).map(|(a, b)| (a - b).powi(2)).sum();
                    let distance = (down + (centre.x - x as f64).powi(2)) * weight + unlike;
                    if distance < nearest[at] {
                        (nearest[at], labels[at]) = (distance, number);
                    }
                }
            }
        }
    }

    /// Moves each centre to the mean of its pixels.
    fn recentre(&self, centres: &mut [Centre], labels: &[usize]) {
        let mut counts = vec![0.0; centres.len()];
        let mut sums = vec![0.0; centres.len() * (self.channels + 2)];
        for (at, &label) in labels.iter().enumerate() {
            counts[label] += 1.0;
            let sum = &mut sums[label * (self.channels + 2)..(label + 1) * (self.channels + 2)];
            sum[0] += (at / self.width) as f64;
            sum[1] += (at % self.width) as f64;
            let colour = &self.values[at * self.channels..(at + 1) * self.channels];
            sum[2..].iter_mut().zip(colour).for_each(|(sum, v)| *sum += v);
        }
        for ((centre, count), sum) in centres.iter_mut().zip(counts).zip(sums.chunks(self.channels + 2)) {
            if count > 0.0 {
                (centre.y, centre.x) = (sum[0] / count, sum[1] / count);
                centre.colour = sum[2..].iter().map(|sum| sum / count).collect();
            }
        }
    }
}

/// Renumbers connected segments in row-major order. A segment smaller than `smallest` is merged into the neighbour found last; a
/// segment ends at `largest` pixels.
fn connected(labels: &[usize], width: usize, smallest: usize, largest: usize) -> (Vec<usize>, usize) {
    const NONE: usize = usize::MAX;
    let mut found = vec![NONE; labels.len()];
    let mut count = 0;
    for start in 0..labels.len() {
        if found[start] != NONE {
            continue;
        }
        let mut piece = vec![start];
        let mut beside = NONE;
        found[start] = count;
        let mut next = 0;
        while next < piece.len() && piece.len() < largest.max(1) {
            for at in neighbours(piece[next], width, labels.len()) {
                if found[at] == NONE && labels[at] == labels[start] {
                    found[at] = count;
                    piece.push(at);
                } else if found[at] != NONE && found[at] != count {
                    beside = found[at];
                }
            }
            next += 1;
        }
        if piece.len() < smallest && beside != NONE {
            piece.iter().for_each(|&at| found[at] = beside);
        } else {
            count += 1;
        }
    }
    (found, count)
}

/// The pixels above, below, left and right.
fn neighbours(at: usize, width: usize, length: usize) -> impl Iterator<Item = usize> {
    let left = (!at.is_multiple_of(width)).then(|| at - 1);
    let right = (at % width + 1 < width).then_some(at + 1);
    let below = Some(at + width).filter(|&at| at < length);
    [right, left, below, at.checked_sub(width)].into_iter().flatten()
}

/// From sRGB to CIE L*a*b* under D65.
fn to_lab(colour: &mut [f64]) {
    let linear = |v: f64| if v > 0.04045 { ((v + 0.055) / 1.055).powf(2.4) } else { v / 12.92 };
    let [r, g, b] = [linear(colour[0]), linear(colour[1]), linear(colour[2])];
    let curve = |t: f64| if t > 0.008_856 { t.cbrt() } else { 7.787 * t + 16.0 / 116.0 };
    let x = curve((0.412_453 * r + 0.357_580 * g + 0.180_423 * b) / 0.950_47);
    let y = curve(0.212_671 * r + 0.715_160 * g + 0.072_169 * b);
    let z = curve((0.019_334 * r + 0.119_193 * g + 0.950_227 * b) / 1.088_83);
    colour.copy_from_slice(&[116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four quarters of different colours, with a little noise.
    fn quarters(side: usize) -> Pixels {
        let noise = monosplit_graph::Noise::new(1);
        let colour = |at: usize, channel: usize| {
            let (y, x) = (at / side, at % side);
            let quarter = 2 * usize::from(y >= side / 2) + usize::from(x >= side / 2);
            [[0.9, 0.1, 0.1], [0.1, 0.9, 0.1], [0.1, 0.1, 0.9], [0.9, 0.9, 0.1]][quarter][channel]
                + 0.02 * noise.uniform((at * 3 + channel) as u64)
        };
        let values = (0..side * side).flat_map(|at| (0..3).map(move |c| colour(at, c))).collect();
        Pixels { height: side, width: side, channels: 3, values }
    }

    #[test]
    fn no_superpixel_crosses_a_strong_edge_and_each_is_connected() {
        let side = 40;
        let (labels, count) = superpixels(quarters(side), 16, 10.0);
        assert!((8..=32).contains(&count), "{count}");
        let mut quarter = vec![None; count];
        for (at, &label) in labels.iter().enumerate() {
            let own = (at / side >= side / 2, at % side >= side / 2);
            assert_eq!(*quarter[label].get_or_insert(own), own);
        }
        let (again, pieces) = connected(&labels, side, 0, usize::MAX);
        assert_eq!(pieces, count);
        assert_eq!(again.len(), labels.len());
    }

    #[test]
    fn a_flat_picture_is_divided_into_squares_and_a_single_line_into_pieces() {
        let flat = Pixels { height: 30, width: 30, channels: 1, values: vec![0.5; 900] };
        assert_eq!(superpixels(flat, 9, 10.0).1, 9);
        let line = Pixels { height: 1, width: 30, channels: 1, values: vec![0.5; 30] };
        assert_eq!(superpixels(line, 5, 10.0).1, 5);
    }

    #[test]
    fn colours_are_those_of_the_standard() {
        // skimage.color.rgb2lab([[[0.2, 0.5, 0.8]]])
        let mut colour = [0.2, 0.5, 0.8];
        to_lab(&mut colour);
        for (found, expected) in colour.iter().zip([52.252_06, 2.776_02, -46.285_71]) {
            assert!((found - expected).abs() < 0.01, "{colour:?}");
        }
    }
}
