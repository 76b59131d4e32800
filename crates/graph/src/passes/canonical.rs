//! The canonical form that every method starts from: constants folded, identities removed, batch norms folded, logits at
//! the outputs.

use std::fmt;

use crate::error::Result;
use crate::graph::Graph;
use crate::legible::shown;
use crate::op::Op;
use crate::shape::{Dim, Shape};
use crate::tensor::Kind;

use super::affine_weights::Stored;
use super::batch_norm::fold_batch_norm;
use super::constants::{Evaluate, fold_constants};
use super::identities::drop_identities;
use super::softmax::{Stripped, strip_probabilities};

/// Which parts of the canonical form are wanted; all by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CanonicalOptions {
    /// Merge batch norms, and constants per channel, into affine nodes.
    pub fold_batch_norm: bool,
    /// The precision of the folded weights.
    pub stored: Stored,
    /// Remove a final softmax or sigmoid, so that the outputs are logits.
    pub logits: bool,
    /// Remove the sigmoid of outputs that hold maps too. It stays by default, since the numbers may be a mask or an image.
    pub map_logits: bool,
}

impl Default for CanonicalOptions {
    fn default() -> Self {
        CanonicalOptions { fold_batch_norm: true, stored: Stored::AsBefore, logits: true, map_logits: false }
    }
}

impl CanonicalOptions {
    /// The same with batch norms merged, or left.
    #[must_use]
    pub fn fold_batch_norm(self, fold_batch_norm: bool) -> Self {
        CanonicalOptions { fold_batch_norm, ..self }
    }

    /// The same with folded weights of this precision.
    #[must_use]
    pub fn stored(self, stored: Stored) -> Self {
        CanonicalOptions { stored, ..self }
    }

    /// The same with a final softmax or sigmoid removed, or left.
    #[must_use]
    pub fn logits(self, logits: bool) -> Self {
        CanonicalOptions { logits, ..self }
    }

    /// The same with a final sigmoid of maps removed, where logits are wanted, or left.
    #[must_use]
    pub fn map_logits(self, map_logits: bool) -> Self {
        CanonicalOptions { map_logits, ..self }
    }
}

/// What [`canonicalise`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Canonical {
    /// Number of constant nodes evaluated.
    pub constants_folded: usize,
    /// Number of nodes dropped because they did nothing.
    pub identities_dropped: usize,
    /// Number of batch norms merged into another node.
    pub batch_norms_folded: usize,
    /// Number of constant factors and summands merged into the affine node before them.
    pub channel_constants_folded: usize,
    /// Number of batch norms that stayed.
    pub batch_norms_left: usize,
    /// Number of outputs of one score a sample, `[N]`, that became `[N, 1]`.
    pub single_scores: usize,
    /// What was found at the outputs.
    pub outputs: Stripped,
}

/// Outputs of one real number a sample, `[N]`, as `[N, 1]`, and how many there are. Squeezing what already has that shape is
/// taken back.
fn single_scores(graph: &Graph) -> Result<(Graph, usize)> {
    let mut graph = graph.clone();
    let samples = graph.inputs().first().and_then(|&id| graph.node(id).shape.dims().first().copied());
    let Some(samples) = samples else { return Ok((graph, 0)) };
    let mut outputs = graph.outputs().to_vec();
    let mut found = 0;
    for output in &mut outputs {
        let node = graph.node(output.node);
        if node.shape.dims() != [samples] || node.kind != Kind::Float || node.is_constant() {
            continue;
        }
        let column = Shape::new([samples, Dim::Fixed(1)]);
        let squeezed = match node.op {
            Op::Reshape { .. } => Some(node.inputs[0]).filter(|&id| graph.node(id).shape == column),
            _ => None,
        };
        output.node = squeezed.map_or_else(|| graph.reshaped(output.node, column), Ok)?;
        found += 1;
    }
    graph.set_outputs(outputs);
    Ok((graph.pruned()?, found))
}

/// The canonical form of a graph, with a report. `evaluate` runs graphs without inputs.
pub fn canonicalise(
    graph: &Graph,
    options: CanonicalOptions,
    evaluate: &Evaluate,
) -> Result<(Graph, Canonical)> {
    let mut report = Canonical::default();
    let mut graph = graph.pruned()?;
    let computed = |graph: &Graph| {
        graph.nodes().filter(|(_, n)| n.is_constant() && !matches!(n.op, Op::Constant(_))).count()
    };
    let before = computed(&graph);
    graph = fold_constants(&graph, evaluate)?;
    report.constants_folded = before.saturating_sub(computed(&graph));
    let before = graph.len();
    graph = drop_identities(&graph)?;
    report.identities_dropped = before.saturating_sub(graph.len());
    let norms = |graph: &Graph| graph.nodes().filter(|(_, n)| matches!(n.op, Op::BatchNorm { .. })).count();
    let constants = |graph: &Graph| graph.nodes().filter(|(_, n)| matches!(n.op, Op::Binary(_))).count();
    let (before, constants_before) = (norms(&graph), constants(&graph));
    if options.fold_batch_norm {
        graph = fold_batch_norm(&graph, options.stored)?;
    }
    report.batch_norms_left = norms(&graph);
    report.batch_norms_folded = before.saturating_sub(report.batch_norms_left);
    report.channel_constants_folded = constants_before.saturating_sub(constants(&graph));
    (graph, report.single_scores) = single_scores(&graph)?;
    (graph, report.outputs) = strip_probabilities(&graph, !options.logits, options.map_logits)?;
    log::debug!("canonical form of {} nodes: {report}", graph.len());
    Ok((graph, report))
}

impl fmt::Display for Canonical {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [
            (self.constants_folded, "constant nodes evaluated"),
            (self.identities_dropped, "nodes without effect dropped"),
            (self.batch_norms_folded, "batch norms folded"),
            (self.channel_constants_folded, "constants per channel folded"),
            (self.batch_norms_left, "batch norms left"),
            (self.single_scores, "outputs [N] read as [N, 1]"),
        ];
        let mut parts: Vec<String> =
            counts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{what}: {n}")).collect();
        parts.extend(self.outputs.softmax.iter().map(|name| format!("softmax at '{}' removed", shown(name))));
        parts.extend(self.outputs.sigmoid.iter().map(|name| format!("sigmoid at '{}' removed", shown(name))));
        parts.extend(self.outputs.kept.iter().map(|name| format!("probabilities at '{}' kept", shown(name))));
        f.write_str(&if parts.is_empty() { "nothing to do".to_string() } else { parts.join(", ") })
    }
}

#[cfg(test)]
mod tests {
    use super::super::reference;
    use super::*;
    use crate::graph::{Label, NodeId};
    use crate::op::{Unary, Window};

    fn classifier() -> Graph {
        let mut g = Graph::new();
        let mut noise = reference::SampleNumbers::new(1);
        let x = g.input("x", Shape::batched(&[2, 4, 4]), Kind::Float);
        let w = g.constant(noise.tensor(&[3, 2, 3, 3]));
        let w = g.unary(Unary::Neg, w).unwrap();
        let y = g.add(Op::Conv { window: Window::new([3, 3]), groups: 1 }, &[x, w]).unwrap();
        let y = g.add_named(Label::named("between"), Op::Identity, &[y]).unwrap();
        let parameters: Vec<NodeId> = (0..3).map(|_| g.constant(noise.tensor(&[3]))).collect();
        let variance = g.constant(crate::Tensor::vector(vec![1.0, 2.0, 0.5]));
        let inputs = [&[y], &parameters[..], &[variance]].concat();
        let y = g.add(Op::BatchNorm { epsilon: 1e-5 }, &inputs).unwrap();
        let y = g.add(Op::Reshape { shape: Shape::batched(&[12]) }, &[y]).unwrap();
        let y = g.add(Op::Softmax { axis: 1 }, &[y]).unwrap();
        g.output("probabilities", y);
        g
    }

    #[test]
    fn the_chain_leaves_a_convolution_and_a_reshape() {
        let g = classifier();
        let evaluate = |g: &Graph| Ok(reference::evaluate(g, &[]));
        let (canonical, report) = canonicalise(&g, CanonicalOptions::default(), &evaluate).unwrap();
        let ops: Vec<&str> = canonical.nodes().map(|(_, n)| n.op.name()).collect();
        assert_eq!(
            ops.iter().filter(|op| **op != "Constant").collect::<Vec<_>>(),
            [&"Input", &"Conv", &"Reshape"]
        );
        assert_eq!(
            (report.constants_folded, report.identities_dropped, report.batch_norms_folded),
            (1, 1, 1)
        );
        let said = "constant nodes evaluated: 1, nodes without effect dropped: 1, batch norms folded: 1, \
                    softmax at 'probabilities' removed";
        assert_eq!(report.to_string(), said);
    }

    #[test]
    fn with_the_softmax_kept_the_numbers_are_the_same() {
        let g = classifier();
        let evaluate = |g: &Graph| Ok(reference::evaluate(g, &[]));
        let options = CanonicalOptions { logits: false, ..CanonicalOptions::default() };
        reference::agree(&g, &canonicalise(&g, options, &evaluate).unwrap().0, 1e-12);
    }
}
