//! SLIC superpixels (simple linear iterative clustering): k-means over colour and position from a regular grid of centres, then
//! segments that are not connected or too small are merged into their neighbours.

/// The number of k-means iterations.
const ROUNDS: usize = 10;
/// Connected segments below this fraction of the expected size are merged into a neighbour.
const SMALLEST: f64 = 0.5;
/// Segments end at this multiple of the expected size.
const LARGEST: f64 = 3.0;

/// An image, a series or a volume: `channels` numbers for each pixel, row-major.
pub(crate) struct Pixels {
    pub(crate) lengths: Vec<usize>,
    pub(crate) channels: usize,
    pub(crate) values: Vec<f64>,
}

/// A cluster centre: its position and its colour.
struct Centre {
    at: Vec<f64>,
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
    let mut labels = vec![0; pixels.lengths.iter().product()];
    for _ in 0..ROUNDS {
        let before = labels.clone();
        pixels.assign(&centres, step, &mut labels);
        if labels == before {
            break;
        }
        pixels.recentre(&mut centres, &labels);
    }
    let expected = labels.len() as f64 / centres.len() as f64;
    connected(&labels, &pixels.lengths, (SMALLEST * expected) as usize, (LARGEST * expected) as usize)
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
        let steps = steps(&self.lengths, segments);
        let mut centres = vec![Centre { at: Vec::new(), colour: vec![0.0; self.channels] }];
        for (&length, &step) in self.lengths.iter().zip(&steps) {
            let (start, step) = ((step / 2.0).floor() as usize, (step.round() as usize).max(1));
            let along = (start.min(length.saturating_sub(1))..length).step_by(step);
            let extended = |centre: &Centre| {
                let (before, colour) = (centre.at.clone(), centre.colour.clone());
                let at = move |at: usize| Centre {
                    at: [before.as_slice(), &[at as f64]].concat(),
                    colour: colour.clone(),
                };
                along.clone().map(at).collect::<Vec<_>>()
            };
            centres = centres.iter().flat_map(extended).collect();
        }
        let step = steps.iter().copied().fold(0.0, f64::max);
        (centres, (step.round() as usize).max(1))
    }

    /// Assigns each pixel to the nearest centre within twice the step.
    fn assign(&self, centres: &[Centre], step: usize, labels: &mut [usize]) {
        let mut nearest = vec![f64::INFINITY; labels.len()];
        let weight = 1.0 / (step * step) as f64;
        let radius = 2.0 * step as f64;
        for (number, centre) in centres.iter().enumerate() {
            // Indices of pixels, and how far they are from the centre along the axes so far.
            let mut near = vec![(0, 0.0)];
            for (&at, &length) in centre.at.iter().zip(&self.lengths) {
                let span = (at - radius).max(0.0) as usize..((at + radius + 1.0) as usize).min(length);
                let further = |&(index, far): &(usize, f64)| {
                    span.clone().map(move |i| (index * length + i, far + (at - i as f64).powi(2)))
                };
                near = near.iter().flat_map(further).collect();
            }
            for (at, far) in near {
                let colour = &self.values[at * self.channels..(at + 1) * self.channels];
                let unlike: f64 = colour.iter().zip(&centre.colour).map(|(a, b)| (a - b).powi(2)).sum();
                let distance = far * weight + unlike;
                if distance < nearest[at] {
                    (nearest[at], labels[at]) = (distance, number);
                }
            }
        }
    }

    /// Moves each centre to the mean of its pixels.
    fn recentre(&self, centres: &mut [Centre], labels: &[usize]) {
        let axes = self.lengths.len();
        let mut counts = vec![0.0; centres.len()];
        let mut sums = vec![0.0; centres.len() * (self.channels + axes)];
        for (index, &label) in labels.iter().enumerate() {
            counts[label] += 1.0;
            let sum = &mut sums[label * (self.channels + axes)..(label + 1) * (self.channels + axes)];
            let mut rest = index;
            for (sum, &length) in sum[..axes].iter_mut().zip(&self.lengths).rev() {
                *sum += (rest % length) as f64;
                rest /= length;
            }
            let colour = &self.values[index * self.channels..(index + 1) * self.channels];
            sum[axes..].iter_mut().zip(colour).for_each(|(sum, v)| *sum += v);
        }
        for ((centre, count), sum) in centres.iter_mut().zip(counts).zip(sums.chunks(self.channels + axes)) {
            if count > 0.0 {
                centre.at = sum[..axes].iter().map(|sum| sum / count).collect();
                centre.colour = sum[axes..].iter().map(|sum| sum / count).collect();
            }
        }
    }
}

/// The distance of the centres along each axis: the same along all, but no longer than an axis. Along an axis shorter than
/// that there is one centre, and along the others they then lie closer.
fn steps(lengths: &[usize], segments: usize) -> Vec<f64> {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|&axis| lengths[axis]);
    let mut steps = vec![0.0; lengths.len()];
    for (done, &axis) in order.iter().enumerate() {
        let open = &order[done..];
        let volume: f64 = open.iter().map(|&axis| lengths[axis] as f64).product::<f64>() / segments as f64;
        let step = match open.len() {
            1 => volume,
            2 => volume.sqrt(),
            axes => volume.powf(1.0 / axes as f64),
        };
        if lengths[axis] as f64 >= step || open.len() == 1 {
            open.iter().for_each(|&axis| steps[axis] = step);
            break;
        }
        steps[axis] = lengths[axis] as f64;
    }
    steps
}

/// Renumbers connected segments in row-major order. A segment smaller than `smallest` is merged into the neighbour found last; a
/// segment ends at `largest` pixels.
fn connected(labels: &[usize], lengths: &[usize], smallest: usize, largest: usize) -> (Vec<usize>, usize) {
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
            for at in neighbours(piece[next], lengths) {
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

/// The pixels before and behind along each axis; of an image those to the right and left, below and above.
fn neighbours(at: usize, lengths: &[usize]) -> Vec<usize> {
    let mut found = Vec::with_capacity(2 * lengths.len());
    let (mut rest, mut stride) = (at, 1);
    for &length in lengths.iter().rev() {
        let along = rest % length;
        found.extend((along + 1 < length).then_some(at + stride));
        found.extend((along > 0).then(|| at - stride));
        (rest, stride) = (rest / length, stride * length);
    }
    found
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
        Pixels { lengths: vec![side, side], channels: 3, values }
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
        let (again, pieces) = connected(&labels, &[side, side], 0, usize::MAX);
        assert_eq!(pieces, count);
        assert_eq!(again.len(), labels.len());
    }

    #[test]
    fn a_flat_picture_is_divided_into_squares_and_a_single_line_into_pieces() {
        let flat = Pixels { lengths: vec![30, 30], channels: 1, values: vec![0.5; 900] };
        assert_eq!(superpixels(flat, 9, 10.0).1, 9);
        let line = Pixels { lengths: vec![1, 30], channels: 1, values: vec![0.5; 30] };
        assert_eq!(superpixels(line, 5, 10.0).1, 5);
        let series = Pixels { lengths: vec![30], channels: 1, values: vec![0.5; 30] };
        assert_eq!(superpixels(series, 5, 10.0).1, 5);
        let volume = Pixels { lengths: vec![8, 8, 8], channels: 1, values: vec![0.5; 512] };
        assert_eq!(superpixels(volume, 8, 10.0).1, 8);
        let slab = Pixels { lengths: vec![2, 12, 12], channels: 1, values: vec![0.5; 288] };
        assert_eq!(superpixels(slab, 9, 10.0).1, 9);
    }

    #[test]
    fn no_piece_of_a_series_or_a_volume_crosses_a_step() {
        let series: Vec<f64> = (0..60).map(|t| if t < 27 { 0.0 } else { 1.0 }).collect();
        let (labels, _) = superpixels(Pixels { lengths: vec![60], channels: 1, values: series }, 6, 0.1);
        assert!(labels[..27].iter().all(|label| !labels[27..].contains(label)), "{labels:?}");
        let half = |at: usize| if at / 36 < 5 { 0.0 } else { 1.0 };
        let volume = Pixels { lengths: vec![9, 6, 6], channels: 1, values: (0..324).map(half).collect() };
        let (labels, _) = superpixels(volume, 12, 0.1);
        assert!(labels[..180].iter().all(|label| !labels[180..].contains(label)), "{labels:?}");
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
