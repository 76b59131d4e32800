//! A topological order of the nodes of a file. Files are not always sorted. A file with a cycle, a value that no node
//! produces, or a value that two nodes produce is refused here.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, HashSet};

use super::model::{AttributeValue, NodeProto};
use crate::error::{Error, Result};

/// Indices of the nodes that `wanted` depends on, every node after those it reads. `outside` says whether a
/// name is known from elsewhere.
pub(crate) fn reading_order(
    nodes: &[NodeProto],
    wanted: &[&str],
    outside: impl Fn(&str) -> bool,
) -> Result<Vec<usize>> {
    let producers = producers(nodes, &outside)?;
    let reads: Vec<BTreeSet<usize>> = nodes
        .iter()
        .map(|node| {
            let mut names = Vec::new();
            names_read(node, &mut names);
            let mut reads = BTreeSet::new();
            for name in names {
                match producers.get(name) {
                    Some(&index) => {
                        reads.insert(index);
                    }
                    None if outside(name) => {}
                    None => {
                        return Err(Error::malformed(format!("reads '{name}', which nothing produces"))
                            .at(display_name(node)));
                    }
                }
            }
            Ok(reads)
        })
        .collect::<Result<_>>()?;
    let order = sorted(nodes, &reads)?;
    let mut needed: HashSet<usize> = wanted.iter().filter_map(|name| producers.get(name).copied()).collect();
    for &index in order.iter().rev() {
        if needed.contains(&index) {
            needed.extend(&reads[index]);
        }
    }
    Ok(order.into_iter().filter(|i| needed.contains(i)).collect())
}

/// A name for a node in messages.
pub(crate) fn display_name(node: &NodeProto) -> &str {
    let output = node.outputs.iter().find(|o| !o.is_empty());
    if node.name.is_empty() { output.map_or(&node.op_type, |o| o) } else { &node.name }
}

fn producers<'n>(nodes: &'n [NodeProto], outside: &impl Fn(&str) -> bool) -> Result<HashMap<&'n str, usize>> {
    let mut producers = HashMap::new();
    for (index, node) in nodes.iter().enumerate() {
        for output in node.outputs.iter().filter(|o| !o.is_empty()) {
            if producers.insert(output.as_str(), index).is_some() || outside(output) {
                return Err(Error::malformed(format!("produces '{output}', which exists already"))
                    .at(display_name(node)));
            }
        }
    }
    Ok(producers)
}

/// Every name a node reads, those its nested graphs take from around them included.
fn names_read<'n>(node: &'n NodeProto, names: &mut Vec<&'n str>) {
    names.extend(node.inputs.iter().map(String::as_str).filter(|n| !n.is_empty()));
    for attribute in &node.attributes {
        let AttributeValue::Graph(graph) = attribute.value() else { continue };
        let mut inner = Vec::new();
        graph.nodes.iter().for_each(|n| names_read(n, &mut inner));
        inner.extend(graph.outputs.iter().map(|o| o.name.as_str()));
        let own: HashSet<&str> = graph
            .nodes
            .iter()
            .flat_map(|n| n.outputs.iter().map(String::as_str))
            .chain(graph.inputs.iter().map(|v| v.name.as_str()))
            .chain(graph.initializers.iter().map(|t| t.name.as_str()))
            .collect();
        names.extend(inner.into_iter().filter(|n| !own.contains(n)));
    }
}

fn sorted(nodes: &[NodeProto], reads: &[BTreeSet<usize>]) -> Result<Vec<usize>> {
    let mut readers = vec![Vec::new(); nodes.len()];
    let mut waiting: Vec<usize> = reads.iter().map(BTreeSet::len).collect();
    for (index, sources) in reads.iter().enumerate() {
        sources.iter().for_each(|&source| readers[source].push(index));
    }
    let ready = |waiting: &[usize]| (0..nodes.len()).filter(|&i| waiting[i] == 0).map(Reverse).collect();
    // A heap keeps the file's own order wherever it is a valid one.
    let mut ready: BinaryHeap<Reverse<usize>> = ready(&waiting);
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(Reverse(index)) = ready.pop() {
        order.push(index);
        for &reader in &readers[index] {
            waiting[reader] -= 1;
            if waiting[reader] == 0 {
                ready.push(Reverse(reader));
            }
        }
    }
    if order.len() == nodes.len() { Ok(order) } else { Err(cycle(nodes, reads, &waiting)) }
}

fn cycle(nodes: &[NodeProto], reads: &[BTreeSet<usize>], waiting: &[usize]) -> Error {
    const SHOWN: usize = 4;
    let stuck = |i: &usize| waiting[*i] > 0;
    let mut path: Vec<usize> = Vec::new();
    let mut seen = HashSet::new();
    let mut next = (0..nodes.len()).find(stuck);
    while let Some(index) = next.filter(|&i| seen.insert(i)) {
        path.push(index);
        next = reads[index].iter().copied().find(stuck);
    }
    let start = path.iter().position(|&i| Some(i) == next).unwrap_or(0);
    let names: Vec<String> =
        path[start..].iter().rev().take(SHOWN).map(|&i| format!("'{}'", display_name(&nodes[i]))).collect();
    let more = if path.len() - start > SHOWN { ", …" } else { "" };
    Error::malformed(format!("nodes form a cycle through {}{more}", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, inputs: &[&str], output: &str) -> NodeProto {
        NodeProto {
            name: name.into(),
            inputs: inputs.iter().map(|s| s.to_string()).collect(),
            outputs: vec![output.into()],
            ..NodeProto::default()
        }
    }

    fn order(nodes: &[NodeProto], wanted: &[&str]) -> Result<Vec<usize>> {
        reading_order(nodes, wanted, |name| name == "x")
    }

    #[test]
    fn unsorted_files_are_sorted_and_unneeded_nodes_left_out() {
        let nodes = [
            node("c", &["b", "x"], "c"),
            node("b", &["a"], "b"),
            node("d", &["a"], "d"),
            node("a", &["x"], "a"),
        ];
        assert_eq!(order(&nodes, &["c"]).unwrap(), [3, 1, 0]);
    }

    #[test]
    fn cycles_name_their_nodes() {
        let nodes = [
            node("p", &["x"], "p"),
            node("q", &["p", "s"], "q"),
            node("r", &["q"], "r"),
            node("s", &["r"], "s"),
            node("t", &["s"], "t"),
        ];
        let message = order(&nodes, &["t"]).unwrap_err().to_string();
        assert!(message.contains("cycle") && message.contains("'q'") && message.contains("'r'"), "{message}");
        assert!(!message.contains("'p'") && !message.contains("'t'"), "{message}");
        let itself = [node("loop", &["y"], "y")];
        assert!(order(&itself, &["y"]).unwrap_err().to_string().contains("'loop'"));
    }

    #[test]
    fn dangling_and_duplicate_names_are_refused() {
        let error = order(&[node("a", &["ghost"], "a")], &["a"]).unwrap_err();
        assert_eq!((error.node(), error.to_string().contains("'ghost'")), (Some("a"), true));
        assert!(order(&[node("a", &["x"], "y"), node("b", &["x"], "y")], &["y"]).is_err());
        assert!(order(&[node("a", &[], "x")], &["x"]).is_err());
    }
}
