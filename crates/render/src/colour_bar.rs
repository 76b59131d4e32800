//! The key to the colours of a map: a bar with the values at its ends and at zero.

use crate::canvas::{Canvas, INK};
use crate::font;
use crate::number::number;
use crate::scale::{Palette, Scale};

/// An upright bar, largest value on top, with its labels to the right.
pub(crate) struct ColourBar<'a> {
    scale: &'a Scale,
    labels: Vec<Label>,
    size: usize,
}

struct Label {
    text: String,
    /// How far down the bar, 0 to 1.
    depth: f64,
}

impl<'a> ColourBar<'a> {
    /// The bar of `scale` with words of `size` pixels a dot; `None` for a flat map, which has no scale.
    pub(crate) fn new(scale: &'a Scale, size: usize) -> Option<Self> {
        let (low, high) = scale.ends();
        let clipped = scale.note().is_some_and(|note| note.clipped > 0);
        let [up, down] = if clipped { ["≥ ", "≤ "] } else { ["", ""] };
        let mut labels = vec![];
        let mut label = |prefix: &str, value: f64, depth: f64| {
            // A true minus sign is as wide as a plus; the hyphen of plain numbers is easily overlooked.
            let text = format!("{prefix}{}", number(value).replace('-', "−"));
            labels.push(Label { text, depth });
        };
        match scale.palette() {
            Palette::Flat => return None,
            Palette::Signed => {
                label(up, high, 0.0);
                label("", 0.0, 0.5);
                label(down, low, 1.0);
            }
            Palette::Positive => {
                label(up, high, 0.0);
                label("", 0.0, 1.0);
            }
            Palette::Negative => {
                label("", 0.0, 0.0);
                label(down, low, 1.0);
            }
        }
        Some(ColourBar { scale, labels, size })
    }

    fn thickness(&self) -> usize {
        8 * self.size
    }

    /// Columns the bar and its labels take.
    pub(crate) fn width(&self) -> usize {
        let widest = self.labels.iter().map(|label| font::width(&label.text, self.size)).max().unwrap_or(0);
        self.thickness() + 3 * self.size + widest
    }

    /// Fewest rows in which the labels do not touch.
    pub(crate) fn least_height(&self) -> usize {
        self.labels.len() * (font::ROWS + 2) * self.size
    }

    pub(crate) fn draw(&self, canvas: &mut Canvas, left: usize, top: usize, height: usize) {
        let thickness = self.thickness();
        canvas.fill(left, top, thickness, height, INK);
        let inner = height.saturating_sub(2);
        for row in 0..inner {
            let up = 1.0 - (row as f64 + 0.5) / inner as f64;
            let position = match self.scale.palette() {
                Palette::Signed => 2.0 * up - 1.0,
                Palette::Negative => up - 1.0,
                Palette::Positive | Palette::Flat => up,
            };
            canvas.fill(left + 1, top + 1 + row, thickness - 2, 1, self.scale.colour_at(position));
        }
        let letters = font::ASCENT * self.size;
        for label in &self.labels {
            let tick = top + (label.depth * (height.saturating_sub(1)) as f64).round() as usize;
            // Ticks lie within the bar: outside, one before a number reads as a minus sign.
            canvas.fill(left + thickness - 2 * self.size, tick, 2 * self.size, 1, INK);
            let lowest = (top + height).saturating_sub(letters);
            let text = tick.saturating_sub(letters / 2).clamp(top, lowest.max(top));
            canvas.write(left + thickness + 3 * self.size, text, &label.text, self.size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::Map;

    fn labels(values: &[f32], clip: Option<f64>) -> Vec<String> {
        let scale = Scale::new(&Map::new(values.len(), 1, values.to_vec()).unwrap(), clip).unwrap();
        let bar = ColourBar::new(&scale, 1);
        bar.map(|bar| bar.labels.into_iter().map(|label| label.text).collect()).unwrap_or_default()
    }

    #[test]
    fn the_ends_of_the_scale_and_zero_are_labelled() {
        assert_eq!(labels(&[-0.1, 0.3], None), ["0.3", "0", "−0.3"]);
        assert_eq!(labels(&[0.1, 0.3], None), ["0.3", "0"]);
        assert_eq!(labels(&[-0.1, -0.3], None), ["0", "−0.3"]);
        assert!(labels(&[0.3, 0.3], None).is_empty());
    }

    #[test]
    fn a_clipped_scale_says_that_its_ends_are_not_the_extremes() {
        assert_eq!(labels(&[0.0, 1.0, 2.0, 9.0, -1.0], Some(75.0)), ["≥ 2", "0", "≤ −2"]);
    }
}
