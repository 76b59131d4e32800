//! The normalisation of a map before it is measured: division by its largest absolute value, then the absolute value.

use monosplit_graph::{Options, Result};

/// How a map is normalised before it is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapNormalisation {
    /// Whether the map is divided by its largest absolute value, so that it lies between −1 and 1.
    pub normalise: bool,
    /// Whether the absolute value is taken after that.
    pub absolute: bool,
}

impl MapNormalisation {
    pub(crate) const NORMALISED: MapNormalisation = MapNormalisation { normalise: true, absolute: false };
    pub(crate) const ABSOLUTE: MapNormalisation = MapNormalisation { normalise: true, absolute: true };

    pub(crate) fn read(self, options: &mut Options) -> Result<Self> {
        Ok(MapNormalisation {
            normalise: options.flag("normalise", self.normalise)?,
            absolute: options.flag("abs", self.absolute)?,
        })
    }

    /// The normalised map. A map of zeros stays as it is.
    pub(crate) fn of(self, map: &[f64]) -> Vec<f64> {
        let largest = map.iter().fold(0.0f64, |largest, value| largest.max(value.abs()));
        let divisor = if self.normalise && largest > 0.0 { largest } else { 1.0 };
        let normalised = |value: &f64| {
            let value = value / divisor;
            if self.absolute { value.abs() } else { value }
        };
        map.iter().map(normalised).collect()
    }
}
