//! Attribution Localisation: how much of a map lies on the object.

use monosplit_graph::{Options, Result};

use super::map_normalisation::MapNormalisation;
use super::preset::MetricPreset;
use super::share_rule::ShareRule;
use crate::case_arrays::{CaseArrays, MeasureError, measured};
use crate::metric::{Better, Case, Metric, Undefined};

/// `Σ_{i in the mask} a_i / Σ_i a_i`, where the share rule defines it.
#[derive(Clone, Debug, PartialEq)]
pub struct AttributionLocalisation {
    /// Added to the denominator.
    pub stabiliser: f64,
    /// Whether the ratio is multiplied by the mask's share of the image.
    pub weighted: bool,
    /// Whether negative values count as zero.
    pub positive: bool,
    /// How the map is normalised.
    pub normalisation: MapNormalisation,
    /// Where the quotient is defined.
    pub rule: ShareRule,
}

impl AttributionLocalisation {
    /// The options of a published protocol.
    pub fn preset(preset: MetricPreset) -> Self {
        AttributionLocalisation {
            stabiliser: if preset == MetricPreset::Quantus05 { 0.0 } else { 1e-9 },
            weighted: false,
            positive: false,
            normalisation: match preset {
                MetricPreset::Paper => MapNormalisation::NORMALISED,
                _ => MapNormalisation::ABSOLUTE,
            },
            rule: if preset == MetricPreset::Paper { ShareRule::Share } else { ShareRule::AtMostOne },
        }
    }

    pub(crate) fn read(options: &mut Options) -> Result<Self> {
        let preset = Self::preset(MetricPreset::read(options, MetricPreset::Paper)?);
        Ok(AttributionLocalisation {
            stabiliser: options.number("stabiliser", preset.stabiliser, 0.0..=f64::MAX)?,
            weighted: options.flag("weighted", preset.weighted)?,
            positive: options.flag("positive", preset.positive)?,
            normalisation: preset.normalisation.read(options)?,
            rule: preset.rule.read(options)?,
        })
    }

    fn value(&self, case: &Case<'_>) -> Result<f64, MeasureError> {
        let arrays = CaseArrays::of(case)?;
        let mask = arrays.mask()?;
        let mut map = self.normalisation.of(&arrays.map);
        if self.positive {
            map.iter_mut().for_each(|value| *value = value.max(0.0));
        }
        let inside: f64 = map.iter().zip(mask).filter(|(_, inside)| **inside).map(|(value, _)| value).sum();
        let ratio = self.rule.quotient(inside, map.iter().sum::<f64>() + self.stabiliser)?;
        let share = mask.iter().filter(|inside| **inside).count() as f64 / mask.len() as f64;
        Ok(if self.weighted { ratio * share } else { ratio })
    }
}

impl Metric for AttributionLocalisation {
    fn name(&self) -> &str {
        "attribution-localisation"
    }

    fn better(&self) -> Better {
        Better::Higher
    }

    fn needs_mask(&self) -> bool {
        true
    }

    fn measure(&self, case: &Case<'_>) -> Result<std::result::Result<f64, Undefined>> {
        measured(self.value(case))
    }
}
