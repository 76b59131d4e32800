//! A compiled graph: kernels chosen, constants computed, memory planned; and how it is run.

use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use monosplit_graph::{Dim, Error, Graph, Kind, Node, NodeId, Op, Result, Shape, Tensor, element_count};
use rayon::ThreadPool;

use super::fusion::Fusion;
use super::kernels::fused::Source;
use super::kernels::peak::peak;
use super::kernels::policy::{self, Kernel};
use super::kernels::streams::{Stream, Weights};
use super::plan::{Place, Plan, Step, known, needed};
use super::real::Real;
use super::schedule::{Choices, Work, stream_weights};
use super::value::{Shared, Slice, SliceMut, Storage, View, ViewMut, element_bytes};
use crate::profile::{NodeTime, Profile};

/// What is kept of a node.
struct Value {
    name: String,
    op: &'static str,
    effort: Effort,
    shape: Shape,
    kind: Kind,
    inputs: Vec<NodeId>,
}

/// How many additions and multiplications a node is defined by.
#[derive(Clone, Copy)]
enum Effort {
    /// This many for each element of its value.
    PerOutput(usize),
    /// This many for each element of its first input.
    PerInput(usize),
    /// Too few to count.
    Little,
}

impl Effort {
    fn of(graph: &Graph, node: &Node) -> Self {
        let lengths = |id: NodeId, axes: Range<usize>| {
            axes.map(|axis| graph.node(id).shape.fixed_at(axis).unwrap_or(1)).product::<usize>()
        };
        match &node.op {
            Op::Conv { window, .. } => Effort::PerOutput(2 * lengths(node.inputs[1], 1..2 + window.axes())),
            Op::ConvTranspose { window, .. } => {
                Effort::PerInput(2 * lengths(node.inputs[1], 1..2 + window.axes()))
            }
            Op::MatMul { trans_b, .. } => {
                let rank = graph.node(node.inputs[1]).shape.rank();
                let axis = if *trans_b { rank - 1 } else { rank - 2 };
                Effort::PerOutput(2 * lengths(node.inputs[1], axis..axis + 1))
            }
            _ => Effort::Little,
        }
    }
}

/// What carries out a step.
enum Executor<R> {
    /// The kernel of its node, or of its nodes at once.
    Kernel(Kernel<R>),
    /// One pass over memory.
    Fused(Fusion),
    /// One pass over these weights for all nodes, with their magnitudes for those marked.
    Streams { weights: NodeId, magnitude: Vec<bool>, transposed: bool },
}

/// A graph compiled for the processor in precision `R`.
pub(crate) struct CpuProgram<R> {
    values: Vec<Value>,
    inputs: Vec<NodeId>,
    outputs: Vec<NodeId>,
    constants: Vec<Option<Shared<R>>>,
    executors: Vec<Executor<R>>,
    plan: Plan,
    memory_limit: usize,
    pool: Option<Arc<ThreadPool>>,
    /// Memory of finished runs, for the next ones.
    arenas: Mutex<Vec<Vec<Storage<R>>>>,
    /// Operations this machine can do in a second, measured when first asked for.
    peak: OnceLock<f64>,
}

/// One run: the batch size, the concrete shapes, and where elements are.
struct Run<'a, R> {
    program: &'a CpuProgram<R>,
    shapes: Vec<Vec<usize>>,
    inputs: Vec<Shared<R>>,
    arena: Vec<Storage<R>>,
}

fn name_of(graph: &Graph, id: NodeId) -> String {
    let node = graph.node(id);
    match node.label.display() {
        "" => format!("{} {}", node.op.name(), id.index()),
        name => name.to_string(),
    }
}

impl<R: Real> CpuProgram<R> {
    pub(crate) fn compile(graph: &Graph, pool: Option<Arc<ThreadPool>>, memory_limit: usize) -> Result<Self> {
        CpuProgram::compile_with(graph, pool, memory_limit, Choices::ALL)
    }

    pub(crate) fn compile_with(
        graph: &Graph,
        pool: Option<Arc<ThreadPool>>,
        memory_limit: usize,
        choices: Choices,
    ) -> Result<Self> {
        let (known, needed) = (known(graph), needed(graph));
        let plan = Plan::new(graph, &known, &needed, choices);
        let same = |id: &NodeId| plan.same[id.index()];
        let values = graph
            .nodes()
            .map(|(id, node)| Value {
                name: name_of(graph, id),
                op: node.op.name(),
                effort: Effort::of(graph, node),
                shape: node.shape.clone(),
                kind: node.kind,
                inputs: node.inputs.iter().map(same).collect(),
            })
            .collect();
        let mut program = CpuProgram {
            values,
            inputs: graph.inputs().to_vec(),
            outputs: graph.outputs().iter().map(|output| same(&output.node)).collect(),
            constants: graph.nodes().map(|_| None).collect(),
            executors: Vec::new(),
            plan,
            memory_limit,
            pool,
            arenas: Mutex::new(Vec::new()),
            peak: OnceLock::new(),
        };
        program.evaluate_constants(graph, &program.wanted_constants(graph, &known))?;
        for step in &program.plan.steps {
            program.executors.push(match &step.work {
                Work::One(id) => Executor::Kernel(program.choose(graph, *id)?),
                Work::Batched(nodes) => Executor::Kernel(program.choose(graph, nodes[0])?),
                Work::Fused(nodes) => {
                    Executor::Fused(Fusion::new(graph, &program.plan.same, nodes, &step.outputs)?)
                }
                Work::Streams(nodes) => program.streams(graph, &known, nodes)?,
            });
        }
        let read = program.constants_read(graph, &known);
        // What kernels keep in a layout of their own is let go, and what only other constants were made of is of no use any more.
        program.constants.iter_mut().zip(read).filter(|(_, read)| !read).for_each(|(value, _)| *value = None);
        Ok(program)
    }

    fn streams(&self, graph: &Graph, known: &[bool], nodes: &[NodeId]) -> Result<Executor<R>> {
        let of = |id: NodeId| {
            let read = stream_weights(graph, &self.plan.same, known, graph.node(id));
            read.ok_or_else(|| self.lost(id))
        };
        let magnitude = nodes.iter().map(|&id| Ok(of(id)?.1)).collect::<Result<_>>()?;
        let transposed = matches!(graph.node(nodes[0]).op, Op::MatMul { trans_b: true, .. });
        Ok(Executor::Streams { weights: of(nodes[0])?.0, magnitude, transposed })
    }

    /// Whether the kernel of a step, if it is chosen already, keeps its weights itself.
    fn holds_weights(&self, step: usize) -> bool {
        matches!(self.executors.get(step), Some(Executor::Kernel(kernel)) if kernel.holds_weights)
    }

    /// The known values that steps read, or that are handed out.
    fn constants_read(&self, graph: &Graph, known: &[bool]) -> Vec<bool> {
        let mut read = vec![false; self.values.len()];
        for (at, step) in self.plan.steps.iter().enumerate() {
            for id in step.work.nodes() {
                let inputs = &self.values[id.index()].inputs;
                let weights = match step.work {
                    Work::Streams(_) => stream_weights(graph, &self.plan.same, known, graph.node(*id)),
                    _ => None,
                };
                for (position, input) in inputs.iter().enumerate() {
                    if position == 1 && self.holds_weights(at) {
                        continue;
                    }
                    let input = weights.filter(|_| position == 1).map_or(*input, |(weights, _)| weights);
                    read[input.index()] = true;
                }
            }
        }
        self.outputs.iter().for_each(|id| read[id.index()] = true);
        read.iter_mut().zip(known).for_each(|(read, known)| *read &= known);
        read
    }

    /// The known values that have to be computed: those that are read, and what they are made of.
    fn wanted_constants(&self, graph: &Graph, known: &[bool]) -> Vec<bool> {
        let mut wanted = self.constants_read(graph, known);
        for (id, _) in graph.nodes().rev() {
            if wanted[id.index()] {
                self.values[id.index()].inputs.iter().for_each(|input| wanted[input.index()] = true);
            }
        }
        wanted
    }

    fn choose(&self, graph: &Graph, id: NodeId) -> Result<Kernel<R>> {
        let node = graph.node(id);
        let inputs = &self.values[id.index()].inputs;
        let shapes = self.fixed_shapes(inputs);
        let constants: Vec<Option<View<'_, R>>> = (inputs.iter().zip(&shapes))
            .map(|(input, shape)| {
                let data = self.constants[input.index()].as_ref()?.slice();
                Some(View { shape: shape.as_ref()?, data })
            })
            .collect();
        policy::choose(node, &constants).map_err(|e| e.at(&self.values[id.index()].name))
    }

    fn fixed_shapes(&self, ids: &[NodeId]) -> Vec<Option<Vec<usize>>> {
        let fixed = |id: &NodeId| {
            let shape = &self.values[id.index()].shape;
            (!shape.is_batched()).then(|| shape.at(1)).flatten()
        };
        ids.iter().map(fixed).collect()
    }

    /// Computes every value that is wanted and depends on no input.
    fn evaluate_constants(&mut self, graph: &Graph, wanted: &[bool]) -> Result<()> {
        let mut bytes = 0usize;
        for (id, node) in graph.nodes() {
            if !wanted[id.index()] {
                continue;
            }
            let value = match &node.op {
                Op::Constant(tensor) => Shared::of(tensor),
                Op::Reshape { .. } => {
                    let renamed = self.values[id.index()].inputs[0];
                    self.constants[renamed.index()].clone().ok_or_else(|| self.lost(id))?
                }
                _ => {
                    let count = node.shape.at(1).and_then(|shape| element_count(&shape));
                    bytes = count
                        .and_then(|n| n.checked_mul(element_bytes::<R>(node.kind))?.checked_add(bytes))
                        .filter(|&bytes| bytes <= self.memory_limit)
                        .ok_or_else(|| self.too_large(id))?;
                    self.evaluate(graph, id).map_err(|e| e.at(&self.values[id.index()].name))?
                }
            };
            self.constants[id.index()] = Some(value);
        }
        Ok(())
    }

    fn evaluate(&self, graph: &Graph, id: NodeId) -> Result<Shared<R>> {
        let node = graph.node(id);
        let inputs = &self.values[id.index()].inputs;
        let kernel = self.choose(graph, id)?;
        let shape = node.shape.at(1).ok_or_else(|| self.too_large(id))?;
        let count = element_count(&shape).ok_or_else(|| self.too_large(id))?;
        let shapes: Option<Vec<Vec<usize>>> = self.fixed_shapes(inputs).into_iter().collect();
        let shapes = shapes.ok_or_else(|| self.lost(id))?;
        let mut views = Vec::with_capacity(shapes.len());
        for (input, shape) in inputs.iter().zip(&shapes) {
            let data = self.constants[input.index()].as_ref().ok_or_else(|| self.lost(id))?.slice();
            views.push(View { shape, data });
        }
        let mut storage = Storage::empty(node.kind);
        storage.grow(count)?;
        let mut out = ViewMut { shape: &shape, data: storage.slice_mut(count) };
        if !out.is_empty() {
            self.within_pool(|| (kernel.run)(&views, &mut out))?;
        }
        Ok(storage.share())
    }

    /// How many values lie side by side where `id` lies.
    fn parts(&self, id: NodeId) -> usize {
        self.plan.bundled.get(&id).copied().unwrap_or(1)
    }

    fn lost(&self, id: NodeId) -> Error {
        Error::argument("a value was read before it was computed").at(&self.values[id.index()].name)
    }

    fn too_large(&self, id: NodeId) -> Error {
        let value = &self.values[id.index()];
        Error::argument(format!(
            "a value of shape {} takes the run over the memory limit of {} MiB; use a smaller batch or raise the limit",
            value.shape,
            self.memory_limit >> 20
        ))
        .at(&value.name)
    }

    fn within_pool<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        match &self.pool {
            Some(pool) => pool.install(work),
            None => work(),
        }
    }

    /// The batch size the inputs agree on; 1 if none has a batch axis.
    fn batch(&self, inputs: &[Tensor]) -> Result<usize> {
        if inputs.len() != self.inputs.len() {
            let names: Vec<&str> = self.inputs.iter().map(|id| &*self.values[id.index()].name).collect();
            return Err(Error::argument(format!(
                "expected {} inputs ({}), found {}",
                names.len(),
                names.join(", "),
                inputs.len()
            )));
        }
        let mut batch = None;
        for (id, tensor) in self.inputs.iter().zip(inputs) {
            let value = &self.values[id.index()];
            let misfit = |why: &str| {
                Error::shape(format!(
                    "input '{}' should be {} values of shape {}, found {} of shape {:?}{why}",
                    value.name,
                    value.kind,
                    value.shape,
                    tensor.kind(),
                    tensor.shape()
                ))
            };
            if tensor.kind() != value.kind || tensor.shape().len() != value.shape.rank() {
                return Err(misfit(""));
            }
            for (&dim, &length) in value.shape.dims().iter().zip(tensor.shape()) {
                match dim {
                    Dim::Fixed(n) if n != length => return Err(misfit("")),
                    Dim::Batch(0) if length != 0 => return Err(misfit("")),
                    Dim::Fixed(_) | Dim::Batch(0) => {}
                    Dim::Batch(k) if !length.is_multiple_of(k) => return Err(misfit("")),
                    Dim::Batch(k) => match *batch.get_or_insert(length / k) {
                        n if n == length / k => {}
                        n => return Err(misfit(&format!("; the batch size so far is {n}"))),
                    },
                }
            }
        }
        Ok(batch.unwrap_or(1))
    }

    /// Concrete shapes of all values, if they fit into the memory allowed.
    fn shapes(&self, batch: usize) -> Result<Vec<Vec<usize>>> {
        let mut shapes = vec![Vec::new(); self.values.len()];
        for (index, value) in self.values.iter().enumerate() {
            if self.plan.places[index] != Place::Nowhere {
                shapes[index] = value.shape.at(batch).ok_or_else(|| {
                    Error::argument(format!("shape {} is too large at batch size {batch}", value.shape))
                        .at(&value.name)
                })?;
            }
        }
        let mut total = 0usize;
        for slot in &self.plan.slots {
            let mut largest = 0;
            for (id, parts) in &slot.tenants {
                let bytes = element_count(&shapes[id.index()])
                    .and_then(|n| n.checked_mul(element_bytes::<R>(slot.kind))?.checked_mul(*parts))
                    .filter(|&bytes| total.checked_add(bytes).is_some_and(|n| n <= self.memory_limit))
                    .ok_or_else(|| self.too_large(*id))?;
                largest = largest.max(bytes);
            }
            total += largest;
        }
        Ok(shapes)
    }

    fn execute(&self, inputs: &[Tensor], profile: Option<&mut Profile>) -> Result<Vec<Tensor>> {
        let batch = self.batch(inputs)?;
        let shapes = self.shapes(batch)?;
        let kept = self.arenas.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let fresh = || self.plan.slots.iter().map(|slot| Storage::empty(slot.kind)).collect();
        let mut run = Run {
            program: self,
            shapes,
            inputs: inputs.iter().map(Shared::of).collect(),
            arena: kept.unwrap_or_else(fresh),
        };
        self.within_pool(|| run.steps(profile))?;
        let outputs = run.outputs()?;
        self.arenas.lock().unwrap_or_else(PoisonError::into_inner).push(run.arena);
        Ok(outputs)
    }
}

impl<R: Real> Run<'_, R> {
    fn steps(&mut self, mut profile: Option<&mut Profile>) -> Result<()> {
        let program = self.program;
        for (step, executor) in program.plan.steps.iter().zip(&program.executors) {
            let began = Instant::now();
            let mut taken = self.take(step)?;
            let done = self.step(step, executor, &mut taken);
            for (slot, storage) in taken {
                self.arena[slot] = storage;
            }
            let node = step.work.nodes()[0];
            done.map_err(|e| e.at(&program.values[node.index()].name))?;
            if let Some(profile) = profile.as_deref_mut() {
                profile.nodes.push(self.timed(step, executor, began.elapsed()));
            }
        }
        Ok(())
    }

    fn timed(&self, step: &Step, executor: &Executor<R>, time: Duration) -> NodeTime {
        let program = self.program;
        let (node, others) = (step.work.nodes()[0], &step.work.nodes()[1..]);
        let kernel = match executor {
            Executor::Kernel(kernel) => kernel.name,
            Executor::Fused(_) => "fused elementwise",
            Executor::Streams { .. } => "matrix product, streams",
        };
        let operations = step.work.nodes().iter().map(|id| {
            let value = &program.values[id.index()];
            match value.effort {
                Effort::PerOutput(each) => self.count(*id).saturating_mul(each) as u64,
                Effort::PerInput(each) => self.count(value.inputs[0]).saturating_mul(each) as u64,
                Effort::Little => 0,
            }
        });
        NodeTime {
            node,
            others: others.to_vec(),
            name: program.values[node.index()].name.clone(),
            op: program.values[node.index()].op,
            shape: self.shapes[node.index()].clone(),
            kernel,
            time,
            operations: operations.sum(),
            peak: *program.peak.get_or_init(peak::<R>),
            precision: R::PRECISION,
        }
    }

    fn count(&self, id: NodeId) -> usize {
        self.shapes[id.index()].iter().product()
    }

    /// The slots a step writes to, large enough, out of the arena.
    fn take(&mut self, step: &Step) -> Result<Vec<(usize, Storage<R>)>> {
        let mut taken: Vec<(usize, Storage<R>)> = Vec::with_capacity(step.outputs.len());
        for &id in &step.outputs {
            let Place::Slot { slot, .. } = self.program.plan.places[id.index()] else {
                return Err(self.program.lost(id));
            };
            let count = self.count(id);
            let planned = &self.program.plan.slots[slot];
            if !taken.iter().any(|(other, _)| *other == slot) {
                let empty = Storage::empty(planned.kind);
                taken.push((slot, std::mem::replace(&mut self.arena[slot], empty)));
            }
            let parts = self.program.parts(id);
            let storage = taken.iter_mut().find(|(other, _)| *other == slot);
            storage.map_or(Ok(()), |(_, storage)| storage.grow(count.saturating_mul(parts)))?;
        }
        Ok(taken)
    }

    fn step(&self, step: &Step, executor: &Executor<R>, taken: &mut [(usize, Storage<R>)]) -> Result<()> {
        let Some(&first) = step.outputs.first() else { return Ok(()) };
        let count = self.count(first);
        if count == 0 {
            return Ok(());
        }
        let places = &self.program.plan.places;
        if let (Work::Batched(nodes), Executor::Kernel(kernel)) = (&step.work, executor) {
            return self.batched(nodes, kernel, taken);
        }
        let mut outputs: Vec<Option<SliceMut<'_, R>>> = step.outputs.iter().map(|_| None).collect();
        let mut beside: Vec<(Place, Slice<'_, R>)> = Vec::new();
        for (slot, storage) in taken.iter_mut() {
            let held = step
                .outputs
                .iter()
                .find(|id| matches!(places[id.index()], Place::Slot { slot: other, .. } if other == *slot));
            let parts = held.map_or(1, |&id| self.program.parts(id));
            for (part, piece) in storage.parts_mut(parts, count).into_iter().enumerate() {
                let place = Place::Slot { slot: *slot, part };
                match step.outputs.iter().position(|id| places[id.index()] == place) {
                    Some(output) => outputs[output] = Some(piece),
                    None => beside.push((place, piece.shared())),
                }
            }
        }
        let outputs: Option<Vec<SliceMut<'_, R>>> = outputs.into_iter().collect();
        let mut outputs = outputs.ok_or_else(|| self.program.lost(first))?;
        match executor {
            Executor::Fused(fusion) => {
                let mut sources = Vec::with_capacity(fusion.inputs.len());
                for &input in &fusion.inputs {
                    let place = places[input.index()];
                    let old = step.outputs.iter().position(|id| places[id.index()] == place);
                    sources.push(match old {
                        Some(output) => Source::Old(output),
                        None => Source::View(self.view_beside(input, &beside)?),
                    });
                }
                fusion.program.run(&self.shapes[first.index()], &sources, outputs)
            }
            Executor::Streams { weights, magnitude, transposed } => {
                let mut streams = Vec::with_capacity(outputs.len());
                for ((id, out), &magnitude) in step.outputs.iter().zip(&mut outputs).zip(magnitude) {
                    let inputs = &self.program.values[id.index()].inputs;
                    let x = self.view_beside(inputs[0], &beside)?.real()?;
                    let bias = inputs.get(2).map(|&bias| self.view_beside(bias, &beside)).transpose()?;
                    let bias = bias.map(|bias| Ok((bias.real()?, bias.shape))).transpose()?;
                    let SliceMut::Real(out) = out else { return Err(self.program.lost(*id)) };
                    streams.push(Stream { x, magnitude, bias, out });
                }
                let view = self.view(*weights)?;
                let (inputs, outputs) = match *transposed {
                    true => (view.shape[1], view.shape[0]),
                    false => (view.shape[0], view.shape[1]),
                };
                Weights { data: view.real()?, transposed: *transposed, inputs, outputs }
                    .multiply(&mut streams)
            }
            Executor::Kernel(kernel) => {
                let Some(data) = outputs.pop() else { return Err(self.program.lost(first)) };
                let mut out = ViewMut { shape: &self.shapes[first.index()], data };
                let inputs = &self.program.values[first.index()].inputs;
                let overwrites = inputs.first().is_some_and(|x| places[x.index()] == places[first.index()]);
                if let (Some(run), true) = (&kernel.in_place, overwrites) {
                    return run(&mut out);
                }
                let views: Result<Vec<View<'_, R>>> =
                    inputs.iter().map(|&input| self.view_beside(input, &beside)).collect();
                (kernel.run)(&views?, &mut out)
            }
        }
    }

    /// Runs nodes that do the same to values that lie side by side as if these were one batch.
    fn batched(&self, nodes: &[NodeId], kernel: &Kernel<R>, taken: &mut [(usize, Storage<R>)]) -> Result<()> {
        let Some((first, (_, storage))) = nodes.first().zip(taken.first_mut()) else { return Ok(()) };
        let inputs = &self.program.values[first.index()].inputs;
        let Place::Slot { slot, .. } = self.program.plan.places[inputs[0].index()] else {
            return Err(self.program.lost(inputs[0]));
        };
        let together = |id: NodeId| {
            let mut shape = self.shapes[id.index()].clone();
            shape[0] *= nodes.len();
            shape
        };
        let (from, to) = (together(inputs[0]), together(*first));
        let (read, written) = (from.iter().product(), to.iter().product());
        let mut views = vec![View { shape: &from, data: self.arena[slot].slice(read) }];
        for &weight in &inputs[1..] {
            views.push(self.view(weight)?);
        }
        (kernel.run)(&views, &mut ViewMut { shape: &to, data: storage.slice_mut(written) })
    }

    /// A value that may lie in a slot another part of which is being written.
    fn view_beside<'a>(&'a self, id: NodeId, beside: &[(Place, Slice<'a, R>)]) -> Result<View<'a, R>> {
        let place = self.program.plan.places[id.index()];
        match beside.iter().find(|(other, _)| *other == place) {
            Some((_, data)) => Ok(View { shape: &self.shapes[id.index()], data: *data }),
            None => self.view(id),
        }
    }

    fn view(&self, id: NodeId) -> Result<View<'_, R>> {
        let shape = &self.shapes[id.index()];
        let count: usize = shape.iter().product();
        let data = match self.program.plan.places[id.index()] {
            Place::Input(position) => self.inputs.get(position).map(Shared::slice),
            // Weights that a kernel keeps itself have a shape only.
            Place::Constant(id) => {
                Some(self.program.constants[id.index()].as_ref().map_or(Slice::Real(&[]), Shared::slice))
            }
            Place::Slot { slot, part } => self.arena[slot].part(part, count),
            Place::Nowhere => None,
        };
        data.map(|data| View { shape, data }).ok_or_else(|| self.program.lost(id))
    }

    /// Hands out the results; slots that leave are emptied, not copied.
    fn outputs(&mut self) -> Result<Vec<Tensor>> {
        let program = self.program;
        let mut taken: Vec<Option<Shared<R>>> = program.plan.slots.iter().map(|_| None).collect();
        let mut outputs = Vec::with_capacity(program.outputs.len());
        for &id in &program.outputs {
            let shape = self.shapes[id.index()].clone();
            let tensor = match program.plan.places[id.index()] {
                Place::Input(position) => self.inputs.get(position).map(|v| v.tensor(shape)),
                Place::Constant(id) => program.constants[id.index()].as_ref().map(|v| v.tensor(shape)),
                Place::Slot { slot, .. } => {
                    let empty = Storage::empty(program.plan.slots[slot].kind);
                    let arena = &mut self.arena[slot];
                    let shared = taken[slot].get_or_insert_with(|| std::mem::replace(arena, empty).share());
                    Some(shared.tensor(shape))
                }
                Place::Nowhere => None,
            };
            outputs.push(tensor.ok_or_else(|| program.lost(id))??);
        }
        Ok(outputs)
    }
}

impl<R: Real> crate::Program for CpuProgram<R> {
    fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        self.execute(inputs, None)
    }

    fn run_profiled(&self, inputs: &[Tensor]) -> Result<(Vec<Tensor>, Profile)> {
        self.within_pool(|| self.peak.get_or_init(peak::<R>));
        let mut profile = Profile::default();
        let outputs = self.execute(inputs, Some(&mut profile))?;
        Ok((outputs, profile))
    }
}

#[cfg(test)]
mod tests {
    use monosplit_graph::Data;
    use monosplit_graph::op::{Binary, Reduction, Unary, Window};

    use super::*;
    use crate::Program;
    use crate::cpu::kernels::testing::Random;

    /// A graph of elementwise nodes, convolutions with shared weights, reductions that come back as factors, and
    /// renamed values.
    struct Writer<'a> {
        graph: Graph,
        reals: Vec<NodeId>,
        truths: Vec<NodeId>,
        small: Vec<NodeId>,
        weights: Vec<NodeId>,
        random: &'a mut Random,
    }

    fn pick(random: &mut Random, ids: &[NodeId]) -> NodeId {
        ids[random.within(ids.len().saturating_sub(7), ids.len() - 1)]
    }

    impl<'a> Writer<'a> {
        fn new(random: &'a mut Random) -> Self {
            let mut graph = Graph::new();
            let shape = Shape::batched(&[4, 5, 6]);
            let reals: Vec<NodeId> = (0..3).map(|_| graph.input("x", shape.clone(), Kind::Float)).collect();
            let truths = vec![graph.at_least(reals[0], 0.0).unwrap()];
            let mut small = vec![graph.number(0.5), graph.input("alpha", Shape::default(), Kind::Float)];
            for shape in [vec![4, 1, 1], vec![1, 4, 5, 1], vec![6], vec![5, 6]] {
                let count = shape.iter().product();
                small.push(graph.constant(Tensor::new(shape, random.reals::<f32>(count)).unwrap()));
            }
            let weights = (0..2)
                .map(|_| graph.constant(Tensor::new([4, 4, 3, 3], random.reals::<f32>(144)).unwrap()))
                .collect();
            Writer { graph, reals, truths, small, weights, random }
        }

        fn real(&mut self) -> NodeId {
            pick(self.random, &self.reals)
        }

        fn either(&mut self) -> NodeId {
            if self.random.within(0, 2) == 0 { pick(self.random, &self.small) } else { self.real() }
        }

        fn step(&mut self) -> Result<()> {
            let (a, b) = (self.real(), self.either());
            let truth = pick(self.random, &self.truths);
            let g = &mut self.graph;
            let binaries = [Binary::Add, Binary::Sub, Binary::Mul, Binary::Div, Binary::Max, Binary::Min];
            let unaries = [Unary::Relu, Unary::Abs, Unary::Neg, Unary::Sigmoid, Unary::Floor, Unary::Sign];
            match self.random.within(0, 11) {
                0..=2 => self.reals.push(g.binary(binaries[self.random.within(0, 5)], a, b)?),
                3 => self.reals.push(g.binary(binaries[self.random.within(0, 5)], b, a)?),
                4 => self.reals.push(g.unary(unaries[self.random.within(0, 5)], a)?),
                5 => self.truths.push(g.binary(Binary::GreaterOrEqual, a, b)?),
                6 => self.reals.push(g.select(truth, a, b)?),
                7 => self.reals.push(g.select(truth, b, a)?),
                8 => {
                    let sum = g.reduced(Reduction::Max, a, &[1, 2, 3], true)?;
                    self.small.push(g.unary(Unary::Sigmoid, sum)?);
                }
                9 => {
                    let flat = g.reshaped(a, Shape::batched(&[120]))?;
                    let flat = g.scaled(0.25, flat)?;
                    self.reals.push(g.reshaped(flat, Shape::batched(&[4, 5, 6]))?);
                }
                10 => {
                    let not = g.unary(Unary::Not, truth)?;
                    self.truths.push(not);
                    self.reals.push(g.add(Op::Cast { to: Kind::Float }, &[not])?);
                }
                _ => {
                    let mut window = Window::new([3, 3]);
                    window.pad = vec![(1, 1); 2];
                    let weight = self.weights[self.random.within(0, 1)];
                    let other = pick(self.random, &self.reals);
                    for x in [a, other] {
                        let op = Op::ConvTranspose {
                            window: window.clone(),
                            groups: 1,
                            output_padding: vec![0, 0],
                        };
                        self.reals.push(g.add(op, &[x, weight])?);
                    }
                }
            }
            Ok(())
        }

        fn finish(mut self) -> Graph {
            for _ in 0..self.random.within(1, 4) {
                let id = self.real();
                self.graph.output("y", id);
            }
            let truth = pick(self.random, &self.truths);
            self.graph.output("truth", truth);
            self.graph
        }
    }

    /// The streams of two fully connected layers, forward and back.
    fn fully_connected(random: &mut Random) -> Graph {
        let mut g = Graph::new();
        let mut ends = Vec::new();
        for name in ["x", "alpha", "s"] {
            ends.push(g.input(name, Shape::batched(&[300]), Kind::Float));
        }
        let w = g.constant(Tensor::new([200, 300], random.reals::<f32>(60_000)).unwrap());
        let b = g.constant(Tensor::vector(random.reals::<f32>(200)));
        let (magnitude, bias) = (g.magnitude(w).unwrap(), g.magnitude(b).unwrap());
        let forward = Op::MatMul { trans_a: false, trans_b: true };
        let z = g.add(forward.clone(), &[ends[0], w, b]).unwrap();
        let s = g.add(forward, &[ends[2], magnitude, bias]).unwrap();
        let back = Op::MatMul { trans_a: false, trans_b: false };
        let d = g.add(back.clone(), &[z, w]).unwrap();
        let e = g.add(back.clone(), &[s, w]).unwrap();
        let again = g.magnitude(w).unwrap();
        let sigma = g.add(back, &[s, again]).unwrap();
        for id in [z, d, e, sigma] {
            g.output("y", id);
        }
        g
    }

    #[test]
    fn streams_of_a_fully_connected_layer_keep_their_bits_and_store_no_magnitudes() {
        let mut random = Random::new(5);
        let graph = fully_connected(&mut random);
        let off = Choices { share: false, fuse: false, batch: false, reorder: false };
        let compile = |choices| CpuProgram::<f32>::compile_with(&graph, None, 1 << 30, choices).unwrap();
        let (plain, all) = (compile(off), compile(Choices::ALL));
        for batch in [1, 3, 40] {
            let inputs: Vec<Tensor> = (0..3)
                .map(|_| Tensor::new([batch, 300], random.reals::<f32>(batch * 300)).unwrap())
                .collect();
            assert_eq!(bits(&all.run(&inputs).unwrap()), bits(&plain.run(&inputs).unwrap()));
        }
        let large = |v: &&Shared<f32>| matches!(v, Shared::Real(v) if v.len() == 60_000);
        assert_eq!(all.constants.iter().flatten().filter(large).count(), 1);
        let streams = |step: &&Step| matches!(step.work, Work::Streams(_));
        assert_eq!(all.plan.steps.iter().filter(streams).count(), 2);
    }

    fn bits(tensors: &[Tensor]) -> Vec<Vec<u64>> {
        let bits = |tensor: &Tensor| match tensor.data() {
            Data::F32(v) => v.iter().map(|v| u64::from(v.to_bits())).collect(),
            Data::F64(v) => v.iter().map(|v| v.to_bits()).collect(),
            Data::I64(v) => v.iter().map(|&v| v as u64).collect(),
            Data::Bool(v) => v.iter().map(|&v| u64::from(v)).collect(),
        };
        tensors.iter().map(bits).collect()
    }

    /// Whatever is shared, fused, batched or reordered, at every batch size, run after run and from threads at once,
    /// the bits are those of one node after the other.
    #[test]
    fn no_optimisation_changes_a_bit() {
        let mut random = Random::new(77);
        for round in 0..120 {
            let mut writer = Writer::new(&mut random);
            for _ in 0..round / 3 + 2 {
                writer.step().unwrap();
            }
            let graph = writer.finish();
            let off = Choices { share: false, fuse: false, batch: false, reorder: false };
            let on = |bit: usize| round & (1 << bit) == 0;
            let some = Choices { share: on(0), fuse: on(1), batch: on(2), reorder: on(3) };
            let compile = |choices| CpuProgram::<f32>::compile_with(&graph, None, 1 << 30, choices).unwrap();
            let (plain, some, all) = (compile(off), compile(some), compile(Choices::ALL));
            for batch in [2, 1, 400, 1] {
                let mut inputs: Vec<Tensor> = (0..3)
                    .map(|_| Tensor::new([batch, 4, 5, 6], random.reals::<f32>(batch * 120)).unwrap())
                    .collect();
                inputs.push(Tensor::scalar(0.3f32));
                let expected = bits(&plain.run(&inputs).unwrap());
                assert_eq!(bits(&some.run(&inputs).unwrap()), expected);
                std::thread::scope(|scope| {
                    for _ in 0..2 {
                        scope.spawn(|| assert_eq!(bits(&all.run(&inputs).unwrap()), expected));
                    }
                });
            }
        }
    }
}
