//! Bounds by two evaluations: `g` and `h` never decrease in what they read, so that over a box they are least at one corner and
//! greatest at the other.

use monosplit_engine::{CompileOptions, Engine, Precision, Program};
use monosplit_graph::{Error, Graph, Op, Result, Tensor};

use super::{InputBoxes, MARGIN};
use crate::pair::{Pair, materialise};

/// The two networks of the split, compiled to be evaluated at corners.
pub struct StreamBounds {
    both: Box<dyn Program>,
    /// What all nodes together may lose to rounding, relative to a score: all terms of `g` and `h` have one sign, so that a sum
    /// loses at most [`MARGIN`] and hands on what its terms have lost.
    rounding: f64,
}

/// The ranges of both streams over a box, class by class.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamRanges {
    /// The least and the greatest `g`.
    pub g: Vec<(f64, f64)>,
    /// The least and the greatest `h`.
    pub h: Vec<(f64, f64)>,
}

impl StreamBounds {
    /// Splits `network` and compiles both streams; an error names the first node that cannot be split.
    pub fn new(network: &Graph, engine: &dyn Engine) -> Result<Self> {
        let Pair { both, rounding_dropped, products, .. } = materialise(network)?;
        if rounding_dropped > 0 {
            return Err(Error::unsupported(
                "the streams leave out that the network rounds its activations, so that they do not bound its scores",
            ));
        }
        // A product loses what both factors have lost, so that one of many doubles it every time.
        if products {
            return Err(Error::unsupported(
                "the streams multiply activations, for which their rounding is not bounded",
            ));
        }
        // Their shift is a difference of two numbers, whose rounding is relative to these and not to the shift.
        if network.nodes().any(|(_, node)| matches!(node.op, Op::BatchNorm { .. })) {
            return Err(Error::unsupported(
                "the streams of batch norms that are not folded have a rounding that is not bounded",
            ));
        }
        let both_at = CompileOptions::default().precision(Precision::F64);
        let rounding = (1.0 + MARGIN).powi(i32::try_from(both.len()).unwrap_or(i32::MAX)) - 1.0;
        Ok(StreamBounds { both: engine.compile_with(&both, &both_at)?, rounding })
    }

    /// The ranges over each box. `x⁻` is held where it makes `x⁺ = x + x⁻` non-negative, so that both streams are monotone functions
    /// of the input alone.
    pub fn ranges(&self, boxes: &InputBoxes) -> Result<Vec<StreamRanges>> {
        let (lower, upper) = (boxes.lower().to_f64(), boxes.upper().to_f64());
        let minus: Vec<f64> = lower.iter().map(|&v| (-v).max(0.0)).collect();
        let plus = |corner: &[f64]| corner.iter().zip(&minus).map(|(x, m)| x + m).collect::<Vec<f64>>();
        let shape = boxes.lower().shape();
        let minus_tensor = Tensor::new(shape, minus.clone())?;
        let least = self.both.run(&[Tensor::new(shape, plus(&lower))?, minus_tensor.clone()])?;
        let most = self.both.run(&[Tensor::new(shape, plus(&upper))?, minus_tensor])?;
        let count = boxes.count();
        let of = |stream: usize, row: usize| -> Vec<(f64, f64)> {
            let (least, most) = (least[stream].to_f64(), most[stream].to_f64());
            let classes = least.len() / count.max(1);
            let row = row * classes..(row + 1) * classes;
            let ends = least[row.clone()].iter().zip(&most[row]);
            ends.map(|(l, u)| (l - self.rounding * l.abs(), u + self.rounding * u.abs())).collect()
        };
        Ok((0..count).map(|row| StreamRanges { g: of(0, row), h: of(1, row) }).collect())
    }
}

impl StreamRanges {
    /// A lower bound of how far the score of `class` is above that of `rival`: of both, `g` of one and `h` of the other only
    /// raise the margin.
    pub fn margin(&self, class: usize, rival: usize) -> f64 {
        let least = self.g[class].0 + self.h[rival].0;
        let most = self.g[rival].1 + self.h[class].1;
        let margin = least - most;
        let rounding = 2.0 * f64::EPSILON * (least.abs() + most.abs());
        if margin.is_nan() { f64::NEG_INFINITY } else { margin - rounding }
    }
}
