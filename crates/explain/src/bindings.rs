//! Binds tensors to the inputs of an explanation graph by name.

use monosplit_graph::{Error, Graph, Result, Tensor};

use crate::explain_batch::{ExplainBatch, Settings};
use crate::explanation_graph::inputs;

/// One tensor for every input of `graph`: the images first, then the others by name.
pub(crate) fn bind(graph: &Graph, batch: &ExplainBatch<'_>, classes: &[i64]) -> Result<Vec<Tensor>> {
    let settings = batch.settings;
    let mut tensors = Vec::with_capacity(graph.inputs().len());
    for (position, &id) in graph.inputs().iter().enumerate() {
        let name = graph.node(id).label.tensor.as_str();
        let given = batch.other_inputs.iter().find(|(given, _)| *given == name);
        tensors.push(match (name, given) {
            _ if position == 0 => batch.images.clone(),
            (_, Some((_, tensor))) => tensor.clone(),
            (inputs::CLASS, _) => Tensor::vector(classes.to_vec()),
            (inputs::ALPHA, _) => alpha(settings, graph.node(id).shape.fixed_at(0))?,
            (inputs::SHARE, _) => Tensor::scalar(settings.share),
            (inputs::THETA, _) => Tensor::scalar(settings.theta),
            (inputs::LIMIT, _) => Tensor::scalar(settings.limit),
            (other, None) => {
                let message = format!("the network also reads '{other}', which was not given");
                return Err(Error::argument(message));
            }
        });
    }
    Ok(tensors)
}

/// The tensor α: one number, or one for each of `layers` nodes.
fn alpha(settings: &Settings, layers: Option<usize>) -> Result<Tensor> {
    let (given, needed) = (settings.alpha.len(), layers.unwrap_or(1));
    if given != needed {
        return Err(Error::argument(format!("{given} values of α were given where {needed} are needed")));
    }
    Ok(match layers {
        None => Tensor::scalar(settings.alpha[0]),
        Some(_) => Tensor::vector(settings.alpha.clone()),
    })
}
