//! Feature Ablation: how much the score falls when a part of the image is taken away.

use monosplit_engine::Engine;
use monosplit_graph::op::Reduction;
use monosplit_graph::{Result, Tensor};

use crate::baseline::Baseline;
use crate::explain_batch::ExplainBatch;
use crate::features::{Features, Groups};
use crate::method::{
    AttributedLayer, Attributions, Method, MultiPass, NetworkLayer, PreparedMethod, Procedure,
};
use crate::scorer::{Answer, BATCH, Draw, Scorer, Stage};
use crate::section::{batch_of, located};

/// `f(x) − f(x without the part)` at every place of the part. Where a part holds single channels, places show their sum.
#[derive(Clone, Debug, PartialEq)]
pub struct FeatureAblation {
    /// The parts.
    pub features: Features,
    /// What stands in for a part.
    pub baseline: Baseline,
    /// Parts computed at once.
    pub batch: usize,
}

impl Default for FeatureAblation {
    fn default() -> Self {
        FeatureAblation { features: Features::default(), baseline: Baseline::default(), batch: BATCH }
    }
}

impl Method for FeatureAblation {
    fn name(&self) -> String {
        "feature-ablation".into()
    }

    fn procedure(&self) -> Procedure<'_> {
        Procedure::MultiPass(self)
    }
}

impl MultiPass for FeatureAblation {
    fn prepare(&self, target: &NetworkLayer<'_>, engine: &dyn Engine) -> Result<Box<dyn PreparedMethod>> {
        let (_, _, layout) = located(target)?;
        self.features.check(&layout)?;
        let largest = self.features.largest(&layout)?;
        let scorer = match largest {
            Some(largest) => Scorer::local(target, engine, self.batch, largest)?,
            None => Scorer::scores(target, engine, self.batch)?,
        };
        let parts = Parts::new(&self.features, &self.baseline, target, scorer);
        Ok(Box::new(Ablating { parts, local: largest.is_some() }))
    }
}

/// A network that is asked about images without some of their parts.
pub(super) struct Parts {
    features: Features,
    baseline: Baseline,
    pub(super) scorer: Scorer,
    layer: Option<String>,
    whole: bool,
}

/// The parts of every sample in question, and what covers them.
pub(super) struct Divided<'a> {
    pub(super) stage: Stage<'a>,
    pub(super) groups: Vec<Groups>,
    pub(super) covers: Vec<Vec<f64>>,
}

impl Parts {
    pub(super) fn new(
        features: &Features,
        baseline: &Baseline,
        target: &NetworkLayer<'_>,
        scorer: Scorer,
    ) -> Self {
        let whole = features.whole_places(scorer.layout());
        let layer = target.layer.map(str::to_owned);
        Parts { features: features.clone(), baseline: baseline.clone(), scorer, layer, whole }
    }

    /// Parts of which any number may be taken away together.
    pub(super) fn in_sets(
        features: &Features,
        baseline: &Baseline,
        target: &NetworkLayer<'_>,
        engine: &dyn Engine,
        batch: usize,
    ) -> Result<Self> {
        let scorer = Scorer::scores(target, engine, batch)?;
        features.check(scorer.layout())?;
        Ok(Parts::new(features, baseline, target, scorer))
    }

    pub(super) fn divided<'a>(
        &self,
        batch: &'a ExplainBatch<'a>,
        classes: &'a [usize],
    ) -> Result<Divided<'a>> {
        let stage = self.scorer.stage(batch, classes)?;
        let groups = (0..stage.samples())
            .map(|sample| self.features.groups(stage.value(sample), self.scorer.layout()))
            .collect::<Result<Vec<_>>>()?;
        let covers = self.scorer.covers(&stage, &self.baseline)?;
        Ok(Divided { stage, groups, covers })
    }

    /// A number for every part of every sample, spread over the places.
    pub(super) fn spread(&self, divided: &Divided<'_>, found: &[Vec<f64>]) -> Result<Tensor> {
        let layout = self.scorer.layout();
        let each = divided.groups.iter().zip(found);
        let values: Vec<f64> = each.flat_map(|(groups, of)| groups.spread(layout, self.whole, of)).collect();
        let dims = if self.whole { layout.places() } else { layout.dims() };
        Tensor::new(batch_of(found.len(), dims), values)
    }

    pub(super) fn attributed_layer(&self) -> AttributedLayer {
        AttributedLayer { layer: self.layer.clone(), channels: (!self.whole).then_some(Reduction::Sum) }
    }
}

/// Parts, ready to be taken away one by one.
struct Ablating {
    parts: Parts,
    local: bool,
}

impl PreparedMethod for Ablating {
    fn attribute(&self, batch: &ExplainBatch<'_>, classes: &[usize]) -> Result<Attributions> {
        let divided = self.parts.divided(batch, classes)?;
        let Divided { stage, groups, covers } = &divided;
        let draws: Vec<usize> = groups.iter().map(|groups| groups.count + 1).collect();
        let mut found: Vec<Vec<f64>> = groups.iter().map(|groups| vec![0.0; groups.count]).collect();
        let mut whole = vec![0.0; stage.samples()];
        let change = |draw: Draw, image: &mut [f64]| {
            if let Some(part) = draw.number.checked_sub(1) {
                groups[draw.sample].cover(|group| group != part, &covers[draw.sample], image);
            }
        };
        let take = |draw: Draw, answer: &Answer<'_>| match draw.number.checked_sub(1) {
            None => whole[draw.sample] = answer.score(),
            Some(part) => found[draw.sample][part] = whole[draw.sample] - answer.score(),
        };
        let scorer = &self.parts.scorer;
        if self.local {
            let regions = groups.iter().map(|groups| groups.regions(scorer.layout()));
            let regions = regions.collect::<Result<Vec<_>>>()?;
            // The first copy is the image itself: it is changed nowhere, so any region will do.
            let region = |draw: Draw| regions[draw.sample][draw.number.saturating_sub(1)].clone();
            scorer.ask_locally(stage, &draws, region, change, take)?;
        } else {
            scorer.ask(stage, &draws, change, take)?;
        }
        Ok(Attributions { values: self.parts.spread(&divided, &found)?, diagnostics: Vec::new() })
    }

    fn attributed_layer(&self) -> AttributedLayer {
        self.parts.attributed_layer()
    }
}
