//! The trained network as an ordinary graph: parameters are constants, norms use the running statistics.

use monosplit_graph::metadata::{CLASSES, PRESET, STREAMS};
use monosplit_graph::{Graph, Kind, Label, NodeId, Op, Result, Shape, Tensor};

use crate::network::{NetworkSpec, Norm, Parameter, ParameterSource};
use crate::restriction::Positivity;
use crate::settings::TrainingSettings;
use crate::state::Statistics;
use crate::step::EPSILON;

/// The metadata key of the restriction of a network.
pub const RESTRICTION: &str = "monosplit.restriction";

/// Parameters and statistics of a finished training.
struct TrainedParameters<'a> {
    positivity: Positivity,
    parameters: std::iter::Zip<std::slice::Iter<'a, Parameter>, std::slice::Iter<'a, Tensor>>,
    statistics: std::slice::Iter<'a, (Vec<f32>, Vec<f32>)>,
}

impl ParameterSource for TrainedParameters<'_> {
    fn parameter(&mut self, g: &mut Graph, parameter: Parameter) -> Result<NodeId> {
        // Layers are built in the same order as when the parameters were listed.
        let Some((_, value)) = self.parameters.next().filter(|(known, _)| **known == parameter) else {
            let message = format!("the parameter '{}' is not the one that was trained", parameter.name);
            return Err(monosplit_graph::Error::argument(message));
        };
        let effective = match parameter.positive {
            false => value.clone(),
            true => self.positivity.applied(value)?,
        };
        Ok(g.named_constant(Label::named(parameter.name), effective))
    }

    fn normalised(&mut self, g: &mut Graph, x: NodeId, norm: &Norm) -> Result<NodeId> {
        let (mean, variance) = self.statistics.next().cloned().unwrap_or_default();
        let mean = g.named_constant(Label::named(format!("{}.mean", norm.name)), Tensor::vector(mean));
        let variance =
            g.named_constant(Label::named(format!("{}.variance", norm.name)), Tensor::vector(variance));
        let op = Op::BatchNorm { epsilon: EPSILON };
        g.add_named(Label::named(&norm.name), op, &[x, norm.scale, norm.shift, mean, variance])
    }
}

/// A trained network: its settings, parameters and statistics.
pub(crate) struct TrainedNetwork<'a> {
    pub(crate) settings: &'a TrainingSettings,
    pub(crate) sample: [usize; 3],
    pub(crate) classes: &'a [String],
    pub(crate) parameters: (&'a [Parameter], &'a [Tensor]),
    pub(crate) statistics: &'a Statistics,
}

impl TrainedNetwork<'_> {
    /// The network: pictures with values from 0 to 1 in, class scores out.
    pub(crate) fn graph(&self) -> Result<Graph> {
        let settings = self.settings;
        let mut g = Graph::new();
        let image = g.input("image", Shape::batched(&self.sample), Kind::Float);
        let spec = NetworkSpec {
            architecture: &settings.architecture,
            restriction: settings.restriction,
            classes: self.classes.len(),
        };
        let mut kept = TrainedParameters {
            positivity: settings.positivity,
            parameters: self.parameters.0.iter().zip(self.parameters.1),
            statistics: self.statistics.iter(),
        };
        let scores = spec.build(&mut g, image, &mut kept)?;
        g.output("logits", scores.logits);
        g.set_metadata(RESTRICTION, settings.restriction.name());
        g.set_metadata(PRESET, "unit");
        g.set_metadata(CLASSES, self.classes.join("\n"));
        g.set_metadata("monosplit.training", settings.to_string());
        if let Some((first, second)) = scores.streams {
            let name = |id: NodeId| g.node(id).label.tensor.clone();
            let names = format!("{} {}", name(first), name(second));
            g.set_metadata(STREAMS, names);
        }
        Ok(g)
    }
}
