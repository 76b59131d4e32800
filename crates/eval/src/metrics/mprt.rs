//! The model parameter randomisation test: whether a map depends on what the network has learnt.

use monosplit_graph::{Options, Result};

use super::map_normalisation::MapNormalisation;
use super::preset::MetricPreset;
use crate::case_arrays::{CaseArrays, MeasureError, measured, plane, undefined};
use crate::metric::{Better, Case, Metric, Undefined};
use crate::similarity::Similarity;

/// The similarity of the map to those of networks with more and more layers re-initialised.
#[derive(Clone, Debug, PartialEq)]
pub struct Mprt {
    /// The similarity of two maps.
    pub similarity: Similarity,
    /// How the similarities are summarised.
    pub summary: SimilaritySummary,
    /// Whether the mean includes the similarity of the map to itself, which is 1, as Quantus's does.
    pub itself: bool,
    /// How all maps are normalised.
    pub normalisation: MapNormalisation,
}

/// How several similarities are summarised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimilaritySummary {
    /// The mean of all.
    Average,
    /// The last one: the most layers re-initialised.
    Last,
}

impl Mprt {
    /// The options of a published protocol.
    pub fn preset(preset: MetricPreset) -> Self {
        Mprt {
            similarity: Similarity::Spearman,
            summary: SimilaritySummary::Average,
            itself: preset != MetricPreset::Paper,
            normalisation: MapNormalisation::ABSOLUTE,
        }
    }

    pub(crate) fn read(options: &mut Options) -> Result<Self> {
        let preset = Self::preset(MetricPreset::read(options, MetricPreset::Paper)?);
        let summaries = [("average", SimilaritySummary::Average), ("last", SimilaritySummary::Last)];
        Ok(Mprt {
            similarity: preset.similarity.read(options)?,
            summary: options.one_of("summary", preset.summary, &summaries)?,
            itself: preset.itself,
            normalisation: preset.normalisation.read(options)?,
        })
    }

    /// The similarity of two maps of `height` rows.
    pub fn compare(
        &self,
        map: &[f64],
        randomised: &[f64],
        height: usize,
    ) -> std::result::Result<f64, Undefined> {
        self.similarity.of(&self.normalisation.of(map), &self.normalisation.of(randomised), height)
    }

    fn value(&self, case: &Case<'_>) -> Result<f64, MeasureError> {
        let arrays = CaseArrays::of(case)?;
        let maps = case.network.randomised_maps(case.image, case.class, case.seed)?;
        let maps = maps.filter(|maps| !maps.is_empty());
        let mut maps = maps.ok_or_else(|| undefined("there are no re-initialised networks"))?;
        if self.summary == SimilaritySummary::Last {
            maps.drain(..maps.len() - 1);
        }
        let mut sum = 0.0;
        for map in &maps {
            let map = plane(map, arrays.height, arrays.width)?;
            sum += self.compare(&arrays.map, &map, arrays.height).map_err(MeasureError::Undefined)?;
        }
        let itself = self.itself && self.summary == SimilaritySummary::Average;
        Ok((sum + f64::from(u8::from(itself))) / (maps.len() + usize::from(itself)) as f64)
    }
}

impl Metric for Mprt {
    fn name(&self) -> &str {
        "mprt"
    }

    fn better(&self) -> Better {
        Better::Lower
    }

    fn recomputes_maps(&self) -> bool {
        true
    }

    fn measure(&self, case: &Case<'_>) -> Result<std::result::Result<f64, Undefined>> {
        measured(self.value(case))
    }
}
