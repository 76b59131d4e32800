//! The state of a training: parameters, optimiser states, running statistics and progress. A checkpoint holds all of it, so a
//! resumed training ends with the same bits.

use std::path::Path;

use monosplit_graph::weights::Weights;
use monosplit_graph::{Error, Noise, Result, Tensor, write_atomically};

use crate::network::{Parameter, Role};
use crate::optimiser::OptimiserState;
use crate::settings::TrainingSettings;
use crate::step::{Statistic, StepGraph};

/// Momentum of the running statistics, as in PyTorch.
pub(crate) const STATISTICS_RATE: f32 = 0.1;
/// The property of a checkpoint that holds its checksum.
const CHECKSUM: &str = "sha256";
/// Number of values stored for an epoch.
const COLUMNS: usize = 6;

/// The results of one epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Epoch {
    /// Mean loss of its steps.
    pub train_loss: f64,
    /// Training accuracy.
    pub train_accuracy: f64,
    /// Mean loss on the validation samples; NaN if there are none.
    pub validation_loss: f64,
    /// Mean loss on the test samples.
    pub test_loss: f64,
    /// Test accuracy.
    pub test_accuracy: f64,
    /// Seconds it took.
    pub seconds: f64,
}

/// Running mean and variance of every norm.
pub(crate) type Statistics = Vec<(Vec<f32>, Vec<f32>)>;

/// The state of a training.
#[derive(Clone, Debug)]
pub(crate) struct State {
    /// Steps done.
    pub(crate) step: u64,
    /// The raw parameters, before the transform.
    pub(crate) parameters: Vec<Tensor>,
    pub(crate) optimiser_states: Vec<OptimiserState>,
    pub(crate) statistics: Statistics,
    /// Loss, correct predictions and seconds, summed over the steps of the current epoch.
    pub(crate) sums: [f64; 3],
    pub(crate) epochs: Vec<Epoch>,
    /// Parameters and statistics of the epoch with the least validation loss.
    pub(crate) best: Option<(Vec<Tensor>, Statistics)>,
}

impl State {
    /// The state before the first step.
    pub(crate) fn new(settings: &TrainingSettings, step_graph: &StepGraph) -> Result<Self> {
        let noise = Noise::new(settings.seed).stream("parameters");
        let initial =
            |p: &Parameter| Tensor::new(p.shape.clone(), first_values(settings, p, noise.stream(&p.name)));
        let parameters: Result<Vec<Tensor>> = step_graph.parameters.iter().map(initial).collect();
        let parameters = parameters?;
        let optimiser_states =
            parameters.iter().map(|p| OptimiserState::new(settings.optimiser.rule, p.len())).collect();
        let statistics =
            step_graph.statistics.iter().map(|s| (vec![0.0; s.channels], vec![1.0; s.channels])).collect();
        Ok(State {
            step: 0,
            parameters,
            optimiser_states,
            statistics,
            sums: [0.0; 3],
            epochs: Vec::new(),
            best: None,
        })
    }

    /// Updates the running statistics with those of a batch.
    pub(crate) fn observe(&mut self, known: &[Statistic], found: &[(Tensor, Tensor)]) {
        for ((running, statistic), (mean, variance)) in self.statistics.iter_mut().zip(known).zip(found) {
            // Running variances are unbiased, as in PyTorch.
            let unbiased = statistic.count as f32 / (statistic.count.max(2) - 1) as f32;
            let (mean, variance) = (mean.to_f32(), variance.to_f32());
            for (kept, &new) in running.0.iter_mut().zip(mean.iter()) {
                *kept += STATISTICS_RATE * (new - *kept);
            }
            for (kept, &new) in running.1.iter_mut().zip(variance.iter()) {
                *kept += STATISTICS_RATE * (new * unbiased - *kept);
            }
        }
    }

    /// Writes a checkpoint atomically.
    pub(crate) fn save(
        &self,
        path: &Path,
        settings: &TrainingSettings,
        data: &str,
        step_graph: &StepGraph,
    ) -> Result<()> {
        let mut tensors = Vec::new();
        let names = || step_graph.parameters.iter().map(|p| p.name.as_str());
        for ((name, parameter), memory) in names().zip(&self.parameters).zip(&self.optimiser_states) {
            tensors.push((format!("parameter/{name}"), parameter.clone()));
            tensors.push((format!("mean/{name}"), Tensor::vector(memory.mean.clone())));
            tensors.push((format!("square/{name}"), Tensor::vector(memory.square.clone())));
        }
        push_statistics(&mut tensors, "statistic", step_graph, &self.statistics);
        if let Some((parameters, statistics)) = &self.best {
            tensors.extend(names().zip(parameters).map(|(name, p)| (format!("best/{name}"), p.clone())));
            push_statistics(&mut tensors, "best statistic", step_graph, statistics);
        }
        let epochs: Vec<f64> = self.epochs.iter().flat_map(Epoch::numbers).collect();
        tensors.push(("epochs".to_owned(), Tensor::new([self.epochs.len(), COLUMNS], epochs)?));
        tensors.push(("sums".to_owned(), Tensor::vector(self.sums.to_vec())));
        tensors.push(("step".to_owned(), Tensor::scalar(i64::try_from(self.step).unwrap_or(i64::MAX))));
        let mut weights = Weights::from_iter(tensors);
        weights.set_property("settings", settings.to_string());
        weights.set_property("data", data.to_owned());
        weights.set_property(CHECKSUM, checksum(&weights));
        write_atomically(path, &weights.to_safetensors()?)
    }

    /// Reads a checkpoint of a training with these settings.
    pub(crate) fn load(
        path: &Path,
        settings: &TrainingSettings,
        data: &str,
        step_graph: &StepGraph,
    ) -> Result<Self> {
        State::read(path, settings, data, step_graph).map_err(|e| e.context(path.display()))
    }

    fn read(path: &Path, settings: &TrainingSettings, data: &str, step_graph: &StepGraph) -> Result<Self> {
        let mut file = Weights::open(path)?;
        // Checkpoints of earlier versions have none.
        if file.property(CHECKSUM).is_some_and(|stored| stored != checksum(&file)) {
            return Err(Error::malformed(
                "the checkpoint is damaged: it does not have its checksum; use a copy, or remove it and train from the start",
            ));
        }
        check_settings(file.property("settings").unwrap_or(""), &settings.to_string())?;
        let then = file.property("data").unwrap_or("other data");
        if then != data {
            return Err(Error::argument(format!(
                "the checkpoint was written by a training on {then}, this one is on {data}; use the same data, or remove \
                 the checkpoint"
            )));
        }
        let mut state = State::new(settings, step_graph)?;
        for (index, parameter) in step_graph.parameters.iter().enumerate() {
            let name = &parameter.name;
            state.parameters[index] = taken(&mut file, &format!("parameter/{name}"), &parameter.shape)?;
            let memory = &mut state.optimiser_states[index];
            fill(&mut memory.mean, &mut file, &format!("mean/{name}"))?;
            fill(&mut memory.square, &mut file, &format!("square/{name}"))?;
        }
        take_statistics(&mut file, "statistic", step_graph, &mut state.statistics)?;
        if step_graph.parameters.first().is_some_and(|p| file.get(&format!("best/{}", p.name)).is_some()) {
            let parameters: Result<Vec<Tensor>> = step_graph
                .parameters
                .iter()
                .map(|p| taken(&mut file, &format!("best/{}", p.name), &p.shape))
                .collect();
            let mut statistics = state.statistics.clone();
            take_statistics(&mut file, "best statistic", step_graph, &mut statistics)?;
            state.best = Some((parameters?, statistics));
        }
        let epochs = file.take("epochs")?.to_f64();
        state.epochs = epochs.chunks_exact(COLUMNS).map(Epoch::of_numbers).collect();
        let sums = file.take("sums")?.to_f64();
        state.sums =
            <[f64; 3]>::try_from(&*sums).map_err(|_| Error::malformed("the sums are not three numbers"))?;
        let done = file.take("step")?.to_i64().and_then(|v| u64::try_from(*v.first()?).ok());
        state.step = done.ok_or_else(|| Error::malformed("the number of steps is no number"))?;
        Ok(state)
    }
}

impl Epoch {
    fn numbers(&self) -> [f64; COLUMNS] {
        let Epoch { train_loss, train_accuracy, validation_loss, test_loss, test_accuracy, seconds } = *self;
        [train_loss, train_accuracy, validation_loss, test_loss, test_accuracy, seconds]
    }

    fn of_numbers(numbers: &[f64]) -> Self {
        let at = |i: usize| numbers.get(i).copied().unwrap_or(f64::NAN);
        Epoch {
            train_loss: at(0),
            train_accuracy: at(1),
            validation_loss: at(2),
            test_loss: at(3),
            test_accuracy: at(4),
            seconds: at(5),
        }
    }
}

/// A hash of the settings, the data's name, and name, shape and bytes of every tensor.
fn checksum(weights: &Weights) -> String {
    use sha2::Digest;
    let mut hash = sha2::Sha256::new();
    let mut add = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    ["settings", "data"].iter().for_each(|key| add(weights.property(key).unwrap_or_default().as_bytes()));
    let mut tensors: Vec<(&str, &Tensor)> = weights.iter().collect();
    tensors.sort_by_key(|(name, _)| *name);
    for (name, tensor) in tensors {
        add(name.as_bytes());
        tensor.shape().iter().for_each(|&length| add(&(length as u64).to_le_bytes()));
        add(&tensor.data().to_le_bytes());
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The initial raw values of a parameter. Unrestricted weights have the variance 1/fan-in. Restricted weights are magnitudes of
/// such numbers times a factor, because they all add up.
fn first_values(settings: &TrainingSettings, parameter: &Parameter, noise: Noise) -> Vec<f32> {
    let deviation = 1.0 / (parameter.fan_in.max(1) as f64).sqrt();
    let spread = f64::from(settings.spread);
    let value = |index: u64| match (parameter.role, parameter.positive) {
        (Role::Weight, false) => deviation * noise.gaussian(index),
        (Role::Weight, true) => spread * deviation * noise.gaussian(index).abs(),
        (Role::Scale, _) => 1.0,
        (Role::Bias | Role::Shift, false) => 0.0,
        (Role::Bias | Role::Shift, true) => spread * deviation * noise.gaussian(index).abs(),
    };
    let count = parameter.shape.iter().product::<usize>() as u64;
    let raw = |value: f64| if parameter.positive { settings.positivity.inverse(value) } else { value };
    (0..count).map(|index| raw(value(index)) as f32).collect()
}

fn push_statistics(
    tensors: &mut Vec<(String, Tensor)>,
    under: &str,
    step_graph: &StepGraph,
    statistics: &Statistics,
) {
    for (statistic, (mean, variance)) in step_graph.statistics.iter().zip(statistics) {
        let name = &statistic.name;
        tensors.push((format!("{under}/{name}.mean"), Tensor::vector(mean.clone())));
        tensors.push((format!("{under}/{name}.variance"), Tensor::vector(variance.clone())));
    }
}

fn take_statistics(
    file: &mut Weights,
    under: &str,
    step_graph: &StepGraph,
    statistics: &mut Statistics,
) -> Result<()> {
    for (statistic, (mean, variance)) in step_graph.statistics.iter().zip(statistics) {
        fill(mean, file, &format!("{under}/{}.mean", statistic.name))?;
        fill(variance, file, &format!("{under}/{}.variance", statistic.name))?;
    }
    Ok(())
}

fn taken(file: &mut Weights, name: &str, shape: &[usize]) -> Result<Tensor> {
    let tensor = file.take(name)?;
    if tensor.shape() != shape {
        return Err(Error::malformed(format!(
            "'{name}' has the shape {:?}, expected {shape:?}",
            tensor.shape()
        )));
    }
    Ok(tensor)
}

fn fill(values: &mut Vec<f32>, file: &mut Weights, name: &str) -> Result<()> {
    *values = taken(file, name, &[values.len()])?.to_f32().to_vec();
    Ok(())
}

/// Fails and names the first line of the settings that differs.
fn check_settings(then: &str, now: &str) -> Result<()> {
    if then == now {
        return Ok(());
    }
    let other = then.lines().zip(now.lines()).find(|(then, now)| then != now);
    let (then, now) = other.unwrap_or(("other settings", "these"));
    Err(Error::argument(format!(
        "the checkpoint was written by a training with '{then}', this one has '{now}'; use the same options, or remove \
         the checkpoint"
    )))
}
