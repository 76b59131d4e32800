//! What the theory says of any network, on random ones.

use monosplit_engine::{Cpu, Engine, Precision};
use monosplit_explain::methods::RelevanceMap;
use monosplit_explain::{
    Class, ClosedFormula, DecomposedMap, Explainer, Explanation, Finish, MapRequest, Pooling, Settings,
    ShiftAt, Split, Stabiliser, Stream, StreamPart,
};
use monosplit_graph::{Data, Graph, NodeId, Tensor};

use super::agreement::{activations, cases, images, layer, methods, readable, sample_of};
use super::literal::{Literal, Numbers};
use super::network::{EVERYTHING, Menu, PIECEWISE_LINEAR, random_network};
use super::noise::Noise;
use super::relevance::Jitter;
use super::rule::shape;
use crate::split_map::SplitMap;

fn engine(precision: Precision) -> Cpu {
    Cpu::default().threads(1).precision(precision)
}

fn requests(graph: &Graph, split: &Split, layers: &[NodeId], methods: &[SplitMap]) -> Vec<MapRequest> {
    let all = layers.iter().flat_map(|&id| methods.iter().map(move |&method| (method, id)));
    all.map(|(method, id)| method.at(*split, layer(graph, id))).collect()
}

fn some_layers(noise: &mut Noise, graph: &Graph) -> Vec<NodeId> {
    let readable = readable(graph);
    vec![graph.inputs()[0], noise.pick(&readable), noise.pick(&readable)]
}

fn random_classes(noise: &mut Noise, graph: &Graph, samples: usize) -> Vec<usize> {
    let count = shape(graph, graph.outputs()[0].node)[1];
    (0..samples).map(|_| noise.below(count)).collect()
}

fn bits(tensor: &Tensor) -> Vec<u64> {
    match tensor.data() {
        Data::F32(values) => values.iter().map(|v| u64::from(v.to_bits())).collect(),
        _ => tensor.to_f64().iter().map(|v| v.to_bits()).collect(),
    }
}

fn map_bits(explained: &Explanation) -> Vec<(Vec<u64>, Vec<i32>)> {
    explained.maps.iter().map(|map| (bits(&map.values), map.exponents.clone())).collect()
}

fn each_network(seeds: usize, menu: Menu, test: impl Fn(u64, &mut Noise, Graph)) {
    for seed in 0..cases(seeds) as u64 {
        let mut noise = Noise::new(seed ^ 0xABCD);
        let graph = random_network(&mut noise, menu);
        test(seed, &mut noise, graph);
    }
}

#[test]
fn predictions_are_the_same_bits_with_and_without_an_explanation() {
    each_network(40, EVERYTHING, |seed, noise, graph| {
        for precision in [Precision::F32, Precision::F64] {
            let images = images(noise, &graph, 2);
            let layers = some_layers(noise, &graph);
            let explainer = Explainer::new(
                &graph,
                &requests(&graph, &Split::default(), &layers, &methods()),
                &engine(precision),
            )
            .unwrap();
            let explained = explainer.explain(&images, &Class::Top, &Settings::default()).unwrap();
            let alone = engine(precision).compile(&graph).unwrap().run(&[images]).unwrap();
            assert_eq!(bits(&explained.logits), bits(&alone[0]), "seed {seed}");
        }
    });
}

#[test]
fn half_alpha_gives_exact_halves_of_the_ordinary_gradient() {
    // Of one channel at a time, so that no mean is taken over sums in another order.
    each_network(60, PIECEWISE_LINEAR, |seed, noise, graph| {
        let images = images(noise, &graph, 2);
        let layers = some_layers(noise, &graph);
        let split_map = [
            SplitMap::Gradient,
            SplitMap::SplitGrad(Stream::G, StreamPart::Combined),
            SplitMap::SplitGrad(Stream::G, StreamPart::Plus),
            SplitMap::SplitGrad(Stream::H, StreamPart::Combined),
        ];
        let explainer = Explainer::new(
            &graph,
            &requests(&graph, &Split::default(), &layers, &split_map),
            &engine(Precision::F32),
        )
        .unwrap();
        let explained =
            explainer.explain(&images, &Class::Index(0), &Settings::default().alpha(0.5)).unwrap();
        for maps in explained.maps.chunks(split_map.len()) {
            let halves: Vec<f64> = maps[0].values.to_f64().iter().map(|d| 0.5 * d).collect();
            let found = |i: usize| maps[i].values.to_f64().to_vec();
            if crossed_zero(&graph, &images) {
                continue;
            }
            assert_eq!(found(1), halves, "seed {seed}");
            assert_eq!(found(2), halves, "seed {seed}");
            assert_eq!(found(3), halves.iter().map(|d| -d).collect::<Vec<_>>(), "seed {seed}");
        }
    });
}

/// Whether a rectifier reads an exact zero, where the paper's mask is open and the ordinary gradient's is closed.
fn crossed_zero(graph: &Graph, images: &Tensor) -> bool {
    let values = activations(graph, images, Precision::F32);
    let bent = ["Relu", "LeakyRelu", "PRelu", "Abs", "Clip"];
    let bends = |v: f64| [0.0, 0.5, 0.25, -0.25].contains(&v);
    graph
        .nodes()
        .filter(|(_, node)| bent.contains(&node.op.name()))
        .any(|(_, node)| values.iter().any(|sample| sample[node.inputs[0].index()].iter().any(|&v| bends(v))))
}

#[test]
fn without_a_shift_no_sensitivity_is_negative() {
    let parts = [
        (Stream::G, StreamPart::Plus),
        (Stream::G, StreamPart::Minus),
        (Stream::H, StreamPart::Plus),
        (Stream::H, StreamPart::Minus),
    ];
    let split_map = parts.map(|(stream, part)| SplitMap::SplitGrad(stream, part));
    // A channel at a time: reading single rows of a value needs no mean that could hide a negative element.
    each_network(60, PIECEWISE_LINEAR, |seed, noise, graph| {
        let images = images(noise, &graph, 1);
        let layers: Vec<NodeId> = readable(&graph)
            .into_iter()
            .filter(|&id| shape(&graph, id).get(1) == Some(&1) || shape(&graph, id).len() == 2)
            .collect();
        if layers.is_empty() {
            return;
        }
        let explainer = Explainer::new(
            &graph,
            &requests(&graph, &Split::default(), &layers, &split_map),
            &engine(Precision::F32),
        )
        .unwrap();
        let explained =
            explainer.explain(&images, &Class::Index(1), &Settings::default().alpha(0.0)).unwrap();
        for maps in explained.maps.chunks(4) {
            let all: Vec<f64> = maps.iter().flat_map(|map| sample_of(map, 0, 1)).collect();
            let (least, most) = all.iter().fold((0f64, 0f64), |(l, m), &v| (l.min(v), m.max(v)));
            assert!(least >= -1e-6 * most, "seed {seed}: {least:e} beside {most:e}");
        }
    });
}

#[test]
fn relevance_is_conserved_without_biases() {
    // The bounds of a clip and a constant that wins a maximum keep relevance, as a bias does.
    let menu = Menu { bias: false, contests: false, abs_clip: false, ..PIECEWISE_LINEAR };
    let split_map = [RelevanceMap::Pos, RelevanceMap::Neg].map(SplitMap::SplitLrp);
    each_network(60, menu, |seed, noise, graph| {
        // Large images, beside which ε takes nothing.
        let small = images(noise, &graph, 1);
        let large: Vec<f64> = small.to_f64().iter().map(|v| 1e6 * v).collect();
        let large = Tensor::new(small.shape(), large).unwrap();
        let split = Split::default().stabiliser(Stabiliser::None);
        if an_empty_stream_is_relevant(&graph, &split, &large) {
            return;
        }
        let layers = [graph.outputs()[0].node, graph.inputs()[0]];
        let explainer =
            Explainer::new(&graph, &requests(&graph, &split, &layers, &split_map), &engine(Precision::F64))
                .unwrap();
        let explained = explainer.explain(&large, &Class::Index(0), &Settings::default()).unwrap();
        let maps = |i: usize| {
            explained.maps[2 * i..][..2].iter().flat_map(|map| sample_of(map, 0, 1)).collect::<Vec<_>>()
        };
        let (seeded, arrived): (f64, f64) = (maps(0).iter().sum(), maps(1).iter().sum());
        let size: f64 = maps(1).iter().map(|r| r.abs()).sum();
        assert!(
            (arrived - seeded).abs() <= 1e-6 * size,
            "seed {seed}: {seeded:e} became {arrived:e}, {size:e}"
        );
    });
}

/// Whether relevance passes an activation to a stream that is exactly zero before it and so has nobody to pass it to.
fn an_empty_stream_is_relevant(graph: &Graph, split: &Split, images: &Tensor) -> bool {
    let numbers = Numbers { alpha: vec![0.0], theta: 0.1, limit: 10.0 };
    let literal = Literal::new(graph, split, &numbers);
    let sample = literal.forward(activations(graph, images, Precision::F64).remove(0));
    let relevance = literal.relevance(&sample, 0, &mut Jitter::none());
    let empty = |a: &[f64], r: &[f64]| a.iter().zip(r).any(|(&a, &r)| a == 0.0 && r != 0.0);
    let mut pairs = sample.pairs.iter().zip(&relevance).filter_map(|(pair, r)| Some((pair, r.as_ref()?)));
    pairs.any(|(pair, r)| empty(&pair.plus, &r.plus) || empty(&pair.minus, &r.minus))
}

#[test]
fn the_terms_of_the_closed_formula_add_up_to_the_map() {
    each_network(80, Menu { abs_clip: false, ..PIECEWISE_LINEAR }, |seed, noise, graph| {
        let images = images(noise, &graph, 2);
        let classes = random_classes(noise, &graph, 2);
        let at = noise.pick(&readable(&graph));
        let alpha = noise.pick(&[0.0, 0.3, 0.4]);
        let split = Split::default().shift_at(noise.pick(&[ShiftAt::Every, ShiftAt::Affine]));
        let cpu = engine(Precision::F64);
        for (whole, method) in [
            (DecomposedMap::SplitCam, SplitMap::SplitCam(Stream::G, StreamPart::Combined)),
            (DecomposedMap::SplitGrad, SplitMap::SplitGrad(Stream::G, StreamPart::Combined)),
        ] {
            let formula = match ClosedFormula::new(&graph, &split, &layer(&graph, at), whole, &cpu) {
                Ok(formula) => formula,
                Err(error) => {
                    assert!(error.to_string().contains("closed formula"), "seed {seed}: {error}");
                    return;
                }
            };
            let terms = formula.terms(&images, &classes, alpha).unwrap();
            let explainer =
                Explainer::new(&graph, &requests(&graph, &split, &[at], &[method]), &cpu).unwrap();
            let explained = explainer
                .explain(&images, &Class::PerSample(classes.clone()), &Settings::default().alpha(alpha))
                .unwrap();
            let map = [0, 1].map(|n| sample_of(&explained.maps[0], n, 2)).concat();
            let mut sum = vec![0.0; map.len()];
            let mut size = 0f64;
            for term in &terms {
                for (total, share) in sum.iter_mut().zip(term.share.to_f64().iter()) {
                    *total += share;
                    size = size.max(share.abs());
                }
            }
            let apart = map.iter().zip(&sum).map(|(m, s)| (m - s).abs()).fold(0.0, f64::max);
            assert!(apart <= 1e-9 * size, "seed {seed}: {apart:e} beside {size:e}");
        }
    });
}

#[test]
fn several_layers_in_one_run_are_the_layers_read_one_by_one() {
    each_network(25, EVERYTHING, |seed, noise, graph| {
        let images = images(noise, &graph, 2);
        let split_map = methods();
        let layers = some_layers(noise, &graph);
        let cpu = engine(Precision::F32);
        let split = Split::default();
        let run = |layers: &[NodeId]| {
            let explainer =
                Explainer::new(&graph, &requests(&graph, &split, layers, &split_map), &cpu).unwrap();
            map_bits(&explainer.explain(&images, &Class::Index(1), &Settings::default()).unwrap())
        };
        let single: Vec<_> = layers.iter().flat_map(|&id| run(&[id])).collect();
        assert_eq!(run(&layers), single, "seed {seed}");
    });
}

#[test]
fn what_is_remembered_of_a_class_changes_no_map() {
    each_network(40, EVERYTHING, |seed, noise, graph| {
        let images = images(noise, &graph, 3);
        let classes = Class::PerSample(random_classes(noise, &graph, 3));
        let split = Split::default().pooling(noise.pick(&[Pooling::Convex, Pooling::Winner]));
        let split_map = requests(&graph, &split, &some_layers(noise, &graph), &methods());
        let cpu = engine(Precision::F32);
        let direct = Explainer::new(&graph, &split_map, &cpu).unwrap();
        let remembering = Explainer::with_class_cache(&graph, &split_map, &cpu).unwrap();
        let settings = Settings::default();
        let expected = map_bits(&direct.explain(&images, &classes, &settings).unwrap());
        for _ in 0..2 {
            assert_eq!(
                map_bits(&remembering.explain(&images, &classes, &settings).unwrap()),
                expected,
                "seed {seed}"
            );
        }
    });
}

#[test]
fn a_batch_is_its_samples_one_by_one() {
    each_network(40, EVERYTHING, |seed, noise, graph| {
        let samples = 3;
        let images = images(noise, &graph, samples);
        let classes = random_classes(noise, &graph, samples);
        let split_map = requests(&graph, &Split::default(), &some_layers(noise, &graph), &methods());
        let explainer = Explainer::new(&graph, &split_map, &engine(Precision::F32)).unwrap();
        let settings = Settings::default().alpha(0.2);
        let together = explainer.explain(&images, &Class::PerSample(classes.clone()), &settings).unwrap();
        let mut one = images.shape().to_vec();
        one[0] = 1;
        let count = images.len() / samples;
        for (n, &class) in classes.iter().enumerate() {
            let image = Tensor::new(one.clone(), images.to_f32()[n * count..][..count].to_vec()).unwrap();
            let alone = explainer.explain(&image, &Class::Index(class), &settings).unwrap();
            for (all, single) in together.maps.iter().zip(&alone.maps) {
                assert_eq!(sample_of(all, n, samples), sample_of(single, 0, 1), "seed {seed}");
            }
        }
    });
}

#[test]
fn maps_are_the_same_bits_at_any_number_of_threads() {
    each_network(20, EVERYTHING, |seed, noise, graph| {
        let images = images(noise, &graph, 2);
        let split_map = requests(&graph, &Split::default(), &some_layers(noise, &graph), &methods());
        let run = |threads: usize| {
            let explainer = Explainer::new(&graph, &split_map, &Cpu::default().threads(threads)).unwrap();
            map_bits(&explainer.explain(&images, &Class::Top, &Settings::default()).unwrap())
        };
        let one = run(1);
        assert!(run(2) == one && run(3) == one, "seed {seed}");
    });
}

#[test]
fn a_finished_map_is_the_raw_map_finished() {
    use monosplit_explain::Absolute;
    each_network(20, EVERYTHING, |seed, noise, graph| {
        let images = images(noise, &graph, 1);
        let at = layer(&graph, graph.inputs()[0]);
        let cam = SplitMap::SplitCam(Stream::G, StreamPart::Combined).at(Split::default(), at);
        let absolute = cam.clone().finish(Finish { absolute: Absolute::Map, ..Finish::default() });
        let explainer = Explainer::new(&graph, &[cam, absolute], &engine(Precision::F64)).unwrap();
        let explained = explainer.explain(&images, &Class::Top, &Settings::default()).unwrap();
        let raw: Vec<f64> = sample_of(&explained.maps[0], 0, 1).iter().map(|v| v.abs()).collect();
        assert_eq!(raw, sample_of(&explained.maps[1], 0, 1), "seed {seed}");
    });
}

#[test]
fn the_literal_streams_differ_by_the_network() {
    each_network(20, EVERYTHING, |seed, noise, graph| {
        let images = images(noise, &graph, 1);
        let numbers = Numbers { alpha: vec![0.0], theta: 0.1, limit: 10.0 };
        let literal = Literal::new(&graph, &Split::default(), &numbers);
        let original = activations(&graph, &images, Precision::F64).remove(0);
        let sample = literal.forward(original);
        for (pair, a) in sample.pairs.iter().zip(&sample.original) {
            let size = pair.plus.iter().map(|v| v.abs()).fold(0.0, f64::max);
            let apart = pair.plus.iter().zip(&pair.minus).zip(a).map(|((p, m), a)| (p - m - a).abs());
            assert!(a.is_empty() || apart.fold(0.0, f64::max) <= 1e-14 * size.max(1.0), "seed {seed}");
        }
    });
}
