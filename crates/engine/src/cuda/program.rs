//! A graph compiled for a card: kernels written and compiled, what depends on no input computed, and for every batch size
//! it is run at an [`Instance`] with memory and commands of its own.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys::CUmodule;
use monosplit_graph::op::Role;
use monosplit_graph::{Data, Dim, Error, Graph, Kind, NodeId, Op, Result, Tensor};

use super::Math;
use super::command::{Arguments, BLOCK, Command, Launch};
use super::device::{Device, Memory};
use super::elementwise::{AT_ONCE, Reading, Source};
use super::instance::{Instance, Segment};
use super::lanes::{Lanes, Touched};
use super::layout::{self, Walk, repeated};
use super::lowering::lowered;
use super::order::{Order, ordered};
use super::resident::Resident;
use super::translator::{MOST_ELEMENTS, Site, Translator, too_large};
use crate::outline::{Outline, element_bytes};
use crate::plan::{Plan, Step, known, needed};
use crate::schedule::{Choices, Work};
use crate::{Loop, Profile, Program};

/// What kernels are told, in every source.
const PRELUDE: &str = include_str!("prelude.cu");
/// The kernels that are always there.
const KERNELS: &str = include_str!("kernels.cu");

/// What is scheduled on a card: products with magnitudes are as fast with stored ones, and nothing stays in a cache.
const CHOICES: Choices = Choices {
    share: true,
    fuse: true,
    finish: false,
    chain: false,
    reduce: true,
    batch: true,
    streams: false,
    reorder: true,
};
/// Where neighbours must begin that are read at once.
const WIDE: u64 = 16;

/// Elementwise kernels by the node they begin with, and which of the texts each has.
type Sources = HashMap<NodeId, (Source, usize)>;

/// A value that depends on no input.
#[derive(Clone)]
struct Constant {
    memory: Arc<Memory>,
    site: Site,
}

/// A graph compiled for a card.
pub(super) struct CudaProgram {
    pub(super) device: Arc<Device>,
    pub(super) math: Math,
    graph: Graph,
    /// How the axes of every value lie in memory.
    pub(super) orders: Vec<Order>,
    pub(super) outline: Outline,
    pub(super) plan: Plan,
    kernels: CUmodule,
    /// Elementwise kernels, a module for each: most of them other programs have as well.
    written: Vec<CUmodule>,
    sources: Sources,
    constants: HashMap<NodeId, Constant>,
    /// The node that reports an index out of range, counted from 1.
    pub(super) fault: Memory,
    /// Whether samples do not depend on each other, so that a batch may be computed in pieces.
    pub(super) divisible: bool,
    pub(super) instances: Mutex<Vec<(usize, Instance)>>,
    /// The largest batch that fits the card's memory, once that is known.
    pub(super) fits: Mutex<usize>,
}

// SAFETY: modules are handles of the device, which outlives the program and is used by one thread at a time.
unsafe impl Send for CudaProgram {}
// SAFETY: as above.
unsafe impl Sync for CudaProgram {}

impl CudaProgram {
    pub(super) fn compile(graph: &Graph, device: &Arc<Device>, math: Math) -> Result<Self> {
        let (graph, orders) = ordered(lowered(graph)?, math)?;
        let (known, needed) = (known(&graph), needed(&graph));
        let plan = Plan::new(&graph, &known, &needed, CHOICES);
        let outline = Outline::new(&graph, &plan);
        let real = if math == Math::F64 { "double" } else { "float" };
        let head = format!("typedef {real} real;\n{PRELUDE}");
        let derived = derived(&graph, &plan, &outline, &known);
        let (sources, texts) = sources(&graph, &orders, &plan, &derived)?;
        let all = std::iter::once(KERNELS).chain(texts.iter().map(String::as_str));
        let all: Vec<String> = all.map(|text| format!("{head}{text}")).collect();
        let mut written = device.modules(&all)?;
        let kernels = written.remove(0);
        let turn = device.turn()?;
        let fault = Memory::holding(device, &[0i32])?;
        let mut program = CudaProgram {
            device: device.clone(),
            math,
            divisible: is_divisible(&graph),
            graph,
            orders,
            outline,
            plan,
            kernels,
            written,
            sources,
            constants: HashMap::new(),
            fault,
            instances: Mutex::default(),
            fits: Mutex::new(usize::MAX),
        };
        for id in derived {
            program.derive(id)?;
        }
        program.forget_intermediate_constants();
        drop(turn);
        Ok(program)
    }

    fn bytes(&self, kind: Kind) -> usize {
        element_bytes(kind, self.math.bytes())
    }

    pub(super) fn translator(&self) -> Translator<'_> {
        Translator {
            device: &self.device,
            kernels: self.kernels,
            math: self.math,
            fault: self.fault.at,
            commands: Vec::new(),
            tables: Vec::new(),
            scratch: Default::default(),
            counters: Default::default(),
            lane: 0,
        }
    }

    /// Computes a value that depends on no input; those it reads are there.
    fn derive(&mut self, id: NodeId) -> Result<()> {
        let node = self.graph.node(id);
        let shape = node.shape.at(1).ok_or_else(|| self.outline.lost(id))?;
        let constant = match &node.op {
            Op::Constant(tensor) => {
                let memory = match tensor.data() {
                    Data::I64(values) => Memory::holding(&self.device, values)?,
                    Data::Bool(values) => Memory::holding(&self.device, values)?,
                    _ if self.math == Math::F64 => Memory::holding(&self.device, &tensor.to_f64())?,
                    _ => Memory::holding(&self.device, &tensor.to_f32())?,
                };
                let at = memory.at;
                Constant {
                    memory: Arc::new(memory),
                    site: Site { at, shape, kind: node.kind, constant: true, order: Order::Counted },
                }
            }
            Op::Reshape { .. } => {
                let read = self.constant(self.plan.same[node.inputs[0].index()])?;
                let site = Site { shape, order: Order::Counted, ..read.site.clone() };
                Constant { memory: read.memory.clone(), site }
            }
            op => {
                let count: usize = shape.iter().product();
                let memory = Memory::new(&self.device, count * self.bytes(node.kind))?;
                let (at, order) = (memory.at, self.orders[id.index()]);
                let site = Site { at, shape, kind: node.kind, constant: true, order };
                let inputs = self.outline.values[id.index()].inputs.iter();
                let inputs = inputs.map(|&input| Ok(self.constant(input)?.site.clone()));
                let inputs = inputs.collect::<Result<Vec<Site>>>()?;
                let mut translator = self.translator();
                match self.sources.contains_key(&id) {
                    true => {
                        let site_of = |input| Ok(self.constant(input)?.site.clone());
                        self.elementwise(id, &site.shape, &[site.at], &site_of, &mut translator.commands)?;
                    }
                    false => translator.node(op, &inputs, &site, id.index() as i32 + 1)?,
                }
                for command in &translator.commands {
                    command.enqueue(&self.device, 0)?;
                }
                let mut mark = [0i32];
                self.fault.read(0, &mut mark)?;
                self.device.finish()?;
                drop(translator);
                if mark[0] != 0 {
                    return Err(fault(&self.outline, mark[0]));
                }
                Constant { memory: Arc::new(memory), site }
            }
        };
        self.constants.insert(id, constant);
        Ok(())
    }

    fn constant(&self, id: NodeId) -> Result<&Constant> {
        self.constants.get(&id).ok_or_else(|| self.outline.lost(id))
    }

    /// The place of a value that depends on no input.
    pub(super) fn constant_site(&self, id: NodeId) -> Result<Site> {
        Ok(self.constant(id)?.site.clone())
    }

    fn forget_intermediate_constants(&mut self) {
        let steps = self.plan.steps.iter().flat_map(|step| step.work.nodes());
        let read = steps.flat_map(|id| &self.outline.values[id.index()].inputs);
        let kept: BTreeSet<NodeId> = read.chain(&self.outline.outputs).copied().collect();
        self.constants.retain(|id, _| kept.contains(id));
    }

    /// Writes down the elementwise kernel that begins with node `first`, over places of `shape`, into `outputs`.
    pub(super) fn elementwise(
        &self,
        first: NodeId,
        shape: &[usize],
        outputs: &[u64],
        site: &dyn Fn(NodeId) -> Result<Site>,
        commands: &mut Vec<Command>,
    ) -> Result<()> {
        let (source, text) = self.sources.get(&first).ok_or_else(|| self.outline.lost(first))?;
        let count = shape.iter().product::<usize>();
        if count == 0 {
            return Ok(());
        }
        if count > MOST_ELEMENTS {
            return Err(too_large());
        }
        let (order, mut wide) = (self.orders[first.index()], count % AT_ONCE == 0);
        let (mut operands, mut strides) = (Arguments::default(), Vec::new());
        for &(input, reading) in &source.inputs {
            let read = site(input)?;
            operands = operands.with(read.at);
            wide &= reading != Reading::Along || read.at % WIDE == 0;
            if reading == Reading::Broadcast {
                strides.push(order.arranged(&repeated(&read.strides(), &read.shape, shape)));
            }
        }
        for &output in outputs {
            operands = operands.with(output);
            wide &= output % WIDE == 0;
        }
        if !strides.is_empty() {
            let walk = Walk::new(&order.arranged(shape), &strides);
            wide &= walk.shape.last().is_some_and(|last| last % AT_ONCE == 0);
            operands = operands.with(walk.axes()?);
            for position in 0..strides.len() {
                operands = operands.with(walk.along(position));
            }
        }
        let function = self.device.function(self.written[*text], Source::NAME)?;
        let launch = match source.reduced {
            None => {
                let arguments = Arguments::default().with(count as u32).with(u32::from(wide)).and(operands);
                let each = if wide { count / AT_ONCE } else { count };
                Launch::each(function, each, arguments)
            }
            Some(gone) => {
                let table = layout::Reduction::new(0, shape, order, &[gone.axis])?;
                let results = count / (table.count as usize).max(1);
                let (rows, width) = match gone.neighbours {
                    true => (table.sharing(), BLOCK / table.sharing()),
                    false => table.rows(results),
                };
                let head = Arguments::default().with(results as u32).with(rows).with(table);
                Launch::of(function, results.div_ceil(width as usize), width * rows, head.and(operands))
            }
        };
        commands.push(Command::Launch(launch));
        Ok(())
    }

    /// Writes down everything to do at one batch size, step by step, on so many lanes. A value has the shape of its node
    /// and lies at its site.
    pub(super) fn segments(
        &self,
        translator: &mut Translator<'_>,
        lanes: usize,
        shapes: &[Vec<usize>],
        site: &dyn Fn(NodeId) -> Result<Site>,
    ) -> Result<Vec<Segment>> {
        let mut lanes = Lanes::new(lanes);
        let mut segments = Vec::with_capacity(self.plan.steps.len());
        for (position, step) in self.plan.steps.iter().enumerate() {
            let first = translator.commands.len();
            let start = step.work.nodes()[0];
            let turn = lanes.next(self.touched(step, site)?);
            translator.lane = turn.lane;
            self.step(step, &shapes[start.index()], translator, site)
                .map_err(|error| error.at(self.outline.name(start)))?;
            segments.push(Segment { step: position, turn, commands: first..translator.commands.len() });
        }
        Ok(segments)
    }

    /// The memory that a step reads and writes. What depends on no input is never written.
    fn touched(&self, step: &Step, site: &dyn Fn(NodeId) -> Result<Site>) -> Result<Touched> {
        let nodes = step.work.nodes();
        let range = |id: NodeId| {
            let site = site(id)?;
            let bytes = site.count() * self.bytes(site.kind);
            Ok((!site.constant).then(|| site.at..site.at + bytes as u64))
        };
        let inputs = nodes.iter().flat_map(|id| &self.outline.values[id.index()].inputs);
        let outside = inputs.filter(|input| !nodes.contains(input));
        let read = outside.filter_map(|&id| range(id).transpose()).collect::<Result<_>>()?;
        let written = step.outputs.iter().filter_map(|&id| range(id).transpose()).collect::<Result<_>>()?;
        Ok(Touched { read, written })
    }

    fn step(
        &self,
        step: &Step,
        shape: &[usize],
        translator: &mut Translator<'_>,
        site: &dyn Fn(NodeId) -> Result<Site>,
    ) -> Result<()> {
        let nodes = step.work.nodes();
        if step.outputs.is_empty() {
            return Ok(());
        }
        if self.sources.contains_key(&nodes[0]) {
            let places = step.outputs.iter().map(|&id| Ok(site(id)?.at)).collect::<Result<Vec<u64>>>()?;
            return self.elementwise(nodes[0], shape, &places, site, &mut translator.commands);
        }
        let inputs = self.outline.values[nodes[0].index()].inputs.iter();
        let mut inputs = inputs.map(|&input| site(input)).collect::<Result<Vec<Site>>>()?;
        let mut out = site(nodes[0])?;
        if let Work::Batched(nodes) = &step.work {
            // Values that lie side by side are one batch.
            inputs[0].shape[0] *= nodes.len();
            out.shape[0] *= nodes.len();
        }
        translator.node(&self.graph.node(nodes[0]).op, &inputs, &out, nodes[0].index() as i32 + 1)
    }
}

impl Program for CudaProgram {
    fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let batch = self.outline.batch(inputs)?;
        self.run_fitting(batch, inputs)
    }

    fn run_profiled(&self, inputs: &[Tensor]) -> Result<(Vec<Tensor>, Profile)> {
        let batch = self.outline.batch(inputs)?;
        self.device.with_dock(|dock| {
            dock.load(self, inputs, &[])?;
            let _turn = self.device.turn()?;
            self.device.finish()?;
            self.instances.lock().unwrap_or_else(PoisonError::into_inner).clear();
            let mut instance = Instance::new(self, batch)?;
            instance.launch(self, inputs, usize::MAX, dock)?;
            let (leaving, profile) = instance.launch_profiled(self, inputs, dock)?;
            Ok((dock.unload(self, leaving)?, profile))
        })
    }

    fn into_loop(self: Box<Self>, state: Vec<Tensor>) -> Result<Box<dyn Loop>> {
        Ok(Box::new(Resident::new(*self, state)?))
    }
}

/// The known values that steps and outputs read, and what those are computed from, in order.
fn derived(graph: &Graph, plan: &Plan, outline: &Outline, known: &[bool]) -> Vec<NodeId> {
    let steps = plan.steps.iter().flat_map(|step| step.work.nodes());
    let read = steps.flat_map(|id| &outline.values[id.index()].inputs);
    let mut wanted: BTreeSet<NodeId> =
        read.chain(&outline.outputs).copied().filter(|id| known[id.index()]).collect();
    for (id, _) in graph.nodes().rev() {
        if wanted.contains(&id) {
            wanted.extend(&outline.values[id.index()].inputs);
        }
    }
    wanted.into_iter().collect()
}

fn is_elementwise(op: &Op) -> bool {
    op.role() == Role::Elementwise
}

/// The elementwise kernels of a program by the node they begin with, and the text of all, each once.
fn sources(
    graph: &Graph,
    orders: &[Order],
    plan: &Plan,
    derived: &[NodeId],
) -> Result<(Sources, Vec<String>)> {
    let mut wanted: Vec<(Vec<NodeId>, Vec<NodeId>)> = Vec::new();
    for step in &plan.steps {
        let nodes = step.work.nodes();
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
            None => Source::new(graph, &plan.same, &nodes, &outputs)?,
            Some(inner) => {
                let neighbours = match &graph.node(nodes[inner]).op {
                    Op::Reduce { axes, .. } => layout::are_neighbours(orders[nodes[0].index()], axes),
                    _ => false,
                };
                Source::reduced(graph, &plan.same, &nodes[..inner], &outputs, neighbours)?
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

/// Whether every value that depends on a sample is of that sample alone, as far as shapes tell: the first axis of all that
/// depends on the batch is the batch.
fn is_divisible(graph: &Graph) -> bool {
    let mut depends = vec![false; graph.len()];
    for (id, node) in graph.nodes() {
        let first = matches!(node.shape.dims().first(), Some(Dim::Batch(_)));
        let elsewhere = node.shape.dims().iter().skip(1).any(|dim| matches!(dim, Dim::Batch(_)));
        depends[id.index()] =
            node.inputs.iter().any(|input| depends[input.index()]) || node.shape.is_batched();
        // Joined or picked along the first axis, samples of a piece would not be those of the whole.
        let mixed = match node.op {
            Op::Concat { axis: 0 } => node.shape.is_batched(),
            Op::Gather { axis: 0 } => depends[node.inputs[0].index()],
            _ => false,
        };
        if elsewhere || mixed || (depends[id.index()] && !first) {
            return false;
        }
    }
    true
}

/// What can go wrong in a kernel.
pub(super) fn fault(outline: &Outline, mark: i32) -> Error {
    let name = (mark as usize).checked_sub(1).and_then(|index| outline.values.get(index));
    Error::argument("an index is out of range").at(name.map_or("a gather", |value| &value.name))
}

#[cfg(test)]
mod tests {
    use monosplit_graph::op::Reduction;
    use monosplit_graph::{Op, Shape};

    use super::*;

    #[test]
    fn a_batch_is_divided_only_where_samples_keep_to_themselves() {
        let divisible = |write: fn(&mut Graph, NodeId) -> Result<NodeId>| {
            let mut graph = Graph::new();
            let x = graph.input("x", Shape::batched(&[3, 4]), Kind::Float);
            let y = write(&mut graph, x).unwrap();
            graph.output("y", y);
            is_divisible(&graph)
        };
        assert!(divisible(|g, x| g.reduced(Reduction::Mean, x, &[1], true)));
        assert!(divisible(|g, x| g.reshaped(x, Shape::batched(&[12]))));
        assert!(!divisible(|g, x| g.reduced(Reduction::Mean, x, &[0], false)));
        assert!(!divisible(|g, x| g.add(Op::Concat { axis: 0 }, &[x, x])));
        assert!(!divisible(|g, x| g.add(Op::Transpose { axes: vec![1, 0, 2] }, &[x])));
        assert!(!divisible(|g, x| {
            let index = g.add(Op::ArgMax { axis: 1, keep: false }, &[x])?;
            let index = g.add(Op::Slice { axis: 1, start: 0, step: 1, length: 1 }, &[index])?;
            g.add(Op::Gather { axis: 0 }, &[x, index])
        }));
    }
}
