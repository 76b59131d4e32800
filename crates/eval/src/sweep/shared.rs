//! The sweep of one machine: processes that share a store claim what is missing, measure it and store it row by row. A process
//! that is killed loses at most the rows it had not written.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use monosplit_explain::Progress;
use monosplit_graph::Result;

use super::{EvaluatedImage, Measured, Measurer, StageGrid, StageIds, WorkUnit};
use crate::store::{Provenance, Row, Store, Worker};

/// How long a process with nothing left to claim waits before it checks whether the others are done.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Rows are written once they hold this much work. Each write takes the disk a few milliseconds.
const WRITE_INTERVAL: Duration = Duration::from_millis(200);

/// The sweep over one stage, by one of the processes that share a store.
pub struct SharedSweep<'a> {
    /// The store.
    pub store: &'a mut Store,
    /// This process.
    pub worker: &'a Worker,
    /// The id of the model in the store, and the seed of the experiment.
    pub key: (i64, u64),
    /// What measures.
    pub made_by: &'a Provenance,
    /// The candidates and metrics, and their ids.
    pub stage: (&'a StageGrid, &'a StageIds),
    /// The images.
    pub images: &'a [EvaluatedImage],
    /// Receives the progress.
    pub progress: &'a dyn Progress,
}

impl SharedSweep<'_> {
    /// Computes and stores the missing values. Returns when all values are in the store, whichever process computed them.
    pub fn run(&mut self, measurer: &mut Measurer<'_>) -> Result<()> {
        let (grid, _) = self.stage;
        let total = grid.candidates.len() * self.images.len() * grid.metrics.len();
        self.store.release_abandoned_claims(self.worker)?;
        // Values that are already stored count as done from the start.
        let units = grid.units(self.images.len());
        let mut missing =
            (0..units).map(|unit| Ok(self.gap(unit)?.rows())).collect::<Result<Vec<usize>>>()?;
        let mut done = total - missing.iter().sum::<usize>();
        log::info!("{done} of {total} rows are stored already");
        loop {
            let (mut worked, mut left) = (false, false);
            for (number, missing) in missing.iter_mut().enumerate() {
                let open = self.gap(number)?;
                done += *missing - open.rows().min(*missing);
                *missing = open.rows();
                self.progress.advance(done, total)?;
                let Some(mine) = self.claimed(number, &open)? else {
                    left |= *missing > 0;
                    continue;
                };
                left |= mine.missing.len() < open.missing.len();
                let before = done;
                self.work(&mine, measurer, (&mut done, total))?;
                *missing -= (done - before).min(*missing);
                worked = true;
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

    fn gap(&self, unit: usize) -> Result<WorkUnit> {
        self.stage.0.gap((self.store, self.key), self.stage.1, self.images, unit)
    }

    fn id(&self, unit: &WorkUnit, values: &super::MissingValues) -> (i64, i64) {
        self.stage.0.key(self.stage.1, unit, values)
    }

    /// What this worker has claimed of the missing values; none if nothing. They are read again, because another worker may have
    /// stored some before the claim.
    fn claimed(&mut self, number: usize, open: &WorkUnit) -> Result<Option<WorkUnit>> {
        if open.missing.is_empty() {
            return Ok(None);
        }
        let wanted: Vec<(i64, i64)> = open.missing.iter().map(|values| self.id(open, values)).collect();
        let mine = self.store.claim(self.worker, self.key.0, &wanted)?;
        if mine.is_empty() {
            return Ok(None);
        }
        let mine: HashSet<(i64, i64)> = mine.into_iter().collect();
        let mut again = self.gap(number)?;
        let open: HashSet<(i64, i64)> = again.missing.iter().map(|values| self.id(&again, values)).collect();
        let filled: Vec<(i64, i64)> = mine.iter().filter(|claim| !open.contains(claim)).copied().collect();
        self.store.finish(self.worker, self.key, (&[], self.made_by), &filled)?;
        let missing = std::mem::take(&mut again.missing);
        again.missing =
            missing.into_iter().filter(|values| mine.contains(&self.id(&again, values))).collect();
        Ok(Some(again).filter(|unit| !unit.missing.is_empty()))
    }

    /// Measures a claimed unit and stores its rows as they come.
    fn work(
        &mut self,
        unit: &WorkUnit,
        measurer: &mut Measurer<'_>,
        (done, total): (&mut usize, usize),
    ) -> Result<()> {
        let (mut pending, mut stored) = (Vec::<Row>::new(), Instant::now());
        measurer.measure(unit, &mut |measured| {
            let claims: Vec<(i64, i64)> = match measured {
                Measured::Row(row) => {
                    pending.push(row);
                    if stored.elapsed() <= WRITE_INTERVAL {
                        return Ok(());
                    }
                    Vec::new()
                }
                Measured::Image(place) => {
                    let here = unit.missing.iter().filter(|values| values.image == place);
                    here.map(|values| self.id(unit, values)).collect()
                }
            };
            self.store.finish(self.worker, self.key, (&pending, self.made_by), &claims)?;
            *done += pending.len();
            pending.clear();
            stored = Instant::now();
            self.progress.advance(*done, total)
        })
    }
}
