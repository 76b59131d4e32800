//! GradientSHAP: gradients at random points between noisy copies of the image and random baselines.

use monosplit_engine::Engine;
use monosplit_graph::op::Reduction;
use monosplit_graph::{Buffer, Error, Noise, Result, Tensor};

use super::smooth_grad::{Strength, check_samples};
use crate::baseline::Baseline;
use crate::explain_batch::ExplainBatch;
use crate::method::{
    AttributedLayer, Attributions, Method, MultiPass, NetworkLayer, PreparedMethod, Procedure,
};
use crate::scorer::{BATCH, Draw, Scorer, Stage};
use crate::section::batch_of;

/// The mean of `(x̃ − x′) ⊙ ∇f(x′ + u(x̃ − x′))` over baselines `x′`, noisy copies `x̃` and `u` between 0 and 1, summed
/// over channels.
///
/// Copy number `i` is drawn from the seed and `i` alone.
#[derive(Clone, Debug, PartialEq)]
pub struct GradientShap {
    /// Random points for each image.
    pub samples: usize,
    /// The noise on the image.
    pub strength: Strength,
    /// The baselines: where images are given, one of them is drawn for each point, whichever sample it is for.
    pub baseline: Baseline,
    /// Which random numbers.
    pub seed: u64,
    /// Points computed at once.
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
    fn prepare(&self, target: &NetworkLayer<'_>, engine: &dyn Engine) -> Result<Box<dyn PreparedMethod>> {
        self.strength.check()?;
        check_samples(self.samples, 1)?;
        if target.layer.is_some() {
            return Err(Error::argument(
                "GradientSHAP is computed at the image; integrated-gradients takes a layer",
            ));
        }
        let scorer = Scorer::gradients(target, engine, self.batch)?;
        Ok(Box::new(Points { method: self.clone(), scorer }))
    }
}

/// Random points, ready to be asked about.
struct Points {
    method: GradientShap,
    scorer: Scorer,
}

/// What a point is made of.
struct Ends<'a> {
    method: &'a GradientShap,
    noise: Noise,
    /// The baselines to draw from, or one for each sample.
    given: Option<Buffer<f64>>,
    own: Vec<Vec<f64>>,
}

impl Ends<'_> {
    /// The baseline of a point.
    fn start(&self, draw: Draw) -> &[f64] {
        let Some(given) = &self.given else { return &self.own[draw.sample] };
        let length = self.own[draw.sample].len();
        let count = given.len() / length.max(1);
        let pick = self.noise.stream("baseline").uniform(draw.number as u64) * count as f64;
        let pick = (pick as usize).min(count - 1);
        &given[pick * length..(pick + 1) * length]
    }

    /// Turns a copy of the image into its noisy copy.
    fn noisy(&self, draw: Draw, image: &mut [f64]) {
        self.method.strength.add(self.noise.numbered(draw.number as u64), image);
    }

    /// How far along the way the point lies.
    fn share(&self, draw: Draw) -> f64 {
        self.noise.stream("share").uniform(draw.number as u64)
    }
}

impl Points {
    fn ends(&self, stage: &Stage<'_>) -> Result<Ends<'_>> {
        let method = &self.method;
        let given = method.baseline.given(self.scorer.image())?.map(|images| images.to_f64());
        let own = match given {
            Some(_) => vec![vec![0.0; self.scorer.layout().len()]; stage.samples()],
            None => self.scorer.starts(stage, &method.baseline)?,
        };
        Ok(Ends { method, noise: Noise::new(method.seed).stream("gradient shap"), given, own })
    }
}

impl PreparedMethod for Points {
    fn attribute(&self, batch: &ExplainBatch<'_>, classes: &[usize]) -> Result<Attributions> {
        let stage = self.scorer.stage(batch, classes)?;
        let ends = self.ends(&stage)?;
        let length = self.scorer.layout().len();
        let mut mean = vec![vec![0.0; length]; stage.samples()];
        let count = self.method.samples;
        let mut end = vec![0.0; length];
        self.scorer.ask(
            &stage,
            &vec![count; stage.samples()],
            |draw, image| {
                ends.noisy(draw, image);
                let share = ends.share(draw);
                let start = ends.start(draw);
                image.iter_mut().zip(start).for_each(|(v, start)| *v = start + share * (*v - start));
            },
            |draw, answer| {
                end.copy_from_slice(stage.value(draw.sample));
                ends.noisy(draw, &mut end);
                let way = end.iter().zip(ends.start(draw)).map(|(end, start)| end - start);
                let mean = mean[draw.sample].iter_mut();
                for ((mean, way), slope) in mean.zip(way).zip(answer.gradient) {
                    *mean += way * slope / count as f64;
                }
            },
        )?;
        let values = Tensor::new(batch_of(stage.samples(), self.scorer.layout().dims()), mean.concat())?;
        Ok(Attributions { values, diagnostics: Vec::new() })
    }

    fn attributed_layer(&self) -> AttributedLayer {
        AttributedLayer { layer: None, channels: Some(Reduction::Sum) }
    }
}
