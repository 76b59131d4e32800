//! From a node with concrete shapes to what the card is told. Elementwise nodes have kernels of their own; everything else
//! is one of those of `kernels.cu`, a convolution or a matrix product.

use std::sync::Arc;

use cudarc::driver::sys::CUmodule;
use monosplit_graph::op::{Divisor as Divided, Interpolation, Padding, Reduction, ResizeAxis, Window};
use monosplit_graph::{Error, Kind, Op, Result};

use super::Math;
use super::command::{Arguments, Command, Launch};
use super::convolution::{Choice, Convolution, Geometry, Sought, Tensors};
use super::device::{Device, Memory};
use super::layout::{self, Divisor, Margins, Pool, RANK, Walk, axes, broadcast_strides, strides, strides_of};
use super::product::{Operand, Product};
use crate::cpu::kernels::resize;
use crate::outline::element_bytes;

/// Elements that are worth a block of threads.
const LONG: usize = 128;
/// Elements that are worth a column of threads.
const COLUMN: usize = 32;
/// Elements of a part of a long sum.
const PART: usize = 1 << 14;
/// Elements of a kernel beyond which it may be the gradient of another.
const LARGE_KERNEL: usize = 49;
/// Elements a value may have: kernels count with 31 bits.
pub(super) const MOST_ELEMENTS: usize = i32::MAX as usize;

/// A value with a place on the card.
#[derive(Clone, Debug)]
pub(super) struct Site {
    pub(super) at: u64,
    pub(super) shape: Vec<usize>,
    pub(super) kind: Kind,
    /// Whether it depends on no input.
    pub(super) constant: bool,
}

impl Site {
    pub(super) fn count(&self) -> usize {
        self.shape.iter().product()
    }

    fn suffix(&self) -> &'static str {
        match self.kind {
            Kind::Float => "real",
            Kind::Int => "int",
            Kind::Bool => "bool",
        }
    }
}

/// Writes down commands, and owns the memory that only they use.
pub(super) struct Translator<'a> {
    pub(super) device: &'a Arc<Device>,
    pub(super) kernels: CUmodule,
    pub(super) math: Math,
    /// Where a kernel reports that an index is out of range.
    pub(super) fault: u64,
    pub(super) commands: Vec<Command>,
    /// Tables, and memory to work in; the last of the latter is the largest.
    pub(super) tables: Vec<Memory>,
    pub(super) scratch: Vec<Memory>,
}

/// A value has more elements than kernels count.
pub(super) fn too_large() -> Error {
    Error::memory("a value is too large for the card; use a smaller batch")
}

fn product(lengths: &[usize]) -> usize {
    lengths.iter().product()
}

fn small(lengths: impl IntoIterator<Item = usize>) -> Result<Vec<i32>> {
    let small = |n| i32::try_from(n).map_err(|_| Error::argument("an axis is too long for the card"));
    lengths.into_iter().map(small).collect()
}

impl Translator<'_> {
    fn launch(&mut self, kernel: &str, count: usize, arguments: Arguments) -> Result<()> {
        let function = self.device.function(self.kernels, kernel)?;
        self.commands.push(Command::Launch(Launch::each(function, count, arguments)));
        Ok(())
    }

    fn launch_blocks(&mut self, kernel: &str, count: usize, arguments: Arguments) -> Result<()> {
        let function = self.device.function(self.kernels, kernel)?;
        self.commands.push(Command::Launch(Launch::block_each(function, count, arguments)));
        Ok(())
    }

    /// Memory to work in, for one command.
    fn scratch(&mut self, bytes: usize) -> Result<u64> {
        let largest = self.scratch.last().map_or(0, |memory| memory.bytes);
        if largest < bytes || self.scratch.is_empty() {
            self.scratch.push(Memory::new(self.device, bytes.max(2 * largest))?);
        }
        Ok(self.scratch.last().map_or(0, |memory| memory.at))
    }

    /// Writes down what computes `op` of `inputs`. `mark` stands for the node in the report of a fault.
    pub(super) fn node(&mut self, op: &Op, inputs: &[Site], out: &Site, mark: i32) -> Result<()> {
        if out.count() == 0 {
            return Ok(());
        }
        if inputs.iter().chain([out]).any(|site| site.count() > MOST_ELEMENTS) {
            return Err(too_large());
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
                let mut from = strides_of(&inputs[0].shape);
                let offset = from[*axis] * *start as i64;
                from[*axis] *= *step as i64;
                self.copy(&inputs[0], offset, from, out, 0, strides_of(&out.shape), &out.shape)
            }
            Op::Transpose { axes } => {
                let own = strides_of(&inputs[0].shape);
                let from = axes.iter().map(|&axis| own[axis]).collect();
                self.copy(&inputs[0], 0, from, out, 0, strides_of(&out.shape), &out.shape)
            }
            Op::Expand { .. } => {
                let from = broadcast_strides(&inputs[0].shape, &out.shape);
                self.copy(&inputs[0], 0, from, out, 0, strides_of(&out.shape), &out.shape)
            }
            Op::Pad { padding, pads } => self.pad(*padding, pads, &inputs[0], out),
            Op::Gather { axis } => self.gather(*axis, &inputs[0], &inputs[1], out, mark),
            Op::Resize { axes, interpolation, coordinates } => {
                self.resize(axes, *interpolation, *coordinates, &inputs[0], out)
            }
            other => Err(Error::unsupported(format!(
                "the engine 'cuda' has no kernel for {}; use --engine cpu",
                other.name()
            ))),
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn copy(
        &mut self,
        x: &Site,
        x_offset: i64,
        from: Vec<i64>,
        y: &Site,
        y_offset: i64,
        to: Vec<i64>,
        shape: &[usize],
    ) -> Result<()> {
        let count = product(shape);
        let bytes = element_bytes(x.kind, self.math.bytes());
        let read = x.at.wrapping_add_signed(x_offset * bytes as i64);
        let written = y.at.wrapping_add_signed(y_offset * bytes as i64);
        let walk = Walk::new(shape, &[from, to]);
        if walk.shape.is_empty() || (walk.shape.len() == 1 && walk.strides == [[1], [1]]) {
            self.commands.push(Command::Copy { from: read, to: written, bytes: count * bytes });
            return Ok(());
        }
        let arguments = Arguments::default()
            .with(read)
            .with(written)
            .with(count as u32)
            .with(walk.axes()?)
            .with(walk.along(0))
            .with(walk.along(1));
        self.launch(&format!("copy_{}", x.suffix()), count, arguments)
    }

    fn concat(&mut self, axis: usize, inputs: &[Site], out: &Site) -> Result<()> {
        let to = strides_of(&out.shape);
        let mut done = 0;
        for input in inputs {
            if input.count() > 0 {
                let offset = done as i64 * to[axis];
                self.copy(input, 0, strides_of(&input.shape), out, offset, to.clone(), &input.shape)?;
            }
            done += input.shape[axis];
        }
        Ok(())
    }

    fn pad(&mut self, padding: Padding, pads: &[(usize, usize)], x: &Site, out: &Site) -> Result<()> {
        let (mode, constant) = match padding {
            Padding::Constant(value) => (0, value),
            Padding::Reflect => (1, 0.0),
            Padding::Edge => (2, 0.0),
        };
        let own = strides_of(&x.shape);
        let mut margins = Margins { mode, before: [0; RANK], length: [1; RANK] };
        let table = axes(&out.shape)?;
        for (axis, &(before, _)) in pads.iter().enumerate() {
            margins.before[axis] = before as i32;
            margins.length[axis] = x.shape[axis] as i32;
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

    fn gather(&mut self, axis: usize, x: &Site, indices: &Site, out: &Site, mark: i32) -> Result<()> {
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
        x: &Site,
        out: &Site,
    ) -> Result<()> {
        let order = resize::order(resized, &x.shape);
        let Some((last, rest)) = order.split_last() else {
            return self.copy(x, 0, strides_of(&x.shape), out, 0, strides_of(&x.shape), &x.shape);
        };
        // What lies between lives side by side: one is read while the next is written.
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
        x: &Site,
        out: &Site,
    ) -> Result<()> {
        let length = x.shape[axis.axis];
        let table = resize::table(axis, interpolation, coordinates, length);
        let taps = table.iter().map(Vec::len).max().unwrap_or(1);
        let mut at = vec![0i32; table.len() * taps];
        let mut weights = vec![0f64; table.len() * taps];
        for (place, row) in table.iter().enumerate() {
            for (tap, &(from, weight)) in row.iter().enumerate() {
                (at[place * taps + tap], weights[place * taps + tap]) = (from as i32, weight);
            }
        }
        let places = Memory::holding(self.device, &at)?;
        let weights = match self.math {
            Math::F64 => Memory::holding(self.device, &weights)?,
            _ => {
                let single: Vec<f32> = weights.iter().map(|&w| w as f32).collect();
                Memory::holding(self.device, &single)?
            }
        };
        let inner = product(&x.shape[axis.axis + 1..]);
        let arguments = Arguments::default()
            .with(x.at)
            .with(out.at)
            .with(places.at)
            .with(weights.at)
            .with(out.count() as u32)
            .with(length as u32)
            .with(taps as u32)
            .with(Divisor::new(axis.length))
            .with(Divisor::new(inner));
        self.tables.extend([places, weights]);
        self.launch("resize", out.count(), arguments)
    }

    fn pool(
        &mut self,
        kernel: &str,
        window: &Window,
        divisor: Option<Divided>,
        inputs: &[Site],
        out: &Site,
        transposed: bool,
    ) -> Result<()> {
        // Transposes write what a pool reads.
        let (large, small) = match (transposed, inputs) {
            (false, _) => (&inputs[0], out),
            (true, _) => (out, &inputs[inputs.len() - 1]),
        };
        let pool = Pool::new(window, &large.shape[2..], &small.shape[2..], divisor)?;
        let mut arguments = Arguments::default();
        for site in inputs.iter().chain([out]) {
            arguments = arguments.with(site.at);
        }
        let arguments = arguments.with(out.count() as u32).with(pool);
        self.launch(kernel, out.count(), arguments)
    }

    /// Finds the winners first: places that several windows cover would look for them again and again.
    fn scatter(&mut self, window: &Window, a: &Site, y: &Site, out: &Site) -> Result<()> {
        let pool = Pool::new(window, &a.shape[2..], &y.shape[2..], None)?;
        let index = self.scratch(y.count() * size_of::<i32>())?;
        let arguments = Arguments::default().with(a.at).with(index).with(y.count() as u32).with(pool);
        self.launch("winner_index", y.count(), arguments)?;
        let arguments =
            Arguments::default().with(index).with(y.at).with(out.at).with(out.count() as u32).with(pool);
        self.launch("winner_scatter", out.count(), arguments)
    }

    fn reduce(&mut self, reduction: Reduction, gone: &[usize], x: &Site, out: &Site) -> Result<()> {
        if x.kind == Kind::Bool {
            return Err(Error::unsupported(format!("{} is not defined for truth values", reduction.name())));
        }
        let own = strides_of(&x.shape);
        let part = |wanted: bool| {
            let axes = (0..x.shape.len()).filter(|axis| gone.contains(axis) == wanted);
            let (shape, along): (Vec<usize>, Vec<i64>) = axes.map(|axis| (x.shape[axis], own[axis])).unzip();
            Walk::new(&shape, &[along])
        };
        let (kept, reduced) = (part(false), part(true));
        let (results, count) = (out.count(), product(&reduced.shape));
        // Neighbours of the result that are neighbours in x are read together.
        let columns = kept.strides[0].last() == Some(&1) && count >= COLUMN;
        let blocks = count >= LONG && !columns;
        let parts = match blocks {
            true if results < 512 => count.div_ceil(PART).min(4096 / results.max(1)).max(1),
            _ => 1,
        };
        let table = layout::Reduction {
            how: match reduction {
                Reduction::Sum => 0,
                Reduction::Mean => 1,
                Reduction::Max => 2,
                Reduction::Min => 3,
                Reduction::Product => 4,
            },
            count: count as u32,
            parts: parts as u32,
            kept: kept.axes()?,
            gone: reduced.axes()?,
            of_kept: kept.along(0),
            of_gone: reduced.along(0),
        };
        let (suffix, head) = (x.suffix(), Arguments::default().with(x.at));
        if columns {
            let rows: u32 = if count >= 128 { 32 } else { 8 };
            let arguments = head.with(out.at).with(results as u32).with(rows).with(table);
            let function = self.device.function(self.kernels, &format!("reduce_columns_{suffix}"))?;
            let launch = Launch::of(function, results.div_ceil(32), 32 * rows, arguments);
            self.commands.push(Command::Launch(launch));
            return Ok(());
        }
        if !blocks {
            let arguments = head.with(out.at).with(results as u32).with(table);
            return self.launch(&format!("reduce_each_{suffix}"), results, arguments);
        }
        let partial = if parts > 1 { self.scratch(results * parts * 8)? } else { 0 };
        let arguments = head.with(partial).with(out.at).with(results as u32).with(table);
        self.launch_blocks(&format!("reduce_block_{suffix}"), results * parts, arguments)?;
        if parts > 1 {
            let arguments = Arguments::default().with(partial).with(out.at).with(results as u32).with(table);
            self.launch(&format!("reduce_parts_{suffix}"), results, arguments)?;
        }
        Ok(())
    }

    fn arg_max(&mut self, axis: usize, x: &Site, out: &Site) -> Result<()> {
        let inner = product(&x.shape[axis + 1..]);
        let arguments = Arguments::default()
            .with(x.at)
            .with(out.at)
            .with(out.count() as u32)
            .with(x.shape[axis] as u32)
            .with(Divisor::new(inner));
        self.launch_blocks(&format!("arg_max_{}", x.suffix()), out.count(), arguments)
    }

    fn matmul(&mut self, trans_a: bool, trans_b: bool, inputs: &[Site], out: &Site) -> Result<()> {
        let a = Operand { at: inputs[0].at, shape: &inputs[0].shape, transposed: trans_a };
        let b = Operand { at: inputs[1].at, shape: &inputs[1].shape, transposed: trans_b };
        if inputs[..2].iter().any(|site| site.count() == 0) {
            let bytes = out.count() * self.math.bytes();
            self.commands.push(Command::Clear { at: out.at, bytes });
            return Ok(());
        }
        let all = Product::all(&a, &b, (out.at, &out.shape), self.math)?;
        self.commands.extend(all.into_iter().map(Command::Product));
        Ok(())
    }

    /// Where padding differs before and after, the input is padded first.
    fn convolution(&mut self, window: &Window, groups: usize, inputs: &[Site], out: &Site) -> Result<()> {
        let (x, w) = (&inputs[0], &inputs[1]);
        if x.count() == 0 || w.count() == 0 {
            self.commands.push(Command::Clear { at: out.at, bytes: out.count() * self.math.bytes() });
            return Ok(());
        }
        if window.pad.iter().all(|(before, after)| before == after) {
            let large = product(&w.shape[2..]) > product(&out.shape[2..]).max(LARGE_KERNEL);
            if groups == 1 && large && !w.constant && is_kernel(window, &x.shape, &w.shape, &out.shape) {
                return self.correlation(window, inputs, out);
            }
            let geometry = Geometry::new(window, groups, &x.shape, &w.shape, &out.shape)?;
            return self.convolve(geometry, Sought::Result, [x.clone(), w.clone(), out.clone()], 0);
        }
        let (padded, plain) = padded(window, x);
        if padded.count() > MOST_ELEMENTS {
            return Err(too_large());
        }
        let bytes = (padded.count() * self.math.bytes()).next_multiple_of(256);
        let geometry = Geometry::new(&plain, groups, &padded.shape, &w.shape, &out.shape)?;
        let at = self.convolve_scratch(&geometry, Sought::Result, bytes)?;
        let padded = Site { at, ..padded };
        let pads: Vec<(usize, usize)> = [(0, 0); 2].into_iter().chain(window.pad.iter().copied()).collect();
        self.pad(Padding::Constant(0.0), &pads, x, &padded)?;
        self.convolve(geometry, Sought::Result, [padded, w.clone(), out.clone()], bytes)
    }

    /// Where padding differs before and after, more is computed and cut.
    fn transposed(&mut self, window: &Window, groups: usize, inputs: &[Site], out: &Site) -> Result<()> {
        let (y, w) = (&inputs[0], &inputs[1]);
        if y.count() == 0 || w.count() == 0 {
            self.commands.push(Command::Clear { at: out.at, bytes: out.count() * self.math.bytes() });
            return Ok(());
        }
        if window.pad.iter().all(|(before, after)| before == after) {
            let geometry = Geometry::new(window, groups, &out.shape, &w.shape, &y.shape)?;
            return self.convolve(geometry, Sought::Input, [out.clone(), w.clone(), y.clone()], 0);
        }
        let (padded, plain) = padded(window, out);
        if padded.count() > MOST_ELEMENTS {
            return Err(too_large());
        }
        let bytes = (padded.count() * self.math.bytes()).next_multiple_of(256);
        let geometry = Geometry::new(&plain, groups, &padded.shape, &w.shape, &y.shape)?;
        let at = self.convolve_scratch(&geometry, Sought::Input, bytes)?;
        let padded = Site { at, ..padded };
        self.convolve(geometry, Sought::Input, [padded.clone(), w.clone(), y.clone()], bytes)?;
        let from = strides_of(&padded.shape);
        let offset = window.pad.iter().zip(&from[2..]).map(|((before, _), stride)| *before as i64 * stride);
        let offset = offset.sum();
        self.copy(&padded, offset, from, out, 0, strides_of(&out.shape), &out.shape)
    }

    /// A convolution with a kernel larger than its result, as the gradient of a kernel is one: with samples for channels
    /// and stride and dilation exchanged, the result is the kernel.
    fn correlation(&mut self, window: &Window, inputs: &[Site], out: &Site) -> Result<()> {
        let exchanged = |site: &Site| {
            let mut turned = site.clone();
            turned.shape.swap(0, 1);
            turned
        };
        let (x, y, kernel) = (exchanged(&inputs[0]), exchanged(&inputs[1]), exchanged(out));
        let turned = Window {
            kernel: kernel.shape[2..].to_vec(),
            stride: window.dilation.clone(),
            dilation: window.stride.clone(),
            ..window.clone()
        };
        let geometry = Geometry::new(&turned, 1, &x.shape, &kernel.shape, &y.shape)?;
        let sizes = [&x, &y, &kernel].map(|site| (site.count() * self.math.bytes()).next_multiple_of(256));
        let before = sizes.iter().sum();
        let base = self.convolve_scratch(&geometry, Sought::Kernel, before)?;
        let x = Site { at: base, ..x };
        let y = Site { at: base + sizes[0] as u64, ..y };
        let kernel = Site { at: y.at + sizes[1] as u64, ..kernel };
        for (from, to) in [(&inputs[0], &x), (&inputs[1], &y)] {
            self.exchange(from, to)?;
        }
        self.convolve(geometry, Sought::Kernel, [x, kernel.clone(), y], before)?;
        self.exchange(&kernel, out)
    }

    /// Copies with the first two axes exchanged.
    fn exchange(&mut self, from: &Site, to: &Site) -> Result<()> {
        let mut along = strides_of(&from.shape);
        along.swap(0, 1);
        self.copy(from, 0, along, to, 0, strides_of(&to.shape), &to.shape)
    }

    /// Memory whose first `before` bytes are the caller's and whose rest is what [`Translator::convolve`] needs.
    fn convolve_scratch(&mut self, geometry: &Geometry, sought: Sought, before: usize) -> Result<u64> {
        let choice = Choice::new(self.device, geometry, sought, self.math)?;
        self.scratch(before + choice.workspace + self.halves(geometry).iter().sum::<usize>())
    }

    /// Bytes of input, kernel and result in half the size, if they are computed so.
    fn halves(&self, geometry: &Geometry) -> [usize; 3] {
        let bytes = |dims: &[i32]| dims.iter().map(|&n| n as usize).product::<usize>() * 2;
        let sizes = [&geometry.input, &geometry.kernel, &geometry.result].map(|dims| bytes(dims));
        match self.math {
            Math::Bf16 => sizes.map(|size| size.next_multiple_of(256)),
            _ => [0; 3],
        }
    }

    /// `[input, kernel, result]`, of which one is sought, with `before` bytes of scratch memory left alone.
    fn convolve(
        &mut self,
        geometry: Geometry,
        sought: Sought,
        sites: [Site; 3],
        before: usize,
    ) -> Result<()> {
        let choice = Choice::new(self.device, &geometry, sought, self.math)?;
        let halves = self.halves(&geometry);
        let base = self.scratch(before + choice.workspace + halves.iter().sum::<usize>())? + before as u64;
        let starts = [0, halves[0], halves[0] + halves[1]].map(|start| base + start as u64);
        let workspace = base + halves.iter().sum::<usize>() as u64;
        let written = match sought {
            Sought::Input => 0,
            Sought::Kernel => 1,
            Sought::Result => 2,
        };
        let half = self.math == Math::Bf16;
        let at = |index: usize| if half { starts[index] } else { sites[index].at };
        if half {
            for index in (0..3).filter(|&index| index != written) {
                self.convert("to_bfloat16", sites[index].at, starts[index], sites[index].count())?;
            }
        }
        let tensors = Tensors { input: at(0), kernel: at(1), result: at(2) };
        self.commands.push(Command::Convolution(Box::new(Convolution { choice, tensors, workspace })));
        if half {
            self.convert("from_bfloat16", starts[written], sites[written].at, sites[written].count())?;
        }
        Ok(())
    }

    fn convert(&mut self, kernel: &str, from: u64, to: u64, count: usize) -> Result<()> {
        self.launch(kernel, count, Arguments::default().with(from).with(to).with(count as u32))
    }
}

/// Whether the result of a convolution has the size of a kernel that, slid over the input, leaves a result of the size of the
/// convolution's own kernel.
fn is_kernel(window: &Window, x: &[usize], w: &[usize], out: &[usize]) -> bool {
    (0..window.axes()).all(|axis| {
        let (before, after) = window.pad[axis];
        let span = window.stride[axis] * (out[axis + 2] - 1) + 1;
        let room = (x[axis + 2] + before + after).checked_sub(span);
        room.is_some_and(|room| room / window.dilation[axis] + 1 == w[axis + 2])
    })
}

/// A value with a convolution's padding around it, and the window without.
fn padded(window: &Window, x: &Site) -> (Site, Window) {
    let mut larger = x.clone();
    for (length, (before, after)) in larger.shape[2..].iter_mut().zip(&window.pad) {
        *length += before + after;
    }
    (larger, Window { pad: vec![(0, 0); window.axes()], ..window.clone() })
}

impl Geometry {
    fn new(
        window: &Window,
        groups: usize,
        input: &[usize],
        kernel: &[usize],
        result: &[usize],
    ) -> Result<Self> {
        let axes = window.axes();
        if !(1..=3).contains(&axes) {
            return Err(Error::unsupported(format!(
                "cuDNN convolves over 1 to 3 axes, found {axes}; use --engine cpu"
            )));
        }
        // One axis is two, the first of length one.
        let wide = |shape: &[usize]| match axes {
            1 => small([shape[0], shape[1], 1, shape[2]]),
            _ => small(shape.iter().copied()),
        };
        let spatial = |values: &dyn Fn(usize) -> usize, missing: usize| match axes {
            1 => small([missing, values(0)]),
            _ => small((0..axes).map(values)),
        };
        Ok(Geometry {
            input: wide(input)?,
            kernel: wide(kernel)?,
            result: wide(result)?,
            pad: spatial(&|axis| window.pad[axis].0, 0)?,
            stride: spatial(&|axis| window.stride[axis], 1)?,
            dilation: spatial(&|axis| window.dilation[axis], 1)?,
            groups: small([groups])?[0],
        })
    }
}
