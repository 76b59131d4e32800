//! What a program holds when it runs: the buffers of its memory plan, the largest scratch memory of its kernels, and the values
//! known at compile time. It is known from shapes, before anything is computed.

// A new op must be decided here, so no match has a default.
#![deny(clippy::wildcard_enum_match_arm)]

use monosplit_graph::op::Window;
use monosplit_graph::{Error, Graph, Node, NodeId, Op, element_count};

use crate::graph_info::{GraphInfo, element_bytes};
use crate::memory_budget::{Size, over_budget};
use crate::plan::Plan;

/// How many of the largest values an error names.
const NAMED: usize = 3;
/// Columns of a product that a transposed convolution spreads at a time, for every tap.
const SPREAD_COLUMNS: usize = 256;

/// The scratch memory of a node's kernel, in terms of what the node reads and writes. Estimates are upper bounds for large
/// values; blocks of a size that does not depend on them are left out.
#[derive(Clone, Debug)]
pub(crate) enum ScratchRule {
    /// None that grows with the values.
    None,
    /// As much as the first input.
    Input,
    /// As much as all inputs and the output.
    Operands,
    /// A padded copy of the input of a window, the input and the output.
    Padded(Window),
    /// The same, and products that are spread over the output, for every tap.
    Spread(Window),
    /// The lengths of axes change one after the other; intermediate values have some of both.
    Intermediate,
}

impl ScratchRule {
    pub(crate) fn of(node: &Node) -> Self {
        match &node.op {
            Op::Conv { window, .. } => ScratchRule::Padded(window.clone()),
            Op::ConvTranspose { window, .. } => ScratchRule::Spread(window.clone()),
            Op::MatMul { .. } => ScratchRule::Operands,
            // Axes that are not neighbours are brought together first.
            Op::Reduce { axes, .. } if axes.windows(2).any(|pair| pair[1] != pair[0] + 1) => {
                ScratchRule::Input
            }
            Op::Resize { .. } => ScratchRule::Intermediate,
            Op::Input | Op::Constant(_) | Op::Identity | Op::Dropout { .. } => ScratchRule::None,
            Op::Unary(_) | Op::Binary(_) | Op::Where | Op::Cast { .. } => ScratchRule::None,
            Op::BatchNorm { .. }
            | Op::LayerNorm { .. }
            | Op::GroupNorm { .. }
            | Op::LocalResponseNorm { .. }
            | Op::Softmax { .. }
            | Op::LogSoftmax { .. } => ScratchRule::None,
            Op::MaxPool(_)
            | Op::AveragePool { .. }
            | Op::AveragePoolTranspose { .. }
            | Op::WinnerGather(_)
            | Op::WinnerScatter(_) => ScratchRule::None,
            Op::Reduce { .. } | Op::ArgMax { .. } => ScratchRule::None,
            Op::Concat { .. }
            | Op::Slice { .. }
            | Op::Pad { .. }
            | Op::Reshape { .. }
            | Op::Transpose { .. }
            | Op::Expand { .. }
            | Op::Gather { .. } => ScratchRule::None,
        }
    }

    /// The number of real numbers for inputs and an output of these shapes.
    fn elements(&self, inputs: &[&[usize]], output: &[usize]) -> usize {
        let count = |shape: &[usize]| element_count(shape).unwrap_or(usize::MAX);
        let all = || inputs.iter().map(|shape| count(shape)).fold(count(output), usize::saturating_add);
        let first = inputs.first().copied().unwrap_or_default();
        match self {
            ScratchRule::None => 0,
            ScratchRule::Input => count(first),
            ScratchRule::Operands => all(),
            ScratchRule::Padded(window) => count(&padded(window, first)).saturating_add(all()),
            ScratchRule::Spread(window) => {
                let taps = count(&window.kernel).saturating_mul(SPREAD_COLUMNS);
                count(&padded(window, first)).saturating_add(taps).saturating_add(all())
            }
            ScratchRule::Intermediate => {
                let larger: Vec<usize> = first.iter().zip(output).map(|(&a, &b)| a.max(b)).collect();
                count(&larger).saturating_mul(2)
            }
        }
    }
}

/// The shape of a value with the padding of a window, and what the window reads beyond it.
fn padded(window: &Window, shape: &[usize]) -> Vec<usize> {
    let mut padded = shape.to_vec();
    for (axis, length) in padded.iter_mut().skip(2).enumerate().take(window.axes()) {
        let (before, after) = window.pad[axis];
        let beyond = window.span(axis).unwrap_or(usize::MAX).saturating_add(window.stride[axis]);
        *length = length.saturating_add(before).saturating_add(after).saturating_add(beyond);
    }
    padded
}

/// The bytes a run holds, and its largest parts.
pub(crate) struct Footprint {
    pub(crate) bytes: usize,
    /// Bytes and node of the largest values, largest first.
    largest: Vec<(usize, NodeId)>,
}

impl Footprint {
    /// What a program of this plan holds at these shapes, `held` included and scratch memory left out.
    pub(crate) fn buffers(
        info: &GraphInfo,
        plan: &Plan,
        shapes: &[Vec<usize>],
        real_bytes: usize,
        held: &HeldConstants,
    ) -> Self {
        let mut footprint = Footprint { bytes: held.bytes, largest: held.largest.clone() };
        for buffer in &plan.buffers {
            let values = buffer.values.iter().map(|&(id, parts)| {
                let count = element_count(&shapes[id.index()]).unwrap_or(usize::MAX);
                let each = count.saturating_mul(element_bytes(info.values[id.index()].kind, real_bytes));
                (each.saturating_mul(parts), id)
            });
            footprint.add(values.max());
        }
        footprint
    }

    /// The same with the scratch memory of the kernel that needs most.
    pub(crate) fn with_scratch(
        mut self,
        info: &GraphInfo,
        plan: &Plan,
        shapes: &[Vec<usize>],
        real_bytes: usize,
    ) -> Self {
        let scratch = |id: NodeId| {
            let value = &info.values[id.index()];
            let inputs: Vec<&[usize]> = value.inputs.iter().map(|input| &shapes[input.index()][..]).collect();
            let elements = value.scratch.elements(&inputs, &shapes[id.index()]);
            (elements.saturating_mul(real_bytes), id)
        };
        let largest = plan.steps.iter().flat_map(|step| step.partition.kernels()).map(scratch).max();
        self.add(largest);
        self
    }

    fn add(&mut self, part: Option<(usize, NodeId)>) {
        let Some((bytes, id)) = part else { return };
        self.bytes = self.bytes.saturating_add(bytes);
        match self.largest.iter_mut().find(|(_, other)| *other == id) {
            Some((other, _)) => *other = other.saturating_add(bytes),
            None => self.largest.push((bytes, id)),
        }
        self.largest.sort_by(|a, b| b.cmp(a));
        self.largest.truncate(NAMED);
    }

    /// The error of a run that would hold more than is left of `limit` beside the `others` bytes that are held already.
    pub(crate) fn refused(&self, info: &GraphInfo, limit: usize, others: usize) -> Error {
        let named = self.largest.iter().map(|&(bytes, id)| {
            let value = &info.values[id.index()];
            format!("'{}' {} of shape {}", value.name, Size(Some(bytes)), value.shape)
        });
        let named: Vec<String> = named.collect();
        let beside = match others {
            0 => String::new(),
            _ => format!(" beside {} that other programs hold", Size(Some(others))),
        };
        let bytes = Size(Some(self.bytes));
        over_budget(
            &format!("the run would hold {bytes}{beside} (most of it for {})", named.join(", ")),
            limit,
        )
    }
}

/// Values that are known at compile time and weights packed for kernels.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeldConstants {
    pub(crate) bytes: usize,
    largest: Vec<(usize, NodeId)>,
}

impl HeldConstants {
    /// Adds a value that is computed or packed when the program is compiled.
    pub(crate) fn add(&mut self, graph: &Graph, id: NodeId, element_bytes: usize, copies: usize) {
        let shape = graph.node(id).shape.at(1).and_then(|shape| element_count(&shape));
        let bytes = shape.unwrap_or(usize::MAX).saturating_mul(element_bytes).saturating_mul(copies);
        self.bytes = self.bytes.saturating_add(bytes);
        self.largest.push((bytes, id));
        self.largest.sort_by(|a, b| b.cmp(a));
        self.largest.truncate(NAMED);
    }
}
