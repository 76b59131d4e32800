//! Convolutions, transposed convolutions and weight gradients as commands: calls of cuDNN, and the conversions around them.

use monosplit_graph::op::Window;
use monosplit_graph::{Error, Result};

use super::{DeviceTensor, Translator, product};
use crate::cuda::Math;
use crate::cuda::command::{Arguments, Command};
use crate::cuda::convolution::{Convolution, CudnnPlan, Direction, Geometry, Tensors};
use crate::cuda::kernel_parameters::{FOLDS, Pool, compiled_for};
use crate::cuda::memory_format::MemoryFormat;
use crate::cuda::product::MatrixOperand;

/// Up to this number of channels a transposed convolution is faster as a matrix product than with cuDNN.
const FEW_CHANNELS: usize = 4;
/// The maximal number of bytes of products that are folded at a time.
const MAX_FOLDED: usize = 512 << 20;
/// Above this number of elements a kernel may be the output gradient of a weight gradient.
const LARGE_KERNEL: usize = 49;

fn small(lengths: impl IntoIterator<Item = usize>) -> Result<Vec<i32>> {
    let small = |n| i32::try_from(n).map_err(|_| Error::argument("an axis is too long for cuDNN"));
    lengths.into_iter().map(small).collect()
}

impl Translator<'_> {
    pub(super) fn convolution(
        &mut self,
        window: &Window,
        groups: usize,
        inputs: &[DeviceTensor],
        out: &DeviceTensor,
    ) -> Result<()> {
        let (x, w) = (&inputs[0], &inputs[1]);
        let large = product(&w.shape[2..]) > product(&out.shape[2..]).max(LARGE_KERNEL);
        if groups == 1 && large && !w.constant && is_kernel(window, &x.shape, &w.shape, &out.shape) {
            return self.weight_gradient(window, inputs, out);
        }
        let geometry = Geometry::new(window, groups, out.format, &x.shape, &w.shape, &out.shape)?;
        self.convolve(geometry, Direction::Forward, [x.clone(), w.clone(), out.clone()], 0)
    }

    pub(super) fn transposed(
        &mut self,
        window: &Window,
        groups: usize,
        inputs: &[DeviceTensor],
        out: &DeviceTensor,
    ) -> Result<()> {
        let (y, w) = (&inputs[0], &inputs[1]);
        if is_folded(window, groups, y.shape[1], out.shape[1]) {
            return self.folded(window, y, w, out);
        }
        let geometry = Geometry::new(window, groups, out.format, &out.shape, &w.shape, &y.shape)?;
        self.convolve(geometry, Direction::BackwardData, [out.clone(), w.clone(), y.clone()], 0)
    }

    /// A transposed convolution to few channels, as in the gradient of an image, where cuDNN's kernels leave most of the GPU
    /// idle. Every tap is a row of one matrix product; folding (col2im) then adds the products of each position.
    fn folded(
        &mut self,
        window: &Window,
        y: &DeviceTensor,
        w: &DeviceTensor,
        out: &DeviceTensor,
    ) -> Result<()> {
        let (samples, channels) = (y.shape[0], y.shape[1]);
        let (taps, positions) = (product(&w.shape[1..]), product(&y.shape[2..]));
        let each = taps * positions * self.math.bytes();
        let chunk = (MAX_FOLDED / each.max(1)).clamp(1, samples.max(1));
        let pool = Pool::new(window, &out.shape[2..], &y.shape[2..], None, 1)?;
        let products = self.scratch(chunk * each)?;
        let (per_sample, per_result) = (channels * positions, product(&out.shape[1..]));
        for start in (0..samples).step_by(chunk) {
            let count = chunk.min(samples - start);
            let at = |tensor: &DeviceTensor, elements: usize| {
                tensor.at + (start * elements * self.math.bytes()) as u64
            };
            let kernel = MatrixOperand { at: w.at, shape: &[channels, taps], transposed: true };
            let last = y.format == MemoryFormat::ChannelsLast;
            let shape = if last { [count, positions, channels] } else { [count, channels, positions] };
            let given = MatrixOperand { at: at(y, per_sample), shape: &shape, transposed: last };
            let (written, to) = (count * per_result, at(out, per_result));
            self.multiply(&kernel, &given, (products, &[count, taps, positions]))?;
            let arguments = Arguments::default().with(products).with(to).with(written as u32).with(pool);
            self.launch(&compiled_for("fold", &FOLDS, window), written, arguments)?;
        }
        Ok(())
    }

    /// A convolution with a kernel larger than its result, which is a weight gradient: with samples and channels exchanged,
    /// and stride and dilation exchanged, the result is the kernel of another convolution.
    fn weight_gradient(
        &mut self,
        window: &Window,
        inputs: &[DeviceTensor],
        out: &DeviceTensor,
    ) -> Result<()> {
        let exchanged = |tensor: &DeviceTensor| {
            let mut exchanged = tensor.clone();
            exchanged.shape.swap(0, 1);
            exchanged
        };
        let (x, y, kernel) = (exchanged(&inputs[0]), exchanged(&inputs[1]), exchanged(out));
        let window = Window {
            kernel: kernel.shape[2..].to_vec(),
            stride: window.dilation.clone(),
            dilation: window.stride.clone(),
            ..window.clone()
        };
        let geometry =
            Geometry::new(&window, 1, MemoryFormat::Contiguous, &x.shape, &kernel.shape, &y.shape)?;
        let sizes =
            [&x, &y, &kernel].map(|tensor| (tensor.count() * self.math.bytes()).next_multiple_of(256));
        let before = sizes.iter().sum();
        let base = self.convolve_scratch(&geometry, Direction::BackwardFilter, before)?;
        let x = DeviceTensor { at: base, ..x };
        let y = DeviceTensor { at: base + sizes[0] as u64, ..y };
        let kernel = DeviceTensor { at: y.at + sizes[1] as u64, ..kernel };
        for (from, to) in [(&inputs[0], &x), (&inputs[1], &y)] {
            self.exchange(from, to)?;
        }
        self.convolve(geometry, Direction::BackwardFilter, [x, kernel.clone(), y], before)?;
        self.exchange(&kernel, out)
    }

    /// Copies with the first two axes exchanged.
    fn exchange(&mut self, from: &DeviceTensor, to: &DeviceTensor) -> Result<()> {
        let mut along = from.strides();
        along.swap(0, 1);
        self.copy(from, 0, along, to, 0, &to.shape)
    }

    /// Scratch memory: `before` bytes for the caller, then what [`Translator::convolve`] needs.
    fn convolve_scratch(&mut self, geometry: &Geometry, direction: Direction, before: usize) -> Result<u64> {
        let plan = CudnnPlan::new(self.device, geometry, direction, self.math)?;
        self.scratch(before + plan.workspace + self.halves(geometry).iter().sum::<usize>())
    }

    /// Bytes of input, kernel and result as bfloat16, if they are computed so; else 0.
    fn halves(&self, geometry: &Geometry) -> [usize; 3] {
        let bytes = |dims: &[i32]| dims.iter().map(|&n| n as usize).product::<usize>() * 2;
        let sizes = [&geometry.input, &geometry.kernel, &geometry.result].map(|dims| bytes(dims));
        match self.math {
            Math::Bf16 => sizes.map(|size| size.next_multiple_of(256)),
            _ => [0; 3],
        }
    }

    /// Computes one of `[input, kernel, result]` from the other two. The first `before` bytes of scratch memory stay untouched.
    fn convolve(
        &mut self,
        geometry: Geometry,
        direction: Direction,
        tensors: [DeviceTensor; 3],
        before: usize,
    ) -> Result<()> {
        let plan = CudnnPlan::new(self.device, &geometry, direction, self.math)?;
        let halves = self.halves(&geometry);
        let base = self.scratch(before + plan.workspace + halves.iter().sum::<usize>())? + before as u64;
        let starts = [0, halves[0], halves[0] + halves[1]].map(|start| base + start as u64);
        let workspace = base + halves.iter().sum::<usize>() as u64;
        let written = match direction {
            Direction::BackwardData => 0,
            Direction::BackwardFilter => 1,
            Direction::Forward => 2,
        };
        let half = self.math == Math::Bf16;
        let at = |index: usize| if half { starts[index] } else { tensors[index].at };
        if half {
            for index in (0..3).filter(|&index| index != written) {
                self.convert("to_bfloat16", tensors[index].at, starts[index], tensors[index].count())?;
            }
        }
        let addresses = Tensors { input: at(0), kernel: at(1), result: at(2) };
        self.commands.push(Command::Convolution(Box::new(Convolution {
            plan,
            tensors: addresses,
            workspace,
        })));
        if half {
            self.convert("from_bfloat16", starts[written], tensors[written].at, tensors[written].count())?;
        }
        Ok(())
    }

    fn convert(&mut self, kernel: &str, from: u64, to: u64, count: usize) -> Result<()> {
        self.launch(kernel, count, Arguments::default().with(from).with(to).with(count as u32))
    }
}

/// Whether a transposed convolution leads from many channels to few, as in the gradient of an image.
pub(in crate::cuda) fn is_folded(window: &Window, groups: usize, from: usize, to: usize) -> bool {
    groups == 1 && to <= FEW_CHANNELS && from > FEW_CHANNELS && window.axes() <= 3
}

/// Whether a convolution is a weight gradient: with a kernel of the size of its result, a convolution of the same input has a
/// result of the size of its kernel.
fn is_kernel(window: &Window, x: &[usize], w: &[usize], out: &[usize]) -> bool {
    (0..window.axes()).all(|axis| {
        let (before, after) = window.pad[axis];
        let span = window.stride[axis] * (out[axis + 2] - 1) + 1;
        let room = (x[axis + 2] + before + after).checked_sub(span);
        room.is_some_and(|room| room / window.dilation[axis] + 1 == w[axis + 2])
    })
}

impl Geometry {
    fn new(
        window: &Window,
        groups: usize,
        format: MemoryFormat,
        input: &[usize],
        kernel: &[usize],
        result: &[usize],
    ) -> Result<Self> {
        let axes = window.axes();
        if !(1..=3).contains(&axes) {
            return Err(Error::unsupported(format!(
                "cuDNN convolves over 1 to 3 axes, found {axes}; use the engine 'cpu'"
            )));
        }
        // One spatial axis becomes two, the first of length one.
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
            format,
        })
    }
}
