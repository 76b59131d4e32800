//! Profiles of work that consists of many runs of several programs, incremental ones among them.

use std::sync::{Arc, Mutex, PoisonError};

use monosplit_graph::{Graph, Result, Tensor};

use crate::{
    CompileOptions, Engine, EngineIdentity, IncrementalProgram, Precision, Profile, Program, StatefulProgram,
};

/// Entries are merged when there are more than this many.
const MAX_ENTRIES: usize = 1 << 14;

/// An engine that compiles with another and records the time of every step of every run of its programs.
///
/// Timing takes time: compile with the engine itself what is not to be profiled.
pub struct ProfiledEngine<'a> {
    engine: &'a dyn Engine,
    profile: Arc<Mutex<Profile>>,
}

impl<'a> ProfiledEngine<'a> {
    /// Compiles with `engine`.
    pub fn new(engine: &'a dyn Engine) -> Self {
        ProfiledEngine { engine, profile: Arc::default() }
    }

    /// What has run since this was last asked, one entry for all runs of a step.
    pub fn take_profile(&self) -> Profile {
        std::mem::take(&mut *self.profile.lock().unwrap_or_else(PoisonError::into_inner)).merged()
    }

    fn profiled(&self, program: Box<dyn Program>) -> Box<dyn Program> {
        Box::new(ProfiledProgram { program, profile: self.profile.clone() })
    }
}

impl Engine for ProfiledEngine<'_> {
    fn native_precision(&self) -> Precision {
        self.engine.native_precision()
    }

    fn compile_with(&self, graph: &Graph, options: &CompileOptions) -> Result<Box<dyn Program>> {
        Ok(self.profiled(self.engine.compile_with(graph, options)?))
    }

    fn preferred_batch_size(&self) -> Option<usize> {
        self.engine.preferred_batch_size()
    }

    fn identity(&self) -> Result<EngineIdentity> {
        self.engine.identity()
    }

    fn compile_incremental(
        &self,
        graph: &Graph,
        largest_change: [usize; 2],
        batch_size: usize,
    ) -> Result<Option<IncrementalProgram>> {
        let program = self.engine.compile_incremental(graph, largest_change, batch_size)?;
        Ok(program.map(|program| {
            program.map_programs(|program| self.profiled(program)).record_moves(self.profile.clone())
        }))
    }
}

/// A program that records the time of its runs. A stateful program is not recorded.
struct ProfiledProgram {
    program: Box<dyn Program>,
    profile: Arc<Mutex<Profile>>,
}

impl Program for ProfiledProgram {
    fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let (outputs, times) = self.program.run_profiled(inputs)?;
        let mut profile = self.profile.lock().unwrap_or_else(PoisonError::into_inner);
        profile.append(times);
        if profile.nodes.len() > MAX_ENTRIES {
            *profile = std::mem::take(&mut *profile).merged();
        }
        Ok(outputs)
    }

    fn reclaim(&self, outputs: Vec<Tensor>) {
        self.program.reclaim(outputs);
    }

    fn run_memory(&self, samples: usize) -> usize {
        self.program.run_memory(samples)
    }

    fn memory_left(&self) -> usize {
        self.program.memory_left()
    }

    fn hold_memory(&self, bytes: usize) -> crate::Reservation {
        self.program.hold_memory(bytes)
    }

    fn run_profiled(&self, inputs: &[Tensor]) -> Result<(Vec<Tensor>, Profile)> {
        self.program.run_profiled(inputs)
    }

    fn into_stateful(self: Box<Self>, state: Vec<Tensor>) -> Result<Box<dyn StatefulProgram>> {
        self.program.into_stateful(state)
    }
}

#[cfg(test)]
mod tests {
    use monosplit_graph::op::{Reduction, Window};
    use monosplit_graph::{Kind, Noise, Op, Shape};

    use super::*;
    use crate::{Change, Cpu};

    fn random(shape: &[usize], seed: u64) -> Tensor {
        let noise = Noise::new(seed);
        let count: usize = shape.iter().product();
        Tensor::new(shape, (0..count as u64).map(|i| noise.gaussian(i) as f32).collect::<Vec<_>>()).unwrap()
    }

    /// Three convolutions and a mean.
    fn network() -> Graph {
        let mut graph = Graph::new();
        let mut x = graph.input("image", Shape::batched(&[3, 64, 64]), Kind::Float);
        for (from, to) in [(3, 16), (16, 16), (16, 8)] {
            let window = Window { pad: vec![(1, 1); 2], ..Window::new([3, 3]) };
            let weights = graph.constant(random(&[to, from, 3, 3], from as u64));
            x = graph.add(Op::Conv { window, groups: 1 }, &[x, weights]).unwrap();
        }
        let mean = graph.reduced(Reduction::Mean, x, &[2, 3], false).unwrap();
        graph.output("mean", mean);
        graph
    }

    /// An incremental run computes tiles of the convolutions, as often as batches of changes are run, and has the bits of an
    /// unprofiled one.
    #[test]
    fn incremental_runs_are_profiled_with_the_tiles_that_they_compute() {
        let (cpu, graph, image) = (Cpu::default(), network(), random(&[1, 3, 64, 64], 1));
        let engine = ProfiledEngine::new(&cpu);
        let change = |at: usize| Change {
            sample: 0,
            region: [at..at + 4, at..at + 4],
            values: Tensor::new([3, 4, 4], vec![0.0f32; 48]).unwrap(),
        };
        let changes: Vec<Change> = (10..30).map(change).collect();
        let [plain, profiled] = [&cpu as &dyn Engine, &engine].map(|engine| {
            let program = engine.compile_incremental(&graph, [4, 4], 4).unwrap().unwrap();
            let baseline = program.baseline(std::slice::from_ref(&image)).unwrap();
            changes.chunks(4).flat_map(|some| program.run(&baseline, some).unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(plain, profiled);
        let profile = engine.take_profile();
        let conv = |tile: bool| {
            profile.nodes.iter().filter(move |node| node.op == "Conv" && (node.shape[3] < 64) == tile)
        };
        assert!(conv(false).all(|node| node.runs == 1), "{profile:?}");
        assert!(conv(true).count() > 0 && conv(true).all(|node| node.runs == 5), "{profile:?}");
        let moved = profile.nodes.iter().filter(|node| node.op == "Tiles").map(|node| node.runs);
        assert!(moved.clone().count() >= 3 && moved.clone().all(|runs| runs == 5), "{profile:?}");
        assert!(engine.take_profile().nodes.is_empty());
    }

    #[test]
    fn batches_of_any_size_are_runs_of_one_step() {
        let cpu = Cpu::default();
        let engine = ProfiledEngine::new(&cpu);
        let program = engine.compile(&network()).unwrap();
        for samples in [1, 3, 2] {
            program.run(&[random(&[samples, 3, 64, 64], 1)]).unwrap();
        }
        let profile = engine.take_profile();
        assert!(profile.nodes.iter().all(|node| node.runs == 3 && node.shape[0] == 3), "{profile:?}");
        let operations: u64 = profile.nodes.iter().map(|node| node.operations).sum();
        assert_eq!(operations, 6 * 64 * 64 * 2 * (27 * 16 + 144 * 16 + 144 * 8));
    }
}
