//! The candidates of an experiment: every combination of formula, layer and sign.

use std::path::Path;

use monosplit_explain::Settings;
use monosplit_graph::options::closest;
use monosplit_graph::{Error, Graph, Op, Result};

use super::{Catalogue, ResolvedMethod};
use crate::candidate::{Candidate, Source};
use crate::experiment::{Fixed, Layers, MapsFrom, MethodPart, about};
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
    wanted: &Layers,
    resolved: &ResolvedMethod,
    catalogue: &dyn Catalogue,
    graph: &Graph,
) -> Result<Vec<Option<String>>> {
    match wanted {
        Layers::Usual => Ok(vec![catalogue.usual_layer(resolved)]),
        Layers::Image => Ok(vec![None]),
        Layers::Named(names) => {
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
        Layers::Convolutions(most) => {
            let all = convolutions(graph);
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

/// The names of the convolutions, from first to last.
fn convolutions(graph: &Graph) -> Vec<String> {
    let convolution =
        |layer: &monosplit_graph::address::LayerSummary| matches!(graph.node(layer.node).op, Op::Conv { .. });
    graph.layers().into_iter().filter(convolution).map(|layer| layer.name).collect()
}
