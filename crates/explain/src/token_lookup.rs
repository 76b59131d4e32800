//! The table that token ids are looked up in: where the integers of an input become real numbers.

use monosplit_graph::op::Binary;
use monosplit_graph::{Error, Graph, Kind, Node, NodeId, Op, Result};

/// The lookup of an input's token ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenLookup {
    /// The node that looks the ids up.
    pub(crate) gather: NodeId,
    /// The number of real numbers for each id.
    pub(crate) width: usize,
    /// The number of rows of the table, where the ids are looked up as they are.
    pub(crate) rows: Option<usize>,
}

/// How a value holds the ids of an input.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Carries {
    Nothing,
    /// The ids themselves, perhaps under another shape.
    Ids,
    /// Numbers computed from each id alone, such as ids with an offset.
    Computed,
}

impl TokenLookup {
    /// The lookup of the ids in `input`; an error if there is none, or more than one.
    pub(crate) fn find(graph: &Graph, input: NodeId) -> Result<Self> {
        let mut carries = vec![Carries::Nothing; graph.len()];
        carries[input.index()] = Carries::Ids;
        let mut found = Vec::new();
        for (id, node) in graph.nodes().filter(|(id, _)| *id != input) {
            if let (Op::Gather { axis: 0 }, &[table, indices]) = (&node.op, &node.inputs[..])
                && graph.node(table).is_constant()
                && node.kind == Kind::Float
                && carries[indices.index()] != Carries::Nothing
            {
                let lengths = graph.node(table).shape.dims().iter().map(|dim| dim.fixed().unwrap_or(1));
                let lengths: Vec<usize> = lengths.collect();
                let rows = (carries[indices.index()] == Carries::Ids).then_some(lengths[0]);
                found.push(TokenLookup { gather: id, width: lengths[1..].iter().product(), rows });
            }
            carries[id.index()] = carried(node, &carries);
        }
        let name = &graph.node(input).label.tensor;
        match found.len() {
            1 => Ok(found.remove(0)),
            0 => {
                let (kind, shape) = (graph.node(input).kind, &graph.node(input).shape);
                Err(Error::unsupported(format!(
                    "input '{name}' of shape {shape} holds numbers of kind {kind} that are neither turned into real ones right \
                     away nor looked up in a constant table, and explanations follow real numbers; give it and explain \
                     another input, or export the network from its first real numbers on"
                )))
            }
            count => {
                let nodes =
                    found.iter().map(|lookup| format!("'{}'", graph.node(lookup.gather).label.display()));
                Err(Error::unsupported(format!(
                    "input '{name}' is looked up in {count} tables, by {}; export the network from its embedding on to \
                     explain it",
                    nodes.collect::<Vec<_>>().join(" and ")
                )))
            }
        }
    }
}

/// How the value of a node holds the ids. Comparisons, counts and sums over ids hold no ids any more: positions and masks
/// are computed by them.
fn carried(node: &Node, carries: &[Carries]) -> Carries {
    if node.kind != Kind::Int {
        return Carries::Nothing;
    }
    let of = |index: usize| node.inputs.get(index).map_or(Carries::Nothing, |id| carries[id.index()]);
    let any = |indices: &[usize]| match indices.iter().any(|&index| of(index) != Carries::Nothing) {
        true => Carries::Computed,
        false => Carries::Nothing,
    };
    match &node.op {
        Op::Identity | Op::Reshape { .. } | Op::Cast { to: Kind::Int } => of(0),
        Op::Binary(Binary::Add | Binary::Sub | Binary::Max | Binary::Min) => any(&[0, 1]),
        Op::Where => any(&[1, 2]),
        _ => Carries::Nothing,
    }
}
