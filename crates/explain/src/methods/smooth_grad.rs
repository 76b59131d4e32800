//! SmoothGrad and VarGrad: the mean and the variance of the gradient under noise on the image.

use monosplit_engine::Engine;
use monosplit_graph::op::Reduction;
use monosplit_graph::{Error, Noise, Result, Tensor};

use crate::explain_batch::ExplainBatch;
use crate::method::{
    AttributedLayer, Attributions, GraphMethod, Method, MultiPass, NetworkLayer, PreparedMethod, Procedure,
};
use crate::network_partition::batch_of;
use crate::scorer::{BATCH, Scorer};

/// The largest number of noisy copies accepted.
const MOST_SAMPLES: usize = 100_000;

/// The standard deviation of noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Strength {
    /// This number, in the units of the preprocessed image.
    Deviation(f64),
    /// This fraction of the range of an image's values.
    Share(f64),
}

impl Default for Strength {
    fn default() -> Self {
        Strength::Deviation(1.0)
    }
}

impl Strength {
    /// Fails if it is negative or not a number.
    pub(crate) fn check(self) -> Result<()> {
        let (Strength::Deviation(number) | Strength::Share(number)) = self;
        if number.is_finite() && number >= 0.0 {
            return Ok(());
        }
        Err(Error::argument(format!("noise of strength {number}: expected a number from 0 on")))
    }

    /// The standard deviation for an image.
    pub(crate) fn deviation(self, image: &[f64]) -> f64 {
        match self {
            Strength::Deviation(deviation) => deviation,
            Strength::Share(share) => {
                let greatest = image.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let least = image.iter().copied().fold(f64::INFINITY, f64::min);
                share * (greatest - least)
            }
        }
    }

    /// Adds the noise of the stream to a copy of an image.
    pub(crate) fn add(self, noise: Noise, image: &mut [f64]) {
        let deviation = self.deviation(image);
        if deviation != 0.0 {
            image.iter_mut().enumerate().for_each(|(i, v)| *v += deviation * noise.gaussian(i as u64));
        }
    }
}

/// The mean of the gradient over noisy copies of the image; mean over channels.
///
/// The noise of copy number `i` depends on the seed and `i` alone.
#[derive(Clone, Debug, PartialEq)]
pub struct SmoothGrad {
    /// The number of noisy copies of each image.
    pub samples: usize,
    /// The strength of the noise.
    pub strength: Strength,
    /// What is averaged.
    pub of: Smoothed,
    /// The seed of the random numbers.
    pub seed: u64,
    /// The number of copies in a batch.
    pub batch: usize,
}

/// What is averaged over noisy copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Smoothed {
    /// The gradient.
    #[default]
    Gradient,
    /// Its magnitude, element by element.
    Magnitude,
    /// Its square.
    Square,
}

impl Default for SmoothGrad {
    fn default() -> Self {
        SmoothGrad {
            samples: 5,
            strength: Strength::default(),
            of: Smoothed::default(),
            seed: 0,
            batch: BATCH,
        }
    }
}

impl Method for SmoothGrad {
    fn name(&self) -> String {
        "smoothgrad".into()
    }

    fn procedure(&self) -> Procedure<'_> {
        Procedure::MultiPass(self)
    }
}

impl MultiPass for SmoothGrad {
    fn unrolled(&self) -> Option<&dyn GraphMethod> {
        Some(self)
    }

    fn prepare(&self, target: &NetworkLayer<'_>, engine: &dyn Engine) -> Result<Box<dyn PreparedMethod>> {
        Ok(Box::new(NoisyGradients::new(self.clone(), None, target, engine)?))
    }
}

/// The variance of the gradient over noisy copies of the image, `E[g²] − E[g]²`; mean over channels.
#[derive(Clone, Debug, PartialEq)]
pub struct VarGrad {
    /// The number of noisy copies of each image.
    pub samples: usize,
    /// The strength of the noise.
    pub strength: Strength,
    /// The seed of the random numbers.
    pub seed: u64,
    /// The number of copies in a batch.
    pub batch: usize,
}

impl Default for VarGrad {
    fn default() -> Self {
        let SmoothGrad { samples, strength, seed, batch, .. } = SmoothGrad::default();
        VarGrad { samples, strength, seed, batch }
    }
}

impl Method for VarGrad {
    fn name(&self) -> String {
        "vargrad".into()
    }

    fn procedure(&self) -> Procedure<'_> {
        Procedure::MultiPass(self)
    }
}

impl MultiPass for VarGrad {
    fn unrolled(&self) -> Option<&dyn GraphMethod> {
        Some(self)
    }

    fn prepare(&self, target: &NetworkLayer<'_>, engine: &dyn Engine) -> Result<Box<dyn PreparedMethod>> {
        Ok(Box::new(NoisyGradients::new(self.smoothing(), Some(Variance), target, engine)?))
    }
}

impl VarGrad {
    /// The mean over the same noisy copies.
    pub(crate) fn smoothing(&self) -> SmoothGrad {
        let &VarGrad { samples, strength, seed, batch } = self;
        SmoothGrad { samples, strength, of: Smoothed::Gradient, seed, batch }
    }
}

/// The variance instead of the mean.
struct Variance;

/// SmoothGrad or VarGrad compiled for a layer.
struct NoisyGradients {
    smoothing: SmoothGrad,
    variance: Option<Variance>,
    scorer: Scorer,
    layer: Option<String>,
}

/// The running mean of a sample's gradients, and the running sum of their squared distances from it (Welford's).
struct Moments {
    mean: Vec<f64>,
    spread: Vec<f64>,
}

impl NoisyGradients {
    fn new(
        smoothing: SmoothGrad,
        variance: Option<Variance>,
        target: &NetworkLayer<'_>,
        engine: &dyn Engine,
    ) -> Result<Self> {
        smoothing.strength.check()?;
        check_samples(smoothing.samples, if variance.is_some() { 2 } else { 1 })?;
        let scorer = Scorer::gradients_behind(target, engine, smoothing.batch)?;
        Ok(NoisyGradients { smoothing, variance, scorer, layer: target.layer.map(str::to_owned) })
    }
}

/// An error unless there are as many samples as the method needs, and not too many.
pub(crate) fn check_samples(samples: usize, least: usize) -> Result<()> {
    if (least..=MOST_SAMPLES).contains(&samples) {
        return Ok(());
    }
    Err(Error::argument(format!("samples is {samples}, expected {least} to {MOST_SAMPLES} for each image")))
}

impl PreparedMethod for NoisyGradients {
    fn attribute(&self, batch: &ExplainBatch<'_>, classes: &[usize]) -> Result<Attributions> {
        let SmoothGrad { samples, strength, of, seed, .. } = self.smoothing;
        let cut_values = self.scorer.cut_values(batch, classes)?;
        let noise = Noise::new(seed).stream("noisy image");
        let mut gathered: Vec<Moments> = Vec::with_capacity(cut_values.samples());
        self.scorer.run_perturbed(
            &cut_values,
            &vec![samples; cut_values.samples()],
            |perturbation, image| strength.add(noise.numbered(perturbation.number as u64), image),
            |perturbation, output| {
                let length = output.gradient.len();
                if perturbation.number == 0 {
                    gathered.push(Moments { mean: vec![0.0; length], spread: vec![0.0; length] });
                }
                let Moments { mean, spread } = &mut gathered[perturbation.sample];
                let count = (perturbation.number + 1) as f64;
                for ((mean, spread), &slope) in mean.iter_mut().zip(spread).zip(output.gradient) {
                    let value = match of {
                        Smoothed::Gradient => slope,
                        Smoothed::Magnitude => slope.abs(),
                        Smoothed::Square => slope * slope,
                    };
                    let before = value - *mean;
                    *mean += before / count;
                    *spread += before * (value - *mean);
                }
            },
        )?;
        let found = gathered.into_iter().map(|Moments { mean, spread }| match self.variance {
            None => mean,
            Some(Variance) => spread.into_iter().map(|sum| sum / samples as f64).collect(),
        });
        let found: Vec<f64> = found.flatten().collect();
        let dims = self.scorer.gradient_dims();
        Ok(Attributions {
            values: Tensor::new(batch_of(cut_values.samples(), &dims), found)?,
            diagnostics: Vec::new(),
        })
    }

    fn attributed_layer(&self) -> AttributedLayer {
        AttributedLayer { layer: self.layer.clone(), channels: Some(Reduction::Mean) }
    }
}
