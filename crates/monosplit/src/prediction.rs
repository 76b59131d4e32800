//! From class scores to ranked classes with probabilities.

use monosplit_graph::passes::Stripped;

/// What class scores are, and so how they become probabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScoreKind {
    /// Logits: the probabilities of all classes are their softmax, which sums to one.
    Logits,
    /// Logits of classes with a probability of their own, the sigmoid of each.
    Independent,
    /// Probabilities.
    Probabilities,
    /// A single number without a probability.
    Score,
}

impl ScoreKind {
    /// The name by which files know the kind.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ScoreKind::Logits => "softmax",
            ScoreKind::Independent => "sigmoid",
            ScoreKind::Probabilities => "probabilities",
            ScoreKind::Score => "score",
        }
    }

    /// The kind that [`ScoreKind::name`] gives this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let all = [ScoreKind::Logits, ScoreKind::Independent, ScoreKind::Probabilities, ScoreKind::Score];
        all.into_iter().find(|kind| kind.name() == name)
    }

    /// The kind of the scores at `output`, by the op that was found at its end.
    pub fn of(classes: usize, output: &str, found: &Stripped) -> Self {
        let among = |names: &[String]| names.iter().any(|name| name == output);
        if among(&found.sigmoid) {
            ScoreKind::Independent
        } else if among(&found.kept) {
            ScoreKind::Probabilities
        } else if classes == 1 {
            ScoreKind::Score
        } else {
            ScoreKind::Logits
        }
    }
}

/// A class with its score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankedClass {
    /// The class.
    pub class: usize,
    /// Its score.
    pub score: f64,
    /// Its probability, where the kind of the scores has one.
    pub probability: Option<f64>,
}

impl RankedClass {
    /// The `count` classes with the highest scores, the highest first; equal scores are ordered by class. `None` if a score is
    /// not finite.
    pub fn best(scores: &[f64], count: usize, score_kind: ScoreKind) -> Option<Vec<RankedClass>> {
        if scores.iter().any(|score| !score.is_finite()) {
            return None;
        }
        let total = SoftmaxTotal::of(scores);
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(a.cmp(&b)));
        let ranked = |class: usize| RankedClass {
            class,
            score: scores[class],
            probability: total.probability(scores[class], score_kind),
        };
        Some(order.into_iter().take(count).map(ranked).collect())
    }

    /// One class among all scores. `None` if there is no such class or a score is not finite.
    pub fn of_class(scores: &[f64], class: usize, score_kind: ScoreKind) -> Option<RankedClass> {
        let score = *scores.get(class)?;
        if scores.iter().any(|score| !score.is_finite()) {
            return None;
        }
        Some(RankedClass {
            class,
            score,
            probability: SoftmaxTotal::of(scores).probability(score, score_kind),
        })
    }
}

/// What the softmax divides by, with the largest score taken out so that nothing overflows.
struct SoftmaxTotal {
    largest: f64,
    sum: f64,
}

impl SoftmaxTotal {
    fn of(scores: &[f64]) -> Self {
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        SoftmaxTotal { largest, sum: scores.iter().map(|score| (score - largest).exp()).sum() }
    }

    fn probability(&self, score: f64, score_kind: ScoreKind) -> Option<f64> {
        match score_kind {
            ScoreKind::Logits => Some((score - self.largest).exp() / self.sum),
            ScoreKind::Independent => Some(1.0 / (1.0 + (-score).exp())),
            ScoreKind::Probabilities => Some(score),
            ScoreKind::Score => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `torch.softmax(torch.tensor([1000., 1001., 999.], dtype=torch.float64), 0)`.
    #[test]
    fn large_logits_do_not_overflow() {
        let best = RankedClass::best(&[1000.0, 1001.0, 999.0], 5, ScoreKind::Logits).unwrap();
        assert_eq!(best.iter().map(|r| r.class).collect::<Vec<_>>(), [1, 0, 2]);
        for ranked in &best {
            assert_eq!(
                RankedClass::of_class(&[1000.0, 1001.0, 999.0], ranked.class, ScoreKind::Logits),
                Some(*ranked)
            );
        }
        for (ranked, expected) in best.iter().zip([0.665240955774822, 0.244728471054798, 0.090030573170381]) {
            assert!((ranked.probability.unwrap() - expected).abs() < 1e-14);
        }
    }

    /// `torch.sigmoid(torch.tensor([-2., 0.5, 800.], dtype=torch.float64))`.
    #[test]
    fn a_class_with_a_probability_of_its_own_has_the_sigmoid_of_its_logit() {
        let best = RankedClass::best(&[-2.0, 0.5, 800.0, -800.0], 4, ScoreKind::Independent).unwrap();
        let expected = [1.0, 0.622459331201855, 0.119202922022118, 0.0];
        for (ranked, expected) in best.iter().zip(expected) {
            assert!((ranked.probability.unwrap() - expected).abs() < 1e-14);
        }
    }

    #[test]
    fn equals_keep_their_order_and_nan_has_none() {
        let best = RankedClass::best(&[0.0, 1.0, 1.0, -0.0], 3, ScoreKind::Probabilities).unwrap();
        assert_eq!(
            best.iter().map(|r| (r.class, r.probability)).collect::<Vec<_>>()[..2],
            [(1, Some(1.0)), (2, Some(1.0))]
        );
        assert_eq!(RankedClass::best(&[0.0, f64::NAN], 1, ScoreKind::Logits), None);
    }
}
