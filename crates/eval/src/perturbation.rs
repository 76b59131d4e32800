//! Class scores of an image under cumulative perturbations, computed the cheapest way there is: incrementally, where each
//! perturbation is small, or on copies that are perturbed by the compiled graph itself. Scores are cached, so that metrics
//! with the same perturbations share them.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use monosplit_engine::{Change, Engine, IncrementalProgram};
use monosplit_explain::class_scores;
use monosplit_graph::batch::{rows, samples_interact, stack};
use monosplit_graph::{Dim, Graph, Kind, Result, Tensor};

use crate::replacement::{PixelReplacement, ReplacementProgram};

/// Rows and columns of an image.
pub type Region = [Range<usize>; 2];

/// The batch size for engines that prefer none.
const DEFAULT_BATCH_SIZE: usize = 16;
/// The batch size of incremental runs. It is larger because tiles are small and only those of the same shape are computed
/// together.
const INCREMENTAL_BATCH_SIZE: usize = 64;
/// The largest number of bytes that cached scores take.
const CACHE_BYTES: usize = 512 << 20;

/// Perturbations of an image that are applied one after another and add up.
pub trait Perturbations {
    /// The number of perturbations.
    fn steps(&self) -> usize;

    /// Applies perturbation `step` to the `C·H·W` values of the image.
    fn apply(&self, step: usize, image: &mut [f32]);

    /// The rows and columns of each perturbation, if all of them are small.
    fn regions(&self) -> Option<Vec<Region>>;

    /// All perturbations together, if each pixel changes once and its new value does not depend on the step.
    fn replacement(&self) -> Result<Option<PixelReplacement>>;
}

/// The batch size: the one given, or the one the engine prefers, or the default.
pub(crate) fn batch_size(given: Option<usize>, preferred: Option<usize>) -> usize {
    given.or(preferred).unwrap_or(DEFAULT_BATCH_SIZE).max(1)
}

/// Compiled programs by what they were compiled for; `None` where there is no such program.
type Programs<K, V> = HashMap<K, Option<V>>;

/// Computes and caches class scores of perturbed images for one network.
#[derive(Default)]
pub(crate) struct PerturbationScorer {
    by_size: Mutex<Programs<[usize; 2], Arc<IncrementalProgram>>>,
    by_shape: Mutex<Programs<[Vec<usize>; 2], ReplacementProgram>>,
    cached: Mutex<VecDeque<CachedScores>>,
}

/// The class scores of an image under perturbations, one tensor per batch.
struct CachedScores {
    image: Tensor,
    replacement: PixelReplacement,
    batch: usize,
    scores: Vec<Tensor>,
}

impl CachedScores {
    /// An upper bound of the memory: all values in double precision, and the image not shared.
    fn bytes(&self) -> usize {
        let scores: usize = self.scores.iter().map(Tensor::len).sum();
        (scores + self.replacement.steps.len() + self.replacement.values.len() + self.image.len())
            * size_of::<f64>()
    }
}

impl PerturbationScorer {
    /// The class scores `[1 + steps, classes]` of an image `[1, C, H, W]`, unchanged and after each perturbation. `None` if
    /// the perturbed images must be made one by one. `batch` images are computed at a time, or as many as the engine prefers.
    pub(crate) fn scores(
        &self,
        graph: &Graph,
        engine: &dyn Engine,
        image: &Tensor,
        changes: &dyn Perturbations,
        batch: Option<usize>,
    ) -> Result<Option<Tensor>> {
        let (preferred, wanted) = (engine.preferred_batch_size(), changes.steps() + 1);
        if let Some(regions) = changes.regions()
            && let Some(scores) = self.incremental_scores(graph, engine, image, (changes, regions), batch)?
        {
            return Ok(Some(scores));
        }
        let Some(replacement) = changes.replacement()? else { return Ok(None) };
        let Some(replacement_program) = self.replacement_program(graph, engine, &replacement)? else {
            return Ok(None);
        };
        let batch = batch_size(batch, preferred);
        // Further batch sizes cost such an engine preparation, so it gets full batches only.
        let batch = preferred.map_or(batch, |size| batch.min(wanted.next_multiple_of(size.max(1))));
        let whole = preferred.is_some();
        let mut scores = self.cached_scores(image, &replacement, batch);
        for first in (scores.len() * batch..wanted).step_by(batch) {
            let end = if whole { first + batch } else { wanted.min(first + batch) };
            scores.push(replacement_program.scores(image, &replacement, first..end)?);
        }
        let found = rows(&stack(&scores, Kind::Float)?, 0..wanted)?;
        scores.retain(|part| part.shape().first() == Some(&batch));
        if !scores.is_empty() {
            self.cache(CachedScores { image: image.clone(), replacement, batch, scores });
        }
        Ok(Some(found))
    }

    /// Removes all cached scores.
    pub(crate) fn clear_cache(&self) {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn incremental_scores(
        &self,
        graph: &Graph,
        engine: &dyn Engine,
        image: &Tensor,
        (changes, regions): (&dyn Perturbations, Vec<Region>),
        batch: Option<usize>,
    ) -> Result<Option<Tensor>> {
        let longest = |axis: usize| regions.iter().map(|area| area[axis].len()).max().unwrap_or(0);
        let size = [longest(0), longest(1)];
        let program = prepared(&self.by_size, size, || incremental(graph, size, engine))?;
        let Some(program) = program else { return Ok(None) };
        let baseline = program.baseline(std::slice::from_ref(image))?;
        let [_, _, height, width] = *image.shape() else { return Ok(None) };
        let mut numbers = image.to_f32().to_vec();
        let steps = regions.iter().enumerate().map(|(step, area)| {
            changes.apply(step, &mut numbers);
            Ok(Change { sample: 0, region: area.clone(), values: cropped(&numbers, [height, width], area)? })
        });
        let steps = steps.collect::<Result<Vec<_>>>()?;
        let batch = batch.unwrap_or(INCREMENTAL_BATCH_SIZE);
        let scores = program.run_cumulative(baseline, &steps, batch)?;
        Ok(scores.into_iter().next())
    }

    fn replacement_program(
        &self,
        graph: &Graph,
        engine: &dyn Engine,
        replacement: &PixelReplacement,
    ) -> Result<Option<ReplacementProgram>> {
        let shapes = [replacement.steps.shape().to_vec(), replacement.values.shape().to_vec()];
        prepared(&self.by_shape, shapes, || ReplacementProgram::new(graph, replacement, engine))
    }

    /// The cached scores of the same image and perturbations, which may be fewer than needed. They leave the cache.
    fn cached_scores(&self, image: &Tensor, replacement: &PixelReplacement, batch: usize) -> Vec<Tensor> {
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        let same =
            |one: &CachedScores| one.batch == batch && one.image.is(image) && one.replacement == *replacement;
        let found = cached.iter().position(same).and_then(|at| cached.remove(at));
        found.map_or_else(Vec::new, |one| one.scores)
    }

    fn cache(&self, one: CachedScores) {
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        cached.push_back(one);
        let mut bytes: usize = cached.iter().map(CachedScores::bytes).sum();
        while bytes > CACHE_BYTES
            && let Some(oldest) = cached.pop_front()
        {
            bytes -= oldest.bytes();
        }
    }
}

/// The program for one image that is perturbed within rectangles of at most this size. `None` if computing everything again
/// is as good, and for networks of several inputs or of fixed batch size.
fn incremental(
    graph: &Graph,
    largest: [usize; 2],
    engine: &dyn Engine,
) -> Result<Option<Arc<IncrementalProgram>>> {
    let dims = graph.inputs().first().and_then(|&id| graph.node(id).shape.dims().first());
    if graph.inputs().len() != 1 || matches!(dims, Some(Dim::Fixed(_))) || samples_interact(graph) {
        return Ok(None);
    }
    let program = engine.compile_incremental(&class_scores(graph)?, largest, INCREMENTAL_BATCH_SIZE)?;
    Ok(program.map(Arc::new))
}

/// A region `[C, rows, columns]` of an image of this height and width.
fn cropped(image: &[f32], [height, width]: [usize; 2], [rows, columns]: &Region) -> Result<Tensor> {
    let lines = image.chunks(height * width).flat_map(|plane| {
        rows.clone().map(move |row| &plane[row * width + columns.start..row * width + columns.end])
    });
    let values = lines.flatten().copied().collect::<Vec<f32>>();
    Tensor::new([image.len() / (height * width), rows.len(), columns.len()], values)
}

/// The program of a key, compiled if it is not yet known.
fn prepared<K: std::hash::Hash + Eq, V: Clone>(
    cached: &Mutex<Programs<K, V>>,
    key: K,
    make: impl FnOnce() -> Result<Option<V>>,
) -> Result<Option<V>> {
    let mut cached = cached.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = cached.get(&key) {
        return Ok(found.clone());
    }
    let made = make()?;
    cached.insert(key, made.clone());
    Ok(made)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use monosplit_engine::{CompileOptions, Cpu, Precision, Program};
    use monosplit_graph::op::{Reduction, Window};
    use monosplit_graph::{Noise, Op, Shape};

    use super::*;
    use crate::metric::{Case, ExplainedNetwork};
    use crate::metrics::parse;

    /// The CPU engine with a preferred batch size. It counts how many programs are compiled.
    struct TestEngine {
        preferred: Option<usize>,
        compiled: AtomicUsize,
    }

    impl Engine for TestEngine {
        fn native_precision(&self) -> Precision {
            Precision::F64
        }

        fn compile_with(&self, graph: &Graph, options: &CompileOptions) -> Result<Box<dyn Program>> {
            self.compiled.fetch_add(1, Ordering::Relaxed);
            Cpu::default().precision(Precision::F64).compile_with(graph, options)
        }

        fn preferred_batch_size(&self) -> Option<usize> {
            self.preferred
        }

        fn compile_incremental(
            &self,
            graph: &Graph,
            largest_change: [usize; 2],
            batch_size: usize,
        ) -> Result<Option<IncrementalProgram>> {
            let engine = Cpu::default().precision(Precision::F64);
            match self.preferred {
                None => engine.compile_incremental(graph, largest_change, batch_size),
                Some(_) => Ok(None),
            }
        }
    }

    /// A network with or without a [`PerturbationScorer`].
    struct TestNetwork<'a> {
        graph: &'a Graph,
        engine: TestEngine,
        perturbation_scorer: Option<PerturbationScorer>,
        /// The number of images scored one by one.
        shown: AtomicUsize,
    }

    impl ExplainedNetwork for TestNetwork<'_> {
        fn scores(&self, images: &Tensor) -> Result<Tensor> {
            self.shown.fetch_add(images.shape()[0], Ordering::Relaxed);
            Ok(self.engine.compile(self.graph)?.run(std::slice::from_ref(images))?.swap_remove(0))
        }

        fn preferred_batch_size(&self) -> Option<usize> {
            self.engine.preferred
        }

        fn scores_after(
            &self,
            image: &Tensor,
            changes: &dyn Perturbations,
            batch: Option<usize>,
        ) -> Result<Option<Tensor>> {
            let Some(perturbation_scorer) = &self.perturbation_scorer else { return Ok(None) };
            perturbation_scorer.scores(self.graph, &self.engine, image, changes, batch)
        }

        fn maps(&self, _: &Tensor, _: usize) -> Result<Tensor> {
            Err(monosplit_graph::Error::argument("this network has no maps"))
        }
    }

    fn random(shape: &[usize], seed: u64) -> Tensor {
        let noise = Noise::new(seed);
        let count: usize = shape.iter().product();
        Tensor::new(shape, (0..count as u64).map(|i| noise.gaussian(i) as f32).collect::<Vec<_>>()).unwrap()
    }

    fn network() -> Graph {
        let mut graph = Graph::new();
        let mut x = graph.input("x", Shape::batched(&[3, 64, 64]), Kind::Float);
        for (layer, (from, to)) in [(3, 16), (16, 16), (16, 8)].into_iter().enumerate() {
            let window = Window { pad: vec![(1, 1); 2], ..Window::new([3, 3]) };
            let weights = graph.constant(random(&[to, from, 3, 3], layer as u64));
            let z = graph.add(Op::Conv { window, groups: 1 }, &[x, weights]).unwrap();
            x = graph.rectified(z).unwrap();
        }
        let mean = graph.reduced(Reduction::Mean, x, &[2, 3], false).unwrap();
        let head = graph.constant(random(&[4, 8], 9));
        let scores = graph.add(Op::MatMul { trans_a: false, trans_b: true }, &[mean, head]).unwrap();
        graph.output("scores", scores);
        graph
    }

    /// All ways to compute a curve agree within the rounding of double precision. Only a baseline that changes from step to
    /// step needs perturbed images made one by one.
    #[test]
    fn all_ways_to_compute_a_curve_agree() {
        let graph = network();
        let (image, map) = (random(&[1, 3, 64, 64], 5), random(&[64, 64], 6));
        for text in [
            "selectivity:preset=quantus-0.6",
            "selectivity:preset=quantus-0.5",
            "region-perturbation:patch=5",
            "pixel-flipping:step=300,auc=50",
            "pixel-flipping:step=500,baseline=channel-mean,curve=score",
            "pixel-flipping:step=500,baseline=running-mean",
            "pixel-flipping:step=900,unit=value",
            "insertion:step=400",
            "deletion:step=400",
            "infidelity",
        ] {
            let metric = parse(text).unwrap();
            let value = |perturbation_scorer: Option<PerturbationScorer>, preferred: Option<usize>| {
                let engine = TestEngine { preferred, compiled: AtomicUsize::new(0) };
                let network =
                    TestNetwork { graph: &graph, engine, perturbation_scorer, shown: AtomicUsize::new(0) };
                let case =
                    Case { image: &image, class: 2, map: &map, mask: None, network: &network, seed: 0 };
                (metric.measure(&case).unwrap().unwrap(), network.shown.into_inner())
            };
            let (whole, shown) = value(None, None);
            assert!(shown > 0);
            for preferred in [None, Some(5), Some(48)] {
                let (found, shown) = value(Some(PerturbationScorer::default()), preferred);
                assert!((whole - found).abs() < 1e-9 * whole.abs(), "{text} {preferred:?}: {whole} {found}");
                assert_eq!(shown > 0, text.contains("running-mean"), "{text} {preferred:?}");
            }
        }
    }

    /// Cached steps are not computed again, and the steps after them have the bits of an uncached run.
    #[test]
    fn scores_are_cached() {
        let graph = network();
        let (image, map) = (random(&[1, 3, 64, 64], 5), random(&[64, 64], 6));
        for preferred in [None, Some(7)] {
            let engine = || TestEngine { preferred, compiled: AtomicUsize::new(0) };
            let fresh = || TestNetwork {
                graph: &graph,
                engine: engine(),
                perturbation_scorer: Some(PerturbationScorer::default()),
                shown: AtomicUsize::new(0),
            };
            let value = |network: &TestNetwork<'_>, auc: usize| {
                let metric = parse(&format!("pixel-flipping:step=60,auc={auc}")).unwrap();
                let case = Case { image: &image, class: 1, map: &map, mask: None, network, seed: 0 };
                metric.measure(&case).unwrap().unwrap()
            };
            let one = fresh();
            for auc in [30, 5, 60, 30] {
                assert_eq!(value(&one, auc).to_bits(), value(&fresh(), auc).to_bits(), "{auc}");
            }
            assert_eq!(one.engine.compiled.load(Ordering::Relaxed), 1);
            let cached = one.perturbation_scorer.as_ref().unwrap().cached.lock().unwrap();
            assert_eq!(cached.len(), 1);
            let batch = preferred.unwrap_or(DEFAULT_BATCH_SIZE);
            let states = 1 + (64 * 64 * 60 / 100usize).div_ceil(60);
            let whole = if preferred.is_some() { states.div_ceil(batch) } else { states / batch };
            assert_eq!(cached[0].scores.len(), whole);
        }
    }
}
