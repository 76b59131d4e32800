//! The options that say how far sensitivities are shifted: by α, for all layers or layer by layer, or by a share of the hidden
//! gradient.

use monosplit_explain::{AlphaInput, Invariant, Settings, ShiftAt, Split};
use monosplit_graph::{Error, Result};

use super::Options;
use super::alpha::{self, Alpha, AlphaChoice};
use super::split::split;

/// A share beyond this is no share.
const MOST_SHARE: f64 = 1e6;

/// Where sensitivities are shifted.
const SHIFTED_AT: [(&str, ShiftAt); 2] = [("every", ShiftAt::Every), ("affine", ShiftAt::Affine)];

/// What a method shifts by where neither α nor a share is given.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Usual {
    /// By α.
    Alpha,
    /// By a share of the hidden gradient.
    Share,
}

/// What the options say of a method with sensitivities.
pub(super) struct Shift {
    pub(super) split: Split,
    pub(super) settings: Settings,
    /// α, where it is one number.
    pub(super) alpha: Option<f64>,
    /// α by layer, where it is not.
    pub(super) layer_alphas: Option<AlphaChoice>,
}

/// The options of the split with those of the shift, and its run-time numbers.
pub(super) fn read(options: &mut Options, usual: Usual) -> Result<Shift> {
    let (split, mut settings) = split(options)?;
    let invariants = [("halved", Invariant::Halved), ("whole", Invariant::Whole)];
    let split = split
        .shift_at(options.one_of("shift-at", ShiftAt::Every, &SHIFTED_AT)?)
        .invariant(options.one_of("invariant", Invariant::Halved, &invariants)?);
    if is_by_alpha(options, usual)? {
        told_where_none(options, "share", usual == Usual::Alpha);
        return Ok(match alpha::read(options)? {
            Alpha::One(alpha) => {
                Shift { split, settings: settings.alpha(alpha), alpha: Some(alpha), layer_alphas: None }
            }
            Alpha::ByLayer(numbers) => {
                let split = split.alpha(AlphaInput::PerLayer);
                Shift { split, settings, alpha: None, layer_alphas: Some(AlphaChoice { split, numbers }) }
            }
        });
    }
    if split.invariant == Invariant::Whole {
        return Err(Error::argument(
            "invariant=whole halves the ordinary gradient beside the hidden one, whose ratio share sets; leave invariant out, or \
             give alpha instead of share",
        ));
    }
    told_where_none(options, "alpha", usual == Usual::Share);
    // No patterns, or α would say how far.
    options.text("alpha-at");
    settings.share = options.number("share", settings.share, 0.0..=MOST_SHARE)?;
    let split = split.alpha(AlphaInput::Share);
    Ok(Shift { split, settings, alpha: None, layer_alphas: None })
}

/// A method without sensitivities has nothing to shift: what says how is checked and changes nothing, so that the same words can
/// be given for all methods of the split.
pub(super) fn pass_over(options: &mut Options) -> Result<()> {
    if is_by_alpha(options, Usual::Alpha)? {
        alpha::read(options)?;
        told_where_none(options, "share", false);
    } else {
        options.number("share", Settings::default().share, 0.0..=MOST_SHARE)?;
        told_where_none(options, "alpha", false);
    }
    options.one_of("shift-at", ShiftAt::Every, &SHIFTED_AT).map(|_| ())
}

/// Whether α says how far; an error if a share does too, or neither.
fn is_by_alpha(options: &Options, usual: Usual) -> Result<bool> {
    let is_number = |key: &str| options.given_text(key).map(|text| !text.eq_ignore_ascii_case("none"));
    let patterns = options.given_text("alpha-at").filter(|text| !text.is_empty());
    let (alpha, share) = (is_number("alpha"), is_number("share"));
    let by_alpha = if patterns.is_some() { Some(true) } else { alpha };
    match (by_alpha, share) {
        (Some(true), Some(true)) => {
            let given = if alpha == Some(true) { "alpha" } else { "alpha-at" };
            Err(Error::argument(format!(
                "{given} and share are two ways to say how far to shift; give one of them"
            )))
        }
        (Some(false), Some(false)) => Err(Error::argument("give a number for alpha or for share")),
        (Some(true), _) | (_, Some(false)) => Ok(true),
        (_, Some(true)) | (Some(false), _) => Ok(false),
        (None, None) => Ok(usual == Usual::Alpha),
    }
}

/// Reads the option that has no effect. It is told only where it is none by default, or was given.
fn told_where_none(options: &mut Options, idle: &str, is_none: bool) {
    if is_none || options.is_given(idle) {
        options.text(idle);
    }
}

#[cfg(test)]
mod tests {
    use crate::catalogue::MethodChoice;

    fn refusal(text: &str) -> String {
        MethodChoice::parse(text, &[]).unwrap_err().to_string()
    }

    fn canonical(text: &str) -> String {
        MethodChoice::parse(text, &[]).unwrap().configured().canonical()
    }

    #[test]
    fn alpha_and_share_are_not_given_together() {
        for method in ["splitcam", "splitgrad", "splitcam-fused"] {
            let both = refusal(&format!("{method}:share=0.5,alpha=0.3"));
            assert!(both.contains("alpha and share are two ways"), "{both}");
            let both = refusal(&format!("{method}:share=0.5,alpha-at=convolutions=0.3"));
            assert!(both.contains("alpha-at and share are two ways"), "{both}");
            let both = refusal(&format!("{method}:share=0.5,alpha=0.3/0.4"));
            assert!(both.contains("alpha and share are two ways"), "{both}");
        }
    }

    #[test]
    fn the_whole_invariant_belongs_to_alpha() {
        for text in ["splitcam:share=0.5,invariant=whole", "splitcam-fused:invariant=whole"] {
            let refused = refusal(text);
            assert!(refused.contains("give alpha instead of share"), "{refused}");
        }
        MethodChoice::parse("splitcam-fused:alpha=0.4,invariant=whole", &[]).unwrap();
        MethodChoice::parse("splitcam:share=0.5,invariant=halved", &[]).unwrap();
    }

    #[test]
    fn methods_without_sensitivities_pass_over_shifts() {
        for text in ["splitlrp:alpha=0.3", "splitlrp:share=0.5,shift-at=affine"] {
            assert_eq!(canonical(text), "splitlrp");
        }
        let both = refusal("splitlrp:share=0.5,alpha=0.3");
        assert!(both.contains("alpha and share are two ways"), "{both}");
    }

    #[test]
    fn fused_maps_take_every_reading_of_alpha() {
        let method = |text: &str| MethodChoice::parse(text, &[]).unwrap().configured().clone();
        assert!(method("splitcam-fused").layer_alphas.is_none() && method("splitcam-fused").alpha.is_none());
        assert_eq!(method("splitcam-fused:alpha=0.3").alpha, Some(0.3));
        for text in ["splitcam-fused:alpha=0.3/0.4", "splitcam-fused:alpha-at=convolutions=0.3"] {
            let by_layer = method(text);
            assert!(by_layer.layer_alphas.is_some() && by_layer.alpha.is_none(), "{text}");
        }
    }

    #[test]
    fn what_is_none_is_told_where_it_is_the_other_ways_usual_one() {
        for text in ["splitcam:share=0.7", "splitcam-fused:alpha=0.3", "splitcam-fused:share=0.7"] {
            assert_eq!(canonical(&canonical(text)), canonical(text), "{text}");
        }
    }
}
