//! Small networks made from bytes: operators, attributes, shapes and weights are what the bytes say, hostile ones included. Each
//! is opened, written and read again, run, and explained by a method and for a target that the bytes choose.

mod bytes;
mod operator;

use monosplit::catalogue::{MethodChoice, entries};
use monosplit::engine::{Cpu, Engine, Precision};
use monosplit::explain::{Class, Explainer, MapRequest};
use monosplit::graph::onnx::{self, ExportOptions, ImportOptions};
use monosplit::graph::op::{Binary, Reduction, Unary};
use monosplit::graph::{Graph, Kind, Label, NodeId, Op, Result, Shape, Tensor};
use monosplit::{Model, TargetChoice, TargetContext};

use bytes::Bytes;

/// What all programs together may hold.
const MEMORY: usize = 256 << 20;
/// The most nodes that bytes ask for.
const NODES: usize = 12;

/// How far an input is moved, for its size, to see whether rounding decides what a network says.
const NUDGE: f64 = 1e-13;

/// Texts of targets of a network with three scores.
const TARGETS: [&str; 8] =
    ["class:0", "class:top2", "contrast:top,top2", "sum:y", "log-odds:top", "class:9", "norm:y", "entropy"];

/// Takes the network that the bytes describe through everything; whether it was run.
///
/// # Panics
/// If explaining changes the scores, if the number of threads changes a bit, if what is written is another network, or if
/// anything panics.
pub(crate) fn check(data: &[u8]) -> bool {
    let mut bytes = Bytes::new(data);
    let Ok(graph) = network(&mut bytes) else { return false };
    let input = images(&graph, &mut bytes);
    let engine = Cpu::default().threads(1).memory_limit(MEMORY);
    let Ok(model) = Model::options().open_graph("a random network", graph) else { return false };
    let Ok(scores) = run(model.graph(), &input, &engine) else { return false };
    let two = run(model.graph(), &input, &Cpu::default().threads(2).memory_limit(MEMORY));
    assert_same(&scores, &two.expect("it ran on one thread"), "on two threads");
    round_trip(&model, &input, &scores, &engine);
    explain(&model, &input, &scores, &engine, &mut bytes);
    if bytes.below(4) == 0 {
        let target = TARGETS[bytes.below(TARGETS.len())];
        let target: TargetChoice = target.parse().unwrap_or_else(|_| TARGETS[0].parse().expect("a target"));
        if let Ok(model) = model.with_target(&target, &TargetContext::new(&engine))
            && let Ok(scores) = run(model.graph(), &input, &engine)
        {
            explain(&model, &input, &scores, &engine, &mut bytes);
        }
    }
    true
}

/// A network with the input `x` and the output `y`, three scores for each sample.
fn network(bytes: &mut Bytes<'_>) -> Result<Graph> {
    let mut graph = Graph::new();
    let dims: Vec<usize> = match bytes.below(4) {
        0 => vec![1 + bytes.below(8)],
        1 => vec![1 + bytes.below(4), 1 + bytes.below(9)],
        _ => vec![1 + bytes.below(4), 1 + bytes.below(9), 1 + bytes.below(9)],
    };
    let mut values = vec![graph.input("x", Shape::batched(&dims), Kind::Float)];
    for number in 0..1 + bytes.below(NODES) {
        if let Ok(id) = operator::add(&mut graph, bytes, &values) {
            *graph.label_mut(id) = Label::named(format!("node{number}"));
            values.push(id);
        }
    }
    let scores = head(&mut graph, bytes, values[values.len() - 1])?;
    graph.output("y", scores);
    graph.pruned()
}

/// Three scores of the last value: the mean over places, and a product.
fn head(graph: &mut Graph, bytes: &mut Bytes<'_>, last: NodeId) -> Result<NodeId> {
    let last = match graph.node(last).kind {
        Kind::Float => last,
        _ => graph.add(Op::Cast { to: Kind::Float }, &[last])?,
    };
    let rank = graph.node(last).shape.rank();
    let axes: Vec<usize> = (2..rank).collect();
    let flat = if axes.is_empty() { last } else { graph.reduced(Reduction::Mean, last, &axes, false)? };
    let width = graph.node(flat).shape.fixed_at(1).unwrap_or(1);
    let weights = graph.constant(bytes.tensor(&[width, 3]));
    graph.add(Op::MatMul { trans_a: false, trans_b: false }, &[flat, weights])
}

/// Two samples.
fn images(graph: &Graph, bytes: &mut Bytes<'_>) -> Tensor {
    let shape = &graph.node(graph.inputs()[0]).shape;
    bytes.tensor(&shape.at(2).expect("the shape of a sample is fixed"))
}

fn run(graph: &Graph, input: &Tensor, engine: &Cpu) -> Result<Tensor> {
    let mut alone = graph.clone();
    alone.set_outputs(graph.outputs()[..1].to_vec());
    engine.compile(&alone.pruned()?)?.run(std::slice::from_ref(input)).map(|mut outputs| outputs.remove(0))
}

/// Whether a function jumps, or turns fast where it is given large numbers: rounding in the nodes before it, which may be written
/// in other words, decides what it is.
fn jumps(op: &Op) -> bool {
    matches!(
        op,
        Op::Unary(Unary::Floor | Unary::Sin | Unary::Cos) | Op::Binary(Binary::Greater | Binary::Equal)
    )
}

/// The network written as ONNX and read again has the same scores.
fn round_trip(model: &Model, input: &Tensor, scores: &Tensor, engine: &Cpu) {
    let Ok(written) = onnx::write(model.graph(), &ExportOptions::default()) else { return };
    let again = onnx::read(&written, None, &ImportOptions::default());
    let again = again.unwrap_or_else(|error| panic!("what was written cannot be read: {error}"));
    let Ok(again) = Model::options().open_graph("the network read again", again) else {
        panic!("what was written cannot be opened");
    };
    let found = run(again.graph(), input, engine).expect("it ran before it was written");
    if model.graph().nodes().any(|(_, node)| jumps(&node.op)) || agree(scores, &found) {
        return;
    }
    // Some networks blow up rounding. One that was written as another differs in double precision too, where the scores do not
    // depend on the last digits of the input.
    let double = engine.clone().precision(Precision::F64);
    let scored = |graph: &Graph, input: &Tensor| run(graph, input, &double).expect("it ran before");
    let (before, after) = (scored(model.graph(), input), scored(again.graph(), input));
    let values = input.to_f64();
    let moved = values.iter().enumerate().map(|(i, v)| v * (1.0 + NUDGE * ((i % 7) as f64 - 3.0)));
    let moved: Vec<f64> = moved.collect();
    let moved = Tensor::new(input.shape().to_vec(), moved).expect("the same shape");
    let stable = agree(&before, &scored(model.graph(), &moved));
    assert!(
        !stable || agree(&before, &after),
        "{before:?} before it was written, {after:?} when it was read again: {}",
        described(model.graph())
    );
}

/// The operators with their attributes, for whoever looks into a failure.
fn described(graph: &Graph) -> String {
    let nodes = graph.nodes().map(|(id, node)| format!("{id:?} = {:?} of {:?}", node.op, node.inputs));
    nodes.collect::<Vec<_>>().join("; ")
}

/// Whether scores are the same but for a thousandth of the largest; those that are not finite are as good as any.
fn agree(a: &Tensor, b: &Tensor) -> bool {
    let (a, b) = (a.to_f64(), b.to_f64());
    let scale = a.iter().filter(|v| v.is_finite()).fold(1f64, |most, v| most.max(v.abs()));
    let same = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-3 * scale || !a.is_finite() || !b.is_finite();
    a.iter().zip(b.iter()).all(same)
}

/// An explanation is refused or leaves the scores as they are; maps of finite scores are finite.
fn explain(model: &Model, input: &Tensor, scores: &Tensor, engine: &Cpu, bytes: &mut Bytes<'_>) {
    let all: Vec<_> = entries().collect();
    let entry = all[bytes.below(all.len())];
    let Ok(choice) = MethodChoice::parse(entry.name, &[]) else { return };
    let method = choice.configured();
    let layer = match bytes.below(3) {
        0 => Some(format!("node{}", bytes.below(NODES))),
        _ => None,
    };
    let request = MapRequest::of(method.method.clone(), layer);
    let precise = request.needs_double_precision(model.graph());
    let engine = if precise { engine.clone().precision(Precision::F64) } else { engine.clone() };
    let Ok(explainer) = Explainer::new(model.graph(), &[request], &engine) else { return };
    let Ok(found) = explainer.explain(input, &Class::Top, &method.settings) else { return };
    if !precise {
        assert_same(scores, &found.logits, entry.name);
    }
    let finite = |values: &Tensor| values.to_f64().iter().all(|value| value.is_finite());
    if finite(&found.logits) {
        assert!(finite(&found.maps[0].values), "{} gave a map that is not finite", entry.name);
    }
}

/// The same bits; one NaN is as good as another.
fn assert_same(a: &Tensor, b: &Tensor, what: &str) {
    let (a, b) = (a.to_f64(), b.to_f64());
    let same = |(a, b): (&f64, &f64)| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
    assert!(a.len() == b.len() && a.iter().zip(b.iter()).all(same), "scores differ {what}: {a:?}, {b:?}");
}
