//! Ablation-CAM: the channels of a layer, each weighted by the drop of the score when it is ablated.

use monosplit_engine::Engine;
use monosplit_graph::{Result, Tensor};

use super::score_cam::weighted;
use crate::explain_batch::ExplainBatch;
use crate::method::{
    AttributedLayer, Attributions, DefaultLayer, GraphMethod, Method, MultiPass, NetworkLayer,
    PreparedMethod, Procedure,
};
use crate::network_partition::batch_of;
use crate::scorer::{BATCH, Scorer};

/// The distance of an ablated channel below the least value, as in the grad-cam package.
pub(crate) const BELOW: f64 = 1e7;

/// `Σ_c w_c a_c` with `w_c = (f(x) − f(x without channel c)) / f(x)`. Only the part of the network after the layer is run for
/// each channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AblationCam {
    /// The value of an ablated channel.
    pub ablated: Ablated,
    /// Whether negative values of the map are set to zero.
    pub rectified: bool,
    /// The number of channels in a batch.
    pub batch: usize,
}

/// The value of an ablated channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ablated {
    /// Zero, as in the paper.
    #[default]
    Zero,
    /// Zero if the least value of the layer is zero, else far below that value: what the grad-cam package does for layers that
    /// do not follow a ReLU. (In the package the value decreases from channel to channel of a batch; here it is the same for
    /// all.)
    BelowLeast,
}

impl Default for AblationCam {
    fn default() -> Self {
        AblationCam { ablated: Ablated::default(), rectified: true, batch: BATCH }
    }
}

impl Method for AblationCam {
    fn name(&self) -> String {
        "ablationcam".into()
    }

    fn procedure(&self) -> Procedure<'_> {
        Procedure::MultiPass(self)
    }

    fn default_layer(&self) -> DefaultLayer {
        DefaultLayer::LastFeatures
    }
}

impl MultiPass for AblationCam {
    fn unrolled(&self) -> Option<&dyn GraphMethod> {
        Some(self)
    }

    fn prepare(&self, target: &NetworkLayer<'_>, engine: &dyn Engine) -> Result<Box<dyn PreparedMethod>> {
        let scorer = Scorer::scores(target, engine, self.batch)?;
        Ok(Box::new(Channels { method: self.clone(), scorer, layer: target.layer.map(str::to_owned) }))
    }
}

/// Ablation-CAM compiled for a layer.
struct Channels {
    method: AblationCam,
    scorer: Scorer,
    layer: Option<String>,
}

impl PreparedMethod for Channels {
    fn attribute(&self, batch: &ExplainBatch<'_>, classes: &[usize]) -> Result<Attributions> {
        let cut_values = self.scorer.cut_values(batch, classes)?;
        let layout = self.scorer.layout();
        let samples = 0..cut_values.samples();
        let levels: Vec<f64> = samples
            .map(|sample| match self.method.ablated {
                Ablated::Zero => 0.0,
                Ablated::BelowLeast => {
                    let least = cut_values.value(sample).iter().copied().fold(f64::INFINITY, f64::min);
                    if least == 0.0 { 0.0 } else { least - BELOW }
                }
            })
            .collect();
        let mut whole = vec![0.0; cut_values.samples()];
        let mut weights = vec![vec![0.0; layout.channels()]; cut_values.samples()];
        self.scorer.run_perturbed(
            &cut_values,
            &vec![layout.channels() + 1; cut_values.samples()],
            |perturbation, value| {
                let Some(channel) = perturbation.number.checked_sub(1) else { return };
                let positions = 0..layout.position_count();
                positions.for_each(|position| {
                    value[layout.element(channel, position)] = levels[perturbation.sample]
                });
            },
            |perturbation, output| match perturbation.number.checked_sub(1) {
                None => whole[perturbation.sample] = output.score(),
                Some(channel) => {
                    let whole = whole[perturbation.sample];
                    weights[perturbation.sample][channel] = (whole - output.score()) / whole;
                }
            },
        )?;
        let each = weights.iter().enumerate();
        let found = each.flat_map(|(sample, weights)| {
            weighted(layout, cut_values.value(sample), weights, self.method.rectified)
        });
        let values =
            Tensor::new(batch_of(cut_values.samples(), layout.spatial_dims()), found.collect::<Vec<f64>>())?;
        Ok(Attributions { values, diagnostics: Vec::new() })
    }

    fn attributed_layer(&self) -> AttributedLayer {
        AttributedLayer { layer: self.layer.clone(), channels: None }
    }
}
