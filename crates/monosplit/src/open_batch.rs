//! Opening the batch axis of a network: most exporters fix the batch size unless told otherwise, and few networks depend
//! on it.

use monosplit_engine::Cpu;
use monosplit_graph::batch::samples_interact;
use monosplit_graph::{Noise, Result, Tensor};

use crate::inference::Inference;
use crate::model::Model;

/// The number of samples on which both forms are compared: more than one, and not a batch size that is usually exported.
const COMPARED: usize = 3;
/// The largest difference that rounding in batches of another size explains, relative to the largest score.
const ROUNDING: f64 = 1e-3;

impl Model {
    /// The network with its batch size open, if the scores of a sample do not depend on the rest of its batch. Reads the file
    /// again, and runs both forms on a few samples of noise to compare them.
    pub fn with_open_batch(&self) -> Option<Model> {
        let opened = self.opened_with().clone().open_batch(true).open(self.origin().clone()).ok()?;
        let kept = opened.classes() == self.classes() && opened.fixed_batch().ok()?.is_none();
        (kept && !samples_interact(opened.graph()) && agree(self, &opened).ok()?).then_some(opened)
    }
}

/// Whether both give the same scores to samples of noise.
fn agree(fixed: &Model, open: &Model) -> Result<bool> {
    let shape: Vec<usize> = std::iter::once(COMPARED).chain(open.sample_shape()?).collect();
    let (count, noise) = (shape.iter().product::<usize>() as u64, Noise::new(0).stream("any batch"));
    let numbers: Vec<f32> = (0..count).map(|i| noise.gaussian(i) as f32).collect();
    let samples = [Tensor::new(shape, numbers)?];
    let scores = |model: &Model| Ok(Inference::new(model, &Cpu::default())?.run(&samples)?.to_f64());
    let (fixed, open): (_, _) = (scores(fixed)?, scores(open)?);
    let largest = fixed.iter().fold(0.0f64, |most, score| most.max(score.abs()));
    let near = |(a, b): (&f64, &f64)| (a - b).abs() <= ROUNDING * largest;
    Ok(fixed.len() == open.len() && fixed.iter().zip(open.iter()).all(near))
}
