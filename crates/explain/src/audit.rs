//! Checks of the theory on a given network: the streams differ by exactly the network's activations, the sensitivities differ by
//! exactly its gradient, stream gradients are non-negative, relevance is conserved. Also measures the growth of the streams.

use std::rc::Rc;

use monosplit_autodiff::{GradientRules, Walk};
use monosplit_engine::Engine;
use monosplit_graph::op::{Binary, Reduction, Unary};
use monosplit_graph::passes::drop_rounding;
use monosplit_graph::{Error, Graph, NodeId, Op, Result, Tensor};

use crate::bindings::bind;
use crate::explain_batch::{Class, ExplainBatch, Settings};
use crate::explanation_builder::ExplanationBuilder;
use crate::explanation_graph::ClassInput;
use crate::network::Network;
use crate::relevance_audit::{RelevanceAudit, RelevanceSize};
use crate::scaled::Scale;
use crate::sensitivity::Sensitivity;
use crate::split::{InputSplit, Split, Stabiliser};
use crate::split_streams::{Stream, StreamPart, sensitivity};
use crate::sum_stream::{SumStream, Thresholds};

/// The checks of one layer.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerAudit {
    /// The layer.
    pub layer: String,
    /// Largest difference between the difference stream, from which `a⁺` and `a⁻` are computed, and the activation of the
    /// network run on its own.
    pub forward_error: f64,
    /// Largest difference between `d`, from which all four sensitivities are computed, and the gradient of the network
    /// computed on its own.
    pub backward_error: f64,
    /// The smallest of all four sensitivities at α = 0, relative to the largest.
    pub least_sensitivity: f64,
    /// The largest element of `a⁺` and `a⁻` as a power of ten, under each of [`STABILISERS`].
    pub growth: [f64; 4],
}

/// The stabilisers, in the order [`LayerAudit::growth`] lists them.
pub const STABILISERS: [Stabiliser; 4] =
    [Stabiliser::None, Stabiliser::Scale, Stabiliser::Shift, Stabiliser::Recentre];

/// The checks of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct Audit {
    /// Every layer from the image to the class scores.
    pub layers: Vec<LayerAudit>,
    /// Relevance that reached the image over relevance at the class scores, less one, for SplitLRP's rules.
    pub relevance_loss: f64,
    /// The same with the stabiliser of its denominators, which absorbs relevance where they are small.
    pub stabilised_loss: f64,
    /// The relevance of the class scores, `a⁺` of the top class, and what the default stabiliser of the streams does to it.
    pub relevance: RelevanceSize,
    /// Whether the class scores are the same bits with and without the explanation.
    pub same_bits: bool,
    /// Whether all activations and gradients of the network on its own are finite. If not, nothing else says much.
    pub finite: bool,
}

/// Audits `source` on a preprocessed image `[1, C, H, W]` for its top class. A network of fixed batch size takes a whole
/// batch, which is audited for the top class of its first image.
pub fn audit(source: &Graph, image: &Tensor, engine: &dyn Engine) -> Result<Audit> {
    let network = Rc::new(Network::new(source)?);
    let layers: Vec<NodeId> =
        network.nodes().map(|(id, _)| id).filter(|&id| is_layer(&network, id)).collect();
    let plain = plain_run(&network, &layers, image, engine)?;
    let explained = explained_run(&network, &layers, image, plain.class, engine)?;
    let growth = growth(&network, &layers, image, engine)?;
    let audits = layers.iter().enumerate().map(|(i, &id)| LayerAudit {
        layer: network.graph().node(id).label.display().to_owned(),
        forward_error: largest_difference(&plain.activations[i], &explained.activations[i]),
        backward_error: largest_difference(&plain.gradients[i], &explained.gradients[i]),
        least_sensitivity: explained.least[i],
        growth: growth[i],
    });
    let relevance = RelevanceAudit::of(&network, image, plain.class, engine)?;
    Ok(Audit {
        layers: audits.collect(),
        relevance_loss: relevance.loss,
        stabilised_loss: relevance.stabilised_loss,
        relevance: relevance.size,
        same_bits: same_bits(&plain.logits, &explained.logits),
        finite: [&plain.activations, &plain.gradients].into_iter().flatten().all(is_finite),
    })
}

fn is_finite(values: &Tensor) -> bool {
    values.to_f64().iter().all(|value| value.is_finite())
}

/// Whether a node is a layer: not a step of a decomposition, and not a node that only moves elements.
fn is_layer(network: &Rc<Network>, id: NodeId) -> bool {
    let is_move = network.graph().node(id).op.is_selection();
    let reaches_logits = id.index() <= network.logits().index();
    network.is_active(id)
        && !network.graph().node(id).label.display().is_empty()
        && !network.is_decomposition_step(id)
        && network.decomposition(id).is_none()
        && !is_move
        && reaches_logits
}

struct PlainRun {
    class: usize,
    logits: Tensor,
    activations: Vec<Tensor>,
    gradients: Vec<Tensor>,
}

/// The network and its gradient, each in a program of its own.
fn plain_run(
    network: &Rc<Network>,
    layers: &[NodeId],
    image: &Tensor,
    engine: &dyn Engine,
) -> Result<PlainRun> {
    let mut g = network.graph().clone();
    g.set_outputs(Vec::new());
    layers.iter().for_each(|&id| g.output("", id));
    g.output("", network.logits());
    let mut activations = engine.compile(&g.pruned()?)?.run(std::slice::from_ref(image))?;
    let logits = activations.pop().ok_or_else(|| Error::argument("the network has no output"))?;
    let class = argmax(&logits, network.classes());

    let mut builder = ExplanationBuilder::new(network, ClassInput::Given)?;
    let rules = GradientRules { open_at_zero: true, ..GradientRules::default() };
    let mut walk = Walk::new(rules, network.logits(), builder.seed());
    let g = &mut builder.graph;
    for id in layers {
        let gradient = walk.message(g, network, *id)?.map_or_else(|| g.scaled(0.0, *id), Ok)?;
        g.output("", gradient);
    }
    let g = g.pruned()?;
    let gradients = engine.compile(&g)?.run(&given(&g, image, class)?)?;
    Ok(PlainRun { class, logits, activations, gradients })
}

struct ExplainedRun {
    logits: Tensor,
    activations: Vec<Tensor>,
    gradients: Vec<Tensor>,
    least: Vec<f64>,
}

/// The same values from one program that also computes the streams, the sensitivities at α = 0 and the relevance.
fn explained_run(
    network: &Rc<Network>,
    layers: &[NodeId],
    image: &Tensor,
    class: usize,
    engine: &dyn Engine,
) -> Result<ExplainedRun> {
    // Products of streams keep their sign only if the streams, those of the image included, are non-negative.
    let split = Split::default().stabiliser(Stabiliser::None).input_split(InputSplit::Signed);
    let mut builder = ExplanationBuilder::new(network, ClassInput::Given)?;
    let reached = network.output_dependencies();
    for &id in layers {
        builder.graph.output("", id);
        let (gradient, least) = if reached[id.index()] {
            let message = builder.sensitivities(&split, id)?;
            let scale = builder.scale;
            (message.gradient, least_sensitivity(&mut builder.graph, &scale, message)?)
        } else {
            (builder.graph.scaled(0.0, id)?, builder.graph.number(0.0))
        };
        builder.graph.output("", gradient);
        builder.graph.output("", least);
    }
    builder.graph.output("", network.logits());
    let g = builder.graph.pruned()?;
    let given = given(&g, image, class)?;
    let mut outputs = engine.compile(&g)?.run(&given)?;
    let logits = outputs.pop().ok_or_else(|| Error::argument("the network has no output"))?;
    let mut found =
        ExplainedRun { logits, activations: Vec::new(), gradients: Vec::new(), least: Vec::new() };
    for chunk in outputs.chunks(3) {
        found.activations.push(chunk[0].clone());
        found.gradients.push(chunk[1].clone());
        found.least.push(chunk[2].to_f64()[0]);
    }
    Ok(found)
}

/// The smallest element of the four sensitivities over the largest of all four. One of them alone would not do as a scale: it is
/// only rounding error where it vanishes, as in a network with non-negative weights.
fn least_sensitivity(g: &mut Graph, scale: &Scale, message: Sensitivity) -> Result<NodeId> {
    let tiny = g.number(f64::from(f32::MIN_POSITIVE));
    let (mut least, mut most): (Option<NodeId>, NodeId) = (None, tiny);
    for (stream, part) in [
        (Stream::G, StreamPart::Plus),
        (Stream::G, StreamPart::Minus),
        (Stream::H, StreamPart::Plus),
        (Stream::H, StreamPart::Minus),
    ] {
        let delta = sensitivity(g, scale, message, stream, part)?.value;
        let axes: Vec<usize> = (0..g.node(delta).shape.rank()).collect();
        let smallest = g.reduced(Reduction::Min, delta, &axes, false)?;
        let magnitude = g.magnitude(delta)?;
        let largest = g.reduced(Reduction::Max, magnitude, &axes, false)?;
        most = g.binary(Binary::Max, largest, most)?;
        least = Some(least.map_or(Ok(smallest), |l| g.binary(Binary::Min, l, smallest))?);
    }
    let least = least.ok_or_else(|| Error::argument("no sensitivities"))?;
    g.over(least, most)
}

/// The largest element of `a⁺` and `a⁻` at every layer as a power of ten, under each stabiliser.
fn growth(
    network: &Rc<Network>,
    layers: &[NodeId],
    image: &Tensor,
    engine: &dyn Engine,
) -> Result<Vec<[f64; 4]>> {
    let mut growth = vec![[f64::NAN; 4]; layers.len()];
    for (column, stabiliser) in STABILISERS.into_iter().enumerate() {
        let split = Split::default().stabiliser(stabiliser);
        let scale = Scale::of(network);
        let mut g = network.graph().clone();
        g.set_outputs(Vec::new());
        let thresholds = (stabiliser == Stabiliser::Scale)
            .then(|| Thresholds { theta: g.number(0.1), limit: g.number(10.0) });
        let stream = SumStream::build(&mut g, network, &split, thresholds, false)?;
        for &id in layers {
            let s = stream.at(id);
            let (a, sum) = (scale.under(&mut g, id, s)?, g.magnitude(s.value)?);
            let a = g.magnitude(a)?;
            let both = g.plus(sum, a)?;
            let largest = scale.largest(&mut g, both)?;
            let exponent = s.exponent.unwrap_or_else(|| g.number(0.0));
            g.output("", largest);
            g.output("", exponent);
        }
        let outputs = engine.compile(&g.pruned()?)?.run(std::slice::from_ref(image))?;
        for (i, pair) in outputs.chunks(2).enumerate() {
            let (largest, exponent) = (pair[0].to_f64()[0] / 2.0, pair[1].to_f64()[0]);
            growth[i][column] = largest.log10() + exponent * std::f64::consts::LOG10_2;
        }
    }
    Ok(growth)
}

/// The inputs of a graph of the audit: one class for all samples, α = 0.
pub(crate) fn given(g: &Graph, image: &Tensor, class: usize) -> Result<Vec<Tensor>> {
    let settings = Settings::default().alpha(0.0);
    let batch = ExplainBatch::new(image, &Class::Top, &settings);
    bind(g, &batch, &vec![class as i64; batch.samples()])
}

/// The class with the highest score of the first sample.
fn argmax(logits: &Tensor, classes: usize) -> usize {
    let values = logits.to_f64();
    (0..classes.min(values.len()))
        .max_by(|&a, &b| values[a].total_cmp(&values[b]).then(b.cmp(&a)))
        .unwrap_or(0)
}

fn largest_difference(a: &Tensor, b: &Tensor) -> f64 {
    let (a, b) = (a.to_f64(), b.to_f64());
    a.iter().zip(b.iter()).map(|(a, b)| if a == b { 0.0 } else { (a - b).abs() }).fold(0.0, worse)
}

/// The larger of two errors; NaN counts as the largest.
fn worse(a: f64, b: f64) -> f64 {
    if b > a || b.is_nan() { b } else { a }
}

fn same_bits(a: &Tensor, b: &Tensor) -> bool {
    a.to_f64().iter().zip(b.to_f64().iter()).all(|(a, b)| a.to_bits() == b.to_bits())
}

/// Checks of the materialised pair on sampled inputs. Double precision is advised.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PairAudit {
    /// Largest `|f − (g − h)|` with the common part of the streams subtracted after every node.
    pub difference: f64,
    /// The same over the largest class score.
    pub relative_difference: f64,
    /// Largest `|f − (g − h)|` of the two networks as they are, which includes the rounding error of the cancellation.
    pub plain_difference: f64,
    /// The largest magnitude of `g` and `h`: how much cancels in `g − h`.
    pub magnitude: f64,
    /// The largest class score; not finite if one of them is not.
    pub largest_score: f64,
    /// The largest bound of a clip, which the streams carry into its node; 0 where there is none.
    pub largest_bound: f64,
    /// The largest decrease of `g` or `h` when an input grows, over their largest magnitude.
    pub decrease: f64,
    /// The largest excess of `g` or `h` at a midpoint over the mean at the ends, over their largest magnitude.
    pub excess: f64,
    /// Number of sampled pairs of inputs.
    pub samples: usize,
    /// Whether activations are multiplied with each other. Then the properties hold, and were sampled, only where the inputs of
    /// `g` and `h` are non-negative, and SplitLRP is not guaranteed to conserve relevance.
    pub products: bool,
    /// How many nodes that round activations were left out of `f`, `g` and `h`, as quantisers are.
    pub rounding_dropped: usize,
}

/// Checks `f = g − h`, monotonicity and convexity on `samples` pairs of inputs drawn around `image`.
pub fn audit_pair(
    source: &Graph,
    image: &Tensor,
    samples: usize,
    engine: &dyn Engine,
    mut progress: impl FnMut(usize, usize),
) -> Result<PairAudit> {
    let pair = crate::pair::materialise(source)?;
    let streams = engine.compile(&pair.both)?;
    let recentred = engine.compile(&crate::pair::recentred_pair(source)?)?;
    let (mut network, rounding_dropped) = drop_rounding(source)?;
    network.set_outputs(network.outputs()[..1].to_vec());
    let largest_bound = largest_bound(&network);
    let network = engine.compile(&network.pruned()?)?;
    let x = image.to_f64();
    let shape = image.shape().to_vec();
    let run = |plus: Vec<f64>, minus: Vec<f64>| -> Result<[Vec<f64>; 2]> {
        let given = [Tensor::new(shape.clone(), plus)?, Tensor::new(shape.clone(), minus)?];
        let outputs = streams.run(&given)?;
        Ok([outputs[0].to_f64().to_vec(), outputs[1].to_f64().to_vec()])
    };
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    let products = pair.products;
    let mut found = PairAudit { samples, products, rounding_dropped, largest_bound, ..PairAudit::default() };
    let spread = x.iter().fold(0.0f64, |m, v| m.max(v.abs())).max(1e-3);
    for sample in 0..samples {
        progress(sample, samples);
        let shift: Vec<f64> =
            x.iter().map(|_| if sample == 0 { 0.0 } else { noise.next() * spread }).collect();
        let segmented = |v: f64| if pair.products { v.max(0.0) } else { v / 2.0 };
        let plus: Vec<f64> = x.iter().zip(&shift).map(|(v, s)| segmented(*v) + s).collect();
        let minus: Vec<f64> = x.iter().zip(&shift).map(|(v, s)| segmented(-v) + s * 0.5).collect();
        let here = run(plus.clone(), minus.clone())?;
        let difference: Vec<f64> = plus.iter().zip(&minus).map(|(p, m)| p - m).collect();
        let logits = network.run(&[Tensor::new(shape.clone(), difference)?])?[0].to_f64().to_vec();
        let largest = logits.iter().fold(0.0f64, |m, v| worse(m, v.abs()));
        found.largest_score = worse(found.largest_score, largest);
        let given = [Tensor::new(shape.clone(), plus.clone())?, Tensor::new(shape.clone(), minus.clone())?];
        let centred = recentred.run(&given)?;
        let (g, h) = (centred[0].to_f64(), centred[1].to_f64());
        for (i, f) in logits.iter().enumerate() {
            found.plain_difference = worse(found.plain_difference, (f - (here[0][i] - here[1][i])).abs());
            let error = (f - (g[i] - h[i])).abs();
            found.difference = worse(found.difference, error);
            let relative = error / largest.max(f64::MIN_POSITIVE);
            found.relative_difference = worse(found.relative_difference, relative);
        }
        let grow =
            |v: &[f64], noise: &mut Noise| v.iter().map(|v| v + noise.next() * spread).collect::<Vec<_>>();
        let (larger_plus, larger_minus) = (grow(&plus, &mut noise), grow(&minus, &mut noise));
        let there = run(larger_plus.clone(), larger_minus.clone())?;
        let half = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a + b) / 2.0).collect::<Vec<_>>();
        let between = run(half(&plus, &larger_plus), half(&minus, &larger_minus))?;
        for stream in 0..2 {
            let reached = here[stream].iter().chain(&there[stream]);
            found.magnitude = reached.fold(found.magnitude, |m, v| worse(m, v.abs()));
            let scale = there[stream].iter().fold(f64::MIN_POSITIVE, |m, v| m.max(v.abs()));
            for i in 0..there[stream].len() {
                let (low, high, middle) = (here[stream][i], there[stream][i], between[stream][i]);
                found.decrease = worse(found.decrease, (low - high) / scale);
                found.excess = worse(found.excess, (middle - (low + high) / 2.0) / scale);
            }
        }
    }
    progress(samples, samples);
    Ok(found)
}

/// The largest finite bound of a clip.
fn largest_bound(graph: &Graph) -> f64 {
    let bounds = graph.nodes().flat_map(|(_, node)| match node.op {
        Op::Unary(Unary::Clip { min, max }) => [min.abs(), max.abs()],
        _ => [0.0; 2],
    });
    bounds.filter(|bound| bound.is_finite()).fold(0.0, f64::max)
}

/// Pseudo-random numbers between 0 and 1, the same on every machine.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}
