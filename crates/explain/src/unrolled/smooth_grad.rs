//! SmoothGrad and VarGrad as graphs: the noise is a constant, drawn from the seed.

use std::ops::Range;

use monosplit_graph::op::Reduction;
use monosplit_graph::{Graph, NodeId, Noise, Result, Tensor};

use super::CopiedNetwork;
use super::copies::one_copy;
use crate::explanation_builder::ExplanationBuilder;
use crate::method::{Attribution, GraphMethod};
use crate::methods::{SmoothGrad, Smoothed, Strength, VarGrad};

impl GraphMethod for SmoothGrad {
    fn write(&self, builder: &mut ExplanationBuilder<'_>, at: NodeId) -> Result<Attribution> {
        let moments = self.moments(builder, at, 1)?;
        Ok(Attribution::per_element(moments.mean, at, Reduction::Mean))
    }
}

impl GraphMethod for VarGrad {
    fn write(&self, builder: &mut ExplanationBuilder<'_>, at: NodeId) -> Result<Attribution> {
        let moments = self.smoothing().moments(builder, at, 2)?;
        let variance = builder.graph.scaled(1.0 / self.samples as f64, moments.spread)?;
        Ok(Attribution::per_element(variance, at, Reduction::Mean))
    }
}

/// The mean of some values, and the sum of their squared distances from it.
#[derive(Clone, Copy)]
struct Moments {
    mean: NodeId,
    spread: NodeId,
    count: usize,
}

impl Moments {
    /// Those of copies `[K, N, …]`.
    fn of(g: &mut Graph, copies: NodeId, count: usize) -> Result<Self> {
        let mean = g.reduced(Reduction::Mean, copies, &[0], true)?;
        let apart = g.minus(copies, mean)?;
        let squares = g.times(apart, apart)?;
        let spread = g.reduced(Reduction::Sum, squares, &[0], false)?;
        let shape = g.node(spread).shape.clone();
        Ok(Moments { mean: g.reshaped(mean, shape)?, spread, count })
    }

    /// Those of the values of both. The squares of the mean and of the values are not subtracted, because that cancels.
    fn and(self, g: &mut Graph, other: Moments) -> Result<Self> {
        let count = self.count + other.count;
        let share = other.count as f64 / count as f64;
        let apart = g.minus(other.mean, self.mean)?;
        let step = g.scaled(share, apart)?;
        let squares = g.times(apart, apart)?;
        let between = g.scaled(share * self.count as f64, squares)?;
        let within = g.plus(self.spread, other.spread)?;
        Ok(Moments { mean: g.plus(self.mean, step)?, spread: g.plus(within, between)?, count })
    }
}

impl SmoothGrad {
    /// The moments of what is averaged over the noisy copies.
    fn moments(&self, builder: &mut ExplanationBuilder<'_>, at: NodeId, least: usize) -> Result<Moments> {
        self.strength.check()?;
        crate::methods::check_samples(self.samples, least)?;
        let image = builder.image();
        let mut network = CopiedNetwork::gradients(builder, image, at, self.batch)?;
        let noise = Noise::new(self.seed).stream("noisy image");
        let mut found: Option<Moments> = None;
        for chunk in network.chunks(self.samples)? {
            let count = chunk.len();
            let copies = noisy(builder, self.strength, noise, chunk)?;
            let gradient = network.run(builder, copies)?.gradient;
            let g = &mut builder.graph;
            let values = match self.of {
                Smoothed::Gradient => gradient,
                Smoothed::Magnitude => g.magnitude(gradient)?,
                Smoothed::Square => g.times(gradient, gradient)?,
            };
            let own = Moments::of(g, values, count)?;
            found = Some(match found {
                Some(found) => found.and(g, own)?,
                None => own,
            });
        }
        found.ok_or_else(|| monosplit_graph::Error::argument("there are no noisy copies"))
    }
}

/// The noisy copies of these numbers, `[K, N, …]`.
pub(super) fn noisy(
    builder: &mut ExplanationBuilder<'_>,
    strength: Strength,
    noise: Noise,
    chunk: Range<usize>,
) -> Result<NodeId> {
    let image = builder.image();
    let layout = builder.layout(image)?;
    let rank = layout.dims().len() + 1;
    let length = layout.len() as u64;
    let shape = [&[chunk.len(), 1], layout.dims()].concat();
    let g = &mut builder.graph;
    let images = one_copy(g, image)?;
    let deviation = match strength {
        Strength::Deviation(0.0) | Strength::Share(0.0) => {
            let none = g
                .constant(Tensor::new([vec![chunk.len()], vec![1; rank]].concat(), vec![0f64; chunk.len()])?);
            return g.plus(images, none);
        }
        Strength::Deviation(deviation) => g.number(deviation),
        Strength::Share(share) => {
            let axes: Vec<usize> = (2..=rank).collect();
            let greatest = g.reduced(Reduction::Max, images, &axes, true)?;
            let least = g.reduced(Reduction::Min, images, &axes, true)?;
            let range = g.minus(greatest, least)?;
            g.scaled(share, range)?
        }
    };
    let numbers = chunk.flat_map(|number| {
        let noise = noise.numbered(number as u64);
        (0..length).map(move |element| noise.gaussian(element))
    });
    let drawn = g.constant(Tensor::new(shape, numbers.collect::<Vec<f64>>())?);
    let added = g.times(drawn, deviation)?;
    g.plus(images, added)
}
