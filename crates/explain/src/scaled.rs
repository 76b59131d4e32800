//! Values with an exponent. Sums of magnitudes grow like products of `|W|` and would overflow in deep networks. Where a bound
//! known before the run allows an overflow, a value is held as `value·2^exponent` with one exponent for each sample; everywhere
//! else it is a plain value and costs nothing more.

use monosplit_graph::batch::sample_axis;
use monosplit_graph::op::{Binary, Reduction, Unary};
use monosplit_graph::{Dim, Graph, NodeId, Op, Result, Shape};

use crate::network::Network;

/// A value is rescaled before an operation that could take it past two to this power.
const LIMIT: f64 = 110.0;
/// A value below two to this power is handed out without an exponent.
const SETTLED: f64 = 126.0;
/// A rescaled value is at most two to this power; one below its inverse gives up as much of its exponent as it can.
const MODERATE: f64 = 40.0;
/// Two to this power is taken to bound the network's own activations.
pub(crate) const ACTIVATION_BOUND: f64 = 30.0;

/// `value·2^exponent`, and a bound on the value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scaled {
    /// The value, up to the exponent.
    pub(crate) value: NodeId,
    /// One exponent per sample (a number of its own if there are no samples), never negative; none is 0.
    pub(crate) exponent: Option<NodeId>,
    /// The value's magnitude is at most two to this power.
    pub(crate) bound: f64,
}

/// Adds arithmetic on [`Scaled`] values to a graph.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// Length of the sample axis of the network's input; none if samples depend on each other and share one exponent.
    samples: Option<Dim>,
}

impl Scaled {
    /// A value that needs no exponent.
    pub(crate) fn plain(value: NodeId, bound: f64) -> Self {
        Scaled { value, exponent: None, bound }
    }

    /// The same exponent with another value whose bound is `growth` larger.
    pub(crate) fn grown(self, value: NodeId, growth: f64) -> Self {
        Scaled { value, bound: self.bound + growth, ..self }
    }

    /// Another value under the same exponent, by a linear operation that cannot enlarge it.
    pub(crate) fn map(
        self,
        g: &mut Graph,
        f: impl FnOnce(&mut Graph, NodeId) -> Result<NodeId>,
    ) -> Result<Self> {
        Ok(Scaled { value: f(g, self.value)?, ..self })
    }
}

impl Scale {
    /// One exponent for each of this number of samples.
    pub(crate) fn per_sample_of(samples: Dim) -> Self {
        Scale { samples: Some(samples) }
    }

    /// One exponent for each sample of a network, or one for all if its samples depend on each other.
    pub(crate) fn of(network: &Network) -> Self {
        Scale { samples: (!network.mixes_samples()).then(|| network.samples()) }
    }

    /// The sample axis of a value, how many of its elements belong to a sample, and the number of samples.
    fn axis(&self, g: &Graph, id: NodeId) -> Option<(usize, usize, Dim)> {
        let samples = self.samples?;
        let (axis, per_sample) = sample_axis(g.node(id).shape.dims(), samples)?;
        Some((axis, per_sample, samples))
    }

    /// `a`, rescaled if an operation that enlarges it by up to two to the power `growth` could overflow.
    pub(crate) fn ready(&self, g: &mut Graph, a: Scaled, growth: f64) -> Result<Scaled> {
        if a.bound + growth <= LIMIT {
            return Ok(a);
        }
        let magnitude = g.magnitude(a.value)?;
        let (raise, exponent) = self.raise(g, magnitude, a.exponent)?;
        let value = self.lowered(g, a.value, raise)?;
        Ok(Scaled { value, exponent: Some(exponent), bound: MODERATE })
    }

    /// The same for two values of one shape, under one exponent and with one bound.
    pub(crate) fn ready_alike(
        &self,
        g: &mut Graph,
        a: Scaled,
        b: Scaled,
        growth: f64,
    ) -> Result<[Scaled; 2]> {
        if a.bound.max(b.bound) + growth <= LIMIT {
            return Ok([a, b]);
        }
        let (first, second) = (g.magnitude(a.value)?, g.magnitude(b.value)?);
        let magnitude = g.binary(Binary::Max, first, second)?;
        let (raise, exponent) = self.raise(g, magnitude, a.exponent)?;
        let mut rescaled = |value: NodeId| -> Result<Scaled> {
            let value = self.lowered(g, value, raise)?;
            Ok(Scaled { value, exponent: Some(exponent), bound: MODERATE })
        };
        Ok([rescaled(a.value)?, rescaled(b.value)?])
    }

    /// What is to be added to the exponent of each sample so that `magnitude` is moderate, and the sum.
    fn raise(&self, g: &mut Graph, magnitude: NodeId, exponent: Option<NodeId>) -> Result<(NodeId, NodeId)> {
        let largest = self.largest(g, magnitude)?;
        let power = power_of_two(g, largest)?;
        let power = g.unary(Unary::Ceil, power)?;
        let (none, large, small) = (g.number(0.0), g.number(MODERATE), g.number(-MODERATE));
        let too_large = g.binary(Binary::Greater, power, large)?;
        let raise = g.select(too_large, power, none)?;
        let Some(exponent) = exponent else { return Ok((raise, raise)) };
        let all = g.negated(exponent)?;
        let fall = g.binary(Binary::Max, power, all)?;
        let too_small = g.binary(Binary::Less, power, small)?;
        let raise = g.select(too_small, fall, raise)?;
        Ok((raise, g.plus(exponent, raise)?))
    }

    /// `value·2^(−raise)`, sample by sample.
    fn lowered(&self, g: &mut Graph, value: NodeId, raise: NodeId) -> Result<NodeId> {
        let factor = self.power(g, raise, value, -1.0)?;
        g.times(value, factor)
    }

    /// The same numbers, with exponent zero for all samples that fit in single precision.
    pub(crate) fn settled(&self, g: &mut Graph, a: Scaled) -> Result<Scaled> {
        let Some(exponent) = a.exponent else { return Ok(a) };
        let magnitude = g.magnitude(a.value)?;
        let largest = self.largest(g, magnitude)?;
        let power = power_of_two(g, largest)?;
        let power = g.plus(power, exponent)?;
        let most = g.number(SETTLED);
        let fits = g.binary(Binary::Less, power, most)?;
        let none = g.number(0.0);
        let applied = g.select(fits, exponent, none)?;
        let factor = self.power(g, applied, a.value, 1.0)?;
        let exponent = g.minus(exponent, applied)?;
        Ok(Scaled { value: g.times(a.value, factor)?, exponent: Some(exponent), bound: LIMIT })
    }

    /// The largest element of each sample.
    pub(crate) fn largest(&self, g: &mut Graph, a: NodeId) -> Result<NodeId> {
        self.reduced(g, Reduction::Max, a)
    }

    /// The sum of the squares of each sample.
    pub(crate) fn sum_of_squares(&self, g: &mut Graph, a: NodeId) -> Result<NodeId> {
        let squares = g.times(a, a)?;
        self.reduced(g, Reduction::Sum, squares)
    }

    /// The elements of each sample, reduced to one number.
    pub(crate) fn reduced(&self, g: &mut Graph, reduction: Reduction, a: NodeId) -> Result<NodeId> {
        let shape = g.node(a).shape.clone();
        let Some((axis, per_sample, samples)) = self.axis(g, a) else {
            let axes: Vec<usize> = (0..shape.rank()).collect();
            return if axes.is_empty() { Ok(a) } else { g.reduced(reduction, a, &axes, false) };
        };
        let others: Vec<usize> = (0..shape.rank()).filter(|&i| i != axis).collect();
        let reduced = if others.is_empty() { a } else { g.reduced(reduction, a, &others, false)? };
        if per_sample == 1 {
            return Ok(reduced);
        }
        let grouped = g.reshaped(reduced, Shape::new([samples, Dim::Fixed(per_sample)]))?;
        g.reduced(reduction, grouped, &[1], false)
    }

    /// One number per sample, shaped to be broadcast against `like`.
    pub(crate) fn per_sample(&self, g: &mut Graph, numbers: NodeId, like: NodeId) -> Result<NodeId> {
        let shape = g.node(like).shape.clone();
        let Some((axis, per_sample, samples)) = self.axis(g, like) else { return Ok(numbers) };
        if g.node(numbers).shape.rank() == 0 {
            return Ok(numbers);
        }
        let numbers = if per_sample == 1 {
            numbers
        } else {
            let column = g.reshaped(numbers, Shape::new([samples, Dim::Fixed(1)]))?;
            g.add(Op::Expand { shape: Shape::new([samples, Dim::Fixed(per_sample)]) }, &[column])?
        };
        let mut dims = vec![Dim::Fixed(1); shape.rank()];
        dims[axis] = shape.dims()[axis];
        g.reshaped(numbers, Shape::new(dims))
    }

    /// `2^(sign·exponent)`, shaped to be broadcast against `like`.
    pub(crate) fn power(&self, g: &mut Graph, exponent: NodeId, like: NodeId, sign: f64) -> Result<NodeId> {
        let two = g.number(2.0);
        let exponent = g.scaled(sign, exponent)?;
        let power = g.binary(Binary::Pow, two, exponent)?;
        self.per_sample(g, power, like)
    }

    /// A value without its exponent.
    pub(crate) fn raised(&self, g: &mut Graph, value: NodeId, exponent: Option<NodeId>) -> Result<NodeId> {
        let Some(exponent) = exponent else { return Ok(value) };
        let factor = self.power(g, exponent, value, 1.0)?;
        g.times(value, factor)
    }

    /// A plain value under the exponent of `like`.
    pub(crate) fn under(&self, g: &mut Graph, plain: NodeId, like: Scaled) -> Result<NodeId> {
        match like.exponent {
            None => Ok(plain),
            Some(exponent) => {
                let factor = self.power(g, exponent, like.value, -1.0)?;
                g.times(plain, factor)
            }
        }
    }

    /// Both values under one exponent, the larger of the two.
    pub(crate) fn aligned(
        &self,
        g: &mut Graph,
        a: Scaled,
        b: Scaled,
    ) -> Result<(NodeId, NodeId, Option<NodeId>)> {
        let (ea, eb) = match (a.exponent, b.exponent) {
            (None, None) => return Ok((a.value, b.value, None)),
            (Some(ea), Some(eb)) if ea == eb => return Ok((a.value, b.value, Some(ea))),
            (ea, eb) => {
                let zero = g.number(0.0);
                (ea.unwrap_or(zero), eb.unwrap_or(zero))
            }
        };
        let larger = g.binary(Binary::Max, ea, eb)?;
        let like = [self.sampled(g, a.value, b.value), self.sampled(g, b.value, a.value)];
        let mut lowered = |value: NodeId, like: NodeId, exponent: NodeId| -> Result<NodeId> {
            let drop = g.minus(larger, exponent)?;
            let factor = self.power(g, drop, like, -1.0)?;
            g.times(value, factor)
        };
        Ok((lowered(a.value, like[0], ea)?, lowered(b.value, like[1], eb)?, Some(larger)))
    }

    /// `value`, or `other` if only that has a sample axis: exponents are shaped by it.
    fn sampled(&self, g: &Graph, value: NodeId, other: NodeId) -> NodeId {
        let has_samples = |id: NodeId| self.axis(g, id).is_some();
        if !has_samples(value) && has_samples(other) { other } else { value }
    }

    /// `f(a, b)` of two values under one exponent, for an `f` that is linear in both together and adds at most
    /// their magnitudes.
    pub(crate) fn combine(
        &self,
        g: &mut Graph,
        a: Scaled,
        b: Scaled,
        f: impl FnOnce(&mut Graph, NodeId, NodeId) -> Result<NodeId>,
    ) -> Result<Scaled> {
        let (a, b) = (self.ready(g, a, 1.0)?, self.ready(g, b, 1.0)?);
        let (va, vb, exponent) = self.aligned(g, a, b)?;
        let value = f(g, va, vb)?;
        Ok(Scaled { value, exponent, bound: a.bound.max(b.bound) + 1.0 })
    }

    /// `a + b`
    pub(crate) fn sum(&self, g: &mut Graph, a: Scaled, b: Scaled) -> Result<Scaled> {
        self.combine(g, a, b, |g, a, b| g.plus(a, b))
    }

    /// The sum of those that are there; nothing is zero.
    pub(crate) fn sum_of(
        &self,
        g: &mut Graph,
        a: Option<Scaled>,
        b: Option<Scaled>,
    ) -> Result<Option<Scaled>> {
        match (a, b) {
            (Some(a), Some(b)) => self.sum(g, a, b).map(Some),
            (a, b) => Ok(a.or(b)),
        }
    }

    /// `a·b`, elementwise.
    pub(crate) fn product(&self, g: &mut Graph, a: Scaled, b: Scaled) -> Result<Scaled> {
        let (a, b) = self.ready_pair(g, a, b, 0.0)?;
        let value = g.times(a.value, b.value)?;
        let exponent = self.exponent_sum(g, a.exponent, b.exponent)?;
        Ok(Scaled { value, exponent, bound: a.bound + b.bound })
    }

    /// Both values, rescaled if a product that enlarges it by up to two to the power `growth` could overflow.
    pub(crate) fn ready_pair(
        &self,
        g: &mut Graph,
        a: Scaled,
        b: Scaled,
        growth: f64,
    ) -> Result<(Scaled, Scaled)> {
        let a = self.ready(g, a, b.bound.min(LIMIT / 2.0) + growth)?;
        let b = self.ready(g, b, a.bound + growth)?;
        Ok((a, b))
    }

    /// The exponent of a product.
    pub(crate) fn exponent_sum(
        &self,
        g: &mut Graph,
        a: Option<NodeId>,
        b: Option<NodeId>,
    ) -> Result<Option<NodeId>> {
        match (a, b) {
            (Some(a), Some(b)) => g.plus(a, b).map(Some),
            (a, b) => Ok(a.or(b)),
        }
    }
}

/// `log₂ a`; for zero that of the smallest normal number.
fn power_of_two(g: &mut Graph, a: NodeId) -> Result<NodeId> {
    let smallest = g.number(f64::from(f32::MIN_POSITIVE));
    let a = g.binary(Binary::Max, a, smallest)?;
    let power = g.unary(Unary::Log, a)?;
    g.scaled(std::f64::consts::LOG2_E, power)
}
