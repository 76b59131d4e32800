//! GradientSHAP: gradients at random points between noisy copies of the image and random baselines.

use monosplit_engine::Engine;
use monosplit_graph::op::Reduction;
use monosplit_graph::{Buffer, Error, Noise, Result, Tensor};

use super::smooth_grad::{Strength, check_samples};
use crate::baseline::Baseline;
use crate::explain_batch::ExplainBatch;
use crate::method::{
    AttributedLayer, Attributions, GraphMethod, Method, MultiPass, NetworkLayer, PreparedMethod, Procedure,
};
use crate::network_partition::batch_of;
use crate::scorer::{BATCH, CutValues, Perturbation, Scorer};

/// The mean of `(x̃ − x′) ⊙ ∇f(x′ + u(x̃ − x′))` over baselines `x′`, noisy copies `x̃` and `u` between 0 and 1, summed
/// over channels.
///
/// Copy number `i` is drawn from the seed and `i` alone.
#[derive(Clone, Debug, PartialEq)]
pub struct GradientShap {
    /// The number of random points for each image.
    pub samples: usize,
    /// The noise on the image.
    pub strength: Strength,
    /// The baselines. If several images are given, one of them is drawn for each point.
    pub baseline: Baseline,
    /// The seed of the random numbers.
    pub seed: u64,
    /// The number of points in a batch.
    pub batch: usize,
}

impl Default for GradientShap {
    fn default() -> Self {
        GradientShap {
            samples: 5,
            strength: Strength::Deviation(0.0),
            baseline: Baseline::default(),
            seed: 0,
            batch: BATCH,
        }
    }
}

impl Method for GradientShap {
    fn name(&self) -> String {
        "gradient-shap".into()
    }

    fn procedure(&self) -> Procedure<'_> {
        Procedure::MultiPass(self)
    }
}

impl MultiPass for GradientShap {
    fn unrolled(&self) -> Option<&dyn GraphMethod> {
        Some(self)
    }

    fn prepare(&self, target: &NetworkLayer<'_>, engine: &dyn Engine) -> Result<Box<dyn PreparedMethod>> {
        self.check(target.layer.is_some())?;
        let scorer = Scorer::gradients(target, engine, self.batch)?;
        Ok(Box::new(Points { method: self.clone(), scorer }))
    }
}

impl GradientShap {
    /// An error if an option is out of its range, or the map is asked for at a layer.
    pub(crate) fn check(&self, at_layer: bool) -> Result<()> {
        self.strength.check()?;
        check_samples(self.samples, 1)?;
        if at_layer {
            return Err(Error::argument(
                "GradientSHAP is computed at the image; integrated-gradients takes a layer",
            ));
        }
        Ok(())
    }

    /// Which of `count` baselines point number `number` starts from.
    pub(crate) fn pick(&self, noise: Noise, number: usize, count: usize) -> usize {
        let pick = noise.stream("baseline").uniform(number as u64) * count as f64;
        (pick as usize).min(count - 1)
    }

    /// The position of point number `number` on its line, between 0 and 1.
    pub(crate) fn share(&self, noise: Noise, number: usize) -> f64 {
        noise.stream("share").uniform(number as u64)
    }
}

/// GradientSHAP compiled for an image.
struct Points {
    method: GradientShap,
    scorer: Scorer,
}

/// The two ends of the line that a point lies on: a baseline and a noisy copy of the image.
struct Ends<'a> {
    method: &'a GradientShap,
    noise: Noise,
    /// The baselines to draw from, or one for each sample.
    given: Option<Buffer<f64>>,
    own: Vec<Vec<f64>>,
}

impl Ends<'_> {
    /// The baseline of a point.
    fn start(&self, perturbation: Perturbation) -> &[f64] {
        let Some(given) = &self.given else { return &self.own[perturbation.sample] };
        let length = self.own[perturbation.sample].len();
        let count = given.len() / length.max(1);
        let pick = self.method.pick(self.noise, perturbation.number, count);
        &given[pick * length..(pick + 1) * length]
    }

    /// Turns a copy of the image into its noisy copy.
    fn noisy(&self, perturbation: Perturbation, image: &mut [f64]) {
        self.method.strength.add(self.noise.numbered(perturbation.number as u64), image);
    }

    /// The position of the point on the line, between 0 and 1.
    fn share(&self, perturbation: Perturbation) -> f64 {
        self.method.share(self.noise, perturbation.number)
    }
}

impl Points {
    fn ends(&self, cut_values: &CutValues<'_>) -> Result<Ends<'_>> {
        let method = &self.method;
        let given = method.baseline.given(self.scorer.image())?.map(|images| images.to_f64());
        let own = match given {
            Some(_) => vec![vec![0.0; self.scorer.layout().len()]; cut_values.samples()],
            None => self.scorer.baseline_values(cut_values, &method.baseline)?,
        };
        Ok(Ends { method, noise: Noise::new(method.seed).stream("gradient shap"), given, own })
    }
}

impl PreparedMethod for Points {
    fn attribute(&self, batch: &ExplainBatch<'_>, classes: &[usize]) -> Result<Attributions> {
        let cut_values = self.scorer.cut_values(batch, classes)?;
        let ends = self.ends(&cut_values)?;
        let length = self.scorer.layout().len();
        let mut mean = vec![vec![0.0; length]; cut_values.samples()];
        let count = self.method.samples;
        let mut end = vec![0.0; length];
        self.scorer.run_perturbed(
            &cut_values,
            &vec![count; cut_values.samples()],
            |perturbation, image| {
                ends.noisy(perturbation, image);
                let share = ends.share(perturbation);
                let start = ends.start(perturbation);
                image.iter_mut().zip(start).for_each(|(v, start)| *v = start + share * (*v - start));
            },
            |perturbation, output| {
                end.copy_from_slice(cut_values.value(perturbation.sample));
                ends.noisy(perturbation, &mut end);
                let way = end.iter().zip(ends.start(perturbation)).map(|(end, start)| end - start);
                let mean = mean[perturbation.sample].iter_mut();
                for ((mean, way), slope) in mean.zip(way).zip(output.gradient) {
                    *mean += way * slope / count as f64;
                }
            },
        )?;
        let values = Tensor::new(batch_of(cut_values.samples(), self.scorer.layout().dims()), mean.concat())?;
        Ok(Attributions { values, diagnostics: Vec::new() })
    }

    fn attributed_layer(&self) -> AttributedLayer {
        AttributedLayer { layer: None, channels: Some(Reduction::Sum) }
    }
}
