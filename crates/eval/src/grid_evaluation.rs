//! The evaluation of a grid of candidates, images and metrics. Values that are not in the store are claimed, computed and
//! stored row by row. A process that is killed loses at most the rows it had not written; several processes can share a grid.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use monosplit_explain::Progress;
use monosplit_graph::{Error, Result};
use monosplit_image::Preprocess;

use crate::candidate::{Candidate, groups};
use crate::dataset::{DataSet, Sample};
use crate::metric::Undefined;
use crate::store::{Row, Store, Worker};

/// How long a process with nothing left to claim waits before it checks whether the others are done.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Rows are written once they hold this much work. Each write takes the disk a few milliseconds.
const WRITE_INTERVAL: Duration = Duration::from_millis(200);

/// An image of the grid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvaluatedImage {
    /// Its id in the store.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// Its hash.
    pub hash: String,
    /// The class that is explained.
    pub class: usize,
    /// Its index in the data set.
    pub index: usize,
}

/// The value of a metric, or why it is undefined.
pub type Outcome = std::result::Result<f64, Undefined>;

/// Computes the values of a grid.
pub trait Evaluator {
    /// Prepares for candidates with the same run-time settings.
    fn prepare(&mut self, group: &[&Candidate]) -> Result<()>;

    /// Loads a batch of images.
    fn load(&mut self, samples: Vec<Sample>, images: &[EvaluatedImage]) -> Result<()>;

    /// The value of one metric for one of the prepared candidates and one of the loaded images.
    fn evaluate(&mut self, metric: usize, image: usize, candidate: usize) -> Result<Outcome>;

    /// Called before the next metric or image. Caches of the last one can be dropped.
    fn next_case(&mut self) {}
}

/// Evaluates grids and stores their values.
pub struct GridEvaluation<'a> {
    /// The store.
    pub store: &'a mut Store,
    /// This process.
    pub worker: &'a Worker,
    /// The id of the model in the store.
    pub model: i64,
    /// The seed of the experiment.
    pub seed: u64,
    /// How images are preprocessed.
    pub preprocess: &'a Preprocess,
    /// How many images are loaded together. The same number gives the same bits, wherever a run was interrupted.
    pub batch: usize,
    /// How many different maps are computed together.
    pub maps: usize,
    /// Receives the progress.
    pub progress: &'a dyn Progress,
}

/// Candidates, metrics and images.
pub struct EvaluationGrid<'a> {
    /// The candidates.
    pub candidates: &'a [Candidate],
    /// Their ids in the store.
    pub ids: &'a [i64],
    /// The ids of the metrics in the store.
    pub metrics: &'a [i64],
    /// The images.
    pub images: &'a [EvaluatedImage],
    /// The data set they are read from.
    pub data: &'a DataSet,
}

/// The index of a candidate in its group, the index of an image in its block, and the metrics not yet in the store.
type MissingValues = (usize, usize, Vec<usize>);

impl GridEvaluation<'_> {
    /// Computes and stores the missing values. Returns when all values are in the store, whichever process computed them.
    pub fn run(&mut self, grid: &EvaluationGrid<'_>, evaluator: &mut dyn Evaluator) -> Result<()> {
        let groups = groups(grid.candidates, self.maps.max(1));
        let total = grid.candidates.len() * grid.images.len() * grid.metrics.len();
        let (batch, open) = (self.batch.max(1), |missing_values: &[MissingValues]| {
            missing_values.iter().map(|(.., metrics)| metrics.len()).sum::<usize>()
        });
        self.store.release_abandoned_claims(self.worker)?;
        // Values that are already stored count as done from the start.
        let mut missing = Vec::new();
        for group in &groups {
            for block in grid.images.chunks(batch) {
                missing.push(open(&self.missing_values(grid, group, block)?));
            }
        }
        let mut done = total - missing.iter().sum::<usize>();
        log::info!("{done} of {total} rows are stored already");
        loop {
            let (mut worked, mut left) = (false, false);
            let mut missing = missing.iter_mut();
            for group in &groups {
                let mut prepared = false;
                for (block, missing) in grid.images.chunks(batch).zip(&mut missing) {
                    let missing_values = self.missing_values(grid, group, block)?;
                    done += *missing - open(&missing_values).min(*missing);
                    *missing = open(&missing_values);
                    self.progress.advance(done, total)?;
                    let mine = self.claimed(grid, group, block, &missing_values)?;
                    if mine.is_empty() {
                        left |= *missing > 0;
                        continue;
                    }
                    left |= mine.len() < missing_values.len();
                    if !std::mem::replace(&mut prepared, true) {
                        let members: Vec<&Candidate> =
                            group.iter().map(|&member| &grid.candidates[member]).collect();
                        evaluator.prepare(&members)?;
                    }
                    let before = done;
                    self.work(grid, group, block, &mine, evaluator, (&mut done, total))?;
                    *missing -= (done - before).min(*missing);
                    worked = true;
                }
            }
            if !left {
                self.progress.advance(total, total)?;
                return Ok(());
            }
            if !self.store.release_abandoned_claims(self.worker)? && !worked {
                std::thread::sleep(POLL_INTERVAL);
            }
        }
    }

    /// The values that are not in the store.
    fn missing_values(
        &self,
        grid: &EvaluationGrid<'_>,
        group: &[usize],
        block: &[EvaluatedImage],
    ) -> Result<Vec<MissingValues>> {
        let mut missing_values = Vec::new();
        for (member, &candidate) in group.iter().enumerate() {
            for (place, image) in block.iter().enumerate() {
                let known = self.store.measured(self.model, self.seed, grid.ids[candidate], image.id)?;
                let missing = (0..grid.metrics.len()).filter(|&m| !known.contains(&grid.metrics[m]));
                let missing: Vec<usize> = missing.collect();
                if !missing.is_empty() {
                    missing_values.push((member, place, missing));
                }
            }
        }
        Ok(missing_values)
    }

    /// The missing values that this worker has claimed. They are read again, because another worker may have stored some
    /// before the claim.
    fn claimed(
        &mut self,
        grid: &EvaluationGrid<'_>,
        group: &[usize],
        block: &[EvaluatedImage],
        missing_values: &[MissingValues],
    ) -> Result<Vec<MissingValues>> {
        if missing_values.is_empty() {
            return Ok(Vec::new());
        }
        let key = |(member, place, _): &MissingValues| (grid.ids[group[*member]], block[*place].id);
        let wanted: Vec<(i64, i64)> = missing_values.iter().map(key).collect();
        let mine = self.store.claim(self.worker, self.model, &wanted)?;
        if mine.is_empty() {
            return Ok(Vec::new());
        }
        let mine: HashSet<(i64, i64)> = mine.into_iter().collect();
        let again = self.missing_values(grid, group, block)?;
        let (kept, filled): (Vec<MissingValues>, Vec<(i64, i64)>) = {
            let open: HashSet<(i64, i64)> = again.iter().map(key).collect();
            let kept = again.into_iter().filter(|gap| mine.contains(&key(gap))).collect();
            (kept, mine.iter().filter(|claim| !open.contains(claim)).copied().collect())
        };
        self.store.finish(self.worker, (self.model, self.seed), &[], &filled)?;
        Ok(kept)
    }

    fn work(
        &mut self,
        grid: &EvaluationGrid<'_>,
        group: &[usize],
        block: &[EvaluatedImage],
        missing_values: &[MissingValues],
        evaluator: &mut dyn Evaluator,
        (done, total): (&mut usize, usize),
    ) -> Result<()> {
        // The whole block is loaded even if part of it is done: bits must not depend on where a run was interrupted.
        let mut samples = Vec::with_capacity(block.len());
        for image in block {
            let photograph = grid.data.load(image.index)?.map_err(|excluded| {
                Error::malformed(format!("image '{}' {} since the run began", excluded.name, excluded.issue))
            })?;
            samples.push(Sample::new(&photograph, self.preprocess)?);
        }
        evaluator.load(samples, block)?;
        let (mut pending, mut stored) = (Vec::new(), Instant::now());
        for (place, image) in block.iter().enumerate() {
            let here: Vec<&MissingValues> = missing_values.iter().filter(|(_, at, _)| *at == place).collect();
            for metric in 0..grid.metrics.len() {
                for (member, ..) in here.iter().filter(|gap| gap.2.contains(&metric)) {
                    let candidate = group[*member];
                    let begun = Instant::now();
                    let outcome = evaluator.evaluate(metric, place, *member).map_err(|error| {
                        let title = &grid.candidates[candidate].title;
                        error.context(format!("{title}, image '{}'", image.name))
                    })?;
                    let key = (grid.ids[candidate], image.id, grid.metrics[metric]);
                    pending.push(row(key, outcome, begun.elapsed().as_secs_f64()));
                    if stored.elapsed() > WRITE_INTERVAL {
                        self.store.finish(self.worker, (self.model, self.seed), &pending, &[])?;
                        *done += pending.len();
                        pending.clear();
                        stored = Instant::now();
                        self.progress.advance(*done, total)?;
                    }
                }
                evaluator.next_case();
            }
            let claims: Vec<(i64, i64)> =
                here.iter().map(|(member, ..)| (grid.ids[group[*member]], image.id)).collect();
            self.store.finish(self.worker, (self.model, self.seed), &pending, &claims)?;
            *done += pending.len();
            pending.clear();
            self.progress.advance(*done, total)?;
        }
        Ok(())
    }
}

fn row((configuration, image, metric): (i64, i64, i64), outcome: Outcome, seconds: f64) -> Row {
    let (value, undefined) = match outcome {
        Ok(value) if value.is_finite() => (Some(value), None),
        Ok(value) => (None, Some(format!("the value is {value}"))),
        Err(Undefined(why)) => (None, Some(why)),
    };
    Row { configuration, image, metric, value, undefined, seconds }
}
