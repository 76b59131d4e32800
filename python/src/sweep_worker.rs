//! A process that measures. It knows the experiment, and no store.

use std::sync::atomic::Ordering;

use monosplit::eval::protocol::{Compared, Images, Plan};
use monosplit::eval::store::Provenance;
use monosplit::eval::sweep::{Measured, Measurer, StageIds};
use monosplit::{Error, ErrorKind, Result};
use pyo3::prelude::*;

use crate::session::{ExperimentConfig, Kept, Opened, Session};
use crate::sweep_units::{InspectedTuple, RowsTuple, UnitTuple, inspected_tuple, rows_tuple, unit};

/// What a worker keeps.
pub(crate) struct Worker<'a> {
    plan: &'a Plan<'a>,
    images: &'a Images,
    made_by: Provenance,
    measurer: Option<Measurer<'a>>,
    hash: String,
}

pub(crate) struct WorkerKind;

impl Kept for WorkerKind {
    type State<'a> = Worker<'a>;
}

/// Reads images and measures units of an experiment. Made with the same dictionary as the store's side of the run.
#[pyclass(frozen, module = "monosplit")]
pub(crate) struct SweepWorker {
    session: Session<WorkerKind>,
}

#[pymethods]
impl SweepWorker {
    #[new]
    fn new(py: Python<'_>, config: ExperimentConfig) -> PyResult<Self> {
        let session = Session::start(py, config, |opened: &Opened<'_>, jobs| {
            let plan = opened.plan()?;
            let made_by = Provenance::of(opened.setting.engine)?;
            let hash = opened.context.hash.clone();
            jobs.run(&mut Worker { plan: &plan, images: opened.images, made_by, measurer: None, hash });
            Ok(())
        })?;
        Ok(SweepWorker { session })
    }

    /// The version, the engine, the instructions, the hash of the network, and the numbers of validation and test images.
    #[allow(clippy::type_complexity, reason = "a tuple for Python")]
    fn facts(&self, py: Python<'_>) -> PyResult<(String, String, String, String, (usize, usize))> {
        self.session.call(py, |worker, _| {
            let Provenance { version, identity } = worker.made_by.clone();
            let validation = worker.images.validation.as_ref().map_or(0, |data| data.len());
            let counts = (validation, worker.images.test.len());
            Ok((version, identity.engine, identity.instructions, worker.hash.clone(), counts))
        })
    }

    /// Reads images `start..stop` of the validation part or the test part.
    fn inspect(
        &self,
        py: Python<'_>,
        on_validation: bool,
        start: usize,
        stop: usize,
    ) -> PyResult<Vec<InspectedTuple>> {
        self.session.call(py, move |worker, _| {
            let data = part(worker.images, on_validation)?;
            let found = worker.plan.inspect(data, start..stop.min(data.len()))?;
            Ok(found.into_iter().map(inspected_tuple).collect())
        })
    }

    /// Makes ready for a stage: its number, the candidates that are compared, and the ids and names of what is measured.
    fn prepare(
        &self,
        py: Python<'_>,
        stage: usize,
        compared: Vec<usize>,
        ids: (Vec<i64>, Vec<i64>),
        names: Vec<String>,
    ) -> PyResult<()> {
        self.session.call(py, move |worker, _| {
            let stages = worker.plan.stages();
            let &kind = stages.get(stage).ok_or_else(other_experiment)?;
            let note = String::new;
            let compared: Vec<Compared> =
                compared.into_iter().map(|index| Compared { index, note: note() }).collect();
            let planned = worker.plan.stage(kind, &compared)?;
            if stage_names(&planned.grid) != names {
                return Err(other_experiment());
            }
            let data = part(worker.images, planned.on_validation)?;
            let evaluator = worker.plan.evaluator(kind)?;
            let ids = StageIds { configurations: ids.0, metrics: ids.1 };
            let preprocess = worker.plan.setting().preprocess;
            worker.measurer = Some(Measurer::new((planned.grid, ids), (data, preprocess), evaluator));
            Ok(())
        })
    }

    /// The rows of a unit.
    fn measure<'py>(&self, py: Python<'py>, given: UnitTuple) -> PyResult<RowsTuple<'py>> {
        let (rows, made_by) = self.session.call(py, move |worker, is_interrupted| {
            let measurer = worker.measurer.as_mut();
            let measurer =
                measurer.ok_or_else(|| Error::argument("prepare a stage before units are measured"))?;
            let mut rows = Vec::new();
            measurer.measure(&unit(given), &mut |measured| {
                if is_interrupted.load(Ordering::Relaxed) {
                    return Err(Error::new(ErrorKind::Cancelled, "the computation was ended"));
                }
                if let Measured::Row(row) = measured {
                    rows.push(row);
                }
                Ok(())
            })?;
            Ok((rows, worker.made_by.clone()))
        })?;
        Ok(rows_tuple(py, rows, &made_by))
    }
}

/// The candidates and metrics of a stage in words, by which processes know that they mean the same.
pub(crate) fn stage_names(grid: &monosplit::eval::sweep::StageGrid) -> Vec<String> {
    let candidates = grid.candidates.iter().map(|candidate| {
        let of = &candidate.configuration;
        format!("{}:{} at '{}', absolute {}", of.method, of.options, of.layer, of.absolute)
    });
    candidates.chain(grid.metrics.iter().map(|(name, _)| name.clone())).collect()
}

fn part(images: &Images, on_validation: bool) -> Result<&monosplit::eval::dataset::DataSet> {
    let found = if on_validation { images.validation.as_ref() } else { Some(&images.test) };
    found.ok_or_else(other_experiment)
}

fn other_experiment() -> Error {
    Error::argument(
        "this process plans other stages than the one that asks; give all the same experiment, network and data set",
    )
}
