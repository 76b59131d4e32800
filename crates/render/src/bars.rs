//! A bar chart of a few dozen named numbers.

use monosplit_graph::{Error, Result};

use crate::colour::ColourMap;
use crate::number::number;
use crate::scene::{Anchor, INK, Scene};
use crate::text::{self, TextSize};

const MOST_BARS: usize = 400;
const MARGIN: f64 = 6.0;
const SIZE: TextSize = TextSize::Small;
const LABEL: f64 = 130.0;
const VALUE: f64 = 60.0;
const ROW: f64 = 14.0;

/// One number.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// What it belongs to.
    pub label: String,
    /// The number; no bar is drawn where it is not finite.
    pub value: f64,
    /// The ends of its confidence interval.
    pub interval: Option<(f64, f64)>,
}

/// Numbers as horizontal bars from a common zero.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    /// The title of the page.
    pub title: String,
    /// The numbers from top to bottom.
    pub bars: Vec<Bar>,
    /// Width of the page in ninety-sixths of an inch.
    pub width: f64,
}

impl Default for Bars {
    fn default() -> Self {
        Bars { title: String::new(), bars: Vec::new(), width: 480.0 }
    }
}

impl Bars {
    /// Draws the bars.
    pub fn into_scene(self) -> Result<Scene> {
        if self.bars.is_empty() || self.bars.len() > MOST_BARS || self.width.is_nan() || self.width < 300.0 {
            return Err(Error::argument(format!(
                "1 to {MOST_BARS} bars are drawn on at least 300 units, but {} on {} were asked for",
                self.bars.len(),
                self.width
            )));
        }
        let title = text::lines(&self.title, self.width - 2.0 * MARGIN, TextSize::Large, 2);
        let top = MARGIN + title.len() as f64 * TextSize::Large.line();
        let height = top + self.bars.len() as f64 * ROW + MARGIN;
        let mut scene = Scene::new(self.width, height, &self.title)?.described(&self.description());
        scene.paragraph(MARGIN, MARGIN, &title, TextSize::Large);
        let (low, high) = self.range();
        let (left, right) = (2.0 * MARGIN + LABEL, self.width - VALUE - 2.0 * MARGIN);
        // Halves, so that the range of the largest numbers does not overflow.
        let place = |value: f64| {
            let share = (value / 2.0 - low / 2.0) / (high / 2.0 - low / 2.0);
            left + share.clamp(0.0, 1.0) * (right - left)
        };
        let zero = place(0.0);
        for (i, bar) in self.bars.iter().enumerate() {
            let above = top + i as f64 * ROW;
            let baseline = above + (ROW + SIZE.ascent()) / 2.0;
            let label = text::one_line(&bar.label, LABEL, SIZE);
            scene.text((MARGIN, baseline), &label, SIZE, Anchor::Start);
            let value = number(bar.value).replace('-', "−");
            scene.text((self.width - MARGIN, baseline), &value, SIZE, Anchor::End);
            if bar.value.is_finite() {
                let end = place(bar.value);
                let colour = ColourMap::Diverging.at(if bar.value < 0.0 { -0.75 } else { 0.75 });
                scene.rectangle(zero.min(end), above + 2.0, (end - zero).abs(), ROW - 4.0, colour);
            }
            if let Some((from, to)) = bar.interval.filter(|(from, to)| from.is_finite() && to.is_finite()) {
                scene.line((place(from), above + ROW / 2.0), (place(to), above + ROW / 2.0), INK, 1.0);
            }
        }
        scene.rectangle(zero, top, 0.5, self.bars.len() as f64 * ROW, INK);
        Ok(scene)
    }

    /// Smallest and largest number to be drawn, zero among them.
    fn range(&self) -> (f64, f64) {
        let ends = |bar: &Bar| {
            let (from, to) = bar.interval.unwrap_or((0.0, 0.0));
            [bar.value, from, to]
        };
        let all = self.bars.iter().flat_map(ends).filter(|v| v.is_finite());
        let (low, high) = all.fold((0.0f64, 0.0f64), |(low, high), v| (low.min(v), high.max(v)));
        if low < high { (low, high) } else { (0.0, 1.0) }
    }

    fn description(&self) -> String {
        let said: Vec<String> =
            self.bars.iter().map(|bar| format!("{} {}", bar.label, number(bar.value))).collect();
        format!("Bars: {}.", said.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::Item;

    fn bars(values: &[f64]) -> Bars {
        let bar = |&value: &f64| Bar { label: "name".into(), value, interval: Some((value, 2.0 * value)) };
        Bars { bars: values.iter().map(bar).collect(), ..Bars::default() }
    }

    fn lengths(scene: &Scene) -> Vec<f64> {
        let drawn = scene.items().iter().filter_map(|item| match item {
            Item::Rectangle { width, fill, .. } if fill.colour != INK => Some(*width),
            _ => None,
        });
        drawn.collect()
    }

    #[test]
    fn bars_are_as_long_as_their_numbers() {
        let lengths = lengths(&bars(&[1.0, 2.0, -4.0]).into_scene().unwrap());
        assert!((lengths[1] / lengths[0] - 2.0).abs() < 1e-9 && (lengths[2] / lengths[0] - 4.0).abs() < 1e-9);
    }

    #[test]
    fn any_numbers_are_drawn_and_unreasonable_counts_refused() {
        for values in
            [vec![0.0], vec![f64::NAN, f64::INFINITY], vec![f64::MAX, -f64::MAX], vec![-1e-320, 5.0]]
        {
            let scene = bars(&values).into_scene().unwrap();
            assert!(!scene.to_svg().unwrap().contains("=\"NaN"));
            assert!(scene.to_picture().is_ok());
        }
        assert!(bars(&[]).into_scene().is_err());
        assert!(bars(&[1.0; 401]).into_scene().is_err());
        assert!(Bars { width: f64::NAN, ..bars(&[1.0]) }.into_scene().is_err());
    }
}
