//! The sweep over a grid of candidates, images and metrics, cut into three steps: [`gaps`](StageGrid::gap) finds what is not in
//! the store, [`measure`](Measurer::measure) computes it without a store, and [`Store::put`](crate::store::Store::put) stores
//! it. One machine does all three ([`SharedSweep`]); on a cluster workers measure, and one process finds gaps and stores.

mod gaps;
mod measure;
mod shared;

use monosplit_graph::Result;

use crate::candidate::{Candidate, groups};
use crate::dataset::DatasetSample;
use crate::metric::{Better, Undefined};

pub use measure::{Measured, Measurer};
pub use shared::SharedSweep;

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
    fn load(&mut self, samples: Vec<DatasetSample>, images: &[EvaluatedImage]) -> Result<()>;

    /// The value of one metric for one of the prepared candidates and one of the loaded images.
    fn evaluate(&mut self, metric: usize, image: usize, candidate: usize) -> Result<Outcome>;

    /// Called before the next metric or image. Caches of the last one can be dropped.
    fn next_case(&mut self) {}
}

/// The candidates and metrics of a stage, and how they are computed. Which candidates are computed together, and on which images
/// at once, follows from this and the list of images alone: the same values have the same bits whoever measures them.
#[derive(Clone, Debug)]
pub struct StageGrid {
    /// The candidates.
    pub candidates: Vec<Candidate>,
    /// The names of the metrics, and whether higher is better.
    pub metrics: Vec<(String, Better)>,
    /// The indices of the candidates that are computed together.
    groups: Vec<Vec<usize>>,
    /// How many images are loaded together.
    batch: usize,
}

/// The ids of a stage's candidates and metrics in the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StageIds {
    /// The ids of the candidates' configurations, in order.
    pub configurations: Vec<i64>,
    /// The ids of the metrics, in order.
    pub metrics: Vec<i64>,
}

/// A unit of work: what is missing of a group of candidates on a block of images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkUnit {
    /// The index of the group.
    pub group: usize,
    /// The whole block, also images of which nothing is missing: bits must not depend on where a run was interrupted.
    pub images: Vec<EvaluatedImage>,
    /// The missing values.
    pub missing: Vec<MissingValues>,
}

/// The missing values of one candidate on one image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingValues {
    /// The index of the candidate in its group.
    pub member: usize,
    /// The index of the image in its block.
    pub image: usize,
    /// The indices of the metrics.
    pub metrics: Vec<usize>,
}

impl StageGrid {
    /// A grid that computes at most `maps` different maps together, on `batch` images at once.
    pub fn new(
        candidates: Vec<Candidate>,
        metrics: Vec<(String, Better)>,
        maps: usize,
        batch: usize,
    ) -> Self {
        let groups = groups(&candidates, maps.max(1));
        StageGrid { candidates, metrics, groups, batch: batch.max(1) }
    }

    /// The number of units of work on `images` images.
    pub fn units(&self, images: usize) -> usize {
        self.groups.len() * images.div_ceil(self.batch)
    }
}

impl WorkUnit {
    /// The number of missing values.
    pub fn rows(&self) -> usize {
        self.missing.iter().map(|values| values.metrics.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use monosplit_image::{Pixels, Preset, write_png};

    use super::*;
    use crate::candidate::tests::candidate;
    use crate::dataset::{DataOptions, DataSet};
    use crate::store::tests::{Scratch, provenance};
    use crate::store::{Row, Store};

    /// Values that name what they are of.
    #[derive(Default)]
    struct Naming {
        prepared: usize,
        images: Vec<usize>,
    }

    impl Evaluator for Naming {
        fn prepare(&mut self, group: &[&Candidate]) -> Result<()> {
            self.prepared = group.len();
            Ok(())
        }

        fn load(&mut self, samples: Vec<DatasetSample>, images: &[EvaluatedImage]) -> Result<()> {
            assert_eq!(samples.len(), images.len());
            self.images = images.iter().map(|image| image.index).collect();
            Ok(())
        }

        fn evaluate(&mut self, metric: usize, image: usize, candidate: usize) -> Result<Outcome> {
            assert!(candidate < self.prepared);
            let value = (100 * self.images[image] + 10 * metric + candidate) as f64;
            Ok(if value == 11.0 { Err(Undefined("eleven".into())) } else { Ok(value) })
        }
    }

    struct Bench {
        scratch: Scratch,
        grid: StageGrid,
        ids: StageIds,
        images: Vec<EvaluatedImage>,
        data: DataSet,
        store: Store,
        key: (i64, u64),
    }

    /// Five pictures, six candidates in groups of two maps, two metrics.
    fn bench(name: &str) -> Bench {
        let scratch = Scratch::new(name);
        for number in 0..5u8 {
            let pixels = vec![40 * number; 16];
            write_png(scratch.0.join(format!("{number}.png")), 4, 4, Pixels::Grey(&pixels)).unwrap();
        }
        let data = DataSet::open(&scratch.0, None, &DataOptions::default()).unwrap();
        let candidates =
            ["a", "b", "c"].iter().flat_map(|layer| [false, true].map(|abs| candidate(layer, 0.3, abs)));
        let metrics = ["m", "n"].map(|name| (name.to_owned(), Better::Higher));
        let grid = StageGrid::new(candidates.collect(), metrics.to_vec(), 2, 2);
        let store = Store::open(&scratch.store()).unwrap();
        let configurations =
            grid.candidates.iter().map(|one| store.configuration(&one.configuration).unwrap());
        let ids = StageIds {
            configurations: configurations.collect(),
            metrics: grid.metrics.iter().map(|(name, better)| store.metric(name, *better).unwrap()).collect(),
        };
        let images = (0..data.len()).map(|index| {
            let photograph = data.load(index).unwrap().unwrap();
            let (name, hash) = (photograph.name, photograph.hash);
            EvaluatedImage { id: store.image(&hash, 0, &name).unwrap(), name, hash, class: 0, index }
        });
        let (images, key) = (images.collect(), (store.model("m", "p", "net").unwrap(), 7));
        Bench { scratch, grid, ids, images, data, store, key }
    }

    impl Bench {
        fn gaps(&self) -> Vec<WorkUnit> {
            let units = 0..self.grid.units(self.images.len());
            units
                .map(|unit| self.grid.gap((&self.store, self.key), &self.ids, &self.images, unit).unwrap())
                .collect()
        }

        fn measured(&self, unit: &WorkUnit) -> Result<Vec<Row>> {
            let preprocess = Preset::Unit.options().fit([3, 4, 4], monosplit_image::Fit::Auto)?;
            let stage = (self.grid.clone(), self.ids.clone());
            let mut measurer = Measurer::new(stage, (&self.data, &preprocess), Box::new(Naming::default()));
            let mut rows = Vec::new();
            measurer.measure(unit, &mut |measured| {
                if let Measured::Row(row) = measured {
                    rows.push(Row { seconds: 0.0, ..row });
                }
                Ok(())
            })?;
            Ok(rows)
        }
    }

    /// Whatever is stored already, and however often rows are put: gaps are what is missing, and measuring them fills the store
    /// with the rows of one sweep.
    #[test]
    fn gaps_are_what_is_missing_and_rows_are_the_same_from_any_state() {
        let mut bench = bench("sweep");
        let whole = bench.gaps();
        assert_eq!((whole.len(), whole.iter().map(WorkUnit::rows).sum::<usize>()), (2 * 3, 6 * 5 * 2));
        let rows: Vec<Row> = whole.iter().flat_map(|unit| bench.measured(unit).unwrap()).collect();
        assert_eq!(rows.iter().filter(|row| row.value.is_none()).count(), 2, "one in each group");
        let key = |row: &Row| (row.configuration, row.image, row.metric);
        assert_eq!(rows.iter().map(key).collect::<std::collections::HashSet<_>>().len(), 60);
        let some: Vec<Row> =
            rows.iter().enumerate().filter(|(at, _)| at % 3 == 1).map(|(_, row)| row.clone()).collect();
        assert_eq!(bench.store.put(bench.key, &some, &provenance()).unwrap(), 20);
        let left = bench.gaps();
        assert_eq!(left.iter().map(WorkUnit::rows).sum::<usize>(), 40);
        let again: Vec<Row> = left.iter().flat_map(|unit| bench.measured(unit).unwrap()).collect();
        let expected: Vec<Row> =
            rows.iter().enumerate().filter(|(at, _)| at % 3 != 1).map(|(_, row)| row.clone()).collect();
        assert_eq!(again, expected);
        assert_eq!(bench.store.put(bench.key, &rows, &provenance()).unwrap(), 40);
        assert!(bench.gaps().iter().all(|unit| unit.rows() == 0));
    }

    #[test]
    fn units_of_other_stages_and_images_that_changed_are_refused() {
        let bench = bench("sweep-refused");
        let unit = bench.gaps().remove(0);
        let refused = |change: &dyn Fn(&mut WorkUnit)| {
            let mut unit = unit.clone();
            change(&mut unit);
            bench.measured(&unit).unwrap_err().to_string()
        };
        for said in [
            refused(&|unit| unit.group = 9),
            refused(&|unit| unit.missing[0].member = 4),
            refused(&|unit| unit.missing[0].image = 2),
            refused(&|unit| unit.missing[0].metrics = vec![2]),
            refused(&|unit| unit.images[1].index = 5),
        ] {
            assert!(said.contains("none of this stage"), "{said}");
        }
        write_png(bench.scratch.0.join("1.png"), 4, 4, Pixels::Grey(&[9; 16])).unwrap();
        let said = bench.measured(&unit).unwrap_err().to_string();
        assert!(said.contains("image '1.png' is another one"), "{said}");
    }
}
