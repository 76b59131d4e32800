//! Optimisers. An update is one pass over each array, in place: as a graph it would read and write each of them a dozen times.
//! Every element is computed on its own, so the number of threads does not change the result.

use std::str::FromStr;

use monosplit_graph::{Error, Result};
use rayon::prelude::*;

use crate::restriction::Positivity;

/// Number of elements that one task updates.
const CHUNK: usize = 1 << 13;

/// The update rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum UpdateRule {
    /// Adam (Kingma and Ba 2015); weight decay is added to the gradient. Parameters without other gradients (weights of pixels
    /// that are always dark, weights clamped by the ReLU transform) therefore go to zero by whole steps.
    #[default]
    Adam,
    /// AdamW (Loshchilov and Hutter 2019); weight decay shrinks the parameter itself.
    AdamW,
    /// Stochastic gradient descent with momentum; weight decay is added to the gradient.
    Sgd,
}

impl UpdateRule {
    /// All of them.
    pub const ALL: [UpdateRule; 3] = [UpdateRule::Adam, UpdateRule::AdamW, UpdateRule::Sgd];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            UpdateRule::Adam => "adam",
            UpdateRule::AdamW => "adamw",
            UpdateRule::Sgd => "sgd",
        }
    }
}

impl FromStr for UpdateRule {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let found = UpdateRule::ALL.into_iter().find(|rule| rule.name().eq_ignore_ascii_case(name));
        found.ok_or_else(|| {
            Error::argument(format!(
                "there is no optimiser '{name}'; there are {}",
                UpdateRule::ALL.map(UpdateRule::name).join(", ")
            ))
        })
    }
}

/// A rule and its numbers, with PyTorch's defaults where it has them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Optimiser {
    /// The rule.
    pub rule: UpdateRule,
    /// Momentum: of the mean of gradients in Adam, of the velocity in SGD.
    pub momentum: f32,
    /// Momentum of the mean of squared gradients in Adam.
    pub square_momentum: f32,
    /// Added to Adam's denominator.
    pub epsilon: f32,
    /// Weight decay.
    pub decay: f32,
}

impl Default for Optimiser {
    fn default() -> Self {
        Optimiser {
            rule: UpdateRule::default(),
            momentum: 0.9,
            square_momentum: 0.999,
            epsilon: 1e-8,
            decay: 1e-3,
        }
    }
}

/// The optimiser state of one parameter.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct OptimiserState {
    pub(crate) mean: Vec<f32>,
    /// Empty for rules that do not need it.
    pub(crate) square: Vec<f32>,
}

impl OptimiserState {
    pub(crate) fn new(rule: UpdateRule, length: usize) -> Self {
        let square = if rule == UpdateRule::Sgd { 0 } else { length };
        OptimiserState { mean: vec![0.0; length], square: vec![0.0; square] }
    }
}

/// A parameter to be updated.
pub(crate) struct ParameterUpdate<'a> {
    /// The raw parameter.
    pub(crate) parameter: &'a mut [f32],
    /// The transform and the effective value, for parameters that are transformed.
    pub(crate) effective: Option<(Positivity, &'a mut [f32])>,
    /// The gradient with respect to the effective value.
    pub(crate) gradient: &'a [f32],
    pub(crate) memory: &'a mut OptimiserState,
}

impl<'a> ParameterUpdate<'a> {
    /// Chunks for parallel tasks.
    fn chunks(self) -> impl Iterator<Item = Chunk<'a>> {
        let (positivity, effective) =
            self.effective.map_or((None, Default::default()), |(p, e)| (Some(p), e));
        let mut effective = effective.chunks_mut(CHUNK);
        let mut squares = self.memory.square.chunks_mut(CHUNK);
        let values = self.parameter.chunks_mut(CHUNK).zip(self.gradient.chunks(CHUNK));
        values.zip(self.memory.mean.chunks_mut(CHUNK)).map(move |((parameter, gradient), mean)| Chunk {
            parameter,
            gradient,
            mean,
            square: squares.next().unwrap_or_default(),
            effective: positivity.zip(effective.next()),
        })
    }
}

struct Chunk<'a> {
    parameter: &'a mut [f32],
    gradient: &'a [f32],
    mean: &'a mut [f32],
    square: &'a mut [f32],
    effective: Option<(Positivity, &'a mut [f32])>,
}

/// The factors of one update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct StepSize {
    /// The learning rate; in Adam with the bias correction of the first moment.
    pub(crate) stride: f32,
    /// In Adam the bias correction of the root of the second moment.
    pub(crate) root: f32,
    /// The factor of the parameter: below 1 for decoupled weight decay.
    pub(crate) kept: f32,
}

impl Optimiser {
    /// The factors of update number `step`, counted from 1, at learning rate `rate`.
    pub(crate) fn step_size(&self, rate: f32, step: u64) -> StepSize {
        let correction = |momentum: f32| 1.0 - f64::from(momentum).powf(step as f64);
        match self.rule {
            UpdateRule::Sgd => StepSize { stride: rate, root: 1.0, kept: 1.0 },
            rule => StepSize {
                stride: (f64::from(rate) / correction(self.momentum)) as f32,
                root: correction(self.square_momentum).sqrt().recip() as f32,
                kept: if rule == UpdateRule::AdamW { 1.0 - rate * self.decay } else { 1.0 },
            },
        }
    }

    /// Updates parameters; `step` is counted from 1.
    pub(crate) fn update<'a>(&self, rate: f32, step: u64, moved: impl Iterator<Item = ParameterUpdate<'a>>) {
        let step_size = self.step_size(rate, step);
        let chunks: Vec<Chunk<'a>> = moved.flat_map(ParameterUpdate::chunks).collect();
        chunks.into_par_iter().for_each_init(Vec::new, |slopes, mut chunk| {
            let gradient = match &chunk.effective {
                None => chunk.gradient,
                Some((positivity, _)) => {
                    slopes.clear();
                    let pairs = chunk.gradient.iter().zip(chunk.parameter.iter());
                    slopes.extend(pairs.map(|(&d, &w)| d * positivity.slope(w)));
                    slopes.as_slice()
                }
            };
            match self.rule {
                UpdateRule::Sgd => self.descend(step_size.stride, chunk.parameter, gradient, chunk.mean),
                UpdateRule::Adam | UpdateRule::AdamW => {
                    self.adapt(step_size, chunk.parameter, gradient, (chunk.mean, chunk.square));
                }
            }
            if let Some((positivity, effective)) = &mut chunk.effective {
                for (e, &w) in effective.iter_mut().zip(chunk.parameter.iter()) {
                    *e = positivity.of(w);
                }
            }
        });
    }

    fn descend(&self, rate: f32, parameter: &mut [f32], gradient: &[f32], velocity: &mut [f32]) {
        for ((w, &d), v) in parameter.iter_mut().zip(gradient).zip(velocity) {
            *v = self.momentum * *v + (d + self.decay * *w);
            *w -= rate * *v;
        }
    }

    fn adapt(
        &self,
        StepSize { stride, root, kept }: StepSize,
        parameter: &mut [f32],
        gradient: &[f32],
        (mean, square): (&mut [f32], &mut [f32]),
    ) {
        let added = if self.rule == UpdateRule::AdamW { 0.0 } else { self.decay };
        let (fresh, fresh_square) = (1.0 - self.momentum, 1.0 - self.square_momentum);
        for (((w, &d), m), s) in parameter.iter_mut().zip(gradient).zip(mean).zip(square) {
            let d = d + added * *w;
            *m = self.momentum * *m + fresh * d;
            *s = self.square_momentum * *s + fresh_square * d * d;
            *w = *w * kept - stride * *m / (s.sqrt() * root + self.epsilon);
        }
    }
}

/// How the learning rate changes over a training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Schedule {
    /// Constant.
    Constant,
    /// Cosine decay to zero.
    Cosine,
    /// Multiplied by `factor` after every `epochs` epochs.
    Steps {
        /// Epochs between decays.
        epochs: usize,
        /// Factor of each decay.
        factor: f32,
    },
}

impl Schedule {
    /// The factor of the learning rate at `step` of `steps`, `per_epoch` of which make an epoch; rising from zero
    /// during the first `warmup` steps.
    pub(crate) fn factor(self, step: u64, steps: u64, per_epoch: u64, warmup: u64) -> f32 {
        let rise = if step < warmup { (step + 1) as f32 / warmup as f32 } else { 1.0 };
        let factor = match self {
            Schedule::Constant => 1.0,
            Schedule::Cosine => {
                let done = step as f64 / steps.max(1) as f64;
                (0.5 + 0.5 * (std::f64::consts::PI * done.min(1.0)).cos()) as f32
            }
            Schedule::Steps { epochs, factor } => {
                let epoch = step / per_epoch.max(1);
                factor.powi(i32::try_from(epoch / epochs.max(1) as u64).unwrap_or(i32::MAX))
            }
        };
        rise * factor
    }
}

impl FromStr for Schedule {
    type Err = Error;

    /// `constant`, `cosine`, or `steps:EPOCHS:FACTOR`.
    fn from_str(text: &str) -> Result<Self> {
        let words: Vec<&str> = text.split(':').collect();
        let schedule = match words.as_slice() {
            ["constant"] => Some(Schedule::Constant),
            ["cosine"] => Some(Schedule::Cosine),
            ["steps", epochs, factor] => {
                let epochs = epochs.parse().ok().filter(|&n: &usize| n > 0);
                let factor = factor.parse().ok().filter(|f: &f32| (0.0..=1.0).contains(f));
                epochs.zip(factor).map(|(epochs, factor)| Schedule::Steps { epochs, factor })
            }
            _ => None,
        };
        schedule.ok_or_else(|| {
            Error::argument(format!(
                "'{text}' is no schedule; there are constant, cosine and steps:EPOCHS:FACTOR"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_finds_the_bottom_of_a_bowl() {
        for rule in UpdateRule::ALL {
            let optimiser = Optimiser { rule, decay: 0.0, ..Optimiser::default() };
            let (mut w, mut memory) = (vec![3.0f32, -2.0], OptimiserState::new(rule, 2));
            for step in 1..=2000 {
                let gradient = [2.0 * (w[0] - 1.0), 8.0 * (w[1] - 0.5)];
                let moved = ParameterUpdate {
                    parameter: &mut w,
                    effective: None,
                    gradient: &gradient,
                    memory: &mut memory,
                };
                optimiser.update(0.02, step, std::iter::once(moved));
            }
            assert!((w[0] - 1.0).abs() < 1e-3 && (w[1] - 0.5).abs() < 1e-3, "{rule:?}: {w:?}");
        }
    }

    #[test]
    fn schedules_begin_and_end_where_they_say() {
        let cosine = |step| Schedule::Cosine.factor(step, 100, 10, 0);
        assert!(cosine(0) == 1.0 && (cosine(50) - 0.5).abs() < 1e-6 && cosine(100) == 0.0);
        let steps = "steps:3:0.1".parse::<Schedule>().unwrap();
        assert_eq!(steps.factor(29, 100, 10, 0), 1.0);
        assert_eq!(steps.factor(30, 100, 10, 0), 0.1);
        assert_eq!(Schedule::Constant.factor(0, 100, 10, 4), 0.25);
        assert_eq!(Schedule::Constant.factor(4, 100, 10, 4), 1.0);
        for wrong in ["", "steps", "steps:0:0.1", "steps:3:2", "steps:3:NaN"] {
            assert!(wrong.parse::<Schedule>().is_err(), "{wrong}");
        }
    }
}
