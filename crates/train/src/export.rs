//! The trained network as an ordinary graph: parameters become constants, norms use the statistics kept from training.

use monosplit_graph::metadata::{CLASSES, PRESET};
use monosplit_graph::{Graph, Kind, Label, NodeId, Op, Result, Shape, Tensor};

use crate::network::{Blueprint, Norm, Parameter, Values};
use crate::restriction::Positivity;
use crate::settings::Settings;
use crate::state::Statistics;
use crate::step::EPSILON;

/// The property under which a file says what its network promises.
pub const RESTRICTION: &str = "monosplit.restriction";
/// The property that names the values that hold the scores of `g` and of `h`, with a blank between.
pub const STREAMS: &str = "monosplit.streams";

/// Parameters and statistics of a finished training.
struct Kept<'a> {
    positivity: Positivity,
    parameters: std::iter::Zip<std::slice::Iter<'a, Parameter>, std::slice::Iter<'a, Tensor>>,
    statistics: std::slice::Iter<'a, (Vec<f32>, Vec<f32>)>,
}

impl Values for Kept<'_> {
    fn parameter(&mut self, g: &mut Graph, parameter: Parameter) -> Result<NodeId> {
        // The layers are walked in the order in which they were when the parameters were listed.
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

/// A trained network and what it consists of.
pub(crate) struct Trained<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) sample: [usize; 3],
    pub(crate) classes: &'a [String],
    pub(crate) parameters: (&'a [Parameter], &'a [Tensor]),
    pub(crate) statistics: &'a Statistics,
}

impl Trained<'_> {
    /// The network: pictures with values from 0 to 1 in, class scores out.
    pub(crate) fn graph(&self) -> Result<Graph> {
        let settings = self.settings;
        let mut g = Graph::new();
        let image = g.input("image", Shape::batched(&self.sample), Kind::Float);
        let blueprint = Blueprint {
            architecture: &settings.architecture,
            restriction: settings.restriction,
            classes: self.classes.len(),
        };
        let mut kept = Kept {
            positivity: settings.positivity,
            parameters: self.parameters.0.iter().zip(self.parameters.1),
            statistics: self.statistics.iter(),
        };
        let scores = blueprint.build(&mut g, image, &mut kept)?;
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
