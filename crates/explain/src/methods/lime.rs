//! LIME: a linear model of the network around one image, in terms of which of its features are present.

use monosplit_engine::Engine;
use monosplit_graph::{Error, Noise, Result};

use super::feature_ablation::{Parts, SegmentedBatch};
use super::rise::Measure;
use super::smooth_grad::check_samples;
use crate::baseline::Baseline;
use crate::explain_batch::ExplainBatch;
use crate::features::Features;
use crate::method::{
    AttributedLayer, Attributions, Diagnostic, Method, MultiPass, NetworkLayer, PreparedMethod, Procedure,
};
use crate::regression::Observations;
use crate::scorer::BATCH;

/// The coefficients `β` of a ridge regression of the class's probability on which features `z` of the image are present. It
/// minimises `Σ π (f − β₀ − z·β)² + λ‖β‖²` over copies in which each feature is present with probability ½. A copy is weighted by
/// the kernel `π = exp(−d²/2w²)` of the cosine distance `d = 1 − √(share of features present)`. The image itself is one of the
/// copies.
///
/// The features present in copy number `i` depend on the seed and `i` alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Lime {
    /// The number of copies of each image.
    pub samples: usize,
    /// The features.
    pub features: Features,
    /// What replaces a removed feature.
    pub baseline: Baseline,
    /// The output of the network that is explained.
    pub measure: Measure,
    /// The width `w` of the kernel.
    pub width: f64,
    /// The penalty `λ`.
    pub penalty: f64,
    /// The seed of the random numbers.
    pub seed: u64,
    /// The number of copies in a batch.
    pub batch: usize,
}

impl Default for Lime {
    fn default() -> Self {
        Lime {
            samples: 1000,
            features: Features::default(),
            baseline: Baseline::default(),
            measure: Measure::Probability,
            width: 0.25,
            penalty: 1.0,
            seed: 0,
            batch: BATCH,
        }
    }
}

impl Method for Lime {
    fn name(&self) -> String {
        "lime".into()
    }

    fn procedure(&self) -> Procedure<'_> {
        Procedure::MultiPass(self)
    }

    fn takes_inputs_in_turn(&self) -> bool {
        self.features != Features::Elements
    }

    fn baseline_array(&self) -> Option<&monosplit_graph::Tensor> {
        self.baseline.array()
    }

    fn with_baseline_array(&self, baseline: monosplit_graph::Tensor) -> Option<std::sync::Arc<dyn Method>> {
        let baseline = Baseline::Images(baseline);
        Some(std::sync::Arc::new(Lime { baseline, ..self.clone() }))
    }
}

impl MultiPass for Lime {
    fn prepare(&self, target: &NetworkLayer<'_>, engine: &dyn Engine) -> Result<Box<dyn PreparedMethod>> {
        check_samples(self.samples, 2)?;
        if !(self.width > 0.0 && self.penalty >= 0.0 && self.penalty.is_finite()) {
            return Err(Error::argument(format!(
                "a kernel of width {} and a penalty of {}: expected a width above 0 and a penalty from 0 on",
                self.width, self.penalty
            )));
        }
        let parts = Parts::in_sets(&self.features, &self.baseline, target, engine, self.batch)?;
        check_parts(&self.features, &parts)?;
        Ok(Box::new(Fitting { method: self.clone(), parts }))
    }
}

/// The largest number of features: beyond it the normal equations are too large to solve.
const MOST_UNKNOWNS: usize = 4000;

/// Fails if there are too many features.
pub(super) fn check_parts(features: &Features, parts: &Parts) -> Result<()> {
    let count = match features {
        Features::Superpixels { segments, .. } if !parts.scorer.layout().is_table() => *segments,
        Features::Grid(_) | Features::Mask(_) => features.groups(&[], parts.scorer.layout())?.count,
        Features::Superpixels { .. } | Features::Elements => parts.scorer.layout().len(),
    };
    if count <= MOST_UNKNOWNS {
        return Ok(());
    }
    Err(Error::argument(format!(
        "{count} features are too many for a regression, expected at most {MOST_UNKNOWNS}; use superpixels or a grid"
    )))
}

/// LIME compiled for an image.
struct Fitting {
    method: Lime,
    parts: Parts,
}

impl Lime {
    /// Which features are present in copy number `number`, and a last number that is always 1, for the intercept.
    fn present(&self, number: usize, count: usize) -> Vec<f64> {
        let noise = Noise::new(self.seed).stream("lime").numbered(number as u64);
        let there = |part| if number == 0 || noise.uniform(part) < 0.5 { 1.0 } else { 0.0 };
        (0..count as u64).map(there).chain([1.0]).collect()
    }

    fn weight(&self, present: &[f64]) -> f64 {
        let count = (present.len() - 1) as f64;
        let distance = 1.0 - ((present.iter().sum::<f64>() - 1.0) / count).sqrt();
        (-distance * distance / (2.0 * self.width * self.width)).exp()
    }
}

/// The sums for the coefficient of determination.
#[derive(Clone, Default)]
struct Spread {
    weight: f64,
    sum: f64,
    squares: f64,
}

impl PreparedMethod for Fitting {
    fn attribute(&self, batch: &ExplainBatch<'_>, classes: &[usize]) -> Result<Attributions> {
        let method = &self.method;
        let segmented = self.parts.segmented(batch, classes)?;
        let SegmentedBatch { cut_values, groups, replacements } = &segmented;
        let mut gathered: Vec<Observations> =
            groups.iter().map(|groups| Observations::new(groups.count + 1)).collect();
        let mut measured = vec![Vec::with_capacity(method.samples); cut_values.samples()];
        self.parts.scorer.run_perturbed(
            cut_values,
            &vec![method.samples; cut_values.samples()],
            |perturbation, image| {
                let groups = &groups[perturbation.sample];
                let present = method.present(perturbation.number, groups.count);
                groups.cover(|part| present[part] != 0.0, &replacements[perturbation.sample], image);
            },
            |perturbation, output| {
                let present = method.present(perturbation.number, groups[perturbation.sample].count);
                let (y, weight) = (method.measure.of(output), method.weight(&present));
                gathered[perturbation.sample].add(&present, y, weight);
                measured[perturbation.sample].push(y);
            },
        )?;
        let (mut found, mut explained) = (Vec::new(), Vec::new());
        for (observations, measured) in gathered.into_iter().zip(&measured) {
            let parts = groups[found.len()].count;
            let mut coefficients =
                observations.solve(|unknown| if unknown < parts { method.penalty } else { 0.0 });
            explained.push(method.explained(&coefficients, measured));
            coefficients.truncate(parts);
            found.push(coefficients);
        }
        let diagnostics = vec![Diagnostic { name: "explained variance", values: explained }];
        Ok(Attributions { values: self.parts.spread(&segmented, &found)?, diagnostics })
    }

    fn attributed_layer(&self) -> AttributedLayer {
        self.parts.attributed_layer()
    }
}

impl Lime {
    /// R²: the share of the weighted variance that the model explains.
    fn explained(&self, coefficients: &[f64], measured: &[f64]) -> f64 {
        let mut all = Spread::default();
        let mut left = 0.0;
        for (number, y) in measured.iter().enumerate() {
            let present = self.present(number, coefficients.len() - 1);
            let weight = self.weight(&present);
            let said: f64 = present.iter().zip(coefficients).map(|(z, c)| z * c).sum();
            left += weight * (y - said).powi(2);
            all.weight += weight;
            all.sum += weight * y;
            all.squares += weight * y * y;
        }
        let variance = all.squares - all.sum * all.sum / all.weight;
        if variance > 0.0 { 1.0 - left / variance } else { 0.0 }
    }
}
