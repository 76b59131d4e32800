//! A step of the processor, which moves parameters where they lie.

use monosplit_engine::Cpu;
use monosplit_graph::{Buffer, Data as Elements, Error, Result, Tensor};

use crate::network::Parameter;
use crate::optimiser::Moved;
use crate::settings::Settings;
use crate::state::State;
use crate::step::{Found, Plan, Step};

/// What a step reads: images, targets, and the parameters as the network is computed with them.
pub(crate) fn inputs(pictures: [Tensor; 2], effective: &[Option<Tensor>], state: &State) -> Vec<Tensor> {
    let values = effective.iter().zip(&state.parameters);
    let values = values.map(|(effective, raw)| effective.as_ref().unwrap_or(raw).clone());
    pictures.into_iter().chain(values).collect()
}

/// The `number`-th step of the processor.
pub(crate) struct Follow<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) engine: &'a Cpu,
    pub(crate) step: &'a Step,
    pub(crate) rate: f32,
    pub(crate) number: u64,
}

impl Follow<'_> {
    /// Lets the optimiser move every parameter, in place.
    pub(crate) fn move_parameters(
        &self,
        found: Found,
        settings: &Settings,
        state: &mut State,
        transformed: &mut [Option<Tensor>],
    ) -> Result<()> {
        let parameters = &self.plan.parameters;
        state.observe(&self.plan.statistics, &found.statistics);
        let (optimiser, positivity) = (settings.optimiser, settings.positivity);
        let mut values = owned(state.parameters.iter_mut())?;
        let mut effective = owned(transformed.iter_mut().flatten())?;
        let gradients: Vec<Buffer<f32>> = found.gradients.iter().map(Tensor::to_f32).collect();
        let mut next = effective.iter_mut();
        let each = parameters.iter().zip(&mut values).zip(&gradients).zip(&mut state.memories);
        let moved = each.map(|(((parameter, value), gradient), memory)| Moved {
            parameter: value,
            effective: parameter.positive.then(|| next.next()).flatten().map(|e| (positivity, &mut e[..])),
            gradient,
            memory,
        });
        let moved: Vec<Moved<'_>> = moved.collect();
        self.engine.install(|| optimiser.update(self.rate, self.number, moved.into_iter()))?;
        drop(gradients);
        self.step.reclaim(found);
        give_back(state.parameters.iter_mut(), values, parameters)?;
        let positive: Vec<Parameter> = parameters.iter().filter(|p| p.positive).cloned().collect();
        give_back(transformed.iter_mut().flatten(), effective, &positive)
    }
}

/// The elements of tensors that nobody else holds, to be changed in place.
fn owned<'t>(tensors: impl Iterator<Item = &'t mut Tensor>) -> Result<Vec<Vec<f32>>> {
    let elements = |tensor: &mut Tensor| match std::mem::replace(tensor, Tensor::scalar(0f32)).into_data() {
        Elements::F32(buffer) => Ok(buffer.into_vec()),
        _ => Err(Error::argument("parameters are single precision")),
    };
    tensors.map(elements).collect()
}

/// Makes tensors of the elements again.
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
