//! A network that was written down for batches of one size, for batches of any: most exporters fix the size unless told
//! otherwise, and few networks mean it.

use monosplit_engine::Cpu;
use monosplit_graph::batch::samples_interact;
use monosplit_graph::{Noise, Result, Tensor};

use crate::inference::Inference;
use crate::model::{Model, ModelOptions};

/// Samples on which both are compared: more than one, and not what networks are usually written down for.
const COMPARED: usize = 3;
/// What rounding may make of the same scores in batches of another size, relative to the largest.
const ROUNDING: f64 = 1e-3;

/// The network with its batch size open, if it is one that reads the same out of every sample whatever its batch.
pub fn with_any_batch(model: &Model, options: &ModelOptions) -> Option<Model> {
    let any = ModelOptions { any_samples: true, ..options.clone() };
    let opened = Model::open(model.origin().clone(), &any).ok()?;
    let kept = opened.classes() == model.classes() && opened.fixed_batch().ok()?.is_none();
    (kept && !samples_interact(opened.graph()) && agree(model, &opened).ok()?).then_some(opened)
}

/// Whether both give the same scores to some noise.
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
