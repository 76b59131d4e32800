//! Where every value lives. Values that only rename another share its place; the others get a slot for as
//! long as somebody still reads them, and slots are handed on to later values of the same kind.

use monosplit_graph::{Dim, Graph, Kind, NodeId, Op};

/// Where the elements of a value are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Among the inputs of the run.
    Input(usize),
    /// Among the values known at compile time.
    Constant(NodeId),
    /// In a slot.
    Slot(usize),
    /// Nowhere: nothing needs it.
    Nowhere,
}

/// Memory that holds one value after another.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    /// Kind of its elements.
    pub(crate) kind: Kind,
    /// The nodes whose values it holds, in order.
    pub(crate) values: Vec<NodeId>,
    batched: bool,
    size: usize,
    /// Whether it leaves the program with the result, so that nothing else may share it.
    pub(crate) leaves: bool,
}

/// One node to be computed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// The node.
    pub(crate) node: NodeId,
    /// The slot its value is written to.
    pub(crate) slot: usize,
    /// Whether that slot holds its only input, which is overwritten.
    pub(crate) in_place: bool,
}

/// The order nodes are computed in and the place of every value.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<Step>,
    pub(crate) places: Vec<Place>,
    pub(crate) slots: Vec<Slot>,
}

/// Whether a node hands on its input's elements unchanged.
fn renames(op: &Op) -> bool {
    matches!(op, Op::Identity | Op::Dropout { .. } | Op::Reshape { .. })
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

/// For every node, whether an output depends on it.
pub(crate) fn needed(graph: &Graph) -> Vec<bool> {
    let mut needed = vec![false; graph.len()];
    for output in graph.outputs() {
        needed[output.node.index()] = true;
    }
    for (id, node) in graph.nodes().rev() {
        if needed[id.index()] {
            node.inputs.iter().for_each(|input| needed[input.index()] = true);
        }
    }
    needed
}

struct Planner<'a> {
    graph: &'a Graph,
    plan: Plan,
    /// For every node, the node whose elements it shares.
    owner: Vec<NodeId>,
    /// For every owner, the last node that reads it; its own index if it is never read.
    last_read: Vec<usize>,
    /// For every owner, whether it is handed out.
    leaves: Vec<bool>,
    free: Vec<usize>,
}

impl Plan {
    /// Plans the computation of everything `needed` that is not `known`.
    pub(crate) fn new(graph: &Graph, known: &[bool], needed: &[bool]) -> Self {
        let plan = Plan { steps: Vec::new(), places: vec![Place::Nowhere; graph.len()], slots: Vec::new() };
        let mut planner = Planner {
            graph,
            plan,
            owner: graph.nodes().map(|(id, _)| id).collect(),
            last_read: (0..graph.len()).collect(),
            leaves: vec![false; graph.len()],
            free: Vec::new(),
        };
        planner.trace(known, needed);
        for (id, _) in graph.nodes().filter(|(id, _)| needed[id.index()]) {
            planner.place(id, known);
        }
        planner.plan
    }
}

impl Planner<'_> {
    /// Finds who owns the elements of every value and how long they are read.
    fn trace(&mut self, known: &[bool], needed: &[bool]) {
        for (id, node) in self.graph.nodes().filter(|(id, _)| needed[id.index()]) {
            if known[id.index()] {
                continue;
            }
            if renames(&node.op) {
                self.owner[id.index()] = self.owner[node.inputs[0].index()];
            }
            for input in &node.inputs {
                self.last_read[self.owner[input.index()].index()] = id.index();
            }
        }
        for output in self.graph.outputs() {
            self.leaves[self.owner[output.node.index()].index()] = true;
        }
    }

    fn place(&mut self, id: NodeId, known: &[bool]) {
        let index = id.index();
        let node = self.graph.node(id);
        let owner = self.owner[index];
        self.plan.places[index] = if known[index] {
            Place::Constant(id)
        } else if owner != id {
            self.plan.places[owner.index()]
        } else if matches!(node.op, Op::Input) {
            let position = self.graph.inputs().iter().position(|&input| input == id);
            Place::Input(position.unwrap_or(usize::MAX))
        } else {
            Place::Slot(self.slot(id))
        };
        if !known[index] {
            self.release(id);
        }
    }

    /// The slot the value of `id` is written to.
    fn slot(&mut self, id: NodeId) -> usize {
        if let Some(slot) = self.overwritable(id) {
            self.plan.slots[slot].values.push(id);
            self.plan.steps.push(Step { node: id, slot, in_place: true });
            return slot;
        }
        let node = self.graph.node(id);
        let (batched, size) = match node.shape.count() {
            Some(Dim::Batch(n)) => (true, n),
            Some(Dim::Fixed(n)) => (false, n),
            None => (true, usize::MAX),
        };
        let leaves = self.leaves[id.index()];
        let fresh = Slot { kind: node.kind, values: Vec::new(), batched, size, leaves };
        let slot = match self.best_free(&fresh) {
            Some(position) => self.free.swap_remove(position),
            None => {
                self.plan.slots.push(fresh);
                self.plan.slots.len() - 1
            }
        };
        let chosen = &mut self.plan.slots[slot];
        chosen.size = chosen.size.max(size);
        chosen.values.push(id);
        self.plan.steps.push(Step { node: id, slot, in_place: false });
        slot
    }

    /// The slot of the only input of an elementwise node, if nobody reads it afterwards.
    fn overwritable(&self, id: NodeId) -> Option<usize> {
        let node = self.graph.node(id);
        let owner = self.owner[node.inputs.first()?.index()];
        let dies = matches!(node.op, Op::Unary(_))
            && self.last_read[owner.index()] == id.index()
            && !self.leaves[owner.index()]
            && !self.leaves[id.index()];
        match self.plan.places[owner.index()] {
            Place::Slot(slot) if dies && self.plan.slots[slot].kind == node.kind => Some(slot),
            _ => None,
        }
    }

    /// The free slot that wastes least: the smallest that is large enough, else the largest.
    fn best_free(&self, wanted: &Slot) -> Option<usize> {
        if wanted.leaves {
            return None;
        }
        let fits = |&(_, slot): &(usize, &usize)| {
            let slot = &self.plan.slots[*slot];
            slot.kind == wanted.kind && slot.batched == wanted.batched
        };
        let waste = |&(_, slot): &(usize, &usize)| {
            let size = self.plan.slots[*slot].size;
            (size < wanted.size, size.abs_diff(wanted.size))
        };
        self.free.iter().enumerate().filter(fits).min_by_key(waste).map(|(position, _)| position)
    }

    /// Frees the slots nobody reads after node `id`.
    fn release(&mut self, id: NodeId) {
        let mut candidates: Vec<NodeId> =
            self.graph.node(id).inputs.iter().map(|input| self.owner[input.index()]).collect();
        candidates.push(self.owner[id.index()]);
        candidates.sort();
        candidates.dedup();
        for owner in candidates {
            let index = owner.index();
            if let Place::Slot(slot) = self.plan.places[index]
                && self.last_read[index] == id.index()
                && !self.leaves[index]
                && self.plan.slots[slot].values.last() == Some(&owner)
            {
                self.free.push(slot);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use monosplit_graph::op::{Binary, Unary};
    use monosplit_graph::{Shape, Tensor};

    use super::*;
    use crate::cpu::kernels::testing::Random;

    fn random_graph(random: &mut Random) -> Graph {
        let mut g = Graph::new();
        let mut ids = vec![g.input("x", Shape::batched(&[2, 3]), Kind::Float)];
        ids.push(g.constant(Tensor::new([1, 2, 3], vec![1f32; 6]).unwrap()));
        for _ in 0..random.within(1, 40) {
            let recent = ids.len().saturating_sub(6);
            let a = ids[random.within(recent, ids.len() - 1)];
            let b = ids[random.within(recent, ids.len() - 1)];
            ids.push(match random.within(0, 3) {
                0 => g.add(Op::Identity, &[a]).unwrap(),
                1 => g.add(Op::Unary(Unary::Exp), &[a]).unwrap(),
                _ => g.add(Op::Binary(Binary::Add), &[a, b]).unwrap(),
            });
        }
        for _ in 0..random.within(1, 3) {
            let id = ids[random.within(0, ids.len() - 1)];
            g.output("y", id);
        }
        g
    }

    /// Follows the plan writing node names instead of numbers: whoever reads must find what was meant.
    fn follow(graph: &Graph, plan: &Plan, needed: &[bool]) {
        let mut owner: Vec<NodeId> = graph.nodes().map(|(id, _)| id).collect();
        for (id, node) in graph.nodes() {
            if renames(&node.op) {
                owner[id.index()] = owner[node.inputs[0].index()];
            }
        }
        let mut held: Vec<Option<NodeId>> = vec![None; plan.slots.len()];
        let expect = |id: NodeId, held: &[Option<NodeId>]| match plan.places[id.index()] {
            Place::Slot(slot) => assert_eq!(held[slot], Some(owner[id.index()]), "{id} is gone"),
            Place::Nowhere => panic!("{id} is nowhere"),
            Place::Input(_) | Place::Constant(_) => {}
        };
        for step in &plan.steps {
            assert!(needed[step.node.index()]);
            let inputs = &graph.node(step.node).inputs;
            inputs.iter().for_each(|&input| expect(input, &held));
            let reads_its_slot =
                inputs.iter().any(|input| plan.places[input.index()] == Place::Slot(step.slot));
            assert_eq!(reads_its_slot, step.in_place);
            held[step.slot] = Some(step.node);
        }
        graph.outputs().iter().for_each(|output| expect(output.node, &held));
    }

    #[test]
    fn whoever_reads_a_value_finds_it() {
        let mut random = Random::new(18);
        for _ in 0..500 {
            let graph = random_graph(&mut random);
            let (known, needed) = (known(&graph), needed(&graph));
            follow(&graph, &Plan::new(&graph, &known, &needed), &needed);
        }
    }

    #[test]
    fn a_chain_of_any_length_alternates_between_two_slots() {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[4]), Kind::Float);
        let mut y = x;
        for _ in 0..50 {
            y = g.add(Op::Binary(Binary::Mul), &[y, y]).unwrap();
            y = g.add(Op::Unary(Unary::Relu), &[y]).unwrap();
        }
        let last = g.add(Op::Binary(Binary::Mul), &[y, y]).unwrap();
        g.output("y", last);
        let plan = Plan::new(&g, &known(&g), &needed(&g));
        assert_eq!(plan.slots.len(), 3, "two that alternate and the one that leaves");
        assert_eq!(plan.steps.iter().filter(|step| step.in_place).count(), 50);
    }
}
