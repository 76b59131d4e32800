//! The way a change within a small box of the image takes through a network: the values on it of which pieces are computed,
//! and how each piece is made of pieces of values before it. Convolutions and pools begin a leg of the way, what works place
//! by place goes along; beyond the last value, everything is computed.

use std::collections::BTreeMap;

use monosplit_engine::{CompileOptions, Engine, Program};
use monosplit_graph::op::{Divisor, Window};
use monosplit_graph::{Graph, Kind, Node, NodeId, Op, Result, Shape};

use crate::network::Network;
use crate::reach::{Reach, Reaches, reaches};
use crate::section::Cut;

/// What moving one number costs in multiplications and additions of a convolution, about.
const MOVING: f64 = 100.0;
/// The same of a number that is read and written on the way.
const TOUCHING: f64 = 12.0;
/// Convolutions compute so many rows and columns of small values at once.
const AT_ONCE: usize = 4;
/// Pieces have a second length if the mean falls below this share of the largest.
const LESS: f64 = 0.9;
/// The way is taken if it costs less than this share of computing everything.
const WORTHWHILE: f64 = 0.9;

/// A value on the way.
pub(crate) struct Station {
    pub(crate) at: NodeId,
    pub(crate) channels: usize,
    pub(crate) size: [usize; 2],
    /// How it is made from the image.
    pub(crate) reach: Reaches,
    /// The sizes its pieces may have, the largest last.
    pub(crate) moulds: Vec<Mould>,
    /// The readers of its own pieces.
    pub(crate) readers: Vec<Reader>,
}

/// A size of pieces: at the border a change reaches less.
pub(crate) struct Mould {
    pub(crate) piece: [usize; 2],
    /// The share of changes whose pieces have this size, if they are everywhere alike.
    share: f64,
    /// Makes pieces of those that are read; none for the image.
    pub(crate) program: Option<Box<dyn Program>>,
    /// The shapes of what is read.
    pub(crate) inputs: Vec<[usize; 3]>,
}

/// A later station that reads pieces of a value.
pub(crate) struct Reader {
    pub(crate) station: usize,
    /// Which of its inputs this is.
    pub(crate) slot: usize,
    pub(crate) reading: Reading,
}

/// How a piece is read: row `o` of the result is made of `span` rows from row `o·step − before` on, and what lies outside of
/// the value is `fill`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reading {
    pub(crate) step: [usize; 2],
    pub(crate) before: [usize; 2],
    span: [usize; 2],
    pub(crate) fill: f64,
}

impl Reading {
    /// Place by place.
    pub(crate) const PLACES: Reading = Reading { step: [1, 1], before: [0, 0], span: [1, 1], fill: 0.0 };

    /// How a convolution or pool reads, or what works place by place.
    fn through(sliding: Option<&Sliding<'_>>) -> Self {
        let Some(Sliding { window, fill }) = sliding else { return Reading::PLACES };
        Reading {
            step: [0, 1].map(|axis| window.stride[axis]),
            before: [0, 1].map(|axis| window.pad[axis].0),
            span: [0, 1].map(|axis| window.span(axis).unwrap_or(1)),
            fill: fill.unwrap_or(0.0),
        }
    }

    /// How much is read for a piece of this size.
    fn size(&self, piece: [usize; 2]) -> [usize; 2] {
        [0, 1].map(|axis| (piece[axis] - 1) * self.step[axis] + self.span[axis])
    }
}

impl Station {
    pub(crate) fn length(&self) -> usize {
        self.channels * self.size[0] * self.size[1]
    }
}

/// Lengths of pieces and how large a share of them has each.
type Lengths = Vec<(usize, f64)>;

/// The lengths that pieces may have along an axis, and the share of each: of all, or one for those near the border and one for
/// the others, if much less is computed so. The changes are `changed` long, anywhere in an image of this length.
fn lengths(reach: Reach, changed: usize, image: usize, length: usize) -> Lengths {
    let most = reach.most_affected(changed).min(length);
    let places = image.saturating_sub(changed) + 1;
    let affected = |at: usize| reach.affected(&(at..at + changed), length).len();
    let mut found: Vec<usize> = (0..places).map(affected).collect();
    found.sort_unstable();
    let computed = |length: usize| length.next_multiple_of(AT_ONCE) as f64;
    let lesser = found.iter().enumerate().map(|(at, &length)| {
        let share = (at + 1) as f64 / places as f64;
        (share * computed(length) + (1.0 - share) * computed(most), length.next_multiple_of(AT_ONCE), share)
    });
    let best = lesser.min_by(|(a, ..), (b, ..)| a.total_cmp(b));
    match best.filter(|&(mean, length, _)| length < most && mean <= LESS * computed(most)) {
        Some((_, length, share)) => vec![(length, share), (most, 1.0 - share)],
        None => vec![(most, 1.0)],
    }
}

/// A network as the change sees it.
pub(crate) struct Survey<'a> {
    graph: &'a Graph,
    /// How values are made from the image; none where the way does not lead.
    reach: Vec<Option<Reaches>>,
    /// The lengths that pieces of them may have, and the share of each, down and right.
    lengths: Vec<Option<[Lengths; 2]>>,
    /// Which values change with the image.
    changing: Vec<bool>,
    /// What computing each value costs.
    costs: Vec<f64>,
    image: NodeId,
}

impl<'a> Survey<'a> {
    /// For changes within areas of at most this size.
    pub(crate) fn new(network: &'a Network, largest: [usize; 2]) -> Self {
        let (graph, image) = (network.graph(), network.input());
        let mut reach = reaches(graph, image);
        for (id, node) in graph.nodes().filter(|(id, _)| *id != image) {
            let lost = |input: &NodeId| reach[input.index()].is_none() && !graph.node(*input).is_constant();
            if node.inputs.iter().any(lost) || window(graph, id).is_some_and(|window| window.fill.is_none()) {
                reach[id.index()] = None;
            }
        }
        let mut changing = vec![false; graph.len()];
        for (id, node) in graph.nodes() {
            changing[id.index()] = id == image || node.inputs.iter().any(|input| changing[input.index()]);
        }
        let costs = graph.nodes().map(|(id, _)| cost(graph, id)).collect();
        let along = |id: NodeId, reach: Reaches, axis: usize| {
            let length = |id: NodeId| graph.node(id).shape.fixed_at(2 + axis);
            Some(lengths(reach[axis], largest[axis], length(image)?, length(id)?))
        };
        let of = |(id, _): (NodeId, &Node)| {
            let reach = reach[id.index()]?;
            Some([along(id, reach, 0)?, along(id, reach, 1)?])
        };
        let lengths = graph.nodes().map(of).collect();
        Survey { graph, reach, lengths, changing, costs, image }
    }

    /// The stations of the way to a value, the image first; none if there is no such way.
    pub(crate) fn stations(
        &self,
        last: NodeId,
        samples: usize,
        engine: &dyn Engine,
    ) -> Result<Option<Vec<Station>>> {
        let kept = self.kept(last);
        let mut stations: Vec<Station> = Vec::with_capacity(kept.len());
        for &at in &kept {
            let Some(mut station) = self.station(at) else { return Ok(None) };
            if !stations.is_empty() {
                let leg = Leg::new(self, &kept, at);
                for (slot, &(from, reading)) in leg.reads.iter().enumerate() {
                    let reader = Reader { station: stations.len(), slot, reading };
                    stations[from].readers.push(reader);
                }
                for mould in &mut station.moulds {
                    mould.inputs = leg.shapes(mould.piece);
                    let graph = leg.graph(self, &kept, &mould.inputs)?;
                    let about = (samples as f64 * mould.share).ceil() as usize;
                    mould.program =
                        Some(engine.compile_with(&graph, &CompileOptions::default().batch_size(about))?);
                }
            }
            stations.push(station);
        }
        Ok(Some(stations))
    }

    fn station(&self, at: NodeId) -> Option<Station> {
        let reach = self.reach[at.index()]?;
        let Node { shape, kind: Kind::Float, .. } = self.graph.node(at) else { return None };
        let (channels, size) = (shape.fixed_at(1)?, [shape.fixed_at(2)?, shape.fixed_at(3)?]);
        if channels * size[0] * size[1] == 0 {
            return None;
        }
        let [down, right] = self.lengths[at.index()].as_ref()?;
        let both = down.iter().flat_map(|down| right.iter().map(move |right| (down, right)));
        let mould = |(down, right): (&(usize, f64), &(usize, f64))| Mould {
            piece: [down.0, right.0],
            share: down.1 * right.1,
            program: None,
            inputs: Vec::new(),
        };
        let moulds = both.map(mould).collect();
        Some(Station { at, channels, size, reach, moulds, readers: Vec::new() })
    }

    /// Whether the way may lead through a value.
    fn is_on_the_way(&self, id: NodeId) -> bool {
        self.reach[id.index()].is_some()
    }

    /// The value from which on everything is computed, at the end of the cheapest way; none if that is not worthwhile.
    pub(crate) fn last(&self, network: &Network) -> Option<NodeId> {
        let everything = self.above(network, self.image)?;
        let candidates = self.graph.nodes().map(|(id, _)| id).filter(|&id| id > self.image);
        let whole = candidates.filter_map(|id| {
            let station = self.station(id)?;
            let above = self.above(network, id)?;
            Some((self.way(id)? + above + MOVING * station.length() as f64, id))
        });
        let (cost, last) = whole.min_by(|(a, _), (b, _)| a.total_cmp(b))?;
        (cost <= WORTHWHILE * everything).then_some(last)
    }

    /// What everything above a value costs, if all that comes from the image passes through it.
    fn above(&self, network: &Network, at: NodeId) -> Option<f64> {
        let cut = Cut::new(self.graph, at, network.logits()).ok()?;
        let alone = cut.crossing.iter().all(|other| !self.changing[other.index()]);
        let made = self.graph.nodes().map(|(id, _)| id).filter(|&id| id != at && cut.is_above(id));
        alone.then(|| made.map(|id| self.costs[id.index()]).sum())
    }

    /// What the way to a value costs.
    fn way(&self, last: NodeId) -> Option<f64> {
        let kept = self.kept(last);
        kept.iter().skip(1).map(|&at| Some(Leg::new(self, &kept, at).cost(self, &self.station(at)?))).sum()
    }

    /// The values on the way to the last whose pieces are computed: what convolutions and pools read, and what is read more
    /// than once.
    fn kept(&self, last: NodeId) -> Vec<NodeId> {
        let mut readers = vec![0usize; self.graph.len()];
        let mut kept = vec![false; self.graph.len()];
        (kept[self.image.index()], kept[last.index()], readers[last.index()]) = (true, true, 1);
        for (id, node) in self.graph.nodes().rev().filter(|(id, _)| *id <= last) {
            if readers[id.index()] == 0 || !self.is_on_the_way(id) {
                continue;
            }
            kept[id.index()] |= readers[id.index()] > 1;
            for input in &node.inputs {
                readers[input.index()] += 1;
                kept[input.index()] |= window(self.graph, id).is_some() && self.is_on_the_way(*input);
            }
        }
        self.graph.nodes().map(|(id, _)| id).filter(|id| kept[id.index()]).collect()
    }
}

/// A convolution or pool.
struct Sliding<'a> {
    window: &'a Window,
    /// What it finds outside of its value; none if that cannot be laid there.
    fill: Option<f64>,
}

fn window(graph: &Graph, id: NodeId) -> Option<Sliding<'_>> {
    let node = graph.node(id);
    match &node.op {
        Op::Conv { window, .. } => Some(Sliding { window, fill: Some(0.0) }),
        Op::MaxPool(window) => Some(Sliding { window, fill: Some(f64::NEG_INFINITY) }),
        Op::AveragePool { window, divisor } => {
            let shape = &graph.node(node.inputs[0]).shape;
            let padded =
                |axis: usize| Some(shape.fixed_at(2 + axis)? + window.pad[axis].0 + window.pad[axis].1);
            let end = |axis: usize| {
                Some(
                    (node.shape.fixed_at(2 + axis)?.checked_sub(1)?) * window.stride[axis]
                        + window.span(axis)?,
                )
            };
            let inside = (0..window.axes())
                .all(|axis| end(axis).zip(padded(axis)).is_some_and(|(end, padded)| end <= padded));
            let same = match divisor {
                Divisor::One => true,
                Divisor::Padded => inside,
                Divisor::Covered => inside && window.pad.iter().all(|&pad| pad == (0, 0)),
            };
            Some(Sliding { window, fill: same.then_some(0.0) })
        }
        _ => None,
    }
}

/// How the pieces of one station are made.
struct Leg {
    at: NodeId,
    /// The nodes on the way from what is read to the station, in their order.
    nodes: Vec<NodeId>,
    /// What is read: which of the kept values, and how.
    reads: Vec<(usize, Reading)>,
    /// Which of the reads each node has for each of its inputs, where it has one.
    slots: BTreeMap<(NodeId, usize), usize>,
    channels: Vec<usize>,
}

impl Leg {
    fn new(survey: &Survey<'_>, kept: &[NodeId], at: NodeId) -> Self {
        let mut leg =
            Leg { at, nodes: Vec::new(), reads: Vec::new(), slots: BTreeMap::new(), channels: Vec::new() };
        let mut open = vec![at];
        while let Some(id) = open.pop() {
            if leg.nodes.contains(&id) {
                continue;
            }
            leg.nodes.push(id);
            let sliding = window(survey.graph, id);
            for (position, &input) in survey.graph.node(id).inputs.iter().enumerate() {
                match kept.binary_search(&input) {
                    Ok(from) => leg.read((id, position), from, Reading::through(sliding.as_ref())),
                    Err(_) if survey.is_on_the_way(input) => open.push(input),
                    Err(_) => {}
                }
            }
        }
        leg.nodes.sort();
        leg.channels =
            leg.reads.iter().map(|&(from, _)| survey.station(kept[from]).map_or(0, |s| s.channels)).collect();
        leg
    }

    fn read(&mut self, by: (NodeId, usize), from: usize, reading: Reading) {
        let known = self.reads.iter().position(|&known| known == (from, reading));
        let slot = known.unwrap_or_else(|| {
            self.reads.push((from, reading));
            self.reads.len() - 1
        });
        self.slots.insert(by, slot);
    }

    /// The shapes of what is read for a piece of this size.
    fn shapes(&self, piece: [usize; 2]) -> Vec<[usize; 3]> {
        let shape = |((_, reading), &channels): (&(usize, Reading), &usize)| {
            let [height, width] = reading.size(piece);
            [channels, height, width]
        };
        self.reads.iter().zip(&self.channels).map(shape).collect()
    }

    /// What the pieces of a station cost, on average.
    fn cost(&self, survey: &Survey<'_>, station: &Station) -> f64 {
        let computed: f64 = self.nodes.iter().map(|id| survey.costs[id.index()]).sum();
        let places = (station.size[0] * station.size[1]) as f64;
        let each = station.moulds.iter().map(|mould| {
            let moved: usize =
                self.shapes(mould.piece).iter().map(|shape| shape.iter().product::<usize>()).sum();
            let share = (mould.piece[0] * mould.piece[1]) as f64 / places;
            mould.share * (share * computed + MOVING * moved as f64)
        });
        each.sum()
    }

    /// The graph that makes a piece of those that are read, which have these shapes.
    fn graph(&self, survey: &Survey<'_>, kept: &[NodeId], shapes: &[[usize; 3]]) -> Result<Graph> {
        let mut target = Graph::new();
        let mut inputs = Vec::with_capacity(self.reads.len());
        for (slot, (&(from, _), shape)) in self.reads.iter().zip(shapes).enumerate() {
            let (name, kind) = (format!("piece {slot}"), survey.graph.node(kept[from]).kind);
            inputs.push(target.input(name, Shape::batched(shape), kind));
        }
        let mut copies: BTreeMap<NodeId, NodeId> = BTreeMap::new();
        for id in self.constants(survey).into_iter().chain(self.nodes.iter().copied()) {
            let mut node = survey.graph.node(id).clone();
            if let Op::Conv { window, .. } | Op::MaxPool(window) | Op::AveragePool { window, .. } =
                &mut node.op
                && self.nodes.contains(&id)
            {
                // What lies outside is part of the piece.
                window.pad.iter_mut().for_each(|pad| *pad = (0, 0));
                window.ceil = false;
            }
            let of = |(position, input): (usize, &NodeId)| match self.slots.get(&(id, position)) {
                Some(&slot) => Some(inputs[slot]),
                None => copies.get(input).copied(),
            };
            let read: Vec<NodeId> = node.inputs.iter().enumerate().filter_map(of).collect();
            copies.insert(id, target.add_copy(&node, &read)?);
        }
        target.output("piece", copies[&self.at]);
        Ok(target)
    }

    /// What the nodes read that does not depend on the image, in order.
    fn constants(&self, survey: &Survey<'_>) -> Vec<NodeId> {
        let mut open: Vec<NodeId> = self.nodes.clone();
        let mut found = Vec::new();
        while let Some(id) = open.pop() {
            let inputs = survey.graph.node(id).inputs.iter().copied();
            let new: Vec<NodeId> =
                inputs.filter(|&input| !survey.is_on_the_way(input) && !found.contains(&input)).collect();
            found.extend(&new);
            open.extend(new);
        }
        found.sort();
        found
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
        _ => per_sample(&node.shape) * TOUCHING,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_at_the_border_are_shorter_and_every_change_fits() {
        let (image, changed, length) = (224, 32, 14);
        let reach = Reach { step: 16, before: 105, after: 105 };
        let found = lengths(reach, changed, image, length);
        assert_eq!(found.len(), 2);
        assert!(found[0].0 < found[1].0 && found[1].0 <= length);
        assert!((found.iter().map(|(_, share)| share).sum::<f64>() - 1.0).abs() < 1e-12);
        let affected = |at: usize| reach.affected(&(at..at + changed), length).len();
        let all: Vec<usize> = (0..=image - changed).map(affected).collect();
        assert!(all.iter().all(|&affected| affected <= found[1].0));
        let short = all.iter().filter(|&&affected| affected <= found[0].0).count();
        assert!((short as f64 / all.len() as f64 - found[0].1).abs() < 1e-12);
    }

    #[test]
    fn pieces_far_from_the_border_have_one_length() {
        assert_eq!(lengths(Reach { step: 1, before: 1, after: 1 }, 8, 1000, 1000), [(10, 1.0)]);
    }
}
