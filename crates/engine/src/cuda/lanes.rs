//! Which steps may run at the same time. A step waits for those that write what it reads or overwrites, and for those that
//! still read what it overwrites; everything else may overtake it on another lane.

use std::ops::Range;

/// Memory a step touches, as ranges of addresses.
#[derive(Clone, Debug, Default)]
pub(super) struct Touched {
    pub(super) read: Vec<Range<u64>>,
    pub(super) written: Vec<Range<u64>>,
}

impl Touched {
    /// Whether two steps in this order must run in this order.
    fn precedes(&self, later: &Touched) -> bool {
        let meet = |a: &[Range<u64>], b: &[Range<u64>]| {
            a.iter().any(|a| b.iter().any(|b| a.start < b.end && b.start < a.end))
        };
        meet(&self.written, &later.read)
            || meet(&self.written, &later.written)
            || meet(&self.read, &later.written)
    }
}

/// When a step runs: on which lane, after those before it there, and after which steps of other lanes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) lane: usize,
    pub(super) after: Vec<usize>,
}

/// Steps in an order in which they could run one by one, put on lanes.
pub(super) struct Lanes {
    steps: Vec<(usize, Touched)>,
    /// The last step of every lane.
    last: Vec<Option<usize>>,
}

impl Lanes {
    pub(super) fn new(count: usize) -> Self {
        Lanes { steps: Vec::new(), last: vec![None; count.max(1)] }
    }

    /// The turn of the next step: behind the last it has to wait for, or where there has been nothing to do for longest.
    pub(super) fn next(&mut self, touched: Touched) -> Turn {
        let mut latest: Vec<Option<usize>> = vec![None; self.last.len()];
        for (step, (lane, earlier)) in self.steps.iter().enumerate().rev() {
            if latest[*lane].is_none() && earlier.precedes(&touched) {
                latest[*lane] = Some(step);
            }
        }
        let lanes = || 0..self.last.len();
        let behind = lanes().filter(|&lane| latest[lane].is_some() && latest[lane] == self.last[lane]);
        let lane = behind.max_by_key(|&lane| self.last[lane]).or(lanes().min_by_key(|&lane| self.last[lane]));
        let lane = lane.unwrap_or(0);
        let after = lanes().filter(|&other| other != lane).filter_map(|other| latest[other]).collect();
        self.last[lane] = Some(self.steps.len());
        self.steps.push((lane, touched));
        Turn { lane, after }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::kernels::testing::Random;

    #[test]
    fn whatever_runs_at_the_same_time_touches_nothing_in_common() {
        let mut random = Random::new(5);
        for round in 0..200 {
            let mut lanes = Lanes::new(1 + round % 4);
            let mut before: Vec<Vec<bool>> = Vec::new();
            let mut steps: Vec<(Turn, Touched)> = Vec::new();
            for _ in 0..40 {
                let mut range = || {
                    let start = random.within(0, 60) as u64;
                    start..start + random.within(1, 6) as u64
                };
                let touched = Touched { read: vec![range(), range()], written: vec![range()] };
                let turn = lanes.next(touched.clone());
                // Everything that is done when this step begins.
                let mut done = vec![false; steps.len()];
                let queued = steps.iter().rposition(|(other, _)| other.lane == turn.lane);
                for first in turn.after.iter().copied().chain(queued) {
                    done[first] = true;
                    (0..before[first].len()).for_each(|step| done[step] |= before[first][step]);
                }
                for (step, (_, earlier)) in steps.iter().enumerate() {
                    assert!(done[step] || !earlier.precedes(&touched), "{step} may still be running");
                }
                before.push(done);
                steps.push((turn, touched));
            }
        }
    }

    #[test]
    fn branches_run_side_by_side() {
        let mut lanes = Lanes::new(2);
        let touched = |read: u64, written: u64| {
            let one = |at: u64| std::iter::once(at..at + 1).collect();
            Touched { read: one(read), written: one(written) }
        };
        assert_eq!(lanes.next(touched(0, 1)), Turn { lane: 0, after: vec![] });
        assert_eq!(lanes.next(touched(1, 2)), Turn { lane: 0, after: vec![] });
        assert_eq!(lanes.next(touched(1, 3)), Turn { lane: 1, after: vec![0] });
        assert_eq!(lanes.next(touched(3, 4)), Turn { lane: 1, after: vec![] });
        let mut both = touched(2, 5);
        both.read.push(4..5);
        assert_eq!(lanes.next(both), Turn { lane: 1, after: vec![1] });
    }
}
