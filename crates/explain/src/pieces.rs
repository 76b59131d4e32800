//! Pieces of a value: where they lie, how they are laid into it and how those of later values are read from it. Channels do not
//! meet here, and are shared out among threads.

use std::ops::Range;

use monosplit_engine::Crew;
use monosplit_graph::Buffer;

use crate::number::Number;
use crate::route::{Reading, Station};

/// A part of a picture: rows, columns.
pub(crate) type Area = [Range<usize>; 2];

/// The channels of a value are shared out as about so many tasks.
const TASKS: usize = 32;

/// Where the piece of a copy lies at a station.
#[derive(Clone, Copy)]
pub(crate) struct Placed {
    pub(crate) start: [usize; 2],
    /// Which of the station's moulds it is of, and the how manieth of those.
    pub(crate) mould: usize,
    number: usize,
}

/// The pieces of the copies of a batch at a station.
pub(crate) struct Pieces<'a, N> {
    pub(crate) station: &'a Station,
    /// Where that of each copy lies.
    pub(crate) placed: &'a [Placed],
    /// Of each mould those it is of, one after the other.
    pub(crate) values: Vec<Buffer<N>>,
}

/// What the pieces of a batch are laid into, at one station.
pub(crate) enum Bed<'a, N> {
    /// All in the same value, one upon the other.
    Shared(&'a mut [N]),
    /// Those of each copy in what is its sample's: the values of all samples, and whose each copy is.
    Own(&'a [N], &'a [usize]),
}

/// What is to be read of a value once a piece is laid into it, for each copy of a batch.
pub(crate) struct Order<'a, N> {
    pub(crate) reading: Reading,
    /// The pieces for which it is read.
    pub(crate) placed: &'a [Placed],
    /// Of each of their moulds, how much is read for one, and where all that is read for them goes.
    pub(crate) moulds: Vec<([usize; 2], &'a mut [N])>,
}

/// Some of the channels.
struct Task<'a, N> {
    /// The first of them.
    channel: usize,
    /// Their part of the value, if that is shared.
    value: Option<&'a mut [N]>,
    /// Their part of what is read, order by order, for each copy.
    read: Vec<&'a mut [N]>,
}

impl Placed {
    /// All of a value, for so many copies.
    pub(crate) fn whole(copies: usize) -> Vec<Placed> {
        (0..copies).map(|number| Placed { start: [0, 0], mould: 0, number }).collect()
    }
}

impl Station {
    /// Where the piece lies that a change within this area of the image reaches: the mould it is of, and where it begins.
    pub(crate) fn place(&self, area: &Area) -> (usize, [usize; 2]) {
        let affected = [0, 1].map(|axis| self.reach[axis].affected(&area[axis], self.size[axis]));
        let fits =
            |piece: [usize; 2]| affected.iter().zip(piece).all(|(affected, piece)| affected.len() <= piece);
        let largest = self.moulds.len() - 1;
        let mould = self.moulds.iter().position(|mould| fits(mould.piece)).unwrap_or(largest);
        let piece = self.moulds[mould].piece;
        (mould, [0, 1].map(|axis| affected[axis].start.min(self.size[axis] - piece[axis])))
    }

    /// The same for the copies of a batch.
    pub(crate) fn placed(&self, areas: &[Area]) -> Vec<Placed> {
        let mut counts = vec![0; self.moulds.len()];
        let place = |area: &Area| {
            let (mould, start) = self.place(area);
            counts[mould] += 1;
            Placed { start, mould, number: counts[mould] - 1 }
        };
        areas.iter().map(place).collect()
    }
}

impl<N: Number> Pieces<'_, N> {
    /// Lays the pieces into the value, and reads what is ordered of it.
    pub(crate) fn hand_on<'b>(&self, bed: Bed<'b, N>, mut orders: Vec<Order<'b, N>>, crew: &Crew) {
        let (shared, own) = match bed {
            Bed::Shared(value) => (Some(value), None),
            Bed::Own(values, samples) => (None, Some((values, samples))),
        };
        let mut tasks = self.tasks(shared, &mut orders);
        crew.each(&mut tasks, |task| {
            for copy in 0..self.placed.len() {
                self.hand_on_one(copy, task, own, &orders);
            }
        });
    }

    /// The channels, shared out.
    fn tasks<'b>(&self, shared: Option<&'b mut [N]>, orders: &mut [Order<'b, N>]) -> Vec<Task<'b, N>> {
        let Station { channels, size, .. } = *self.station;
        let together = channels.div_ceil(TASKS);
        let mut values = shared.map(|value| value.chunks_mut(together * size[0] * size[1]));
        let mut task = |channel| {
            let value = values.as_mut().and_then(Iterator::next);
            Task { channel, value, read: Vec::with_capacity(orders.len() * self.placed.len()) }
        };
        let mut tasks: Vec<Task<'b, N>> = (0..channels).step_by(together).map(&mut task).collect();
        for order in orders {
            for placed in order.placed {
                let (size, memory) = &mut order.moulds[placed.mould];
                let plane = size[0] * size[1];
                let (read, rest) = std::mem::take(memory).split_at_mut(channels * plane);
                *memory = rest;
                for (task, read) in tasks.iter_mut().zip(read.chunks_mut(together * plane)) {
                    task.read.push(read);
                }
            }
        }
        tasks
    }

    /// Lays one piece, and reads what is ordered for its copy.
    fn hand_on_one(
        &self,
        copy: usize,
        Task { channel, value, read }: &mut Task<'_, N>,
        own: Option<(&[N], &[usize])>,
        orders: &[Order<'_, N>],
    ) {
        let Station { channels, size, ref moulds, .. } = *self.station;
        let Placed { start, mould, number } = self.placed[copy];
        let (plane, piece_size) = (size[0] * size[1], moulds[mould].piece);
        let piece_plane = piece_size[0] * piece_size[1];
        let piece = &self.values[mould][(number * channels + *channel) * piece_plane..];
        let piece = (piece, [start, piece_size]);
        if let Some(value) = value {
            lay(piece, (value, size));
        }
        for (index, order) in orders.iter().enumerate() {
            let target = &mut *read[index * self.placed.len() + copy];
            let Placed { start, mould, .. } = order.placed[copy];
            let to = [start, order.moulds[mould].0];
            match (&*value, own) {
                (Some(value), _) => order.reading.take(to, (value, size), target),
                (None, Some((values, samples))) => {
                    let value = &values[(samples[copy] * channels + *channel) * plane..];
                    order.reading.take(to, (value, size), target);
                    order.reading.cover(to, piece, target);
                }
                (None, None) => {}
            }
        }
    }
}

/// Lays a piece into a value. It is given with where it begins and how large it is, and may have channels beyond those of the
/// value.
fn lay<N: Number>((piece, [start, laid]): (&[N], [[usize; 2]; 2]), (value, size): (&mut [N], [usize; 2])) {
    let channels = value.chunks_mut(size[0] * size[1]);
    for (channel, piece) in channels.zip(piece.chunks(laid[0] * laid[1])) {
        let lines = channel.chunks_mut(size[1]).skip(start[0]);
        for (line, piece) in lines.zip(piece.chunks(laid[1])) {
            line[start[1]..start[1] + laid[1]].copy_from_slice(piece);
        }
    }
}

impl Reading {
    /// The rows or columns that are read for a piece that begins at `start`, `size` of them: how many lie before the value, and
    /// which in it.
    fn along(&self, axis: usize, [start, size]: [usize; 2], length: usize) -> (usize, Range<usize>) {
        let first = start * self.step[axis];
        let before = self.before[axis].saturating_sub(first).min(size);
        let first = first.saturating_sub(self.before[axis]).min(length);
        (before, first..(first + size - before).min(length))
    }

    /// Writes to `target`, `size` large, what is read of a value for a piece that begins at `start`. The value may have
    /// channels beyond those of the target.
    fn take<N: Number>(
        &self,
        [start, size]: [[usize; 2]; 2],
        (value, whole): (&[N], [usize; 2]),
        target: &mut [N],
    ) {
        let (above, rows) = self.along(0, [start[0], size[0]], whole[0]);
        let (left, columns) = self.along(1, [start[1], size[1]], whole[1]);
        let (fill, right) = (N::rounded(self.fill), left + columns.len());
        let channels = target.chunks_mut(size[0] * size[1]).zip(value.chunks(whole[0] * whole[1]));
        for (read, channel) in channels {
            let (before, rest) = read.split_at_mut(above * size[1]);
            let (inside, after) = rest.split_at_mut(rows.len() * size[1]);
            before.fill(fill);
            after.fill(fill);
            let lines = channel.chunks(whole[1]).skip(rows.start);
            for (read, line) in inside.chunks_mut(size[1]).zip(lines) {
                read[..left].fill(fill);
                read[left..right].copy_from_slice(&line[columns.clone()]);
                read[right..].fill(fill);
            }
        }
    }

    /// Lays a piece of the value, which begins and is as large as said with it, over what was read of it.
    fn cover<N: Number>(
        &self,
        [start, read_size]: [[usize; 2]; 2],
        (piece, [from, size]): (&[N], [[usize; 2]; 2]),
        read: &mut [N],
    ) {
        // Of each axis the first that both have, in what was read and in the piece, and how many they share.
        let [rows, columns] = [0, 1].map(|axis| {
            // Both counted from as far before the value as the first piece reads.
            let (read, laid) = (start[axis] * self.step[axis], from[axis] + self.before[axis]);
            let (first, end) = (read.max(laid), (read + read_size[axis]).min(laid + size[axis]));
            (first - read, first - laid, end.saturating_sub(first))
        });
        if rows.2 == 0 || columns.2 == 0 {
            return;
        }
        let channels = read.chunks_mut(read_size[0] * read_size[1]).zip(piece.chunks(size[0] * size[1]));
        for (read, piece) in channels {
            let lines = read.chunks_mut(read_size[1]).skip(rows.0).zip(piece.chunks(size[1]).skip(rows.1));
            for (read, piece) in lines.take(rows.2) {
                read[columns.0..columns.0 + columns.2]
                    .copy_from_slice(&piece[columns.1..columns.1 + columns.2]);
            }
        }
    }
}
