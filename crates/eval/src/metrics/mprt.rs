//! The model parameter randomisation test: whether a map depends on what the network has learnt.

use monosplit_graph::{Options, Result};

use super::map_normalisation::MapNormalisation;
use super::preset::Preset;
use crate::case_arrays::{CaseArrays, MeasureError, plane, settled, silent};
use crate::metric::{Better, Case, Metric, Undefined};
use crate::similarity::Similarity;

/// How alike the map is to those of networks of which ever more layers have been re-initialised.
#[derive(Clone, Debug, PartialEq)]
pub struct Mprt {
    /// How two maps are compared.
    pub similarity: Similarity,
    /// Which of the comparisons is the value.
    pub summary: Summary,
    /// Whether the mean counts the map's likeness to itself, which is 1, as Quantus's does.
    pub itself: bool,
    /// What is done to all maps.
    pub normalisation: MapNormalisation,
}

/// Which of several comparisons is the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Summary {
    /// The mean of all.
    Average,
    /// The last one: the most layers re-initialised.
    Last,
}

impl Mprt {
    /// The numbers of a source.
    pub fn preset(preset: Preset) -> Self {
        Mprt {
            similarity: Similarity::Spearman,
            summary: Summary::Average,
            itself: preset != Preset::Paper,
            normalisation: MapNormalisation::ABSOLUTE,
        }
    }

    pub(crate) fn read(options: &mut Options) -> Result<Self> {
        let preset = Self::preset(Preset::read(options, Preset::Paper)?);
        let summaries = [("average", Summary::Average), ("last", Summary::Last)];
        Ok(Mprt {
            similarity: preset.similarity.read(options)?,
            summary: options.one_of("summary", preset.summary, &summaries)?,
            itself: preset.itself,
            normalisation: preset.normalisation.read(options)?,
        })
    }

    /// How alike a map of `height` rows is to another of the same image.
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
        let mut maps = maps.ok_or_else(|| silent("there are no re-initialised networks"))?;
        if self.summary == Summary::Last {
            maps.drain(..maps.len() - 1);
        }
        let mut sum = 0.0;
        for map in &maps {
            let map = plane(map, arrays.height, arrays.width)?;
            sum += self.compare(&arrays.map, &map, arrays.height).map_err(MeasureError::Undefined)?;
        }
        let itself = self.itself && self.summary == Summary::Average;
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

    fn measure(&self, case: &Case<'_>) -> Result<std::result::Result<f64, Undefined>> {
        settled(self.value(case))
    }
}
