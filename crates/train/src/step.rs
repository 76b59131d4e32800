//! One training step as a graph: from a batch and the parameters to the loss, its gradients, and the statistics of the batch.

use monosplit_autodiff::gradients;
use monosplit_engine::{Engine, Profile, Program};
use monosplit_graph::op::{Reduction, Unary};
use monosplit_graph::{Graph, Kind, NodeId, Op, Result, Shape, Tensor};

use crate::network::{NetworkSpec, Norm, Parameter, ParameterSource};

/// Added to a variance before its root is taken, as in PyTorch.
pub(crate) const EPSILON: f64 = 1e-5;

/// The batch statistics of a norm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Statistic {
    /// The norm's name.
    pub(crate) name: String,
    pub(crate) channels: usize,
    /// The number of elements of a batch in each channel.
    pub(crate) count: usize,
}

/// A compiled step.
pub(crate) struct Step {
    program: Box<dyn Program>,
    /// Number of parameters.
    parameters: usize,
    statistics: usize,
}

/// The outputs of a step.
pub(crate) struct StepOutputs {
    pub(crate) loss: f32,
    /// Class scores, `[batch, classes]`.
    pub(crate) logits: Tensor,
    /// One gradient for each parameter, with respect to its effective value.
    pub(crate) gradients: Vec<Tensor>,
    /// Mean and variance per norm.
    pub(crate) statistics: Vec<(Tensor, Tensor)>,
}

/// Parameters as inputs of the graph, with their effective values; norms use the statistics of the batch.
struct TrainableParameters {
    parameters: Vec<(Parameter, NodeId)>,
    statistics: Vec<(Statistic, NodeId, NodeId)>,
}

impl ParameterSource for TrainableParameters {
    fn parameter(&mut self, g: &mut Graph, parameter: Parameter) -> Result<NodeId> {
        let value = g.input(parameter.name.clone(), Shape::fixed(&parameter.shape), Kind::Float);
        self.parameters.push((parameter, value));
        Ok(value)
    }

    fn normalised(&mut self, g: &mut Graph, x: NodeId, norm: &Norm) -> Result<NodeId> {
        let shape = g.node(x).shape.clone();
        let axes: Vec<usize> = (0..shape.rank()).filter(|&axis| axis != 1).collect();
        let mean = g.reduced(Reduction::Mean, x, &axes, true)?;
        let centred = g.minus(x, mean)?;
        let squared = g.times(centred, centred)?;
        let variance = g.reduced(Reduction::Mean, squared, &axes, true)?;
        let kept = g.node(mean).shape.clone();
        let scale = g.reshaped(norm.scale, kept.clone())?;
        let shift = g.reshaped(norm.shift, kept)?;
        let shifted = g.offset(EPSILON, variance)?;
        let deviation = g.unary(Unary::Sqrt, shifted)?;
        let factor = g.over(scale, deviation)?;
        let scaled = g.times(centred, factor)?;
        let channels = shape.fixed_at(1).unwrap_or(0);
        let elements = shape.at(1).map_or(0, |dims| dims.iter().product::<usize>());
        let statistic = Statistic { name: norm.name.clone(), channels, count: elements / channels.max(1) };
        let vector = Shape::fixed(&[channels]);
        let (mean, variance) = (g.reshaped(mean, vector.clone())?, g.reshaped(variance, vector)?);
        self.statistics.push((statistic, mean, variance));
        g.plus(scaled, shift)
    }
}

/// The graph of a step.
pub(crate) struct StepGraph {
    /// From images, targets and parameters to loss, logits, statistics and gradients.
    pub(crate) graph: Graph,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) statistics: Vec<Statistic>,
}

impl StepGraph {
    /// The step on batches of `batch` samples of shape `sample` (channels, height, width).
    pub(crate) fn new(spec: &NetworkSpec<'_>, sample: [usize; 3], batch: usize) -> Result<Self> {
        let mut g = Graph::new();
        let [channels, height, width] = sample;
        let images = g.input("images", Shape::fixed(&[batch, channels, height, width]), Kind::Float);
        let targets = g.input("targets", Shape::fixed(&[batch, spec.classes]), Kind::Float);
        let mut trained = TrainableParameters { parameters: Vec::new(), statistics: Vec::new() };
        let scores = spec.build(&mut g, images, &mut trained)?;
        let loss = cross_entropy(&mut g, scores.logits, targets, batch)?;
        g.output("loss", loss);
        g.output("logits", scores.logits);
        for (statistic, mean, variance) in &trained.statistics {
            g.output(format!("{}.mean", statistic.name), *mean);
            g.output(format!("{}.variance", statistic.name), *variance);
        }
        let values: Vec<NodeId> = trained.parameters.iter().map(|(_, id)| *id).collect();
        let (mut g, slopes) = gradients(&g, loss, &values)?;
        for ((parameter, _), slope) in trained.parameters.iter().zip(slopes) {
            g.output(format!("gradient of {}", parameter.name), slope);
        }
        Ok(StepGraph {
            graph: g,
            parameters: trained.parameters.into_iter().map(|(parameter, _)| parameter).collect(),
            statistics: trained.statistics.into_iter().map(|(statistic, ..)| statistic).collect(),
        })
    }
}

impl Step {
    /// Compiles the step.
    pub(crate) fn new(step_graph: &StepGraph, engine: &dyn Engine) -> Result<Self> {
        Ok(Step {
            program: engine.compile(&step_graph.graph)?,
            parameters: step_graph.parameters.len(),
            statistics: step_graph.statistics.len(),
        })
    }

    /// Runs on images, targets and parameters, in this order.
    pub(crate) fn run(&self, inputs: &[Tensor]) -> Result<StepOutputs> {
        Ok(self.found(self.program.run(inputs)?))
    }

    /// Returns the memory of outputs that are no longer needed to the program.
    pub(crate) fn reclaim(&self, found: StepOutputs) {
        let mut outputs = vec![Tensor::scalar(found.loss), found.logits];
        outputs.extend(found.statistics.into_iter().flat_map(|(mean, variance)| [mean, variance]));
        outputs.extend(found.gradients);
        self.program.reclaim(outputs);
    }

    /// The time every node takes.
    pub(crate) fn profile(&self, inputs: &[Tensor]) -> Result<Profile> {
        self.program.run_profiled(inputs).map(|(_, profile)| profile)
    }

    fn found(&self, outputs: Vec<Tensor>) -> StepOutputs {
        let mut outputs = outputs.into_iter();
        let mut next = || outputs.next().unwrap_or_else(|| Tensor::scalar(0f32));
        let (loss, logits) = (next(), next());
        let statistics = (0..self.statistics).map(|_| (next(), next())).collect();
        let gradients = (0..self.parameters).map(|_| next()).collect();
        StepOutputs {
            loss: loss.to_f32().first().copied().unwrap_or(f32::NAN),
            logits,
            gradients,
            statistics,
        }
    }
}

/// The mean over the batch of `−Σ target·log softmax(logits)`.
fn cross_entropy(g: &mut Graph, logits: NodeId, targets: NodeId, batch: usize) -> Result<NodeId> {
    let log = g.add(Op::LogSoftmax { axis: 1 }, &[logits])?;
    let hit = g.times(log, targets)?;
    let sum = g.reduced(Reduction::Sum, hit, &[0, 1], false)?;
    g.scaled(-1.0 / batch as f64, sum)
}

#[cfg(test)]
mod tests {
    use monosplit_engine::{Cpu, Precision};
    use monosplit_graph::weights::Weights;

    use super::*;
    use crate::optimiser::{Optimiser, OptimiserState, ParameterUpdate, UpdateRule};
    use crate::restriction::Restriction;
    use crate::settings::TrainingSettings;
    use crate::state::State;

    /// Values computed by PyTorch with `scripts/make_training_values.py`.
    fn golden() -> Weights {
        Weights::from_safetensors(include_bytes!("../tests/fixtures/step.safetensors")).unwrap()
    }

    const LAYERS: &str =
        "conv 4 3; norm; maxout 2; pool 2; conv 4 3 stride 2; relu; dense 6; norm; maxout 3; scores";

    fn step() -> (TrainingSettings, StepGraph) {
        let settings = TrainingSettings::new(LAYERS.parse().unwrap(), Restriction::DifferenceConvexInverted);
        let (architecture, restriction) = (&settings.architecture, settings.restriction);
        let spec = NetworkSpec { architecture, restriction, classes: 3 };
        (settings.clone(), StepGraph::new(&spec, [2, 8, 8], 5).unwrap())
    }

    fn assert_close(name: &str, found: &Tensor, expected: &Tensor, tolerance: f64) {
        assert_eq!(found.len(), expected.len(), "{name}");
        let (found, expected) = (found.to_f64(), expected.to_f64());
        let largest = expected.iter().fold(1e-3f64, |most, v| most.max(v.abs()));
        for (found, expected) in found.iter().zip(expected.iter()) {
            assert!((found - expected).abs() <= tolerance * largest, "{name}: {found} {expected}");
        }
    }

    #[test]
    fn a_step_finds_the_loss_gradients_and_statistics_of_pytorch() {
        let golden = golden();
        let (_, step) = step();
        let named = |name: String| golden.get(&name).unwrap_or_else(|| panic!("{name}")).clone();
        let mut inputs = vec![named("images".into()), named("targets".into())];
        inputs.extend(step.parameters.iter().map(|p| named(format!("parameter/{}", p.name))));
        let compiled = Step::new(&step, &Cpu::default().precision(Precision::F64)).unwrap();
        let found = compiled.run(&inputs).unwrap();
        let loss = Tensor::vector(vec![found.loss]);
        assert_close("loss", &loss, &named("loss".into()), 1e-7);
        assert_close("logits", &found.logits, &named("logits".into()), 1e-12);
        assert_eq!(step.parameters.len(), 20);
        for (parameter, gradient) in step.parameters.iter().zip(&found.gradients) {
            assert_close(&parameter.name, gradient, &named(format!("gradient/{}", parameter.name)), 1e-11);
        }
        assert_eq!(step.statistics.len(), 4);
        for (statistic, (mean, variance)) in step.statistics.iter().zip(&found.statistics) {
            let name = &statistic.name;
            assert_close(name, mean, &named(format!("statistic/{name}.mean")), 1e-12);
            assert_close(name, variance, &named(format!("statistic/{name}.variance")), 1e-12);
        }
    }

    #[test]
    fn running_statistics_are_those_of_pytorch() {
        let golden = golden();
        let (settings, step) = step();
        let mut state = State::new(&settings, &step).unwrap();
        for prefix in ["", "second "] {
            let named = |name: String| golden.get(&format!("{prefix}statistic/{name}")).unwrap().clone();
            let found: Vec<(Tensor, Tensor)> = (step.statistics.iter())
                .map(|s| (named(format!("{}.mean", s.name)), named(format!("{}.variance", s.name))))
                .collect();
            state.observe(&step.statistics, &found);
        }
        for (statistic, (mean, variance)) in step.statistics.iter().zip(state.statistics) {
            let expected = |what: &str| golden.get(&format!("running/{}.{what}", statistic.name)).unwrap();
            assert_close(&statistic.name, &Tensor::vector(mean), expected("mean"), 1e-6);
            assert_close(&statistic.name, &Tensor::vector(variance), expected("variance"), 1e-6);
        }
    }

    #[test]
    fn optimisers_move_as_those_of_pytorch() {
        let golden = golden();
        let named = |name: &str| golden.get(&format!("optimiser/{name}")).unwrap();
        for rule in UpdateRule::ALL {
            let optimiser = Optimiser { rule, decay: 0.1, ..Optimiser::default() };
            let mut parameter = named("start").to_f32().to_vec();
            let mut memory = OptimiserState::new(rule, parameter.len());
            for (step, gradient) in named("gradients").to_f32().chunks(7).enumerate() {
                let (parameter, memory) = (&mut parameter[..], &mut memory);
                let moved = ParameterUpdate { parameter, effective: None, gradient, memory };
                optimiser.update(0.01, step as u64 + 1, std::iter::once(moved));
            }
            assert_close(rule.name(), &Tensor::vector(parameter), named(rule.name()), 1e-6);
        }
    }
}
