//! A program at one batch size: memory laid out and commands built. From the second run on the commands are one CUDA graph,
//! which is launched with one call.

use std::ops::Range;
use std::time::Duration;

use cudarc::driver::{result as driver, sys};
use monosplit_graph::{Error, Kind, NodeId, Result, Tensor};

use super::Math;
use super::buffer::DeviceBuffer;
use super::command::Command;
use super::device::{Device, DriverResult, STREAMS};
use super::event::Event;
use super::program::CudaProgram;
use super::staging::{OutputValue, PendingOutputs, StagingBuffers, converted, tensor_bytes};
use super::streams::StreamAssignment;
use super::translator::DeviceTensor;
use crate::footprint::Footprint;
use crate::graph_info::element_bytes;
use crate::memory_budget::limit_on_card;
use crate::plan::BufferLocation;
use crate::{NodeTime, Precision, Profile};

/// Alignment in bytes of every value.
const ALIGNMENT: usize = 256;

/// The commands of one step of the plan.
pub(super) struct StepCommands {
    pub(super) step: usize,
    pub(super) assignment: StreamAssignment,
    pub(super) commands: Range<usize>,
}

/// Commands captured by the driver, ready to be launched as one.
struct CudaGraph {
    graph: sys::CUgraph,
    executable: sys::CUgraphExec,
}

/// A program at one batch size.
pub(super) struct Instance {
    shapes: Vec<Vec<usize>>,
    /// Offset of every input.
    inputs: Vec<usize>,
    /// The last value of each input that is shared by all samples. If it is given again, it need not be uploaded.
    resident: Vec<Option<Tensor>>,
    keeps_inputs: bool,
    /// Offset of every buffer.
    buffers: Vec<usize>,
    arena: DeviceBuffer,
    commands: Vec<Command>,
    steps: Vec<StepCommands>,
    /// For every step that steps of other streams wait for, the event that it is done.
    done: Vec<Option<Event>>,
    /// Recorded on the main stream before all others begin; and on each of the others when it has ended.
    begun: Event,
    ended: Vec<Event>,
    /// Copies that are enqueued when all streams have ended.
    last: Vec<Command>,
    /// Tables and scratch memory that the commands use.
    _auxiliary: Vec<DeviceBuffer>,
    runs: usize,
    cuda_graph: Option<CudaGraph>,
}

// SAFETY: a CUDA graph is a handle of the device, used by the thread that has locked the device.
unsafe impl Send for Instance {}

fn count(shape: &[usize]) -> usize {
    shape.iter().product()
}

impl Instance {
    /// Lays out memory and builds the commands. The caller has locked the device.
    pub(super) fn new(program: &CudaProgram, batch: usize) -> Result<Self> {
        let (plan, info, real) = (&program.plan, &program.info, program.math.bytes());
        let shapes = info.shapes(plan, batch)?;
        let held = program.device.memory.held();
        let limit = limit_on_card(program.device.free_memory()?, held);
        let others = held.saturating_sub(program.held.bytes);
        let buffers = Footprint::buffers(info, plan, &shapes, real, &program.held);
        if buffers.bytes.saturating_add(others) > limit {
            return Err(buffers.refused(info, limit, others));
        }
        let mut end = 0usize;
        let mut place = |bytes: usize| {
            let start = end;
            end = start.saturating_add(bytes).next_multiple_of(ALIGNMENT);
            start
        };
        let size = |id: NodeId, kind: Kind| count(&shapes[id.index()]) * element_bytes(kind, real);
        let inputs: Vec<usize> =
            info.inputs.iter().map(|&id| place(size(id, info.values[id.index()].kind))).collect();
        let buffers: Vec<usize> = plan
            .buffers
            .iter()
            .map(|buffer| {
                let held = buffer.values.iter().map(|&(id, parts)| size(id, buffer.kind) * parts);
                place(held.max().unwrap_or(0))
            })
            .collect();
        // Every stream needs scratch memory of its own. A large batch uses one stream to save it.
        let streams = if end > program.device.free_memory()? / 8 { 1 } else { STREAMS };
        let arena = DeviceBuffer::new(&program.device, end)?;
        let mut instance = Instance {
            shapes,
            resident: vec![None; inputs.len()],
            keeps_inputs: true,
            inputs,
            buffers,
            arena,
            commands: Vec::new(),
            steps: Vec::new(),
            done: Vec::new(),
            begun: Event::new()?,
            ended: Vec::new(),
            last: Vec::new(),
            _auxiliary: Vec::new(),
            runs: 0,
            cuda_graph: None,
        };
        let mut translator = program.translator();
        let tensor = |id| instance.tensor(program, id);
        let steps = program.step_commands(&mut translator, streams, &instance.shapes, &tensor)?;
        instance.commands = std::mem::take(&mut translator.commands);
        instance._auxiliary = std::mem::take(&mut translator.tables);
        translator.scratch.iter_mut().for_each(|scratch| instance._auxiliary.append(scratch));
        instance._auxiliary.extend(translator.counters.iter_mut().filter_map(Option::take));
        let used = steps.iter().map(|step| step.assignment.stream).max().unwrap_or(0);
        instance.ended = (0..used).map(|_| Event::new()).collect::<Result<Vec<Event>>>()?;
        instance.done.resize_with(steps.len(), || None);
        for &step in steps.iter().flat_map(|step| &step.assignment.after) {
            if instance.done[step].is_none() {
                instance.done[step] = Some(Event::new()?);
            }
        }
        instance.steps = steps;
        Ok(instance)
    }

    /// The device tensor of a value.
    fn tensor(&self, program: &CudaProgram, id: NodeId) -> Result<DeviceTensor> {
        let value = &program.info.values[id.index()];
        let shape = self.shapes[id.index()].clone();
        let real = program.math.bytes();
        let offset = match program.plan.locations[id.index()] {
            BufferLocation::Constant(known) => {
                return Ok(DeviceTensor { shape, ..program.constant_tensor(known)? });
            }
            BufferLocation::Input(position) => {
                *self.inputs.get(position).ok_or_else(|| program.info.unavailable(id))?
            }
            BufferLocation::Buffer { buffer, part } => {
                self.buffers[buffer] + part * count(&shape) * element_bytes(value.kind, real)
            }
            BufferLocation::NotStored => return Err(program.info.unavailable(id)),
        };
        let at = self.arena.at + offset as u64;
        Ok(DeviceTensor { at, shape, kind: value.kind, constant: false, format: program.formats[id.index()] })
    }

    /// For each of these inputs, whether it is on the device since an earlier run.
    pub(super) fn resident(&self, inputs: &[Tensor]) -> Vec<bool> {
        let same = |(old, new): (&Option<Tensor>, &Tensor)| old.as_ref().is_some_and(|old| old.is(new));
        self.resident.iter().zip(inputs).map(same).collect()
    }

    /// Uploads inputs from `first` on, without staging buffers. The caller has locked the device.
    pub(super) fn write(&mut self, program: &CudaProgram, first: usize, inputs: &[Tensor]) -> Result<()> {
        for (position, tensor) in (first..).zip(inputs) {
            let sent = converted(tensor, program.math, tensor.shape())?;
            self.arena.write(self.inputs[position], tensor_bytes(&sent))?;
            program.device.synchronize()?;
        }
        Ok(())
    }

    /// Copies inputs from the staging buffer to the arena.
    fn take_inputs(
        &mut self,
        program: &CudaProgram,
        inputs: &[Tensor],
        staging: &StagingBuffers,
    ) -> Result<()> {
        staging.wait_for_upload(&program.device)?;
        for (position, tensor) in inputs.iter().enumerate() {
            let id = program.info.inputs[position];
            let batched = program.info.values[id.index()].shape.is_batched();
            match staging.uploaded(position) {
                Some(from) => {
                    let bytes = tensor.len() * element_bytes(tensor.kind(), program.math.bytes());
                    let to = self.arena.at + self.inputs[position] as u64;
                    copied(from, to, bytes).try_for_each(|copy| copy.enqueue(&program.device, 0))?;
                }
                None if program.plan.locations[id.index()] == BufferLocation::NotStored => continue,
                None if self.resident[position].as_ref().is_some_and(|old| old.is(tensor)) => continue,
                // It was resident when it was not uploaded, and another thread has replaced it since.
                None => self.write(program, position, std::slice::from_ref(tensor))?,
            }
            self.resident[position] = (self.keeps_inputs && !batched).then(|| tensor.clone());
        }
        Ok(())
    }

    /// Copies the first `wanted` outputs to the staging buffer.
    fn stage_outputs(
        &self,
        program: &CudaProgram,
        inputs: &[Tensor],
        wanted: usize,
        staging: &mut StagingBuffers,
    ) -> Result<PendingOutputs> {
        let (mut values, mut copies, mut end) = (Vec::new(), Vec::new(), ALIGNMENT);
        for &id in program.info.outputs.iter().take(wanted) {
            if let BufferLocation::Input(position) = program.plan.locations[id.index()]
                && let Some(input) = inputs.get(position)
            {
                values.push(OutputValue::Input(converted(input, program.math, &self.shapes[id.index()])?));
                continue;
            }
            let tensor = self.tensor(program, id)?;
            let bytes = tensor.count() * element_bytes(tensor.kind, program.math.bytes());
            copies.push((tensor.at, end, bytes));
            values.push(OutputValue::Staged { offset: end, shape: tensor.shape, kind: tensor.kind });
            end = (end + bytes).next_multiple_of(ALIGNMENT);
        }
        let (device, to) = (&program.device, staging.reserve_outputs(end)?);
        let fault = Command::Copy { from: program.fault.at, to, bytes: size_of::<i32>() };
        fault.enqueue(device, 0)?;
        Command::Clear { at: program.fault.at, bytes: size_of::<i32>() }.enqueue(device, 0)?;
        for (from, offset, bytes) in copies {
            copied(from, to + offset as u64, bytes).try_for_each(|copy| copy.enqueue(device, 0))?;
        }
        let staged = Event::new()?;
        staged.record(device.main_stream)?;
        Ok(PendingOutputs { bytes: end, values, staged })
    }

    /// Enqueues all commands. The first run enqueues them one by one, because libraries load code then, which cannot be
    /// captured. Later runs launch the captured CUDA graph.
    pub(super) fn compute(&mut self, device: &Device) -> Result<()> {
        if self.runs == 1 {
            self.cuda_graph = self.capture(device).ok();
        }
        self.runs += 1;
        match &self.cuda_graph {
            // SAFETY: the CUDA graph holds this instance's commands, whose memory lives as long as the instance.
            Some(cuda_graph) => unsafe { driver::graph::launch(cuda_graph.executable, device.main_stream) }
                .or_failed_to("launch a CUDA graph"),
            None => self.enqueue(device),
        }
    }

    /// Enqueues all commands one by one. The main stream begins before all others and ends after them.
    fn enqueue(&self, device: &Device) -> Result<()> {
        self.begun.record(device.main_stream)?;
        (1..=self.ended.len()).try_for_each(|stream| self.begun.block(device.stream(stream)))?;
        for (step, done) in self.steps.iter().zip(&self.done) {
            let StreamAssignment { stream, after } = &step.assignment;
            let waited = after.iter().filter_map(|&step| self.done[step].as_ref());
            waited.into_iter().try_for_each(|event| event.block(device.stream(*stream)))?;
            self.commands[step.commands.clone()].iter().try_for_each(|c| c.enqueue(device, *stream))?;
            done.iter().try_for_each(|event| event.record(device.stream(*stream)))?;
        }
        for (stream, event) in (1..).zip(&self.ended) {
            event.record(device.stream(stream))?;
            event.block(device.main_stream)?;
        }
        self.last.iter().try_for_each(|command| command.enqueue(device, 0))
    }

    fn capture(&self, device: &Device) -> Result<CudaGraph> {
        // SAFETY: the caller has locked the device, so that nothing else is enqueued, and the capture is ended on every path.
        unsafe {
            driver::stream::begin_capture(
                device.main_stream,
                sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
            )
            .or_failed_to("capture a CUDA graph")?;
            let enqueued = self.enqueue(device);
            let graph =
                driver::stream::end_capture(device.main_stream).or_failed_to("capture a CUDA graph")?;
            if let Err(error) = enqueued {
                let _ = driver::graph::destroy(graph);
                return Err(error);
            }
            let executable = driver::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0));
            match executable.or_failed_to("instantiate a CUDA graph") {
                Ok(executable) => Ok(CudaGraph { graph, executable }),
                Err(error) => {
                    let _ = driver::graph::destroy(graph);
                    Err(error)
                }
            }
        }
    }

    /// Copies the last `count` outputs to the last inputs at the end of every run.
    pub(super) fn feed_back(&mut self, program: &CudaProgram, count: usize) -> Result<()> {
        self.keeps_inputs = false;
        let (inputs, outputs) = (&program.info.inputs, &program.info.outputs);
        let pairs = inputs.iter().rev().zip(outputs.iter().rev()).take(count);
        for (&input, &output) in pairs {
            let (to, from) = (self.tensor(program, input)?, self.tensor(program, output)?);
            let crossed = matches!(program.plan.locations[output.index()], BufferLocation::Input(_))
                && from.at != to.at;
            if from.shape != to.shape || from.kind != to.kind || crossed {
                return Err(Error::argument(
                    "an output that is fed back must be computed, and have the shape of the input",
                )
                .at(program.info.name(input)));
            }
            let bytes = from.count() * element_bytes(from.kind, program.math.bytes());
            if from.at != to.at && bytes > 0 {
                self.last.push(Command::Copy { from: from.at, to: to.at, bytes });
            }
        }
        Ok(())
    }

    /// Downloads the inputs from `first` on.
    pub(super) fn inputs_from(&self, program: &CudaProgram, first: usize) -> Result<Vec<Tensor>> {
        let inputs = program.info.inputs.iter().zip(&self.inputs).skip(first);
        let values =
            inputs.map(|(&id, &offset)| read(&self.arena, offset, &self.tensor(program, id)?, program.math));
        let values = values.collect::<Result<Vec<Tensor>>>()?;
        program.device.synchronize()?;
        Ok(values)
    }

    /// Enqueues a run on the uploaded inputs. Its first `wanted` outputs go to the staging buffer. The caller has locked the
    /// device; the call does not wait for the run.
    pub(super) fn launch(
        &mut self,
        program: &CudaProgram,
        inputs: &[Tensor],
        wanted: usize,
        staging: &mut StagingBuffers,
    ) -> Result<PendingOutputs> {
        self.take_inputs(program, inputs, staging)?;
        staging.record_start(&program.device)?;
        self.compute(&program.device)?;
        staging.record_finish(&program.device)?;
        self.stage_outputs(program, inputs, wanted, staging)
    }

    /// The same, step by step, with the time of each.
    pub(super) fn launch_profiled(
        &mut self,
        program: &CudaProgram,
        inputs: &[Tensor],
        staging: &mut StagingBuffers,
    ) -> Result<(PendingOutputs, Profile)> {
        self.take_inputs(program, inputs, staging)?;
        let device = &program.device;
        let (begin, end) = (Event::timing()?, Event::timing()?);
        let mut profile = Profile::default();
        for step in &self.steps {
            begin.record(device.main_stream)?;
            self.commands[step.commands.clone()].iter().try_for_each(|c| c.enqueue(device, 0))?;
            end.record(device.main_stream)?;
            end.synchronize()?;
            profile.nodes.push(self.timed(program, step, begin.milliseconds_until(&end)));
        }
        Ok((self.stage_outputs(program, inputs, usize::MAX, staging)?, profile))
    }

    fn timed(&self, program: &CudaProgram, step: &StepCommands, milliseconds: f64) -> NodeTime {
        let nodes = program.plan.steps[step.step].partition.nodes();
        let value = &program.info.values[nodes[0].index()];
        let operations = nodes.iter().map(|id| {
            let value = &program.info.values[id.index()];
            let inputs = value.inputs.first().map_or(0, |input| count(&self.shapes[input.index()]));
            2 * value.multiply_adds.total(count(&self.shapes[id.index()]), inputs) as u64
        });
        let commands = &self.commands[step.commands.clone()];
        let heavy = commands.iter().find(|c| !matches!(c, Command::Launch(_))).or(commands.first());
        NodeTime {
            node: nodes[0],
            others: nodes[1..].to_vec(),
            name: value.name.clone(),
            op: value.op,
            shape: self.shapes[nodes[0].index()].clone(),
            kernel: heavy.map_or("nothing", Command::name),
            time: Duration::from_secs_f64(milliseconds * 1e-3),
            operations: operations.sum(),
            runs: 1,
            peak: 0.0,
            precision: if program.math == Math::F64 { Precision::F64 } else { Precision::F32 },
            instructions: "",
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Some(cuda_graph) = self.cuda_graph.take() {
            // SAFETY: created by `capture`, destroyed once. Instances are dropped after the device was synchronised.
            unsafe {
                let _ = driver::graph::exec_destroy(cuda_graph.executable);
                let _ = driver::graph::destroy(cuda_graph.graph);
            }
        }
    }
}

/// A copy command, unless there is nothing to copy.
fn copied(from: u64, to: u64, bytes: usize) -> impl Iterator<Item = Command> {
    (bytes > 0).then_some(Command::Copy { from, to, bytes }).into_iter()
}

/// Downloads a value.
fn read(memory: &DeviceBuffer, offset: usize, tensor: &DeviceTensor, math: Math) -> Result<Tensor> {
    let length = tensor.count();
    let shape = tensor.shape.clone();
    match (tensor.kind, math) {
        (Kind::Int, _) => {
            let mut values = vec![0i64; length];
            memory.read(offset, &mut values)?;
            Tensor::new(shape, values)
        }
        (Kind::Bool, _) => {
            let mut values = vec![0u8; length];
            memory.read(offset, &mut values)?;
            memory.synchronize()?;
            Tensor::new(shape, values.iter().map(|&value| value != 0).collect::<Vec<bool>>())
        }
        (Kind::Float, Math::F64) => {
            let mut values = vec![0f64; length];
            memory.read(offset, &mut values)?;
            Tensor::new(shape, values)
        }
        (Kind::Float, _) => {
            let mut values = vec![0f32; length];
            memory.read(offset, &mut values)?;
            Tensor::new(shape, values)
        }
    }
}
