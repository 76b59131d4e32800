//! Fused SplitCAM: the SplitCAMs of a chain of layers, combined into one map at the resolution of the finest.
//!
//! Coarse layers know what an object is and fine ones where it ends. One backward walk passes all of them, so that the chain costs
//! little more than its finest layer alone.

use monosplit_graph::address::LayerName;
use monosplit_graph::op::{Binary, Reduction, Unary};
use monosplit_graph::{Error, Graph, NodeId, Result};

use crate::explanation_builder::ExplanationBuilder;
use crate::finish::{Upsampling, on_patches, resized};
use crate::method::{Attribution, GraphMethod, Method, Procedure};
use crate::methods::SplitCam;
use crate::resolution_stages::resolution_stages;
use crate::scaled::Scaled;
use crate::split::{AlphaInput, Split};
use crate::split_streams::{Stream, StreamPart};

/// The largest logarithm of a product; beyond it single precision would overflow.
const LARGEST_LOGARITHM: f64 = 80.0;
/// How far the mean of a map may raise it, as a power of two: room for the sum over all positions.
const SUM_BOUND: f64 = 24.0;

/// How the maps of the layers become one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Combination {
    /// Their product: what all layers agree on.
    #[default]
    Product,
    /// Their arithmetic mean: what any layer says.
    Mean,
    /// Their harmonic mean: what the least convinced layer says.
    HarmonicMean,
}

/// `Π_l (p_l² + ε)^(γ/2)` over a chain of layers: `p_l` is the positive part of the layer's SplitCAM over its mean, brought to the
/// size of the attributed value by bilinear interpolation. The means take the same `(p_l² + ε)^(γ/2)`.
///
/// At the image the chain is that of the network's resolution stages, from the image on; at a layer, those of them from the
/// layer on. No labels and no masks choose it.
#[derive(Clone, Debug, PartialEq)]
pub struct FusedSplitCam {
    /// The choices of the split.
    pub split: Split,
    /// The network of the pair.
    pub stream: Stream,
    /// Which of the stream's inputs.
    pub part: StreamPart,
    /// The layers; none are the network's resolution stages.
    pub layers: Vec<String>,
    /// How their maps become one.
    pub combination: Combination,
    /// `ε`, below which a layer does not tell positions apart.
    pub epsilon: f64,
    /// `γ`, how strongly a map concentrates.
    pub exponent: f64,
}

impl Default for FusedSplitCam {
    fn default() -> Self {
        FusedSplitCam {
            split: Split::default().alpha(AlphaInput::Share),
            stream: Stream::default(),
            part: StreamPart::default(),
            layers: Vec::new(),
            combination: Combination::default(),
            epsilon: 0.01,
            exponent: 1.0,
        }
    }
}

impl Method for FusedSplitCam {
    fn name(&self) -> String {
        format!("splitcam-fused-{}{}", self.stream.letter(), self.part.sign())
    }

    fn procedure(&self) -> Procedure<'_> {
        Procedure::GraphMethod(self)
    }
}

impl GraphMethod for FusedSplitCam {
    fn write(&self, builder: &mut ExplanationBuilder<'_>, at: NodeId) -> Result<Attribution> {
        let chain = self.chain(builder, at)?;
        let shape = builder.graph.node(at).shape.clone();
        let axes = builder.axes(at)?;
        let channels = axes.channels.ok_or_else(|| {
            Error::argument("maps are combined position by position, and this value has no positions; choose another layer")
                .at(builder.network.graph().node(at).label.display())
        })?;
        let mut maps = Vec::with_capacity(chain.len());
        for layer in chain {
            let map = self.positive_over_mean(builder, layer)?;
            let g = &mut builder.graph;
            let map = resized(g, map, &shape, channels, Upsampling::Bilinear)?;
            let squared = g.times(map, map)?;
            let raised = g.offset(self.epsilon, squared)?;
            let logarithm = g.unary(Unary::Log, raised)?;
            maps.push(g.scaled(self.exponent / 2.0, logarithm)?);
        }
        let map = combined(&mut builder.graph, &maps, self.combination)?;
        Ok(Attribution::per_position(map, at))
    }
}

impl FusedSplitCam {
    /// The values whose maps are combined, from fine to coarse.
    fn chain(&self, builder: &ExplanationBuilder<'_>, at: NodeId) -> Result<Vec<NodeId>> {
        let graph = builder.network.graph();
        if !self.layers.is_empty() {
            return self.layers.iter().map(|name| LayerName::parse(name).value(graph)).collect();
        }
        let from_here = graph.descendants([at]);
        let mut chain = resolution_stages(graph, builder.image(), builder.scores());
        chain.retain(|&layer| layer == at || from_here[layer.index()]);
        match chain.is_empty() {
            true => Err(Error::argument(
                "no convolution reads a map with positions from here to the class scores; name the layers that are combined",
            )
            .at(graph.node(at).label.display())),
            false => Ok(chain),
        }
    }

    /// `relu(M)/mean(relu(M))` of the layer's SplitCAM `M`, at its own size; zero where `M` is positive nowhere.
    fn positive_over_mean(&self, builder: &mut ExplanationBuilder<'_>, layer: NodeId) -> Result<NodeId> {
        let cam = SplitCam { split: self.split, stream: self.stream, part: self.part };
        let attribution = cam.write(builder, layer)?;
        let axes = builder.axes(layer)?;
        let image = builder.graph.node(builder.image()).shape.clone();
        let (g, scale) = (&mut builder.graph, builder.scale);
        // What a sample's map is multiplied by drops out when it is divided by its mean, and so does the exponent.
        let Scaled { value, .. } = scale.ready(g, attribution.value, SUM_BOUND)?;
        let Some(channels) = axes.channels else {
            return Err(Error::argument("a layer whose maps are combined must have positions").at(builder
                .network
                .graph()
                .node(layer)
                .label
                .display()));
        };
        let map = g.reduced(Reduction::Sum, value, &[channels], false)?;
        let map = on_patches(g, map, &image, axes.image_channels)?;
        let positive = g.rectified(map)?;
        let positions: Vec<usize> = (1..g.node(positive).shape.rank()).collect();
        let mean = g.reduced(Reduction::Mean, positive, &positions, true)?;
        let tiny = g.number(f64::from(f32::MIN_POSITIVE));
        let mean = g.binary(Binary::Max, mean, tiny)?;
        g.over(positive, mean)
    }
}

/// Maps given by their logarithms, as one map.
fn combined(g: &mut Graph, logarithms: &[NodeId], how: Combination) -> Result<NodeId> {
    let mut terms = Vec::with_capacity(logarithms.len());
    for &logarithm in logarithms {
        terms.push(match how {
            Combination::Product => logarithm,
            Combination::Mean => g.unary(Unary::Exp, logarithm)?,
            Combination::HarmonicMean => {
                let inverse = g.negated(logarithm)?;
                g.unary(Unary::Exp, inverse)?
            }
        });
    }
    let mut sum = terms[0];
    for &term in &terms[1..] {
        sum = g.plus(sum, term)?;
    }
    let count = terms.len() as f64;
    match how {
        Combination::Product => {
            let largest = g.number(LARGEST_LOGARITHM);
            let sum = g.binary(Binary::Min, sum, largest)?;
            g.unary(Unary::Exp, sum)
        }
        Combination::Mean => g.scaled(1.0 / count, sum),
        Combination::HarmonicMean => {
            let inverse = g.unary(Unary::Reciprocal, sum)?;
            g.scaled(count, inverse)
        }
    }
}
