//! What an op does to the elements of an operand along one axis: another column of the table of operators, which asks for an
//! axis.

use super::Op;

/// What becomes of the elements of an operand along one of its axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlongAxis {
    /// Element `i` along the axis decides element `i` along the same axis of the value, and no other.
    Separate,
    /// Elements stay apart, but come to stand elsewhere along the axis, or along another.
    Moved,
    /// An element of the value depends on several of them.
    Combined,
}

impl Op {
    /// What becomes of the elements of the operand `index`, of rank `rank`, along `axis`. Axes of broadcast operands are counted
    /// from the last. A reshaped value counts as separate along the first axis: its shape tells what became of that.
    pub fn along_axis(&self, index: usize, rank: usize, axis: usize) -> AlongAxis {
        use AlongAxis::{Combined, Moved, Separate};
        let combined_if = |joins: bool| if joins { Combined } else { Separate };
        let moved_if = |moves: bool| if moves { Moved } else { Separate };
        match self {
            Op::Input | Op::Constant(_) => Separate,
            // Weights: their first axis counts output channels, or those of the input, all others are summed over.
            Op::Conv { .. } | Op::ConvTranspose { .. } if index > 0 => {
                if axis == 0 {
                    Moved
                } else {
                    Combined
                }
            }
            Op::Conv { .. } | Op::ConvTranspose { .. } => combined_if(axis > 0),
            Op::MatMul { trans_a, trans_b } => match (index, rank.saturating_sub(axis)) {
                (0, from_last @ 1..=2) if (from_last == 2) == *trans_a => Combined,
                (1, from_last @ 1..=2) if (from_last == 1) == *trans_b => Combined,
                (0, 1..=2) => moved_if(*trans_a),
                (1, 1..=2) => moved_if(*trans_b),
                _ => Separate,
            },
            Op::BatchNorm { .. } => moved_if(index > 0),
            Op::LayerNorm { axis: first, .. } => combined_if(index == 0 && axis >= *first),
            Op::GroupNorm { .. } => combined_if(index == 0 && axis > 0),
            Op::LocalResponseNorm { .. } => combined_if(axis == 1),
            Op::Unary(_) | Op::Binary(_) | Op::Where | Op::Cast { .. } => Separate,
            Op::Softmax { axis: along } | Op::LogSoftmax { axis: along } => combined_if(axis == *along),
            Op::MaxPool(_)
            | Op::AveragePool { .. }
            | Op::AveragePoolTranspose { .. }
            | Op::WinnerGather(_)
            | Op::WinnerScatter(_) => combined_if(axis > 1),
            Op::Reduce { axes, keep, .. } => match axes.contains(&axis) {
                true => Combined,
                false => moved_if(!keep && axes.iter().any(|&reduced| reduced < axis)),
            },
            Op::ArgMax { axis: along, keep } => match axis == *along {
                true => Combined,
                false => moved_if(!keep && *along < axis),
            },
            Op::Concat { axis: along } | Op::Slice { axis: along, .. } => moved_if(axis == *along),
            Op::Pad { pads, .. } => moved_if(pads.get(axis).is_some_and(|&pad| pad != (0, 0))),
            Op::Reshape { .. } => moved_if(axis > 0),
            Op::Transpose { axes } => moved_if(axes.get(axis) != Some(&axis)),
            Op::Expand { shape } => moved_if(shape.rank() != rank),
            // What a place of the indices picks stands where the axis was.
            Op::Gather { axis: along } => match index {
                0 => moved_if(axis >= *along),
                _ => moved_if(*along > 0),
            },
            Op::Resize { axes, .. } => combined_if(axes.iter().any(|resized| resized.axis == axis)),
            Op::Identity | Op::Dropout { .. } => Separate,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Reduction;

    #[test]
    fn products_combine_the_axis_they_sum_over() {
        for (trans_a, trans_b) in [(false, false), (true, false), (false, true), (true, true)] {
            let op = Op::MatMul { trans_a, trans_b };
            for index in 0..2 {
                let is_transposed = [trans_a, trans_b][index];
                let summed = if (index == 0) == is_transposed { 1 } else { 2 };
                assert_eq!(op.along_axis(index, 3, summed), AlongAxis::Combined);
                let kept = if is_transposed { AlongAxis::Moved } else { AlongAxis::Separate };
                assert_eq!(op.along_axis(index, 3, 3 - summed), kept);
                assert_eq!(op.along_axis(index, 3, 0), AlongAxis::Separate);
            }
        }
    }

    #[test]
    fn a_reduction_moves_the_axes_behind_it() {
        let reduce = |keep| Op::Reduce { reduction: Reduction::Sum, axes: vec![1], keep };
        let along = |keep| [0, 1, 2].map(|axis| reduce(keep).along_axis(0, 3, axis));
        assert_eq!(along(true), [AlongAxis::Separate, AlongAxis::Combined, AlongAxis::Separate]);
        assert_eq!(along(false), [AlongAxis::Separate, AlongAxis::Combined, AlongAxis::Moved]);
    }
}
