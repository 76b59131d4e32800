//! What is read off at a layer, and how a tensor with channels becomes a map.

use std::fmt;

use monosplit_graph::op::{Coordinates, Interpolation, Reduction, ResizeAxis};
use monosplit_graph::{Dim, Error, Graph, NodeId, Op, Result, Shape};

use crate::channels::Axes;
use crate::relevance::Relevance;
use crate::scaled::{Scale, Scaled};
use crate::sensitivity::Sensitivity;

/// One of the two networks the split produces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Stream {
    /// `g`, whose output is the positive part.
    #[default]
    G,
    /// `h`, whose output is subtracted.
    H,
}

/// Which of a stream's two inputs a sensitivity belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Part {
    /// With respect to the activation itself: `(δ⁺ − δ⁻)/2`.
    #[default]
    Combined,
    /// `δ⁺`
    Plus,
    /// `δ⁻`
    Minus,
}

/// Which relevance of SplitLRP is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RelevanceMap {
    /// `R⁺`
    Pos,
    /// `R⁻`
    Neg,
    /// `R⁺ − R⁻`
    #[default]
    Comb,
}

/// What a map shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// Mean over channels of the ordinary gradient.
    Gradient,
    /// `Σ_c δ ⊙ a` of a stream: the paper's section "SplitCAM".
    SplitCam(Stream, Part),
    /// Mean over channels of a stream's sensitivities: the paper's "SplitGrad".
    SplitGrad(Stream, Part),
    /// Sum over channels of a stream's relevance: the paper's section "SplitLRP".
    SplitLrp(RelevanceMap),
}

impl Method {
    pub(crate) fn needs_sensitivities(self) -> bool {
        matches!(self, Method::SplitCam(..) | Method::SplitGrad(..))
    }

    pub(crate) fn needs_relevance(self) -> bool {
        matches!(self, Method::SplitLrp(_))
    }

    /// The method's name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Method::Gradient => "gradient",
            Method::SplitCam(..) => "splitcam",
            Method::SplitGrad(..) => "splitgrad",
            Method::SplitLrp(_) => "splitlrp",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Method::Gradient => Ok(()),
            Method::SplitCam(stream, part) | Method::SplitGrad(stream, part) => {
                let stream = if *stream == Stream::G { "g" } else { "h" };
                let part = match part {
                    Part::Combined => "",
                    Part::Plus => "+",
                    Part::Minus => "-",
                };
                write!(f, "-{stream}{part}")
            }
            Method::SplitLrp(RelevanceMap::Pos) => f.write_str("-pos"),
            Method::SplitLrp(RelevanceMap::Neg) => f.write_str("-neg"),
            Method::SplitLrp(RelevanceMap::Comb) => f.write_str("-comb"),
        }
    }
}

/// Where the absolute value is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Absolute {
    /// Nowhere: maps are signed.
    #[default]
    None,
    /// Of the finished map.
    Map,
    /// Of every channel, before they are added up.
    Channels,
}

/// The resolution of a map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Size {
    /// That of the layer.
    #[default]
    Layer,
    /// That of the network's input, by bilinear interpolation.
    Input,
}

/// How channels become a map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Finish {
    /// Where the absolute value is taken.
    pub absolute: Absolute,
    /// The map's resolution.
    pub size: Size,
}

/// `(±d ∓ E)/2` or `(σ ± d ∓ E)/2`, as the stream and the part say.
pub(crate) fn sensitivity(
    g: &mut Graph,
    scale: &Scale,
    m: Sensitivity,
    stream: Stream,
    part: Part,
) -> Result<Scaled> {
    // In every case the sensitivity is (c·σ + p·d + q·E)/2.
    let (c, p, q) = match (stream, part) {
        (Stream::G, Part::Combined) => (0.0, 1.0, -1.0),
        (Stream::G, Part::Plus) => (1.0, 1.0, -1.0),
        (Stream::G, Part::Minus) => (1.0, -1.0, 1.0),
        (Stream::H, Part::Combined) => (0.0, -1.0, -1.0),
        (Stream::H, Part::Plus) => (1.0, -1.0, -1.0),
        (Stream::H, Part::Minus) => (1.0, 1.0, 1.0),
    };
    let gradient = if p < 0.0 { g.negated(m.gradient)? } else { m.gradient };
    let mut total = Scaled::plain(gradient, crate::scaled::ACTIVATION_BOUND);
    if let Some(hidden) = m.hidden {
        total =
            scale.combine(g, total, hidden, |g, d, e| if q < 0.0 { g.minus(d, e) } else { g.plus(d, e) })?;
    }
    if c != 0.0 {
        total = scale.sum(g, total, m.mass)?;
    }
    total.map(g, |g, v| g.scaled(0.5, v))
}

/// `a`, `a⁺ = (s + a)/2` or `a⁻ = (s − a)/2`, as the part says.
pub(crate) fn activation(g: &mut Graph, scale: &Scale, a: NodeId, s: Scaled, part: Part) -> Result<Scaled> {
    let plain = Scaled::plain(a, crate::scaled::ACTIVATION_BOUND);
    let sum = match part {
        Part::Combined => return Ok(plain),
        Part::Plus => scale.combine(g, s, plain, |g, s, a| g.plus(s, a))?,
        Part::Minus => scale.combine(g, s, plain, |g, s, a| g.minus(s, a))?,
    };
    sum.map(g, |g, v| g.scaled(0.5, v))
}

/// `R⁺`, `R⁻` or their difference.
pub(crate) fn relevance(g: &mut Graph, r: Relevance, map: RelevanceMap) -> Result<NodeId> {
    match map {
        RelevanceMap::Pos => Ok(r.plus),
        RelevanceMap::Neg => Ok(r.minus),
        RelevanceMap::Comb => g.minus(r.plus, r.minus),
    }
}

/// The map of a tensor: channels reduced (a tensor without spatial axes is left as it is), absolute values and
/// resolution as asked.
pub(crate) fn finish(
    g: &mut Graph,
    value: NodeId,
    channels: Reduction,
    finish: Finish,
    axes: Axes,
    image: &Shape,
) -> Result<NodeId> {
    let mut map = value;
    if finish.absolute == Absolute::Channels {
        map = g.magnitude(map)?;
    }
    if let Some(axis) = axes.channels {
        map = g.reduced(channels, map, &[axis], false)?;
    }
    if finish.absolute == Absolute::Map {
        map = g.magnitude(map)?;
    }
    if finish.size == Size::Input {
        map = resized(g, map, image, axes.image_channels)?;
    }
    Ok(map)
}

/// A map `[N, H, W]` at the spatial size of the image, by bilinear interpolation with half-pixel centres.
fn resized(g: &mut Graph, map: NodeId, image: &Shape, image_channels: usize) -> Result<NodeId> {
    let shape = g.node(map).shape.clone();
    let spatial = image.dims().iter().enumerate().skip(1).filter(|(axis, _)| *axis != image_channels);
    let spatial: Vec<Dim> = spatial.map(|(_, &dim)| dim).collect();
    let bad = || {
        Error::argument(format!(
            "a map of shape {shape} cannot be drawn over an input of shape {image}; ask for the layer's own size"
        ))
    };
    if shape.rank() != spatial.len() + 1 || spatial.is_empty() {
        return Err(bad());
    }
    let mut axes = Vec::new();
    for (i, target) in spatial.iter().enumerate() {
        let (from, to) = (shape.fixed_at(i + 1).ok_or_else(bad)?, target.fixed().ok_or_else(bad)?);
        if from != to {
            axes.push(ResizeAxis { axis: i + 2, length: to, scale: to as f64 / from as f64 });
        }
    }
    if axes.is_empty() {
        return Ok(map);
    }
    let with_channel = |dims: &[Dim]| Shape::new([&dims[..1], &[Dim::Fixed(1)], &dims[1..]].concat());
    let channelled = g.reshaped(map, with_channel(shape.dims()))?;
    let op = Op::Resize { axes, interpolation: Interpolation::Linear, coordinates: Coordinates::HalfPixel };
    let resized = g.add(op, &[channelled])?;
    g.reshaped(resized, Shape::new([&shape.dims()[..1], &spatial].concat()))
}
