//! Loops over independent items, on threads that end with the loop. Metrics and readers of images do not use the threads of an
//! engine or of the application.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{available_parallelism, scope};

/// `work(i)` for every `i` below `count`, on as many threads as there are cores. The results are in order.
pub(crate) fn map<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let threads = available_parallelism().map_or(1, usize::from).min(count);
    if threads <= 1 {
        return (0..count).map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let worker = || {
        let indices = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        indices.take_while(|&index| index < count).map(|index| (index, work(index))).collect::<Vec<_>>()
    };
    let mut found: Vec<(usize, T)> = scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    });
    found.sort_unstable_by_key(|(index, _)| *index);
    found.into_iter().map(|(_, value)| value).collect()
}

/// Does `work` to each item, each on a thread of its own. For a few items that take long.
pub(crate) fn each_mut<T: Send>(items: &mut [T], work: impl Fn(&mut T) + Sync) {
    let Some((first, others)) = items.split_first_mut() else { return };
    scope(|scope| {
        let work = &work;
        for item in others {
            scope.spawn(move || work(item));
        }
        work(first);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order_and_every_item_is_worked_on_once() {
        for count in [0, 1, 2, 1000] {
            assert!(map(count, |index| index * index).into_iter().eq((0..count).map(|index| index * index)));
            let mut items: Vec<usize> = (0..count.min(5)).collect();
            each_mut(&mut items, |item| *item += 1);
            assert!(items.into_iter().eq(1..count.min(5) + 1));
        }
    }
}
