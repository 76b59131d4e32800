//! Pillow's resize for 8-bit pictures, bit for bit.
//!
//! Each output pixel is a weighted mean of the input pixels under a filter that widens with the
//! reduction, so that shrinking does not alias. Rows and columns are scaled in two passes; the weights
//! are fixed-point numbers of 22 fractional bits and the picture is rounded to bytes between the passes,
//! as in Pillow, whose results this must equal. Because of that rounding the order of the passes shows:
//! it is that of Pillow 13, which differs from earlier ones where the height shrinks much more than the width.

use std::ops::Range;

use monosplit_graph::Result;

use crate::picture::{Picture, checked_area};

/// How pixels are weighted when a picture is scaled; the names are Pillow's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Filter {
    /// The nearest pixel alone.
    Nearest,
    /// The mean of the pixels covered.
    Box,
    /// A triangle: torchvision's default.
    #[default]
    Bilinear,
    /// A cubic of `a = -0.5`.
    Bicubic,
    /// A windowed sinc of three lobes.
    Lanczos,
}

impl Filter {
    /// Half the width of the filter at scale one; `None` where it does not average.
    fn support(self) -> Option<f64> {
        match self {
            Filter::Nearest => None,
            Filter::Box => Some(0.5),
            Filter::Bilinear => Some(1.0),
            Filter::Bicubic => Some(2.0),
            Filter::Lanczos => Some(3.0),
        }
    }

    fn weight(self, x: f64) -> f64 {
        match self {
            Filter::Nearest | Filter::Box => f64::from(x > -0.5 && x <= 0.5),
            Filter::Bilinear => (1.0 - x.abs()).max(0.0),
            Filter::Bicubic => cubic(x.abs()),
            Filter::Lanczos if (-3.0..3.0).contains(&x) => sinc(x) * sinc(x / 3.0),
            Filter::Lanczos => 0.0,
        }
    }
}

fn cubic(x: f64) -> f64 {
    const A: f64 = -0.5;
    if x < 1.0 {
        ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        (((x - 5.0) * x + 8.0) * x - 4.0) * A
    } else {
        0.0
    }
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 {
        return 1.0;
    }
    let x = x * std::f64::consts::PI;
    x.sin() / x
}

/// Positions along one axis of a scaled picture.
#[derive(Clone)]
pub(crate) struct AxisPart {
    /// Length of the whole axis.
    pub(crate) whole: usize,
    /// The positions that are wanted.
    pub(crate) part: Range<usize>,
}

impl AxisPart {
    fn all(whole: usize) -> Self {
        AxisPart { whole, part: 0..whole }
    }

    /// Whether these are the positions of an axis of this length, unscaled.
    fn is_all_of(&self, length: usize) -> bool {
        self.whole == length && self.part == (0..length)
    }
}

impl Picture {
    /// The picture scaled to `width * height` pixels, equal to Pillow's `resize((width, height), filter)`.
    pub fn resize(&self, width: usize, height: usize, filter: Filter) -> Result<Picture> {
        checked_area(width, height, 3)?;
        self.resize_part(&AxisPart::all(width), &AxisPart::all(height), filter)
    }

    /// Part of the scaled picture, the same pixels as in the whole. Only the part is computed and held: of a sliver scaled
    /// by its shorter side the whole may be enormous.
    pub(crate) fn resize_part(&self, across: &AxisPart, down: &AxisPart, filter: Filter) -> Result<Picture> {
        checked_area(across.part.len(), down.part.len(), 3)?;
        if across.is_all_of(self.width()) && down.is_all_of(self.height()) {
            return Ok(self.clone());
        }
        let Some(support) = filter.support() else { return self.nearest(across, down) };
        let rows = |picture: &Picture| -> Result<Picture> {
            if across.is_all_of(picture.width()) {
                return Ok(picture.clone());
            }
            checked_area(across.part.len(), picture.height(), 3)?;
            let taps = Taps::new(picture.width(), across, filter, support);
            Picture::new(across.part.len(), picture.height(), scale_rows(picture, &taps))
        };
        let columns = |picture: &Picture| -> Result<Picture> {
            if down.is_all_of(picture.height()) {
                return Ok(picture.clone());
            }
            checked_area(picture.width(), down.part.len(), 3)?;
            let taps = Taps::new(picture.height(), down, filter, support);
            Picture::new(picture.width(), down.part.len(), scale_columns(picture, &taps))
        };
        if columns_first((self.width(), self.height()), (across.whole, down.whole)) {
            rows(&columns(self)?)
        } else {
            columns(&rows(self)?)
        }
    }

    fn nearest(&self, across: &AxisPart, down: &AxisPart) -> Result<Picture> {
        let columns = nearest_positions(self.width(), across);
        let mut rgb = Vec::with_capacity(across.part.len() * down.part.len() * 3);
        for y in nearest_positions(self.height(), down) {
            let row = &self.rgb()[y * self.width() * 3..][..self.width() * 3];
            for &x in &columns {
                rgb.extend_from_slice(&row[x * 3..x * 3 + 3]);
            }
        }
        Picture::new(across.part.len(), down.part.len(), rgb)
    }
}

/// Whether Pillow scales the columns before the rows: where the height loses more than twice as many
/// pixels as the width.
fn columns_first(from: (usize, usize), to: (usize, usize)) -> bool {
    to.1 < from.1 && from.1 - to.1 > from.0.saturating_sub(to.0).saturating_mul(2)
}

/// Which input position each output position copies. The position is accumulated rather than
/// multiplied out because Pillow's rounding comes from the accumulation.
fn nearest_positions(input: usize, output: &AxisPart) -> Vec<usize> {
    let step = input as f64 / output.whole as f64;
    let mut position = step * 0.5;
    let positions = (0..output.part.end).map(|_| {
        let index = (position as usize).min(input - 1);
        position += step;
        index
    });
    positions.skip(output.part.start).collect()
}

const PRECISION: u32 = 32 - 8 - 2;

/// For each output position along one axis: the first input position it sees and the weights from there on.
struct Taps {
    starts: Vec<(usize, usize)>,
    weights: Vec<i32>,
}

impl Taps {
    fn new(input: usize, output: &AxisPart, filter: Filter, support: f64) -> Taps {
        let scale = input as f64 / output.whole as f64;
        let filter_scale = scale.max(1.0);
        let support = support * filter_scale;
        let inverse = 1.0 / filter_scale;
        let mut taps = Taps { starts: Vec::with_capacity(output.part.len() + 1), weights: Vec::new() };
        let mut row = Vec::new();
        for x in output.part.clone() {
            let centre = (x as f64 + 0.5) * scale;
            let first = (centre - support + 0.5).max(0.0) as usize;
            let last = ((centre + support + 0.5) as usize).min(input);
            row.clear();
            row.extend((first..last).map(|i| filter.weight((i as f64 - centre + 0.5) * inverse)));
            let mut sum = 0.0;
            for weight in &row {
                sum += weight;
            }
            if sum != 0.0 {
                row.iter_mut().for_each(|weight| *weight /= sum);
            }
            taps.starts.push((first, taps.weights.len()));
            taps.weights.extend(row.iter().map(|&weight| fixed(weight)));
        }
        taps.starts.push((input, taps.weights.len()));
        taps
    }

    fn iter(&self) -> impl Iterator<Item = (usize, &[i32])> {
        self.starts.windows(2).map(|pair| (pair[0].0, &self.weights[pair[0].1..pair[1].1]))
    }
}

fn fixed(weight: f64) -> i32 {
    let scaled = weight * f64::from(1 << PRECISION);
    if weight < 0.0 { (scaled - 0.5) as i32 } else { (scaled + 0.5) as i32 }
}

fn byte(sum: i32) -> u8 {
    (sum >> PRECISION).clamp(0, 255) as u8
}

const HALF: i32 = 1 << (PRECISION - 1);

fn scale_rows(picture: &Picture, taps: &Taps) -> Vec<u8> {
    let mut out = Vec::with_capacity((taps.starts.len() - 1) * picture.height() * 3);
    for row in picture.rgb().chunks_exact(picture.width() * 3) {
        for (first, weights) in taps.iter() {
            let mut sums = [HALF; 3];
            for (pixel, &weight) in row[first * 3..].chunks_exact(3).zip(weights) {
                for (sum, &value) in sums.iter_mut().zip(pixel) {
                    *sum = sum.wrapping_add(i32::from(value).wrapping_mul(weight));
                }
            }
            out.extend(sums.map(byte));
        }
    }
    out
}

fn scale_columns(picture: &Picture, taps: &Taps) -> Vec<u8> {
    let stride = picture.width() * 3;
    let mut out = Vec::with_capacity((taps.starts.len() - 1) * stride);
    let mut sums = vec![HALF; stride];
    for (first, weights) in taps.iter() {
        sums.fill(HALF);
        for (row, &weight) in picture.rgb()[first * stride..].chunks_exact(stride).zip(weights) {
            for (sum, &value) in sums.iter_mut().zip(row) {
                *sum = sum.wrapping_add(i32::from(value).wrapping_mul(weight));
            }
        }
        out.extend(sums.iter().map(|&sum| byte(sum)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_colour_stays_one_colour() {
        let picture = Picture::new(7, 5, [9, 130, 255].repeat(35)).unwrap();
        for filter in [Filter::Nearest, Filter::Box, Filter::Bilinear, Filter::Bicubic, Filter::Lanczos] {
            for (width, height) in [(1, 1), (3, 11), (7, 2), (20, 5)] {
                let scaled = picture.resize(width, height, filter).unwrap();
                assert_eq!(scaled.rgb(), [9, 130, 255].repeat(width * height), "{filter:?} {width}×{height}");
            }
        }
    }

    #[test]
    fn a_part_is_cut_out_of_the_whole() {
        let picture = Picture::new(9, 7, (0..189).map(|v| (v * 37 % 256) as u8).collect()).unwrap();
        for filter in [Filter::Nearest, Filter::Box, Filter::Bilinear, Filter::Bicubic, Filter::Lanczos] {
            for (width, height) in [(20, 15), (9, 3), (4, 7), (5, 30), (9, 7)] {
                let whole = picture.resize(width, height, filter).unwrap();
                let across = AxisPart { whole: width, part: 1..width - 1 };
                let down = AxisPart { whole: height, part: 2..height };
                let part = picture.resize_part(&across, &down, filter).unwrap();
                let rows = whole.rgb().chunks_exact(width * 3).skip(2);
                let expected: Vec<u8> = rows.flat_map(|row| &row[3..(width - 1) * 3]).copied().collect();
                assert_eq!(part.rgb(), expected, "{filter:?} {width}×{height}");
            }
        }
    }

    #[test]
    fn sizes_out_of_bounds_are_refused() {
        let picture = Picture::new(1, 20_000, vec![0; 60_000]).unwrap();
        assert!(picture.resize(0, 4, Filter::Bilinear).is_err());
        assert!(picture.resize(4, usize::MAX, Filter::Bilinear).is_err());
        let wide = Picture::new(20_000, 1, vec![0; 60_000]).unwrap();
        assert!(wide.resize(20_000, 20_000, Filter::Bilinear).is_err());
    }
}
