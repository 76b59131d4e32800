//! α by layer: what patterns name, and that one shift with the α of two stands for a batch norm that was merged away.

use monosplit_engine::{Cpu, Precision};
use monosplit_explain::methods::SplitGrad;
use monosplit_explain::{AlphaInput, Class, Explainer, LayerAlphas, MapRequest, Settings, Split};
use monosplit_graph::op::{Reduction, Unary, Window};
use monosplit_graph::passes::{Stored, fold_batch_norm};
use monosplit_graph::{Graph, Kind, Label, NodeId, Op, Shape, Tensor};

use super::noise::Noise;

fn drawn(noise: &mut Noise, g: &mut Graph, shape: &[usize]) -> NodeId {
    let values = noise.numbers(shape.iter().product(), 1.0);
    g.constant(Tensor::new(shape.to_vec(), values).unwrap())
}

/// Two convolutions with batch norms, the second one in a residual branch, and a linear head.
fn network(noise: &mut Noise) -> Graph {
    let mut g = Graph::new();
    let x = g.input("x", Shape::batched(&[2, 5, 5]), Kind::Float);
    let mut block = |g: &mut Graph, name: &str, x: NodeId, channels: [usize; 2]| {
        let w = drawn(noise, g, &[channels[1], channels[0], 3, 3]);
        let op = Op::Conv { window: Window { pad: vec![(1, 1), (1, 1)], ..Window::new([3, 3]) }, groups: 1 };
        let z = g.add_named(Label::named(format!("{name}.conv")), op, &[x, w]).unwrap();
        let mut parameters: Vec<NodeId> = (0..3).map(|_| drawn(noise, g, &[channels[1]])).collect();
        let variance = g.constant(Tensor::new([channels[1]], vec![0.7f32; channels[1]]).unwrap());
        parameters.push(variance);
        let op = Op::BatchNorm { epsilon: 1e-5 };
        g.add_named(Label::named(format!("{name}.bn")), op, &[&[z], &*parameters].concat()).unwrap()
    };
    let a = block(&mut g, "first", x, [2, 3]);
    let a = g.add_named(Label::named("first.relu"), Op::Unary(Unary::Relu), &[a]).unwrap();
    let b = block(&mut g, "second", a, [3, 3]);
    let sum = g.plus(a, b).unwrap();
    let sum = g.add_named(Label::named("second.relu"), Op::Unary(Unary::Relu), &[sum]).unwrap();
    let pooled = g.reduced(Reduction::Mean, sum, &[2, 3], false).unwrap();
    let w = drawn(noise, &mut g, &[4, 3]);
    let op = Op::MatMul { trans_a: false, trans_b: true };
    let scores = g.add_named(Label::named("fc"), op, &[pooled, w]).unwrap();
    g.output("scores", scores);
    g
}

fn map(network: &Graph, alphas: &LayerAlphas, image: &Tensor) -> Vec<f64> {
    let split = Split::default().alpha(AlphaInput::PerLayer);
    let method = SplitGrad { split, ..SplitGrad::default() };
    let engine = Cpu::default().threads(1).precision(Precision::F64);
    let explainer = Explainer::new(network, &[MapRequest::at_input(method)], &engine).unwrap();
    let settings = Settings { alpha: alphas.of(&split, network).unwrap(), ..Settings::default() };
    let explained = explainer.explain(image, &Class::Index(1), &settings).unwrap();
    explained.maps[0].values.to_f64().to_vec()
}

#[test]
fn a_convolution_that_shifts_twice_stands_for_itself_and_its_batch_norm() {
    let mut changes = 0;
    for seed in 0..5 {
        let mut noise = Noise::new(seed);
        let kept = network(&mut noise);
        let folded = fold_batch_norm(&kept, Stored::Double).unwrap();
        assert!(folded.nodes().all(|(_, node)| !matches!(node.op, Op::BatchNorm { .. })));
        let image = Tensor::new([1, 2, 5, 5], noise.numbers(50, 1.0)).unwrap();
        let twice = LayerAlphas::new(0.3).at("convolutions", LayerAlphas::twice(0.3));
        let (expected, found) = (map(&kept, &LayerAlphas::new(0.3), &image), map(&folded, &twice, &image));
        let largest = expected.iter().fold(0.0, |most: f64, v| most.max(v.abs()));
        let apart = expected.iter().zip(&found).map(|(e, f)| (e - f).abs()).fold(0.0, f64::max);
        // Weights are kept in single precision, which the product with the batch norm rounds.
        assert!(apart <= 1e-5 * largest, "seed {seed}: {apart:e} of {largest:e}");
        let once = map(&folded, &LayerAlphas::new(0.3), &image);
        let changed = expected.iter().zip(&once).map(|(e, f)| (e - f).abs()).fold(0.0, f64::max);
        changes += usize::from(changed > 1e-2 * largest);
    }
    // Where no ReLU above discards anything there is nothing to shift.
    assert!(changes >= 3, "the second shift matters in {changes} of 5 networks");
}

#[test]
fn patterns_name_layers_and_the_last_one_counts() {
    let graph = network(&mut Noise::new(0));
    let split = Split::default();
    let names = split.shifted_layers(&graph).unwrap();
    let alphas = LayerAlphas::new(0.4).at("second.*", 0.2).at("*.bn", 0.1).at("scores", 0.0);
    for ((name, alpha), position) in names.iter().zip(alphas.of(&split, &graph).unwrap()).zip(1..) {
        let expected = match name.as_str() {
            _ if position == names.len() => 0.0,
            "first.bn" | "second.bn" => 0.1,
            "second.conv" | "second.relu" => 0.2,
            _ => 0.4,
        };
        assert_eq!(alpha, expected, "{name}");
    }
    let message = LayerAlphas::new(0.4).at("third.*", 0.1).of(&split, &graph).unwrap_err().to_string();
    assert!(message.contains("third.*") && message.contains("first.conv"), "{message}");
}
