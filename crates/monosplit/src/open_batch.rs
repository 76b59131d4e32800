//! Opening the batch axis of a network: most exporters fix the batch size unless told otherwise, and few networks depend
//! on it.

use monosplit_engine::{Cpu, check_memory, is_splittable};
use monosplit_graph::batch::{MAX_FILLED_BATCH, samples_interact};
use monosplit_graph::op::{Op, OpKey};
use monosplit_graph::{Graph, Noise, Result, Tensor, element_count};

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

impl Model {
    /// The network with its batch size open, where the file fixes one that no sample could fill and both forms are the same
    /// graph at that size, one sample independent of the next. Nothing is run.
    pub(crate) fn with_large_batch_open(self) -> Model {
        let Ok(Some(size)) = self.fixed_batch() else { return self };
        if size <= MAX_FILLED_BATCH || self.opened_with().open_batch {
            return self;
        }
        let opened = self.opened_with().clone().open_batch(true).open(self.origin().clone());
        match opened {
            Ok(opened)
                if same_at(opened.original(), self.original(), size) && is_splittable(opened.graph()) =>
            {
                log::info!("{}: the file fixes batches of {size}; any number is taken", self.origin());
                opened
            }
            _ => self,
        }
    }
}

/// Whether `open` is the graph `fixed` at a batch of `size`.
fn same_at(open: &Graph, fixed: &Graph, size: usize) -> bool {
    let shaped = |op: &Op| matches!(op, Op::Reshape { .. } | Op::Expand { .. });
    open.len() == fixed.len()
        && open.nodes().zip(fixed.nodes()).all(|((_, open), (_, fixed))| {
            open.op.name() == fixed.op.name()
                && open.inputs == fixed.inputs
                && open.shape.at(size) == fixed.shape.at(size)
                && (shaped(&open.op) || OpKey::of(&open.op) == OpKey::of(&fixed.op))
        })
}

/// Whether both give the same scores to samples of noise.
fn agree(fixed: &Model, open: &Model) -> Result<bool> {
    let shape: Vec<usize> = std::iter::once(COMPARED).chain(open.sample_shape()?).collect();
    let (count, noise) = (element_count(&shape), Noise::new(0).stream("any batch"));
    check_memory(count, &format!("a batch of shape {shape:?}"))?;
    let numbers: Vec<f32> = (0..count.unwrap_or(0) as u64).map(|i| noise.gaussian(i) as f32).collect();
    let samples = [Tensor::new(shape, numbers)?];
    let scores = |model: &Model| Ok(Inference::new(model, &Cpu::default())?.run(&samples)?.to_f64());
    let (fixed, open): (_, _) = (scores(fixed)?, scores(open)?);
    let largest = fixed.iter().fold(0.0f64, |most, score| most.max(score.abs()));
    let near = |(a, b): (&f64, &f64)| (a - b).abs() <= ROUNDING * largest;
    Ok(fixed.len() == open.len() && fixed.iter().zip(open.iter()).all(near))
}
