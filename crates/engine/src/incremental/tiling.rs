//! The plan of an incremental run: which activations are computed tile by tile, in which tile shapes, and from which one on
//! everything is computed. Costs are estimated in multiplications and additions of a convolution.

use std::collections::BTreeMap;

use monosplit_graph::op::MultiplyAdds;
use monosplit_graph::{Cut, Graph, Kind, Node, NodeId, Shape};

use super::receptive_field::{FieldExtent, receptive_fields};
use super::segment::{InputWindow, Segment, TileShape, padding_value, sliding_window};
use crate::graph_info::name_of;

/// The cost of copying one element of a tile.
const COPY_COST: f64 = 100.0;
/// The cost of reading and writing one element in an elementwise node.
const ELEMENTWISE_COST: f64 = 12.0;
/// Convolutions compute small activations in blocks of this many rows and columns.
const BLOCK: usize = 4;
/// A second, smaller tile length is used if the mean length falls below this share of the largest.
const MIN_SHRINKAGE: f64 = 0.9;
/// An incremental run must cost less than this share of computing everything.
const MAX_COST_SHARE: f64 = 0.9;

/// Plans incremental runs of a graph whose first input is an image.
pub(super) struct TilingPlanner<'a> {
    pub(super) graph: &'a Graph,
    image: NodeId,
    pub(super) largest_change: [usize; 2],
    /// The receptive fields of nodes that may be computed tile by tile.
    fields: Vec<Option<[FieldExtent; 2]>>,
    /// The shapes their tiles may have, the largest last.
    tile_shapes: Vec<Option<Vec<TileShape>>>,
    /// Which nodes depend on the image.
    dependent: Vec<bool>,
    /// The cost of each node, for one sample.
    costs: Vec<f64>,
}

impl<'a> TilingPlanner<'a> {
    /// For changes within rectangles of at most this height and width.
    pub(super) fn new(graph: &'a Graph, image: NodeId, largest_change: [usize; 2]) -> Self {
        let mut fields = receptive_fields(graph, image);
        for (id, node) in graph.nodes().filter(|(id, _)| *id != image) {
            let untiled =
                |input: &NodeId| fields[input.index()].is_none() && !graph.node(*input).is_constant();
            let unpaddable = sliding_window(&node.op).is_some() && padding_value(graph, id).is_none();
            if node.inputs.iter().any(untiled) || unpaddable {
                fields[id.index()] = None;
            }
        }
        let along = |id: NodeId, field: FieldExtent, axis: usize| {
            let length = |id: NodeId| graph.node(id).shape.fixed_at(2 + axis);
            Some(tile_lengths(field, largest_change[axis], length(image)?, length(id)?))
        };
        let shapes = |(id, _): (NodeId, &Node)| {
            let [height, width] = fields[id.index()]?;
            let (heights, widths) = (along(id, height, 0)?, along(id, width, 1)?);
            let both = heights.iter().flat_map(|height| widths.iter().map(move |width| (height, width)));
            let shape = |(height, width): (&(usize, f64), &(usize, f64))| TileShape {
                size: [height.0, width.0],
                share: height.1 * width.1,
            };
            Some(both.map(shape).collect())
        };
        let tile_shapes = graph.nodes().map(shapes).collect();
        let costs = graph.nodes().map(|(id, _)| cost(graph, id)).collect();
        TilingPlanner {
            graph,
            image,
            largest_change,
            fields,
            tile_shapes,
            dependent: graph.descendants([image]),
            costs,
        }
    }

    /// The node with the cheapest incremental run that computes tiles up to it and everything above it; `None` if computing
    /// everything is about as cheap.
    pub(super) fn last_tiled(&self) -> Option<NodeId> {
        let everything = self.cost_above(self.image)?;
        let candidates = self.graph.nodes().map(|(id, _)| id).filter(|&id| id > self.image);
        let costs = candidates.filter_map(|id| {
            let above = self.cost_above(id)?;
            let segments = self.segments(id)?;
            let tiled: f64 = segments.iter().skip(1).map(|segment| self.cost_of(segment)).sum();
            Some((tiled + above + COPY_COST * segments.last()?.len() as f64, id))
        });
        let (cost, last) = costs.min_by(|(a, _), (b, _)| a.total_cmp(b))?;
        (cost <= MAX_COST_SHARE * everything).then_some(last)
    }

    /// The segments that compute a node tile by tile, the image first; `None` if there is no such way.
    pub(super) fn segments(&self, last: NodeId) -> Option<Vec<Segment>> {
        let outputs = self.materialised(last);
        let mut segments: Vec<Segment> = Vec::with_capacity(outputs.len());
        for &output in &outputs {
            let mut segment = self.segment(output)?;
            if !segments.is_empty() {
                self.fill(&mut segment, &outputs, &segments);
            }
            segments.push(segment);
        }
        Some(segments)
    }

    /// A segment without its nodes and inputs.
    fn segment(&self, output: NodeId) -> Option<Segment> {
        let fields = self.fields[output.index()]?;
        let Node { shape, kind: Kind::Float, .. } = self.graph.node(output) else { return None };
        let (channels, size) = (shape.fixed_at(1)?, [shape.fixed_at(2)?, shape.fixed_at(3)?]);
        if channels * size[0] * size[1] == 0 {
            return None;
        }
        let tile_shapes = self.tile_shapes[output.index()].clone()?;
        let (inputs, nodes, slots) = (Vec::new(), Vec::new(), BTreeMap::new());
        let name = name_of(self.graph, output);
        Some(Segment { output, name, channels, size, fields, tile_shapes, inputs, nodes, slots })
    }

    /// Adds the nodes between the materialised activations and the segment's output, and what they read.
    fn fill(&self, segment: &mut Segment, materialised: &[NodeId], known: &[Segment]) {
        let mut open = vec![segment.output];
        while let Some(id) = open.pop() {
            if segment.nodes.contains(&id) {
                continue;
            }
            segment.nodes.push(id);
            for (position, &input) in self.graph.node(id).inputs.iter().enumerate() {
                match materialised.binary_search(&input) {
                    Ok(from) => {
                        let read = InputWindow::of(self.graph, id, from, known[from].channels);
                        let slot = segment.inputs.iter().position(|&known| known == read);
                        let slot = slot.unwrap_or_else(|| {
                            segment.inputs.push(read);
                            segment.inputs.len() - 1
                        });
                        segment.slots.insert((id, position), slot);
                    }
                    Err(_) if self.fields[input.index()].is_some() => open.push(input),
                    Err(_) => {}
                }
            }
        }
        segment.nodes.sort();
    }

    /// The nodes on the way to the last whose activations are materialised: what convolutions and pools read, and what is
    /// read more than once.
    fn materialised(&self, last: NodeId) -> Vec<NodeId> {
        let mut readers = vec![0usize; self.graph.len()];
        let mut kept = vec![false; self.graph.len()];
        (kept[self.image.index()], kept[last.index()], readers[last.index()]) = (true, true, 1);
        for (id, node) in self.graph.nodes().rev().filter(|(id, _)| *id <= last) {
            if readers[id.index()] == 0 || self.fields[id.index()].is_none() {
                continue;
            }
            kept[id.index()] |= readers[id.index()] > 1;
            for input in &node.inputs {
                readers[input.index()] += 1;
                kept[input.index()] |=
                    sliding_window(&node.op).is_some() && self.fields[input.index()].is_some();
            }
        }
        self.graph.nodes().map(|(id, _)| id).filter(|id| kept[id.index()]).collect()
    }

    /// The cost of everything above a node; `None` if something that depends on the image does not pass through it.
    fn cost_above(&self, at: NodeId) -> Option<f64> {
        let cut = Cut::new(self.graph, at, self.graph.outputs())?;
        let alone = cut.crossing().iter().all(|other| !self.dependent[other.index()]);
        let above = self.graph.nodes().map(|(id, _)| id).filter(|&id| id != at && cut.is_above(id));
        alone.then(|| above.map(|id| self.costs[id.index()]).sum())
    }

    /// The mean cost of a segment's tile.
    fn cost_of(&self, segment: &Segment) -> f64 {
        let computed: f64 = segment.nodes.iter().map(|id| self.costs[id.index()]).sum();
        let positions = (segment.size[0] * segment.size[1]) as f64;
        let each = segment.tile_shapes.iter().map(|&tile| {
            let elements = |window: &InputWindow| window.shape(tile.size).iter().product::<usize>();
            let copied: usize = segment.inputs.iter().map(elements).sum();
            let share = (tile.size[0] * tile.size[1]) as f64 / positions;
            tile.share * (share * computed + COPY_COST * copied as f64)
        });
        each.sum()
    }
}

/// The lengths that tiles have along an axis, and the share of each: one length for all, or a smaller one near the border
/// where that saves enough. Changes are `changed` long, anywhere in an image of this length.
fn tile_lengths(field: FieldExtent, changed: usize, image: usize, length: usize) -> Vec<(usize, f64)> {
    let most = field.most_affected(changed).min(length);
    let positions = image.saturating_sub(changed) + 1;
    // Where a stride leaves positions out, some changes affect nothing; their tiles have one position all the same.
    let affected = |at: usize| field.affected(&(at..at + changed), length).len().max(1);
    let mut found: Vec<usize> = (0..positions).map(affected).collect();
    found.sort_unstable();
    let computed = |length: usize| length.next_multiple_of(BLOCK) as f64;
    let smaller = found.iter().enumerate().map(|(at, &length)| {
        let share = (at + 1) as f64 / positions as f64;
        (share * computed(length) + (1.0 - share) * computed(most), length.next_multiple_of(BLOCK), share)
    });
    let best = smaller.min_by(|(a, ..), (b, ..)| a.total_cmp(b));
    match best.filter(|&(mean, length, _)| length < most && mean <= MIN_SHRINKAGE * computed(most)) {
        Some((_, length, share)) => vec![(length, share), (most, 1.0 - share)],
        None => vec![(most, 1.0)],
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
    let inputs = || node.inputs.first().map_or(0.0, |&input| per_sample(&graph.node(input).shape));
    match graph.multiply_adds(node) {
        MultiplyAdds::PerOutput(each) => per_sample(&node.shape) * each as f64,
        MultiplyAdds::PerInput(each) => inputs() * each as f64,
        MultiplyAdds::Negligible => per_sample(&node.shape) * ELEMENTWISE_COST,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_at_the_border_are_shorter_and_every_change_fits() {
        let (image, changed, length) = (224, 32, 14);
        let field = FieldExtent { stride: 16, before: 105, after: 105 };
        let found = tile_lengths(field, changed, image, length);
        assert_eq!(found.len(), 2);
        assert!(found[0].0 < found[1].0 && found[1].0 <= length);
        assert!((found.iter().map(|(_, share)| share).sum::<f64>() - 1.0).abs() < 1e-12);
        let affected = |at: usize| field.affected(&(at..at + changed), length).len();
        let all: Vec<usize> = (0..=image - changed).map(affected).collect();
        assert!(all.iter().all(|&affected| affected <= found[1].0));
        let short = all.iter().filter(|&&affected| affected <= found[0].0).count();
        assert!((short as f64 / all.len() as f64 - found[0].1).abs() < 1e-12);
    }

    #[test]
    fn tiles_of_changes_that_nothing_reads_are_not_empty() {
        let found = tile_lengths(FieldExtent { stride: 4, before: 0, after: 0 }, 1, 64, 16);
        assert!(found.iter().all(|&(length, _)| length >= 1), "{found:?}");
    }

    #[test]
    fn tiles_far_from_the_border_have_one_length() {
        assert_eq!(tile_lengths(FieldExtent { stride: 1, before: 1, after: 1 }, 8, 1000, 1000), [(10, 1.0)]);
    }
}
