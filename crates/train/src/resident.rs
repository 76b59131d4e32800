//! Training steps that update the parameters inside the graph. The state stays with the engine (usually on a GPU), so only
//! images are sent to it and only losses and scores come back.

use std::collections::HashMap;

use monosplit_engine::{Engine, StatefulProgram};
use monosplit_graph::op::Unary;
use monosplit_graph::{Error, Graph, Kind, NodeId, Result, Shape, Tensor};

use crate::optimiser::{Optimiser, StepSize, UpdateRule};
use crate::restriction::Positivity;
use crate::settings::TrainingSettings;
use crate::state::{STATISTICS_RATE, State};
use crate::step::{Statistic, StepGraph};

/// The state of a training held by an engine, and the program that updates it.
pub(crate) struct Resident {
    steps: Box<dyn StatefulProgram>,
}

/// The scalar inputs of a step.
struct StepInputs {
    stride: NodeId,
    root: NodeId,
    kept: NodeId,
}

impl Resident {
    pub(crate) fn new(
        step_graph: &StepGraph,
        settings: &TrainingSettings,
        state: &State,
        engine: &dyn Engine,
    ) -> Result<Self> {
        let graph = training_graph(step_graph, settings)?;
        let steps = engine.compile(&graph)?.into_stateful(tensors(state)?)?;
        Ok(Resident { steps })
    }

    /// One step; the loss and the class scores.
    pub(crate) fn step(
        &mut self,
        images: Tensor,
        targets: Tensor,
        step_size: StepSize,
    ) -> Result<(f32, Tensor)> {
        let numbers = [step_size.stride, step_size.root, step_size.kept].map(Tensor::scalar);
        let outputs = self.steps.step(&[[images, targets].as_slice(), &numbers].concat())?;
        let Ok([loss, logits]) = <[Tensor; 2]>::try_from(outputs) else {
            return Err(Error::argument("a step gives a loss and scores"));
        };
        Ok((loss.to_f32().first().copied().unwrap_or(f32::NAN), logits))
    }

    /// Copies the state held by the engine into `state`.
    pub(crate) fn read_state(&mut self, state: &mut State) -> Result<()> {
        let values = self.steps.state()?;
        if values.len() != tensors(state)?.len() {
            return Err(Error::argument("the state has not as many values as it began with"));
        }
        let mut values = values.into_iter();
        let mut next =
            || values.next().ok_or_else(|| Error::argument("the state has fewer values than it began with"));
        for parameter in &mut state.parameters {
            *parameter = next()?;
        }
        for memory in &mut state.optimiser_states {
            memory.mean = next()?.to_f32().to_vec();
        }
        for memory in state.optimiser_states.iter_mut().filter(|memory| !memory.square.is_empty()) {
            memory.square = next()?.to_f32().to_vec();
        }
        for (mean, variance) in &mut state.statistics {
            *mean = next()?.to_f32().to_vec();
            *variance = next()?.to_f32().to_vec();
        }
        Ok(())
    }

    /// Copies `state` to the engine.
    pub(crate) fn write_state(&mut self, state: &State) -> Result<()> {
        self.steps.set_state(tensors(state)?)
    }
}

/// The state in the order of the inputs of the graph.
fn tensors(state: &State) -> Result<Vec<Tensor>> {
    let mut tensors = state.parameters.clone();
    let shaped = |values: &Vec<f32>, like: &Tensor| Tensor::new(like.shape(), values.clone());
    let pairs = || state.optimiser_states.iter().zip(&state.parameters);
    for (memory, parameter) in pairs() {
        tensors.push(shaped(&memory.mean, parameter)?);
    }
    for (memory, parameter) in pairs().filter(|(memory, _)| !memory.square.is_empty()) {
        tensors.push(shaped(&memory.square, parameter)?);
    }
    for (mean, variance) in &state.statistics {
        tensors.extend([mean, variance].map(|values| Tensor::vector(values.clone())));
    }
    Ok(tensors)
}

/// The graph of a step: from images, targets, step size and state to the loss, the scores and the next state.
fn training_graph(step_graph: &StepGraph, settings: &TrainingSettings) -> Result<Graph> {
    let (mut g, step) = (Graph::new(), &step_graph.graph);
    let mut given: HashMap<NodeId, NodeId> = HashMap::new();
    for &input in &step.inputs()[..2] {
        let copied = g.add_copy(step.node(input), &[])?;
        given.insert(input, copied);
    }
    let [stride, root, kept] =
        ["stride", "root", "kept"].map(|name| g.input(name, Shape::default(), Kind::Float));
    let step_inputs = StepInputs { stride, root, kept };
    let mut raw = Vec::with_capacity(step_graph.parameters.len());
    for (parameter, &input) in step_graph.parameters.iter().zip(&step.inputs()[2..]) {
        let value = g.input(parameter.name.clone(), Shape::fixed(&parameter.shape), Kind::Float);
        let effective = if parameter.positive { applied(&mut g, settings.positivity, value)? } else { value };
        given.insert(input, effective);
        raw.push(value);
    }
    let memory = |g: &mut Graph, what: &str| -> Vec<NodeId> {
        let named = step_graph.parameters.iter();
        named.map(|p| g.input(format!("{what} of {}", p.name), Shape::fixed(&p.shape), Kind::Float)).collect()
    };
    let means = memory(&mut g, "mean");
    let squares =
        if settings.optimiser.rule == UpdateRule::Sgd { Vec::new() } else { memory(&mut g, "square") };
    let running = running(&mut g, &step_graph.statistics);
    let map = step.copy_into_with(&mut g, &given)?;
    let mut found = step.outputs().iter().map(|output| map[output.node]);
    let mut next = || found.next().ok_or_else(|| Error::argument("a step has fewer outputs than it should"));
    let (loss, logits) = (next()?, next()?);
    g.output("loss", loss);
    g.output("logits", logits);
    let mut observed = Vec::new();
    for (statistic, &[mean, variance]) in step_graph.statistics.iter().zip(&running) {
        let unbiased = statistic.count as f64 / (statistic.count.max(2) - 1) as f64;
        observed.push(running_average(&mut g, mean, next()?)?);
        let sample = g.scaled(unbiased, next()?)?;
        observed.push(running_average(&mut g, variance, sample)?);
    }
    let mut moved = [Vec::new(), Vec::new(), Vec::new()];
    for (index, parameter) in step_graph.parameters.iter().enumerate() {
        let mut slope = next()?;
        if parameter.positive {
            let inner = inner_slope(&mut g, settings.positivity, raw[index])?;
            slope = g.times(slope, inner)?;
        }
        let memory = (means[index], squares.get(index).copied());
        for (list, value) in
            moved.iter_mut().zip(settings.optimiser.moved(&mut g, &step_inputs, raw[index], slope, memory)?)
        {
            list.extend(value);
        }
    }
    for (position, value) in moved.into_iter().flatten().chain(observed).enumerate() {
        g.output(format!("state {position}"), value);
    }
    Ok(g)
}

/// Running mean and variance of every norm, as inputs.
fn running(g: &mut Graph, statistics: &[Statistic]) -> Vec<[NodeId; 2]> {
    let of = |s: &Statistic| {
        ["mean", "variance"].map(|what| {
            g.input(format!("running {what} of {}", s.name), Shape::fixed(&[s.channels]), Kind::Float)
        })
    };
    statistics.iter().map(of).collect()
}

/// `old + rate·(new − old)`
fn running_average(g: &mut Graph, old: NodeId, new: NodeId) -> Result<NodeId> {
    let away = g.minus(new, old)?;
    let part = g.scaled(f64::from(STATISTICS_RATE), away)?;
    g.plus(old, part)
}

/// `p(w)`
fn applied(g: &mut Graph, positivity: Positivity, w: NodeId) -> Result<NodeId> {
    match positivity {
        Positivity::Relu => g.rectified(w),
        Positivity::Softplus => g.unary(Unary::Softplus, w),
        Positivity::Exp => g.unary(Unary::Exp, w),
        Positivity::Square => g.times(w, w),
    }
}

/// `p′(w)`
fn inner_slope(g: &mut Graph, positivity: Positivity, w: NodeId) -> Result<NodeId> {
    match positivity {
        Positivity::Relu => {
            let open = g.more_than(w, 0.0)?;
            g.add(monosplit_graph::Op::Cast { to: Kind::Float }, &[open])
        }
        Positivity::Softplus => g.unary(Unary::Sigmoid, w),
        Positivity::Exp => g.unary(Unary::Exp, w),
        Positivity::Square => g.scaled(2.0, w),
    }
}

impl Optimiser {
    /// The parameter, the mean and the square after a step; the last only where the rule keeps one.
    fn moved(
        &self,
        g: &mut Graph,
        step_inputs: &StepInputs,
        w: NodeId,
        slope: NodeId,
        (mean, square): (NodeId, Option<NodeId>),
    ) -> Result<[Option<NodeId>; 3]> {
        let decay = if self.rule == UpdateRule::AdamW { 0.0 } else { self.decay };
        let pull = g.scaled(f64::from(decay), w)?;
        let slope = g.plus(slope, pull)?;
        let remembered = g.scaled(f64::from(self.momentum), mean)?;
        let Some(square) = square else {
            let mean = g.plus(remembered, slope)?;
            let way = g.times(step_inputs.stride, mean)?;
            return Ok([Some(g.minus(w, way)?), Some(mean), None]);
        };
        let fresh = g.scaled(f64::from(1.0 - self.momentum), slope)?;
        let mean = g.plus(remembered, fresh)?;
        let remembered = g.scaled(f64::from(self.square_momentum), square)?;
        let fresh = g.scaled(f64::from(1.0 - self.square_momentum), slope)?;
        let fresh = g.times(fresh, slope)?;
        let square = g.plus(remembered, fresh)?;
        let deviation = g.unary(Unary::Sqrt, square)?;
        let deviation = g.times(deviation, step_inputs.root)?;
        let deviation = g.offset(f64::from(self.epsilon), deviation)?;
        let way = g.times(step_inputs.stride, mean)?;
        let way = g.over(way, deviation)?;
        let left = g.times(w, step_inputs.kept)?;
        Ok([Some(g.minus(left, way)?), Some(mean), Some(square)])
    }
}
