//! What is computed together and in which order. Equal nodes are computed once, elementwise nodes of one shape
//! that depend on each other or read the same value share a pass over memory, or are done to the results of the convolution they
//! alone read while it runs, convolutions and products of different values with the same weights run as one, so do two
//! convolutions of which one alone reads the other, and whoever frees memory goes first.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use monosplit_graph::op::{Unary, Window};
use monosplit_graph::{Dim, Graph, Kind, Node, NodeId, Op};

/// Which of these are wanted. On a processor, results have the same bits whatever the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choices {
    /// Compute equal nodes once.
    pub(crate) share: bool,
    /// Run elementwise nodes together.
    pub(crate) fuse: bool,
    /// Run them on the results of a convolution while these are still in cache.
    pub(crate) finish: bool,
    /// Run a 1×1 convolution and the depthwise one that alone reads it together, so that what lies between is never written.
    pub(crate) chain: bool,
    /// Run them and the reductions that alone read them together, so that they are never written.
    pub(crate) reduce: bool,
    /// Run convolutions with the same weights together, and products where `streams` does not.
    pub(crate) batch: bool,
    /// Run products with the same weights together, and store no magnitudes of large matrices; asks for `batch`.
    pub(crate) streams: bool,
    /// Compute early what frees memory.
    pub(crate) reorder: bool,
}

impl Choices {
    /// Those whose bit is not set.
    #[cfg(test)]
    pub(crate) fn without(bits: usize) -> Self {
        let on = |bit: usize| bits & (1 << bit) == 0;
        let (batch, reorder) = (on(2), on(3));
        let (finish, reduce, chain) = (on(4), on(5), on(6));
        Choices { share: on(0), fuse: on(1), finish, chain, reduce, batch, streams: batch, reorder }
    }

    /// Those a processor profits from.
    pub(crate) const ALL: Choices = Choices {
        share: true,
        fuse: true,
        finish: true,
        chain: true,
        reduce: false,
        batch: true,
        streams: true,
        reorder: true,
    };
}

/// Nodes that are computed together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// One node.
    One(NodeId),
    /// Elementwise nodes of one shape, in topological order.
    Fused(Vec<NodeId>),
    /// A convolution, then elementwise nodes of its shape that are all that read it, in topological order.
    Finished(Vec<NodeId>),
    /// A 1×1 convolution and a depthwise one that alone reads it, each with the elementwise nodes that finish it, and how many
    /// nodes the first are.
    Chained(Vec<NodeId>, usize),
    /// Elementwise nodes of one shape, in topological order, then reductions over one axis, not the last, that are all that
    /// read them.
    Reduced(Vec<NodeId>),
    /// Convolutions or products that do the same with the same weights to values of one shape.
    Batched(Vec<NodeId>),
    /// Products of different values with one matrix of weights or its magnitudes.
    Streams(Vec<NodeId>),
}

impl Work {
    /// The nodes that kernels begin with, of which the others are finished or fused.
    pub(crate) fn kernels(&self) -> impl Iterator<Item = NodeId> {
        let then = match self {
            Work::Chained(_, first) => Some(*first),
            _ => None,
        };
        std::iter::once(0).chain(then).map(|at| self.nodes()[at])
    }

    pub(crate) fn nodes(&self) -> &[NodeId] {
        match self {
            Work::One(node) => std::slice::from_ref(node),
            Work::Fused(nodes)
            | Work::Finished(nodes)
            | Work::Chained(nodes, _)
            | Work::Reduced(nodes)
            | Work::Batched(nodes)
            | Work::Streams(nodes) => nodes,
        }
    }
}

/// Elementwise nodes that run together, at most.
const MOST_FUSED: usize = 48;
/// Matrices of fewer elements are not worth the care.
const LARGE: usize = 1 << 15;
/// Values a convolution or a product is given at once, at most.
const MOST_BATCHED: usize = 4;

/// Rows of what lies between two convolutions that run together, and zeros before the rows the second reads, at most.
const WIDEST_ROW: usize = 1 << 14;
const WIDEST_PAD: usize = 256;

/// Reductions that run together, at most.
const MOST_REDUCED: usize = 4;

/// The order of work.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    /// For every node, the first that computes the same.
    pub(crate) same: Vec<NodeId>,
    pub(crate) work: Vec<Work>,
}

struct Scheduler<'a> {
    graph: &'a Graph,
    /// For every node, whether it is to be computed in a run.
    computed: Vec<bool>,
    same: Vec<NodeId>,
    choices: Choices,
}

impl Schedule {
    /// Schedules everything `needed` that is not `known`.
    pub(crate) fn new(graph: &Graph, known: &[bool], needed: &[bool], choices: Choices) -> Self {
        let same = same(graph, needed, choices.share);
        let computed = |(id, node): (NodeId, &Node)| {
            let i = id.index();
            needed[i] && !known[i] && same[i] == id && !matches!(node.op, Op::Input)
        };
        let computed = graph.nodes().map(computed).collect();
        let scheduler = Scheduler { graph, computed, same, choices };
        let work = scheduler.work(known);
        Schedule { same: scheduler.same, work }
    }
}

/// For every node, the first needed one that computes the same. Nodes that only rename count as what they rename.
fn same(graph: &Graph, needed: &[bool], share: bool) -> Vec<NodeId> {
    let mut same: Vec<NodeId> = Vec::with_capacity(graph.len());
    let mut first: HashMap<(String, Vec<NodeId>), NodeId> = HashMap::new();
    for (id, node) in graph.nodes() {
        let inputs: Vec<NodeId> = node.inputs.iter().map(|input| same[input.index()]).collect();
        same.push(match &node.op {
            Op::Identity | Op::Dropout { .. } => inputs[0],
            Op::Input | Op::Constant(_) => id,
            _ if !share || !needed[id.index()] => id,
            op => *first.entry((format!("{op:?}"), inputs)).or_insert(id),
        });
    }
    same
}

/// Whether a node computes each element from the elements at the same place, of real numbers and truth values.
fn is_elementwise(graph: &Graph, node: &Node) -> bool {
    let plain = |kind: Kind| kind != Kind::Int;
    let elementwise = match &node.op {
        Op::Unary(Unary::Not) => node.kind == Kind::Bool,
        Op::Unary(_) => node.kind == Kind::Float,
        Op::Cast { .. } => graph.node(node.inputs[0]).kind != node.kind,
        Op::Binary(_) | Op::Where => true,
        _ => false,
    };
    elementwise && plain(node.kind) && node.inputs.iter().all(|&input| plain(graph.node(input).kind))
}

/// The large matrix of known weights that a product reads, and whether it reads its magnitudes.
pub(crate) fn stream_weights(
    graph: &Graph,
    same: &[NodeId],
    known: &[bool],
    node: &Node,
) -> Option<(NodeId, bool)> {
    let Op::MatMul { trans_a: false, .. } = node.op else { return None };
    let (x, read) = (graph.node(node.inputs[0]), same[node.inputs[1].index()]);
    let (weights, magnitude) = match graph.node(read) {
        node if node.op == Op::Unary(Unary::Abs) => (same[node.inputs[0].index()], true),
        _ => (read, false),
    };
    let matrix = graph.node(weights);
    let large = matches!(matrix.shape.count(), Some(Dim::Fixed(n)) if n >= LARGE);
    let plain = known[read.index()] && matrix.shape.rank() == 2 && x.shape.rank() == 2;
    (plain && large && matrix.kind == Kind::Float).then_some((weights, magnitude))
}

/// A partition of the computed nodes into units that run together.
struct Units {
    /// For every node, its unit.
    unit: Vec<usize>,
    members: Vec<Vec<NodeId>>,
}

impl Units {
    fn of(count: usize, members: Vec<Vec<NodeId>>) -> Self {
        let mut unit = vec![usize::MAX; count];
        for (position, members) in members.iter().enumerate() {
            members.iter().for_each(|id| unit[id.index()] = position);
        }
        Units { unit, members }
    }
}

impl Scheduler<'_> {
    fn computed(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.graph.nodes().filter(|(id, _)| self.computed[id.index()])
    }

    /// The computed nodes that a node reads.
    fn inputs<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = NodeId> + 'a {
        node.inputs.iter().map(|input| self.same[input.index()]).filter(|input| self.computed[input.index()])
    }

    fn singles(&self) -> Units {
        Units::of(self.graph.len(), self.computed().map(|(id, _)| vec![id]).collect())
    }

    fn work(&self, known: &[bool]) -> Vec<Work> {
        let mut units = if self.choices.batch { self.batches(known) } else { self.singles() };
        let mut order = self.order(&units, false);
        if order.is_none() {
            units = self.singles();
            order = self.order(&units, false);
        }
        let in_order = |units: &Units| self.computed().map(|(id, _)| units.unit[id.index()]).collect();
        let mut order: Vec<usize> = order.unwrap_or_else(|| in_order(&units));
        if self.choices.fuse {
            let fused = self.fused(&units, &order);
            // Levels keep fused nodes from waiting for each other; should they ever, they run one by one.
            if let Some(better) = self.order(&fused, self.choices.reorder) {
                (units, order) = (fused, better);
            }
        } else if self.choices.reorder
            && let Some(better) = self.order(&units, true)
        {
            order = better;
        }
        let work = order.into_iter().map(|unit| self.describe(&units.members[unit], known)).collect();
        let work = if self.choices.reduce { self.reduced(work) } else { work };
        let work = if self.choices.finish { self.finished(work) } else { work };
        if self.choices.chain { self.chained(work, known) } else { work }
    }

    /// Lets depthwise convolutions take along the 1×1 convolutions that they alone read.
    fn chained(&self, mut work: Vec<Work>, known: &[bool]) -> Vec<Work> {
        let (_, readers) = self.traced(&work);
        let mut taken = vec![false; work.len()];
        for at in 0..work.len() {
            let Some((window, 1)) = self.convolution(&work[at], known) else { continue };
            let Some(&last) = work[at].nodes().last() else { continue };
            let Some(&[reader]) = readers.get(&last).map(Vec::as_slice) else { continue };
            let then = self.graph.node(work[reader].nodes()[0]);
            let deep = self.convolution(&work[reader], known).is_some_and(|(window, groups)| {
                let shape = |id: NodeId, axis: usize| self.graph.node(id).shape.fixed_at(axis);
                let each = shape(last, 1) == Some(groups) && shape(then.inputs[1], 1) == Some(1);
                let sizes = matches!((shape(last, 2), shape(last, 3)), (Some(1..), Some(1..=WIDEST_ROW)));
                let near = window.pad.iter().all(|pad| pad.0 <= WIDEST_PAD);
                let some = groups > 1 && then.shape.fixed_at(1) == Some(groups);
                window.is_three_by_three() && near && each && some && sizes
            });
            let first = self.graph.node(work[at].nodes()[0]);
            let inputs = self.graph.node(first.inputs[1]).shape.fixed_at(1);
            let read = deep && inputs > Some(0) && self.same[then.inputs[0].index()] == last;
            if window.is_pointwise() && read && !self.leaves(last) {
                let nodes = [work[at].nodes(), work[reader].nodes()].concat();
                work[reader] = Work::Chained(nodes, work[at].nodes().len());
                taken[at] = true;
            }
        }
        work.into_iter().zip(taken).filter(|(_, taken)| !taken).map(|(work, _)| work).collect()
    }

    /// The window and the groups of a convolution with known weights over two axes, if work is that and what finishes it.
    fn convolution(&self, work: &Work, known: &[bool]) -> Option<(&Window, usize)> {
        let (Work::One(_) | Work::Finished(_)) = work else { return None };
        let node = self.graph.node(work.nodes()[0]);
        match &node.op {
            Op::Conv { window, groups } if known[node.inputs[1].index()] && window.axes() == 2 => {
                Some((window, *groups))
            }
            _ => None,
        }
    }

    /// Where every computed node is computed, and where it is read.
    fn traced(&self, work: &[Work]) -> (Vec<usize>, HashMap<NodeId, Vec<usize>>) {
        let mut position = vec![usize::MAX; self.graph.len()];
        let mut readers: HashMap<NodeId, Vec<usize>> = HashMap::new();
        for (at, step) in work.iter().enumerate() {
            for &id in step.nodes() {
                position[id.index()] = at;
                for input in self.inputs(self.graph.node(id)) {
                    readers.entry(input).or_default().push(at);
                }
            }
        }
        (position, readers)
    }

    fn leaves(&self, id: NodeId) -> bool {
        self.graph.outputs().iter().any(|output| self.same[output.node.index()] == id)
    }

    /// Lets elementwise nodes take along the reductions that alone read them.
    fn reduced(&self, mut work: Vec<Work>) -> Vec<Work> {
        let (_, readers) = self.traced(&work);
        let mut taken = vec![false; work.len()];
        for at in 0..work.len() {
            let Work::Fused(nodes) = &work[at] else { continue };
            let outside = nodes.iter().flat_map(|id| readers.get(id).into_iter().flatten());
            let mut steps: Vec<usize> = outside.copied().filter(|&reader| reader != at).collect();
            steps.sort_unstable();
            steps.dedup();
            let axis = steps.first().and_then(|&first| self.reduced_axis(&work[first]));
            let alike = steps.iter().all(|&step| self.reduced_axis(&work[step]) == axis);
            let real = nodes.iter().all(|&id| !self.leaves(id) && self.graph.node(id).kind != Kind::Int);
            if axis.is_none() || !alike || !real || steps.len() > MOST_REDUCED {
                continue;
            }
            let together = nodes.iter().chain(steps.iter().flat_map(|&step| work[step].nodes()));
            work[at] = Work::Reduced(together.copied().collect());
            steps.iter().for_each(|&step| taken[step] = true);
        }
        work.into_iter().zip(taken).filter(|(_, taken)| !taken).map(|(work, _)| work).collect()
    }

    /// The axis that work reduces real numbers over, if that is all it does and there are axes behind it.
    fn reduced_axis(&self, work: &Work) -> Option<usize> {
        let Work::One(id) = work else { return None };
        let node = self.graph.node(*id);
        let read = self.graph.node(node.inputs.first().copied()?);
        match &node.op {
            Op::Reduce { axes, .. } if node.kind == Kind::Float && read.kind == Kind::Float => {
                let dims = read.shape.dims();
                let &[axis] = axes.as_slice() else { return None };
                let some = matches!(dims.get(axis), Some(Dim::Fixed(1..)));
                (some && axis + 1 < dims.len()).then_some(axis)
            }
            _ => None,
        }
    }

    /// Lets convolutions take along the elementwise nodes that alone read them, where nothing these read besides is
    /// still to come.
    fn finished(&self, mut work: Vec<Work>) -> Vec<Work> {
        let (position, readers) = self.traced(&work);
        let leaves = |id: NodeId| self.leaves(id);
        let mut taken = vec![false; work.len()];
        for at in 0..work.len() {
            let Work::One(id) = work[at] else { continue };
            let node = self.graph.node(id);
            let Some(&[reader, ref more @ ..]) = readers.get(&id).map(Vec::as_slice) else { continue };
            let alone = more.iter().all(|&other| other == reader) && !leaves(id) && !taken[reader];
            if !alone || !matches!(node.op, Op::Conv { .. } | Op::ConvTranspose { .. }) {
                continue;
            }
            let Work::Fused(then) = &work[reader] else { continue };
            let inner = &then[..then.len() - 1];
            let is_read = |then: &NodeId| readers[then].iter().any(|&r| r != reader) || leaves(*then);
            let mut inputs = then.iter().flat_map(|&then| self.inputs(self.graph.node(then)));
            let ready =
                inputs.all(|input| input == id || then.contains(&input) || position[input.index()] < at);
            if ready && self.is_chain(id, then) && !inner.iter().any(is_read) {
                let nodes = std::iter::once(id).chain(then.iter().copied()).collect();
                taken[reader] = true;
                work[at] = Work::Finished(nodes);
            }
        }
        work.into_iter().zip(taken).filter(|(_, taken)| !taken).map(|(work, _)| work).collect()
    }

    /// Whether every node reads the one before it once, the first of them `id`, and besides only values of its own
    /// shape or single numbers.
    fn is_chain(&self, id: NodeId, chain: &[NodeId]) -> bool {
        let before = std::iter::once(&id).chain(chain);
        before.zip(chain).all(|(&before, &then)| {
            let node = self.graph.node(then);
            let others = || node.inputs.iter().map(|input| self.same[input.index()]).filter(|&i| i != before);
            let plain = |other: NodeId| {
                let shape = &self.graph.node(other).shape;
                let fits = *shape == node.shape || shape.count() == Some(Dim::Fixed(1));
                fits && other != id && !chain.contains(&other)
            };
            let reads_before = others().count() + 1 == node.inputs.len();
            let condition = matches!(node.op, Op::Where) && self.same[node.inputs[0].index()] == before;
            let real = node.kind == Kind::Float && node.shape == self.graph.node(id).shape;
            real && reads_before && !condition && others().all(plain) && !matches!(node.op, Op::Cast { .. })
        })
    }

    fn describe(&self, members: &[NodeId], known: &[bool]) -> Work {
        let first = self.graph.node(members[0]);
        match (stream_weights(self.graph, &self.same, known, first), members) {
            (Some(_), [_, _, ..]) | (Some((_, true)), _) if self.choices.streams => {
                return Work::Streams(members.to_vec());
            }
            _ => {}
        }
        match members {
            members if self.choices.fuse && is_elementwise(self.graph, self.graph.node(members[0])) => {
                Work::Fused(members.to_vec())
            }
            [only] => Work::One(*only),
            members => Work::Batched(members.to_vec()),
        }
    }

    /// Whether a node does the same to every row of what it reads first, so that values side by side are more rows.
    fn takes_rows(&self, node: &Node) -> bool {
        match node.op {
            Op::Conv { .. } | Op::ConvTranspose { .. } => true,
            Op::MatMul { trans_a: false, .. } => {
                let flat = [&node.shape, &self.graph.node(node.inputs[0]).shape];
                !self.choices.streams && flat.iter().all(|shape| shape.rank() == 2)
            }
            _ => false,
        }
    }

    /// Units in which nodes with the same weights stand together, everything else alone.
    fn batches(&self, known: &[bool]) -> Units {
        let mut members: Vec<Vec<NodeId>> = Vec::new();
        let mut open: HashMap<(String, Vec<NodeId>, String), usize> = HashMap::new();
        for (id, node) in self.computed() {
            let stream = match self.choices.streams {
                true => stream_weights(self.graph, &self.same, known, node),
                false => None,
            };
            let weights: Vec<NodeId> = match stream {
                Some((weights, _)) => vec![weights],
                None => node.inputs.iter().skip(1).map(|w| self.same[w.index()]).collect(),
            };
            let joins = self.takes_rows(node) && weights.iter().all(|w| known[w.index()]);
            if !joins && stream.is_none() {
                members.push(vec![id]);
                continue;
            }
            let shape = self.graph.node(node.inputs[0]).shape.to_string();
            // What depends on no input is computed in another way.
            let key = (format!("{:?} {}", node.op, node.is_constant()), weights, shape);
            match open.get(&key) {
                Some(&unit) if members[unit].len() < MOST_BATCHED && !self.depends(id, &members[unit]) => {
                    members[unit].push(id);
                }
                _ => {
                    open.insert(key, members.len());
                    members.push(vec![id]);
                }
            }
        }
        Units::of(self.graph.len(), members)
    }

    /// Whether a node depends on one of `others`, which come before it.
    fn depends(&self, id: NodeId, others: &[NodeId]) -> bool {
        let Some(&first) = others.first() else { return false };
        let mut seen = vec![false; id.index() - first.index() + 1];
        let mut open = vec![id];
        while let Some(next) = open.pop() {
            for input in self.inputs(self.graph.node(next)).filter(|&input| input >= first) {
                if others.contains(&input) {
                    return true;
                }
                if !std::mem::replace(&mut seen[input.index() - first.index()], true) {
                    open.push(input);
                }
            }
        }
        false
    }

    /// For every node, how many nodes that are not elementwise lie on the longest way to it.
    fn levels(&self, units: &Units, order: &[usize]) -> Vec<usize> {
        let mut levels = vec![0; self.graph.len()];
        for &unit in order {
            let members = &units.members[unit];
            let inputs = members.iter().flat_map(|&id| self.inputs(self.graph.node(id)));
            let deepest = inputs.map(|input| levels[input.index()]).max().unwrap_or(0);
            let alone = !is_elementwise(self.graph, self.graph.node(members[0]));
            members.iter().for_each(|id| levels[id.index()] = deepest + usize::from(alone));
        }
        levels
    }

    /// Joins the elementwise nodes of one level and one shape that read each other or a common value. Between
    /// two of one level lies nothing that is not elementwise, and broadcasting never leads back to a smaller
    /// shape, so no unit can come to wait for itself.
    fn fused(&self, units: &Units, order: &[usize]) -> Units {
        let levels = self.levels(units, order);
        let mut group: Vec<usize> = (0..self.graph.len()).collect();
        let mut reader: HashMap<(NodeId, usize), NodeId> = HashMap::new();
        for (id, node) in self.computed().filter(|(_, node)| is_elementwise(self.graph, node)) {
            let level = levels[id.index()];
            for input in node.inputs.iter().map(|input| self.same[input.index()]) {
                let read = self.graph.node(input);
                if read.shape != node.shape || read.is_constant() {
                    continue;
                }
                let produced = self.computed[input.index()]
                    && levels[input.index()] == level
                    && is_elementwise(self.graph, read);
                if produced {
                    join(&mut group, input.index(), id.index());
                }
                let other = *reader.entry((input, level)).or_insert(id);
                join(&mut group, other.index(), id.index());
            }
        }
        let mut members: Vec<Vec<NodeId>> = Vec::new();
        let mut open: HashMap<usize, usize> = HashMap::new();
        for &unit in order {
            let nodes = &units.members[unit];
            if nodes.len() > 1 || !is_elementwise(self.graph, self.graph.node(nodes[0])) {
                members.push(nodes.clone());
                continue;
            }
            let root = find(&mut group, nodes[0].index());
            match open.get(&root) {
                Some(&unit) if members[unit].len() < MOST_FUSED => members[unit].push(nodes[0]),
                _ => {
                    open.insert(root, members.len());
                    members.push(vec![nodes[0]]);
                }
            }
        }
        Units::of(self.graph.len(), members)
    }

    /// The bytes of a value of one sample.
    fn bytes(&self, id: NodeId) -> usize {
        let node = self.graph.node(id);
        let count = match node.shape.count() {
            Some(Dim::Fixed(n) | Dim::Batch(n)) => n,
            None => usize::MAX,
        };
        count.saturating_mul(if node.kind == Kind::Bool { 1 } else { 4 })
    }

    /// An order in which every unit comes after those it reads, by the position of its first node in the graph;
    /// if `eager`, units that free at least as much memory as they take go first. None if units wait for each
    /// other.
    fn order(&self, units: &Units, eager: bool) -> Option<Vec<usize>> {
        let count = units.members.len();
        // The values each unit reads, and for each value the units that read it.
        let mut reads: Vec<Vec<NodeId>> = vec![Vec::new(); count];
        let mut readers: HashMap<NodeId, Vec<usize>> = HashMap::new();
        for (unit, members) in units.members.iter().enumerate() {
            let inputs = members.iter().flat_map(|&id| self.inputs(self.graph.node(id)));
            let mut inputs: Vec<NodeId> = inputs.filter(|input| units.unit[input.index()] != unit).collect();
            inputs.sort();
            inputs.dedup();
            inputs.iter().for_each(|&input| readers.entry(input).or_default().push(unit));
            reads[unit] = inputs;
        }
        let mut kept = vec![false; self.graph.len()];
        for output in self.graph.outputs() {
            kept[self.same[output.node.index()].index()] = true;
        }
        let mut unread: HashMap<NodeId, usize> = readers.iter().map(|(&id, r)| (id, r.len())).collect();
        let mut waiting: Vec<usize> = reads.iter().map(Vec::len).collect();
        let frees = |unit: usize, unread: &HashMap<NodeId, usize>| {
            let dying = reads[unit].iter().filter(|id| unread.get(id) == Some(&1) && !kept[id.index()]);
            let taken = units.members[unit].iter().filter(|id| readers.contains_key(id) || kept[id.index()]);
            let sum = |n: usize, id: &NodeId| n.saturating_add(self.bytes(*id));
            taken.fold(0usize, sum) <= dying.fold(0usize, sum)
        };
        let first = |unit: usize| units.members[unit].iter().min().map_or(0, |id| id.index());
        let key = |unit: usize, unread: &HashMap<NodeId, usize>| {
            Reverse((!(eager && frees(unit, unread)), first(unit), unit))
        };
        let mut ready: BinaryHeap<Reverse<(bool, usize, usize)>> = BinaryHeap::new();
        (0..count).filter(|&unit| waiting[unit] == 0).for_each(|unit| ready.push(key(unit, &unread)));
        let mut done = vec![false; count];
        let mut order = Vec::with_capacity(count);
        while let Some(Reverse((_, _, unit))) = ready.pop() {
            if std::mem::replace(&mut done[unit], true) {
                continue;
            }
            order.push(unit);
            for id in &units.members[unit] {
                for &reader in readers.get(id).into_iter().flatten() {
                    waiting[reader] -= 1;
                    if waiting[reader] == 0 {
                        ready.push(key(reader, &unread));
                    }
                }
            }
            for id in &reads[unit] {
                let left = unread.entry(*id).and_modify(|n| *n -= 1).or_insert(0);
                if eager && *left == 1 {
                    let last = readers[id].iter().copied().find(|&reader| !done[reader]);
                    last.into_iter().filter(|&r| waiting[r] == 0).for_each(|r| ready.push(key(r, &unread)));
                }
            }
        }
        (order.len() == count).then_some(order)
    }
}

fn find(group: &mut [usize], mut at: usize) -> usize {
    while group[at] != at {
        group[at] = group[group[at]];
        at = group[at];
    }
    at
}

fn join(group: &mut [usize], a: usize, b: usize) {
    let (a, b) = (find(group, a), find(group, b));
    group[a.max(b)] = a.min(b);
}
