//! A program at one batch size: memory laid out, commands written down, and after the first run recorded, so that the card
//! is told everything in one word.

use std::ops::Range;
use std::time::Duration;

use cudarc::driver::{result as driver, sys};
use monosplit_graph::{Error, Kind, NodeId, Result, Tensor};

use super::Math;
use super::command::Command;
use super::device::{Checked, Device, Event, LANES, Memory};
use super::dock::{Dock, Leaving, Value, bytes_of, converted};
use super::lanes::Turn;
use super::program::CudaProgram;
use super::translator::Site;
use crate::outline::element_bytes;
use crate::plan::Place;
use crate::{NodeTime, Precision, Profile};

/// Where values begin.
const ALIGNMENT: usize = 256;

/// The commands of one step of the plan.
pub(super) struct Segment {
    pub(super) step: usize,
    pub(super) turn: Turn,
    pub(super) commands: Range<usize>,
}

/// Commands recorded by the driver.
struct Recording {
    graph: sys::CUgraph,
    executable: sys::CUgraphExec,
}

/// A program at one batch size.
pub(super) struct Instance {
    shapes: Vec<Vec<usize>>,
    /// Offset of every input.
    inputs: Vec<usize>,
    /// What was given last for inputs that are the same for all samples: often it is given again.
    held: Vec<Option<Tensor>>,
    holds: bool,
    /// Offset of every slot.
    slots: Vec<usize>,
    arena: Memory,
    commands: Vec<Command>,
    segments: Vec<Segment>,
    /// For every segment that others wait for, what tells them that it is done.
    done: Vec<Option<Event>>,
    /// What tells all lanes that they may begin, and the first that each of the others has ended.
    begun: Event,
    ended: Vec<Event>,
    /// What is copied when all lanes have ended.
    last: Vec<Command>,
    /// Memory the commands use besides.
    _beside: Vec<Memory>,
    runs: usize,
    recording: Option<Recording>,
}

// SAFETY: recordings are handles of the device, used by whoever has its turn.
unsafe impl Send for Instance {}

fn count(shape: &[usize]) -> usize {
    shape.iter().product()
}

impl Instance {
    /// Lays out memory and writes down what to do. The caller has the card's turn.
    pub(super) fn new(program: &CudaProgram, batch: usize) -> Result<Self> {
        let (plan, outline, real) = (&program.plan, &program.outline, program.math.bytes());
        let shapes = outline.shapes(plan, batch, real, program.device.free_memory()?)?;
        let mut end = 0usize;
        let mut place = |bytes: usize| {
            let start = end;
            end = start.saturating_add(bytes).next_multiple_of(ALIGNMENT);
            start
        };
        let size = |id: NodeId, kind: Kind| count(&shapes[id.index()]) * element_bytes(kind, real);
        let inputs: Vec<usize> =
            outline.inputs.iter().map(|&id| place(size(id, outline.values[id.index()].kind))).collect();
        let slots: Vec<usize> = plan
            .slots
            .iter()
            .map(|slot| {
                let tenants = slot.tenants.iter().map(|&(id, parts)| size(id, slot.kind) * parts);
                place(tenants.max().unwrap_or(0))
            })
            .collect();
        // Every lane needs memory to work in, so that large batches take one after the other.
        let lanes = if end > program.device.free_memory()? / 8 { 1 } else { LANES };
        let arena = Memory::new(&program.device, end)?;
        let mut instance = Instance {
            shapes,
            held: vec![None; inputs.len()],
            holds: true,
            inputs,
            slots,
            arena,
            commands: Vec::new(),
            segments: Vec::new(),
            done: Vec::new(),
            begun: Event::new()?,
            ended: Vec::new(),
            last: Vec::new(),
            _beside: Vec::new(),
            runs: 0,
            recording: None,
        };
        let mut translator = program.translator();
        let site = |id| instance.site(program, id);
        let segments = program.segments(&mut translator, lanes, &instance.shapes, &site)?;
        instance.commands = std::mem::take(&mut translator.commands);
        instance._beside = std::mem::take(&mut translator.tables);
        translator.scratch.iter_mut().for_each(|scratch| instance._beside.append(scratch));
        instance._beside.extend(translator.counters.iter_mut().filter_map(Option::take));
        let used = segments.iter().map(|segment| segment.turn.lane).max().unwrap_or(0);
        instance.ended = (0..used).map(|_| Event::new()).collect::<Result<Vec<Event>>>()?;
        instance.done.resize_with(segments.len(), || None);
        for &step in segments.iter().flat_map(|segment| &segment.turn.after) {
            if instance.done[step].is_none() {
                instance.done[step] = Some(Event::new()?);
            }
        }
        instance.segments = segments;
        Ok(instance)
    }

    /// Where a value lies.
    fn site(&self, program: &CudaProgram, id: NodeId) -> Result<Site> {
        let value = &program.outline.values[id.index()];
        let shape = self.shapes[id.index()].clone();
        let real = program.math.bytes();
        let offset = match program.plan.places[id.index()] {
            Place::Constant(known) => {
                return Ok(Site { shape, ..program.constant_site(known)? });
            }
            Place::Input(position) => *self.inputs.get(position).ok_or_else(|| program.outline.lost(id))?,
            Place::Slot { slot, part } => {
                self.slots[slot] + part * count(&shape) * element_bytes(value.kind, real)
            }
            Place::Nowhere => return Err(program.outline.lost(id)),
        };
        let at = self.arena.at + offset as u64;
        Ok(Site { at, shape, kind: value.kind, constant: false, order: program.orders[id.index()] })
    }

    /// Which of these inputs are still there from the run before.
    pub(super) fn held(&self, inputs: &[Tensor]) -> Vec<bool> {
        let held = |(held, tensor): (&Option<Tensor>, &Tensor)| held.as_ref().is_some_and(|h| h.is(tensor));
        self.held.iter().zip(inputs).map(held).collect()
    }

    /// Copies inputs to their places, from the `first` on. The caller has the card's turn.
    pub(super) fn write(&mut self, program: &CudaProgram, first: usize, inputs: &[Tensor]) -> Result<()> {
        for (position, tensor) in (first..).zip(inputs) {
            let sent = converted(tensor, program.math, tensor.shape())?;
            self.arena.write(self.inputs[position], bytes_of(&sent))?;
            program.device.finish()?;
        }
        Ok(())
    }

    /// Takes inputs from the dock to their places.
    fn enter(&mut self, program: &CudaProgram, inputs: &[Tensor], dock: &Dock) -> Result<()> {
        dock.await_arrival(&program.device)?;
        for (position, tensor) in inputs.iter().enumerate() {
            let id = program.outline.inputs[position];
            let batched = program.outline.values[id.index()].shape.is_batched();
            match dock.loaded(position) {
                Some(from) => {
                    let bytes = tensor.len() * element_bytes(tensor.kind(), program.math.bytes());
                    let to = self.arena.at + self.inputs[position] as u64;
                    copied(from, to, bytes).try_for_each(|copy| copy.enqueue(&program.device, 0))?;
                }
                None if program.plan.places[id.index()] == Place::Nowhere => continue,
                None if self.held[position].as_ref().is_some_and(|held| held.is(tensor)) => continue,
                // It was there, and somebody else has put another in its place since.
                None => self.write(program, position, std::slice::from_ref(tensor))?,
            }
            self.held[position] = (self.holds && !batched).then(|| tensor.clone());
        }
        Ok(())
    }

    /// Takes the first `wanted` outputs to the dock.
    fn leave(
        &self,
        program: &CudaProgram,
        inputs: &[Tensor],
        wanted: usize,
        dock: &mut Dock,
    ) -> Result<Leaving> {
        let (mut values, mut copies, mut end) = (Vec::new(), Vec::new(), ALIGNMENT);
        for &id in program.outline.outputs.iter().take(wanted) {
            if let Place::Input(position) = program.plan.places[id.index()]
                && let Some(input) = inputs.get(position)
            {
                values.push(Value::Given(converted(input, program.math, &self.shapes[id.index()])?));
                continue;
            }
            let site = self.site(program, id)?;
            let bytes = site.count() * element_bytes(site.kind, program.math.bytes());
            copies.push((site.at, end, bytes));
            values.push(Value::At { offset: end, shape: site.shape, kind: site.kind });
            end = (end + bytes).next_multiple_of(ALIGNMENT);
        }
        let (device, room) = (&program.device, dock.room(end)?);
        let fault = Command::Copy { from: program.fault.at, to: room, bytes: size_of::<i32>() };
        fault.enqueue(device, 0)?;
        Command::Clear { at: program.fault.at, bytes: size_of::<i32>() }.enqueue(device, 0)?;
        for (from, offset, bytes) in copies {
            copied(from, room + offset as u64, bytes).try_for_each(|copy| copy.enqueue(device, 0))?;
        }
        let left = Event::new()?;
        left.record(device.stream)?;
        Ok(Leaving { bytes: end, values, left })
    }

    /// Tells the card everything: one by one the first time, when libraries load what they need; recorded after that.
    pub(super) fn compute(&mut self, device: &Device) -> Result<()> {
        if self.runs == 1 {
            self.recording = self.record(device).ok();
        }
        self.runs += 1;
        match &self.recording {
            // SAFETY: the recording is of this instance's commands, and its memory lives as long.
            Some(recording) => unsafe { driver::graph::launch(recording.executable, device.stream) }
                .or_say("run what was recorded"),
            None => self.tell(device),
        }
    }

    /// Tells the card everything, lane by lane; the first begins before all others and ends after them.
    fn tell(&self, device: &Device) -> Result<()> {
        self.begun.record(device.stream)?;
        (1..=self.ended.len()).try_for_each(|lane| self.begun.hold(device.lane(lane)))?;
        for (segment, done) in self.segments.iter().zip(&self.done) {
            let Turn { lane, after } = &segment.turn;
            let waited = after.iter().filter_map(|&step| self.done[step].as_ref());
            waited.into_iter().try_for_each(|event| event.hold(device.lane(*lane)))?;
            self.commands[segment.commands.clone()].iter().try_for_each(|c| c.enqueue(device, *lane))?;
            done.iter().try_for_each(|event| event.record(device.lane(*lane)))?;
        }
        for (lane, event) in (1..).zip(&self.ended) {
            event.record(device.lane(lane))?;
            event.hold(device.stream)?;
        }
        self.last.iter().try_for_each(|command| command.enqueue(device, 0))
    }

    fn record(&self, device: &Device) -> Result<Recording> {
        // SAFETY: the stream is the device's own, nobody else talks to it now, and the capture is ended whatever happens.
        unsafe {
            driver::stream::begin_capture(
                device.stream,
                sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
            )
            .or_say("record")?;
            let told = self.tell(device);
            let graph = driver::stream::end_capture(device.stream).or_say("record")?;
            if let Err(error) = told {
                let _ = driver::graph::destroy(graph);
                return Err(error);
            }
            let executable = driver::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0));
            match executable.or_say("keep what was recorded") {
                Ok(executable) => Ok(Recording { graph, executable }),
                Err(error) => {
                    let _ = driver::graph::destroy(graph);
                    Err(error)
                }
            }
        }
    }

    /// Lets the last `count` outputs become the last inputs at the end of every run.
    pub(super) fn feed_back(&mut self, program: &CudaProgram, count: usize) -> Result<()> {
        self.holds = false;
        let (inputs, outputs) = (&program.outline.inputs, &program.outline.outputs);
        let pairs = inputs.iter().rev().zip(outputs.iter().rev()).take(count);
        for (&input, &output) in pairs {
            let (to, from) = (self.site(program, input)?, self.site(program, output)?);
            let crossed = matches!(program.plan.places[output.index()], Place::Input(_)) && from.at != to.at;
            if from.shape != to.shape || from.kind != to.kind || crossed {
                return Err(Error::argument("what is fed back must be computed, and of the input's shape")
                    .at(program.outline.name(input)));
            }
            let bytes = from.count() * element_bytes(from.kind, program.math.bytes());
            if from.at != to.at && bytes > 0 {
                self.last.push(Command::Copy { from: from.at, to: to.at, bytes });
            }
        }
        Ok(())
    }

    /// Inputs as they are on the card, from the `first` on.
    pub(super) fn inputs_from(&self, program: &CudaProgram, first: usize) -> Result<Vec<Tensor>> {
        let inputs = program.outline.inputs.iter().zip(&self.inputs).skip(first);
        let values =
            inputs.map(|(&id, &offset)| read(&self.arena, offset, &self.site(program, id)?, program.math));
        let values = values.collect::<Result<Vec<Tensor>>>()?;
        program.device.finish()?;
        Ok(values)
    }

    /// Tells the card to run on what is in the dock, and to leave the first `wanted` outputs there. The caller has the card's
    /// turn, and need not wait.
    pub(super) fn launch(
        &mut self,
        program: &CudaProgram,
        inputs: &[Tensor],
        wanted: usize,
        dock: &mut Dock,
    ) -> Result<Leaving> {
        self.enter(program, inputs, dock)?;
        dock.start_clock(&program.device)?;
        self.compute(&program.device)?;
        dock.stop_clock(&program.device)?;
        self.leave(program, inputs, wanted, dock)
    }

    /// The same, step by step, with the time each took.
    pub(super) fn launch_profiled(
        &mut self,
        program: &CudaProgram,
        inputs: &[Tensor],
        dock: &mut Dock,
    ) -> Result<(Leaving, Profile)> {
        self.enter(program, inputs, dock)?;
        let device = &program.device;
        let (begin, end) = (Event::timing()?, Event::timing()?);
        let mut profile = Profile::default();
        for segment in &self.segments {
            begin.record(device.stream)?;
            self.commands[segment.commands.clone()].iter().try_for_each(|c| c.enqueue(device, 0))?;
            end.record(device.stream)?;
            end.wait()?;
            profile.nodes.push(self.timed(program, segment, begin.milliseconds_until(&end)));
        }
        Ok((self.leave(program, inputs, usize::MAX, dock)?, profile))
    }

    fn timed(&self, program: &CudaProgram, segment: &Segment, milliseconds: f64) -> NodeTime {
        let nodes = program.plan.steps[segment.step].work.nodes();
        let value = &program.outline.values[nodes[0].index()];
        let operations = nodes.iter().map(|id| {
            let value = &program.outline.values[id.index()];
            let inputs = value.inputs.first().map_or(0, |input| count(&self.shapes[input.index()]));
            2 * value.multiply_adds.total(count(&self.shapes[id.index()]), inputs) as u64
        });
        let commands = &self.commands[segment.commands.clone()];
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
            peak: 0.0,
            precision: if program.math == Math::F64 { Precision::F64 } else { Precision::F32 },
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Some(recording) = self.recording.take() {
            // SAFETY: made by `record`, destroyed once; nothing runs any more when an instance is dropped.
            unsafe {
                let _ = driver::graph::exec_destroy(recording.executable);
                let _ = driver::graph::destroy(recording.graph);
            }
        }
    }
}

/// Bytes copied, if there are any.
fn copied(from: u64, to: u64, bytes: usize) -> impl Iterator<Item = Command> {
    (bytes > 0).then_some(Command::Copy { from, to, bytes }).into_iter()
}

/// The elements of a value, as a tensor; they are there when the card has finished.
fn read(memory: &Memory, offset: usize, site: &Site, math: Math) -> Result<Tensor> {
    let length = site.count();
    let shape = site.shape.clone();
    match (site.kind, math) {
        (Kind::Int, _) => {
            let mut values = vec![0i64; length];
            memory.read(offset, &mut values)?;
            Tensor::new(shape, values)
        }
        (Kind::Bool, _) => {
            let mut values = vec![0u8; length];
            memory.read(offset, &mut values)?;
            memory.finish()?;
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
