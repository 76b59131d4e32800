//! How kernels are told where elements lie. The structures are those of `kernels.cu`, field for field.

use monosplit_graph::op::{self, Divisor as Divided, Window};
use monosplit_graph::{Error, Result};

use super::order::Order;

/// Axes a kernel can be told about; neighbouring ones are joined first.
pub(super) const RANK: usize = 8;

/// A number to divide by, as a multiplication.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Divisor {
    by: u32,
    factor: u32,
    shift: u32,
}

impl Divisor {
    /// For dividends below 2³¹.
    pub(super) fn new(by: usize) -> Self {
        let by = (by.max(1)) as u32;
        let shift = 32 - (by - 1).leading_zeros();
        let factor = (((1u64 << shift) - u64::from(by)) << 32) / u64::from(by) + 1;
        Divisor { by, factor: factor as u32, shift }
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Axes {
    rank: i32,
    length: [Divisor; RANK],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Strides {
    along: [i64; RANK],
}

/// How many elements lie between neighbours along each axis of a value of this shape.
pub(super) fn strides_of(shape: &[usize]) -> Vec<i64> {
    Order::Counted.strides(shape)
}

/// Those of a value of shape `from` read as if it had the shape `to`, lengths of one repeated.
pub(super) fn broadcast_strides(from: &[usize], to: &[usize]) -> Vec<i64> {
    repeated(&strides_of(from), from, to)
}

/// The same of a value with these strides.
pub(super) fn repeated(own: &[i64], from: &[usize], to: &[usize]) -> Vec<i64> {
    let missing = to.len() - from.len();
    let along = |axis: usize| match axis.checked_sub(missing) {
        Some(axis) if from[axis] != 1 => own[axis],
        _ => 0,
    };
    (0..to.len()).map(along).collect()
}

/// A walk over places of `shape` in several values at once, each with its own strides; axes that all of them pass
/// through in one go are one.
#[derive(Clone, Debug)]
pub(super) struct Walk {
    pub(super) shape: Vec<usize>,
    pub(super) strides: Vec<Vec<i64>>,
}

impl Walk {
    pub(super) fn new(shape: &[usize], strides: &[Vec<i64>]) -> Self {
        let mut walk = Walk { shape: Vec::new(), strides: vec![Vec::new(); strides.len()] };
        for (axis, &length) in shape.iter().enumerate().filter(|(_, length)| **length != 1) {
            let joins = !walk.shape.is_empty()
                && strides
                    .iter()
                    .zip(&walk.strides)
                    .all(|(new, old)| old.last() == Some(&(new[axis] * length as i64)));
            if joins {
                *walk.shape.last_mut().unwrap_or(&mut 0) *= length;
            } else {
                walk.shape.push(length);
            }
            for (new, old) in strides.iter().zip(&mut walk.strides) {
                if joins {
                    old.pop();
                }
                old.push(new[axis]);
            }
        }
        walk
    }

    pub(super) fn axes(&self) -> Result<Axes> {
        axes(&self.shape)
    }

    pub(super) fn along(&self, value: usize) -> Strides {
        strides(&self.strides[value])
    }
}

pub(super) fn axes(shape: &[usize]) -> Result<Axes> {
    if shape.len() > RANK {
        return Err(Error::unsupported(format!(
            "the engine 'cuda' walks over at most {RANK} axes at once, found {}; use --engine cpu",
            shape.len()
        )));
    }
    let mut length = [Divisor::default(); RANK];
    length.iter_mut().zip(shape).for_each(|(to, &from)| *to = Divisor::new(from));
    Ok(Axes { rank: shape.len() as i32, length })
}

pub(super) fn strides(along: &[i64]) -> Strides {
    let mut strides = Strides::default();
    strides.along.iter_mut().zip(along).for_each(|(to, &from)| *to = from);
    strides
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Margins {
    pub(super) mode: i32,
    pub(super) before: [i32; RANK],
    pub(super) length: [i32; RANK],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Pool {
    input: [i32; 3],
    output: [i32; 3],
    kernel: [i32; 3],
    stride: [i32; 3],
    dilation: [i32; 3],
    before: [i32; 3],
    after: [i32; 3],
    divisor: i32,
    even: i32,
    out: [Divisor; 3],
    of: [Divisor; 3],
    beside: Divisor,
}

impl Pool {
    /// A window over planes of size `input` to planes of size `output`, of three axes at most, each a channel of its own or
    /// with all channels of a place side by side.
    pub(super) fn new(
        window: &Window,
        input: &[usize],
        output: &[usize],
        divisor: Option<Divided>,
        beside: usize,
    ) -> Result<Self> {
        let axes = window.axes();
        if axes > 3 {
            return Err(Error::unsupported(format!(
                "the engine 'cuda' pools over at most 3 axes, found {axes}; use --engine cpu"
            )));
        }
        let last = |values: &dyn Fn(usize) -> usize, missing: usize| {
            let at = |axis: usize| (axis + axes).checked_sub(3).map_or(missing, values);
            [at(0) as i32, at(1) as i32, at(2) as i32]
        };
        let divisors = |lengths: &[usize]| {
            let at = |axis: usize| Divisor::new((axis + axes).checked_sub(3).map_or(1, |axis| lengths[axis]));
            [at(0), at(1), at(2)]
        };
        Ok(Pool {
            input: last(&|axis| input[axis], 1),
            output: last(&|axis| output[axis], 1),
            kernel: last(&|axis| window.kernel[axis], 1),
            stride: last(&|axis| window.stride[axis], 1),
            dilation: last(&|axis| window.dilation[axis], 1),
            before: last(&|axis| window.pad[axis].0, 0),
            after: last(&|axis| window.pad[axis].1, 0),
            divisor: match divisor {
                Some(Divided::Covered) => 0,
                Some(Divided::Padded) => 1,
                Some(Divided::One) | None => 2,
            },
            even: even(window, input, output, divisor),
            out: divisors(output),
            of: divisors(input),
            beside: Divisor::new(beside),
        })
    }
}

/// Sides and strides of windows that pools, and that folds, are compiled for.
pub(super) const POOLS: [(usize, usize); 2] = [(2, 2), (3, 2)];
pub(super) const FOLDS: [(usize, usize); 2] = [(3, 1), (7, 2)];

/// The kernel of this name for such a window: one that is compiled for it, or that for all.
pub(super) fn compiled_for(name: &str, all: &[(usize, usize)], window: &Window) -> String {
    let known = all.iter().find(|(side, stride)| {
        window.kernel == [*side; 2] && window.stride == [*stride; 2] && window.dilation == [1; 2]
    });
    known.map_or_else(|| name.to_string(), |(side, stride)| format!("{name}_{side}_{stride}"))
}

/// What every sum of a pool is divided by, 0 if not all by the same number.
fn even(window: &Window, input: &[usize], output: &[usize], divisor: Option<Divided>) -> i32 {
    let inside = |axis: usize| {
        let span = (window.kernel[axis] - 1) * window.dilation[axis] + 1;
        let plain = window.pad[axis] == (0, 0) || divisor == Some(Divided::Padded);
        let room = input[axis] + window.pad[axis].0 + window.pad[axis].1;
        plain && output[axis].saturating_sub(1) * window.stride[axis] + span <= room
    };
    match divisor {
        None | Some(Divided::One) => 1,
        Some(_) if (0..window.axes()).all(inside) => window.kernel.iter().product::<usize>() as i32,
        Some(_) => 0,
    }
}

/// What kernels call the mean.
pub(super) const MEAN: i32 = 1;
/// Threads of a block that reduces, at most.
pub(super) const MOST_THREADS: u32 = 1024;
/// Elements that are worth a thread, where several share what is reduced to one.
const SHARE: u32 = 16;
/// Threads that keep a card busy.
const BUSY: usize = 1 << 19;

/// What kernels call a reduction.
pub(super) fn number_of(reduction: op::Reduction) -> i32 {
    match reduction {
        op::Reduction::Sum => 0,
        op::Reduction::Mean => MEAN,
        op::Reduction::Max => 2,
        op::Reduction::Min => 3,
        op::Reduction::Product => 4,
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Reduction {
    how: i32,
    pub(super) count: u32,
    parts: u32,
    kept: Axes,
    gone: Axes,
    of_kept: Strides,
    of_gone: Strides,
}

/// Whether all that a reduction over these axes makes one of lies side by side.
pub(super) fn are_neighbours(order: Order, gone: &[usize]) -> bool {
    order == Order::ChannelsLast && gone == [1]
}

impl Reduction {
    /// Of a value of `shape` in this order over the axes `gone`. Results are in the order they are counted in.
    pub(super) fn new(how: i32, shape: &[usize], order: Order, gone: &[usize]) -> Result<Self> {
        let (own, counted) = (order.strides(shape), (0..shape.len()).collect::<Vec<usize>>());
        let part = |axes: &[usize], wanted: bool| {
            let axes = axes.iter().copied().filter(|axis| gone.contains(axis) == wanted);
            let (shape, along): (Vec<usize>, Vec<i64>) = axes.map(|axis| (shape[axis], own[axis])).unzip();
            Walk::new(&shape, &[along])
        };
        let (kept, reduced) = (part(&counted, false), part(&order.arranged(&counted), true));
        Ok(Reduction {
            how,
            count: reduced.shape.iter().product::<usize>() as u32,
            parts: 1,
            kept: kept.axes()?,
            gone: reduced.axes()?,
            of_kept: kept.along(0),
            of_gone: reduced.along(0),
        })
    }

    /// Whether neighbours of the result are neighbours in what is reduced, and may be read together.
    pub(super) fn keeps_neighbours(&self) -> bool {
        let last = self.kept.rank as usize;
        last > 0 && self.of_kept.along[last - 1] == 1
    }

    /// For so many results, how many threads share what is reduced to one, and how many neighbours a block takes.
    pub(super) fn rows(&self, results: usize) -> (u32, u32) {
        let most = match self.count {
            0..8 => 1,
            8..128 => 8,
            _ => 32,
        };
        let rows = (BUSY / results.max(1)).next_power_of_two().clamp(1, most) as u32;
        (rows, (256 / rows).max(MOST_THREADS / 32))
    }

    /// Where all that is reduced to one lies side by side, how many threads of a warp share it.
    pub(super) fn sharing(&self) -> u32 {
        (self.count / SHARE).next_power_of_two().clamp(1, 32)
    }

    /// The same, every sum cut into so many.
    pub(super) fn in_parts(self, parts: usize) -> Self {
        Reduction { parts: parts as u32, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divisions_are_multiplications() {
        for by in [1usize, 2, 3, 5, 7, 10, 49, 64, 224, 1000, 50176, 65537, (1 << 31) - 1] {
            let d = Divisor::new(by);
            for n in [0u32, 1, 2, by as u32 - 1, by as u32, 1 << 20, 123_456_789, i32::MAX as u32] {
                let high = ((u64::from(n) * u64::from(d.factor)) >> 32) as u32;
                assert_eq!(((u64::from(high) + u64::from(n)) >> d.shift) as u32, n / by as u32, "{n}/{by}");
            }
        }
    }

    #[test]
    fn few_results_share_their_sums_among_many_threads() {
        let in_order =
            |order, channels: usize| Reduction::new(0, &[1, channels, 10, 10], order, &[1]).unwrap();
        let of = |channels: usize| in_order(Order::Counted, channels);
        assert_eq!(of(64).rows(1 << 21), (1, 256));
        assert_eq!(of(512).rows(1 << 21), (1, 256));
        assert_eq!(of(64).rows(100), (8, 32));
        assert_eq!(of(512).rows(100), (32, 32));
        assert_eq!(of(3).rows(100), (1, 256));
        for results in [1, 1000, 100_000, 1_000_000] {
            let (rows, width) = of(512).rows(results);
            assert!(rows.is_power_of_two() && rows * width <= MOST_THREADS);
        }
        let sharing = [3, 64, 512, 4096].map(|channels| in_order(Order::ChannelsLast, channels).sharing());
        assert_eq!(sharing, [1, 4, 32, 32]);
    }

    #[test]
    fn a_walk_joins_axes_that_are_passed_in_one_go() {
        let shape = [2, 3, 4, 5];
        let bias = broadcast_strides(&[3, 1, 1], &shape);
        let walk = Walk::new(&shape, &[strides_of(&shape), bias]);
        assert_eq!(walk.shape, [2, 3, 20]);
        assert_eq!(walk.strides, [vec![60, 20, 1], vec![0, 1, 0]]);
        assert_eq!(Walk::new(&shape, &[strides_of(&shape)]).shape, [120]);
        assert_eq!(Walk::new(&shape, &[vec![0; 4]]).shape, [120]);
    }
}
