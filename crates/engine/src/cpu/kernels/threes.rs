//! Depthwise convolution with windows of three by three places, one or two apart: the sums are taken where the plane lies,
//! without a copy in a frame. Vectors that reach over an end of a row have zeros there.
#![allow(unsafe_code)]

use super::lanes::Lanes;
use super::level::{Level, compiled};
use crate::cpu::real::Real;

/// Rows and columns under a window.
pub(crate) const SIDE: usize = 3;
const TAPS: usize = SIDE * SIDE;

/// The planes such a convolution reads and writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Threes {
    pub(crate) input: [usize; 2],
    pub(crate) output: [usize; 2],
    /// One or two, along both axes.
    pub(crate) stride: usize,
    /// Zeros before the plane along each axis.
    pub(crate) before: [usize; 2],
}

impl Threes {
    /// `y ← w ⋆ x + start` for one plane, kept within limits. `zeros` is a row of them.
    pub(crate) fn run<R: Real>(
        &self,
        level: Level,
        (x, zeros): (&[R], &[R]),
        w: &[R],
        start: R,
        limits: Option<[R; 2]>,
        y: &mut [R],
    ) {
        let ([height, width], [rows, columns]) = (self.input, self.output);
        let fits = x.len() >= height * width && zeros.len() >= width && y.len() >= rows * columns;
        assert!(fits && w.len() == TAPS && (1..=2).contains(&self.stride), "planes");
        let limits = limits.unwrap_or([R::NEG_INFINITY, -R::NEG_INFINITY]);
        let (x, zeros, y) = (x.as_ptr(), zeros.as_ptr(), y.as_mut_ptr());
        let job = Job { planes: *self, x, zeros, w, start, limits, y };
        // SAFETY: the assertion says what can be read and written. The level is one of this machine.
        unsafe {
            match self.stride {
                1 => each_place(level, job),
                _ => every_other_place(level, job),
            }
        }
    }
}

/// The vector `offset` places after the beginning of a row, `whole` if all of it lies inside.
///
/// # Safety
/// The machine has the instructions of `L`; `width` numbers can be read at `row`.
#[inline(always)]
unsafe fn read<L: Lanes>(row: *const L::Scalar, width: usize, offset: isize, whole: bool) -> L {
    let from = row.wrapping_offset(offset);
    // SAFETY: a vector that is not whole is cut at both ends of the row.
    unsafe {
        if whole {
            return L::load(from);
        }
        let end = (width as isize - offset).clamp(0, L::WIDTH as isize);
        L::load_within(from, (-offset).clamp(0, end) as usize, end as usize)
    }
}

/// What is read and written: a plane, a row of zeros, the kernel, what sums begin with and are limited to, and the output.
#[derive(Clone, Copy)]
pub(crate) struct Job<'a, R> {
    planes: Threes,
    x: *const R,
    zeros: *const R,
    w: &'a [R],
    start: R,
    limits: [R; 2],
    y: *mut R,
}

/// # Safety
/// The machine has the instructions of `L`; what the job names can be read and written.
#[inline(always)]
unsafe fn sum<L: Lanes, const STRIDE: usize>(job: Job<'_, L::Scalar>) {
    let rows = job.planes.output[0];
    // SAFETY: vouched for by the caller. Two rows read most of what is under them once.
    unsafe {
        let w: [L; TAPS] = std::array::from_fn(|tap| L::splat(job.w[tap]));
        (0..rows / 2).for_each(|pair| sum_rows::<L, STRIDE, 2>(&job, &w, 2 * pair));
        if rows % 2 == 1 {
            sum_rows::<L, STRIDE, 1>(&job, &w, rows - 1);
        }
    }
}

/// The rows of the output from `first` on.
///
/// # Safety
/// As of [`sum`].
#[inline(always)]
unsafe fn sum_rows<L: Lanes, const STRIDE: usize, const ROWS: usize>(
    job: &Job<'_, L::Scalar>,
    w: &[L; TAPS],
    first: usize,
) {
    let ([height, width], columns) = (job.planes.input, job.planes.output[1]);
    let [above, before] = job.planes.before;
    // SAFETY: the caller vouches for the instructions and the extents.
    unsafe {
        let (start, least, most) = (L::splat(job.start), L::splat(job.limits[0]), L::splat(job.limits[1]));
        for at in (0..columns).step_by(L::WIDTH) {
            let left = (at * STRIDE) as isize - before as isize;
            let reach = (L::WIDTH * STRIDE + SIDE - 1) as isize;
            let whole = left >= 0 && left + reach <= width as isize;
            let mut sums = [start; ROWS];
            for under in 0..(ROWS - 1) * STRIDE + SIDE {
                let row = (first * STRIDE + under).wrapping_sub(above);
                let row = if row < height { job.x.add(row * width) } else { job.zeros };
                let vector = |offset: usize| read::<L>(row, width, left + offset as isize, whole);
                let x = match STRIDE {
                    1 => [vector(0), vector(1), vector(2)],
                    _ => {
                        let [even, odd] = vector(0).unzipped(vector(L::WIDTH));
                        [even, odd, vector(2).unzipped(vector(L::WIDTH + 2))[0]]
                    }
                };
                for (output, sum) in sums.iter_mut().enumerate() {
                    if let Some(tap @ 0..SIDE) = under.checked_sub(output * STRIDE) {
                        for column in 0..SIDE {
                            *sum = w[tap * SIDE + column].multiply_add(x[column], *sum);
                        }
                    }
                }
            }
            for (output, sum) in sums.into_iter().enumerate() {
                let (to, sum) = (job.y.add((first + output) * columns + at), sum.limited(least, most));
                match columns - at {
                    rest if rest < L::WIDTH => sum.store_first(to, rest),
                    _ => sum.store(to),
                }
            }
        }
    }
}

/// # Safety
/// As of [`sum`].
#[inline(always)]
unsafe fn sum_each<L: Lanes>(job: Job<'_, L::Scalar>) {
    // SAFETY: vouched for by the caller.
    unsafe { sum::<L, 1>(job) }
}

/// # Safety
/// As of [`sum`].
#[inline(always)]
unsafe fn sum_every_other<L: Lanes>(job: Job<'_, L::Scalar>) {
    // SAFETY: vouched for by the caller.
    unsafe { sum::<L, 2>(job) }
}

compiled!(each_place<R: Real>(job: Job<'_, R>), sum_each);
compiled!(every_other_place<R: Real>(job: Job<'_, R>), sum_every_other);
