//! Score-CAM as a graph: the channels of the layer, enlarged, are the masks of the copies.

use std::ops::Range;

use monosplit_graph::op::{Binary, Coordinates, Interpolation, Reduction, ResizeAxis, Unary};
use monosplit_graph::{Dim, Graph, NodeId, Op, Result, Shape};

use super::CopiedNetwork;
use super::copies::{one_copy, over_channels};
use crate::explanation_builder::ExplanationBuilder;
use crate::method::{Attribution, GraphMethod};
use crate::methods::{Definition, SPAN, ScoreCam, check_layouts};

impl GraphMethod for ScoreCam {
    fn write(&self, builder: &mut ExplanationBuilder<'_>, at: NodeId) -> Result<Attribution> {
        let layout = builder.layout(at)?;
        let image = builder.image();
        let size = builder.layout(image)?;
        check_layouts(&layout, &size)?;
        let mut network = CopiedNetwork::scores(builder, image, self.batch)?;
        let axes = builder.axes(at)?;
        let image_channels = builder.axes(image)?.channels;
        let channels = channels_first(&mut builder.graph, at, axes.channels)?;
        let mut measured = Vec::new();
        for chunk in network.chunks(layout.channels())? {
            let g = &mut builder.graph;
            let (mask, is_varied) = self.masks(g, channels, chunk, size.spatial_dims())?;
            let mask = over_channels(g, mask, image_channels)?;
            let images = one_copy(g, image)?;
            let copies = g.times(mask, images)?;
            let outputs = network.run(builder, copies)?;
            measured.push(match self.definition {
                Definition::GradCam => outputs.score(builder)?,
                // The score of the empty image is the same for all channels: a softmax over channels cancels it.
                Definition::Paper => {
                    let found = outputs.probability(builder)?;
                    let none = builder.graph.number(f64::NEG_INFINITY);
                    builder.graph.select(is_varied, found, none)?
                }
            });
        }
        let g = &mut builder.graph;
        let measured = g.add(Op::Concat { axis: 0 }, &measured)?;
        let weights = match self.definition {
            Definition::GradCam => g.add(Op::Softmax { axis: 0 }, &[measured])?,
            Definition::Paper => shares(g, measured)?,
        };
        let value = weighted(g, channels, weights, self.rectified)?;
        Ok(Attribution::per_position(value, at))
    }
}

impl ScoreCam {
    /// The masks of these channels, `[K, N, …]` with these lengths, and whether each varies, `[K, N]`.
    fn masks(
        &self,
        g: &mut Graph,
        channels: NodeId,
        chunk: Range<usize>,
        lengths: &[usize],
    ) -> Result<(NodeId, NodeId)> {
        let count = chunk.len();
        let own = Op::Slice { axis: 0, start: chunk.start, step: 1, length: count };
        let own = g.add(own, &[channels])?;
        let dims = g.node(own).shape.dims().to_vec();
        let rows = dims[0].times(dims[1]).unwrap_or(dims[1]);
        let mut mask = g.reshaped(own, Shape::new([&[rows, Dim::Fixed(1)], &dims[2..]].concat()))?;
        let resized = lengths.iter().enumerate().filter_map(|(axis, &length)| {
            let from = dims[axis + 2].fixed().filter(|&from| from != length)?;
            Some(ResizeAxis { axis: axis + 2, length, scale: length as f64 / from as f64 })
        });
        let axes: Vec<ResizeAxis> = resized.collect();
        if !axes.is_empty() {
            let coordinates = match self.definition {
                Definition::GradCam => Coordinates::AlignCorners,
                Definition::Paper => Coordinates::HalfPixel,
            };
            mask = g.add(Op::Resize { axes, interpolation: Interpolation::Linear, coordinates }, &[mask])?;
        }
        let size: Vec<Dim> =
            dims[..2].iter().copied().chain(lengths.iter().map(|&length| length.into())).collect();
        let mask = g.reshaped(mask, Shape::new(size))?;
        let spatial: Vec<usize> = (2..lengths.len() + 2).collect();
        let least = g.reduced(Reduction::Min, mask, &spatial, true)?;
        let greatest = g.reduced(Reduction::Max, mask, &spatial, true)?;
        let span = g.minus(greatest, least)?;
        let is_varied = g.more_than(span, 0.0)?;
        let raised = g.minus(mask, least)?;
        let mask = match self.definition {
            Definition::GradCam => {
                let span = g.offset(SPAN, span)?;
                g.over(raised, span)?
            }
            Definition::Paper => {
                let one = g.number(1.0);
                let span = g.select(is_varied, span, one)?;
                g.over(raised, span)?
            }
        };
        Ok((mask, g.reshaped(is_varied, Shape::new(&dims[..2]))?))
    }
}

/// A softmax over the first axis in which −∞ has no share; zero where nothing else is there.
fn shares(g: &mut Graph, measured: NodeId) -> Result<NodeId> {
    let greatest = g.reduced(Reduction::Max, measured, &[0], true)?;
    let lowest = g.number(f64::from(f32::MIN));
    let greatest = g.binary(Binary::Max, greatest, lowest)?;
    let below = g.minus(measured, greatest)?;
    let powers = g.unary(Unary::Exp, below)?;
    let total = g.reduced(Reduction::Sum, powers, &[0], true)?;
    let is_any = g.more_than(total, 0.0)?;
    let one = g.number(1.0);
    let total = g.select(is_any, total, one)?;
    g.over(powers, total)
}

/// The channels of a value `[N, …]` as `[C, N, …]`.
pub(super) fn channels_first(g: &mut Graph, at: NodeId, channels: Option<usize>) -> Result<NodeId> {
    let Some(channels) = channels else { return one_copy(g, at) };
    let rest = (0..g.node(at).shape.rank()).filter(|axis| *axis != channels);
    let axes: Vec<usize> = std::iter::once(channels).chain(rest).collect();
    g.add(Op::Transpose { axes }, &[at])
}

/// `Σ_c w_c a_c` of channels `[C, N, …]` and weights `[C, N]`.
pub(super) fn weighted(g: &mut Graph, channels: NodeId, weights: NodeId, rectified: bool) -> Result<NodeId> {
    let rank = g.node(channels).shape.rank() - 1;
    let weights = super::copies::as_factors(g, weights, rank)?;
    let product = g.times(channels, weights)?;
    let map = g.reduced(Reduction::Sum, product, &[0], false)?;
    if rectified { g.rectified(map) } else { Ok(map) }
}
