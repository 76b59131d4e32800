//! One run of a program: its steps, one after the other, over an arena of buffers.

use std::time::Duration;

use monosplit_graph::{NodeId, Result, Tensor};
use web_time::Instant;

use super::fusion::Fusion;
use super::kernels::epilogue::Epilogue;
use super::kernels::fused::InputElements;
use super::kernels::pointwise_depthwise::BiasAndEpilogue;
use super::kernels::policy::Kernel;
use super::kernels::streams::{Stream, StreamMatrix};
use super::program::{ChainedConvolution, CpuProgram, Executor, Streams};
use super::real::Real;
use super::unwinding::caught;
use super::value::{Shared, Slice, SliceMut, Storage, View, ViewMut};
use crate::plan::{BufferLocation, Step};
use crate::profile::{NodeTime, Profile};
use crate::schedule::Partition;

/// The state of one run: concrete shapes, inputs, and the arena.
pub(super) struct Execution<'a, R> {
    pub(super) program: &'a CpuProgram<R>,
    pub(super) shapes: Vec<Vec<usize>>,
    pub(super) inputs: Vec<Shared<R>>,
    pub(super) arena: Vec<Storage<R>>,
}

/// The outputs of a step, and the other values in the buffers it writes to.
type Pieces<'a, R> = (Vec<SliceMut<'a, R>>, Vec<(BufferLocation, Slice<'a, R>)>);

impl<R: Real> Execution<'_, R> {
    /// Carries out all steps.
    pub(super) fn steps(&mut self, mut profile: Option<&mut Profile>) -> Result<()> {
        let program = self.program;
        for (step, executor) in program.plan.steps.iter().zip(&program.executors) {
            let began = Instant::now();
            let mut taken = self.take(step)?;
            let done = caught(|| self.step(step, executor, &mut taken));
            for (buffer, storage) in taken {
                self.arena[buffer] = storage;
            }
            let node = step.partition.nodes()[0];
            done.map_err(|e| e.at(&program.info.values[node.index()].name))?;
            if let Some(profile) = profile.as_deref_mut() {
                profile.nodes.push(self.timed(step, executor, began.elapsed()));
            }
        }
        Ok(())
    }

    fn timed(&self, step: &Step, executor: &Executor<R>, time: Duration) -> NodeTime {
        let program = self.program;
        let (node, others) = (step.partition.nodes()[0], &step.partition.nodes()[1..]);
        let kernel = match executor {
            Executor::Kernel(kernel) | Executor::WithEpilogue(kernel, _) => kernel.name(self.samples(step)),
            Executor::Fused(_) => "fused elementwise",
            Executor::PointwiseDepthwise(_) => "conv, 1x1 GEMM + depthwise 3x3",
            Executor::Streams(_) => "matrix product, streams",
        };
        let operations = step.partition.nodes().iter().map(|id| {
            let value = &program.info.values[id.index()];
            let inputs = value.inputs.first().map_or(0, |&input| self.count(input));
            2 * value.multiply_adds.total(self.count(*id), inputs) as u64
        });
        NodeTime {
            node,
            others: others.to_vec(),
            name: program.info.values[node.index()].name.clone(),
            op: program.info.values[node.index()].op,
            shape: self.shapes[node.index()].clone(),
            kernel,
            runs: 1,
            time,
            operations: operations.sum(),
            peak: program.pool.peak::<R>(),
            precision: R::PRECISION,
            instructions: program.pool.level().name(),
        }
    }

    /// The number of samples that the first input of a step has: those of all its nodes, if they run as one batch.
    fn samples(&self, step: &Step) -> usize {
        let nodes = step.partition.nodes();
        let input = self.program.info.values[nodes[0].index()].inputs.first();
        let samples = input.and_then(|input| self.shapes[input.index()].first().copied()).unwrap_or(1);
        if matches!(step.partition, Partition::Batched(_)) { samples * nodes.len() } else { samples }
    }

    fn count(&self, id: NodeId) -> usize {
        self.shapes[id.index()].iter().product()
    }

    /// The buffers a step writes to, large enough, out of the arena.
    fn take(&mut self, step: &Step) -> Result<Vec<(usize, Storage<R>)>> {
        let mut taken: Vec<(usize, Storage<R>)> = Vec::with_capacity(step.outputs.len());
        for &id in &step.outputs {
            let BufferLocation::Buffer { buffer, .. } = self.program.plan.locations[id.index()] else {
                return Err(self.program.info.unavailable(id));
            };
            let count = self.count(id);
            let planned = &self.program.plan.buffers[buffer];
            if !taken.iter().any(|(other, _)| *other == buffer) {
                let empty = Storage::empty(planned.kind);
                taken.push((buffer, std::mem::replace(&mut self.arena[buffer], empty)));
            }
            let parts = self.program.parts(id);
            let storage = taken.iter_mut().find(|(other, _)| *other == buffer);
            storage.map_or(Ok(()), |(_, storage)| storage.grow(count.saturating_mul(parts)))?;
        }
        Ok(taken)
    }

    fn step(&self, step: &Step, executor: &Executor<R>, taken: &mut [(usize, Storage<R>)]) -> Result<()> {
        let Some(&first) = step.outputs.first() else { return Ok(()) };
        if self.count(first) == 0 {
            return Ok(());
        }
        if let (Partition::Batched(nodes), Executor::Kernel(kernel)) = (&step.partition, executor) {
            return self.batched(nodes, kernel, taken);
        }
        let (outputs, same_buffer) = self.pieces(step, taken)?;
        match executor {
            Executor::Kernel(kernel) => self.kernel(first, kernel, outputs, &same_buffer),
            Executor::Fused(fusion) => self.fused(step, fusion, outputs, &same_buffer),
            Executor::WithEpilogue(kernel, fusion) => {
                self.with_epilogue(step, kernel, fusion, outputs, &same_buffer)
            }
            Executor::PointwiseDepthwise(links) => self.pointwise_depthwise(links, outputs, &same_buffer),
            Executor::Streams(streams) => self.streams(step, streams, outputs, &same_buffer),
        }
    }

    /// The elements of all outputs of a step, and what else lies in the buffers it writes to.
    fn pieces<'a>(&self, step: &Step, taken: &'a mut [(usize, Storage<R>)]) -> Result<Pieces<'a, R>> {
        let locations = &self.program.plan.locations;
        let mut outputs: Vec<Option<SliceMut<'a, R>>> = step.outputs.iter().map(|_| None).collect();
        let mut same_buffer = Vec::new();
        for (buffer, storage) in taken.iter_mut() {
            let in_buffer = |location: BufferLocation| matches!(location, BufferLocation::Buffer { buffer: other, .. } if other == *buffer);
            let Some(&held) = step.outputs.iter().find(|id| in_buffer(locations[id.index()])) else {
                continue;
            };
            let pieces = storage.parts_mut(self.program.parts(held), self.count(held));
            for (part, piece) in pieces.into_iter().enumerate() {
                let location = BufferLocation::Buffer { buffer: *buffer, part };
                match step.outputs.iter().position(|id| locations[id.index()] == location) {
                    Some(output) => outputs[output] = Some(piece),
                    None => same_buffer.push((location, piece.shared())),
                }
            }
        }
        let outputs: Option<Vec<SliceMut<'a, R>>> = outputs.into_iter().collect();
        Ok((outputs.ok_or_else(|| self.program.info.unavailable(step.outputs[0]))?, same_buffer))
    }

    fn kernel(
        &self,
        id: NodeId,
        kernel: &Kernel<R>,
        mut outputs: Vec<SliceMut<'_, R>>,
        same_buffer: &[(BufferLocation, Slice<'_, R>)],
    ) -> Result<()> {
        let Some(data) = outputs.pop() else { return Err(self.program.info.unavailable(id)) };
        let mut out = ViewMut { shape: &self.shapes[id.index()], data };
        let inputs = &self.program.info.values[id.index()].inputs;
        let locations = &self.program.plan.locations;
        let overwrites = inputs.first().is_some_and(|x| locations[x.index()] == locations[id.index()]);
        if let (Some(run), true) = (&kernel.in_place, overwrites) {
            return run(&mut out);
        }
        let views = inputs.iter().map(|&input| self.view_in_buffer(input, same_buffer));
        (kernel.run)(&views.collect::<Result<Vec<View<'_, R>>>>()?, &mut out)
    }

    fn fused(
        &self,
        step: &Step,
        fusion: &Fusion,
        outputs: Vec<SliceMut<'_, R>>,
        same_buffer: &[(BufferLocation, Slice<'_, R>)],
    ) -> Result<()> {
        let locations = &self.program.plan.locations;
        let mut sources = Vec::with_capacity(fusion.inputs.len());
        for &input in &fusion.inputs {
            let overwritten =
                step.outputs.iter().position(|id| locations[id.index()] == locations[input.index()]);
            sources.push(match overwritten {
                Some(output) => InputElements::Old(output),
                None => InputElements::View(self.view_in_buffer(input, same_buffer)?),
            });
        }
        fusion.program.run(&self.shapes[step.outputs[0].index()], &sources, outputs)
    }

    /// Runs a kernel with an epilogue.
    fn with_epilogue(
        &self,
        step: &Step,
        kernel: &Kernel<R>,
        fusion: &Fusion,
        mut outputs: Vec<SliceMut<'_, R>>,
        same_buffer: &[(BufferLocation, Slice<'_, R>)],
    ) -> Result<()> {
        let id = step.partition.nodes()[0];
        let Some(data) = outputs.pop() else { return Err(self.program.info.unavailable(id)) };
        let inputs = self.program.info.values[id.index()].inputs.iter();
        let views =
            inputs.map(|&input| self.view_in_buffer(input, same_buffer)).collect::<Result<Vec<_>>>()?;
        let mut out = ViewMut { shape: &self.shapes[id.index()], data };
        self.epilogue_of(id, fusion, same_buffer, |epilogue| {
            kernel.run_with_epilogue(&views, epilogue, &mut out)
        })
    }

    /// Calls `run` with the epilogue of the value of `id`.
    fn epilogue_of(
        &self,
        id: NodeId,
        fusion: &Fusion,
        same_buffer: &[(BufferLocation, Slice<'_, R>)],
        run: impl FnOnce(&Epilogue<'_, R>) -> Result<()>,
    ) -> Result<()> {
        let source = |&input: &NodeId| match input == id {
            true => Ok(InputElements::Old(0)),
            false => self.view_in_buffer(input, same_buffer).map(InputElements::View),
        };
        let sources = fusion.inputs.iter().map(source).collect::<Result<Vec<_>>>()?;
        fusion.program.with_epilogue(&self.shapes[id.index()], &sources, run)
    }

    /// Runs two convolutions of which the second alone reads the first.
    fn pointwise_depthwise(
        &self,
        links: &[ChainedConvolution<R>; 2],
        mut outputs: Vec<SliceMut<'_, R>>,
        same_buffer: &[(BufferLocation, Slice<'_, R>)],
    ) -> Result<()> {
        let [first, then] = links;
        let lost = || self.program.info.unavailable(first.node);
        let Some(SliceMut::Real(y)) = outputs.pop() else { return Err(lost()) };
        let x = self.operand(first, 0, same_buffer)?.ok_or_else(lost)?;
        let biases = [self.operand(first, 2, same_buffer)?, self.operand(then, 2, same_buffer)?];
        let [bias, then_bias] = biases.map(|bias| bias.map(|bias| bias.real()).transpose());
        let (bias, then_bias) = (bias?, then_bias?);
        let (between, shape) = (&self.shapes[first.node.index()], &self.shapes[then.node.index()]);
        self.optional_epilogue(first, same_buffer, |epilogue| {
            let first_epilogue = BiasAndEpilogue { bias, epilogue };
            self.optional_epilogue(then, same_buffer, |epilogue| {
                let epilogues = [first_epilogue, BiasAndEpilogue { bias: then_bias, epilogue }];
                let x = (x.real()?, x.shape);
                let done = first.convolution.run_both(&then.convolution, x, between, epilogues, (y, shape));
                done.then_some(()).ok_or_else(lost)
            })
        })
    }

    /// An input of a convolution.
    fn operand<'a>(
        &'a self,
        link: &ChainedConvolution<R>,
        position: usize,
        same_buffer: &[(BufferLocation, Slice<'a, R>)],
    ) -> Result<Option<View<'a, R>>> {
        let inputs = &self.program.info.values[link.node.index()].inputs;
        inputs.get(position).map(|&id| self.view_in_buffer(id, same_buffer)).transpose()
    }

    /// Calls `run` with the epilogue of a convolution, if it has one.
    fn optional_epilogue(
        &self,
        link: &ChainedConvolution<R>,
        same_buffer: &[(BufferLocation, Slice<'_, R>)],
        run: impl FnOnce(Option<&Epilogue<'_, R>>) -> Result<()>,
    ) -> Result<()> {
        match &link.fusion {
            Some(fusion) => self.epilogue_of(link.node, fusion, same_buffer, |epilogue| run(Some(epilogue))),
            None => run(None),
        }
    }

    fn streams(
        &self,
        step: &Step,
        through: &Streams,
        mut outputs: Vec<SliceMut<'_, R>>,
        same_buffer: &[(BufferLocation, Slice<'_, R>)],
    ) -> Result<()> {
        let mut streams = Vec::with_capacity(outputs.len());
        for ((id, out), &magnitude) in step.outputs.iter().zip(&mut outputs).zip(&through.magnitude) {
            let inputs = &self.program.info.values[id.index()].inputs;
            let x = self.view_in_buffer(inputs[0], same_buffer)?.real()?;
            let bias = inputs.get(2).map(|&bias| self.view_in_buffer(bias, same_buffer)).transpose()?;
            let bias = bias.map(|bias| Ok((bias.real()?, bias.shape))).transpose()?;
            let SliceMut::Real(out) = out else { return Err(self.program.info.unavailable(*id)) };
            streams.push(Stream { x, magnitude, bias, out });
        }
        let view = self.view(through.weights)?;
        let (inputs, outputs) = match through.transposed {
            true => (view.shape[1], view.shape[0]),
            false => (view.shape[0], view.shape[1]),
        };
        let matrix = StreamMatrix { data: view.real()?, transposed: through.transposed, inputs, outputs };
        matrix.multiply(&mut streams)
    }

    /// Runs nodes that do the same to contiguous values as one batch.
    fn batched(&self, nodes: &[NodeId], kernel: &Kernel<R>, taken: &mut [(usize, Storage<R>)]) -> Result<()> {
        let Some((first, (_, storage))) = nodes.first().zip(taken.first_mut()) else { return Ok(()) };
        let inputs = &self.program.info.values[first.index()].inputs;
        let BufferLocation::Buffer { buffer, .. } = self.program.plan.locations[inputs[0].index()] else {
            return Err(self.program.info.unavailable(inputs[0]));
        };
        let together = |id: NodeId| {
            let mut shape = self.shapes[id.index()].clone();
            shape[0] *= nodes.len();
            shape
        };
        let (from, to) = (together(inputs[0]), together(*first));
        let (read, written) = (from.iter().product(), to.iter().product());
        let mut views = vec![View { shape: &from, data: self.arena[buffer].slice(read) }];
        for &weight in &inputs[1..] {
            views.push(self.view(weight)?);
        }
        (kernel.run)(&views, &mut ViewMut { shape: &to, data: storage.slice_mut(written) })
    }

    /// A value that may be part of a buffer that is being written.
    fn view_in_buffer<'a>(
        &'a self,
        id: NodeId,
        same_buffer: &[(BufferLocation, Slice<'a, R>)],
    ) -> Result<View<'a, R>> {
        let location = self.program.plan.locations[id.index()];
        match same_buffer.iter().find(|(other, _)| *other == location) {
            Some((_, data)) => Ok(View { shape: &self.shapes[id.index()], data: *data }),
            None => self.view(id),
        }
    }

    fn view(&self, id: NodeId) -> Result<View<'_, R>> {
        let shape = &self.shapes[id.index()];
        let count: usize = shape.iter().product();
        let data = match self.program.plan.locations[id.index()] {
            BufferLocation::Input(position) => self.inputs.get(position).map(Shared::slice),
            // Of weights that a kernel has packed only the shape is kept.
            BufferLocation::Constant(id) => {
                Some(self.program.constants[id.index()].as_ref().map_or(Slice::Real(&[]), Shared::slice))
            }
            BufferLocation::Buffer { buffer, part } => self.arena[buffer].part(part, count),
            BufferLocation::NotStored => None,
        };
        data.map(|data| View { shape, data }).ok_or_else(|| self.program.info.unavailable(id))
    }

    /// The outputs. Their buffers are moved out of the arena, not copied.
    pub(super) fn outputs(&mut self) -> Result<Vec<Tensor>> {
        let program = self.program;
        let mut taken: Vec<Option<Shared<R>>> = program.plan.buffers.iter().map(|_| None).collect();
        let mut outputs = Vec::with_capacity(program.info.outputs.len());
        for &id in &program.info.outputs {
            let shape = self.shapes[id.index()].clone();
            let tensor = match program.plan.locations[id.index()] {
                BufferLocation::Input(position) => self.inputs.get(position).map(|v| v.tensor(shape)),
                BufferLocation::Constant(id) => {
                    program.constants[id.index()].as_ref().map(|v| v.tensor(shape))
                }
                BufferLocation::Buffer { buffer, .. } => {
                    let empty = Storage::empty(program.plan.buffers[buffer].kind);
                    let (arena, count) = (&mut self.arena[buffer], shape.iter().product());
                    let shared =
                        taken[buffer].get_or_insert_with(|| std::mem::replace(arena, empty).share(count));
                    Some(shared.tensor(shape))
                }
                BufferLocation::NotStored => None,
            };
            outputs.push(tensor.ok_or_else(|| program.info.unavailable(id))??);
        }
        Ok(outputs)
    }
}
