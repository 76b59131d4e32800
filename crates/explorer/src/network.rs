//! An opened network and what the page shows of it.

use std::sync::Arc;

use monosplit::catalogue::{self, MethodFamily};
use monosplit::engine::{Engine, receptive_field};
use monosplit::explain::{Class, chosen_layer};
use monosplit::graph::{Kind, LayerName, NodeId};
use monosplit::image::{Fit, Picture, Preprocess, Preset};
use monosplit::{Error, Labels, Model, Result, Sample, ScoreKind, TargetContext};
use serde_json::{Value, json};

use crate::maps::takes_shift;

/// The most layers of the strip.
const MOST_LAYERS: usize = 24;

/// An opened network.
pub(crate) struct Network {
    pub(crate) name: String,
    pub(crate) model: Model,
    pub(crate) labels: Labels,
    pub(crate) classes: usize,
    pub(crate) preset: Preset,
    /// Channels, height, width of its pictures.
    pub(crate) size: [usize; 3],
    /// The layers of the strip, from the image to the scores.
    pub(crate) layers: Vec<StripLayer>,
}

/// A layer of the strip.
pub(crate) struct StripLayer {
    pub(crate) name: String,
    op: &'static str,
    /// Lengths of the value that enters it, without samples.
    shape: Vec<usize>,
    parameters: usize,
}

/// A network with the score that is explained.
pub(crate) struct Targeted {
    pub(crate) model: Model,
    /// Which of its scores is explained; none is the highest.
    pub(crate) class: Class,
    pub(crate) labels: Labels,
    /// A name for it among those of the same network.
    pub(crate) key: String,
}

impl Targeted {
    pub(crate) fn score_kind(&self) -> ScoreKind {
        self.model.score_kind()
    }
}

impl Network {
    pub(crate) fn new(name: String, model: Model) -> Result<Self> {
        let classes = model.expect_classes()?;
        let size = model.picture_input()?.size;
        let labels = model.labels()?;
        let preset = model.pixel_values()?.preset;
        let layers = strip(&model);
        Ok(Network { name, model, labels, classes, preset, size, layers })
    }

    /// What the page shows of it.
    pub(crate) fn described(&self) -> Value {
        let layers: Vec<Value> = self.layers.iter().map(StripLayer::described).collect();
        let graph = self.model.graph();
        let parameters: usize = graph.layers().iter().map(|layer| layer.parameters).sum();
        let remarks: Vec<String> = self.model.remarks().iter().map(ToString::to_string).collect();
        json!({
            "name": self.name,
            "classes": self.classes,
            "size": self.size,
            "parameters": parameters,
            "nodes": graph.len(),
            "preset": self.preset.name(),
            "presets": Preset::ALL.map(Preset::name),
            "presetReason": self.model.pixel_values().ok().and_then(|values| values.reason),
            "remarks": remarks,
            "layers": layers,
        })
    }

    /// How pictures are made ready: by the named preset, or as the network asks.
    pub(crate) fn preprocess(&self, preset: Option<&str>) -> Result<Preprocess> {
        let preset = preset.map_or(Ok(self.preset), str::parse::<Preset>)?;
        preset.options().fit(self.size, Fit::default())
    }

    /// A picture as the network reads it.
    pub(crate) fn sample(&self, picture: &Picture, preprocess: &Preprocess) -> Result<Sample> {
        self.model.sample(picture, preprocess)
    }

    /// The network for a class, perhaps against another.
    pub(crate) fn targeted(
        &self,
        class: Option<usize>,
        rival: Option<usize>,
        engine: &dyn Engine,
    ) -> Result<Targeted> {
        for class in [class, rival].into_iter().flatten() {
            self.labels.find(&class.to_string(), self.classes)?;
        }
        let Some(rival) = rival else {
            let class = class.map_or(Class::Top, Class::Index);
            let (model, labels) = (self.model.clone(), self.labels.clone());
            return Ok(Targeted { model, class, labels, key: String::new() });
        };
        let class =
            class.ok_or_else(|| Error::argument("a class is explained against another: choose both"))?;
        let text = format!("contrast:{class},{rival}");
        let choice = text.parse()?;
        let model = self.model.reopened_for(&choice)?.with_target(&choice, &TargetContext::new(engine))?;
        let (class, labels) = (model.explained_class(), model.labels()?);
        Ok(Targeted { model, class, labels, key: text })
    }

    /// The receptive field of the positions of a layer's map along height and width, `[stride, before, after]` each: position
    /// `o` depends on the pixels from `o·stride − before` to `o·stride + after`. None where it is the whole picture.
    pub(crate) fn receptive_field(&self, layer: Option<&str>) -> Option<[[i64; 3]; 2]> {
        let graph = self.model.graph();
        let image = graph.inputs().first().copied()?;
        let value = match layer {
            None => image,
            Some(layer) => LayerName::parse(layer).value(graph).ok()?,
        };
        let extents = receptive_field(graph, image, value)?;
        Some(extents.map(|extent| [extent.stride, extent.before, extent.after]))
    }
}

impl StripLayer {
    fn described(&self) -> Value {
        json!({ "name": self.name, "op": self.op, "shape": self.shape, "parameters": self.parameters })
    }
}

/// The layers of the strip: what the scores depend on and reads a value with positions, if there are too many only some.
fn strip(model: &Model) -> Vec<StripLayer> {
    let graph = model.graph();
    let reaches = graph.ancestors(graph.outputs().first().map(|scores| scores.node));
    let own = chosen_layer(graph, monosplit::explain::DefaultLayer::LastMixingInput).map(|layer| layer.name);
    let mut found: Vec<StripLayer> = Vec::new();
    for layer in graph.layers().iter().filter(|layer| reaches[layer.node.index()] && layer.parameters > 0) {
        let Some(name) = graph.input_name(layer.node) else { continue };
        let Some(shape) = spatial_input(model, layer.node) else { continue };
        found.push(StripLayer { name, op: layer.op, shape, parameters: layer.parameters });
    }
    let count = found.len();
    let mut index = 0;
    found.retain(|layer| {
        // Evenly spaced, with the first, the last and the one that methods of the split are read at.
        let is_step = count <= MOST_LAYERS || index * (MOST_LAYERS - 1) % (count - 1) < MOST_LAYERS - 1;
        index += 1;
        is_step || index == count || Some(&layer.name) == own.as_ref()
    });
    found
}

/// The lengths of the first value a node reads, without samples, where it has positions.
fn spatial_input(model: &Model, node: NodeId) -> Option<Vec<usize>> {
    let graph = model.graph();
    let read = graph.node(node).inputs.iter().map(|&id| graph.node(id)).find(|node| !node.is_constant())?;
    let lengths: Option<Vec<usize>> = read.shape.dims().get(1..)?.iter().map(|dim| dim.fixed()).collect();
    lengths.filter(|lengths| {
        read.kind == Kind::Float && lengths.len() == 3 && lengths[1..].iter().any(|&length| length > 1)
    })
}

/// The methods that the page offers, family by family.
pub(crate) fn methods() -> Vec<Value> {
    let offered = catalogue::entries().filter(|entry| entry.family != MethodFamily::Control);
    offered
        .map(|entry| {
            json!({
                "name": entry.name,
                "family": entry.family.title(),
                "summary": entry.summary,
                "citation": entry.citation,
                "alpha": takes_shift(entry),
            })
        })
        .collect()
}

/// An opened network is shared by what is computed of it.
pub(crate) type SharedNetwork = Arc<Network>;
