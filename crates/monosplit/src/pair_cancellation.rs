//! What is left of the class scores when the two networks of a split are run and subtracted in single precision.

use monosplit_engine::{Cpu, Engine};
use monosplit_explain::{Pair, class_scores};
use monosplit_graph::batch::repeated;
use monosplit_graph::passes::drop_rounding;
use monosplit_graph::{Result, Tensor};

use crate::model::Model;

/// The error of `g − h` when the two networks are run in single precision, to the network without the rounding of its
/// activations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairCancellation {
    /// The largest error of a class score.
    pub error: f64,
    /// The largest class score.
    pub score: f64,
    /// The largest score of `g` and of `h`.
    pub magnitude: f64,
}

impl PairCancellation {
    /// The largest relative error without a remark.
    const SMALL: f64 = 1e-2;

    /// Measures it at one sample.
    pub fn measure(model: &Model, pair: &Pair, sample: &Tensor) -> Result<Self> {
        let image = repeated(sample, model.fixed_batch()?.unwrap_or(1))?;
        let part = |part: fn(f32) -> f32| {
            Tensor::new(image.shape(), image.to_f32().iter().map(|&v| part(v)).collect::<Vec<f32>>())
        };
        // Streams that are only added take half of the input each; products of streams need its positive and negative part.
        let halves = [part(|v| v / 2.0)?, part(|v| -v / 2.0)?];
        let parts = [part(|v| v.max(0.0))?, part(|v| (-v).max(0.0))?];
        let both = Cpu::default().compile(&pair.both)?;
        let (plain, _) = drop_rounding(model.graph())?;
        let network = Cpu::default().compile(&class_scores(&plain)?)?;
        let scores = network.run(std::slice::from_ref(&image))?[0].to_f64().to_vec();
        let largest = |values: &mut dyn Iterator<Item = f64>| {
            values.fold(0.0, |most: f64, v| if v.abs() > most || v.is_nan() { v.abs() } else { most })
        };
        let mut found =
            PairCancellation { error: 0.0, score: largest(&mut scores.iter().copied()), magnitude: 0.0 };
        for inputs in [halves, parts] {
            let streams = both.run(&inputs)?;
            let (g, h) = (streams[0].to_f64(), streams[1].to_f64());
            let errors = scores.iter().zip(g.iter().zip(h.iter())).map(|(f, (g, h))| f - (g - h));
            found.error = largest(&mut errors.chain([found.error]));
            found.magnitude = largest(&mut g.iter().chain(h.iter()).copied().chain([found.magnitude]));
        }
        Ok(found)
    }

    /// Whether the error needs a remark; NaN does.
    pub fn is_large(&self) -> bool {
        self.error.is_nan() || self.error > Self::SMALL * self.score
    }
}
