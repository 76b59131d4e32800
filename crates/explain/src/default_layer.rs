//! The layer a method attributes to where none is named. It is found by what values are in the graph and never by their
//! names, so that it does not depend on who wrote the network down.

use std::ops::Range;

use monosplit_graph::op::{Movement, Role};
use monosplit_graph::{Graph, Node, NodeId, Op};

use crate::channels::ChannelAxes;
use crate::method::DefaultLayer;
use crate::patch_grid::Grid;
use crate::score_dependence::score_dependence;
use crate::target::{is_choice, is_target_score};

/// By how much the two sides of a position may differ, as a factor. Borders that convolutions leave out make some difference;
/// tokens of windows beside windows, `[N, windows, tokens, C]`, make a larger one.
const MOST_STRETCHED: usize = 2;

/// What a feature map is called, and what its tokens are called behind a layer norm.
type Description = [&'static str; 2];

const LAST: Description =
    ["the last feature map", "the last normalised tokens of which all reach the scores"];
const ATTENDED: Description =
    ["what enters the last attention", "the normalised tokens that enter the last attention"];
const MIXED: Description =
    ["what enters the last mixing of tokens", "the normalised tokens that enter the last mixing of tokens"];

/// A layer that was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenLayer {
    /// Its name.
    pub name: String,
    /// What it is in the network.
    pub what: &'static str,
}

/// The default layer of a method in `graph`; none is the image.
pub fn chosen_layer(graph: &Graph, default: DefaultLayer) -> Option<ChosenLayer> {
    let features = || FeatureMaps::new(graph)?.last();
    let chosen = match default {
        DefaultLayer::Input => None,
        DefaultLayer::LastFeatures => features().or_else(|| last_mixing(graph)),
        DefaultLayer::LastMixingInput => last_mixing(graph),
    };
    log::debug!("layer chosen: {}", chosen.as_ref().map_or("the image", |layer| &layer.name));
    chosen
}

/// What enters the last layer that mixes positions.
fn last_mixing(graph: &Graph) -> Option<ChosenLayer> {
    let maps = FeatureMaps::new(graph);
    let of_network = maps.as_ref().and_then(FeatureMaps::last_mixing_input);
    of_network.or_else(|| without_mixing_layers(graph))
}

/// The layer of a network without layers that mix positions: the image if it has positions, else the last matrix product.
fn without_mixing_layers(graph: &Graph) -> Option<ChosenLayer> {
    let reaches = graph.ancestors(graph.outputs().first().map(|scores| scores.node));
    let image = graph.inputs().first().copied()?;
    let choice = |node: NodeId, what| Some(ChosenLayer { name: graph.input_name(node)?, what });
    if has_positions(graph, image) {
        return choice(image, "the image");
    }
    let product = |(id, node): &(NodeId, &Node)| {
        reaches[id.index()] && !node.is_constant() && matches!(node.op, Op::MatMul { .. })
    };
    let last = graph.nodes().rev().filter(product).find_map(|(id, _)| choice(id, "the last affine layer"));
    last.or_else(|| choice(image, "the input"))
}

/// The last convolution of each spatial size, from fine to coarse. Convolutions with kernels larger than 1×1 are preferred:
/// others count only if there are none.
pub fn layers_by_size(graph: &Graph) -> Vec<String> {
    let reaches = graph.ancestors(graph.outputs().first().map(|scores| scores.node));
    let of = |wanted: &dyn Fn(&Op) -> bool| {
        let mut found: Vec<(Vec<_>, NodeId)> = Vec::new();
        for (id, node) in graph.nodes() {
            if !reaches[id.index()] || !wanted(&node.op) || !has_positions(graph, id) {
                continue;
            }
            let sizes = node.shape.dims().get(2..).map(<[_]>::to_vec).unwrap_or_default();
            found.retain(|(known, _)| *known != sizes);
            found.push((sizes, id));
        }
        found.into_iter().filter_map(|(_, id)| graph.input_name(id)).collect::<Vec<_>>()
    };
    let wide = of(&is_wide);
    if wide.is_empty() { of(&|op| matches!(op, Op::Conv { .. })) } else { wide }
}

/// Whether an op is a convolution with a kernel larger than 1×1.
fn is_wide(op: &Op) -> bool {
    matches!(op, Op::Conv { window, .. } if window.kernel.iter().any(|&n| n > 1))
}

/// Whether a value `[N, C, …]` has a spatial size larger than one.
fn has_positions(graph: &Graph, id: NodeId) -> bool {
    let dims = graph.node(id).shape.dims();
    dims.len() > 2 && dims[2..].iter().any(|dim| dim.fixed() != Some(1))
}

/// The values between the image and the class scores that have a number, or many, for every position of the image.
struct FeatureMaps<'g> {
    graph: &'g Graph,
    image: NodeId,
    /// Which nodes lie between the image and the class scores, which depend on them.
    between: Vec<bool>,
    axes: ChannelAxes,
    readers: Vec<Vec<NodeId>>,
    /// For every value, the part of it that the class scores depend on.
    read: Vec<Option<Vec<Range<usize>>>>,
    /// Values with positions of which all reach the class scores, and that lie on every path from the image to them: dominators of the
    /// class scores.
    dominators: Vec<NodeId>,
    /// Whether the score is a target's.
    of_target: bool,
}

impl<'g> FeatureMaps<'g> {
    fn new(graph: &'g Graph) -> Option<Self> {
        let (image, scores) = (*graph.inputs().first()?, graph.outputs().first()?.node);
        let (below, read) = (graph.descendants([image]), score_dependence(graph, scores));
        let between: Vec<bool> =
            read.iter().zip(below).map(|(read, below)| read.is_some() && below).collect();
        let axes = ChannelAxes::new(graph, image);
        let readers = graph.readers();
        let (dominators, of_target) = (Vec::new(), is_target_score(graph));
        let mut maps = FeatureMaps { graph, image, between, axes, readers, read, dominators, of_target };
        let mut dominators = maps.passed_by_all();
        dominators.retain(|&id| maps.is_read_whole(id));
        maps.dominators = dominators;
        Some(maps)
    }

    /// The nodes that lie on every path from the image to the class scores: in topological order no edge passes them by.
    fn passed_by_all(&self) -> Vec<NodeId> {
        let mut furthest = self.image;
        let mut passed = Vec::new();
        for (id, _) in self.graph.nodes().filter(|(id, _)| self.between[id.index()]) {
            if furthest <= id {
                passed.push(id);
            }
            let last = self.readers[id.index()].iter().rfind(|reader| self.between[reader.index()]);
            furthest = furthest.max(last.copied().unwrap_or(id));
        }
        passed
    }

    /// The axes of a value that run over positions of the image, and how many extra tokens come before the positions; none if it
    /// has no position for each part of the image.
    fn positions(&self, id: NodeId) -> Option<(Vec<usize>, usize)> {
        let axes = self.axes.at(self.graph, id);
        let shape = &self.graph.node(id).shape;
        let channels = axes.channels?;
        let positions: Vec<usize> = (1..shape.rank()).filter(|&axis| axis != channels).collect();
        let lengths = |shape: &monosplit_graph::Shape, axes: &[usize]| {
            axes.iter().map(|&axis| shape.fixed_at(axis)).collect::<Option<Vec<usize>>>()
        };
        let image = &self.graph.node(self.image).shape;
        // Samples come first: heads stacked before them are no positions.
        if shape.dims().first() != image.dims().first() {
            return None;
        }
        let across: Vec<usize> = (1..image.rank()).filter(|&axis| axis != axes.image_channels).collect();
        let (own, whole) = (lengths(shape, &positions)?, lengths(image, &across)?);
        if own.iter().all(|&length| length == 1) {
            return None;
        }
        let dropped = match (own.as_slice(), whole.as_slice()) {
            (&[tokens], [_, _]) => Grid::of(image, axes.image_channels, tokens)?.dropped,
            (&[rows, columns], &[height, width]) => {
                let (a, b) = (height.checked_mul(columns)?, width.checked_mul(rows)?);
                (a <= b.checked_mul(MOST_STRETCHED)? && b <= a.checked_mul(MOST_STRETCHED)?).then_some(0)?
            }
            (own, whole) => (own.len() == whole.len()).then_some(0)?,
        };
        Some((positions, dropped))
    }

    /// Whether the class scores depend on all positions of a value.
    fn is_read_whole(&self, id: NodeId) -> bool {
        let (Some(read), Some((axes, dropped))) = (&self.read[id.index()], self.positions(id)) else {
            return false;
        };
        let length = |axis: usize| self.graph.node(id).shape.fixed_at(axis).unwrap_or(1);
        axes.iter().all(|&axis| read[axis].start <= dropped && read[axis].end == length(axis))
    }

    /// Which values are the image itself, its elements at most in another order or shape.
    fn moved_image(&self) -> Vec<bool> {
        let mut moved = vec![false; self.graph.len()];
        moved[self.image.index()] = true;
        for (id, node) in self.graph.nodes().filter(|(_, node)| matches!(node.op.role(), Role::Movement(_))) {
            moved[id.index()] = node.inputs.first().is_some_and(|input| moved[input.index()]);
        }
        moved
    }

    /// The last feature map: behind activations and residual additions, and before pooling. Where a network has several
    /// branches up to its end, it is the last normalised tokens of one of them.
    fn last(&self) -> Option<ChosenLayer> {
        let moved = self.moved_image();
        let is_features = |id: &&NodeId| {
            // A part of a resampled map is no more one of the network's features than the whole.
            let role = self.graph.node(self.before_movements(**id)).op.role();
            let is_map = !matches!(
                role,
                Role::Pooling | Role::Reduction | Role::Resampling | Role::Softmax | Role::Source
            );
            is_map && !moved[id.index()] && !is_choice(self.graph.node(**id)) && self.is_behind_weights(**id)
        };
        match self.dominators.iter().rfind(is_features) {
            Some(&last) => self.described(last, LAST),
            None => self.last_normalised(self.graph.len(), LAST),
        }
    }

    /// Whether weights lie between a value and the score. Where a target's score is made of maps or boxes that the network returns,
    /// those are no features.
    fn is_behind_weights(&self, value: NodeId) -> bool {
        let combines = |(id, node): (NodeId, &Node)| {
            let combined = match &node.op {
                Op::Conv { groups, .. } | Op::ConvTranspose { groups, .. } => self
                    .graph
                    .node(node.inputs[0])
                    .shape
                    .fixed_at(1)
                    .is_none_or(|channels| *groups < channels),
                Op::MatMul { .. } => true,
                _ => false,
            };
            combined && id > value && self.between[id.index()]
        };
        !self.of_target || self.graph.nodes().any(combines)
    }

    /// Whether a part of a target's score does not depend on a node: it lies in one of several branches that are joined behind all
    /// weights, such as the heads of a detector for boxes of one size.
    fn is_in_a_branch(&self, id: NodeId) -> bool {
        let below = self.graph.descendants([id]);
        let joins = |(joint, node): (NodeId, &Node)| {
            let of_branches = matches!(node.op, Op::Concat { .. })
                && below[joint.index()]
                && self.between[joint.index()]
                && !self.is_behind_weights(joint);
            of_branches
                && node.inputs.iter().any(|input| self.between[input.index()] && !below[input.index()])
        };
        self.of_target && self.graph.nodes().any(joins)
    }

    /// What enters the last layer that mixes positions: the last convolution whose kernel is larger than 1×1, or attention or
    /// another matrix product over positions behind it.
    fn last_mixing_input(&self) -> Option<ChosenLayer> {
        let last = |wanted: &dyn Fn(NodeId, &Node) -> bool| {
            let mut nodes = self.graph.nodes().rev().filter(|(id, _)| self.between[id.index()]);
            nodes.find(|(id, node)| wanted(*id, node)).map(|(id, _)| id)
        };
        let on_positions = |id: NodeId| {
            has_positions(self.graph, id) || has_positions(self.graph, self.graph.node(id).inputs[0])
        };
        let is_conv = |node: &Node| matches!(node.op, Op::Conv { .. });
        let convolution = last(&|id, node| is_wide(&node.op) && on_positions(id) && !self.is_in_a_branch(id))
            .or_else(|| last(&|id, node| is_conv(node) && on_positions(id) && !self.is_in_a_branch(id)))
            .or_else(|| last(&|id, node| is_conv(node) && on_positions(id)));
        let product = last(&|_, node| self.mixes_places(node));
        if let Some(product) = product.filter(|&product| convolution.is_none_or(|conv| conv < product)) {
            let entering = self.dominators.iter().rfind(|&&id| id < product && id != self.image);
            let of_two = |node: &Node| node.inputs[..2].iter().all(|input| self.between[input.index()]);
            let what = if of_two(self.graph.node(product)) { ATTENDED } else { MIXED };
            let found = match entering {
                Some(&entering) => self.described(entering, what),
                None => self.last_normalised(product.index(), what),
            };
            if found.is_some() {
                return found;
            }
        }
        let name = self.graph.input_name(convolution?)?;
        let wide = is_wide(&self.graph.node(convolution?).op);
        let what = if wide {
            "what enters the last convolution wider than 1×1"
        } else {
            "what enters the last convolution"
        };
        Some(ChosenLayer { name, what })
    }

    /// Whether a node is attention, a product of two activations, or a matrix product with weights over positions.
    fn mixes_places(&self, node: &Node) -> bool {
        let (Op::MatMul { trans_a, trans_b }, &[a, b, ..]) = (&node.op, node.inputs.as_slice()) else {
            return false;
        };
        match (self.between[a.index()], self.between[b.index()]) {
            (true, true) => true,
            (true, false) => self.contracts_places(a, *trans_a),
            (false, true) => self.contracts_places(b, !*trans_b),
            (false, false) => false,
        }
    }

    /// Whether a matrix product adds up the positions of an operand, that is, an axis that does not hold its channels.
    fn contracts_places(&self, operand: NodeId, last_but_one: bool) -> bool {
        let node = self.graph.node(operand);
        let rank = node.shape.rank();
        if rank < 3 {
            return false;
        }
        let axis = if last_but_one { rank - 2 } else { rank - 1 };
        // A dense layer takes what it adds up for channels: ask what was transposed for it.
        let (source, axis) = match &node.op {
            Op::Transpose { axes } => (node.inputs[0], axes[axis]),
            _ => (operand, axis),
        };
        let moved = source != operand || last_but_one;
        moved && self.positions(source).is_some_and(|(positions, _)| positions.contains(&axis))
    }

    /// The last layer norm before a node whose tokens all reach the class scores.
    fn last_normalised(&self, before: usize, what: Description) -> Option<ChosenLayer> {
        let norms = self.graph.nodes().rev().filter(|(id, node)| {
            id.index() < before && self.between[id.index()] && matches!(node.op, Op::LayerNorm { .. })
        });
        let (norm, _) = norms.into_iter().find(|(id, _)| self.is_read_whole(*id))?;
        self.named(norm, what[1])
    }

    /// A value that was only moved about, or cut off from tokens that are no positions, as it was before.
    fn before_movements(&self, mut id: NodeId) -> NodeId {
        loop {
            let node = self.graph.node(id);
            let moves = match node.op.role() {
                Role::Movement(Movement::View | Movement::Permutation | Movement::Identity) => true,
                _ => matches!(node.op, Op::Slice { step: 1, .. }),
            };
            match node.inputs.first() {
                Some(source) if moves && self.dominators.binary_search(source).is_ok() => id = *source,
                _ => return id,
            }
        }
    }

    /// A dominator with its name. Tokens that a layer norm reads are taken behind it: before it, the channels of a
    /// gradient times the activations sum to zero wherever the norm is the only reader, since it takes away their scale.
    fn described(&self, value: NodeId, what: Description) -> Option<ChosenLayer> {
        let source = self.before_movements(value);
        match self.normalised(value).or_else(|| self.normalised(source)) {
            Some(norm) => self.named(norm, what[1]),
            None => self.named(source, what[0]),
        }
    }

    fn named(&self, value: NodeId, what: &'static str) -> Option<ChosenLayer> {
        Some(ChosenLayer { name: format!("{}:out", self.graph.output_name(value)?), what })
    }

    /// The first layer norm over channels that reads a value, or reads it after other tokens were put before it.
    fn normalised(&self, value: NodeId) -> Option<NodeId> {
        let tokens = self.positions(value)?.0;
        let readers = |id: NodeId| {
            self.readers[id.index()].iter().copied().filter(|reader| self.between[reader.index()])
        };
        let is_norm = |id: &NodeId| {
            matches!(self.graph.node(*id).op, Op::LayerNorm { .. }) && self.positions(*id).is_some()
        };
        readers(value).find_map(|reader| match &self.graph.node(reader).op {
            Op::Concat { axis } if tokens.contains(axis) => readers(reader).find(is_norm),
            _ => Some(reader).filter(is_norm),
        })
    }
}

#[cfg(test)]
mod tests {
    use monosplit_graph::op::{Binary, Unary, Window};
    use monosplit_graph::{Kind, Label, Shape, Tensor};

    use super::*;

    const PRODUCT: Op = Op::MatMul { trans_a: false, trans_b: false };

    fn weights(g: &mut Graph, shape: &[usize]) -> NodeId {
        g.constant(Tensor::new(shape.to_vec(), vec![0.5f32; shape.iter().product()]).unwrap())
    }

    fn named(g: &mut Graph, name: &str, op: Op, inputs: &[NodeId]) -> NodeId {
        g.add_named(Label::named(name), op, inputs).unwrap()
    }

    /// The patches of an 8 × 8 picture as 4 tokens of 6 channels.
    fn patches(g: &mut Graph, x: NodeId) -> NodeId {
        let w = weights(g, &[6, 3, 4, 4]);
        let mut window = Window::new([4, 4]);
        window.stride = vec![4, 4];
        let patches = named(g, "embed", Op::Conv { window, groups: 1 }, &[x, w]);
        let flat = g.reshaped(patches, Shape::batched(&[6, 4])).unwrap();
        g.add(Op::Transpose { axes: vec![0, 2, 1] }, &[flat]).unwrap()
    }

    /// Patches of an 8 × 8 picture as 4 tokens of 6 channels after a class token, two blocks, and scores.
    fn transformer(class_token: bool) -> Graph {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[3, 8, 8]), Kind::Float);
        let mut y = patches(&mut g, x);
        if class_token {
            let first = g.add(Op::Slice { axis: 1, start: 0, step: 1, length: 1 }, &[y]).unwrap();
            y = g.add(Op::Concat { axis: 1 }, &[first, y]).unwrap();
        }
        let scale = weights(&mut g, &[6]);
        let norm = Op::LayerNorm { axis: 2, epsilon: 1e-5 };
        for block in 0..2 {
            let normal = named(&mut g, &format!("norm{block}"), norm.clone(), &[y, scale]);
            let scores = named(&mut g, "", Op::MatMul { trans_a: false, trans_b: true }, &[normal, normal]);
            let attention = named(&mut g, "", Op::Softmax { axis: 2 }, &[scores]);
            let mixed = named(&mut g, "", PRODUCT, &[attention, normal]);
            y = named(&mut g, &format!("block{block}"), Op::Binary(Binary::Add), &[y, mixed]);
        }
        y = named(&mut g, "last_norm", norm, &[y, scale]);
        let length = if class_token { 1 } else { 4 };
        let token = g.add(Op::Slice { axis: 1, start: 0, step: 1, length }, &[y]).unwrap();
        let token = g.reduced(monosplit_graph::op::Reduction::Mean, token, &[1], false).unwrap();
        let w = weights(&mut g, &[6, 2]);
        let scores = g.add(PRODUCT, &[token, w]).unwrap();
        g.output("scores", scores);
        g
    }

    fn name(graph: &Graph, default: DefaultLayer) -> String {
        chosen_layer(graph, default).unwrap().name
    }

    #[test]
    fn issue_27_a_transformer_is_read_at_its_last_block() {
        let with = transformer(true);
        assert_eq!(name(&with, DefaultLayer::LastFeatures), "norm1:out");
        assert_eq!(name(&with, DefaultLayer::LastMixingInput), "norm1:out");
        let without = transformer(false);
        assert_eq!(name(&without, DefaultLayer::LastFeatures), "last_norm:out");
        assert_eq!(name(&without, DefaultLayer::LastMixingInput), "norm1:out");
        assert_eq!(chosen_layer(&with, DefaultLayer::Input), None);
    }

    #[test]
    fn a_residual_network_is_read_behind_its_last_block() {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[4, 8, 8]), Kind::Float);
        let mut window = Window::new([3, 3]);
        window.pad = vec![(1, 1); 2];
        let w = weights(&mut g, &[4, 4, 3, 3]);
        let relu = |g: &mut Graph, name: &str, x| {
            let label = Label { module: "block.relu".into(), ..Label::named(name) };
            g.add_named(label, Op::Unary(Unary::Relu), &[x]).unwrap()
        };
        let conv = |g: &mut Graph, name: &str, x| {
            named(g, name, Op::Conv { window: window.clone(), groups: 1 }, &[x, w])
        };
        let a = conv(&mut g, "conv1", x);
        let a = relu(&mut g, "relu_0", a);
        let b = conv(&mut g, "conv2", a);
        let sum = named(&mut g, "add", Op::Binary(Binary::Add), &[b, x]);
        let out = relu(&mut g, "relu_1", sum);
        let pooled = g.reduced(monosplit_graph::op::Reduction::Mean, out, &[2, 3], false).unwrap();
        let head = weights(&mut g, &[4, 2]);
        let scores = g.add(PRODUCT, &[pooled, head]).unwrap();
        g.output("scores", scores);
        assert_eq!(name(&g, DefaultLayer::LastFeatures), "block.relu#2:out");
        assert_eq!(name(&g, DefaultLayer::LastMixingInput), "conv2");
        assert_eq!(layers_by_size(&g), ["conv2"]);
    }

    /// Two heads at two sizes, joined cell by cell: what enters both of them is read, not one head or what the network returns.
    #[test]
    fn issue_29_detectors_are_read_before_their_heads() {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[4, 8, 8]), Kind::Float);
        let wide = |stride: usize| {
            let mut window = Window::new([3, 3]);
            (window.pad, window.stride) = (vec![(1, 1); 2], vec![stride; 2]);
            Op::Conv { window, groups: 1 }
        };
        let w = weights(&mut g, &[4, 4, 3, 3]);
        let stem = named(&mut g, "stem", wide(1), &[x, w]);
        let fine = named(&mut g, "fine", Op::Unary(Unary::Relu), &[stem]);
        let down = named(&mut g, "down", wide(2), &[fine, w]);
        let coarse = named(&mut g, "coarse", Op::Unary(Unary::Relu), &[down]);
        let mut cells = Vec::new();
        for (name, map, count) in [("head_fine", fine, 64), ("head_coarse", coarse, 16)] {
            let head = named(&mut g, name, wide(1), &[map, w]);
            let flat = g.reshaped(head, Shape::batched(&[4, count])).unwrap();
            cells.push(g.add(Op::Transpose { axes: vec![0, 2, 1] }, &[flat]).unwrap());
        }
        let boxes = g.add(Op::Concat { axis: 1 }, &cells).unwrap();
        g.output("boxes", boxes);
        let of = |target: &crate::Target| target.graft(&g, crate::Parameters::Constant).unwrap().graph;
        let sum = of(&crate::Target::Summary { output: None, summary: crate::Summary::Sum });
        assert_eq!(name(&sum, DefaultLayer::LastFeatures), "fine:out");
        assert_eq!(name(&sum, DefaultLayer::LastMixingInput), "stem");
        // A cell of the coarse map has the layers of its own head.
        let indices = vec![crate::AxisIndex::At(70), crate::AxisIndex::At(1)];
        let cell = of(&crate::Target::Cell { output: None, cells: crate::Cells::Each(indices) });
        assert_eq!(name(&cell, DefaultLayer::LastFeatures), "coarse:out");
        assert_eq!(name(&cell, DefaultLayer::LastMixingInput), "head_coarse");
    }

    /// A mixer: a product with weights over tokens, and no attention.
    #[test]
    fn issue_27_mixing_of_tokens_is_not_called_attention() {
        let attention = chosen_layer(&transformer(true), DefaultLayer::LastMixingInput).unwrap();
        assert_eq!(attention.what, "the normalised tokens that enter the last attention");
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[3, 8, 8]), Kind::Float);
        let tokens = patches(&mut g, x);
        let scale = weights(&mut g, &[6]);
        let normal = named(&mut g, "norm", Op::LayerNorm { axis: 2, epsilon: 1e-5 }, &[tokens, scale]);
        let turned = g.add(Op::Transpose { axes: vec![0, 2, 1] }, &[normal]).unwrap();
        let w = weights(&mut g, &[4, 4]);
        let mixed = named(&mut g, "mix", PRODUCT, &[turned, w]);
        let pooled = g.reduced(monosplit_graph::op::Reduction::Mean, mixed, &[2], false).unwrap();
        let w = weights(&mut g, &[6, 2]);
        let scores = g.add(PRODUCT, &[pooled, w]).unwrap();
        g.output("scores", scores);
        let mixing = chosen_layer(&g, DefaultLayer::LastMixingInput).unwrap();
        assert_eq!(
            (mixing.name.as_str(), mixing.what),
            ("norm:out", "what enters the last mixing of tokens")
        );
    }
}
