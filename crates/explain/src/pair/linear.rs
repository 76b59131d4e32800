//! The streams of linear nodes and products.

use monosplit_autodiff::linear::{apply_parts_transposed, batch_norm_scale, signed_resize};
use monosplit_graph::{Graph, Node, NodeId, Result};

use super::{Streams, Writer, not_split};
use crate::sum_stream::bias_shaped;

impl Writer<'_> {
    /// Cubic interpolation has negative weights, which cross from one stream to the other.
    pub(super) fn resized(&mut self, node: &Node) -> Result<Streams> {
        let a = self.streams[&node.inputs[0]];
        let input = self.network.graph().node(node.inputs[0]).shape.clone();
        let g = &mut self.graph;
        let Some(maps) = signed_resize(node, &input) else {
            return a.map(|x| g.add(node.op.clone(), &[x]));
        };
        let mut pair = (a.plus, a.minus);
        for (axis, map) in maps {
            pair = apply_parts_transposed(g, pair, axis, &map.transposed())?;
        }
        Ok(Streams { plus: pair.0, minus: pair.1 })
    }

    /// A product of two activations, or of one with a constant.
    pub(super) fn product(
        &mut self,
        node: &Node,
        apply: impl Fn(&mut Graph, NodeId, NodeId) -> Result<NodeId>,
    ) -> Result<Streams> {
        let [a, b] = [node.inputs[0], node.inputs[1]];
        match (self.network.is_active(a), self.network.is_active(b)) {
            (true, false) => {
                let w = self.constant(b)?;
                self.scaled(self.streams[&a], w, apply)
            }
            (false, true) => {
                let w = self.constant(a)?;
                self.scaled(self.streams[&b], w, |g, x, w| apply(g, w, x))
            }
            (true, true) => self.convex_product(self.streams[&a], self.streams[&b], apply),
            _ => Err(not_split(node)),
        }
    }

    pub(super) fn scaled(
        &mut self,
        a: Streams,
        weight: NodeId,
        apply: impl Fn(&mut Graph, NodeId, NodeId) -> Result<NodeId>,
    ) -> Result<Streams> {
        let w = self.parts(weight)?;
        self.multiplied(a, w, apply)
    }

    /// `z⁺ = W⁺a⁺ + W⁻a⁻`, `z⁻ = W⁻a⁺ + W⁺a⁻`
    pub(super) fn multiplied(
        &mut self,
        a: Streams,
        w: Streams,
        apply: impl Fn(&mut Graph, NodeId, NodeId) -> Result<NodeId>,
    ) -> Result<Streams> {
        let g = &mut self.graph;
        let (pp, nn) = (apply(g, a.plus, w.plus)?, apply(g, a.minus, w.minus)?);
        let (np, pn) = (apply(g, a.plus, w.minus)?, apply(g, a.minus, w.plus)?);
        Ok(Streams { plus: g.plus(pp, nn)?, minus: g.plus(np, pn)? })
    }

    /// `z⁺ = ½(a⁺ + b⁺)² + ½(a⁻ + b⁻)²`, `z⁻ = ½(a⁺ + b⁻)² + ½(a⁻ + b⁺)²`, summed as the product sums. The products of the
    /// streams themselves would do for `z⁺ − z⁻` and never decrease, but `uv` is not convex; both are raised by
    /// `½(a⁺² + a⁻² + b⁺² + b⁻²)`, which makes squares of them.
    pub(super) fn convex_product(
        &mut self,
        a: Streams,
        b: Streams,
        apply: impl Fn(&mut Graph, NodeId, NodeId) -> Result<NodeId>,
    ) -> Result<Streams> {
        self.products = true;
        let z = self.multiplied(a, b, &apply)?;
        let g = &mut self.graph;
        let half_squares = |g: &mut Graph, streams: Streams| {
            let squares = streams.map(|stream| g.times(stream, stream))?;
            let both = g.plus(squares.plus, squares.minus)?;
            g.scaled(0.5, both)
        };
        let ones = |g: &mut Graph, streams: Streams| {
            let zeros = g.scaled(0.0, streams.plus)?;
            g.offset(1.0, zeros)
        };
        let (of_a, of_b) = (half_squares(g, a)?, half_squares(g, b)?);
        let (beside_a, beside_b) = (ones(g, b)?, ones(g, a)?);
        let (of_a, of_b) = (apply(g, of_a, beside_a)?, apply(g, beside_b, of_b)?);
        let raised = g.plus(of_a, of_b)?;
        z.map(|stream| g.plus(stream, raised))
    }

    pub(super) fn with_bias(&mut self, z: Streams, node: &Node) -> Result<Streams> {
        let Some(&bias) = node.inputs.get(2) else { return Ok(z) };
        let bias = self.constant(bias)?;
        let bias = bias_shaped(&mut self.graph, node, bias)?;
        let bias = self.parts(bias)?;
        self.added(z, bias)
    }

    pub(super) fn batch_norm(&mut self, node: &Node, epsilon: f64) -> Result<Streams> {
        let mut local = node.clone();
        for input in local.inputs.iter_mut().skip(1) {
            *input = self.constant(*input)?;
        }
        let g = &mut self.graph;
        let scale = batch_norm_scale(g, &local, epsilon)?;
        let rank = node.shape.rank();
        let (bias, mean) = (g.per_channel(local.inputs[2], rank)?, g.per_channel(local.inputs[3], rank)?);
        let moved = g.times(mean, scale)?;
        let shift = g.minus(bias, moved)?;
        let z = self.scaled(self.streams[&node.inputs[0]], scale, |g, a, b| g.times(a, b))?;
        let shift = self.parts(shift)?;
        self.added(z, shift)
    }

    pub(super) fn sum(&mut self, node: &Node, difference: bool) -> Result<Streams> {
        let (a, b) = (self.operand(node.inputs[0])?, self.operand(node.inputs[1])?);
        self.added(a, if difference { b.swapped() } else { b })
    }

    pub(super) fn added(&mut self, a: Streams, b: Streams) -> Result<Streams> {
        Ok(Streams { plus: self.graph.plus(a.plus, b.plus)?, minus: self.graph.plus(a.minus, b.minus)? })
    }
}
