//! Attribution methods. Most are graph rewrites: they add nodes to the network's graph and return the node that holds the
//! attribution. The others run the network many times and combine the results.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use monosplit_engine::Engine;
use monosplit_graph::op::Reduction;
use monosplit_graph::{Graph, NodeId, Result, Tensor};

use crate::explain_batch::ExplainBatch;
use crate::explained_inputs::InputPart;
use crate::explanation_builder::ExplanationBuilder;
use crate::finish::Finish;
use crate::scaled::Scaled;

/// Methods of any type, compared. Every method that implements [`PartialEq`] has it.
pub trait MethodEquality {
    /// The method as a value of any type.
    fn as_any(&self) -> &dyn Any;

    /// Whether the other is of the same type and has the same options.
    fn equals(&self, other: &dyn Method) -> bool;
}

impl<M: Method + PartialEq + 'static> MethodEquality for M {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn equals(&self, other: &dyn Method) -> bool {
        other.as_any().downcast_ref::<M>().is_some_and(|other| self == other)
    }
}

impl PartialEq for dyn Method {
    fn eq(&self, other: &dyn Method) -> bool {
        self.equals(other)
    }
}

/// An attribution method with its options. Two methods with equal options share what they compute.
pub trait Method: MethodEquality + fmt::Debug + Send + Sync {
    /// A short name that also tells its options apart where two of them are usually seen together: `splitcam-g`.
    fn name(&self) -> String;

    /// How it is computed.
    fn procedure(&self) -> Procedure<'_>;

    /// The layer it attributes to unless a layer is named.
    fn default_layer(&self) -> DefaultLayer {
        DefaultLayer::Input
    }

    /// Whether it attributes to several explained inputs one after the other, the others being as they are. All other
    /// methods attribute to them jointly.
    fn takes_inputs_in_turn(&self) -> bool {
        false
    }

    /// The baseline, where the method has one that is an array in a file.
    fn baseline_array(&self) -> Option<&Tensor> {
        None
    }

    /// The method with another such baseline.
    fn with_baseline_array(&self, baseline: Tensor) -> Option<Arc<dyn Method>> {
        let _ = baseline;
        None
    }
}

/// How a method is computed.
pub enum Procedure<'a> {
    /// By nodes added to the network's graph.
    GraphMethod(&'a dyn GraphMethod),
    /// By running the network many times.
    MultiPass(&'a dyn MultiPass),
}

/// The layer a method attributes to unless a layer is named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DefaultLayer {
    /// The image.
    #[default]
    Input,
    /// What enters the last layer that mixes places: the last convolution whose kernel is larger than 1×1, or attention
    /// behind it.
    LastMixingInput,
    /// The last value with a place for each part of the image: the last feature map before pooling, or the last tokens
    /// that all reach the class scores.
    LastFeatures,
}

/// A method that adds nodes to the network's graph.
pub trait GraphMethod {
    /// Adds the nodes that compute the attribution of the value `at`.
    fn write(&self, builder: &mut ExplanationBuilder<'_>, at: NodeId) -> Result<Attribution>;

    /// Whether single precision would lose what the method divides by in this network.
    fn needs_double_precision(&self, network: &Graph) -> bool {
        let _ = network;
        false
    }
}

/// The result of a graph method: the node that holds the attribution, and the value it attributes to.
#[derive(Clone, Copy, Debug)]
pub struct Attribution {
    pub(crate) value: Scaled,
    pub(crate) of: NodeId,
    pub(crate) channels: Option<Reduction>,
}

impl Attribution {
    /// A number for every element of the value `of`; its channels are reduced so unless the finish says otherwise.
    pub fn per_element(value: NodeId, of: NodeId, channels: Reduction) -> Self {
        Attribution::scaled(Scaled::plain(value, 0.0), of, channels)
    }

    /// A number for every spatial position of the value `of`, `[N, H, W]`.
    pub fn per_position(value: NodeId, of: NodeId) -> Self {
        Attribution { value: Scaled::plain(value, 0.0), of, channels: None }
    }

    pub(crate) fn scaled(value: Scaled, of: NodeId, channels: Reduction) -> Self {
        Attribution { value, of, channels: Some(channels) }
    }
}

/// A method that runs the network many times, or does something with its outputs that no graph can.
pub trait MultiPass {
    /// Compiles the programs it runs.
    fn prepare(&self, target: &NetworkLayer<'_>, engine: &dyn Engine) -> Result<Box<dyn PreparedMethod>>;

    /// The same method as one graph, with its passes written one after the other; none if no graph computes it.
    fn unrolled(&self) -> Option<&dyn GraphMethod> {
        None
    }

    /// Why it cannot be written as one graph, to be read after the method's name.
    fn obstacle(&self) -> &'static str {
        "runs the network many times"
    }
}

/// A layer of a network.
#[derive(Clone, Copy, Debug)]
pub struct NetworkLayer<'a> {
    /// The network: its first input is the image, its first output the class scores.
    pub network: &'a Graph,
    /// The layer's name; none is the image.
    pub layer: Option<&'a str>,
}

/// A multi-pass method, compiled for one network and layer.
pub trait PreparedMethod: Send + Sync {
    /// The attributions of a batch. `classes` holds the explained class of each sample.
    fn attribute(&self, batch: &ExplainBatch<'_>, classes: &[usize]) -> Result<Attributions>;

    /// The layer the attributions belong to.
    fn attributed_layer(&self) -> AttributedLayer;
}

/// The layer that the attributions of a multi-pass method belong to.
#[derive(Clone, Debug, PartialEq)]
pub struct AttributedLayer {
    /// The name of the layer; none is the image.
    pub layer: Option<String>,
    /// How channels are reduced unless the finish says otherwise; none if the attributions have no channel axis.
    pub channels: Option<Reduction>,
}

/// The result of a multi-pass method.
#[derive(Clone, Debug)]
pub struct Attributions {
    /// `[N, …]`, shaped like the value of the attributed layer.
    pub values: Tensor,
    /// What the method measured about itself.
    pub diagnostics: Vec<Diagnostic>,
}

/// A measure of how far a map can be trusted, such as a completeness gap: one number for every sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnostic {
    /// What was measured.
    pub name: &'static str,
    /// One number for each sample.
    pub values: Vec<f64>,
}

/// A map to compute.
#[derive(Clone, Debug)]
pub struct MapRequest {
    /// The attribution method.
    pub method: Arc<dyn Method>,
    /// The layer: its input, or its output if the name ends in `:out`; none is the image.
    pub layer: Option<String>,
    /// How channels become a map.
    pub finish: Finish,
    /// What the method is called in the name of the graph's output; none is its own name.
    pub called: Option<String>,
    /// The explained input whose part of the map this is; none is all that is explained.
    pub part: Option<InputPart>,
}

impl PartialEq for MapRequest {
    fn eq(&self, other: &Self) -> bool {
        let MapRequest { method, layer, finish, called, part } = other;
        *self.method == **method
            && self.layer == *layer
            && self.finish == *finish
            && self.called == *called
            && self.part == *part
    }
}

impl MapRequest {
    /// A map as the method defines it, at the layer's own resolution.
    pub fn new(method: impl Method + 'static, layer: impl Into<String>) -> Self {
        MapRequest::of(Arc::new(method), Some(layer.into()))
    }

    /// A map at the image.
    pub fn at_input(method: impl Method + 'static) -> Self {
        MapRequest::of(Arc::new(method), None)
    }

    /// A map by a method that was chosen at run time.
    pub fn of(method: Arc<dyn Method>, layer: Option<String>) -> Self {
        MapRequest { method, layer, finish: Finish::default(), called: None, part: None }
    }

    /// Whether single precision would lose what the method divides by in this network.
    pub fn needs_double_precision(&self, network: &Graph) -> bool {
        match self.method.procedure() {
            Procedure::GraphMethod(method) => method.needs_double_precision(network),
            Procedure::MultiPass(_) => false,
        }
    }

    /// Another finish.
    #[must_use]
    pub fn finish(self, finish: Finish) -> Self {
        MapRequest { finish, ..self }
    }

    /// Another name of the method in that of the graph's output.
    #[must_use]
    pub fn called(self, name: impl Into<String>) -> Self {
        MapRequest { called: Some(name.into()), ..self }
    }

    /// The requests of a map for each explained input. Most methods attribute to all of them at once; those that remove
    /// windows or segments remove them from one input at a time and leave the others as they are.
    pub fn of_inputs(method: &Arc<dyn Method>, parts: &[InputPart]) -> Vec<Self> {
        let request = |part: &InputPart| match part.is_one_of_several() && method.takes_inputs_in_turn() {
            true => MapRequest::of(method.clone(), Some(part.layer())).called_after(part),
            false => MapRequest::of(method.clone(), None).called_after(part),
        };
        parts.iter().map(request).collect()
    }

    fn called_after(self, part: &InputPart) -> Self {
        MapRequest { part: Some(part.clone()), ..self }
    }

    /// The part of the attribution that becomes the map; none if all of it does.
    pub(crate) fn attributed_part(&self) -> Option<&InputPart> {
        self.part.as_ref().filter(|_| self.layer.is_none())
    }

    /// `saliency/METHOD/LAYER`, the name of the map among the outputs of a graph.
    pub(crate) fn output_name(&self) -> String {
        let method = self.called.clone().unwrap_or_else(|| self.method.name());
        let input = self.part.as_ref().map(InputPart::name);
        format!("saliency/{method}/{}", input.or(self.layer.as_deref()).unwrap_or("input"))
    }
}
