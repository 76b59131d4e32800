//! The generated kernels of a program: one for every step and every constant that begins with an elementwise node.

use std::collections::HashMap;

use monosplit_graph::op::Role;
use monosplit_graph::{Graph, NodeId, Op, Result};

use super::elementwise::KernelSource;
use super::kernel_parameters;
use super::memory_format::MemoryFormat;
use crate::plan::Plan;

/// Elementwise kernels by their first node, and the index of the source of each.
pub(super) type Sources = HashMap<NodeId, (KernelSource, usize)>;

fn is_elementwise(op: &Op) -> bool {
    op.role() == Role::Elementwise
}

/// The elementwise kernels of a program by their first node, and their sources without duplicates.
pub(super) fn sources(
    graph: &Graph,
    formats: &[MemoryFormat],
    plan: &Plan,
    derived: &[NodeId],
) -> Result<(Sources, Vec<String>)> {
    let mut wanted: Vec<(Vec<NodeId>, Vec<NodeId>)> = Vec::new();
    for step in &plan.steps {
        let nodes = step.partition.nodes();
        if is_elementwise(&graph.node(nodes[0]).op) && !step.outputs.is_empty() {
            wanted.push((nodes.to_vec(), step.outputs.clone()));
        }
    }
    let alone = derived.iter().filter(|id| is_elementwise(&graph.node(**id).op));
    wanted.extend(alone.map(|&id| (vec![id], vec![id])));
    let mut sources = HashMap::new();
    let mut texts: Vec<String> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    for (nodes, outputs) in wanted {
        let inner = nodes.iter().position(|id| !is_elementwise(&graph.node(*id).op));
        let source = match inner {
            None => KernelSource::new(graph, &plan.representative, &nodes, &outputs)?,
            Some(inner) => {
                let adjacent = match &graph.node(nodes[inner]).op {
                    Op::Reduce { axes, .. } => {
                        kernel_parameters::are_adjacent(formats[nodes[0].index()], axes)
                    }
                    _ => false,
                };
                KernelSource::reduced(graph, &plan.representative, &nodes[..inner], &outputs, adjacent)?
            }
        };
        let text = *known.entry(source.text.clone()).or_insert_with(|| {
            texts.push(source.text.clone());
            texts.len() - 1
        });
        sources.insert(nodes[0], (source, text));
    }
    Ok((sources, texts))
}
