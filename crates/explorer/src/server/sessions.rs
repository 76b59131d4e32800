//! The sessions of the pages that are open, and the jobs in them. A session computes one job at a time. Of the jobs in the same
//! slot (the slider's, for instance) only the latest is wanted: those before it are cancelled.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use monosplit::Result;

use super::{Counted, Exhibit};
use crate::session::Session;
use crate::{Interruption, Limits, Response};

/// Pages that are served at a time. Each has a network of its own.
const MOST_SESSIONS: usize = 4;
/// Jobs of a session that are computed or wait; of later ones nothing is computed.
const MOST_JOBS: usize = 16;

/// The sessions by the name that their page gave itself.
#[derive(Default)]
pub(super) struct Sessions {
    /// The last is the most recently used.
    open: Mutex<Vec<(String, Arc<PageSession>)>>,
    jobs: AtomicUsize,
}

/// The session of a page.
pub(super) struct PageSession {
    session: Mutex<Session>,
    /// The number of the latest job of each slot.
    latest: Mutex<HashMap<String, u64>>,
    is_closed: std::sync::atomic::AtomicBool,
    jobs: AtomicUsize,
}

impl Sessions {
    pub(super) fn jobs(&self) -> usize {
        self.jobs.load(Ordering::SeqCst)
    }

    /// The session of this name, and whether it is a new one, which begins with the exhibit's network.
    pub(super) fn get(&self, name: &str, exhibit: &Exhibit) -> Result<(Arc<PageSession>, bool)> {
        let mut open = lock(&self.open);
        if let Some(at) = open.iter().position(|(known, _)| known == name) {
            let found = open.remove(at);
            let session = found.1.clone();
            open.push(found);
            return Ok((session, false));
        }
        let limits = Limits {
            network_bytes: exhibit.upload_bytes,
            picture_bytes: exhibit.upload_bytes.min(256 << 20),
            ..Limits::default()
        };
        let mut session = Session::new(exhibit.engine.clone(), exhibit.processor.clone()).limits(limits);
        if let Some((name, model)) = &exhibit.network {
            session.set_network(name.clone(), model.clone())?;
        }
        if open.len() >= MOST_SESSIONS {
            open.remove(0).1.close();
        }
        let session = Arc::new(PageSession {
            session: Mutex::new(session),
            latest: Mutex::default(),
            is_closed: false.into(),
            jobs: AtomicUsize::new(0),
        });
        open.push((name.to_owned(), session.clone()));
        Ok((session, true))
    }

    /// Ends a session and its jobs.
    pub(super) fn close(&self, name: &str) {
        let mut open = lock(&self.open);
        if let Some(at) = open.iter().position(|(known, _)| known == name) {
            open.remove(at).1.close();
        }
    }

    /// Computes a job of a session; none if the session has too many.
    pub(super) fn compute(
        &self,
        session: &PageSession,
        slot: &str,
        (request, payload): (&[u8], &[u8]),
        is_gone: &(dyn Fn() -> bool + Sync),
    ) -> Option<Response> {
        let number = {
            let mut latest = lock(&session.latest);
            let number = latest.entry(slot.to_owned()).or_default();
            *number += 1;
            *number
        };
        self.jobs.fetch_add(1, Ordering::SeqCst);
        let _counted = Counted(&self.jobs);
        session.jobs.fetch_add(1, Ordering::SeqCst);
        let _counted_here = Counted(&session.jobs);
        if session.jobs.load(Ordering::SeqCst) > MOST_JOBS {
            return None;
        }
        let is_unwanted = || {
            let is_old = lock(&session.latest).get(slot).is_some_and(|&latest| latest > number);
            is_old || session.is_closed.load(Ordering::SeqCst) || is_gone()
        };
        let mut own = lock(&session.session);
        Some(own.handle_until(request, payload, Interruption::new(&is_unwanted)))
    }
}

impl PageSession {
    fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }
}

/// A lock whatever became of the thread that held it before.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
