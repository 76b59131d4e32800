//! Where every value lives. Values that only rename another share its place; the others get a slot for as
//! long as somebody still reads them, and slots are handed on to later values of the same kind. Values that one
//! kernel reads or writes together lie side by side in one slot.

use std::collections::HashMap;

use monosplit_graph::{Dim, Graph, Kind, NodeId, Op};

use crate::schedule::{Choices, Schedule, Work};

/// Where the elements of a value are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Among the inputs of the run.
    Input(usize),
    /// Among the values known at compile time.
    Constant(NodeId),
    /// In this part of a slot, all parts being of the value's size.
    Slot { slot: usize, part: usize },
    /// Nowhere: nothing needs it.
    Nowhere,
}

/// Memory that holds one value after another.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    /// Kind of its elements.
    pub(crate) kind: Kind,
    /// One of the values it holds at a time and how many of that size there are, in order.
    pub(crate) tenants: Vec<(NodeId, usize)>,
    batched: bool,
    size: usize,
    /// Whether it leaves the program with the result, so that nothing else may share it.
    pub(crate) leaves: bool,
    /// How many of the values it holds now are still read.
    alive: usize,
}

/// Nodes computed together and the values that come out.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) work: Work,
    /// The values written, in order.
    pub(crate) outputs: Vec<NodeId>,
}

/// The order nodes are computed in and the place of every value.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// For every node, the first that computes the same.
    pub(crate) same: Vec<NodeId>,
    pub(crate) steps: Vec<Step>,
    pub(crate) places: Vec<Place>,
    pub(crate) slots: Vec<Slot>,
    /// For every value that lies beside others, how many there are.
    pub(crate) bundled: HashMap<NodeId, usize>,
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

/// Never read.
const NEVER: usize = usize::MAX;

struct Planner<'a> {
    graph: &'a Graph,
    plan: Plan,
    /// For every node, the node whose elements it shares.
    owner: Vec<NodeId>,
    /// For every owner, the last step that reads it.
    last_read: Vec<usize>,
    /// For every owner, whether it is handed out.
    leaves: Vec<bool>,
    /// For every owner, whether its place has been given up.
    released: Vec<bool>,
    /// For every owner that lies beside others, which bundle it belongs to and where in it.
    bundled: HashMap<NodeId, (usize, usize)>,
    /// The values that lie side by side, and the slot they have got.
    bundles: Vec<(Vec<NodeId>, Option<usize>)>,
    free: Vec<usize>,
}

impl Plan {
    /// Plans the computation of everything `needed` that is not `known`.
    pub(crate) fn new(graph: &Graph, known: &[bool], needed: &[bool], choices: Choices) -> Self {
        let Schedule { same, work } = Schedule::new(graph, known, needed, choices);
        let plan = Plan {
            same,
            steps: Vec::new(),
            places: vec![Place::Nowhere; graph.len()],
            slots: Vec::new(),
            bundled: HashMap::new(),
        };
        let mut planner = Planner {
            graph,
            plan,
            owner: graph.nodes().map(|(id, _)| id).collect(),
            last_read: vec![NEVER; graph.len()],
            leaves: vec![false; graph.len()],
            released: vec![false; graph.len()],
            bundled: HashMap::new(),
            bundles: Vec::new(),
            free: Vec::new(),
        };
        planner.settle(known, needed);
        planner.divide(work);
        planner.trace();
        for position in 0..planner.plan.steps.len() {
            planner.place(position);
        }
        planner.finish();
        planner.plan
    }
}

impl Planner<'_> {
    fn same(&self, id: NodeId) -> NodeId {
        self.plan.same[id.index()]
    }

    fn owner(&self, id: NodeId) -> NodeId {
        self.owner[self.same(id).index()]
    }

    fn is_output(&self, owner: NodeId) -> bool {
        self.leaves[owner.index()]
    }

    /// Places what needs no slot and finds who owns the elements of every value.
    fn settle(&mut self, known: &[bool], needed: &[bool]) {
        for (id, node) in self.graph.nodes().filter(|(id, _)| needed[id.index()]) {
            let index = id.index();
            if self.same(id) != id {
                continue;
            }
            if known[index] {
                self.plan.places[index] = Place::Constant(id);
            } else if matches!(node.op, Op::Input) {
                let position = self.graph.inputs().iter().position(|&input| input == id);
                self.plan.places[index] = Place::Input(position.unwrap_or(usize::MAX));
            } else if matches!(node.op, Op::Reshape { .. }) {
                self.owner[index] = self.owner(node.inputs[0]);
            }
        }
        for output in self.graph.outputs() {
            let owner = self.owner(output.node);
            self.leaves[owner.index()] = true;
        }
    }

    /// Turns work into steps: renaming is no work, and nodes run together only if their values can lie side by
    /// side.
    fn divide(&mut self, work: Vec<Work>) {
        for work in work {
            match work {
                Work::One(id) if matches!(self.graph.node(id).op, Op::Reshape { .. }) => {}
                Work::Batched(nodes) if !self.bundle(&nodes) => {
                    for id in nodes {
                        self.plan.steps.push(Step { work: Work::One(id), outputs: vec![id] });
                    }
                }
                work @ (Work::Fused(_) | Work::Finished(_) | Work::Chained(..) | Work::Reduced(_)) => {
                    self.plan.steps.push(Step { work, outputs: Vec::new() });
                }
                work => {
                    let outputs = work.nodes().to_vec();
                    self.plan.steps.push(Step { work, outputs });
                }
            }
        }
    }

    /// Lays the inputs of these nodes side by side, and their outputs, if nothing speaks against it.
    fn bundle(&mut self, nodes: &[NodeId]) -> bool {
        let inputs: Vec<NodeId> = nodes.iter().map(|&id| self.owner(self.graph.node(id).inputs[0])).collect();
        let free =
            |owner: &NodeId| self.plan.places[owner.index()] == Place::Nowhere && !self.is_output(*owner);
        let distinct = |values: &[NodeId]| {
            let mut sorted = values.to_vec();
            sorted.sort();
            sorted.dedup();
            sorted.len() == values.len()
        };
        let fits = |values: &[NodeId]| {
            values.iter().all(free)
                && distinct(values)
                && match self.bundled.get(&values[0]) {
                    Some(&(bundle, _)) => self.bundles[bundle].0 == values,
                    None => values.iter().all(|value| !self.bundled.contains_key(value)),
                }
        };
        if !fits(&inputs) || !fits(nodes) {
            return false;
        }
        for values in [inputs, nodes.to_vec()] {
            if !self.bundled.contains_key(&values[0]) {
                for (part, &value) in values.iter().enumerate() {
                    self.bundled.insert(value, (self.bundles.len(), part));
                }
                self.bundles.push((values, None));
            }
        }
        true
    }

    /// The owners of the values a step reads that are not its own.
    fn reads(&self, step: &Step) -> Vec<NodeId> {
        let nodes = step.work.nodes();
        let inputs = nodes.iter().flat_map(|&id| &self.graph.node(id).inputs);
        let mut owners: Vec<NodeId> = inputs
            .map(|&input| self.same(input))
            .filter(|input| !nodes.contains(input))
            .map(|input| self.owner(input))
            .collect();
        owners.sort();
        owners.dedup();
        owners
    }

    /// Finds how long every value is read and which values of fused nodes are read by others.
    fn trace(&mut self) {
        for position in 0..self.plan.steps.len() {
            for owner in self.reads(&self.plan.steps[position]) {
                self.last_read[owner.index()] = position;
            }
        }
        for step in &mut self.plan.steps {
            if let Work::Fused(nodes)
            | Work::Finished(nodes)
            | Work::Chained(nodes, _)
            | Work::Reduced(nodes) = &step.work
            {
                let wanted = |id: &&NodeId| self.last_read[id.index()] != NEVER || self.leaves[id.index()];
                step.outputs = nodes.iter().filter(wanted).copied().collect();
            }
        }
    }

    fn place(&mut self, position: usize) {
        let step = self.plan.steps[position].clone();
        let reads = self.reads(&step);
        for &id in &step.outputs {
            let place = match self.bundled.get(&id) {
                Some(&(bundle, part)) => {
                    Place::Slot { slot: self.bundle_slot(bundle, position, &step, &reads), part }
                }
                None => Place::Slot { slot: self.slot(id, position, &step, &reads), part: 0 },
            };
            self.plan.places[id.index()] = place;
        }
        for owner in reads.into_iter().chain(step.outputs) {
            let last = self.last_read[owner.index()];
            if last == position || last == NEVER {
                self.release(owner);
            }
        }
    }

    /// The slot of a value that lies alone.
    fn slot(&mut self, id: NodeId, position: usize, step: &Step, reads: &[NodeId]) -> usize {
        let overwritten = reads.iter().copied().find(|&owner| {
            !self.bundled.contains_key(&owner) && self.overwritable(&[owner], &[id], position, step)
        });
        match overwritten {
            Some(owner) => self.take_over(&[owner], &[id]),
            None => self.fresh(&[id]),
        }
    }

    /// The slot of values that lie side by side.
    fn bundle_slot(&mut self, bundle: usize, position: usize, step: &Step, reads: &[NodeId]) -> usize {
        if let Some(slot) = self.bundles[bundle].1 {
            return slot;
        }
        let values = self.bundles[bundle].0.clone();
        let candidates = reads.iter().filter_map(|owner| self.bundled.get(owner)).map(|&(other, _)| other);
        let overwritten = candidates
            .map(|other| self.bundles[other].0.clone())
            .find(|old| self.overwritable(old, &values, position, step));
        let slot = match overwritten {
            Some(old) => self.take_over(&old, &values),
            None => self.fresh(&values),
        };
        self.bundles[bundle].1 = Some(slot);
        slot
    }

    /// Whether a step may write `new` where it reads `old`, element by element.
    fn overwritable(&self, old: &[NodeId], new: &[NodeId], position: usize, step: &Step) -> bool {
        let elementwise = match &step.work {
            Work::Fused(_) => true,
            Work::One(id) => matches!(self.graph.node(*id).op, Op::Unary(_)),
            _ => false,
        };
        if !elementwise || old.len() != new.len() || !new.iter().all(|id| step.outputs.contains(id)) {
            return false;
        }
        let nodes = step.work.nodes();
        let shape = &self.graph.node(nodes[0]).shape;
        let fits = |(&old, &new): (&NodeId, &NodeId)| {
            let dies = matches!(self.plan.places[old.index()], Place::Slot { .. })
                && !self.released[old.index()]
                && !self.leaves[old.index()]
                && !self.leaves[new.index()]
                && self.last_read[old.index()] == position
                && self.graph.node(old).kind == self.graph.node(new).kind;
            let inputs = nodes.iter().flat_map(|&id| &self.graph.node(id).inputs);
            let mut views =
                inputs.filter(|&&input| self.owner(input) == old && !nodes.contains(&self.same(input)));
            dies && views.all(|&input| self.graph.node(input).shape == *shape)
        };
        old.iter().zip(new).all(fits)
    }

    /// Gives the slot of `old` to `new`.
    fn take_over(&mut self, old: &[NodeId], new: &[NodeId]) -> usize {
        let Place::Slot { slot, .. } = self.plan.places[old[0].index()] else { return self.fresh(new) };
        old.iter().for_each(|id| self.released[id.index()] = true);
        self.move_in(slot, new);
        slot
    }

    fn move_in(&mut self, slot: usize, values: &[NodeId]) {
        let slot = &mut self.plan.slots[slot];
        slot.tenants.push((values[0], values.len()));
        slot.alive = values.len();
    }

    /// A slot that holds nothing, for values that lie side by side.
    fn fresh(&mut self, values: &[NodeId]) -> usize {
        let node = self.graph.node(values[0]);
        let (batched, size) = match node.shape.count() {
            Some(Dim::Batch(n)) => (true, n),
            Some(Dim::Fixed(n)) => (false, n),
            None => (true, usize::MAX),
        };
        let size = size.saturating_mul(values.len());
        let leaves = self.leaves[values[0].index()];
        let wanted = Slot { kind: node.kind, tenants: Vec::new(), batched, size, leaves, alive: 0 };
        let slot = match self.best_free(&wanted) {
            Some(position) => self.free.swap_remove(position),
            None => {
                self.plan.slots.push(wanted);
                self.plan.slots.len() - 1
            }
        };
        let chosen = &mut self.plan.slots[slot];
        chosen.size = chosen.size.max(size);
        self.move_in(slot, values);
        slot
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

    /// Gives up the place of a value nobody reads any more.
    fn release(&mut self, owner: NodeId) {
        let Place::Slot { slot, .. } = self.plan.places[owner.index()] else { return };
        if self.leaves[owner.index()] || std::mem::replace(&mut self.released[owner.index()], true) {
            return;
        }
        let held = &mut self.plan.slots[slot];
        held.alive -= 1;
        if held.alive == 0 {
            self.free.push(slot);
        }
    }

    /// Tells those who share a place with another where that is.
    fn finish(&mut self) {
        for (values, _) in &self.bundles {
            self.plan.bundled.extend(values.iter().map(|&id| (id, values.len())));
        }
        for (id, _) in self.graph.nodes() {
            if self.plan.places[id.index()] == Place::Nowhere {
                self.plan.places[id.index()] = self.plan.places[self.owner(id).index()];
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

    /// Follows the plan writing node names instead of numbers: whoever reads must find what was meant.
    fn follow(graph: &Graph, plan: &Plan) {
        let mut held: HashMap<(usize, usize), NodeId> = HashMap::new();
        let at = |id: NodeId| match plan.places[id.index()] {
            Place::Slot { slot, part } => Some((slot, part)),
            Place::Nowhere => panic!("{id} is nowhere"),
            Place::Input(_) | Place::Constant(_) => None,
        };
        let expect = |id: NodeId, held: &HashMap<(usize, usize), NodeId>| {
            if let Some(at) = at(id) {
                assert_eq!(held.get(&at), Some(&plan.same[id.index()]), "{id} is gone");
            }
        };
        for step in &plan.steps {
            let nodes = step.work.nodes();
            let inputs = nodes.iter().flat_map(|&id| &graph.node(id).inputs);
            for &input in inputs.filter(|input| !nodes.contains(&plan.same[input.index()])) {
                expect(input, &held);
                let overwritten = step.outputs.iter().any(|&id| at(id) == at(input));
                assert!(!overwritten || !matches!(step.work, Work::Batched(_) | Work::Streams(_)));
            }
            if let Work::Batched(nodes) = &step.work {
                let first = at(graph.node(nodes[0]).inputs[0]).unwrap();
                for (part, &id) in nodes.iter().enumerate() {
                    assert_eq!(at(graph.node(id).inputs[0]), Some((first.0, part)));
                    assert_eq!(at(id).unwrap().1, part);
                }
            }
            for &id in &step.outputs {
                let (slot, _) = at(id).unwrap();
                let mates = plan.bundled.get(&id).copied().unwrap_or(1);
                held.retain(|&(other, part), _| other != slot || part < mates);
                held.insert(at(id).unwrap(), id);
            }
        }
        graph.outputs().iter().for_each(|output| expect(output.node, &held));
    }

    #[test]
    fn whoever_reads_a_value_finds_it() {
        let mut random = Random::new(18);
        let (mut batched, mut reduced) = (0, 0);
        for round in 0..1000 {
            let graph = random_graph(&mut random);
            let (known, needed) = (known(&graph), graph.live());
            let choices = Choices::without(round);
            let plan = Plan::new(&graph, &known, &needed, choices);
            follow(&graph, &plan);
            batched += plan.steps.iter().filter(|step| matches!(step.work, Work::Batched(_))).count();
            reduced += plan.steps.iter().filter(|step| matches!(step.work, Work::Reduced(_))).count();
        }
        assert!(batched > 20, "too few graphs have anything to batch: {batched}");
        assert!(reduced > 20, "too few graphs have anything to reduce: {reduced}");
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
        let plain = Choices { fuse: false, ..Choices::ALL };
        let plan = Plan::new(&g, &known(&g), &g.live(), plain);
        assert_eq!(plan.slots.len(), 3, "two that alternate and the one that leaves");
        let plan = Plan::new(&g, &known(&g), &g.live(), Choices::ALL);
        assert_eq!(plan.steps.len(), 3, "a hundred nodes in steps of at most 48");
        assert_eq!(plan.slots.len(), 2, "one that is overwritten and the one that leaves");
    }
}
