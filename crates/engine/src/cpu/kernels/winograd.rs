//! Winograd's convolution for 3×3 windows of stride 1: input tiles are transformed, a matrix product over
//! channels is taken at every position of the tile, and the sums are transformed back. A tile of 4×4 outputs takes
//! 36 multiplications per pair of channels instead of 144, at the cost of a few bits; see [`TileSize`].
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ops::Range;

use monosplit_graph::op::Window;

use super::chunks::for_each_index;
use super::epilogue::Epilogue;
use super::gemm::{InitialSums, LhsPanels, Region};
use super::gemm_rhs::RhsPanels;
use super::scratch::Scratch;
use super::simd_lanes::WIDEST;
use super::simd_level::{SimdLevel, VECTORS};
use super::winograd_tiles::{Strips, TileRun, TileVector};
use super::winograd_transform::{TileSize, transform_input, transform_output};
use crate::cpu::real::Real;
use crate::cpu::thread_pool::{parallel_for, parallel_for_chunks};
use crate::cpu::unwinding::filled;

/// Tiles one task transforms and multiplies on its own, so that they stay in its cache.
const OWN_TILES: usize = 64;
/// The number of blocks of tiles from which on blocks are distributed among threads.
const MANY_BLOCKS: usize = 8;
/// Kernels with more elements than this are read once for as many tiles as possible.
const LARGE_KERNEL: usize = 1 << 21;
/// Elements of transformed tiles in memory at a time where every stage is distributed.
const SHARED_ELEMENTS: usize = 1 << 23;
/// Channels one task transforms where every stage is distributed.
const CHANNELS: usize = 16;

/// A 3×3 kernel, transformed and packed: a left operand for every position of a tile.
#[derive(Debug)]
pub(crate) struct TransformedKernel<R> {
    level: SimdLevel,
    size: TileSize,
    outputs: usize,
    inputs: usize,
    positions: Vec<LhsPanels<R>>,
}

impl<R: Real> TransformedKernel<R> {
    /// Transforms the kernel whose taps from an input to an output channel are `taps(output, input)`.
    pub(crate) fn new(
        level: SimdLevel,
        size: TileSize,
        (outputs, inputs): (usize, usize),
        taps: impl Fn(usize, usize) -> [f64; 9] + Sync,
    ) -> Self {
        let length = LhsPanels::<R>::length(level, outputs, inputs);
        let height = level.rows::<R>();
        let mut positions: Vec<Vec<R>> = (0..size.positions()).map(|_| filled(R::ZERO, length)).collect();
        let targets: Vec<DisjointSlice<'_, R>> =
            positions.iter_mut().map(|position| DisjointSlice::new(position)).collect();
        for_each_index(outputs.div_ceil(height), &|panel| {
            let panel = panel * height..((panel + 1) * height).min(outputs);
            for input in 0..inputs {
                for output in panel.clone() {
                    let kernel = size.kernel(&taps(output, input));
                    let at = panel.start * inputs + input * height + output - panel.start;
                    for (target, value) in targets.iter().zip(kernel) {
                        // SAFETY: every element of a panel is written once, and every panel by one task.
                        let position = unsafe { target.slice(at..at + 1) };
                        position[0] = R::from_f64(value);
                    }
                }
            }
        });
        drop(targets);
        let positions =
            positions.into_iter().map(|data| LhsPanels::packed(level, outputs, inputs, data)).collect();
        TransformedKernel { level, size, outputs, inputs, positions }
    }

    pub(crate) fn size(&self) -> TileSize {
        self.size
    }
}

/// The distance between the elements of one position and those of the next: a little more than their number. A vector of tiles is
/// accessed at all positions, and addresses a power of two apart would compete for few cache lines.
fn position_stride(numbers: usize) -> usize {
    numbers + WIDEST
}

/// Whether a window can be computed this way.
pub(crate) fn applies(window: &Window) -> bool {
    window.kernel == [3, 3] && window.stride == [1, 1] && window.dilation == [1, 1]
}

/// A borrowed slice that several tasks write, each at positions of its own.
pub(super) struct DisjointSlice<'a, R> {
    at: *mut R,
    length: usize,
    borrowed: PhantomData<&'a mut [R]>,
}

// SAFETY: it is an exclusive borrow of its elements.
unsafe impl<R: Send> Send for DisjointSlice<'_, R> {}
// SAFETY: when shared it gives out pointers, which only unsafe code follows, and slices, whose callers see to it that those of
// different tasks are disjoint.
unsafe impl<R: Send> Sync for DisjointSlice<'_, R> {}

impl<'a, R> DisjointSlice<'a, R> {
    pub(super) fn new(data: &'a mut [R]) -> Self {
        DisjointSlice { at: data.as_mut_ptr(), length: data.len(), borrowed: PhantomData }
    }

    /// A pointer to an element, or to the end.
    pub(super) fn pointer_to(&self, at: usize) -> *mut R {
        assert!(at <= self.length, "position in a target");
        self.at.wrapping_add(at)
    }

    /// # Safety
    /// Slices that exist at the same time are disjoint, and nothing writes to one through a pointer meanwhile.
    #[allow(clippy::mut_from_ref, reason = "tasks share the target and write at positions of their own")]
    pub(super) unsafe fn slice(&self, range: Range<usize>) -> &mut [R] {
        assert!(range.start <= range.end && range.end <= self.length, "position in a target");
        // SAFETY: the range was checked; the caller guarantees that slices are disjoint.
        unsafe { std::slice::from_raw_parts_mut(self.at.add(range.start), range.len()) }
    }
}

/// A 3×3 convolution of known sizes.
#[derive(Debug)]
pub(crate) struct Winograd {
    images: usize,
    inputs: usize,
    outputs: usize,
    input: [usize; 2],
    output: [usize; 2],
    /// Padding above and to the left.
    pad: [usize; 2],
    size: TileSize,
    /// Whether kernels are rotated by 180° and inputs and outputs exchanged: the transpose of the convolution.
    rotated: bool,
}

impl Winograd {
    /// The convolution, padded by `pad` above and to the left, of an input of shape `x` to an output of shape `y`;
    /// if rotated, with the kernel rotated by 180° and its inputs and outputs exchanged.
    pub(crate) fn new(size: TileSize, rotated: bool, pad: [usize; 2], x: &[usize], y: &[usize]) -> Self {
        Winograd {
            images: x[0],
            inputs: x[1],
            outputs: y[1],
            input: [x[2], x[3]],
            output: [y[2], y[3]],
            pad,
            size,
            rotated,
        }
    }

    fn tile_rows(&self) -> usize {
        self.output[0].div_ceil(self.size.step())
    }

    fn tile_columns(&self) -> usize {
        self.output[1].div_ceil(self.size.step())
    }

    /// Tiles of all images.
    pub(super) fn tiles(&self) -> usize {
        self.images * self.tile_rows() * self.tile_columns()
    }

    /// `y ← w ⋆ x + bias`, then the epilogue.
    pub(crate) fn run<R: Real>(
        &self,
        x: &[R],
        w: &TransformedKernel<R>,
        bias: Option<&[R]>,
        epilogue: Option<&Epilogue<'_, R>>,
        y: &mut [R],
    ) {
        let ends = if self.rotated { (w.outputs, w.inputs) } else { (w.inputs, w.outputs) };
        assert_eq!((w.size, ends), (self.size, (self.inputs, self.outputs)), "kernel");
        let vector = w.level.width::<R>();
        let vectors = self.tiles().div_ceil(vector);
        let per_tile = self.size.positions() * (self.inputs + self.outputs);
        let work = Work { w, bias, epilogue, x, y: DisjointSlice::new(y) };
        let own = vectors.div_ceil(OWN_TILES / vector);
        if own >= MANY_BLOCKS && w.positions.len() * self.inputs * self.outputs <= LARGE_KERNEL {
            parallel_for(own, |block| {
                let vectors = block * vectors / own..(block + 1) * vectors / own;
                self.alone(&work, vectors.start * vector..vectors.end * vector);
            });
        } else {
            let blocks = (vectors * vector * per_tile).div_ceil(SHARED_ELEMENTS).clamp(1, vectors.max(1));
            for block in 0..blocks {
                let vectors = block * vectors / blocks..(block + 1) * vectors / blocks;
                self.shared(&work, vectors.start * vector..vectors.end * vector);
            }
        }
    }

    /// All stages for some tiles, in one task.
    fn alone<R: Real>(&self, work: &Work<'_, R>, tiles: Range<usize>) {
        let [depth, height] =
            [self.inputs, self.outputs].map(|channels| position_stride(channels * tiles.len()));
        let mut transformed = Scratch::new(self.size.positions() * depth);
        let mut sums = Scratch::new(self.size.positions() * height);
        self.transform(work, &tiles, 0..self.inputs, &DisjointSlice::new(&mut transformed));
        let results = sums.chunks_mut(height);
        for ((position, w), sums) in work.w.positions.iter().enumerate().zip(results) {
            let data = &transformed[position * depth..(position + 1) * depth];
            self.multiply(w, data, tiles.len(), sums);
        }
        self.transform_back(work, &tiles, 0..self.outputs, &sums);
    }

    /// All stages for some tiles, each distributed among threads.
    fn shared<R: Real>(&self, work: &Work<'_, R>, tiles: Range<usize>) {
        let [depth, height] =
            [self.inputs, self.outputs].map(|channels| position_stride(channels * tiles.len()));
        let mut transformed = Scratch::new(self.size.positions() * depth);
        let mut sums = Scratch::new(self.size.positions() * height);
        let target = DisjointSlice::new(&mut transformed);
        parallel_for(self.inputs.div_ceil(CHANNELS), |block| {
            let channels = block * CHANNELS..((block + 1) * CHANNELS).min(self.inputs);
            self.transform(work, &tiles, channels, &target);
        });
        parallel_for_chunks(&mut sums, height, |position, sums| {
            let data = &transformed[position * depth..(position + 1) * depth];
            self.multiply(&work.w.positions[position], data, tiles.len(), sums);
        });
        parallel_for(self.outputs.div_ceil(CHANNELS), |block| {
            let channels = block * CHANNELS..((block + 1) * CHANNELS).min(self.outputs);
            self.transform_back(work, &tiles, channels, &sums);
        });
    }

    /// The product at one position.
    fn multiply<R: Real>(&self, w: &LhsPanels<R>, transformed: &[R], tiles: usize, sums: &mut [R]) {
        let right = RhsPanels::packed(transformed, self.inputs, tiles);
        let mut result = Region::new(sums, self.outputs, tiles, tiles);
        match self.rotated {
            true => w.multiply_across(right, &mut result),
            false => w.multiply(0..w.panels(), 0, right, InitialSums::Zero, &mut result),
        }
    }

    /// The tiles from `first` on that make up a vector, row of tiles by row of tiles.
    pub(super) fn segments(&self, first: usize, vector: usize) -> impl Iterator<Item = TileRun> + Clone {
        let (rows, columns) = (self.tile_rows(), self.tile_columns());
        let end = (first + vector).min(self.images * rows * columns);
        let step = self.size.step();
        let mut at = first;
        std::iter::from_fn(move || {
            let column = at % columns;
            let tiles = (columns - column).min(end.saturating_sub(at));
            (tiles > 0).then(|| {
                let (row, image) = (at / columns % rows, at / columns / rows);
                let lane = at - first;
                at += tiles;
                TileRun { lane, image, row: row * step, column: column * step, tiles }
            })
        })
    }

    /// The tiles of these segments in the planes of one channel of the input.
    pub(super) fn read<'a>(&self, segments: &'a [TileRun], image: usize) -> TileVector<'a> {
        TileVector { size: self.size, segments, image, plane: self.input, pad: self.pad }
    }

    /// Transforms `tiles` of `channels` into right panels, one set for every position.
    fn transform<R: Real>(
        &self,
        work: &Work<'_, R>,
        tiles: &Range<usize>,
        channels: Range<usize>,
        target: &DisjointSlice<'_, R>,
    ) {
        let level = work.w.level;
        let (vector, positions) = (level.width::<R>(), self.size.positions());
        let plane = self.input[0] * self.input[1];
        let stride = position_stride(self.inputs * tiles.len());
        let mut strips = Strips::new();
        for first in tiles.clone().step_by(vector) {
            let segments: Vec<TileRun> = self.segments(first, vector).collect();
            let read = self.read(&segments, self.inputs * plane);
            let panel = (first - tiles.start) / (VECTORS * vector) * VECTORS * vector;
            let width = (tiles.len() - panel).min(VECTORS * vector);
            for channel in channels.clone() {
                let at = panel * self.inputs + channel * width + first - tiles.start - panel;
                assert!((positions - 1) * stride + at + vector <= target.length, "transformed tiles");
                let planes = &work.x[channel * plane..];
                assert!(read.extent() <= planes.len(), "planes of a channel");
                // SAFETY: the assertions bound what is read, and the positions by the target; no other task writes this vector of
                // this channel. The level is one of this machine.
                unsafe {
                    let to = target.pointer_to(at);
                    transform_input(level, self.rotated, &read, planes.as_ptr(), &mut strips, to, stride);
                }
            }
        }
    }

    /// Transforms the sums of `tiles` back into `channels` of the output.
    fn transform_back<R: Real>(
        &self,
        work: &Work<'_, R>,
        tiles: &Range<usize>,
        channels: Range<usize>,
        sums: &[R],
    ) {
        let (level, vector) = (work.w.level, work.w.level.width::<R>());
        let (stride, plane) = (position_stride(self.outputs * tiles.len()), self.output[0] * self.output[1]);
        let mut strips = Strips::new();
        let limits = work.epilogue.and_then(Epilogue::clamp).unwrap_or(R::UNLIMITED);
        for first in tiles.clone().step_by(vector) {
            let segments: Vec<TileRun> = self.segments(first, vector).collect();
            let written = TileVector {
                size: self.size,
                segments: &segments,
                image: self.outputs * plane,
                plane: self.output,
                pad: [0, 0],
            };
            for channel in channels.clone() {
                let bias = work.bias.map_or(R::ZERO, |bias| bias[channel]);
                let at = channel * tiles.len() + first - tiles.start;
                assert!((self.size.positions() - 1) * stride + at + vector <= sums.len(), "sums");
                assert!(channel * plane + written.extent() <= work.y.length, "planes of a channel");
                // SAFETY: the assertions bound every position by the sums, and what is written; every output belongs to one
                // tile, and every tile of a channel to one task. The level is one of this machine.
                unsafe {
                    let (from, to) = (sums.as_ptr().add(at), work.y.pointer_to(channel * plane));
                    let end = (bias, limits);
                    transform_output(level, self.rotated, &written, (from, stride), end, &mut strips, to);
                }
                if let Some(Epilogue::Map(epilogue)) = work.epilogue {
                    segments.iter().for_each(|segment| self.apply_epilogue(work, channel, segment, epilogue));
                }
            }
        }
    }

    /// Applies the epilogue to the outputs of a segment.
    fn apply_epilogue<R: Real>(
        &self,
        work: &Work<'_, R>,
        channel: usize,
        segment: &TileRun,
        epilogue: &(dyn Fn(usize, &mut [R]) + Sync),
    ) {
        let [height, width] = self.output;
        let plane = (segment.image * self.outputs + channel) * height * width;
        let length = (segment.tiles * self.size.step()).min(width - segment.column);
        let rows = segment.row..height.min(segment.row + self.size.step());
        // Whole rows lie one after the other.
        let (rows, length) =
            if length == width { (rows.start..rows.start + 1, rows.len() * width) } else { (rows, length) };
        for row in rows {
            let at = plane + row * width + segment.column;
            // SAFETY: every output belongs to one tile, and every tile of a channel to one task.
            epilogue(at, unsafe { work.y.slice(at..at + length) });
        }
    }
}

/// What all tasks have in common.
struct Work<'a, R> {
    w: &'a TransformedKernel<R>,
    bias: Option<&'a [R]>,
    epilogue: Option<&'a Epilogue<'a, R>>,
    x: &'a [R],
    y: DisjointSlice<'a, R>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::kernels::gemm_convolution::tests::{definition, output_shape};
    use crate::cpu::kernels::testing::{Random, assert_close};
    use crate::cpu::thread_pool::ThreadPool;

    #[test]
    fn both_sizes_equal_direct_sums_at_every_level() {
        let mut random = Random::new(12);
        for _ in 0..30 {
            let mut window = Window::new([3, 3]);
            let mut pad = || (random.within(0, 3), random.within(0, 3));
            window.pad = vec![pad(), pad()];
            let xs = [random.within(1, 2), random.within(1, 6), random.within(3, 20), random.within(3, 90)];
            let ws = [random.within(1, 20), xs[1], 3, 3];
            let ys = output_shape(&window, xs[0], ws[0], &xs[2..]);
            let x = random.reals::<f64>(xs.iter().product());
            let w = random.reals::<f64>(ws.iter().product());
            let bias = random.reals::<f64>(ws[0]);
            let mut expected = definition(&window, 1, (&x, &xs), (&w, &ws), &ys);
            let plane = ys[2] * ys[3];
            expected.iter_mut().enumerate().for_each(|(i, e)| *e += bias[i / plane % ys[1]]);
            let taps = |o: usize, i: usize| std::array::from_fn(|t| w[(o * ws[1] + i) * 9 + t]);
            for (level, size) in
                SimdLevel::all().into_iter().flat_map(|l| [(l, TileSize::Two), (l, TileSize::Four)])
            {
                let kernel = TransformedKernel::new(level, size, (ws[0], ws[1]), taps);
                let mut y = vec![f64::NAN; ys.iter().product()];
                let double = |at: usize, piece: &mut [f64]| {
                    piece.iter_mut().enumerate().for_each(|(i, v)| *v = *v * 2.0 + (at + i) as f64);
                };
                let pad = [window.pad[0].0, window.pad[1].0];
                Winograd::new(size, false, pad, &xs, &ys).run(
                    &x,
                    &kernel,
                    Some(&bias),
                    Some(&Epilogue::Map(&double)),
                    &mut y,
                );
                y.iter_mut().enumerate().for_each(|(i, v)| *v = (*v - i as f64) / 2.0);
                assert_close(&y, &expected, 1e-10);
                let (limits, winograd) =
                    (Epilogue::Clamp([-0.3, 0.4]), Winograd::new(size, false, pad, &xs, &ys));
                winograd.run(&x, &kernel, Some(&bias), Some(&limits), &mut y);
                let limited: Vec<f64> = expected.iter().map(|e| e.clamp(-0.3, 0.4)).collect();
                assert_close(&y, &limited, 1e-10);
                // The same from the kernel of the transpose.
                let rotated = |i: usize, o: usize| std::array::from_fn(|t| w[(o * ws[1] + i) * 9 + 8 - t]);
                let kernel = TransformedKernel::new(level, size, (ws[1], ws[0]), rotated);
                Winograd::new(size, true, pad, &xs, &ys).run(&x, &kernel, Some(&bias), None, &mut y);
                assert_close(&y, &expected, 1e-10);
            }
        }
    }

    #[test]
    fn the_bits_do_not_depend_on_the_number_of_threads() {
        let mut random = Random::new(18);
        for (images, channels, side) in [(1, 20, 14), (2, 17, 90), (3, 40, 7)] {
            let (xs, ws) = ([images, channels, side, side], [channels, channels, 3, 3]);
            let x = random.reals::<f32>(xs.iter().product());
            let w = random.reals::<f32>(ws.iter().product());
            let taps = |o: usize, i: usize| std::array::from_fn(|t| f64::from(w[(o * channels + i) * 9 + t]));
            for size in [TileSize::Two, TileSize::Four] {
                let kernel = TransformedKernel::new(SimdLevel::current(), size, (channels, channels), taps);
                let results = [1, 2, 3].map(|threads| {
                    let pool = ThreadPool::start(threads, false).unwrap();
                    let mut y = vec![f32::NAN; x.len()];
                    let winograd = Winograd::new(size, false, [1, 1], &xs, &xs);
                    pool.install(|| winograd.run(&x, &kernel, None, None, &mut y));
                    y
                });
                assert!(results[0] == results[1] && results[0] == results[2]);
            }
        }
    }

    #[test]
    fn single_precision_loses_a_few_bits_only() {
        let mut random = Random::new(13);
        for (channels, side) in [(60, 14), (16, 40)] {
            let mut window = Window::new([3, 3]);
            window.pad = vec![(1, 1); 2];
            let (xs, ws) = ([1, channels, side, side], [channels, channels, 3, 3]);
            let x = random.reals::<f32>(xs.iter().product());
            let w = random.reals::<f32>(ws.iter().product());
            let wide = |v: &[f32]| v.iter().map(|&v| f64::from(v)).collect::<Vec<_>>();
            let expected = definition(&window, 1, (&wide(&x), &xs), (&wide(&w), &ws), &xs);
            let taps = |o: usize, i: usize| std::array::from_fn(|t| f64::from(w[(o * channels + i) * 9 + t]));
            for level in SimdLevel::all() {
                for (size, tolerance) in [(TileSize::Two, 2e-6), (TileSize::Four, 8e-6)] {
                    let kernel = TransformedKernel::new(level, size, (channels, channels), taps);
                    let mut y = vec![f32::NAN; x.len()];
                    Winograd::new(size, false, [1, 1], &xs, &xs).run(&x, &kernel, None, None, &mut y);
                    assert_close(&y, &expected, tolerance);
                }
            }
        }
    }
}
