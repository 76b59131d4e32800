//! What a change within a small box of the image does to a network, without computing everything again. Convolutions and
//! pools only carry it so far: of each value on its way the piece that the change reaches is computed and laid into what the
//! untouched image gives. Only above the last of them all is computed.

use std::sync::{Mutex, PoisonError};

use monosplit_engine::{Crew, Engine, Precision};
use monosplit_graph::{Buffer, Data, NodeId, Result, Tensor};

use crate::explain_batch::ExplainBatch;
use crate::network::Network;
use crate::number::Number;
use crate::pieces::{Area, Bed, Order, Pieces, Placed};
use crate::route::{Reader, Reading, Station, Survey};
use crate::section::{Below, batch_of};

/// The way from the image to the last station.
pub(crate) struct Ripple {
    stations: Vec<Station>,
    /// Computes the values of all stations but the image.
    untouched: Below,
    crew: Crew,
    precision: Precision,
    /// What flows that are over held their pieces in.
    memory: Mutex<Vec<Data>>,
}

/// The values of all stations for the samples in question, the image first.
pub(crate) struct Calm<N> {
    pub(crate) values: Vec<Buffer<N>>,
}

/// Batches of changed copies on their way.
pub(crate) struct Flow<'a, N: Number> {
    ripple: &'a Ripple,
    /// Memory for what is read.
    spare: Vec<Vec<N>>,
    /// Of the copies of the next batch, the areas in which they were changed and the pieces of their images.
    areas: Vec<Area>,
    changed: Vec<N>,
}

/// Values in which the changes of a batch are laid.
pub(crate) enum Ground<'a, N> {
    /// All in the same value of each station, one upon the other.
    Shared(&'a mut [Vec<N>]),
    /// Those of each copy in what is its sample's: `samples` says whose it is.
    Own(&'a Calm<N>, &'a [usize]),
}

/// What is read for the pieces of a station, by their moulds and, of each, the inputs of the program.
type Read<N> = Vec<Vec<Vec<N>>>;

impl<N> Ground<'_, N> {
    fn at(&mut self, station: usize) -> Bed<'_, N> {
        match self {
            Ground::Shared(values) => Bed::Shared(&mut values[station]),
            Ground::Own(calm, samples) => Bed::Own(&calm.values[station], samples),
        }
    }
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
        let survey = Survey::new(network, largest);
        let Some(last) = survey.last(network) else { return Ok(None) };
        Ok(Ripple::to(network, &survey, last, copies, engine)?.map(|ripple| (ripple, last)))
    }

    /// The way to a value.
    fn to(
        network: &Network,
        survey: &Survey<'_>,
        last: NodeId,
        copies: usize,
        engine: &dyn Engine,
    ) -> Result<Option<Self>> {
        let Some(stations) = survey.stations(last, copies, engine)? else { return Ok(None) };
        let made: Vec<NodeId> = stations.iter().skip(1).map(|station| station.at).collect();
        let untouched = Below::new(network, &made, engine)?;
        let (crew, precision) = (engine.crew()?, engine.native_precision());
        Ok(Some(Ripple { stations, untouched, crew, precision, memory: Mutex::default() }))
    }

    /// The precision it is computed in.
    pub(crate) fn precision(&self) -> Precision {
        self.precision
    }

    /// Makes an area of an image what it is in another.
    pub(crate) fn restore<T: Copy>(&self, [rows, columns]: &Area, from: &[T], image: &mut [T]) {
        let [height, width] = self.stations[0].size;
        let planes = image.chunks_mut(height * width).zip(from.chunks(height * width));
        for (plane, from) in planes {
            for row in rows.clone() {
                let line = row * width + columns.start..row * width + columns.end;
                plane[line.clone()].copy_from_slice(&from[line]);
            }
        }
    }

    /// What the untouched images give on the way.
    pub(crate) fn calm<N: Number>(&self, batch: &ExplainBatch<'_>) -> Result<Calm<N>> {
        let mut values = vec![N::of(batch.images)];
        values.extend(self.untouched.values(batch)?.iter().map(N::of));
        Ok(Calm { values })
    }

    /// For changes of copies, batch after batch.
    pub(crate) fn flow<N: Number>(&self) -> Flow<'_, N> {
        let known = std::mem::take(&mut *self.memory.lock().unwrap_or_else(PoisonError::into_inner));
        let spare = known.into_iter().filter_map(N::taken).collect();
        Flow { ripple: self, spare, areas: Vec::new(), changed: Vec::new() }
    }
}

impl<N: Number> Drop for Flow<'_, N> {
    fn drop(&mut self) {
        let spare = self.spare.drain(..).map(N::data);
        self.ripple.memory.lock().unwrap_or_else(PoisonError::into_inner).extend(spare);
    }
}

impl<N: Number> Flow<'_, N> {
    /// Adds a copy to the batch: the numbers of its image, which was changed within the area.
    pub(crate) fn add<T: Copy>(&mut self, area: Area, image: &[T], number: impl Fn(T) -> N) {
        let Station { size, ref moulds, .. } = self.ripple.stations[0];
        let (mould, start) = self.ripple.stations[0].place(&area);
        let piece = moulds[mould].piece;
        for channel in image.chunks(size[0] * size[1]) {
            for line in channel.chunks(size[1]).skip(start[0]).take(piece[0]) {
                self.changed.extend(line[start[1]..start[1] + piece[1]].iter().map(|&value| number(value)));
            }
        }
        self.areas.push(area);
    }

    /// Lays the changes of the batch into the ground and appends to `rows` what the value of the last station is with each;
    /// the next batch begins.
    pub(crate) fn run(&mut self, mut ground: Ground<'_, N>, rows: &mut Vec<N>) -> Result<()> {
        let crew = &self.ripple.crew;
        crew.install(|| self.spread(&mut ground, rows))
    }

    fn spread(&mut self, ground: &mut Ground<'_, N>, rows: &mut Vec<N>) -> Result<()> {
        let (areas, changed) = (std::mem::take(&mut self.areas), std::mem::take(&mut self.changed));
        let stations = &self.ripple.stations;
        let placed: Vec<Vec<Placed>> = stations.iter().map(|station| station.placed(&areas)).collect();
        let mut read: Vec<Read<N>> = stations.iter().map(Station::nothing_read).collect();
        let mut values = vec![changed.into()];
        for (number, station) in stations.iter().enumerate() {
            if number > 0 {
                values = self.made(station, std::mem::take(&mut read[number]))?;
            }
            let pieces = Pieces { station, placed: &placed[number], values: std::mem::take(&mut values) };
            if number + 1 == stations.len() {
                self.hand_out(&pieces, ground.at(number), rows);
            } else {
                self.hand_on(&pieces, ground.at(number), &placed, &mut read);
            }
        }
        Ok(())
    }

    /// The pieces of a station, by their moulds.
    fn made(&mut self, station: &Station, read: Read<N>) -> Result<Vec<Buffer<N>>> {
        let mut made = Vec::with_capacity(station.moulds.len());
        for (mould, read) in station.moulds.iter().zip(read) {
            let copies = read[0].len() / mould.inputs[0].iter().product::<usize>();
            let inputs = mould.inputs.iter().zip(read);
            let inputs = inputs.map(|(shape, read)| Tensor::new(batch_of(copies, shape), N::data(read)));
            let inputs = inputs.collect::<Result<Vec<_>>>()?;
            made.push(match &mould.program {
                Some(program) if copies > 0 => N::of(&program.run(&inputs)?[0]),
                _ => Vec::new().into(),
            });
            let held = inputs.into_iter().filter_map(|input| N::taken(input.into_data()));
            self.spare.extend(held.filter(|memory| memory.capacity() > 0));
        }
        Ok(made)
    }

    /// Lays pieces and reads what later stations want.
    fn hand_on(
        &mut self,
        pieces: &Pieces<'_, N>,
        bed: Bed<'_, N>,
        placed: &[Vec<Placed>],
        read: &mut [Read<N>],
    ) {
        let (stations, readers) = (&self.ripple.stations, &pieces.station.readers);
        let memory = readers.iter().map(|reader| self.memory_for(reader, &placed[reader.station]));
        let mut memory: Vec<Vec<Vec<N>>> = memory.collect();
        let mut orders = Vec::with_capacity(readers.len());
        for (&Reader { station, slot, reading }, memory) in readers.iter().zip(&mut memory) {
            let moulds =
                stations[station].moulds.iter().map(|mould| [mould.inputs[slot][1], mould.inputs[slot][2]]);
            let moulds = moulds.zip(memory.iter_mut().map(Vec::as_mut_slice)).collect();
            orders.push(Order { reading, placed: &placed[station], moulds });
        }
        pieces.hand_on(bed, orders, &self.ripple.crew);
        for (reader, memory) in readers.iter().zip(memory) {
            for (inputs, memory) in read[reader.station].iter_mut().zip(memory) {
                inputs[reader.slot] = memory;
            }
        }
    }

    /// Lays pieces of the last station and appends what its value is with each.
    fn hand_out(&self, pieces: &Pieces<'_, N>, bed: Bed<'_, N>, rows: &mut Vec<N>) {
        let (whole, before) = (Placed::whole(pieces.placed.len()), rows.len());
        rows.resize(before + whole.len() * pieces.station.length(), N::rounded(0.0));
        let moulds = vec![(pieces.station.size, &mut rows[before..])];
        let order = Order { reading: Reading::PLACES, placed: &whole, moulds };
        pieces.hand_on(bed, vec![order], &self.ripple.crew);
    }

    /// For each mould of a station, memory for what it reads for the pieces that are of it.
    fn memory_for(&mut self, reader: &Reader, placed: &[Placed]) -> Vec<Vec<N>> {
        let moulds = self.ripple.stations[reader.station].moulds.iter().enumerate();
        let lengths = moulds.map(|(number, mould)| {
            let pieces = placed.iter().filter(|placed| placed.mould == number).count();
            pieces * mould.inputs[reader.slot].iter().product::<usize>()
        });
        lengths.map(|length| self.memory(length)).collect()
    }

    /// Memory for so many numbers, which holds whatever it held before.
    fn memory(&mut self, length: usize) -> Vec<N> {
        if length == 0 {
            return Vec::new();
        }
        let size = |(_, memory): &(usize, &Vec<N>)| memory.capacity();
        let all = || self.spare.iter().enumerate();
        let best =
            all().filter(|memory| size(memory) >= length).min_by_key(size).or_else(|| all().max_by_key(size));
        let best = best.map(|(at, _)| at);
        let mut memory = best.map_or_else(Vec::new, |at| self.spare.swap_remove(at));
        if memory.capacity() < length {
            memory = Vec::with_capacity(length);
        }
        memory.resize(length, N::rounded(0.0));
        memory
    }
}

impl Station {
    /// Nothing read yet, for each mould and each of its inputs.
    fn nothing_read<N>(&self) -> Read<N> {
        self.moulds.iter().map(|mould| mould.inputs.iter().map(|_| Vec::new()).collect()).collect()
    }
}

/// The memory of a tensor, for other numbers.
pub(crate) fn emptied<N: Number>(tensor: Tensor) -> Vec<N> {
    let mut numbers = N::taken(tensor.into_data()).unwrap_or_default();
    numbers.clear();
    numbers
}

#[cfg(test)]
mod tests {
    use monosplit_engine::{Cpu, Precision};
    use monosplit_graph::op::{Binary, Divisor, Unary, Window};
    use monosplit_graph::{Graph, Kind, Noise, Op, Shape};

    use super::*;
    use crate::erosion::Erosion;
    use crate::explain_batch::{Class, Settings};

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
        let survey = Survey::new(network, [5, 4]);
        let Some(ripple) = Ripple::to(network, &survey, last, 8, &engine).unwrap() else { return false };
        let whole = Below::new(network, &[last], &engine).unwrap();
        let images = weights(&[2, 2, 61, 47], 7);
        let (class, settings) = (Class::Top, Settings::default());
        let batch = ExplainBatch::new(&images, &class, &settings);
        let calm = ripple.calm(&batch).unwrap();
        let untouched = whole.values(&batch).unwrap().remove(0).to_f64().into_vec();
        let mut flow = ripple.flow();
        for (top, left) in [(0, 0), (56, 43), (0, 43), (56, 0), (20, 17), (31, 30), (55, 41), (3, 1)] {
            let area = [top..top + 5, left..left + 4];
            let mut changed = images.to_f64().to_vec();
            for (plane, y, x) in (0..4).flat_map(|p| (0..5).flat_map(move |y| (0..4).map(move |x| (p, y, x))))
            {
                changed[(plane * 61 + top + y) * 47 + left + x] = 3.0;
            }
            changed.chunks(2 * 61 * 47).for_each(|image| flow.add(area.clone(), image, |value| value));
            let mut rows = Vec::new();
            flow.run(Ground::Own(&calm, &[0, 1]), &mut rows).unwrap();
            let changed = Tensor::new([2, 2, 61, 47], changed).unwrap();
            let expected =
                whole.values(&ExplainBatch::new(&changed, &class, &settings)).unwrap().remove(0).to_f64();
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
