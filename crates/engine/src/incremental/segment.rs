//! Segments of a graph that are computed tile by tile. A segment begins at materialised activations and ends with one: a
//! convolution or pool is the first node of a segment, and the elementwise nodes that follow belong to it.

use std::collections::BTreeMap;
use std::ops::Range;

use monosplit_graph::op::{Divisor, ReceptiveField, Window};
use monosplit_graph::{Graph, Kind, NodeId, Op, Result, Shape};

use super::receptive_field::FieldExtent;
use super::tiles::TilePosition;

/// A segment. The first one of a plan has no nodes: its output is the image itself.
#[derive(Debug)]
pub(super) struct Segment {
    /// The node whose activation the segment computes.
    pub(super) output: NodeId,
    /// Its name.
    pub(super) name: String,
    /// Channels of that activation.
    pub(super) channels: usize,
    /// Its height and width.
    pub(super) size: [usize; 2],
    /// Its receptive fields in the image, along height and width.
    pub(super) fields: [FieldExtent; 2],
    /// The shapes its tiles may have, the largest last.
    pub(super) tile_shapes: Vec<TileShape>,
    /// What its tiles read.
    pub(super) inputs: Vec<InputWindow>,
    /// Its nodes in topological order.
    pub(super) nodes: Vec<NodeId>,
    /// Which of the segment's inputs a node reads, by the node and the position among the node's inputs.
    pub(super) slots: BTreeMap<(NodeId, usize), usize>,
}

/// Height and width of tiles. Changes near the border reach less and have smaller tiles.
#[derive(Clone, Copy, Debug)]
pub(super) struct TileShape {
    pub(super) size: [usize; 2],
    /// The share of changes whose tiles have this shape, if changes are spread evenly over the image.
    pub(super) share: f64,
}

/// The part of a segment's activation that a tile of another segment reads: rows `o·stride − pad` to `o·stride − pad + span − 1`
/// for row `o` of the tile, likewise columns. Positions outside of the activation read as `fill`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct InputWindow {
    /// The segment that computes the activation.
    pub(super) segment: usize,
    /// Its channels, all of which are read.
    pub(super) channels: usize,
    pub(super) stride: [usize; 2],
    pub(super) pad: [usize; 2],
    span: [usize; 2],
    pub(super) fill: f64,
}

impl InputWindow {
    /// Every position reads itself.
    pub(super) fn identity(segment: usize, channels: usize) -> Self {
        InputWindow { segment, channels, stride: [1, 1], pad: [0, 0], span: [1, 1], fill: 0.0 }
    }

    /// What the node `id` reads of that activation.
    pub(super) fn of(graph: &Graph, id: NodeId, segment: usize, channels: usize) -> Self {
        let identity = InputWindow::identity(segment, channels);
        let Some(window) = sliding_window(&graph.node(id).op) else { return identity };
        InputWindow {
            stride: [0, 1].map(|axis| window.stride[axis]),
            pad: [0, 1].map(|axis| window.pad[axis].0),
            span: [0, 1].map(|axis| window.span(axis).unwrap_or(1)),
            fill: padding_value(graph, id).unwrap_or(0.0),
            ..identity
        }
    }

    /// Channels, height and width of what is read for a tile of this height and width.
    pub(super) fn shape(&self, tile: [usize; 2]) -> [usize; 3] {
        let [height, width] = [0, 1].map(|axis| (tile[axis] - 1) * self.stride[axis] + self.span[axis]);
        [self.channels, height, width]
    }
}

/// The window that a convolution or pool slides over its first operand.
pub(super) fn sliding_window(op: &Op) -> Option<&Window> {
    match op.properties().receptive_field {
        ReceptiveField::Window(window) => Some(window),
        ReceptiveField::Nothing
        | ReceptiveField::Pointwise
        | ReceptiveField::TransposedWindow(_)
        | ReceptiveField::Everything => None,
    }
}

/// The number that, laid around the input of a convolution or pool, has the effect of its padding. `None` where no number
/// has it: an average over the covered positions only divides by fewer of them at the border.
pub(super) fn padding_value(graph: &Graph, id: NodeId) -> Option<f64> {
    let node = graph.node(id);
    match &node.op {
        Op::Conv { .. } => Some(0.0),
        Op::MaxPool(_) => Some(f64::NEG_INFINITY),
        Op::AveragePool { window, divisor } => {
            let shape = &graph.node(node.inputs[0]).shape;
            let ends_inside = |axis: usize| {
                let padded = shape.fixed_at(2 + axis)? + window.pad[axis].0 + window.pad[axis].1;
                let last = node.shape.fixed_at(2 + axis)?.checked_sub(1)?;
                Some(last * window.stride[axis] + window.span(axis)? <= padded)
            };
            let inside = (0..window.axes()).all(|axis| ends_inside(axis).unwrap_or(false));
            let same = match divisor {
                Divisor::One => true,
                Divisor::Padded => inside,
                Divisor::Covered => inside && window.pad.iter().all(|&pad| pad == (0, 0)),
            };
            same.then_some(0.0)
        }
        _ => None,
    }
}

impl Segment {
    /// Elements of the activation of one sample.
    pub(super) fn len(&self) -> usize {
        self.channels * self.size[0] * self.size[1]
    }

    /// For each changed region of the image, where the tile that it reaches lies.
    pub(super) fn positions<'a>(
        &self,
        regions: impl Iterator<Item = &'a [Range<usize>; 2]>,
    ) -> Vec<TilePosition> {
        let mut lengths = vec![0; self.tile_shapes.len()];
        let position = |region: &[Range<usize>; 2]| {
            let affected = [0, 1].map(|axis| self.fields[axis].affected(&region[axis], self.size[axis]));
            let fits = |tile: &TileShape| (0..2).all(|axis| affected[axis].len() <= tile.size[axis]);
            let largest = self.tile_shapes.len() - 1;
            let shape = self.tile_shapes.iter().position(fits).unwrap_or(largest);
            let size = self.tile_shapes[shape].size;
            let start = [0, 1].map(|axis| affected[axis].start.min(self.size[axis] - size[axis]));
            let offset = lengths[shape];
            lengths[shape] += self.channels * size[0] * size[1];
            TilePosition { start, size, shape, offset }
        };
        regions.map(position).collect()
    }

    /// The graph that computes a tile of this shape.
    pub(super) fn tile_graph(&self, graph: &Graph, tile: TileShape) -> Result<Graph> {
        let mut target = Graph::new();
        let mut inputs = Vec::with_capacity(self.inputs.len());
        for (slot, window) in self.inputs.iter().enumerate() {
            let shape = Shape::batched(&window.shape(tile.size));
            inputs.push(target.input(format!("tile {slot}"), shape, Kind::Float));
        }
        let mut copies: BTreeMap<NodeId, NodeId> = BTreeMap::new();
        for id in self.constants(graph).into_iter().chain(self.nodes.iter().copied()) {
            let mut node = graph.node(id).clone();
            if let Op::Conv { window, .. } | Op::MaxPool(window) | Op::AveragePool { window, .. } =
                &mut node.op
                && self.nodes.contains(&id)
            {
                // The padding is part of the tile.
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
        target.output("tile", copies[&self.output]);
        Ok(target)
    }

    /// The nodes that the segment needs besides its own and its inputs, in topological order. They depend on constants only.
    fn constants(&self, graph: &Graph) -> Vec<NodeId> {
        let mut open: Vec<NodeId> = self.nodes.clone();
        let mut found = Vec::new();
        while let Some(id) = open.pop() {
            for (position, &input) in graph.node(id).inputs.iter().enumerate() {
                let known = self.slots.contains_key(&(id, position)) || self.nodes.contains(&input);
                if !known && !found.contains(&input) {
                    found.push(input);
                    open.push(input);
                }
            }
        }
        found.sort();
        found
    }
}
