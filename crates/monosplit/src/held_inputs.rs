//! Inputs that are held fixed as constants of the network, for checks and figures of what is left.

use std::collections::HashMap;

use monosplit_engine::Engine;
use monosplit_explain::ExplainedInputs;
use monosplit_graph::batch::rows;
use monosplit_graph::{Graph, Op, Result, Tensor};

use crate::given_inputs::fitting;
use crate::inputs_explainer::explained_value;
use crate::model::{GIVEN, Model};

impl Model {
    /// The network with one sample each of some inputs as constants. What is left has the same input for all samples.
    pub fn with_held_inputs(self, given: &[(String, Tensor)]) -> Result<Model> {
        let mut held = Graph::new();
        let mut copies = HashMap::new();
        for (i, (name, value)) in given.iter().enumerate() {
            if given[..i].iter().any(|(known, _)| known == name) {
                return Err(self.unfit(format!("input '{name}' is given twice; give it once")));
            }
            let value =
                fitting(self.graph(), name, value.clone()).map_err(|error| error.context(self.origin()))?;
            if value.shape().first() != Some(&1) {
                let count = value.shape().first().copied().unwrap_or(0);
                return Err(self.unfit(format!(
                    "input '{name}' is held fixed for all samples, but {count} samples of it were given; give one"
                )));
            }
            let inputs = self.graph().inputs().iter();
            for &id in inputs.filter(|&&id| self.graph().node(id).label.tensor == *name) {
                let constant = held.constant(value.clone());
                // For a batch of any size, as an input would be.
                let shape = self.graph().node(id).shape.clone();
                copies.insert(id, held.add(Op::Expand { shape }, &[constant])?);
            }
        }
        let map = self.graph().copy_into_with(&mut held, &copies)?;
        self.graph().outputs().iter().for_each(|output| held.output(output.name.clone(), map[output.node]));
        self.graph().metadata().iter().for_each(|(key, value)| held.set_metadata(key, value));
        let mut model = self.with_canonical(held);
        model.holds_inputs |= !given.is_empty();
        Ok(model)
    }

    /// The network from the explained value of the inputs `of` on ([`ExplainedInputs`]), its only input, and that value for one
    /// sample. `values` holds one sample of every input; what is not explained is held fixed.
    pub fn at_inputs(
        &self,
        of: &[&str],
        values: &[(String, Tensor)],
        engine: &dyn Engine,
    ) -> Result<(Model, Tensor)> {
        let inputs = ExplainedInputs::new(self.graph(), of).map_err(|error| error.context(self.origin()))?;
        let value_of = |name: &str| {
            let found = values.iter().find(|(known, _)| known == name);
            let (_, value) = found.ok_or_else(|| {
                self.unfit(format!("the network also reads input '{name}'")).hint(GIVEN.about(name))
            })?;
            let value =
                fitting(self.graph(), name, value.clone()).map_err(|error| error.context(self.origin()))?;
            rows(&value, std::iter::once(0))
        };
        let explained = inputs
            .parts()
            .iter()
            .map(|part| explained_value(part, value_of(part.name())?))
            .collect::<Result<Vec<_>>>()?;
        let value = inputs.encoder(engine)?.encode(&explained)?;
        let network = inputs.network().clone();
        let others = network.inputs()[1..].iter().map(|&id| network.node(id).label.tensor.clone());
        let others =
            others.map(|name| value_of(&name).map(|value| (name, value))).collect::<Result<Vec<_>>>()?;
        let model = self.clone().with_canonical(network).with_held_inputs(&others)?;
        Ok((model, value))
    }
}
