//! The Pointing Game: whether the maximum of a map lies on the object.

use monosplit_graph::{Options, Result};

use super::map_normalisation::MapNormalisation;
use super::preset::MetricPreset;
use crate::case_arrays::{CaseArrays, MeasureError, is_constant, measured, undefined};
use crate::metric::{Better, Case, Metric, Undefined};

/// 1 if a maximum of the map lies in the mask, else 0. Where several places have the largest value, one of them in the mask
/// is enough, as in Quantus. A constant map points nowhere; Quantus counts it as a hit wherever there is an object.
#[derive(Clone, Debug, PartialEq)]
pub struct PointingGame {
    /// Whether a hit counts as the share of the image outside the mask.
    pub weighted: bool,
    /// How the map is normalised.
    pub normalisation: MapNormalisation,
    /// What a constant map counts as.
    pub constant: ConstantMap,
}

/// What the Pointing Game makes of a map with the same value everywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConstantMap {
    /// It has no value.
    #[default]
    Undefined,
    /// All places are maxima, so that it is a hit, as in Quantus.
    Hit,
    /// It is a miss.
    Miss,
}

impl ConstantMap {
    const NAMED: [(&str, ConstantMap); 3] =
        [("undefined", ConstantMap::Undefined), ("hit", ConstantMap::Hit), ("miss", ConstantMap::Miss)];
}

impl Default for PointingGame {
    fn default() -> Self {
        PointingGame {
            weighted: false,
            normalisation: MapNormalisation::NORMALISED,
            constant: ConstantMap::Undefined,
        }
    }
}

impl PointingGame {
    pub(crate) fn read(options: &mut Options) -> Result<Self> {
        MetricPreset::read(options, MetricPreset::Paper)?;
        let default = Self::default();
        Ok(PointingGame {
            weighted: options.flag("weighted", default.weighted)?,
            normalisation: default.normalisation.read(options)?,
            constant: options.one_of("constant", default.constant, &ConstantMap::NAMED)?,
        })
    }

    fn value(&self, case: &Case<'_>) -> Result<f64, MeasureError> {
        let arrays = CaseArrays::of(case)?;
        let mask = arrays.mask()?;
        let map = self.normalisation.of(&arrays.map);
        if map.len() > 1 && is_constant(&map) {
            match self.constant {
                ConstantMap::Undefined => return Err(undefined("a constant map points nowhere")),
                ConstantMap::Miss => return Ok(0.0),
                ConstantMap::Hit => {}
            }
        }
        let highest = map.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let hit = map.iter().zip(mask).any(|(value, inside)| *inside && *value == highest);
        let outside = mask.iter().filter(|inside| !**inside).count() as f64 / mask.len() as f64;
        Ok(if !hit {
            0.0
        } else if self.weighted {
            outside
        } else {
            1.0
        })
    }
}

impl Metric for PointingGame {
    fn name(&self) -> &str {
        "pointing-game"
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
