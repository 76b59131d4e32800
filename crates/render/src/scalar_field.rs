//! Scalar fields: one number for each position of a picture, and resizing of such fields.

use monosplit_graph::{Error, Result, Tensor, element_count};
use monosplit_image::{MAX_BYTES, MAX_SIDE};

/// One number for each position of a picture, in rows from top to bottom: a map to be drawn. Values may be negative, NaN or
/// infinite.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalarField {
    width: usize,
    height: usize,
    values: Vec<f32>,
}

impl ScalarField {
    /// A map over `values`, which must be `width * height` of them; no side may be zero or longer than
    /// [`MAX_SIDE`].
    pub fn new(width: usize, height: usize, values: Vec<f32>) -> Result<Self> {
        let expected = checked_area(width, height)?;
        if values.len() != expected {
            return Err(Error::argument(format!(
                "a map of {width}×{height} places needs {expected} values, but {} were given",
                values.len()
            )));
        }
        Ok(ScalarField { width, height, values })
    }

    /// The map of one `sample` of a tensor shaped `[H, W]` (one sample), `[N, H, W]` or `[N, 1, H, W]`.
    pub fn from_tensor(tensor: &Tensor, sample: usize) -> Result<Self> {
        let (samples, height, width) = match *tensor.shape() {
            [height, width] => (1, height, width),
            [samples, height, width] | [samples, 1, height, width] => (samples, height, width),
            ref shape => {
                return Err(Error::shape(format!(
                    "a map has the shape [H, W], [N, H, W] or [N, 1, H, W], but this tensor has {shape:?}; \
                     sum over the channels first"
                )));
            }
        };
        if sample >= samples {
            return Err(Error::argument(format!("there is no sample {sample} among {samples} maps")));
        }
        let area = checked_area(width, height)?;
        let values = tensor.to_f32()[sample * area..(sample + 1) * area].to_vec();
        ScalarField::new(width, height, values)
    }

    /// Number of columns.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Number of rows.
    pub fn height(&self) -> usize {
        self.height
    }

    /// The values, row by row.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// The map at another size, bilinear with half-pixel centres: PyTorch's
    /// `interpolate(mode="bilinear", align_corners=False)`.
    ///
    /// Values that are not finite do not spread: they fill the positions nearest to them, and all other positions mix
    /// finite neighbours only. Like PyTorch's, scaling down picks values and averages at most four.
    pub fn resized(&self, width: usize, height: usize) -> Result<ScalarField> {
        let area = checked_area(width, height)?;
        if (width, height) == (self.width, self.height) {
            return Ok(self.clone());
        }
        let columns: Vec<Tap> = (0..width).map(|x| Tap::new(x, width, self.width)).collect();
        let mut values = Vec::with_capacity(area);
        for y in 0..height {
            let row = Tap::new(y, height, self.height);
            values.extend(columns.iter().map(|column| self.mixed(*column, row)));
        }
        Ok(ScalarField { width, height, values })
    }

    fn mixed(&self, column: Tap, row: Tap) -> f32 {
        let value = |x: usize, y: usize| self.values[y * self.width + x];
        let nearest = value(column.nearest(), row.nearest());
        if !nearest.is_finite() {
            return nearest;
        }
        let (mut sum, mut weights) = (0.0, 0.0);
        for (y, down) in [(row.low, 1.0 - row.share), (row.high, row.share)] {
            for (x, across) in [(column.low, 1.0 - column.share), (column.high, column.share)] {
                if value(x, y).is_finite() {
                    sum += down * across * f64::from(value(x, y));
                    weights += down * across;
                }
            }
        }
        (sum / weights) as f32
    }
}

/// The two positions along one axis between which a new position lies.
#[derive(Clone, Copy)]
struct Tap {
    low: usize,
    high: usize,
    share: f64,
}

impl Tap {
    fn new(place: usize, length: usize, source: usize) -> Self {
        let centre = (place as f64 + 0.5) * source as f64 / length as f64 - 0.5;
        let centre = centre.clamp(0.0, (source - 1) as f64);
        let low = centre.floor() as usize;
        Tap { low, high: (low + 1).min(source - 1), share: centre - centre.floor() }
    }

    fn nearest(self) -> usize {
        if self.share < 0.5 { self.low } else { self.high }
    }
}

fn checked_area(width: usize, height: usize) -> Result<usize> {
    match element_count(&[width, height]) {
        Some(area) if area > 0 && width.max(height) <= MAX_SIDE && area <= MAX_BYTES / 4 => Ok(area),
        _ => Err(Error::argument(format!(
            "a map of {width}×{height} places is empty or beyond the limits of {MAX_SIDE} a side and {} MiB",
            MAX_BYTES >> 20
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use monosplit_graph::npy;

    #[test]
    fn resizing_agrees_with_pytorch() {
        let read = |bytes: &[u8]| ScalarField::from_tensor(&npy::read(bytes).unwrap(), 0).unwrap();
        let source = read(include_bytes!("../tests/fixtures/source-3x4.npy"));
        let expected = [
            read(include_bytes!("../tests/fixtures/bilinear-7x10.npy")),
            read(include_bytes!("../tests/fixtures/bilinear-9x4.npy")),
            read(include_bytes!("../tests/fixtures/bilinear-24x32.npy")),
            read(include_bytes!("../tests/fixtures/bilinear-2x3.npy")),
        ];
        for expected in expected {
            let found = source.resized(expected.width(), expected.height()).unwrap();
            for (f, e) in found.values().iter().zip(expected.values()) {
                assert!((f - e).abs() <= 1e-6, "{f} {e} at {}×{}", expected.width(), expected.height());
            }
        }
    }

    #[test]
    fn a_constant_map_stays_constant_at_every_size() {
        let map = ScalarField::new(3, 2, vec![0.3; 6]).unwrap();
        for (width, height) in [(1, 1), (7, 5), (64, 3), (2, 1)] {
            assert!(map.resized(width, height).unwrap().values().iter().all(|&v| v == 0.3));
        }
        let huge = ScalarField::new(2, 1, vec![f32::MAX; 2]).unwrap();
        assert!(huge.resized(9, 9).unwrap().values().iter().all(|&v| v == f32::MAX));
    }

    #[test]
    fn what_is_not_finite_fills_its_own_places_only() {
        let map = ScalarField::new(3, 1, vec![1.0, f32::NAN, 2.0]).unwrap();
        let wide = map.resized(9, 1).unwrap();
        let nan: Vec<bool> = wide.values().iter().map(|v| v.is_nan()).collect();
        assert_eq!(nan, [false, false, false, true, true, true, false, false, false]);
        assert_eq!(wide.values()[2], 1.0);
        assert_eq!(wide.values()[6], 2.0);
    }

    #[test]
    fn tensors_of_maps_are_taken_apart_and_others_refused() {
        let tensor = Tensor::new([2, 1, 1, 2], vec![1f32, 2.0, 3.0, 4.0]).unwrap();
        assert_eq!(ScalarField::from_tensor(&tensor, 1).unwrap().values(), [3.0, 4.0]);
        assert!(ScalarField::from_tensor(&tensor, 2).is_err());
        assert!(ScalarField::from_tensor(&Tensor::new([1, 2, 1, 1], vec![0f32; 2]).unwrap(), 0).is_err());
        assert!(ScalarField::from_tensor(&Tensor::new([0, 2], Vec::<f32>::new()).unwrap(), 0).is_err());
        assert!(ScalarField::new(usize::MAX, 2, vec![]).is_err());
        assert!(ScalarField::new(2, 2, vec![0.0; 3]).is_err());
        assert!(ScalarField::new(1, 1, vec![0.0]).unwrap().resized(MAX_SIDE, MAX_SIDE).is_err());
    }
}
