//! Finds smooth activations, including those an exporter wrote as several nodes. Such an expression is recognised by its
//! values at sample points, not by its structure: an elementwise expression of one value that has the values of SiLU is
//! SiLU.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::error::Result;
use crate::graph::{Graph, NodeId};
use crate::op::{Binary, Op, Unary};
use crate::tensor::Kind;

use super::interpolation::Curve;
use super::rewrite::{Rewrite, Step};

/// A smooth activation in a graph: the node that ends it is `function` of the value of `input`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SmoothActivation {
    /// The (last) node.
    pub node: NodeId,
    /// The value it is a function of.
    pub input: NodeId,
    /// Which function.
    pub function: Unary,
}

/// The largest expression that is looked at, in nodes.
const LARGEST_EXPRESSION: usize = 24;
/// Where an expression is compared with a function, and how closely they must agree; the constants in a file may have
/// been rounded to half precision, and the two forms of GELU differ by 5e-4.
const SAMPLES: [f64; 10] = [-5.0, -2.7, -1.3, -0.6, -0.1, 0.2, 0.9, 1.7, 3.1, 4.6];
const TOLERANCE: f64 = 2e-4;
const SPELLED_OUT: [Unary; 6] =
    [Unary::Silu, Unary::Gelu, Unary::GeluTanh, Unary::Mish, Unary::HardSwish, Unary::Sigmoid];

/// All smooth activations in topological order. The parts of a spelled-out one are not listed on their own, unless
/// something else reads them.
pub fn smooth_activations(graph: &Graph) -> Vec<SmoothActivation> {
    let uses = graph.use_counts();
    let mut found: Vec<SmoothActivation> = Vec::new();
    let mut parts = HashSet::new();
    for (node_id, node) in graph.nodes().filter(|(_, n)| n.kind == Kind::Float && !n.is_constant()) {
        match node.op {
            Op::Unary(function) if Curve::of(function).is_some() => {
                found.push(SmoothActivation { node: node_id, input: node.inputs[0], function });
            }
            Op::Binary(Binary::Mul | Binary::Div) => {
                if let Some((activation, expression)) = spelled_out(graph, node_id) {
                    found.push(activation);
                    parts.extend(unread_parts(graph, &uses, &activation, &expression));
                }
            }
            _ => {}
        }
    }
    found.retain(|activation| !parts.contains(&activation.node));
    found
}

/// Replaces every activation that was written as several nodes by one node.
pub fn recognise_activations(graph: &Graph) -> Result<Graph> {
    let found = smooth_activations(graph);
    let found: HashMap<NodeId, SmoothActivation> = found.into_iter().map(|a| (a.node, a)).collect();
    Rewrite::run(graph, |rewrite, id, node| match found.get(&id) {
        Some(activation) if node.op != Op::Unary(activation.function) => {
            let x = rewrite.value(activation.input);
            rewrite.target.unary(activation.function, x).map(Step::Replace)
        }
        _ => Ok(Step::Keep),
    })
}

/// The nodes of the expression that ends in `root`, as far back as it may reach.
fn expression_of(graph: &Graph, root: NodeId) -> BTreeSet<NodeId> {
    let mut seen = BTreeSet::from([root]);
    let mut front = vec![root];
    while let Some(id) = front.pop() {
        if !matches!(graph.node(id).op, Op::Unary(_) | Op::Binary(_)) {
            continue;
        }
        for &input in &graph.node(id).inputs {
            if seen.len() < LARGEST_EXPRESSION && !graph.node(input).is_constant() && seen.insert(input) {
                front.insert(0, input);
            }
        }
    }
    seen
}

fn spelled_out(graph: &Graph, root: NodeId) -> Option<(SmoothActivation, BTreeSet<NodeId>)> {
    let expression = expression_of(graph, root);
    let inputs =
        expression.iter().rev().filter(|&&id| id != root && graph.node(id).shape == graph.node(root).shape);
    inputs.into_iter().find_map(|&input| {
        let values = values_as_function_of(graph, &expression, input, root)?;
        let error = |function: Unary| {
            let expected = SAMPLES.map(|x| function.eval(x).unwrap_or(f64::NAN));
            let errors = values.iter().zip(expected).map(|(v, e)| (v - e).abs());
            errors.fold(0.0, |largest: f64, e| if e <= largest { largest } else { e })
        };
        let function = SPELLED_OUT.into_iter().min_by(|&a, &b| error(a).total_cmp(&error(b)))?;
        let matches = error(function) <= TOLERANCE;
        matches.then(|| (SmoothActivation { node: root, input, function }, expression.clone()))
    })
}

/// What `root` is where `input` has the values [`SAMPLES`]; `None` if it depends on anything else.
fn values_as_function_of(
    graph: &Graph,
    expression: &BTreeSet<NodeId>,
    input: NodeId,
    root: NodeId,
) -> Option<[f64; SAMPLES.len()]> {
    let mut known: HashMap<NodeId, [f64; SAMPLES.len()]> = HashMap::from([(input, SAMPLES)]);
    for &id in expression.range(input..).skip(1) {
        let read = |id: NodeId| match graph.constant_value(id) {
            Some(tensor) if tensor.len() == 1 => Some([tensor.to_f64()[0]; SAMPLES.len()]),
            _ => known.get(&id).copied(),
        };
        let node = graph.node(id);
        let values = match node.op {
            Op::Unary(f) => read(node.inputs[0]).map(|x| x.map(|x| f.eval(x).unwrap_or(f64::NAN))),
            Op::Binary(f) => read(node.inputs[0])
                .zip(read(node.inputs[1]))
                .map(|(a, b)| std::array::from_fn(|i| f.eval(a[i], b[i]).unwrap_or(f64::NAN))),
            _ => None,
        };
        if let Some(values) = values {
            known.insert(id, values);
        }
    }
    known.get(&root).copied()
}

/// The nodes of an expression that nothing reads once its end is computed in one step.
fn unread_parts(
    graph: &Graph,
    uses: &[usize],
    activation: &SmoothActivation,
    expression: &BTreeSet<NodeId>,
) -> HashSet<NodeId> {
    let mut unread = HashSet::from([activation.node]);
    for &id in expression.range(activation.input..activation.node).rev().filter(|&&id| id != activation.input)
    {
        let reads = |reader: &&NodeId| unread.contains(*reader);
        let from_inside: usize = expression
            .iter()
            .filter(reads)
            .map(|&reader| graph.node(reader).inputs.iter().filter(|&&x| x == id).count())
            .sum();
        if from_inside > 0 && from_inside == uses[id.index()] {
            unread.insert(id);
        }
    }
    unread.remove(&activation.node);
    unread
}

#[cfg(test)]
mod tests {
    use super::super::reference::agree;
    use super::*;
    use crate::graph::Label;
    use crate::shape::Shape;

    fn network(build: impl Fn(&mut Graph, NodeId) -> Result<NodeId>) -> Graph {
        let mut g = Graph::new();
        let image = g.input("x", Shape::batched(&[3, 2]), Kind::Float);
        let x = g.add(Op::Transpose { axes: vec![0, 2, 1] }, &[image]).unwrap();
        let y = build(&mut g, x).unwrap();
        *g.label_mut(y) = Label::named("activation");
        g.output("y", y);
        g
    }

    fn gelu(g: &mut Graph, x: NodeId) -> Result<NodeId> {
        let root = g.constant(crate::Tensor::scalar(std::f32::consts::SQRT_2));
        let scaled = g.binary(Binary::Div, x, root)?;
        let erf = g.unary(Unary::Erf, scaled)?;
        let one_more = g.offset(1.0, erf)?;
        let product = g.binary(Binary::Mul, x, one_more)?;
        g.scaled(0.5, product)
    }

    fn gelu_tanh(g: &mut Graph, x: NodeId) -> Result<NodeId> {
        let three = g.number(3.0);
        let cube = g.binary(Binary::Pow, x, three)?;
        let cube = g.scaled(0.044715, cube)?;
        let inner = g.binary(Binary::Add, x, cube)?;
        let inner = g.scaled(0.797_884_560_8, inner)?;
        let tanh = g.unary(Unary::Tanh, inner)?;
        let one_more = g.offset(1.0, tanh)?;
        let half = g.scaled(0.5, x)?;
        g.binary(Binary::Mul, half, one_more)
    }

    fn gated(g: &mut Graph, x: NodeId, gate: &[Unary]) -> Result<NodeId> {
        let gate = gate.iter().try_fold(x, |y, &f| g.unary(f, y))?;
        g.binary(Binary::Mul, x, gate)
    }

    #[test]
    fn spelled_out_activations_are_recognised() {
        type Build = fn(&mut Graph, NodeId) -> Result<NodeId>;
        let cases: [(Build, Unary); 6] = [
            (|g, x| gated(g, x, &[Unary::Sigmoid]), Unary::Silu),
            (gelu, Unary::Gelu),
            (gelu_tanh, Unary::GeluTanh),
            (|g, x| gated(g, x, &[Unary::Softplus, Unary::Tanh]), Unary::Mish),
            (|g, x| gated(g, x, &[Unary::Exp, Unary::Log, Unary::Sigmoid]), Unary::Silu),
            (|g, x| gated(g, x, &[Unary::HardSigmoid { alpha: 1.0 / 6.0, beta: 0.5 }]), Unary::HardSwish),
        ];
        for (build, function) in cases {
            let g = network(build);
            let found = smooth_activations(&g);
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!((found[0].function, found[0].node), (function, g.outputs()[0].node));
            let recognised = recognise_activations(&g).unwrap();
            assert_eq!(recognised.len(), 3);
            assert_eq!(recognised.node(recognised.outputs()[0].node).label.node, "activation");
            agree(&g, &recognised, 1e-6);
        }
    }

    #[test]
    fn what_only_looks_alike_is_left() {
        let g = network(|g, x| {
            let doubled = g.scaled(1.702, x)?;
            let gate = g.unary(Unary::Sigmoid, doubled)?;
            g.binary(Binary::Mul, x, gate)
        });
        let found = smooth_activations(&g);
        assert_eq!((found.len(), found[0].function), (1, Unary::Sigmoid));
        let g = network(|g, x| {
            let other = g.unary(Unary::Sign, x)?;
            let gate = g.unary(Unary::Sigmoid, other)?;
            g.binary(Binary::Mul, x, gate)
        });
        assert_eq!(smooth_activations(&g)[0].function, Unary::Sigmoid);
    }

    #[test]
    fn a_part_read_elsewhere_is_an_activation_of_its_own() {
        let mut g = network(|g, x| gated(g, x, &[Unary::Sigmoid]));
        let sigmoid = g.nodes().find(|(_, n)| n.op == Op::Unary(Unary::Sigmoid)).unwrap().0;
        g.output("gate", sigmoid);
        assert_eq!(smooth_activations(&g).len(), 2);
    }
}
