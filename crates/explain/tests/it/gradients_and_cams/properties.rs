//! What must hold on any network: at the last map before global average pooling and a linear layer Grad-CAM is CAM and
//! HiResCAM adds up to the score, rules for ReLUs change nothing where nothing is negative, and a layer used twice is
//! two layers.

use std::sync::Arc;

use monosplit_engine::{Cpu, Engine, Precision};
use monosplit_explain::methods::{
    Deconvolution, GradCam, Gradient, GuidedBackprop, HiResCam, InputXGradient, LayerCam, Saliency, XGradCam,
};
use monosplit_explain::{
    ChannelReduction, Class, Explainer, Explanation, Finish, MapRequest, Method, Settings,
};
use monosplit_graph::op::{Reduction, Unary, Window};
use monosplit_graph::{Graph, Kind, Label, NodeId, Noise, Op, Shape, Tensor};

const CHANNELS: usize = 5;
const CLASSES: usize = 3;

/// What a network is made of.
#[derive(Clone, Copy)]
struct Recipe {
    seed: u64,
    /// Whether no weight is negative.
    positive: bool,
    biases: bool,
    /// Whether the second convolution is the first one's node again, or one of its own with the same weights.
    shared: bool,
}

impl Recipe {
    fn tensor(&self, name: &str, shape: &[usize]) -> Tensor {
        let noise = Noise::new(self.seed).stream(name);
        let fan_in = shape[1..].iter().product::<usize>().max(1) as f64;
        let draw = |i| {
            let value = noise.gaussian(i) * (2.0 / fan_in).sqrt();
            if self.positive { value.abs() } else { value }
        };
        Tensor::new(shape.to_vec(), (0..shape.iter().product::<usize>() as u64).map(draw).collect::<Vec<_>>())
            .unwrap()
    }

    fn conv(&self, g: &mut Graph, x: NodeId, weights: NodeId, bias: Option<NodeId>, name: &str) -> NodeId {
        let mut window = Window::new([3, 3]);
        window.pad = vec![(1, 1); 2];
        let inputs: Vec<NodeId> = [x, weights].into_iter().chain(bias).collect();
        let z = g.add_named(Label::named(name), Op::Conv { window, groups: 1 }, &inputs).unwrap();
        g.add_named(Label::named(format!("{name}.relu")), Op::Unary(Unary::Relu), &[z]).unwrap()
    }

    /// Three convolutions, a residual sum around the second, the mean of every channel, a linear layer.
    fn network(&self) -> Graph {
        let mut g = Graph::new();
        let x = g.input("image", Shape::batched(&[3, 6, 6]), Kind::Float);
        let first = g.constant(self.tensor("first", &[CHANNELS, 3, 3, 3]));
        let inner = g.constant(self.tensor("inner", &[CHANNELS, CHANNELS, 3, 3]));
        let again =
            if self.shared { inner } else { g.constant(self.tensor("inner", &[CHANNELS, CHANNELS, 3, 3])) };
        let bias = self.biases.then(|| g.constant(self.tensor("bias", &[CHANNELS])));
        let a = self.conv(&mut g, x, first, bias, "stem");
        let b = self.conv(&mut g, a, inner, bias, "once");
        let sum = g.plus(a, b).unwrap();
        let last = self.conv(&mut g, sum, again, bias, "again");
        let mean = g.reduced(Reduction::Mean, last, &[2, 3], false).unwrap();
        let weights = g.constant(self.head());
        let dense = Op::MatMul { trans_a: false, trans_b: true };
        let mut scores = g.add_named(Label::named("fc"), dense, &[mean, weights]).unwrap();
        if self.biases {
            let bias = g.constant(self.head_bias());
            scores = g.plus(scores, bias).unwrap();
        }
        g.output("scores", scores);
        g
    }

    fn head(&self) -> Tensor {
        self.tensor("head", &[CLASSES, CHANNELS])
    }

    fn head_bias(&self) -> Tensor {
        self.tensor("head bias", &[CLASSES])
    }
}

fn recipe(seed: u64) -> Recipe {
    Recipe { seed, positive: false, biases: true, shared: true }
}

fn images(positive: bool) -> Tensor {
    let noise = Noise::new(9).stream("images");
    let draw = |i| if positive { noise.gaussian(i).abs() } else { noise.gaussian(i) };
    Tensor::new([2, 3, 6, 6], (0..216).map(draw).collect::<Vec<_>>()).unwrap()
}

fn explained(
    network: &Graph,
    split_map: Vec<(Arc<dyn Method>, Option<&str>)>,
    images: &Tensor,
) -> Explanation {
    let finish = Finish { channels: ChannelReduction::Keep, ..Finish::default() };
    let request = |(method, layer): (Arc<dyn Method>, Option<&str>)| {
        MapRequest::of(method, layer.map(str::to_owned)).finish(finish)
    };
    let requests: Vec<MapRequest> = split_map.into_iter().map(request).collect();
    let engine = Cpu::default().precision(Precision::F64);
    let explainer = Explainer::new(network, &requests, &engine).unwrap();
    explainer.explain(images, &Class::PerSample(vec![1, 2]), &Settings::default()).unwrap()
}

fn values(explained: &Explanation) -> Vec<Vec<f64>> {
    explained.maps.iter().map(|map| map.values.to_f64().into_vec()).collect()
}

fn same(a: &[f64], b: &[f64]) {
    assert_eq!(a.len(), b.len());
    let largest = b.iter().fold(1e-12f64, |most, v| most.max(v.abs()));
    for (a, b) in a.iter().zip(b) {
        assert!((a - b).abs() <= 1e-11 * largest, "{a} and {b} of {largest}");
    }
}

const LAST: Option<&str> = Some("again.relu:out");

#[test]
fn before_global_average_pooling_grad_cam_is_cam() {
    for seed in 0..4 {
        let (recipe, images) = (recipe(seed), images(false));
        let mut network = recipe.network();
        let split_map: Vec<(Arc<dyn Method>, _)> = vec![
            (Arc::new(GradCam { rectified: false }), LAST),
            (Arc::new(HiResCam { rectified: false }), LAST),
            (Arc::new(XGradCam { rectified: false }), LAST),
        ];
        let found = values(&explained(&network, split_map, &images));
        let names_last =
            |label: &Label| [&label.module, &label.node].iter().any(|name| *name == "again.relu");
        let last = network.nodes().find(|(_, node)| names_last(&node.label)).map(|(id, _)| id);
        network.set_outputs(Vec::new());
        network.output("last", last.unwrap());
        let program = Cpu::default().precision(Precision::F64).compile(&network.pruned().unwrap()).unwrap();
        let activations = program.run(std::slice::from_ref(&images)).unwrap().remove(0).to_f64();
        let head = recipe.head().to_f64();
        let mut cam = Vec::new();
        for (sample, class) in activations.chunks(CHANNELS * 36).zip([1, 2]) {
            let weights = &head[class * CHANNELS..(class + 1) * CHANNELS];
            cam.extend(
                (0..36).map(|place| {
                    (0..CHANNELS).map(|c| weights[c] / 36.0 * sample[c * 36 + place]).sum::<f64>()
                }),
            );
        }
        same(&found[0], &cam);
        same(&found[1], &cam);
        // The denominator of XGrad-CAM is kept from zero by 1e-7.
        let largest = cam.iter().fold(0f64, |most, v| most.max(v.abs()));
        found[2].iter().zip(&cam).for_each(|(a, b)| assert!((a - b).abs() < 1e-6 * largest, "{a} and {b}"));
    }
}

#[test]
fn hires_cam_adds_up_to_the_score_less_the_bias_of_the_head() {
    for seed in 0..4 {
        let recipe = recipe(seed);
        let hires: Arc<dyn Method> = Arc::new(HiResCam { rectified: false });
        let found = explained(&recipe.network(), vec![(hires, LAST)], &images(false));
        let (scores, biases) = (found.logits.to_f64(), recipe.head_bias().to_f64());
        for ((map, class), row) in found.maps[0].values.to_f64().chunks(36).zip([1, 2]).zip(0..) {
            let total: f64 = map.iter().sum();
            let expected = scores[row * CLASSES + class] - biases[class];
            assert!((total - expected).abs() < 1e-11 * expected.abs().max(1.0), "{total} of {expected}");
        }
    }
}

#[test]
fn where_nothing_is_negative_the_rules_for_relus_are_one() {
    let recipe = Recipe { positive: true, biases: false, ..recipe(1) };
    let split_map: Vec<(Arc<dyn Method>, _)> = vec![
        (Arc::new(Gradient), None),
        (Arc::new(Saliency), None),
        (Arc::new(GuidedBackprop), None),
        (Arc::new(Deconvolution), None),
        (Arc::new(HiResCam::default()), LAST),
        (Arc::new(LayerCam::default()), LAST),
        (Arc::new(GradCam::default()), LAST),
    ];
    let found = values(&explained(&recipe.network(), split_map, &images(true)));
    assert!(found[0].iter().all(|&v| v > 0.0));
    (1..4).for_each(|i| same(&found[i], &found[0]));
    same(&found[5], &found[4]);
    same(&found[6], &found[4]);
}

#[test]
fn without_biases_input_times_gradient_adds_up_to_the_score() {
    for seed in 0..4 {
        let recipe = Recipe { biases: false, ..recipe(seed) };
        let method: Arc<dyn Method> = Arc::new(InputXGradient);
        let found = explained(&recipe.network(), vec![(method, None)], &images(false));
        let scores = found.logits.to_f64();
        for ((map, class), row) in found.maps[0].values.to_f64().chunks(108).zip([1, 2]).zip(0..) {
            let (total, score) = (map.iter().sum::<f64>(), scores[row * CLASSES + class]);
            assert!((total - score).abs() < 1e-11 * score.abs().max(1.0), "{total} of {score}");
        }
    }
}

#[test]
fn shared_weights_are_as_good_as_copies() {
    let split_map = || -> Vec<(Arc<dyn Method>, Option<&'static str>)> {
        vec![
            (Arc::new(Gradient), None),
            (Arc::new(GuidedBackprop), None),
            (Arc::new(Deconvolution), None),
            (Arc::new(GradCam::default()), Some("once.relu:out")),
            (Arc::new(LayerCam::default()), Some("once:out")),
        ]
    };
    let copied = Recipe { shared: false, ..recipe(3) };
    let images = images(false);
    let shared = explained(&recipe(3).network(), split_map(), &images);
    assert_eq!(values(&shared), values(&explained(&copied.network(), split_map(), &images)));
}
