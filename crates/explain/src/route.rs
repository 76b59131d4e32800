//! The way a change within a small box of the image takes through a network: the values on it of which pieces are computed,
//! and how each piece is made of pieces of values before it. Convolutions and pools begin a leg of the way, what works place
//! by place goes along; beyond the last value, everything is computed.

use std::collections::BTreeMap;

use monosplit_engine::{Engine, Program};
use monosplit_graph::op::{Divisor, Window};
use monosplit_graph::{Dim, Graph, Kind, Node, NodeId, Op, Result, Shape};

use crate::network::Network;
use crate::reach::{Reaches, reaches};
use crate::section::Cut;

/// What moving one number costs in multiplications and additions of a convolution, about.
const MOVING: f64 = 100.0;
/// The same of a number that is read and written on the way.
const TOUCHING: f64 = 12.0;
/// The way is taken if it costs less than this share of computing everything.
const WORTHWHILE: f64 = 0.9;

/// A value on the way.
pub(crate) struct Station {
    pub(crate) at: NodeId,
    pub(crate) channels: usize,
    pub(crate) size: [usize; 2],
    /// How it is made from the image.
    pub(crate) reach: Reaches,
    /// The size of its pieces.
    pub(crate) piece: [usize; 2],
    /// Makes its pieces of those it reads; none for the image.
    pub(crate) program: Option<Box<dyn Program>>,
    /// The shapes of what it reads.
    pub(crate) inputs: Vec<[usize; 3]>,
    /// The readers of its own pieces.
    pub(crate) readers: Vec<Reader>,
}

/// A later station that reads pieces of a value.
pub(crate) struct Reader {
    pub(crate) station: usize,
    /// Which of its inputs this is.
    pub(crate) slot: usize,
    pub(crate) reading: Reading,
}

/// How a piece is read: row `o` of the result begins at row `o·step − before`, and what lies outside of the value is `fill`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reading {
    pub(crate) step: [usize; 2],
    pub(crate) before: [usize; 2],
    pub(crate) size: [usize; 2],
    pub(crate) fill: f64,
}

impl Station {
    pub(crate) fn length(&self) -> usize {
        self.channels * self.size[0] * self.size[1]
    }

    fn new(graph: &Graph, at: NodeId, reach: Reaches, largest: [usize; 2]) -> Option<Self> {
        let Node { shape, kind: Kind::Float, .. } = graph.node(at) else { return None };
        let (channels, size) = (shape.fixed_at(1)?, [shape.fixed_at(2)?, shape.fixed_at(3)?]);
        let piece = [0, 1].map(|axis| reach[axis].most_affected(largest[axis]).min(size[axis]));
        let station = Station {
            at,
            channels,
            size,
            reach,
            piece,
            program: None,
            inputs: Vec::new(),
            readers: Vec::new(),
        };
        (station.length() > 0).then_some(station)
    }
}

/// The value that the cheapest way leads to for changes within areas of at most this size; none if it is not worthwhile.
pub(crate) fn destination(network: &Network, largest: [usize; 2]) -> Option<NodeId> {
    Survey::new(network, largest).last(network)
}

/// The stations of the way to a value, the image first; none if there is no such way.
pub(crate) fn stations(
    network: &Network,
    largest: [usize; 2],
    last: NodeId,
    samples: usize,
    engine: &dyn Engine,
) -> Result<Option<Vec<Station>>> {
    let survey = Survey::new(network, largest);
    let kept = survey.kept(last);
    let mut stations: Vec<Station> = Vec::with_capacity(kept.len());
    for &at in &kept {
        let Some(mut station) = survey.station(at) else { return Ok(None) };
        if !stations.is_empty() {
            let leg = Leg::new(&survey, &kept, &station);
            for (slot, &(from, reading)) in leg.reads.iter().enumerate() {
                let reader = Reader { station: stations.len(), slot, reading };
                stations[from].readers.push(reader);
            }
            let read = leg.reads.iter().zip(&leg.channels);
            station.inputs =
                read.map(|((_, read), &channels)| [channels, read.size[0], read.size[1]]).collect();
            station.program = Some(engine.compile_many(&leg.graph(&survey, &kept)?, samples)?);
        }
        stations.push(station);
    }
    Ok(Some(stations))
}

/// A network as the change sees it.
struct Survey<'a> {
    graph: &'a Graph,
    largest: [usize; 2],
    /// How values are made from the image; none where the way does not lead.
    reach: Vec<Option<Reaches>>,
    /// Which values change with the image.
    changing: Vec<bool>,
    /// What computing each value costs.
    costs: Vec<f64>,
    image: NodeId,
}

impl<'a> Survey<'a> {
    fn new(network: &'a Network, largest: [usize; 2]) -> Self {
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
        Survey { graph, largest, reach, changing, costs, image }
    }

    fn station(&self, at: NodeId) -> Option<Station> {
        Station::new(self.graph, at, self.reach[at.index()]?, self.largest)
    }

    /// Whether the way may lead through a value.
    fn is_on_the_way(&self, id: NodeId) -> bool {
        self.reach[id.index()].is_some()
    }

    /// The value from which on everything is computed, if that is worthwhile.
    fn last(&self, network: &Network) -> Option<NodeId> {
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
        kept.iter().skip(1).map(|&at| Some(Leg::new(self, &kept, &self.station(at)?).cost(self))).sum()
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
    /// The share of its places that are in a piece.
    share: f64,
    /// The nodes on the way from what is read to the station, in their order.
    nodes: Vec<NodeId>,
    /// What is read: which of the kept values, and how.
    reads: Vec<(usize, Reading)>,
    /// Which of the reads each node has for each of its inputs, where it has one.
    slots: BTreeMap<(NodeId, usize), usize>,
    channels: Vec<usize>,
}

impl Leg {
    fn new(survey: &Survey<'_>, kept: &[NodeId], to: &Station) -> Self {
        let mut leg = Leg {
            at: to.at,
            share: (to.piece[0] * to.piece[1]) as f64 / (to.size[0] * to.size[1]) as f64,
            nodes: Vec::new(),
            reads: Vec::new(),
            slots: BTreeMap::new(),
            channels: Vec::new(),
        };
        let mut open = vec![to.at];
        while let Some(id) = open.pop() {
            if leg.nodes.contains(&id) {
                continue;
            }
            leg.nodes.push(id);
            let sliding = window(survey.graph, id);
            for (position, &input) in survey.graph.node(id).inputs.iter().enumerate() {
                match kept.binary_search(&input) {
                    Ok(from) => leg.read((id, position), from, reading(sliding.as_ref(), to.piece)),
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

    fn cost(&self, survey: &Survey<'_>) -> f64 {
        let computed: f64 = self.nodes.iter().map(|id| survey.costs[id.index()]).sum();
        let read = self.reads.iter().zip(&self.channels);
        let moved: usize =
            read.map(|((_, reading), channels)| channels * reading.size[0] * reading.size[1]).sum();
        self.share * computed + MOVING * moved as f64
    }

    /// The graph that makes a piece of those that are read.
    fn graph(&self, survey: &Survey<'_>, kept: &[NodeId]) -> Result<Graph> {
        let mut target = Graph::new();
        let mut inputs = Vec::with_capacity(self.reads.len());
        for (slot, (&(from, reading), &channels)) in self.reads.iter().zip(&self.channels).enumerate() {
            let [height, width] = reading.size.map(Dim::Fixed);
            let shape = Shape::new([Dim::Batch(1), Dim::Fixed(channels), height, width]);
            inputs.push(target.input(format!("piece {slot}"), shape, survey.graph.node(kept[from]).kind));
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

/// How a piece of this size is read: place by place, or through a window.
fn reading(sliding: Option<&Sliding<'_>>, piece: [usize; 2]) -> Reading {
    let Some(Sliding { window, fill }) = sliding else {
        return Reading { step: [1, 1], before: [0, 0], size: piece, fill: 0.0 };
    };
    let span = |axis: usize| window.span(axis).unwrap_or(1);
    Reading {
        step: [0, 1].map(|axis| window.stride[axis]),
        before: [0, 1].map(|axis| window.pad[axis].0),
        size: [0, 1].map(|axis| (piece[axis] - 1) * window.stride[axis] + span(axis)),
        fill: fill.unwrap_or(0.0),
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
