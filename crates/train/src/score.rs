//! Loss and accuracy of a network.

use monosplit_engine::Program;
use monosplit_graph::{Error, Result, Tensor};

use crate::data::Samples;

/// Batch size of evaluations.
const EVALUATION_BATCH: usize = 500;

/// Mean loss and accuracy on some samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// Mean cross-entropy.
    pub loss: f64,
    /// Share of samples whose largest score is that of their class.
    pub accuracy: f64,
}

/// The number of rows of `logits` whose largest element is at the label of the sample.
pub(crate) fn correct_count(logits: &Tensor, indices: &[usize], samples: &Samples) -> usize {
    let classes = logits.shape().last().copied().unwrap_or(1).max(1);
    let logits = logits.to_f32();
    let hit = |(row, &index): (&[f32], &usize)| {
        let label = samples.labels()[index] as usize;
        let best = row.get(label).copied().unwrap_or(f32::NEG_INFINITY);
        row.iter().enumerate().all(|(class, &v)| class == label || v < best || (v == best && class > label))
    };
    logits.chunks(classes).zip(indices).filter(|&pair| hit(pair)).count()
}

/// Mean loss and accuracy of a network on the samples with these indices; NaN if there are none.
pub fn score(program: &dyn Program, samples: &Samples, indices: &[usize]) -> Result<Score> {
    let (mut loss, mut correct) = (0.0, 0);
    for chosen in indices.chunks(EVALUATION_BATCH) {
        let outputs = program.run(&[samples.images(chosen)?])?;
        let logits = outputs.first().ok_or_else(|| Error::argument("the network has no output"))?;
        correct += correct_count(logits, chosen, samples);
        let classes = logits.shape().last().copied().unwrap_or(1).max(1);
        for (row, &index) in logits.to_f64().chunks(classes).zip(chosen) {
            let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let total: f64 = row.iter().map(|v| (v - largest).exp()).sum();
            let hit = row.get(samples.labels()[index] as usize).copied().unwrap_or(f64::NEG_INFINITY);
            loss += largest + total.ln() - hit;
        }
    }
    let count = indices.len() as f64;
    Ok(Score { loss: loss / count, accuracy: correct as f64 / count })
}
