//! What is missing, computed. Nothing here knows a store.

use std::time::Instant;

use monosplit_graph::{Error, Result};
use monosplit_image::Preprocess;

use super::{Evaluator, MissingValues, Outcome, StageGrid, StageIds, WorkUnit};
use crate::candidate::Candidate;
use crate::dataset::{DataSet, DatasetSample};
use crate::metric::Undefined;
use crate::store::Row;

/// What a measurer hands over while it works.
pub enum Measured {
    /// A row.
    Row(Row),
    /// Everything is measured of the image with this index in the block.
    Image(usize),
}

/// Measures units of one stage.
pub struct Measurer<'a> {
    grid: StageGrid,
    ids: StageIds,
    data: &'a DataSet,
    preprocess: &'a Preprocess,
    evaluator: Box<dyn Evaluator + 'a>,
    /// The group that the evaluator is prepared for.
    prepared: Option<usize>,
}

impl<'a> Measurer<'a> {
    /// Measures by `evaluator` on images of `data`.
    pub fn new(
        (grid, ids): (StageGrid, StageIds),
        (data, preprocess): (&'a DataSet, &'a Preprocess),
        evaluator: Box<dyn Evaluator + 'a>,
    ) -> Self {
        Measurer { grid, ids, data, preprocess, evaluator, prepared: None }
    }

    /// Computes the missing values of a unit and hands them to `take` one by one, image after image.
    pub fn measure(&mut self, unit: &WorkUnit, take: &mut dyn FnMut(Measured) -> Result<()>) -> Result<()> {
        self.check(unit)?;
        let grid = &self.grid;
        let members = &grid.groups[unit.group];
        let mut samples = Vec::with_capacity(unit.images.len());
        for image in &unit.images {
            let photograph = self.data.load(image.index)?.map_err(|excluded| {
                Error::malformed(format!("image '{}' {} since the run began", excluded.name, excluded.issue))
            })?;
            if photograph.hash != image.hash {
                let message = format!(
                    "image '{}' is another one than when the run began; run again when the data set is as it was",
                    image.name
                );
                return Err(Error::malformed(message));
            }
            samples.push(DatasetSample::new(&photograph, self.preprocess)?);
        }
        if self.prepared != Some(unit.group) {
            self.prepared = None;
            let candidates: Vec<&Candidate> =
                members.iter().map(|&member| &grid.candidates[member]).collect();
            self.evaluator.prepare(&candidates)?;
            self.prepared = Some(unit.group);
        }
        self.evaluator.load(samples, &unit.images)?;
        for (place, image) in unit.images.iter().enumerate() {
            let here: Vec<&MissingValues> =
                unit.missing.iter().filter(|values| values.image == place).collect();
            for metric in 0..grid.metrics.len() {
                for values in here.iter().filter(|values| values.metrics.contains(&metric)) {
                    let begun = Instant::now();
                    let outcome = self.evaluator.evaluate(metric, place, values.member).map_err(|error| {
                        let title = &grid.candidates[members[values.member]].title;
                        error.context(format!("{title}, image '{}'", image.name))
                    })?;
                    let (configuration, image) = grid.key(&self.ids, unit, values);
                    let key = (configuration, image, self.ids.metrics[metric]);
                    take(Measured::Row(row(key, outcome, begun.elapsed().as_secs_f64())))?;
                }
                self.evaluator.next_case();
            }
            take(Measured::Image(place))?;
        }
        Ok(())
    }

    /// An error if a unit, which may come from another process, is not one of this grid.
    fn check(&self, unit: &WorkUnit) -> Result<()> {
        let (grid, ids) = (&self.grid, &self.ids);
        let fits = |values: &MissingValues| {
            grid.groups.get(unit.group).is_some_and(|group| values.member < group.len())
                && values.image < unit.images.len()
                && values.metrics.iter().all(|&metric| metric < grid.metrics.len())
        };
        let is_sized =
            ids.configurations.len() == grid.candidates.len() && ids.metrics.len() == grid.metrics.len();
        let has_images = unit.images.iter().all(|image| image.index < self.data.len());
        match is_sized && has_images && !unit.images.is_empty() && unit.missing.iter().all(fits) {
            true => Ok(()),
            false => Err(Error::argument(
                "the unit of work is none of this stage; are the experiment and the data set those of the other processes?",
            )),
        }
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
