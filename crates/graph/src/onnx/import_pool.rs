//! Pooling; a global pool is a pool whose window is the whole value.

use super::call::Call;
use super::import::Importer;
use super::import_conv::{lengths, window};
use super::value::Value;
use crate::error::{Error, Result};
use crate::op::{Divisor, Op, Window};
use crate::shape::Shape;

fn stated_window(call: &Call, shape: &Shape) -> Result<Window> {
    let kernel = call.ints("kernel_shape")?.ok_or_else(|| Error::malformed("a pool needs a kernel_shape"))?;
    window(call, shape, lengths("kernel_shape", &kernel, kernel.len())?)
}

pub(crate) fn max_pool(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    call.only_first_output("its indices used")?;
    let x = importer.operand(call, 0)?;
    let window = stated_window(call, &importer.shape(x))?;
    importer.one(Op::MaxPool(window), &[x])
}

pub(crate) fn average_pool(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let x = importer.operand(call, 0)?;
    let window = stated_window(call, &importer.shape(x))?;
    let padded = call.flag("count_include_pad", false)?;
    let divisor = if padded { Divisor::Padded } else { Divisor::Covered };
    importer.one(Op::AveragePool { window, divisor }, &[x])
}

pub(crate) fn global_pool(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let x = importer.operand(call, 0)?;
    let shape = importer.shape(x);
    if shape.rank() == 2 {
        return importer.one(Op::Identity, &[x]);
    }
    let kernel: Option<Vec<usize>> = shape.dims().iter().skip(2).map(|d| d.fixed()).collect();
    let kernel = kernel.ok_or_else(|| Error::shape(format!("the spatial axes of {shape} must be fixed")))?;
    let window = Window::new(kernel);
    let op = match call.op() {
        "GlobalMaxPool" => Op::MaxPool(window),
        _ => Op::AveragePool { window, divisor: Divisor::Covered },
    };
    importer.one(op, &[x])
}
