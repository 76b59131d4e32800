//! The settings of a training. Two trainings with the same settings, data and engine end with the same bits.

use std::fmt;

use crate::architecture::Architecture;
use crate::optimiser::{Optimiser, Schedule};
use crate::restriction::{Positivity, Restriction};

/// How a network is trained.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingSettings {
    /// The layers of a stream.
    pub architecture: Architecture,
    /// The restriction of the weights.
    pub restriction: Restriction,
    /// The transform that makes restricted weights non-negative.
    pub positivity: Positivity,
    /// The seed of the initial weights and of the sample order.
    pub seed: u64,
    /// Number of epochs.
    pub epochs: usize,
    /// Batch size.
    pub batch: usize,
    /// The learning rate, before the schedule.
    pub rate: f32,
    /// The schedule of the learning rate.
    pub schedule: Schedule,
    /// Number of warm-up epochs, in which the learning rate rises from zero.
    pub warmup: f32,
    /// The optimiser.
    pub optimiser: Optimiser,
    /// Factor of the initial values of restricted weights.
    pub spread: f32,
    /// Early stopping: stop if the validation loss has not fallen for this many epochs. A tenth of the samples is used for
    /// validation.
    pub patience: Option<usize>,
}

impl TrainingSettings {
    /// The default settings for an architecture and a restriction.
    pub fn new(architecture: Architecture, restriction: Restriction) -> Self {
        TrainingSettings {
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

impl fmt::Display for TrainingSettings {
    /// One `name = value` a line, in fixed order. A checkpoint stores this text and is resumed only with equal settings.
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
