//! AttnLRP against the package of its authors (`scripts/make_attention_peer.py`) and against a transcription of its rules
//! (`scripts/make_attention_relevance.py`), both in double precision, and what becomes of the total.

use std::path::Path;
use std::sync::Arc;

use monosplit_engine::{Cpu, Engine, Precision};
use monosplit_explain::methods::{Lrp, RelevanceSeed};
use monosplit_explain::{
    ChannelReduction, Class, Composite, Conservation, Explainer, Finish, MapRequest, Products, Rule, Settings,
};
use monosplit_graph::onnx::{self, ImportOptions};
use monosplit_graph::op::{Binary, Reduction, Unary};
use monosplit_graph::passes::{CanonicalOptions, Stored, canonicalise};
use monosplit_graph::{Graph, Kind, Label, NodeId, Noise, Op, Shape, Tensor, npy};

fn double() -> Cpu {
    Cpu::default().precision(Precision::F64)
}

fn array(name: &str) -> Tensor {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/attention");
    npy::read(&std::fs::read(folder.join(name)).unwrap()).unwrap()
}

fn transformer(file: &str) -> Graph {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/attention");
    let graph = onnx::open(&folder.join(file), &ImportOptions::default()).unwrap();
    let evaluate = |g: &Graph| double().compile(g)?.run(&[]);
    let options = CanonicalOptions::default().stored(Stored::Double);
    canonicalise(&graph, options, &evaluate).unwrap().0
}

fn relevance(composite: Composite, layer: Option<String>) -> Vec<f64> {
    relevance_of(["network.onnx", "x.npy"], composite, layer)
}

fn relevance_of([file, images]: [&str; 2], composite: Composite, layer: Option<String>) -> Vec<f64> {
    let finish = Finish { channels: ChannelReduction::Keep, ..Finish::default() };
    let method = Arc::new(Lrp { composite, seed: RelevanceSeed::Score });
    let request = MapRequest::of(method, layer).finish(finish);
    let explainer = Explainer::new(&transformer(file), &[request], &double()).unwrap();
    let classes = array("classes.npy").to_i64().unwrap().iter().map(|&c| c as usize).collect();
    let found = explainer.explain(&array(images), &Class::PerSample(classes), &Settings::default()).unwrap();
    found.maps[0].values.to_f64().into_vec()
}

fn agrees(found: &[f64], expected: &str, tolerance: f64) {
    let expected = array(expected).to_f64().into_vec();
    assert_eq!(found.len(), expected.len());
    let largest = expected.iter().fold(0f64, |most, v| most.max(v.abs()));
    let apart = found.iter().zip(&expected).fold(0f64, |most, (a, b)| most.max((a - b).abs()));
    assert!(apart <= tolerance * largest, "{apart:e} of {largest:e}");
}

fn epsilon() -> Rule {
    Rule::Epsilon { epsilon: 1e-6 }
}

#[test]
fn relevance_passes_attention_as_transcribed() {
    agrees(&relevance(Composite::attention(epsilon()), None), "image.npy", 1e-9);
    agrees(&relevance(Composite::attention(epsilon()), Some("block.norm1:in".into())), "block.npy", 1e-9);
    agrees(&relevance(Composite::attention(Rule::Gamma { gamma: 0.25 }), None), "gamma.npy", 1e-9);
}

#[test]
fn relevance_passes_attention_as_its_authors_have_it() {
    let rule = Rule::Epsilon { epsilon: 1e-13 };
    let composite = Composite { stabiliser: 1e-13, ..Composite::attention(rule) };
    let block = relevance_of(["network.onnx", "x.npy"], composite.clone(), None);
    agrees(&block, "peer-block.npy", 1e-9);
    // The file has √2 of the activation in single precision.
    agrees(&relevance_of(["vit.onnx", "vit-x.npy"], composite, None), "peer-vit.npy", 1e-7);
}

/// `x W` over the last axis, without a bias.
fn mapped(g: &mut Graph, noise: &Noise, name: &str, x: NodeId, columns: usize) -> NodeId {
    let rows = g.node(x).shape.dims().last().and_then(|dim| dim.fixed()).unwrap();
    let values: Vec<f64> = (0..rows * columns).map(|i| noise.stream(name).gaussian(i as u64) * 0.6).collect();
    let w = g.constant(Tensor::new([rows, columns], values).unwrap());
    g.add_named(Label::named(name), Op::MatMul { trans_a: false, trans_b: false }, &[x, w]).unwrap()
}

/// Attention over a norm, then a gate, without biases: `[N, 4, 6]` to scores.
fn block(noise: &Noise) -> Graph {
    let mut g = Graph::new();
    let x = g.input("image", Shape::batched(&[4, 6]), Kind::Float);
    let scale = g.constant(Tensor::vector(vec![1.25; 6]));
    let norm = Op::LayerNorm { axis: 2, epsilon: 1e-3 };
    let y = g.add_named(Label::named("norm"), norm, &[x, scale]).unwrap();
    let [q, k, v] = ["q", "k", "v"].map(|name| mapped(&mut g, noise, name, y, 6));
    let dots = Op::MatMul { trans_a: false, trans_b: true };
    let logits = g.add_named(Label::named("logits"), dots, &[q, k]).unwrap();
    let weights = g.add_named(Label::named("weights"), Op::Softmax { axis: 2 }, &[logits]).unwrap();
    let mix = Op::MatMul { trans_a: false, trans_b: false };
    let mixed = g.add_named(Label::named("mixed"), mix, &[weights, v]).unwrap();
    let gate = mapped(&mut g, noise, "gate", mixed, 6);
    let gate = g.add_named(Label::named("open"), Op::Unary(Unary::Sigmoid), &[gate]).unwrap();
    let gated = g.add_named(Label::named("gated"), Op::Binary(Binary::Mul), &[mixed, gate]).unwrap();
    let pooled = g.reduced(Reduction::Mean, gated, &[1], false).unwrap();
    let scores = mapped(&mut g, noise, "head", pooled, 3);
    g.output("scores", scores);
    g
}

/// Static quantisation rounds a product over tokens before its bias is added: the two are one layer all the same.
#[test]
fn issue_27_a_quantiser_between_a_product_and_its_bias_is_passed() {
    let noise = Noise::new(5);
    let network = |rounded: bool| {
        let mut g = Graph::new();
        let x = g.input("image", Shape::batched(&[4, 6]), Kind::Float);
        let mut y = mapped(&mut g, &noise, "dense", x, 5);
        if rounded {
            let (min, max) = (f64::NEG_INFINITY, f64::INFINITY);
            y = g.unary(Unary::Quantise { step: 1e-12, min, max }, y).unwrap();
        }
        let bias: Vec<f64> = (0..5).map(|i| noise.stream("bias").gaussian(i)).collect();
        let bias = g.constant(Tensor::vector(bias));
        let biased = g.plus(y, bias).unwrap();
        let active = g.rectified(biased).unwrap();
        let pooled = g.reduced(Reduction::Mean, active, &[1], false).unwrap();
        let scores = mapped(&mut g, &noise, "head", pooled, 3);
        g.output("scores", scores);
        g
    };
    let values: Vec<f64> = (0..48).map(|i| noise.stream("x").gaussian(i)).collect();
    let images = Tensor::new([2, 4, 6], values).unwrap();
    let rules = [epsilon(), Rule::Gamma { gamma: 0.25 }, Rule::ZPlus];
    let composites = rules.map(Composite::everywhere).into_iter().chain([Composite::attention(epsilon())]);
    for composite in composites {
        let maps = [false, true].map(|rounded| {
            let method = Arc::new(Lrp { composite: composite.clone(), seed: RelevanceSeed::Score });
            let request = MapRequest::of(method, None);
            let explainer = Explainer::new(&network(rounded), &[request], &double()).unwrap();
            let found = explainer.explain(&images, &Class::Top, &Settings::default()).unwrap();
            found.maps[0].values.to_f64().into_vec()
        });
        let largest = maps[0].iter().fold(0f64, |most, v| most.max(v.abs()));
        for (a, b) in maps[0].iter().zip(&maps[1]) {
            assert!((a - b).abs() <= 1e-7 * largest, "{}: {a} {b}", composite.name);
        }
    }
}

/// In single precision, relevance by the rules of `lrp` loses its digits from block to block: it is computed in double
/// precision where there are tokens, and the rules of AttnLRP, which do not need it, are not.
#[test]
fn issue_27_relevance_over_tokens_is_computed_in_double_precision() {
    let noise = Noise::new(3);
    let network = block(&noise);
    let values: Vec<f32> = (0..48).map(|i| noise.stream("x").gaussian(i) as f32).collect();
    let images = Tensor::new([2, 4, 6], values).unwrap();
    let request =
        |composite: Composite| MapRequest::of(Arc::new(Lrp { composite, seed: RelevanceSeed::Score }), None);
    let map = |request: MapRequest, engine: &Cpu| {
        let explainer = Explainer::new(&network, &[request], engine).unwrap();
        explainer.explain(&images, &Class::Top, &Settings::default()).unwrap().maps[0]
            .values
            .to_f64()
            .into_vec()
    };
    let plus = request(Composite::epsilon_plus());
    assert!(plus.needs_double_precision(&network));
    assert!(!request(Composite::attention(epsilon())).needs_double_precision(&network));
    let (single, double) = (map(plus.clone(), &Cpu::default()), map(plus, &double()));
    let largest = double.iter().fold(0f64, |most, v| most.max(v.abs()));
    for (a, b) in single.iter().zip(&double) {
        assert!((a - b).abs() <= 6e-8 * largest, "{a} {b}");
    }
}

/// All rules but that of the softmax keep the total: what the image lacks of the score is what went missing there.
#[test]
fn only_softmax_takes_relevance() {
    for seed in 0..6 {
        let noise = Noise::new(seed);
        let network = block(&noise);
        let rule = Rule::Epsilon { epsilon: 1e-13 };
        let composite = Composite { stabiliser: 1e-13, ..Composite::attention(rule) };
        assert_eq!(composite.products, Products::Halved);
        let lrp = Lrp { composite, seed: RelevanceSeed::Score };
        let values: Vec<f64> = (0..48).map(|i| noise.stream("x").gaussian(i)).collect();
        let images = Tensor::new([2, 4, 6], values).unwrap();
        let conservation = Conservation::new(&network, &lrp, &double()).unwrap();
        let layers = conservation.totals(&images, &Class::Top).unwrap();
        let total = |name: &str| &layers.iter().find(|layer| layer.layer == name).unwrap().totals;
        for row in 0..2 {
            let [head, gated, mixed, weights, v, logits, q, k, norm, image] =
                ["head", "gated", "mixed", "weights", "v", "logits", "q", "k", "norm", "image"]
                    .map(|name| total(name)[row]);
            let size = layers.iter().fold(1f64, |most, layer| most.max(layer.totals[row].abs()));
            let same = |a: f64, b: f64| assert!((a - b).abs() <= 1e-7 * size, "{seed}: {a} and {b}");
            same(head, gated);
            same(gated, mixed);
            same(weights, mixed / 2.0);
            same(v, mixed / 2.0);
            same(q, logits / 2.0);
            same(k, logits / 2.0);
            same(norm, head - (weights - logits));
            same(image, norm);
            assert!((weights - logits).abs() > 1e-6, "{seed}: {weights} and {logits}");
        }
    }
}

/// CaiT, ConViT and others mix heads before they weigh anything with them; relevance then reaches the softmax.
#[test]
fn issue_27_a_softmax_that_weighs_nothing_is_passed_by_the_rule_of_attention() {
    let mut g = Graph::new();
    let x = g.input("image", Shape::batched(&[4, 6]), Kind::Float);
    let weights = g.add_named(Label::named("weights"), Op::Softmax { axis: 2 }, &[x]).unwrap();
    let pooled = g.reduced(Reduction::Mean, weights, &[1], false).unwrap();
    let scores = mapped(&mut g, &Noise::new(1), "head", pooled, 3);
    g.output("scores", scores);
    let images: Vec<f64> = (0..24).map(|i| (f64::from(i) * 0.7).sin()).collect();
    let images_as_tensor = Tensor::new([1, 4, 6], images.clone()).unwrap();
    for composite in [Composite::attention(epsilon()), Composite::everywhere(epsilon())] {
        let method = Arc::new(Lrp { composite, seed: RelevanceSeed::Score });
        let finish = Finish { channels: ChannelReduction::Keep, ..Finish::default() };
        let at =
            |layer: Option<&str>| MapRequest::of(method.clone(), layer.map(str::to_owned)).finish(finish);
        let explainer = Explainer::new(&g, &[at(None), at(Some("weights:out"))], &double()).unwrap();
        let found = explainer.explain(&images_as_tensor, &Class::Index(1), &Settings::default()).unwrap();
        let [below, above] = [0, 1].map(|map| found.maps[map].values.to_f64().into_vec());
        for row in 0..4 {
            let of = |values: &[f64]| values[6 * row..6 * row + 6].to_vec();
            let (x, r) = (of(&images), of(&above));
            let total: f64 = x.iter().map(|x| x.exp()).sum();
            for i in 0..6 {
                let expected = x[i] * (r[i] - x[i].exp() / total * r.iter().sum::<f64>());
                assert!(
                    (below[6 * row + i] - expected).abs() <= 1e-12,
                    "{} and {expected}",
                    below[6 * row + i]
                );
            }
        }
        assert!(above.iter().any(|r| r.abs() > 1e-3));
    }
}
