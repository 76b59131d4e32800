//! An experiment that stays open between calls of Python: a thread holds the network and everything that refers to it, and does
//! one piece of work after the other.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use monosplit::engine::{Cpu, Engine, InstructionSet, Precision};
use monosplit::eval::EvaluatedModel;
use monosplit::eval::experiment::Experiment;
use monosplit::eval::protocol::{Images, Plan, Setting};
use monosplit::{Error, ErrorKind, EvaluationContext, Result, with_target};
use pyo3::prelude::*;

use crate::errors::exception;
use crate::model::gpu;

/// Signals are looked for this often while a call waits.
const PERIOD: Duration = Duration::from_millis(50);

/// An experiment with everything that says what it is run with. All processes of a run have the same.
#[derive(Clone, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct ExperimentConfig {
    /// The path of the file.
    path: PathBuf,
    /// What is in the file, for processes that may not have it.
    text: Option<String>,
    /// The network in place of the one the experiment names.
    model: Option<PathBuf>,
    target: Option<String>,
    /// The folder of the data set.
    data: Option<PathBuf>,
    threads: usize,
    precision: String,
    device: String,
    simd: Option<String>,
}

/// An opened experiment.
pub(crate) struct Opened<'a> {
    pub(crate) setting: Setting<'a>,
    pub(crate) context: &'a EvaluationContext,
    pub(crate) images: &'a Images,
    pub(crate) folder: &'a std::path::Path,
    pub(crate) precision: Option<String>,
}

impl<'a> Opened<'a> {
    pub(crate) fn plan(&self) -> Result<Plan<'a>> {
        Plan::new(self.setting)
    }
}

impl ExperimentConfig {
    pub(crate) fn experiment(&self) -> Result<Experiment> {
        let experiment = match &self.text {
            Some(text) => Experiment::parse(text, &self.path)?,
            None => Experiment::open(&self.path)?,
        };
        with_target(experiment, self.target.as_deref())
    }

    fn precision(&self) -> Result<Precision> {
        match self.precision.as_str() {
            "float32" => Ok(Precision::F32),
            "float64" => Ok(Precision::F64),
            other => Err(Error::argument(format!("dtype must be float32 or float64, found {other}"))),
        }
    }

    fn engine(&self) -> Result<Arc<dyn Engine>> {
        let precision = self.precision()?;
        if self.device != "cpu" {
            if self.simd.is_some() {
                return Err(Error::argument("simd is a choice of the processor; leave it out on a GPU"));
            }
            return gpu(&self.device, precision).map_err(|raised| Error::argument(message(&raised)));
        }
        let engine = Cpu::default().threads(self.threads).precision(precision);
        Ok(match &self.simd {
            Some(set) => Arc::new(engine.instructions(set.parse::<InstructionSet>()?)),
            None => Arc::new(engine),
        })
    }

    /// Opens the experiment and does `work` with it.
    fn with<T>(&self, work: impl for<'a> FnOnce(&'a Opened<'a>) -> Result<T>) -> Result<T> {
        let experiment = self.experiment()?;
        let folder = self.data.as_ref().or(experiment.data.folder.as_ref()).ok_or_else(|| {
            Error::argument("no data set is named: expected data.folder in the experiment, or data=FOLDER")
        })?;
        let named_by = if self.data.is_some() { "data" } else { "data.folder" };
        let images = Images::open(&experiment, (folder, named_by))?;
        let context = EvaluationContext::open(&experiment, self.model.as_deref())?;
        let engine = self.engine()?;
        let evaluated_model = EvaluatedModel::new(context.graph(), &*engine)?;
        let setting = Setting {
            experiment: &experiment,
            evaluated_model: &evaluated_model,
            engine: &*engine,
            catalogue: &context,
            preprocess: &context.preprocess,
        };
        // As the command line names it in a store.
        let precision = (self.precision()? == Precision::F64).then(|| Precision::F64.name().to_owned());
        work(&Opened { setting, context: &context, images: &images, folder, precision })
    }
}

fn message(raised: &PyErr) -> String {
    Python::attach(|py| raised.value(py).to_string())
}

/// What a session keeps on its thread. It refers to the opened experiment.
pub(crate) trait Kept: 'static {
    type State<'a>;
}

/// A piece of work on what is kept.
type Job<K> = Box<dyn for<'a> FnOnce(&mut <K as Kept>::State<'a>) + Send>;

/// Pieces of work, as the thread of a session takes them.
pub(crate) struct Jobs<K: Kept> {
    jobs: Receiver<Job<K>>,
    ready: Sender<Result<()>>,
}

impl<K: Kept> Jobs<K> {
    /// Does all work of the session with `state`.
    pub(crate) fn run(&self, state: &mut K::State<'_>) {
        if self.ready.send(Ok(())).is_ok() {
            self.jobs.iter().for_each(|job| job(state));
        }
    }
}

/// The thread of an opened experiment.
pub(crate) struct Session<K: Kept> {
    jobs: Sender<Job<K>>,
    is_interrupted: Arc<AtomicBool>,
}

impl<K: Kept> Session<K> {
    /// Opens an experiment on a thread of its own; `serve` makes what is kept and runs the jobs with it.
    pub(crate) fn start(
        py: Python<'_>,
        config: ExperimentConfig,
        serve: impl for<'a> FnOnce(&'a Opened<'a>, &Jobs<K>) -> Result<()> + Send + 'static,
    ) -> PyResult<Self> {
        let (jobs, taken) = channel();
        let (ready, opened) = channel();
        let failed = ready.clone();
        let body = move || {
            let jobs = Jobs { jobs: taken, ready };
            if let Err(error) = config.with(|opened| serve(opened, &jobs)) {
                let _ = failed.send(Err(error));
            }
        };
        let thread = std::thread::Builder::new().name("monosplit experiment".to_owned());
        thread.spawn(body).map_err(|cause| {
            exception(Error::new(ErrorKind::Io, format!("no thread could be started ({cause})")))
        })?;
        let session = Session { jobs, is_interrupted: Arc::default() };
        session.wait(py, opened)?;
        Ok(session)
    }

    /// Does `work` on the session's thread and waits for it, without the interpreter's lock. `work` is told where it can see
    /// that Python has a signal for it.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl for<'a> FnOnce(&mut K::State<'a>, &AtomicBool) -> Result<T> + Send + 'static,
    ) -> PyResult<T> {
        let (send, receive) = channel();
        let is_interrupted = self.is_interrupted.clone();
        is_interrupted.store(false, Ordering::Relaxed);
        let job: Job<K> = Box::new(move |state| {
            let _ = send.send(work(state, &is_interrupted));
        });
        self.jobs.send(job).map_err(|_| exception(stopped()))?;
        self.wait(py, receive)
    }

    fn wait<T: Send>(&self, py: Python<'_>, mut receive: Receiver<Result<T>>) -> PyResult<T> {
        loop {
            let (given_back, found) = py.detach(move || {
                let found = receive.recv_timeout(PERIOD);
                (receive, found)
            });
            receive = given_back;
            match found {
                Ok(found) => return found.map_err(exception),
                Err(RecvTimeoutError::Disconnected) => return Err(exception(stopped())),
                Err(RecvTimeoutError::Timeout) => {
                    py.check_signals().inspect_err(|_| self.is_interrupted.store(true, Ordering::Relaxed))?
                }
            }
        }
    }
}

fn stopped() -> Error {
    Error::argument("the experiment ended unexpectedly; open it again")
}
