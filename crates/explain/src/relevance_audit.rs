//! What becomes of the relevance of SplitLRP on the way from the class scores to the image: what is lost, and how it grows.

use std::rc::Rc;

use monosplit_engine::{CompileOptions, Engine, Precision};
use monosplit_graph::op::{Binary, Reduction};
use monosplit_graph::{NodeId, Result, Tensor};

use crate::audit::given;
use crate::explanation_builder::ExplanationBuilder;
use crate::explanation_graph::ClassInput;
use crate::network::Network;
use crate::relevance::EPSILON;
use crate::split::{Split, Stabiliser};

/// Sums below this count as zero.
const VANISHED: f64 = 1e-150;

/// How large relevance is, as powers of ten.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RelevanceSize {
    /// `a⁺` of the top class, the relevance that is handed down, with the streams as they are.
    pub handed_down: f64,
    /// The sum of magnitudes at the image over that at the class scores, with the streams under the default stabiliser. Those that it makes
    /// smaller than the activations are of mixed sign, and sums of mixed sign are small denominators.
    pub default_gain: f64,
}

/// What was measured of relevance.
pub(crate) struct RelevanceAudit {
    /// Relevance that reached the image over relevance at the class scores, less one, with the streams as they are.
    pub(crate) loss: f64,
    /// The same with the stabiliser of the denominators.
    pub(crate) stabilised_loss: f64,
    pub(crate) size: RelevanceSize,
}

impl RelevanceAudit {
    /// Measures it for one class of an image.
    pub(crate) fn of(
        network: &Rc<Network>,
        image: &Tensor,
        class: usize,
        engine: &dyn Engine,
    ) -> Result<Self> {
        let (none, own) = (Split::default().stabiliser(Stabiliser::None), Split::default());
        let exact = f64::MIN_POSITIVE.sqrt();
        let lossless = relevance_totals(network, image, class, &none, exact, engine)?;
        let stabilised = relevance_totals(network, image, class, &none, EPSILON, engine)?;
        let by_default = relevance_totals(network, image, class, &own, EPSILON, engine)?;
        let handed_down = lossless.handed_down.abs().log10() + lossless.exponent * std::f64::consts::LOG10_2;
        let size = RelevanceSize { handed_down, default_gain: by_default.gain };
        Ok(RelevanceAudit { loss: lossless.loss, stabilised_loss: stabilised.loss, size })
    }
}

/// What became of the relevance of the class scores.
struct RelevanceTotals {
    /// Relevance of the class scores, under `exponent`.
    handed_down: f64,
    exponent: f64,
    /// Relevance at the image over relevance at the class scores, less one.
    loss: f64,
    /// The sum of magnitudes at the image over that at the class scores, as a power of ten.
    gain: f64,
}

/// The value of a sum of zeros is its bias: relevance that it receives stays with the bias and counts as arrived, as does what
/// constants receive that are no biases.
fn relevance_totals(
    network: &Rc<Network>,
    image: &Tensor,
    class: usize,
    split: &Split,
    epsilon: f64,
    engine: &dyn Engine,
) -> Result<RelevanceTotals> {
    let mut builder = ExplanationBuilder::new(network, ClassInput::Given)?;
    let begun = builder.relevances_with(split, epsilon, network.logits())?;
    let reached = builder.relevances_with(split, epsilon, network.input())?;
    let [seed, _] = builder.relevances(split, network.logits())?;
    let recorded = builder.recorded_relevance(split, epsilon)?;
    let scale = builder.scale;
    let mut g = builder.graph;
    let least = g.number(VANISHED);
    let mut totals: Vec<NodeId> = Vec::new();
    for relevance in [begun, reached] {
        let total = g.plus(relevance.plus, relevance.minus)?;
        totals.push(scale.raised(&mut g, total, relevance.exponent)?);
        let (plus, minus) = (g.magnitude(relevance.plus)?, g.magnitude(relevance.minus)?);
        totals.push(g.plus(plus, minus)?);
        totals.push(relevance.exponent.unwrap_or_else(|| g.number(0.0)));
    }
    totals.push(seed.exponent.unwrap_or_else(|| g.number(0.0)));
    for recorded in recorded.borrow().iter() {
        let kept = match recorded.sum {
            Some(sum) => {
                let size = g.magnitude(sum)?;
                let vanished = g.binary(Binary::Less, size, least)?;
                g.masked(vanished, recorded.relevance)?
            }
            None => recorded.relevance,
        };
        totals.push(scale.raised(&mut g, kept, recorded.exponent)?);
    }
    for value in totals {
        let axes: Vec<usize> = (0..g.node(value).shape.rank()).collect();
        let total = g.reduced(Reduction::Sum, value, &axes, false)?;
        g.output("", total);
    }
    let g = g.pruned()?;
    let totals = engine
        .compile_with(&g, &CompileOptions::default().precision(Precision::F64))?
        .run(&given(&g, image, class)?)?;
    let mut totals = totals.iter().map(|total| total.to_f64()[0]);
    let mut next = || totals.next().unwrap_or(0.0);
    let power = |size: f64, exponent: f64| size.log10() + exponent * std::f64::consts::LOG10_2;
    let (handed_down, before) = (next(), power(next(), next()));
    let (reached, after, exponent) = (next(), power(next(), next()), next());
    let arrived: f64 = reached + totals.sum::<f64>();
    let loss = if handed_down == 0.0 { 0.0 } else { arrived / handed_down - 1.0 };
    Ok(RelevanceTotals { handed_down, exponent, loss, gain: after - before })
}
