//! A graph cut in two at one of its values.

use std::collections::HashMap;

use crate::error::Result;
use crate::graph::{Graph, NodeId, Output};
use crate::op::Op;

/// A cut of a graph at a value. The part above computes the outputs from that value and from the values that reach them
/// without passing through it.
#[derive(Clone, Debug)]
pub struct Cut {
    at: NodeId,
    outputs: Vec<Output>,
    /// Which values depend on the value at the cut, itself included.
    dependent: Vec<bool>,
    /// Which values the outputs need once the value at the cut is known.
    needed: Vec<bool>,
    crossing: Vec<NodeId>,
}

impl Cut {
    /// Cuts `graph` between the value `at` and `outputs`; `None` if one of them does not depend on the value.
    pub fn new(graph: &Graph, at: NodeId, outputs: &[Output]) -> Option<Self> {
        let dependent = graph.descendants([at]);
        if !outputs.iter().all(|output| dependent[output.node.index()]) {
            return None;
        }
        let crosses = |id: NodeId| !dependent[id.index()] && !graph.node(id).is_constant();
        let ends = outputs.iter().map(|output| output.node);
        let needed = graph.ancestors_until(ends, |id| id == at || crosses(id));
        let crossing = graph.nodes().map(|(id, _)| id).filter(|&id| needed[id.index()] && crosses(id));
        let crossing = crossing.collect();
        Some(Cut { at, outputs: outputs.to_vec(), dependent, needed, crossing })
    }

    /// The values other than constants that the outputs need besides the one at the cut.
    pub fn crossing(&self) -> &[NodeId] {
        &self.crossing
    }

    /// Whether the value lies between the cut and the outputs, both included.
    pub fn is_above(&self, id: NodeId) -> bool {
        self.needed[id.index()] && self.dependent[id.index()]
    }

    /// The part above as a graph. Its inputs are the value at the cut, then [`Cut::crossing`].
    pub fn above(&self, graph: &Graph) -> Result<Graph> {
        let mut above = Graph::new();
        let mut copies: HashMap<NodeId, NodeId> = HashMap::new();
        let at = graph.node(self.at);
        let value = above.input("value", at.shape.clone(), at.kind);
        if at.op == Op::Input {
            // Layers are found by their names, so an input keeps its own above the cut.
            above.label_mut(value).absorb(at.label.clone());
        }
        copies.insert(self.at, value);
        for (number, &id) in self.crossing.iter().enumerate() {
            let node = graph.node(id);
            copies.insert(id, above.input(format!("crossing {number}"), node.shape.clone(), node.kind));
        }
        for (id, node) in graph.nodes().filter(|(id, _)| self.needed[id.index()]) {
            if !copies.contains_key(&id) && (self.dependent[id.index()] || node.is_constant()) {
                let inputs: Vec<NodeId> =
                    node.inputs.iter().filter_map(|input| copies.get(input).copied()).collect();
                copies.insert(id, above.add_copy(node, &inputs)?);
            }
        }
        for Output { name, node } in &self.outputs {
            if let Some(&node) = copies.get(node) {
                above.output(name.clone(), node);
            }
        }
        Ok(above)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Unary;
    use crate::{Kind, Shape};

    #[test]
    fn the_part_above_reads_the_value_and_what_passes_it_by() {
        let mut graph = Graph::new();
        let x = graph.input("x", Shape::batched(&[3]), Kind::Float);
        let other = graph.input("other", Shape::batched(&[3]), Kind::Float);
        let inner = graph.add(Op::Unary(Unary::Relu), &[x]).unwrap();
        let beside = graph.add(Op::Unary(Unary::Exp), &[other]).unwrap();
        let sum = graph.plus(inner, beside).unwrap();
        let scaled = graph.times(sum, inner).unwrap();
        graph.output("sum", sum);
        graph.output("scaled", scaled);
        let cut = Cut::new(&graph, inner, graph.outputs()).unwrap();
        assert_eq!(cut.crossing(), [beside]);
        assert!(cut.is_above(inner) && cut.is_above(scaled) && !cut.is_above(x) && !cut.is_above(beside));
        let above = cut.above(&graph).unwrap();
        let names = above.nodes().map(|(_, node)| node.op.name()).collect::<Vec<_>>();
        assert_eq!(names, ["Input", "Input", "Add", "Mul"]);
        assert_eq!(above.outputs().len(), 2);
        assert!(Cut::new(&graph, beside, &graph.outputs()[..1]).is_some());
        assert!(Cut::new(&graph, scaled, graph.outputs()).is_none());
    }
}
