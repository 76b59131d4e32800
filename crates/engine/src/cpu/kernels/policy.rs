//! Which kernel runs a node. It is chosen once, when the graph is compiled; what can be computed from constant operands is computed
//! then. How convolutions are computed is decided in [`super::conv_plan`].

// A new op must be decided here, so no match has a default.
#![deny(clippy::wildcard_enum_match_arm)]

use std::sync::Arc;

use monosplit_graph::op::Padding;
use monosplit_graph::{Error, Node, Op, Result, Shape, element_count};

use super::broadcast::GRAIN;
use super::chunks::for_each_chunk;
use super::convolution::ConvolutionNode;
use super::epilogue::Epilogue;
use super::matmul::Product;
use super::norm::{LocalResponse, ScaleShift};
use super::packed_convolution::PackedConvolution;
use super::packed_product::{MIN_ROWS, PackedProduct};
use super::{activation, broadcast, elementwise, movement, norm, pool, reduce, resize, softmax};
use crate::cpu::real::Real;
use crate::cpu::unwinding::filled;
use crate::cpu::value::{Slice, SliceMut, View, ViewMut};

type RunKernel<R> = dyn Fn(&[View<'_, R>], &mut ViewMut<'_, R>) -> Result<()> + Send + Sync;
pub(super) type RunWithEpilogue<R> =
    dyn Fn(&[View<'_, R>], Option<&Epilogue<'_, R>>, &mut ViewMut<'_, R>) -> Result<()> + Send + Sync;
pub(super) type Name = dyn Fn(usize) -> &'static str + Send + Sync;
type RunInPlace<R> = dyn Fn(&mut ViewMut<'_, R>) -> Result<()> + Send + Sync;

/// The kernel of a node.
pub(crate) struct Kernel<R> {
    /// What it is called in profiles, for so many samples.
    pub(super) name: Box<Name>,
    /// Reads the node's inputs, overwrites its output.
    pub(crate) run: Box<RunKernel<R>>,
    /// The same for a node that may overwrite its only input.
    pub(crate) in_place: Option<Box<RunInPlace<R>>>,
    /// Whether it keeps the weights, its second input, in a layout of its own and reads no more than their shape.
    pub(crate) holds_weights: bool,
    /// The same for a kernel that can apply an epilogue to its output while it is in cache.
    pub(super) with_epilogue: Option<Arc<RunWithEpilogue<R>>>,
    /// The convolution that it computes, if its weights are known.
    pub(crate) convolution: Option<Arc<PackedConvolution<R>>>,
}

impl<R: Real> Kernel<R> {
    pub(super) fn new(
        name: &'static str,
        run: impl Fn(&[View<'_, R>], &mut ViewMut<'_, R>) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        Kernel::named(move |_| name, run)
    }

    /// A kernel whose name depends on the number of samples.
    pub(super) fn named(
        name: impl Fn(usize) -> &'static str + Send + Sync + 'static,
        run: impl Fn(&[View<'_, R>], &mut ViewMut<'_, R>) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        Kernel {
            name: Box::new(name),
            run: Box::new(run),
            in_place: None,
            with_epilogue: None,
            holds_weights: false,
            convolution: None,
        }
    }

    /// A kernel that can apply an epilogue to its output while it is in cache.
    pub(super) fn named_with_epilogue(
        name: impl Fn(usize) -> &'static str + Send + Sync + 'static,
        run: impl Fn(&[View<'_, R>], Option<&Epilogue<'_, R>>, &mut ViewMut<'_, R>) -> Result<()>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let run: Arc<RunWithEpilogue<R>> = Arc::new(run);
        let with_epilogue = Some(run.clone());
        Kernel { with_epilogue, ..Kernel::named(name, move |v, out| run(v, None, out)) }
    }

    /// What it is called in profiles, for so many samples.
    pub(crate) fn name(&self, samples: usize) -> &'static str {
        (self.name)(samples)
    }

    /// Computes the output and applies an epilogue: while it is in cache, if the kernel can, or else afterwards.
    pub(crate) fn run_with_epilogue(
        &self,
        inputs: &[View<'_, R>],
        epilogue: &Epilogue<'_, R>,
        out: &mut ViewMut<'_, R>,
    ) -> Result<()> {
        if let Some(run) = &self.with_epilogue {
            return run(inputs, Some(epilogue), out);
        }
        (self.run)(inputs, out)?;
        for_each_chunk(out.real()?, GRAIN, &|at, piece| epilogue.apply(at * GRAIN, piece));
        Ok(())
    }
}

/// Runs the same expression on elements of whichever kind two values hold.
macro_rules! of_any_kind {
    ($x:expr, $out:expr, |$from:ident, $to:ident| $body:expr) => {
        match ($x.data, &mut $out.data) {
            (Slice::Real($from), SliceMut::Real($to)) => $body,
            (Slice::Int($from), SliceMut::Int($to)) => $body,
            (Slice::Bool($from), SliceMut::Bool($to)) => $body,
            _ => return Err(Error::shape("expected input and output of one kind")),
        }
    };
}

/// The most taps a window may have. No network has more; a file that does would exhaust memory.
const MAX_TAPS: usize = 1 << 24;

fn check_window(op: &Op) -> Result<()> {
    let Some(window) = op.window() else { return Ok(()) };
    match element_count(&window.kernel) {
        Some(taps) if taps <= MAX_TAPS => Ok(()),
        _ => Err(Error::unsupported(format!(
            "expected a window of at most {MAX_TAPS} elements, found {:?}",
            window.kernel
        ))),
    }
}

/// Chooses the kernel for `node`. `constants` holds, for every input, its elements if they are known.
/// `convolution` is what the plan of a convolution depends on.
pub(crate) fn choose<R: Real>(
    node: &Node,
    constants: &[Option<View<'_, R>>],
    convolution: &ConvolutionNode<'_, R>,
) -> Result<Kernel<R>> {
    check_window(&node.op)?;
    match node.op.clone() {
        Op::Input | Op::Constant(_) => Err(Error::argument("inputs and constants are not computed")),
        Op::Conv { window, groups } => convolution.convolution(window, groups),
        Op::ConvTranspose { window, groups, output_padding } => {
            convolution.transposed(window, groups, &output_padding)
        }
        Op::MatMul { trans_a, trans_b } => matmul((trans_a, trans_b), constants, convolution.inputs),
        Op::BatchNorm { epsilon } => batch_norm(epsilon, constants),
        Op::LayerNorm { axis, epsilon } => Ok(layer_norm(axis, epsilon)),
        Op::GroupNorm { groups, epsilon } => Ok(Kernel::new("group norm", move |v, out| {
            let x = (v[0].real()?, v[0].shape);
            norm::group_norm(groups, epsilon, x, v[1].real()?, v[2].real()?, out.real()?);
            Ok(())
        })),
        Op::LocalResponseNorm { size, alpha, beta, bias } => {
            let kernel = LocalResponse { size, alpha, beta, bias };
            Ok(Kernel::new("local response norm", move |v, out| {
                kernel.run((v[0].real()?, v[0].shape), out.real()?);
                Ok(())
            }))
        }
        Op::Unary(unary) => Ok(Kernel {
            in_place: Some(Box::new(move |out| activation::apply_in_place(unary, out))),
            ..Kernel::new("elementwise", move |v, out| activation::apply(unary, &v[0], out))
        }),
        Op::Binary(binary) => {
            Ok(Kernel::new("elementwise", move |v, out| elementwise::apply(binary, &v[0], &v[1], out)))
        }
        Op::Where => Ok(Kernel::new("choice", |v, out| elementwise::select(&v[0], &v[1], &v[2], out))),
        Op::Cast { .. } => Ok(Kernel::new("cast", |v, out| {
            elementwise::cast(&v[0], out);
            Ok(())
        })),
        Op::Softmax { axis } => Ok(softmax_kernel(false, axis)),
        Op::LogSoftmax { axis } => Ok(softmax_kernel(true, axis)),
        Op::MaxPool(window) => Ok(pooling(move |v, out, shape| {
            pool::max_pool(&window, (v[0].real()?, v[0].shape), (out, shape));
            Ok(())
        })),
        Op::AveragePool { window, divisor } => Ok(pooling(move |v, out, shape| {
            pool::average_pool(&window, divisor, (v[0].real()?, v[0].shape), (out, shape));
            Ok(())
        })),
        Op::AveragePoolTranspose { window, divisor, .. } => Ok(pooling(move |v, out, shape| {
            pool::average_pool_transpose(&window, divisor, (v[0].real()?, v[0].shape), (out, shape));
            Ok(())
        })),
        Op::WinnerGather(window) => Ok(pooling(move |v, out, shape| {
            pool::winner_gather(&window, (v[0].real()?, v[0].shape), v[1].real()?, (out, shape));
            Ok(())
        })),
        Op::WinnerScatter(window) => Ok(pooling(move |v, out, _| {
            let y = (v[1].real()?, v[1].shape);
            pool::winner_scatter(&window, (v[0].real()?, v[0].shape), y, out);
            Ok(())
        })),
        Op::Reduce { reduction, axes, .. } => {
            Ok(Kernel::new("reduction", move |v, out| reduce::reduce(reduction, &axes, &v[0], out)))
        }
        Op::ArgMax { axis, .. } => {
            Ok(Kernel::new("index of maximum", move |v, out| reduce::arg_max(axis, &v[0], out)))
        }
        Op::Concat { axis } => Ok(Kernel::new("copy", move |v, out| concat(axis, v, out))),
        Op::Slice { axis, start, step, length } => Ok(Kernel::new("copy", move |v, out| {
            let shape = v[0].shape;
            of_any_kind!(v[0], out, |x, out| movement::slice(axis, start, step, length, (x, shape), out));
            Ok(())
        })),
        Op::Pad { padding, pads } => Ok(Kernel::new("copy", move |v, out| pad(padding, &pads, &v[0], out))),
        Op::Transpose { axes } => Ok(Kernel::new("copy", move |v, out| {
            let shape = v[0].shape;
            of_any_kind!(v[0], out, |x, out| movement::permute((x, shape), &axes, out));
            Ok(())
        })),
        Op::Expand { .. } => Ok(Kernel::new("copy", |v, out| {
            let (shape, target) = (v[0].shape, out.shape);
            of_any_kind!(v[0], out, |x, out| broadcast::expand((x, shape), (out, target))?);
            Ok(())
        })),
        Op::Gather { axis } => Ok(Kernel::new("gather", move |v, out| {
            let (shape, indices) = (v[0].shape, v[1].int()?);
            of_any_kind!(v[0], out, |x, out| movement::gather(axis, (x, shape), indices, out)?);
            Ok(())
        })),
        Op::Resize { axes, interpolation, coordinates } => Ok(Kernel::new("resize", move |v, out| {
            resize::resize(&axes, interpolation, coordinates, (v[0].real()?, v[0].shape), out.real()?);
            Ok(())
        })),
        // The memory plan lets these share the memory of their input. They copy only where an output needs its own.
        Op::Reshape { .. } | Op::Identity | Op::Dropout { .. } => Ok(Kernel::new("copy", |v, out| {
            of_any_kind!(v[0], out, |x, out| out.copy_from_slice(x));
            Ok(())
        })),
    }
}

/// A product. Known weights are packed here if each sample has enough rows for that to pay.
fn matmul<R: Real>(
    (trans_a, trans_b): (bool, bool),
    constants: &[Option<View<'_, R>>],
    inputs: &[&Shape],
) -> Result<Kernel<R>> {
    fn bias<'a, R: Real>(v: &[View<'a, R>]) -> Result<Option<(&'a [R], &'a [usize])>> {
        v.get(2).map(|b| Ok((b.real()?, b.shape))).transpose()
    }
    let rows = inputs[0].at(1).and_then(|shape| element_count(&shape[..shape.len().saturating_sub(1)]));
    if let Some(View { shape: &[a, b], data: Slice::Real(weights) }) = constants[1]
        && constants[0].is_none()
        && !trans_a
        && rows.is_some_and(|rows| rows >= MIN_ROWS)
        && a * b > 0
    {
        let packed = PackedProduct::pack(weights, [a, b], trans_b);
        let run = move |v: &[View<'_, R>], epilogue: Option<&Epilogue<'_, R>>, out: &mut ViewMut<'_, R>| {
            let shape = out.shape;
            packed.run(v[0].real()?, bias(v)?, epilogue, (out.real()?, shape))
        };
        let kernel = Kernel::named_with_epilogue(|_| "packed matrix product", run);
        return Ok(Kernel { holds_weights: true, ..kernel });
    }
    Ok(Kernel::new("matrix product", move |v, out| {
        let shape = out.shape;
        let (a, b) = ((v[0].real()?, v[0].shape), (v[1].real()?, v[1].shape));
        Product { trans_a, trans_b }.run(a, b, bias(v)?, (out.real()?, shape))
    }))
}

fn batch_norm<R: Real>(epsilon: f64, constants: &[Option<View<'_, R>>]) -> Result<Kernel<R>> {
    let parameters = move |v: &[View<'_, R>]| {
        Ok(ScaleShift::new(epsilon, v[0].real()?, v[1].real()?, v[2].real()?, v[3].real()?))
    };
    let known: Option<Vec<View<'_, R>>> = constants[1..].iter().copied().collect();
    let ready = known.map(|v| parameters(&v)).transpose()?;
    Ok(Kernel::new("batch norm", move |v, out| {
        let x = (v[0].real()?, v[0].shape);
        match &ready {
            Some(ready) => ready.run(x, out.real()?),
            None => parameters(&v[1..])?.run(x, out.real()?),
        }
        Ok(())
    }))
}

fn layer_norm<R: Real>(axis: usize, epsilon: f64) -> Kernel<R> {
    Kernel::new("layer norm", move |v, out| {
        let normalised = &v[0].shape[axis..];
        let full = |parameter: &View<'_, R>| {
            let mut expanded = filled(R::ZERO, normalised.iter().product());
            broadcast::expand((parameter.real()?, parameter.shape), (&mut expanded, normalised))?;
            Ok(expanded)
        };
        let scale = full(&v[1])?;
        let bias = v.get(2).map(full).transpose()?;
        norm::layer_norm(epsilon, v[0].real()?, &scale, bias.as_deref(), out.real()?);
        Ok(())
    })
}

fn softmax_kernel<R: Real>(logarithm: bool, axis: usize) -> Kernel<R> {
    Kernel::new("softmax", move |v, out| {
        softmax::softmax(logarithm, axis, (v[0].real()?, v[0].shape), out.real()?);
        Ok(())
    })
}

/// A kernel that slides a window over its first input. `run` is given the output and its shape.
fn pooling<R: Real>(
    run: impl Fn(&[View<'_, R>], &mut [R], &[usize]) -> Result<()> + Send + Sync + 'static,
) -> Kernel<R> {
    Kernel::new("pool", move |v, out| {
        if v[0].real()?.is_empty() {
            let shape = v[0].shape;
            return Err(Error::shape(format!("there is nothing to pool in a value of shape {shape:?}")));
        }
        let shape = out.shape;
        run(v, out.real()?, shape)
    })
}

fn concat<R: Real>(axis: usize, v: &[View<'_, R>], out: &mut ViewMut<'_, R>) -> Result<()> {
    match &mut out.data {
        SliceMut::Real(out) => {
            let parts: Result<Vec<_>> = v.iter().map(|v| Ok((v.real()?, v.shape))).collect();
            movement::concat(axis, &parts?, out);
        }
        SliceMut::Int(out) => {
            let parts: Result<Vec<_>> = v.iter().map(|v| Ok((v.int()?, v.shape))).collect();
            movement::concat(axis, &parts?, out);
        }
        SliceMut::Bool(out) => {
            let parts: Result<Vec<_>> = v.iter().map(|v| Ok((v.bool()?, v.shape))).collect();
            movement::concat(axis, &parts?, out);
        }
    }
    Ok(())
}

fn pad<R: Real>(
    padding: Padding,
    pads: &[(usize, usize)],
    x: &View<'_, R>,
    out: &mut ViewMut<'_, R>,
) -> Result<()> {
    let constant = match padding {
        Padding::Constant(value) => value,
        Padding::Reflect | Padding::Edge => 0.0,
    };
    match (x.data, &mut out.data) {
        (Slice::Real(v), SliceMut::Real(out)) => {
            movement::pad(padding, R::from_f64(constant), pads, (v, x.shape), out);
        }
        (Slice::Int(v), SliceMut::Int(out)) => {
            movement::pad(padding, constant as i64, pads, (v, x.shape), out);
        }
        (Slice::Bool(v), SliceMut::Bool(out)) => {
            movement::pad(padding, constant != 0.0, pads, (v, x.shape), out);
        }
        _ => return Err(Error::shape("expected input and output of one kind")),
    }
    Ok(())
}
