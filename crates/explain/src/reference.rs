//! The reference activations of DeepLIFT: the network on a baseline image, computed beside the network on the image.

use std::rc::Rc;

use monosplit_graph::{Error, Graph, NodeId, Op, Result, Shape, Tensor};

use crate::explanation_builder::ExplanationBuilder;
use crate::explanation_graph::inputs;
use crate::network::Network;

/// The baseline image.
#[derive(Clone, Debug, PartialEq)]
pub enum ReferenceImage {
    /// This number in every element.
    Value(f64),
    /// This image, `[1, …]`, for all samples.
    Image(Tensor),
    /// The tensor bound to the input [`inputs::BASELINE`] at run time, `[1, …]`, for all samples.
    Given,
}

impl Default for ReferenceImage {
    fn default() -> Self {
        ReferenceImage::Value(0.0)
    }
}

/// The values of the network on the baseline.
pub(crate) struct Reference {
    values: Vec<NodeId>,
}

impl Reference {
    /// The reference of a value of the network.
    pub(crate) fn at(&self, id: NodeId) -> NodeId {
        self.values[id.index()]
    }

    pub(crate) fn build(g: &mut Graph, network: &Network, baseline: NodeId) -> Result<Self> {
        let mut values: Vec<NodeId> = Vec::with_capacity(network.graph().len());
        for (id, node) in network.nodes() {
            values.push(if id == network.input() {
                baseline
            } else if network.is_active(id) || node.inputs.iter().any(|i| values[i.index()] != *i) {
                let inputs: Vec<NodeId> = node.inputs.iter().map(|i| values[i.index()]).collect();
                g.add(node.op.clone(), &inputs).map_err(|e| e.at(node.label.display()))?
            } else {
                id
            });
        }
        Ok(Reference { values })
    }
}

impl ExplanationBuilder<'_> {
    /// The network on a baseline, added to the graph on first use.
    pub(crate) fn reference(&mut self, baseline: &ReferenceImage) -> Result<Rc<Reference>> {
        self.shared(baseline.clone(), |builder| {
            let image = builder.graph.node(builder.image()).shape.clone();
            let one = match baseline {
                ReferenceImage::Value(value) => builder.graph.number(*value),
                ReferenceImage::Image(tensor) => {
                    let expected = one_sample(&image);
                    let fits = Shape::fixed(tensor.shape()) == expected;
                    if !fits {
                        return Err(Error::shape(format!(
                            "the network reads images of shape {image}, found a baseline of shape {:?}",
                            tensor.shape()
                        )));
                    }
                    builder.graph.constant(tensor.clone())
                }
                ReferenceImage::Given => builder.added_input(inputs::BASELINE, one_sample(&image))?,
            };
            let baseline = builder.graph.add(Op::Expand { shape: image }, &[one])?;
            let network = builder.network.clone();
            Reference::build(&mut builder.graph, &network, baseline)
        })
    }
}

/// The shape of one image.
fn one_sample(image: &Shape) -> Shape {
    let mut dims = image.dims().to_vec();
    if let Some(samples) = dims.first_mut() {
        *samples = monosplit_graph::Dim::Fixed(1);
    }
    Shape::new(dims)
}
