//! What a change within a small box of the image does to a network, without computing everything again. Convolutions and
//! pools only carry it so far: at each of a few values on the way, the piece that the change reaches is computed from a
//! piece of the value before and laid into what the untouched image gives. Only above the last of them all is computed.

use std::collections::HashMap;
use std::ops::Range;

use monosplit_engine::{Engine, Program};
use monosplit_graph::{Buffer, Dim, Error, Graph, NodeId, Op, Result, Shape, Tensor};

use crate::network::Network;
use crate::number::Number;
use crate::question::Question;
use crate::reach::{Reaches, reaches};
use crate::section::{Below, Cut, batch_of};

/// A part of a picture: rows, columns.
pub(crate) type Area = [Range<usize>; 2];

/// What moving one number costs in multiplications and additions of a convolution, about.
const MOVING: f64 = 24.0;
/// The way is taken if it costs less than this share of computing everything.
const WORTHWHILE: f64 = 0.9;

/// A value that everything from the image passes through, and how large it is.
#[derive(Clone, Copy, Debug)]
struct Station {
    at: NodeId,
    channels: usize,
    size: [usize; 2],
}

/// The way from one station to the next, for pieces of one size.
struct Leg {
    program: Box<dyn Program>,
    reach: Reaches,
    from: Station,
    to: Station,
    piece: [usize; 2],
}

/// The way from the image to the last station.
pub(crate) struct Ripple {
    legs: Vec<Leg>,
    /// Computes the values of the stations between the image and the last.
    between: Below,
}

/// The values of the stations for the samples in question, the image first.
pub(crate) struct Calm<N> {
    pub(crate) values: Vec<Buffer<N>>,
}

/// What was changed of the copies of a batch: of each an area, its numbers somewhere in a buffer that all share.
pub(crate) struct Patches<N> {
    values: Buffer<N>,
    each: Vec<Patch>,
}

/// Where in the buffer the numbers of an area are: in planes of this size, the first of whose rows and columns is `start`.
struct Patch {
    area: Area,
    offset: usize,
    start: [usize; 2],
    size: [usize; 2],
}

impl Ripple {
    /// The way for changes within areas of at most this size, and the value it leads to; none if it is not worthwhile.
    pub(crate) fn new(
        network: &Network,
        largest: [usize; 2],
        engine: &dyn Engine,
    ) -> Result<Option<(Self, NodeId)>> {
        let stations = stations(network)?;
        let Some(way) = Plan::new(network, &stations, largest).way() else { return Ok(None) };
        let mut legs = Vec::with_capacity(way.len() - 1);
        let mut changed = largest;
        for pair in way.windows(2) {
            let leg = Leg::new(network.graph(), stations[pair[0]], stations[pair[1]], changed, engine)?;
            changed = [0, 1].map(|axis| leg.reach[axis].most_affected(changed[axis]).min(leg.to.size[axis]));
            legs.push(leg);
        }
        let inner: Vec<NodeId> = legs.iter().skip(1).map(|leg| leg.from.at).collect();
        let Some(last) = legs.last().map(|leg| leg.to.at) else { return Ok(None) };
        Ok(Some((Ripple { legs, between: Below::new(network, &inner, engine)? }, last)))
    }

    /// What the untouched images give on the way.
    pub(crate) fn calm<N: Number>(&self, question: &Question<'_>) -> Result<Calm<N>> {
        let mut values = vec![N::of(question.images)];
        if self.legs.len() > 1 {
            values.extend(self.between.values(question)?.iter().map(N::of));
        }
        Ok(Calm { values })
    }

    /// What was changed of images, each within its area; `image` writes the one of a number.
    pub(crate) fn changed<N: Number>(
        &self,
        areas: Vec<Area>,
        mut image: impl FnMut(usize, &mut Vec<f64>),
    ) -> Patches<N> {
        let size = self.legs.first().map_or([1, 1], |leg| leg.from.size);
        let (mut written, mut values, mut each) = (Vec::new(), Vec::new(), Vec::with_capacity(areas.len()));
        for (number, area) in areas.into_iter().enumerate() {
            written.clear();
            image(number, &mut written);
            let offset = values.len();
            for channel in written.chunks(size[0] * size[1]) {
                for line in channel.chunks(size[1]).take(area[0].end).skip(area[0].start) {
                    values.extend(line[area[1].clone()].iter().map(|&value| N::rounded(value)));
                }
            }
            let (start, size) = ([0, 1].map(|i| area[i].start), [0, 1].map(|i| area[i].len()));
            each.push(Patch { area, offset, start, size });
        }
        Patches { values: values.into(), each }
    }

    /// Lays patches of one image, one after the other, into the values of the stations, the last one included, and
    /// appends to `rows` what the last one is after each.
    pub(crate) fn erode<N: Number>(
        &self,
        values: &mut [Vec<N>],
        mut patches: Patches<N>,
        rows: &mut Vec<N>,
    ) -> Result<()> {
        for (leg, value) in self.legs.iter().zip(values.iter_mut()) {
            patches = leg.carry(value, patches)?;
        }
        if let (Some(leg), Some(value)) = (self.legs.last(), values.last_mut()) {
            for patch in &patches.each {
                patch.lay(&patches.values, value, leg.to.size, [0, 0]);
                rows.extend_from_slice(value);
            }
        }
        Ok(())
    }

    /// Lays into each sample's value at the last station what its changed image makes of it: `samples` says whose value
    /// each of `rows` is, `patches` has what was changed of each image.
    pub(crate) fn spread<N: Number>(
        &self,
        calm: &Calm<N>,
        samples: &[usize],
        mut patches: Patches<N>,
        rows: &mut [N],
    ) -> Result<()> {
        for (leg, calm) in self.legs.iter().zip(&calm.values) {
            patches = leg.travel(calm, samples, patches)?;
        }
        if let Some(leg) = self.legs.last() {
            for (row, patch) in rows.chunks_mut(leg.to.length()).zip(&patches.each) {
                patch.lay(&patches.values, row, leg.to.size, [0, 0]);
            }
        }
        Ok(())
    }
}

impl Station {
    fn length(&self) -> usize {
        self.channels * self.size[0] * self.size[1]
    }
}

impl Patch {
    /// Lays the numbers into a picture whose first row and column are number `from`, as far as they fall into it.
    fn lay<N: Number>(&self, values: &[N], picture: &mut [N], size: [usize; 2], from: [usize; 2]) {
        let inside = |axis: usize| {
            let range: &Range<usize> = &self.area[axis];
            range.start.max(from[axis])..range.end.min(from[axis] + size[axis])
        };
        let (shown, across) = (inside(0), inside(1));
        if across.is_empty() || shown.is_empty() {
            return;
        }
        let own = values[self.offset..].chunks(self.size[0] * self.size[1]);
        for (channel, values) in picture.chunks_mut(size[0] * size[1]).zip(own) {
            for y in shown.clone() {
                let source = (y - self.start[0]) * self.size[1] + across.start - self.start[1];
                let target = (y - from[0]) * size[1] + across.start - from[1];
                channel[target..target + across.len()]
                    .copy_from_slice(&values[source..source + across.len()]);
            }
        }
    }
}

impl Leg {
    fn new(
        graph: &Graph,
        from: Station,
        to: Station,
        changed: [usize; 2],
        engine: &dyn Engine,
    ) -> Result<Self> {
        let reach = reaches(graph, from.at)[to.at.index()]
            .ok_or_else(|| Error::argument("a change does not travel from the one value to the other"))?;
        let piece = [0, 1].map(|axis| {
            let affected = reach[axis].most_affected(changed[axis]).min(to.size[axis]);
            reach[axis].piece(affected, from.size[axis])
        });
        let program = engine.compile(&between(graph, from, to, piece)?)?;
        Ok(Leg { program, reach, from, to, piece })
    }

    /// From patches at one station to those at the next, each in a value of its own.
    fn travel<N: Number>(&self, calm: &[N], samples: &[usize], patches: Patches<N>) -> Result<Patches<N>> {
        let length = self.from.length();
        let mut pieces = Pieces::new(self, samples.len());
        for (&sample, patch) in samples.iter().zip(&patches.each) {
            let at = pieces.values.len();
            let start = pieces.cut(self, &calm[sample * length..(sample + 1) * length], patch);
            patch.lay(&patches.values, &mut pieces.values[at..], self.piece, start);
        }
        pieces.arrive(self)
    }

    /// From patches at one station to those at the next, all in one value, which keeps them.
    fn carry<N: Number>(&self, value: &mut [N], patches: Patches<N>) -> Result<Patches<N>> {
        let mut pieces = Pieces::new(self, patches.each.len());
        for patch in &patches.each {
            patch.lay(&patches.values, value, self.from.size, [0, 0]);
            pieces.cut(self, value, patch);
        }
        pieces.arrive(self)
    }
}

/// What is cut out of values at the beginning of a leg: the area each will have reached at its end, and where it begins there.
struct Pieces<N> {
    values: Vec<N>,
    each: Vec<(Area, [usize; 2])>,
}

impl<N: Number> Pieces<N> {
    fn new(leg: &Leg, count: usize) -> Self {
        let size = leg.from.channels * leg.piece[0] * leg.piece[1];
        Pieces { values: Vec::with_capacity(count * size), each: Vec::with_capacity(count) }
    }

    /// Cuts the piece that a patch reaches out of a value; the first row and column of it.
    fn cut(&mut self, leg: &Leg, value: &[N], patch: &Patch) -> [usize; 2] {
        let (from, to) = (&leg.from, &leg.to);
        let area = [0, 1].map(|axis| leg.reach[axis].affected(&patch.area[axis], to.size[axis]));
        let start =
            [0, 1].map(|axis| leg.reach[axis].piece_start(&area[axis], leg.piece[axis], from.size[axis]));
        for channel in value.chunks(from.size[0] * from.size[1]) {
            for line in channel.chunks(from.size[1]).skip(start[0]).take(leg.piece[0]) {
                self.values.extend_from_slice(&line[start[1]..start[1] + leg.piece[1]]);
            }
        }
        self.each.push((area, [0, 1].map(|axis| start[axis] / leg.reach[axis].step as usize)));
        start
    }

    /// What the leg makes of the pieces.
    fn arrive(self, leg: &Leg) -> Result<Patches<N>> {
        let shape = batch_of(self.each.len(), &[leg.from.channels, leg.piece[0], leg.piece[1]]);
        let found = leg.program.run(&[Tensor::new(shape, N::data(self.values))?])?.swap_remove(0);
        let size = [found.shape()[2], found.shape()[3]];
        let row = leg.to.channels * size[0] * size[1];
        let each = self.each.into_iter().enumerate();
        let each = each.map(|(i, (area, start))| Patch { area, offset: i * row, start, size }).collect();
        Ok(Patches { values: N::of(&found), each })
    }
}

/// The graph from one station to the next, for pieces.
fn between(graph: &Graph, from: Station, to: Station, piece: [usize; 2]) -> Result<Graph> {
    let mut target = Graph::new();
    let mut copies: HashMap<NodeId, NodeId> = HashMap::new();
    let node = graph.node(from.at);
    let shape = [Dim::Batch(1), Dim::Fixed(from.channels), Dim::Fixed(piece[0]), Dim::Fixed(piece[1])];
    copies.insert(from.at, target.input("piece", Shape::new(shape), node.kind));
    let mut needed = vec![false; graph.len()];
    needed[to.at.index()] = true;
    for (id, node) in graph.nodes().rev().filter(|(id, _)| *id != from.at) {
        if needed[id.index()] {
            node.inputs.iter().for_each(|input| needed[input.index()] = true);
        }
    }
    for (id, node) in graph.nodes().filter(|(id, _)| needed[id.index()] && *id != from.at) {
        let inputs: Vec<NodeId> = node.inputs.iter().filter_map(|input| copies.get(input).copied()).collect();
        copies.insert(id, target.add_copy(node, &inputs)?);
    }
    target.output("piece", copies[&to.at]);
    Ok(target)
}

/// The image and the values place by place that all that comes from it passes through, in their order.
fn stations(network: &Network) -> Result<Vec<Station>> {
    let (graph, image) = (network.graph(), network.input());
    let reach = reaches(graph, image);
    let mut found = Vec::new();
    for (id, node) in graph.nodes().filter(|(id, _)| *id == image || reach[id.index()].is_some()) {
        let sides = [1, 2, 3].map(|axis| node.shape.fixed_at(axis));
        let [Some(channels), Some(height), Some(width)] = sides else { continue };
        let passed = Cut::new(graph, id, network.logits());
        let alone = |cut: Cut| cut.crossing.iter().all(|&other| !network.is_active(other));
        let kept = !matches!(node.op, Op::Constant(_)) && channels * height * width > 0;
        if kept && reach[id.index()].is_some() && passed.is_ok_and(alone) {
            found.push(Station { at: id, channels, size: [height, width] });
        }
    }
    Ok(found)
}

/// What the ways from station to station cost.
struct Plan<'a> {
    stations: &'a [Station],
    /// What everything above each station costs.
    above: Vec<f64>,
    /// How each station is made from each before it.
    reach: Vec<Vec<Option<Reaches>>>,
    largest: [usize; 2],
}

impl<'a> Plan<'a> {
    fn new(network: &Network, stations: &'a [Station], largest: [usize; 2]) -> Self {
        let graph = network.graph();
        let costs: Vec<f64> = graph.nodes().map(|(id, _)| cost(graph, id)).collect();
        let above = |station: &Station| {
            let Ok(cut) = Cut::new(graph, station.at, network.logits()) else { return f64::INFINITY };
            let made = graph.nodes().filter(|(id, _)| *id != station.at && cut.is_above(*id));
            made.map(|(id, _)| costs[id.index()]).sum()
        };
        let reach = |from: &Station| {
            let all = reaches(graph, from.at);
            stations.iter().map(|to| all[to.at.index()]).collect()
        };
        let (above, reach) = (stations.iter().map(above).collect(), stations.iter().map(reach).collect());
        Plan { stations, above, reach, largest }
    }

    /// The stations of the cheapest way, if it is worthwhile.
    fn way(&self) -> Option<Vec<usize>> {
        let count = self.stations.len();
        let mut best: Vec<(f64, usize)> = vec![(f64::INFINITY, 0); count];
        best.first_mut()?.0 = 0.0;
        for to in 1..count {
            for from in 0..to {
                let cost = best[from].0 + self.leg(from, to).unwrap_or(f64::INFINITY);
                if cost < best[to].0 {
                    best[to] = (cost, from);
                }
            }
        }
        let whole = |at: usize| best[at].0 + self.above[at] + MOVING * self.stations[at].length() as f64;
        let last = (1..count).min_by(|&a, &b| whole(a).total_cmp(&whole(b)))?;
        if whole(last) > WORTHWHILE * self.above[0] {
            return None;
        }
        let mut way = vec![last];
        while way[way.len() - 1] != 0 {
            way.push(best[way[way.len() - 1]].1);
        }
        way.reverse();
        Some(way)
    }

    /// The cost of the piece between two stations.
    fn leg(&self, from: usize, to: usize) -> Option<f64> {
        let (start, reach) = (&self.stations[from], self.reach[from][to]?);
        let arrived = self.reach[0][from]?;
        let piece = [0, 1].map(|axis| {
            let changed = arrived[axis].most_affected(self.largest[axis]).min(start.size[axis]);
            let affected = reach[axis].most_affected(changed).min(self.stations[to].size[axis]);
            reach[axis].piece(affected, start.size[axis])
        });
        let share = (piece[0] * piece[1]) as f64 / (start.size[0] * start.size[1]) as f64;
        Some(share * (self.above[from] - self.above[to] + MOVING * start.length() as f64))
    }
}

/// About how many multiplications and additions a node takes for one sample.
fn cost(graph: &Graph, id: NodeId) -> f64 {
    let node = graph.node(id);
    if node.is_constant() {
        return 0.0;
    }
    let per_sample =
        |shape: &Shape| shape.dims().iter().filter_map(|dim| dim.fixed()).product::<usize>() as f64;
    let weight = node.inputs.get(1).map_or(1.0, |&weight| per_sample(&graph.node(weight).shape));
    match &node.op {
        Op::Conv { .. } => {
            let channels = node.shape.fixed_at(1).unwrap_or(1) as f64;
            per_sample(&node.shape) * weight / channels
        }
        Op::MatMul { .. } => weight,
        _ => per_sample(&node.shape) * MOVING / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use monosplit_engine::{Cpu, Precision};
    use monosplit_graph::op::{Binary, Divisor, Unary, Window};
    use monosplit_graph::{Kind, Noise};

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

    /// Convolutions with strides and uneven pads, a residual sum, branches that are joined, pools that end beyond the image.
    fn network() -> Network {
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
        let average = Op::AveragePool { window: window(3, 1, (1, 1)), divisor: Divisor::Covered };
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
    fn a_change_leaves_what_computing_everything_again_leaves() {
        let (network, engine) = (network(), Cpu::default().precision(Precision::F64));
        let (ripple, last) = Ripple::new(&network, [5, 4], &engine).unwrap().unwrap();
        assert!(
            ripple.legs.iter().all(|leg| leg.piece[0] * leg.piece[1] < leg.from.size[0] * leg.from.size[1])
        );
        let whole = Below::new(&network, &[last], &engine).unwrap();
        let images = weights(&[2, 2, 61, 47], 7);
        let (class, settings) = (Class::Top, Settings::default());
        let question = Question::new(&images, &class, &settings);
        let calm = ripple.calm(&question).unwrap();
        let untouched = whole.values(&question).unwrap().remove(0).to_f64().into_vec();
        for (top, left) in [(0, 0), (56, 43), (0, 43), (56, 0), (20, 17), (31, 30), (55, 41), (3, 1)] {
            let area = [top..top + 5, left..left + 4];
            let mut changed = images.to_f64().to_vec();
            for (plane, y, x) in (0..4).flat_map(|p| (0..5).flat_map(move |y| (0..4).map(move |x| (p, y, x))))
            {
                changed[(plane * 61 + top + y) * 47 + left + x] = 3.0;
            }
            let patches = ripple.changed(vec![area.clone(); 2], |number, image| {
                image.extend_from_slice(&changed[number * 2 * 61 * 47..(number + 1) * 2 * 61 * 47]);
            });
            let mut rows = untouched.clone();
            ripple.spread(&calm, &[0, 1], patches, &mut rows).unwrap();
            let changed = Tensor::new([2, 2, 61, 47], changed).unwrap();
            let expected =
                whole.values(&Question::new(&changed, &class, &settings)).unwrap().remove(0).to_f64();
            let apart = rows.iter().zip(&*expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(apart < 1e-12, "{area:?}: {apart}");
            assert_ne!(rows, untouched);
        }
    }

    #[test]
    fn changes_that_add_up_leave_what_computing_everything_again_leaves() {
        let (network, engine) = (network(), Cpu::default().precision(Precision::F64));
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
        assert!(Ripple::new(&network(), [60, 46], &Cpu::default()).unwrap().is_none());
    }
}
