//! Integrated Gradients: the gradient averaged along the straight line from a baseline to the image, times their difference.

use monosplit_engine::Engine;
use monosplit_graph::op::Reduction;
use monosplit_graph::{Result, Tensor};

use crate::baseline::Baseline;
use crate::explain_batch::ExplainBatch;
use crate::method::{
    AttributedLayer, Attributions, Diagnostic, GraphMethod, Method, MultiPass, NetworkLayer, PreparedMethod,
    Procedure,
};
use crate::network_partition::batch_of;
use crate::quadrature::Quadrature;
use crate::scorer::{BATCH, Scorer};

/// `(x − x′) ⊙ ∫₀¹ ∇f(x′ + α(x − x′)) dα`, summed over channels.
///
/// At a layer, the path runs between the values of the layer for the baseline and for the image. All other values that the class
/// scores depend on are those of the image.
#[derive(Clone, Debug, PartialEq)]
pub struct IntegratedGradients {
    /// Points along the path.
    pub steps: usize,
    /// The quadrature rule.
    pub quadrature: Quadrature,
    /// The start of the path.
    pub baseline: Baseline,
    /// The number of points in a batch.
    pub batch: usize,
}

impl Default for IntegratedGradients {
    fn default() -> Self {
        IntegratedGradients {
            steps: 50,
            quadrature: Quadrature::default(),
            baseline: Baseline::default(),
            batch: BATCH,
        }
    }
}

impl Method for IntegratedGradients {
    fn name(&self) -> String {
        "integrated-gradients".into()
    }

    fn procedure(&self) -> Procedure<'_> {
        Procedure::MultiPass(self)
    }

    fn baseline_array(&self) -> Option<&Tensor> {
        self.baseline.array()
    }

    fn with_baseline_array(&self, baseline: Tensor) -> Option<std::sync::Arc<dyn Method>> {
        let baseline = Baseline::Images(baseline);
        Some(std::sync::Arc::new(IntegratedGradients { baseline, ..self.clone() }))
    }
}

impl MultiPass for IntegratedGradients {
    fn unrolled(&self) -> Option<&dyn GraphMethod> {
        Some(self)
    }

    fn prepare(&self, target: &NetworkLayer<'_>, engine: &dyn Engine) -> Result<Box<dyn PreparedMethod>> {
        Ok(Box::new(Path {
            nodes: self.quadrature.nodes(self.steps)?,
            baseline: self.baseline.clone(),
            scorer: Scorer::gradients(target, engine, self.batch)?,
            layer: target.layer.map(str::to_owned),
        }))
    }
}

/// Integrated Gradients compiled for a layer.
struct Path {
    nodes: Vec<(f64, f64)>,
    baseline: Baseline,
    scorer: Scorer,
    layer: Option<String>,
}

impl PreparedMethod for Path {
    fn attribute(&self, batch: &ExplainBatch<'_>, classes: &[usize]) -> Result<Attributions> {
        let (scorer, steps) = (&self.scorer, self.nodes.len());
        let cut_values = scorer.cut_values(batch, classes)?;
        let starts = scorer.baseline_values(&cut_values, &self.baseline)?;
        let mut mean = vec![vec![0.0; scorer.layout().len()]; cut_values.samples()];
        let mut rise = vec![0.0; cut_values.samples()];
        // After the points of the quadrature come the two ends: the attributions should add up to the difference of their scores.
        scorer.run_perturbed(
            &cut_values,
            &vec![steps + 2; cut_values.samples()],
            |perturbation, value| {
                let start = &starts[perturbation.sample];
                match self.nodes.get(perturbation.number) {
                    Some((alpha, _)) => {
                        value.iter_mut().zip(start).for_each(|(v, &start)| *v = start + alpha * (*v - start));
                    }
                    None if perturbation.number == steps => value.copy_from_slice(start),
                    None => {}
                }
            },
            |perturbation, output| match self.nodes.get(perturbation.number) {
                Some((_, weight)) => {
                    let mean = mean[perturbation.sample].iter_mut();
                    mean.zip(output.gradient).for_each(|(mean, slope)| *mean += weight * slope);
                }
                None if perturbation.number == steps => rise[perturbation.sample] -= output.score(),
                None => rise[perturbation.sample] += output.score(),
            },
        )?;
        let mut gaps = Vec::with_capacity(cut_values.samples());
        for (sample, mean) in mean.iter_mut().enumerate() {
            let way = cut_values.value(sample).iter().zip(&starts[sample]).map(|(end, start)| end - start);
            mean.iter_mut().zip(way).for_each(|(mean, way)| *mean *= way);
            gaps.push(mean.iter().sum::<f64>() - rise[sample]);
        }
        let values = Tensor::new(batch_of(cut_values.samples(), scorer.layout().dims()), mean.concat())?;
        Ok(Attributions { values, diagnostics: vec![Diagnostic { name: "completeness gap", values: gaps }] })
    }

    fn attributed_layer(&self) -> AttributedLayer {
        AttributedLayer { layer: self.layer.clone(), channels: Some(Reduction::Sum) }
    }
}
