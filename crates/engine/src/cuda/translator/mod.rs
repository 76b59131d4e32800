//! Translates a node with concrete shapes into commands. Elementwise nodes have generated kernels; every other node is a
//! kernel of `kernels.cu`, a convolution or a matrix product.

mod convolutions;
mod pools;
mod reductions;

pub(super) use convolutions::is_folded;

use std::sync::Arc;

use cudarc::driver::sys::CUmodule;
use monosplit_graph::op::{Interpolation, Padding, ResizeAxis, Role};
use monosplit_graph::{Error, Kind, Op, Result};

use crate::cuda::Math;
use crate::cuda::buffer::DeviceBuffer;
use crate::cuda::command::{Arguments, Command, Launch};
use crate::cuda::device::{Device, STREAMS};
use crate::cuda::kernel_parameters::{
    CoalescedAxes, Divisor, Margins, RANK, axes, repeated, strides, strides_of,
};
use crate::cuda::memory_format::{MemoryFormat, is_identity};
use crate::cuda::multiplication::Multiplication;
use crate::cuda::product::{DeviceProduct, MatrixOperand};
use crate::graph_info::element_bytes;

/// Below this number of channels a conversion of the memory format is not tiled.
const MIN_TILED_CHANNELS: usize = 8;
/// The side of a transposed tile, as in `kernels.cu`.
const TILE: usize = 32;
/// The maximal number of elements of a value: kernels have 31-bit indices.
pub(super) const MAX_ELEMENTS: usize = i32::MAX as usize;

/// A value in device memory.
#[derive(Clone, Debug)]
pub(super) struct DeviceTensor {
    pub(super) at: u64,
    pub(super) shape: Vec<usize>,
    pub(super) kind: Kind,
    /// Whether it depends on no input.
    pub(super) constant: bool,
    /// The order of its axes in memory.
    pub(super) format: MemoryFormat,
}

impl DeviceTensor {
    pub(super) fn count(&self) -> usize {
        self.shape.iter().product()
    }

    /// The stride in elements of each axis.
    pub(super) fn strides(&self) -> Vec<i64> {
        self.format.strides(&self.shape)
    }

    fn suffix(&self) -> &'static str {
        match self.kind {
            Kind::Float => "real",
            Kind::Int => "int",
            Kind::Bool => "bool",
        }
    }
}

/// Builds commands, and owns the memory that only they use.
pub(super) struct Translator<'a> {
    pub(super) device: &'a Arc<Device>,
    pub(super) kernels: CUmodule,
    pub(super) math: Math,
    /// The address where a kernel reports that an index is out of range.
    pub(super) fault: u64,
    pub(super) commands: Vec<Command>,
    pub(super) tables: Vec<DeviceBuffer>,
    /// Scratch memory of each stream; the last buffer is the largest.
    pub(super) scratch: [Vec<DeviceBuffer>; STREAMS],
    /// Counters that are zero before and after every command, for each stream with commands that need them.
    pub(super) counters: [Option<DeviceBuffer>; STREAMS],
    /// The stream that commands are built for.
    pub(super) stream: usize,
}

/// The error for a value with more elements than kernels can index.
pub(super) fn too_large() -> Error {
    Error::memory("a value is too large for the GPU; use a smaller batch")
}

fn no_kernel(op: &Op) -> Error {
    Error::unsupported(format!("the engine 'cuda' has no kernel for {}; use the engine 'cpu'", op.name()))
}

pub(super) fn product(lengths: &[usize]) -> usize {
    lengths.iter().product()
}

impl Translator<'_> {
    pub(super) fn launch(&mut self, kernel: &str, count: usize, arguments: Arguments) -> Result<()> {
        let function = self.device.function(self.kernels, kernel)?;
        self.commands.push(Command::Launch(Launch::each(function, count, arguments)));
        Ok(())
    }

    fn launch_blocks(&mut self, kernel: &str, count: usize, arguments: Arguments) -> Result<()> {
        let function = self.device.function(self.kernels, kernel)?;
        self.commands.push(Command::Launch(Launch::block_each(function, count, arguments)));
        Ok(())
    }

    /// Scratch memory for one command.
    pub(super) fn scratch(&mut self, bytes: usize) -> Result<u64> {
        let scratch = &mut self.scratch[self.stream];
        let largest = scratch.last().map_or(0, |memory| memory.bytes);
        if largest < bytes || scratch.is_empty() {
            scratch.push(DeviceBuffer::new(self.device, bytes.max(2 * largest))?);
        }
        Ok(scratch.last().map_or(0, |memory| memory.at))
    }

    /// A counter for each result that several blocks compute, by which the last of them is known.
    fn counters(&mut self) -> Result<u64> {
        let counters = match self.counters[self.stream].take() {
            Some(counters) => counters,
            None => DeviceBuffer::from_slice(self.device, &[0u32; reductions::FEW_RESULTS])?,
        };
        Ok(self.counters[self.stream].insert(counters).at)
    }

    /// Adds the commands that compute `op` of `inputs`. `mark` identifies the node if it reports a fault.
    pub(super) fn node(
        &mut self,
        op: &Op,
        inputs: &[DeviceTensor],
        out: &DeviceTensor,
        mark: i32,
    ) -> Result<()> {
        if out.count() == 0 {
            return Ok(());
        }
        if inputs.iter().chain([out]).any(|tensor| tensor.count() > MAX_ELEMENTS) {
            return Err(too_large());
        }
        // An empty sum is zero.
        let sums = matches!(op.role(), Role::Convolution | Role::MatrixProduct);
        if sums && inputs.iter().any(|tensor| tensor.count() == 0) {
            self.commands.push(Command::Clear { at: out.at, bytes: out.count() * self.math.bytes() });
            return Ok(());
        }
        match op {
            Op::Conv { window, groups } => self.convolution(window, *groups, inputs, out),
            Op::ConvTranspose { window, groups, .. } => self.transposed(window, *groups, inputs, out),
            Op::MatMul { trans_a, trans_b } => self.matmul(*trans_a, *trans_b, inputs, out),
            Op::MaxPool(window) => self.pool("max_pool", window, None, &inputs[..1], out, false),
            Op::AveragePool { window, divisor } => {
                self.pool("average_pool", window, Some(*divisor), &inputs[..1], out, false)
            }
            Op::AveragePoolTranspose { window, divisor, .. } => {
                self.pool("average_pool_transpose", window, Some(*divisor), &inputs[..1], out, true)
            }
            Op::WinnerGather(window) => self.pool("winner_gather", window, None, &inputs[..2], out, false),
            Op::WinnerScatter(window) => self.scatter(window, &inputs[0], &inputs[1], out),
            Op::Reduce { reduction, axes, .. } => self.reduce(*reduction, axes, &inputs[0], out),
            Op::ArgMax { axis, .. } => self.arg_max(*axis, &inputs[0], out),
            Op::Concat { axis } => self.concat(*axis, inputs, out),
            Op::Slice { axis, start, step, .. } => {
                let mut from = inputs[0].strides();
                let offset = from[*axis] * *start as i64;
                from[*axis] *= *step as i64;
                self.copy(&inputs[0], offset, from, out, 0, &out.shape)
            }
            Op::Transpose { axes } if is_identity(axes) && inputs[0].format != out.format => {
                self.convert_format(&inputs[0], out)
            }
            Op::Transpose { axes } => {
                let own = inputs[0].strides();
                let from = axes.iter().map(|&axis| own[axis]).collect();
                self.copy(&inputs[0], 0, from, out, 0, &out.shape)
            }
            Op::Expand { .. } => {
                let from = repeated(&inputs[0].strides(), &inputs[0].shape, &out.shape);
                self.copy(&inputs[0], 0, from, out, 0, &out.shape)
            }
            Op::Pad { padding, pads } => self.pad(*padding, pads, &inputs[0], out),
            Op::Gather { axis } => self.gather(*axis, &inputs[0], &inputs[1], out, mark),
            Op::Resize { axes, interpolation, coordinates } => {
                self.resize(axes, *interpolation, *coordinates, &inputs[0], out)
            }
            // Elementwise nodes have generated kernels, norms were lowered, and the others share the memory of their inputs.
            Op::Unary(_) | Op::Binary(_) | Op::Where | Op::Cast { .. } => Err(no_kernel(op)),
            Op::BatchNorm { .. } | Op::LayerNorm { .. } | Op::GroupNorm { .. } => Err(no_kernel(op)),
            Op::LocalResponseNorm { .. } | Op::Softmax { .. } | Op::LogSoftmax { .. } => Err(no_kernel(op)),
            Op::Input | Op::Constant(_) | Op::Reshape { .. } | Op::Identity | Op::Dropout { .. } => {
                Err(no_kernel(op))
            }
        }
    }

    /// Copies the elements of `x` with the strides `from` to those of `y`, over `shape`, from the given offsets on.
    pub(super) fn copy(
        &mut self,
        x: &DeviceTensor,
        x_offset: i64,
        from: Vec<i64>,
        y: &DeviceTensor,
        y_offset: i64,
        shape: &[usize],
    ) -> Result<()> {
        let count = product(shape);
        let bytes = element_bytes(x.kind, self.math.bytes());
        let read = x.at.wrapping_add_signed(x_offset * bytes as i64);
        let written = y.at.wrapping_add_signed(y_offset * bytes as i64);
        let format = y.format;
        let strides = [format.permuted(&from), format.permuted(&y.strides())];
        let coalesced = CoalescedAxes::new(&format.permuted(shape), &strides);
        if coalesced.shape.is_empty() || (coalesced.shape.len() == 1 && coalesced.strides == [[1], [1]]) {
            self.commands.push(Command::Copy { from: read, to: written, bytes: count * bytes });
            return Ok(());
        }
        let arguments = Arguments::default()
            .with(read)
            .with(written)
            .with(count as u32)
            .with(coalesced.axes()?)
            .with(coalesced.along(0))
            .with(coalesced.along(1));
        self.launch(&format!("copy_{}", x.suffix()), count, arguments)
    }

    /// Copies a value to the other memory format.
    fn convert_format(&mut self, x: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        let (channels, positions) = (x.shape[1], product(&x.shape[2..]));
        if channels < MIN_TILED_CHANNELS || x.kind != Kind::Float {
            return self.copy(x, 0, x.strides(), out, 0, &out.shape);
        }
        let (rows, columns) = match x.format {
            MemoryFormat::Contiguous => (channels, positions),
            MemoryFormat::ChannelsLast => (positions, channels),
        };
        let tiles = x.shape[0] * rows.div_ceil(TILE) * columns.div_ceil(TILE);
        let head = Arguments::default().with(x.at).with(out.at);
        let arguments = head.with(x.shape[0] as u32).with(rows as u32).with(columns as u32);
        self.launch_blocks("transpose_tiles", tiles, arguments)
    }

    fn concat(&mut self, axis: usize, inputs: &[DeviceTensor], out: &DeviceTensor) -> Result<()> {
        let along = out.strides()[axis];
        let mut done = 0;
        for input in inputs {
            if input.count() > 0 {
                self.copy(input, 0, input.strides(), out, done as i64 * along, &input.shape)?;
            }
            done += input.shape[axis];
        }
        Ok(())
    }

    pub(super) fn pad(
        &mut self,
        padding: Padding,
        pads: &[(usize, usize)],
        x: &DeviceTensor,
        out: &DeviceTensor,
    ) -> Result<()> {
        let (mode, constant) = match padding {
            Padding::Constant(value) => (0, value),
            Padding::Reflect => (1, 0.0),
            Padding::Edge => (2, 0.0),
        };
        let own = out.format.permuted(&x.strides());
        let mut margins = Margins { mode, before: [0; RANK], length: [1; RANK] };
        let table = axes(&out.format.permuted(&out.shape))?;
        let lengths = out.format.permuted(&x.shape);
        for (axis, &(before, _)) in out.format.permuted(pads).iter().enumerate() {
            margins.before[axis] = before as i32;
            margins.length[axis] = lengths[axis] as i32;
        }
        let arguments = Arguments::default()
            .with(x.at)
            .with(out.at)
            .with(constant)
            .with(out.count() as u32)
            .with(table)
            .with(strides(&own))
            .with(margins);
        self.launch(&format!("pad_{}", x.suffix()), out.count(), arguments)
    }

    fn gather(
        &mut self,
        axis: usize,
        x: &DeviceTensor,
        indices: &DeviceTensor,
        out: &DeviceTensor,
        mark: i32,
    ) -> Result<()> {
        let inner = product(&x.shape[axis + 1..]);
        let arguments = Arguments::default()
            .with(x.at)
            .with(indices.at)
            .with(out.at)
            .with(out.count() as u32)
            .with(x.shape[axis] as u32)
            .with(Divisor::new(indices.count()))
            .with(Divisor::new(inner))
            .with(self.fault)
            .with(mark);
        self.launch(&format!("gather_{}", x.suffix()), out.count(), arguments)
    }

    fn resize(
        &mut self,
        resized: &[ResizeAxis],
        interpolation: Interpolation,
        coordinates: monosplit_graph::op::Coordinates,
        x: &DeviceTensor,
        out: &DeviceTensor,
    ) -> Result<()> {
        let axes = ResizeAxis::shrinking_first(resized, &x.shape);
        let Some((last, rest)) = axes.split_last() else {
            return self.copy(x, 0, strides_of(&x.shape), out, 0, &x.shape);
        };
        // Intermediate results do not share memory: one is read while the next is written.
        let mut shape = x.shape.clone();
        let mut sizes = Vec::new();
        for axis in rest {
            shape[axis.axis] = axis.length;
            sizes.push(product(&shape).saturating_mul(self.math.bytes()).next_multiple_of(256));
        }
        let base = self.scratch(sizes.iter().sum())?;
        let mut current = x.clone();
        let mut offset = 0;
        for (axis, size) in rest.iter().zip(&sizes) {
            let mut next = current.clone();
            next.shape[axis.axis] = axis.length;
            next.at = base + offset as u64;
            self.resize_along(axis, interpolation, coordinates, &current, &next)?;
            (current, offset) = (next, offset + size);
        }
        self.resize_along(last, interpolation, coordinates, &current, out)
    }

    fn resize_along(
        &mut self,
        axis: &ResizeAxis,
        interpolation: Interpolation,
        coordinates: monosplit_graph::op::Coordinates,
        x: &DeviceTensor,
        out: &DeviceTensor,
    ) -> Result<()> {
        let length = x.shape[axis.axis];
        let table = axis.taps(interpolation, coordinates, length);
        let taps = table.iter().map(Vec::len).max().unwrap_or(1);
        let mut at = vec![0i32; table.len() * taps];
        let mut weights = vec![0f64; table.len() * taps];
        for (position, row) in table.iter().enumerate() {
            for (tap, &(from, weight)) in row.iter().enumerate() {
                (at[position * taps + tap], weights[position * taps + tap]) = (from as i32, weight);
            }
        }
        let positions = DeviceBuffer::from_slice(self.device, &at)?;
        let weights = match self.math {
            Math::F64 => DeviceBuffer::from_slice(self.device, &weights)?,
            _ => {
                let single: Vec<f32> = weights.iter().map(|&w| w as f32).collect();
                DeviceBuffer::from_slice(self.device, &single)?
            }
        };
        let inner = product(&x.shape[axis.axis + 1..]);
        let arguments = Arguments::default()
            .with(x.at)
            .with(out.at)
            .with(positions.at)
            .with(weights.at)
            .with(out.count() as u32)
            .with(length as u32)
            .with(taps as u32)
            .with(Divisor::new(axis.length))
            .with(Divisor::new(inner));
        self.tables.extend([positions, weights]);
        self.launch("resize", out.count(), arguments)
    }

    fn matmul(
        &mut self,
        trans_a: bool,
        trans_b: bool,
        inputs: &[DeviceTensor],
        out: &DeviceTensor,
    ) -> Result<()> {
        let a = MatrixOperand { at: inputs[0].at, shape: &inputs[0].shape, transposed: trans_a };
        let b = MatrixOperand { at: inputs[1].at, shape: &inputs[1].shape, transposed: trans_b };
        self.multiply(&a, &b, (out.at, &out.shape))
    }

    /// Adds a product of matrices, none of them empty, into the address and shape `to`.
    fn multiply(&mut self, a: &MatrixOperand<'_>, b: &MatrixOperand<'_>, to: (u64, &[usize])) -> Result<()> {
        for product in DeviceProduct::all(a, b, to, self.math)? {
            let ready = Multiplication::new(self.device, &product)?;
            self.commands.push(Command::Product(Box::new(ready)));
        }
        Ok(())
    }
}
