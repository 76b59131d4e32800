//! What the definitions promise.

use monosplit_explain::methods::{
    Definition, FeatureAblation, ImageItself, IntegratedGradients, KernelShap, Lime, Measure, Occlusion,
    Rise, ScoreCam, SmoothGrad,
};
use monosplit_explain::{Baseline, Features, Quadrature};
use monosplit_graph::batch::rows;
use monosplit_graph::op::{Unary, Window};
use monosplit_graph::{Graph, Kind, Label, Noise, Op, Shape, Tensor};

use super::{CLASSES, apart, double, kept, map, network};

const SIDE: usize = 6;

fn weights(shape: &[usize], seed: u64, scale: f64) -> Tensor {
    let noise = Noise::new(seed);
    let values: Vec<f64> =
        (0..shape.iter().product::<usize>() as u64).map(|i| scale * noise.gaussian(i)).collect();
    Tensor::new(shape, values).unwrap()
}

/// Scores that are sums over the image.
fn linear(weights: Tensor, bias: f64) -> Graph {
    let mut g = Graph::new();
    let x = g.input("image", Shape::batched(&[2, SIDE, SIDE]), Kind::Float);
    let flat = g.reshaped(x, Shape::batched(&[2 * SIDE * SIDE])).unwrap();
    let (w, b) = (g.constant(weights), g.constant(Tensor::vector(vec![bias; 3])));
    let scores = g.add(Op::MatMul { trans_a: false, trans_b: true }, &[flat, w, b]).unwrap();
    g.output("scores", scores);
    g
}

/// A convolution, a curve and scores.
fn curved(curve: Unary) -> Graph {
    let mut g = Graph::new();
    let x = g.input("image", Shape::batched(&[2, SIDE, SIDE]), Kind::Float);
    let kernel = g.constant(weights(&[3, 2, 3, 3], 1, 0.7));
    let conv = Op::Conv { window: Window::new([3, 3]), groups: 1 };
    let a = g.add_named(Label::named("conv"), conv, &[x, kernel]).unwrap();
    let a = g.add(Op::Unary(curve), &[a]).unwrap();
    let flat = g.reshaped(a, Shape::batched(&[3 * (SIDE - 2) * (SIDE - 2)])).unwrap();
    let head = g.constant(weights(&[3, 3 * (SIDE - 2) * (SIDE - 2)], 2, 0.5));
    let scores = g.add(Op::MatMul { trans_a: false, trans_b: true }, &[flat, head]).unwrap();
    g.output("scores", scores);
    g
}

fn images() -> Tensor {
    weights(&[2, 2, SIDE, SIDE], 5, 1.0)
}

/// The explained score of each image.
fn scores(graph: &Graph, images: &Tensor) -> Vec<f64> {
    use monosplit_engine::Engine;
    let scores = double().compile(graph).unwrap().run(std::slice::from_ref(images)).unwrap().remove(0);
    let values = scores.to_f64();
    (0..images.shape()[0]).map(|row| values[row * scores.shape()[1] + CLASSES[row]]).collect()
}

#[test]
fn the_completeness_gap_shrinks_as_steps_grow() {
    for (graph, images, end) in [
        (curved(Unary::Softplus), images(), 1e-9),
        (curved(Unary::Relu), images(), 2e-2),
        (network(), kept("images"), 2e-2),
    ] {
        let gap = |steps| {
            // From zero, a ReLU network without biases is straight along the path and the gap nothing.
            let baseline = Baseline::Value(0.4);
            let method = IntegratedGradients { steps, baseline, ..IntegratedGradients::default() };
            let diagnostics = map(&graph, method, None, &double(), &images).diagnostics;
            diagnostics[0].values.iter().map(|gap| gap.abs()).fold(0.0, f64::max)
        };
        let gaps = [gap(1), gap(8), gap(300)];
        assert!(gaps[2] < end && gaps[2] < gaps[1] && gaps[1] < gaps[0], "{gaps:?}");
    }
}

#[test]
fn integrated_gradients_of_a_linear_network_are_its_contributions() {
    let w = weights(&[3, 2 * SIDE * SIDE], 3, 1.0);
    let method = IntegratedGradients {
        steps: 1,
        quadrature: Quadrature::RiemannLeft,
        baseline: Baseline::Value(0.5),
        ..IntegratedGradients::default()
    };
    let found = map(&linear(w.clone(), 1.0), method, None, &double(), &images());
    let (w, x, length) = (w.to_f64(), images().to_f64(), 2 * SIDE * SIDE);
    let expected: Vec<f64> =
        (0..2 * length).map(|i| w[CLASSES[i / length] * length + i % length] * (x[i] - 0.5)).collect();
    assert!(apart(&found.values, &Tensor::vector(expected)) < 1e-12);
    assert!(found.diagnostics[0].values.iter().all(|gap| gap.abs() < 1e-12));
}

#[test]
fn a_window_as_large_as_the_image_takes_away_everything() {
    let graph = curved(Unary::Relu);
    let method = Occlusion {
        window: Some(vec![SIDE, SIDE]),
        stride: Some(vec![1, 1]),
        baseline: Baseline::Mean,
        ..Occlusion::default()
    };
    let found = map(&graph, method, None, &double(), &images()).values.to_f64();
    let values = images().to_f64();
    let means = values.chunks(SIDE * SIDE).flat_map(|channel| {
        let mean = channel.iter().sum::<f64>() / channel.len() as f64;
        vec![mean; channel.len()]
    });
    let empty = Tensor::new([2, 2, SIDE, SIDE], means.collect::<Vec<f64>>()).unwrap();
    for (sample, (whole, empty)) in scores(&graph, &images()).iter().zip(scores(&graph, &empty)).enumerate() {
        let map = &found[sample * SIDE * SIDE..(sample + 1) * SIDE * SIDE];
        assert!(map.iter().all(|v| (v - (whole - empty)).abs() < 1e-12));
    }
}

/// The number of the grid's cell at each place, for a grid of `cells` a side.
fn cell(place: usize, cells: usize) -> usize {
    place / SIDE * cells / SIDE * cells + place % SIDE * cells / SIDE
}

/// What the parts of a grid contribute to a linear score.
fn contributions(w: &Tensor, cells: usize) -> Vec<f64> {
    let (w, x, places) = (w.to_f64(), images().to_f64(), SIDE * SIDE);
    let mut found = vec![0.0; 2 * cells * cells];
    for (i, x) in x.iter().enumerate() {
        let (sample, element) = (i / (2 * places), i % (2 * places));
        found[sample * cells * cells + cell(element % places, cells)] +=
            w[CLASSES[sample] * 2 * places + element] * x;
    }
    found
}

#[test]
fn lime_kernel_shap_and_ablation_recover_a_linear_network() {
    let w = weights(&[3, 2 * SIDE * SIDE], 3, 1.0);
    let graph = linear(w.clone(), 0.7);
    let expected = contributions(&w, 3);
    let features = Features::Grid(2);
    let lime = Lime {
        samples: 200,
        features: features.clone(),
        measure: Measure::Score,
        penalty: 0.0,
        ..Lime::default()
    };
    let shap = KernelShap { samples: 100, features: features.clone(), ..KernelShap::default() };
    let ablation = FeatureAblation { features, ..FeatureAblation::default() };
    let found = [
        map(&graph, lime, None, &double(), &images()),
        map(&graph, shap, None, &double(), &images()),
        map(&graph, ablation, None, &double(), &images()),
    ];
    for map in &found {
        for (i, v) in map.values.to_f64().iter().enumerate() {
            let part = i / (SIDE * SIDE) * 9 + cell(i % (SIDE * SIDE), 3);
            assert!((v - expected[part]).abs() < 1e-8, "{v} {}", expected[part]);
        }
    }
    assert!(found[0].diagnostics[0].values.iter().all(|explained| (explained - 1.0).abs() < 1e-9));
}

/// The Shapley values of the four cells of a 2 × 2 grid, by their definition.
fn shapley(graph: &Graph, image: &Tensor) -> Vec<f64> {
    let values = image.to_f64();
    let of = |set: usize| {
        let kept = values.iter().enumerate().map(|(i, v)| {
            let part = cell(i % (SIDE * SIDE), 2);
            if set >> part & 1 == 1 { *v } else { 0.0 }
        });
        scores(graph, &Tensor::new([1, 2, SIDE, SIDE], kept.collect::<Vec<f64>>()).unwrap())[0]
    };
    let known: Vec<f64> = (0..16).map(of).collect();
    let factorial = |n: u32| (1..=n).map(f64::from).product::<f64>();
    (0..4)
        .map(|part| {
            let others = (0..16usize).filter(|set| set >> part & 1 == 0);
            let share = |set: usize| {
                let size = set.count_ones();
                let weight = factorial(size) * factorial(3 - size) / factorial(4);
                weight * (known[set | 1 << part] - known[set])
            };
            others.map(share).sum()
        })
        .collect()
}

#[test]
fn kernel_shap_gives_shapley_values_exactly_or_nearly_and_always_shares_out_everything() {
    let graph = curved(Unary::Softplus);
    let image = rows(&images(), [0].into_iter()).unwrap();
    let expected = shapley(&graph, &image);
    let empty = Tensor::new([1, 2, SIDE, SIDE], vec![0f64; 2 * SIDE * SIDE]).unwrap();
    let rise = scores(&graph, &image)[0] - scores(&graph, &empty)[0];
    let features = Features::Grid(3);
    for (samples, tolerance) in [(16, 1e-9), (15, f64::INFINITY)] {
        let method = KernelShap { samples, features: features.clone(), ..KernelShap::default() };
        let found = map(&graph, method, None, &double(), &image).values.to_f64();
        let corners = [found[0], found[SIDE - 1], found[SIDE * (SIDE - 1)], found[SIDE * SIDE - 1]];
        assert!((corners.iter().sum::<f64>() - rise).abs() < 1e-9);
        assert!(
            corners.iter().zip(&expected).all(|(a, b)| (a - b).abs() < tolerance),
            "{corners:?} {expected:?}"
        );
    }
}

#[test]
fn drawn_sets_approach_the_shapley_values() {
    // Nine parts have 512 sets: 500 samples are drawn ones.
    let graph = curved(Unary::Softplus);
    let image = rows(&images(), [0].into_iter()).unwrap();
    let of = |samples, seed| {
        let features = Features::Grid(2);
        map(&graph, KernelShap { samples, features, seed, ..KernelShap::default() }, None, &double(), &image)
            .values
    };
    let exact = of(512, 0);
    let (few, many) = (of(60, 1), of(500, 1));
    assert!(apart(&many, &exact) < 0.1 && apart(&many, &exact) < apart(&few, &exact));
}

#[test]
fn rise_is_unbiased_on_a_linear_network() {
    // One pixel counts, in one corner. Far from it masks are independent of it, so that the map is
    // E[f(x ⊙ m) m] / p = f(p x); at the pixel it is larger.
    let mut w = vec![0.0; 3 * 2 * SIDE * SIDE];
    (0..3).for_each(|class| w[class * 2 * SIDE * SIDE] = 2.0);
    let graph = linear(Tensor::new([3, 2 * SIDE * SIDE], w).unwrap(), 0.5);
    let image = Tensor::new([1, 2, SIDE, SIDE], vec![1.5f64; 2 * SIDE * SIDE]).unwrap();
    let probability = 0.4;
    let method = Rise {
        samples: 20_000,
        grid: SIDE,
        probability,
        measure: Measure::Score,
        batch: 500,
        ..Rise::default()
    };
    let found = map(&graph, method, None, &double(), &image).values.to_f64();
    let expected = 0.5 + 2.0 * 1.5 * probability;
    for place in (0..SIDE * SIDE).filter(|place| place / SIDE > 2 || place % SIDE > 2) {
        assert!((found[place] - expected).abs() < 0.06, "{place}: {} {expected}", found[place]);
    }
    assert!(found[0] > expected + 0.3);
}

#[test]
fn superpixels_are_those_of_scikit_image_but_for_a_few_pixels() {
    // The part a pixel is in shows as the ablation's value where the network weighs every pixel differently.
    let (image, labels) = (kept("slic-image"), kept("slic-labels").to_i64().unwrap());
    let (height, width) = (image.shape()[1], image.shape()[2]);
    let length = 3 * height * width;
    let mut g = Graph::new();
    let x = g.input("image", Shape::batched(&[3, height, width]), Kind::Float);
    let flat = g.reshaped(x, Shape::batched(&[length])).unwrap();
    let w = g.constant(weights(&[3, length], 9, 1.0));
    let scores = g.add(Op::MatMul { trans_a: false, trans_b: true }, &[flat, w]).unwrap();
    g.output("scores", scores);
    let features = Features::Superpixels { segments: 24, compactness: 10.0 };
    let image = image.reshaped([1, 3, height, width]).unwrap();
    let found = map(&g, FeatureAblation { features, ..FeatureAblation::default() }, None, &double(), &image);
    let found = found.values.to_f64();
    let mut shared = std::collections::HashMap::<(i64, u64), usize>::new();
    labels.iter().zip(&*found).for_each(|(&label, v)| *shared.entry((label, v.to_bits())).or_default() += 1);
    let theirs: std::collections::HashSet<i64> = labels.iter().copied().collect();
    let best =
        |label: i64| shared.iter().filter(|((of, _), _)| *of == label).map(|(_, n)| *n).max().unwrap_or(0);
    let agreed: usize = theirs.iter().map(|&label| best(label)).sum();
    let ours: std::collections::HashSet<u64> = found.iter().map(|v| v.to_bits()).collect();
    assert!(ours.len().abs_diff(theirs.len()) <= 1, "{} {}", ours.len(), theirs.len());
    assert!(agreed as f64 > 0.97 * labels.len() as f64, "{agreed} of {}", labels.len());
}

#[test]
fn scorecam_lies_between_the_channels_by_both_definitions() {
    let features = map(&network(), ImageItself, Some("last:out"), &double(), &kept("images")).values.to_f64();
    for definition in [Definition::GradCam, Definition::Paper] {
        let method = ScoreCam { definition, ..ScoreCam::default() };
        let found = map(&network(), method, Some("last:out"), &double(), &kept("images")).values.to_f64();
        let places = found.len() / 2;
        for (i, v) in found.iter().enumerate() {
            let channels = (0..4).map(|channel| features[(i / places * 4 + channel) * places + i % places]);
            let least = channels.clone().fold(f64::INFINITY, f64::min);
            let greatest = channels.fold(f64::NEG_INFINITY, f64::max);
            assert!((least - 1e-9..=greatest + 1e-9).contains(v), "{definition:?}: {least} {v} {greatest}");
        }
    }
}

#[test]
fn the_image_is_a_layer_like_any_other_and_goes_by_its_name() {
    let (graph, images) = (network(), kept("images"));
    let name = graph.node(graph.inputs()[0]).label.tensor.clone();
    let smooth = || SmoothGrad { samples: 3, ..SmoothGrad::default() };
    let named = map(&graph, smooth(), Some(&name), &double(), &images);
    let unnamed = map(&graph, smooth(), None, &double(), &images);
    assert_eq!(named.values.to_f64(), unnamed.values.to_f64());
}
