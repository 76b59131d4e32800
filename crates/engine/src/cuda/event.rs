//! CUDA events.

use cudarc::driver::{result as driver, sys};
use monosplit_graph::Result;

use super::device::DriverResult;

/// A CUDA event: a point in a stream that other streams and the host can wait for.
pub(super) struct Event(sys::CUevent);

impl Event {
    /// An event without a time. The device is current.
    pub(super) fn new() -> Result<Self> {
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING;
        driver::event::create(flags).map(Event).or_failed_to("create an event")
    }

    /// An event with a time. The device is current.
    pub(super) fn timing() -> Result<Self> {
        driver::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT).map(Event).or_failed_to("create an event")
    }

    /// The time from this event to another; both have happened.
    pub(super) fn milliseconds_until(&self, other: &Event) -> f64 {
        // SAFETY: both events live.
        unsafe { driver::event::elapsed(self.0, other.0) }.map_or(0.0, |time| f64::from(time.max(0.0)))
    }

    /// Blocks this thread until the event has happened.
    pub(super) fn synchronize(&self) -> Result<()> {
        // SAFETY: the event lives.
        unsafe { driver::event::synchronize(self.0) }.or_failed_to("wait for an event")
    }

    /// Happens when all work enqueued on the stream so far is done.
    pub(super) fn record(&self, stream: sys::CUstream) -> Result<()> {
        // SAFETY: event and stream live.
        unsafe { driver::event::record(self.0, stream) }.or_failed_to("record an event")
    }

    /// Blocks work enqueued on the stream from now on until the event has happened.
    pub(super) fn block(&self, stream: sys::CUstream) -> Result<()> {
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: event and stream live.
        unsafe { driver::stream::wait_event(stream, self.0, flags) }.or_failed_to("wait for an event")
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: created by `new` or `timing`, destroyed once.
        unsafe {
            let _ = driver::event::destroy(self.0);
        }
    }
}
