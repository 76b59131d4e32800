//! Which kernel runs a node. Chosen once, when a graph is compiled; what can be computed then from constant
//! operands is computed then.

use std::sync::Arc;

use monosplit_graph::op::{Padding, Window};
use monosplit_graph::{Error, Node, Op, Result, element_count};
use rayon::prelude::*;

use super::broadcast::GRAIN;
use super::conv::Finish;
use super::conv_transpose::PackedTranspose;
use super::correlation::Correlation;
use super::depthwise::Depthwise;
use super::frames::Planar;
use super::level::Level;
use super::matmul::Product;
use super::norm::{LocalResponse, ScaleShift};
use super::prepared::{Compartment, PreparedConvolution, Shelf};
use super::winograd_gradient::KernelGradient;
use super::winograd_transform::Size;
use super::{activation, broadcast, elementwise, movement, norm, pool, reduce, resize, softmax};
use crate::cpu::real::Real;
use crate::cpu::value::{Slice, SliceMut, View, ViewMut};

type Run<R> = dyn Fn(&[View<'_, R>], &mut ViewMut<'_, R>) -> Result<()> + Send + Sync;
type RunAndFinish<R> =
    dyn Fn(&[View<'_, R>], Option<&Finish<'_, R>>, &mut ViewMut<'_, R>) -> Result<()> + Send + Sync;
type RunInPlace<R> = dyn Fn(&mut ViewMut<'_, R>) -> Result<()> + Send + Sync;

/// What runs a node.
pub(crate) struct Kernel<R> {
    /// Its name in profiles.
    pub(crate) name: &'static str,
    /// Reads the node's inputs, overwrites its output.
    pub(crate) run: Box<Run<R>>,
    /// The same for a node that may overwrite its only input.
    pub(crate) in_place: Option<Box<RunInPlace<R>>>,
    /// Whether it keeps the weights, its second input, in a layout of its own and reads no more than their shape.
    pub(crate) holds_weights: bool,
    /// The same for a node that can hand on every piece of its output as soon as it is computed, and the whole of
    /// it piece by piece.
    and_finish: Option<Arc<RunAndFinish<R>>>,
    /// The convolution that it computes, if its weights are known.
    pub(crate) convolution: Option<Arc<PreparedConvolution<R>>>,
}

impl<R: Real> Kernel<R> {
    fn new(
        name: &'static str,
        run: impl Fn(&[View<'_, R>], &mut ViewMut<'_, R>) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        Kernel {
            name,
            run: Box::new(run),
            in_place: None,
            and_finish: None,
            holds_weights: false,
            convolution: None,
        }
    }

    /// A kernel that can hand on what it has computed piece by piece.
    fn finishing(
        name: &'static str,
        run: impl Fn(&[View<'_, R>], Option<&Finish<'_, R>>, &mut ViewMut<'_, R>) -> Result<()>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let run: Arc<RunAndFinish<R>> = Arc::new(run);
        let and_finish = Some(run.clone());
        Kernel { and_finish, ..Kernel::new(name, move |v, out| run(v, None, out)) }
    }

    /// Computes the output and finishes it: every piece as soon as it is there, if the kernel can, or else all of it
    /// afterwards.
    pub(crate) fn run_and_finish(
        &self,
        inputs: &[View<'_, R>],
        finish: &Finish<'_, R>,
        out: &mut ViewMut<'_, R>,
    ) -> Result<()> {
        if let Some(run) = &self.and_finish {
            return run(inputs, Some(finish), out);
        }
        (self.run)(inputs, out)?;
        out.real()?.par_chunks_mut(GRAIN).enumerate().for_each(|(at, piece)| finish.piece(at * GRAIN, piece));
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

/// The most taps a window may have: beyond it lies no network, only a file that wants to exhaust the machine.
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
///
/// `shelf` is where transforms of its second input are kept.
pub(crate) fn choose<R: Real>(
    node: &Node,
    constants: &[Option<View<'_, R>>],
    shelf: &Compartment<'_, R>,
) -> Result<Kernel<R>> {
    check_window(&node.op)?;
    match node.op.clone() {
        Op::Input | Op::Constant(_) => Err(Error::argument("inputs and constants are not computed")),
        Op::Conv { window, groups } => convolution(window, groups, node, constants, shelf),
        Op::ConvTranspose { window, groups, output_padding } => {
            transposed_convolution(window, groups, &output_padding, node, constants, shelf)
        }
        Op::MatMul { trans_a, trans_b } => Ok(Kernel::new("matrix product", move |v, out| {
            let bias = v.get(2).map(|b| Ok((b.real()?, b.shape))).transpose()?;
            let shape = out.shape;
            Product { trans_a, trans_b }.run(
                (v[0].real()?, v[0].shape),
                (v[1].real()?, v[1].shape),
                bias,
                (out.real()?, shape),
            )
        })),
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
        // The plan lets these share the memory of what they read, and copies only a value that must leave.
        Op::Reshape { .. } | Op::Identity | Op::Dropout { .. } => Ok(Kernel::new("copy", |v, out| {
            of_any_kind!(v[0], out, |x, out| out.copy_from_slice(x));
            Ok(())
        })),
    }
}

/// The size of the planes of a convolution's output, if it is known and the convolution may be transformed. Not if it depends
/// on no input: the same window would give sums that differ in their last digits from place to place, and what ties, on an even
/// baseline for instance, must go on to tie.
fn transformable<R: Real>(node: &Node, shelf: &Compartment<'_, R>) -> Option<Vec<usize>> {
    plane(node).filter(|_| !shelf.is_accurate() && !node.is_constant())
}

/// The size of the planes of a node's value, where it is known.
fn plane(node: &Node) -> Option<Vec<usize>> {
    node.shape.dims().get(2..)?.iter().map(|dim| dim.fixed()).collect()
}

fn convolution<R: Real>(
    window: Window,
    groups: usize,
    node: &Node,
    constants: &[Option<View<'_, R>>],
    shelf: &Compartment<'_, R>,
) -> Result<Kernel<R>> {
    match &constants[1] {
        Some(w) => {
            let w = (w.real()?, w.shape);
            let output = transformable(node, shelf);
            let output = output.as_deref().map(|output| (output, shelf));
            Ok(prepared(PreparedConvolution::new(&window, groups, w, output)))
        }
        None if node.inputs.len() == 2 && Correlation::suits(&window, plane(node).as_deref()) => {
            let accurate = shelf.is_accurate();
            Ok(Kernel::new("conv, turned round", move |v, out| {
                if R::FAST
                    && !accurate
                    && KernelGradient::suits(&window, groups, v[0].shape, v[1].shape, out.shape)
                {
                    let kernel = KernelGradient::new(Size::Four, &window, v[0].shape, v[1].shape);
                    kernel.run(v[0].real()?, v[1].real()?, out.real()?);
                    return Ok(());
                }
                let kernel = Correlation::new(&window, groups, v[0].shape, v[1].shape, out.shape);
                kernel.run(v[0].real()?, v[1].real()?, out.real()?);
                Ok(())
            }))
        }
        None => {
            let (planes, weights) = (transformable(node, shelf).filter(|_| is_many(node)), node.inputs[1]);
            Ok(Kernel::new("conv, prepared at run", move |v, out| {
                let w = (v[1].real()?, v[1].shape);
                let shelf = Shelf::new(false, 1);
                let kept = shelf.of(weights);
                let output = planes.as_deref().map(|planes| (planes, &kept));
                run_prepared(&PreparedConvolution::new(&window, groups, w, output), v, None, out)
            }))
        }
    }
}

fn transposed_convolution<R: Real>(
    window: Window,
    groups: usize,
    output_padding: &[usize],
    node: &Node,
    constants: &[Option<View<'_, R>>],
    shelf: &Compartment<'_, R>,
) -> Result<Kernel<R>> {
    let turned = match &constants[1] {
        Some(w) => {
            let w = (w.real()?, w.shape);
            let output = transformable(node, shelf);
            let output = output.as_deref().map(|output| (output, shelf));
            PreparedConvolution::transposed(&window, groups, w, output)
        }
        None => None,
    };
    if let Some(turned) = turned {
        return Ok(prepared(turned));
    }
    if constants[1].is_none() && is_many(node) && window.stride.iter().all(|&stride| stride == 1) {
        return Ok(transposed_at_run(window, groups, node, shelf));
    }
    // What is beyond all that is read would be laid out as zeros.
    let near = output_padding.iter().zip(&window.stride).all(|(beyond, stride)| beyond < stride);
    let pack = move |window: &Window, w: &View<'_, R>| {
        Ok::<_, Error>(PackedTranspose::new(Level::best(), window, groups, near, (w.real()?, w.shape)))
    };
    let direct =
        |w: &View<'_, R>| groups > 1 && w.shape[..2] == [groups, 1] && Planar::new(&window).is_some();
    let known = constants[1].filter(|w| !direct(w)).map(|w| pack(&window, &w)).transpose()?;
    let otherwise =
        if constants[1].is_some() { "conv transpose, depthwise" } else { "conv transpose, packed at run" };
    let name = known.as_ref().map_or(otherwise, PackedTranspose::name);
    // The direct way through a strided depthwise convolution reads the weights as they are.
    let holds_weights = constants[1].is_some_and(|w| groups == 1 || w.shape[..2] != [groups, 1]);
    let run = move |v: &[View<'_, R>], finish: Option<&Finish<'_, R>>, out: &mut ViewMut<'_, R>| {
        let depthwise = groups > 1 && v[1].shape[..2] == [groups, 1];
        let direct = depthwise.then(|| Depthwise::transposed(&window, v[0].shape, out.shape)).flatten();
        if let Some(kernel) = direct {
            let bias = v.get(2).map(|b| b.real()).transpose()?;
            kernel.run(v[0].real()?, v[1].real()?, bias, finish, out.real()?);
            return Ok(());
        }
        match &known {
            Some(w) => run_transpose(w, &window, v, finish, out),
            None => run_transpose(&pack(&window, &v[1])?, &window, v, finish, out),
        }
    };
    Ok(Kernel { holds_weights, ..Kernel::finishing(name, run) })
}

fn run_transpose<R: Real>(
    w: &PackedTranspose<R>,
    window: &Window,
    v: &[View<'_, R>],
    finish: Option<&Finish<'_, R>>,
    out: &mut ViewMut<'_, R>,
) -> Result<()> {
    let bias = v.get(2).map(|b| b.real()).transpose()?;
    let shape = out.shape;
    w.run(window, (v[0].real()?, v[0].shape), bias, finish, (out.real()?, shape));
    Ok(())
}

/// Whether the batch is known to be so large that preparing a kernel that is computed itself costs little beside it.
fn is_many(node: &Node) -> bool {
    const MANY: usize = 16;
    node.shape.fixed_at(0).is_some_and(|samples| samples >= MANY)
}

/// The gradient of a batch with respect to what a convolution read, its kernel being trained.
fn transposed_at_run<R: Real>(
    window: Window,
    groups: usize,
    node: &Node,
    shelf: &Compartment<'_, R>,
) -> Kernel<R> {
    let (planes, weights) = (transformable(node, shelf), node.inputs[1]);
    Kernel::new("conv transpose, prepared at run", move |v, out| {
        let w = (v[1].real()?, v[1].shape);
        let shelf = Shelf::new(false, 1);
        let kept = shelf.of(weights);
        let output = planes.as_deref().map(|planes| (planes, &kept));
        match PreparedConvolution::transposed(&window, groups, w, output) {
            Some(turned) => run_prepared(&turned, v, None, out),
            None => {
                let packed = PackedTranspose::new(Level::best(), &window, groups, true, w);
                run_transpose(&packed, &window, v, None, out)
            }
        }
    })
}

fn prepared<R: Real>(convolution: PreparedConvolution<R>) -> Kernel<R> {
    let (name, convolution) = (convolution.name(), Arc::new(convolution));
    let held = convolution.clone();
    let kernel = Kernel::finishing(name, move |v, finish, out| run_prepared(&held, v, finish, out));
    Kernel { holds_weights: true, convolution: Some(convolution), ..kernel }
}

fn run_prepared<R: Real>(
    convolution: &PreparedConvolution<R>,
    v: &[View<'_, R>],
    finish: Option<&Finish<'_, R>>,
    out: &mut ViewMut<'_, R>,
) -> Result<()> {
    let bias = v.get(2).map(|b| b.real()).transpose()?;
    let shape = out.shape;
    convolution.run((v[0].real()?, v[0].shape), bias, finish, (out.real()?, shape));
    Ok(())
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
            let mut expanded = vec![R::ZERO; normalised.iter().product()];
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
