//! PyTorch's adaptive average pooling for an input of known size: output `i` of `n` is the mean of the inputs
//! from `⌊i·length/n⌋` up to `⌈(i+1)·length/n⌉`. An ordinary pool where those windows are alike, else one
//! matrix product per axis; exact either way.

use std::ops::Range;

use super::builder::Builder;
use crate::error::Result;
use crate::graph::NodeId;
use crate::op::{Divisor, Op, Window};
use crate::tensor::Tensor;

/// The inputs each of `positions` outputs is the mean of.
fn windows(length: usize, positions: usize) -> Vec<Range<usize>> {
    (0..positions).map(|i| i * length / positions..((i + 1) * length).div_ceil(positions)).collect()
}

/// Kernel and stride, if one window sliding evenly covers the same inputs.
fn sliding(windows: &[Range<usize>]) -> Option<(usize, usize)> {
    let kernel = windows.first()?.len();
    let stride = windows.get(1).map_or(1, |second| second.start);
    let even = windows.iter().enumerate().all(|(i, w)| w.start == i * stride && w.len() == kernel);
    (even && stride > 0 && kernel > 0).then_some((kernel, stride))
}

/// The matrix `[positions, length]` that takes the means.
fn averaging(windows: &[Range<usize>], length: usize) -> Result<Tensor> {
    let mut matrix = vec![0f64; windows.len() * length];
    for (row, window) in windows.iter().enumerate() {
        matrix[row * length..][window.clone()].fill(1.0 / window.len() as f64);
    }
    Tensor::new([windows.len(), length], matrix)
}

impl Builder<'_> {
    /// `AdaptiveAvgPool2d((size, size))`; the identity where the input has that size already.
    pub(super) fn adaptive_average_pool(&mut self, name: &str, x: NodeId, size: usize) -> Result<NodeId> {
        let (height, width) = (self.axis(x, 2)?, self.axis(x, 3)?);
        let (rows, columns) = (windows(height, size), windows(width, size));
        match (sliding(&rows), sliding(&columns)) {
            (Some((1, 1)), Some((1, 1))) => self.node(name, Op::Identity, &[x]),
            (Some((kernel_h, stride_h)), Some((kernel_w, stride_w))) => {
                let window = Window { stride: vec![stride_h, stride_w], ..Window::new([kernel_h, kernel_w]) };
                self.node(name, Op::AveragePool { window, divisor: Divisor::Covered }, &[x])
            }
            _ => {
                let across = self.constant(&format!("{name}.across"), averaging(&columns, width)?);
                let down = self.constant(&format!("{name}.down"), averaging(&rows, height)?);
                let narrowed = Op::MatMul { trans_a: false, trans_b: true };
                let narrowed = self.node(&format!("{name}.columns"), narrowed, &[x, across])?;
                self.node(name, Op::MatMul { trans_a: false, trans_b: false }, &[down, narrowed])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_that_are_alike_slide() {
        assert_eq!(sliding(&windows(7, 1)), Some((7, 1)));
        assert_eq!(sliding(&windows(14, 7)), Some((2, 2)));
        assert_eq!(sliding(&windows(7, 7)), Some((1, 1)));
        assert_eq!(sliding(&windows(8, 7)), Some((2, 1)));
        assert_eq!(sliding(&windows(5, 7)), None);
        assert_eq!(sliding(&windows(10, 7)), None);
    }

    /// `torch.nn.functional.adaptive_avg_pool1d(torch.arange(5.), 3)`, and `(torch.arange(2.), 3)`.
    #[test]
    fn means_are_pytorchs() {
        for (length, expected) in [(5, [0.5, 2.0, 3.5]), (2, [0.0, 0.5, 1.0])] {
            let matrix = averaging(&windows(length, 3), length).unwrap().to_f64();
            let means = matrix.chunks(length).map(|row| row.iter().zip(0..).map(|(w, i)| w * f64::from(i)));
            assert_eq!(means.map(|terms| terms.sum::<f64>()).collect::<Vec<_>>(), expected);
        }
    }
}
