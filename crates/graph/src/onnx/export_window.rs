//! Convolutions and pools, and the transposes and selections ONNX has no op for.

use super::export::{Attribute, Exporter, flag, int, list};
use crate::error::{Error, Result};
use crate::graph::Node;
use crate::op::{Divisor, Window};
use crate::shape::Shape;
use crate::tensor::Tensor;

/// The most elements written out for a pool that ONNX has no op for.
const MAX_WRITTEN_OUT: usize = 1 << 24;

fn too_large_a_window(window: &Window) -> Error {
    Error::unsupported(format!("a pool of windows of {:?} is too large to be written in ONNX", window.kernel))
}

fn window_attributes(window: &Window) -> Vec<Attribute<'static>> {
    let pads = window.pad.iter().map(|p| p.0).chain(window.pad.iter().map(|p| p.1));
    vec![
        ("kernel_shape", list(window.kernel.iter().copied())),
        ("strides", list(window.stride.iter().copied())),
        ("dilations", list(window.dilation.iter().copied())),
        ("pads", list(pads)),
    ]
}

/// The attributes of a pool whose padding counts for nothing. The checker also counts a last position that
/// begins past the value, which nobody computes; where it would, the positions are stated by padding instead.
fn pool_attributes(window: &Window, spatial: &[usize]) -> Vec<Attribute<'static>> {
    let floor = Window { ceil: false, ..window.clone() };
    let axes = || spatial.iter().enumerate();
    let matters = axes().any(|(axis, &n)| window.positions(axis, n) != floor.positions(axis, n));
    let miscounted = axes().any(|(axis, &n)| {
        let room =
            (n + window.pad[axis].0 + window.pad[axis].1).saturating_sub(window.span(axis).unwrap_or(1));
        Some(room.div_ceil(window.stride[axis]) + 1) != window.positions(axis, n)
    });
    let mut stated = floor;
    if matters && miscounted && axes().all(|(axis, &n)| reach(window, axis, n) < window.kernel[axis]) {
        axes().for_each(|(axis, &n)| stated.pad[axis].1 = reach(window, axis, n));
    } else {
        stated.ceil = matters;
    }
    let mut attributes = window_attributes(&stated);
    attributes.push(("ceil_mode", flag(stated.ceil)));
    attributes
}

impl Exporter<'_> {
    pub(crate) fn conv(&mut self, window: &Window, groups: usize, inputs: &[&str]) {
        let mut attributes = window_attributes(window);
        attributes.push(("group", int(groups)));
        self.finish("Conv", inputs, &attributes);
    }

    pub(crate) fn conv_transpose(
        &mut self,
        window: &Window,
        groups: usize,
        extra: &[usize],
        inputs: &[&str],
    ) {
        let mut attributes = window_attributes(window);
        attributes.push(("group", int(groups)));
        attributes.push(("output_padding", list(extra.iter().copied())));
        self.finish("ConvTranspose", inputs, &attributes);
    }

    pub(crate) fn max_pool(&mut self, node: &Node, window: &Window, inputs: &[&str]) -> Result<()> {
        let attributes = pool_attributes(window, &spatial(self.input_shape(node, 0))?);
        self.finish("MaxPool", inputs, &attributes);
        Ok(())
    }

    pub(crate) fn average_pool(
        &mut self,
        node: &Node,
        window: &Window,
        divisor: Divisor,
        x: &str,
    ) -> Result<()> {
        let shape = self.input_shape(node, 0);
        let spatial = spatial(shape)?;
        let dilated = window.dilation.iter().any(|&d| d != 1);
        let overhangs =
            window.ceil && (0..window.axes()).any(|axis| overhang(window, axis, spatial[axis]) > 0);
        let native = divisor != Divisor::One
            && (!dilated || self.opset >= 19)
            && !(overhangs && divisor == Divisor::Padded);
        if native {
            let mut attributes = pool_attributes(window, &spatial);
            attributes.retain(|(name, _)| *name != "dilations" || dilated);
            attributes.push(("count_include_pad", flag(divisor == Divisor::Padded)));
            self.finish("AveragePool", &[x], &attributes);
            return Ok(());
        }
        let ones = self.ones(shape, window)?;
        let mut reaching = window.clone();
        for (axis, &length) in spatial.iter().enumerate() {
            reaching.pad[axis].1 = reach(window, axis, length);
        }
        let mut attributes = window_attributes(&reaching);
        attributes.push(("group", int(channels(shape)?)));
        if divisor == Divisor::One {
            self.finish("Conv", &[x, &ones], &attributes);
            return Ok(());
        }
        let sum = self.emit("Conv", &[x, &ones], &attributes);
        let counts = self.divisor_map(window, &spatial, divisor)?;
        self.finish("Div", &[&sum, &counts], &[]);
        Ok(())
    }

    pub(crate) fn average_pool_transpose(
        &mut self,
        node: &Node,
        window: &Window,
        divisor: Divisor,
        spatial: &[usize],
        y: &str,
    ) -> Result<()> {
        let shape = self.input_shape(node, 0);
        let ones = self.ones(shape, window)?;
        let mut source = y.to_owned();
        if divisor != Divisor::One {
            let counts = self.divisor_map(window, spatial, divisor)?;
            source = self.emit("Div", &[y, &counts], &[]);
        }
        let (mut back, mut extra) = (window.clone(), vec![0; window.axes()]);
        for axis in 0..window.axes() {
            let positions = shape.fixed_at(axis + 2).unwrap_or(1);
            let full = positions.saturating_sub(1) * window.stride[axis] + window.span(axis).unwrap_or(1);
            let wanted = window.pad[axis].0 + spatial[axis];
            back.pad[axis].1 = full.saturating_sub(wanted);
            extra[axis] = wanted.saturating_sub(full);
        }
        let mut attributes = window_attributes(&back);
        attributes.push(("group", int(channels(shape)?)));
        attributes.push(("output_padding", list(extra)));
        self.finish("ConvTranspose", &[&source, &ones], &attributes);
        Ok(())
    }

    fn ones(&mut self, shape: &Shape, window: &Window) -> Result<String> {
        let mut dims = vec![channels(shape)?, 1];
        dims.extend(&window.kernel);
        if crate::tensor::element_count(&dims).is_none_or(|n| n > MAX_WRITTEN_OUT) {
            return Err(too_large_a_window(window));
        }
        // The runtime writes them out when it loads the file.
        let one = self.constant("one", &Tensor::scalar(1f32))?;
        let shape = self.ints("shape", dims.iter().map(|&n| n as i64).collect())?;
        Ok(self.emit("Expand", &[&one, &shape], &[]))
    }

    fn divisor_map(&mut self, window: &Window, spatial: &[usize], divisor: Divisor) -> Result<String> {
        let work: Option<usize> = (0..window.axes()).try_fold(1usize, |work, axis| {
            let taps = window.positions(axis, spatial[axis])?.checked_mul(window.kernel[axis])?;
            work.checked_mul(taps.max(1))
        });
        if work.is_none_or(|work| work > MAX_WRITTEN_OUT) {
            return Err(too_large_a_window(window));
        }
        let along = window.divisors(spatial, divisor);
        let mut counts = vec![1f64];
        for axis in &along {
            counts = counts.iter().flat_map(|&c| axis.iter().map(move |&n| c * n.max(1) as f64)).collect();
        }
        let dims: Vec<usize> = [1, 1].into_iter().chain(along.iter().map(Vec::len)).collect();
        self.constant("divisor", &Tensor::new(dims, counts)?)
    }

    /// The position of every winner in the flattened value.
    fn winners(&mut self, node: &Node, window: &Window, a: &str) -> Result<String> {
        let attributes = pool_attributes(window, &spatial(self.input_shape(node, 0))?);
        Ok(self.emit_two("MaxPool", &[a], &attributes).1)
    }

    pub(crate) fn winner_gather(&mut self, node: &Node, window: &Window, inputs: &[&str]) -> Result<()> {
        let indices = self.winners(node, window, inputs[0])?;
        let flat = self.ints("flat", vec![-1])?;
        let values = self.emit("Reshape", &[inputs[1], &flat], &[]);
        self.finish("Gather", &[&values, &indices], &[("axis", int(0))]);
        Ok(())
    }

    pub(crate) fn winner_scatter(&mut self, node: &Node, window: &Window, inputs: &[&str]) -> Result<()> {
        if self.opset < 16 {
            return Err(Error::unsupported(format!(
                "adding where a maximum was found needs operator set 16 or newer, not {}",
                self.opset
            )));
        }
        let indices = self.winners(node, window, inputs[0])?;
        let flat = self.ints("flat", vec![-1])?;
        let indices = self.emit("Reshape", &[&indices, &flat], &[]);
        let updates = self.emit("Reshape", &[inputs[1], &flat], &[]);
        let size = self.emit("Size", &[inputs[0]], &[]);
        let size = self.emit("Reshape", &[&size, &flat], &[]);
        let zero = self.constant("zero", &Tensor::scalar(0f32))?;
        let empty = self.emit("Expand", &[&zero, &size], &[]);
        let attributes = [("axis", int(0)), ("reduction", super::export::text("add"))];
        let sums = self.emit("ScatterElements", &[&empty, &indices, &updates], &attributes);
        let shape = self.reshape_target(&node.shape)?;
        self.finish("Reshape", &[&sums, &shape], &[]);
        Ok(())
    }
}

fn spatial(shape: &Shape) -> Result<Vec<usize>> {
    let lengths: Option<Vec<usize>> = shape.dims().iter().skip(2).map(|d| d.fixed()).collect();
    lengths.ok_or_else(|| Error::shape(format!("the spatial axes of {shape} must be fixed")))
}

fn channels(shape: &Shape) -> Result<usize> {
    match shape.fixed_at(1) {
        Some(0) => Err(Error::shape(format!("{shape} has no channels, and ONNX has no convolution of none"))),
        Some(channels) => Ok(channels),
        None => Err(Error::shape(format!("the channels of {shape} must be fixed"))),
    }
}

/// Padding after an axis with which exactly the window's positions fit, the partial last one included.
fn reach(window: &Window, axis: usize, length: usize) -> usize {
    let positions = window.positions(axis, length).unwrap_or(1);
    let end = positions.saturating_sub(1) * window.stride[axis] + window.span(axis).unwrap_or(1);
    end.saturating_sub(length + window.pad[axis].0)
}

/// How far the last position reaches past the padding.
fn overhang(window: &Window, axis: usize, length: usize) -> usize {
    reach(window, axis, length).saturating_sub(window.pad[axis].1)
}
