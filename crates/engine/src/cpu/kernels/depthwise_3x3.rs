//! Depthwise convolutions and max pools with windows of three by three and stride 1 or 2, which read planes in place. Vectors that
//! extend over the end of a row are filled up with the padding value.
#![allow(unsafe_code)]

use std::ops::Range;

use monosplit_graph::op::Window;

use super::gemm::Region;
use super::simd_lanes::Lanes;
use super::simd_level::{SimdLevel, simd_dispatch};
use crate::cpu::real::Real;

/// Rows and columns of a window.
const SIDE: usize = 3;
const TAPS: usize = SIDE * SIDE;
/// The least number of rows of GEMM tiles where there are 32 vector registers.
const MANY_REGISTERS: usize = 12;
/// Rows of the output computed together at stride 1 and at stride 2, where there are registers for them.
const ROWS_ABREAST: [usize; 2] = [7, 4];
/// The most rows of a plane that are read together.
const MAX_LINES: usize = 9;
const _: () =
    assert!(ROWS_ABREAST[0] - 1 + SIDE <= MAX_LINES && (ROWS_ABREAST[1] - 1) * 2 + SIDE <= MAX_LINES);

/// Whether there are registers for the taps of a window besides the sums of [`ROWS_ABREAST`].
const fn many_registers<L: Lanes>() -> bool {
    L::ROWS >= MANY_REGISTERS
}

/// The least number of rows that have code of their own for vectors that are whole. The few rows left over are read as if all their
/// vectors were cut, which spares a copy of the code.
const fn least_whole<L: Lanes>() -> usize {
    if many_registers::<L>() { ROWS_ABREAST[1] } else { 2 }
}

/// The planes that are read and written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Depthwise3x3 {
    input: [usize; 2],
    output: [usize; 2],
    /// One or two, along both axes.
    stride: usize,
    /// Padding before the plane along each axis.
    before: [usize; 2],
}

impl Depthwise3x3 {
    /// The planes of a window, if it is three by three.
    pub(crate) fn new(window: &Window, input: [usize; 2], output: [usize; 2]) -> Option<Self> {
        let planes = || Depthwise3x3 {
            input,
            output,
            stride: window.stride[0],
            before: [window.pad[0].0, window.pad[1].0],
        };
        window.is_three_by_three().then(planes)
    }

    /// Elements of a kernel.
    pub(crate) fn taps(&self) -> usize {
        TAPS
    }

    /// Lengths of the rows of input and output.
    pub(crate) fn widths(&self) -> [usize; 2] {
        [self.input[1], self.output[1]]
    }

    /// The input rows that some output rows read, and the planes made of these rows.
    pub(crate) fn band(&self, rows: Range<usize>) -> (Range<usize>, Depthwise3x3) {
        let (above, height) = (self.before[0], self.input[0]);
        let first = (rows.start * self.stride).saturating_sub(above);
        let end = ((rows.end.max(1) - 1) * self.stride + SIDE).saturating_sub(above);
        let read = first.min(height)..end.clamp(first.min(height), height);
        let planes = Depthwise3x3 {
            input: [read.len(), self.input[1]],
            output: [rows.len(), self.output[1]],
            before: [first + above - rows.start * self.stride, self.before[1]],
            ..*self
        };
        (read, planes)
    }

    /// `y ← w ⋆ x + bias` for planes one after the other, each with its kernel and bias, clamped to limits; the planes of the
    /// output are the rows of `y`. `outside` is a row of zeros.
    pub(crate) fn convolve<R: Real>(
        &self,
        level: SimdLevel,
        (x, outside): (&[R], &[R]),
        w: &[R],
        bias: Option<&[R]>,
        limits: Option<[R; 2]>,
        y: &mut Region<'_, R>,
    ) {
        let job = self.job((x, outside), (w, bias, R::ZERO), limits.unwrap_or(R::UNLIMITED), y);
        assert!(w.len() == job.count * TAPS && bias.is_none_or(|bias| bias.len() == job.count), "kernels");
        // SAFETY: the job was checked. The level is one of this machine.
        unsafe {
            match self.stride {
                1 => convolve_each(level, job),
                _ => convolve_every_other(level, job),
            }
        }
    }

    /// The largest number under every window, NaN if there is one. `outside` is a row of `−∞`.
    pub(crate) fn largest<R: Real>(&self, level: SimdLevel, (x, outside): (&[R], &[R]), y: &mut [R]) {
        let mut y = Region::new(y, 1, y.len(), y.len());
        let job = self.job((x, outside), (&[], None, R::NEG_INFINITY), R::UNLIMITED, &mut y);
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
        (w, bias, otherwise): (&'a [R], Option<&'a [R]>, R),
        limits: [R; 2],
        y: &mut Region<'_, R>,
    ) -> Job<'a, R> {
        let ([height, width], [rows, columns]) = (self.input, self.output);
        let count = y.rows;
        let fits = x.len() >= count * height * width && outside.len() > width && y.columns >= rows * columns;
        assert!(fits && (1..=2).contains(&self.stride), "planes");
        let (x, outside, apart) = (x.as_ptr(), outside.as_ptr(), y.stride());
        Job { planes: *self, count, x, outside, w, bias, otherwise, limits, y: y.start(), apart }
    }
}

/// What is read and written: planes, a row of padding, kernels if there are any, initial values and limits of results, and the
/// output.
#[derive(Clone, Copy)]
pub(crate) struct Job<'a, R> {
    planes: Depthwise3x3,
    count: usize,
    x: *const R,
    outside: *const R,
    w: &'a [R],
    bias: Option<&'a [R]>,
    otherwise: R,
    limits: [R; 2],
    y: *mut R,
    /// Distance between the planes of the output.
    apart: usize,
}

/// How the elements under the taps of a window are reduced to a result, tap by tap.
trait TapReduction<L: Lanes>: Copy {
    /// The reduction for one plane of a job.
    ///
    /// # Safety
    /// The machine has the instructions of `L`.
    unsafe fn of(job: &Job<'_, L::Scalar>, plane: usize) -> Self;

    /// # Safety
    /// The machine has the instructions of `L`.
    unsafe fn accumulate(self, tap: usize, x: L, held: L) -> L;
}

/// A weighted sum.
#[derive(Clone, Copy)]
struct Weighted<L>([L; TAPS]);

impl<L: Lanes> TapReduction<L> for Weighted<L> {
    #[inline(always)]
    unsafe fn of(job: &Job<'_, L::Scalar>, plane: usize) -> Self {
        let w = &job.w[plane * TAPS..][..TAPS];
        // SAFETY: the caller vouches for the instructions.
        unsafe { Weighted(std::array::from_fn(|tap| L::splat(w[tap]))) }
    }

    #[inline(always)]
    unsafe fn accumulate(self, tap: usize, x: L, held: L) -> L {
        // SAFETY: the caller vouches for the instructions.
        unsafe { self.0[tap].multiply_add(x, held) }
    }
}

/// The largest.
#[derive(Clone, Copy)]
struct Largest;

impl<L: Lanes> TapReduction<L> for Largest {
    #[inline(always)]
    unsafe fn of(_: &Job<'_, L::Scalar>, _: usize) -> Self {
        Largest
    }

    #[inline(always)]
    unsafe fn accumulate(self, _: usize, x: L, held: L) -> L {
        // SAFETY: the caller vouches for the instructions.
        unsafe { x.larger(held) }
    }
}

/// The vector at `offset` from the start of a row, `whole` if all of it lies in the row.
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

/// Repeats a block for every input row of a strip, with its index as a constant: a loop would keep results in memory.
macro_rules! unrolled {
    (|$number:ident| $block:expr) => {{
        const _: () = assert!([0, 1, 2, 3, 4, 5, 6, 7, 8].len() == MAX_LINES);
        unrolled!(@ $number $block, 0 1 2 3 4 5 6 7 8);
    }};
    (@ $number:ident $block:expr, $($value:literal)*) => {
        $({
            const $number: usize = $value;
            $block
        })*
    };
}

/// # Safety
/// The machine has the instructions of `L`; what the job names can be read and written.
#[inline(always)]
unsafe fn all<L: Lanes, M: TapReduction<L>, const STRIDE: usize>(job: Job<'_, L::Scalar>) {
    // SAFETY: vouched for by the caller.
    unsafe {
        // What has no state, or more than the registers hold, is made again at no cost.
        if const { size_of::<M>() > 0 && many_registers::<L>() } && job.count == 1 {
            let reduction = M::of(&job, 0);
            all_rows::<L, M, STRIDE>(&job, |_| reduction);
        } else {
            all_rows::<L, M, STRIDE>(&job, |plane| M::of(&job, plane));
        }
    }
}

/// # Safety
/// As of [`all`].
#[inline(always)]
unsafe fn all_rows<L: Lanes, M: TapReduction<L>, const STRIDE: usize>(
    job: &Job<'_, L::Scalar>,
    reduction: impl Fn(usize) -> M + Copy,
) {
    let rows = job.planes.output[0];
    let mut first = 0;
    // Rows computed together share what they read, as far as there are registers.
    // SAFETY: vouched for by the caller.
    unsafe {
        while first < rows {
            let rest = rows - first;
            // Conditions that are constants of the instance, so that what they exclude is not compiled.
            first += if const { STRIDE == 1 && many_registers::<L>() } && rest >= ROWS_ABREAST[0] {
                some::<L, M, STRIDE, { ROWS_ABREAST[0] }>(job, reduction, first)
            } else if const { many_registers::<L>() } && rest >= ROWS_ABREAST[1] {
                some::<L, M, STRIDE, { ROWS_ABREAST[1] }>(job, reduction, first)
            } else if rest >= 2 {
                some::<L, M, STRIDE, 2>(job, reduction, first)
            } else {
                some::<L, M, STRIDE, 1>(job, reduction, first)
            };
        }
    }
}

/// Computes `ROWS` rows of every output from `first` on, and returns `ROWS`.
///
/// # Safety
/// As of [`all`].
#[inline(always)]
unsafe fn some<L: Lanes, M: TapReduction<L>, const STRIDE: usize, const ROWS: usize>(
    job: &Job<'_, L::Scalar>,
    reduction: impl Fn(usize) -> M + Copy,
    first: usize,
) -> usize {
    let (width, columns, before) = (job.planes.input[1], job.planes.output[1], job.planes.before[1]);
    for at in (0..columns).step_by(L::WIDTH) {
        let left = (at * STRIDE) as isize - before as isize;
        let span = (L::WIDTH * STRIDE + SIDE - 1) as isize;
        // SAFETY: vouched for by the caller; vectors are whole where they lie within the row.
        unsafe {
            if const { ROWS >= least_whole::<L>() } && left >= 0 && left + span <= width as isize {
                strip::<L, M, STRIDE, ROWS, true>(job, reduction, [first, at], left);
            } else {
                strip::<L, M, STRIDE, ROWS, false>(job, reduction, [first, at], left);
            }
        }
    }
    ROWS
}

/// A vector of each of `ROWS` rows of every output, at row `first` and column `at`. Windows begin `left` elements after the starts
/// of input rows. `WHOLE` if all that is read lies in the rows.
///
/// # Safety
/// As of [`all`].
#[inline(always)]
unsafe fn strip<L: Lanes, M: TapReduction<L>, const STRIDE: usize, const ROWS: usize, const WHOLE: bool>(
    job: &Job<'_, L::Scalar>,
    reduction: impl Fn(usize) -> M,
    [first, at]: [usize; 2],
    left: isize,
) {
    let ([height, width], columns) = (job.planes.input, job.planes.output[1]);
    let under = (ROWS - 1) * STRIDE + SIDE;
    // SAFETY: the caller vouches for the instructions and the extents.
    unsafe {
        let outside = L::splat(*job.outside);
        let (least, most) = (L::splat(job.limits[0]), L::splat(job.limits[1]));
        // Pointers to input rows, and the distance to the same row of the next plane.
        let mut lines = [(job.outside, 0); MAX_LINES];
        for (line, from) in lines[..under].iter_mut().enumerate() {
            let row = (first * STRIDE + line).wrapping_sub(job.planes.before[0]);
            if row < height {
                *from = (job.x.add(row * width), height * width);
            }
        }
        for plane in 0..job.count {
            let reduction = reduction(plane);
            let mut results = [L::splat(job.bias.map_or(job.otherwise, |bias| bias[plane])); ROWS];
            unrolled!(|UNDER| if const { UNDER < (ROWS - 1) * STRIDE + SIDE } {
                let (row, next) = lines[UNDER];
                let row = row.add(plane * next);
                let vector = |offset: usize| read::<L>(row, width, left + offset as isize, WHOLE, outside);
                let x = match STRIDE {
                    1 => [vector(0), vector(1), vector(2)],
                    _ => {
                        let [even, odd] = vector(0).unzipped(vector(L::WIDTH));
                        [even, odd, vector(2).unzipped(vector(L::WIDTH + 2))[0]]
                    }
                };
                for (output, result) in results.iter_mut().enumerate() {
                    if let Some(tap @ 0..SIDE) = UNDER.checked_sub(output * STRIDE) {
                        for (column, &x) in x.iter().enumerate() {
                            *result = reduction.accumulate(tap * SIDE + column, x, *result);
                        }
                    }
                }
            });
            let y = job.y.add(plane * job.apart + first * columns + at);
            for (output, result) in results.into_iter().enumerate() {
                let (to, result) = (y.add(output * columns), result.limited(least, most));
                match columns - at {
                    rest if rest < L::WIDTH => result.store_first(to, rest),
                    _ => result.store(to),
                }
            }
        }
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

of_vectors!(sum_each, |job| all::<L, Weighted<L>, 1>(job));
of_vectors!(sum_every_other, |job| all::<L, Weighted<L>, 2>(job));
of_vectors!(compare_each, |job| all::<L, Largest, 1>(job));
of_vectors!(compare_every_other, |job| all::<L, Largest, 2>(job));

simd_dispatch!(convolve_each<R: Real>(job: Job<'_, R>), sum_each);
simd_dispatch!(convolve_every_other<R: Real>(job: Job<'_, R>), sum_every_other);
simd_dispatch!(largest_each<R: Real>(job: Job<'_, R>), compare_each);
simd_dispatch!(largest_every_other<R: Real>(job: Job<'_, R>), compare_every_other);
