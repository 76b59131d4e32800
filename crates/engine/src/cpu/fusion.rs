//! Elementwise nodes as the instructions of one pass over memory.

use std::collections::{HashMap, HashSet};

use monosplit_graph::op::ElementwiseOp;
use monosplit_graph::{Error, Graph, Kind, NodeId, Result};

use super::gates::Gates;
use super::kernels::fused::{Function, Fused, Instruction, Operand};

/// Nodes that run in one pass.
#[derive(Clone, Debug)]
pub(crate) struct Fusion {
    pub(crate) program: Fused,
    /// The values read.
    pub(crate) inputs: Vec<NodeId>,
}

/// Registers of one kind: how many there are and which are free.
#[derive(Default)]
struct RegisterAllocator {
    count: usize,
    free: Vec<usize>,
}

impl RegisterAllocator {
    fn take(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.count += 1;
            self.count - 1
        })
    }
}

impl Fusion {
    /// Translates `nodes`, elementwise and in topological order, of which `outputs` are written out. `same` tells
    /// for every node the one that stands for it.
    pub(crate) fn new(graph: &Graph, same: &[NodeId], nodes: &[NodeId], outputs: &[NodeId]) -> Result<Self> {
        let steps = steps(graph, same, nodes, outputs)?;
        let mut last_use: HashMap<NodeId, usize> = HashMap::new();
        for (position, (_, _, inputs)) in steps.iter().enumerate() {
            last_use.extend(inputs.iter().map(|&input| (input, position)));
        }
        last_use.extend(outputs.iter().map(|&id| (id, usize::MAX)));
        let mut fusion = Fusion { program: Fused::default(), inputs: Vec::new() };
        let mut registers: HashMap<NodeId, Operand> = HashMap::new();
        let (mut reals, mut truths) = (RegisterAllocator::default(), RegisterAllocator::default());
        for (position, (id, function, inputs)) in steps.into_iter().enumerate() {
            let operands = inputs.iter().map(|input| match registers.get(input) {
                Some(&register) => register,
                None => fusion.input(graph, *input),
            });
            let operands = operands.collect();
            let target = match graph.node(id).kind {
                Kind::Float => Operand::Real(reals.take()),
                _ => Operand::Truth(truths.take()),
            };
            fusion.program.instructions.push(Instruction { function, operands, target });
            registers.insert(id, target);
            for input in inputs.iter().filter(|input| last_use.get(input) == Some(&position)) {
                match registers.remove(input) {
                    Some(Operand::Real(register)) => reals.free.push(register),
                    Some(Operand::Truth(register)) => truths.free.push(register),
                    _ => {}
                }
            }
        }
        fusion.program.outputs = outputs.iter().filter_map(|id| registers.get(id).copied()).collect();
        (fusion.program.reals, fusion.program.truths) = (reals.count, truths.count);
        Ok(fusion)
    }

    fn input(&mut self, graph: &Graph, id: NodeId) -> Operand {
        let position = self.inputs.iter().position(|&input| input == id);
        Operand::Input(position.unwrap_or_else(|| {
            self.inputs.push(id);
            self.program.inputs.push(graph.node(id).kind);
            self.inputs.len() - 1
        }))
    }
}

/// What every instruction computes, by which function, of what.
type Step = (NodeId, Function, Vec<NodeId>);

/// The instructions of `nodes`: one for each, or for several.
fn steps(graph: &Graph, same: &[NodeId], nodes: &[NodeId], outputs: &[NodeId]) -> Result<Vec<Step>> {
    let gates = Gates::new(graph, same, nodes, outputs);
    let mut steps = Vec::with_capacity(nodes.len());
    let mut within = HashSet::new();
    for &id in nodes.iter().rev() {
        if within.contains(&id) {
            continue;
        }
        match gates.ending_with(id) {
            Some(gate) => {
                within.extend(gate.within);
                steps.push((id, gate.function, gate.operands));
            }
            None => {
                let inputs = graph.node(id).inputs.iter().map(|input| same[input.index()]).collect();
                steps.push((id, function(graph, id)?, inputs));
            }
        }
    }
    steps.reverse();
    Ok(steps)
}

fn function(graph: &Graph, id: NodeId) -> Result<Function> {
    let node = graph.node(id);
    let of_numbers = || graph.node(node.inputs[0]).kind == Kind::Float;
    Ok(
        match node
            .op
            .elementwise()
            .ok_or_else(|| Error::internal("a node is fused that is not elementwise"))?
        {
            ElementwiseOp::Unary(unary) => Function::Unary(unary),
            ElementwiseOp::Binary(binary) if binary.is_predicate() && of_numbers() => {
                Function::Compare(binary)
            }
            ElementwiseOp::Binary(binary) => Function::Binary(binary),
            ElementwiseOp::Where => Function::Select,
            ElementwiseOp::Cast => Function::Cast,
        },
    )
}
