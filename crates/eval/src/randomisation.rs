//! Networks with random weights in their last layers, for the parameter randomisation test.

use monosplit_graph::passes::{Rewrite, Step};
use monosplit_graph::{Error, Graph, NodeId, Noise, Op, Result, Tensor};

/// The layers with trained weights between the image and the class scores, from first to last.
pub fn trained(graph: &Graph) -> Vec<NodeId> {
    let reaches = graph.ancestors(graph.outputs().first().map(|scores| scores.node));
    let weighted = |id: &NodeId| {
        let node = graph.node(*id);
        // Fewer than `Op::affine_layer` names: batch norms and transposed convolutions keep their trained weights.
        let affine = matches!(node.op, Op::Conv { .. } | Op::MatMul { .. });
        reaches[id.index()] && affine && node.inputs[1..].iter().any(|&input| graph.node(input).is_constant())
    };
    graph.nodes().map(|(id, _)| id).filter(weighted).collect()
}

/// The network with the weights of its last `count` layers drawn from a normal distribution of mean 0 and the standard
/// deviation of the layer's own weights, and their biases set to zero; and the names of those layers.
pub fn randomised(graph: &Graph, count: usize, seed: u64) -> Result<(Graph, Vec<String>)> {
    randomised_with(graph, count, None, seed)
}

/// The same with this standard deviation for the weights of all these layers, if one is given.
pub fn randomised_with(
    graph: &Graph,
    count: usize,
    deviation: Option<f64>,
    seed: u64,
) -> Result<(Graph, Vec<String>)> {
    let layers = trained(graph);
    if count == 0 || count > layers.len() {
        return Err(Error::argument(format!(
            "{count} layers cannot be randomised: the network has {} with weights",
            layers.len()
        )));
    }
    let chosen = &layers[layers.len() - count..];
    let names = chosen.iter().map(|&id| graph.node(id).label.display().to_owned()).collect();
    let mut fresh: Vec<(NodeId, Tensor)> = Vec::new();
    for (number, &layer) in chosen.iter().rev().enumerate() {
        let noise = Noise::new(seed).stream("randomised layer").numbered(number as u64);
        for (place, &input) in graph.node(layer).inputs.iter().enumerate() {
            let Some(weights) = graph.constant_value(input) else { continue };
            // The bias is the last of three inputs.
            fresh.push((
                input,
                drawn(weights, noise.numbered(place as u64), if place == 2 { Some(0.0) } else { deviation })?,
            ));
        }
    }
    let randomised_graph =
        Rewrite::run(graph, |rewrite, id, _| match fresh.iter().find(|(weights, _)| *weights == id) {
            Some((_, noise)) => Ok(Step::Replace(rewrite.target.constant(noise.clone()))),
            None => Ok(Step::Keep),
        })?;
    Ok((randomised_graph, names))
}

/// Random numbers in place of weights, of this standard deviation or of their own.
fn drawn(weights: &Tensor, noise: Noise, deviation: Option<f64>) -> Result<Tensor> {
    let values = weights.to_f64();
    let own = || {
        let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len().max(1) as f64;
        variance.sqrt()
    };
    let deviation = deviation.unwrap_or_else(own);
    let fresh: Vec<f32> = (0..values.len()).map(|i| (deviation * noise.gaussian(i as u64)) as f32).collect();
    Tensor::new(weights.shape().to_vec(), fresh)
}

#[cfg(test)]
mod tests {
    use monosplit_graph::op::Unary;
    use monosplit_graph::{Kind, Shape};

    use super::*;

    fn network() -> Graph {
        let mut g = Graph::new();
        let mut value = g.input("x", Shape::batched(&[50]), Kind::Float);
        for layer in 0..3u64 {
            let noise = Noise::new(layer);
            let weights: Vec<f32> = (0..2500).map(|i| 0.5 + noise.gaussian(i) as f32).collect();
            let w = g.constant(Tensor::new([50, 50], weights).unwrap());
            let b = g.constant(Tensor::new([50], vec![1f32; 50]).unwrap());
            let op = Op::MatMul { trans_a: false, trans_b: true };
            value =
                g.add_named(monosplit_graph::Label::named(format!("fc{layer}")), op, &[value, w, b]).unwrap();
            value = g.add(Op::Unary(Unary::Relu), &[value]).unwrap();
        }
        g.output("scores", value);
        g
    }

    fn weights(g: &Graph, layer: &str, input: usize) -> Vec<f64> {
        let id = g.layer(layer).unwrap().first;
        g.constant_value(g.node(id).inputs[input]).unwrap().to_f64().to_vec()
    }

    #[test]
    fn the_last_layers_are_drawn_anew_at_their_own_scale_and_the_others_stay() {
        let before = network();
        let (after, names) = randomised(&before, 2, 7).unwrap();
        assert_eq!(names, ["fc1", "fc2"]);
        assert_eq!(weights(&before, "fc0", 1), weights(&after, "fc0", 1));
        for layer in ["fc1", "fc2"] {
            let fresh = weights(&after, layer, 1);
            let deviation = (fresh.iter().map(|v| v * v).sum::<f64>() / 2500.0).sqrt();
            assert!((deviation - 1.0).abs() < 0.1, "{deviation}");
            assert_ne!(fresh, weights(&before, layer, 1));
            assert!(weights(&after, layer, 2).iter().all(|&bias| bias == 0.0));
        }
        assert_ne!(weights(&after, "fc1", 1), weights(&after, "fc2", 1));
        assert_eq!(weights(&after, "fc2", 1), weights(&randomised(&before, 1, 7).unwrap().0, "fc2", 1));
    }

    #[test]
    fn another_deviation_scales_the_same_numbers() {
        let drawn = |deviation| weights(&randomised_with(&network(), 1, deviation, 7).unwrap().0, "fc2", 1);
        let (one, half, own) = (drawn(Some(1.0)), drawn(Some(0.5)), drawn(None));
        assert!(one.iter().zip(&half).all(|(a, b)| (a - 2.0 * b).abs() <= 1e-6 * a.abs()));
        let ratio = own[0] / one[0];
        assert!(own.iter().zip(&one).all(|(a, b)| (a - ratio * b).abs() <= 1e-5 * a.abs()), "{ratio}");
    }

    #[test]
    fn more_layers_than_there_are_cannot_be_randomised() {
        assert!(randomised(&network(), 4, 0).unwrap_err().to_string().contains("3 with weights"));
        assert!(randomised(&network(), 0, 0).is_err());
    }
}
