//! DeepLIFT with the Rescale rule.

use monosplit_autodiff::Walk;
use monosplit_graph::op::Reduction;
use monosplit_graph::{NodeId, Result, Tensor};

use crate::explanation_builder::ExplanationBuilder;
use crate::method::{Attribution, GraphMethod, Method, Procedure};
use crate::reference::ReferenceImage;
use crate::rescale::Rescale;

/// Multiplier times change, `m ⊙ (x − x′)`; sum over channels. At the image, attributions add up to `f(x) − f(x′)`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeepLift {
    /// The baseline image `x′`.
    pub baseline: ReferenceImage,
    /// The rule for max pooling.
    pub pool: PoolChange,
}

/// How the change of a maximum is attributed to its elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PoolChange {
    /// A rise to the element selected for the image, a fall to the one selected for the baseline, in proportion to their own
    /// change. Attributions add up.
    #[default]
    Change,
    /// To the element selected for the image, like a gradient. Attributions add up only where the same element is selected for
    /// the baseline.
    Winner,
}

impl Method for DeepLift {
    fn name(&self) -> String {
        "deeplift".into()
    }

    fn procedure(&self) -> Procedure<'_> {
        Procedure::GraphMethod(self)
    }

    fn baseline_array(&self) -> Option<&Tensor> {
        match &self.baseline {
            ReferenceImage::Image(image) => Some(image),
            ReferenceImage::Value(_) | ReferenceImage::Given => None,
        }
    }

    fn with_baseline_array(&self, baseline: Tensor) -> Option<std::sync::Arc<dyn Method>> {
        Some(std::sync::Arc::new(DeepLift { baseline: ReferenceImage::Image(baseline), ..self.clone() }))
    }
}

impl GraphMethod for DeepLift {
    fn write(&self, builder: &mut ExplanationBuilder<'_>, at: NodeId) -> Result<Attribution> {
        let reference = builder.reference(&self.baseline)?;
        let multiplier = builder.message(self.clone(), at, |builder| {
            let network = builder.network.clone();
            let rules = Rescale { network, reference: reference.clone(), pool: self.pool };
            Ok(Walk::new(rules, builder.scores(), builder.seed()))
        })?;
        let g = builder.graph();
        let change = g.minus(at, reference.at(at))?;
        Ok(Attribution::per_element(g.times(multiplier, change)?, at, Reduction::Sum))
    }
}

#[cfg(test)]
mod tests {
    use monosplit_engine::Cpu;
    use monosplit_graph::op::Unary;
    use monosplit_graph::{Graph, Kind, Shape};

    use super::*;
    use crate::{Class, Explainer, MapRequest, Settings};

    #[test]
    fn baselines_that_begin_alike_are_told_apart() {
        let mut network = Graph::new();
        let image = network.input("image", Shape::batched(&[1, 4, 4]), Kind::Float);
        let rectified = network.unary(Unary::Relu, image).unwrap();
        let scores = network.reshaped(rectified, Shape::batched(&[16])).unwrap();
        network.output("scores", scores);
        let lift = |last: f32| {
            let mut baseline = vec![0.0; 16];
            baseline[15] = last;
            let baseline = ReferenceImage::Image(Tensor::new([1, 1, 4, 4], baseline).unwrap());
            MapRequest::at_input(DeepLift { baseline, pool: PoolChange::default() })
        };
        let explainer = Explainer::new(&network, &[lift(0.0), lift(0.25)], &Cpu::default()).unwrap();
        let images = Tensor::new([1, 1, 4, 4], vec![1f32; 16]).unwrap();
        let found = explainer.explain(&images, &Class::Index(15), &Settings::default()).unwrap();
        assert_eq!(found.maps.iter().map(|map| map.values.to_f32()[15]).collect::<Vec<_>>(), [1.0, 0.75]);
    }
}
