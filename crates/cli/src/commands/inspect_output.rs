//! What `monosplit inspect --json` prints.

use monosplit::graph::onnx::{DeclaredLength, DeclaredValue};
use monosplit::graph::{LayerSummary, Shape, Tensor};
use monosplit::{CompiledFileFacts, CompiledMap, SuggestedTargets};
use serde::Serialize;

use super::inspect::{Findings, single, totals};
use crate::failure::text;

/// A network file for programs.
#[derive(Serialize)]
pub(super) struct InspectOutput<'a> {
    network: String,
    producer: Option<&'a str>,
    opset: Option<i64>,
    inputs: Vec<ValueOutput>,
    optional_inputs: Vec<DefaultOutput<'a>>,
    outputs: Vec<ValueOutput>,
    targets: Vec<TargetsOutput<'a>>,
    compiled: Option<CompiledOutput<'a>>,
    parameters: usize,
    multiply_adds: usize,
    canonical_form: Option<&'a str>,
    remarks: &'a [String],
    layers: Vec<LayerOutput>,
    problems: Vec<ProblemOutput<'a>>,
}

#[derive(Serialize)]
struct ValueOutput {
    name: String,
    /// None where the file has no shape for it.
    shape: Option<Vec<LengthOutput>>,
}

/// Targets that suit an output.
#[derive(Serialize)]
struct TargetsOutput<'a> {
    output: &'a str,
    targets: &'a [String],
}

impl<'a> TargetsOutput<'a> {
    fn of(suggested: &'a SuggestedTargets) -> Self {
        TargetsOutput { output: &suggested.output, targets: &suggested.targets }
    }
}

/// A length: a number, or a text like `N` where it depends on the number of samples.
#[derive(Serialize)]
#[serde(untagged)]
enum LengthOutput {
    Fixed(usize),
    Text(String),
}

#[derive(Serialize)]
struct DefaultOutput<'a> {
    name: &'a str,
    default: String,
}

/// The facts about a compiled file.
#[derive(Serialize)]
struct CompiledOutput<'a> {
    version: Option<String>,
    network: Option<String>,
    class: Option<String>,
    class_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    precision: &'static str,
    weights: Option<String>,
    maps: Vec<MapOutput<'a>>,
}

#[derive(Serialize)]
struct MapOutput<'a> {
    output: &'a str,
    method: &'a str,
    title: &'a str,
    layer: Option<&'a str>,
    options: &'a str,
    finish: &'a str,
}

#[derive(Serialize)]
struct LayerOutput {
    name: String,
    op: &'static str,
    shape: Vec<LengthOutput>,
    parameters: usize,
    multiply_adds: usize,
}

#[derive(Serialize)]
struct ProblemOutput<'a> {
    node: &'a str,
    op: &'a str,
    reason: String,
}

impl<'a> InspectOutput<'a> {
    pub(super) fn of(found: &'a Findings) -> Self {
        let layers = found.layers();
        let (parameters, multiply_adds) = totals(&layers);
        let [inputs, outputs] =
            found.values().map(|values| values.into_iter().map(ValueOutput::of).collect());
        let default = |(name, value): &'a (String, Tensor)| DefaultOutput { name, default: single(value) };
        let problems = found.problems.iter().map(|problem| ProblemOutput {
            node: &problem.node,
            op: &problem.op,
            reason: text(&problem.error),
        });
        InspectOutput {
            network: found.origin.to_string(),
            producer: found.producer.as_deref(),
            opset: found.opset,
            inputs,
            optional_inputs: found.defaults.iter().map(default).collect(),
            outputs,
            targets: found.targets.iter().map(TargetsOutput::of).collect(),
            compiled: CompiledOutput::of(found),
            parameters,
            multiply_adds,
            canonical_form: found.canonical.as_deref(),
            remarks: &found.remarks,
            layers: layers.into_iter().map(LayerOutput::of).collect(),
            problems: problems.collect(),
        }
    }
}

impl<'a> CompiledOutput<'a> {
    fn of(found: &'a Findings) -> Option<Self> {
        if found.maps.is_empty() {
            return None;
        }
        let map = |map: &'a CompiledMap| MapOutput {
            output: &map.output,
            method: &map.method,
            title: &map.title,
            layer: map.layer.as_deref(),
            options: &map.options,
            finish: &map.finish,
        };
        let CompiledFileFacts { version, network, class, class_name, target, weights, precision } =
            CompiledFileFacts::of(&found.graph);
        let (precision, maps) = (precision.name(), found.maps.iter().map(map).collect());
        Some(CompiledOutput { version, network, class, class_name, target, precision, weights, maps })
    }
}

impl ValueOutput {
    fn of(value: DeclaredValue) -> Self {
        let length = |length: DeclaredLength| match length {
            DeclaredLength::Fixed(length) => LengthOutput::Fixed(length),
            DeclaredLength::Open(name) => LengthOutput::Text(name),
        };
        let shape = value.lengths.map(|lengths| lengths.into_iter().map(length).collect());
        ValueOutput { name: value.name, shape }
    }
}

impl LayerOutput {
    fn of(layer: LayerSummary) -> Self {
        let LayerSummary { name, op, shape, parameters, multiply_adds, .. } = layer;
        LayerOutput { name, op, shape: lengths(&shape), parameters, multiply_adds }
    }
}

fn lengths(shape: &Shape) -> Vec<LengthOutput> {
    let length = |dim: &monosplit::graph::Dim| match dim.fixed() {
        Some(length) => LengthOutput::Fixed(length),
        None => LengthOutput::Text(dim.to_string()),
    };
    shape.dims().iter().map(length).collect()
}
