//! The structs that kernels take by value. They have the fields of the structs of the same names in `prelude.cu` and
//! `kernels.cu`, in the same order.

use monosplit_graph::op::{self, Divisor as Divided, Window};
use monosplit_graph::{Error, Result};

use super::memory_format::MemoryFormat;

/// The maximal number of axes, after adjacent axes were coalesced.
pub(super) const RANK: usize = 8;

/// A divisor, prepared so that a division is a multiplication and a shift.
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

/// The strides of a contiguous value of this shape.
pub(super) fn strides_of(shape: &[usize]) -> Vec<i64> {
    MemoryFormat::Contiguous.strides(shape)
}

/// The strides of a contiguous value of shape `from` that is broadcast to the shape `to`.
pub(super) fn broadcast_strides(from: &[usize], to: &[usize]) -> Vec<i64> {
    repeated(&strides_of(from), from, to)
}

/// The strides of a value with the strides `own` and the shape `from` that is broadcast to the shape `to`.
pub(super) fn repeated(own: &[i64], from: &[usize], to: &[usize]) -> Vec<i64> {
    let missing = to.len() - from.len();
    let along = |axis: usize| match axis.checked_sub(missing) {
        Some(axis) if from[axis] != 1 => own[axis],
        _ => 0,
    };
    (0..to.len()).map(along).collect()
}

/// The axes of an iteration over several values at once, each with its own strides. Adjacent axes that are contiguous in all
/// values are coalesced into one.
#[derive(Clone, Debug)]
pub(super) struct CoalescedAxes {
    pub(super) shape: Vec<usize>,
    pub(super) strides: Vec<Vec<i64>>,
}

impl CoalescedAxes {
    pub(super) fn new(shape: &[usize], strides: &[Vec<i64>]) -> Self {
        let mut coalesced = CoalescedAxes { shape: Vec::new(), strides: vec![Vec::new(); strides.len()] };
        for (axis, &length) in shape.iter().enumerate().filter(|(_, length)| **length != 1) {
            let joins = !coalesced.shape.is_empty()
                && strides
                    .iter()
                    .zip(&coalesced.strides)
                    .all(|(new, old)| old.last() == Some(&(new[axis] * length as i64)));
            if joins {
                *coalesced.shape.last_mut().unwrap_or(&mut 0) *= length;
            } else {
                coalesced.shape.push(length);
            }
            for (new, old) in strides.iter().zip(&mut coalesced.strides) {
                if joins {
                    old.pop();
                }
                old.push(new[axis]);
            }
        }
        coalesced
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
            "the engine 'cuda' iterates over at most {RANK} axes, found {}; use the engine 'cpu'",
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
    adjacent: Divisor,
}

impl Pool {
    /// A window over planes of size `input` to planes of size `output`, with at most three axes. At each position
    /// `adjacent` channels are adjacent in memory.
    pub(super) fn new(
        window: &Window,
        input: &[usize],
        output: &[usize],
        divisor: Option<Divided>,
        adjacent: usize,
    ) -> Result<Self> {
        let axes = window.axes();
        if axes > 3 {
            return Err(Error::unsupported(format!(
                "the engine 'cuda' pools over at most 3 axes, found {axes}; use the engine 'cpu'"
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
            adjacent: Divisor::new(adjacent),
        })
    }
}

/// Kernel sizes and strides for which pooling kernels, and folding kernels, are specialised.
pub(super) const POOLS: [(usize, usize); 2] = [(2, 2), (3, 2)];
pub(super) const FOLDS: [(usize, usize); 2] = [(3, 1), (7, 2)];

/// The name of the specialised kernel for a window, or `name` if there is none.
pub(super) fn compiled_for(name: &str, all: &[(usize, usize)], window: &Window) -> String {
    let known = all.iter().find(|(side, stride)| {
        window.kernel == [*side; 2] && window.stride == [*stride; 2] && window.dilation == [1; 2]
    });
    known.map_or_else(|| name.to_string(), |(side, stride)| format!("{name}_{side}_{stride}"))
}

/// The divisor of all sums of an average pool, 0 if it is not the same for all.
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

/// The number of the mean in kernels.
pub(super) const MEAN: i32 = 1;
/// The maximal number of threads of a block that reduces.
pub(super) const MOST_THREADS: u32 = 1024;
/// Elements per thread where several threads reduce one result.
const SHARE: u32 = 16;
/// Threads that fill a GPU.
const BUSY: usize = 1 << 19;

/// The number of a reduction in kernels.
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
    reduced: Axes,
    of_kept: Strides,
    of_reduced: Strides,
}

/// Whether the elements that are reduced to one result are adjacent in memory.
pub(super) fn are_adjacent(format: MemoryFormat, reduced: &[usize]) -> bool {
    format == MemoryFormat::ChannelsLast && reduced == [1]
}

impl Reduction {
    /// Reduces a value of `shape` and `format` over the axes `over`. The result is contiguous.
    pub(super) fn new(how: i32, shape: &[usize], format: MemoryFormat, over: &[usize]) -> Result<Self> {
        let (own, contiguous) = (format.strides(shape), (0..shape.len()).collect::<Vec<usize>>());
        let part = |axes: &[usize], wanted: bool| {
            let axes = axes.iter().copied().filter(|axis| over.contains(axis) == wanted);
            let (shape, along): (Vec<usize>, Vec<i64>) = axes.map(|axis| (shape[axis], own[axis])).unzip();
            CoalescedAxes::new(&shape, &[along])
        };
        let (kept, reduced) = (part(&contiguous, false), part(&format.permuted(&contiguous), true));
        Ok(Reduction {
            how,
            count: reduced.shape.iter().product::<usize>() as u32,
            parts: 1,
            kept: kept.axes()?,
            reduced: reduced.axes()?,
            of_kept: kept.along(0),
            of_reduced: reduced.along(0),
        })
    }

    /// Whether elements that are adjacent in the result are adjacent in the input, so that a warp reads them together.
    pub(super) fn keeps_adjacency(&self) -> bool {
        let last = self.kept.rank as usize;
        last > 0 && self.of_kept.along[last - 1] == 1
    }

    /// For a number of results: how many threads reduce one result, and how many adjacent results a block computes.
    pub(super) fn rows(&self, results: usize) -> (u32, u32) {
        let most = match self.count {
            0..8 => 1,
            8..128 => 8,
            _ => 32,
        };
        let rows = (BUSY / results.max(1)).next_power_of_two().clamp(1, most) as u32;
        (rows, (256 / rows).max(MOST_THREADS / 32))
    }

    /// The number of threads of a warp that reduce one result, if its elements are adjacent.
    pub(super) fn threads_per_result(&self) -> u32 {
        (self.count / SHARE).next_power_of_two().clamp(1, 32)
    }

    /// The same reduction, with every result computed in `parts` parts.
    pub(super) fn in_parts(self, parts: usize) -> Self {
        Reduction { parts: parts as u32, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn division_by_multiplication_is_exact() {
        for by in [1usize, 2, 3, 5, 7, 10, 49, 64, 224, 1000, 50176, 65537, (1 << 31) - 1] {
            let d = Divisor::new(by);
            for n in [0u32, 1, 2, by as u32 - 1, by as u32, 1 << 20, 123_456_789, i32::MAX as u32] {
                let high = ((u64::from(n) * u64::from(d.factor)) >> 32) as u32;
                assert_eq!(((u64::from(high) + u64::from(n)) >> d.shift) as u32, n / by as u32, "{n}/{by}");
            }
        }
    }

    #[test]
    fn few_results_get_many_threads_each() {
        let in_format =
            |format, channels: usize| Reduction::new(0, &[1, channels, 10, 10], format, &[1]).unwrap();
        let of = |channels: usize| in_format(MemoryFormat::Contiguous, channels);
        assert_eq!(of(64).rows(1 << 21), (1, 256));
        assert_eq!(of(512).rows(1 << 21), (1, 256));
        assert_eq!(of(64).rows(100), (8, 32));
        assert_eq!(of(512).rows(100), (32, 32));
        assert_eq!(of(3).rows(100), (1, 256));
        for results in [1, 1000, 100_000, 1_000_000] {
            let (rows, width) = of(512).rows(results);
            assert!(rows.is_power_of_two() && rows * width <= MOST_THREADS);
        }
        let threads = [3, 64, 512, 4096]
            .map(|channels| in_format(MemoryFormat::ChannelsLast, channels).threads_per_result());
        assert_eq!(threads, [1, 4, 32, 32]);
    }

    #[test]
    fn adjacent_axes_are_coalesced() {
        let shape = [2, 3, 4, 5];
        let bias = broadcast_strides(&[3, 1, 1], &shape);
        let coalesced = CoalescedAxes::new(&shape, &[strides_of(&shape), bias]);
        assert_eq!(coalesced.shape, [2, 3, 20]);
        assert_eq!(coalesced.strides, [vec![60, 20, 1], vec![0, 1, 0]]);
        assert_eq!(CoalescedAxes::new(&shape, &[strides_of(&shape)]).shape, [120]);
        assert_eq!(CoalescedAxes::new(&shape, &[vec![0; 4]]).shape, [120]);
    }
}
