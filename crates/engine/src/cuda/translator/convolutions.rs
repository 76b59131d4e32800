//! Convolutions, their transposes and the gradients of kernels as commands: what cuDNN is told, and what is done around it
//! where it asks for more than it is given.

use monosplit_graph::op::Window;
use monosplit_graph::{Error, Result};

use super::{Site, Translator, product};
use crate::cuda::Math;
use crate::cuda::command::{Arguments, Command};
use crate::cuda::convolution::{Choice, Convolution, Geometry, Sought, Tensors};
use crate::cuda::layout::{FOLDS, Pool, compiled_for};
use crate::cuda::order::Order;
use crate::cuda::product::Operand;

/// Channels that are too few for cuDNN.
const FEW_CHANNELS: usize = 4;
/// Bytes of products that are added up at a time, at most.
const MOST_FOLDED: usize = 512 << 20;
/// Elements of a kernel beyond which it may be the gradient of another.
const LARGE_KERNEL: usize = 49;

fn small(lengths: impl IntoIterator<Item = usize>) -> Result<Vec<i32>> {
    let small = |n| i32::try_from(n).map_err(|_| Error::argument("an axis is too long for the card"));
    lengths.into_iter().map(small).collect()
}

impl Translator<'_> {
    pub(super) fn convolution(
        &mut self,
        window: &Window,
        groups: usize,
        inputs: &[Site],
        out: &Site,
    ) -> Result<()> {
        let (x, w) = (&inputs[0], &inputs[1]);
        let large = product(&w.shape[2..]) > product(&out.shape[2..]).max(LARGE_KERNEL);
        if groups == 1 && large && !w.constant && is_kernel(window, &x.shape, &w.shape, &out.shape) {
            return self.correlation(window, inputs, out);
        }
        let geometry = Geometry::new(window, groups, out.order, &x.shape, &w.shape, &out.shape)?;
        self.convolve(geometry, Sought::Result, [x.clone(), w.clone(), out.clone()], 0)
    }

    pub(super) fn transposed(
        &mut self,
        window: &Window,
        groups: usize,
        inputs: &[Site],
        out: &Site,
    ) -> Result<()> {
        let (y, w) = (&inputs[0], &inputs[1]);
        if is_folded(window, groups, y.shape[1], out.shape[1]) {
            return self.folded(window, y, w, out);
        }
        let geometry = Geometry::new(window, groups, out.order, &out.shape, &w.shape, &y.shape)?;
        self.convolve(geometry, Sought::Input, [out.clone(), w.clone(), y.clone()], 0)
    }

    /// A transposed convolution to few channels, as gradients of pictures are: cuDNN's kernels leave most of the card idle
    /// there. Every tap is a row of one matrix product, and what falls on the same place is added up after that.
    fn folded(&mut self, window: &Window, y: &Site, w: &Site, out: &Site) -> Result<()> {
        let (samples, channels) = (y.shape[0], y.shape[1]);
        let (taps, places) = (product(&w.shape[1..]), product(&y.shape[2..]));
        let each = taps * places * self.math.bytes();
        let piece = (MOST_FOLDED / each.max(1)).clamp(1, samples.max(1));
        let pool = Pool::new(window, &out.shape[2..], &y.shape[2..], None, 1)?;
        let products = self.scratch(piece * each)?;
        let (per_sample, per_result) = (channels * places, product(&out.shape[1..]));
        for start in (0..samples).step_by(piece) {
            let count = piece.min(samples - start);
            let at = |site: &Site, elements: usize| site.at + (start * elements * self.math.bytes()) as u64;
            let kernel = Operand { at: w.at, shape: &[channels, taps], transposed: true };
            let last = y.order == Order::ChannelsLast;
            let shape = if last { [count, places, channels] } else { [count, channels, places] };
            let given = Operand { at: at(y, per_sample), shape: &shape, transposed: last };
            let (written, to) = (count * per_result, at(out, per_result));
            self.multiply(&kernel, &given, (products, &[count, taps, places]))?;
            let arguments = Arguments::default().with(products).with(to).with(written as u32).with(pool);
            self.launch(&compiled_for("fold", &FOLDS, window), written, arguments)?;
        }
        Ok(())
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
        let geometry = Geometry::new(&turned, 1, Order::Counted, &x.shape, &kernel.shape, &y.shape)?;
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
        let mut along = from.strides();
        along.swap(0, 1);
        self.copy(from, 0, along, to, 0, &to.shape)
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

/// Whether a transposed convolution leads from many channels to few, as gradients of pictures do.
pub(in crate::cuda) fn is_folded(window: &Window, groups: usize, from: usize, to: usize) -> bool {
    groups == 1 && to <= FEW_CHANNELS && from > FEW_CHANNELS && window.axes() <= 3
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

impl Geometry {
    fn new(
        window: &Window,
        groups: usize,
        order: Order,
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
            order,
        })
    }
}
