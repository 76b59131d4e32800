//! The kernels of convolutions: each packs its weights for its plan, see [`super::conv_plan`], and carries the plan out.

use std::sync::Arc;

use monosplit_graph::op::Window;
use monosplit_graph::{Error, Node, NodeId, Result, Shape};

use super::conv_plan::{
    ConvolutionPlan, ConvolutionShapes, PlanSettings, TransposePlan, WeightGradientPlan, planes,
    winograd_at_run,
};
use super::depthwise::Depthwise;
use super::epilogue::Epilogue;
use super::packed_convolution::{PackedConvolution, PackedWeightCache, Weights};
use super::policy::Kernel;
use super::simd_level::SimdLevel;
use super::transposed_convolution::PackedTranspose;
use super::weight_gradient::WeightGradient;
use super::winograd_weight_gradient::WinogradWeightGradient;
use crate::cpu::real::Real;
use crate::cpu::value::{View, ViewMut};

/// A convolution node, or a transposed one, and what its plan depends on.
pub(crate) struct ConvolutionNode<'a, R> {
    pub(crate) node: &'a Node,
    /// The shapes of its inputs.
    pub(crate) inputs: &'a [&'a Shape],
    /// Its weights, if they are known.
    pub(crate) weights: Option<View<'a, R>>,
    pub(crate) settings: PlanSettings,
    /// Where the packed weights of the program are shared, and the node whose value these weights are.
    pub(crate) cached: (&'a PackedWeightCache<R>, NodeId),
}

impl<R: Real> ConvolutionNode<'_, R> {
    /// Calls `plan` with the shapes of the convolution, if that of the weights is known.
    fn planned<P>(
        &self,
        window: &Window,
        groups: usize,
        plan: impl FnOnce(&ConvolutionShapes<'_>) -> P,
    ) -> Option<P> {
        let kernel = self.inputs[1].dims().iter().map(|dim| dim.fixed()).collect::<Option<Vec<usize>>>()?;
        let (input, output) = (planes(self.inputs[0]), planes(&self.node.shape));
        let (input, output) = (input.as_deref(), output.as_deref());
        Some(plan(&ConvolutionShapes { window, groups, kernel: &kernel, input, output }))
    }

    /// The kernel of a convolution.
    pub(crate) fn convolution(&self, window: Window, groups: usize) -> Result<Kernel<R>> {
        let (node, settings) = (self.node, self.settings);
        if let Some(w) = self.weights {
            let plan =
                self.planned(&window, groups, |shapes| ConvolutionPlan::of_node::<R>(node, shapes, settings));
            let w = Weights { elements: w.real()?, shape: w.shape, cached: Some(self.cached) };
            let plan = plan.unwrap_or_else(|| plan_of_weights::<R>(&window, groups, w.shape, None));
            return Ok(packed(plan, PackedConvolution::new(plan, &window, groups, &w)));
        }
        if WeightGradientPlan::applies(&window, node) {
            return Ok(self.weight_gradient(window, groups));
        }
        let winograd = winograd_at_run(node, settings);
        let plan = self.planned(&window, groups, |shapes| ConvolutionPlan::new::<R>(shapes, winograd));
        let name = move |images: usize| plan.map_or("conv, GEMM", |plan| plan.name(images));
        Ok(Kernel::named(name, move |v, out| {
            let w = Weights { elements: v[1].real()?, shape: v[1].shape, cached: None };
            let plan = plan.unwrap_or_else(|| {
                plan_of_weights::<R>(&window, groups, w.shape, winograd.map(|batch| (batch, &out.shape[2..])))
            });
            run_packed(&PackedConvolution::new(plan, &window, groups, &w), v, None, out)
        }))
    }

    /// The kernel of a convolution that is the gradient of another one's weights.
    fn weight_gradient(&self, window: Window, groups: usize) -> Kernel<R> {
        let settings = self.settings;
        let lengths = self.inputs[0].fixed_at(0).zip(self.inputs[1].fixed_at(0));
        let plan = lengths.zip(planes(&self.node.shape)).map(|((inputs, outputs), planes)| {
            WeightGradientPlan::new::<R>(&window, groups, [inputs, outputs], &planes, settings)
        });
        let name = plan.map_or("conv weight gradient", WeightGradientPlan::name);
        Kernel::new(name, move |v, out| {
            let lengths = [v[0].shape[0], v[1].shape[0]];
            let plan = plan.unwrap_or_else(|| {
                WeightGradientPlan::new::<R>(&window, groups, lengths, &out.shape[2..], settings)
            });
            match plan {
                WeightGradientPlan::Winograd(size) => {
                    let kernel = WinogradWeightGradient::new(size, &window, v[0].shape, v[1].shape);
                    kernel.run(v[0].real()?, v[1].real()?, out.real()?);
                }
                WeightGradientPlan::Gemm => {
                    let kernel = WeightGradient::new(&window, groups, v[0].shape, v[1].shape, out.shape);
                    kernel.run(v[0].real()?, v[1].real()?, out.real()?);
                }
            }
            Ok(())
        })
    }

    /// The kernel of a transposed convolution.
    pub(crate) fn transposed(
        &self,
        window: Window,
        groups: usize,
        output_padding: &[usize],
    ) -> Result<Kernel<R>> {
        let (node, settings, known) = (self.node, self.settings, self.weights.is_some());
        let decide = {
            let (node, output_padding) = (node.clone(), output_padding.to_vec());
            move |shapes: &ConvolutionShapes<'_>| {
                TransposePlan::of_node::<R>(&node, shapes, &output_padding, known, settings)
            }
        };
        let plan = self.planned(&window, groups, &decide);
        let (Some(w), Some(plan)) = (self.weights, plan.clone()) else {
            let (images, planes_known) = (plan.clone(), planes(&node.shape).is_some());
            let name = move |n: usize| images.as_ref().map_or("conv transpose", |plan| plan.name(n));
            return Ok(Kernel::named_with_epilogue(name, move |v, epilogue, out| {
                let w = Weights { elements: v[1].real()?, shape: v[1].shape, cached: None };
                let plan = plan.clone().unwrap_or_else(|| {
                    // Winograd's algorithm needs planes that are known when the graph is compiled.
                    let output = planes_known.then_some(&out.shape[2..]);
                    let input = Some(&v[0].shape[2..]);
                    decide(&ConvolutionShapes { window: &window, groups, kernel: w.shape, input, output })
                });
                PackedTransposed::new(&plan, &window, groups, &w).run(&window, v, epilogue, out)
            }));
        };
        let w = Weights { elements: w.real()?, shape: w.shape, cached: Some(self.cached) };
        if let TransposePlan::Rotated(rotated, plan) = &plan {
            return Ok(packed(*plan, PackedConvolution::rotated(*plan, rotated, groups, &w)));
        }
        let packed = PackedTransposed::new(&plan, &window, groups, &w);
        // The depthwise algorithm reads the weights as they are.
        let holds_weights = !matches!(packed, PackedTransposed::Depthwise);
        let name = move |images: usize| plan.name(images);
        let run = move |v: &[View<'_, R>], epilogue: Option<&Epilogue<'_, R>>, out: &mut ViewMut<'_, R>| {
            packed.run(&window, v, epilogue, out)
        };
        Ok(Kernel { holds_weights, ..Kernel::named_with_epilogue(name, run) })
    }
}

/// The plan of a convolution of which only the weights' shape is known, and the output planes if Winograd's algorithm is allowed.
fn plan_of_weights<R: Real>(
    window: &Window,
    groups: usize,
    kernel: &[usize],
    winograd: Option<(usize, &[usize])>,
) -> ConvolutionPlan {
    let output = winograd.map(|(_, output)| output);
    let shapes = ConvolutionShapes { window, groups, kernel, input: None, output };
    ConvolutionPlan::new::<R>(&shapes, winograd.map(|(batch_size, _)| batch_size))
}

/// A transposed convolution with packed weights.
enum PackedTransposed<R> {
    Rotated(PackedConvolution<R>),
    Depthwise,
    Strided(PackedTranspose<R>),
}

impl<R: Real> PackedTransposed<R> {
    fn new(plan: &TransposePlan, window: &Window, groups: usize, w: &Weights<'_, R>) -> Self {
        let (level, kernel) = (SimdLevel::current(), (w.elements, w.shape));
        match plan {
            TransposePlan::Rotated(window, plan) => {
                PackedTransposed::Rotated(PackedConvolution::rotated(*plan, window, groups, w))
            }
            TransposePlan::Depthwise => PackedTransposed::Depthwise,
            TransposePlan::Phases => {
                PackedTransposed::Strided(PackedTranspose::phases(level, window, groups, kernel))
            }
            TransposePlan::Col2im => {
                PackedTransposed::Strided(PackedTranspose::col2im(level, groups, kernel))
            }
        }
    }

    fn run(
        &self,
        window: &Window,
        v: &[View<'_, R>],
        epilogue: Option<&Epilogue<'_, R>>,
        out: &mut ViewMut<'_, R>,
    ) -> Result<()> {
        let bias = v.get(2).map(|b| b.real()).transpose()?;
        let shape = out.shape;
        match self {
            PackedTransposed::Rotated(convolution) => return run_packed(convolution, v, epilogue, out),
            PackedTransposed::Depthwise => {
                let kernel = Depthwise::transposed(window, v[0].shape, shape);
                let kernel =
                    kernel.ok_or_else(|| Error::shape("expected a small window over one or two axes"))?;
                kernel.run(v[0].real()?, v[1].real()?, bias, epilogue, out.real()?);
            }
            PackedTransposed::Strided(w) => {
                w.run(window, (v[0].real()?, v[0].shape), bias, epilogue, (out.real()?, shape));
            }
        }
        Ok(())
    }
}

fn packed<R: Real>(plan: ConvolutionPlan, convolution: PackedConvolution<R>) -> Kernel<R> {
    let convolution = Arc::new(convolution);
    let held = convolution.clone();
    let name = move |images: usize| plan.name(images);
    let kernel =
        Kernel::named_with_epilogue(name, move |v, epilogue, out| run_packed(&held, v, epilogue, out));
    Kernel { holds_weights: true, convolution: Some(convolution), ..kernel }
}

fn run_packed<R: Real>(
    convolution: &PackedConvolution<R>,
    v: &[View<'_, R>],
    epilogue: Option<&Epilogue<'_, R>>,
    out: &mut ViewMut<'_, R>,
) -> Result<()> {
    let bias = v.get(2).map(|b| b.real()).transpose()?;
    let shape = out.shape;
    convolution.run((v[0].real()?, v[0].shape), bias, epilogue, (out.real()?, shape));
    Ok(())
}
