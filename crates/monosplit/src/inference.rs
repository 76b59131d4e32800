//! Inference on any number of samples, whatever batch size the network was exported for.

use monosplit_engine::{Engine, Profile, Program};
use monosplit_graph::batch::{check_whole_batches, filled_rows, rows, samples_interact, stack};
use monosplit_graph::{Dim, Error, ErrorKind, Graph, Kind, Result, Tensor};

use crate::model::{GIVEN, Model};

/// A network compiled to compute its first output.
pub struct Inference {
    graph: Graph,
    program: Box<dyn Program>,
    fixed_batch: Option<usize>,
    interacting: bool,
    sample_shape: Vec<usize>,
    kind: Kind,
    /// The name of the input whose samples are run.
    input: String,
    origin: String,
    profiled: bool,
    profile: Profile,
}

impl Inference {
    /// Compiles the canonical form of `model`, which must have one input with samples along its first axis beside those that
    /// are given ([`Model::with_inputs`]), and an output with one row for each.
    pub fn new(model: &Model, engine: &dyn Engine) -> Result<Self> {
        let fixed_batch = model.fixed_batch()?;
        let mut graph = model.graph().clone();
        let output = graph.outputs().first().cloned();
        let output = output.ok_or_else(|| model.unfit_output("expected scores"))?;
        let shape = &graph.node(output.node).shape;
        let rows = fixed_batch.map_or(Dim::Batch(1), Dim::Fixed);
        let further = shape.dims().get(1..).unwrap_or_default();
        if shape.dims().first() != Some(&rows) || further.iter().any(|dim| dim.fixed().is_none()) {
            return Err(model.unfit_output(&format!("expected one row for each of the {rows} samples")));
        }
        graph.set_outputs(vec![output]);
        let graph = graph.pruned()?;
        let input = model.input()?;
        let (input, kind) = (input.label.tensor.clone(), input.kind);
        Ok(Inference {
            program: engine.compile(&graph)?,
            interacting: samples_interact(&graph),
            graph,
            fixed_batch,
            sample_shape: model.sample_shape()?,
            kind,
            input,
            origin: model.origin().to_string(),
            profiled: false,
            profile: Profile::default(),
        })
    }

    /// Times every node from now on.
    #[must_use]
    pub fn profiled(mut self) -> Self {
        self.profiled = true;
        self
    }

    /// The graph that is run; nodes of the profile are its nodes.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The times of all runs so far.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Computes the output for samples, each of which may itself be a batch. A network of fixed batch size runs in chunks of
    /// that size. The last chunk is filled up with copies of the last sample, whose outputs are dropped; it is an error if
    /// the samples of a batch influence each other.
    pub fn run(&mut self, samples: &[Tensor]) -> Result<Tensor> {
        self.run_beside(samples, &[])
    }

    /// The same with the values of further inputs by name, as [`Model::given_inputs`] has them: one row for each sample.
    pub fn run_beside(&mut self, samples: &[Tensor], others: &[(&str, Tensor)]) -> Result<Tensor> {
        let all = stack(samples, self.kind)?;
        let count = all.shape().first().copied().unwrap_or(0);
        if count == 0 || all.shape()[1..] != self.sample_shape {
            return Err(Error::argument(format!(
                "{}: the network reads samples of shape {:?}, found {count} of {:?}",
                self.origin,
                self.sample_shape,
                all.shape().get(1..).unwrap_or_default()
            )));
        }
        let Some(size) = self.fixed_batch else { return self.once(all, others) };
        if self.interacting {
            check_whole_batches(count, size)?;
        }
        let mut parts = Vec::with_capacity(count.div_ceil(size));
        for start in (0..count).step_by(size) {
            let wanted = size.min(count - start);
            let filled = filled_rows(count, start, size)?;
            let chunk = rows(&all, filled.iter().copied())?;
            let beside = others.iter().map(|(name, all)| Ok((*name, rows(all, filled.iter().copied())?)));
            let beside = beside.collect::<Result<Vec<_>>>()?;
            parts.push(rows(&self.once(chunk, &beside)?, 0..wanted)?);
        }
        stack(&parts, parts.first().map_or(Kind::Float, Tensor::kind))
    }

    fn once(&mut self, batch: Tensor, others: &[(&str, Tensor)]) -> Result<Tensor> {
        let names = self.graph.inputs().iter().map(|&id| &self.graph.node(id).label.tensor);
        let value_of = |name: &String| {
            if *name == self.input {
                return Ok(batch.clone());
            }
            let given = others.iter().find(|(known, _)| known == name);
            given.map(|(_, value)| value.clone()).ok_or_else(|| {
                Error::argument(format!("{}: the network also reads input '{name}'", self.origin)).hint(GIVEN)
            })
        };
        let inputs = names.map(value_of).collect::<Result<Vec<_>>>()?;
        let mut outputs = if self.profiled {
            let (outputs, profile) = self.program.run_profiled(&inputs)?;
            self.profile.nodes.extend(profile.nodes);
            outputs
        } else {
            self.program.run(&inputs)?
        };
        outputs.pop().ok_or_else(|| Error::new(ErrorKind::Shape, "the network returned nothing"))
    }
}
