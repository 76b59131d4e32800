//! Eigen-CAM: the first principal component of a layer's activations.

use monosplit_engine::{Engine, Program};
use monosplit_graph::{Error, Graph, Result, Tensor};

use crate::bindings::bind;
use crate::explain_batch::ExplainBatch;
use crate::explanation_graph::value;
use crate::method::{
    AttributedLayer, Attributions, DefaultLayer, Method, MultiPass, NetworkLayer, PreparedMethod, Procedure,
};
use crate::network::Network;

/// The activations of every position, projected on their first principal component. It does not depend on the class; the sign
/// is chosen so that the largest magnitude is positive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EigenCam {
    /// Whether negative values of the map are set to zero.
    pub rectified: bool,
}

impl Method for EigenCam {
    fn name(&self) -> String {
        "eigencam".into()
    }

    fn procedure(&self) -> Procedure<'_> {
        Procedure::MultiPass(self)
    }

    fn default_layer(&self) -> DefaultLayer {
        DefaultLayer::LastFeatures
    }
}

impl MultiPass for EigenCam {
    fn prepare(&self, target: &NetworkLayer<'_>, engine: &dyn Engine) -> Result<Box<dyn PreparedMethod>> {
        let network = Network::new(target.network)?;
        let at = value(&network, target.layer)?;
        let channels = network.axes(at)?.channels.ok_or_else(|| {
            Error::argument("Eigen-CAM needs a layer with spatial axes; name one before they are averaged")
                .at(network.graph().node(at).label.display())
        })?;
        let mut graph = network.graph().clone();
        graph.set_outputs(Vec::new());
        graph.output("activations", at);
        let graph = graph.pruned()?;
        let program = engine.compile(&graph)?;
        let layer = target.layer.map(str::to_owned);
        Ok(Box::new(Activations { graph, program, channels, layer, rectified: self.rectified }))
    }

    fn obstacle(&self) -> &'static str {
        "takes a singular value decomposition"
    }
}

struct Activations {
    graph: Graph,
    program: Box<dyn Program>,
    channels: usize,
    layer: Option<String>,
    rectified: bool,
}

impl PreparedMethod for Activations {
    fn attribute(&self, batch: &ExplainBatch<'_>, _classes: &[usize]) -> Result<Attributions> {
        let mut outputs = self.program.run(&bind(&self.graph, batch, &[])?)?;
        let activations = outputs.pop().ok_or_else(|| Error::argument("the layer has no activations"))?;
        let mut shape = activations.shape().to_vec();
        let (samples, channels) = (shape[0], shape.remove(self.channels));
        let positions: usize = shape[1..].iter().product();
        // All axes other than samples and channels are spatial, before the channels or after them.
        let inner: usize = activations.shape()[self.channels + 1..].iter().product();
        let all = activations.to_f64();
        let mut values = Vec::with_capacity(samples * positions);
        for sample in all.chunks((channels * positions).max(1)) {
            let at = |position: usize, c: usize| {
                sample[(position / inner * channels + c) * inner + position % inner]
            };
            values.extend(principal(channels, positions, &at));
        }
        if self.rectified {
            values.iter_mut().for_each(|v| *v = v.max(0.0));
        }
        Ok(Attributions { values: Tensor::new(shape, values)?, diagnostics: Vec::new() })
    }

    fn attributed_layer(&self) -> AttributedLayer {
        AttributedLayer { layer: self.layer.clone(), channels: None }
    }
}

/// The number of power iterations after which the direction is used even if it has not converged.
const ITERATIONS: usize = 5000;

/// The projection of each position's activations, less their mean, on their first principal direction.
fn principal(channels: usize, positions: usize, at: &dyn Fn(usize, usize) -> f64) -> Vec<f64> {
    let mean = |c: usize| (0..positions).map(|p| at(p, c)).sum::<f64>() / positions.max(1) as f64;
    let means: Vec<f64> = (0..channels).map(mean).collect();
    let centred: Vec<f64> =
        (0..positions).flat_map(|p| means.iter().enumerate().map(move |(c, m)| at(p, c) - m)).collect();
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let row = |p: usize| &centred[p * channels..(p + 1) * channels];
    // The projection is an eigenvector of the Gram matrix of the positions, found by power iteration.
    let first = (0..positions).max_by(|&a, &b| product(row(a), row(a)).total_cmp(&product(row(b), row(b))));
    let Some(first) = first else { return Vec::new() };
    let mut direction = row(first).to_vec();
    let mut projection = vec![0.0; positions];
    for _ in 0..ITERATIONS {
        let size = product(&direction, &direction).sqrt();
        if size == 0.0 {
            return vec![0.0; positions];
        }
        direction.iter_mut().for_each(|v| *v /= size);
        let before =
            std::mem::replace(&mut projection, (0..positions).map(|p| product(row(p), &direction)).collect());
        let (moved, whole) = before
            .iter()
            .zip(&projection)
            .fold((0.0f64, 0.0f64), |(moved, whole), (a, b)| (moved.max((a - b).abs()), whole.max(b.abs())));
        if moved <= 1e-13 * whole {
            break;
        }
        direction = vec![0.0; channels];
        for (p, &weight) in projection.iter().enumerate() {
            direction.iter_mut().zip(row(p)).for_each(|(d, v)| *d += weight * v);
        }
    }
    let (low, high) = projection.iter().fold((0.0f64, 0.0f64), |(low, high), &v| (low.min(v), high.max(v)));
    if -low > high {
        projection.iter_mut().for_each(|v| *v = -*v);
    }
    projection
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activations_along_one_line_are_their_coordinates_on_it() {
        let along = [3.0, -1.0, 0.5, 2.0];
        let line = [0.6, 0.8];
        let projection = principal(2, 4, &|p, c| 5.0 + along[p] * line[c]);
        let mean = along.iter().sum::<f64>() / 4.0;
        let expected: Vec<f64> = along.iter().map(|a| a - mean).collect();
        let sign = if projection[0] * expected[0] < 0.0 { -1.0 } else { 1.0 };
        for (found, wanted) in projection.iter().zip(expected) {
            assert!((sign * found - wanted).abs() < 1e-12);
        }
    }

    #[test]
    fn constant_activations_have_no_direction() {
        assert_eq!(principal(3, 4, &|_, c| c as f64), [0.0; 4]);
    }
}
