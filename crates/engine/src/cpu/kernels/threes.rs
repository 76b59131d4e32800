//! Windows of three by three places, one or two apart, read where a plane lies: depthwise convolutions and max pools. Vectors
//! that reach over an end of a row find there what lies outside.
#![allow(unsafe_code)]

use monosplit_graph::op::Window;

use super::lanes::Lanes;
use super::level::{Level, compiled};
use crate::cpu::real::Real;

/// Rows and columns under a window.
const SIDE: usize = 3;
const TAPS: usize = SIDE * SIDE;

/// The planes that are read and written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Threes {
    input: [usize; 2],
    output: [usize; 2],
    /// One or two, along both axes.
    stride: usize,
    /// Places before the plane along each axis.
    before: [usize; 2],
}

impl Threes {
    /// The planes a window goes over, if it is such a window.
    pub(crate) fn new(window: &Window, input: [usize; 2], output: [usize; 2]) -> Option<Self> {
        let (&[stride, other], &[above, before]) = (window.stride.as_slice(), window.pad.as_slice()) else {
            return None;
        };
        let fits = window.kernel == [SIDE; 2] && window.dilation == [1; 2] && stride == other && stride <= 2;
        fits.then_some(Threes { input, output, stride, before: [above.0, before.0] })
    }

    /// `y ← w ⋆ x + start` for one plane, kept within limits. `outside` is a row of zeros.
    pub(crate) fn convolve<R: Real>(
        &self,
        level: Level,
        (x, outside): (&[R], &[R]),
        w: &[R],
        start: R,
        limits: Option<[R; 2]>,
        y: &mut [R],
    ) {
        assert_eq!(w.len(), TAPS, "kernel");
        let limits = limits.unwrap_or(R::UNLIMITED);
        let job = self.job((x, outside), w, start, limits, y);
        // SAFETY: the job was checked. The level is one of this machine.
        unsafe {
            match self.stride {
                1 => convolve_each(level, job),
                _ => convolve_every_other(level, job),
            }
        }
    }

    /// The largest number under every window, NaN if there is one. `outside` is a row of `−∞`.
    pub(crate) fn largest<R: Real>(&self, level: Level, (x, outside): (&[R], &[R]), y: &mut [R]) {
        let job = self.job((x, outside), &[], R::NEG_INFINITY, R::UNLIMITED, y);
        // SAFETY: the job was checked. The level is one of this machine.
        unsafe {
            match self.stride {
                1 => largest_each(level, job),
                _ => largest_every_other(level, job),
            }
        }
    }

    fn job<'a, R: Real>(
        &self,
        (x, outside): (&[R], &[R]),
        w: &'a [R],
        start: R,
        limits: [R; 2],
        y: &mut [R],
    ) -> Job<'a, R> {
        let ([height, width], [rows, columns]) = (self.input, self.output);
        let fits = x.len() >= height * width && outside.len() > width && y.len() >= rows * columns;
        assert!(fits && (1..=2).contains(&self.stride), "planes");
        let (x, outside, y) = (x.as_ptr(), outside.as_ptr(), y.as_mut_ptr());
        Job { planes: *self, x, outside, w, start, limits, y }
    }
}

/// What is read and written: a plane, a row of what lies outside of it, the kernel if there is one, what results begin with and
/// are limited to, and the output.
#[derive(Clone, Copy)]
pub(crate) struct Job<'a, R> {
    planes: Threes,
    x: *const R,
    outside: *const R,
    w: &'a [R],
    start: R,
    limits: [R; 2],
    y: *mut R,
}

/// How a result takes in what is under the taps of its window, one after the other.
trait Meeting<L: Lanes>: Copy {
    /// # Safety
    /// The machine has the instructions of `L`.
    unsafe fn meet(self, tap: usize, x: L, held: L) -> L;
}

/// A weighted sum.
#[derive(Clone, Copy)]
struct Weighted<L>([L; TAPS]);

impl<L: Lanes> Meeting<L> for Weighted<L> {
    #[inline(always)]
    unsafe fn meet(self, tap: usize, x: L, held: L) -> L {
        // SAFETY: the caller vouches for the instructions.
        unsafe { self.0[tap].multiply_add(x, held) }
    }
}

/// The largest.
#[derive(Clone, Copy)]
struct Largest;

impl<L: Lanes> Meeting<L> for Largest {
    #[inline(always)]
    unsafe fn meet(self, _: usize, x: L, held: L) -> L {
        // SAFETY: the caller vouches for the instructions.
        unsafe { x.larger(held) }
    }
}

/// The vector `offset` places after the beginning of a row, `whole` if all of it lies inside.
///
/// # Safety
/// The machine has the instructions of `L`; `width` numbers can be read at `row`.
#[inline(always)]
unsafe fn read<L: Lanes>(row: *const L::Scalar, width: usize, offset: isize, whole: bool, outside: L) -> L {
    let from = row.wrapping_offset(offset);
    // SAFETY: a vector that is not whole is cut at both ends of the row.
    unsafe {
        if whole {
            return L::load(from);
        }
        let end = (width as isize - offset).clamp(0, L::WIDTH as isize);
        L::load_within(from, (-offset).clamp(0, end) as usize, end as usize, outside)
    }
}

/// # Safety
/// The machine has the instructions of `L`; what the job names can be read and written.
#[inline(always)]
unsafe fn all<L: Lanes, const STRIDE: usize>(job: Job<'_, L::Scalar>, meeting: impl Meeting<L>) {
    let rows = job.planes.output[0];
    // SAFETY: vouched for by the caller. Two rows read most of what is under them once.
    unsafe {
        (0..rows / 2).for_each(|pair| some::<L, STRIDE, 2>(&job, meeting, 2 * pair));
        if rows % 2 == 1 {
            some::<L, STRIDE, 1>(&job, meeting, rows - 1);
        }
    }
}

/// The rows of the output from `first` on.
///
/// # Safety
/// As of [`all`].
#[inline(always)]
unsafe fn some<L: Lanes, const STRIDE: usize, const ROWS: usize>(
    job: &Job<'_, L::Scalar>,
    meeting: impl Meeting<L>,
    first: usize,
) {
    let ([height, width], columns) = (job.planes.input, job.planes.output[1]);
    let [above, before] = job.planes.before;
    // SAFETY: the caller vouches for the instructions and the extents.
    unsafe {
        let (start, outside) = (L::splat(job.start), L::splat(*job.outside));
        let (least, most) = (L::splat(job.limits[0]), L::splat(job.limits[1]));
        for at in (0..columns).step_by(L::WIDTH) {
            let left = (at * STRIDE) as isize - before as isize;
            let reach = (L::WIDTH * STRIDE + SIDE - 1) as isize;
            let whole = left >= 0 && left + reach <= width as isize;
            let mut results = [start; ROWS];
            for under in 0..(ROWS - 1) * STRIDE + SIDE {
                let row = (first * STRIDE + under).wrapping_sub(above);
                let row = if row < height { job.x.add(row * width) } else { job.outside };
                let vector = |offset: usize| read::<L>(row, width, left + offset as isize, whole, outside);
                let x = match STRIDE {
                    1 => [vector(0), vector(1), vector(2)],
                    _ => {
                        let [even, odd] = vector(0).unzipped(vector(L::WIDTH));
                        [even, odd, vector(2).unzipped(vector(L::WIDTH + 2))[0]]
                    }
                };
                for (output, result) in results.iter_mut().enumerate() {
                    if let Some(tap @ 0..SIDE) = under.checked_sub(output * STRIDE) {
                        for (column, &x) in x.iter().enumerate() {
                            *result = meeting.meet(tap * SIDE + column, x, *result);
                        }
                    }
                }
            }
            for (output, result) in results.into_iter().enumerate() {
                let to = job.y.add((first + output) * columns + at);
                let result = result.limited(least, most);
                match columns - at {
                    rest if rest < L::WIDTH => result.store_first(to, rest),
                    _ => result.store(to),
                }
            }
        }
    }
}

/// # Safety
/// As of [`all`]; the job has a kernel.
#[inline(always)]
unsafe fn convolved<L: Lanes, const STRIDE: usize>(job: Job<'_, L::Scalar>) {
    // SAFETY: vouched for by the caller.
    unsafe {
        let weights = std::array::from_fn(|tap| L::splat(job.w[tap]));
        all::<L, STRIDE>(job, Weighted(weights));
    }
}

/// Writes the function `$name` that does `$body` for one vector type.
macro_rules! of_vectors {
    ($name:ident, |$job:ident| $body:expr) => {
        /// # Safety
        /// As of [`all`].
        #[inline(always)]
        unsafe fn $name<L: Lanes>($job: Job<'_, L::Scalar>) {
            // SAFETY: vouched for by the caller.
            unsafe { $body }
        }
    };
}

of_vectors!(sum_each, |job| convolved::<L, 1>(job));
of_vectors!(sum_every_other, |job| convolved::<L, 2>(job));
of_vectors!(compare_each, |job| all::<L, 1>(job, Largest));
of_vectors!(compare_every_other, |job| all::<L, 2>(job, Largest));

compiled!(convolve_each<R: Real>(job: Job<'_, R>), sum_each);
compiled!(convolve_every_other<R: Real>(job: Job<'_, R>), sum_every_other);
compiled!(largest_each<R: Real>(job: Job<'_, R>), compare_each);
compiled!(largest_every_other<R: Real>(job: Job<'_, R>), compare_every_other);
