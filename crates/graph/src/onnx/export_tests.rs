//! Every op written and read back at old and new operator sets: the same op where ONNX has it, the same shape
//! and names where it has to be spelled out.

use super::{ExportOptions, ImportOptions, read, save, write};
use crate::graph::{Graph, Label, NodeId};
use crate::op::*;
use crate::shape::{Dim, Shape};
use crate::tensor::{Kind, Tensor};

const OPSETS: [i64; 6] = [13, 16, 17, 18, 21, 26];

/// A graph of one op on values of these shapes, with names as an importer gives them.
fn graph(op: &Op, inputs: &[(Shape, Kind)]) -> Graph {
    let mut g = Graph::new();
    let named = |(i, (shape, kind)): (usize, &(Shape, Kind))| g.input(format!("x{i}"), shape.clone(), *kind);
    let ids: Vec<NodeId> = inputs.iter().enumerate().map(named).collect();
    let label =
        Label { node: "the/node".into(), tensor: "y".into(), module: "a.0.b".into(), aliases: vec![] };
    let y = g.add_named(label, op.clone(), &ids).unwrap();
    g.output("y", y);
    g
}

fn back(g: &Graph, opset: i64) -> Graph {
    let bytes = write(g, &ExportOptions::default().opset(opset)).unwrap();
    read(&bytes, None, &ImportOptions::default()).unwrap()
}

/// Checks an op at every operator set; from `since` on it must come back as itself.
fn check(op: Op, shapes: &[&[usize]], since: i64) {
    check_kinds(op, &shapes.iter().map(|s| (Shape::batched(s), Kind::Float)).collect::<Vec<_>>(), since);
}

fn check_kinds(op: Op, inputs: &[(Shape, Kind)], since: i64) {
    let g = graph(&op, inputs);
    for opset in OPSETS {
        let again = back(&g, opset);
        let (old, new) = (g.node(g.outputs()[0].node), again.node(again.outputs()[0].node));
        assert_eq!((&new.shape, new.kind), (&old.shape, old.kind), "{op:?} at {opset}");
        assert_eq!(new.label, old.label, "{op:?} at {opset}");
        let inputs = |g: &Graph| g.inputs().iter().map(|&id| g.node(id).label.clone()).collect::<Vec<_>>();
        assert_eq!(inputs(&again), inputs(&g));
        if opset >= since {
            assert_eq!(new.op, op, "at {opset}");
            assert_eq!(again.len(), g.len(), "{op:?} at {opset}");
        }
    }
}

const ALWAYS: i64 = 13;
const NEVER: i64 = 99;

#[test]
fn functions_of_one_value() {
    use Unary::*;
    let always = [
        Relu,
        LeakyRelu { slope: 0.1 },
        Elu { alpha: 0.5 },
        Selu { alpha: 1.5, gamma: 1.25 },
        Celu { alpha: 0.5 },
        Sigmoid,
        Tanh,
        Softplus,
        HardSigmoid { alpha: 0.2, beta: 0.5 },
        Erf,
        Neg,
        Abs,
        Sqrt,
        Exp,
        Log,
        Reciprocal,
        Sign,
        Floor,
        Ceil,
        Round,
        Clip { min: 0.0, max: 6.0 },
        Clip { min: f64::NEG_INFINITY, max: 1.0 },
    ];
    always.into_iter().for_each(|f| check(Op::Unary(f), &[&[3, 4]], ALWAYS));
    for (f, since) in [(HardSwish, 14), (Mish, 18), (Gelu, 20), (GeluTanh, 20), (Silu, NEVER)] {
        check(Op::Unary(f), &[&[3, 4]], since);
    }
    check_kinds(Op::Unary(Not), &[(Shape::batched(&[2]), Kind::Bool)], ALWAYS);
    check_kinds(Op::Unary(Clip { min: -1.0, max: 4.0 }), &[(Shape::batched(&[2]), Kind::Int)], ALWAYS);
}

#[test]
fn functions_of_two_and_three_values() {
    use Binary::*;
    for f in [Add, Sub, Mul, Div, Pow, Max, Min, PRelu, Equal, Less, LessOrEqual, Greater, GreaterOrEqual] {
        check_kinds(
            Op::Binary(f),
            &[(Shape::batched(&[3, 4]), Kind::Float), (Shape::fixed(&[3, 1]), Kind::Float)],
            ALWAYS,
        );
    }
    for f in [And, Or, Xor] {
        let truth = (Shape::batched(&[3]), Kind::Bool);
        check_kinds(Op::Binary(f), &[truth.clone(), truth], ALWAYS);
    }
    let x = (Shape::batched(&[3]), Kind::Float);
    check_kinds(Op::Where, &[(Shape::batched(&[3]), Kind::Bool), x.clone(), x.clone()], ALWAYS);
    for to in [Kind::Int, Kind::Bool] {
        check_kinds(Op::Cast { to }, std::slice::from_ref(&x), ALWAYS);
    }
}

#[test]
fn products_and_normalisations() {
    let fixed = |dims: &[usize]| (Shape::fixed(dims), Kind::Float);
    let x = |dims: &[usize]| (Shape::batched(dims), Kind::Float);
    let product = |trans_a, trans_b| Op::MatMul { trans_a, trans_b };
    check_kinds(product(false, false), &[x(&[4]), fixed(&[4, 5])], ALWAYS);
    check_kinds(product(false, true), &[x(&[4]), fixed(&[5, 4]), fixed(&[5])], ALWAYS);
    check_kinds(product(false, false), &[x(&[2, 3, 4]), x(&[2, 4, 5])], ALWAYS);
    check_kinds(product(true, true), &[x(&[2, 4, 3]), x(&[2, 5, 4]), fixed(&[5])], NEVER);
    let channel = fixed(&[6]);
    let norm = |groups| Op::GroupNorm { groups, epsilon: 1e-5 };
    check_kinds(
        Op::BatchNorm { epsilon: 1e-3 },
        &[x(&[6, 2]), channel.clone(), channel.clone(), channel.clone(), channel.clone()],
        ALWAYS,
    );
    check_kinds(norm(6), &[x(&[6, 2, 2]), channel.clone(), channel.clone()], ALWAYS);
    check_kinds(norm(3), &[x(&[6, 2, 2]), channel.clone(), channel], 21);
    check_kinds(Op::LayerNorm { axis: 2, epsilon: 1e-6 }, &[x(&[6, 2]), fixed(&[2]), fixed(&[2])], 17);
    check_kinds(Op::LayerNorm { axis: 1, epsilon: 1e-6 }, &[x(&[6, 2]), fixed(&[6, 2])], 17);
    check(Op::LocalResponseNorm { size: 5, alpha: 1e-4, beta: 0.75, bias: 2.0 }, &[&[6, 2, 2]], ALWAYS);
    check(Op::Softmax { axis: 1 }, &[&[6, 2]], ALWAYS);
    check(Op::LogSoftmax { axis: 2 }, &[&[6, 2]], ALWAYS);
}

fn window(ceil: bool) -> Window {
    Window { kernel: vec![3, 2], stride: vec![2, 2], dilation: vec![1, 1], pad: vec![(1, 0), (0, 1)], ceil }
}

#[test]
fn windows() {
    let fixed = |dims: &[usize]| (Shape::fixed(dims), Kind::Float);
    let x = || (Shape::batched(&[4, 8, 8]), Kind::Float);
    check_kinds(
        Op::Conv { window: window(false), groups: 2 },
        &[x(), fixed(&[6, 2, 3, 2]), fixed(&[6])],
        ALWAYS,
    );
    let transpose = Op::ConvTranspose { window: window(false), groups: 2, output_padding: vec![1, 0] };
    check_kinds(transpose, &[x(), fixed(&[4, 3, 3, 2]), fixed(&[6])], ALWAYS);
    let ceil = Window { kernel: vec![3, 3], pad: vec![(0, 0), (0, 0)], ..window(true) };
    for window in [window(false), ceil] {
        check_kinds(Op::MaxPool(window.clone()), &[x()], ALWAYS);
        check_kinds(Op::AveragePool { window, divisor: Divisor::Covered }, &[x()], ALWAYS);
    }
    check_kinds(Op::AveragePool { window: window(false), divisor: Divisor::Padded }, &[x()], ALWAYS);
    check_kinds(Op::AveragePool { window: window(false), divisor: Divisor::One }, &[x()], NEVER);
    for divisor in [Divisor::One, Divisor::Covered, Divisor::Padded] {
        let op = Op::AveragePoolTranspose { window: window(false), divisor, spatial: vec![7, 8] };
        check(op, &[&[4, 3, 4]], NEVER);
    }
}

#[test]
fn selections_of_winners_are_written_from_operator_set_16_on() {
    let x = (Shape::batched(&[4, 8, 8]), Kind::Float);
    let gather = graph(&Op::WinnerGather(window(false)), &[x.clone(), x.clone()]);
    let pooled = gather.node(gather.outputs()[0].node).shape.clone();
    let scatter = graph(&Op::WinnerScatter(window(false)), &[x, (pooled, Kind::Float)]);
    let at = |g: &Graph, opset| write(g, &ExportOptions::default().opset(opset));
    assert!(at(&gather, 13).is_ok() && at(&scatter, 16).is_ok());
    let error = at(&scatter, 15).unwrap_err();
    assert_eq!(error.node(), Some("a.0.b"));
}

#[test]
fn reductions() {
    for reduction in [Reduction::Sum, Reduction::Mean, Reduction::Max, Reduction::Min, Reduction::Product] {
        for keep in [false, true] {
            check(Op::Reduce { reduction, axes: vec![1, 3], keep }, &[&[3, 4, 5]], ALWAYS);
        }
    }
    check(Op::ArgMax { axis: 1, keep: false }, &[&[3]], ALWAYS);
}

#[test]
fn layouts() {
    check(Op::Concat { axis: 1 }, &[&[3, 4], &[2, 4]], ALWAYS);
    for (start, step, length) in [(0, 1, 2), (5, -1, 6), (4, -2, 2), (1, 3, 2)] {
        check(
            Op::Slice { axis: 1, start, step, length },
            &[&[6, 2]],
            if length == 1 { NEVER } else { ALWAYS },
        );
    }
    for padding in [Padding::Constant(-1.5), Padding::Reflect, Padding::Edge] {
        check(Op::Pad { padding, pads: vec![(0, 0), (1, 2), (0, 3)] }, &[&[4, 5]], ALWAYS);
    }
    check(
        Op::Reshape { shape: Shape::new([Dim::Fixed(3), Dim::Batch(2), Dim::Fixed(2)]) },
        &[&[3, 4]],
        ALWAYS,
    );
    check(Op::Transpose { axes: vec![2, 0, 1] }, &[&[3, 4]], ALWAYS);
    check_kinds(
        Op::Gather { axis: 1 },
        &[(Shape::batched(&[5, 2]), Kind::Float), (Shape::fixed(&[3, 2]), Kind::Int)],
        ALWAYS,
    );
    check(Op::Identity, &[&[3]], ALWAYS);
    check(Op::Dropout { ratio: 0.25 }, &[&[3]], ALWAYS);
}

#[test]
fn expansion_takes_the_batch_from_an_input() {
    let mut g = Graph::new();
    let x = g.input("x", Shape::batched(&[4]), Kind::Float);
    let token = g.constant(Tensor::new([1, 1, 4], vec![1f32; 4]).unwrap());
    let shape = Shape::new([Dim::Batch(3), Dim::Fixed(3), Dim::Fixed(4)]);
    let y = g.add(Op::Expand { shape: shape.clone() }, &[token]).unwrap();
    g.output("y", y);
    g.output("x again", x);
    let again = back(&g, 17);
    assert_eq!(again.node(again.outputs()[0].node).op, Op::Expand { shape });
    assert_eq!(again.len(), 4, "the arithmetic on the batch is gone again");
}

#[test]
fn resizing() {
    let coordinates = [
        Coordinates::HalfPixel,
        Coordinates::PytorchHalfPixel,
        Coordinates::AlignCorners,
        Coordinates::Asymmetric,
    ];
    let interpolations = [
        Interpolation::Nearest(Rounding::PreferFloor),
        Interpolation::Nearest(Rounding::PreferCeil),
        Interpolation::Nearest(Rounding::Floor),
        Interpolation::Nearest(Rounding::Ceil),
        Interpolation::Linear,
        Interpolation::Cubic { coefficient: -0.5, exclude_outside: true },
    ];
    for coordinates in coordinates {
        for interpolation in interpolations {
            let exact = ResizeAxis { axis: 2, length: 7, scale: 7.0 / 3.0 };
            let rounded = ResizeAxis { axis: 3, length: 7, scale: 1.5 };
            for axes in [vec![exact], vec![rounded]] {
                check(Op::Resize { axes, interpolation, coordinates }, &[&[2, 3, 5]], ALWAYS);
            }
        }
    }
}

#[test]
fn weights_of_either_precision_are_written_as_asked() {
    let mut g = Graph::new();
    let x = g.input("x", Shape::batched(&[2]), Kind::Float);
    let w = g.named_constant(
        Label { tensor: "layer.bias".into(), ..Label::default() },
        Tensor::vector(vec![0.1f64, 1.0 / 3.0]),
    );
    let y = g.add(Op::Binary(Binary::Add), &[x, w]).unwrap();
    g.output("y", y);
    for double in [false, true] {
        let bytes = write(&g, &ExportOptions::default().double(double)).unwrap();
        let again = read(&bytes, None, &ImportOptions::default()).unwrap();
        let weight = again.nodes().find_map(|(id, n)| {
            (n.label.tensor == "layer.bias").then(|| again.constant_value(id).unwrap().to_f64()[1])
        });
        let expected = if double { 1.0 / 3.0 } else { f64::from(1f32 / 3.0) };
        assert_eq!(weight, Some(expected));
    }
}

#[test]
fn outputs_keep_their_names_whatever_they_are() {
    let mut g = Graph::new();
    let x = g.input("x", Shape::batched(&[2]), Kind::Float);
    let y = g.add_named(Label::named("twice"), Op::Unary(Unary::Relu), &[x]).unwrap();
    let w = g.constant(Tensor::vector(vec![1f32]));
    for (name, id) in [("first", y), ("second", y), ("through", x), ("constant", w)] {
        g.output(name, id);
    }
    let again = back(&g, 17);
    let names: Vec<&str> = again.outputs().iter().map(|o| o.name.as_str()).collect();
    assert_eq!(names, ["first", "second", "through", "constant"]);
    g.output("first", y);
    assert!(write(&g, &ExportOptions::default()).is_err());
}

#[test]
fn a_file_appears_complete_or_not_at_all() {
    let folder = std::env::temp_dir().join(format!("monosplit-save-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let g = graph(&Op::Identity, &[(Shape::batched(&[2]), Kind::Float)]);
    let path = folder.join("model.onnx");
    save(&g, &path, &ExportOptions::default()).unwrap();
    assert!(super::open(&path, &ImportOptions::default()).is_ok());
    assert!(save(&g, &folder.join("absent").join("model.onnx"), &ExportOptions::default()).is_err());
    assert!(save(&g, &path, &ExportOptions::default().opset(7)).is_err());
    let names: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["model.onnx"]);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A reader that knows what ONNX says of each operator cannot follow a batch through a `Reshape`.
#[test]
fn shapes_that_are_asked_for_are_written_down() {
    let mut g = Graph::new();
    let x = g.input("x", Shape::batched(&[4, 6]), Kind::Float);
    let windows = Shape::new([Dim::Batch(2), Dim::Fixed(12)]);
    let windows = g.add_named(Label::named("windows"), Op::Reshape { shape: windows }, &[x]).unwrap();
    let turned = g.add_named(Label::named("turned"), Op::Unary(Unary::Neg), &[windows]).unwrap();
    let y = g.add(Op::Reshape { shape: Shape::batched(&[24]) }, &[turned]).unwrap();
    g.output("y", y);
    let bytes = write(&g, &ExportOptions::default()).unwrap();
    let count = |text: &str| bytes.windows(text.len()).filter(|found| *found == text.as_bytes()).count();
    // Names of both are written where a value is made and where it is read, and one once more with its shape.
    assert_eq!((count("windows"), count("2N")), (count("turned") + 1, 1));
    let again = back(&g, 17);
    assert_eq!(again.node(again.outputs()[0].node).shape, Shape::batched(&[24]));
}
