//! The paper's closed formula (Theorem "Closed formulas for shifted saliency maps"), written out term by term:
//!
//! ```text
//! E = Σ_j ᾱ_j ∂Q[j]/∂x
//! ```
//!
//! `Q[j]` is the network in which layer `j` keeps only the part that its ReLU discards, and everything after it is linear with
//! weights `|W|`. Each term is the contribution of one layer's hidden gradient to a map. Their sum is computed here without the
//! recursion for `E`, which makes it a check of that recursion.

use std::rc::Rc;

use monosplit_autodiff::linear::{Coefficients, transpose};
use monosplit_autodiff::window_max::WindowMax;
use monosplit_autodiff::{Edge, GradientRules, Rules, Walk, rectifier};
use monosplit_engine::{Engine, Program};
use monosplit_graph::address::LayerName;
use monosplit_graph::op::Reduction;
use monosplit_graph::{Error, Graph, Kind, NodeId, Result, Tensor};

use crate::bindings::bind;
use crate::explain_batch::{Class, ExplainBatch, Settings};
use crate::explanation_builder::ExplanationBuilder;
use crate::explanation_graph::ClassInput;
use crate::finish::Finish;
use crate::network::Network;
use crate::scaled::Scaled;
use crate::shift::Shifts;
use crate::split::{AlphaInput, Invariant, Pooling, ReluMode, Split};

/// One term of a map.
#[derive(Clone, Debug, PartialEq)]
pub struct Term {
    /// The layer whose hidden gradient this is; the first term is the ordinary gradient and names the class scores.
    pub layer: String,
    /// Its share of the map, `[N, H, W]`. The shares of all terms add up to the map.
    pub share: Tensor,
}

/// The map of stream `g` that is decomposed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DecomposedMap {
    /// SplitGrad.
    SplitGrad,
    /// SplitCAM.
    #[default]
    SplitCam,
}

/// The decomposition of a map into the terms of the closed formula, compiled.
pub struct ClosedFormula {
    graph: Graph,
    program: Box<dyn Program>,
    layers: Vec<String>,
    classes: usize,
}

impl ClosedFormula {
    /// Decomposes the map of stream `g` at `layer`.
    pub fn new(
        source: &Graph,
        split: &Split,
        layer: &str,
        whole: DecomposedMap,
        engine: &dyn Engine,
    ) -> Result<Self> {
        if split.pooling != Pooling::Convex || split.relu != ReluMode::Max {
            return Err(Error::argument("the closed formula holds for convex pooling and max-mode ReLUs"));
        }
        if split.invariant != Invariant::Halved {
            return Err(Error::argument("the closed formula holds for the invariant with the factor ½"));
        }
        let network = Rc::new(Network::new(source)?);
        let (graph, layers) = write(&network, &split.alpha(AlphaInput::Uniform), layer, whole)?;
        let program = engine.compile(&graph)?;
        Ok(ClosedFormula { graph, program, layers, classes: network.classes() })
    }

    /// The terms for images `[N, C, H, W]`, one class per image and one α for all layers.
    pub fn terms(&self, images: &Tensor, classes: &[usize], alpha: f64) -> Result<Vec<Term>> {
        let samples = images.shape().first().copied().unwrap_or(1);
        if classes.len() != samples || classes.iter().any(|&c| c >= self.classes) {
            let count = self.classes;
            return Err(Error::argument(format!(
                "expected one class below {count} for each of {samples} images, found {classes:?}"
            )));
        }
        if !(0.0..=1.0).contains(&alpha) {
            return Err(Error::argument("α must lie between 0 and 1"));
        }
        let classes: Vec<i64> = classes.iter().map(|&c| c as i64).collect();
        let settings = Settings::default().alpha(alpha);
        let batch = ExplainBatch::new(images, &Class::Top, &settings);
        let shares = self.program.run(&bind(&self.graph, &batch, &classes)?)?;
        Ok(self.layers.iter().cloned().zip(shares).map(|(layer, share)| Term { layer, share }).collect())
    }
}

fn write(
    network: &Rc<Network>,
    split: &Split,
    layer: &str,
    whole: DecomposedMap,
) -> Result<(Graph, Vec<String>)> {
    let mut builder = ExplanationBuilder::new(network, ClassInput::Given)?;
    let shifts = Rc::new(Shifts::new(&mut builder, split)?);
    let at = LayerName::parse(layer).value(network.graph())?;
    let (image, axes, scale) =
        (network.graph().node(network.input()).shape.clone(), network.axes(at)?, builder.scale);
    let mut terms = vec![(network.logits(), network.logits(), builder.seed(), 0.5)];
    terms.extend(injections(&mut builder, at, &shifts)?);
    let g = &mut builder.graph;
    let mut names = Vec::new();
    for (source, start, seed, factor) in terms {
        let rules = GradientRules { open_at_zero: true, ..GradientRules::default() };
        let mut walk = Walk::new(rules, start, seed);
        let Some(gradient) = walk.message(g, network, at)? else { continue };
        let share = g.scaled(factor, gradient)?;
        let (share, channels) = match whole {
            DecomposedMap::SplitGrad => (share, Reduction::Mean),
            DecomposedMap::SplitCam => (g.times(share, at)?, Reduction::Sum),
        };
        let share = Scaled::plain(share, 0.0);
        let map = Finish::default().write(g, &scale, share, Some(channels), axes, &image)?;
        let name = network.graph().node(source).label.display().to_owned();
        g.output(name.clone(), map.value);
        names.push(name);
    }
    if names.is_empty() {
        let message = format!("layer '{layer}' does not lie between the image and the class scores");
        return Err(Error::argument(message));
    }
    Ok((builder.graph.pruned()?, names))
}

/// The source of a hidden gradient: the node, its input, the seed there and its sign.
type Injection = (NodeId, NodeId, NodeId, f64);

/// The discarded part of every node after `at`.
fn injections(
    builder: &mut ExplanationBuilder<'_>,
    at: NodeId,
    shifts: &Rc<Shifts>,
) -> Result<Vec<Injection>> {
    let network = builder.network.clone();
    let seed = builder.seed();
    let mass = shifts.mass_of_scores(&mut builder.graph, seed)?;
    let rules = Masses { network: network.clone(), shifts: shifts.clone() };
    let mut masses = Walk::new(rules, network.logits(), mass);
    let above = network.dependents(&[at]);
    let mut found = Vec::new();
    for (id, node) in network.nodes().filter(|(id, _)| above[id.index()]) {
        let Some(mass) = masses.message(&mut builder.graph, &network, id)? else { continue };
        if let Some(thrown_away) = injection(&mut builder.graph, id, mass)? {
            found.push((id, node.inputs[0], thrown_away, -0.5));
        }
    }
    Ok(found)
}

/// The discarded part of node `id`, weighted by the mass of its value: the seed of `∂Q[j]/∂x` at the input of the node.
fn injection(g: &mut Graph, id: NodeId, mass: NodeId) -> Result<Option<NodeId>> {
    let node = g.node(id).clone();
    if let Some(rectifier) = rectifier(g, &node)? {
        let on = g.at_least(node.inputs[0], 0.0)?;
        let zero = g.number(0.0);
        let lost = g.select(on, zero, mass)?;
        let Some(slope) = rectifier.slope else { return Ok(Some(lost)) };
        let one = g.number(1.0);
        let share = g.minus(one, slope)?;
        return g.times(share, lost).map(Some);
    }
    let Some(maximum) = WindowMax::of(g, &node)? else { return Ok(None) };
    let (all, won) = (maximum.sum_transposed(g, mass)?, maximum.select_transposed(g, mass)?);
    if maximum.minimum { g.minus(won, all).map(Some) } else { g.minus(all, won).map(Some) }
}

/// The mass alone: the transposed network with weights `|W|` and no nonlinearity.
struct Masses {
    network: Rc<Network>,
    shifts: Rc<Shifts>,
}

impl Rules for Masses {
    type Message = NodeId;

    fn join(&mut self, g: &mut Graph, a: NodeId, b: NodeId) -> Result<NodeId> {
        g.plus(a, b)
    }

    fn pass(&mut self, g: &mut Graph, edge: &Edge<'_>, mass: NodeId) -> Result<Option<NodeId>> {
        let passed = self.to_input(g, edge, mass)?;
        match self.shifts.factor(edge.id) {
            Some(factor) => g.times(passed, factor).map(Some),
            None => Ok(Some(passed)),
        }
    }
}

impl Masses {
    fn to_input(&self, g: &mut Graph, edge: &Edge<'_>, mass: NodeId) -> Result<NodeId> {
        let Edge { id, node, index, .. } = *edge;
        if rectifier(g, node)?.is_some() {
            return Ok(mass);
        }
        if let Some(maximum) = WindowMax::of(g, node)? {
            return maximum.sum_transposed(g, mass);
        }
        let linearity = node.op.properties().linearity;
        let product = self.network.active_inputs(id).iter().any(|&(i, _)| linearity.multiplies(index, i));
        if !linearity.is_linear() || product {
            let message = format!(
                "the closed formula speaks of affine nodes, ReLUs and maxima, not of {}; lrp has relevance on each layer",
                node.op.name()
            );
            return Err(Error::unsupported(message));
        }
        let mut operands = node.inputs.clone();
        for operand in &mut operands {
            if !self.network.is_active(*operand) && g.node(*operand).kind == Kind::Float {
                *operand = g.magnitude(*operand)?;
            }
        }
        transpose(g, id, index, mass, Coefficients { operands: &operands, magnitude: true })
    }
}

#[cfg(test)]
mod tests {
    use monosplit_engine::Cpu;
    use monosplit_graph::op::Window;
    use monosplit_graph::{Op, Shape};

    use super::*;
    use crate::methods::SplitLrp;
    use crate::{Explainer, MapRequest};

    /// The formula takes weights for constant, and this kernel is not. SplitLRP makes no share of its own for it either: half of
    /// the relevance belongs to the kernel, as to a factor of a product.
    #[test]
    fn a_convolution_with_a_kernel_made_of_the_image_is_refused() {
        let mut network = Graph::new();
        let image = network.input("image", Shape::fixed(&[1, 1, 4, 4]), Kind::Float);
        let kernel = network.scaled(0.5, image).unwrap();
        let conv = Op::Conv { window: Window::new([4, 4]), groups: 1 };
        let correlation = network.add(conv, &[image, kernel]).unwrap();
        let scores = network.reshaped(correlation, Shape::fixed(&[1, 1])).unwrap();
        network.output("scores", scores);
        for map in [DecomposedMap::SplitCam, DecomposedMap::SplitGrad] {
            let formula = ClosedFormula::new(&network, &Split::default(), "image:out", map, &Cpu::default());
            let error = formula.err().unwrap().to_string();
            assert!(error.contains("speaks of affine nodes") && error.contains("Conv"), "{error}");
        }
        let request = MapRequest::at_input(SplitLrp::default());
        let error = Explainer::new(&network, &[request], &Cpu::default()).err().unwrap().to_string();
        assert!(error.contains("of two values that depend on the input"), "{error}");
    }
}
