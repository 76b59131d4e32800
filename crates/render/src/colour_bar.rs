//! The key to the colours of maps: a bar with the values at its ends and at zero.

use monosplit_graph::Result;
use monosplit_image::Picture;

use crate::colour::{ColourMap, Rgb};
use crate::number::number;
use crate::scale::{Palette, Scale};
use crate::scene::{Anchor, INK, Scene};
use crate::text::{self, TextSize};

const THICKNESS: f64 = 8.0;
const GAP: f64 = 3.0;
const SIZE: TextSize = TextSize::Small;

/// A bar of colours with its labels.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ColourBar {
    /// The colours from the lowest to the highest value.
    colours: Vec<Rgb>,
    labels: Vec<Label>,
}

#[derive(Clone, Debug, PartialEq)]
struct Label {
    text: String,
    /// How far along the bar, 0 at the lowest value to 1.
    place: f64,
}

impl ColourBar {
    /// The bar of `scale`; `None` for a flat map, which has no scale.
    pub(crate) fn new(scale: &Scale) -> Option<Self> {
        let (low, high) = scale.ends();
        let clipped = scale.note().is_some_and(|note| note.clipped > 0);
        let [up, down] = if clipped { ["≥ ", "≤ "] } else { ["", ""] };
        // A true minus sign is as wide as a plus; the hyphen of plain numbers is easily overlooked.
        let written = |prefix: &str, value: f64| format!("{prefix}{}", number(value).replace('-', "−"));
        ColourBar::labelled(scale.palette(), &written(down, low), &written(up, high))
    }

    /// A bar whose ends other than zero are called `low` and `high`; `None` for a flat palette.
    pub(crate) fn labelled(palette: Palette, low: &str, high: &str) -> Option<Self> {
        const SHADES: usize = 128;
        let (from, to, map) = match palette {
            Palette::Flat => return None,
            Palette::Signed => (-1.0, 1.0, ColourMap::Diverging),
            Palette::Positive => (0.0, 1.0, ColourMap::Sequential),
            Palette::Negative => (-1.0, 0.0, ColourMap::Diverging),
        };
        let shade = |i: usize| map.at(from + (to - from) * (i as f64 + 0.5) / SHADES as f64);
        let mut labels = Vec::new();
        let mut label = |text: &str, place: f64| labels.push(Label { text: text.into(), place });
        if from < 0.0 {
            label(low, 0.0);
        }
        label("0", -from / (to - from));
        if to > 0.0 {
            label(high, 1.0);
        }
        Some(ColourBar { colours: (0..SHADES).map(shade).collect(), labels })
    }

    fn widest_label(&self) -> f64 {
        self.labels.iter().map(|label| text::width(&label.text, SIZE)).fold(0.0, f64::max)
    }

    /// Room from left to right that the upright bar and its labels take.
    pub(crate) fn width(&self) -> f64 {
        THICKNESS + GAP + self.widest_label()
    }

    /// Least height at which the labels of the upright bar do not touch.
    pub(crate) fn least_height(&self) -> f64 {
        self.labels.len() as f64 * SIZE.line()
    }

    /// Draws the bar upright, the highest value on top, the labels to its right.
    pub(crate) fn upright(&self, scene: &mut Scene, left: f64, top: f64, height: f64) -> Result<()> {
        let downwards: Vec<u8> = self.colours.iter().rev().flatten().copied().collect();
        scene.rectangle(left, top, THICKNESS, height, INK);
        let strip = Picture::new(1, self.colours.len(), downwards)?;
        scene.image(left + 0.5, top + 0.5, THICKNESS - 1.0, height - 1.0, strip);
        for label in &self.labels {
            let tick = top + (1.0 - label.place) * (height - 0.5);
            // Ticks lie within the bar: outside, one before a number reads as a minus sign.
            scene.rectangle(left + THICKNESS - 2.0, tick, 2.0, 0.5, INK);
            let baseline = (tick + SIZE.ascent() / 2.0).clamp(top + SIZE.ascent(), top + height);
            scene.text((left + THICKNESS + GAP, baseline), &label.text, SIZE, Anchor::Start);
        }
        Ok(())
    }

    /// Room from left to right that the bar takes when it lies and is itself `length` long.
    pub(crate) fn lying_width(&self, length: f64) -> f64 {
        length.max(self.labels.len() as f64 * (self.widest_label() + 2.0 * GAP))
    }

    /// Room from top to bottom that the lying bar takes.
    pub(crate) fn lying_height() -> f64 {
        THICKNESS + GAP + SIZE.ascent()
    }

    /// Draws the bar lying, the lowest value to the left, the labels below.
    pub(crate) fn lying(&self, scene: &mut Scene, left: f64, top: f64, length: f64) -> Result<()> {
        let width = self.lying_width(length);
        scene.rectangle(left, top, width, THICKNESS, INK);
        let strip = Picture::new(self.colours.len(), 1, self.colours.as_flattened().to_vec())?;
        scene.image(left + 0.5, top + 0.5, width - 1.0, THICKNESS - 1.0, strip);
        for label in &self.labels {
            let tick = left + label.place * (width - 0.5);
            scene.rectangle(tick, top + THICKNESS - 2.0, 0.5, 2.0, INK);
            let anchor = match label.place {
                0.0 => Anchor::Start,
                1.0 => Anchor::End,
                _ => Anchor::Middle,
            };
            scene.text((tick, top + ColourBar::lying_height()), &label.text, SIZE, anchor);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scalar_field::ScalarField;

    fn labels(values: &[f32], clip: Option<f64>) -> Vec<String> {
        let scale = Scale::new(&ScalarField::new(values.len(), 1, values.to_vec()).unwrap(), clip).unwrap();
        let bar = ColourBar::new(&scale);
        bar.map(|bar| bar.labels.into_iter().map(|label| label.text).collect()).unwrap_or_default()
    }

    #[test]
    fn the_ends_of_the_scale_and_zero_are_labelled() {
        assert_eq!(labels(&[-0.1, 0.3], None), ["−0.3", "0", "0.3"]);
        assert_eq!(labels(&[0.1, 0.3], None), ["0", "0.3"]);
        assert_eq!(labels(&[-0.1, -0.3], None), ["−0.3", "0"]);
        assert!(labels(&[0.3, 0.3], None).is_empty());
    }

    #[test]
    fn a_clipped_scale_says_that_its_ends_are_not_the_extremes() {
        assert_eq!(labels(&[0.0, 1.0, 2.0, 9.0, -1.0], Some(75.0)), ["≤ −2", "0", "≥ 2"]);
    }

    #[test]
    fn zero_lies_in_the_middle_of_a_signed_bar_and_is_neutral_there() {
        let bar = ColourBar::labelled(Palette::Signed, "low", "high").unwrap();
        assert_eq!(bar.labels[1], Label { text: "0".into(), place: 0.5 });
        let neutral = ColourMap::Diverging.at(0.0);
        for shade in [63, 64] {
            for (found, expected) in bar.colours[shade].iter().zip(neutral) {
                assert!(found.abs_diff(expected) <= 4);
            }
        }
        let positive = ColourBar::labelled(Palette::Positive, "low", "high").unwrap();
        assert_eq!(positive.labels[0], Label { text: "0".into(), place: 0.0 });
    }
}
