//! Which values of a picture a network reads, as far as its graph tells: one that reads bytes, or that scales its input
//! itself, is given pictures without normalisation.

use monosplit_graph::op::{Binary, Unary};
use monosplit_graph::{Graph, Node, NodeId, Op, Result};
use monosplit_image::Preset;

use crate::model::Model;

/// A network that multiplies its input by less than this reads values up to 255; the usual factors are 1/255, 1/127.5 and
/// 1/58.
const BYTES_FACTOR: f64 = 0.1;
/// A network that subtracts more than this reads values up to 255; the usual means are above 100.
const BYTES_SHIFT: f64 = 20.0;
/// A network that shifts its input and multiplies it by more than this reads values from 0 to 1; the usual factors are
/// 1/0.229 and 2.
const UNIT_FACTOR: f64 = 1.5;

/// What is done to pictures where nobody says it, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PixelValues {
    /// The preprocessing.
    pub preset: Preset,
    /// What in the network speaks for it; none where it is a guess or where the file names it.
    pub reason: Option<String>,
}

impl Model {
    /// The preprocessing of pictures unless told otherwise: what was named when the network was opened, or what its file names; bytes or values from 0 to 1
    /// without normalisation where the network reads integers or scales its input itself; otherwise that of torchvision's
    /// networks trained on ImageNet.
    pub fn pixel_values(&self) -> Result<PixelValues> {
        if let Some(preset) = self.preset()? {
            return Ok(PixelValues { preset, reason: None });
        }
        if let Some(input) = self.integer_input() {
            let reason = format!("its input '{}' holds {} numbers", input.name, input.type_name);
            return Ok(PixelValues { preset: Preset::None, reason: Some(reason) });
        }
        let read = self.input().ok().map(|input| &input.label.tensor);
        let is_read = |id: &&NodeId| read.is_none_or(|read| self.graph().node(**id).label.tensor == *read);
        let scaling = self.graph().inputs().iter().find(is_read);
        let scaling = scaling.map(|&input| Scaling::of(self.graph(), input));
        Ok(match scaling.unwrap_or_default() {
            Scaling { factor, shift, .. } if factor < BYTES_FACTOR || shift > BYTES_SHIFT => {
                PixelValues { preset: Preset::None, reason: Some("it scales its input itself".into()) }
            }
            Scaling { factor, shift, .. } if factor > UNIT_FACTOR && shift > 0.0 => {
                PixelValues { preset: Preset::Unit, reason: Some("it normalises its input itself".into()) }
            }
            _ => PixelValues { preset: Preset::default(), reason: None },
        })
    }
}

/// What a network does to its input before anything else: `factor·(x ± shift)`, the largest of all channels.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Scaling {
    factor: f64,
    shift: f64,
}

impl Default for Scaling {
    fn default() -> Self {
        Scaling { factor: 1.0, shift: 0.0 }
    }
}

impl Scaling {
    fn of(graph: &Graph, input: NodeId) -> Self {
        let readers = graph.readers();
        let mut scaling = Scaling::default();
        let mut value = input;
        while let [next] = readers[value.index()][..] {
            let node = graph.node(next);
            let passes = match &node.op {
                Op::Cast { .. } | Op::Identity | Op::Reshape { .. } | Op::Transpose { .. } => true,
                Op::Unary(Unary::Clip { .. } | Unary::Quantise { .. } | Unary::Half | Unary::Bfloat16) => {
                    true
                }
                Op::Binary(function) => scaling.with(graph, node, value, *function),
                _ => false,
            };
            if !passes {
                break;
            }
            value = next;
        }
        scaling
    }

    /// Takes in a sum or a product with constants; whether the node is one.
    fn with(&mut self, graph: &Graph, node: &Node, value: NodeId, function: Binary) -> bool {
        let [a, b] = node.inputs[..] else { return false };
        let other = if a == value { b } else { a };
        let Some(constant) = graph.constant_value(other) else { return false };
        let largest = constant.to_f64().iter().fold(0f64, |most, number| most.max(number.abs()));
        if largest == 0.0 || !largest.is_finite() {
            return false;
        }
        match function {
            Binary::Mul => self.factor *= largest,
            Binary::Div if a == value => self.factor /= largest,
            // A shift counts in units of the input.
            Binary::Add | Binary::Sub => self.shift = self.shift.max(largest / self.factor),
            _ => return false,
        }
        true
    }
}
