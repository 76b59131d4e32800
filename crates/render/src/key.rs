//! The colour key of a figure, once for all its maps.

use monosplit_graph::Result;

use crate::colour_bar::ColourBar;
use crate::grid::GridCell;
use crate::scale::{Palette, Scale};
use crate::scene::{Anchor, Scene};
use crate::text::{self, TextSize};

const MARGIN: f64 = 4.0;
const SIZE: TextSize = TextSize::Small;

/// The key to the colours below a figure: one bar for each palette in use.
pub(crate) struct Key {
    bars: Vec<ColourBar>,
    /// The remark where maps of one palette have different scales.
    note: &'static str,
}

impl Key {
    const BAR: f64 = 90.0;
    const GAP: f64 = 4.0 * MARGIN;

    /// The key to all `cells` that show maps.
    pub(crate) fn new<'a>(cells: impl Iterator<Item = &'a GridCell>) -> Self {
        let scales: Vec<&Scale> = cells.filter_map(|cell| cell.scale.as_ref()).collect();
        let mut key = Key { bars: Vec::new(), note: "" };
        for palette in [Palette::Signed, Palette::Positive, Palette::Negative] {
            let mut of_one = scales.iter().filter(|scale| scale.palette() == palette);
            let Some(first) = of_one.next() else { continue };
            if of_one.all(|scale| scale.ends() == first.ends()) {
                key.bars.extend(ColourBar::new(first));
            } else {
                key.bars.extend(ColourBar::labelled(palette, "−max", "max"));
                let clipped = |scale: &&Scale| scale.note().is_some_and(|note| note.clipped > 0);
                key.note = match scales.iter().any(clipped) {
                    true => "each map on its own scale, some values beyond it",
                    false => "each map by its own largest magnitude",
                };
            }
        }
        key
    }

    pub(crate) fn width(&self) -> f64 {
        let bars: f64 = self.bars.iter().map(|bar| bar.lying_width(Key::BAR) + Key::GAP).sum();
        bars + text::width(self.note, SIZE)
    }

    /// Its height with margins; 0 where no map is shown.
    pub(crate) fn height(&self) -> f64 {
        if self.bars.is_empty() { 0.0 } else { 2.0 * MARGIN + ColourBar::lying_height() }
    }

    /// Draws it within its height from `top` on.
    pub(crate) fn draw(&self, scene: &mut Scene, mut left: f64, top: f64) -> Result<()> {
        let top = top + MARGIN;
        for bar in &self.bars {
            bar.lying(scene, left, top, Key::BAR)?;
            left += bar.lying_width(Key::BAR) + Key::GAP;
        }
        scene.text((left, top + SIZE.ascent()), self.note, SIZE, Anchor::Start);
        Ok(())
    }
}
