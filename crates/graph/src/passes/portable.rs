//! Explanations in ops that every runtime has and runs fast. A transposed convolution of stride 1 becomes a convolution
//! with rotated kernels. The position of the maximum under a pooling window is found by comparing shifted views with
//! the maximum, because many runtimes lack the indices and scattered sums it would need otherwise. Where one window
//! covers everything, as in a maximum over an axis, the index of the maximum is enough.

use std::collections::HashMap;

use crate::axis_indices::axis_indices;
use crate::error::{Error, Result};
use crate::graph::{Graph, Node, NodeId};
use crate::op::{Binary, Divisor, Op, Padding, Reduction, Unary, Window};
use crate::shape::{Dim, Shape};
use crate::tensor::Tensor;

use super::rewrite::{Rewrite, Step};

/// The largest product of a pool's strides: its gradient has one value for each remainder.
const MAX_REMAINDERS: usize = 1 << 12;

/// Windows of more elements than this keep their op: each element would become nodes of its own.
const LARGEST_WINDOW: usize = 64;

/// Rewrites transposed convolutions of stride 1, transposed pools over whole maps, and gathers and scatters at the maxima
/// of a pool, into convolutions, comparisons, slices and sums.
pub fn portable(graph: &Graph) -> Result<Graph> {
    let mut maxima: HashMap<(NodeId, Window), WindowMax> = HashMap::new();
    Rewrite::run(graph, |rewrite, _, node| {
        let inputs = rewrite.inputs(node);
        let g = &mut rewrite.target;
        let value = match &node.op {
            Op::ConvTranspose { window, groups, output_padding } => {
                rotated(g, node, &inputs, window, *groups, output_padding)?
            }
            Op::AveragePoolTranspose { window, divisor, spatial } => {
                whole_map(g, node, inputs[0], window, *divisor, spatial)?
            }
            Op::WinnerGather(window) | Op::WinnerScatter(window) => {
                let key = (inputs[0], window.clone());
                if !maxima.contains_key(&key) {
                    let maximum = WindowMax::new(g, inputs[0], window)?;
                    maxima.insert(key.clone(), maximum);
                }
                match node.op {
                    Op::WinnerGather(_) => maxima[&key].gather(g, inputs[1])?,
                    _ => maxima[&key].scatter(g, inputs[1])?,
                }
            }
            _ => None,
        };
        Ok(value.map_or(Step::Keep, Step::Replace))
    })
}

/// The convolution with rotated kernels that a transposed convolution of stride 1 is.
fn rotated(
    g: &mut Graph,
    node: &Node,
    inputs: &[NodeId],
    window: &Window,
    groups: usize,
    output_padding: &[usize],
) -> Result<Option<NodeId>> {
    let axes = window.axes();
    let spans: Option<Vec<usize>> = (0..axes).map(|axis| window.span(axis)).collect();
    let Some(spans) = spans else { return Ok(None) };
    let fits = |axis: usize| window.pad[axis].0 < spans[axis] && window.pad[axis].1 < spans[axis];
    if window.stride.iter().any(|&s| s != 1) || output_padding.iter().any(|&n| n != 0) || !(0..axes).all(fits)
    {
        return Ok(None);
    }
    let mut back = window.clone();
    for ((pad, span), &(begin, end)) in back.pad.iter_mut().zip(&spans).zip(&window.pad) {
        *pad = (span - 1 - begin, span - 1 - end);
    }
    let Some(weight) = turned(g, inputs[1], groups)? else { return Ok(None) };
    let operands: Vec<NodeId> = [inputs[0], weight].into_iter().chain(inputs.get(2).copied()).collect();
    let convolution = g.add(Op::Conv { window: back, groups }, &operands)?;
    Ok((g.node(convolution).shape == node.shape).then_some(convolution))
}

/// The transpose of a pool over whole maps: the same share everywhere.
fn whole_map(
    g: &mut Graph,
    node: &Node,
    y: NodeId,
    window: &Window,
    divisor: Divisor,
    spatial: &[usize],
) -> Result<Option<NodeId>> {
    if window.kernel != spatial || window.pad.iter().any(|&pad| pad != (0, 0)) {
        return Ok(None);
    }
    let count = if divisor == Divisor::One { 1 } else { spatial.iter().product::<usize>() };
    let share = g.scaled(1.0 / count.max(1) as f64, y)?;
    g.add(Op::Expand { shape: node.shape.clone() }, &[share]).map(Some)
}

/// Weights `[C, O/groups, …]` as `[O, C/groups, …]`, every kernel rotated: those of the convolution that a transposed
/// one of stride one is.
pub(super) fn turned(g: &mut Graph, weight: NodeId, groups: usize) -> Result<Option<NodeId>> {
    let mut rotated = weight;
    // Rotated first, so that what changes the order of axes afterwards is one transpose with this.
    for axis in 2..g.node(weight).shape.rank() {
        let length = g.node(weight).shape.fixed_at(axis).unwrap_or(0);
        if length > 1 {
            rotated = g.add(Op::Slice { axis, start: length - 1, step: -1, length }, &[rotated])?;
        }
    }
    exchanged(g, rotated, groups)
}

/// Weights `[C, O/groups, …]` as `[O, C/groups, …]`.
fn exchanged(g: &mut Graph, weight: NodeId, groups: usize) -> Result<Option<NodeId>> {
    let Some(dims) = g.node(weight).shape.dims().iter().map(|d| d.fixed()).collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    let spatial = dims[2..].to_vec();
    if groups == 1 {
        let axes: Vec<usize> = [1, 0].into_iter().chain(2..dims.len()).collect();
        return g.add(Op::Transpose { axes }, &[weight]).map(Some);
    }
    let apart = [vec![groups, dims[0] / groups, dims[1]], spatial.clone()].concat();
    let apart = g.reshaped(weight, Shape::fixed(&apart))?;
    let axes: Vec<usize> = [0, 2, 1].into_iter().chain(3..dims.len() + 1).collect();
    let turned = g.add(Op::Transpose { axes }, &[apart])?;
    let together = [vec![groups * dims[1], dims[0] / groups], spatial].concat();
    g.reshaped(turned, Shape::fixed(&together)).map(Some)
}

/// The positions of the maxima of a max pool.
enum WindowMax {
    /// The pool has one window.
    Single(SingleWindowMax),
    /// The pool has many windows.
    Sliding(SlidingWindowMax),
    /// There is no form in other ops; the op is kept.
    Kept,
}

impl WindowMax {
    fn new(g: &mut Graph, a: NodeId, window: &Window) -> Result<Self> {
        if let Some(single) = SingleWindowMax::new(g, a, window)? {
            return Ok(WindowMax::Single(single));
        }
        Ok(SlidingWindowMax::new(g, a, window)?.map_or(WindowMax::Kept, WindowMax::Sliding))
    }

    /// The element of `value` at each maximum.
    fn gather(&self, g: &mut Graph, value: NodeId) -> Result<Option<NodeId>> {
        match self {
            WindowMax::Single(maximum) => maximum.gather(g, value).map(Some),
            WindowMax::Sliding(maximum) => maximum.gather(g, value).map(Some),
            WindowMax::Kept => Ok(None),
        }
    }

    /// `y` added at each maximum.
    fn scatter(&self, g: &mut Graph, y: NodeId) -> Result<Option<NodeId>> {
        match self {
            WindowMax::Single(maximum) => maximum.scatter(g, y).map(Some),
            WindowMax::Sliding(maximum) => maximum.scatter(g, y).map(Some),
            WindowMax::Kept => Ok(None),
        }
    }
}

/// A pool whose one window covers the whole map.
struct SingleWindowMax {
    /// The shape `[N, C, 1…]` of the pool's value.
    pooled: Shape,
    /// The shape `[N, C, positions]` in which the maximum is taken.
    flat: Shape,
    /// The shape of the pool's input.
    whole: Shape,
    /// Whether each position has the maximum, `[N, C, positions]`.
    won: NodeId,
}

impl SingleWindowMax {
    /// `None` if positions lie outside the window, or if there is padding.
    fn new(g: &mut Graph, a: NodeId, window: &Window) -> Result<Option<Self>> {
        let whole = g.node(a).shape.clone();
        let Some((lead, spatial)) = whole.dims().split_at_checked(2) else { return Ok(None) };
        let Some(lengths) = spatial.iter().map(|d| d.fixed()).collect::<Option<Vec<usize>>>() else {
            return Ok(None);
        };
        let places = lengths.iter().try_fold(1usize, |places, &length| places.checked_mul(length));
        let Some(places) = places.filter(|&places| places > 0) else { return Ok(None) };
        let plain = window.pad.iter().all(|&pad| pad == (0, 0)) && window.dilation.iter().all(|&d| d == 1);
        if window.kernel != lengths || !plain {
            return Ok(None);
        }
        let shaped = |lengths: Vec<usize>| {
            Shape::new([lead.to_vec(), lengths.into_iter().map(Dim::Fixed).collect()].concat())
        };
        let (pooled, flat) = (shaped(vec![1; lengths.len()]), shaped(vec![places]));
        let candidates = g.reshaped(a, flat.clone())?;
        let winner = g.add(Op::ArgMax { axis: 2, keep: true }, &[candidates])?;
        let numbers = Tensor::new([1, 1, places], axis_indices(places)?)?;
        let numbers = g.constant(numbers);
        let won = g.binary(Binary::Equal, winner, numbers)?;
        Ok(Some(SingleWindowMax { pooled, flat, whole, won }))
    }

    fn gather(&self, g: &mut Graph, value: NodeId) -> Result<NodeId> {
        let value = g.reshaped(value, self.flat.clone())?;
        let kept = g.masked(self.won, value)?;
        let found = g.reduced(Reduction::Sum, kept, &[2], true)?;
        g.reshaped(found, self.pooled.clone())
    }

    fn scatter(&self, g: &mut Graph, y: NodeId) -> Result<NodeId> {
        let column = Shape::new([&self.flat.dims()[..2], &[Dim::Fixed(1)]].concat());
        let y = g.reshaped(y, column)?;
        let scattered = g.masked(self.won, y)?;
        g.reshaped(scattered, self.whole.clone())
    }
}

/// A max pool as one mask per tap of the window: whether the tap has the maximum.
struct SlidingWindowMax {
    window: Window,
    /// Spatial size of the pool's input.
    lengths: Vec<usize>,
    /// Number of the window's positions along each axis.
    positions: Vec<usize>,
    /// Every tap of the window, and its mask `[N, C, positions…]`.
    won: Vec<(Vec<usize>, NodeId)>,
}

impl SlidingWindowMax {
    /// `None` if the window is too large, or dilated, or of unknown size.
    fn new(g: &mut Graph, a: NodeId, window: &Window) -> Result<Option<Self>> {
        let lengths =
            g.node(a).shape.dims().iter().skip(2).map(|d| d.fixed()).collect::<Option<Vec<usize>>>();
        let Some(lengths) = lengths else { return Ok(None) };
        let positions = lengths.iter().enumerate().map(|(axis, &n)| window.positions(axis, n));
        let Some(positions) = positions.collect::<Option<Vec<usize>>>() else { return Ok(None) };
        let size = window.kernel.iter().try_fold(1usize, |size, &k| size.checked_mul(k));
        if size.is_none_or(|size| size > LARGEST_WINDOW) || window.dilation.iter().any(|&d| d != 1) {
            return Ok(None);
        }
        let mut maximum = SlidingWindowMax { window: window.clone(), lengths, positions, won: Vec::new() };
        let largest = g.add(Op::MaxPool(window.clone()), &[a])?;
        let padded = maximum.padded(g, a, f64::from(f32::MIN))?;
        let mut taken: Option<NodeId> = None;
        for place in maximum.places() {
            let view = maximum.view(g, padded, &place)?;
            let mut won = g.binary(Binary::Equal, view, largest)?;
            if let Some(earlier) = taken {
                let free = g.unary(Unary::Not, earlier)?;
                won = g.binary(Binary::And, won, free)?;
            }
            taken = Some(taken.map_or(Ok(won), |earlier| g.binary(Binary::Or, earlier, won))?);
            maximum.won.push((place, won));
        }
        Ok(Some(maximum))
    }

    /// The taps of the window. Of equal elements the first has the maximum.
    fn places(&self) -> Vec<Vec<usize>> {
        let mut places = vec![Vec::new()];
        for &length in &self.window.kernel {
            let further = |place: &Vec<usize>| {
                let place = place.clone();
                (0..length).map(move |k| [place.clone(), vec![k]].concat())
            };
            places = places.iter().flat_map(further).collect();
        }
        places
    }

    /// The number of rows that all positions of the window cover, padding before them included.
    fn reach(&self, axis: usize) -> usize {
        let last = self.positions[axis].saturating_sub(1) * self.window.stride[axis];
        (last + self.window.kernel[axis]).max(self.window.pad[axis].0 + self.lengths[axis])
    }

    /// The value padded to what the window's positions cover.
    fn padded(&self, g: &mut Graph, value: NodeId, with: f64) -> Result<NodeId> {
        let around = (0..self.lengths.len()).map(|axis| {
            let before = self.window.pad[axis].0;
            (before, self.reach(axis) - before - self.lengths[axis])
        });
        let pads: Vec<(usize, usize)> = [(0, 0), (0, 0)].into_iter().chain(around).collect();
        if pads.iter().all(|&pad| pad == (0, 0)) {
            return Ok(value);
        }
        g.add(Op::Pad { padding: Padding::Constant(with), pads }, &[value])
    }

    /// The elements under one tap at all positions of the window.
    fn view(&self, g: &mut Graph, padded: NodeId, place: &[usize]) -> Result<NodeId> {
        let mut view = padded;
        for (axis, &start) in place.iter().enumerate() {
            let (step, length) = (self.window.stride[axis] as isize, self.positions[axis]);
            view = g.add(Op::Slice { axis: axis + 2, start, step, length }, &[view])?;
        }
        Ok(view)
    }

    /// The element of `value` at each maximum.
    fn gather(&self, g: &mut Graph, value: NodeId) -> Result<NodeId> {
        let padded = self.padded(g, value, 0.0)?;
        let mut found: Option<NodeId> = None;
        for (place, won) in &self.won {
            let view = self.view(g, padded, place)?;
            let rest = found.unwrap_or_else(|| g.number(0.0));
            found = Some(g.select(*won, view, rest)?);
        }
        Ok(found.unwrap_or(value))
    }

    /// `y` added at each maximum. Taps a stride apart cover the same rows at different positions, so they are shifted and
    /// added; the sums for each remainder of the stride are then interleaved.
    fn scatter(&self, g: &mut Graph, y: NodeId) -> Result<NodeId> {
        let axes = self.lengths.len();
        let stride = &self.window.stride;
        let rows: Vec<usize> = (0..axes).map(|axis| self.reach(axis).div_ceil(stride[axis])).collect();
        let mut sums: HashMap<Vec<usize>, NodeId> = HashMap::new();
        for (place, won) in &self.won {
            let share = g.masked(*won, y)?;
            let shift = |axis: usize| {
                let shift = place[axis] / stride[axis];
                (shift, rows[axis] - self.positions[axis] - shift)
            };
            let pads: Vec<(usize, usize)> =
                [(0, 0), (0, 0)].into_iter().chain((0..axes).map(shift)).collect();
            let shifted = match pads.iter().all(|&pad| pad == (0, 0)) {
                true => share,
                false => g.add(Op::Pad { padding: Padding::Constant(0.0), pads }, &[share])?,
            };
            let remainder: Vec<usize> = (0..axes).map(|axis| place[axis] % stride[axis]).collect();
            let sum = match sums.remove(&remainder) {
                Some(earlier) => g.plus(earlier, shifted)?,
                None => shifted,
            };
            sums.insert(remainder, sum);
        }
        let whole = self.interleaved(g, &sums, &rows)?;
        self.cut_out(g, whole)
    }

    /// One value of the sums for every remainder of the stride, whose rows alternate.
    fn interleaved(
        &self,
        g: &mut Graph,
        sums: &HashMap<Vec<usize>, NodeId>,
        rows: &[usize],
    ) -> Result<NodeId> {
        let stride = &self.window.stride;
        let axes = stride.len();
        let Some(&any) = sums.values().min() else { return Ok(g.number(0.0)) };
        let lead = g.node(any).shape.dims()[..2].to_vec();
        let fixed = |lengths: &[usize]| lengths.iter().map(|&n| Dim::Fixed(n)).collect::<Vec<Dim>>();
        if stride.iter().all(|&s| s == 1) {
            return Ok(any);
        }
        let count = stride.iter().try_fold(1usize, |count, &stride| count.checked_mul(stride));
        let Some(count) = count.filter(|&count| count <= MAX_REMAINDERS) else {
            return Err(Error::unsupported(format!(
                "the gradient of a max pool with strides {stride:?} takes more than {MAX_REMAINDERS} values in a file; \
                 use smaller strides, or another method"
            )));
        };
        let mut parts = Vec::with_capacity(count);
        for number in 0..count {
            let mut rest = number;
            let mut remainder = vec![0; axes];
            for axis in (0..axes).rev() {
                remainder[axis] = rest % stride[axis];
                rest /= stride[axis];
            }
            let shape = Shape::new([lead.clone(), vec![Dim::Fixed(1)], fixed(rows)].concat());
            parts.push(match sums.get(&remainder) {
                Some(&sum) => g.reshaped(sum, shape)?,
                None => {
                    let zero = g.number(0.0);
                    g.add(Op::Expand { shape }, &[zero])?
                }
            });
        }
        let together = g.add(Op::Concat { axis: 2 }, &parts)?;
        let apart = Shape::new([lead.clone(), fixed(stride), fixed(rows)].concat());
        let apart = g.reshaped(together, apart)?;
        let order: Vec<usize> =
            [0, 1].into_iter().chain((0..axes).flat_map(|axis| [2 + axes + axis, 2 + axis])).collect();
        let turned = g.add(Op::Transpose { axes: order }, &[apart])?;
        let lengths: Vec<usize> = rows.iter().zip(stride).map(|(&rows, &s)| rows * s).collect();
        g.reshaped(turned, Shape::new([lead, fixed(&lengths)].concat()))
    }

    /// The pool's input without its padding.
    fn cut_out(&self, g: &mut Graph, whole: NodeId) -> Result<NodeId> {
        let mut value = whole;
        for (axis, &length) in self.lengths.iter().enumerate() {
            let start = self.window.pad[axis].0;
            if g.node(value).shape.fixed_at(axis + 2) != Some(length) {
                value = g.add(Op::Slice { axis: axis + 2, start, step: 1, length }, &[value])?;
            }
        }
        Ok(value)
    }
}
