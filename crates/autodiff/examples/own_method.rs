//! A backward method of one's own, written with the public interface alone: RectGrad (Kim et al., "Why are Saliency Maps
//! Noisy? Cause of and Solution to Noisy Saliency Maps", 2019) with a fixed threshold.
//!
//! RectGrad carries one value backwards, like the gradient. It differs from the gradient at ReLUs alone: with `a` the output
//! of a ReLU and `r` the message that arrives there, `r` passes where `a·r > τ`, and nothing passes elsewhere.
//!
//! ```sh
//! cargo run -p monosplit-autodiff --example own_method
//! ```

use monosplit_autodiff::{ActiveGraph, Edge, GradientRules, ReluBackward, Rules, Walk};
use monosplit_engine::{Cpu, Engine};
use monosplit_graph::op::Unary;
use monosplit_graph::{Graph, Kind, NodeId, Op, Result, Shape, Tensor};

/// The rule set: the chain rule everywhere but at ReLUs.
struct RectGrad {
    threshold: f64,
    chain_rule: GradientRules,
}

impl Rules for RectGrad {
    type Message = NodeId;

    fn join(&mut self, g: &mut Graph, a: NodeId, b: NodeId) -> Result<NodeId> {
        g.plus(a, b)
    }

    fn pass(&mut self, g: &mut Graph, edge: &Edge<'_>, r: NodeId) -> Result<Option<NodeId>> {
        if edge.node.op != Op::Unary(Unary::Relu) {
            return self.chain_rule.pass(g, edge, r);
        }
        // The value of a node is known by the node's id: `edge.id` is the output of the ReLU.
        let importance = g.times(edge.id, r)?;
        let passes = g.more_than(importance, self.threshold)?;
        g.masked(passes, r).map(Some)
    }
}

fn main() -> Result<()> {
    let (network, image, score) = network()?;
    let active = ActiveGraph::new(&network, score, &[image])?;
    let values = Tensor::new([1, 4], vec![0.9f32, -0.4, 0.5, 0.2])?;

    let gradient = attribution(&active, GradientRules::default(), &values)?;
    println!("gradient          {gradient:?}");
    for threshold in [0.0, 0.1, 0.3] {
        let rules = RectGrad { threshold, chain_rule: GradientRules::default() };
        println!("RectGrad, τ = {threshold} {:?}", attribution(&active, rules, &values)?);
    }

    // With τ = 0 a message passes where the ReLU is open and the message positive: that is Guided Backprop.
    let rules = RectGrad { threshold: 0.0, chain_rule: GradientRules::default() };
    let guided = GradientRules { relu: ReluBackward::Guided, ..GradientRules::default() };
    assert_eq!(attribution(&active, rules, &values)?, attribution(&active, guided, &values)?);
    Ok(())
}

/// A small network: two dense layers with a ReLU after each, and one score.
fn network() -> Result<(Graph, NodeId, NodeId)> {
    let mut g = Graph::new();
    let image = g.input("image", Shape::fixed(&[1, 4]), Kind::Float);
    let mut value = image;
    for (layer, (rows, columns)) in [(4, 5), (5, 3), (3, 1)].into_iter().enumerate() {
        let weight = |i: usize| (1.0 + i as f32 + 7.0 * layer as f32).sin();
        let weights = Tensor::new([rows, columns], (0..rows * columns).map(weight).collect::<Vec<_>>())?;
        let weights = g.constant(weights);
        value = g.add(Op::MatMul { trans_a: false, trans_b: false }, &[value, weights])?;
        if columns > 1 {
            value = g.unary(Unary::Relu, value)?;
        }
    }
    Ok((g, image, value))
}

/// The message that `rules` carry from the score to the image, computed for `values`.
fn attribution<R: Rules<Message = NodeId>>(
    active: &ActiveGraph,
    rules: R,
    values: &Tensor,
) -> Result<Vec<f32>> {
    let mut g = active.graph().clone();
    let seed = g.constant(Tensor::new([1, 1], vec![1f32])?);
    let mut walk = Walk::new(rules, active.output(), seed);
    let image = active.inputs()[0];
    match walk.message(&mut g, active, image)? {
        Some(message) => g.output("attribution", message),
        None => return Ok(vec![0.0; values.len()]),
    }
    let outputs = Cpu::default().compile(&g)?.run(std::slice::from_ref(values))?;
    Ok(outputs[0].to_f32().to_vec())
}
