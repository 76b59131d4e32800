//! Parameter updates on the CPU, in place.

use monosplit_engine::Cpu;
use monosplit_graph::{Buffer, Data as Elements, Error, Result, Tensor};

use crate::network::Parameter;
use crate::optimiser::ParameterUpdate;
use crate::settings::TrainingSettings;
use crate::state::State;
use crate::step::{Step, StepGraph, StepOutputs};

/// The inputs of a step: images, targets, and the effective parameters.
pub(crate) fn inputs(pictures: [Tensor; 2], effective: &[Option<Tensor>], state: &State) -> Vec<Tensor> {
    let values = effective.iter().zip(&state.parameters);
    let values = values.map(|(effective, raw)| effective.as_ref().unwrap_or(raw).clone());
    pictures.into_iter().chain(values).collect()
}

/// Update number `number`.
pub(crate) struct InPlaceUpdate<'a> {
    pub(crate) step_graph: &'a StepGraph,
    pub(crate) engine: &'a Cpu,
    pub(crate) step: &'a Step,
    pub(crate) rate: f32,
    pub(crate) number: u64,
}

impl InPlaceUpdate<'_> {
    /// Updates all parameters in place.
    pub(crate) fn apply(
        &self,
        found: StepOutputs,
        settings: &TrainingSettings,
        state: &mut State,
        transformed: &mut [Option<Tensor>],
    ) -> Result<()> {
        let parameters = &self.step_graph.parameters;
        state.observe(&self.step_graph.statistics, &found.statistics);
        let (optimiser, positivity) = (settings.optimiser, settings.positivity);
        let mut values = owned(state.parameters.iter_mut())?;
        let mut effective = owned(transformed.iter_mut().flatten())?;
        let gradients: Vec<Buffer<f32>> = found.gradients.iter().map(Tensor::to_f32).collect();
        let mut next = effective.iter_mut();
        let each = parameters.iter().zip(&mut values).zip(&gradients).zip(&mut state.optimiser_states);
        let moved = each.map(|(((parameter, value), gradient), memory)| ParameterUpdate {
            parameter: value,
            effective: parameter.positive.then(|| next.next()).flatten().map(|e| (positivity, &mut e[..])),
            gradient,
            memory,
        });
        let moved: Vec<ParameterUpdate<'_>> = moved.collect();
        self.engine.install(|| optimiser.update(self.rate, self.number, moved.into_iter()))?;
        drop(gradients);
        self.step.reclaim(found);
        give_back(state.parameters.iter_mut(), values, parameters)?;
        let positive: Vec<Parameter> = parameters.iter().filter(|p| p.positive).cloned().collect();
        give_back(transformed.iter_mut().flatten(), effective, &positive)
    }
}

/// The elements of tensors, taken out to be updated in place. They are not copied if the tensors are not shared.
fn owned<'t>(tensors: impl Iterator<Item = &'t mut Tensor>) -> Result<Vec<Vec<f32>>> {
    let elements = |tensor: &mut Tensor| match std::mem::replace(tensor, Tensor::scalar(0f32)).into_data() {
        Elements::F32(buffer) => Ok(buffer.into_vec()),
        _ => Err(Error::argument("parameters are single precision")),
    };
    tensors.map(elements).collect()
}

/// Puts the elements back into tensors.
fn give_back<'t>(
    tensors: impl Iterator<Item = &'t mut Tensor>,
    elements: Vec<Vec<f32>>,
    parameters: &[Parameter],
) -> Result<()> {
    for ((tensor, elements), parameter) in tensors.zip(elements).zip(parameters) {
        *tensor = Tensor::new(parameter.shape.clone(), elements)?;
    }
    Ok(())
}
