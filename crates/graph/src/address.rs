//! Layer names and the list of layers. A name is a module path as PyTorch writes it, the path of a container of modules,
//! or the name of a node or tensor in the ONNX file. The error for an unknown name suggests the closest ones.

use std::collections::HashSet;

use crate::calls::numbered;
use crate::error::{Error, ErrorKind, Hint, Result};
use crate::graph::{Graph, Label, Node, NodeId};
use crate::legible::shown;
use crate::op::Op;
use crate::shape::{Dim, Shape};
use crate::tensor::Kind;

/// Names suggested for a wrong one.
const SUGGESTIONS: usize = 5;
/// Longer names are not compared letter by letter.
const LONGEST_COMPARED: usize = 200;

/// A part of a graph that a name stands for: from its first node to its last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer {
    /// The first node, in topological order.
    pub first: NodeId,
    /// The last node.
    pub last: NodeId,
    /// Whether the layer was merged into `last` by a pass, so that its input is no value of its own any more.
    pub merged: bool,
}

impl Layer {
    fn of(node: NodeId) -> Self {
        Layer { first: node, last: node, merged: false }
    }

    /// From one node to another; `None` if they are in the wrong order.
    pub(crate) fn between(first: NodeId, last: NodeId) -> Option<Self> {
        (first <= last).then_some(Layer { first, last, merged: false })
    }

    /// The value that enters the layer: what its first node reads. For a graph input it is the input, and for a merged
    /// layer (dropout, a folded batch norm) the value that remains of it.
    pub fn input_value(&self, graph: &Graph) -> NodeId {
        let inputs = &graph.node(self.first).inputs;
        let read = inputs.iter().find(|&&id| !graph.node(id).is_constant()).or(inputs.first());
        match read {
            Some(&value) if !self.merged => value,
            _ => self.first,
        }
    }

    /// The value the layer produces.
    pub fn output_value(&self) -> NodeId {
        self.last
    }
}

/// Which end of a layer is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum End {
    /// The value that enters it.
    #[default]
    Input,
    /// The value it produces.
    Output,
}

/// A layer's name as given by a user: `layer4.1.conv2`, `layer4.1.conv2:in` or `layer4.1.relu#2:out`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LayerName {
    /// The name.
    pub name: String,
    /// Which end of the layer; the input unless said otherwise.
    pub end: End,
}

impl LayerName {
    /// Splits the end off a name. A colon followed by anything else belongs to the name.
    pub fn parse(text: &str) -> Self {
        let split =
            |suffix, end| text.strip_suffix(suffix).map(|name| LayerName { name: name.to_string(), end });
        split(":out", End::Output)
            .or_else(|| split(":in", End::Input))
            .unwrap_or_else(|| LayerName { name: text.to_string(), end: End::Input })
    }

    /// The value meant in `graph`.
    pub fn value(&self, graph: &Graph) -> Result<NodeId> {
        let layer = graph.layer(&self.name)?;
        Ok(match self.end {
            End::Input => layer.input_value(graph),
            End::Output => layer.output_value(),
        })
    }
}

impl Graph {
    /// The layer called `name`. A module path comes before a node name, that before a tensor name, that before the name
    /// of something merged, that before a container (`layer4`, all nodes whose module, or else whose own name,
    /// begins with `layer4.` or `layer4/`), and that before the number of a call (`layer4.1.relu#2`). If a module without
    /// others inside is called several times, its name alone is an error that lists the calls. Weights are not layers.
    pub fn layer(&self, name: &str) -> Result<Layer> {
        let name = name.trim();
        if let Some(module) = self.module(name)? {
            return Ok(module);
        }
        self.first_use(|label| !name.is_empty() && label.node == name)
            .or_else(|| self.tensor(name))
            .or_else(|| self.merged(|alias| alias == name))
            .or_else(|| self.container(name))
            .or_else(|| self.numbered_call(name))
            .ok_or_else(|| self.unknown_layer(name))
    }

    fn active(&self) -> impl DoubleEndedIterator<Item = (NodeId, &Node)> {
        self.nodes().filter(|(_, node)| !node.is_constant())
    }

    /// The first node whose label matches, to the last matching one that is connected with it through matching ones.
    fn first_use(&self, matches: impl Fn(&Label) -> bool) -> Option<Layer> {
        let groups = self.connected(self.labelled(matches));
        let group = groups.first()?;
        Layer::between(*group.first()?, *group.last()?)
    }

    /// A module with others inside consists of those and of what it does itself (the addition of a residual block).
    fn module(&self, name: &str) -> Result<Option<Layer>> {
        let calls = self.calls(name);
        let Some(alone) = calls.first() else { return Ok(None) };
        let Some(inside) = self.container(name).filter(|inside| !inside.merged) else {
            let calls = self.all_calls(name);
            return if calls.len() == 1 { Ok(Some(*alone)) } else { Err(self.called_often(name, &calls)) };
        };
        let own = self.active().rfind(|(_, node)| node.label.module == name);
        let last = own.map_or(alone.last, |(id, _)| id).max(inside.last);
        Ok(Layer::between(alone.first.min(inside.first), last))
    }

    fn called_often(&self, module: &str, calls: &[Layer]) -> Error {
        let described = |(index, call): (usize, &Layer)| {
            let name = shown(&numbered(module, index));
            match self.node(call.last).label.node.as_str() {
                "" => format!("'{name}'"),
                node => format!("'{name}' ({})", shown(node)),
            }
        };
        let listed: Vec<String> = calls.iter().enumerate().take(SUGGESTIONS).map(described).collect();
        let more = if calls.len() > SUGGESTIONS { ", …" } else { "" };
        let message = format!(
            "the module '{}' is called {} times; say which call is meant: {}{more}",
            shown(module),
            calls.len(),
            listed.join(", ")
        );
        Error::new(ErrorKind::UnknownName, message).hint(Hint::LAYERS)
    }

    fn tensor(&self, name: &str) -> Option<Layer> {
        let (id, node) = self.active().find(|(_, node)| !name.is_empty() && node.label.tensor == name)?;
        let written_by = &node.label.node;
        let whole = self.first_use(|label| !written_by.is_empty() && label.node == *written_by);
        Some(whole.filter(|layer| layer.last == id).unwrap_or(Layer::of(id)))
    }

    fn merged(&self, matches: impl Fn(&str) -> bool) -> Option<Layer> {
        let mut found =
            self.active().filter(|(_, node)| node.label.aliases.iter().any(|alias| matches(alias)));
        found.next().map(|(id, _)| Layer { merged: true, ..Layer::of(id) })
    }

    fn container(&self, name: &str) -> Option<Layer> {
        let name = name.trim_end_matches(['.', '/']);
        let within = |of: fn(&Label) -> &str| {
            let mut nodes = self.active().filter(|(_, node)| is_inside(name, of(&node.label)));
            let first = nodes.next()?.0;
            Some(Layer { first, last: nodes.next_back().map_or(first, |(id, _)| id), merged: false })
        };
        within(Label::display)
            .or_else(|| within(|label| &label.node))
            .or_else(|| self.merged(|alias| is_inside(name, alias)))
    }

    fn unknown_layer(&self, name: &str) -> Error {
        let mut seen = HashSet::new();
        let mut ranked: Vec<(usize, &str)> = Vec::new();
        let calls = self.call_names();
        for (id, node) in self.active() {
            let path = Some(&node.label.module).filter(|path| path.len() <= LONGEST_COMPARED);
            let containers = path.iter().flat_map(|p| p.match_indices('.').map(|(end, _)| &p[..end]));
            let names =
                std::iter::once(node.label.display()).chain(node.label.aliases.iter().map(String::as_str));
            let names = names.chain(calls.get(&id).map(String::as_str));
            for candidate in names.chain(containers).filter(|c| !c.is_empty()) {
                if seen.insert(candidate) {
                    ranked.extend(name_distance(name, candidate).map(|rank| (rank, candidate)));
                }
            }
        }
        ranked.sort_by_key(|&(rank, _)| rank);
        let closest: Vec<String> =
            ranked.iter().take(SUGGESTIONS).map(|(_, candidate)| format!("'{candidate}'")).collect();
        let hint = match (closest.is_empty(), &self.layers()[..]) {
            (false, _) => format!("; did you mean {}?", closest.join(", ")),
            (true, [first, second, .., last]) => {
                let names = [first, second, last].map(|layer| shown(&layer.name));
                format!("; names here are '{}', '{}' … '{}'", names[0], names[1], names[2])
            }
            _ => String::new(),
        };
        Error::new(ErrorKind::UnknownName, format!("no layer '{}'{hint}", shown(name))).hint(Hint::LAYERS)
    }

    /// All layers in topological order: every node that is not constant.
    pub fn layers(&self) -> Vec<LayerSummary> {
        self.layers_trained(|_| true)
    }

    /// The same, with parameters counted only where nodes that `is_trained` tells read them: what others read is derived
    /// from those.
    pub fn layers_trained(&self, is_trained: impl Fn(NodeId) -> bool) -> Vec<LayerSummary> {
        let (mut counted, mut listed, calls) = (HashSet::new(), HashSet::new(), self.call_names());
        listed.extend(calls.keys().map(|&id| self.node(id).label.module.clone()));
        self.active()
            .map(|(id, node)| LayerSummary {
                node: id,
                name: calls
                    .get(&id)
                    .cloned()
                    .or_else(|| listed_name(&node.label, &mut listed))
                    .unwrap_or_else(|| id.to_string()),
                op: node.op.name(),
                shape: node.shape.clone(),
                parameters: if is_trained(id) { parameters(self, node, &mut counted) } else { 0 },
                multiply_adds: multiply_adds(self, node),
            })
            .collect()
    }
}

/// The first of a node's names that no earlier line has.
fn listed_name(label: &Label, listed: &mut HashSet<String>) -> Option<String> {
    let names = [&label.module, &label.node, &label.tensor];
    let name = names.into_iter().find(|name| !name.is_empty() && !listed.contains(*name))?;
    listed.insert(name.clone());
    Some(name.clone())
}

/// One line of a listing of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerSummary {
    /// The node.
    pub node: NodeId,
    /// The name a person would use.
    pub name: String,
    /// What it does.
    pub op: &'static str,
    /// Shape of the value it produces.
    pub shape: Shape,
    /// Number of trained parameters it reads; shared ones count at their first reader, statistics of a batch norm
    /// and single numbers of an expression do not.
    pub parameters: usize,
    /// Multiplications with addition per sample, in convolutions and matrix products.
    pub multiply_adds: usize,
}

fn parameters(graph: &Graph, node: &Node, counted: &mut HashSet<NodeId>) -> usize {
    let trained = match node.op {
        Op::BatchNorm { .. } => &node.inputs[..3],
        _ => &node.inputs[..],
    };
    let weights = trained.iter().map(|&id| (id, graph.node(id)));
    weights
        .filter(|(id, weight)| {
            weight.is_constant()
                && weight.kind == Kind::Float
                && weight.shape.rank() > 0
                && counted.insert(*id)
        })
        .filter_map(|(_, weight)| weight.shape.count()?.fixed())
        .fold(0, usize::saturating_add)
}

fn multiply_adds(graph: &Graph, node: &Node) -> usize {
    let per_sample = |shape: &Shape| match shape.count() {
        Some(Dim::Fixed(n) | Dim::Batch(n)) => n,
        None => usize::MAX,
    };
    let inputs = node.inputs.first().map_or(0, |&input| per_sample(&graph.node(input).shape));
    graph.multiply_adds(node).total(per_sample(&node.shape), inputs)
}

/// Whether a path is that of something inside a container.
pub(crate) fn is_inside(container: &str, path: &str) -> bool {
    !container.is_empty() && path.strip_prefix(container).is_some_and(|rest| rest.starts_with(['.', '/']))
}

/// A distance between two names; `None` if they have nothing in common.
fn name_distance(wanted: &str, candidate: &str) -> Option<usize> {
    if wanted.is_empty() || wanted.len() > LONGEST_COMPARED || candidate.len() > LONGEST_COMPARED {
        return None;
    }
    let (wanted, candidate) = (wanted.to_lowercase(), candidate.to_lowercase());
    let edits = strsim::levenshtein(&wanted, &candidate);
    if candidate.contains(&wanted) {
        return Some(edits.min(1 + edits / 4));
    }
    let close = edits <= (wanted.chars().count() / 3).max(2) || wanted.contains(&candidate);
    close.then_some(edits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{Binary, Unary, Window};
    use crate::passes::{drop_identities, max_form};
    use crate::tensor::Tensor;

    fn label(module: &str, node: &str, tensor: &str) -> Label {
        Label { module: module.into(), node: node.into(), tensor: tensor.into(), aliases: Vec::new() }
    }

    /// Two blocks `conv → relu6 → dropout`, one relu6 module for both, and a head.
    fn network() -> Graph {
        let mut g = Graph::new();
        let mut y = g.input("image", Shape::batched(&[4, 8, 8]), Kind::Float);
        for block in 0..2 {
            let path = format!("features.{block}");
            let w = Tensor::new([4, 2, 3, 3], vec![0f32; 72]).unwrap();
            let w = g.named_constant(Label::named(format!("{path}.conv.weight")), w);
            let b = g.constant(Tensor::vector(vec![0f32; 4]));
            let mut window = Window::new([3, 3]);
            window.pad = vec![(1, 1); 2];
            let conv = label(&format!("{path}.conv"), &format!("/{path}/conv/Conv"), &format!("{path}_out"));
            y = g.add_named(conv, Op::Conv { window, groups: 2 }, &[y, w, b]).unwrap();
            let clip = label("features.act", &format!("Clip_{block}"), &format!("clip{block}"));
            y = g.add_named(clip, Op::Unary(Unary::Clip { min: 0.0, max: 6.0 }), &[y]).unwrap();
            let drop = label(&format!("{path}.drop"), "", "");
            y = g.add_named(drop, Op::Dropout { ratio: 0.5 }, &[y]).unwrap();
        }
        y = g.add(Op::Reshape { shape: Shape::batched(&[256]) }, &[y]).unwrap();
        let w =
            g.named_constant(Label::named("head.weight"), Tensor::new([256, 10], vec![0f32; 2560]).unwrap());
        y = g
            .add_named(
                label("head", "MatMul_9", "logits"),
                Op::MatMul { trans_a: false, trans_b: false },
                &[y, w],
            )
            .unwrap();
        g.output("logits", y);
        g
    }

    fn name_of(g: &Graph, id: NodeId) -> &str {
        g.node(id).label.tensor.as_str()
    }

    #[test]
    fn modules_nodes_tensors_and_containers_are_found() {
        let g = network();
        for name in ["features.1.conv", "/features.1/conv/Conv", "features.1_out"] {
            let layer = g.layer(name).unwrap();
            assert_eq!(g.node(layer.input_value(&g)).label.module, "features.0.drop", "{name}");
            assert_eq!(name_of(&g, layer.output_value()), "features.1_out");
        }
        let features = g.layer("features").unwrap();
        assert_eq!(name_of(&g, features.input_value(&g)), "image");
        assert_eq!(g.node(features.output_value()).label.module, "features.1.drop");
        assert_eq!(g.layer("features.act#1").unwrap().output_value(), g.layer("Clip_0").unwrap().last);
        assert_eq!(name_of(&g, g.layer("image").unwrap().input_value(&g)), "image");
        assert!(g.layer("head.weight").is_err());
        assert!(g.layer("").is_err());
    }

    #[test]
    fn a_block_is_its_modules_and_its_own_addition() {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[3]), Kind::Float);
        let inner = g.add_named(label("block.act", "", ""), Op::Unary(Unary::Relu), &[x]).unwrap();
        let sum =
            g.add_named(label("block", "/block/Add", "sum"), Op::Binary(Binary::Add), &[inner, x]).unwrap();
        let last = g.add_named(label("block.act2", "", ""), Op::Unary(Unary::Relu), &[sum]).unwrap();
        g.output("y", last);
        assert_eq!(g.layer("block").unwrap(), Layer { first: inner, last, merged: false });
        assert_eq!(g.layer("/block/Add").unwrap(), Layer::of(sum));
    }

    #[test]
    fn nodes_without_a_module_belong_to_the_container_their_name_says() {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[3]), Kind::Float);
        let first = g.add_named(label("block.0", "", ""), Op::Unary(Unary::Exp), &[x]).unwrap();
        let last = g.add_named(label("", "block.relu", ""), Op::Unary(Unary::Relu), &[first]).unwrap();
        g.output("y", last);
        assert_eq!(g.layer("block").unwrap(), Layer { first, last, merged: false });
    }

    #[test]
    fn a_layer_survives_what_passes_make_of_it() {
        let g = max_form(&drop_identities(&network()).unwrap()).unwrap();
        let dropped = g.layer("features.0.drop").unwrap();
        assert_eq!((name_of(&g, dropped.input_value(&g)), name_of(&g, dropped.last)), ("clip0", "clip0"));
        for name in ["features.act#1", "Clip_0", "clip0"] {
            let clip = g.layer(name).unwrap();
            assert_eq!(name_of(&g, clip.input_value(&g)), "features.0_out", "{name}");
            assert_eq!(name_of(&g, clip.output_value()), "clip0", "{name}");
        }
        assert_eq!(name_of(&g, g.layer("clip1").unwrap().input_value(&g)), "features.1_out");
    }

    #[test]
    fn the_end_of_a_layer_is_part_of_its_name() {
        let parse = |text: &str| {
            let parsed = LayerName::parse(text);
            (parsed.name, parsed.end)
        };
        assert_eq!(parse("layer4.1"), ("layer4.1".into(), End::Input));
        assert_eq!(parse("layer4.1:in"), ("layer4.1".into(), End::Input));
        assert_eq!(parse("conv:0:out"), ("conv:0".into(), End::Output));
        assert_eq!(parse("conv:0"), ("conv:0".into(), End::Input));
        let g = network();
        assert_eq!(name_of(&g, LayerName::parse("head:out").value(&g).unwrap()), "logits");
        assert_eq!(g.node(LayerName::parse("head").value(&g).unwrap()).op.name(), "Reshape");
    }

    #[test]
    fn a_wrong_name_is_answered_with_the_closest() {
        let error = network().layer("features.conv").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownName);
        let said = error.to_string();
        assert!(said.starts_with("no layer 'features.conv'; did you mean 'features"), "{said}");
        assert!(said.contains("'features.0.conv', 'features.1.conv'"), "{said}");
        assert!(said.ends_with("? the layers of the graph list all"), "{said}");
        assert!(said.matches('\'').count() <= 2 * (SUGGESTIONS + 1));
        let far = network().layer(&"z".repeat(100_000)).unwrap_err().to_string();
        assert!(far.len() < 1000 && !far.contains("did you mean"), "{far}");
    }

    #[test]
    fn layers_are_listed_with_their_size() {
        let layers = network().layers();
        let find = |name: &str| layers.iter().find(|layer| layer.name == name).unwrap();
        let conv = find("features.0.conv");
        assert_eq!((conv.op, conv.parameters, conv.multiply_adds), ("Conv", 72 + 4, 4 * 64 * 2 * 9));
        assert_eq!((find("head").parameters, find("head").multiply_adds), (2560, 2560));
        assert_eq!(find("features.act#1").multiply_adds, 0);
        assert!(layers.iter().all(|layer| layer.op != "Constant"));
        assert_eq!(layers[0].name, "image");
    }

    #[test]
    fn shared_weights_are_counted_once() {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[3]), Kind::Float);
        let w = g.constant(Tensor::vector(vec![1f32; 3]));
        let y = g.binary(Binary::Mul, x, w).unwrap();
        g.binary(Binary::Mul, y, w).unwrap();
        assert_eq!(g.layers().iter().map(|layer| layer.parameters).sum::<usize>(), 3);
    }
}
