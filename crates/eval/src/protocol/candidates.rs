//! The candidates of an experiment: every combination of formula, layer and sign.

use std::path::Path;

use monosplit_explain::{Finish, Settings};
use monosplit_graph::op::{AffineLayer, Binary};
use monosplit_graph::options::closest;
use monosplit_graph::{Error, Graph, NodeId, Op, Result};

use super::{Catalogue, ResolvedMethod};
use crate::candidate::{Candidate, Source};
use crate::experiment::{Fixed, LayerSide, MapLayers, MapsFrom, MethodPart, about};
use crate::given_maps::{GivenMaps, MapSource};
use crate::store::Configuration;

/// The name that given maps have in a store in place of a method's.
pub(super) const GIVEN: &str = "maps";

/// A method of an experiment with its candidates.
pub(super) struct MethodCandidates {
    /// Its title.
    pub(super) title: String,
    /// The candidates.
    pub(super) candidates: Vec<Candidate>,
    /// The maps that were made elsewhere. Their candidates get them when the images are known.
    pub(super) given: Option<MapSource>,
}

/// The candidates of a method.
pub(super) fn choices(
    part: &MethodPart,
    catalogue: &dyn Catalogue,
    graph: &Graph,
) -> Result<MethodCandidates> {
    let method = match &part.source {
        MapsFrom::Method(method) => method,
        MapsFrom::Files(path) => return given(part, path),
    };
    let mut candidates = Vec::new();
    let mut title = part.title.clone();
    for formula in &part.formulas {
        let resolved = catalogue.method(&with_options(method, formula));
        let resolved = resolved.map_err(|error| match (catalogue.method(method), formula.trim()) {
            (Ok(_), formula) if !formula.is_empty() => about("formulas", formula, &error),
            _ => about("method", method, &error),
        })?;
        let title = title.get_or_insert_with(|| resolved.title.clone());
        for layer in layers(&part.layers, &resolved, catalogue, graph)? {
            for &absolute in &part.absolute {
                let named = (title.clone(), part.family.clone());
                candidates.push(candidate(&resolved, layer.clone(), absolute, named, formula.clone()));
            }
        }
    }
    Ok(MethodCandidates { title: title.unwrap_or_default(), candidates, given: None })
}

/// The candidates of maps that were made elsewhere: with signs, without, or both.
fn given(part: &MethodPart, path: &Path) -> Result<MethodCandidates> {
    let source = MapSource::open(path).map_err(|error| error.context("maps"))?;
    let title = part.title.clone().unwrap_or_else(|| source.title.clone());
    let candidate = |&absolute: &bool| Candidate {
        configuration: Configuration {
            method: GIVEN.into(),
            options: source.identity.clone(),
            layer: String::new(),
            absolute,
        },
        family: part.family.clone().unwrap_or_else(|| "Given maps".into()),
        title: title.clone(),
        place: String::new(),
        note: String::new(),
        source: Source::Given(GivenMaps::default()),
        finish: Finish::default(),
        settings: Settings::default(),
    };
    let candidates = part.absolute.iter().map(candidate).collect();
    Ok(MethodCandidates { title, candidates, given: Some(source) })
}

/// The candidates of a fixed configuration with further options: one for each of its layers.
pub(super) fn fixed(
    part: &Fixed,
    further: &str,
    place: Option<&str>,
    catalogue: &dyn Catalogue,
    graph: &Graph,
) -> Result<Vec<Candidate>> {
    let text = with_options(&part.method, further);
    let resolved = catalogue.method(&text).map_err(|error| about("method", &text, &error))?;
    let layers = layers(&part.layers, &resolved, catalogue, graph)?;
    let one = |layer: Option<String>| {
        let title = part.title.clone().unwrap_or_else(|| resolved.title.clone());
        let place = place.map_or_else(|| layer.clone().unwrap_or_else(|| "image".into()), str::to_owned);
        candidate(&resolved, layer, part.absolute, (title, part.family.clone()), place)
    };
    Ok(layers.into_iter().map(one).collect())
}

fn candidate(
    resolved: &ResolvedMethod,
    layer: Option<String>,
    absolute: bool,
    (title, family): (String, Option<String>),
    place: String,
) -> Candidate {
    let configuration = Configuration {
        method: resolved.name.clone(),
        options: resolved.options.clone(),
        layer: layer.clone().unwrap_or_default(),
        absolute,
    };
    let source = match &resolved.method {
        Some(method) => Source::Method(method.clone(), layer),
        None => Source::Mask,
    };
    Candidate {
        configuration,
        family: family.unwrap_or_else(|| resolved.family.clone()),
        title,
        place,
        note: String::new(),
        source,
        finish: resolved.finish,
        settings: resolved.settings.clone(),
    }
}

/// `method` with further options after its own.
fn with_options(method: &str, further: &str) -> String {
    match (further.trim(), method.contains(':')) {
        ("", _) => method.to_owned(),
        (further, true) => format!("{method},{further}"),
        (further, false) => format!("{method}:{further}"),
    }
}

fn layers(
    wanted: &MapLayers,
    resolved: &ResolvedMethod,
    catalogue: &dyn Catalogue,
    graph: &Graph,
) -> Result<Vec<Option<String>>> {
    match wanted {
        MapLayers::Usual => Ok(vec![catalogue.usual_layer(resolved)]),
        MapLayers::Image => Ok(vec![None]),
        MapLayers::Named(names) => {
            let one = |name: &String| match name.as_str() {
                "image" => Ok(None),
                "convolutions" | "usual" => {
                    Err(Error::argument(format!("layers: expected \"{name}\" alone, found it in a list")))
                }
                name => {
                    let value = monosplit_graph::address::LayerName::parse(name).value(graph);
                    value.map_err(|error| match &*closest(name, &["convolutions", "usual", "image"]) {
                        "" => about("layers", name, &error),
                        close => about("layers", name, &error.prefixed(close)),
                    })?;
                    Ok(Some(name.to_owned()))
                }
            };
            names.iter().map(one).collect()
        }
        MapLayers::Convolutions(most, side) => {
            let all = convolutions(graph, *side);
            if all.is_empty() {
                return Err(Error::argument("layers: the network has no convolutions; name its layers"));
            }
            let count = most.unwrap_or(all.len()).min(all.len());
            // Evenly spaced from the first to the last, both included.
            let pick = |i: usize| match count {
                1 => all.len() - 1,
                count => (i * (all.len() - 1) + (count - 1) / 2) / (count - 1),
            };
            Ok((0..count).map(|i| Some(all[pick(i)].clone())).collect())
        }
    }
}

/// The layers of the convolutions, from first to last: what enters them, what leaves them, or what leaves the activation behind
/// them. Convolutions whose sum enters one activation have one layer there.
fn convolutions(graph: &Graph, side: LayerSide) -> Vec<String> {
    let layers = graph.layers();
    let convolutions = layers.iter().filter(|layer| matches!(graph.node(layer.node).op, Op::Conv { .. }));
    let mut names: Vec<String> = Vec::new();
    for layer in convolutions {
        let name = match side {
            LayerSide::Input => layer.name.clone(),
            LayerSide::Output => format!("{}:out", layer.name),
            LayerSide::Activation => {
                let activation = activation_after(graph, layer.node);
                let activation = activation.and_then(|id| layers.iter().find(|layer| layer.node == id));
                format!("{}:out", activation.unwrap_or(layer).name)
            }
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The activation that a convolution alone enters, through batch norms and sums with other values.
fn activation_after(graph: &Graph, convolution: NodeId) -> Option<NodeId> {
    let mut value = convolution;
    loop {
        let mut readers = graph.nodes().filter(|(_, node)| node.inputs.contains(&value));
        let (Some((reader, node)), None) = (readers.next(), readers.next()) else { return None };
        match &node.op {
            Op::Unary(_) => return Some(reader),
            Op::Binary(Binary::Add) => value = reader,
            op if op.affine_layer() == Some(AffineLayer::Normalisation) => value = reader,
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use monosplit_graph::op::{Unary, Window};
    use monosplit_graph::{Kind, Label, Shape, Tensor};

    use super::*;

    /// A residual block of two convolutions with a third one beside it.
    fn block() -> Graph {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[1, 4, 4]), Kind::Float);
        let convolution = |g: &mut Graph, name: &str, x| {
            let w = g.constant(Tensor::new([1, 1, 1, 1], vec![1f32]).unwrap());
            let op = Op::Conv { window: Window::new([1, 1]), groups: 1 };
            g.add_named(Label::named(name), op, &[x, w]).unwrap()
        };
        let a = convolution(&mut g, "conv1", x);
        let a = g.add_named(Label::named("relu1"), Op::Unary(Unary::Relu), &[a]).unwrap();
        let b = convolution(&mut g, "conv2", a);
        let c = convolution(&mut g, "downsample", x);
        let sum = g.plus(b, c).unwrap();
        let sum = g.add_named(Label::named("relu2"), Op::Unary(Unary::Relu), &[sum]).unwrap();
        let last = convolution(&mut g, "last", sum);
        g.output("y", last);
        g
    }

    #[test]
    fn convolutions_have_three_sides() {
        let names = |side| convolutions(&block(), side);
        assert_eq!(names(LayerSide::Input), ["conv1", "conv2", "downsample", "last"]);
        assert_eq!(names(LayerSide::Output), ["conv1:out", "conv2:out", "downsample:out", "last:out"]);
        assert_eq!(names(LayerSide::Activation), ["relu1:out", "relu2:out", "last:out"]);
    }
}
