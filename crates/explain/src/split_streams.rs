//! The streams, sensitivities and relevances of the split, each built once for every set of options, and the maps that combine
//! them.

use std::rc::Rc;

use monosplit_autodiff::Walk;
use monosplit_graph::{Graph, NodeId, Result, Shape};

use crate::explanation_builder::ExplanationBuilder;
use crate::explanation_graph::inputs;
use crate::hidden_share::with_share;
use crate::relevance::{EPSILON, RecordedRelevance, Relevance, Relevances};
use crate::scaled::{Scale, Scaled};
use crate::sensitivity::{Sensitivities, Sensitivity};
use crate::shift::Shifts;
use crate::split::{AlphaInput, Invariant, Split, Stabiliser};
use crate::sum_stream::{SumStream, Thresholds};

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
    /// `g` or `h`.
    pub fn letter(self) -> char {
        match self {
            Stream::G => 'g',
            Stream::H => 'h',
        }
    }
}

/// Which of a stream's two inputs a sensitivity belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StreamPart {
    /// With respect to the activation itself: `(δ⁺ − δ⁻)/2`.
    #[default]
    Combined,
    /// `δ⁺`
    Plus,
    /// `δ⁻`
    Minus,
}

impl StreamPart {
    /// `+`, `-`, or nothing for both combined.
    pub fn sign(self) -> &'static str {
        match self {
            StreamPart::Combined => "",
            StreamPart::Plus => "+",
            StreamPart::Minus => "-",
        }
    }
}

impl ExplanationBuilder<'_> {
    /// The sum stream. For relevance walks it also keeps the sums of affine nodes before their bias.
    pub(crate) fn stream(&mut self, split: &Split, keep_contributions: bool) -> Result<Rc<SumStream>> {
        self.shared((*split, keep_contributions), |builder| {
            let thresholds = match split.stabiliser {
                Stabiliser::Scale => Some(Thresholds {
                    theta: builder.added_input(inputs::THETA, Shape::default())?,
                    limit: builder.added_input(inputs::LIMIT, Shape::default())?,
                }),
                _ => None,
            };
            SumStream::build(&mut builder.graph, builder.network, split, thresholds, keep_contributions)
        })
    }

    /// `(d, E, σ)` of the value `at`.
    pub(crate) fn sensitivities(&mut self, split: &Split, at: NodeId) -> Result<Sensitivity> {
        let message = self.message(*split, at, |builder| {
            let stream = builder.stream(split, false)?;
            let shifts = Rc::new(Shifts::new(builder, split)?);
            let (scale, network) = (builder.scale, builder.network.clone());
            let (seed, scores) = (builder.seed(), builder.scores());
            let mass = Scaled::plain(shifts.mass_of_scores(&mut builder.graph, seed)?, 0.0);
            let gradient = match split.invariant {
                Invariant::Halved => seed,
                Invariant::Whole => builder.graph.scaled(0.5, seed)?,
            };
            let message = Sensitivity { gradient, hidden: None, mass };
            let rules = Sensitivities { network, split: *split, scale, stream, shifts };
            Ok(Walk::new(rules, scores, message))
        })?;
        if split.alpha != AlphaInput::Share {
            return Ok(message);
        }
        let share = self.added_input(inputs::SHARE, Shape::default())?;
        with_share(&mut self.graph, &self.scale, message, share)
    }

    /// `(R⁺, R⁻)` of the value `at`, each under its exponent.
    pub(crate) fn relevances(&mut self, split: &Split, at: NodeId) -> Result<[Scaled; 2]> {
        let relevance = self.relevances_with(split, EPSILON, at)?;
        let seed = self.relevance_seed(split)?;
        let exponent = self.scale.exponent_sum(&mut self.graph, seed.exponent, relevance.exponent)?;
        Ok([relevance.plus, relevance.minus].map(|value| Scaled { value, exponent, bound: relevance.bound }))
    }

    /// `a⁺` of the class scores, the relevance that is handed down.
    fn relevance_seed(&mut self, split: &Split) -> Result<Rc<Scaled>> {
        self.shared(*split, |builder| {
            let stream = builder.stream(split, true)?;
            let (scores, scale) = (builder.scores(), builder.scale);
            activation(&mut builder.graph, &scale, scores, stream.at(scores), StreamPart::Plus)
        })
    }

    /// The same with another stabiliser of the denominators, under the exponent of the relevance of the class scores.
    pub(crate) fn relevances_with(&mut self, split: &Split, epsilon: f64, at: NodeId) -> Result<Relevance> {
        let seed = self.relevance_seed(split)?;
        let recorded = self.recorded_relevance(split, epsilon)?;
        self.message((*split, epsilon.to_bits()), at, |builder| {
            let stream = builder.stream(split, true)?;
            let (scores, one_hot) = (builder.scores(), builder.seed());
            let plus = builder.graph.times(one_hot, seed.value)?;
            let minus = builder.graph.scaled(0.0, plus)?;
            let (network, scale) = (builder.network.clone(), builder.scale);
            let rules = Relevances { epsilon, network, scale, stream, recorded };
            Ok(Walk::new(rules, scores, Relevance::beginning(plus, minus)))
        })
    }

    /// The record of relevance handed to weighted sums by [`ExplanationBuilder::relevances_with`] so far.
    pub(crate) fn recorded_relevance(
        &mut self,
        split: &Split,
        epsilon: f64,
    ) -> Result<Rc<RecordedRelevance>> {
        self.shared((*split, epsilon.to_bits()), |_| Ok(RecordedRelevance::default()))
    }
}

/// `(±d ∓ E)/2` or `(σ ± d ∓ E)/2`, as the stream and the part say.
pub(crate) fn sensitivity(
    g: &mut Graph,
    scale: &Scale,
    m: Sensitivity,
    stream: Stream,
    part: StreamPart,
) -> Result<Scaled> {
    // In every case the sensitivity is (c·σ + p·d + q·E)/2.
    let (c, p, q) = match (stream, part) {
        (Stream::G, StreamPart::Combined) => (0.0, 1.0, -1.0),
        (Stream::G, StreamPart::Plus) => (1.0, 1.0, -1.0),
        (Stream::G, StreamPart::Minus) => (1.0, -1.0, 1.0),
        (Stream::H, StreamPart::Combined) => (0.0, -1.0, -1.0),
        (Stream::H, StreamPart::Plus) => (1.0, -1.0, -1.0),
        (Stream::H, StreamPart::Minus) => (1.0, 1.0, 1.0),
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
pub(crate) fn activation(
    g: &mut Graph,
    scale: &Scale,
    a: NodeId,
    s: Scaled,
    part: StreamPart,
) -> Result<Scaled> {
    let plain = Scaled::plain(a, crate::scaled::ACTIVATION_BOUND);
    let sum = match part {
        StreamPart::Combined => return Ok(plain),
        StreamPart::Plus => scale.combine(g, s, plain, |g, s, a| g.plus(s, a))?,
        StreamPart::Minus => scale.combine(g, s, plain, |g, s, a| g.minus(s, a))?,
    };
    sum.map(g, |g, v| g.scaled(0.5, v))
}
