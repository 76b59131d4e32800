//! AblationCAM: the channels of a layer, each weighted by how much the score falls without it.

use monosplit_engine::Engine;
use monosplit_graph::{Result, Tensor};

use super::score_cam::weighted;
use crate::explain_batch::ExplainBatch;
use crate::method::{
    AttributedLayer, Attributions, DefaultLayer, Method, MultiPass, NetworkLayer, PreparedMethod, Procedure,
};
use crate::scorer::{BATCH, Scorer};
use crate::section::batch_of;

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
        let stage = self.scorer.stage(batch, classes)?;
        let layout = self.scorer.layout();
        let samples = 0..stage.samples();
        let levels: Vec<f64> = samples
            .map(|sample| match self.method.ablated {
                Ablated::Zero => 0.0,
                Ablated::BelowLeast => {
                    let least = stage.value(sample).iter().copied().fold(f64::INFINITY, f64::min);
                    if least == 0.0 { 0.0 } else { least - BELOW }
                }
            })
            .collect();
        let mut whole = vec![0.0; stage.samples()];
        let mut weights = vec![vec![0.0; layout.channels()]; stage.samples()];
        self.scorer.ask(
            &stage,
            &vec![layout.channels() + 1; stage.samples()],
            |draw, value| {
                let Some(channel) = draw.number.checked_sub(1) else { return };
                let places = 0..layout.place_count();
                places.for_each(|place| value[layout.element(channel, place)] = levels[draw.sample]);
            },
            |draw, answer| match draw.number.checked_sub(1) {
                None => whole[draw.sample] = answer.score(),
                Some(channel) => {
                    let whole = whole[draw.sample];
                    weights[draw.sample][channel] = (whole - answer.score()) / whole;
                }
            },
        )?;
        let each = weights.iter().enumerate();
        let found = each.flat_map(|(sample, weights)| {
            weighted(layout, stage.value(sample), weights, self.method.rectified)
        });
        let values = Tensor::new(batch_of(stage.samples(), layout.places()), found.collect::<Vec<f64>>())?;
        Ok(Attributions { values, diagnostics: Vec::new() })
    }

    fn attributed_layer(&self) -> AttributedLayer {
        AttributedLayer { layer: self.layer.clone(), channels: None }
    }
}
