//! AblationCAM: the channels of a layer, each weighted by how much the score falls without it.

use monosplit_engine::Engine;
use monosplit_graph::{Result, Tensor};

use super::score_cam::weighted;
use crate::explain_batch::ExplainBatch;
use crate::method::{
    AttributedLayer, Attributions, DefaultLayer, Method, MultiPass, NetworkLayer, PreparedMethod, Procedure,
};
use crate::network_partition::batch_of;
use crate::scorer::{BATCH, Scorer};

/// How far below everything else an ablated channel lies where grad-cam takes it below.
const BELOW: f64 = 1e7;

/// `Σ_c w_c a_c` with `w_c = (f(x) − f(x without channel c)) / f(x)`. Only the network above the layer is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AblationCam {
    /// What an ablated channel becomes.
    pub ablated: Ablated,
    /// Whether what is below zero becomes zero.
    pub rectified: bool,
    /// Channels computed at once.
    pub batch: usize,
}

/// What an ablated channel becomes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ablated {
    /// Zero, as the paper has it.
    #[default]
    Zero,
    /// Zero where the layer's least value is zero, else far below it: the grad-cam package's way for layers that are
    /// not behind a ReLU. (The package lets channels of one batch sink one below the other; here each is the same.)
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
    fn prepare(&self, target: &NetworkLayer<'_>, engine: &dyn Engine) -> Result<Box<dyn PreparedMethod>> {
        let scorer = Scorer::scores(target, engine, self.batch)?;
        Ok(Box::new(Channels { method: self.clone(), scorer, layer: target.layer.map(str::to_owned) }))
    }
}

/// Channels, ready to be taken away.
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
