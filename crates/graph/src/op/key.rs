//! A key that tells ops apart: two ops with the same key compute the same from the same operands.

use std::mem::{Discriminant, discriminant};

use super::{Interpolation, Op, Padding, Unary, Window};
use crate::shape::{Dim, Shape};

/// The structure of an op, comparable and hashable. Real attributes are compared by their bits: 0 and −0 differ, and all
/// NaNs are one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OpKey {
    op: Discriminant<Op>,
    function: Option<Discriminant<Unary>>,
    attributes: Vec<u64>,
}

impl OpKey {
    /// The key of an op; `None` for graph inputs and constants, which are told apart by their nodes.
    pub fn of(op: &Op) -> Option<Self> {
        let mut attributes = Attributes::default();
        let mut function = None;
        match op {
            Op::Input | Op::Constant(_) => return None,
            Op::Conv { window, groups } => attributes.window(window).size(*groups),
            Op::ConvTranspose { window, groups, output_padding } => {
                attributes.window(window).size(*groups).sizes(output_padding)
            }
            Op::MatMul { trans_a, trans_b } => attributes.flag(*trans_a).flag(*trans_b),
            Op::BatchNorm { epsilon } => attributes.real(*epsilon),
            Op::LayerNorm { axis, epsilon } => attributes.size(*axis).real(*epsilon),
            Op::GroupNorm { groups, epsilon } => attributes.size(*groups).real(*epsilon),
            Op::LocalResponseNorm { size, alpha, beta, bias } => {
                attributes.size(*size).real(*alpha).real(*beta).real(*bias)
            }
            Op::Unary(unary) => {
                function = Some(discriminant(unary));
                unary.attributes().iter().fold(&mut attributes, |all, (_, value)| all.real(*value))
            }
            Op::Binary(binary) => attributes.word(*binary as u64),
            Op::Where | Op::Identity => &mut attributes,
            Op::Softmax { axis } | Op::LogSoftmax { axis } => attributes.size(*axis),
            Op::MaxPool(window) | Op::WinnerGather(window) | Op::WinnerScatter(window) => {
                attributes.window(window)
            }
            Op::AveragePool { window, divisor } => attributes.window(window).word(*divisor as u64),
            Op::AveragePoolTranspose { window, divisor, spatial } => {
                attributes.window(window).word(*divisor as u64).sizes(spatial)
            }
            Op::Reduce { reduction, axes, keep } => {
                attributes.word(*reduction as u64).sizes(axes).flag(*keep)
            }
            Op::ArgMax { axis, keep } => attributes.size(*axis).flag(*keep),
            Op::Concat { axis } | Op::Gather { axis } => attributes.size(*axis),
            Op::Slice { axis, start, step, length } => {
                attributes.size(*axis).size(*start).word(*step as u64).size(*length)
            }
            Op::Pad { padding, pads } => attributes.padding(*padding).pairs(pads),
            Op::Reshape { shape } | Op::Expand { shape } => attributes.shape(shape),
            Op::Transpose { axes } => attributes.sizes(axes),
            Op::Resize { axes, interpolation, coordinates } => {
                attributes.interpolation(*interpolation).word(*coordinates as u64);
                axes.iter()
                    .fold(&mut attributes, |all, axis| all.size(axis.axis).size(axis.length).real(axis.scale))
            }
            Op::Cast { to } => attributes.word(*to as u64),
            Op::Dropout { ratio } => attributes.real(*ratio),
        };
        Some(OpKey { op: discriminant(op), function, attributes: attributes.0 })
    }
}

/// Attributes written one after another. Lists are preceded by their length, so that no two sequences of attributes
/// are written alike.
#[derive(Default)]
struct Attributes(Vec<u64>);

impl Attributes {
    fn word(&mut self, word: u64) -> &mut Self {
        self.0.push(word);
        self
    }

    fn size(&mut self, size: usize) -> &mut Self {
        self.word(size as u64)
    }

    fn flag(&mut self, flag: bool) -> &mut Self {
        self.word(u64::from(flag))
    }

    fn real(&mut self, value: f64) -> &mut Self {
        self.word(if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() })
    }

    fn sizes(&mut self, sizes: &[usize]) -> &mut Self {
        sizes.iter().fold(self.size(sizes.len()), |all, &size| all.size(size))
    }

    fn pairs(&mut self, pairs: &[(usize, usize)]) -> &mut Self {
        pairs.iter().fold(self.size(pairs.len()), |all, &(a, b)| all.size(a).size(b))
    }

    fn window(&mut self, window: &Window) -> &mut Self {
        let Window { kernel, stride, dilation, pad, ceil } = window;
        self.sizes(kernel).sizes(stride).sizes(dilation).pairs(pad).flag(*ceil)
    }

    fn shape(&mut self, shape: &Shape) -> &mut Self {
        shape.dims().iter().fold(self.size(shape.rank()), |all, dim| match *dim {
            Dim::Fixed(length) => all.word(0).size(length),
            Dim::Batch(factor) => all.word(1).size(factor),
        })
    }

    fn padding(&mut self, padding: Padding) -> &mut Self {
        match padding {
            Padding::Constant(value) => self.word(0).real(value),
            Padding::Reflect => self.word(1),
            Padding::Edge => self.word(2),
        }
    }

    fn interpolation(&mut self, interpolation: Interpolation) -> &mut Self {
        match interpolation {
            Interpolation::Nearest(rounding) => self.word(0).word(rounding as u64),
            Interpolation::Linear => self.word(1),
            Interpolation::Cubic { coefficient, exclude_outside } => {
                self.word(2).real(coefficient).flag(exclude_outside)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Binary;

    #[test]
    fn ops_that_differ_in_one_attribute_have_different_keys() {
        let shape = |dims: &[Dim]| Op::Reshape { shape: Shape::new(dims) };
        let window = Window { pad: vec![(1, 0)], ..Window::new([3]) };
        let ops = [
            Op::Unary(Unary::Relu),
            Op::Unary(Unary::Abs),
            Op::Unary(Unary::LeakyRelu { slope: 0.0 }),
            Op::Unary(Unary::LeakyRelu { slope: -0.0 }),
            Op::Unary(Unary::Elu { alpha: 0.0 }),
            Op::Binary(Binary::Add),
            Op::Binary(Binary::Mul),
            Op::Softmax { axis: 1 },
            Op::LogSoftmax { axis: 1 },
            Op::MaxPool(window.clone()),
            Op::MaxPool(Window { pad: vec![(0, 1)], ..window.clone() }),
            Op::MaxPool(Window { ceil: true, ..window.clone() }),
            Op::WinnerGather(window),
            shape(&[Dim::Fixed(1), Dim::Fixed(2)]),
            shape(&[Dim::Batch(1), Dim::Fixed(2)]),
            Op::Slice { axis: 0, start: 1, step: -1, length: 1 },
            Op::Slice { axis: 0, start: 1, step: 1, length: 1 },
            Op::Pad { padding: Padding::Constant(f64::NAN), pads: vec![(0, 1)] },
            Op::Pad { padding: Padding::Edge, pads: vec![(0, 1)] },
        ];
        for (i, a) in ops.iter().enumerate() {
            assert_eq!(OpKey::of(a), OpKey::of(&a.clone()));
            for b in &ops[..i] {
                assert_ne!(OpKey::of(a), OpKey::of(b), "{a:?} and {b:?}");
            }
        }
        assert_eq!(OpKey::of(&Op::Input), None);
    }
}
