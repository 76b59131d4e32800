//! Operations that only move elements: joining, cutting, padding, reordering and picking them.

use monosplit_graph::op::Padding;
use monosplit_graph::{Error, Result};

use super::broadcast::GRAIN;
use super::chunks::for_each_chunk;
use super::transpose::{MatrixView, transpose};
use crate::cpu::real::Element;
use crate::cpu::thread_pool::{TASKS, parallel_for_chunks};

/// `out ← x` with axis `i` of the result being axis `order[i]` of `x`.
pub(crate) fn permute<T: Element>((x, shape): (&[T], &[usize]), order: &[usize], out: &mut [T]) {
    let mut pitches = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        pitches[axis - 1] = pitches[axis] * shape[axis];
    }
    let mut axes: Vec<(usize, usize)> = Vec::new();
    for (length, pitch) in order.iter().map(|&axis| (shape[axis], pitches[axis])).filter(|a| a.0 != 1) {
        match axes.last_mut() {
            Some((outer, of)) if *of == pitch * length => {
                *outer *= length;
                *of = pitch;
            }
            _ => axes.push((length, pitch)),
        }
    }
    let (row, step) = axes.pop().unwrap_or((1, 1));
    let rows_per_task = (GRAIN / row.max(1)).max(1);
    let start_of = |mut index: usize| {
        let mut start = 0;
        for &(length, pitch) in axes.iter().rev() {
            start += index % length * pitch;
            index /= length;
        }
        start
    };
    if let Some(&(length, 1)) = axes.last() {
        // Rows are columns of matrices whose rows have `length` neighbours.
        return for_each_chunk(out, row * rows_per_task, &|task, mut part| {
            let mut index = task * rows_per_task;
            while !part.is_empty() {
                let columns = (length - index % length).min(part.len() / row);
                let target;
                (target, part) = part.split_at_mut(columns * row);
                let data = &x[start_of(index)..];
                transpose(MatrixView { data, rows: row, columns, stride: step }, target, row);
                index += columns;
            }
        });
    }
    for_each_chunk(out, row * rows_per_task, &|task, part| {
        for (i, target) in part.chunks_mut(row).enumerate() {
            let start = start_of(task * rows_per_task + i);
            match step {
                1 => target.copy_from_slice(&x[start..start + target.len()]),
                _ => {
                    for (t, &x) in target.iter_mut().zip(x[start..].iter().step_by(step)) {
                        *t = x;
                    }
                }
            }
        }
    });
}

/// Joins values along `axis`; each comes with its shape.
pub(crate) fn concat<T: Element>(axis: usize, parts: &[(&[T], &[usize])], out: &mut [T]) {
    let widths: Vec<usize> = parts.iter().map(|(_, shape)| shape[axis..].iter().product()).collect();
    let row = widths.iter().sum::<usize>().max(1);
    let rows = out.len() / row;
    if rows >= TASKS {
        let per_task = rows.div_ceil(TASKS);
        return parallel_for_chunks(out, per_task * row, |task, out| {
            for (local, mut rest) in out.chunks_mut(row).enumerate() {
                let outer = task * per_task + local;
                for ((part, _), &width) in parts.iter().zip(&widths) {
                    let piece;
                    (piece, rest) = rest.split_at_mut(width);
                    piece.copy_from_slice(&part[outer * width..(outer + 1) * width]);
                }
            }
        });
    }
    // Few rows: their parts are shared out.
    let mut pieces = Vec::with_capacity(parts.len() * rows);
    for (outer, mut rest) in out.chunks_mut(row).enumerate() {
        for ((part, _), &width) in parts.iter().zip(&widths) {
            let piece;
            (piece, rest) = rest.split_at_mut(width);
            pieces.push((piece, &part[outer * width..(outer + 1) * width]));
        }
    }
    parallel_for_chunks(&mut pieces, 1, |_, pieces| {
        pieces.iter_mut().for_each(|(piece, part)| piece.copy_from_slice(part));
    });
}

/// Copies the slices of `x` along `axis` that `source` names, in order, into `out`.
fn pick<T: Element>(
    axis: usize,
    (x, shape): (&[T], &[usize]),
    count: usize,
    out: &mut [T],
    source: impl Fn(usize) -> usize + Sync,
) {
    let inner: usize = shape[axis + 1..].iter().product();
    let length = shape[axis];
    for_each_chunk(out, count * inner, &|outer, out| {
        if inner == 1 {
            for (i, o) in out.iter_mut().enumerate() {
                *o = x[outer * length + source(i)];
            }
        } else {
            for (i, out) in out.chunks_mut(inner).enumerate() {
                let from = (outer * length + source(i)) * inner;
                out.copy_from_slice(&x[from..from + inner]);
            }
        }
    });
}

/// Elements `start, start + step, …` along `axis`, `length` of them.
pub(crate) fn slice<T: Element>(
    axis: usize,
    start: usize,
    step: isize,
    length: usize,
    x: (&[T], &[usize]),
    out: &mut [T],
) {
    pick(axis, x, length, out, |i| start.wrapping_add_signed(i as isize * step));
}

/// Slices of `x` along `axis` in the order of `indices`, negative ones counted from the end.
pub(crate) fn gather<T: Element>(
    axis: usize,
    x: (&[T], &[usize]),
    indices: &[i64],
    out: &mut [T],
) -> Result<()> {
    let length = x.1[axis] as i64;
    let outside = indices.iter().find(|&&i| i < -length || i >= length);
    if let Some(index) = outside {
        return Err(Error::argument(format!(
            "expected indices from {} to {} into axis {axis}, found {index}",
            -length,
            length - 1
        )));
    }
    let source = |i: usize| if indices[i] < 0 { indices[i] + length } else { indices[i] } as usize;
    pick(axis, x, indices.len(), out, source);
    Ok(())
}

/// Which element of an axis is at each position of the padded axis; `None` for a constant.
fn sources(padding: Padding, length: usize, (before, after): (usize, usize)) -> Vec<Option<usize>> {
    (0..before + length + after)
        .map(|source| match padding {
            Padding::Constant(_) => source.checked_sub(before).filter(|&i| i < length),
            Padding::Edge => Some(source.saturating_sub(before).min(length - 1)),
            Padding::Reflect if source < before => Some(before - source),
            Padding::Reflect if source >= before + length => Some(2 * (length - 1) + before - source),
            Padding::Reflect => Some(source - before),
        })
        .collect()
}

/// Elements added around `x`; `constant` is what [`Padding::Constant`] adds.
pub(crate) fn pad<T: Element>(
    padding: Padding,
    constant: T,
    pads: &[(usize, usize)],
    (x, shape): (&[T], &[usize]),
    out: &mut [T],
) {
    let Some(last) = shape.len().checked_sub(1) else { return out.copy_from_slice(x) };
    let tables: Vec<Vec<Option<usize>>> =
        shape.iter().zip(pads).map(|(&length, &pads)| sources(padding, length, pads)).collect();
    let table = &tables[last];
    let row = table.len();
    for_each_chunk(out, row, &|index, out| {
        let (mut rest, mut start, mut pitch) = (index, Some(0), shape[last]);
        for axis in (0..last).rev() {
            let source = tables[axis][rest % tables[axis].len()];
            rest /= tables[axis].len();
            start = start.zip(source).map(|(start, source)| start + source * pitch);
            pitch *= shape[axis];
        }
        for (o, source) in out.iter_mut().zip(table) {
            *o = start.zip(*source).map_or(constant, |(start, source)| x[start + source]);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(n: usize) -> Vec<i64> {
        (0..n as i64).collect()
    }

    #[test]
    fn permuting_reads_the_element_at_the_permuted_index() {
        let shape = [2, 3, 4, 5];
        let x = count(120);
        let orders = [[0, 1, 2, 3], [3, 2, 1, 0], [0, 2, 3, 1], [0, 3, 1, 2], [1, 0, 3, 2], [2, 3, 0, 1]];
        for order in orders {
            let mut out = vec![0; 120];
            permute((&x, &shape), &order, &mut out);
            let lengths = order.map(|axis| shape[axis]);
            for (flat, &value) in out.iter().enumerate() {
                let (mut rest, mut at) = (flat, [0; 4]);
                for i in (0..4).rev() {
                    at[order[i]] = rest % lengths[i];
                    rest /= lengths[i];
                }
                assert_eq!(value as usize, ((at[0] * 3 + at[1]) * 4 + at[2]) * 5 + at[3]);
            }
        }
    }

    #[test]
    fn cutting_and_joining_along_any_axis_gives_the_value_back() {
        let shape = [3, 4, 5];
        let x = count(60);
        for axis in 0..3 {
            let mut parts = Vec::new();
            for i in 0..shape[axis] {
                let mut part_shape = shape.to_vec();
                part_shape[axis] = 1;
                let mut part = vec![0; part_shape.iter().product()];
                slice(axis, i, 1, 1, (&x, &shape), &mut part);
                parts.push((part, part_shape));
            }
            let views: Vec<(&[i64], &[usize])> = parts.iter().map(|(p, s)| (&p[..], &s[..])).collect();
            let mut joined = vec![0; 60];
            concat(axis, &views, &mut joined);
            assert_eq!(joined, x);
            let length = shape[axis];
            let (mut backwards, mut gathered) = (vec![0; 60], vec![0; 60]);
            slice(axis, length - 1, -1, length, (&x, &shape), &mut backwards);
            let indices: Vec<i64> = (1..=length as i64).map(|i| -i).collect();
            gather(axis, (&x, &shape), &indices, &mut gathered).unwrap();
            assert_eq!(backwards, gathered);
        }
    }

    #[test]
    fn an_index_outside_is_an_error_that_says_so() {
        let error = gather(0, (&[1.0f32, 2.0], &[2]), &[2], &mut [0.0]).unwrap_err();
        assert!(error.to_string().contains("-2 to 1") && error.to_string().contains("found 2"), "{error}");
        assert!(gather(0, (&[1.0f32, 2.0], &[2]), &[-3], &mut [0.0]).is_err());
    }

    /// NumPy's `pad` of `[[0, 1, 2], [3, 4, 5]]` by `((1, 0), (2, 1))`.
    #[test]
    fn padding_is_numpys() {
        let pads = [(1, 0), (2, 1)];
        let padded = |padding| {
            let mut out = vec![0; 18];
            pad(padding, 9, &pads, (&count(6), &[2, 3]), &mut out);
            out
        };
        assert_eq!(padded(Padding::Constant(9.0)), [9, 9, 9, 9, 9, 9, 9, 9, 0, 1, 2, 9, 9, 9, 3, 4, 5, 9]);
        assert_eq!(padded(Padding::Edge), [0, 0, 0, 1, 2, 2, 0, 0, 0, 1, 2, 2, 3, 3, 3, 4, 5, 5]);
        assert_eq!(padded(Padding::Reflect), [5, 4, 3, 4, 5, 4, 2, 1, 0, 1, 2, 1, 5, 4, 3, 4, 5, 4]);
    }
}
