//! From values to colours: the scale of one map, and the note that belongs beside its picture.
//!
//! Zero is always the neutral colour. Nothing is stretched to fill the colours: a map with both signs is
//! scaled by its largest magnitude, a map with one sign from zero to its extreme, and a map without
//! differences stays flat and says so.

use std::fmt;

use monosplit_graph::{Error, Result};

use crate::colour::{ColourMap, NOT_FINITE, Rgb};
use crate::number::number;
use crate::scalar_field::ScalarField;

/// The colours a map is drawn with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Palette {
    /// Both signs occur: the diverging map, symmetric about zero.
    Signed,
    /// No value is negative: the sequential map, from zero up.
    Positive,
    /// No value is positive: the negative arm of the diverging map, from zero down.
    Negative,
    /// All finite values are equal: the neutral colour throughout.
    Flat,
}

/// The note that a reader needs to understand the picture of a map.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Note {
    /// The value that all finite positions share; 0 for a map that is all zero.
    pub constant: Option<f32>,
    /// Whether there are negative values and no positive one.
    pub no_positive: bool,
    /// Number of values that are NaN or infinite.
    pub not_finite: usize,
    /// Number of values whose magnitude is beyond the end of the scale, when clipping was asked for.
    pub clipped: usize,
    total: usize,
    limit: f64,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        match self.constant {
            Some(0.0) => parts.push("all zero".into()),
            Some(value) => parts.push(format!("constant {}", number(value.into()))),
            None => {}
        }
        if self.no_positive && self.constant.is_none() {
            parts.push("no value above zero".into());
        }
        if self.not_finite > 0 {
            parts.push(format!("{} of {} values not finite (black)", self.not_finite, self.total));
        }
        if self.clipped > 0 {
            parts.push(format!("{} values clipped at magnitude {}", self.clipped, number(self.limit)));
        }
        f.write_str(&parts.join("; "))
    }
}

/// How the values of one map become colours.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    palette: Palette,
    limit: f64,
    range: (f32, f32),
    note: Option<Note>,
}

impl Scale {
    /// The scale of `map`. With `clip` the scale ends at that percentile (0 to 100, linear between values as
    /// NumPy's) of the finite values' magnitudes instead of the largest, unless it is zero; values beyond
    /// have the colour of the end, and the note counts them.
    pub fn new(map: &ScalarField, clip: Option<f64>) -> Result<Self> {
        let mut note = Note { total: map.values().len(), ..Note::default() };
        let (mut low, mut high) = (f32::INFINITY, f32::NEG_INFINITY);
        for &value in map.values() {
            if value.is_finite() {
                (low, high) = (low.min(value), high.max(value));
            } else {
                note.not_finite += 1;
            }
        }
        let range = if low <= high { (low, high) } else { (f32::NAN, f32::NAN) };
        let palette = if low < high {
            note.no_positive = high <= 0.0;
            match (low < 0.0, high > 0.0) {
                (true, true) => Palette::Signed,
                (true, false) => Palette::Negative,
                _ => Palette::Positive,
            }
        } else {
            note.constant = (low == high).then_some(low);
            note.no_positive = low < 0.0;
            Palette::Flat
        };
        let largest = f64::from(range.0.abs().max(range.1.abs()));
        let limit = clip.map_or(Ok(None), |percentile| magnitude_at(map, percentile))?;
        let limit = limit.filter(|&limit| limit > 0.0).unwrap_or(largest);
        if palette != Palette::Flat {
            let beyond = |v: &&f32| v.is_finite() && f64::from(v.abs()) > limit;
            note.clipped = map.values().iter().filter(beyond).count();
            note.limit = limit;
        }
        let ordinary =
            note.constant.is_none() && !note.no_positive && note.not_finite == 0 && note.clipped == 0;
        Ok(Scale { palette, limit, range, note: (!ordinary).then_some(note) })
    }

    /// The colours in use.
    pub fn palette(&self) -> Palette {
        self.palette
    }

    /// Smallest and largest finite value; both NaN where no value is finite.
    pub fn range(&self) -> (f32, f32) {
        self.range
    }

    /// The values at the two ends of the colours, zero being one of them unless both signs occur.
    pub fn ends(&self) -> (f64, f64) {
        match self.palette {
            Palette::Signed => (-self.limit, self.limit),
            Palette::Positive => (0.0, self.limit),
            Palette::Negative => (-self.limit, 0.0),
            Palette::Flat => (f64::from(self.range.0), f64::from(self.range.1)),
        }
    }

    /// The note beside the picture; none for an ordinary map.
    pub fn note(&self) -> Option<&Note> {
        self.note.as_ref()
    }

    /// Where `value` lies between zero (0) and the end of the scale (±1); `None` if it is not finite.
    pub fn position(&self, value: f32) -> Option<f64> {
        match self.palette {
            _ if !value.is_finite() => None,
            Palette::Flat => Some(0.0),
            _ => Some((f64::from(value) / self.limit).clamp(-1.0, 1.0)),
        }
    }

    /// The colour of `value`.
    pub fn colour(&self, value: f32) -> Rgb {
        self.position(value).map_or(NOT_FINITE, |position| self.colour_at(position))
    }

    /// The colour of a position between -1 and 1.
    pub(crate) fn colour_at(&self, position: f64) -> Rgb {
        match self.palette {
            Palette::Positive => ColourMap::Sequential.at(position),
            _ => ColourMap::Diverging.at(position),
        }
    }
}

fn magnitude_at(map: &ScalarField, percentile: f64) -> Result<Option<f64>> {
    if !(percentile > 0.0 && percentile <= 100.0) {
        return Err(Error::argument(format!(
            "a map can be clipped at a percentile above 0 and up to 100, but {percentile} was given"
        )));
    }
    let mut magnitudes: Vec<f32> = map.values().iter().filter(|v| v.is_finite()).map(|v| v.abs()).collect();
    magnitudes.sort_unstable_by(f32::total_cmp);
    let Some(last) = magnitudes.len().checked_sub(1) else {
        return Ok(None);
    };
    let place = percentile / 100.0 * last as f64;
    let low = (place.floor() as usize).min(last);
    let [below, above] = [low, (low + 1).min(last)].map(|i| f64::from(magnitudes[i]));
    Ok(Some(below + (place - low as f64) * (above - below)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(values: &[f32]) -> Scale {
        Scale::new(&ScalarField::new(values.len(), 1, values.to_vec()).unwrap(), None).unwrap()
    }

    fn said(values: &[f32]) -> String {
        scale(values).note().map(Note::to_string).unwrap_or_default()
    }

    #[test]
    fn a_map_with_both_signs_is_symmetric_about_zero() {
        let scale = scale(&[-1.0, 0.25, 4.0]);
        assert_eq!(
            (scale.palette(), scale.ends(), scale.range()),
            (Palette::Signed, (-4.0, 4.0), (-1.0, 4.0))
        );
        assert_eq!(scale.position(-1.0), Some(-0.25));
        assert_eq!(scale.colour(0.0), ColourMap::Diverging.at(0.0));
        assert_eq!(scale.colour(-4.0), ColourMap::Diverging.at(-1.0));
        assert!(scale.note().is_none());
    }

    #[test]
    fn multiplying_a_map_by_a_positive_number_changes_no_colour_and_negating_it_swaps_the_arms() {
        let values = [-0.7f32, 0.2, 1.5, 0.0, -1.25];
        let (one, many) = (scale(&values), scale(&values.map(|v| v * 1024.0)));
        let negated = scale(&values.map(|v| -v));
        for v in values {
            assert_eq!(one.colour(v), many.colour(v * 1024.0));
            assert_eq!(one.position(v), negated.position(-v).map(|p| -p));
        }
    }

    #[test]
    fn a_map_of_one_sign_runs_from_zero_to_its_extreme() {
        let positive = scale(&[1.0, 2.0]);
        assert_eq!((positive.palette(), positive.ends()), (Palette::Positive, (0.0, 2.0)));
        assert_eq!(positive.colour(1.0), ColourMap::Sequential.at(0.5));
        let negative = scale(&[-1.0, 0.0, -2.0]);
        assert_eq!((negative.palette(), negative.ends()), (Palette::Negative, (-2.0, 0.0)));
        assert_eq!(negative.colour(-1.0), ColourMap::Diverging.at(-0.5));
        assert_eq!(said(&[-1.0, 0.0]), "no value above zero");
        assert_eq!(said(&[1.0, 0.0]), "");
    }

    #[test]
    fn flat_maps_are_neutral_and_say_so() {
        let neutral = ColourMap::Diverging.at(0.0);
        for (values, words) in
            [([0.0, -0.0], "all zero"), ([0.3, 0.3], "constant 0.3"), ([-2.0, -2.0], "constant -2")]
        {
            assert_eq!(scale(&values).colour(values[0]), neutral);
            assert_eq!(said(&values), words);
        }
    }

    #[test]
    fn what_is_not_finite_is_black_and_counted_and_leaves_the_scale_alone() {
        let values = [f32::NAN, f32::INFINITY, 2.0, -1.0, f32::NEG_INFINITY];
        let scale = scale(&values);
        assert_eq!(scale.ends(), (-2.0, 2.0));
        assert_eq!(scale.colour(f32::INFINITY), NOT_FINITE);
        assert_eq!(said(&values), "3 of 5 values not finite (black)");
        assert_eq!(said(&[f32::NAN, 0.0]), "all zero; 1 of 2 values not finite (black)");
        let nothing = self::scale(&[f32::NAN]);
        assert!(nothing.range().0.is_nan() && nothing.palette() == Palette::Flat);
        assert_eq!(said(&[f32::NAN]), "1 of 1 values not finite (black)");
    }

    #[test]
    fn extreme_magnitudes_keep_their_colours() {
        for unit in [f32::MAX / 2.0, f32::from_bits(1)] {
            let scale = scale(&[-unit, 2.0 * unit]);
            assert_eq!((scale.position(-unit), scale.position(2.0 * unit)), (Some(-0.5), Some(1.0)));
        }
    }

    #[test]
    fn clipping_ends_the_scale_at_the_percentile_and_is_declared() {
        let values: Vec<f32> = (0..=100).map(|i| i as f32).collect();
        let map = ScalarField::new(101, 1, values).unwrap();
        let scale = Scale::new(&map, Some(90.0)).unwrap();
        assert_eq!((scale.ends(), scale.range()), ((0.0, 90.0), (0.0, 100.0)));
        assert_eq!(scale.note().unwrap().to_string(), "10 values clipped at magnitude 90");
        assert_eq!(scale.colour(95.0), scale.colour(90.0));
        assert!(Scale::new(&map, Some(100.0)).unwrap().note().is_none());
        let sparse = ScalarField::new(4, 1, vec![0.0, 0.0, 0.0, 5.0]).unwrap();
        assert_eq!(Scale::new(&sparse, Some(50.0)).unwrap().ends(), (0.0, 5.0));
        for percentile in [0.0, -1.0, 100.5, f64::NAN] {
            assert!(Scale::new(&map, Some(percentile)).is_err());
        }
    }
}
