//! What must hold on any network: relevance is kept where there are no biases, ε-LRP becomes input times gradient, and
//! DeepLIFT's attributions add up to the change of the score.

use std::sync::Arc;

use monosplit_engine::{Cpu, Precision};
use monosplit_explain::methods::{Baselines, DeepLift, DeepShap, Gradient, Lrp, RelevanceSeed};
use monosplit_explain::{
    ChannelReduction, Class, Composite, Conservation, Explainer, Explanation, Finish, MapRequest, Method,
    NamedRule, ReferenceImage, Rule, Settings,
};
use monosplit_graph::op::{Binary, Divisor, Reduction, Unary, Window};
use monosplit_graph::{Graph, Kind, Label, NodeId, Noise, Op, Result, Shape, Tensor};

/// A network put together at random: residual sums, concatenations, pools, a convolution used twice.
struct Random {
    g: Graph,
    noise: Noise,
    drawn: u64,
    biases: bool,
}

impl Random {
    fn tensor(&mut self, shape: &[usize]) -> NodeId {
        self.drawn += 1;
        let noise = self.noise.numbered(self.drawn);
        let fan_in = (shape[1..].iter().product::<usize>().max(1)) as f64;
        let count = shape.iter().product::<usize>();
        let values: Vec<f64> = (0..count).map(|i| noise.gaussian(i as u64) * (2.0 / fan_in).sqrt()).collect();
        self.g.constant(Tensor::new(shape.to_vec(), values).unwrap())
    }

    fn conv(&mut self, name: &str, x: NodeId, out: usize, kernel: usize) -> Result<NodeId> {
        let channels = self.g.node(x).shape.fixed_at(1).unwrap();
        let mut inputs = vec![x, self.tensor(&[out, channels, kernel, kernel])];
        if self.biases {
            inputs.push(self.tensor(&[out]));
        }
        let mut window = Window::new([kernel, kernel]);
        window.pad = vec![(kernel / 2, kernel / 2); 2];
        self.g.add_named(Label::named(name), Op::Conv { window, groups: 1 }, &inputs)
    }

    fn network(seed: u64, biases: bool, activation: Unary) -> Graph {
        let noise = Noise::new(seed).stream("network");
        let mut r = Random { g: Graph::new(), noise, drawn: 0, biases };
        r.build(activation).unwrap();
        r.g
    }

    fn build(&mut self, activation: Unary) -> Result<()> {
        let image = self.g.input("image", Shape::batched(&[3, 8, 8]), Kind::Float);
        let a = self.conv("stem", image, 4, 3)?;
        let a = self.g.add_named(Label::named("stem.relu"), Op::Unary(activation), &[a])?;
        let mut window = Window::new([3, 3]);
        window.stride = vec![2, 2];
        window.pad = vec![(1, 1); 2];
        let a = self.g.add_named(Label::named("pool"), Op::MaxPool(window), &[a])?;
        let b = self.conv("block.conv", a, 4, 3)?;
        let sum = self.g.add_named(Label::named("block.add"), Op::Binary(Binary::Add), &[a, b])?;
        let a = self.g.add_named(Label::named("block.relu"), Op::Unary(activation), &[sum])?;
        let left = self.conv("left", a, 3, 1)?;
        let left = self.g.unary(activation, left)?;
        let right = self.conv("right", a, 3, 3)?;
        let right = self.g.unary(activation, right)?;
        let joined =
            self.g.add_named(Label::named("joined"), Op::Concat { axis: 1 }, &[left, right, left])?;
        let average = Op::AveragePool { window: Window::new([2, 2]), divisor: Divisor::Padded };
        let a = self.g.add_named(Label::named("average"), average, &[joined])?;
        let flat = self.g.reduced(Reduction::Mean, a, &[2, 3], false)?;
        let w = self.tensor(&[5, 9]);
        let dense = Op::MatMul { trans_a: false, trans_b: true };
        let scores = self.g.add_named(Label::named("fc"), dense, &[flat, w])?;
        self.g.output("scores", scores);
        Ok(())
    }
}

fn images(count: usize) -> Tensor {
    let noise = Noise::new(5).stream("images");
    let values: Vec<f64> = (0..count * 192).map(|i| noise.gaussian(i as u64)).collect();
    Tensor::new([count, 3, 8, 8], values).unwrap()
}

fn engine() -> Cpu {
    Cpu::default().precision(Precision::F64)
}

fn explained(network: &Graph, methods: Vec<Arc<dyn Method>>, images: &Tensor) -> Explanation {
    let finish = Finish { channels: ChannelReduction::Keep, ..Finish::default() };
    let requests: Vec<MapRequest> =
        methods.into_iter().map(|method| MapRequest::of(method, None).finish(finish)).collect();
    let explainer = Explainer::new(network, &requests, &engine()).unwrap();
    explainer.explain(images, &Class::Top, &Settings::default()).unwrap()
}

/// The explained scores.
fn scores(explained: &Explanation) -> Vec<f64> {
    let (all, classes) = (explained.logits.to_f64(), explained.logits.shape()[1]);
    explained.classes.iter().enumerate().map(|(row, class)| all[row * classes + class]).collect()
}

fn sums(values: &Tensor) -> Vec<f64> {
    let each = values.len() / values.shape()[0];
    values.to_f64().chunks(each).map(|row| row.iter().sum()).collect()
}

fn close(a: f64, b: f64, tolerance: f64) -> bool {
    (a - b).abs() <= tolerance * b.abs().max(1.0)
}

#[test]
fn relevance_is_kept_from_layer_to_layer() {
    let stabiliser = 1e-12;
    let kept = |composite: Composite| Composite { stabiliser, ..composite };
    let composites = [
        kept(Composite::everywhere(Rule::Epsilon { epsilon: 1e-12 })),
        kept(Composite::everywhere(Rule::Gamma { gamma: 0.25 })),
        kept(Composite::everywhere(Rule::PaperGamma { gamma: 0.25 })),
        Composite {
            dense: Rule::Epsilon { epsilon: 1e-12 },
            ..kept(Composite::epsilon_gamma_box(vec![-6.0], vec![6.0]))
        },
    ];
    for seed in 0..4 {
        let network = Random::network(seed, false, Unary::Relu);
        for composite in &composites {
            let lrp = Lrp { composite: composite.clone(), seed: RelevanceSeed::Score };
            let conservation = Conservation::new(&network, &lrp, &engine()).unwrap();
            let totals = conservation.totals(&images(3), &Class::Top).unwrap();
            let names: Vec<&str> = totals.iter().filter(|t| t.whole).map(|t| t.layer.as_str()).collect();
            for layer in ["fc", "average", "joined", "block.relu", "pool", "stem", "image"] {
                assert!(names.contains(&layer), "{layer} in {names:?}");
            }
            assert!(!names.contains(&"block.conv") && !names.contains(&"right"), "{names:?}");
            for total in totals.iter().filter(|total| total.whole) {
                for (found, score) in total.totals.iter().zip(&totals[0].totals) {
                    let (name, layer) = (&composite.name, &total.layer);
                    assert!(close(*found, *score, 1e-6), "{name} {seed} {layer}: {found} of {score}");
                }
            }
        }
    }
}

#[test]
fn epsilon_without_biases_is_input_times_gradient() {
    for seed in 0..4 {
        let network = Random::network(seed, false, Unary::Relu);
        let composite =
            Composite { stabiliser: 1e-14, ..Composite::everywhere(Rule::Epsilon { epsilon: 1e-14 }) };
        let methods: Vec<Arc<dyn Method>> =
            vec![Arc::new(Lrp { composite, seed: RelevanceSeed::Score }), Arc::new(Gradient)];
        let images = images(2);
        let found = explained(&network, methods, &images);
        let (relevance, gradient) = (found.maps[0].values.to_f64(), found.maps[1].values.to_f64());
        let largest = relevance.iter().fold(0f64, |most, r| most.max(r.abs()));
        for ((r, d), x) in relevance.iter().zip(gradient.iter()).zip(images.to_f64().iter()) {
            assert!((r - d * x).abs() < 1e-8 * largest, "{r} and {}", d * x);
        }
    }
}

#[test]
fn deep_lift_adds_up_to_the_change_of_the_score() {
    for activation in [Unary::Relu, Unary::Silu, Unary::Tanh, Unary::Clip { min: -0.5, max: 1.0 }] {
        let network = Random::network(7, true, activation);
        for value in [0.0, 0.4] {
            let lift = DeepLift { baseline: ReferenceImage::Value(value), ..DeepLift::default() };
            let images = images(3);
            let found = explained(&network, vec![Arc::new(lift)], &images);
            let blank = Tensor::new([1, 3, 8, 8], vec![value; 192]).unwrap();
            let before = explained(&network, Vec::new(), &blank).logits.to_f64();
            for (row, total) in sums(&found.maps[0].values).into_iter().enumerate() {
                let change = scores(&found)[row] - before[found.classes[row]];
                assert!(close(total, change, 1e-9), "{activation:?} {value}: {total} of {change}");
            }
        }
    }
}

/// A squeezed gate, a product of two signals, a layer norm, the smaller of two: `[N, 3]` to scores.
fn gated() -> Graph {
    let noise = Noise::new(3).stream("gated");
    let mut g = Graph::new();
    let x = g.input("image", Shape::batched(&[6]), Kind::Float);
    let dense = |g: &mut Graph, x: NodeId, name: &str, wide: usize| {
        let values: Vec<f64> = (0..36).map(|i| noise.stream(name).gaussian(i) * 0.6).collect();
        let w = g.constant(Tensor::new([6, wide], values[..6 * wide].to_vec()).unwrap());
        g.add_named(Label::named(name), Op::MatMul { trans_a: false, trans_b: false }, &[x, w]).unwrap()
    };
    let signal = dense(&mut g, x, "signal", 6);
    let gate = dense(&mut g, x, "gate", 6);
    let gate = g.unary(Unary::Sigmoid, gate).unwrap();
    let gated = g.add_named(Label::named("gated"), Op::Binary(Binary::Mul), &[signal, gate]).unwrap();
    let scale = g.constant(Tensor::vector(vec![1.0; 6]));
    let normed = g.add_named(Label::named("norm"), Op::LayerNorm { axis: 1, epsilon: 1e-5 }, &[gated, scale]);
    let other = dense(&mut g, normed.unwrap(), "other", 6);
    let product = g.add_named(Label::named("product"), Op::Binary(Binary::Mul), &[other, gated]).unwrap();
    let smaller = g.add_named(Label::named("smaller"), Op::Binary(Binary::Min), &[product, other]).unwrap();
    let scores = dense(&mut g, smaller, "head", 3);
    g.output("scores", scores);
    g
}

#[test]
fn products_and_normalisation_keep_what_they_are_given() {
    let network = gated();
    let values: Vec<f64> = (0..12).map(|i| Noise::new(1).gaussian(i)).collect();
    let images = Tensor::new([2, 6], values).unwrap();
    let composite =
        Composite { stabiliser: 1e-13, ..Composite::everywhere(Rule::Epsilon { epsilon: 1e-13 }) };
    let lrp = Lrp { composite, seed: RelevanceSeed::Score };
    let found = explained(&network, vec![Arc::new(lrp), Arc::new(DeepLift::default())], &images);
    for (row, total) in sums(&found.maps[0].values).into_iter().enumerate() {
        assert!(close(total, scores(&found)[row], 1e-6), "{total} of {}", scores(&found)[row]);
    }
    let blank = Tensor::new([1, 6], vec![0.0; 6]).unwrap();
    let before = explained(&network, Vec::new(), &blank).logits.to_f64();
    for (row, total) in sums(&found.maps[1].values).into_iter().enumerate() {
        let change = scores(&found)[row] - before[found.classes[row]];
        assert!(close(total, change, 1e-7), "{total} of {change}");
    }
}

#[test]
fn the_seed_is_a_factor() {
    let network = Random::network(2, true, Unary::Relu);
    let lrp = |seed| -> Arc<dyn Method> { Arc::new(Lrp { seed, ..Lrp::default() }) };
    let found = explained(&network, vec![lrp(RelevanceSeed::Score), lrp(RelevanceSeed::One)], &images(1));
    let score = scores(&found)[0];
    for (a, b) in found.maps[0].values.to_f64().iter().zip(found.maps[1].values.to_f64().iter()) {
        assert!(close(*a, b * score, 1e-9), "{a} and {b} times {score}");
    }
}

#[test]
fn a_rule_by_name_is_used_there_and_nowhere_else() {
    let network = Random::network(1, true, Unary::Relu);
    let with = |named: Vec<NamedRule>| -> Arc<dyn Method> {
        Arc::new(Lrp { composite: Composite { named, ..Composite::epsilon_plus() }, ..Lrp::default() })
    };
    let named = |pattern: &str, rule: Rule| NamedRule { pattern: pattern.into(), rule };
    let methods = vec![
        with(vec![]),
        with(vec![named("stem", Rule::Flat)]),
        with(vec![named("*", Rule::Flat)]),
        Arc::new(Lrp { composite: Composite::epsilon_plus_flat(), ..Lrp::default() }),
    ];
    let found = explained(&network, methods, &images(1));
    let maps: Vec<_> = found.maps.iter().map(|map| map.values.to_f64().into_vec()).collect();
    assert_eq!(maps[1], maps[3]);
    assert_ne!(maps[0], maps[1]);
    assert_ne!(maps[2], maps[1]);
    let unknown = MapRequest::of(with(vec![named("layer9", Rule::Flat)]), None);
    let refused = Explainer::new(&network, &[unknown], &engine()).err().unwrap().to_string();
    assert!(refused.contains("layer9"), "{refused}");
}

#[test]
fn deep_shap_is_the_mean_of_deep_lift() {
    let network = Random::network(4, true, Unary::Relu);
    let noise = Noise::new(8);
    let values: Vec<f64> = (0..3 * 192).map(|i| noise.gaussian(i)).collect();
    let baselines = Tensor::new([3, 3, 8, 8], values.clone()).unwrap();
    let mut methods: Vec<Arc<dyn Method>> = Vec::new();
    for one in values.chunks(192) {
        let baseline = ReferenceImage::Image(Tensor::new([1, 3, 8, 8], one.to_vec()).unwrap());
        methods.push(Arc::new(DeepLift { baseline, ..DeepLift::default() }));
    }
    methods.push(Arc::new(DeepShap { baselines: Baselines::Images(baselines), ..DeepShap::default() }));
    let found = explained(&network, methods, &images(2));
    let maps: Vec<_> = found.maps.iter().map(|map| map.values.to_f64().into_vec()).collect();
    for (i, mean) in maps[3].iter().enumerate() {
        assert!(close(*mean, (maps[0][i] + maps[1][i] + maps[2][i]) / 3.0, 1e-12));
    }
    let gap = &found.maps[3].diagnostics[0];
    assert!(gap.values.len() == 2 && gap.values.iter().all(|gap| gap.abs() < 1e-9), "{gap:?}");
}

#[test]
fn baselines_of_another_shape_are_refused() {
    let network = Random::network(4, true, Unary::Relu);
    let small = Tensor::new([1, 3, 4, 4], vec![0f32; 48]).unwrap();
    let lift = MapRequest::at_input(DeepLift {
        baseline: ReferenceImage::Image(small.clone()),
        ..DeepLift::default()
    });
    assert!(Explainer::new(&network, &[lift], &engine()).is_err());
    let shap = MapRequest::at_input(DeepShap { baselines: Baselines::Images(small), ..DeepShap::default() });
    let explainer = Explainer::new(&network, &[shap], &engine()).unwrap();
    assert!(explainer.explain(&images(1), &Class::Top, &Settings::default()).is_err());
}
