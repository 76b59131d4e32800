//! Score-CAM: the channels of a layer, each weighted by the score of the image masked with it.

use monosplit_engine::Engine;
use monosplit_graph::{Error, Result, Tensor};

use crate::bilinear::{Tap, corners, enlarged, half_pixel};
use crate::explain_batch::ExplainBatch;
use crate::method::{
    AttributedLayer, Attributions, DefaultLayer, GraphMethod, Method, MultiPass, NetworkLayer,
    PreparedMethod, Procedure,
};
use crate::network_partition::{PrefixProgram, batch_of, resolve_layer};
use crate::sample_layout::SampleLayout;
use crate::scorer::{BATCH, Scorer};

/// Avoids a division by zero for constant channels, as in the grad-cam package.
pub(crate) const SPAN: f64 = 1e-8;

/// `Σ_c w_c a_c` with `w = softmax_c f(x ⊙ m_c)`, where the mask `m_c` is channel `c` enlarged to the image and brought
/// to [0, 1].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScoreCam {
    /// Which of the two definitions.
    pub definition: Definition,
    /// Whether negative values of the map are set to zero.
    pub rectified: bool,
    /// The number of channels in a batch.
    pub batch: usize,
}

/// The two definitions of Score-CAM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Definition {
    /// The grad-cam package's: `f` is the class score; masks are enlarged with their corners on those of the image.
    #[default]
    GradCam,
    /// The paper's: `f` is the increase of the class's probability over that of the empty image; masks are enlarged with
    /// half-pixel centres, and constant channels are left out.
    Paper,
}

impl Default for ScoreCam {
    fn default() -> Self {
        ScoreCam { definition: Definition::default(), rectified: true, batch: BATCH }
    }
}

impl Method for ScoreCam {
    fn name(&self) -> String {
        "scorecam".into()
    }

    fn procedure(&self) -> Procedure<'_> {
        Procedure::MultiPass(self)
    }

    fn default_layer(&self) -> DefaultLayer {
        DefaultLayer::LastFeatures
    }
}

impl MultiPass for ScoreCam {
    fn unrolled(&self) -> Option<&dyn GraphMethod> {
        Some(self)
    }

    fn prepare(&self, target: &NetworkLayer<'_>, engine: &dyn Engine) -> Result<Box<dyn PreparedMethod>> {
        let (network, at, layout) = resolve_layer(target)?;
        let scorer = Scorer::scores(&NetworkLayer { layer: None, ..*target }, engine, self.batch)?;
        check_layouts(&layout, scorer.layout())?;
        let (from, to) = (layout.spatial_dims(), scorer.layout().spatial_dims());
        let along = match self.definition {
            Definition::GradCam => corners,
            Definition::Paper => half_pixel,
        };
        let taps = from.iter().zip(to).map(|(&from, &to)| along(from, to)).collect();
        let features = PrefixProgram::new(&network, &[at], engine)?;
        let layer = target.layer.map(str::to_owned);
        Ok(Box::new(Channels { method: self.clone(), features, layout, taps, scorer, layer }))
    }
}

/// An error if the channels of the layer cannot be masks of the input.
pub(crate) fn check_layouts(layer: &SampleLayout, input: &SampleLayout) -> Result<()> {
    if layer.spatial_dims().len() == input.spatial_dims().len() && !layer.is_table() && !input.is_table() {
        return Ok(());
    }
    Err(Error::shape(format!(
        "Score-CAM masks the input with the channels of a layer, but one sample of the layer has the shape {:?} and one of \
         the input {:?}; name a layer with as many spatial axes as the input, or choose another method",
        layer.dims(),
        input.dims()
    )))
}

/// Score-CAM compiled for a layer.
struct Channels {
    method: ScoreCam,
    features: PrefixProgram,
    layout: SampleLayout,
    taps: Vec<Vec<Tap>>,
    scorer: Scorer,
    layer: Option<String>,
}

impl Channels {
    /// The mask of a channel of a sample; none if the channel is constant and left out.
    fn mask(&self, features: &[f64], channel: usize) -> Option<Vec<f64>> {
        let positions = 0..self.layout.position_count();
        let map: Vec<f64> =
            positions.map(|position| features[self.layout.element(channel, position)]).collect();
        let mut mask = enlarged(&map, self.layout.spatial_dims(), &self.taps);
        let least = mask.iter().copied().fold(f64::INFINITY, f64::min);
        let span = mask.iter().copied().fold(f64::NEG_INFINITY, f64::max) - least;
        let span = match self.method.definition {
            Definition::GradCam => span + SPAN,
            Definition::Paper if span > 0.0 => span,
            Definition::Paper => return None,
        };
        mask.iter_mut().for_each(|v| *v = (*v - least) / span);
        Some(mask)
    }

    /// The weights of the channels, from the outputs for each.
    fn weights(&self, measured: &[Option<f64>]) -> Vec<f64> {
        let largest = measured.iter().flatten().copied().fold(f64::NEG_INFINITY, f64::max);
        let powers: Vec<f64> = measured.iter().map(|m| m.map_or(0.0, |m| (m - largest).exp())).collect();
        let total: f64 = powers.iter().sum();
        powers.into_iter().map(|power| if total > 0.0 { power / total } else { 0.0 }).collect()
    }
}

impl PreparedMethod for Channels {
    fn attribute(&self, batch: &ExplainBatch<'_>, classes: &[usize]) -> Result<Attributions> {
        let features = self.features.values(batch)?.swap_remove(0).to_f64();
        let of = |sample: usize| &features[sample * self.layout.len()..(sample + 1) * self.layout.len()];
        let cut_values = self.scorer.cut_values(batch, classes)?;
        let (image, channels) = (self.scorer.layout(), self.layout.channels());
        let mut measured = vec![vec![None; channels]; cut_values.samples()];
        self.scorer.run_perturbed(
            &cut_values,
            &vec![channels; cut_values.samples()],
            |perturbation, pixels| match self.mask(of(perturbation.sample), perturbation.number) {
                Some(mask) => pixels.iter_mut().enumerate().for_each(|(i, v)| *v *= mask[image.position(i)]),
                None => pixels.fill(0.0),
            },
            |perturbation, output| {
                // The score of the empty image is the same for all channels: a softmax over channels cancels it.
                measured[perturbation.sample][perturbation.number] = match self.method.definition {
                    Definition::GradCam => Some(output.score()),
                    Definition::Paper => {
                        self.mask(of(perturbation.sample), perturbation.number).map(|_| output.probability())
                    }
                };
            },
        )?;
        let each = measured.iter().enumerate();
        let found = each.flat_map(|(sample, measured)| {
            weighted(&self.layout, of(sample), &self.weights(measured), self.method.rectified)
        });
        let values = Tensor::new(
            batch_of(cut_values.samples(), self.layout.spatial_dims()),
            found.collect::<Vec<f64>>(),
        )?;
        Ok(Attributions { values, diagnostics: Vec::new() })
    }

    fn attributed_layer(&self) -> AttributedLayer {
        AttributedLayer { layer: self.layer.clone(), channels: None }
    }
}

/// `Σ_c w_c a_c` at every position of one sample.
pub(super) fn weighted(
    layout: &SampleLayout,
    features: &[f64],
    weights: &[f64],
    rectified: bool,
) -> Vec<f64> {
    let mut map = vec![0.0; layout.position_count()];
    for (element, v) in features.iter().enumerate() {
        map[layout.position(element)] += weights[layout.channel(element)] * v;
    }
    if rectified {
        map.iter_mut().for_each(|v| *v = v.max(0.0));
    }
    map
}
