//! The part of a graph that does not depend on the image. In `convex` mode the mass `σ` is such a part: it follows from the
//! class, α and the weights alone, and can be computed once for many images.

use std::collections::HashMap;

use monosplit_graph::{Error, Graph, NodeId, Op, Result};

/// A graph cut in two: `prologue` reads only the class and numbers like α; `main` reads all inputs and, after them, the values that
/// cross the cut.
#[derive(Clone, Debug)]
pub(crate) struct PrologueSplit {
    pub(crate) prologue: Graph,
    pub(crate) main: Graph,
    /// Positions, among the original inputs, of those the prologue reads.
    pub(crate) prologue_inputs: Vec<usize>,
    /// Number of values that cross the cut.
    pub(crate) crossing: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Dependence {
    Nothing,
    Numbers,
    Key,
    Image,
}

/// Cuts `graph` where values that depend on the input named `key`, but on none of the inputs that carry the image,
/// are read by values that do. `None` if nothing crosses.
pub(crate) fn cut(graph: &Graph, key: &str, numbers: &[&str]) -> Result<Option<PrologueSplit>> {
    let dependence = dependences(graph, key, numbers);
    let readers = graph.readers();
    let of = |id: NodeId| dependence[id.index()];
    let crossing: Vec<NodeId> = graph
        .nodes()
        .filter(|(id, node)| {
            let read_across = readers[id.index()].iter().any(|&reader| of(reader) == Dependence::Image);
            of(*id) == Dependence::Key
                && !matches!(node.op, Op::Input)
                && read_across
                && node.shape.is_batched()
        })
        .map(|(id, _)| id)
        .collect();
    if crossing.is_empty() {
        return Ok(None);
    }
    let prologue_inputs: Vec<usize> = (0..graph.inputs().len())
        .filter(|&i| matches!(of(graph.inputs()[i]), Dependence::Key | Dependence::Numbers))
        .collect();
    let prologue = prologue(graph, &crossing, &prologue_inputs)?;
    let main = main(graph, &crossing)?;
    Ok(Some(PrologueSplit { prologue, main, prologue_inputs, crossing: crossing.len() }))
}

fn dependences(graph: &Graph, key: &str, numbers: &[&str]) -> Vec<Dependence> {
    let mut dependence = vec![Dependence::Nothing; graph.len()];
    for (id, node) in graph.nodes() {
        let of_inputs = node.inputs.iter().map(|i| dependence[i.index()]);
        dependence[id.index()] = match &node.op {
            Op::Input if node.label.tensor == key => Dependence::Key,
            Op::Input if numbers.contains(&node.label.tensor.as_str()) => Dependence::Numbers,
            Op::Input => Dependence::Image,
            _ => of_inputs.max_by_key(|d| *d as u8).unwrap_or(Dependence::Nothing),
        };
    }
    dependence
}

fn prologue(graph: &Graph, crossing: &[NodeId], inputs: &[usize]) -> Result<Graph> {
    let mut target = Graph::new();
    let wanted = graph.ancestors(crossing.iter().copied());
    let mut map: HashMap<NodeId, NodeId> = HashMap::new();
    for (id, node) in graph.nodes() {
        let position = graph.inputs().iter().position(|&input| input == id);
        if position.is_some_and(|p| inputs.contains(&p)) {
            map.insert(id, target.input(node.label.tensor.clone(), node.shape.clone(), node.kind));
        } else if wanted[id.index()] {
            map.insert(id, copy(graph, &mut target, id, &map)?);
        }
    }
    for (i, id) in crossing.iter().enumerate() {
        target.output(format!("crossing {i}"), map[id]);
    }
    Ok(target)
}

fn main(graph: &Graph, crossing: &[NodeId]) -> Result<Graph> {
    let mut target = Graph::new();
    let mut map: HashMap<NodeId, NodeId> = HashMap::new();
    for &id in graph.inputs() {
        let node = graph.node(id);
        map.insert(id, target.input(node.label.tensor.clone(), node.shape.clone(), node.kind));
    }
    for (i, &id) in crossing.iter().enumerate() {
        let node = graph.node(id);
        map.insert(id, target.input(format!("crossing {i}"), node.shape.clone(), node.kind));
    }
    for (id, _) in graph.nodes() {
        if !map.contains_key(&id) {
            map.insert(id, copy(graph, &mut target, id, &map)?);
        }
    }
    for output in graph.outputs() {
        target.output(output.name.clone(), map[&output.node]);
    }
    target.pruned()
}

fn copy(graph: &Graph, target: &mut Graph, id: NodeId, map: &HashMap<NodeId, NodeId>) -> Result<NodeId> {
    let node = graph.node(id);
    if let Op::Constant(tensor) = &node.op {
        return Ok(target.named_constant(node.label.clone(), tensor.clone()));
    }
    let inputs: Option<Vec<NodeId>> = node.inputs.iter().map(|i| map.get(i).copied()).collect();
    let inputs = inputs.ok_or_else(|| Error::argument("a node reads a value that was not copied"))?;
    target.add_named(node.label.clone(), node.op.clone(), &inputs)
}
