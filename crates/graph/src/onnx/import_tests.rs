//! Files built by hand: what exporters write, what attackers write, and what must become of each.

use prost::Message;

use super::model::{
    AttributeProto, DimProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetId, TensorProto,
    ValueInfoProto,
};
use super::{ExportOptions, ImportOptions, import_report, read, write};
use crate::batch::samples_interact;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::op::{Op, Unary, Window};
use crate::shape::{Dim, Shape};
use crate::tensor::{Kind, Tensor};

type Attribute<'a> = (&'a str, AttributeProto);

fn node(op: &str, inputs: &[&str], outputs: &[&str], attributes: &[Attribute]) -> NodeProto {
    let strings = |names: &[&str]| names.iter().map(|s| s.to_string()).collect();
    NodeProto {
        inputs: strings(inputs),
        outputs: strings(outputs),
        name: format!("node_{}", outputs.first().unwrap_or(&"")),
        op_type: op.into(),
        attributes: attributes.iter().map(|(name, value)| value.clone().named(*name)).collect(),
        ..NodeProto::default()
    }
}

fn info(name: &str, dims: &[DimProto]) -> ValueInfoProto {
    ValueInfoProto::new(name, 1, dims.to_vec())
}

fn ints(name: &str, values: &[i64]) -> TensorProto {
    TensorProto {
        name: name.into(),
        dims: vec![values.len() as i64],
        data_type: 7,
        int64s: values.to_vec(),
        ..TensorProto::default()
    }
}

fn zeros(name: &str, dims: &[i64]) -> TensorProto {
    let count = dims.iter().product::<i64>() as usize;
    TensorProto {
        name: name.into(),
        dims: dims.to_vec(),
        data_type: 1,
        floats: vec![0.0; count],
        ..TensorProto::default()
    }
}

/// A model with the input `x: [N, 3, 8, 8]` and the output `y`.
fn model(nodes: Vec<NodeProto>, weights: Vec<TensorProto>) -> ModelProto {
    let dims = [DimProto::Param("batch".into()), DimProto::Value(3), DimProto::Value(8), DimProto::Value(8)];
    let graph = GraphProto {
        nodes,
        initializers: weights,
        inputs: vec![info("x", &dims)],
        outputs: vec![info("y", &[])],
        ..GraphProto::default()
    };
    ModelProto {
        ir_version: 8,
        graph: Some(graph),
        opsets: vec![OperatorSetId::onnx(13)],
        ..ModelProto::default()
    }
}

fn import(model: &ModelProto) -> Result<Graph> {
    read(&model.encode_to_vec(), None, &ImportOptions::default())
}

fn refused(model: &ModelProto) -> String {
    let error: Error = import(model).expect_err("the model should be refused");
    let message = error.to_string();
    assert!(!message.contains('\n'), "{message}");
    message
}

fn output_shape(graph: &Graph) -> Shape {
    graph.node(graph.outputs()[0].node).shape.clone()
}

#[test]
fn shape_arithmetic_leaves_no_trace() {
    let graph = import(&model(
        vec![
            node("Shape", &["x"], &["s"], &[]),
            node("Gather", &["s", "zero"], &["n"], &[]),
            node("Concat", &["n", "open"], &["target"], &[("axis", AttributeProto::int(0))]),
            node("Reshape", &["x", "target"], &["y"], &[]),
        ],
        vec![ints("zero", &[0]), ints("open", &[-1])],
    ))
    .unwrap();
    assert_eq!(graph.len(), 2);
    assert_eq!(output_shape(&graph), Shape::batched(&[192]));
    let label = &graph.node(graph.outputs()[0].node).label;
    assert_eq!((&*label.node, &*label.tensor), ("node_y", "y"));
}

#[test]
fn an_open_axis_of_a_literal_shape_becomes_the_batch() {
    let to = |shape: &[i64]| model(vec![node("Reshape", &["x", "s"], &["y"], &[])], vec![ints("s", shape)]);
    assert_eq!(output_shape(&import(&to(&[-1, 96])).unwrap()), Shape::new([Dim::Batch(2), Dim::Fixed(96)]));
    assert_eq!(output_shape(&import(&to(&[0, 0, -1])).unwrap()), Shape::batched(&[3, 64]));
    let message = refused(&to(&[1, 192]));
    assert!(message.contains("node_y") && message.contains("fixed batch"), "{message}");
}

#[test]
fn truncated_files_are_refused_at_every_length() {
    let weights = vec![zeros("w", &[4, 3, 1, 1])];
    let bytes = model(vec![node("Conv", &["x", "w"], &["y"], &[])], weights).encode_to_vec();
    assert!(read(&bytes, None, &ImportOptions::default()).is_ok());
    for length in 0..bytes.len() {
        assert!(read(&bytes[..length], None, &ImportOptions::default()).is_err(), "cut at {length}");
    }
}

#[test]
fn corrupt_files_never_panic() {
    let nodes = vec![
        node("Shape", &["x"], &["s"], &[]),
        node("Slice", &["s", "a", "b"], &["head"], &[]),
        node("Concat", &["head", "c"], &["target"], &[("axis", AttributeProto::int(0))]),
        node("Conv", &["x", "w"], &["h"], &[("pads", AttributeProto::ints(vec![1, 1, 1, 1]))]),
        node("MaxPool", &["h"], &["p"], &[("kernel_shape", AttributeProto::ints(vec![2, 2]))]),
        node("Reshape", &["p", "target"], &["y"], &[]),
    ];
    let weights = vec![ints("a", &[0]), ints("b", &[1]), ints("c", &[-1]), zeros("w", &[4, 3, 3, 3])];
    let bytes = model(nodes, weights).encode_to_vec();
    assert!(read(&bytes, None, &ImportOptions::default()).is_ok());
    let mut state = 1u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    for _ in 0..20_000 {
        let mut broken = bytes.clone();
        for _ in 0..1 + random(3) {
            let position = random(broken.len());
            broken[position] = [random(256) as u8, 0, 0x7f, 0xff][random(4)];
        }
        if let Ok(graph) = read(&broken, None, &ImportOptions::default()) {
            let _ = write(&graph, &ExportOptions::default());
        }
    }
}

#[test]
fn cycles_dangling_and_duplicate_names_are_refused() {
    let cycle = vec![
        node("Add", &["x", "b"], &["a"], &[]),
        node("Relu", &["a"], &["b"], &[]),
        node("Relu", &["b"], &["y"], &[]),
    ];
    assert!(refused(&model(cycle, vec![])).contains("cycle through"));
    assert!(refused(&model(vec![node("Relu", &["ghost"], &["y"], &[])], vec![])).contains("'ghost'"));
    let twice = vec![node("Relu", &["x"], &["y"], &[]), node("Abs", &["x"], &["y"], &[])];
    assert!(refused(&model(twice, vec![])).contains("exists already"));
    assert!(refused(&model(vec![node("Relu", &["x"], &["z"], &[])], vec![])).contains("'y'"));
    let weights = vec![zeros("w", &[1]), zeros("w", &[1])];
    assert!(refused(&model(vec![node("Add", &["x", "w"], &["y"], &[])], weights)).contains("two weights"));
}

#[test]
fn an_unsupported_op_is_named_with_its_node() {
    let message = refused(&model(vec![node("NonZero", &["x"], &["y"], &[])], vec![]));
    for part in ["NonZero", "node_y", "table of operators"] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn issue_35_outputs_that_nothing_reads_are_left_out() {
    let two = |read: &str| {
        model(
            vec![node("Dropout", &["x"], &["a", "mask"], &[]), node("Relu", &[read], &["y"], &[])],
            Vec::new(),
        )
    };
    assert_eq!(import(&two("a")).unwrap().outputs().len(), 1);
    assert!(refused(&two("mask")).contains("Dropout with its mask used"));
}

#[test]
fn issue_35_attributes_say_what_they_may() {
    let keeps = AttributeProto::int(-1);
    let mean = node("ReduceMean", &["x"], &["y"], &[("keepdims", keeps)]);
    assert!(refused(&model(vec![mean], Vec::new())).contains("'keepdims' of ReduceMean should be 0 or 1"));
    let axis = || ("axis", AttributeProto::int(2));
    let three = |outputs: &[&str]| model(vec![node("Split", &["x"], outputs, &[axis()])], Vec::new());
    assert!(refused(&three(&["y", "a", "b"])).contains("an axis of length 8 has no 3 equal parts"));
    assert_eq!(import(&three(&["y", "a"])).unwrap().outputs().len(), 1);
}

#[test]
fn issue_35_what_the_checker_and_onnx_runtime_both_refuse_is_refused() {
    // The declared types of an output: 1 single, 7 and 9 integers and truth values, 10 half, 11 double, 0 none.
    let declared = |node: NodeProto, of: i32| {
        let mut model = model(vec![node], Vec::new());
        let graph = model.graph.as_mut().unwrap();
        graph.outputs = vec![ValueInfoProto::new("y", of, vec![])];
        model
    };
    let relu = || node("Relu", &["x"], &["y"], &[]);
    let counts = || node("ArgMax", &["x"], &["y"], &[]);
    for (node, of) in
        [(relu(), 7), (relu(), 9), (relu(), 11), (counts(), 1), (node("Equal", &["x", "x"], &["y"], &[]), 7)]
    {
        let message = refused(&declared(node, of));
        assert!(message.contains("the output 'y' is declared to hold"), "{message}");
    }
    for (node, of) in [(relu(), 1), (relu(), 0), (relu(), 10), (counts(), 7)] {
        import(&declared(node, of)).unwrap();
    }

    let left_out = model(vec![node("Min", &["", "x"], &["y"], &[])], Vec::new());
    assert!(refused(&left_out).contains("Min needs its input 1, which is left out"));

    let nested = TensorProto { dims: vec![1, 8], ..ints("p", &[0; 8]) };
    let pad = model(vec![node("Pad", &["x", "p"], &["y"], &[])], vec![nested]);
    assert!(refused(&pad).contains("should be a list, found an array of shape [1, 8]"));

    let range = vec![node("Range", &["a", "b", "c"], &["r"], &[]), node("Gather", &["x", "r"], &["y"], &[])];
    let bounds = vec![ints("a", &[0]), ints("b", &[1]), ints("c", &[1])];
    assert!(refused(&model(range, bounds)).contains("Range reads three numbers"));
}

/// ONNX Runtime reads heads of an odd size and turns what is no pair.
#[test]
fn issue_29_a_rotary_embedding_of_an_odd_number_of_elements_is_refused() {
    let turned = |size: i64, attributes: &[Attribute]| {
        let places = (size / 2).max(1);
        let nodes = vec![
            node("Slice", &["x", "start", "end", "axis"], &["heads"], &[]),
            node("RotaryEmbedding", &["heads", "cosine", "sine"], &["y"], attributes),
        ];
        let caches = ["cosine", "sine"].map(|name| zeros(name, &[1, 8, places]));
        let bounds = [ints("start", &[0]), ints("end", &[size]), ints("axis", &[3])];
        let weights = caches.into_iter().chain(bounds).collect();
        ModelProto { opsets: vec![OperatorSetId::onnx(23)], ..model(nodes, weights) }
    };
    import(&turned(6, &[])).unwrap();
    let message = refused(&turned(5, &[]));
    assert!(message.contains("node_y") && message.contains("heads of size 5 have 5 to turn"), "{message}");
    let message = refused(&turned(6, &[("rotary_embedding_dim", AttributeProto::int(3))]));
    assert!(message.contains("have 3 to turn; export it with an even"), "{message}");
}

#[test]
fn a_survey_lists_every_problem_at_once() {
    let nodes = vec![
        node("LSTM", &["x"], &["a"], &[]),
        node("Relu", &["a"], &["b"], &[]),
        node("Loop", &["b"], &["c"], &[]),
        node("MaxPool", &["x"], &["p", "i"], &[("kernel_shape", AttributeProto::ints(vec![2, 2]))]),
        node("Concat", &["c", "p", "i"], &["y"], &[("axis", AttributeProto::int(1))]),
    ];
    let bytes = model(nodes, vec![]).encode_to_vec();
    let found = import_report(&bytes, None, &ImportOptions::default()).unwrap();
    let ops: Vec<&str> = found.problems.iter().map(|p| p.op.as_str()).collect();
    assert_eq!((ops, found.opset), (vec!["LSTM", "Loop", "MaxPool"], 13));
    assert!(found.graph.is_none());
    let good = model(vec![node("Relu", &["x"], &["y"], &[])], vec![]).encode_to_vec();
    assert!(import_report(&good, None, &ImportOptions::default()).unwrap().graph.is_some());
}

#[test]
fn statistics_of_the_batch_are_part_of_a_graph_in_training_mode() {
    let norm = |attributes: &[Attribute], outputs: &[&str]| {
        let weights = ["w", "b", "m", "v"].map(|name| zeros(name, &[3])).to_vec();
        let node = node("BatchNormalization", &["x", "w", "b", "m", "v"], outputs, attributes);
        // The attribute came with operator set 14, and outputs told the mode before.
        let opsets = vec![OperatorSetId::onnx(if attributes.is_empty() { 13 } else { 14 })];
        ModelProto { opsets, ..model(vec![node], weights) }
    };
    let mode = |flag: i64| ("training_mode", AttributeProto::int(flag));
    let evaluated = import(&norm(&[mode(0)], &["y"])).unwrap();
    assert!(!samples_interact(&evaluated));
    for trained in [
        norm(&[mode(1)], &["y"]),
        norm(&[mode(1)], &["y", "mean", "var"]),
        norm(&[], &["y", "m1", "v1", "m2", "v2"]),
    ] {
        let graph = import(&trained).unwrap();
        let output = graph.outputs()[0].node;
        assert_eq!(graph.node(output).shape, evaluated.node(evaluated.outputs()[0].node).shape);
        assert!(samples_interact(&graph));
    }
    let node = node("BatchNormalization", &["x", "w", "w", "w", "w"], &["y"], &[mode(1)]);
    let short = model(vec![node], vec![zeros("w", &[2])]);
    let short = ModelProto { opsets: vec![OperatorSetId::onnx(14)], ..short };
    assert!(refused(&short).contains("[3]"));
}

#[test]
fn bombs_are_defused() {
    let huge = ints("huge", &[1 << 20, 1 << 20]);
    let fill = vec![node("ConstantOfShape", &["huge"], &["c"], &[]), node("Add", &["x", "c"], &["y"], &[])];
    assert!(refused(&model(fill, vec![huge.clone()])).contains("too large"));
    let expand = vec![node("Expand", &["one", "huge"], &["c"], &[]), node("Add", &["x", "c"], &["y"], &[])];
    assert!(refused(&model(expand, vec![huge, zeros("one", &[1])])).contains("too large"));
    let range = vec![node("Range", &["a", "b", "c"], &["r"], &[]), node("Gather", &["x", "r"], &["y"], &[])];
    let number = |name, value| TensorProto { dims: vec![], ..ints(name, &[value]) };
    let bounds = vec![number("a", 0), number("b", i64::MAX), number("c", 1)];
    assert!(refused(&model(range, bounds)).contains("too large"));
    let many: Vec<NodeProto> = (0..100)
        .flat_map(|i| {
            let (shape, sum, next) = (format!("c{i}"), format!("s{i}"), format!("s{}", i + 1));
            [
                node("ConstantOfShape", &["n"], &[&shape], &[]),
                node("Add", &[&sum, &shape], &[if i == 99 { "y" } else { &next }], &[]),
            ]
        })
        .collect();
    let start = zeros("s0", &[1]);
    assert!(refused(&model(many, vec![ints("n", &[1 << 20]), start])).contains("more constants"));
    let mut absurd = zeros("w", &[1]);
    absurd.dims = vec![1 << 40, 1 << 20];
    assert!(refused(&model(vec![node("Add", &["x", "w"], &["y"], &[])], vec![absurd])).contains("'w'"));
}

fn function(name: &str, nodes: Vec<NodeProto>) -> FunctionProto {
    FunctionProto {
        name: name.into(),
        domain: "local".into(),
        inputs: vec!["a".into()],
        outputs: vec!["b".into()],
        nodes,
        opsets: vec![OperatorSetId::onnx(18)],
        ..FunctionProto::default()
    }
}

fn local(op: &str, input: &str, output: &str, attributes: &[Attribute]) -> NodeProto {
    NodeProto { domain: "local".into(), ..node(op, &[input], &[output], attributes) }
}

#[test]
fn functions_are_written_out_with_their_attributes() {
    let slope = ("alpha", AttributeProto::reference("slope"));
    let mut leaky = function("leaky", vec![node("LeakyRelu", &["a"], &["b"], &[slope])]);
    leaky.defaults = vec![AttributeProto::float(0.5).named("slope")];
    let calls = vec![
        local("leaky", "x", "h", &[("slope", AttributeProto::float(0.25))]),
        local("leaky", "h", "y", &[]),
    ];
    let graph = import(&ModelProto { functions: vec![leaky], ..model(calls, vec![]) }).unwrap();
    let slopes: Vec<Op> = graph.nodes().skip(1).map(|(_, n)| n.op.clone()).collect();
    let leaky = |slope| Op::Unary(Unary::LeakyRelu { slope });
    assert_eq!(slopes, [leaky(0.25), leaky(0.5)]);
    let names: Vec<&str> = graph.nodes().skip(1).map(|(_, n)| n.label.node.as_str()).collect();
    assert_eq!(names, ["node_h/node_b", "node_y/node_b"]);
}

#[test]
fn functions_without_end_are_refused() {
    let call =
        |functions| refused(&ModelProto { functions, ..model(vec![local("f0", "x", "y", &[])], vec![]) });
    assert!(call(vec![function("f0", vec![local("f0", "a", "b", &[])])]).contains("calls itself"));
    let nested = |last: usize, copies: usize| -> Vec<FunctionProto> {
        (0..last)
            .map(|i| {
                let body = (0..copies).map(|k| {
                    let name = |k: usize| {
                        if k == 0 {
                            "a".into()
                        } else if k == copies {
                            "b".into()
                        } else {
                            format!("t{k}")
                        }
                    };
                    match i + 1 == last {
                        true => node("Relu", &[&name(k)], &[&name(k + 1)], &[]),
                        false => local(&format!("f{}", i + 1), &name(k), &name(k + 1), &[]),
                    }
                });
                function(&format!("f{i}"), body.collect())
            })
            .collect()
    };
    assert!(call(nested(100, 1)).contains("deeper"));
    assert!(call(nested(10, 10)).contains("unfolds"));
}

#[test]
fn a_known_condition_chooses_its_branch() {
    let branch = |op: &str| {
        AttributeProto::graph(GraphProto {
            nodes: vec![node(op, &["x"], &["inner"], &[])],
            outputs: vec![info("inner", &[])],
            ..GraphProto::default()
        })
    };
    let choose = |flag: i32| {
        let condition =
            TensorProto { name: "c".into(), data_type: 9, int32s: vec![flag], ..TensorProto::default() };
        let branches = [("then_branch", branch("Relu")), ("else_branch", branch("Abs"))];
        let graph = import(&model(vec![node("If", &["c"], &["y"], &branches)], vec![condition])).unwrap();
        graph.node(graph.outputs()[0].node).op.clone()
    };
    assert_eq!(choose(1), Op::Unary(Unary::Relu));
    assert_eq!(choose(0), Op::Unary(Unary::Abs));
}

#[test]
fn softmax_before_operator_set_13_is_over_everything_behind_its_axis() {
    let mut old = model(vec![node("Softmax", &["x"], &["y"], &[])], vec![]);
    let graph = import(&old).unwrap();
    assert_eq!(graph.node(graph.outputs()[0].node).op, Op::Softmax { axis: 3 });
    old.opsets[0].version = 11;
    let graph = import(&old).unwrap();
    let ops: Vec<&str> = graph.nodes().map(|(_, n)| n.op.name()).collect();
    assert_eq!(ops, ["Input", "Reshape", "Softmax", "Reshape"]);
    assert_eq!(output_shape(&graph), Shape::batched(&[3, 8, 8]));
}

#[test]
fn automatic_padding_keeps_the_size_on_the_side_it_says() {
    let pads = |auto_pad: &str| {
        let attributes = [
            ("auto_pad", AttributeProto::text(auto_pad)),
            ("kernel_shape", AttributeProto::ints(vec![2, 3])),
            ("strides", AttributeProto::ints(vec![1, 3])),
        ];
        let graph = import(&model(vec![node("MaxPool", &["x"], &["y"], &attributes)], vec![])).unwrap();
        match &graph.node(graph.outputs()[0].node).op {
            Op::MaxPool(Window { pad, .. }) => (pad.clone(), output_shape(&graph)),
            other => panic!("{other:?}"),
        }
    };
    let same = Shape::batched(&[3, 8, 3]);
    assert_eq!(pads("SAME_UPPER"), (vec![(0, 1), (0, 1)], same.clone()));
    assert_eq!(pads("SAME_LOWER"), (vec![(1, 0), (1, 0)], same));
    assert_eq!(pads("VALID"), (vec![(0, 0), (0, 0)], Shape::batched(&[3, 7, 2])));
}

#[test]
fn weights_listed_as_inputs_are_no_inputs() {
    let mut old = model(vec![node("Add", &["x", "w"], &["y"], &[])], vec![zeros("w", &[8])]);
    if let Some(graph) = &mut old.graph {
        graph.inputs.push(info("w", &[DimProto::Value(8)]));
    }
    let graph = import(&old).unwrap();
    assert_eq!(graph.inputs().len(), 1);
    assert!(graph.nodes().any(|(_, n)| n.label.tensor == "w" && matches!(n.op, Op::Constant(_))));
}

#[test]
fn names_that_repeat_are_made_unique() {
    let mut twins = vec![node("Relu", &["x"], &["h"], &[]), node("Relu", &["h"], &["y"], &[])];
    twins.iter_mut().for_each(|n| n.name = "same".into());
    let graph = import(&model(twins, vec![])).unwrap();
    let names: Vec<&str> = graph.nodes().map(|(_, n)| n.label.node.as_str()).collect();
    assert_eq!(names, ["x", "same", "same_1"]);
}

#[test]
fn a_graph_that_is_written_and_read_is_the_same_graph() {
    let mut g = Graph::new();
    let x = g.input("x", Shape::batched(&[3]), Kind::Float);
    let w = g.constant(Tensor::new([3, 2], vec![1f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap());
    let y = g.add(Op::MatMul { trans_a: false, trans_b: false }, &[x, w]).unwrap();
    g.output("y", y);
    g.set_metadata("author", "nobody");
    let bytes = write(&g, &ExportOptions::default()).unwrap();
    let back = read(&bytes, None, &ImportOptions::default()).unwrap();
    assert_eq!(back.metadata(), g.metadata());
    assert_eq!(back.node(back.outputs()[0].node).op, g.node(y).op);
    assert_eq!(output_shape(&back), output_shape(&g));
}
