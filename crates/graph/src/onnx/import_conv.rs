//! Convolutions and the windows they share with pooling: defaults filled in, automatic padding resolved.

use super::call::Call;
use super::import::Importer;
use super::value::Value;
use crate::error::{Error, Result};
use crate::op::{Op, Window};
use crate::shape::Shape;

/// The window of a convolution or pool over a value of this shape.
pub(crate) fn window(call: &Call, shape: &Shape, kernel: Vec<usize>) -> Result<Window> {
    let axes = kernel.len();
    if shape.rank() != axes + 2 {
        return Err(Error::shape(format!(
            "a window over {axes} spatial axes does not fit a value of shape {shape}"
        )));
    }
    let mut window = Window::new(kernel);
    window.stride = positive(call, "strides", axes)?;
    window.dilation = positive(call, "dilations", axes)?;
    window.ceil = call.flag("ceil_mode", false)?;
    match call.text("auto_pad", "NOTSET")?.as_str() {
        "NOTSET" | "" => {
            let pads = call.ints("pads")?.unwrap_or_else(|| vec![0; 2 * axes]);
            let pads = lengths("pads", &pads, 2 * axes)?;
            window.pad = (0..axes).map(|i| (pads[i], pads[i + axes])).collect();
        }
        "VALID" => {}
        same @ ("SAME_UPPER" | "SAME_LOWER") => {
            for axis in 0..axes {
                window.pad[axis] = same_padding(&window, axis, shape, same == "SAME_UPPER")?;
            }
        }
        other => return Err(Error::malformed(format!("there is no automatic padding '{other}'"))),
    }
    Ok(window)
}

fn same_padding(window: &Window, axis: usize, shape: &Shape, upper: bool) -> Result<(usize, usize)> {
    let refused = || Error::shape(format!("a window over axis {} of {shape} cannot be padded", axis + 2));
    let length = shape.fixed_at(axis + 2).ok_or_else(refused)?;
    let stride = window.stride[axis];
    let reach = length
        .div_ceil(stride)
        .checked_sub(1)
        .and_then(|n| n.checked_mul(stride))
        .and_then(|n| n.checked_add(window.span(axis)?))
        .ok_or_else(refused)?;
    let total = reach.saturating_sub(length);
    let small = total / 2;
    Ok(if upper { (small, total - small) } else { (total - small, small) })
}

/// An attribute with one length for each of `count` axes.
pub(crate) fn lengths(name: &str, values: &[i64], count: usize) -> Result<Vec<usize>> {
    let converted: Option<Vec<usize>> = values.iter().map(|&v| usize::try_from(v).ok()).collect();
    converted.filter(|v| v.len() == count).ok_or_else(|| {
        Error::unsupported(format!("{name} {values:?} should be {count} numbers, none of them negative"))
    })
}

fn positive(call: &Call, name: &str, count: usize) -> Result<Vec<usize>> {
    let values = call.ints(name)?.unwrap_or_else(|| vec![1; count]);
    let values = lengths(name, &values, count)?;
    if values.contains(&0) {
        return Err(Error::malformed(format!("{name} {values:?} should be positive")));
    }
    Ok(values)
}

fn groups(call: &Call) -> Result<usize> {
    let groups = call.int("group", 1)?;
    usize::try_from(groups)
        .map_err(|_| Error::malformed(format!("a convolution cannot have {groups} groups")))
}

fn kernel(call: &Call, weight: &Shape) -> Result<Vec<usize>> {
    let own: Option<Vec<usize>> = weight.dims().iter().skip(2).map(|d| d.fixed()).collect();
    let own = own.ok_or_else(|| Error::shape(format!("a kernel of shape {weight} is not fixed")))?;
    if let Some(stated) = call.ints("kernel_shape")?.filter(|s| !s.is_empty())
        && lengths("kernel_shape", &stated, own.len())? != own
    {
        return Err(Error::malformed(format!(
            "kernel_shape {stated:?} does not fit a weight of shape {weight}"
        )));
    }
    Ok(own)
}

pub(crate) fn conv(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let operands = importer.operands(call, 3)?;
    let [x, w, ..] = operands[..] else { return Err(Error::malformed("Conv reads at least two values")) };
    let kernel = kernel(call, &importer.shape(w))?;
    let mut window = window(call, &importer.shape(x), kernel)?;
    window.ceil = false;
    importer.one(Op::Conv { window, groups: groups(call)? }, &operands)
}

pub(crate) fn conv_transpose(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let operands = importer.operands(call, 3)?;
    let [x, w, ..] = operands[..] else {
        return Err(Error::malformed("ConvTranspose reads at least two values"));
    };
    let kernel = kernel(call, &importer.shape(w))?;
    let shape = importer.shape(x);
    let axes = kernel.len();
    if shape.rank() != axes + 2 {
        return Err(Error::shape(format!("a kernel over {axes} axes does not fit a value of shape {shape}")));
    }
    let mut window = Window::new(kernel);
    window.stride = positive(call, "strides", axes)?;
    window.dilation = positive(call, "dilations", axes)?;
    let extra = call.ints("output_padding")?.unwrap_or_else(|| vec![0; axes]);
    let mut output_padding = lengths("output_padding", &extra, axes)?;
    transposed_padding(call, &shape, &mut window, &mut output_padding)?;
    importer.one(Op::ConvTranspose { window, groups: groups(call)?, output_padding }, &operands)
}

fn transposed_padding(call: &Call, shape: &Shape, window: &mut Window, extra: &mut [usize]) -> Result<()> {
    let axes = window.axes();
    let auto_pad = call.text("auto_pad", "NOTSET")?;
    let wanted = match (call.ints("output_shape")?, auto_pad.as_str()) {
        (Some(wanted), _) if !wanted.is_empty() => {
            let spatial = &wanted[wanted.len().saturating_sub(axes)..];
            Some(lengths("output_shape", spatial, axes)?)
        }
        (_, "SAME_UPPER" | "SAME_LOWER") => {
            let scaled = |i: usize| shape.fixed_at(i + 2).and_then(|n| n.checked_mul(window.stride[i]));
            let scaled: Option<Vec<usize>> = (0..axes).map(scaled).collect();
            Some(scaled.ok_or_else(|| Error::shape(format!("the spatial axes of {shape} must be fixed")))?)
        }
        _ => None,
    };
    let Some(wanted) = wanted else {
        if auto_pad != "VALID" {
            let pads = call.ints("pads")?.unwrap_or_else(|| vec![0; 2 * axes]);
            let pads = lengths("pads", &pads, 2 * axes)?;
            window.pad = (0..axes).map(|i| (pads[i], pads[i + axes])).collect();
        }
        return Ok(());
    };
    for axis in 0..axes {
        let full = shape
            .fixed_at(axis + 2)
            .and_then(|n| n.checked_sub(1)?.checked_mul(window.stride[axis]))
            .and_then(|n| n.checked_add(window.span(axis)?)?.checked_add(extra[axis]))
            .ok_or_else(|| {
                Error::shape(format!("a window over axis {} of {shape} cannot be padded", axis + 2))
            })?;
        let total = full.saturating_sub(wanted[axis]);
        extra[axis] += wanted[axis].saturating_sub(full);
        let small = total / 2;
        window.pad[axis] =
            if auto_pad == "SAME_UPPER" { (small, total - small) } else { (total - small, small) };
    }
    Ok(())
}
