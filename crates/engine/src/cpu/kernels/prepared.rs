//! A convolution whose kernel is known, and the way of computing it that suits its sizes: chosen, and the
//! kernel laid out for it, once.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use monosplit_graph::NodeId;
use monosplit_graph::op::Window;

use super::chain::{Chain, Ending};
use super::conv::{Convolution, Finish, PackedKernel};
use super::depthwise::{Depthwise, DepthwiseWalk};
use super::level::Level;
use super::threes::Threes;
use super::winograd::{self, TransformedKernel, Winograd};
use super::winograd_transform::Size;
use crate::cpu::real::Real;

/// Input channels from which on transforming tiles pays.
const TRANSFORMED_INPUTS: usize = 16;
/// Bytes of a kernel that stay in cache from one run to the next.
const CACHED: usize = 1 << 22;

/// How a convolution is computed.
#[derive(Debug)]
enum Way<R> {
    Depthwise(Vec<R>),
    /// With the kernel as it is, or turned round.
    Transformed(Arc<TransformedKernel<R>>, bool),
    Packed(PackedKernel<R>),
}

/// Transformed kernels by the weights they were made of and the size of their tiles.
type Kernels<R> = HashMap<(NodeId, Size), Arc<TransformedKernel<R>>>;

/// Transformed kernels, shared by all nodes of a program that read the same weights.
#[derive(Debug)]
pub(crate) struct Shelf<R> {
    kernels: RefCell<Kernels<R>>,
    accurate: bool,
    samples: usize,
}

/// The transformed kernels of certain weights.
#[derive(Debug)]
pub(crate) struct Compartment<'a, R> {
    shelf: &'a Shelf<R>,
    weights: NodeId,
}

impl<R: Real> Shelf<R> {
    /// An empty shelf, which stays empty where results are to be accurate, for convolutions of about so many samples at a
    /// time.
    pub(crate) fn new(accurate: bool, samples: usize) -> Self {
        Shelf { kernels: RefCell::new(HashMap::new()), accurate, samples }
    }

    /// What is kept of the kernel that is the value of node `weights`.
    pub(crate) fn of(&self, weights: NodeId) -> Compartment<'_, R> {
        Compartment { shelf: self, weights }
    }
}

impl<R: Real> Compartment<'_, R> {
    /// Whether nothing may be transformed: a transform rounds more, and differently from place to place.
    pub(crate) fn is_accurate(&self) -> bool {
        self.shelf.accurate
    }

    /// The tiles that cost least, if transforming pays at all.
    fn size(&self, window: &Window, groups: usize, shape: &[usize], output: &[usize]) -> Option<Size> {
        if !R::FAST || !winograd::applies(window) || groups != 1 || shape[1] < TRANSFORMED_INPUTS {
            return None;
        }
        let pairs = shape[0] * shape[1];
        // Work per pair of channels: multiplications of whole vectors, and what reading the kernel costs as many.
        let cost = |positions: usize, places: usize| {
            let reading = if pairs * places * size_of::<R>() > CACHED { 10 } else { 2 };
            ((positions * self.shelf.samples).next_multiple_of(16) + reading) * places
        };
        let tiles = |size: Size| output.iter().map(|n| n.div_ceil(size.step())).product::<usize>();
        let direct = cost(output.iter().product(), 9);
        [Size::Two, Size::Four]
            .into_iter()
            .map(|size| (cost(tiles(size), size.places()), size))
            .min_by_key(|&(cost, _)| cost)
            .filter(|&(cost, _)| cost < direct)
            .map(|(_, size)| size)
    }

    /// The transform of the weights, which are `w`.
    fn transformed(&self, size: Size, (w, shape): (&[R], &[usize])) -> Arc<TransformedKernel<R>> {
        let taps = |o: usize, i: usize| std::array::from_fn(|tap| w[(o * shape[1] + i) * 9 + tap].to_f64());
        let new = || Arc::new(TransformedKernel::new(Level::best(), size, (shape[0], shape[1]), taps));
        self.shelf.kernels.borrow_mut().entry((self.weights, size)).or_insert_with(new).clone()
    }
}

/// A convolution with a known kernel.
#[derive(Debug)]
pub(crate) struct PreparedConvolution<R> {
    window: Window,
    groups: usize,
    kernel_shape: Vec<usize>,
    way: Way<R>,
}

impl<R: Real> PreparedConvolution<R> {
    /// Prepares the convolution with kernel `w` of shape `shape`. `output` is the size of the output planes, and
    /// where transformed kernels are kept, if transforming may pay: a kernel used only once should go without.
    pub(crate) fn new(
        window: &Window,
        groups: usize,
        (w, shape): (&[R], &[usize]),
        output: Option<(&[usize], &Compartment<'_, R>)>,
    ) -> Self {
        let size = output.and_then(|(output, shelf)| shelf.size(window, groups, shape, output));
        let way = match (size, output) {
            _ if groups > 1 && shape[1] == 1 => Way::Depthwise(w.to_vec()),
            (Some(size), Some((_, shelf))) => Way::Transformed(shelf.transformed(size, (w, shape)), false),
            _ => Way::Packed(PackedKernel::new(Level::best(), groups, w, shape)),
        };
        PreparedConvolution { window: window.clone(), groups, kernel_shape: shape.to_vec(), way }
    }

    /// The convolution that a transposed convolution of stride 1 is: kernels are turned round, inputs and outputs
    /// change places. `None` for other strides, and where more is cut off than the kernel reaches.
    pub(crate) fn transposed(
        window: &Window,
        groups: usize,
        (w, shape): (&[R], &[usize]),
        output: Option<(&[usize], &Compartment<'_, R>)>,
    ) -> Option<Self> {
        let window = turned(window)?;
        let taps: usize = shape[2..].iter().product();
        let (inputs, outputs) = (shape[0] / groups, shape[1]);
        let mut kernel_shape = vec![outputs * groups, inputs];
        kernel_shape.extend(&shape[2..]);
        let size = output.and_then(|(output, shelf)| shelf.size(&window, groups, &kernel_shape, output));
        if let (Some(size), Some((_, shelf))) = (size, output) {
            let way = Way::Transformed(shelf.transformed(size, (w, shape)), true);
            return Some(PreparedConvolution { window, groups, kernel_shape, way });
        }
        let mut turned = Vec::with_capacity(w.len());
        for group in 0..groups {
            for output in 0..outputs {
                for input in 0..inputs {
                    let at = ((group * inputs + input) * outputs + output) * taps;
                    turned.extend(w[at..at + taps].iter().rev());
                }
            }
        }
        Some(PreparedConvolution::new(&window, groups, (&turned, &kernel_shape), None))
    }

    /// Its name in profiles.
    pub(crate) fn name(&self) -> &'static str {
        match &self.way {
            Way::Depthwise(_) => "conv, depthwise",
            Way::Transformed(kernel, _) => match kernel.size() {
                Size::Two => "conv, winograd 2x2",
                Size::Four => "conv, winograd 4x4",
            },
            Way::Packed(_) if self.window.is_pointwise() => "conv, pointwise gemm",
            Way::Packed(_) => "conv, gemm",
        }
    }

    /// `y ← w ⋆ x + bias`, finished piece by piece.
    pub(crate) fn run(
        &self,
        (x, xs): (&[R], &[usize]),
        bias: Option<&[R]>,
        finish: Option<&Finish<'_, R>>,
        (y, ys): (&mut [R], &[usize]),
    ) {
        match &self.way {
            Way::Depthwise(w) => match Depthwise::new(&self.window, xs, &self.kernel_shape, ys) {
                Some(depthwise) => depthwise.run(x, w, bias, finish, y),
                None => {
                    let walk = DepthwiseWalk::new(&self.window, xs, &self.kernel_shape, ys);
                    walk.run(x, w, bias, finish, y);
                }
            },
            Way::Transformed(kernel, turned) => {
                let pad = [self.window.pad[0].0, self.window.pad[1].0];
                Winograd::new(kernel.size(), *turned, pad, xs, ys).run(x, kernel, bias, finish, y);
            }
            Way::Packed(w) => {
                let convolution = Convolution::new(&self.window, self.groups, xs, &self.kernel_shape, ys);
                convolution.run(x, w, bias, finish, y);
            }
        }
    }
}

impl<R: Real> PreparedConvolution<R> {
    /// `y ← then ⋆ (self ⋆ x)`, each with its ending, for a value of shape `between` that is not kept. Whether that can be
    /// done: this is 1×1, and `then` three by three and depthwise.
    pub(crate) fn run_both(
        &self,
        then: &Self,
        (x, xs): (&[R], &[usize]),
        between: &[usize],
        endings: [Ending<'_, R>; 2],
        (y, ys): (&mut [R], &[usize]),
    ) -> bool {
        let chain = self.chain(then, xs, between, ys);
        let (Way::Packed(w), Way::Depthwise(v), Some(chain)) = (&self.way, &then.way, chain) else {
            return false;
        };
        chain.run(x, (w, v), endings, y);
        true
    }

    fn chain(&self, then: &Self, xs: &[usize], between: &[usize], ys: &[usize]) -> Option<Chain> {
        let (&[_, _, h, w], &[_, channels, rows, columns]) = (between, ys) else { return None };
        let planes = Threes::new(&then.window, [h, w], [rows, columns])?;
        let fits = self.window.is_pointwise() && self.groups == 1 && then.kernel_shape[0] == channels;
        let chain = || Chain {
            pointwise: Convolution::new(&self.window, 1, xs, &self.kernel_shape, between),
            planes,
            images: xs[0],
            image: xs[1..].iter().product(),
            between: h * w,
            output: rows * columns,
        };
        (fits && then.groups == channels && between[1] == channels).then(chain)
    }
}

/// The window of the convolution that the transpose of a convolution of stride 1 is.
fn turned(window: &Window) -> Option<Window> {
    let mut turned = window.clone();
    for axis in 0..window.axes() {
        let reach = (window.kernel[axis] - 1).checked_mul(window.dilation[axis])?;
        let (before, after) = window.pad[axis];
        turned.pad[axis] = (reach.checked_sub(before)?, reach.checked_sub(after)?);
    }
    window.stride.iter().all(|&stride| stride == 1).then_some(turned)
}
