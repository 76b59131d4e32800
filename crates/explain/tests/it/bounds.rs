//! Certified bounds hold: at random inputs of the box and at its corners, on networks of every kind that is bounded; they are exact
//! where the network is affine, and close to the score where the box is small.

use monosplit_engine::{Cpu, Engine, Precision};
use monosplit_explain::{BoxBounds, InputBoxes, StreamBounds};
use monosplit_graph::onnx::{self, ImportOptions};
use monosplit_graph::op::{Binary, Divisor, Padding, Reduction, Unary, Window};
use monosplit_graph::{Graph, Kind, Label, NodeId, Noise, Op, Shape, Tensor};
use monosplit_testing::vectors;

fn engine() -> Cpu {
    Cpu::default().precision(Precision::F64)
}

fn noise(shape: &[usize], seed: u64, scale: f64) -> Tensor {
    let noise = Noise::new(seed);
    let count = shape.iter().product::<usize>() as u64;
    Tensor::new(shape, (0..count).map(|i| scale * noise.gaussian(i)).collect::<Vec<f64>>()).unwrap()
}

/// The box around an image.
fn around(image: &Tensor, epsilon: f64) -> InputBoxes {
    let moved = |by: f64| {
        Tensor::new(image.shape(), image.to_f64().iter().map(|v| v + by).collect::<Vec<f64>>()).unwrap()
    };
    InputBoxes::new(moved(-epsilon), moved(epsilon)).unwrap()
}

/// Scores of inputs of a box: uniform ones, and corners.
fn sampled(network: &Graph, boxes: &InputBoxes, count: usize) -> Vec<Vec<f64>> {
    let (lower, upper) = (boxes.lower().to_f64(), boxes.upper().to_f64());
    let noise = Noise::new(7);
    let mut values = Vec::new();
    for number in 0..count {
        let noise = noise.numbered(number as u64);
        values.extend((0u64..).zip(lower.iter().zip(upper.iter())).map(|(i, (l, u))| {
            let share = noise.uniform(i);
            let share = if number % 2 == 0 { share } else { share.round() };
            l + share * (u - l)
        }));
    }
    let mut shape = boxes.lower().shape().to_vec();
    shape[0] = count;
    let inputs = Tensor::new(shape, values).unwrap();
    let scores = engine().compile(network).unwrap().run(&[inputs]).unwrap().remove(0);
    scores.to_f64().chunks(scores.shape()[1]).map(<[f64]>::to_vec).collect()
}

/// Weights of sums of scores: each by itself, each negative, and differences.
fn directions(classes: usize) -> Vec<Vec<f64>> {
    let unit = |class: usize, sign: f64| -> Vec<f64> {
        (0..classes).map(|at| if at == class { sign } else { 0.0 }).collect()
    };
    let mut all: Vec<Vec<f64>> = (0..classes).flat_map(|c| [unit(c, 1.0), unit(c, -1.0)]).collect();
    all.extend((1..classes).map(|c| unit(0, 1.0).iter().zip(unit(c, 1.0)).map(|(a, b)| a - b).collect()));
    all
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Every bound of a network holds at the inputs that were sampled.
fn hold(name: &str, network: &Graph, image: &Tensor, epsilon: f64, count: usize) {
    let boxes = around(image, epsilon);
    let bounds = BoxBounds::new(network, &[], &engine()).unwrap_or_else(|e| panic!("{name}: {e}"));
    let samples = sampled(network, &boxes, count);
    let enclosed = bounds.enclose(boxes.clone()).unwrap();
    let ranges = enclosed.scores(0).unwrap();
    let weights = directions(bounds.classes());
    let linear = enclosed.least(0, &weights).unwrap();
    for scores in &samples {
        for (class, (score, (least, most))) in scores.iter().zip(&ranges).enumerate() {
            assert!(least <= score && score <= most, "{name}, class {class}: {score} of {least} to {most}");
        }
        for (weights, bound) in weights.iter().zip(&linear) {
            let value = dot(weights, scores);
            assert!(bound.value <= value, "{name}, {weights:?}: {value} below {}", bound.value);
        }
    }
    assert!(linear.iter().all(|bound| bound.value.is_finite()), "{name}");
    if let Ok(streams) = StreamBounds::new(network, &engine()) {
        let found = streams.ranges(&boxes).unwrap().remove(0);
        for scores in &samples {
            for rival in 1..scores.len() {
                let margin = scores[0] - scores[rival];
                let bound = found.margin(0, rival);
                assert!(bound <= margin, "{name}, streams: {margin} below {bound}");
            }
        }
    }
}

/// A builder of small networks of two-dimensional maps.
struct Small {
    graph: Graph,
    value: NodeId,
    seed: u64,
}

impl Small {
    fn new() -> Self {
        let mut graph = Graph::new();
        let value = graph.input("x", Shape::batched(&[2, 7, 7]), Kind::Float);
        Small { graph, value, seed: 1 }
    }

    fn weights(&mut self, shape: &[usize]) -> NodeId {
        self.seed += 1;
        let weights = noise(shape, self.seed, 0.4);
        self.graph.constant(weights)
    }

    fn conv(mut self, channels: usize) -> Self {
        let from = self.graph.node(self.value).shape.fixed_at(1).unwrap();
        let (w, b) = (self.weights(&[channels, from, 3, 3]), self.weights(&[channels]));
        let mut window = Window::new([3, 3]);
        window.pad = vec![(1, 1); 2];
        self.value = self.graph.add(Op::Conv { window, groups: 1 }, &[self.value, w, b]).unwrap();
        self
    }

    fn then(mut self, op: Op) -> Self {
        self.value = self.graph.add(op, &[self.value]).unwrap();
        self
    }

    fn with(mut self, change: impl FnOnce(&mut Graph, NodeId) -> NodeId) -> Self {
        self.value = change(&mut self.graph, self.value);
        self
    }

    fn scores(mut self) -> Graph {
        let shape = self.graph.node(self.value).shape.at(1).unwrap();
        let count = shape.iter().product::<usize>();
        self.value = self.graph.reshaped(self.value, Shape::batched(&[count])).unwrap();
        let (w, b) = (self.weights(&[3, count]), self.weights(&[3]));
        let op = Op::MatMul { trans_a: false, trans_b: true };
        let scores = self.graph.add(op, &[self.value, w, b]).unwrap();
        self.graph.output("scores", scores);
        self.graph
    }
}

fn relu() -> Op {
    Op::Unary(Unary::Relu)
}

fn dilated_pool(kernel: [usize; 2], dilation: usize, pad: [usize; 2]) -> Op {
    let mut window = Window::new(kernel);
    window.dilation = vec![dilation; 2];
    window.pad = pad.map(|pad| (pad, pad)).to_vec();
    Op::MaxPool(window)
}

#[test]
fn bounds_hold_on_every_kind_of_node() {
    let pool = |kernel: usize, stride: usize, pad: usize, ceil: bool| {
        let mut window = Window::new([kernel, kernel]);
        (window.stride, window.pad, window.ceil) = (vec![stride; 2], vec![(pad, pad); 2], ceil);
        Op::MaxPool(window)
    };
    let networks: Vec<(&str, Graph)> = vec![
        ("relu", Small::new().conv(4).then(relu()).conv(3).then(relu()).scores()),
        ("leaky", Small::new().conv(4).then(Op::Unary(Unary::LeakyRelu { slope: 0.2 })).scores()),
        ("overlapping pool", Small::new().conv(3).then(relu()).then(pool(3, 2, 1, false)).conv(2).scores()),
        ("pool rounded up", Small::new().conv(3).then(pool(2, 2, 0, true)).then(relu()).scores()),
        ("stride beyond the window", Small::new().conv(3).then(pool(2, 3, 1, true)).then(relu()).scores()),
        (
            "dilated pool",
            Small::new().conv(3).then(dilated_pool([3, 3], 2, [2, 2])).then(relu()).conv(2).scores(),
        ),
        ("dilated pool inside", Small::new().conv(3).then(dilated_pool([2, 2], 3, [0, 0])).scores()),
        (
            "prelu",
            Small::new()
                .conv(3)
                .with(|g, x| {
                    let slopes = Tensor::new([3, 1, 1], vec![0.1f32, 0.5, 0.9]).unwrap();
                    let slopes = g.constant(slopes);
                    g.binary(Binary::PRelu, x, slopes).unwrap()
                })
                .conv(2)
                .scores(),
        ),
        (
            "one sum, repeated",
            Small::new()
                .conv(2)
                .with(|g, x| {
                    let sum = Op::Reduce { reduction: Reduction::Sum, axes: vec![2, 3], keep: true };
                    let sum = g.add(sum, &[x]).unwrap();
                    let all = Op::Expand { shape: Shape::batched(&[2, 4, 4]) };
                    let all = g.add(all, &[sum]).unwrap();
                    let pads = vec![(0, 0), (0, 0), (2, 1), (0, 3)];
                    let all = g.add(Op::Pad { padding: Padding::Edge, pads: pads.clone() }, &[all]).unwrap();
                    g.add(Op::Pad { padding: Padding::Constant(0.7), pads }, &[all]).unwrap()
                })
                .then(relu())
                .scores(),
        ),
        ("limits", Small::new().conv(3).then(Op::Unary(Unary::Clip { min: -0.5, max: 0.75 })).scores()),
        (
            "one limit",
            Small::new().conv(3).then(Op::Unary(Unary::Clip { min: 0.1, max: f64::INFINITY })).scores(),
        ),
        ("magnitude", Small::new().conv(3).then(Op::Unary(Unary::Abs)).conv(3).then(relu()).scores()),
        (
            "hard sigmoid",
            Small::new().conv(3).then(Op::Unary(Unary::HardSigmoid { alpha: 0.2, beta: 0.5 })).scores(),
        ),
        ("sigmoid", Small::new().conv(3).then(Op::Unary(Unary::Sigmoid)).conv(2).then(relu()).scores()),
        (
            "quantiser",
            Small::new()
                .conv(3)
                .then(Op::Unary(Unary::Quantise { step: 0.25, min: -1.0, max: 1.0 }))
                .scores(),
        ),
        ("softmax", Small::new().conv(3).then(relu()).then(Op::Softmax { axis: 1 }).scores()),
        (
            "mean",
            Small::new()
                .conv(3)
                .then(relu())
                .then(Op::AveragePool { window: Window::new([3, 3]), divisor: Divisor::Padded })
                .scores(),
        ),
        (
            "largest",
            Small::new()
                .conv(5)
                .then(Op::Reduce { reduction: Reduction::Max, axes: vec![1], keep: true })
                .scores(),
        ),
        (
            "least of all",
            Small::new()
                .conv(4)
                .then(Op::Reduce { reduction: Reduction::Min, axes: vec![2, 3], keep: true })
                .scores(),
        ),
        (
            "residual",
            Small::new()
                .conv(2)
                .then(relu())
                .with(|g, x| {
                    let twice = g.scaled(-1.5, x).unwrap();
                    let moved = g.offset(0.3, twice).unwrap();
                    let bent = g.rectified(moved).unwrap();
                    g.minus(x, bent).unwrap()
                })
                .then(relu())
                .conv(2)
                .scores(),
        ),
        (
            "minimum",
            Small::new()
                .conv(2)
                .with(|g, x| {
                    let mirrored = g.add(Op::Slice { axis: 2, start: 6, step: -1, length: 7 }, &[x]).unwrap();
                    let limit = g.number(0.2);
                    let low = g.binary(Binary::Min, x, mirrored).unwrap();
                    g.binary(Binary::Min, limit, low).unwrap()
                })
                .scores(),
        ),
        (
            "joined",
            Small::new()
                .conv(2)
                .with(|g, x| {
                    let bent = g.rectified(x).unwrap();
                    let all = g.add(Op::Concat { axis: 1 }, &[bent, x]).unwrap();
                    g.add(Op::Transpose { axes: vec![0, 2, 1, 3] }, &[all]).unwrap()
                })
                .scores(),
        ),
        (
            "product",
            Small::new()
                .conv(2)
                .with(|g, x| {
                    let gate = g.unary(Unary::Sigmoid, x).unwrap();
                    g.times(x, gate).unwrap()
                })
                .conv(2)
                .then(relu())
                .scores(),
        ),
    ];
    for (name, network) in &networks {
        let image = noise(&[1, 2, 7, 7], 5, 1.0);
        for epsilon in [1e-3, 0.1, 0.6] {
            hold(name, network, &image, epsilon, 300);
        }
    }
}

#[test]
fn bounds_hold_on_whole_networks() {
    for name in ["mlp", "tinyvgg", "tinyresnet", "mobile"] {
        let network = onnx::open(&vectors(name).join("model.onnx"), &ImportOptions::default()).unwrap();
        let shape = network.node(network.inputs()[0]).shape.at(1).unwrap();
        let count = if name == "mlp" { 10_000 } else { 500 };
        hold(name, &network, &noise(&shape, 3, 0.7), 0.02, count);
    }
}

#[test]
fn a_small_box_has_a_tight_bound_and_a_point_hardly_any_slack() {
    let network = Small::new().conv(4).then(relu()).conv(3).then(relu()).scores();
    let image = noise(&[1, 2, 7, 7], 5, 1.0);
    let score = sampled(&network, &around(&image, 0.0), 1).remove(0);
    let bounds = BoxBounds::new(&network, &[], &engine()).unwrap();
    let enclosed = bounds.enclose(around(&image, 0.0)).unwrap();
    for (class, (least, most)) in enclosed.scores(0).unwrap().into_iter().enumerate() {
        let margin = 1e-6 * (1.0 + score[class].abs());
        assert!(least < score[class] && score[class] < most && most - least < margin, "{least} to {most}");
    }
    let weights = directions(3);
    for (weights, bound) in weights.iter().zip(enclosed.least(0, &weights).unwrap()) {
        let value = dot(weights, &score);
        assert!(bound.value < value && value - bound.value < 1e-6 * (1.0 + value.abs()), "{value}");
    }
}

#[test]
fn the_linear_bound_of_an_affine_network_is_its_least_value() {
    let network = Small::new().conv(3).conv(2).scores();
    let image = noise(&[1, 2, 7, 7], 5, 1.0);
    let boxes = around(&image, 0.3);
    let bounds = BoxBounds::new(&network, &[], &engine()).unwrap();
    let enclosed = bounds.enclose(boxes.clone()).unwrap();
    let weights = directions(3);
    for (weights, bound) in weights.iter().zip(enclosed.least(0, &weights).unwrap()) {
        // The corner to which the slopes point has that value.
        let ends = boxes.lower().to_f64().to_vec().into_iter().zip(boxes.upper().to_f64().to_vec());
        let corner: Vec<f64> =
            bound.slopes.iter().zip(ends).map(|(s, (l, u))| if *s > 0.0 { l } else { u }).collect();
        let corner = Tensor::new(image.shape(), corner).unwrap();
        let scores = engine().compile(&network).unwrap().run(&[corner]).unwrap().remove(0).to_f64().to_vec();
        let value = dot(weights, &scores);
        assert!((value - bound.value).abs() < 1e-6 * (1.0 + value.abs()), "{value} {}", bound.value);
    }
}

/// Of a network whose weights are not negative, both ends are evaluations of the network.
#[test]
fn a_monotone_network_is_bounded_by_two_evaluations() {
    let mut graph = Graph::new();
    let x = graph.input("x", Shape::batched(&[6]), Kind::Float);
    let positive = |shape: &[usize], seed: u64| {
        let values = noise(shape, seed, 0.5);
        Tensor::new(shape, values.to_f64().iter().map(|v| v.abs()).collect::<Vec<f64>>()).unwrap()
    };
    let op = || Op::MatMul { trans_a: false, trans_b: true };
    let (first, second) = (graph.constant(positive(&[8, 6], 2)), graph.constant(positive(&[3, 4], 3)));
    let value = graph.add(op(), &[x, first]).unwrap();
    let pairs = graph.reshaped(value, Shape::batched(&[4, 2])).unwrap();
    let largest = Op::Reduce { reduction: Reduction::Max, axes: vec![2], keep: false };
    let value = graph.add(largest, &[pairs]).unwrap();
    let value = graph.add(op(), &[value, second]).unwrap();
    graph.output("scores", value);
    let boxes = around(&noise(&[1, 6], 9, 1.0), 0.4);
    let bounds = BoxBounds::new(&graph, &[], &engine()).unwrap();
    let ranges = bounds.enclose(boxes.clone()).unwrap().scores(0).unwrap();
    let program = engine().compile(&graph).unwrap();
    let at = |corner: &Tensor| program.run(std::slice::from_ref(corner)).unwrap().remove(0).to_f64().to_vec();
    for ((range, least), most) in ranges.iter().zip(at(boxes.lower())).zip(at(boxes.upper())) {
        assert!((range.0 - least).abs() < 1e-7 && (range.1 - most).abs() < 1e-7, "{range:?} {least} {most}");
    }
}

/// The pool of `5, 1, 1` whose window of two skips an element and reaches one beyond both ends is `1, 5, 1`.
#[test]
fn a_dilated_pool_does_not_see_the_edge_that_it_steps_over() {
    let mut graph = Graph::new();
    let x = graph.input("x", Shape::batched(&[1, 1, 3]), Kind::Float);
    let pooled = graph.add(dilated_pool([1, 2], 2, [0, 1]), &[x]).unwrap();
    let scores = graph.reshaped(pooled, Shape::batched(&[3])).unwrap();
    graph.output("scores", scores);
    let image = Tensor::new([1, 1, 1, 3], vec![5.0f64, 1.0, 1.0]).unwrap();
    let bounds = BoxBounds::new(&graph, &[], &engine()).unwrap();
    let enclosed = bounds.enclose(around(&image, 0.25)).unwrap();
    for ((least, most), pooled) in enclosed.scores(0).unwrap().into_iter().zip([1.0, 5.0, 1.0]) {
        assert!((least - (pooled - 0.25)).abs() < 1e-6 && (most - (pooled + 0.25)).abs() < 1e-6);
    }
    // The second is above the first by 4, and at least by 3.5 where both change.
    let margin = enclosed.margins(0, 1, &[0, 2]).unwrap();
    assert!(margin.iter().all(|margin| (margin - 3.5).abs() < 1e-6), "{margin:?}");
}

/// What is not a number does not become one at a rectifier: `1/x` has no bound where `x` may be zero.
#[test]
fn what_is_unbounded_stays_so() {
    let mut graph = Graph::new();
    let x = graph.input("x", Shape::batched(&[2]), Kind::Float);
    let inverse = graph.unary(Unary::Reciprocal, x).unwrap();
    let weights = graph.constant(Tensor::new([2, 2], vec![1.0f32, -1.0, 0.5, 2.0]).unwrap());
    let sum = graph.add(Op::MatMul { trans_a: false, trans_b: false }, &[inverse, weights]).unwrap();
    let scores = graph.rectified(sum).unwrap();
    graph.output("scores", scores);
    let boxes = around(&Tensor::new([1, 2], vec![0.1f64, 3.0]).unwrap(), 0.5);
    let enclosed = BoxBounds::new(&graph, &[], &engine()).unwrap();
    let enclosed = enclosed.enclose(boxes.clone()).unwrap();
    assert!(enclosed.scores(0).unwrap().iter().all(|&(_, most)| most == f64::INFINITY));
    assert!(enclosed.margins(0, 0, &[1]).unwrap().iter().all(|&margin| margin == f64::NEG_INFINITY));
}

#[test]
fn streams_whose_rounding_is_not_bounded_are_refused() {
    let squared = Small::new().conv(2).with(|g, x| g.times(x, x).unwrap()).scores();
    let reason = StreamBounds::new(&squared, &engine()).err().unwrap().to_string();
    assert!(reason.contains("multiply activations"), "{reason}");
    let normed = Small::new()
        .conv(2)
        .with(|g, x| {
            let vector = |g: &mut Graph, values: [f32; 2]| g.constant(Tensor::vector(values.to_vec()));
            let (scale, shift) = (vector(g, [1.5, -0.5]), vector(g, [0.1, 0.2]));
            let (mean, variance) = (vector(g, [0.3, -0.4]), vector(g, [1.0, 2.0]));
            g.add(Op::BatchNorm { epsilon: 1e-5 }, &[x, scale, shift, mean, variance]).unwrap()
        })
        .then(relu())
        .scores();
    let reason = StreamBounds::new(&normed, &engine()).err().unwrap().to_string();
    assert!(reason.contains("batch norms"), "{reason}");
    hold("batch norm", &normed, &noise(&[1, 2, 7, 7], 5, 1.0), 0.1, 300);
}

/// A value that the scores do not depend on has no interval, and the elements that another value points at none either.
#[test]
fn values_that_are_not_enclosed_are_refused() {
    let mut graph = Small::new().conv(2).scores();
    let x = graph.inputs()[0];
    let aside = graph.add_named(Label::named("aside"), relu(), &[x]).unwrap();
    graph.output("aside", aside);
    let error = BoxBounds::new(&graph, &["aside"], &engine()).err().unwrap().to_string();
    assert!(error.contains("no bounds"), "{error}");

    let mut pointing = Small::new().conv(2);
    let (first, g) = (pointing.value, &mut pointing.graph);
    let x = g.inputs()[0];
    let winners = g.add(Op::WinnerGather(Window::new([2, 2])), &[x, first]).unwrap();
    pointing.value = winners;
    let error = BoxBounds::new(&pointing.scores(), &[], &engine()).err().unwrap().to_string();
    assert!(error.contains("WinnerGather"), "{error}");
}

#[test]
fn what_has_no_bounds_is_named() {
    let network = Small::new().conv(2).then(Op::Unary(Unary::Gelu)).scores();
    let error = BoxBounds::new(&network, &[], &engine()).err().unwrap().to_string();
    assert!(error.contains("no bounds for Gelu"), "{error}");
    let turned = InputBoxes::new(noise(&[1, 2], 1, 0.0), Tensor::new([1, 2], vec![0.0, -1.0]).unwrap());
    assert!(turned.is_err());
}
