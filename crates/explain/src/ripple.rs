//! What a change within a small box of the image does to a network, without computing everything again. Convolutions and
//! pools only carry it so far: of each value on its way the piece that the change reaches is computed and laid into what the
//! untouched image gives. Only above the last of them all is computed.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use monosplit_engine::Engine;
use monosplit_graph::{Buffer, Data, NodeId, Result, Tensor};

use crate::network::Network;
use crate::number::Number;
use crate::question::Question;
use crate::route::{Reading, Station, destination, stations};
use crate::section::{Below, batch_of};

/// A part of a picture: rows, columns.
pub(crate) type Area = [Range<usize>; 2];

/// The way from the image to the last station.
pub(crate) struct Ripple {
    stations: Vec<Station>,
    /// Computes the values of all stations but the image.
    untouched: Below,
    /// What flows that are over held their pieces in.
    memory: Mutex<Vec<Vec<Vec<Data>>>>,
}

/// The values of all stations for the samples in question, the image first.
pub(crate) struct Calm<N> {
    pub(crate) values: Vec<Buffer<N>>,
}

/// Batches of changed copies on their way.
pub(crate) struct Flow<'a, N: Number> {
    ripple: &'a Ripple,
    /// For each station the pieces it will read.
    read: Vec<Vec<Vec<N>>>,
    /// Of the copies of the next batch, the areas in which they were changed and the pieces of their images.
    areas: Vec<Area>,
    changed: Vec<N>,
}

/// What was changed of the copies of a batch: of each an area of the image, and a piece of a value.
struct Patches<N> {
    areas: Vec<Area>,
    values: Buffer<N>,
}

/// Values in which the changes of a batch are laid.
enum Ground<'a, N> {
    /// All in the same value of each station, the last included, one upon the other.
    Shared(&'a mut [Vec<N>]),
    /// Those of each copy in what is its sample's.
    Own(&'a Calm<N>, &'a [usize]),
}

impl Ripple {
    /// The way for changes within areas of at most this size in about so many copies at a time, and the value it leads to;
    /// none if it is not worthwhile.
    pub(crate) fn new(
        network: &Network,
        largest: [usize; 2],
        copies: usize,
        engine: &dyn Engine,
    ) -> Result<Option<(Self, NodeId)>> {
        let Some(last) = destination(network, largest) else { return Ok(None) };
        Ok(Ripple::to(network, largest, last, copies, engine)?.map(|ripple| (ripple, last)))
    }

    /// The way to a value.
    fn to(
        network: &Network,
        largest: [usize; 2],
        last: NodeId,
        copies: usize,
        engine: &dyn Engine,
    ) -> Result<Option<Self>> {
        let Some(stations) = stations(network, largest, last, copies, engine)? else { return Ok(None) };
        let made: Vec<NodeId> = stations.iter().skip(1).map(|station| station.at).collect();
        let untouched = Below::new(network, &made, engine)?;
        Ok(Some(Ripple { stations, untouched, memory: Mutex::default() }))
    }

    /// What the untouched images give on the way.
    pub(crate) fn calm<N: Number>(&self, question: &Question<'_>) -> Result<Calm<N>> {
        let mut values = vec![N::of(question.images)];
        values.extend(self.untouched.values(question)?.iter().map(N::of));
        Ok(Calm { values })
    }

    /// For changes of copies, batch after batch.
    pub(crate) fn flow<N: Number>(&self) -> Flow<'_, N> {
        let known = self.memory.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut known = known.unwrap_or_default().into_iter();
        let each = self.stations.iter().map(|station| {
            let known = known.next().into_iter().flatten().filter_map(N::taken).map(cleared);
            known.chain(std::iter::repeat_with(Vec::new)).take(station.inputs.len()).collect()
        });
        Flow { ripple: self, read: each.collect(), areas: Vec::new(), changed: Vec::new() }
    }
}

impl<N: Number> Drop for Flow<'_, N> {
    fn drop(&mut self) {
        let read = std::mem::take(&mut self.read).into_iter();
        let memory = read.map(|pieces| pieces.into_iter().map(N::data).collect()).collect();
        self.ripple.memory.lock().unwrap_or_else(PoisonError::into_inner).push(memory);
    }
}

impl<'a, N: Number> Flow<'a, N> {
    /// Adds a copy to the batch: the numbers of its image, which was changed within the area.
    pub(crate) fn add<T: Copy>(&mut self, area: Area, image: &[T], number: impl Fn(T) -> N) {
        let Station { size, piece, .. } = self.ripple.stations[0];
        let start = self.ripple.stations[0].start(&area);
        for channel in image.chunks(size[0] * size[1]) {
            for line in channel.chunks(size[1]).skip(start[0]).take(piece[0]) {
                self.changed.extend(line[start[1]..start[1] + piece[1]].iter().map(|&value| number(value)));
            }
        }
        self.areas.push(area);
    }

    /// Lays the changes of the batch, all of one image, one after the other into the values of the stations, the last one
    /// included, and appends to `rows` what the last one is after each.
    pub(crate) fn erode(&mut self, values: &mut [Vec<N>], rows: &mut Vec<N>) -> Result<()> {
        if self.areas.is_empty() {
            return Ok(());
        }
        let (patches, station) = (self.run(&mut Ground::Shared(values))?, self.last());
        if let Some(value) = values.last_mut() {
            for (area, piece) in patches.each(station) {
                station.lay(area, piece, value);
                rows.extend_from_slice(value);
            }
        }
        Ok(())
    }

    /// Lays into each sample's value at the last station what the changes of the batch make of it: `samples` says whose value
    /// each of `rows` is.
    pub(crate) fn spread(&mut self, calm: &Calm<N>, samples: &[usize], rows: &mut [N]) -> Result<()> {
        let (patches, station) = (self.run(&mut Ground::Own(calm, samples))?, self.last());
        for (row, (area, piece)) in rows.chunks_mut(station.length()).zip(patches.each(station)) {
            station.lay(area, piece, row);
        }
        Ok(())
    }

    fn last(&self) -> &'a Station {
        &self.ripple.stations[self.ripple.stations.len() - 1]
    }

    /// From the changes of the image to those of the last station; the next batch begins.
    fn run(&mut self, ground: &mut Ground<'_, N>) -> Result<Patches<N>> {
        let (areas, changed) = (std::mem::take(&mut self.areas), std::mem::take(&mut self.changed));
        let mut patches = Patches { areas, values: changed.into() };
        for (number, station) in self.ripple.stations.iter().enumerate() {
            if let Some(program) = &station.program {
                let copies = patches.areas.len();
                let pieces = station.inputs.iter().zip(std::mem::take(&mut self.read[number]));
                let inputs =
                    pieces.map(|(shape, piece)| Tensor::new(batch_of(copies, shape), N::data(piece)));
                let inputs = inputs.collect::<Result<Vec<_>>>()?;
                patches.values = N::of(&program.run(&inputs)?[0]);
                self.read[number] = inputs.into_iter().map(emptied).collect();
            }
            if station.readers.is_empty() {
                continue;
            }
            for reader in &station.readers {
                let [height, width] = reader.reading.size;
                let length = patches.areas.len() * station.channels * height * width;
                self.read[reader.station][reader.slot].reserve_exact(length);
            }
            for (copy, (area, piece)) in patches.each(station).enumerate() {
                let (value, over) = match ground {
                    Ground::Shared(values) => {
                        station.lay(area, piece, &mut values[number]);
                        (&values[number][..], None)
                    }
                    Ground::Own(calm, samples) => {
                        let value = &calm.values[number][samples[copy] * station.length()..];
                        (&value[..station.length()], Some((piece, [station.start(area), station.piece])))
                    }
                };
                for reader in &station.readers {
                    let start = self.ripple.stations[reader.station].start(area);
                    let target = &mut self.read[reader.station][reader.slot];
                    let from = target.len();
                    reader.reading.take(start, (value, station.size), target);
                    if let Some(piece) = over {
                        reader.reading.cover(start, piece, &mut target[from..]);
                    }
                }
            }
        }
        Ok(patches)
    }
}

impl<N> Patches<N> {
    /// The area of each copy that was changed in the image, and its piece at a station.
    fn each<'a>(&'a self, station: &Station) -> impl Iterator<Item = (&'a Area, &'a [N])> {
        let length = station.channels * station.piece[0] * station.piece[1];
        self.areas.iter().zip(self.values.chunks(length))
    }
}

/// The memory of a tensor, for other numbers.
pub(crate) fn emptied<N: Number>(tensor: Tensor) -> Vec<N> {
    cleared(N::taken(tensor.into_data()).unwrap_or_default())
}

fn cleared<N>(mut numbers: Vec<N>) -> Vec<N> {
    numbers.clear();
    numbers
}

impl Station {
    /// Where the piece begins that a change within this area of the image reaches.
    fn start(&self, area: &Area) -> [usize; 2] {
        [0, 1].map(|axis| {
            let affected = self.reach[axis].affected(&area[axis], self.size[axis]);
            affected.start.min(self.size[axis] - self.piece[axis])
        })
    }

    /// Lays the piece of a change into a value.
    fn lay<N: Number>(&self, area: &Area, piece: &[N], value: &mut [N]) {
        let start = self.start(area);
        let channels = value.chunks_mut(self.size[0] * self.size[1]);
        for (channel, piece) in channels.zip(piece.chunks(self.piece[0] * self.piece[1])) {
            let lines = channel.chunks_mut(self.size[1]).skip(start[0]);
            for (line, piece) in lines.zip(piece.chunks(self.piece[1])) {
                line[start[1]..start[1] + self.piece[1]].copy_from_slice(piece);
            }
        }
    }
}

impl Reading {
    /// The rows or columns that are read for a piece that begins at `start`: how many lie before the value, and which in it.
    fn along(&self, axis: usize, start: usize, length: usize) -> (usize, Range<usize>) {
        let (first, size) = (start * self.step[axis], self.size[axis]);
        let before = self.before[axis].saturating_sub(first).min(size);
        let first = first.saturating_sub(self.before[axis]).min(length);
        (before, first..(first + size - before).min(length))
    }

    /// Appends to `target` what is read of a value for a piece that begins at `start`.
    fn take<N: Number>(&self, start: [usize; 2], (value, size): (&[N], [usize; 2]), target: &mut Vec<N>) {
        let (above, rows) = self.along(0, start[0], size[0]);
        let (left, columns) = self.along(1, start[1], size[1]);
        let (from, plane) = (target.len(), self.size[0] * self.size[1]);
        target.resize(from + value.len() / (size[0] * size[1]) * plane, N::rounded(self.fill));
        let channels = target[from..].chunks_mut(plane).zip(value.chunks(size[0] * size[1]));
        for (read, channel) in channels {
            let lines = read.chunks_mut(self.size[1]).skip(above);
            for (read, line) in lines.zip(channel.chunks(size[1]).skip(rows.start)).take(rows.len()) {
                read[left..left + columns.len()].copy_from_slice(&line[columns.clone()]);
            }
        }
    }

    /// Lays a piece of the value over what was read of it for one that begins at `start`. `placed` is where the piece begins
    /// and how large it is.
    fn cover<N: Number>(&self, start: [usize; 2], (piece, placed): (&[N], [[usize; 2]; 2]), read: &mut [N]) {
        let [from, size] = placed;
        // Of each axis the first that both have, in what was read and in the piece, and how many they share.
        let [rows, columns] = [0, 1].map(|axis| {
            // Both counted from as far before the value as the first piece reads.
            let (read, laid) = (start[axis] * self.step[axis], from[axis] + self.before[axis]);
            let (first, end) = (read.max(laid), (read + self.size[axis]).min(laid + size[axis]));
            (first - read, first - laid, end.saturating_sub(first))
        });
        if rows.2 == 0 || columns.2 == 0 {
            return;
        }
        let channels = read.chunks_mut(self.size[0] * self.size[1]).zip(piece.chunks(size[0] * size[1]));
        for (read, piece) in channels {
            let lines = read.chunks_mut(self.size[1]).skip(rows.0).zip(piece.chunks(size[1]).skip(rows.1));
            for (read, piece) in lines.take(rows.2) {
                read[columns.0..columns.0 + columns.2]
                    .copy_from_slice(&piece[columns.1..columns.1 + columns.2]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use monosplit_engine::{Cpu, Precision};
    use monosplit_graph::op::{Binary, Divisor, Unary, Window};
    use monosplit_graph::{Graph, Kind, Noise, Op, Shape};

    use super::*;
    use crate::erosion::Erosion;
    use crate::question::{Class, Settings};

    fn weights(shape: &[usize], seed: u64) -> Tensor {
        let noise = Noise::new(seed);
        let values: Vec<f64> =
            (0..shape.iter().product::<usize>() as u64).map(|i| 0.4 * noise.gaussian(i)).collect();
        Tensor::new(shape, values).unwrap()
    }

    fn window(kernel: usize, stride: usize, pad: (usize, usize)) -> Window {
        Window { stride: vec![stride; 2], pad: vec![pad; 2], ..Window::new([kernel; 2]) }
    }

    /// Convolutions with strides and uneven pads, a residual sum, branches that are joined, pools that end beyond the image, and
    /// a padded pool with averages of that many.
    fn network(divisor: Divisor) -> Network {
        let mut g = Graph::new();
        let x = g.input("image", Shape::batched(&[2, 61, 47]), Kind::Float);
        let conv = |g: &mut Graph, x, from, to, window: Window| {
            let w = g.constant(weights(&[to, from, window.kernel[0], window.kernel[1]], from as u64));
            let b = g.constant(weights(&[to], 9));
            let y = g.add(Op::Conv { window, groups: 1 }, &[x, w, b]).unwrap();
            g.add(Op::Unary(Unary::Softplus), &[y]).unwrap()
        };
        let a = conv(&mut g, x, 2, 6, window(5, 2, (2, 1)));
        let inner = conv(&mut g, a, 6, 6, window(3, 1, (1, 1)));
        let a = g.add(Op::Binary(Binary::Add), &[a, inner]).unwrap();
        let pool = Window { ceil: true, ..window(3, 2, (0, 0)) };
        let a = g.add(Op::MaxPool(pool), &[a]).unwrap();
        let left = conv(&mut g, a, 6, 4, window(1, 1, (0, 0)));
        let average = Op::AveragePool { window: window(3, 1, (1, 1)), divisor };
        let right = g.add(average, &[a]).unwrap();
        let a = g.add(Op::Concat { axis: 1 }, &[left, right]).unwrap();
        let a = conv(&mut g, a, 10, 5, window(3, 1, (1, 1)));
        let mean = g.reduced(monosplit_graph::op::Reduction::Mean, a, &[2, 3], false).unwrap();
        let head = g.constant(weights(&[3, 5], 4));
        let scores = g.add(Op::MatMul { trans_a: false, trans_b: true }, &[mean, head]).unwrap();
        g.output("scores", scores);
        Network::new(&g).unwrap()
    }

    #[test]
    fn at_every_value_a_change_leaves_what_computing_everything_again_leaves() {
        let ways = [Divisor::Padded, Divisor::Covered].map(|divisor| {
            let network = network(divisor);
            let values: Vec<NodeId> = network.graph().nodes().map(|(id, _)| id).collect();
            values.into_iter().filter(|&id| id > network.input() && is_right(&network, id)).count()
        });
        // What an average of what is covered comes to at the border cannot be had from a piece.
        assert_eq!(ways, [12, 8]);
    }

    /// Whether there is a way to a value; panics unless it leads to the right one.
    fn is_right(network: &Network, last: NodeId) -> bool {
        let engine = Cpu::default().precision(Precision::F64);
        let Some(ripple) = Ripple::to(network, [5, 4], last, 8, &engine).unwrap() else { return false };
        let whole = Below::new(network, &[last], &engine).unwrap();
        let images = weights(&[2, 2, 61, 47], 7);
        let (class, settings) = (Class::Top, Settings::default());
        let question = Question::new(&images, &class, &settings);
        let calm = ripple.calm(&question).unwrap();
        let untouched = whole.values(&question).unwrap().remove(0).to_f64().into_vec();
        let mut flow = ripple.flow();
        for (top, left) in [(0, 0), (56, 43), (0, 43), (56, 0), (20, 17), (31, 30), (55, 41), (3, 1)] {
            let area = [top..top + 5, left..left + 4];
            let mut changed = images.to_f64().to_vec();
            for (plane, y, x) in (0..4).flat_map(|p| (0..5).flat_map(move |y| (0..4).map(move |x| (p, y, x))))
            {
                changed[(plane * 61 + top + y) * 47 + left + x] = 3.0;
            }
            changed.chunks(2 * 61 * 47).for_each(|image| flow.add(area.clone(), image, |value| value));
            let mut rows = untouched.clone();
            flow.spread(&calm, &[0, 1], &mut rows).unwrap();
            let changed = Tensor::new([2, 2, 61, 47], changed).unwrap();
            let expected =
                whole.values(&Question::new(&changed, &class, &settings)).unwrap().remove(0).to_f64();
            let apart = rows.iter().zip(&*expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(apart < 1e-12, "{last:?} {area:?}: {apart}");
            assert_ne!(rows, untouched);
        }
        true
    }

    /// Groups, dilation, padded pools, a stride beyond the kernel, sums instead of averages, a value with itself, and a channel
    /// scaled by what is everywhere in it.
    #[test]
    fn ways_through_unusual_windows_lead_to_the_right_value_and_none_to_what_is_scaled_by_everything() {
        let mut g = Graph::new();
        let x = g.input("image", Shape::batched(&[2, 61, 47]), Kind::Float);
        let grouped = Window { dilation: vec![2; 2], ..window(3, 1, (2, 5)) };
        let w = g.constant(weights(&[4, 1, 3, 3], 1));
        let a = g.add(Op::Conv { window: grouped, groups: 2 }, &[x, w]).unwrap();
        let a = g.add(Op::MaxPool(Window { ceil: true, ..window(3, 2, (1, 1)) }), &[a]).unwrap();
        let a = g.add(Op::Binary(Binary::Mul), &[a, a]).unwrap();
        let w = g.constant(weights(&[5, 4, 1, 1], 2));
        let a = g.add(Op::Conv { window: window(1, 2, (0, 0)), groups: 1 }, &[a, w]).unwrap();
        let sums = Op::AveragePool { window: window(2, 1, (1, 0)), divisor: Divisor::One };
        let a = g.add(sums, &[a]).unwrap();
        let [height, width] = [2, 3].map(|axis| g.node(a).shape.fixed_at(axis).unwrap());
        let all = Op::AveragePool { window: Window::new([height, width]), divisor: Divisor::Covered };
        let scale = g.add(all, &[a]).unwrap();
        let scaled = g.add(Op::Binary(Binary::Mul), &[a, scale]).unwrap();
        let mean = g.reduced(monosplit_graph::op::Reduction::Mean, scaled, &[2, 3], false).unwrap();
        g.output("scores", mean);
        let network = Network::new(&g).unwrap();
        let values = network.graph().nodes().map(|(id, node)| (id, node.op.name())).collect::<Vec<_>>();
        let led = values.into_iter().filter(|&(id, _)| id > network.input() && is_right(&network, id));
        let names: Vec<&str> = led.map(|(_, name)| name).collect();
        assert_eq!(names, ["Conv", "MaxPool", "Mul", "Conv", "SumPool", "AveragePool"]);
    }

    #[test]
    fn changes_that_add_up_leave_what_computing_everything_again_leaves() {
        let (network, engine) = (network(Divisor::Padded), Cpu::default().precision(Precision::F64));
        let erosion = Erosion::new(network.graph(), [5, 4], &engine).unwrap().unwrap();
        let image = Tensor::new([1, 2, 61, 47], weights(&[1, 2, 61, 47], 7).to_f32().to_vec()).unwrap();
        let corners = [(0, 0), (3, 2), (56, 43), (20, 17), (22, 19), (31, 30), (55, 41), (3, 1), (0, 0)];
        let areas: Vec<Area> = corners.iter().map(|&(y, x)| [y..y + 5, x..x + 4]).collect();
        let mut change = |step: usize, image: &mut [f32]| {
            for (plane, y) in (0..2).flat_map(|plane| areas[step][0].clone().map(move |y| (plane, y))) {
                let row = (plane * 61 + y) * 47;
                image[row + areas[step][1].start..row + areas[step][1].end].fill(step as f32);
            }
        };
        let whole = engine.compile(network.graph()).unwrap();
        let mut eroded = image.to_f32().to_vec();
        let mut expected = whole.run(std::slice::from_ref(&image)).unwrap()[0].to_f64().to_vec();
        for step in 0..areas.len() {
            change(step, &mut eroded);
            let shown = Tensor::new([1, 2, 61, 47], eroded.clone()).unwrap();
            expected.extend_from_slice(&whole.run(&[shown]).unwrap()[0].to_f64());
        }
        for batch in [1, 2, 4, 20] {
            let found = erosion.scores(&image, &areas, batch, &mut change).unwrap();
            assert_eq!(found.shape(), [1 + areas.len(), 3]);
            let apart = found.to_f64().iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(apart < 1e-12, "batch {batch}: {apart}");
        }
    }

    #[test]
    fn a_change_of_almost_everything_is_not_worth_a_way_of_its_own() {
        assert!(Ripple::new(&network(Divisor::Padded), [60, 46], 8, &Cpu::default()).unwrap().is_none());
    }
}
