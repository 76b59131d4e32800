//! A convolution with known weights: its plan, and the weights packed for it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use monosplit_graph::NodeId;
use monosplit_graph::op::Window;

use super::conv_plan::{ConvolutionPlan, DepthwisePlan, GemmAlgorithm, rotated_kernel_shape};
use super::depthwise::{Depthwise, DepthwiseDirect};
use super::depthwise_3x3::Depthwise3x3;
use super::epilogue::Epilogue;
use super::gemm_convolution::{GemmConvolution, PackedKernel};
use super::pointwise_depthwise::{BiasAndEpilogue, PointwiseDepthwise};
use super::simd_level::SimdLevel;
use super::winograd::{TransformedKernel, Winograd};
use super::winograd_transform::TileSize;
use crate::cpu::real::Real;

/// Weights as their algorithm reads them.
#[derive(Debug)]
enum PackedWeights<R> {
    Depthwise(Vec<R>),
    Winograd {
        kernel: Arc<TransformedKernel<R>>,
        /// Whether the kernel is rotated, and its inputs and outputs exchanged.
        rotated: bool,
    },
    Gemm(PackedKernel<R>),
}

/// Transformed weights by the node they are the value of and the size of tiles.
type TransformedKernels<R> = HashMap<(NodeId, TileSize), Arc<TransformedKernel<R>>>;

/// The transformed weights of a program. Nodes that read the same weights share them, a convolution and its transpose too.
#[derive(Debug)]
pub(crate) struct PackedWeightCache<R>(RefCell<TransformedKernels<R>>);

impl<R: Real> PackedWeightCache<R> {
    pub(crate) fn new() -> Self {
        PackedWeightCache(RefCell::new(HashMap::new()))
    }
}

/// Weights to be packed: their elements and shape, and, if they are the value of a node, where their transform is shared.
#[derive(Debug)]
pub(crate) struct Weights<'a, R> {
    pub(crate) elements: &'a [R],
    pub(crate) shape: &'a [usize],
    pub(crate) cached: Option<(&'a PackedWeightCache<R>, NodeId)>,
}

impl<R: Real> Weights<'_, R> {
    fn transformed(&self, size: TileSize) -> Arc<TransformedKernel<R>> {
        let (w, shape) = (self.elements, self.shape);
        let taps = |o: usize, i: usize| std::array::from_fn(|tap| w[(o * shape[1] + i) * 9 + tap].to_f64());
        let new = || Arc::new(TransformedKernel::new(SimdLevel::current(), size, (shape[0], shape[1]), taps));
        match self.cached {
            Some((cache, node)) => cache.0.borrow_mut().entry((node, size)).or_insert_with(new).clone(),
            None => new(),
        }
    }
}

/// A convolution with packed weights.
#[derive(Debug)]
pub(crate) struct PackedConvolution<R> {
    window: Window,
    groups: usize,
    kernel_shape: Vec<usize>,
    plan: ConvolutionPlan,
    weights: PackedWeights<R>,
}

impl<R: Real> PackedConvolution<R> {
    /// Packs weights of shape `[outputs, inputs of a group, …]`.
    pub(crate) fn new(plan: ConvolutionPlan, window: &Window, groups: usize, w: &Weights<'_, R>) -> Self {
        let weights = match plan {
            ConvolutionPlan::Depthwise(_) => PackedWeights::Depthwise(w.elements.to_vec()),
            ConvolutionPlan::Winograd(size) => {
                PackedWeights::Winograd { kernel: w.transformed(size), rotated: false }
            }
            ConvolutionPlan::Gemm(_) => {
                PackedWeights::Gemm(PackedKernel::new(SimdLevel::current(), groups, w.elements, w.shape))
            }
        };
        PackedConvolution { window: window.clone(), groups, kernel_shape: w.shape.to_vec(), plan, weights }
    }

    /// Packs weights of shape `[inputs, outputs of a group, …]` of a transposed convolution of stride 1, which is a convolution
    /// with this window and rotated kernels.
    pub(crate) fn rotated(plan: ConvolutionPlan, window: &Window, groups: usize, w: &Weights<'_, R>) -> Self {
        let kernel_shape = rotated_kernel_shape(w.shape, groups);
        if let ConvolutionPlan::Winograd(size) = plan {
            let weights = PackedWeights::Winograd { kernel: w.transformed(size), rotated: true };
            return PackedConvolution { window: window.clone(), groups, kernel_shape, plan, weights };
        }
        let taps: usize = w.shape[2..].iter().product();
        let (inputs, outputs) = (w.shape[0] / groups, w.shape[1]);
        let mut rotated = Vec::with_capacity(w.elements.len());
        for group in 0..groups {
            for output in 0..outputs {
                for input in 0..inputs {
                    let at = ((group * inputs + input) * outputs + output) * taps;
                    rotated.extend(w.elements[at..at + taps].iter().rev());
                }
            }
        }
        let rotated = Weights { elements: &rotated, shape: &kernel_shape, cached: None };
        PackedConvolution::new(plan, window, groups, &rotated)
    }

    /// `y ← w ⋆ x + bias`, then the epilogue.
    pub(crate) fn run(
        &self,
        (x, xs): (&[R], &[usize]),
        bias: Option<&[R]>,
        epilogue: Option<&Epilogue<'_, R>>,
        (y, ys): (&mut [R], &[usize]),
    ) {
        match &self.weights {
            PackedWeights::Depthwise(w) => self.run_depthwise((x, xs), w, bias, epilogue, (y, ys)),
            PackedWeights::Winograd { kernel, rotated } => {
                let pad = [self.window.pad[0].0, self.window.pad[1].0];
                Winograd::new(kernel.size(), *rotated, pad, xs, ys).run(x, kernel, bias, epilogue, y);
            }
            PackedWeights::Gemm(w) => {
                let convolution = GemmConvolution::new(&self.window, self.groups, xs, &self.kernel_shape, ys);
                convolution.run(self.gemm_algorithm(xs, ys), x, w, bias, epilogue, y);
            }
        }
    }

    fn run_depthwise(
        &self,
        (x, xs): (&[R], &[usize]),
        w: &[R],
        bias: Option<&[R]>,
        epilogue: Option<&Epilogue<'_, R>>,
        (y, ys): (&mut [R], &[usize]),
    ) {
        let plan = DepthwisePlan::new(&self.window);
        match Depthwise::new(plan, &self.window, xs, &self.kernel_shape, ys) {
            Some(depthwise) => depthwise.run(x, w, bias, epilogue, y),
            None => {
                let walk = DepthwiseDirect::new(&self.window, xs, &self.kernel_shape, ys);
                walk.run(x, w, bias, epilogue, y);
            }
        }
    }

    /// The algorithm for as many images: that of the plan, or, if plane sizes were not known, what would have been planned.
    fn gemm_algorithm(&self, xs: &[usize], ys: &[usize]) -> GemmAlgorithm {
        let (window, groups, kernel) = (&self.window, self.groups, &self.kernel_shape[..]);
        let planned = match self.plan {
            ConvolutionPlan::Gemm(plan) => plan.algorithm(xs[0]),
            ConvolutionPlan::Winograd(_) | ConvolutionPlan::Depthwise(_) => None,
        };
        planned.unwrap_or_else(|| GemmAlgorithm::new(window, groups, kernel, xs, ys))
    }

    /// `y ← then ⋆ (self ⋆ x)`, each with its bias and epilogue; the value of shape `between` is not stored. Returns whether that
    /// was done, which needs this to be 1×1 and `then` three by three and depthwise.
    pub(crate) fn run_both(
        &self,
        then: &Self,
        (x, xs): (&[R], &[usize]),
        between: &[usize],
        epilogues: [BiasAndEpilogue<'_, R>; 2],
        (y, ys): (&mut [R], &[usize]),
    ) -> bool {
        let chain = self.chain(then, xs, between, ys);
        let (PackedWeights::Gemm(w), PackedWeights::Depthwise(v), Some(chain)) =
            (&self.weights, &then.weights, chain)
        else {
            return false;
        };
        chain.run(x, (w, v), epilogues, y);
        true
    }

    fn chain(
        &self,
        then: &Self,
        xs: &[usize],
        between: &[usize],
        ys: &[usize],
    ) -> Option<PointwiseDepthwise> {
        let (&[_, _, h, w], &[_, channels, rows, columns]) = (between, ys) else { return None };
        let planes = Depthwise3x3::new(&then.window, [h, w], [rows, columns])?;
        let fits = self.window.is_pointwise() && self.groups == 1 && then.kernel_shape[0] == channels;
        let chain = || PointwiseDepthwise {
            pointwise: GemmConvolution::new(&self.window, 1, xs, &self.kernel_shape, between),
            planes,
            images: xs[0],
            image: xs[1..].iter().product(),
            between: h * w,
            output: rows * columns,
        };
        (fits && then.groups == channels && between[1] == channels).then(chain)
    }
}
