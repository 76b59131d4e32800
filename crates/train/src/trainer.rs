//! The training loop: draws batches in an order given by the seed, has the engine run steps, and updates the parameters.

use std::path::Path;
use std::time::Instant;

use monosplit_engine::{Cpu, Engine, Profile};
use monosplit_graph::{Error, Graph, Noise, Result, Tensor};

use crate::data::TrainingData;
use crate::export::TrainedNetwork;
use crate::in_place::{InPlaceUpdate, inputs};
use crate::network::{NetworkSpec, Parameter};
use crate::resident::Resident;
use crate::score::{correct_count, score};
use crate::settings::TrainingSettings;
use crate::state::{Epoch, State, Statistics};
use crate::step::{Step, StepGraph};
use crate::training_run::TrainingResult;

/// With early stopping, one in this many samples is used for validation.
const VALIDATION_FRACTION: usize = 10;

/// The progress of a training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrainingProgress {
    /// The current epoch, counted from 0.
    pub epoch: usize,
    /// Steps of this epoch that are done.
    pub step: usize,
    /// Steps of an epoch.
    pub steps: usize,
    /// Mean loss of these steps.
    pub loss: f64,
    /// Accuracy of these steps.
    pub accuracy: f64,
}

/// How the parameters are updated.
enum UpdateStrategy {
    /// By the optimiser on the CPU, in place.
    InPlace {
        engine: Cpu,
        step: Step,
        /// The effective value of every parameter that is transformed.
        effective: Vec<Option<Tensor>>,
    },
    /// By the graph of the step itself: the state stays with the engine.
    Resident {
        engine: Box<dyn Engine>,
        resident: Resident,
        /// Whether steps were made since the state was last read back.
        ahead: bool,
    },
}

/// A training in progress.
pub struct Trainer<'a> {
    settings: TrainingSettings,
    data: &'a TrainingData,
    fingerprint: String,
    step_graph: StepGraph,
    updates: UpdateStrategy,
    state: State,
    /// Indices of the samples that are trained on, and of those used for validation.
    trained: Vec<usize>,
    validation: Vec<usize>,
    order: Vec<usize>,
    /// Whether the loss has become infinite or NaN.
    failed: bool,
}

impl<'a> Trainer<'a> {
    /// A new training on `threads` threads (0: one per core).
    pub fn new(settings: TrainingSettings, data: &'a TrainingData, threads: usize) -> Result<Self> {
        let engine = Cpu::default().threads(threads).flush_denormals(true);
        Trainer::start(settings, data, |step_graph, _, _| {
            let step = Step::new(step_graph, &engine)?;
            Ok(UpdateStrategy::InPlace { engine, step, effective: Vec::new() })
        })
    }

    /// A new training whose state stays with `engine`, usually a GPU.
    pub fn resident(
        settings: TrainingSettings,
        data: &'a TrainingData,
        engine: Box<dyn Engine>,
    ) -> Result<Self> {
        Trainer::start(settings, data, |step_graph, settings, state| {
            let resident = Resident::new(step_graph, settings, state, &*engine)?;
            Ok(UpdateStrategy::Resident { engine, resident, ahead: false })
        })
    }

    fn start(
        settings: TrainingSettings,
        data: &'a TrainingData,
        updates: impl FnOnce(&StepGraph, &TrainingSettings, &State) -> Result<UpdateStrategy>,
    ) -> Result<Self> {
        let all = Noise::new(settings.seed).stream("validation").permutation(data.train.len());
        let apart = if settings.patience.is_some() { all.len() / VALIDATION_FRACTION } else { 0 };
        if settings.patience.is_some() && apart == 0 {
            return Err(Error::argument(format!(
                "early stopping after a patience needs a tenth of the samples for validation, and of {} that is none; train on more or without it",
                all.len()
            )));
        }
        let (validation, trained) = all.split_at(apart);
        let (mut validation, mut trained) = (validation.to_vec(), trained.to_vec());
        validation.sort_unstable();
        trained.sort_unstable();
        if settings.batch < 2 || settings.batch > trained.len() {
            return Err(Error::argument(format!(
                "a batch of {} samples cannot be drawn from {}; it has at least 2",
                settings.batch,
                trained.len()
            )));
        }
        let spec = NetworkSpec {
            architecture: &settings.architecture,
            restriction: settings.restriction,
            classes: data.classes.len(),
        };
        let step_graph = StepGraph::new(&spec, data.train.shape(), settings.batch)?;
        let state = State::new(&settings, &step_graph)?;
        let updates = updates(&step_graph, &settings, &state)?;
        let mut trainer = Trainer {
            settings,
            data,
            fingerprint: data.fingerprint(),
            step_graph,
            updates,
            state,
            trained,
            validation,
            order: Vec::new(),
            failed: false,
        };
        trainer.derive_from_state()?;
        Ok(trainer)
    }

    /// Resumes from a checkpoint.
    pub fn resume(&mut self, checkpoint: &Path) -> Result<()> {
        let state = State::load(checkpoint, &self.settings, &self.fingerprint, &self.step_graph)?;
        let (steps, epochs) = (self.steps_per_epoch() as u64, state.epochs.len() as u64);
        let within = epochs.checked_mul(steps).and_then(|done| state.step.checked_sub(done));
        if within.is_none_or(|step| step >= steps) {
            return Err(Error::malformed(format!(
                "{}: {} steps cannot make {epochs} epochs of {steps}; the checkpoint is of other data or corrupt",
                checkpoint.display(),
                state.step
            )));
        }
        self.state = state;
        self.failed = false;
        self.derive_from_state()
    }

    /// Recomputes everything that follows from the state: effective parameters, the state held by the engine, the sample order.
    fn derive_from_state(&mut self) -> Result<()> {
        match &mut self.updates {
            UpdateStrategy::InPlace { engine, effective, .. } => {
                let positivity = self.settings.positivity;
                let transformed = |(parameter, raw): (&Parameter, &Tensor)| {
                    parameter.positive.then(|| positivity.applied(raw)).transpose()
                };
                let each = self.step_graph.parameters.iter().zip(&self.state.parameters);
                *effective = engine.install(|| each.map(transformed).collect::<Result<_>>())??;
            }
            UpdateStrategy::Resident { resident, ahead, .. } => {
                resident.write_state(&self.state)?;
                *ahead = false;
            }
        }
        self.shuffle();
        Ok(())
    }

    /// Reads the state back from the engine if it is ahead.
    fn synchronise(&mut self) -> Result<()> {
        if let UpdateStrategy::Resident { resident, ahead, .. } = &mut self.updates
            && *ahead
        {
            resident.read_state(&mut self.state)?;
            *ahead = false;
        }
        Ok(())
    }

    /// Writes a checkpoint atomically.
    pub fn save(&mut self, checkpoint: &Path) -> Result<()> {
        if self.failed {
            return Err(Error::argument("the training has failed; go on from its last checkpoint"));
        }
        self.synchronise()?;
        self.state.save(checkpoint, &self.settings, &self.fingerprint, &self.step_graph)
    }

    /// The settings.
    pub fn settings(&self) -> &TrainingSettings {
        &self.settings
    }

    /// The finished epochs.
    pub fn epochs(&self) -> &[Epoch] {
        &self.state.epochs
    }

    /// Number of trained parameters.
    pub fn parameter_count(&self) -> usize {
        self.state.parameters.iter().map(Tensor::len).sum()
    }

    fn steps_per_epoch(&self) -> usize {
        self.trained.len() / self.settings.batch
    }

    /// The progress.
    pub fn progress(&self) -> TrainingProgress {
        let (steps, done) = (self.steps_per_epoch(), self.state.step as usize);
        let epoch = self.state.epochs.len();
        let step = done - epoch * steps;
        let mean = |sum: f64, of: usize| if of == 0 { f64::NAN } else { sum / of as f64 };
        TrainingProgress {
            epoch,
            step,
            steps,
            loss: mean(self.state.sums[0], step),
            accuracy: mean(self.state.sums[1], step * self.settings.batch),
        }
    }

    /// The first of the epochs with the smallest validation loss; NaN counts as the largest.
    fn best_epoch(&self) -> Option<usize> {
        let losses = self.state.epochs.iter().map(|epoch| epoch.validation_loss).enumerate();
        losses.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(index, _)| index)
    }

    /// Whether all epochs are done, or training stops early.
    pub fn is_finished(&self) -> bool {
        let epochs = &self.state.epochs;
        let stale = self.best_epoch().map_or(0, |index| epochs.len() - 1 - index);
        epochs.len() >= self.settings.epochs || self.settings.patience.is_some_and(|n| stale >= n.max(1))
    }

    /// Shuffles the samples for the current epoch. Those that do not fill a batch are left out of it.
    fn shuffle(&mut self) {
        let noise = Noise::new(self.settings.seed).stream("order").numbered(self.state.epochs.len() as u64);
        self.order = noise.permutation(self.trained.len()).into_iter().map(|i| self.trained[i]).collect();
    }

    /// Runs one step. At the end of an epoch it tests the network and returns the epoch.
    pub fn advance(&mut self) -> Result<Option<Epoch>> {
        self.step()?;
        let TrainingProgress { step, steps, .. } = self.progress();
        if step < steps { Ok(None) } else { self.finish_epoch().map(Some) }
    }

    /// Runs one step and nothing else. Past the end of the epoch it repeats the last batch.
    pub fn step(&mut self) -> Result<()> {
        let began = Instant::now();
        let TrainingProgress { step, steps, .. } = self.progress();
        let batch = self.settings.batch;
        let first = step.min(steps - 1) * batch;
        let batch_indices = self.order[first..first + batch].to_vec();
        let (loss, correct_count) = self.moved(&batch_indices)?;
        if !loss.is_finite() {
            // A state that stays with the engine has been updated already.
            self.failed = true;
            return Err(Error::argument(format!(
                "the loss is {loss} at step {}; use a smaller learning rate",
                self.state.step
            )));
        }
        self.state.sums[0] += f64::from(loss);
        self.state.sums[1] += correct_count as f64;
        self.state.step += 1;
        self.state.sums[2] += began.elapsed().as_secs_f64();
        Ok(())
    }

    /// The time of every node of a step, on the first batch of the epoch. Parameters are not updated.
    pub fn profile(&self) -> Result<Profile> {
        match &self.updates {
            UpdateStrategy::InPlace { step, effective, .. } => {
                let pictures = images_and_targets(self.data, &self.order[..self.settings.batch])?;
                step.profile(&inputs(pictures, effective, &self.state))
            }
            UpdateStrategy::Resident { .. } => {
                Err(Error::unsupported("a step whose state stays with the engine cannot be profiled"))
            }
        }
    }

    /// The learning rate of the next step.
    fn rate(&self) -> f32 {
        let settings = &self.settings;
        let per_epoch = self.steps_per_epoch();
        let steps = (per_epoch * settings.epochs) as u64;
        let warmup = (settings.warmup.max(0.0) * per_epoch as f32) as u64;
        settings.rate * settings.schedule.factor(self.state.step, steps, per_epoch as u64, warmup)
    }

    /// Updates all parameters on a batch. Returns the loss before the update and the number of correct predictions.
    fn moved(&mut self, batch_indices: &[usize]) -> Result<(f32, usize)> {
        let (rate, number) = (self.rate(), self.state.step + 1);
        let [images, targets] = images_and_targets(self.data, batch_indices)?;
        let (loss, logits) = match &mut self.updates {
            UpdateStrategy::Resident { resident, ahead, .. } => {
                *ahead = true;
                resident.step(images, targets, self.settings.optimiser.step_size(rate, number))?
            }
            UpdateStrategy::InPlace { engine, step, effective } => {
                let found = step.run(&inputs([images, targets], effective, &self.state))?;
                let (loss, logits) = (found.loss, found.logits.clone());
                if loss.is_finite() {
                    let follow = InPlaceUpdate { step_graph: &self.step_graph, engine, step, rate, number };
                    follow.apply(found, &self.settings, &mut self.state, effective)?;
                }
                (loss, logits)
            }
        };
        Ok((loss, correct_count(&logits, batch_indices, &self.data.train)))
    }

    fn finish_epoch(&mut self) -> Result<Epoch> {
        let began = Instant::now();
        let TrainingProgress { loss, accuracy, .. } = self.progress();
        self.synchronise()?;
        let current = self.current()?;
        let program = match &self.updates {
            UpdateStrategy::InPlace { engine, .. } => engine.compile(&current)?,
            UpdateStrategy::Resident { engine, .. } => engine.compile(&current)?,
        };
        let test = score(&*program, &self.data.test, &(0..self.data.test.len()).collect::<Vec<_>>())?;
        let validation = score(&*program, &self.data.train, &self.validation)?;
        let epoch = Epoch {
            train_loss: loss,
            train_accuracy: accuracy,
            validation_loss: validation.loss,
            test_loss: test.loss,
            test_accuracy: test.accuracy,
            seconds: self.state.sums[2] + began.elapsed().as_secs_f64(),
        };
        self.state.epochs.push(epoch);
        if self.settings.patience.is_some() && self.best_epoch() == Some(self.state.epochs.len() - 1) {
            self.state.best = Some((self.state.parameters.clone(), self.state.statistics.clone()));
        }
        self.state.sums = [0.0; 3];
        self.shuffle();
        Ok(epoch)
    }

    /// The network with the current parameters.
    fn current(&self) -> Result<Graph> {
        self.graph_of(&self.state.parameters, &self.state.statistics)
    }

    /// The trained network: that of the best epoch with early stopping, else of the last.
    pub fn network(&mut self) -> Result<Graph> {
        self.synchronise()?;
        match &self.state.best {
            Some((parameters, statistics)) => self.graph_of(parameters, statistics),
            None => self.current(),
        }
    }

    /// The result so far: that of the best epoch with early stopping, else of the last.
    pub fn outcome(&self) -> TrainingResult {
        let epochs = &self.state.epochs;
        let best = self.best_epoch().map(|index| &epochs[index]);
        let counted = if self.settings.patience.is_some() { best } else { epochs.last() };
        TrainingResult {
            test_accuracy: counted.map_or(f64::NAN, |epoch| epoch.test_accuracy),
            epochs: epochs.len(),
            parameters: self.parameter_count(),
            data: self.fingerprint.clone(),
            seconds: epochs.iter().map(|epoch| epoch.seconds).sum(),
        }
    }

    fn graph_of(&self, parameters: &[Tensor], statistics: &Statistics) -> Result<Graph> {
        let trained = TrainedNetwork {
            settings: &self.settings,
            sample: self.data.train.shape(),
            classes: &self.data.classes,
            parameters: (&self.step_graph.parameters, parameters),
            statistics,
        };
        trained.graph()
    }
}

/// Images and targets of a batch.
fn images_and_targets(data: &TrainingData, batch_indices: &[usize]) -> Result<[Tensor; 2]> {
    Ok([data.train.images(batch_indices)?, data.train.targets(batch_indices, data.classes.len())?])
}
