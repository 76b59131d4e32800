//! Pools over windows and their transposes. A NaN under a window is its maximum, as in PyTorch.

use monosplit_graph::op::{Divisor, Window};

use super::chunks::{for_each_chunk, for_each_plane};
use super::depthwise_3x3::Depthwise3x3;
use super::row_loops::{argmax_into, beats, deinterleave, max_into, scatter_to_larger, sum};
use super::simd_level::SimdLevel;
use super::sliding_window::{SlidingWindow, pair};
use crate::cpu::real::Real;
use crate::cpu::unwinding::filled;

/// Planes one task takes the mean of, where that is one number each.
const GRAIN: usize = 16;

/// The sliding from planes of shape `x` to planes of shape `y`.
fn sliding(window: &Window, x: &[usize], y: &[usize]) -> SlidingWindow {
    SlidingWindow::new(window, &x[2..], &y[2..])
}

/// Whether the windows are 2×2 and cover the plane without gap or overlap.
fn halves(window: &Window, sliding: &SlidingWindow) -> bool {
    window.kernel == [2, 2]
        && window.stride == [2, 2]
        && window.dilation == [1, 1]
        && window.pad == [(0, 0), (0, 0)]
        && sliding.input.iter().zip(&sliding.output).all(|(&input, &output)| input == 2 * output)
        && sliding.output_len() > 0
}

/// Windows of two elements without gap or overlap, as in maxout layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pairs {
    /// The two are neighbours.
    Adjacent,
    /// The two are this many elements apart.
    Strided(usize),
}

/// The pairs that the windows are, if they have two elements.
fn pairs(window: &Window, sliding: &SlidingWindow) -> Option<Pairs> {
    let wide: Vec<usize> = (0..window.axes()).filter(|&axis| window.kernel[axis] > 1).collect();
    let &[axis] = wide.as_slice() else { return None };
    let plain = window.stride == window.kernel
        && window.dilation.iter().all(|&dilation| dilation == 1)
        && window.pad.iter().all(|&pad| pad == (0, 0))
        && sliding.input.iter().zip(&sliding.output).zip(&window.kernel).all(|((&i, &o), &k)| i == k * o);
    let stride = sliding.input[axis + 1..].iter().product();
    match stride {
        _ if !plain || window.kernel[axis] != 2 || sliding.output_len() == 0 => None,
        1 => Some(Pairs::Adjacent),
        _ => Some(Pairs::Strided(stride)),
    }
}

/// The planes of windows of three by three, if they are three by three.
fn three_by_three(window: &Window, sliding: &SlidingWindow) -> Option<Depthwise3x3> {
    let planar = |lengths: &[usize]| <[usize; 2]>::try_from(lengths).ok();
    Depthwise3x3::new(window, planar(&sliding.input)?, planar(&sliding.output)?)
}

/// The larger of every two.
fn larger_of_pairs<R: Real>(pairs: Pairs, x: &[R], y: &mut [R]) {
    match pairs {
        Pairs::Adjacent => {
            for (y, pair) in y.iter_mut().zip(x.chunks_exact(2)) {
                *y = if beats(pair[1], pair[0]) { pair[1] } else { pair[0] };
            }
        }
        Pairs::Strided(stride) => {
            for (y, x) in y.chunks_exact_mut(stride).zip(x.chunks_exact(2 * stride)) {
                y.copy_from_slice(&x[..stride]);
                max_into(y, &x[stride..]);
            }
        }
    }
}

/// [`winner_scatter`] for pairs.
fn scatter_pairs<R: Real>(pairs: Pairs, a: &[R], y: &[R], s: &mut [R]) {
    match pairs {
        Pairs::Adjacent => {
            for ((s, a), &y) in s.chunks_exact_mut(2).zip(a.chunks_exact(2)).zip(y) {
                let (second, y) = (beats(a[1], a[0]), R::ZERO + y);
                (s[0], s[1]) = if second { (R::ZERO, y) } else { (y, R::ZERO) };
            }
        }
        Pairs::Strided(stride) => {
            let groups = s.chunks_exact_mut(2 * stride).zip(a.chunks_exact(2 * stride));
            for ((s, a), y) in groups.zip(y.chunks_exact(stride)) {
                let (first, second) = s.split_at_mut(stride);
                scatter_to_larger(a.split_at(stride), y, (first, second));
            }
        }
    }
}

/// Calls `f` with two rows of a plane as pairs, above and below, and the row of the half plane they belong to.
fn quads<A, B>(plane: &mut [A], half: &[B], width: usize, f: impl Fn(&mut [A], &mut [A], &[B])) {
    for (rows, half) in plane.chunks_exact_mut(4 * width).zip(half.chunks_exact(width)) {
        let (above, below) = rows.split_at_mut(2 * width);
        f(above, below, half);
    }
}

/// Which of four is the first largest.
#[inline]
fn first_largest<R: Real>(four: [R; 4]) -> u8 {
    let (mut best, mut at) = (four[0], 0);
    for (i, &candidate) in four.iter().enumerate().skip(1) {
        let better = beats(candidate, best);
        best = if better { candidate } else { best };
        at = if better { i as u8 } else { at };
    }
    at
}

/// [`winner_scatter`] for windows that are halves.
fn scatter_halves<R: Real>(a: &[R], y: &[R], s: &mut [R], width: usize) {
    let rows = s.chunks_exact_mut(4 * width).zip(a.chunks_exact(4 * width)).zip(y.chunks_exact(width));
    for ((s, a), y) in rows {
        let ((s0, s1), (a0, a1)) = (s.split_at_mut(2 * width), a.split_at(2 * width));
        let s = s0.chunks_exact_mut(2).zip(s1.chunks_exact_mut(2));
        let a = a0.chunks_exact(2).zip(a1.chunks_exact(2));
        for (((s0, s1), (a0, a1)), &y) in s.zip(a).zip(y) {
            let at = first_largest([a0[0], a0[1], a1[0], a1[1]]);
            let y = R::ZERO + y;
            let share = |index: u8| if at == index { y } else { R::ZERO };
            (s0[0], s0[1], s1[0], s1[1]) = (share(0), share(1), share(2), share(3));
        }
    }
}

/// Plane `index` of planes of this length.
fn plane<R>(planes: &[R], length: usize, index: usize) -> &[R] {
    &planes[index * length..(index + 1) * length]
}

/// The largest element under every window; `−∞` where a window covers only padding.
///
/// The rows under a window are compared first, then its columns: their elements, every `step`-th of a row, are
/// brought together so that the inner loops are over neighbours.
pub(crate) fn max_pool<R: Real>(window: &Window, (x, xs): (&[R], &[usize]), (y, ys): (&mut [R], &[usize])) {
    let sliding = sliding(window, xs, ys);
    let (step, length) = (sliding.step(), sliding.input[sliding.input.len() - 1]);
    let pitch = length.div_ceil(step);
    let inputs = sliding.input_len();
    if let Some(pairs) = pairs(window, &sliding) {
        let larger = |(): &mut (), index: usize, y: &mut [R]| {
            larger_of_pairs(pairs, plane(x, inputs, index), y);
        };
        return for_each_plane(y, sliding.output_len(), || (), larger);
    }
    if let Some(three_by_three) = three_by_three(window, &sliding) {
        let outside = vec![R::NEG_INFINITY; length + 1];
        let largest = |(): &mut (), index: usize, y: &mut [R]| {
            three_by_three.largest(SimdLevel::current(), (plane(x, inputs, index), &outside), y);
        };
        return for_each_plane(y, sliding.output_len(), || (), largest);
    }
    let scratch = || (filled(R::ZERO, length), filled(R::ZERO, pitch * step));
    for_each_plane(y, sliding.output_len(), scratch, |(column, phases), index, y| {
        let x = plane(x, inputs, index);
        for (row, y) in y.chunks_mut(sliding.width()).enumerate() {
            y.fill(R::NEG_INFINITY);
            let mut rows = sliding.input_rows(row);
            let Some(first) = rows.next() else { continue };
            column.copy_from_slice(&x[first..first + length]);
            for start in rows {
                max_into(column, &x[start..start + length]);
            }
            deinterleave(column, step, phases);
            for run in sliding.runs() {
                let from = run.input % step * pitch + run.input / step;
                max_into(&mut y[run.first..run.end], &phases[from..from + run.end - run.first]);
            }
        }
    });
}

/// The mean (or sum) under every window, summed in double precision.
pub(crate) fn average_pool<R: Real>(
    window: &Window,
    divisor: Divisor,
    (x, xs): (&[R], &[usize]),
    (y, ys): (&mut [R], &[usize]),
) {
    let sliding = sliding(window, xs, ys);
    let (step, width) = (sliding.step(), sliding.width());
    let (reciprocals, inputs) = (sliding.reciprocals(divisor), sliding.input_len());
    if sliding.covers_everything() {
        return for_each_chunk(y, GRAIN, &|task, y| {
            for (local, y) in y.iter_mut().enumerate() {
                *y = R::from_f64(sum(plane(x, inputs, task * GRAIN + local)) * reciprocals[0]);
            }
        });
    }
    for_each_plane(
        y,
        sliding.output_len(),
        || filled(0.0f64, width),
        |sums, index, y| {
            let x = plane(x, inputs, index);
            for (row, y) in y.chunks_mut(width).enumerate() {
                sums.fill(0.0);
                sliding.visit(row, |_, start, run| {
                    let sums = &mut sums[run.first..run.end];
                    pair(sums, &x[start + run.input..], step, |sum, x| *sum += x.to_f64());
                });
                let reciprocals = &reciprocals[row * width..];
                for ((y, &sum), &r) in y.iter_mut().zip(sums.iter()).zip(reciprocals) {
                    *y = R::from_f64(sum * r);
                }
            }
        },
    );
}

/// The transpose of [`average_pool`]: every element of `y` is added to all elements of its window.
pub(crate) fn average_pool_transpose<R: Real>(
    window: &Window,
    divisor: Divisor,
    (y, ys): (&[R], &[usize]),
    (x, xs): (&mut [R], &[usize]),
) {
    let sliding = sliding(window, xs, ys);
    let (step, width, outputs) = (sliding.step(), sliding.width(), sliding.output_len());
    if halves(window, &sliding) {
        let share = R::from_f64(if divisor == Divisor::One { 1.0 } else { 0.25 });
        let repeat = |(): &mut (), index: usize, x: &mut [R]| {
            quads(x, plane(y, outputs, index), width, |above, below, y| {
                for ((pair, under), &y) in above.chunks_exact_mut(2).zip(below.chunks_exact_mut(2)).zip(y) {
                    pair.fill(R::ZERO + y * share);
                    under.fill(R::ZERO + y * share);
                }
            });
        };
        return for_each_plane(x, sliding.input_len(), || (), repeat);
    }
    let reciprocals: Vec<R> = sliding.reciprocals(divisor).into_iter().map(R::from_f64).collect();
    for_each_plane(
        x,
        sliding.input_len(),
        || filled(R::ZERO, width),
        |shares, index, x| {
            x.fill(R::ZERO);
            for (row, y) in plane(y, outputs, index).chunks(width).enumerate() {
                for ((share, &y), &r) in shares.iter_mut().zip(y).zip(&reciprocals[row * width..]) {
                    *share = y * r;
                }
                sliding.visit(row, |_, start, run| {
                    let x = x[start + run.input..].iter_mut().step_by(step);
                    for (x, &share) in x.zip(&shares[run.first..run.end]) {
                        *x += share;
                    }
                });
            }
        },
    );
}

/// The integers up to this are exact in single precision.
const NAMED: usize = 1 << 24;

/// For every output of one row, the first largest element under its window.
struct Winners<R> {
    best: Vec<R>,
    /// By which tap it is read; negative where a window covers only padding. Numbers of the same width as the elements, so
    /// that both are compared and chosen side by side.
    taps: Vec<R>,
    /// The current row, deinterleaved by the stride.
    phases: Vec<R>,
    /// For every tap, what the first output would read if it read anything.
    origins: Vec<usize>,
    step: usize,
}

impl<R: Real> Winners<R> {
    fn new(sliding: &SlidingWindow) -> Self {
        let (width, step, length) = (sliding.width(), sliding.step(), sliding.input[sliding.input.len() - 1]);
        Winners {
            best: filled(R::ZERO, width),
            taps: filled(R::ZERO, width),
            phases: filled(R::ZERO, length.div_ceil(step) * step),
            origins: vec![0; sliding.taps()],
            step,
        }
    }

    fn find(&mut self, sliding: &SlidingWindow, plane: &[R], row: usize) {
        if sliding.taps() > NAMED {
            return self.find_one_by_one(sliding, plane, row);
        }
        let (step, pitch) = (self.step, self.phases.len() / self.step);
        let length = sliding.input[sliding.input.len() - 1];
        self.taps.fill(R::from_f64(-1.0));
        let mut shown = None;
        sliding.visit(row, |tap, start, run| {
            if shown.replace(start) != Some(start) {
                deinterleave(&plane[start..start + length], step, &mut self.phases);
            }
            self.origins[tap] = (start + run.input).wrapping_sub(run.first * step);
            let from = run.input % step * pitch + run.input / step;
            let (best, taps) = (&mut self.best[run.first..run.end], &mut self.taps[run.first..run.end]);
            argmax_into(best, taps, &self.phases[from..from + run.end - run.first], R::from_f64(tap as f64));
        });
    }

    /// The same for more taps than there are names: outputs are named, and each has its own winner.
    fn find_one_by_one(&mut self, sliding: &SlidingWindow, plane: &[R], row: usize) {
        self.taps.fill(R::from_f64(-1.0));
        self.origins.resize(self.origins.len().max(self.taps.len()), 0);
        sliding.visit(row, |_, start, run| {
            for column in run.first..run.end {
                let at = start + run.input + (column - run.first) * self.step;
                if self.taps[column] < R::ZERO || beats(plane[at], self.best[column]) {
                    self.best[column] = plane[at];
                    self.taps[column] = R::from_f64(column as f64);
                    self.origins[column] = at.wrapping_sub(column * self.step);
                }
            }
        });
    }

    /// Where in the plane the winner of each output lies.
    fn winner_indices(&self) -> impl Iterator<Item = Option<usize>> {
        self.taps.iter().enumerate().map(|(column, tap)| {
            let tap = tap.to_f64();
            (tap >= 0.0).then(|| self.origins[tap as usize].wrapping_add(column * self.step))
        })
    }
}

/// `s` where `a` has its first largest element under every window; 0 where a window covers only padding.
pub(crate) fn winner_gather<R: Real>(
    window: &Window,
    (a, xs): (&[R], &[usize]),
    s: &[R],
    (y, ys): (&mut [R], &[usize]),
) {
    let sliding = sliding(window, xs, ys);
    let inputs = sliding.input_len();
    let winners = || Winners::new(&sliding);
    for_each_plane(y, sliding.output_len(), winners, |winners, index, y| {
        let [a, s] = [a, s].map(|planes| plane(planes, inputs, index));
        for (row, y) in y.chunks_mut(sliding.width()).enumerate() {
            winners.find(&sliding, a, row);
            for (y, at) in y.iter_mut().zip(winners.winner_indices()) {
                *y = at.map_or(R::ZERO, |at| s[at]);
            }
        }
    });
}

/// The transpose of [`winner_gather`] in `s`: every `y` added where `a` won.
pub(crate) fn winner_scatter<R: Real>(
    window: &Window,
    (a, xs): (&[R], &[usize]),
    (y, ys): (&[R], &[usize]),
    s: &mut [R],
) {
    let sliding = sliding(window, xs, ys);
    let inputs = sliding.input_len();
    let outputs = sliding.output_len();
    let of = |index: usize| (plane(a, inputs, index), plane(y, outputs, index));
    if halves(window, &sliding) {
        let scatter = |(): &mut (), index: usize, s: &mut [R]| {
            let (a, y) = of(index);
            scatter_halves(a, y, s, sliding.width());
        };
        return for_each_plane(s, inputs, || (), scatter);
    }
    if let Some(pairs) = pairs(window, &sliding) {
        let scatter = |(): &mut (), index: usize, s: &mut [R]| {
            let (a, y) = of(index);
            scatter_pairs(pairs, a, y, s);
        };
        return for_each_plane(s, inputs, || (), scatter);
    }
    let winners = || Winners::new(&sliding);
    for_each_plane(s, inputs, winners, |winners, index, s| {
        let (a, y) = of(index);
        s.fill(R::ZERO);
        for (row, y) in y.chunks(sliding.width()).enumerate() {
            winners.find(&sliding, a, row);
            for (&y, at) in y.iter().zip(winners.winner_indices()) {
                if let Some(at) = at {
                    s[at] += y;
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::kernels::gemm_convolution::tests::output_shape;
    use crate::cpu::kernels::testing::{Random, assert_close, windows};

    fn inner(a: &[f64], b: &[f64]) -> f64 {
        a.iter().zip(b).map(|(x, y)| x * y).sum()
    }

    /// Elements each window covers, in row-major order, and how many it covers counting padding.
    fn covered(window: &Window, input: &[usize], output: &[usize]) -> Vec<(Vec<usize>, usize)> {
        let digits = |mut flat: usize, shape: &[usize]| {
            let mut at = vec![0; shape.len()];
            for (digit, &n) in at.iter_mut().zip(shape).rev() {
                *digit = flat % n;
                flat /= n;
            }
            at
        };
        (0..output.iter().product())
            .map(|position| {
                let position = digits(position, output);
                let (mut elements, mut padded) = (Vec::new(), 0);
                for tap in 0..window.kernel.iter().product() {
                    let tap = digits(tap, &window.kernel);
                    let at: Vec<usize> = (0..input.len())
                        .map(|i| position[i] * window.stride[i] + tap[i] * window.dilation[i])
                        .collect();
                    let room = |i: usize| window.pad[i].0 + input[i] + window.pad[i].1;
                    padded += usize::from((0..input.len()).all(|i| at[i] < room(i)));
                    let inside: Option<Vec<usize>> = (0..input.len())
                        .map(|i| at[i].checked_sub(window.pad[i].0).filter(|&a| a < input[i]))
                        .collect();
                    elements.extend(
                        inside.map(|at| at.iter().zip(input).fold(0, |index, (&a, &n)| index * n + a)),
                    );
                }
                (elements, padded)
            })
            .collect()
    }

    #[test]
    fn pools_equal_their_definition() {
        let mut random = Random::new(8);
        for axes in 1..=3 {
            for (window, input) in windows(&mut random, axes, 40) {
                let xs = [&[1, 1], input.as_slice()].concat();
                let ys = output_shape(&window, 1, 1, &input);
                let x = random.reals::<f64>(xs.iter().product());
                let windows = covered(&window, &input, &ys[2..]);
                let mut y = vec![0.0; windows.len()];
                max_pool(&window, (&x, &xs), (&mut y, &ys));
                let largest = |(at, _): &(Vec<usize>, usize)| {
                    at.iter().map(|&i| x[i]).fold(f64::NEG_INFINITY, f64::max)
                };
                assert_eq!(y, windows.iter().map(largest).collect::<Vec<_>>());
                for divisor in [Divisor::Covered, Divisor::Padded, Divisor::One] {
                    average_pool(&window, divisor, (&x, &xs), (&mut y, &ys));
                    let mean = |(at, padded): &(Vec<usize>, usize)| {
                        let sum: f64 = at.iter().map(|&i| x[i]).sum();
                        match divisor {
                            _ if at.is_empty() => 0.0,
                            Divisor::Covered => sum / at.len() as f64,
                            Divisor::Padded => sum / *padded as f64,
                            Divisor::One => sum,
                        }
                    };
                    assert_close(&y, &windows.iter().map(mean).collect::<Vec<_>>(), 1e-13);
                }
            }
        }
    }

    #[test]
    fn windows_of_three_by_three_find_the_largest_and_nan() {
        let mut random = Random::new(10);
        for case in 0..120 {
            let pad = [0, 1].map(|_| (random.within(0, 2), random.within(0, 2)));
            let stride = vec![1 + case % 2; 2];
            let window = Window { stride, pad: pad.to_vec(), ceil: case % 3 == 0, ..Window::new([3, 3]) };
            let input =
                pad.map(|(before, after)| random.within(3usize.saturating_sub(before + after).max(1), 50));
            let xs = [1, 1, input[0], input[1]];
            let ys = output_shape(&window, 1, 1, &input);
            let mut x = random.reals::<f32>(xs.iter().product());
            if case % 4 == 0 {
                let place = random.within(0, x.len() - 1);
                x[place] = f32::NAN;
            }
            let mut largest = vec![0.0; ys.iter().product()];
            for ((at, _), largest) in covered(&window, &input, &ys[2..]).iter().zip(&mut largest) {
                let under = || at.iter().map(|&i| x[i]);
                let nan = under().any(f32::is_nan);
                *largest = if nan { f32::NAN } else { under().fold(f32::NEG_INFINITY, f32::max) };
            }
            let three_by_three = three_by_three(&window, &sliding(&window, &xs, &ys)).unwrap();
            let outside = vec![f32::NEG_INFINITY; input[1] + 1];
            for level in SimdLevel::all() {
                let mut y = vec![0.0; largest.len()];
                three_by_three.largest(level, (&x, &outside), &mut y);
                let same = |(y, largest): (&f32, &f32)| y == largest || y.is_nan() && largest.is_nan();
                assert!(y.iter().zip(&largest).all(same), "{level:?} {window:?} {input:?}");
            }
        }
    }

    #[test]
    fn transposes_are_adjoint_and_winners_agree_with_the_maximum() {
        let mut random = Random::new(9);
        for axes in 1..=3 {
            for (window, input) in windows(&mut random, axes, 40) {
                let xs = [&[2, 3], input.as_slice()].concat();
                let ys = output_shape(&window, 2, 3, &input);
                let count = xs.iter().product();
                // Few distinct values, so that there are ties to be broken.
                let a: Vec<f64> = (0..count).map(|_| random.within(0, 3) as f64).collect();
                let s = random.reals::<f64>(count);
                let dual = random.reals::<f64>(ys.iter().product());
                let (mut y, mut back) = (vec![0.0; dual.len()], vec![f64::NAN; count]);
                for divisor in [Divisor::Covered, Divisor::Padded, Divisor::One] {
                    average_pool(&window, divisor, (&s, &xs), (&mut y, &ys));
                    average_pool_transpose(&window, divisor, (&dual, &ys), (&mut back, &xs));
                    assert!((inner(&y, &dual) - inner(&s, &back)).abs() < 1e-11);
                }
                winner_gather(&window, (&a, &xs), &s, (&mut y, &ys));
                winner_scatter(&window, (&a, &xs), (&dual, &ys), &mut back);
                assert!((inner(&y, &dual) - inner(&s, &back)).abs() < 1e-11);
                winner_gather(&window, (&a, &xs), &a, (&mut y, &ys));
                let mut largest = vec![0.0; y.len()];
                max_pool(&window, (&a, &xs), (&mut largest, &ys));
                let zeroed = largest.iter().map(|&v| if v == f64::NEG_INFINITY { 0.0 } else { v });
                assert_eq!(y, zeroed.collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn the_first_of_equal_elements_wins_and_nan_beats_all() {
        let window = Window::new([2, 2]);
        let shape = ([1, 1, 2, 2], [1, 1, 1, 1]);
        let mut y = [0.0f32];
        winner_gather(&window, (&[1.0, 5.0, 5.0, 5.0], &shape.0), &[1.0, 2.0, 3.0, 4.0], (&mut y, &shape.1));
        assert_eq!(y, [2.0]);
        let nan = f32::NAN;
        winner_gather(&window, (&[1.0, nan, 5.0, nan], &shape.0), &[1.0, 2.0, 3.0, 4.0], (&mut y, &shape.1));
        assert_eq!(y, [2.0]);
        max_pool(&window, (&[1.0, nan, 5.0, 2.0], &shape.0), (&mut y, &shape.1));
        assert!(y[0].is_nan());
    }

    #[test]
    fn of_two_neighbours_the_first_largest_wins_wherever_they_lie() {
        let mut random = Random::new(91);
        let values = [-0.0f32, 0.0, 1.0, 2.0, f32::NAN];
        // Kernel, planes before and after, and how far apart two neighbours are.
        let cases = [
            (vec![2], vec![8], vec![4], 1),
            (vec![2, 1], vec![4, 5], vec![2, 5], 5),
            (vec![1, 2], vec![3, 6], vec![3, 3], 1),
            (vec![1, 2, 1], vec![2, 4, 3], vec![2, 2, 3], 3),
        ];
        for (kernel, input, output, stride) in cases {
            let mut window = Window::new(kernel.clone());
            window.stride = kernel;
            let (xs, ys) = ([&[2, 3], &input[..]].concat(), [&[2, 3], &output[..]].concat());
            let a: Vec<f32> = (0..xs.iter().product()).map(|_| values[random.within(0, 4)]).collect();
            let y = random.reals::<f32>(ys.iter().product());
            let (mut most, mut scattered) = (vec![9.0; y.len()], vec![9.0; a.len()]);
            max_pool(&window, (&a, &xs), (&mut most, &ys));
            winner_scatter(&window, (&a, &xs), (&y, &ys), &mut scattered);
            for (place, (&most, &y)) in most.iter().zip(&y).enumerate() {
                let first = place / stride * 2 * stride + place % stride;
                let (one, other) = (a[first], a[first + stride]);
                let second = other > one || (other.is_nan() && !one.is_nan());
                let largest = if second { other } else { one };
                assert!(most == largest || (most.is_nan() && largest.is_nan()));
                assert_eq!(
                    (scattered[first], scattered[first + stride]),
                    if second { (0.0, y) } else { (y, 0.0) }
                );
            }
        }
    }

    /// A plane seen as one slice of a volume takes the general way.
    #[test]
    fn halves_have_the_bits_of_the_general_way() {
        let mut random = Random::new(90);
        let (mut flat, mut deep) = (Window::new([2, 2]), Window::new([1, 2, 2]));
        (flat.stride, deep.stride) = (vec![2, 2], vec![1, 2, 2]);
        let (xs, ys) = ([2, 3, 6, 10], [2, 3, 3, 5]);
        let (deep_xs, deep_ys) = ([2, 3, 1, 6, 10], [2, 3, 1, 3, 5]);
        for _ in 0..20 {
            let a: Vec<f32> = (0..360).map(|_| [-0.0, 0.0, 1.0, f32::NAN][random.within(0, 3)]).collect();
            let y: Vec<f32> =
                random.reals::<f32>(90).iter().map(|v| if *v < -0.8 { -0.0 } else { *v }).collect();
            let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            let (mut short, mut general) = (vec![9.0; 360], vec![9.0; 360]);
            winner_scatter(&flat, (&a, &xs), (&y, &ys), &mut short);
            winner_scatter(&deep, (&a, &deep_xs), (&y, &deep_ys), &mut general);
            assert_eq!(bits(&short), bits(&general));
            for divisor in [Divisor::Covered, Divisor::Padded, Divisor::One] {
                average_pool_transpose(&flat, divisor, (&y, &ys), (&mut short, &xs));
                average_pool_transpose(&deep, divisor, (&y, &deep_ys), (&mut general, &deep_xs));
                assert_eq!(bits(&short), bits(&general));
            }
            let (mut short, mut general) = (vec![9.0; 90], vec![9.0; 90]);
            max_pool(&flat, (&a, &xs), (&mut short, &ys));
            max_pool(&deep, (&a, &deep_xs), (&mut general, &deep_ys));
            assert!(short.iter().zip(&general).all(|(s, g)| s == g || (s.is_nan() && g.is_nan())));
        }
    }
}
