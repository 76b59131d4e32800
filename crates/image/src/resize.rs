//! Pillow's resize for 8-bit pictures, bit for bit.
//!
//! Each output pixel is a weighted mean of the input pixels under a filter that widens with the
//! reduction, so that shrinking does not alias. Rows and columns are scaled in two passes; the weights
//! are fixed-point numbers of 22 fractional bits and the picture is rounded to bytes between the passes,
//! as in Pillow, whose results this must equal. Because of that rounding the order of the passes shows:
//! it is that of Pillow 13, which differs from earlier ones where the height shrinks much more than the width.

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

impl Picture {
    /// The picture scaled to `width * height` pixels, equal to Pillow's `resize((width, height), filter)`.
    pub fn resize(&self, width: usize, height: usize, filter: Filter) -> Result<Picture> {
        checked_area(width, height, 3)?;
        if (width, height) == (self.width(), self.height()) {
            return Ok(self.clone());
        }
        let Some(support) = filter.support() else { return self.nearest(width, height) };
        let across = |picture: &Picture| -> Result<Picture> {
            if width == picture.width() {
                return Ok(picture.clone());
            }
            checked_area(width, picture.height(), 3)?;
            let taps = Taps::new(picture.width(), width, filter, support);
            Picture::new(width, picture.height(), scale_rows(picture, &taps))
        };
        let down = |picture: &Picture| -> Result<Picture> {
            if height == picture.height() {
                return Ok(picture.clone());
            }
            checked_area(picture.width(), height, 3)?;
            let taps = Taps::new(picture.height(), height, filter, support);
            Picture::new(picture.width(), height, scale_columns(picture, &taps))
        };
        if columns_first((self.width(), self.height()), (width, height)) {
            across(&down(self)?)
        } else {
            down(&across(self)?)
        }
    }

    fn nearest(&self, width: usize, height: usize) -> Result<Picture> {
        let columns = nearest_positions(self.width(), width);
        let mut rgb = Vec::with_capacity(width * height * 3);
        for y in nearest_positions(self.height(), height) {
            let row = &self.rgb()[y * self.width() * 3..][..self.width() * 3];
            for &x in &columns {
                rgb.extend_from_slice(&row[x * 3..x * 3 + 3]);
            }
        }
        Picture::new(width, height, rgb)
    }
}

/// Whether Pillow scales the columns before the rows: where the height loses more than twice as many
/// pixels as the width.
fn columns_first(from: (usize, usize), to: (usize, usize)) -> bool {
    to.1 < from.1 && from.1 - to.1 > from.0.saturating_sub(to.0).saturating_mul(2)
}

/// Which input position each output position copies. The position is accumulated rather than
/// multiplied out because Pillow's rounding comes from the accumulation.
fn nearest_positions(input: usize, output: usize) -> Vec<usize> {
    let step = input as f64 / output as f64;
    let mut position = step * 0.5;
    (0..output)
        .map(|_| {
            let index = (position as usize).min(input - 1);
            position += step;
            index
        })
        .collect()
}

const PRECISION: u32 = 32 - 8 - 2;

/// For each output position along one axis: the first input position it sees and the weights from there on.
struct Taps {
    starts: Vec<(usize, usize)>,
    weights: Vec<i32>,
}

impl Taps {
    fn new(input: usize, output: usize, filter: Filter, support: f64) -> Taps {
        let scale = input as f64 / output as f64;
        let filter_scale = scale.max(1.0);
        let support = support * filter_scale;
        let inverse = 1.0 / filter_scale;
        let mut taps = Taps { starts: Vec::with_capacity(output + 1), weights: Vec::new() };
        let mut row = Vec::new();
        for x in 0..output {
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
    fn sizes_out_of_bounds_are_refused() {
        let picture = Picture::new(1, 20_000, vec![0; 60_000]).unwrap();
        assert!(picture.resize(0, 4, Filter::Bilinear).is_err());
        assert!(picture.resize(4, usize::MAX, Filter::Bilinear).is_err());
        let wide = Picture::new(20_000, 1, vec![0; 60_000]).unwrap();
        assert!(wide.resize(20_000, 20_000, Filter::Bilinear).is_err());
    }
}
