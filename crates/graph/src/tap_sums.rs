//! Weighted sums of elements along an axis: interpolation, and the transposes of interpolation and of gathers. They are written
//! as gathers, products and sums, whose memory is linear in the axis.

use crate::error::Result;
use crate::graph::{Graph, NodeId};
use crate::op::{Op, Taps};
use crate::tensor::Tensor;

/// The most elements that are added up at a time, each with a gather of its own.
const GATHERS: usize = 8;

impl Graph {
    /// For every place, the weighted sum of the elements of `x` along `axis` that its taps name.
    pub fn tap_sums(&mut self, x: NodeId, axis: usize, places: &[Taps]) -> Result<NodeId> {
        let most = places.iter().map(Vec::len).max().unwrap_or(0);
        if most <= GATHERS {
            return self.gathered_sums(x, axis, places, most);
        }
        let (mut partial, mut sums) = (Vec::new(), Vec::with_capacity(places.len()));
        for taps in places {
            let first = partial.len();
            partial.extend(taps.chunks(GATHERS).map(Taps::from));
            sums.push((first..partial.len()).map(|at| (at, 1.0)).collect());
        }
        let partial = self.gathered_sums(x, axis, &partial, GATHERS)?;
        self.tap_sums(partial, axis, &sums)
    }

    fn gathered_sums(&mut self, x: NodeId, axis: usize, places: &[Taps], most: usize) -> Result<NodeId> {
        let mut sum: Option<NodeId> = None;
        for tap in 0..most.max(1) {
            // A position with fewer taps reads its last one again with weight zero.
            let spare = |taps: &Taps| taps.last().map_or((0, 0.0), |&(at, _)| (at, 0.0));
            let taps = places.iter().map(|taps| taps.get(tap).copied().unwrap_or_else(|| spare(taps)));
            let (at, weights): (Vec<i64>, Vec<f64>) = taps.map(|(at, weight)| (at as i64, weight)).unzip();
            let at = self.constant(Tensor::vector(at));
            let mut seen = self.add(Op::Gather { axis }, &[x, at])?;
            if weights.iter().any(|&weight| weight != 1.0) {
                let mut shape = vec![1; self.node(x).shape.rank() - axis];
                shape[0] = weights.len();
                let weights = self.constant(Tensor::new(shape, weights)?);
                seen = self.times(seen, weights)?;
            }
            sum = Some(sum.map_or(Ok(seen), |earlier| self.plus(earlier, seen))?);
        }
        Ok(sum.unwrap_or(x))
    }
}
