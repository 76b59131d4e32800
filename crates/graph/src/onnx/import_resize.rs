//! Resizing: sizes and scales resolved per axis, the conventions of every operator set named.

use super::call::{self, Call};
use super::import::Importer;
use super::symbolic_int::SymbolicInt;
use super::value::Value;
use crate::error::{Error, Hint, Result};
use crate::graph::NodeId;
use crate::op::{Coordinates, Interpolation, Op, ResizeAxis, Rounding};
use crate::shape::{Dim, Shape};
use crate::tensor::Tensor;

/// How one axis is asked to change.
#[derive(Clone, Copy)]
enum TargetSize {
    Scale(f64),
    Length(usize),
}

pub(crate) fn upsample(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let x = importer.operand(call, 0)?;
    let shape = importer.shape(x);
    let scales = match call.floats("scales")? {
        Some(scales) => scales,
        None => call.array(1, "scales")?.and_then(|h| h.floats()).unwrap_or_default(),
    };
    let axes = from_scales(&shape, &(0..shape.rank()).collect::<Vec<_>>(), &scales)?;
    finish(importer, x, axes, legacy(call)?, Coordinates::Asymmetric)
}

/// What `Upsample` and the first `Resize` did: the neighbour towards the value's middle.
fn legacy(call: &Call) -> Result<fn(&[ResizeAxis]) -> Interpolation> {
    match call.text("mode", "nearest")?.as_str() {
        "nearest" => Ok(|axes| {
            let shrinks = axes.iter().any(|a| a.scale < 1.0);
            Interpolation::Nearest(if shrinks { Rounding::Ceil } else { Rounding::Floor })
        }),
        "linear" | "bilinear" => Ok(|_| Interpolation::Linear),
        other => Err(Error::unsupported(format!("{} in mode '{other}' is not supported", call.op()))),
    }
}

pub(crate) fn resize(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    if call.opset < 11 {
        return upsample(importer, call);
    }
    let x = importer.operand(call, 0)?;
    let shape = importer.shape(x);
    let named = match call.ints("axes")? {
        Some(axes) => axes.iter().map(|&a| call::axis(a, shape.rank())).collect::<Result<Vec<_>>>()?,
        None => (0..shape.rank()).collect(),
    };
    let scales = call.array(2, "scales")?.and_then(|h| h.floats()).filter(|s| !s.is_empty());
    let sizes = call.extents(3, "sizes")?.filter(|s| !s.is_empty());
    let axes = match (scales, sizes) {
        (_, Some(sizes)) => from_sizes(call, &shape, &named, &sizes)?,
        (Some(scales), None) => from_scales(&shape, &named, &scales)?,
        (None, None) => return Err(Error::malformed("Resize has neither scales nor sizes")),
    };
    let interpolation = interpolation(call)?;
    let coordinates = coordinates(call, &shape, &axes)?;
    if call.flag("antialias", false)? && axes.iter().any(|a| a.scale < 1.0) {
        let excludes = call.flag("exclude_outside", false)?;
        return antialiased(importer, x, &axes, (interpolation, excludes), coordinates);
    }
    let add = move |_: &[ResizeAxis]| interpolation;
    finish(importer, x, axes, add, coordinates)
}

/// A resize that weighs all elements it goes over when it shrinks, as a product with the weights of each axis.
fn antialiased(
    importer: &mut Importer,
    x: NodeId,
    axes: &[ResizeAxis],
    (interpolation, exclude_outside): (Interpolation, bool),
    coordinates: Coordinates,
) -> Result<Vec<Value>> {
    let mut value = x;
    for axis in axes {
        let shape = importer.shape(value);
        let own =
            shape.fixed_at(axis.axis).ok_or_else(|| Error::shape(format!("{shape} cannot be resized")))?;
        importer.spend(own.saturating_mul(axis.length))?;
        let taps =
            axis.antialiased_taps(interpolation, coordinates, own, exclude_outside).ok_or_else(|| {
                Error::unsupported("Resize with antialiasing is supported for linear and cubic interpolation")
            })?;
        let mut weights = vec![0f32; own * axis.length];
        for (to, taps) in taps.iter().enumerate() {
            for &(from, weight) in taps {
                weights[from * axis.length + to] += weight as f32;
            }
        }
        let weights = importer.constant(Tensor::new([own, axis.length], weights)?);
        let last = shape.rank() - 1;
        let mut exchanged: Vec<usize> = (0..=last).collect();
        exchanged.swap(axis.axis, last);
        let exchange = Op::Transpose { axes: exchanged };
        let turned = if axis.axis == last { value } else { importer.add(exchange.clone(), &[value])? };
        let product = importer.add(Op::MatMul { trans_a: false, trans_b: false }, &[turned, weights])?;
        value = if axis.axis == last { product } else { importer.add(exchange, &[product])? };
    }
    Ok(vec![Value::Node(value)])
}

fn finish(
    importer: &mut Importer,
    x: NodeId,
    axes: Vec<ResizeAxis>,
    interpolation: impl Fn(&[ResizeAxis]) -> Interpolation,
    coordinates: Coordinates,
) -> Result<Vec<Value>> {
    if axes.is_empty() {
        return importer.one(Op::Identity, &[x]);
    }
    let interpolation = interpolation(&axes);
    importer.one(Op::Resize { axes, interpolation, coordinates }, &[x])
}

fn interpolation(call: &Call) -> Result<Interpolation> {
    match call.text("mode", "nearest")?.as_str() {
        "nearest" => {
            let rounding = match call.text("nearest_mode", "round_prefer_floor")?.as_str() {
                "round_prefer_floor" => Rounding::PreferFloor,
                "round_prefer_ceil" => Rounding::PreferCeil,
                "floor" => Rounding::Floor,
                "ceil" => Rounding::Ceil,
                other => return Err(Error::malformed(format!("there is no nearest_mode '{other}'"))),
            };
            Ok(Interpolation::Nearest(rounding))
        }
        "linear" => Ok(Interpolation::Linear),
        "cubic" => Ok(Interpolation::Cubic {
            coefficient: call.float("cubic_coeff_a", -0.75)?,
            exclude_outside: call.flag("exclude_outside", false)?,
        }),
        other => Err(Error::malformed(format!("there is no mode '{other}' of Resize"))),
    }
}

fn coordinates(call: &Call, shape: &Shape, axes: &[ResizeAxis]) -> Result<Coordinates> {
    let name = call.text("coordinate_transformation_mode", "half_pixel")?;
    match name.as_str() {
        "half_pixel" => Ok(Coordinates::HalfPixel),
        "pytorch_half_pixel" => Ok(Coordinates::PytorchHalfPixel),
        "align_corners" => Ok(Coordinates::AlignCorners),
        "asymmetric" => Ok(Coordinates::Asymmetric),
        // The symmetric variant differs only where the scale does not give a whole length.
        "half_pixel_symmetric"
            if axes
                .iter()
                .all(|a| shape.fixed_at(a.axis).is_some_and(|n| a.scale == a.length as f64 / n as f64)) =>
        {
            Ok(Coordinates::HalfPixel)
        }
        _ => Err(Error::unsupported(format!(
            "Resize with the coordinates '{name}' is not supported; export it with half_pixel, align_corners or asymmetric"
        ))),
    }
}

fn from_scales(shape: &Shape, named: &[usize], scales: &[f64]) -> Result<Vec<ResizeAxis>> {
    if named.len() != scales.len() {
        return Err(Error::shape(format!("scales {scales:?} do not fit a value of shape {shape}")));
    }
    let targets = named.iter().zip(scales).map(|(&axis, &scale)| (axis, TargetSize::Scale(scale)));
    targets.filter_map(|(axis, target)| resized(shape, axis, target).transpose()).collect()
}

fn from_sizes(call: &Call, shape: &Shape, named: &[usize], sizes: &[SymbolicInt]) -> Result<Vec<ResizeAxis>> {
    if named.len() != sizes.len() {
        return Err(Error::shape(format!("{} sizes do not fit a value of shape {shape}", sizes.len())));
    }
    let mut targets = Vec::new();
    for (&axis, size) in named.iter().zip(sizes) {
        match (shape.dims()[axis], size.dim()) {
            (own, Some(wanted)) if own == wanted => targets.push((axis, TargetSize::Scale(1.0))),
            (Dim::Fixed(_), Some(Dim::Fixed(wanted))) => targets.push((axis, TargetSize::Length(wanted))),
            (Dim::Batch(_), Some(Dim::Fixed(wanted))) => {
                return Err(Error::shape(format!(
                    "the sizes of Resize ask for {wanted} samples along axis {axis} of {shape}; export it with the sizes of the \
                     other axes alone, or with the number of samples taken from the input"
                ))
                .hint(Hint::FIXED_BATCH));
            }
            _ => {
                return Err(Error::shape(format!(
                    "the sizes of Resize make axis {axis} of {shape} depend on the number of samples; export it with a fixed size"
                ))
                .hint(Hint::FIXED_BATCH));
            }
        }
    }
    let policy = call.text("keep_aspect_ratio_policy", "stretch")?;
    if policy != "stretch" {
        let quotient = |&(axis, target): &(usize, TargetSize)| match target {
            TargetSize::Scale(scale) => Some(scale),
            TargetSize::Length(wanted) => Some(wanted as f64 / shape.fixed_at(axis)? as f64),
        };
        let quotients = targets.iter().filter_map(quotient);
        let scale = match policy.as_str() {
            "not_larger" => quotients.fold(f64::INFINITY, f64::min),
            "not_smaller" => quotients.fold(0.0, f64::max),
            other => return Err(Error::malformed(format!("there is no policy '{other}' of Resize"))),
        };
        for (axis, target) in &mut targets {
            if let Some(length) = shape.fixed_at(*axis) {
                *target = TargetSize::Length((scale * length as f64 + 0.5).floor() as usize);
            }
        }
    }
    targets.into_iter().filter_map(|(axis, target)| resized(shape, axis, target).transpose()).collect()
}

/// One axis; `None` if it stays as it is.
fn resized(shape: &Shape, axis: usize, target: TargetSize) -> Result<Option<ResizeAxis>> {
    let bad = || {
        Error::shape(format!(
            "axis {axis} of {shape} cannot be resized so; export it with a scale or a size above 0 along axes of fixed length"
        ))
    };
    if matches!(target, TargetSize::Scale(1.0)) {
        return Ok(None);
    }
    let own = shape.fixed_at(axis).filter(|&n| n > 0).ok_or_else(bad)?;
    let (length, scale) = match target {
        TargetSize::Length(length) => (length, length as f64 / own as f64),
        TargetSize::Scale(scale) => {
            // In single precision, as ONNX Runtime multiplies.
            let length = (own as f32 * scale as f32).floor();
            if !(scale > 0.0 && (1.0..1e9).contains(&length)) {
                return Err(bad());
            }
            (length as usize, scale)
        }
    };
    Ok((length != own || scale != 1.0).then_some(ResizeAxis { axis, length, scale }))
}
