//! A compiled graph: kernels chosen, constants computed, memory planned; and how it is run.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use monosplit_graph::{Dim, Error, Graph, Kind, NodeId, Op, Result, Shape, Tensor, element_count};
use rayon::ThreadPool;

use super::kernels::policy::{self, Kernel};
use super::plan::{Place, Plan, known, needed};
use super::real::Real;
use super::value::{Shared, Storage, View, ViewMut, element_bytes};
use crate::profile::{NodeTime, Profile};

/// What is kept of a node.
struct Value {
    name: String,
    shape: Shape,
    kind: Kind,
    inputs: Vec<NodeId>,
}

/// A graph compiled for the processor in precision `R`.
pub(crate) struct CpuProgram<R> {
    values: Vec<Value>,
    inputs: Vec<NodeId>,
    outputs: Vec<NodeId>,
    constants: Vec<Option<Shared<R>>>,
    kernels: Vec<Kernel<R>>,
    plan: Plan,
    memory_limit: usize,
    pool: Option<Arc<ThreadPool>>,
    /// Memory of finished runs, for the next ones.
    arenas: Mutex<Vec<Vec<Storage<R>>>>,
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
        let (known, needed) = (known(graph), needed(graph));
        let values = graph
            .nodes()
            .map(|(id, node)| Value {
                name: name_of(graph, id),
                shape: node.shape.clone(),
                kind: node.kind,
                inputs: node.inputs.clone(),
            })
            .collect();
        let mut program = CpuProgram {
            values,
            inputs: graph.inputs().to_vec(),
            outputs: graph.outputs().iter().map(|output| output.node).collect(),
            constants: graph.nodes().map(|_| None).collect(),
            kernels: Vec::new(),
            plan: Plan::new(graph, &known, &needed),
            memory_limit,
            pool,
            arenas: Mutex::new(Vec::new()),
        };
        program.evaluate_constants(graph, &known, &needed)?;
        for step in &program.plan.steps {
            program.kernels.push(program.choose(graph, step.node)?);
        }
        program.forget_unread_constants(&known);
        Ok(program)
    }

    fn choose(&self, graph: &Graph, id: NodeId) -> Result<Kernel<R>> {
        let node = graph.node(id);
        let shapes = self.fixed_shapes(&node.inputs);
        let constants: Vec<Option<View<'_, R>>> = (node.inputs.iter().zip(&shapes))
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

    /// Computes every needed value that depends on no input.
    fn evaluate_constants(&mut self, graph: &Graph, known: &[bool], needed: &[bool]) -> Result<()> {
        let mut bytes = 0usize;
        for (id, node) in graph.nodes() {
            if !(known[id.index()] && needed[id.index()]) {
                continue;
            }
            let value = match &node.op {
                Op::Constant(tensor) => Shared::of(tensor),
                Op::Identity | Op::Dropout { .. } | Op::Reshape { .. } => {
                    self.constants[node.inputs[0].index()].clone().ok_or_else(|| self.lost(id))?
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
        let kernel = self.choose(graph, id)?;
        let shape = node.shape.at(1).ok_or_else(|| self.too_large(id))?;
        let count = element_count(&shape).ok_or_else(|| self.too_large(id))?;
        let shapes: Option<Vec<Vec<usize>>> = self.fixed_shapes(&node.inputs).into_iter().collect();
        let shapes = shapes.ok_or_else(|| self.lost(id))?;
        let mut views = Vec::with_capacity(shapes.len());
        for (input, shape) in node.inputs.iter().zip(&shapes) {
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

    /// Drops constants that only other constants were made of.
    fn forget_unread_constants(&mut self, known: &[bool]) {
        let steps = self.plan.steps.iter().flat_map(|step| &self.values[step.node.index()].inputs);
        let mut read = vec![false; self.values.len()];
        for id in steps.chain(&self.outputs) {
            if let Place::Constant(constant) = self.plan.places[id.index()] {
                read[constant.index()] = true;
            }
        }
        for (index, constant) in self.constants.iter_mut().enumerate() {
            if known[index] && !read[index] {
                *constant = None;
            }
        }
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
            // Entered once for all steps: work handed in from outside wakes the pool every time.
            None => rayon::scope(|_| work()),
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
            for id in &slot.values {
                let bytes = element_count(&shapes[id.index()])
                    .and_then(|n| n.checked_mul(element_bytes::<R>(slot.kind)))
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
        for (step, kernel) in program.plan.steps.iter().zip(&program.kernels) {
            let began = Instant::now();
            let index = step.node.index();
            let kind = program.plan.slots[step.slot].kind;
            let mut storage = std::mem::replace(&mut self.arena[step.slot], Storage::empty(kind));
            let done = self.compute(step.node, step.in_place, kernel, &mut storage);
            self.arena[step.slot] = storage;
            done.map_err(|e| e.at(&program.values[index].name))?;
            if let Some(profile) = profile.as_deref_mut() {
                profile.nodes.push(NodeTime { node: step.node, kernel: kernel.name, time: began.elapsed() });
            }
        }
        Ok(())
    }

    fn compute(
        &self,
        id: NodeId,
        in_place: bool,
        kernel: &Kernel<R>,
        storage: &mut Storage<R>,
    ) -> Result<()> {
        let shape = &self.shapes[id.index()];
        let count: usize = shape.iter().product();
        storage.grow(count)?;
        let mut out = ViewMut { shape, data: storage.slice_mut(count) };
        if out.is_empty() {
            return Ok(());
        }
        match &kernel.in_place {
            Some(run) if in_place => run(&mut out),
            _ => {
                let inputs = &self.program.values[id.index()].inputs;
                let views: Result<Vec<View<'_, R>>> = inputs.iter().map(|&input| self.view(input)).collect();
                (kernel.run)(&views?, &mut out)
            }
        }
    }

    fn view(&self, id: NodeId) -> Result<View<'_, R>> {
        let shape = &self.shapes[id.index()];
        let count = shape.iter().product();
        let data = match self.program.plan.places[id.index()] {
            Place::Input(position) => self.inputs.get(position).map(Shared::slice),
            Place::Constant(id) => self.program.constants[id.index()].as_ref().map(Shared::slice),
            Place::Slot(slot) => Some(self.arena[slot].slice(count)),
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
                Place::Slot(slot) => {
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
        let mut profile = Profile::default();
        let outputs = self.execute(inputs, Some(&mut profile))?;
        Ok((outputs, profile))
    }
}
