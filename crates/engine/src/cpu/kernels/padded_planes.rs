//! Copies of planes with zeros around them, one for every phase of a stride. A tap of a window reads at the same offset for every
//! output, across the ends of rows too; sums between rows are thrown away.

use monosplit_graph::op::Window;

use super::row_loops::{RowPairs, deinterleave, deinterleave_rows};
use crate::cpu::real::Real;

/// Windows with larger strides or extents are computed tap by tap.
const LARGEST_STRIDE: usize = 8;
const LARGEST_HALO: usize = 256;

/// A copy of a plane, or of every `stride`-th element of it, with zeros around.
#[derive(Clone, Copy, Debug)]
struct PaddedPlane {
    /// The index at which it begins among the elements of all copies.
    at: usize,
    rows: usize,
    pitch: usize,
    /// Row and column of the first element that is copied, in the plane and in the copy.
    from: [usize; 2],
    to: [usize; 2],
    stride: [usize; 2],
}

impl PaddedPlane {
    /// A copy whose element `(r, c)` is the plane's at `(r, c)·stride − before`.
    fn new(at: usize, [rows, pitch]: [usize; 2], stride: [usize; 2], before: [isize; 2]) -> Self {
        let first = |axis: usize| {
            let to = before[axis].max(0).unsigned_abs().div_ceil(stride[axis]);
            (to, (to * stride[axis]).wrapping_add_signed(-before[axis]))
        };
        let ((top, y), (left, x)) = (first(0), first(1));
        PaddedPlane { at, rows, pitch, from: [y, x], to: [top, left], stride }
    }

    /// Copies the plane; the padding is left as it is. `apart` is scratch for a row of the plane, filled up to whole strides.
    fn fill<R: Real>(&self, plane: &[R], [height, width]: [usize; 2], padded: &mut [R], apart: &mut [R]) {
        if self.from[1] >= width || self.to[1] >= self.pitch {
            return;
        }
        let step = self.stride[1];
        let columns = (self.pitch - self.to[1]).min((width - self.from[1]).div_ceil(step));
        let rows = (self.to[0]..self.rows).zip((self.from[0]..height).step_by(self.stride[0]));
        for (row, y) in rows {
            let target = &mut padded[self.at + row * self.pitch + self.to[1]..][..columns];
            let from = &plane[y * width..(y + 1) * width];
            if step == 1 {
                target.copy_from_slice(&from[self.from[1]..][..columns]);
            } else {
                deinterleave(from, step, apart);
                let first = self.from[1] % step * (apart.len() / step) + self.from[1] / step;
                target.copy_from_slice(&apart[first..first + columns]);
            }
        }
    }
}

/// Fills two copies with the even and odd columns of a plane, if both have room for them, and returns whether they had.
fn fill_both<R: Real>(
    padded: [&PaddedPlane; 2],
    plane: &[R],
    [height, width]: [usize; 2],
    room: &mut [R],
) -> bool {
    let [a, b] = padded;
    let turned = a.from[1] == 1;
    let (even, odd) = if turned { (b, a) } else { (a, b) };
    let fits = |plane_copy: &PaddedPlane, columns: usize| plane_copy.to[1] + columns <= plane_copy.pitch;
    if [even.from[1], odd.from[1]] != [0, 1] || !fits(even, width.div_ceil(2)) || !fits(odd, width / 2) {
        return false;
    }
    let rows = (a.rows - a.to[0].min(a.rows)).min(height.saturating_sub(a.from[0]).div_ceil(a.stride[0]));
    let pairs = RowPairs { width, rows, row_stride: a.stride[0] * width, pitch: a.pitch };
    if rows > 0 {
        let (first, second) = room.split_at_mut(b.at);
        let first = &mut first[a.at + a.to[0] * a.pitch + a.to[1]..];
        let second = &mut second[b.to[0] * b.pitch + b.to[1]..];
        let (even, odd) = if turned { (second, first) } else { (first, second) };
        deinterleave_rows(pairs, &plane[a.from[0] * width..], even, odd);
    }
    true
}

/// Sums over shifted padded planes, and the outputs that they are.
#[derive(Debug)]
pub(crate) struct Sums {
    /// For every tap, its index in the kernel and the offset it reads at.
    pub(crate) taps: Vec<(usize, usize)>,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// Row and column of the first output, and the distance to the next.
    pub(crate) first: [usize; 2],
    pub(crate) step: [usize; 2],
}

/// Padded copies for the phases of a stride, all of one pitch, and the sums over them.
#[derive(Debug)]
pub(crate) struct PaddedPlanes {
    padded: Vec<PaddedPlane>,
    pub(crate) pitch: usize,
    pub(crate) sums: Vec<Sums>,
}

/// Two axes, of one or two that are given.
pub(crate) fn planar(values: &[usize], missing: usize) -> Option<[usize; 2]> {
    match *values {
        [x] => Some([missing, x]),
        [y, x] => Some([y, x]),
        _ => None,
    }
}

/// A window over two axes that is small enough for padded planes.
#[derive(Debug)]
pub(crate) struct PlanarWindow {
    kernel: [usize; 2],
    stride: [usize; 2],
    dilation: [usize; 2],
    before: [usize; 2],
}

impl PlanarWindow {
    pub(crate) fn new(window: &Window) -> Option<Self> {
        let before: Vec<usize> = window.pad.iter().map(|pad| pad.0).collect();
        let planar = PlanarWindow {
            kernel: planar(&window.kernel, 1)?,
            stride: planar(&window.stride, 1)?,
            dilation: planar(&window.dilation, 1)?,
            before: planar(&before, 0)?,
        };
        let small = (0..2).all(|axis| {
            let halo = planar.kernel[axis].saturating_mul(planar.dilation[axis]);
            planar.stride[axis] <= LARGEST_STRIDE
                && halo <= LARGEST_HALO
                && planar.before[axis] <= LARGEST_HALO
        });
        small.then_some(planar)
    }

    pub(crate) fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    /// How far tap `tap` reads ahead along each axis.
    fn ahead(&self, tap: usize) -> [usize; 2] {
        [tap / self.kernel[1] * self.dilation[0], tap % self.kernel[1] * self.dilation[1]]
    }

    /// Rows and columns that the last tap reads ahead, counted in strides.
    fn halo(&self) -> [usize; 2] {
        [0, 1].map(|axis| (self.kernel[axis] - 1) * self.dilation[axis] / self.stride[axis])
    }

    /// The taps that reach outputs of a phase of the transpose.
    pub(crate) fn reaching(&self, phase: [usize; 2]) -> impl Iterator<Item = usize> {
        (0..self.taps()).filter(move |&tap| {
            let ahead = self.ahead(tap);
            (0..2).all(|axis| ahead[axis] % self.stride[axis] == phase[axis])
        })
    }

    /// Every phase of the stride.
    pub(crate) fn phases(&self) -> impl Iterator<Item = [usize; 2]> {
        let [rows, columns] = self.stride;
        (0..rows * columns).map(move |phase| [phase / columns, phase % columns])
    }
}

impl PaddedPlanes {
    pub(crate) fn new(window: &PlanarWindow, output: [usize; 2]) -> Self {
        let (halo, stride) = (window.halo(), window.stride);
        let size = [output[0] + halo[0], output[1] + halo[1]];
        let padded: Vec<PaddedPlane> = (window.phases().enumerate())
            .map(|(index, phase)| {
                let before = [0, 1].map(|axis| window.before[axis] as isize - phase[axis] as isize);
                PaddedPlane::new(index * size[0] * size[1], size, stride, before)
            })
            .collect();
        let taps = (0..window.taps()).map(|tap| {
            let ahead = window.ahead(tap);
            let plane_copy = padded[ahead[0] % stride[0] * stride[1] + ahead[1] % stride[1]];
            (tap, plane_copy.at + ahead[0] / stride[0] * size[1] + ahead[1] / stride[1])
        });
        let [rows, columns] = output;
        let sums = Sums { taps: taps.collect(), rows, columns, first: [0, 0], step: [1, 1] };
        PaddedPlanes { padded, pitch: size[1], sums: vec![sums] }
    }

    /// The outputs of one phase of the stride are a convolution with the taps that reach them: output
    /// `j·stride + phase − before` is reached from input `j − ahead/stride` by every tap whose `ahead` has that phase.
    pub(crate) fn transposed(window: &PlanarWindow, input: [usize; 2], output: [usize; 2]) -> Self {
        let (halo, stride) = (window.halo(), window.stride);
        let size =
            [0, 1].map(|axis| (output[axis] + window.before[axis]).div_ceil(stride[axis]) + halo[axis]);
        // The zeros after a row are those before the next.
        let columns = size[1] - halo[1];
        let pitch = columns.max(input[1].min(columns) + halo[1]);
        let sums = window.phases().map(|phase| {
            let skipped = [0, 1]
                .map(|axis: usize| window.before[axis].saturating_sub(phase[axis]).div_ceil(stride[axis]));
            let first = [0, 1].map(|axis| skipped[axis] * stride[axis] + phase[axis] - window.before[axis]);
            let [rows, columns] =
                [0, 1].map(|axis| output[axis].saturating_sub(first[axis]).div_ceil(stride[axis]));
            let distance = |tap: usize| {
                let ahead = window.ahead(tap);
                let at = [0, 1].map(|axis| skipped[axis] + halo[axis] - ahead[axis] / stride[axis]);
                (tap, at[0] * pitch + at[1])
            };
            Sums { taps: window.reaching(phase).map(distance).collect(), rows, columns, first, step: stride }
        });
        let padded = vec![PaddedPlane::new(0, [size[0], pitch], [1, 1], halo.map(|n| n as isize))];
        PaddedPlanes { padded, pitch, sums: sums.collect() }
    }

    /// The distance between columns of a plane that are neighbours in a copy.
    fn stride(&self) -> usize {
        self.padded.first().map_or(1, |plane_copy| plane_copy.stride[1])
    }

    /// Elements of all copies.
    pub(crate) fn length(&self) -> usize {
        self.padded.iter().map(|plane_copy| plane_copy.rows * plane_copy.pitch).sum()
    }

    /// Elements that may be read after the copies, and must be zero: sums over the last row read them.
    pub(crate) fn beyond(&self) -> usize {
        self.pitch
    }

    /// Scratch to deinterleave a row of a plane of this width.
    pub(crate) fn row<R: Real>(&self, width: usize) -> Vec<R> {
        vec![R::ZERO; width.next_multiple_of(self.stride())]
    }

    /// Copies a plane; the padding is left as it is. `apart` is a [`PaddedPlanes::row`].
    pub(crate) fn fill<R: Real>(&self, plane: &[R], input: [usize; 2], padded: &mut [R], apart: &mut [R]) {
        for phases in self.padded.chunks(self.stride()) {
            if let [a, b] = phases
                && fill_both([a, b], plane, input, padded)
            {
                continue;
            }
            phases.iter().for_each(|plane_copy| plane_copy.fill(plane, input, padded, apart));
        }
    }

    /// Copies this many rows of sums to the outputs that they are, in a plane of this width.
    pub(crate) fn place<R: Real>(&self, part: &Sums, rows: usize, sums: &[R], y: &mut [R], width: usize) {
        for (row, sums) in sums.chunks(self.pitch).take(rows).enumerate() {
            let at = (part.first[0] + row * part.step[0]) * width + part.first[1];
            match part.step[1] {
                1 => y[at..at + part.columns].copy_from_slice(&sums[..part.columns]),
                step => {
                    let to = y[at..].iter_mut().step_by(step);
                    to.zip(&sums[..part.columns]).for_each(|(y, &sum)| *y = sum);
                }
            }
        }
    }
}
