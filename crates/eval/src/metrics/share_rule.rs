//! The share rule: when the part of a signed map that lies on the object counts as a share of the map.

use monosplit_graph::{Options, Result};

use crate::case_arrays::{MeasureError, undefined};

/// What is said behind a quotient that is no share.
pub(crate) const NO_SHARE_REASON: &str = " of the map lies on the object, which is no share of it";

/// How far rounding may take a share beyond 0 or 1.
const ROUNDING: f64 = 1e-9;

/// When `Σ_{i in the mask} a_i / Σ_i a_i` is defined. In a map of both signs the denominator can vanish although the map does
/// not; the quotient then says nothing, whichever sign it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareRule {
    /// From 0 to 1: neither the sum on the object nor the sum beside it has the opposite sign of the whole.
    Share,
    /// Up to 1, also far below 0: Quantus's Attribution Localisation.
    AtMostOne,
    /// Wherever the denominator is not zero: Quantus's Relevance Mass Accuracy.
    Ratio,
}

impl ShareRule {
    const NAMED: [(&'static str, ShareRule); 3] =
        [("share", ShareRule::Share), ("at-most-one", ShareRule::AtMostOne), ("ratio", ShareRule::Ratio)];

    pub(crate) fn read(self, options: &mut Options) -> Result<Self> {
        options.one_of("rule", self, &ShareRule::NAMED)
    }

    /// The quotient of the sum on the object and the sum of the map, where it is defined.
    pub(crate) fn quotient(self, inside: f64, total: f64) -> Result<f64, MeasureError> {
        let quotient = inside / total;
        let (low, high) = match self {
            ShareRule::Share => (0.0, 1.0),
            ShareRule::AtMostOne => (f64::NEG_INFINITY, 1.0),
            ShareRule::Ratio => (f64::NEG_INFINITY, f64::INFINITY),
        };
        // A stabilised denominator or a rounded sum moves a share of nothing or of everything across the end.
        let rounded = quotient.clamp(low, high);
        let quotient = if (quotient - rounded).abs() <= ROUNDING { rounded } else { quotient };
        match quotient {
            quotient if !quotient.is_finite() => Err(undefined("the map adds up to nothing")),
            quotient if quotient < low || quotient > high => {
                Err(undefined(format!("{quotient}{NO_SHARE_REASON}")))
            }
            quotient => Ok(quotient),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Issue 27, point 10: values above 1 were undefined, but those far below 0 were kept. A map and its mirror image, in
    /// which object and background change places, have quotients `q` and `1 − q`: both are defined or neither is.
    #[test]
    fn issue_27_a_vanishing_denominator_is_treated_alike_on_both_sides() {
        for (inside, outside) in [(1.0, -1.1), (-1.1, 1.0), (3.0, -2.9), (1.0, 3.0), (-1.0, -3.0), (0.0, 2.0)]
        {
            let total = inside + outside;
            let defined = |on_object: f64| ShareRule::Share.quotient(on_object, total).ok();
            let (object, background) = (defined(inside), defined(outside));
            assert_eq!(object.is_some(), background.is_some(), "{inside} {outside}");
            let is_share = inside * total >= 0.0 && outside * total >= 0.0;
            assert_eq!(object.is_some(), is_share, "{inside} {outside}");
            if let (Some(object), Some(background)) = (object, background) {
                assert!((object + background - 1.0).abs() < 1e-12);
            }
        }
        // The whole of a negative map on the object, with a stabiliser that was added to the denominator.
        assert_eq!(ShareRule::Share.quotient(-5.0, -5.0 + 1e-12).ok(), Some(1.0));
        assert!(ShareRule::AtMostOne.quotient(1.0, -0.1).is_ok());
        assert!(ShareRule::AtMostOne.quotient(1.0, 0.1).is_err());
        assert!(ShareRule::Ratio.quotient(1.0, 0.1).is_ok());
        assert!(ShareRule::Ratio.quotient(1.0, 0.0).is_err());
    }
}
