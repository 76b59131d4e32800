//! Which algorithm computes a convolution, its transpose, or the gradient of its weights. Every such decision is made here, from
//! shapes and settings, when the graph is compiled; kernels carry out the plan. What depends on the batch size is a threshold
//! within the plan. Where a shape is a multiple of the batch size, the same functions decide in every run.

// A new op must be decided here, so no match has a default.
#![deny(clippy::wildcard_enum_match_arm)]

use monosplit_graph::op::Window;
use monosplit_graph::{Node, Shape};

use super::gemm::COLUMNS;
use super::implicit_gemm::POSITIONS;
use super::padded_planes::{PaddedPlanes, PlanarWindow};
use super::winograd;
use super::winograd_transform::TileSize;
use crate::cpu::real::Real;

/// Input channels from which on Winograd's transforms pay.
const WINOGRAD_INPUTS: usize = 16;
/// Channels on either side from which on Winograd's transforms pay for the gradient of weights.
const WINOGRAD_GRADIENT_CHANNELS: usize = 16;
/// Bytes of weights that stay in cache from one run to the next.
const CACHED_BYTES: usize = 1 << 22;
/// The batch size from which on packing weights in every run costs little.
const LARGE_BATCH: usize = 16;
/// An implicit GEMM may throw away one sum of so many.
const WASTE: usize = 6;
/// The largest window, along an axis, of a transposed convolution that is computed phase by phase.
const MAX_PHASE_TAPS: usize = 16;

/// The settings of a program that plans depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlanSettings {
    /// Whether convolutions are computed by their definition, not by Winograd's transforms, which round more.
    pub(crate) accurate: bool,
    /// The batch size to be fastest at.
    pub(crate) batch_size: usize,
}

impl PlanSettings {
    /// The batch size to choose Winograd's tiles for, if Winograd's algorithm may compute this node. Not if the node depends on no
    /// input: equal windows would give sums that differ in their last digits from position to position, and values that tie, on
    /// a uniform baseline for instance, must go on to tie.
    fn winograd(&self, node: &Node) -> Option<usize> {
        (!self.accurate && !node.is_constant()).then_some(self.batch_size)
    }
}

/// What is known of a convolution: its window and shapes. Plane sizes are `None` where they depend on the batch size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConvolutionShapes<'a> {
    pub(crate) window: &'a Window,
    pub(crate) groups: usize,
    /// `[outputs, inputs of a group, …]`
    pub(crate) kernel: &'a [usize],
    pub(crate) input: Option<&'a [usize]>,
    pub(crate) output: Option<&'a [usize]>,
}

/// The algorithm of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConvolutionPlan {
    /// Winograd's transforms with tiles of this size.
    Winograd(TileSize),
    Depthwise(DepthwisePlan),
    Gemm(GemmPlan),
}

/// The algorithm of a convolution whose output channels each read one input channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DepthwisePlan {
    /// A window of three by three that reads planes where they lie.
    ThreeByThree,
    /// Sums over shifted copies of planes with zeros around them.
    PaddedPlanes,
    /// Tap by tap, for large windows and any number of axes.
    Direct,
}

/// How a convolution is computed as matrix products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GemmPlan {
    /// Whether windows are single elements, so that the input is the right operand as it is.
    pub(crate) pointwise: bool,
    /// For one image and for several; `None` where that depends on plane sizes that are not known.
    by_images: Option<[GemmAlgorithm; 2]>,
}

/// How the right operand of a convolution's matrix product comes about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GemmAlgorithm {
    /// Rows are read where they lie in planes with zeros around them.
    Implicit,
    /// Patches are laid out, image by image.
    Im2col,
    /// Patches are laid out, those of all images side by side: one image has too few to fill panels.
    Im2colAcrossImages,
}

impl ConvolutionPlan {
    /// The plan for these shapes. `winograd` is the batch size to choose Winograd's tiles for, if they are allowed.
    pub(crate) fn new<R: Real>(shapes: &ConvolutionShapes<'_>, winograd: Option<usize>) -> Self {
        if shapes.groups > 1 && shapes.kernel[1] == 1 {
            return ConvolutionPlan::Depthwise(DepthwisePlan::new(shapes.window));
        }
        match winograd.and_then(|batch_size| winograd_tiles::<R>(shapes, batch_size)) {
            Some(size) => ConvolutionPlan::Winograd(size),
            None => ConvolutionPlan::Gemm(GemmPlan::new(shapes)),
        }
    }

    /// The plan of a node with known weights.
    pub(crate) fn of_node<R: Real>(
        node: &Node,
        shapes: &ConvolutionShapes<'_>,
        settings: PlanSettings,
    ) -> Self {
        ConvolutionPlan::new::<R>(shapes, settings.winograd(node))
    }

    /// What it is called in profiles, for so many images.
    pub(crate) fn name(&self, images: usize) -> &'static str {
        match self {
            ConvolutionPlan::Winograd(TileSize::Two) => "conv, Winograd 2x2",
            ConvolutionPlan::Winograd(TileSize::Four) => "conv, Winograd 4x4",
            ConvolutionPlan::Depthwise(DepthwisePlan::ThreeByThree) => "conv, depthwise 3x3",
            ConvolutionPlan::Depthwise(DepthwisePlan::PaddedPlanes) => "conv, depthwise padded planes",
            ConvolutionPlan::Depthwise(DepthwisePlan::Direct) => "conv, depthwise direct",
            ConvolutionPlan::Gemm(GemmPlan { pointwise: true, .. }) => "conv, 1x1 GEMM",
            ConvolutionPlan::Gemm(plan) => match plan.algorithm(images) {
                Some(GemmAlgorithm::Implicit) => "conv, implicit GEMM",
                Some(GemmAlgorithm::Im2col) => "conv, im2col GEMM",
                Some(GemmAlgorithm::Im2colAcrossImages) => "conv, im2col GEMM across images",
                None => "conv, GEMM",
            },
        }
    }
}

impl DepthwisePlan {
    pub(crate) fn new(window: &Window) -> Self {
        match PlanarWindow::new(window) {
            Some(_) if window.is_three_by_three() => DepthwisePlan::ThreeByThree,
            Some(_) => DepthwisePlan::PaddedPlanes,
            None => DepthwisePlan::Direct,
        }
    }
}

impl GemmAlgorithm {
    /// The algorithms for one image and for several.
    fn by_images(
        window: &Window,
        groups: usize,
        kernel: &[usize],
        input: &[usize],
        output: &[usize],
    ) -> [Self; 2] {
        let implicit = !window.is_pointwise() && implicit_gemm_pays(window, kernel[1], input, output);
        let one = if implicit { GemmAlgorithm::Implicit } else { GemmAlgorithm::Im2col };
        let small = groups == 1 && output.iter().product::<usize>() <= COLUMNS;
        [one, if small { GemmAlgorithm::Im2colAcrossImages } else { one }]
    }

    /// The algorithm for values of these shapes.
    pub(crate) fn new(window: &Window, groups: usize, kernel: &[usize], x: &[usize], y: &[usize]) -> Self {
        let [one, several] = GemmAlgorithm::by_images(window, groups, kernel, &x[2..], &y[2..]);
        if x[0] > 1 { several } else { one }
    }
}

impl GemmPlan {
    fn new(shapes: &ConvolutionShapes<'_>) -> Self {
        let (window, groups, kernel) = (shapes.window, shapes.groups, shapes.kernel);
        let of_planes = |(input, output): (&[usize], &[usize])| {
            GemmAlgorithm::by_images(window, groups, kernel, input, output)
        };
        let by_images = shapes.input.zip(shapes.output).map(of_planes);
        GemmPlan { pointwise: window.is_pointwise(), by_images }
    }

    /// The algorithm for so many images, if plane sizes are known.
    pub(crate) fn algorithm(&self, images: usize) -> Option<GemmAlgorithm> {
        self.by_images.map(|[one, several]| if images > 1 { several } else { one })
    }
}

/// The tiles for which Winograd's algorithm costs least, if it costs less than the definition.
fn winograd_tiles<R: Real>(shapes: &ConvolutionShapes<'_>, batch_size: usize) -> Option<TileSize> {
    let (kernel, output) = (shapes.kernel, shapes.output?);
    if !R::FAST || !winograd::applies(shapes.window) || shapes.groups != 1 || kernel[1] < WINOGRAD_INPUTS {
        return None;
    }
    let pairs = kernel[0] * kernel[1];
    // Work per pair of channels: multiplications of whole vectors, and the reading of weights in the same unit.
    let cost = |positions: usize, weights: usize| {
        let reading = if pairs * weights * size_of::<R>() > CACHED_BYTES { 10 } else { 2 };
        ((positions * batch_size).next_multiple_of(16) + reading) * weights
    };
    let tiles = |size: TileSize| output.iter().map(|n| n.div_ceil(size.step())).product::<usize>();
    let direct = cost(output.iter().product(), 9);
    [TileSize::Two, TileSize::Four]
        .into_iter()
        .map(|size| (cost(tiles(size), size.positions()), size))
        .min_by_key(|&(cost, _)| cost)
        .filter(|&(cost, _)| cost < direct)
        .map(|(_, size)| size)
}

/// Whether padded planes of `inputs` channels a group are little larger than what is read, and few sums between rows are thrown
/// away.
fn implicit_gemm_pays(window: &Window, inputs: usize, input: &[usize], output: &[usize]) -> bool {
    let (Some(planar), &[height, width], &[rows, columns]) = (PlanarWindow::new(window), input, output)
    else {
        return false;
    };
    let read = (0..2).all(|axis| window.kernel[axis] >= window.stride[axis]);
    let planes = PaddedPlanes::new(&planar, [rows, columns]);
    let little = planes.length() <= 2 * height * width + 8 * planar.taps() && planes.pitch <= POSITIONS;
    let thrown_away = (planes.pitch - columns) * WASTE > columns;
    inputs > 0 && height * width > 0 && read && little && !thrown_away
}

/// The algorithm of a transposed convolution.
#[derive(Clone, Debug)]
pub(crate) enum TransposePlan {
    /// Stride 1: the convolution with this window and the kernel rotated by 180°, inputs and outputs exchanged.
    Rotated(Window, ConvolutionPlan),
    /// Every output channel reads one input channel: sums over shifted padded planes, phase by phase of the stride.
    Depthwise,
    /// Phase by phase of the stride, an implicit GEMM over padded planes.
    Phases,
    /// A matrix product gives every tap's contribution, and col2im adds them up.
    Col2im,
}

impl TransposePlan {
    /// The plan of a node. `kernel` is the shape of the weights, `[inputs, outputs of a group, …]`.
    pub(crate) fn of_node<R: Real>(
        node: &Node,
        shapes: &ConvolutionShapes<'_>,
        output_padding: &[usize],
        weights_known: bool,
        settings: PlanSettings,
    ) -> Self {
        let window = shapes.window;
        // Outputs further than a stride beyond all that is read would be laid out as zeros.
        let near = output_padding.iter().zip(&window.stride).all(|(beyond, stride)| beyond < stride);
        let large_batch = has_large_batch(node) && window.stride.iter().all(|&stride| stride == 1);
        let winograd = settings.winograd(node);
        match (weights_known, large_batch) {
            (true, _) => TransposePlan::rotated::<R>(shapes, winograd)
                .unwrap_or_else(|| TransposePlan::strided(shapes, near)),
            (false, true) => TransposePlan::rotated::<R>(shapes, winograd.map(|_| 1))
                .unwrap_or_else(|| TransposePlan::packed(window, true)),
            (false, false) => TransposePlan::strided(shapes, near),
        }
    }

    pub(super) fn rotated<R: Real>(shapes: &ConvolutionShapes<'_>, winograd: Option<usize>) -> Option<Self> {
        let window = rotated_window(shapes.window)?;
        let kernel = rotated_kernel_shape(shapes.kernel, shapes.groups);
        let rotated = ConvolutionShapes { window: &window, kernel: &kernel, ..*shapes };
        let plan = ConvolutionPlan::new::<R>(&rotated, winograd);
        Some(TransposePlan::Rotated(window, plan))
    }

    fn strided(shapes: &ConvolutionShapes<'_>, near: bool) -> Self {
        let depthwise = shapes.groups > 1 && shapes.kernel[..2] == [shapes.groups, 1];
        match depthwise && PlanarWindow::new(shapes.window).is_some() {
            true => TransposePlan::Depthwise,
            false => TransposePlan::packed(shapes.window, near),
        }
    }

    pub(super) fn packed(window: &Window, near: bool) -> Self {
        let dense = window.dilation.iter().all(|&dilation| dilation == 1)
            && window.axes() == 2
            && window.pad.iter().all(|pad| pad.0.max(pad.1) < MAX_PHASE_TAPS)
            && window.kernel.iter().all(|&taps| taps <= MAX_PHASE_TAPS);
        match near && dense && PlanarWindow::new(window).is_some() {
            true => TransposePlan::Phases,
            false => TransposePlan::Col2im,
        }
    }

    /// What it is called in profiles, for so many images.
    pub(crate) fn name(&self, images: usize) -> &'static str {
        match self {
            TransposePlan::Rotated(_, plan) => plan.name(images),
            TransposePlan::Depthwise => "conv transpose, depthwise",
            TransposePlan::Phases => "conv transpose, implicit GEMM by phases",
            TransposePlan::Col2im => "conv transpose, GEMM + col2im",
        }
    }
}

/// The window of the convolution that the transpose of a convolution of stride 1 is. `None` for other strides, and where more is
/// cut off than the kernel spans.
fn rotated_window(window: &Window) -> Option<Window> {
    let mut rotated = window.clone();
    for axis in 0..window.axes() {
        let span = (window.kernel[axis] - 1).checked_mul(window.dilation[axis])?;
        let (before, after) = window.pad[axis];
        rotated.pad[axis] = (span.checked_sub(before)?, span.checked_sub(after)?);
    }
    window.stride.iter().all(|&stride| stride == 1).then_some(rotated)
}

/// The shape of weights `[inputs, outputs of a group, …]` with inputs and outputs exchanged.
pub(crate) fn rotated_kernel_shape(kernel: &[usize], groups: usize) -> Vec<usize> {
    [&[kernel[1] * groups, kernel[0] / groups], &kernel[2..]].concat()
}

/// The algorithm of a convolution that is the gradient of another one's weights: its window is larger than its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WeightGradientPlan {
    /// Winograd's transforms with tiles of this size.
    Winograd(TileSize),
    /// Matrix products over patches, the positions of the result being the taps.
    Gemm,
}

impl WeightGradientPlan {
    /// Whether a node is such a gradient: its weights are computed, it has no bias, and its result has fewer positions, where they
    /// are known, than its window has taps.
    pub(crate) fn applies(window: &Window, node: &Node) -> bool {
        let taps = window.kernel.iter().product::<usize>();
        let few = |positions: Vec<usize>| taps > 4 * positions.iter().product::<usize>();
        node.inputs.len() == 2 && planes(&node.shape).is_some_and(few)
    }

    /// The plan for `x` of shape `[inputs, images, …]` and gradients of shape `[outputs, images, …]`, given the first length of
    /// each, to a result with these planes.
    pub(crate) fn new<R: Real>(
        window: &Window,
        groups: usize,
        [inputs, outputs]: [usize; 2],
        planes: &[usize],
        settings: PlanSettings,
    ) -> Self {
        let once = |steps: &[usize]| steps.iter().all(|&step| step == 1);
        let winograd = R::FAST
            && !settings.accurate
            && groups == 1
            && *planes == [3, 3]
            && once(&window.stride)
            && once(&window.dilation)
            && inputs.min(outputs) >= WINOGRAD_GRADIENT_CHANNELS;
        if winograd { WeightGradientPlan::Winograd(TileSize::Four) } else { WeightGradientPlan::Gemm }
    }

    /// What it is called in profiles.
    pub(crate) fn name(self) -> &'static str {
        match self {
            WeightGradientPlan::Winograd(TileSize::Two) => "conv weight gradient, Winograd 2x2",
            WeightGradientPlan::Winograd(TileSize::Four) => "conv weight gradient, Winograd 4x4",
            WeightGradientPlan::Gemm => "conv weight gradient, GEMM",
        }
    }
}

/// The size of the planes of a value, where it is known.
pub(crate) fn planes(shape: &Shape) -> Option<Vec<usize>> {
    shape.dims().get(2..)?.iter().map(|dim| dim.fixed()).collect()
}

/// The batch size to choose Winograd's tiles for in a convolution whose weights are computed, and transformed in every run: large
/// batches only.
pub(crate) fn winograd_at_run(node: &Node, settings: PlanSettings) -> Option<usize> {
    settings.winograd(node).filter(|_| planes(&node.shape).is_some() && has_large_batch(node)).map(|_| 1)
}

fn has_large_batch(node: &Node) -> bool {
    node.shape.fixed_at(0).is_some_and(|images| images >= LARGE_BATCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(window: &Window, groups: usize, kernel: &[usize], plane: usize) -> ConvolutionPlan {
        let output = [window.positions(0, plane).unwrap(), window.positions(1, plane).unwrap()];
        let input = [plane, plane];
        let shapes = ConvolutionShapes { window, groups, kernel, input: Some(&input), output: Some(&output) };
        ConvolutionPlan::new::<f32>(&shapes, Some(1))
    }

    fn padded(size: usize, stride: usize) -> Window {
        Window { pad: vec![(size / 2, size / 2); 2], stride: vec![stride; 2], ..Window::new([size, size]) }
    }

    /// The layers of ResNet18, MobileNetV2 and ConvNeXt.
    #[test]
    fn layers_of_known_networks_are_computed_by_the_algorithm_that_suits_them() {
        let name = |window: &Window, groups: usize, kernel: &[usize], plane: usize, images: usize| {
            plan(window, groups, kernel, plane).name(images)
        };
        assert_eq!(name(&padded(7, 2), 1, &[64, 3, 7, 7], 224, 1), "conv, implicit GEMM");
        assert_eq!(name(&padded(3, 1), 1, &[64, 64, 3, 3], 56, 1), "conv, Winograd 4x4");
        assert_eq!(name(&padded(3, 2), 1, &[512, 256, 3, 3], 14, 1), "conv, implicit GEMM");
        assert_eq!(name(&padded(3, 2), 1, &[512, 256, 3, 3], 14, 8), "conv, im2col GEMM across images");
        assert_eq!(name(&padded(3, 2), 1, &[512, 256, 3, 3], 10, 1), "conv, im2col GEMM");
        assert_eq!(name(&Window::new([1, 1]), 1, &[96, 16, 1, 1], 112, 1), "conv, 1x1 GEMM");
        assert_eq!(name(&padded(3, 2), 96, &[96, 1, 3, 3], 112, 1), "conv, depthwise 3x3");
        assert_eq!(name(&padded(7, 1), 96, &[96, 1, 7, 7], 56, 1), "conv, depthwise padded planes");
    }

    #[test]
    fn double_precision_and_accurate_programs_use_no_transforms() {
        let window = padded(3, 1);
        let shapes = ConvolutionShapes {
            window: &window,
            groups: 1,
            kernel: &[64, 64, 3, 3],
            input: Some(&[56, 56]),
            output: Some(&[56, 56]),
        };
        let transformed = |plan: ConvolutionPlan| matches!(plan, ConvolutionPlan::Winograd(_));
        assert!(transformed(ConvolutionPlan::new::<f32>(&shapes, Some(1))));
        assert!(!transformed(ConvolutionPlan::new::<f64>(&shapes, Some(1))));
        assert!(!transformed(ConvolutionPlan::new::<f32>(&shapes, None)));
        let unknown = ConvolutionShapes { input: None, output: None, ..shapes };
        assert_eq!(ConvolutionPlan::new::<f32>(&unknown, Some(1)).name(1), "conv, GEMM");
    }

    #[test]
    fn the_transpose_of_a_convolution_of_stride_one_is_a_convolution() {
        let (window, kernel) = (padded(3, 1), [32, 8, 3, 3]);
        let shapes =
            ConvolutionShapes { window: &window, groups: 1, kernel: &kernel, input: None, output: None };
        let Some(TransposePlan::Rotated(rotated, _)) = TransposePlan::rotated::<f32>(&shapes, None) else {
            panic!("not rotated");
        };
        assert_eq!(rotated.pad, [(1, 1); 2]);
        assert_eq!(rotated_kernel_shape(&kernel, 1), [8, 32, 3, 3]);
        let strided = padded(3, 2);
        let shapes = ConvolutionShapes { window: &strided, ..shapes };
        assert!(TransposePlan::rotated::<f32>(&shapes, None).is_none());
        assert!(matches!(TransposePlan::strided(&shapes, true), TransposePlan::Phases));
        assert!(matches!(TransposePlan::strided(&shapes, false), TransposePlan::Col2im));
    }
}
