//! What is computed from constants twice is computed once.

use std::collections::HashMap;

use crate::error::Result;
use crate::graph::{Graph, NodeId};
use crate::op::Op;
use crate::tensor::{Data, Tensor};

use super::rewrite::{Rewrite, Step};

/// Merges equal single numbers, and nodes that do the same to the same constants: the magnitudes of a weight, say, that
/// several rules asked for.
pub fn share_constants(graph: &Graph) -> Result<Graph> {
    let mut numbers: HashMap<(u8, u64), NodeId> = HashMap::new();
    let mut computed: HashMap<(String, Vec<NodeId>), NodeId> = HashMap::new();
    Rewrite::run(graph, |rewrite, _, node| {
        if !node.is_constant() || !node.label.tensor.is_empty() {
            return Ok(Step::Keep);
        }
        let inputs = rewrite.inputs(node);
        let found = match &node.op {
            Op::Constant(tensor) => match number(tensor) {
                Some(key) => numbers.entry(key),
                None => return Ok(Step::Keep),
            }
            .or_insert_with(|| rewrite.target.constant(tensor.clone())),
            op => {
                let key = (format!("{op:?}"), inputs.clone());
                if let Some(&found) = computed.get(&key) {
                    return Ok(Step::Replace(found));
                }
                let id = rewrite.target.add(op.clone(), &inputs)?;
                computed.entry(key).or_insert(id)
            }
        };
        Ok(Step::Replace(*found))
    })
}

/// The bits of a single number, and which kind it is.
fn number(tensor: &Tensor) -> Option<(u8, u64)> {
    if !tensor.shape().is_empty() {
        return None;
    }
    Some(match tensor.data() {
        Data::F32(v) => (0, u64::from(v.first()?.to_bits())),
        Data::F64(v) => (1, v.first()?.to_bits()),
        Data::I64(v) => (2, *v.first()? as u64),
        Data::Bool(v) => (3, u64::from(*v.first()?)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::Shape;
    use crate::tensor::Kind;

    #[test]
    fn equal_computations_on_constants_are_done_once() {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[2]), Kind::Float);
        let w = g.constant(Tensor::vector(vec![1f32, -2.0]));
        let (a, b) = (g.magnitude(w).unwrap(), g.magnitude(w).unwrap());
        let (two, also_two) = (g.number(2.0), g.number(2.0));
        let y = g.times(x, a).unwrap();
        let z = g.times(y, b).unwrap();
        let z = g.times(z, two).unwrap();
        let z = g.times(z, also_two).unwrap();
        g.output("z", z);
        let shared = share_constants(&g).unwrap();
        assert_eq!(shared.len(), g.len() - 2);
        assert_eq!(shared.node(shared.outputs()[0].node).op, Op::Binary(crate::op::Binary::Mul));
    }
}
