//! Reports progress to a Python function, and ends a computation when Python has a signal for it (Ctrl-C).

use std::sync::Mutex;
use std::time::{Duration, Instant};

use monosplit::explain::Progress;
use monosplit::{Error, ErrorKind, Result};
use pyo3::prelude::*;

/// Signals are looked for this often at most.
const PERIOD: Duration = Duration::from_millis(50);

/// The listener of a computation.
pub(crate) struct Listener {
    report: Option<Py<PyAny>>,
    /// Batches before this one, and all of them: a computation reports each batch from zero.
    batch: (usize, usize),
    state: Mutex<State>,
}

struct State {
    looked: Instant,
    raised: Option<PyErr>,
}

impl Listener {
    pub(crate) fn new(report: Option<Py<PyAny>>) -> Self {
        Listener { report, batch: (0, 1), state: Mutex::new(State { looked: Instant::now(), raised: None }) }
    }

    /// The same for batch `done` of `total`.
    pub(crate) fn at_batch(&mut self, done: usize, total: usize) {
        self.batch = (done, total);
    }

    /// Whether a batch alone says how far the work is.
    pub(crate) fn finish_batch(&self) -> Result<()> {
        self.advance(1, 1)
    }

    /// The exception that ended the computation, where one did.
    pub(crate) fn raised(self) -> Option<PyErr> {
        self.state.into_inner().ok().and_then(|state| state.raised)
    }

    fn hear(&self, py: Python<'_>, done: f64) -> PyResult<()> {
        py.check_signals()?;
        if let Some(report) = &self.report {
            report.call1(py, (done,))?;
        }
        Ok(())
    }
}

impl Progress for Listener {
    fn advance(&self, done: usize, total: usize) -> Result<()> {
        let Ok(mut state) = self.state.lock() else {
            return Err(Error::new(ErrorKind::Cancelled, "the computation was ended"));
        };
        if done < total && state.looked.elapsed() < PERIOD {
            return Ok(());
        }
        state.looked = Instant::now();
        let within = done as f64 / total.max(1) as f64;
        let share = (self.batch.0 as f64 + within) / self.batch.1.max(1) as f64;
        Python::attach(|py| self.hear(py, share)).map_err(|raised| {
            let error = Error::new(ErrorKind::Cancelled, raised.to_string());
            state.raised = Some(raised);
            error
        })
    }
}
