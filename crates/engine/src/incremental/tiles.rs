//! Tiles of an activation: where they lie, how they are written into it, and how the inputs of later tiles are read from it.
//! Channels are independent here and are distributed among threads.

use std::ops::Range;

use monosplit_graph::Buffer;

use super::segment::{InputWindow, Segment};
use crate::cpu::real::Real;
use crate::cpu::thread_pool::ThreadPool;

/// Channels are distributed as about this many tasks.
const TASKS: usize = 32;

/// Where the tile of a changed copy lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct TilePosition {
    /// Its first row and column in the activation.
    pub(super) start: [usize; 2],
    /// Its height and width.
    pub(super) size: [usize; 2],
    /// The index of its tile shape.
    pub(super) shape: usize,
    /// Where its elements begin among those of all tiles of that shape.
    pub(super) offset: usize,
}

/// The tiles of a segment, one for each changed copy of a batch.
pub(super) struct Tiles<'a, R> {
    pub(super) segment: &'a Segment,
    /// The index of the segment.
    pub(super) index: usize,
    /// Where the tile of each copy lies.
    pub(super) positions: &'a [TilePosition],
    /// The tiles by their shapes.
    pub(super) values: Vec<Buffer<R>>,
}

/// The activations of all segments that tiles are written into.
pub(super) enum Destination<'a, R> {
    /// One sample for all copies: changes add up.
    Shared(&'a mut [Vec<R>]),
    /// All samples, which stay as they are, and the sample of each copy.
    PerSample(&'a [Buffer<R>], &'a [usize]),
}

/// What is read of an activation that has a tile written into it, for each copy of a batch.
pub(super) struct TileRead<'a, R> {
    pub(super) window: InputWindow,
    /// The tiles it is read for.
    pub(super) positions: &'a [TilePosition],
    /// For each of their shapes, the height and width that are read, and the memory for all that is read.
    pub(super) targets: Vec<([usize; 2], &'a mut [R])>,
}

/// Some of the channels.
struct ChannelTask<'a, R> {
    first: usize,
    /// These channels of a shared activation.
    activation: Option<&'a mut [R]>,
    /// These channels of what is read, read by read and copy by copy.
    targets: Vec<&'a mut [R]>,
}

impl<R: Real> Tiles<'_, R> {
    /// For each copy in turn, writes its tile into the destination and reads what later tiles need.
    pub(super) fn propagate<'b>(
        &self,
        destination: &'b mut Destination<'_, R>,
        mut reads: Vec<TileRead<'b, R>>,
        threads: &ThreadPool,
    ) {
        let (shared, per_sample) = match destination {
            Destination::Shared(activations) => (Some(activations[self.index].as_mut_slice()), None),
            Destination::PerSample(activations, samples) => {
                (None, Some((&*activations[self.index], *samples)))
            }
        };
        let mut tasks = self.tasks(shared, &mut reads);
        threads.for_each(&mut tasks, |task| {
            for copy in 0..self.positions.len() {
                self.propagate_one(copy, task, per_sample, &reads);
            }
        });
    }

    fn tasks<'b>(
        &self,
        shared: Option<&'b mut [R]>,
        reads: &mut [TileRead<'b, R>],
    ) -> Vec<ChannelTask<'b, R>> {
        let Segment { channels, size, .. } = *self.segment;
        let together = channels.div_ceil(TASKS);
        let mut activations = shared.map(|value| value.chunks_mut(together * size[0] * size[1]));
        let mut task = |first| {
            let activation = activations.as_mut().and_then(Iterator::next);
            ChannelTask { first, activation, targets: Vec::with_capacity(reads.len() * self.positions.len()) }
        };
        let mut tasks: Vec<ChannelTask<'b, R>> = (0..channels).step_by(together).map(&mut task).collect();
        for read in reads {
            for position in read.positions {
                let (size, memory) = &mut read.targets[position.shape];
                let plane = size[0] * size[1];
                let (target, rest) = std::mem::take(memory).split_at_mut(channels * plane);
                *memory = rest;
                for (task, target) in tasks.iter_mut().zip(target.chunks_mut(together * plane)) {
                    task.targets.push(target);
                }
            }
        }
        tasks
    }

    fn propagate_one(
        &self,
        copy: usize,
        ChannelTask { first, activation, targets }: &mut ChannelTask<'_, R>,
        per_sample: Option<(&[R], &[usize])>,
        reads: &[TileRead<'_, R>],
    ) {
        let Segment { channels, size, .. } = *self.segment;
        let position = &self.positions[copy];
        let tile = &self.values[position.shape][position.offset..];
        let tile = &tile[*first * position.size[0] * position.size[1]..];
        if let Some(activation) = activation {
            write(tile, position, activation, size);
        }
        for (index, read) in reads.iter().enumerate() {
            let target = &mut *targets[index * self.positions.len() + copy];
            let TilePosition { start, shape, .. } = read.positions[copy];
            let wanted = [start, read.targets[shape].0];
            match (&*activation, per_sample) {
                (Some(activation), _) => read.window.read(wanted, (activation, size), target),
                (None, Some((activations, samples))) => {
                    let activation = &activations[(samples[copy] * channels + *first) * size[0] * size[1]..];
                    read.window.read(wanted, (activation, size), target);
                    read.window.overwrite(wanted, (tile, position), target);
                }
                (None, None) => {}
            }
        }
    }
}

/// Writes a tile into an activation of this size. The tile may have channels beyond those of the activation.
fn write<R: Real>(tile: &[R], position: &TilePosition, activation: &mut [R], size: [usize; 2]) {
    let TilePosition { start, size: [height, width], .. } = *position;
    if height * width == 0 {
        return;
    }
    for (channel, tile) in activation.chunks_mut(size[0] * size[1]).zip(tile.chunks(height * width)) {
        let lines = channel.chunks_mut(size[1]).skip(start[0]);
        for (line, tile) in lines.zip(tile.chunks(width)) {
            line[start[1]..start[1] + width].copy_from_slice(tile);
        }
    }
}

impl InputWindow {
    /// Along an axis, what is read for a tile that begins at `start`, `size` positions: how many lie before the activation,
    /// and which within it.
    fn along(&self, axis: usize, [start, size]: [usize; 2], length: usize) -> (usize, Range<usize>) {
        let first = start * self.stride[axis];
        let before = self.pad[axis].saturating_sub(first).min(size);
        let first = first.saturating_sub(self.pad[axis]).min(length);
        (before, first..(first + size - before).min(length))
    }

    /// Writes to `target`, of height and width `size`, what is read for a tile that begins at `start`. The activation may have
    /// channels beyond those of the target.
    fn read<R: Real>(
        &self,
        [start, size]: [[usize; 2]; 2],
        (activation, whole): (&[R], [usize; 2]),
        target: &mut [R],
    ) {
        let (above, rows) = self.along(0, [start[0], size[0]], whole[0]);
        let (left, columns) = self.along(1, [start[1], size[1]], whole[1]);
        let (fill, right) = (R::from_f64(self.fill), left + columns.len());
        let channels = target.chunks_mut(size[0] * size[1]).zip(activation.chunks(whole[0] * whole[1]));
        for (target, channel) in channels {
            let (before, rest) = target.split_at_mut(above * size[1]);
            let (inside, after) = rest.split_at_mut(rows.len() * size[1]);
            before.fill(fill);
            after.fill(fill);
            let lines = channel.chunks(whole[1]).skip(rows.start);
            for (target, line) in inside.chunks_mut(size[1]).zip(lines) {
                target[..left].fill(fill);
                target[left..right].copy_from_slice(&line[columns.clone()]);
                target[right..].fill(fill);
            }
        }
    }

    /// Replaces the part of what [`InputWindow::read`] wrote to `target` that belongs to a tile of the activation.
    fn overwrite<R: Real>(
        &self,
        [start, read_size]: [[usize; 2]; 2],
        (tile, position): (&[R], &TilePosition),
        target: &mut [R],
    ) {
        let TilePosition { start: tile_start, size, .. } = *position;
        // Of each axis the first position that both have, in what was read and in the tile, and how many they share. Both are
        // counted from the first row or column that any tile reads.
        let [rows, columns] = [0, 1].map(|axis| {
            let (read, written) = (start[axis] * self.stride[axis], tile_start[axis] + self.pad[axis]);
            let (first, end) = (read.max(written), (read + read_size[axis]).min(written + size[axis]));
            (first - read, first - written, end.saturating_sub(first))
        });
        if rows.2 == 0 || columns.2 == 0 {
            return;
        }
        let channels = target.chunks_mut(read_size[0] * read_size[1]).zip(tile.chunks(size[0] * size[1]));
        for (target, tile) in channels {
            let lines = target.chunks_mut(read_size[1]).skip(rows.0).zip(tile.chunks(size[1]).skip(rows.1));
            for (target, tile) in lines.take(rows.2) {
                target[columns.0..columns.0 + columns.2]
                    .copy_from_slice(&tile[columns.1..columns.1 + columns.2]);
            }
        }
    }
}
