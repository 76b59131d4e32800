//! Tiles of an activation: where they lie, how they are written into it, and how the inputs of later tiles are read from it.
//! Channels are independent here and are distributed among threads.

use std::borrow::Cow;
use std::ops::Range;

use monosplit_graph::Buffer;

use super::Change;
use super::segment::{InputWindow, Segment};
use crate::cpu::kernels::scratch::ScratchBuffers;
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

/// The tiles of a segment in a batch of changed copies, one for each copy.
pub(super) struct Tiles<R> {
    /// Where the tile of each copy lies.
    pub(super) positions: Vec<TilePosition>,
    /// What they are computed from, by input of the segment and tile shape.
    pub(super) inputs: Vec<Vec<Vec<R>>>,
    /// Their elements by tile shape.
    pub(super) values: Vec<Buffer<R>>,
}

/// What is read of an activation for one tile, of some or all of its channels.
pub(super) struct TileRead<'a, R> {
    pub(super) window: InputWindow,
    /// The first row and column of the tile.
    pub(super) start: [usize; 2],
    /// Height and width of what is read.
    pub(super) size: [usize; 2],
    /// The memory for it.
    pub(super) target: &'a mut [R],
}

/// Some of the channels.
struct ChannelTask<'a, R> {
    first: usize,
    /// These channels of an activation that changes add up in.
    activation: Option<&'a mut [R]>,
    /// These channels of what is read, read by read and copy by copy.
    reads: Vec<TileRead<'a, R>>,
}

impl<R: Real> Tiles<R> {
    /// The changes themselves are the tiles of the image, each of its own size.
    pub(super) fn of_image(changes: &[Change]) -> Self {
        let mut offset = 0;
        let position = |Change { region: [rows, columns], values, .. }: &Change| {
            offset += values.len();
            TilePosition {
                start: [rows.start, columns.start],
                size: [rows.len(), columns.len()],
                shape: 0,
                offset: offset - values.len(),
            }
        };
        let positions = changes.iter().map(position).collect();
        let values: Vec<R> = changes.iter().flat_map(|change| R::of(&change.values).to_vec()).collect();
        Tiles { positions, inputs: Vec::new(), values: vec![values.into()] }
    }

    /// The tiles of a segment that the changes reach, not yet computed.
    pub(super) fn of(segment: &Segment, changes: &[Change]) -> Self {
        let positions = segment.positions(changes.iter().map(|change| &change.region));
        Tiles { positions, inputs: vec![Vec::new(); segment.inputs.len()], values: Vec::new() }
    }

    /// The number of tiles of a shape.
    pub(super) fn count(&self, shape: usize) -> usize {
        self.positions.iter().filter(|position| position.shape == shape).count()
    }

    /// What the tiles of `segment` read of the segment `from`, with memory for it.
    pub(super) fn reads_of<'a>(
        &'a mut self,
        segment: &Segment,
        from: usize,
        scratch: &ScratchBuffers,
    ) -> Vec<TileRead<'a, R>> {
        let copies: Vec<usize> = (0..segment.tile_shapes.len()).map(|shape| self.count(shape)).collect();
        let mut reads = Vec::new();
        let slots = segment.inputs.iter().zip(&mut self.inputs);
        for (&window, memory) in slots.filter(|(window, _)| window.segment == from) {
            let length = |size: [usize; 2]| window.shape(size).iter().product::<usize>();
            let shapes = segment.tile_shapes.iter().zip(&copies);
            *memory = shapes.map(|(tile, copies)| scratch.take(copies * length(tile.size))).collect();
            let mut free: Vec<&mut [R]> = memory.iter_mut().map(Vec::as_mut_slice).collect();
            for position in &self.positions {
                let memory = std::mem::take(&mut free[position.shape]);
                let (target, rest) = memory.split_at_mut(length(position.size));
                free[position.shape] = rest;
                let [_, height, width] = window.shape(position.size);
                reads.push(TileRead { window, start: position.start, size: [height, width], target });
            }
        }
        reads
    }

    /// For each copy in turn, writes its tile into the activation and reads what later tiles need, read by read and copy by
    /// copy. An owned activation is that of all copies, and changes add up in it. A borrowed one has all samples, which stay as
    /// they are.
    pub(super) fn propagate(
        &self,
        segment: &Segment,
        activation: &mut Cow<'_, [R]>,
        changes: &[Change],
        reads: Vec<TileRead<'_, R>>,
        threads: &ThreadPool,
    ) {
        let (shared, samples) = match activation {
            Cow::Owned(activation) => (Some(activation.as_mut_slice()), None),
            Cow::Borrowed(activations) => (None, Some(*activations)),
        };
        let mut tasks = channel_tasks(segment, shared, reads);
        threads.for_each(&mut tasks, |task| {
            for (copy, change) in changes.iter().enumerate() {
                let sample = samples.map(|samples| &samples[change.sample * segment.len()..]);
                self.propagate_one(copy, segment.size, sample, task);
            }
        });
    }

    fn propagate_one(
        &self,
        copy: usize,
        size: [usize; 2],
        sample: Option<&[R]>,
        ChannelTask { first, activation, reads }: &mut ChannelTask<'_, R>,
    ) {
        let position = &self.positions[copy];
        let tile = &self.values[position.shape][position.offset..];
        let tile = &tile[*first * position.size[0] * position.size[1]..];
        if let Some(activation) = activation {
            write(tile, position, activation, size);
        }
        for read in reads.iter_mut().skip(copy).step_by(self.positions.len()) {
            match (&*activation, sample) {
                (Some(activation), _) => read.copy_from(activation, size),
                (None, Some(sample)) => {
                    read.copy_from(&sample[*first * size[0] * size[1]..], size);
                    read.overwrite_with(tile, position);
                }
                (None, None) => {}
            }
        }
    }
}

/// Appends the whole activation of the last segment to `rows`, once for each copy, as what is read of it.
pub(super) fn whole_reads<'a, R: Real>(
    index: usize,
    segment: &Segment,
    copies: usize,
    rows: &'a mut Vec<R>,
) -> Vec<TileRead<'a, R>> {
    let before = rows.len();
    rows.resize(before + copies * segment.len(), R::ZERO);
    let window = InputWindow::identity(index, segment.channels);
    let targets = rows[before..].chunks_mut(segment.len());
    targets.map(|target| TileRead { window, start: [0, 0], size: segment.size, target }).collect()
}

/// Distributes the channels of an activation, and of what is read of it.
fn channel_tasks<'a, R>(
    segment: &Segment,
    shared: Option<&'a mut [R]>,
    reads: Vec<TileRead<'a, R>>,
) -> Vec<ChannelTask<'a, R>> {
    let Segment { channels, size, .. } = *segment;
    let together = channels.div_ceil(TASKS);
    let mut activations = shared.map(|activation| activation.chunks_mut(together * size[0] * size[1]));
    let task = |first| {
        let activation = activations.as_mut().and_then(Iterator::next);
        ChannelTask { first, activation, reads: Vec::with_capacity(reads.len()) }
    };
    let mut tasks: Vec<ChannelTask<'a, R>> = (0..channels).step_by(together).map(task).collect();
    for TileRead { window, start, size, target } in reads {
        let targets = target.chunks_mut(together * size[0] * size[1]);
        for (task, target) in tasks.iter_mut().zip(targets) {
            task.reads.push(TileRead { window, start, size, target });
        }
    }
    tasks
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

impl<R: Real> TileRead<'_, R> {
    /// Of what is read along an axis of an activation of this length, how many positions lie before it, and which within it.
    fn along(&self, axis: usize, length: usize) -> (usize, Range<usize>) {
        let InputWindow { stride, pad, .. } = self.window;
        let (first, size) = (self.start[axis] * stride[axis], self.size[axis]);
        let before = pad[axis].saturating_sub(first).min(size);
        let first = first.saturating_sub(pad[axis]).min(length);
        (before, first..(first + size - before).min(length))
    }

    /// Reads from an activation of this height and width, which may have channels beyond those that are read.
    fn copy_from(&mut self, activation: &[R], whole: [usize; 2]) {
        let [height, width] = self.size;
        let (above, rows) = self.along(0, whole[0]);
        let (left, columns) = self.along(1, whole[1]);
        let (fill, right) = (R::from_f64(self.window.fill), left + columns.len());
        let channels = self.target.chunks_mut(height * width).zip(activation.chunks(whole[0] * whole[1]));
        for (target, channel) in channels {
            let (before, rest) = target.split_at_mut(above * width);
            let (inside, after) = rest.split_at_mut(rows.len() * width);
            before.fill(fill);
            after.fill(fill);
            let lines = channel.chunks(whole[1]).skip(rows.start);
            for (target, line) in inside.chunks_mut(width).zip(lines) {
                target[..left].fill(fill);
                target[left..right].copy_from_slice(&line[columns.clone()]);
                target[right..].fill(fill);
            }
        }
    }

    /// Replaces the part of what was read that belongs to a tile of the activation.
    fn overwrite_with(&mut self, tile: &[R], position: &TilePosition) {
        let InputWindow { stride, pad, .. } = self.window;
        let (start, read_size, size) = (self.start, self.size, position.size);
        // Of each axis the first position that both have, in what was read and in the tile, and how many they share. Both are
        // counted from the first row or column that any tile reads.
        let [rows, columns] = [0, 1].map(|axis| {
            let (read, written) = (start[axis] * stride[axis], position.start[axis] + pad[axis]);
            let (first, end) = (read.max(written), (read + read_size[axis]).min(written + size[axis]));
            (first - read, first - written, end.saturating_sub(first))
        });
        if rows.2 == 0 || columns.2 == 0 {
            return;
        }
        let channels =
            self.target.chunks_mut(read_size[0] * read_size[1]).zip(tile.chunks(size[0] * size[1]));
        for (target, tile) in channels {
            let lines = target.chunks_mut(read_size[1]).skip(rows.0).zip(tile.chunks(size[1]).skip(rows.1));
            for (target, tile) in lines.take(rows.2) {
                target[columns.0..columns.0 + columns.2]
                    .copy_from_slice(&tile[columns.1..columns.1 + columns.2]);
            }
        }
    }
}
