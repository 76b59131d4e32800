//! The resizing of a given map to the network's input.

use monosplit_graph::op::{Coordinates, Interpolation, ResizeAxis};
use monosplit_graph::{Result, Tensor};

/// A map `[h, w]` at the size `[height, width]`: bilinear between the centres of pixels, as
/// `torch.nn.functional.interpolate(map, size, mode="bilinear", align_corners=False)`. One of that size stays as it is.
pub(super) fn resized(map: Tensor, size: [usize; 2]) -> Result<Tensor> {
    let &[height, width] = map.shape() else { return Ok(map) };
    if [height, width] == size {
        return Ok(map);
    }
    let taps = |length: usize, wanted: usize| -> Vec<Vec<(usize, f64)>> {
        let axis = ResizeAxis { axis: 0, length: wanted, scale: wanted as f64 / length as f64 };
        axis.taps(Interpolation::Linear, Coordinates::HalfPixel, length)
    };
    let (rows, columns) = (taps(height, size[0]), taps(width, size[1]));
    let values = map.to_f64();
    let mut resized = Vec::with_capacity(size[0] * size[1]);
    for row in &rows {
        for column in &columns {
            let across =
                |y: usize| column.iter().map(|&(x, share)| share * values[y * width + x]).sum::<f64>();
            resized.push(row.iter().map(|&(y, share)| share * across(y)).sum::<f64>() as f32);
        }
    }
    Tensor::new(size, resized)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values are those of PyTorch 2.15:
    /// `F.interpolate(torch.tensor([[[[0., 1, 4], [2, -3, 8]]]]).double(), (3, 5), mode="bilinear", align_corners=False)`
    #[test]
    fn maps_are_resized_as_by_torch() {
        let map = Tensor::new([2, 3], vec![0f32, 1.0, 4.0, 2.0, -3.0, 8.0]).unwrap();
        let found = resized(map.clone(), [3, 5]).unwrap();
        let expected = [0.0, 0.4, 1.0, 2.8, 4.0, 1.0, 0.2, -1.0, 3.2, 6.0, 2.0, 2.775558e-16, -3.0, 3.6, 8.0];
        for (found, expected) in found.to_f64().iter().zip(expected) {
            assert!((found - expected).abs() < 1e-6, "{found} {expected}");
        }
        assert_eq!(resized(map.clone(), [2, 3]).unwrap(), map);
        let smaller = resized(map, [1, 2]).unwrap();
        for (found, expected) in smaller.to_f64().iter().zip([0.5, 4.25]) {
            assert!((found - expected).abs() < 1e-6, "{found} {expected}");
        }
    }
}
