//! The outputs of a network for perturbed copies: class scores, and gradients where they are computed.

use monosplit_graph::{Buffer, Tensor, element_count};

/// The outputs of the network for one perturbed copy.
pub(crate) struct ModelOutput<'a> {
    class: usize,
    scores: &'a [f64],
    has_probabilities: bool,
    /// The gradient of the explained score; empty where none is computed.
    pub(crate) gradient: &'a [f64],
}

impl ModelOutput<'_> {
    /// The score of the explained class.
    pub(crate) fn score(&self) -> f64 {
        self.scores[self.class]
    }

    /// Its probability: the softmax of the scores. Scores of a target have none and stand for themselves.
    pub(crate) fn probability(&self) -> f64 {
        if !self.has_probabilities {
            return self.score();
        }
        let largest = self.scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = self.scores.iter().map(|score| (score - largest).exp()).sum();
        (self.score() - largest).exp() / total
    }
}

/// The outputs of one batch.
pub(crate) struct ModelOutputs {
    scores: Buffer<f64>,
    classes: usize,
    has_probabilities: bool,
    gradients: Option<(Buffer<f64>, usize)>,
}

impl ModelOutputs {
    pub(crate) fn new(outputs: &[Tensor], has_probabilities: bool) -> Self {
        let per_row =
            |tensor: &Tensor| element_count(tensor.shape().get(1..).unwrap_or_default()).unwrap_or(0);
        ModelOutputs {
            scores: outputs[0].to_f64(),
            classes: per_row(&outputs[0]),
            has_probabilities,
            gradients: outputs.get(2).map(|tensor| (tensor.to_f64(), per_row(tensor))),
        }
    }

    /// The outputs of one copy, whose explained class is `class`.
    pub(crate) fn row(&self, row: usize, class: usize) -> ModelOutput<'_> {
        let scores = &self.scores[row * self.classes..(row + 1) * self.classes];
        let gradient = match &self.gradients {
            Some((all, length)) => &all[row * length..(row + 1) * length],
            None => &[],
        };
        ModelOutput { class, scores, has_probabilities: self.has_probabilities, gradient }
    }
}
