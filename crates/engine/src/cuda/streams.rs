//! Assigns steps to CUDA streams. A step waits for earlier steps that write what it reads or overwrites, and for earlier
//! steps that read what it overwrites. All other steps may run at the same time on other streams.

use std::ops::Range;

/// The device memory a step reads and writes, as ranges of addresses.
#[derive(Clone, Debug, Default)]
pub(super) struct MemoryAccess {
    pub(super) read: Vec<Range<u64>>,
    pub(super) written: Vec<Range<u64>>,
}

impl MemoryAccess {
    /// Whether a later step with the accesses `later` must wait for this one.
    fn precedes(&self, later: &MemoryAccess) -> bool {
        let overlap = |a: &[Range<u64>], b: &[Range<u64>]| {
            a.iter().any(|a| b.iter().any(|b| a.start < b.end && b.start < a.end))
        };
        overlap(&self.written, &later.read)
            || overlap(&self.written, &later.written)
            || overlap(&self.read, &later.written)
    }
}

/// The stream a step runs on. It runs after the earlier steps of that stream and after the steps `after` of other streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StreamAssignment {
    pub(super) stream: usize,
    pub(super) after: Vec<usize>,
}

/// Assigns steps, given in an order in which they could run one by one, to streams.
pub(super) struct StreamScheduler {
    steps: Vec<(usize, MemoryAccess)>,
    /// The last step of every stream.
    last: Vec<Option<usize>>,
}

impl StreamScheduler {
    pub(super) fn new(count: usize) -> Self {
        StreamScheduler { steps: Vec::new(), last: vec![None; count.max(1)] }
    }

    /// Assigns the next step: to the stream whose last step it must wait for, else to the stream that was used least
    /// recently.
    pub(super) fn assign(&mut self, access: MemoryAccess) -> StreamAssignment {
        let mut latest: Vec<Option<usize>> = vec![None; self.last.len()];
        for (step, (stream, earlier)) in self.steps.iter().enumerate().rev() {
            if latest[*stream].is_none() && earlier.precedes(&access) {
                latest[*stream] = Some(step);
            }
        }
        let streams = || 0..self.last.len();
        let behind =
            streams().filter(|&stream| latest[stream].is_some() && latest[stream] == self.last[stream]);
        let stream = behind
            .max_by_key(|&stream| self.last[stream])
            .or(streams().min_by_key(|&stream| self.last[stream]));
        let stream = stream.unwrap_or(0);
        let after = streams().filter(|&other| other != stream).filter_map(|other| latest[other]).collect();
        self.last[stream] = Some(self.steps.len());
        self.steps.push((stream, access));
        StreamAssignment { stream, after }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::kernels::testing::Random;

    #[test]
    fn steps_that_may_overlap_share_no_written_memory() {
        let mut random = Random::new(5);
        for round in 0..200 {
            let mut scheduler = StreamScheduler::new(1 + round % 4);
            let mut before: Vec<Vec<bool>> = Vec::new();
            let mut steps: Vec<(StreamAssignment, MemoryAccess)> = Vec::new();
            for _ in 0..40 {
                let mut range = || {
                    let start = random.within(0, 60) as u64;
                    start..start + random.within(1, 6) as u64
                };
                let access = MemoryAccess { read: vec![range(), range()], written: vec![range()] };
                let assignment = scheduler.assign(access.clone());
                // The steps that have finished when this one begins.
                let mut done = vec![false; steps.len()];
                let queued = steps.iter().rposition(|(other, _)| other.stream == assignment.stream);
                for first in assignment.after.iter().copied().chain(queued) {
                    done[first] = true;
                    (0..before[first].len()).for_each(|step| done[step] |= before[first][step]);
                }
                for (step, (_, earlier)) in steps.iter().enumerate() {
                    assert!(done[step] || !earlier.precedes(&access), "{step} may still be running");
                }
                before.push(done);
                steps.push((assignment, access));
            }
        }
    }

    #[test]
    fn branches_run_on_different_streams() {
        let mut scheduler = StreamScheduler::new(2);
        let access = |read: u64, written: u64| {
            let one = |at: u64| std::iter::once(at..at + 1).collect();
            MemoryAccess { read: one(read), written: one(written) }
        };
        let expected = |stream, after: &[usize]| StreamAssignment { stream, after: after.to_vec() };
        assert_eq!(scheduler.assign(access(0, 1)), expected(0, &[]));
        assert_eq!(scheduler.assign(access(1, 2)), expected(0, &[]));
        assert_eq!(scheduler.assign(access(1, 3)), expected(1, &[0]));
        assert_eq!(scheduler.assign(access(3, 4)), expected(1, &[]));
        let mut both = access(2, 5);
        both.read.push(4..5);
        assert_eq!(scheduler.assign(both), expected(1, &[1]));
    }
}
