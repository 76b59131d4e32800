//! Convolution as matrix products over patches that are packed straight into panels (im2col). A 1×1 convolution reads its input
//! as it is; an implicit GEMM reads padded planes, see [`super::implicit_gemm`]. Sums are never split, so the bits do not depend on
//! how the work is cut.
#![allow(unsafe_code)]

use std::ops::Range;

use monosplit_graph::op::Window;
use rayon::prelude::*;

use super::chunks::for_each_chunk;
use super::conv_plan::GemmAlgorithm;
use super::epilogue::Epilogue;
use super::gemm::{COLUMNS, DEPTH, InitialSums, LhsPanels, Matrix, Region};
use super::gemm_rhs::RhsPanels;
use super::im2col::{Patches, PlaneLayout};
use super::implicit_gemm::ImplicitGemm;
use super::scratch::Scratch;
use super::simd_level::{SimdLevel, VECTORS};
use super::sliding_window::SlidingWindow;
use crate::cpu::real::Real;
use crate::cpu::thread_pool::parallel_for;
use crate::cpu::unwinding::filled;

/// The number of blocks of positions from which on blocks are distributed among threads.
const MANY_BLOCKS: usize = 8;
/// Elements of the patches packed at a time where output channels are distributed among threads.
const WIDE_ELEMENTS: usize = 1 << 22;
/// About how many tasks output channels are cut into.
const CHANNEL_TASKS: usize = 16;

/// The weights of a convolution, packed: a left operand for every group.
#[derive(Debug)]
pub(crate) struct PackedKernel<R> {
    pub(crate) level: SimdLevel,
    groups: Vec<LhsPanels<R>>,
}

impl<R: Real> PackedKernel<R> {
    /// The number of panels of the first group.
    pub(crate) fn panels(&self) -> usize {
        self.groups[0].panels()
    }

    pub(crate) fn channels_of(&self, panels: &Range<usize>) -> Range<usize> {
        self.groups[0].rows_of(panels)
    }

    /// Packs a kernel of shape `[outputs, inputs of a group, …]`.
    pub(crate) fn new(level: SimdLevel, groups: usize, w: &[R], shape: &[usize]) -> Self {
        let (rows, depth) = (shape[0] / groups, shape[1..].iter().product::<usize>());
        let pack = |group: usize| {
            LhsPanels::pack(level, Matrix::dense(&w[group * rows * depth..][..rows * depth], rows, depth))
        };
        PackedKernel { level, groups: (0..groups).map(pack).collect() }
    }
}

/// A convolution of known sizes.
pub(crate) struct GemmConvolution {
    sliding: SlidingWindow,
    layout: PlaneLayout,
    /// Whether the window is a single element.
    flat: bool,
    images: usize,
    groups: usize,
    group_inputs: usize,
    group_outputs: usize,
}

/// What the tasks of one group, and of one or all images, have in common.
struct Part<'a, R> {
    level: SimdLevel,
    x: &'a [R],
    w: &'a LhsPanels<R>,
    bias: Option<&'a [R]>,
    /// The output: a row for every channel.
    y: Region<'a, R>,
    /// The index in the whole output at which it begins.
    first: usize,
    epilogue: Option<&'a Epilogue<'a, R>>,
}

impl GemmConvolution {
    /// The convolution of an input `x` with a kernel `w` to an output `y`, each given by its shape.
    pub(crate) fn new(window: &Window, groups: usize, x: &[usize], w: &[usize], y: &[usize]) -> Self {
        let flat = window.is_pointwise();
        let sliding = match flat {
            // One long row: every element is read in turn.
            true => {
                SlidingWindow::new(&Window::new([1]), &[x[2..].iter().product()], &[y[2..].iter().product()])
            }
            false => SlidingWindow::new(window, &x[2..], &y[2..]),
        };
        // Deinterleaving rows pays where several taps read an element.
        let apart = !flat && sliding.step() > 1 && sliding.runs().len() > sliding.step();
        let layout =
            if apart { PlaneLayout::phased(&sliding, x[1]) } else { PlaneLayout::plain(&sliding, x[1]) };
        GemmConvolution {
            sliding,
            layout,
            flat,
            images: x[0],
            groups,
            group_inputs: w[1],
            group_outputs: w[0] / groups,
        }
    }

    fn depth(&self) -> usize {
        self.group_inputs * self.sliding.taps()
    }

    /// `y ← w ⋆ x + bias`, then the epilogue.
    pub(crate) fn run<R: Real>(
        &self,
        algorithm: GemmAlgorithm,
        x: &[R],
        w: &PackedKernel<R>,
        bias: Option<&[R]>,
        epilogue: Option<&Epilogue<'_, R>>,
        y: &mut [R],
    ) {
        let implicit = (algorithm == GemmAlgorithm::Implicit).then(|| self.implicit_gemm()).flatten();
        if let Some(implicit) = implicit {
            let groups: Vec<&[LhsPanels<R>]> = w.groups.iter().map(std::slice::from_ref).collect();
            return implicit.run(x, &groups, bias, epilogue, y);
        }
        let apart = self.deinterleave(x);
        let x = apart.as_deref().unwrap_or(x);
        if algorithm == GemmAlgorithm::Im2colAcrossImages {
            assert_eq!(self.groups, 1, "patches of groups do not lie side by side");
            self.run_together(x, w, bias, epilogue, y);
            return;
        }
        let (inputs, outputs) = (self.group_inputs * self.layout.channel, self.sliding.output_len());
        let rows = self.group_outputs;
        for_each_chunk(y, rows * outputs, &|index, y| {
            let group = index % self.groups;
            let part = Part {
                level: w.level,
                x: &x[index * inputs..(index + 1) * inputs],
                w: &w.groups[group],
                bias: bias.map(|b| &b[group * rows..(group + 1) * rows]),
                y: Region::new(y, rows, outputs, outputs),
                first: index * rows * outputs,
                epilogue,
            };
            if outputs.div_ceil(COLUMNS) >= MANY_BLOCKS {
                self.share_positions(&part);
            } else {
                self.share_channels(&part, outputs);
            }
        });
    }

    /// The same over padded planes, if its window has two axes.
    fn implicit_gemm(&self) -> Option<ImplicitGemm> {
        ImplicitGemm::convolution(
            self.sliding.window(),
            self.group_inputs,
            &self.sliding.input,
            &self.sliding.output,
        )
    }

    /// The input with deinterleaved rows, where the layout asks for them.
    fn deinterleave<R: Real>(&self, x: &[R]) -> Option<Scratch<R>> {
        let (plane, target) = (self.sliding.input_len(), self.layout.channel);
        if !self.layout.is_phased() {
            return None;
        }
        let mut apart = Scratch::new(x.len() / plane * target);
        for_each_chunk(&mut apart, target, &|index, apart| {
            self.layout.deinterleave(&x[index * plane..][..plane], apart);
        });
        Some(apart)
    }

    /// For planes too small to fill panels: the positions of all images side by side, copied to the output afterwards.
    fn run_together<R: Real>(
        &self,
        x: &[R],
        w: &PackedKernel<R>,
        bias: Option<&[R]>,
        epilogue: Option<&Epilogue<'_, R>>,
        y: &mut [R],
    ) {
        let (outputs, rows) = (self.sliding.output_len(), self.group_outputs);
        let positions = self.images * outputs;
        let mut together = Scratch::new(rows * positions);
        let region = Region::new(&mut together, rows, positions, positions);
        let part = Part { level: w.level, x, w: &w.groups[0], bias, y: region, first: 0, epilogue: None };
        self.share_channels(&part, positions);
        for_each_chunk(y, outputs, &|index, y| {
            let (image, channel) = (index / rows, index % rows);
            y.copy_from_slice(&together[channel * positions + image * outputs..][..outputs]);
            if let Some(epilogue) = epilogue {
                epilogue.apply(index * outputs, y);
            }
        });
    }

    fn share_positions<R: Real>(&self, part: &Part<'_, R>) {
        let outputs = self.sliding.output_len();
        let width = VECTORS * part.level.width::<R>();
        let (panels, blocks) = (outputs.div_ceil(width), outputs.div_ceil(COLUMNS));
        let depth = self.depth();
        let spans = depth.div_ceil(DEPTH).max(1);
        parallel_for(blocks, |block| {
            let first = block * panels / blocks * width;
            let positions = first..((block + 1) * panels / blocks * width).min(outputs);
            let plain = self.is_plain();
            let patch_panels = self.patch_panels::<R>(part.level, &positions, plain);
            let padded: usize = patch_panels.iter().map(|(width, _)| width).sum();
            let mut patches = Scratch::new(depth.div_ceil(spans) * padded);
            // SAFETY: blocks have disjoint positions.
            let mut y = unsafe { part.y.part(0..self.group_outputs, positions.clone()) };
            for span in 0..spans {
                let depths = span * depth / spans..(span + 1) * depth / spans;
                let mut rest = &mut patches[..];
                for (width, patch_panels) in &patch_panels {
                    let panel;
                    (panel, rest) = rest.split_at_mut(width * depths.len());
                    patch_panels.pack(part.x, depths.clone(), *width, panel);
                }
                let patches = &patches[..depths.len() * padded];
                let right = self.right(plain, (part.x, patches), depths.clone(), positions.clone());
                let start = part.start(span, &(0..self.group_outputs));
                let limits = part.limits(span + 1 == spans);
                part.w.multiply_within(0..part.w.panels(), depths.start, right, start, limits, &mut y);
            }
            part.apply_epilogue(&mut y, 0..self.group_outputs, positions.start);
        });
    }

    fn share_channels<R: Real>(&self, part: &Part<'_, R>, positions: usize) {
        let (depth, plain) = (self.depth(), self.is_plain());
        let patch_panels = self.patch_panels::<R>(part.level, &(0..positions), plain);
        let padded: usize = patch_panels.iter().map(|(width, _)| width).sum();
        let spans = (depth * padded).div_ceil(WIDE_ELEMENTS).clamp(1, depth.max(1));
        // Where channels are few, their positions are distributed too.
        let width = VECTORS * part.level.width::<R>();
        let (tasks, wide) = (part.w.panels().min(CHANNEL_TASKS), positions.div_ceil(width));
        let across = (CHANNEL_TASKS / tasks.max(1)).clamp(1, wide.max(1));
        let mut patches = Scratch::new(depth.div_ceil(spans) * padded);
        for span in 0..spans {
            let depths = span * depth / spans..(span + 1) * depth / spans;
            let mut rest = &mut patches[..];
            let mut panels = Vec::with_capacity(patch_panels.len());
            for (width, patch_panels) in &patch_panels {
                let panel;
                (panel, rest) = rest.split_at_mut(width * depths.len());
                panels.push((*width, patch_panels, panel));
            }
            panels.into_par_iter().for_each(|(width, patch_panels, panel)| {
                patch_panels.pack(part.x, depths.clone(), width, panel);
            });
            let patches = &patches[..depths.len() * padded];
            let right = self.right(plain, (part.x, patches), depths.clone(), 0..positions);
            parallel_for(tasks * across, |task| {
                let (along, aside) = (task / across, task % across);
                let panels = along * part.w.panels() / tasks..(along + 1) * part.w.panels() / tasks;
                let columns =
                    aside * wide / across * width..((aside + 1) * wide / across * width).min(positions);
                let rows = part.w.rows_of(&panels);
                // SAFETY: tasks have disjoint rectangles.
                let mut y = unsafe { part.y.part(rows.clone(), columns.clone()) };
                let (start, limits) = (part.start(span, &rows), part.limits(span + 1 == spans));
                let right = right.part(columns.clone());
                part.w.multiply_within(panels, depths.start, right, start, limits, &mut y);
                if span + 1 == spans {
                    part.apply_epilogue(&mut y, rows, columns.start);
                }
            });
        }
    }

    /// The positions of one image after the last whole panel, packed for [`GemmConvolution::channels`].
    pub(crate) fn rest<R: Real>(&self, level: SimdLevel, x: &[R], positions: &Range<usize>) -> Vec<R> {
        let patch_panels = self.patch_panels::<R>(level, positions, true);
        let mut panels =
            filled(R::ZERO, self.depth() * patch_panels.iter().map(|(width, _)| width).sum::<usize>());
        if let [(width, patch_panels)] = &patch_panels[..] {
            patch_panels.pack(x, 0..self.depth(), *width, &mut panels);
        }
        panels
    }

    /// The output channels of some panels, at some positions of one image. For 1×1 convolutions with one group only.
    pub(crate) fn channels<R: Real>(
        &self,
        (x, rest): (&[R], &[R]),
        (w, panels): (&PackedKernel<R>, Range<usize>),
        (bias, limits): (Option<&[R]>, Option<[R; 2]>),
        positions: Range<usize>,
        y: &mut Region<'_, R>,
    ) {
        assert!(self.flat && self.groups == 1, "expected a 1×1 convolution of one group");
        let w = &w.groups[0];
        let start = bias.map_or(InitialSums::Zero, |bias| InitialSums::Rows(&bias[w.rows_of(&panels)]));
        let right = self.right(true, (x, rest), 0..self.depth(), positions);
        w.multiply_within(panels, 0, right, start, limits, y);
    }

    /// Whether the input is read in place, because patches are single elements. Several images are packed all the same, which
    /// was measured to be faster.
    fn is_plain(&self) -> bool {
        self.flat && self.images == 1 && self.group_inputs > 0
    }

    /// The right operand of a product; `patches` is what was packed of it.
    fn right<'a, R: Real>(
        &self,
        plain: bool,
        (x, patches): (&'a [R], &'a [R]),
        depths: Range<usize>,
        positions: Range<usize>,
    ) -> RhsPanels<'a, R> {
        let (depth, columns, stride) = (depths.len(), positions.len(), self.layout.channel);
        if !plain {
            return RhsPanels::packed(patches, depth, columns);
        }
        RhsPanels::plain(&x[depths.start * stride + positions.start..], stride, patches, depth, columns)
    }

    /// Every panel of `positions` that has to be packed: its width and the elements of its patches.
    fn patch_panels<R: Real>(
        &self,
        level: SimdLevel,
        positions: &Range<usize>,
        plain: bool,
    ) -> Vec<(usize, Patches)> {
        let patches = |(first, width): (usize, usize)| {
            let first = positions.start + first;
            let panel = first..(first + width).min(positions.end);
            (width, Patches::new(&self.sliding, &self.layout, panel))
        };
        if plain && level.narrow_columns::<R>(positions.len()) > 0 {
            return Vec::new();
        }
        let all = level.rhs_panels::<R>(positions.len());
        all.filter(|(first, width)| !plain || first + width > positions.len()).map(patches).collect()
    }
}

impl<R: Real> Part<'_, R> {
    /// The initial sums of `rows` in a span of the depth.
    fn start(&self, span: usize, rows: &Range<usize>) -> InitialSums<'_, R> {
        match self.bias {
            _ if span > 0 => InitialSums::Held,
            Some(bias) => InitialSums::Rows(&bias[rows.clone()]),
            None => InitialSums::Zero,
        }
    }

    /// The limits to clamp sums to when they are stored for the last time.
    fn limits(&self, last: bool) -> Option<[R; 2]> {
        self.epilogue.filter(|_| last).and_then(Epilogue::clamp)
    }

    /// Applies the epilogue to the channels `rows`, at the positions from `first` on, unless the microkernel has clamped them.
    fn apply_epilogue(&self, y: &mut Region<'_, R>, rows: Range<usize>, first: usize) {
        let Some(Epilogue::Map(epilogue)) = self.epilogue else { return };
        if let Some(all) = y.contiguous() {
            return epilogue(self.first + rows.start * self.y.stride() + first, all);
        }
        for (local, row) in rows.enumerate() {
            epilogue(self.first + row * self.y.stride() + first, y.row(local));
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::cpu::kernels::testing::{Random, assert_close, windows};

    /// The definition of a convolution, summed directly in double precision.
    pub(crate) fn definition(
        window: &Window,
        groups: usize,
        (x, xs): (&[f64], &[usize]),
        (w, ws): (&[f64], &[usize]),
        ys: &[usize],
    ) -> Vec<f64> {
        let axes = window.axes();
        let index = |at: &[usize], shape: &[usize]| at.iter().zip(shape).fold(0, |i, (&a, &n)| i * n + a);
        let digits = |mut flat: usize, shape: &[usize]| {
            let mut at = vec![0; shape.len()];
            for (digit, &n) in at.iter_mut().zip(shape).rev() {
                *digit = flat % n;
                flat /= n;
            }
            at
        };
        let taps: usize = window.kernel.iter().product();
        (0..ys.iter().product())
            .map(|flat| {
                let y = digits(flat, ys);
                let group = y[1] / (ws[0] / groups);
                let mut sum = 0.0;
                for channel in 0..ws[1] {
                    for tap in 0..taps {
                        let tap = digits(tap, &window.kernel);
                        let mut at = vec![y[0], group * ws[1] + channel];
                        for axis in 0..axes {
                            let c = y[2 + axis] * window.stride[axis] + tap[axis] * window.dilation[axis];
                            at.push(c.wrapping_sub(window.pad[axis].0));
                        }
                        if at[2..].iter().zip(&xs[2..]).all(|(a, n)| a < n) {
                            let weight = [&[y[1], channel], tap.as_slice()].concat();
                            sum += x[index(&at, xs)] * w[index(&weight, ws)];
                        }
                    }
                }
                sum
            })
            .collect()
    }

    pub(crate) fn output_shape(window: &Window, n: usize, channels: usize, input: &[usize]) -> Vec<usize> {
        let spatial = (0..window.axes()).map(|axis| window.positions(axis, input[axis]).unwrap());
        [n, channels].into_iter().chain(spatial).collect()
    }

    #[test]
    fn convolutions_of_one_to_three_axes_equal_direct_sums() {
        let mut random = Random::new(4);
        for axes in 1..=3 {
            for (mut window, input) in windows(&mut random, axes, 30) {
                window.ceil = false;
                let groups = random.within(1, 3);
                let (cin, cout, n) = (random.within(1, 3), random.within(1, 3), random.within(1, 2));
                let xs = [&[n, cin * groups], input.as_slice()].concat();
                let ws = [&[cout * groups, cin], window.kernel.as_slice()].concat();
                let ys = output_shape(&window, n, cout * groups, &input);
                let x = random.reals::<f64>(xs.iter().product());
                let w = random.reals::<f64>(ws.iter().product());
                let mut y = vec![f64::NAN; ys.iter().product()];
                let packed = PackedKernel::new(SimdLevel::current(), groups, &w, &ws);
                let convolution = GemmConvolution::new(&window, groups, &xs, &ws, &ys);
                let algorithm = GemmAlgorithm::new(&window, groups, &ws, &xs, &ys);
                convolution.run(algorithm, &x, &packed, None, None, &mut y);
                assert_close(&y, &definition(&window, groups, (&x, &xs), (&w, &ws), &ys), 1e-13);
            }
        }
    }

    #[test]
    fn slow_both_ways_of_sharing_work_and_the_pointwise_path_equal_direct_sums() {
        let mut random = Random::new(5);
        let sizes = [
            (3, 1, 100, 3, 4),
            (1, 0, 100, 5, 3),
            (1, 0, 50, 300, 20),
            (1, 0, 9, 40, 70),
            (1, 0, 15, 600, 30),
            (1, 0, 5, 0, 3),
            (3, 1, 7, 20, 70),
        ];
        for ((kernel, pad, size, channels, outputs), images) in
            sizes.into_iter().flat_map(|size| [(size, 1), (size, 2)])
        {
            let mut window = Window::new([kernel, kernel]);
            window.pad = vec![(pad, pad); 2];
            let (xs, ws) = ([images, channels, size, size], [outputs, channels, kernel, kernel]);
            let ys = [images, outputs, size, size];
            let x = random.reals::<f64>(xs.iter().product());
            let w = random.reals::<f64>(ws.iter().product());
            let bias = random.reals::<f64>(outputs);
            let mut expected = definition(&window, 1, (&x, &xs), (&w, &ws), &ys);
            for (i, e) in expected.iter_mut().enumerate() {
                *e += bias[i / (size * size) % outputs];
            }
            let convolution = GemmConvolution::new(&window, 1, &xs, &ws, &ys);
            let mut y = vec![f64::NAN; expected.len()];
            let packed = PackedKernel::new(SimdLevel::current(), 1, &w, &ws);
            let algorithm = GemmAlgorithm::new(&window, 1, &ws, &xs, &ys);
            convolution.run(algorithm, &x, &packed, Some(&bias), None, &mut y);
            assert_close(&y, &expected, 1e-12);
            let narrow = |v: &[f64]| v.iter().map(|&v| v as f32).collect::<Vec<_>>();
            let mut y = vec![f32::NAN; expected.len()];
            let packed = PackedKernel::new(SimdLevel::current(), 1, &narrow(&w), &ws);
            convolution.run(algorithm, &narrow(&x), &packed, Some(&narrow(&bias)), None, &mut y);
            assert_close(&y, &expected, 1e-5);
        }
    }
}
