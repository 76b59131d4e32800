//! Normalisations and changes of layout: shapes with a batch in them, resizing, and what older operator sets
//! lack.

use super::export::{Attribute, Exporter, flag, float, int, list, text};
use crate::error::{Error, Result};
use crate::graph::Node;
use crate::op::{Coordinates, Interpolation, Padding, ResizeAxis, Rounding};
use crate::shape::{Dim, Shape};
use crate::tensor::{Kind, Tensor};

/// Whether a `Reshape` leaves the axis of the batch alone, which comes first.
pub(crate) fn keeps_batch(from: &Shape, to: &Shape) -> bool {
    let lead = |shape: &Shape| shape.dims().first().copied().filter(|dim| dim.fixed().is_none());
    let settled = to.dims().iter().skip(1).all(|dim| dim.fixed().is_some_and(|length| length > 0));
    lead(from).is_some() && lead(from) == lead(to) && settled
}

/// The shape a `Reshape` asks for that leaves it alone: zero is the length the axis has, by which readers know the batch.
fn kept_batch(shape: &Shape) -> Vec<i64> {
    shape.dims().iter().map(|dim| dim.fixed().map_or(0, |length| length as i64)).collect()
}

impl Exporter<'_> {
    pub(crate) fn expand(&mut self, shape: &Shape, x: &str) -> Result<()> {
        let target = self.shape_value(shape)?;
        self.finish("Expand", &[x, &target], &[]);
        Ok(())
    }

    pub(crate) fn reshape(&mut self, node: &Node, x: &str) -> Result<()> {
        let zeros = has_zero(&node.shape);
        let target = match keeps_batch(self.input_shape(node, 0), &node.shape) {
            true => self.ints("shape", kept_batch(&node.shape))?,
            false => self.reshape_target(&node.shape)?,
        };
        let attributes: &[Attribute] = if zeros { &[("allowzero", flag(true))] } else { &[] };
        self.finish("Reshape", &[x, &target], attributes);
        Ok(())
    }

    /// The shape a `Reshape` asks for: the axis that depends on the batch is the open one.
    pub(crate) fn reshape_target(&mut self, shape: &Shape) -> Result<String> {
        if has_zero(shape) && (self.opset < 14 || shape.is_batched()) {
            return Err(Error::unsupported(format!("an empty value of shape {shape} cannot be written")));
        }
        let length = |d: &Dim| match d {
            Dim::Fixed(n) => *n as i64,
            Dim::Batch(_) => -1,
        };
        self.ints("shape", shape.dims().iter().map(length).collect())
    }

    pub(crate) fn pad(
        &mut self,
        padding: Padding,
        pads: &[(usize, usize)],
        kind: Kind,
        x: &str,
    ) -> Result<()> {
        let around = pads.iter().map(|p| p.0).chain(pads.iter().map(|p| p.1)).map(|n| n as i64);
        let pads = self.ints("pads", around.collect())?;
        match padding {
            Padding::Constant(value) => {
                let value = match kind {
                    Kind::Float => self.float("value", value)?,
                    Kind::Int => self.constant("value", &Tensor::scalar(value as i64))?,
                    Kind::Bool => self.constant("value", &Tensor::scalar(value != 0.0))?,
                };
                self.finish("Pad", &[x, &pads, &value], &[("mode", text("constant"))]);
            }
            Padding::Reflect => self.finish("Pad", &[x, &pads], &[("mode", text("reflect"))]),
            Padding::Edge => self.finish("Pad", &[x, &pads], &[("mode", text("edge"))]),
        }
        Ok(())
    }

    pub(crate) fn resize(
        &mut self,
        node: &Node,
        axes: &[ResizeAxis],
        interpolation: Interpolation,
        coordinates: Coordinates,
        x: &str,
    ) -> Result<()> {
        let own = self.input_shape(node, 0);
        let mut attributes = vec![("coordinate_transformation_mode", text(coordinates_name(coordinates)))];
        match interpolation {
            Interpolation::Nearest(rounding) => {
                attributes.push(("mode", text("nearest")));
                attributes.push(("nearest_mode", text(rounding_name(rounding))));
            }
            Interpolation::Linear => attributes.push(("mode", text("linear"))),
            Interpolation::Cubic { coefficient, exclude_outside } => {
                attributes.push(("mode", text("cubic")));
                attributes.push(("cubic_coeff_a", float(coefficient)));
                attributes.push(("exclude_outside", flag(exclude_outside)));
            }
        }
        let quotient = |a: &ResizeAxis| own.fixed_at(a.axis).map(|n| a.length as f64 / n as f64);
        if axes.iter().all(|a| quotient(a) == Some(a.scale)) {
            let sizes = self.shape_value(&node.shape)?;
            self.finish("Resize", &[x, "", "", &sizes], &attributes);
            return Ok(());
        }
        let mut scales = vec![1f32; own.rank()];
        for resized in axes {
            let scale = resized.scale as f32;
            if own.fixed_at(resized.axis).map(|n| (n as f32 * scale).floor()) != Some(resized.length as f32) {
                return Err(Error::unsupported(format!(
                    "a scale of {scale} does not give axis {} the length {}",
                    resized.axis, resized.length
                )));
            }
            scales[resized.axis] = scale;
        }
        let scales = self.scales(scales)?;
        self.finish("Resize", &[x, "", &scales], &attributes);
        Ok(())
    }

    /// A group or instance normalisation.
    pub(crate) fn group_norm(
        &mut self,
        node: &Node,
        groups: usize,
        epsilon: f64,
        inputs: &[&str],
    ) -> Result<()> {
        let shape = self.input_shape(node, 0);
        let epsilon = ("epsilon", float(epsilon));
        if has_zero(shape) {
            self.finish("Identity", &inputs[..1], &[]);
            return Ok(());
        }
        let channels = shape.fixed_at(1).unwrap_or(0);
        if groups == channels {
            self.finish("InstanceNormalization", inputs, &[epsilon]);
            return Ok(());
        }
        if self.opset >= 21 {
            self.finish("GroupNormalization", inputs, &[("num_groups", int(groups)), epsilon]);
            return Ok(());
        }
        let rest = Shape::new(&shape.dims()[1..]).count().and_then(|n| n.over(Dim::Fixed(groups)));
        let rest = rest.ok_or_else(|| Error::shape(format!("{shape} cannot be put into {groups} groups")))?;
        let grouped = self.reshape_target(&Shape::new([shape.dims()[0], Dim::Fixed(groups), rest]))?;
        let full = self.reshape_target(shape)?;
        let mut column = vec![channels as i64];
        column.resize(shape.rank() - 1, 1);
        let column = self.ints("column", column)?;
        let one = self.constant("one", &Tensor::vector(vec![1f32; groups]))?;
        let zero = self.constant("zero", &Tensor::vector(vec![0f32; groups]))?;
        let x = self.emit("Reshape", &[inputs[0], &grouped], &[]);
        let normal = self.emit("InstanceNormalization", &[&x, &one, &zero], &[epsilon]);
        let normal = self.emit("Reshape", &[&normal, &full], &[]);
        let scale = self.emit("Reshape", &[inputs[1], &column], &[]);
        let bias = self.emit("Reshape", &[inputs[2], &column], &[]);
        let scaled = self.emit("Mul", &[&normal, &scale], &[]);
        self.finish("Add", &[&scaled, &bias], &[]);
        Ok(())
    }

    /// A layer normalisation.
    pub(crate) fn layer_norm(
        &mut self,
        node: &Node,
        axis: usize,
        epsilon: f64,
        inputs: &[&str],
    ) -> Result<()> {
        if self.opset >= 17 {
            self.finish("LayerNormalization", inputs, &[("axis", int(axis)), ("epsilon", float(epsilon))]);
            return Ok(());
        }
        let axes = || list(axis..node.shape.rank());
        let small = self.float("epsilon", epsilon)?;
        let mean = self.emit("ReduceMean", &[inputs[0]], &[("axes", axes()), ("keepdims", flag(true))]);
        let centred = self.emit("Sub", &[inputs[0], &mean], &[]);
        let square = self.emit("Mul", &[&centred, &centred], &[]);
        let variance = self.emit("ReduceMean", &[&square], &[("axes", axes()), ("keepdims", flag(true))]);
        let shifted = self.emit("Add", &[&variance, &small], &[]);
        let deviation = self.emit("Sqrt", &[&shifted], &[]);
        let normal = self.emit("Div", &[&centred, &deviation], &[]);
        match inputs.get(2) {
            None => self.finish("Mul", &[&normal, inputs[1]], &[]),
            Some(bias) => {
                let scaled = self.emit("Mul", &[&normal, inputs[1]], &[]);
                self.finish("Add", &[&scaled, bias], &[]);
            }
        }
        Ok(())
    }
}

fn has_zero(shape: &Shape) -> bool {
    shape.dims().contains(&Dim::Fixed(0))
}

fn coordinates_name(coordinates: Coordinates) -> &'static str {
    match coordinates {
        Coordinates::HalfPixel => "half_pixel",
        Coordinates::PytorchHalfPixel => "pytorch_half_pixel",
        Coordinates::AlignCorners => "align_corners",
        Coordinates::Asymmetric => "asymmetric",
    }
}

fn rounding_name(rounding: Rounding) -> &'static str {
    match rounding {
        Rounding::PreferFloor => "round_prefer_floor",
        Rounding::PreferCeil => "round_prefer_ceil",
        Rounding::Floor => "floor",
        Rounding::Ceil => "ceil",
    }
}
