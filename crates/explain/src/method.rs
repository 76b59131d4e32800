//! What a method is. Most methods are rewrites: they add nodes to the network's graph and say which value is the
//! attribution. The others ask a network many times and put the answers together; they are procedures.

use std::fmt;
use std::sync::Arc;

use monosplit_engine::Engine;
use monosplit_graph::op::Reduction;
use monosplit_graph::{Graph, NodeId, Result, Tensor};

use crate::finish::Finish;
use crate::question::Question;
use crate::scaled::Scaled;
use crate::writing::Writing;

/// A way to explain, with its options.
pub trait Method: fmt::Debug + Send + Sync {
    /// A short name that also tells its options apart where two of them are usually seen together: `splitcam-g`.
    fn name(&self) -> String;

    /// How it is done.
    fn procedure(&self) -> Procedure<'_>;

    /// Where it is read off unless a layer is named.
    fn place(&self) -> Place {
        Place::Input
    }
}

/// How a method is done.
pub enum Procedure<'a> {
    /// By nodes added to the network's graph.
    Rewrite(&'a dyn Rewrite),
    /// By asking the network many times.
    Repeated(&'a dyn Repeated),
}

/// Where a method is read off unless a layer is named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Place {
    /// At the image.
    #[default]
    Input,
    /// At what enters the last convolution that looks at more than one place.
    EntersLastConvolution,
    /// At the last value that still has places: what the last convolution and its activation leave.
    LastFeatures,
}

/// A method that is a rewrite of the network's graph.
pub trait Rewrite {
    /// Adds what the attribution of the value `at` needs.
    fn write(&self, writing: &mut Writing<'_>, at: NodeId) -> Result<Attribution>;

    /// Whether single precision would lose what the method divides by.
    fn needs_double_precision(&self) -> bool {
        false
    }
}

/// What a rewrite found: a value of the graph, and what it belongs to.
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

    /// A number for every place of the value `of`, `[N, H, W]`.
    pub fn per_place(value: NodeId, of: NodeId) -> Self {
        Attribution { value: Scaled::plain(value, 0.0), of, channels: None }
    }

    pub(crate) fn scaled(value: Scaled, of: NodeId, channels: Reduction) -> Self {
        Attribution { value, of, channels: Some(channels) }
    }
}

/// A method that asks a network many times, or does something with its answers that no graph can.
pub trait Repeated {
    /// Compiles what is asked.
    fn prepare(&self, target: &Target<'_>, engine: &dyn Engine) -> Result<Box<dyn Prepared>>;

    /// What it does that keeps it from being written as one graph.
    fn obstacle(&self) -> &'static str {
        "asks the network many times"
    }
}

/// What a repeated method is to explain.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The network: its first input is the image, its first output the class scores.
    pub network: &'a Graph,
    /// The layer's name; none is the image.
    pub layer: Option<&'a str>,
}

/// A repeated method, ready to be asked.
pub trait Prepared: Send + Sync {
    /// The attributions of the samples in question, whose classes are settled: one for each.
    fn attribute(&self, question: &Question<'_>, classes: &[usize]) -> Result<Attributions>;

    /// Where the attributions belong, and how channels are reduced unless the finish says otherwise.
    fn site(&self) -> Site;
}

/// Where the attributions of a repeated method belong.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// The layer whose value they are shaped like; none is the image.
    pub layer: Option<String>,
    /// How channels become a map; none if they are maps already.
    pub channels: Option<Reduction>,
}

/// What a repeated method found.
#[derive(Clone, Debug)]
pub struct Attributions {
    /// `[N, …]`, shaped as the site says.
    pub values: Tensor,
    /// What else is worth knowing.
    pub facts: Vec<Fact>,
}

/// A number for every sample that says how far a map can be trusted.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    /// What was measured.
    pub name: &'static str,
    /// One number for each sample.
    pub values: Vec<f64>,
}

/// A map that is asked for.
#[derive(Clone, Debug)]
pub struct Request {
    /// What it shows.
    pub method: Arc<dyn Method>,
    /// Where: a layer name, its input unless it ends in `:out`; none is the image.
    pub layer: Option<String>,
    /// How channels become a map.
    pub finish: Finish,
    /// What the method is called in the name of the graph's output; none is its own name.
    pub called: Option<String>,
}

impl Request {
    /// A map as the method defines it, at the layer's own resolution.
    pub fn new(method: impl Method + 'static, layer: impl Into<String>) -> Self {
        Request::of(Arc::new(method), Some(layer.into()))
    }

    /// A map at the image.
    pub fn at_input(method: impl Method + 'static) -> Self {
        Request::of(Arc::new(method), None)
    }

    /// A map by a method that was chosen at run time.
    pub fn of(method: Arc<dyn Method>, layer: Option<String>) -> Self {
        Request { method, layer, finish: Finish::default(), called: None }
    }

    /// Another finish.
    #[must_use]
    pub fn finish(self, finish: Finish) -> Self {
        Request { finish, ..self }
    }

    /// Another name of the method in that of the graph's output.
    #[must_use]
    pub fn called(self, name: impl Into<String>) -> Self {
        Request { called: Some(name.into()), ..self }
    }

    /// `saliency/METHOD/LAYER`, the name of the map among the outputs of a graph.
    pub(crate) fn output_name(&self) -> String {
        let method = self.called.clone().unwrap_or_else(|| self.method.name());
        format!("saliency/{method}/{}", self.layer.as_deref().unwrap_or("input"))
    }
}
