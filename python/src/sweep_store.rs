//! The process that owns the store of an experiment: it plans stages, finds what is missing and stores what others measure.

use std::path::PathBuf;
use std::sync::Mutex;

use monosplit::eval::experiment::Experiment;
use monosplit::eval::protocol::{EnteredStage, Images, Observer, Protocol, StoredPart, identity_remark};
use monosplit::eval::store::{Store, Worker as StoreWorker};
use monosplit::explain::{NoProgress, Progress};
use monosplit::{Error, Result, with_target};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::exception;
use crate::session::{ExperimentConfig, Kept, Opened, Session};
use crate::sweep_units::{GivenRows, InspectedTuple, UnitTuple, inspected, rows, unit_tuple};
use crate::sweep_worker::stage_names;

/// The text of an experiment file for processes that do not have it, with whole paths and another target if one is given.
#[pyfunction]
#[pyo3(signature = (path, target=None))]
pub(crate) fn experiment_text(path: PathBuf, target: Option<&str>) -> PyResult<String> {
    let experiment = Experiment::open(&path).and_then(|experiment| with_target(experiment, target));
    experiment.map(|experiment| experiment.text_for_others().to_owned()).map_err(exception)
}

/// What the owner of a store keeps.
pub(crate) struct Keeper<'a> {
    opened: &'a Opened<'a>,
    store: Store,
    /// Says to others that the store is in use.
    _worker: StoreWorker,
    ids: (i64, i64),
    protocol: Option<Protocol<'a>>,
    /// The number of the stage that is measured, and the stage.
    stage: Option<(usize, EnteredStage)>,
    next: usize,
    heard: Heard,
}

pub(crate) struct KeeperKind;

impl Kept for KeeperKind {
    type State<'a> = Keeper<'a>;
}

/// What the protocol says, kept until Python asks.
#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl Heard {
    fn say(&self, line: String) {
        if let Ok(mut lines) = self.0.lock() {
            lines.push(line);
        }
    }

    fn take(&self) -> Vec<String> {
        self.0.lock().map(|mut lines| std::mem::take(&mut *lines)).unwrap_or_default()
    }
}

impl Observer for Heard {
    fn part(&self, part: &StoredPart) {
        let out = match part.excluded.len() {
            0 => String::new(),
            count => format!(", {count} left out"),
        };
        self.say(format!("{} images for {}{out}", part.images.len(), part.name));
    }

    fn stage(&self, _: &str, _: usize, _: usize, _: usize) -> Box<dyn Progress> {
        Box::new(NoProgress)
    }

    fn remark(&self, message: &str) {
        self.say(message.to_owned());
    }

    fn chosen(&self, title: &str, criterion: &str, configuration: &str) {
        self.say(format!("{title}: best by {criterion} is {configuration}"));
    }
}

/// The store of an experiment.
#[pyclass(frozen, module = "monosplit")]
pub(crate) struct SweepStore {
    session: Session<KeeperKind>,
}

#[pymethods]
impl SweepStore {
    #[new]
    fn new(py: Python<'_>, config: ExperimentConfig, store: PathBuf) -> PyResult<Self> {
        let session = Session::start(py, config, move |opened: &Opened<'_>, jobs| {
            let plan = opened.plan()?;
            if plan.has_given_maps() {
                return Err(Error::unsupported(
                    "maps that were made elsewhere are evaluated on one machine: python -m monosplit evaluate",
                ));
            }
            let heard = Heard::default();
            opened.images.remarks.iter().for_each(|remark| heard.remark(remark));
            plan.check(opened.images, &heard)?;
            let store = Store::open(&store)?;
            let worker = StoreWorker::start(&store)?;
            let experiment = opened.setting.experiment;
            let ids = opened.context.enter(&store, experiment, opened.folder, opened.precision.clone())?;
            let (protocol, stage, next) = (None, None, 0);
            jobs.run(&mut Keeper { opened, store, _worker: worker, ids, protocol, stage, next, heard });
            Ok(())
        })?;
        Ok(SweepStore { session })
    }

    /// The hash of the network, and the numbers of validation and test images.
    fn facts(&self, py: Python<'_>) -> PyResult<(String, (usize, usize))> {
        self.session.call(py, |keeper, _| {
            let Images { validation, test, .. } = keeper.opened.images;
            let validation = validation.as_ref().map_or(0, |data| data.len());
            Ok((keeper.opened.context.hash.clone(), (validation, test.len())))
        })
    }

    /// What is to be said to people since this was last asked.
    fn remarks(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.session.call(py, |keeper, _| Ok(keeper.heard.take()))
    }

    /// Enters all images, which workers have read.
    fn enter(
        &self,
        py: Python<'_>,
        validation: Vec<InspectedTuple>,
        test: Vec<InspectedTuple>,
    ) -> PyResult<()> {
        let read = |given: Vec<InspectedTuple>| {
            given.into_iter().map(inspected).collect::<Result<Vec<_>>>().map_err(exception)
        };
        let found = (read(validation)?, read(test)?);
        self.session.call(py, move |keeper, _| {
            let Keeper { opened, store, ids, heard, .. } = keeper;
            let images = opened.images.clone();
            let all = (images.validation.as_ref().map_or(0, |data| data.len()), images.test.len());
            if (found.0.len(), found.1.len()) != all {
                return Err(Error::argument(format!(
                    "the data set has {} validation and {} test images, and {} and {} were read",
                    all.0,
                    all.1,
                    found.0.len(),
                    found.1.len()
                )));
            }
            let plan = opened.plan()?;
            keeper.protocol = Some(Protocol::enter(plan, images, found, *ids, store, heard)?);
            keeper.stage = None;
            keeper.next = 0;
            Ok(())
        })
    }

    /// Goes on to the next stage; none if there is no other. All rows of the one before must be stored.
    fn next_stage<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let found = self.session.call(py, |keeper, _| {
            let missing = keeper.missing()?;
            if missing > 0 {
                return Err(Error::argument(format!("{missing} rows of the stage are missing; run again")));
            }
            let Keeper { protocol, store, heard, .. } = keeper;
            let protocol = protocol.as_mut().ok_or_else(no_images)?;
            let Some(stage) = protocol.next_stage(store, heard)? else {
                keeper.stage = None;
                return Ok(None);
            };
            let compared: Vec<usize> = protocol.compared().iter().map(|one| one.index).collect();
            let facts = (
                keeper.next,
                stage.planned.name.clone(),
                stage.planned.kind.name(),
                compared,
                (stage.ids.configurations.clone(), stage.ids.metrics.clone()),
                stage_names(&stage.planned.grid),
                (stage.planned.grid.units(stage.images.len()), stage.rows()),
            );
            keeper.stage = Some((keeper.next, stage));
            keeper.next += 1;
            Ok(Some(facts))
        })?;
        let Some((number, name, kind, compared, ids, names, (units, rows))) = found else { return Ok(None) };
        let stage = PyDict::new(py);
        stage.set_item("number", number)?;
        stage.set_item("name", name)?;
        stage.set_item("kind", kind)?;
        stage.set_item("compared", compared)?;
        stage.set_item("ids", ids)?;
        stage.set_item("names", names)?;
        stage.set_item("units", units)?;
        stage.set_item("rows", rows)?;
        Ok(Some(stage))
    }

    /// What is missing of the units `start..stop` of the stage, without units of which nothing is.
    fn gaps(&self, py: Python<'_>, start: usize, stop: usize) -> PyResult<Vec<UnitTuple>> {
        self.session.call(py, move |keeper, _| {
            let Some((_, stage)) = &keeper.stage else { return Ok(Vec::new()) };
            let key = keeper.protocol.as_ref().ok_or_else(no_images)?.key();
            let mut units = Vec::new();
            for number in start..stop.min(stage.planned.grid.units(stage.images.len())) {
                let unit = stage.planned.grid.gap((&keeper.store, key), &stage.ids, &stage.images, number)?;
                if unit.rows() > 0 {
                    units.push(unit_tuple(unit));
                }
            }
            Ok(units)
        })
    }

    /// The number of rows of the stage that are not stored.
    fn missing(&self, py: Python<'_>) -> PyResult<usize> {
        self.session.call(py, |keeper, _| keeper.missing())
    }

    /// Stores rows, and returns how many were new. Rows that are stored already stay as they are.
    fn put(&self, py: Python<'_>, given: GivenRows<'_>) -> PyResult<usize> {
        let (rows, made_by) = rows(&given)?;
        drop(given);
        self.session.call(py, move |keeper, _| {
            let key = keeper.protocol.as_ref().ok_or_else(no_images)?.key();
            keeper.store.put(key, &rows, &made_by)
        })
    }

    /// A remark if values of the run were computed by different engines or instructions.
    fn identity_remark(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.session.call(py, |keeper, _| {
            let key = keeper.protocol.as_ref().ok_or_else(no_images)?.key();
            Ok(identity_remark(&keeper.store.identities(key)?))
        })
    }
}

impl Keeper<'_> {
    /// The number of rows of the present stage that are not stored.
    fn missing(&self) -> Result<usize> {
        let (Some((_, stage)), Some(protocol)) = (&self.stage, &self.protocol) else { return Ok(0) };
        let (grid, images) = (&stage.planned.grid, &stage.images);
        (0..grid.units(images.len()))
            .map(|unit| Ok(grid.gap((&self.store, protocol.key()), &stage.ids, images, unit)?.rows()))
            .sum()
    }
}

fn no_images() -> Error {
    Error::argument("enter the images before a stage is asked for")
}
