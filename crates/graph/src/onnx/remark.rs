//! What a person should know of how a file was read.

use std::fmt;

use crate::element::Element;
use crate::legible::shown;

/// A node whose inputs have types that do not belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MixedTypes {
    pub(crate) node: String,
    pub(crate) op: String,
    pub(crate) first: Element,
    pub(crate) second: Element,
}

/// A fact about how a file was read, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Remark {
    /// The network is quantised and is explained dequantised.
    Quantised {
        /// Quantisers that are kept: they limit and round.
        kept: usize,
        /// Quantisers that are left out, since their scale depends on the input.
        left_out: usize,
    },
    /// A node reads numbers of two types where ONNX requires one, so that other runtimes refuse the file.
    MixedTypes {
        /// The first such node.
        node: String,
        /// Its op.
        op: String,
        /// The names of the two types.
        types: (&'static str, &'static str),
        /// How many further nodes there are.
        more: usize,
    },
    /// The network computes in half precision, which is computed in single precision here.
    HalfArithmetic,
    /// The network computes in double precision, which is computed in the precision that is asked for here.
    DoubleArithmetic,
}

/// What is noted while a file is read.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// How many quantisers are kept: they limit and round.
    pub(crate) quantisers: usize,
    /// How many quantisers are left out, because their scale depends on the input.
    pub(crate) dynamic_quantisers: usize,
    /// Whether weights were dequantised.
    pub(crate) quantised_weights: bool,
    /// Whether the network computes in half precision.
    pub(crate) half_arithmetic: bool,
    /// Whether the network computes in double precision.
    pub(crate) double_arithmetic: bool,
    pub(crate) mixed_types: Vec<MixedTypes>,
}

impl Notes {
    /// The notes as remarks.
    pub(crate) fn remarks(self) -> Vec<Remark> {
        let (kept, left_out) = (self.quantisers, self.dynamic_quantisers);
        let mut remarks = Vec::new();
        if kept + left_out > 0 || self.quantised_weights {
            remarks.push(Remark::Quantised { kept, left_out });
        }
        let more = self.mixed_types.len().saturating_sub(1);
        remarks.extend(self.mixed_types.into_iter().next().map(|MixedTypes { node, op, first, second }| {
            Remark::MixedTypes { node, op, types: (first.name(), second.name()), more }
        }));
        remarks.extend(self.half_arithmetic.then_some(Remark::HalfArithmetic));
        remarks.extend(self.double_arithmetic.then_some(Remark::DoubleArithmetic));
        remarks
    }
}

impl Remark {
    /// Whether results may surprise someone who was not told.
    pub fn is_warning(&self) -> bool {
        !matches!(self, Remark::HalfArithmetic | Remark::DoubleArithmetic)
    }
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Remark::Quantised { kept, left_out } => {
                f.write_str(
                    "the network is quantised and is explained dequantised: weights are real numbers",
                )?;
                if *kept > 0 {
                    write!(f, ", {kept} quantisers limit and round but are explained as if they did not")?;
                }
                match left_out {
                    0 => Ok(()),
                    _ => write!(f, ", {left_out} quantisers whose scale depends on the input are left out"),
                }
            }
            Remark::MixedTypes { node, op, types: (first, second), more } => {
                let (node, op) = (shown(node), shown(op));
                write!(f, "in node '{node}': {op} reads {first} and {second} numbers, expected one type")?;
                if *more > 0 {
                    write!(f, " (and {more} more nodes)")?;
                }
                f.write_str("; ONNX Runtime refuses the file, here both are computed in one precision")
            }
            Remark::HalfArithmetic => {
                f.write_str("half-precision arithmetic is computed in single precision; only casts round")
            }
            Remark::DoubleArithmetic => f.write_str(
                "double-precision arithmetic is computed in single precision unless double precision is asked for",
            ),
        }
    }
}
