//! Small networks made from bytes: operators, attributes, shapes and weights are what the bytes say, hostile ones included. Each
//! is opened, written and read again, run, and explained by a method and for a target that the bytes choose: of its scores, and
//! of the maps before them, with a mask, a reference and cells that the bytes draw.

mod bytes;
mod operator;

use monosplit::catalogue::{MethodChoice, entries};
use monosplit::engine::{Cpu, Engine, Precision};
use monosplit::explain::{AxisIndex, Cells, Class, Explainer, MapRequest, Mask, Parameters, Summary, Target};
use monosplit::graph::onnx::{self, ExportOptions, ImportOptions};
use monosplit::graph::op::{Binary, Reduction, Unary};
use monosplit::graph::{Graph, Kind, Label, Node, NodeId, Op, Result, Shape, Tensor};
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
    explain(model.graph(), &input, &scores, &engine, &mut bytes);
    if bytes.below(4) == 0 {
        let target = TARGETS[bytes.below(TARGETS.len())];
        let target: TargetChoice = target.parse().unwrap_or_else(|_| TARGETS[0].parse().expect("a target"));
        if let Ok(model) = model.clone().with_target(&target, &TargetContext::new(&engine))
            && let Ok(scores) = run(model.graph(), &input, &engine)
        {
            explain(model.graph(), &input, &scores, &engine, &mut bytes);
        }
    }
    let maps = maps(model.graph());
    if let Some(target) = maps.as_ref().and_then(|maps| target_of_maps(maps, &mut bytes)) {
        explain_target(&maps.expect("a target of them"), &target, &input, &engine, &mut bytes);
    }
    true
}

/// The network with one more output, `maps`: the last named value of real numbers along places.
fn maps(graph: &Graph) -> Option<Graph> {
    let is_map = |node: &Node| {
        let places =
            node.shape.dims().get(1..).is_some_and(|rest| rest.iter().all(|dim| dim.fixed().is_some()));
        node.kind == Kind::Float && node.shape.rank() > 2 && places && !node.label.node.is_empty()
    };
    let id = graph.nodes().filter(|(_, node)| is_map(node)).map(|(id, _)| id).next_back()?;
    let mut graph = graph.clone();
    graph.output("maps", id);
    Some(graph)
}

/// A target of the output `maps`, with what it is given.
fn target_of_maps(graph: &Graph, bytes: &mut Bytes<'_>) -> Option<Target> {
    let dims = graph.node(graph.outputs().last()?.node).shape.dims();
    let lengths: Vec<usize> = dims[1..].iter().filter_map(|dim| dim.fixed()).collect();
    let output = || Some("maps".to_owned());
    let class = Some(bytes.below(5)).filter(|class| *class > 0).map(|class| class - 1);
    Some(match bytes.below(5) {
        0 => Target::Region { output: output(), mask: Mask::Predicted, class },
        1 => Target::Region { output: output(), mask: Mask::Given(bytes.tensor(&lengths[1..])), class },
        2 => {
            let index = |bytes: &mut Bytes<'_>| bytes.below(9) as i64 - 3;
            let axis = |bytes: &mut Bytes<'_>| match bytes.below(4) {
                0 => AxisIndex::Best,
                1 => AxisIndex::Range(Some(index(bytes)), Some(index(bytes))),
                2 => AxisIndex::Range(None, None),
                _ => AxisIndex::At(index(bytes)),
            };
            let cells = match bytes.below(3) {
                0 => Cells::BestOf(bytes.below(4)),
                _ => Cells::Each(lengths.iter().map(|_| axis(bytes)).collect()),
            };
            Target::Cell { output: output(), cells }
        }
        3 => {
            let summary = [Summary::Sum, Summary::Mean, Summary::Norm][bytes.below(3)];
            Target::Summary { output: output(), summary }
        }
        _ => {
            let reference = bytes.tensor(&[lengths.iter().product()]);
            Target::Similarity { output: output(), reference }
        }
    })
}

/// A target is refused whether what it is given is a constant or an input, or it has the same score both ways, and is explained.
fn explain_target(graph: &Graph, target: &Target, input: &Tensor, engine: &Cpu, bytes: &mut Bytes<'_>) {
    let grafted = [Parameters::Constant, Parameters::Input].map(|way| target.graft(graph, way));
    let [constant, given] = match grafted {
        [Ok(constant), Ok(given)] => [constant, given],
        [constant, given] => {
            assert!(constant.is_err() && given.is_err(), "{target:?} is refused in one way alone");
            return;
        }
    };
    let Ok(scores) = run(&constant.graph, input, engine) else { return };
    let class = match target {
        Target::Region { class: Some(class), .. } => Some(*class),
        _ => None,
    };
    let mut inputs = vec![input.clone()];
    inputs.extend(given.parameters.iter().map(|(_, value)| value.clone()));
    let found = engine.compile(&given.graph).and_then(|program| program.run(&inputs));
    if let Ok(found) = found {
        // Of a region that names its class all classes are scores, of which the explained one is chosen later.
        let (all, scores) = (found[0].to_f64(), scores.to_f64());
        let (wide, width) = (all.len() / 2, scores.len() / 2);
        let first = class.unwrap_or(0);
        let chosen = (0..2).flat_map(|row| all[row * wide + first..][..width].to_vec()).collect::<Vec<_>>();
        let empty = matches!(target, Target::Region { mask: Mask::Predicted, .. });
        let same = |(a, b): (&f64, &f64)| {
            (a - b).abs() <= 1e-3 * a.abs().max(b.abs()).max(1.0) || !a.is_finite() || !b.is_finite()
        };
        assert!(empty || scores.iter().zip(&chosen).all(same), "{target:?}: {scores:?}, {chosen:?}");
    }
    explain(&constant.graph, input, &scores, engine, bytes);
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
fn explain(graph: &Graph, input: &Tensor, scores: &Tensor, engine: &Cpu, bytes: &mut Bytes<'_>) {
    let all: Vec<_> = entries().collect();
    let entry = all[bytes.below(all.len())];
    let Ok(choice) = MethodChoice::parse(entry.name, &[]) else { return };
    let method = choice.configured();
    let layer = match bytes.below(3) {
        0 => Some(format!("node{}", bytes.below(NODES))),
        _ => None,
    };
    let request = MapRequest::of(method.method.clone(), layer);
    let precise = request.needs_double_precision(graph);
    let engine = if precise { engine.clone().precision(Precision::F64) } else { engine.clone() };
    let Ok(explainer) = Explainer::new(graph, &[request], &engine) else { return };
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
