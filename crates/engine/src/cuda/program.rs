//! A graph compiled for a GPU: kernels are generated and compiled, constants are computed, and every batch size gets an
//! [`Instance`] with memory and commands of its own.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys::CUmodule;
use monosplit_graph::{Data, Error, Graph, Kind, NodeId, Op, Result, Tensor};

use super::Math;
use super::buffer::DeviceBuffer;
use super::command::{Arguments, BLOCK, Command, Launch};
use super::device::Device;
use super::elementwise::{KernelSource, OperandAccess, VECTOR_WIDTH};
use super::generated_kernels::{Sources, sources};
use super::instance::{Instance, StepCommands};
use super::kernel_parameters::{self, CoalescedAxes, repeated};
use super::lowering::lowered;
use super::memory_format::{MemoryFormat, with_memory_formats};
use super::resident::ResidentLoop;
use super::streams::{MemoryAccess, StreamScheduler};
use super::transfer::bool_bytes;
use super::translator::{DeviceTensor, MAX_ELEMENTS, Translator, too_large};
use crate::footprint::HeldConstants;
use crate::graph_info::{GraphInfo, element_bytes};
use crate::plan::{Plan, Step, known};
use crate::schedule::{Optimisations, Partition};
use crate::split_batch::is_splittable;
use crate::{Profile, Program, StatefulProgram};

/// Definitions that every kernel source begins with.
const PRELUDE: &str = include_str!("prelude.cu");
/// The kernels that every program has.
const KERNELS: &str = include_str!("kernels.cu");

/// What the scheduler may do for a GPU. Products with absolute weights are as fast with stored ones, and intermediate values
/// do not stay in a cache.
const OPTIMISATIONS: Optimisations = Optimisations {
    common_subexpressions: true,
    fuse_elementwise: true,
    fuse_epilogues: false,
    fuse_depthwise: false,
    fuse_reductions: true,
    batch_shared_weights: true,
    stream_products: false,
    reorder: true,
};
/// Alignment in bytes that vector loads need.
const VECTOR_ALIGNMENT: u64 = 16;

/// A value that depends on no input.
#[derive(Clone)]
struct Constant {
    memory: Arc<DeviceBuffer>,
    tensor: DeviceTensor,
}

/// A graph compiled for a GPU.
pub(super) struct CudaProgram {
    pub(super) device: Arc<Device>,
    pub(super) math: Math,
    graph: Graph,
    /// The memory format of every value.
    pub(super) formats: Vec<MemoryFormat>,
    pub(super) info: GraphInfo,
    pub(super) plan: Plan,
    kernels: CUmodule,
    /// Elementwise kernels, one module each, because other programs share most of them.
    generated: Vec<CUmodule>,
    sources: Sources,
    constants: HashMap<NodeId, Constant>,
    /// What they take.
    pub(super) held: HeldConstants,
    /// The node that reported an index out of range, counted from 1; 0 if none did.
    pub(super) fault: DeviceBuffer,
    /// Whether samples do not depend on each other, so that a batch may be computed in chunks.
    pub(super) splittable: bool,
    pub(super) instances: Mutex<Vec<(usize, Instance)>>,
    /// The largest batch that fits the GPU's memory, once that is known.
    pub(super) fits: Mutex<usize>,
}

// SAFETY: modules are handles of the device. The device outlives the program, and one thread at a time uses it.
unsafe impl Send for CudaProgram {}
// SAFETY: as above.
unsafe impl Sync for CudaProgram {}

impl CudaProgram {
    pub(super) fn compile(graph: &Graph, device: &Arc<Device>, math: Math) -> Result<Self> {
        let (graph, formats) = with_memory_formats(lowered(graph)?, math)?;
        let (known, needed) = (known(&graph), graph.live());
        let plan = Plan::new(&graph, &known, &needed, OPTIMISATIONS);
        let info = GraphInfo::new(&graph, &plan);
        let real = if math == Math::F64 { "double" } else { "float" };
        let head = format!("typedef {real} real;\n{PRELUDE}");
        let derived = derived(&graph, &plan, &info, &known);
        let (sources, texts) = sources(&graph, &formats, &plan, &derived)?;
        let all = std::iter::once(KERNELS).chain(texts.iter().map(String::as_str));
        let all: Vec<String> = all.map(|text| format!("{head}{text}")).collect();
        let mut generated = device.modules(&all)?;
        let kernels = generated.remove(0);
        let lock = device.lock()?;
        let fault = DeviceBuffer::from_slice(device, &[0i32])?;
        let mut program = CudaProgram {
            device: device.clone(),
            math,
            splittable: is_splittable(&graph),
            graph,
            formats,
            info,
            plan,
            kernels,
            generated,
            sources,
            constants: HashMap::new(),
            held: HeldConstants::default(),
            fault,
            instances: Mutex::default(),
            fits: Mutex::new(usize::MAX),
        };
        for id in derived {
            program.compute_constant(id).map_err(|error| error.at(program.info.name(id)))?;
        }
        program.free_intermediate_constants();
        drop(lock);
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
            stream: 0,
        }
    }

    /// Computes a value that depends on no input. The values it reads were computed before.
    fn compute_constant(&mut self, id: NodeId) -> Result<()> {
        let node = self.graph.node(id);
        let shape = node.shape.at(1).ok_or_else(|| self.info.unavailable(id))?;
        let constant = match &node.op {
            Op::Constant(tensor) => {
                let memory = match tensor.data() {
                    Data::I64(values) => DeviceBuffer::from_slice(&self.device, values)?,
                    Data::Bool(values) => DeviceBuffer::from_slice(&self.device, bool_bytes(values))?,
                    _ if self.math == Math::F64 => DeviceBuffer::from_slice(&self.device, &tensor.to_f64())?,
                    _ => DeviceBuffer::from_slice(&self.device, &tensor.to_f32())?,
                };
                let at = memory.at;
                Constant {
                    memory: Arc::new(memory),
                    tensor: DeviceTensor {
                        at,
                        shape,
                        kind: node.kind,
                        constant: true,
                        format: MemoryFormat::Contiguous,
                    },
                }
            }
            Op::Reshape { .. } => {
                let read = self.constant(self.plan.representative[node.inputs[0].index()])?;
                let tensor = DeviceTensor { shape, format: MemoryFormat::Contiguous, ..read.tensor.clone() };
                Constant { memory: read.memory.clone(), tensor }
            }
            op => {
                let count: usize = shape.iter().product();
                let memory = DeviceBuffer::new(&self.device, count * self.bytes(node.kind))?;
                let (at, format) = (memory.at, self.formats[id.index()]);
                let tensor = DeviceTensor { at, shape, kind: node.kind, constant: true, format };
                let inputs = self.info.values[id.index()].inputs.iter();
                let inputs = inputs.map(|&input| Ok(self.constant(input)?.tensor.clone()));
                let inputs = inputs.collect::<Result<Vec<DeviceTensor>>>()?;
                let mut translator = self.translator();
                match self.sources.contains_key(&id) {
                    true => {
                        let tensor_of = |input| Ok(self.constant(input)?.tensor.clone());
                        self.elementwise(
                            id,
                            &tensor.shape,
                            &[tensor.at],
                            &tensor_of,
                            &mut translator.commands,
                        )?;
                    }
                    false => translator.node(op, &inputs, &tensor, id.index() as i32 + 1)?,
                }
                for command in &translator.commands {
                    command.enqueue(&self.device, 0)?;
                }
                let mut mark = [0i32];
                self.fault.read(0, &mut mark)?;
                self.device.synchronize()?;
                drop(translator);
                if mark[0] != 0 {
                    return Err(fault(&self.info, mark[0]));
                }
                Constant { memory: Arc::new(memory), tensor }
            }
        };
        self.constants.insert(id, constant);
        Ok(())
    }

    fn constant(&self, id: NodeId) -> Result<&Constant> {
        self.constants.get(&id).ok_or_else(|| self.info.unavailable(id))
    }

    /// The device tensor of a value that depends on no input.
    pub(super) fn constant_tensor(&self, id: NodeId) -> Result<DeviceTensor> {
        Ok(self.constant(id)?.tensor.clone())
    }

    fn free_intermediate_constants(&mut self) {
        let steps = self.plan.steps.iter().flat_map(|step| step.partition.nodes());
        let read = steps.flat_map(|id| &self.info.values[id.index()].inputs);
        let kept: BTreeSet<NodeId> = read.chain(&self.info.outputs).copied().collect();
        self.constants.retain(|id, _| kept.contains(id));
        let mut counted = BTreeSet::new();
        for (&id, constant) in &self.constants {
            if counted.insert(constant.memory.at) {
                self.held.add(&self.graph, id, self.bytes(constant.tensor.kind), 1);
            }
        }
    }

    /// Adds the launch of the elementwise kernel whose first node is `first`, over the elements of `shape`, into `outputs`.
    pub(super) fn elementwise(
        &self,
        first: NodeId,
        shape: &[usize],
        outputs: &[u64],
        tensor: &dyn Fn(NodeId) -> Result<DeviceTensor>,
        commands: &mut Vec<Command>,
    ) -> Result<()> {
        let (source, text) = self.sources.get(&first).ok_or_else(|| self.info.unavailable(first))?;
        let count = shape.iter().product::<usize>();
        if count == 0 {
            return Ok(());
        }
        if count > MAX_ELEMENTS {
            return Err(too_large());
        }
        let (format, mut wide) = (self.formats[first.index()], count % VECTOR_WIDTH == 0);
        let (mut operands, mut strides) = (Arguments::default(), Vec::new());
        for &(input, access) in &source.inputs {
            let read = tensor(input)?;
            operands = operands.with(read.at);
            wide &= access != OperandAccess::Contiguous || read.at % VECTOR_ALIGNMENT == 0;
            if access == OperandAccess::Broadcast {
                strides.push(format.permuted(&repeated(&read.strides(), &read.shape, shape)));
            }
        }
        for &output in outputs {
            operands = operands.with(output);
            wide &= output % VECTOR_ALIGNMENT == 0;
        }
        if !strides.is_empty() {
            let coalesced = CoalescedAxes::new(&format.permuted(shape), &strides);
            wide &= coalesced.shape.last().is_some_and(|last| last % VECTOR_WIDTH == 0);
            operands = operands.with(coalesced.axes()?);
            for position in 0..strides.len() {
                operands = operands.with(coalesced.along(position));
            }
        }
        let function = self.device.function(self.generated[*text], KernelSource::NAME)?;
        let launch = match source.reduced {
            None => {
                let arguments = Arguments::default().with(count as u32).with(u32::from(wide)).and(operands);
                let each = if wide { count / VECTOR_WIDTH } else { count };
                Launch::each(function, each, arguments)
            }
            Some(reduced) => {
                let table = kernel_parameters::Reduction::new(0, shape, format, &[reduced.axis])?;
                let results = count / (table.count as usize).max(1);
                let (rows, width) = match reduced.adjacent {
                    true => (table.threads_per_result(), BLOCK / table.threads_per_result()),
                    false => table.rows(results),
                };
                let head = Arguments::default().with(results as u32).with(rows).with(table);
                Launch::of(function, results.div_ceil(width as usize), width * rows, head.and(operands))
            }
        };
        commands.push(Command::Launch(launch));
        Ok(())
    }

    /// Builds the commands of all steps at one batch size, for a number of streams. `shapes` are those of all nodes, `tensor`
    /// returns the device tensor of a value.
    pub(super) fn step_commands(
        &self,
        translator: &mut Translator<'_>,
        streams: usize,
        shapes: &[Vec<usize>],
        tensor: &dyn Fn(NodeId) -> Result<DeviceTensor>,
    ) -> Result<Vec<StepCommands>> {
        let mut scheduler = StreamScheduler::new(streams);
        let mut all = Vec::with_capacity(self.plan.steps.len());
        for (position, step) in self.plan.steps.iter().enumerate() {
            let first = translator.commands.len();
            let start = step.partition.nodes()[0];
            let assignment = scheduler.assign(self.memory_access(step, tensor)?);
            translator.stream = assignment.stream;
            self.step(step, &shapes[start.index()], translator, tensor)
                .map_err(|error| error.at(self.info.name(start)))?;
            let commands = first..translator.commands.len();
            all.push(StepCommands { step: position, assignment, commands });
        }
        Ok(all)
    }

    /// The memory that a step reads and writes, without constants, which are never written.
    fn memory_access(
        &self,
        step: &Step,
        tensor: &dyn Fn(NodeId) -> Result<DeviceTensor>,
    ) -> Result<MemoryAccess> {
        let nodes = step.partition.nodes();
        let range = |id: NodeId| {
            let tensor = tensor(id)?;
            let bytes = tensor.count() * self.bytes(tensor.kind);
            Ok((!tensor.constant).then(|| tensor.at..tensor.at + bytes as u64))
        };
        let inputs = nodes.iter().flat_map(|id| &self.info.values[id.index()].inputs);
        let outside = inputs.filter(|input| !nodes.contains(input));
        let read = outside.filter_map(|&id| range(id).transpose()).collect::<Result<_>>()?;
        let written = step.outputs.iter().filter_map(|&id| range(id).transpose()).collect::<Result<_>>()?;
        Ok(MemoryAccess { read, written })
    }

    fn step(
        &self,
        step: &Step,
        shape: &[usize],
        translator: &mut Translator<'_>,
        tensor: &dyn Fn(NodeId) -> Result<DeviceTensor>,
    ) -> Result<()> {
        let nodes = step.partition.nodes();
        if step.outputs.is_empty() {
            return Ok(());
        }
        if self.sources.contains_key(&nodes[0]) {
            let places = step.outputs.iter().map(|&id| Ok(tensor(id)?.at)).collect::<Result<Vec<u64>>>()?;
            return self.elementwise(nodes[0], shape, &places, tensor, &mut translator.commands);
        }
        let inputs = self.info.values[nodes[0].index()].inputs.iter();
        let mut inputs = inputs.map(|&input| tensor(input)).collect::<Result<Vec<DeviceTensor>>>()?;
        let mut out = tensor(nodes[0])?;
        if let Partition::Batched(nodes) = &step.partition {
            // Values that are adjacent in memory are one batch.
            inputs[0].shape[0] *= nodes.len();
            out.shape[0] *= nodes.len();
        }
        translator.node(&self.graph.node(nodes[0]).op, &inputs, &out, nodes[0].index() as i32 + 1)
    }
}

impl Program for CudaProgram {
    fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let batch = self.info.batch(inputs)?;
        self.run_fitting(batch, inputs)
    }

    fn run_profiled(&self, inputs: &[Tensor]) -> Result<(Vec<Tensor>, Profile)> {
        let batch = self.info.batch(inputs)?;
        self.device.with_staging(|staging| {
            staging.upload(self, inputs, &[])?;
            let _lock = self.device.lock()?;
            self.device.synchronize()?;
            self.instances.lock().unwrap_or_else(PoisonError::into_inner).clear();
            let mut instance = Instance::new(self, batch)?;
            instance.launch(self, inputs, usize::MAX, staging)?;
            let (pending, profile) = instance.launch_profiled(self, inputs, staging)?;
            Ok((staging.download(self, pending)?, profile))
        })
    }

    fn into_stateful(self: Box<Self>, state: Vec<Tensor>) -> Result<Box<dyn StatefulProgram>> {
        Ok(Box::new(ResidentLoop::new(*self, state)?))
    }
}

/// The constants that steps and outputs read, and the constants those are computed from, in topological order.
fn derived(graph: &Graph, plan: &Plan, info: &GraphInfo, known: &[bool]) -> Vec<NodeId> {
    let steps = plan.steps.iter().flat_map(|step| step.partition.nodes());
    let read = steps.flat_map(|id| &info.values[id.index()].inputs);
    let mut wanted: BTreeSet<NodeId> =
        read.chain(&info.outputs).copied().filter(|id| known[id.index()]).collect();
    for (id, _) in graph.nodes().rev() {
        if wanted.contains(&id) {
            wanted.extend(&info.values[id.index()].inputs);
        }
    }
    wanted.into_iter().collect()
}

/// The error for a fault mark: an index out of range.
pub(super) fn fault(info: &GraphInfo, mark: i32) -> Error {
    let name = (mark as usize).checked_sub(1).and_then(|index| info.values.get(index));
    Error::argument("an index is out of range").at(name.map_or("a gather", |value| &value.name))
}
