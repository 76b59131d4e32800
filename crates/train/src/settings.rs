//! Everything a training depends on besides its data and what computes it: with these three the same, two trainings end
//! with the same bits.

use std::fmt;

use crate::architecture::Architecture;
use crate::optimiser::{Optimiser, Schedule};
use crate::restriction::{Positivity, Restriction};

/// How a network is trained.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The layers of a stream.
    pub architecture: Architecture,
    /// What is asked of the weights.
    pub restriction: Restriction,
    /// How weights are kept from being negative.
    pub positivity: Positivity,
    /// Decides the first weights and the order of the samples.
    pub seed: u64,
    /// How often every sample is seen.
    pub epochs: usize,
    /// Samples a step.
    pub batch: usize,
    /// The learning rate, before the schedule.
    pub rate: f32,
    /// What becomes of it.
    pub schedule: Schedule,
    /// Epochs over which it rises from zero, at first.
    pub warmup: f32,
    /// How parameters follow gradients.
    pub optimiser: Optimiser,
    /// Factor of the first weights that may not be negative.
    pub spread: f32,
    /// Stop if the loss on a tenth of the samples, kept apart for that, has not fallen for so many epochs.
    pub patience: Option<usize>,
}

impl Settings {
    /// The usual settings for an architecture and a restriction.
    pub fn new(architecture: Architecture, restriction: Restriction) -> Self {
        Settings {
            architecture,
            restriction,
            positivity: Positivity::default(),
            seed: 0,
            epochs: 20,
            batch: 100,
            rate: 1e-3,
            schedule: Schedule::Cosine,
            warmup: 0.0,
            optimiser: Optimiser::default(),
            spread: 1.0,
            patience: None,
        }
    }
}

impl fmt::Display for Settings {
    /// One `name = value` a line, in fixed order: a checkpoint keeps this text and is only resumed under the same.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Optimiser { rule, momentum, square_momentum, epsilon, decay } = self.optimiser;
        writeln!(f, "architecture = {}", self.architecture.name())?;
        for layer in self.architecture.layers() {
            writeln!(f, "layer = {layer}")?;
        }
        writeln!(f, "restriction = {}", self.restriction)?;
        writeln!(f, "positivity = {}", self.positivity.name())?;
        writeln!(f, "seed = {}", self.seed)?;
        writeln!(f, "epochs = {}", self.epochs)?;
        writeln!(f, "batch = {}", self.batch)?;
        writeln!(f, "rate = {:?}", self.rate)?;
        writeln!(f, "schedule = {:?}", self.schedule)?;
        writeln!(f, "warmup = {:?}", self.warmup)?;
        writeln!(f, "optimiser = {} {momentum:?} {square_momentum:?} {epsilon:?} {decay:?}", rule.name())?;
        writeln!(f, "spread = {:?}", self.spread)?;
        writeln!(f, "patience = {:?}", self.patience)
    }
}
