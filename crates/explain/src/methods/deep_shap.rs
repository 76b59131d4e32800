//! DeepSHAP: DeepLIFT averaged over several baselines.

use monosplit_engine::Engine;
use monosplit_graph::batch::{repeated, rows};
use monosplit_graph::op::Reduction;
use monosplit_graph::{Data, Error, Noise, Result, Tensor};

use super::{DeepLift, PoolChange};
use crate::explain_batch::{Class, ExplainBatch};
use crate::explainer::Explainer;
use crate::explanation_graph::inputs;
use crate::finish::{ChannelReduction, Finish};
use crate::method::{
    AttributedLayer, Attributions, Diagnostic, GraphMethod, MapRequest, Method, MultiPass, NetworkLayer,
    PreparedMethod, Procedure,
};
use crate::reference::ReferenceImage;

/// The baseline images.
#[derive(Clone, Debug, PartialEq)]
pub enum Baselines {
    /// Images of normally distributed noise with mean 0 and variance 1, which is about the distribution of normalised images.
    Noise {
        /// The number of images.
        count: usize,
        /// The seed of the noise.
        seed: u64,
    },
    /// These images, `[K, …]`.
    Images(Tensor),
}

impl Default for Baselines {
    fn default() -> Self {
        Baselines::Noise { count: 8, seed: 0 }
    }
}

/// The mean of [`DeepLift`] over baselines; sum over channels.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeepShap {
    /// The baseline images.
    pub baselines: Baselines,
    /// The rule for max pooling.
    pub pool: PoolChange,
}

impl Method for DeepShap {
    fn name(&self) -> String {
        "deepshap".into()
    }

    fn procedure(&self) -> Procedure<'_> {
        Procedure::MultiPass(self)
    }
}

impl MultiPass for DeepShap {
    fn unrolled(&self) -> Option<&dyn GraphMethod> {
        Some(self)
    }

    fn prepare(&self, target: &NetworkLayer<'_>, engine: &dyn Engine) -> Result<Box<dyn PreparedMethod>> {
        let count = self.count()?;
        let lift = DeepLift { baseline: ReferenceImage::Given, pool: self.pool };
        let layer = target.layer.map(str::to_owned);
        let request = MapRequest::of(std::sync::Arc::new(lift), layer.clone())
            .finish(Finish { channels: ChannelReduction::Keep, ..Finish::default() });
        Ok(Box::new(Averaging {
            baselines: self.baselines.clone(),
            count,
            lift: Explainer::new(target.network, &[request], engine)?,
            scores: Explainer::new(target.network, &[], engine)?,
            layer,
        }))
    }
}

/// DeepSHAP compiled: DeepLIFT run for one baseline after the other.
struct Averaging {
    baselines: Baselines,
    count: usize,
    lift: Explainer,
    scores: Explainer,
    layer: Option<String>,
}

impl DeepShap {
    /// The number of baselines; an error if there are none.
    pub(crate) fn count(&self) -> Result<usize> {
        let count = match &self.baselines {
            Baselines::Noise { count, .. } => *count,
            Baselines::Images(images) => images.shape().first().copied().unwrap_or(0),
        };
        if count == 0 {
            return Err(Error::argument("DeepSHAP needs at least one baseline"));
        }
        Ok(count)
    }
}

impl Baselines {
    /// Baseline number `index` for images of these axes, `[1, …]`.
    pub(crate) fn image(&self, index: usize, dims: &[usize]) -> Result<Tensor> {
        let one: Vec<usize> = [&[1], dims].concat();
        match self {
            Baselines::Noise { seed, .. } => {
                let noise = Noise::new(*seed).stream("baseline").numbered(index as u64);
                let values = (0..one.iter().product::<usize>()).map(|i| noise.gaussian(i as u64) as f32);
                Tensor::new(one, values.collect::<Vec<f32>>())
            }
            Baselines::Images(all) => {
                let baseline = rows(all, index..index + 1)?;
                if baseline.shape() != one {
                    let found = all.shape();
                    return Err(Error::shape(format!(
                        "expected baselines of shape [K] + {dims:?}, found {found:?}"
                    )));
                }
                Ok(baseline)
            }
        }
    }
}

impl PreparedMethod for Averaging {
    fn attribute(&self, batch: &ExplainBatch<'_>, classes: &[usize]) -> Result<Attributions> {
        let class = Class::PerSample(classes.to_vec());
        let mut sums: Vec<f64> = Vec::new();
        let (mut shape, mut single) = (Vec::new(), true);
        let mut rise = vec![0.0; classes.len()];
        for index in 0..self.count {
            let baseline = self.baselines.image(index, batch.images.shape().get(1..).unwrap_or(&[]))?;
            let mut given = batch.other_inputs.to_vec();
            given.push((inputs::BASELINE, baseline.clone()));
            let found =
                self.lift.explain_batch(&ExplainBatch { class: &class, other_inputs: &given, ..*batch })?;
            let values = &found.maps[0].values;
            sums.resize(values.len(), 0.0);
            sums.iter_mut().zip(values.to_f64().iter()).for_each(|(sum, value)| *sum += value);
            (shape, single) = (values.shape().to_vec(), matches!(values.data(), Data::F32(_)));
            let top = Class::Top;
            // Other inputs may be given, and a choice held, for each sample; else the scores of one are those of all.
            let count = if batch.other_inputs.is_empty() { 1 } else { classes.len() };
            let baselines = repeated(&baseline, count)?;
            let before = ExplainBatch { images: &baselines, class: &top, ..*batch };
            let before = self.scores.explain_batch(&before)?.logits;
            let (after, before) = (found.logits.to_f64(), before.to_f64());
            let scores = after.len() / classes.len().max(1);
            for (row, (rise, &class)) in rise.iter_mut().zip(classes).enumerate() {
                *rise += after[row * scores + class] - before[row % count * scores + class];
            }
            batch.progress.advance(index + 1, self.count)?;
        }
        let mean = |sum: f64| sum / self.count as f64;
        let per_sample = sums.len() / classes.len().max(1);
        let gap = |(row, rise): (usize, &f64)| {
            let found: f64 = sums[row * per_sample..(row + 1) * per_sample].iter().sum();
            mean(found - rise)
        };
        let gaps: Vec<f64> = rise.iter().enumerate().map(gap).collect();
        let values = match single {
            true => Tensor::new(shape, sums.iter().map(|&sum| mean(sum) as f32).collect::<Vec<f32>>())?,
            false => Tensor::new(shape, sums.iter().map(|&sum| mean(sum)).collect::<Vec<f64>>())?,
        };
        let diagnostics = match self.layer {
            None => vec![Diagnostic { name: "completeness gap", values: gaps }],
            Some(_) => Vec::new(),
        };
        Ok(Attributions { values, diagnostics })
    }

    fn attributed_layer(&self) -> AttributedLayer {
        AttributedLayer { layer: self.layer.clone(), channels: Some(Reduction::Sum) }
    }
}
