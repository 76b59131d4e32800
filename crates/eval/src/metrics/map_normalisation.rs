//! What is done to a map before it is judged: divided by its largest size, and stripped of its sign, in this order.

use monosplit_graph::{Options, Result};

/// What is done to a map before it is judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapNormalisation {
    /// Whether the map is divided by its largest absolute value, so that it lies between −1 and 1.
    pub normalise: bool,
    /// Whether the sign is dropped, after that.
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

    /// The treated map. One of zeros stays as it is.
    pub(crate) fn of(self, map: &[f64]) -> Vec<f64> {
        let largest = map.iter().fold(0.0f64, |largest, value| largest.max(value.abs()));
        let divisor = if self.normalise && largest > 0.0 { largest } else { 1.0 };
        let treated = |value: &f64| {
            let value = value / divisor;
            if self.absolute { value.abs() } else { value }
        };
        map.iter().map(treated).collect()
    }
}
