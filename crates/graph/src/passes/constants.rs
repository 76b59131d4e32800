//! Constant folding: subgraphs that depend on no input are evaluated once, by an evaluator that the caller provides.

use crate::error::{Error, Result};
use crate::graph::{Graph, NodeId};
use crate::op::Op;
use crate::shape::Dim;
use crate::tensor::Tensor;

use super::rewrite::{Rewrite, Step};

/// Evaluates a graph without inputs: one tensor per output.
pub type Evaluate<'a> = dyn Fn(&Graph) -> Result<Vec<Tensor>> + 'a;

/// Results of up to this many elements are computed whatever they are made from.
const SMALL: usize = 4096;
/// A larger result may have this many times the elements of what its node reads.
const GROWTH: usize = 4;
/// All results together may have this many times the elements of the graph's constants (and [`LEEWAY`] more).
const TOTAL_GROWTH: usize = 8;
const LEEWAY: usize = 1 << 20;

/// Evaluates the subgraphs that depend on no input and puts constants in their place, in the precision `evaluate`
/// returns them in.
///
/// A result much larger than what it is made from (a scalar expanded to a feature map) stays a node, so that neither
/// memory nor a saved file grows beyond a multiple of the constants the graph came with; so does one whose shape
/// depends on the batch size.
pub fn fold_constants(graph: &Graph, evaluate: &Evaluate) -> Result<Graph> {
    let foldable = foldable(graph);
    let mut wanted = vec![false; graph.len()];
    for (_, node) in graph.nodes().filter(|(id, _)| !foldable[id.index()]) {
        node.inputs.iter().for_each(|input| wanted[input.index()] = true);
    }
    graph.outputs().iter().for_each(|o| wanted[o.node.index()] = true);
    let wanted: Vec<NodeId> = graph
        .nodes()
        .filter(|(id, node)| {
            wanted[id.index()] && foldable[id.index()] && !matches!(node.op, Op::Constant(_))
        })
        .map(|(id, _)| id)
        .collect();
    if wanted.is_empty() {
        return graph.pruned();
    }
    let results = evaluated(graph, &foldable, &wanted, evaluate)?;
    let mut results = wanted.iter().zip(results).peekable();
    Rewrite::run(graph, |rewrite, id, _| {
        Ok(match results.next_if(|(wanted, _)| **wanted == id) {
            Some((_, tensor)) => Step::Replace(rewrite.target.constant(tensor)),
            None => Step::Keep,
        })
    })
}

fn elements(graph: &Graph, id: NodeId) -> Option<usize> {
    match graph.node(id).shape.count() {
        Some(Dim::Fixed(n)) => Some(n),
        _ => None,
    }
}

/// How many elements of new constants a pass may make, so that a small file cannot ask for much memory.
pub(super) fn allowance(graph: &Graph) -> usize {
    let constants = graph.nodes().filter_map(|(_, node)| match &node.op {
        Op::Constant(tensor) => Some(tensor.len()),
        _ => None,
    });
    let total = constants.fold(0usize, usize::saturating_add);
    total.saturating_mul(TOTAL_GROWTH).saturating_add(LEEWAY)
}

fn foldable(graph: &Graph) -> Vec<bool> {
    let mut left = allowance(graph);
    let mut foldable = vec![false; graph.len()];
    for (id, node) in graph.nodes().filter(|(_, node)| node.is_constant()) {
        let read = node.inputs.iter().filter_map(|&x| elements(graph, x)).fold(0, usize::saturating_add);
        let limit = left.min(read.saturating_mul(GROWTH).max(SMALL));
        foldable[id.index()] = match &node.op {
            Op::Constant(_) => true,
            _ if !node.inputs.iter().all(|x| foldable[x.index()]) || node.shape.is_batched() => false,
            _ => elements(graph, id).filter(|&n| n <= limit).inspect(|n| left -= n).is_some(),
        };
    }
    foldable
}

fn evaluated(
    graph: &Graph,
    foldable: &[bool],
    wanted: &[NodeId],
    evaluate: &Evaluate,
) -> Result<Vec<Tensor>> {
    let mut part = Graph::new();
    let mut values: Vec<Option<NodeId>> = vec![None; graph.len()];
    for (id, node) in graph.nodes().filter(|(id, _)| foldable[id.index()]) {
        let inputs: Vec<NodeId> = node.inputs.iter().filter_map(|x| values[x.index()]).collect();
        values[id.index()] = Some(part.add_copy(node, &inputs)?);
    }
    for id in wanted {
        if let Some(value) = values[id.index()] {
            part.output(graph.node(*id).label.display(), value);
        }
    }
    let results = evaluate(&part.pruned()?)?;
    if results.len() != wanted.len() {
        return Err(Error::argument(format!(
            "the evaluator returned {} constants where {} were asked for",
            results.len(),
            wanted.len()
        )));
    }
    for (&id, result) in wanted.iter().zip(&results) {
        let node = graph.node(id);
        if node.shape.at(1).as_deref() != Some(result.shape()) || node.kind != result.kind() {
            return Err(Error::argument(format!(
                "the evaluator returned {} {:?} where {} {} was expected",
                result.kind(),
                result.shape(),
                node.kind,
                node.shape
            ))
            .at(node.label.display()));
        }
    }
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::super::reference;
    use super::*;
    use crate::op::{Binary, Unary};
    use crate::shape::Shape;
    use crate::tensor::Kind;

    fn evaluate(graph: &Graph) -> Result<Vec<Tensor>> {
        Ok(reference::evaluate(graph, &[]))
    }

    #[test]
    fn a_constant_subgraph_becomes_one_constant() {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[3]), Kind::Float);
        let w = g.constant(Tensor::vector(vec![1.0, -2.0, 3.0]));
        let abs = g.unary(Unary::Abs, w).unwrap();
        let product = g.binary(Binary::Mul, abs, w).unwrap();
        let y = g.binary(Binary::Add, x, product).unwrap();
        g.output("y", y);
        g.output("abs", abs);
        let folded = fold_constants(&g, &evaluate).unwrap();
        assert_eq!(folded.len(), 4, "x, two constants, the sum");
        reference::agree(&g, &folded, 0.0);
    }

    #[test]
    fn an_expansion_is_not_stored_nor_what_is_made_from_it() {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[1]), Kind::Float);
        let w = g.number(2.0);
        let w = g.unary(Unary::Exp, w).unwrap();
        let huge = g.add(Op::Expand { shape: Shape::fixed(&[1 << 20, 1 << 15]) }, &[w]).unwrap();
        let sum = g.reduced(crate::op::Reduction::Sum, huge, &[0, 1], true).unwrap();
        let y = g.binary(Binary::Add, x, sum).unwrap();
        g.output("y", y);
        let folded = fold_constants(&g, &evaluate).unwrap();
        assert_eq!(reference::count(&folded, "Expand"), 1);
        assert_eq!(reference::count(&folded, "Exp"), 0);
    }

    #[test]
    fn doubling_again_and_again_ends() {
        let mut g = Graph::new();
        let mut w = g.constant(Tensor::vector(vec![1.0; 64]));
        for _ in 0..30 {
            w = g.add(Op::Concat { axis: 0 }, &[w, w]).unwrap();
        }
        g.output("y", w);
        let largest = foldable(&g)
            .iter()
            .zip(g.nodes())
            .filter(|(foldable, _)| **foldable)
            .map(|(_, (id, _))| elements(&g, id).unwrap())
            .max();
        assert!(largest.unwrap() <= 1 << 21);
    }

    #[test]
    fn a_constant_of_every_sample_stays() {
        let mut g = Graph::new();
        let w = g.number(2.0);
        let each = g.add(Op::Expand { shape: Shape::batched(&[1]) }, &[w]).unwrap();
        g.output("y", each);
        assert_eq!(reference::count(&fold_constants(&g, &evaluate).unwrap(), "Expand"), 1);
    }

    #[test]
    fn a_wrong_evaluator_is_an_error() {
        let mut g = Graph::new();
        let w = g.number(2.0);
        let y = g.unary(Unary::Exp, w).unwrap();
        g.output("y", y);
        assert!(fold_constants(&g, &|_| Ok(Vec::new())).is_err());
        assert!(fold_constants(&g, &|_| Ok(vec![Tensor::vector(vec![1.0])])).is_err());
    }
}
