//! The training loop: batches in the order of the seed, steps by the engine, parameters by the optimiser.

use std::path::Path;
use std::time::Instant;

use monosplit_engine::{Cpu, Engine, Profile};
use monosplit_graph::{Error, Graph, Noise, Result, Tensor};

use crate::data::Data;
use crate::export::Trained;
use crate::in_place::{Follow, inputs};
use crate::network::{Blueprint, Parameter};
use crate::resident::Resident;
use crate::run::Outcome;
use crate::score::{hits, score};
use crate::settings::Settings;
use crate::state::{Epoch, State, Statistics};
use crate::step::{Plan, Step};

/// One in so many samples is kept apart where training may stop early.
const VALIDATION_SHARE: usize = 10;

/// How far a training has come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// The epoch under way, counted from 0.
    pub epoch: usize,
    /// Steps of it that are done.
    pub step: usize,
    /// Steps of an epoch.
    pub steps: usize,
    /// Mean loss of these steps.
    pub loss: f64,
    /// Share of samples they got right.
    pub accuracy: f64,
}

/// Who moves the parameters.
enum Stepping {
    /// The processor, in place.
    InPlace {
        engine: Cpu,
        step: Step,
        /// For every parameter that is transformed, what the network is computed with.
        effective: Vec<Option<Tensor>>,
    },
    /// The engine that computes the step, which keeps the state.
    Resident {
        engine: Box<dyn Engine>,
        resident: Resident,
        /// Whether steps were made since the state was last told.
        ahead: bool,
    },
}

/// A training under way.
pub struct Trainer<'a> {
    settings: Settings,
    data: &'a Data,
    fingerprint: String,
    plan: Plan,
    stepping: Stepping,
    state: State,
    /// Indices of the samples that are trained on, and of those kept apart.
    trained: Vec<usize>,
    kept_apart: Vec<usize>,
    order: Vec<usize>,
    /// Whether the loss has become infinite.
    failed: bool,
}

impl<'a> Trainer<'a> {
    /// A training at its beginning, on `threads` threads (0: one per core).
    pub fn new(settings: Settings, data: &'a Data, threads: usize) -> Result<Self> {
        let engine = Cpu::default().threads(threads).flush_denormals(true);
        Trainer::begun(settings, data, |plan, _, _| {
            let step = Step::new(plan, &engine)?;
            Ok(Stepping::InPlace { engine, step, effective: Vec::new() })
        })
    }

    /// A training at its beginning whose state stays with `engine`, a card as a rule.
    pub fn resident(settings: Settings, data: &'a Data, engine: Box<dyn Engine>) -> Result<Self> {
        Trainer::begun(settings, data, |plan, settings, state| {
            let resident = Resident::new(plan, settings, state, &*engine)?;
            Ok(Stepping::Resident { engine, resident, ahead: false })
        })
    }

    fn begun(
        settings: Settings,
        data: &'a Data,
        stepping: impl FnOnce(&Plan, &Settings, &State) -> Result<Stepping>,
    ) -> Result<Self> {
        let all = Noise::new(settings.seed).stream("validation").permutation(data.train.len());
        let apart = if settings.patience.is_some() { all.len() / VALIDATION_SHARE } else { 0 };
        if settings.patience.is_some() && apart == 0 {
            return Err(Error::argument(format!(
                "patience needs a tenth of the samples to look at, and of {} that is none; train on more or without it",
                all.len()
            )));
        }
        let (kept_apart, trained) = all.split_at(apart);
        let (mut kept_apart, mut trained) = (kept_apart.to_vec(), trained.to_vec());
        kept_apart.sort_unstable();
        trained.sort_unstable();
        if settings.batch < 2 || settings.batch > trained.len() {
            return Err(Error::argument(format!(
                "a batch of {} samples cannot be drawn from {}; it has at least 2",
                settings.batch,
                trained.len()
            )));
        }
        let blueprint = Blueprint {
            architecture: &settings.architecture,
            restriction: settings.restriction,
            classes: data.classes.len(),
        };
        let plan = Plan::new(&blueprint, data.train.shape(), settings.batch)?;
        let state = State::new(&settings, &plan)?;
        let stepping = stepping(&plan, &settings, &state)?;
        let mut trainer = Trainer {
            settings,
            data,
            fingerprint: data.fingerprint(),
            plan,
            stepping,
            state,
            trained,
            kept_apart,
            order: Vec::new(),
            failed: false,
        };
        trainer.begin()?;
        Ok(trainer)
    }

    /// Goes on where a checkpoint was written.
    pub fn resume(&mut self, checkpoint: &Path) -> Result<()> {
        let state = State::load(checkpoint, &self.settings, &self.fingerprint, &self.plan)?;
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
        self.begin()
    }

    /// Derives what is not part of the state from it.
    fn begin(&mut self) -> Result<()> {
        match &mut self.stepping {
            Stepping::InPlace { engine, effective, .. } => {
                let positivity = self.settings.positivity;
                let transformed = |(parameter, raw): (&Parameter, &Tensor)| {
                    parameter.positive.then(|| positivity.applied(raw)).transpose()
                };
                let each = self.plan.parameters.iter().zip(&self.state.parameters);
                *effective = engine.install(|| each.map(transformed).collect::<Result<_>>())??;
            }
            Stepping::Resident { resident, ahead, .. } => {
                resident.set(&self.state)?;
                *ahead = false;
            }
        }
        self.shuffle();
        Ok(())
    }

    /// Brings the state to where the steps are.
    fn catch_up(&mut self) -> Result<()> {
        if let Stepping::Resident { resident, ahead, .. } = &mut self.stepping
            && *ahead
        {
            resident.tell(&mut self.state)?;
            *ahead = false;
        }
        Ok(())
    }

    /// Writes a checkpoint, whole or not at all.
    pub fn save(&mut self, checkpoint: &Path) -> Result<()> {
        if self.failed {
            return Err(Error::argument("the training has failed; go on from its last checkpoint"));
        }
        self.catch_up()?;
        self.state.save(checkpoint, &self.settings, &self.fingerprint, &self.plan)
    }

    /// How it is trained.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The epochs that are done.
    pub fn epochs(&self) -> &[Epoch] {
        &self.state.epochs
    }

    /// Number of trained numbers.
    pub fn parameter_count(&self) -> usize {
        self.state.parameters.iter().map(Tensor::len).sum()
    }

    fn steps_per_epoch(&self) -> usize {
        self.trained.len() / self.settings.batch
    }

    /// How far it has come.
    pub fn progress(&self) -> Progress {
        let (steps, done) = (self.steps_per_epoch(), self.state.step as usize);
        let epoch = self.state.epochs.len();
        let step = done - epoch * steps;
        let mean = |sum: f64, of: usize| if of == 0 { f64::NAN } else { sum / of as f64 };
        Progress {
            epoch,
            step,
            steps,
            loss: mean(self.state.sums[0], step),
            accuracy: mean(self.state.sums[1], step * self.settings.batch),
        }
    }

    /// The first of the epochs with the smallest loss on the samples kept apart; what is no number is largest.
    fn best_epoch(&self) -> Option<usize> {
        let losses = self.state.epochs.iter().map(|epoch| epoch.validation_loss).enumerate();
        losses.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(index, _)| index)
    }

    /// Whether nothing is left to do: all epochs are done, or the loss has not fallen for long enough.
    pub fn is_finished(&self) -> bool {
        let epochs = &self.state.epochs;
        let stale = self.best_epoch().map_or(0, |index| epochs.len() - 1 - index);
        epochs.len() >= self.settings.epochs || self.settings.patience.is_some_and(|n| stale >= n.max(1))
    }

    /// The samples in the order of the epoch under way; those that fill no batch are left out of it.
    fn shuffle(&mut self) {
        let noise = Noise::new(self.settings.seed).stream("order").numbered(self.state.epochs.len() as u64);
        self.order = noise.permutation(self.trained.len()).into_iter().map(|i| self.trained[i]).collect();
    }

    /// Does one step; at the end of an epoch the network is tested, and the epoch returned.
    pub fn advance(&mut self) -> Result<Option<Epoch>> {
        self.step()?;
        let Progress { step, steps, .. } = self.progress();
        if step < steps { Ok(None) } else { self.finish_epoch().map(Some) }
    }

    /// Does one step and nothing else; past the end of the order the last batch is taken again.
    pub fn step(&mut self) -> Result<()> {
        let began = Instant::now();
        let Progress { step, steps, .. } = self.progress();
        let batch = self.settings.batch;
        let first = step.min(steps - 1) * batch;
        let drawn = self.order[first..first + batch].to_vec();
        let (loss, hits) = self.moved(&drawn)?;
        if !loss.is_finite() {
            // Where the state stays with the engine it has moved already.
            self.failed = true;
            return Err(Error::argument(format!(
                "the loss is {loss} at step {}; use a smaller learning rate",
                self.state.step
            )));
        }
        self.state.sums[0] += f64::from(loss);
        self.state.sums[1] += hits as f64;
        self.state.step += 1;
        self.state.sums[2] += began.elapsed().as_secs_f64();
        Ok(())
    }

    /// The time every node of a step takes, on the first batch of the epoch under way; nothing is moved.
    pub fn profile(&self) -> Result<Profile> {
        match &self.stepping {
            Stepping::InPlace { step, effective, .. } => {
                let pictures = pictures(self.data, &self.order[..self.settings.batch])?;
                step.profile(&inputs(pictures, effective, &self.state))
            }
            Stepping::Resident { .. } => {
                Err(Error::unsupported("a step whose state stays on a card is not profiled"))
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

    /// Lets every parameter follow its gradient on the samples drawn; the loss before that, and how many were right.
    fn moved(&mut self, drawn: &[usize]) -> Result<(f32, usize)> {
        let (rate, number) = (self.rate(), self.state.step + 1);
        let [images, targets] = pictures(self.data, drawn)?;
        let (loss, logits) = match &mut self.stepping {
            Stepping::Resident { resident, ahead, .. } => {
                *ahead = true;
                resident.step(images, targets, self.settings.optimiser.pace(rate, number))?
            }
            Stepping::InPlace { engine, step, effective } => {
                let found = step.run(&inputs([images, targets], effective, &self.state))?;
                let (loss, logits) = (found.loss, found.logits.clone());
                if loss.is_finite() {
                    let follow = Follow { plan: &self.plan, engine, step, rate, number };
                    follow.move_parameters(found, &self.settings, &mut self.state, effective)?;
                }
                (loss, logits)
            }
        };
        Ok((loss, hits(&logits, drawn, &self.data.train)))
    }

    fn finish_epoch(&mut self) -> Result<Epoch> {
        let began = Instant::now();
        let Progress { loss, accuracy, .. } = self.progress();
        self.catch_up()?;
        let current = self.current()?;
        let program = match &self.stepping {
            Stepping::InPlace { engine, .. } => engine.compile(&current)?,
            Stepping::Resident { engine, .. } => engine.compile(&current)?,
        };
        let test = score(&*program, &self.data.test, &(0..self.data.test.len()).collect::<Vec<_>>())?;
        let validation = score(&*program, &self.data.train, &self.kept_apart)?;
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

    /// The network as it is now.
    fn current(&self) -> Result<Graph> {
        self.graph_of(&self.state.parameters, &self.state.statistics)
    }

    /// The trained network: the best one where training may stop early, else the last.
    pub fn network(&mut self) -> Result<Graph> {
        self.catch_up()?;
        match &self.state.best {
            Some((parameters, statistics)) => self.graph_of(parameters, statistics),
            None => self.current(),
        }
    }

    /// What has come out so far: of the best epoch where training may stop early, else of the last.
    pub fn outcome(&self) -> Outcome {
        let epochs = &self.state.epochs;
        let best = self.best_epoch().map(|index| &epochs[index]);
        let counted = if self.settings.patience.is_some() { best } else { epochs.last() };
        Outcome {
            test_accuracy: counted.map_or(f64::NAN, |epoch| epoch.test_accuracy),
            epochs: epochs.len(),
            parameters: self.parameter_count(),
            data: self.fingerprint.clone(),
            seconds: epochs.iter().map(|epoch| epoch.seconds).sum(),
        }
    }

    fn graph_of(&self, parameters: &[Tensor], statistics: &Statistics) -> Result<Graph> {
        let trained = Trained {
            settings: &self.settings,
            sample: self.data.train.shape(),
            classes: &self.data.classes,
            parameters: (&self.plan.parameters, parameters),
            statistics,
        };
        trained.graph()
    }
}

/// Images and targets of the samples drawn.
fn pictures(data: &Data, drawn: &[usize]) -> Result<[Tensor; 2]> {
    Ok([data.train.images(drawn)?, data.train.targets(drawn, data.classes.len())?])
}
