//! Feature Ablation: the drop of the score when a feature of the image is replaced by a baseline.

use monosplit_engine::Engine;
use monosplit_graph::op::Reduction;
use monosplit_graph::{Result, Tensor};

use crate::baseline::Baseline;
use crate::explain_batch::ExplainBatch;
use crate::features::{Features, Groups};
use crate::method::{
    AttributedLayer, Attributions, GraphMethod, Method, MultiPass, NetworkLayer, PreparedMethod, Procedure,
};
use crate::model_output::ModelOutput;
use crate::network_partition::{batch_of, resolve_layer};
use crate::scorer::{BATCH, CutValues, Perturbation, Scorer};

/// `f(x) − f(x without the feature)` at every position of the feature. Where features are single channels, a position shows the
/// sum over its channels.
#[derive(Clone, Debug, PartialEq)]
pub struct FeatureAblation {
    /// The features.
    pub features: Features,
    /// What replaces a removed feature.
    pub baseline: Baseline,
    /// The number of copies in a batch.
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

    fn takes_inputs_in_turn(&self) -> bool {
        self.features != Features::Elements
    }

    fn baseline_array(&self) -> Option<&Tensor> {
        self.baseline.array()
    }

    fn with_baseline_array(&self, baseline: Tensor) -> Option<std::sync::Arc<dyn Method>> {
        let baseline = Baseline::Images(baseline);
        Some(std::sync::Arc::new(FeatureAblation { baseline, ..self.clone() }))
    }
}

impl MultiPass for FeatureAblation {
    fn unrolled(&self) -> Option<&dyn GraphMethod> {
        Some(self)
    }

    fn prepare(&self, target: &NetworkLayer<'_>, engine: &dyn Engine) -> Result<Box<dyn PreparedMethod>> {
        let (_, _, layout) = resolve_layer(target)?;
        self.features.check(&layout)?;
        let largest = self.features.largest(&layout)?;
        let local = largest.is_some();
        let scorer = match largest {
            Some(largest) => Scorer::local(target, engine, self.batch, &largest)?,
            None => Scorer::scores(target, engine, self.batch)?,
        };
        let parts = Parts::new(&self.features, &self.baseline, target, scorer);
        Ok(Box::new(Ablating { parts, local }))
    }
}

/// A network compiled to score images with some of their features removed.
pub(super) struct Parts {
    features: Features,
    baseline: Baseline,
    pub(super) scorer: Scorer,
    layer: Option<String>,
    whole: bool,
}

/// A batch with the features of each sample, and the values that replace them.
pub(super) struct SegmentedBatch<'a> {
    pub(super) cut_values: CutValues<'a>,
    pub(super) groups: Vec<Groups>,
    pub(super) replacements: Vec<Vec<f64>>,
}

impl Parts {
    pub(super) fn new(
        features: &Features,
        baseline: &Baseline,
        target: &NetworkLayer<'_>,
        scorer: Scorer,
    ) -> Self {
        let whole = features.holds_all_channels(scorer.layout());
        let layer = target.layer.map(str::to_owned);
        Parts { features: features.clone(), baseline: baseline.clone(), scorer, layer, whole }
    }

    /// For perturbations that remove any number of features.
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

    pub(super) fn segmented<'a>(
        &self,
        batch: &'a ExplainBatch<'a>,
        classes: &'a [usize],
    ) -> Result<SegmentedBatch<'a>> {
        let cut_values = self.scorer.cut_values(batch, classes)?;
        let groups = (0..cut_values.samples())
            .map(|sample| self.features.groups(cut_values.value(sample), self.scorer.layout()))
            .collect::<Result<Vec<_>>>()?;
        let replacements = self.scorer.replacements(&cut_values, &self.baseline)?;
        Ok(SegmentedBatch { cut_values, groups, replacements })
    }

    /// A map for each sample, from a number for each of its features.
    pub(super) fn spread(&self, segmented: &SegmentedBatch<'_>, found: &[Vec<f64>]) -> Result<Tensor> {
        let layout = self.scorer.layout();
        let each = segmented.groups.iter().zip(found);
        let values: Vec<f64> = each.flat_map(|(groups, of)| groups.spread(layout, self.whole, of)).collect();
        let dims = if self.whole { layout.spatial_dims() } else { layout.dims() };
        Tensor::new(batch_of(found.len(), dims), values)
    }

    pub(super) fn attributed_layer(&self) -> AttributedLayer {
        AttributedLayer { layer: self.layer.clone(), channels: (!self.whole).then_some(Reduction::Sum) }
    }
}

/// Feature Ablation compiled for an image.
struct Ablating {
    parts: Parts,
    local: bool,
}

impl PreparedMethod for Ablating {
    fn attribute(&self, batch: &ExplainBatch<'_>, classes: &[usize]) -> Result<Attributions> {
        let segmented = self.parts.segmented(batch, classes)?;
        let SegmentedBatch { cut_values, groups, replacements } = &segmented;
        let counts: Vec<usize> = groups.iter().map(|groups| groups.count + 1).collect();
        let mut found: Vec<Vec<f64>> = groups.iter().map(|groups| vec![0.0; groups.count]).collect();
        let mut whole = vec![0.0; cut_values.samples()];
        let change = |perturbation: Perturbation, image: &mut [f64]| {
            if let Some(part) = perturbation.number.checked_sub(1) {
                groups[perturbation.sample].cover(
                    |group| group != part,
                    &replacements[perturbation.sample],
                    image,
                );
            }
        };
        let take =
            |perturbation: Perturbation, output: &ModelOutput<'_>| match perturbation.number.checked_sub(1) {
                None => whole[perturbation.sample] = output.score(),
                Some(part) => found[perturbation.sample][part] = whole[perturbation.sample] - output.score(),
            };
        let scorer = &self.parts.scorer;
        if self.local {
            let regions: Vec<_> = groups.iter().map(|groups| groups.regions(scorer.layout())).collect();
            // The first copy is the unperturbed image, for which any region will do.
            let region = |perturbation: Perturbation| {
                regions[perturbation.sample][perturbation.number.saturating_sub(1)].clone()
            };
            scorer.run_perturbed_regions(cut_values, &counts, region, change, take)?;
        } else {
            scorer.run_perturbed(cut_values, &counts, change, take)?;
        }
        Ok(Attributions { values: self.parts.spread(&segmented, &found)?, diagnostics: Vec::new() })
    }

    fn attributed_layer(&self) -> AttributedLayer {
        self.parts.attributed_layer()
    }
}
