//! A compiled graph: kernels chosen, constants computed, memory planned; and how it is run. What a run takes of the memory budget is
//! counted in `run_memory.rs`.

use std::sync::{Arc, Mutex, Weak};

use monosplit_graph::{Graph, Kind, LogTimer, NodeId, Result, Tensor};

use super::Settings;
use super::execution::Execution;
use super::fusion::Fusion;
use super::kernels::packed_convolution::PackedConvolution;
use super::kernels::policy::Kernel;
use super::real::Real;
use super::run_memory::{Arenas, RunMemory};
use super::thread_pool::ThreadPool;
use super::value::{Shared, Storage};
use crate::footprint::HeldConstants;
use crate::graph_info::GraphInfo;
use crate::memory_ledger::{MemoryLedger, Reservation};
use crate::plan::{BufferLocation, Plan, known};
use crate::profile::Profile;
use crate::schedule::Optimisations;
use crate::split_batch::{is_splittable, run_in_chunks};

/// What carries out a step.
pub(super) enum Executor<R> {
    /// The kernel of its node, or of its nodes at once.
    Kernel(Kernel<R>),
    /// One pass over memory.
    Fused(Fusion),
    /// A kernel and its epilogue.
    WithEpilogue(Kernel<R>, Fusion),
    /// A 1×1 convolution and the depthwise one that alone reads its result.
    PointwiseDepthwise(Box<[ChainedConvolution<R>; 2]>),
    /// One pass over weights.
    Streams(Streams),
}

/// A convolution, its epilogue, and the node of its result.
pub(super) struct ChainedConvolution<R> {
    pub(super) node: NodeId,
    pub(super) convolution: Arc<PackedConvolution<R>>,
    pub(super) fusion: Option<Fusion>,
}

/// Products of several values with the same weights.
pub(super) struct Streams {
    pub(super) weights: NodeId,
    /// For every product, whether it uses the magnitudes of the weights.
    pub(super) magnitude: Vec<bool>,
    /// Whether the weights are read transposed.
    pub(super) transposed: bool,
}

/// A graph compiled for the processor in precision `R`.
pub(crate) struct CpuProgram<R> {
    pub(super) info: GraphInfo,
    pub(super) constants: Vec<Option<Shared<R>>>,
    pub(super) executors: Vec<Executor<R>>,
    pub(super) plan: Plan,
    pub(super) settings: Settings,
    /// Bytes that it may hold together with the other programs of the account.
    pub(super) budget: usize,
    pub(super) ledger: Arc<MemoryLedger>,
    /// What it holds between runs, in that account.
    pub(super) reserved: Reservation,
    /// What of it is held between runs.
    pub(super) held: HeldConstants,
    /// Whether a batch may be run in chunks of samples.
    pub(super) splittable: bool,
    /// What a run of the batch size that was asked for last takes.
    pub(super) last_run: Mutex<RunMemory>,
    pub(super) pool: Arc<ThreadPool>,
    /// Memory of finished runs, for the next ones.
    pub(super) arenas: Arc<Arenas<R>>,
}

impl<R: Real> CpuProgram<R> {
    pub(crate) fn compile(
        graph: &Graph,
        pool: Arc<ThreadPool>,
        settings: Settings,
        ledger: Arc<MemoryLedger>,
    ) -> Result<Self> {
        CpuProgram::compile_with(graph, pool, settings, ledger, Optimisations::CPU)
    }

    pub(crate) fn compile_with(
        graph: &Graph,
        pool: Arc<ThreadPool>,
        settings: Settings,
        ledger: Arc<MemoryLedger>,
        options: Optimisations,
    ) -> Result<Self> {
        let time = LogTimer::start(log::Level::Debug);
        let (known, needed) = (known(graph), graph.live());
        let compiling = pool.clone();
        let plan = Plan::new(graph, &known, &needed, options);
        let info = GraphInfo::new(graph, &plan);
        let mut program = CpuProgram {
            info,
            constants: graph.nodes().map(|_| None).collect(),
            executors: Vec::new(),
            plan,
            settings,
            budget: ledger.limit(settings.memory_limit),
            ledger,
            reserved: Reservation::default(),
            held: HeldConstants::default(),
            splittable: is_splittable(graph),
            last_run: Mutex::default(),
            pool,
            arenas: Arc::new(Arenas::default()),
        };
        let kept: Weak<Arenas<R>> = Arc::downgrade(&program.arenas);
        program.ledger.add_idle(kept);
        let scratch = Arc::downgrade(compiling.scratch());
        program.ledger.add_idle(scratch);
        // Constants are computed, converted and packed in the denormal mode that runs have.
        compiling.install(|| program.prepare(graph, &known))?;
        log::debug!(
            "compiled {} nodes to {} steps and {} buffers, {} bits, in {time}",
            graph.len(),
            program.plan.steps.len(),
            program.plan.buffers.len(),
            8 * size_of::<R>()
        );
        Ok(program)
    }

    /// How many values lie side by side where `id` lies.
    pub(super) fn parts(&self, id: NodeId) -> usize {
        self.plan.contiguous.get(&id).copied().unwrap_or(1)
    }

    fn execute(&self, inputs: &[Tensor], mut profile: Option<&mut Profile>) -> Result<Vec<Tensor>> {
        let batch = self.info.batch(inputs)?;
        let converted = inputs.iter().filter(|input| !Shared::<R>::is_given_by(input));
        let converted = converted.map(|input| input.len().saturating_mul(size_of::<R>())).sum();
        let chunk = self.chunk(batch, converted)?;
        let _run = self.hold_run(chunk, converted)?;
        if chunk == batch {
            return self.execute_whole(batch, inputs, profile);
        }
        log::debug!("{batch} samples do not fit the memory budget; they are run {chunk} at a time");
        run_in_chunks(&self.info, (batch, chunk), inputs, |count, some| {
            self.execute_whole(count, some, profile.as_deref_mut())
        })
    }

    fn execute_whole(
        &self,
        batch: usize,
        inputs: &[Tensor],
        profile: Option<&mut Profile>,
    ) -> Result<Vec<Tensor>> {
        let time = LogTimer::start(log::Level::Trace);
        let shapes = self.info.shapes(&self.plan, batch)?;
        let kept = self.arenas.pop();
        let fresh = || self.plan.buffers.iter().map(|buffer| Storage::empty(buffer.kind)).collect();
        let arena = kept.unwrap_or_else(fresh);
        let outputs = self.pool.run_steps(self.plan.steps.len(), || {
            let inputs = inputs.iter().map(Shared::of).collect();
            let mut run = Execution { program: self, shapes, inputs, arena };
            run.steps(profile)?;
            let outputs = run.outputs()?;
            self.arenas.kept().push(run.arena);
            Ok(outputs)
        });
        log::trace!("ran {} steps for {batch} samples in {time}", self.plan.steps.len());
        outputs
    }
}

impl<R: Real> crate::Program for CpuProgram<R> {
    fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        self.execute(inputs, None)
    }

    fn run_memory(&self, samples: usize) -> usize {
        let (given, taken) = (&self.info.inputs, &self.info.outputs);
        let inputs = self.bytes_of(given, samples, size_of::<f64>() + size_of::<R>());
        let outputs = self.bytes_of(taken, samples, size_of::<f64>());
        self.run_bytes(samples).unwrap_or(usize::MAX).saturating_add(inputs).saturating_add(outputs)
    }

    fn memory_left(&self) -> usize {
        self.ledger.left(self.budget)
    }

    fn hold_memory(&self, bytes: usize) -> Reservation {
        self.ledger.hold(bytes, self.budget)
    }

    fn reclaim(&self, outputs: Vec<Tensor>) {
        let mut arenas = self.arenas.kept();
        let Some(arena) = arenas.last_mut() else { return };
        for (&id, tensor) in self.info.outputs.iter().zip(outputs) {
            let BufferLocation::Buffer { buffer, .. } = self.plan.locations[id.index()] else { continue };
            if self.info.values[id.index()].kind != Kind::Float {
                continue;
            }
            let elements = R::of(&tensor);
            drop(tensor);
            if let (Storage::Real(held), Ok(elements)) = (&mut arena[buffer], elements.try_into_vec())
                && held.len() < elements.len()
            {
                *held = elements;
            }
        }
    }

    fn run_profiled(&self, inputs: &[Tensor]) -> Result<(Vec<Tensor>, Profile)> {
        // Measured before anything is timed.
        self.pool.peak::<R>();
        // The first run asks the system for memory, which is not what is to be timed.
        if self.arenas.kept().is_empty() {
            self.execute(inputs, None)?;
        }
        let mut profile = Profile::default();
        let outputs = self.execute(inputs, Some(&mut profile))?;
        Ok((outputs, profile))
    }

    fn into_stateful(self: Box<Self>, state: Vec<Tensor>) -> Result<Box<dyn crate::StatefulProgram>> {
        Ok(Box::new(crate::HostState { program: self, state }))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use monosplit_graph::op::{Binary, Reduction, Unary, Window};
    use monosplit_graph::{Data, Op, Shape};

    use super::*;
    use crate::Program;
    use crate::cpu::kernels::conv_plan::PlanSettings;
    use crate::cpu::kernels::testing::Random;
    use crate::memory_ledger::IdleMemory;
    use crate::plan::Step;
    use crate::schedule::Partition;

    /// A graph of elementwise nodes, convolutions with shared weights, reductions that come back as factors, and
    /// renamed values.
    struct Writer<'a> {
        graph: Graph,
        reals: Vec<NodeId>,
        truths: Vec<NodeId>,
        small: Vec<NodeId>,
        weights: Vec<NodeId>,
        /// A kernel of 1×1, and one for every channel.
        single: NodeId,
        each: NodeId,
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
            let single = graph.constant(Tensor::new([4, 4, 1, 1], random.reals::<f32>(16)).unwrap());
            let each = graph.constant(Tensor::new([4, 1, 3, 3], random.reals::<f32>(36)).unwrap());
            Writer { graph, reals, truths, small, weights, single, each, random }
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
            match self.random.within(0, 13) {
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
                12.. => {
                    let reads = self.random.within(0, 3) == 0;
                    let narrow =
                        g.add(Op::Conv { window: Window::new([1, 1]), groups: 1 }, &[a, self.single])?;
                    let chained = [g.unary(unaries[self.random.within(0, 3)], narrow)?, narrow]
                        [self.random.within(0, 1)];
                    let mut window = Window::new([3, 3]);
                    window.pad = vec![(1, 1); 2];
                    let deep = g.add(Op::Conv { window, groups: 4 }, &[chained, self.each])?;
                    self.reals.push(match self.random.within(0, 1) {
                        0 => deep,
                        _ => g.binary(Binary::Add, deep, a)?,
                    });
                    self.reals.extend(reads.then_some(chained));
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
        let (plain, all) = (compiled(&graph, OFF), compiled(&graph, Optimisations::CPU));
        for batch in [1, 3, 40] {
            let inputs: Vec<Tensor> = (0..3)
                .map(|_| Tensor::new([batch, 300], random.reals::<f32>(batch * 300)).unwrap())
                .collect();
            assert_eq!(bits(&all.run(&inputs).unwrap()), bits(&plain.run(&inputs).unwrap()));
        }
        let large = |v: &&Shared<f32>| matches!(v, Shared::Real(v) if v.len() == 60_000);
        assert_eq!(all.constants.iter().flatten().filter(large).count(), 1);
        let streams = |step: &&Step| matches!(step.partition, Partition::StreamProducts(_));
        assert_eq!(all.plan.steps.iter().filter(streams).count(), 2);
    }

    const OFF: Optimisations = Optimisations {
        common_subexpressions: false,
        fuse_elementwise: false,
        fuse_epilogues: false,
        fuse_depthwise: false,
        fuse_reductions: false,
        batch_shared_weights: false,
        stream_products: false,
        reorder: false,
    };

    fn pool() -> Arc<ThreadPool> {
        static POOL: OnceLock<Arc<ThreadPool>> = OnceLock::new();
        POOL.get_or_init(|| Arc::new(ThreadPool::start(0, false).unwrap())).clone()
    }

    fn compiled(graph: &Graph, options: Optimisations) -> CpuProgram<f32> {
        let convolutions = PlanSettings { accurate: false, batch_size: 1 };
        let settings = Settings { memory_limit: Some(1 << 30), convolutions };
        CpuProgram::compile_with(graph, pool(), settings, Arc::default(), options).unwrap()
    }

    /// Under a budget that just suffices, a run uses the buffers of the one before; they are given up for another program.
    #[test]
    fn a_tight_budget_leaves_a_program_its_own_buffers() {
        let graph = fully_connected(&mut Random::new(7));
        let compile = |limit: usize, ledger: &Arc<MemoryLedger>| {
            let convolutions = PlanSettings { accurate: false, batch_size: 1 };
            let settings = Settings { memory_limit: Some(limit), convolutions };
            CpuProgram::<f32>::compile_with(&graph, pool(), settings, ledger.clone(), Optimisations::CPU)
                .unwrap()
        };
        let roomy = compile(1 << 30, &Arc::default());
        let limit = roomy.held.bytes + roomy.run_bytes(3).unwrap();
        let ledger = Arc::default();
        let tight = compile(limit, &ledger);
        drop(tight.hold_run(3, 0).unwrap());
        let mut arena: Vec<Storage<f32>> =
            tight.plan.buffers.iter().map(|b| Storage::empty(b.kind)).collect();
        arena.iter_mut().for_each(|buffer| buffer.grow(10).unwrap());
        tight.arenas.kept().push(arena);
        let kept = tight.arenas.bytes();
        assert!(kept > 0);
        drop(tight.hold_run(3, 0).unwrap());
        assert_eq!(tight.arenas.bytes(), kept);
        drop(ledger.hold(limit, limit));
        assert_eq!(tight.arenas.bytes(), 0);
    }

    /// The bits of all elements. Rust does not specify the sign of a NaN: it depends on how the compiler has arranged a sum, and
    /// all NaNs count as equal.
    fn bits(tensors: &[Tensor]) -> Vec<Vec<u64>> {
        let single = |v: &f32| if v.is_nan() { f32::NAN.to_bits() } else { v.to_bits() };
        let double = |v: &f64| if v.is_nan() { f64::NAN.to_bits() } else { v.to_bits() };
        let bits = |tensor: &Tensor| match tensor.data() {
            Data::F32(v) => v.iter().map(|v| u64::from(single(v))).collect(),
            Data::F64(v) => v.iter().map(double).collect(),
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
        let mut chained = 0;
        for round in 0..160 {
            let mut writer = Writer::new(&mut random);
            for _ in 0..round / 3 + 2 {
                writer.step().unwrap();
            }
            let graph = writer.finish();
            let some = Optimisations::without(round);
            let [plain, some, all] = [OFF, some, Optimisations::CPU].map(|options| compiled(&graph, options));
            chained += all
                .plan
                .steps
                .iter()
                .filter(|step| matches!(step.partition, Partition::PointwiseDepthwise(..)))
                .count();
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
        assert!(chained > 20, "too few graphs have convolutions to chain: {chained}");
    }
}
