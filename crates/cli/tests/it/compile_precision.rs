//! The precision that `monosplit compile` writes files in, and what they then compute.

use monosplit::Tensor;
use monosplit::engine::{Cpu, Engine, Precision};
use monosplit::graph::onnx::{self, ExportOptions, ImportOptions};
use monosplit::graph::op::{Coordinates, Interpolation, ResizeAxis, Rounding, Unary};
use monosplit::graph::passes::matrix_form;
use monosplit::graph::{Graph, Kind, NodeId, Op, Shape};
use monosplit_testing::{ScratchFolder, crates_folder};

use crate::compile::{compiled, import_report, map, methods, samples, text};
use crate::networks::{SIDE, Small, numbers};
use crate::program::{model, succeeds};
use crate::reference::relative_error;

/// 0.4 is no number of single precision, which a file reads; left out, it is still 0.4.
#[test]
fn alpha_left_out_is_what_it_is_in_double_precision() {
    let folder = ScratchFolder::new();
    let network = Small::default().save(&folder, "small.onnx");
    let words = ["--method", "splitgrad", "--layer", "x", "--precision", "f64"];
    let found = import_report(&compiled(&folder, &network, &words));
    let graph = found.graph.unwrap();
    let run = |alpha: f64| {
        let given = |name: &str| match found.defaults.iter().find(|(input, _)| input == name) {
            Some(_) if name == "alpha" => Tensor::scalar(alpha),
            Some((_, default)) => default.clone(),
            None => numbers(&[1, 3, SIDE, SIDE], 17),
        };
        let inputs = graph.inputs().iter().map(|&id| given(&graph.node(id).label.tensor));
        let cpu = Cpu::default().precision(Precision::F64).compile(&graph).unwrap();
        cpu.run(&inputs.collect::<Vec<_>>()).unwrap().swap_remove(2).to_f64()
    };
    let exact = run(0.4);
    assert_eq!(run(f64::from(0.4f32)), exact);
    assert_ne!(run(f64::from(0.4f32.next_up())), exact);
}

/// ONNX Runtime has these activations in single precision, or at some operator sets, only.
#[test]
fn activations_are_spelled_out_in_double_precision() {
    let folder = ScratchFolder::new();
    let x = samples(&folder);
    let activations = [
        Unary::LeakyRelu { slope: 0.1 },
        Unary::Elu { alpha: 0.5 },
        Unary::Selu { alpha: 1.5, gamma: 1.25 },
        Unary::Celu { alpha: 0.5 },
        Unary::Softplus,
        Unary::Mish,
        Unary::Erf,
        Unary::Gelu,
        Unary::GeluTanh,
    ];
    for activation in activations {
        let end = Some(Op::Unary(activation));
        let network = Small { end, ..Small::default() }.save(&folder, "small.onnx");
        let native = map(&folder, &network, &x, &["--method", "gradient", "--precision", "f64"]);
        for opset in ["13", "17", "26"] {
            let words = ["--method", "gradient", "--precision", "f64", "--opset", opset];
            let path = compiled(&folder, &network, &words);
            let read = import_report(&path).read;
            let is_left = |op: &Op| matches!(op, Op::Unary(f) if f.name() == activation.name());
            assert!(read.nodes().all(|(_, node)| !is_left(&node.op)), "{activation:?} at {opset}");
            let error = relative_error(&map(&folder, &path, &x, &[]), &native);
            assert!(error < 1e-6, "{activation:?} at operator set {opset}: {error:e}");
        }
    }
}

/// What a graph returns, computed in double precision.
fn outcome(graph: &Graph, x: &Tensor) -> Vec<f64> {
    let cpu = Cpu::default().precision(Precision::F64);
    let found = cpu.compile(graph).unwrap().run(std::slice::from_ref(x)).unwrap();
    found[0].to_f64().into_vec()
}

fn of_one_op(op: Op, shape: &[usize]) -> Graph {
    let mut graph = Graph::new();
    let x = graph.input("x", Shape::batched(shape), Kind::Float);
    let inputs: Vec<NodeId> = match op {
        Op::GroupNorm { .. } => {
            let parameters = [[1.5, -0.5, 2.0, 0.25], [0.5, 1.0, -1.0, 3.0]];
            [x].into_iter().chain(parameters.map(|p| graph.constant(Tensor::vector(p.to_vec())))).collect()
        }
        _ => vec![x],
    };
    let y = graph.add(op, &inputs).unwrap();
    graph.output("y", y);
    graph
}

/// Written in terms of others, the error function keeps the accuracy of double precision.
#[test]
fn the_error_function_is_written_to_double_precision() {
    let graph = of_one_op(Op::Unary(Unary::Erf), &[1]);
    let options = ExportOptions::default().double(true).opset(26);
    let bytes = onnx::write(&graph, &options).unwrap();
    let spelled = onnx::read(&bytes, None, &ImportOptions::default()).unwrap();
    assert!(spelled.nodes().all(|(_, node)| node.op != Op::Unary(Unary::Erf)));
    let grid = (-700..=700).map(|i| f64::from(i) / 100.0);
    let small = (0..16).map(|i| 10f64.powi(-i));
    let x: Vec<f64> = grid.chain(small).chain([1e300, -1e300, f64::INFINITY, f64::NEG_INFINITY]).collect();
    let x = Tensor::new([x.len(), 1], x).unwrap();
    for (found, wanted) in outcome(&spelled, &x).iter().zip(outcome(&graph, &x)) {
        assert!(
            (found - wanted).abs() <= 1e-15 && (found - wanted).abs() <= 1e-14 * wanted.abs(),
            "{found} {wanted}"
        );
    }
}

/// So do interpolations and normalisations.
#[test]
fn interpolations_and_norms_are_written_to_double_precision() {
    let resize = |interpolation, coordinates, [height, width]: [usize; 2]| Op::Resize {
        axes: vec![
            ResizeAxis { axis: 2, length: height, scale: height as f64 / 5.0 },
            ResizeAxis { axis: 3, length: width, scale: width as f64 / 7.0 },
        ],
        interpolation,
        coordinates,
    };
    let mut ops = vec![
        Op::GroupNorm { groups: 2, epsilon: 1e-5 },
        Op::GroupNorm { groups: 4, epsilon: 1e-5 },
        Op::LocalResponseNorm { size: 3, alpha: 0.1, beta: 0.75, bias: 1.0 },
    ];
    let interpolations = [
        Interpolation::Nearest(Rounding::PreferFloor),
        Interpolation::Nearest(Rounding::Ceil),
        Interpolation::Linear,
        Interpolation::Cubic { coefficient: -0.75, exclude_outside: false },
        Interpolation::Cubic { coefficient: -0.5, exclude_outside: true },
    ];
    for interpolation in interpolations {
        for coordinates in [Coordinates::HalfPixel, Coordinates::AlignCorners, Coordinates::Asymmetric] {
            ops.extend([[10, 14], [3, 16], [1, 7]].map(|size| resize(interpolation, coordinates, size)));
        }
    }
    let x = numbers(&[2, 4, 5, 7], 3);
    for op in ops {
        let graph = of_one_op(op.clone(), &[4, 5, 7]);
        let spelled = matrix_form(&graph).unwrap();
        assert!(spelled.nodes().all(|(_, node)| node.op.name() != op.name()), "{op:?}");
        for (found, wanted) in outcome(&spelled, &x).iter().zip(outcome(&graph, &x)) {
            assert!((found - wanted).abs() <= 1e-13 * wanted.abs().max(1.0), "{op:?}: {found} {wanted}");
        }
    }
}

/// Weights that a batch norm is merged into are no numbers of single precision, and `explain` has them as what the file has.
#[test]
fn merged_weights_are_kept_in_the_precision_asked_for() {
    let folder = ScratchFolder::new();
    let network = text(&model("resnet/torchscript-raw-13.onnx"));
    let is_single = |words: &[&str]| {
        let read = import_report(&compiled(&folder, &network, words)).read;
        let values = read.nodes().filter_map(|(id, _)| read.constant_value(id));
        let large = values.filter(|tensor| tensor.len() > 64).map(|tensor| tensor.to_f64());
        large.into_iter().all(|values| values.iter().all(|&v| f64::from(v as f32) == v))
    };
    assert!(!is_single(&["--method", "gradient", "--precision", "f64"]));
    assert!(is_single(&["--method", "gradient"]));
    assert!(is_single(&["--method", "splitlrp"]));
}

/// What is computed in double precision is still read, stored and returned in single precision.
#[test]
fn files_in_double_precision_compute_the_same() {
    let folder = ScratchFolder::new();
    let (network, x) = (Small::default().save(&folder, "small.onnx"), samples(&folder));
    for method in methods(true) {
        let native = map(&folder, &network, &x, &["--method", method, "--precision", "f64"]);
        for opset in ["13", "26"] {
            let words = ["--method", method, "--precision", "f64", "--opset", opset];
            let path = compiled(&folder, &network, &words);
            assert!(import_report(&path).problems.is_empty());
            // Without a word about precision: the file says what it is meant to be computed in.
            let error = relative_error(&map(&folder, &path, &x, &[]), &native);
            assert!(error < 1e-6, "{method} at operator set {opset}: {error:e}");
        }
    }
}

#[test]
fn split_lrp_is_compiled_in_the_precision_it_is_explained_in() {
    let folder = ScratchFolder::new();
    let network = Small::default().save(&folder, "small.onnx");
    let precision = |words: &[&str]| succeeds(["inspect", &compiled(&folder, &network, words)]).out;
    assert!(precision(&["--method", "splitlrp"]).contains("in f64"));
    assert!(precision(&["--methods", "splitcam,splitlrp"]).contains("in f64"));
    let path = text(&folder.path("both.onnx"));
    let remarks = |methods: &str| succeeds(["compile", &network, "-o", &path, "--methods", methods]).errors;
    assert!(remarks("splitcam,splitlrp").contains("the whole file is computed in double precision"));
    assert!(!remarks("splitlrp").contains("the whole file"));
    assert!(precision(&["--method", "splitlrp", "--precision", "f32"]).contains("in f32"));
    assert!(precision(&["--method", "splitcam"]).contains("in f32"));
}

#[test]
fn half_precision_weights_halve_the_file() {
    let folder = ScratchFolder::new();
    let network = text(&crates_folder().join("monosplit/assets/pets-small.onnx"));
    let size = |words: &[&str]| std::fs::metadata(compiled(&folder, &network, words)).unwrap().len() as f64;
    let ratio = size(&["--fp16"]) / size(&[]);
    assert!((0.49..0.53).contains(&ratio), "{ratio}");
}
