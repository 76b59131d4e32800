//! The memory plan: which buffer holds each value, and for how long. A view shares the memory of what it views. Every
//! other value has a buffer until its last reader has run; later values of the same kind reuse it. Values that one
//! kernel reads or writes together are contiguous in one buffer.

use std::collections::HashMap;

use monosplit_graph::op::{Movement, Role};
use monosplit_graph::{Dim, Graph, Kind, NodeId, Op};

use crate::schedule::{Optimisations, Partition, Schedule};

/// Where the elements of a value are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BufferLocation {
    /// Among the inputs of the run.
    Input(usize),
    /// Among the values known at compile time.
    Constant(NodeId),
    /// In this part of a buffer, all parts being of the value's size.
    Buffer { buffer: usize, part: usize },
    /// Not stored: nothing reads it from memory.
    NotStored,
}

/// Memory that holds one value after another.
#[derive(Clone, Debug)]
pub(crate) struct Buffer {
    /// Kind of its elements.
    pub(crate) kind: Kind,
    /// What it holds in turn: the first of the contiguous values, and how many there are, all of one size.
    pub(crate) values: Vec<(NodeId, usize)>,
    batched: bool,
    size: usize,
    /// Whether it is returned as an output, so that no other value may use it.
    pub(crate) is_output: bool,
    /// How many of the values it holds now are still to be read.
    live: usize,
}

/// A partition of nodes and the values it writes.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) partition: Partition,
    /// The values written to memory, in order.
    pub(crate) outputs: Vec<NodeId>,
}

/// The steps of a program, in order, and the location of every value.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// For every node, the first that computes the same.
    pub(crate) representative: Vec<NodeId>,
    pub(crate) steps: Vec<Step>,
    pub(crate) locations: Vec<BufferLocation>,
    pub(crate) buffers: Vec<Buffer>,
    /// For every value that is contiguous with others, how many there are.
    pub(crate) contiguous: HashMap<NodeId, usize>,
}

/// For every node, whether its value is known at compile time.
pub(crate) fn known(graph: &Graph) -> Vec<bool> {
    let mut known: Vec<bool> = Vec::with_capacity(graph.len());
    for (_, node) in graph.nodes() {
        let inputs_known = node.inputs.iter().all(|id| known[id.index()]);
        // A constant expanded to the batch size is constant, but not known before the batch size is.
        known.push(node.is_constant() && !node.shape.is_batched() && inputs_known);
    }
    known
}

/// The last read of a value that is never read.
const NEVER: usize = usize::MAX;

/// Whether an op's value has the elements of its operand in the same order.
fn is_view(op: &Op) -> bool {
    op.role() == Role::Movement(Movement::View)
}

struct Planner<'a> {
    graph: &'a Graph,
    plan: Plan,
    /// For every node, the node whose memory it shares: itself, unless it is a view.
    owner: Vec<NodeId>,
    /// For every owner, the last step that reads it.
    last_read: Vec<usize>,
    /// For every owner, whether it is an output.
    is_output: Vec<bool>,
    /// For every owner, whether its memory has been released.
    released: Vec<bool>,
    /// For every owner that is contiguous with others, its group and its position in the group.
    group_of: HashMap<NodeId, (usize, usize)>,
    /// Groups of values that are contiguous, and the buffer each has been given.
    groups: Vec<(Vec<NodeId>, Option<usize>)>,
    /// Buffers that hold nothing.
    free: Vec<usize>,
}

impl Plan {
    /// Plans the computation of every `live` node that is not `known`.
    pub(crate) fn new(graph: &Graph, known: &[bool], live: &[bool], options: Optimisations) -> Self {
        let Schedule { representative, partitions } = Schedule::new(graph, known, live, options);
        let plan = Plan {
            representative,
            steps: Vec::new(),
            locations: vec![BufferLocation::NotStored; graph.len()],
            buffers: Vec::new(),
            contiguous: HashMap::new(),
        };
        let mut planner = Planner {
            graph,
            plan,
            owner: graph.nodes().map(|(id, _)| id).collect(),
            last_read: vec![NEVER; graph.len()],
            is_output: vec![false; graph.len()],
            released: vec![false; graph.len()],
            group_of: HashMap::new(),
            groups: Vec::new(),
            free: Vec::new(),
        };
        planner.locate_given_values(known, live);
        planner.make_steps(partitions);
        planner.find_lifetimes();
        for position in 0..planner.plan.steps.len() {
            planner.allocate_outputs(position);
        }
        planner.resolve_views();
        planner.plan
    }
}

impl Planner<'_> {
    fn representative(&self, id: NodeId) -> NodeId {
        self.plan.representative[id.index()]
    }

    fn owner(&self, id: NodeId) -> NodeId {
        self.owner[self.representative(id).index()]
    }

    /// Locates inputs and constants, and finds which memory views share.
    fn locate_given_values(&mut self, known: &[bool], live: &[bool]) {
        for (id, node) in self.graph.nodes().filter(|(id, _)| live[id.index()]) {
            let index = id.index();
            if self.representative(id) != id {
                continue;
            }
            if known[index] {
                self.plan.locations[index] = BufferLocation::Constant(id);
            } else if matches!(node.op, Op::Input) {
                let position = self.graph.inputs().iter().position(|&input| input == id);
                self.plan.locations[index] = BufferLocation::Input(position.unwrap_or(usize::MAX));
            } else if is_view(&node.op) {
                self.owner[index] = self.owner(node.inputs[0]);
            }
        }
        for output in self.graph.outputs() {
            let owner = self.owner(output.node);
            self.is_output[owner.index()] = true;
        }
    }

    /// Makes a step of each partition. A view is no step, and nodes are batched only if their values can be contiguous.
    fn make_steps(&mut self, partitions: Vec<Partition>) {
        for partition in partitions {
            match partition {
                Partition::Single(id) if is_view(&self.graph.node(id).op) => {}
                Partition::Batched(nodes) if !self.make_contiguous(&nodes) => {
                    for id in nodes {
                        let step = Step { partition: Partition::Single(id), outputs: vec![id] };
                        self.plan.steps.push(step);
                    }
                }
                // Their outputs are known once all readers are.
                partition if partition.keeps_values_in_registers() => {
                    self.plan.steps.push(Step { partition, outputs: Vec::new() });
                }
                partition => {
                    let outputs = partition.nodes().to_vec();
                    self.plan.steps.push(Step { partition, outputs });
                }
            }
        }
    }

    /// Groups the inputs of these nodes to be contiguous, and their outputs. Changes nothing and returns false if that
    /// is not possible.
    fn make_contiguous(&mut self, nodes: &[NodeId]) -> bool {
        let inputs: Vec<NodeId> = nodes.iter().map(|&id| self.owner(self.graph.node(id).inputs[0])).collect();
        let free = |owner: &NodeId| {
            self.plan.locations[owner.index()] == BufferLocation::NotStored && !self.is_output[owner.index()]
        };
        let distinct = |values: &[NodeId]| {
            let mut sorted = values.to_vec();
            sorted.sort();
            sorted.dedup();
            sorted.len() == values.len()
        };
        let fits = |values: &[NodeId]| {
            values.iter().all(free)
                && distinct(values)
                && match self.group_of.get(&values[0]) {
                    Some(&(group, _)) => self.groups[group].0 == values,
                    None => values.iter().all(|value| !self.group_of.contains_key(value)),
                }
        };
        if !fits(&inputs) || !fits(nodes) {
            return false;
        }
        for values in [inputs, nodes.to_vec()] {
            if !self.group_of.contains_key(&values[0]) {
                for (part, &value) in values.iter().enumerate() {
                    self.group_of.insert(value, (self.groups.len(), part));
                }
                self.groups.push((values, None));
            }
        }
        true
    }

    /// The owners of the values a step reads that are not its own.
    fn reads(&self, step: &Step) -> Vec<NodeId> {
        let nodes = step.partition.nodes();
        let inputs = nodes.iter().flat_map(|&id| &self.graph.node(id).inputs);
        let mut owners: Vec<NodeId> = inputs
            .map(|&input| self.representative(input))
            .filter(|input| !nodes.contains(input))
            .map(|input| self.owner(input))
            .collect();
        owners.sort();
        owners.dedup();
        owners
    }

    /// Finds the last reader of every value, and which values of fused nodes others read.
    fn find_lifetimes(&mut self) {
        for position in 0..self.plan.steps.len() {
            for owner in self.reads(&self.plan.steps[position]) {
                self.last_read[owner.index()] = position;
            }
        }
        for step in &mut self.plan.steps {
            if step.partition.keeps_values_in_registers() {
                let read = |id: &&NodeId| self.last_read[id.index()] != NEVER || self.is_output[id.index()];
                step.outputs = step.partition.nodes().iter().filter(read).copied().collect();
            }
        }
    }

    /// Allocates the outputs of a step, then releases what it was the last to read.
    fn allocate_outputs(&mut self, position: usize) {
        let step = self.plan.steps[position].clone();
        let reads = self.reads(&step);
        for &id in &step.outputs {
            let (buffer, part) = match self.group_of.get(&id) {
                Some(&(group, part)) => (self.group_buffer(group, position, &step, &reads), part),
                None => (self.single_buffer(id, position, &step, &reads), 0),
            };
            self.plan.locations[id.index()] = BufferLocation::Buffer { buffer, part };
        }
        for owner in reads.into_iter().chain(step.outputs) {
            let last = self.last_read[owner.index()];
            if last == position || last == NEVER {
                self.release(owner);
            }
        }
    }

    /// The buffer of a value that belongs to no group.
    fn single_buffer(&mut self, id: NodeId, position: usize, step: &Step, reads: &[NodeId]) -> usize {
        let overwritten = reads.iter().copied().find(|&owner| {
            !self.group_of.contains_key(&owner) && self.overwritable(&[owner], &[id], position, step)
        });
        match overwritten {
            Some(owner) => self.reuse_in_place(&[owner], &[id]),
            None => self.allocate(&[id]),
        }
    }

    /// The buffer of the values of a group.
    fn group_buffer(&mut self, group: usize, position: usize, step: &Step, reads: &[NodeId]) -> usize {
        if let Some(buffer) = self.groups[group].1 {
            return buffer;
        }
        let values = self.groups[group].0.clone();
        let candidates = reads.iter().filter_map(|owner| self.group_of.get(owner)).map(|&(other, _)| other);
        let overwritten = candidates
            .map(|other| self.groups[other].0.clone())
            .find(|old| self.overwritable(old, &values, position, step));
        let buffer = match overwritten {
            Some(old) => self.reuse_in_place(&old, &values),
            None => self.allocate(&values),
        };
        self.groups[group].1 = Some(buffer);
        buffer
    }

    /// Whether a step may write `new` where it reads `old`, element by element.
    fn overwritable(&self, old: &[NodeId], new: &[NodeId], position: usize, step: &Step) -> bool {
        let elementwise = match &step.partition {
            Partition::Elementwise(_) => true,
            // Only kernels of one value have a variant that overwrites it.
            Partition::Single(id) => matches!(self.graph.node(*id).op, Op::Unary(_)),
            Partition::Epilogue(_)
            | Partition::PointwiseDepthwise(..)
            | Partition::Reduction(_)
            | Partition::Batched(_)
            | Partition::StreamProducts(_) => false,
        };
        if !elementwise || old.len() != new.len() || !new.iter().all(|id| step.outputs.contains(id)) {
            return false;
        }
        let nodes = step.partition.nodes();
        let shape = &self.graph.node(nodes[0]).shape;
        let fits = |(&old, &new): (&NodeId, &NodeId)| {
            let dies = matches!(self.plan.locations[old.index()], BufferLocation::Buffer { .. })
                && !self.released[old.index()]
                && !self.is_output[old.index()]
                && !self.is_output[new.index()]
                && self.last_read[old.index()] == position
                && self.graph.node(old).kind == self.graph.node(new).kind;
            let inputs = nodes.iter().flat_map(|&id| &self.graph.node(id).inputs);
            let mut views = inputs
                .filter(|&&input| self.owner(input) == old && !nodes.contains(&self.representative(input)));
            dies && views.all(|&input| self.graph.node(input).shape == *shape)
        };
        old.iter().zip(new).all(fits)
    }

    /// Gives the buffer of `old` to `new`.
    fn reuse_in_place(&mut self, old: &[NodeId], new: &[NodeId]) -> usize {
        let BufferLocation::Buffer { buffer, .. } = self.plan.locations[old[0].index()] else {
            return self.allocate(new);
        };
        old.iter().for_each(|id| self.released[id.index()] = true);
        self.assign(buffer, new);
        buffer
    }

    fn assign(&mut self, buffer: usize, values: &[NodeId]) {
        let buffer = &mut self.plan.buffers[buffer];
        buffer.values.push((values[0], values.len()));
        buffer.live = values.len();
    }

    /// A buffer that holds nothing, for contiguous values.
    fn allocate(&mut self, values: &[NodeId]) -> usize {
        let node = self.graph.node(values[0]);
        let (batched, size) = match node.shape.count() {
            Some(Dim::Batch(n)) => (true, n),
            Some(Dim::Fixed(n)) => (false, n),
            None => (true, usize::MAX),
        };
        let size = size.saturating_mul(values.len());
        let is_output = self.is_output[values[0].index()];
        let wanted = Buffer { kind: node.kind, values: Vec::new(), batched, size, is_output, live: 0 };
        let buffer = match self.best_free(&wanted) {
            Some(position) => self.free.swap_remove(position),
            None => {
                self.plan.buffers.push(wanted);
                self.plan.buffers.len() - 1
            }
        };
        let chosen = &mut self.plan.buffers[buffer];
        chosen.size = chosen.size.max(size);
        self.assign(buffer, values);
        buffer
    }

    /// The free buffer that wastes least: the smallest that is large enough, else the largest.
    fn best_free(&self, wanted: &Buffer) -> Option<usize> {
        if wanted.is_output {
            return None;
        }
        let fits = |&(_, buffer): &(usize, &usize)| {
            let buffer = &self.plan.buffers[*buffer];
            buffer.kind == wanted.kind && buffer.batched == wanted.batched
        };
        let waste = |&(_, buffer): &(usize, &usize)| {
            let size = self.plan.buffers[*buffer].size;
            (size < wanted.size, size.abs_diff(wanted.size))
        };
        self.free.iter().enumerate().filter(fits).min_by_key(waste).map(|(position, _)| position)
    }

    /// Releases the memory of a value that has no more readers.
    fn release(&mut self, owner: NodeId) {
        let BufferLocation::Buffer { buffer, .. } = self.plan.locations[owner.index()] else { return };
        if self.is_output[owner.index()] || std::mem::replace(&mut self.released[owner.index()], true) {
            return;
        }
        let held = &mut self.plan.buffers[buffer];
        held.live -= 1;
        if held.live == 0 {
            self.free.push(buffer);
        }
    }

    /// Gives views the location of what they view.
    fn resolve_views(&mut self) {
        for (values, _) in &self.groups {
            self.plan.contiguous.extend(values.iter().map(|&id| (id, values.len())));
        }
        for (id, _) in self.graph.nodes() {
            if self.plan.locations[id.index()] == BufferLocation::NotStored {
                self.plan.locations[id.index()] = self.plan.locations[self.owner(id).index()];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use monosplit_graph::op::{Binary, Reduction, Unary, Window};
    use monosplit_graph::{Shape, Tensor};

    use super::*;
    use crate::cpu::kernels::testing::Random;

    fn random_graph(random: &mut Random) -> Graph {
        let mut g = Graph::new();
        let mut ids = vec![g.input("x", Shape::batched(&[2, 3]), Kind::Float)];
        ids.push(g.constant(Tensor::new([1, 2, 3], vec![1f32; 6]).unwrap()));
        let w = g.constant(Tensor::new([2, 2, 1], vec![1f32; 4]).unwrap());
        for _ in 0..random.within(1, 40) {
            let recent = ids.len().saturating_sub(6);
            let a = ids[random.within(recent, ids.len() - 1)];
            let b = ids[random.within(recent, ids.len() - 1)];
            ids.push(match random.within(0, 6) {
                6 => {
                    let op = Op::Reduce { reduction: Reduction::Max, axes: vec![1], keep: true };
                    let reduced = g.add(op, &[a]).unwrap();
                    g.add(Op::Binary(Binary::Add), &[reduced, b]).unwrap()
                }
                0 => g.add(Op::Identity, &[a]).unwrap(),
                1 => g.add(Op::Unary(Unary::Exp), &[a]).unwrap(),
                2 => g.add(Op::Conv { window: Window::new([1]), groups: 1 }, &[a, w]).unwrap(),
                _ => g.add(Op::Binary(Binary::Add), &[a, b]).unwrap(),
            });
        }
        for _ in 0..random.within(1, 3) {
            let id = ids[random.within(0, ids.len() - 1)];
            g.output("y", id);
        }
        g
    }

    /// Runs the plan with node ids in place of numbers: every reader must find the value it reads.
    fn follow(graph: &Graph, plan: &Plan) {
        let mut held: HashMap<(usize, usize), NodeId> = HashMap::new();
        let at = |id: NodeId| match plan.locations[id.index()] {
            BufferLocation::Buffer { buffer, part } => Some((buffer, part)),
            BufferLocation::NotStored => panic!("{id} is not stored"),
            BufferLocation::Input(_) | BufferLocation::Constant(_) => None,
        };
        let expect = |id: NodeId, held: &HashMap<(usize, usize), NodeId>| {
            if let Some(at) = at(id) {
                assert_eq!(held.get(&at), Some(&plan.representative[id.index()]), "{id} is gone");
            }
        };
        for step in &plan.steps {
            let nodes = step.partition.nodes();
            let inputs = nodes.iter().flat_map(|&id| &graph.node(id).inputs);
            for &input in inputs.filter(|input| !nodes.contains(&plan.representative[input.index()])) {
                expect(input, &held);
                let overwritten = step.outputs.iter().any(|&id| at(id) == at(input));
                assert!(
                    !overwritten
                        || !matches!(step.partition, Partition::Batched(_) | Partition::StreamProducts(_))
                );
            }
            if let Partition::Batched(nodes) = &step.partition {
                let first = at(graph.node(nodes[0]).inputs[0]).unwrap();
                for (part, &id) in nodes.iter().enumerate() {
                    assert_eq!(at(graph.node(id).inputs[0]), Some((first.0, part)));
                    assert_eq!(at(id).unwrap().1, part);
                }
            }
            for &id in &step.outputs {
                let (buffer, _) = at(id).unwrap();
                let mates = plan.contiguous.get(&id).copied().unwrap_or(1);
                held.retain(|&(other, part), _| other != buffer || part < mates);
                held.insert(at(id).unwrap(), id);
            }
        }
        graph.outputs().iter().for_each(|output| expect(output.node, &held));
    }

    #[test]
    fn every_reader_finds_the_value_it_reads() {
        let mut random = Random::new(18);
        let (mut batched, mut reduced) = (0, 0);
        for round in 0..1000 {
            let graph = random_graph(&mut random);
            let (known, live) = (known(&graph), graph.live());
            let options = Optimisations::without(round);
            let plan = Plan::new(&graph, &known, &live, options);
            follow(&graph, &plan);
            batched +=
                plan.steps.iter().filter(|step| matches!(step.partition, Partition::Batched(_))).count();
            reduced +=
                plan.steps.iter().filter(|step| matches!(step.partition, Partition::Reduction(_))).count();
        }
        assert!(batched > 20, "too few graphs have anything to batch: {batched}");
        assert!(reduced > 20, "too few graphs have anything to reduce: {reduced}");
    }

    #[test]
    fn a_chain_of_any_length_alternates_between_two_buffers() {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[4]), Kind::Float);
        let mut y = x;
        for _ in 0..50 {
            y = g.add(Op::Binary(Binary::Mul), &[y, y]).unwrap();
            y = g.add(Op::Unary(Unary::Relu), &[y]).unwrap();
        }
        let last = g.add(Op::Binary(Binary::Mul), &[y, y]).unwrap();
        g.output("y", last);
        let plain = Optimisations { fuse_elementwise: false, ..Optimisations::CPU };
        let plan = Plan::new(&g, &known(&g), &g.live(), plain);
        assert_eq!(plan.buffers.len(), 3, "two that alternate and the output");
        let plan = Plan::new(&g, &known(&g), &g.live(), Optimisations::CPU);
        assert_eq!(plan.steps.len(), 3, "a hundred nodes in steps of at most 48");
        assert_eq!(plan.buffers.len(), 2, "one that is overwritten and the output");
    }
}
