//! What the split's three methods read: the streams, sensitivities and relevances of a value, each built once for every
//! set of choices.

use std::rc::Rc;

use monosplit_autodiff::Walk;
use monosplit_graph::{Graph, NodeId, Result, Shape};

use crate::explanation::inputs;
use crate::relevance::{EPSILON, Handed, Relevance, Relevances};
use crate::scaled::{Scale, Scaled};
use crate::sensitivity::{Sensitivities, Sensitivity};
use crate::shift::Shifts;
use crate::split::{Split, Stabiliser};
use crate::sum_stream::{SumStream, Thresholds};
use crate::writing::Writing;

/// One of the two networks the split produces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Stream {
    /// `g`, whose output is the positive part.
    #[default]
    G,
    /// `h`, whose output is subtracted.
    H,
}

impl Stream {
    /// The letter it goes by.
    pub fn letter(self) -> char {
        match self {
            Stream::G => 'g',
            Stream::H => 'h',
        }
    }
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

impl Part {
    /// The sign it goes by; nothing if it is both.
    pub fn sign(self) -> &'static str {
        match self {
            Part::Combined => "",
            Part::Plus => "+",
            Part::Minus => "-",
        }
    }
}

impl Writing<'_> {
    /// The sum stream; one that a relevance walk reads keeps what affine nodes add up before their bias.
    pub(crate) fn stream(&mut self, split: &Split, keep_contributions: bool) -> Result<Rc<SumStream>> {
        self.shared(&(split, keep_contributions), |writing| {
            let thresholds = match split.stabiliser {
                Stabiliser::Scale => Some(Thresholds {
                    theta: writing.added_input(inputs::THETA, Shape::default())?,
                    limit: writing.added_input(inputs::LIMIT, Shape::default())?,
                }),
                _ => None,
            };
            SumStream::build(&mut writing.graph, writing.network, split, thresholds, keep_contributions)
        })
    }

    /// `(d, E, σ)` of the value `at`.
    pub(crate) fn sensitivities(&mut self, split: &Split, at: NodeId) -> Result<Sensitivity> {
        self.message(split, at, |writing| {
            let stream = writing.stream(split, false)?;
            let shifts = Rc::new(Shifts::new(writing, split)?);
            let (scale, network) = (writing.scale, writing.network.clone());
            let (seed, scores) = (writing.seed(), writing.scores());
            let mass = Scaled::plain(writing.graph.times(seed, shifts.seed())?, 0.0);
            let message = Sensitivity { gradient: seed, hidden: None, mass };
            let rules = Sensitivities { network, split: *split, scale, stream, shifts };
            Ok(Walk::new(rules, scores, message))
        })
    }

    /// `(R⁺, R⁻)` of the value `at`, and the exponent all of them are under.
    pub(crate) fn relevances(&mut self, split: &Split, at: NodeId) -> Result<(Relevance, Option<NodeId>)> {
        self.relevances_with(split, EPSILON, at)
    }

    /// The same with another stabiliser of the denominators.
    pub(crate) fn relevances_with(
        &mut self,
        split: &Split,
        epsilon: f64,
        at: NodeId,
    ) -> Result<(Relevance, Option<NodeId>)> {
        let seed = self.shared(&("relevance", split), |writing| {
            let stream = writing.stream(split, true)?;
            let (scores, scale) = (writing.scores(), writing.scale);
            activation(&mut writing.graph, &scale, scores, stream.at(scores), Part::Plus)
        })?;
        let handed = self.relevance_handed(split, epsilon)?;
        let relevance = self.message(&(split, epsilon.to_bits()), at, |writing| {
            let stream = writing.stream(split, true)?;
            let (scores, one_hot) = (writing.scores(), writing.seed());
            let plus = writing.graph.times(one_hot, seed.value)?;
            let minus = writing.graph.scaled(0.0, plus)?;
            let (network, scale) = (writing.network.clone(), writing.scale);
            let rules = Relevances { epsilon, network, scale, stream, handed };
            Ok(Walk::new(rules, scores, Relevance { plus, minus }))
        })?;
        Ok((relevance, seed.exponent))
    }

    /// The relevance that [`Writing::relevances_with`] has handed to weighted sums so far, and these sums.
    pub(crate) fn relevance_handed(&mut self, split: &Split, epsilon: f64) -> Result<Rc<Handed>> {
        self.shared(&("handed", split, epsilon.to_bits()), |_| Ok(Handed::default()))
    }
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
