//! KernelSHAP: Shapley values of the features of an image, by regression.

use monosplit_engine::Engine;
use monosplit_graph::{Error, Noise, Result};

use super::feature_ablation::{Parts, SegmentedBatch};
use super::lime::check_parts;
use super::rise::Measure;
use super::smooth_grad::check_samples;
use crate::baseline::Baseline;
use crate::explain_batch::ExplainBatch;
use crate::features::Features;
use crate::method::{
    AttributedLayer, Attributions, Method, MultiPass, NetworkLayer, PreparedMethod, Procedure,
};
use crate::regression::Observations;
use crate::scorer::BATCH;

/// The least-squares fit of `f(z) ≈ f(0) + z·φ` over coalitions `z` of features under the Shapley kernel
/// `(M − 1) / (C(M, k) k (M − k))`, where `k` of `M` features are present, subject to `Σ φ = f(1) − f(0)`: the Shapley values.
///
/// If there are no more than `samples` coalitions, all are evaluated and the values are exact. Otherwise coalitions are sampled in
/// proportion to the kernel; coalition number `i` depends on the seed and `i` alone.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelShap {
    /// The number of coalitions, the full and the empty one included.
    pub samples: usize,
    /// The features.
    pub features: Features,
    /// What replaces a removed feature.
    pub baseline: Baseline,
    /// The output of the network that is explained.
    pub measure: Measure,
    /// The seed of the random numbers.
    pub seed: u64,
    /// The number of copies in a batch.
    pub batch: usize,
}

impl Default for KernelShap {
    fn default() -> Self {
        KernelShap {
            samples: 1000,
            features: Features::default(),
            baseline: Baseline::default(),
            measure: Measure::Score,
            seed: 0,
            batch: BATCH,
        }
    }
}

impl Method for KernelShap {
    fn name(&self) -> String {
        "kernel-shap".into()
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
        Some(std::sync::Arc::new(KernelShap { baseline, ..self.clone() }))
    }
}

impl MultiPass for KernelShap {
    fn prepare(&self, target: &NetworkLayer<'_>, engine: &dyn Engine) -> Result<Box<dyn PreparedMethod>> {
        check_samples(self.samples, 1)?;
        let parts = Parts::in_sets(&self.features, &self.baseline, target, engine, self.batch)?;
        check_parts(&self.features, &parts)?;
        Ok(Box::new(PreparedKernelShap { method: self.clone(), parts }))
    }
}

/// The coalitions of features: first the empty one, then the full one, then the others.
enum Coalitions {
    /// Each coalition once.
    All { parts: usize },
    /// Sampled in proportion to the kernel: the cumulative probability of each number of features.
    Drawn { parts: usize, likely: Vec<f64>, noise: Noise, count: usize },
}

impl Coalitions {
    fn new(parts: usize, method: &KernelShap) -> Result<Self> {
        let all = u32::try_from(parts).ok().and_then(|parts| 1usize.checked_shl(parts));
        if all.is_some_and(|all| all <= method.samples) {
            return Ok(Coalitions::All { parts });
        }
        if method.samples < parts + 2 {
            return Err(Error::argument(format!(
                "{} samples are too few for {parts} features; at least {} are needed",
                method.samples,
                parts + 2
            )));
        }
        let mut sum = 0.0;
        let likely = (1..parts).map(|there| {
            sum += 1.0 / (there as f64 * (parts - there) as f64);
            sum
        });
        let (likely, count) = (likely.collect(), method.samples);
        Ok(Coalitions::Drawn { parts, likely, noise: Noise::new(method.seed).stream("kernel shap"), count })
    }

    /// The number of coalitions.
    fn count(&self) -> usize {
        match self {
            Coalitions::All { parts } => 1 << parts,
            Coalitions::Drawn { count, .. } => *count,
        }
    }

    /// Which features are present in coalition number `number`, as 1 and 0.
    fn present(&self, number: usize) -> Vec<f64> {
        let parts = self.parts();
        match (number, self) {
            (0, _) => vec![0.0; parts],
            (1, _) => vec![1.0; parts],
            (_, Coalitions::All { .. }) => {
                (0..parts).map(|part| f64::from((number - 1) >> part & 1 == 1)).collect()
            }
            (_, Coalitions::Drawn { likely, noise, .. }) => {
                let noise = noise.numbered(number as u64);
                let pick = noise.stream("size").uniform(0) * likely.last().copied().unwrap_or(0.0);
                let there = (likely.partition_point(|&sum| sum <= pick) + 1).min(parts.saturating_sub(1));
                let mut present = vec![0.0; parts];
                noise.permutation(parts)[..there].iter().for_each(|&part| present[part] = 1.0);
                present
            }
        }
    }

    fn parts(&self) -> usize {
        let (Coalitions::All { parts } | Coalitions::Drawn { parts, .. }) = self;
        *parts
    }

    /// The weight of a coalition that is neither full nor empty.
    fn weight(&self, present: &[f64]) -> f64 {
        match self {
            Coalitions::Drawn { .. } => 1.0,
            Coalitions::All { parts } => {
                let there = present.iter().sum::<f64>();
                let all = *parts as f64;
                let choices = (0..there as usize).fold(1.0, |n, i| n * (all - i as f64) / (i as f64 + 1.0));
                (all - 1.0) / (choices * there * (all - there))
            }
        }
    }
}

/// The regression of one sample. The value of the last feature follows from the constraint, so it is not an unknown.
struct Gathered {
    empty: f64,
    rise: f64,
    observations: Observations,
}

impl Gathered {
    fn add(&mut self, present: &[f64], y: f64, weight: f64) {
        let Some((last, others)) = present.split_last() else { return };
        let z: Vec<f64> = others.iter().map(|there| there - last).collect();
        self.observations.add(&z, y - self.empty - last * self.rise, weight);
    }

    fn shares(self) -> Vec<f64> {
        let mut shares = self.observations.solve(|_| 0.0);
        shares.push(self.rise - shares.iter().sum::<f64>());
        shares
    }
}

/// KernelSHAP compiled for an image.
struct PreparedKernelShap {
    method: KernelShap,
    parts: Parts,
}

impl PreparedMethod for PreparedKernelShap {
    fn attribute(&self, batch: &ExplainBatch<'_>, classes: &[usize]) -> Result<Attributions> {
        let segmented = self.parts.segmented(batch, classes)?;
        let SegmentedBatch { cut_values, groups, replacements } = &segmented;
        let coalitions: Vec<Coalitions> =
            groups.iter().map(|groups| Coalitions::new(groups.count, &self.method)).collect::<Result<_>>()?;
        let counts: Vec<usize> = coalitions.iter().map(Coalitions::count).collect();
        let gathered = |groups: &crate::features::Groups| Gathered {
            empty: 0.0,
            rise: 0.0,
            observations: Observations::new(groups.count.saturating_sub(1)),
        };
        let mut gathered: Vec<Gathered> = groups.iter().map(gathered).collect();
        self.parts.scorer.run_perturbed(
            cut_values,
            &counts,
            |perturbation, image| {
                let present = coalitions[perturbation.sample].present(perturbation.number);
                groups[perturbation.sample].cover(
                    |part| present[part] != 0.0,
                    &replacements[perturbation.sample],
                    image,
                );
            },
            |perturbation, output| {
                let (gathered, y) = (&mut gathered[perturbation.sample], self.method.measure.of(output));
                match perturbation.number {
                    0 => gathered.empty = y,
                    1 => gathered.rise = y - gathered.empty,
                    number => {
                        let present = coalitions[perturbation.sample].present(number);
                        gathered.add(&present, y, coalitions[perturbation.sample].weight(&present));
                    }
                }
            },
        )?;
        let found: Vec<Vec<f64>> = gathered.into_iter().map(Gathered::shares).collect();
        Ok(Attributions { values: self.parts.spread(&segmented, &found)?, diagnostics: Vec::new() })
    }

    fn attributed_layer(&self) -> AttributedLayer {
        self.parts.attributed_layer()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_coalitions_have_as_many_parts_as_the_kernel_says() {
        let coalitions = Coalitions::new(6, &KernelShap { samples: 50, ..KernelShap::default() }).unwrap();
        let mut counts = [0.0; 7];
        let trials = 20_000;
        for number in 2..trials + 2 {
            counts[coalitions.present(number).iter().sum::<f64>() as usize] += 1.0;
        }
        let kernel = |there: usize| 1.0 / (there * (6 - there)) as f64;
        let total: f64 = (1..6).map(kernel).sum();
        for (there, count) in counts.iter().enumerate().skip(1).take(5) {
            let share = count / trials as f64;
            assert!((share - kernel(there) / total).abs() < 0.015, "{there}: {share}");
        }
        assert_eq!(counts[0] + counts[6], 0.0);
    }

    #[test]
    fn all_coalitions_are_told_apart_and_too_few_samples_are_refused() {
        let coalitions = Coalitions::new(4, &KernelShap { samples: 16, ..KernelShap::default() }).unwrap();
        let features = |number| coalitions.present(number).iter().map(|&v| v as i32).collect();
        let mut seen: Vec<Vec<i32>> = (0..coalitions.count()).map(features).collect();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 16);
        assert!(Coalitions::new(20, &KernelShap { samples: 21, ..KernelShap::default() }).is_err());
        assert!(Coalitions::new(100, &KernelShap { samples: 200, ..KernelShap::default() }).is_ok());
    }
}
