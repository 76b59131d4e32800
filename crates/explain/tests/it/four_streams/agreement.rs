//! Every map of every option, against the literal algorithm.

use monosplit_engine::{Cpu, Engine, Precision};
use monosplit_explain::methods::RelevanceMap;
use monosplit_explain::{
    AlphaInput, Class, Correction, Explainer, InputSplit, Invariant, MapRequest, Pooling, ReluMode,
    Repetition, SaliencyMap, ScaledOver, Scaling, Settings, ShiftAt, Split, Stabiliser, Stream, StreamPart,
    Threshold,
};
use monosplit_graph::{Dim, Graph, NodeId, Tensor};

use super::literal::{Literal, Numbers, Pair, Sample};
use super::literal_map::{LiteralMap, map};
use super::network::{EVERYTHING, random_network};
use super::noise::Noise;
use super::relevance::Jitter;
use super::rule::shape;
use crate::split_map::SplitMap;

/// How far a run may be from the literal one.
#[derive(Clone, Copy)]
pub(crate) struct Tolerance {
    /// Relative to the largest magnitude of a map.
    map: f64,
    /// Relative to the terms a map adds up, which may cancel.
    rounding: f64,
}

pub(crate) const SINGLE: Tolerance = Tolerance { map: 1e-4, rounding: 2e-6 };
pub(crate) const DOUBLE: Tolerance = Tolerance { map: 1e-9, rounding: 1e-12 };

pub(crate) fn cases(default: usize) -> usize {
    std::env::var("MONOSPLIT_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

pub(crate) fn methods() -> Vec<SplitMap> {
    let mut methods = Vec::new();
    for stream in [Stream::G, Stream::H] {
        for part in [StreamPart::Combined, StreamPart::Plus, StreamPart::Minus] {
            methods.extend([SplitMap::SplitCam(stream, part), SplitMap::SplitGrad(stream, part)]);
        }
    }
    methods.extend([RelevanceMap::Pos, RelevanceMap::Neg, RelevanceMap::Comb].map(SplitMap::SplitLrp));
    methods
}

pub(crate) fn images(noise: &mut Noise, graph: &Graph, samples: usize) -> Tensor {
    let mut shape = shape(graph, graph.inputs()[0]);
    shape[0] = samples;
    let values = noise.numbers(shape.iter().product(), 1.0);
    Tensor::new(shape, values).unwrap()
}

/// The network's own activations, per sample and node, as an engine computes them.
pub(crate) fn activations(graph: &Graph, images: &Tensor, precision: Precision) -> Vec<Vec<Vec<f64>>> {
    let samples = images.shape()[0];
    let mut all = graph.clone();
    let ids: Vec<NodeId> = graph.nodes().filter(|(_, node)| !node.is_constant()).map(|(id, _)| id).collect();
    ids.iter().for_each(|id| all.output(id.to_string(), *id));
    let outputs = Cpu::default().threads(1).precision(precision).compile(&all).unwrap();
    let outputs = outputs.run(std::slice::from_ref(images)).unwrap();
    let mut found = vec![vec![Vec::new(); graph.len()]; samples];
    for (tensor, id) in outputs.iter().skip(graph.outputs().len()).zip(&ids) {
        let axis = graph.node(*id).shape.dims().iter().position(|d| matches!(d, Dim::Batch(_))).unwrap();
        let values = tensor.to_f64();
        let outer: usize = tensor.shape()[..axis].iter().product();
        let block = values.len() / outer / samples;
        for (at, chunk) in values.chunks(block).enumerate() {
            found[at % samples][id.index()].extend_from_slice(chunk);
        }
    }
    found
}

/// Values that lie between the image and the class scores and have the samples first.
pub(crate) fn readable(graph: &Graph) -> Vec<NodeId> {
    let mut reached = vec![false; graph.len()];
    reached[graph.outputs()[0].node.index()] = true;
    for (id, node) in graph.nodes().rev() {
        if reached[id.index()] {
            node.inputs.iter().for_each(|i| reached[i.index()] = true);
        }
    }
    let nodes = graph.nodes().filter(|(id, node)| {
        // Which axis of three holds channels depends on the layers around; here it is always axis 1.
        let plain = node.shape.dims().first() == Some(&Dim::Batch(1)) && node.shape.rank() != 3;
        reached[id.index()] && !node.is_constant() && plain
    });
    nodes.map(|(id, _)| id).collect()
}

pub(crate) fn layer(graph: &Graph, id: NodeId) -> String {
    format!("{}:out", graph.node(id).label.display())
}

fn random_split(noise: &mut Noise) -> Split {
    Split::default()
        .stabiliser(noise.pick(&[
            Stabiliser::None,
            Stabiliser::Scale,
            Stabiliser::Shift,
            Stabiliser::Recentre,
        ]))
        .pooling(noise.pick(&[Pooling::Convex, Pooling::Winner]))
        .input_split(noise.pick(&[
            InputSplit::Half,
            InputSplit::Signed,
            InputSplit::Positive,
            InputSplit::Negative,
        ]))
        .relu(noise.pick(&[ReluMode::Max, ReluMode::Max, ReluMode::Min, ReluMode::Half]))
        .shift_at(noise.pick(&[ShiftAt::Every, ShiftAt::Affine]))
        .alpha(noise.pick(&[AlphaInput::Uniform, AlphaInput::Uniform, AlphaInput::PerLayer]))
        .invariant(noise.pick(&[Invariant::Halved, Invariant::Halved, Invariant::Whole]))
        .scaling(
            Scaling::default()
                .correction(noise.pick(&[
                    Correction::Both,
                    Correction::Both,
                    Correction::Signed,
                    Correction::Plus,
                ]))
                .repetition(noise.pick(&[Repetition::Once, Repetition::Once, Repetition::UntilWithin]))
                .over(noise.pick(&[ScaledOver::Sample, ScaledOver::Sample, ScaledOver::Batch]))
                .threshold(noise.pick(&[Threshold::Absolute, Threshold::Absolute, Threshold::Relative])),
        )
}

/// One sample's part of a map, exponents multiplied in.
pub(crate) fn sample_of(map: &SaliencyMap, sample: usize, samples: usize) -> Vec<f64> {
    let values = map.values.to_f64();
    let count = values.len() / samples;
    let factor = f64::from(map.exponents[sample]).exp2();
    values[sample * count..][..count].iter().map(|v| v * factor).collect()
}

/// The largest departure of a map from the literal one, in units of what is allowed.
pub(crate) fn departure(found: &[f64], expected: &LiteralMap, tolerance: Tolerance) -> f64 {
    assert_eq!(found.len(), expected.values.len(), "the map has another size");
    let largest = expected.values.iter().map(|v| v.abs()).fold(0.0, f64::max);
    let allowed = tolerance.map * largest + tolerance.rounding * expected.terms + 2.0 * expected.unsteady;
    assert!(allowed.is_finite(), "the literal map is not finite");
    let apart = found.iter().zip(&expected.values).map(|(f, e)| (f - e).abs());
    apart
        .map(|d| {
            if d == 0.0 {
                0.0
            } else if d.is_nan() {
                f64::INFINITY
            } else {
                d / allowed
            }
        })
        .fold(0.0, f64::max)
}

/// The network's own activations must be those of the rules the literal algorithm works with.
fn check_network(literal: &Literal, graph: &Graph, original: &[Vec<f64>], tolerance: f64, what: &str) {
    for (id, node) in graph.nodes().filter(|(_, node)| !node.is_constant()) {
        let (expected, size) = literal.plain(id, original);
        let found = &original[id.index()];
        let apart = found.iter().zip(&expected).map(|(f, e)| (f - e).abs()).fold(0.0, f64::max);
        assert!(
            apart <= tolerance * size,
            "{what}: {} {} is off by {apart:e} of {size:e}",
            node.label.node,
            node.op.name()
        );
    }
}

/// The relevances under imitated rounding.
pub(crate) fn disturbed_relevances(
    literal: &Literal,
    sample: &Sample,
    class: usize,
    tolerance: Tolerance,
) -> Vec<Vec<Option<Pair>>> {
    (0..4)
        .map(|seed| Jitter { noise: Noise::new(seed), share: tolerance.rounding })
        .map(|mut jitter| literal.relevance(sample, class, &mut jitter))
        .collect()
}

struct Case {
    graph: Graph,
    images: Tensor,
    classes: Vec<usize>,
    split: Split,
    numbers: Numbers,
    layers: Vec<NodeId>,
}

fn case(seed: u64) -> Case {
    let mut noise = Noise::new(seed);
    let graph = random_network(&mut noise, EVERYTHING);
    let split = random_split(&mut noise);
    let samples = noise.between(1, 3);
    let images = images(&mut noise, &graph, samples);
    let logits = graph.outputs()[0].node;
    let classes = (0..samples).map(|_| noise.below(shape(&graph, logits)[1])).collect();
    let limit = noise.pick(&[0.7, 3.0, 10.0]);
    let mut numbers =
        Numbers { alpha: vec![noise.pick(&[0.0, 0.3, 0.4, 0.5])], theta: noise.pick(&[0.1, 0.5]), limit };
    if split.alpha == AlphaInput::PerLayer {
        let shifted = Literal::new(&graph, &split, &numbers).shifted().len();
        numbers.alpha = (0..shifted).map(|_| 0.5 * noise.uniform()).collect();
    }
    let readable = readable(&graph);
    let mut layers = vec![graph.inputs()[0]];
    layers.extend((0..3).map(|_| noise.pick(&readable)));
    Case { graph, images, classes, split, numbers, layers }
}

fn check(seed: u64, precision: Precision, tolerance: Tolerance) -> Vec<String> {
    let Case { graph, images, classes, split, numbers, layers } = case(seed);
    let engine = Cpu::default().threads(1).precision(precision);
    let requests: Vec<MapRequest> = layers
        .iter()
        .flat_map(|&id| methods().into_iter().map(move |method| (method, id)))
        .map(|(method, id)| method.at(split, layer(&graph, id)))
        .collect();
    let explainer = match Explainer::new(&graph, &requests, &engine) {
        Ok(explainer) => explainer,
        Err(error) => return vec![format!("seed {seed}: {error}")],
    };
    let literal = Literal::new(&graph, &split, &numbers);
    let names: Vec<String> =
        literal.shifted().iter().map(|&id| graph.node(id).label.display().to_owned()).collect();
    assert_eq!(split.shifted_layers(&graph).unwrap(), names, "seed {seed}: shifted layers");
    let settings = Settings {
        alpha: numbers.alpha.clone(),
        theta: numbers.theta,
        limit: numbers.limit,
        ..Settings::default()
    };
    let explained = explainer.explain(&images, &Class::PerSample(classes.clone()), &settings).unwrap();
    let mut wrong = Vec::new();
    let originals = activations(&graph, &images, precision);
    for original in &originals {
        check_network(&literal, &graph, original, tolerance.rounding, &format!("seed {seed}"));
    }
    for (n, sample) in literal.forward_batch(originals).into_iter().enumerate() {
        if sample.margin < tolerance.map {
            continue;
        }
        let four = literal.backward(&sample, classes[n]);
        let relevance = literal.relevance(&sample, classes[n], &mut Jitter::none());
        let disturbed = disturbed_relevances(&literal, &sample, classes[n], tolerance);
        let maps = layers.iter().flat_map(|&id| methods().into_iter().map(move |method| (method, id)));
        for ((method, id), found) in maps.zip(&explained.maps) {
            let at = id.index();
            let nothing = Pair::zero(sample.original[at].len());
            let r = relevance[at].as_ref().unwrap_or(&nothing);
            let four = four[at].as_ref().unwrap();
            let read = |r: &Pair| map(method, &shape(&graph, id), &sample, at, four, r);
            let mut expected = read(r);
            if let SplitMap::SplitLrp(_) = method {
                expected.allow_for(disturbed.iter().map(|all| read(all[at].as_ref().unwrap_or(&nothing))));
            }
            let apart = departure(&sample_of(found, n, classes.len()), &expected, tolerance);
            if apart > 1.0 {
                let node = graph.node(id);
                wrong.push(format!(
                    "seed {seed} sample {n}: {method:?} at {} {} is {apart:.1e} tolerances off ({:.3e}, {:.3e}, {:.3e}), {split:?}, {numbers:?}",
                    node.label.node,
                    node.op.name(),
                    expected.values.iter().map(|v| v.abs()).fold(0.0, f64::max),
                    expected.terms,
                    expected.unsteady,
                ));
            }
        }
    }
    wrong
}

fn check_all(precision: Precision, tolerance: Tolerance) {
    let found = (0..cases(120) as u64).map(|seed| check(seed, precision, tolerance));
    let wrong: Vec<Vec<String>> = found.filter(|wrong| !wrong.is_empty()).collect();
    let shown: Vec<String> =
        wrong.iter().take(20).map(|maps| format!("{} maps: {}", maps.len(), maps[0])).collect();
    assert!(wrong.is_empty(), "{} networks have wrong maps:\n{}", wrong.len(), shown.join("\n"));
}

#[test]
fn maps_are_those_of_four_explicit_streams_in_double_precision() {
    check_all(Precision::F64, DOUBLE);
}

#[test]
fn maps_are_those_of_four_explicit_streams_in_single_precision() {
    check_all(Precision::F32, SINGLE);
}
