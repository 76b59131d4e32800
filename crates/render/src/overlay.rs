//! A map laid over the picture it explains, with what is needed to read it: the picture itself, the key to
//! the colours, and a caption.

use monosplit_graph::{Error, Result};
use monosplit_image::Picture;

use crate::canvas::Canvas;
use crate::colour_bar::ColourBar;
use crate::font;
use crate::heatmap::{Heatmap, HeatmapOptions};
use crate::map::Map;
use crate::number::number;
use crate::scale::{Note, Palette, Scale};

/// What a map lies on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Underlay {
    /// The picture in shades of grey, so that every colour seen is the map's.
    #[default]
    Grey,
    /// The picture as it is.
    Colour,
}

/// What stands beside the overlay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Layout {
    /// The picture to the left of the overlay.
    #[default]
    SideBySide,
    /// The overlay alone.
    Single,
}

/// How an overlay is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OverlayOptions {
    /// How the map becomes colours.
    pub heatmap: HeatmapOptions,
    /// Share of the map in the mixture, 0 (only the picture) to 1 (only the map). Values that are not finite
    /// are always opaque.
    pub opacity: f64,
    /// What the map lies on.
    pub underlay: Underlay,
    /// What stands beside the overlay.
    pub layout: Layout,
    /// Whether the key to the colours is drawn.
    pub colour_bar: bool,
    /// A picture whose longer side has fewer pixels is drawn with each pixel as a square, so that digits and
    /// icons can be seen.
    pub least_side: usize,
}

impl Default for OverlayOptions {
    fn default() -> Self {
        OverlayOptions {
            heatmap: HeatmapOptions::default(),
            opacity: 0.5,
            underlay: Underlay::Grey,
            layout: Layout::SideBySide,
            colour_bar: true,
            least_side: 224,
        }
    }
}

/// What was explained and how; empty parts are left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Caption {
    /// The method's name.
    pub method: String,
    /// The layer the map belongs to.
    pub layer: String,
    /// The class explained, by name or number.
    pub class: String,
    /// The network's confidence in that class, 0 to 1.
    pub confidence: Option<f64>,
    /// The split's α.
    pub alpha: Option<f64>,
}

impl Caption {
    /// The caption in one line.
    pub fn text(&self) -> String {
        self.parts().join(" · ")
    }

    fn parts(&self) -> Vec<String> {
        let mut parts = vec![self.method.clone()];
        if !self.layer.is_empty() {
            parts.push(format!("layer {}", self.layer));
        }
        let confidence = self.confidence.map(|share| format!("{:.1}%", share * 100.0));
        match (self.class.is_empty(), confidence) {
            (false, Some(confidence)) => parts.push(format!("class {} ({confidence})", self.class)),
            (false, None) => parts.push(format!("class {}", self.class)),
            (true, Some(confidence)) => parts.push(format!("confidence {confidence}")),
            (true, None) => {}
        }
        parts.extend(self.alpha.map(|alpha| format!("α = {}", number(alpha))));
        parts.retain(|part| !part.is_empty());
        parts
    }
}

/// A map mixed with its picture and nothing else.
#[derive(Clone, Debug, PartialEq)]
pub struct Blend {
    /// The mixture, at the picture's size.
    pub picture: Picture,
    /// How values became colours.
    pub scale: Scale,
}

/// An overlay ready to be shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Overlay {
    /// The page.
    pub picture: Picture,
    /// Smallest and largest finite value; both NaN where no value is finite.
    pub range: (f32, f32),
    /// What was said about the map beside the caption; nothing for an ordinary map.
    pub note: Option<Note>,
}

/// Mixes `map`, scaled to the picture's size, with `picture`. The colours are those of the map as given:
/// its extremes are not those of the scaled map.
pub fn blend(picture: &Picture, map: &Map, options: &OverlayOptions) -> Result<Blend> {
    if !(0.0..=1.0).contains(&options.opacity) {
        return Err(Error::argument(format!(
            "the opacity of an overlay is between 0 and 1, but {} was given",
            options.opacity
        )));
    }
    let scale = Scale::new(map, options.heatmap.clip)?;
    let resized = map.resized(picture.width(), picture.height())?;
    let colours = Heatmap::scaled(&resized, &scale, options.heatmap.zero);
    let mut mixed = match options.underlay {
        Underlay::Grey => picture.to_grey().into_rgb(),
        Underlay::Colour => picture.rgb().to_vec(),
    };
    let places = mixed.chunks_exact_mut(3).zip(colours.rgba.chunks_exact(4)).zip(resized.values());
    for ((pixel, colour), value) in places {
        let share = options.opacity * f64::from(colour[3]) / 255.0;
        let share = if value.is_finite() { share } else { 1.0 };
        for (under, over) in pixel.iter_mut().zip(colour) {
            *under = (f64::from(*under) * (1.0 - share) + f64::from(*over) * share).round() as u8;
        }
    }
    Ok(Blend { picture: Picture::new(picture.width(), picture.height(), mixed)?, scale })
}

/// Draws `map` over `picture` with everything needed to read it.
pub fn overlay(picture: &Picture, map: &Map, caption: &Caption, options: &OverlayOptions) -> Result<Overlay> {
    let Blend { picture: mixed, scale } = blend(picture, map, options)?;
    let panels = match options.layout {
        Layout::SideBySide => vec![picture, &mixed],
        Layout::Single => vec![&mixed],
    };
    let page = page(&panels, &scale, &[caption.parts(), remarks(&scale)], options)?;
    Ok(Overlay { picture: page, range: scale.range(), note: scale.note().cloned() })
}

/// What is said under the caption: the note, and the range where the colour bar does not show it.
fn remarks(scale: &Scale) -> Vec<String> {
    let mut parts = Vec::new();
    if scale.palette() == Palette::Signed || scale.note().is_some_and(|note| note.clipped > 0) {
        let (low, high) = scale.range();
        let [low, high] = [low, high].map(|end| number(end.into()).replace('-', "−"));
        parts.push(format!("values {low} to {high}"));
    }
    parts.extend(scale.note().map(|note| note.to_string().replace('-', "−")));
    parts
}

/// `parts` in lines of at most `columns`, broken within a part only where it is longer than a line.
fn lines(parts: &[String], columns: usize, size: usize) -> Vec<String> {
    const MOST: usize = 4;
    let whole = |part: &String| {
        let held = part.replace(' ', "\u{a0}");
        if font::width(&held, size) + font::width(" ·", size) <= columns { held } else { part.clone() }
    };
    let text = parts.iter().map(whole).collect::<Vec<_>>().join("\u{a0}· ");
    let lines = font::lines(&text, columns, size, MOST);
    lines.into_iter().map(|line| line.trim_end_matches("\u{a0}·").to_string()).collect()
}

fn page(
    panels: &[&Picture],
    scale: &Scale,
    words: &[Vec<String>],
    options: &OverlayOptions,
) -> Result<Picture> {
    let (width, height) = (panels[0].width(), panels[0].height());
    let factor = options.least_side.div_ceil(width.max(height)).max(1);
    let shown = |side: usize| {
        side.checked_mul(factor).ok_or_else(|| {
            Error::argument(format!("a picture cannot be shown with {} pixels a side", options.least_side))
        })
    };
    let (width, height) = (shown(width)?, shown(height)?);
    // Words grow with large pictures, which are looked at from further away.
    let size = (width.max(height) / 350).clamp(2, 8);
    let (margin, gap) = (5 * size, 4 * size);
    let bar = options.colour_bar.then(|| ColourBar::new(scale, size)).flatten();
    let panels_width = panels.len().saturating_mul(width).saturating_add((panels.len() - 1) * gap);
    let inner = panels_width.saturating_add(bar.as_ref().map_or(0, |bar| gap + bar.width()));
    let band = bar.as_ref().map_or(height, |bar| height.max(bar.least_height()));
    let lines: Vec<String> = words.iter().flat_map(|parts| lines(parts, inner, size)).collect();
    let line = (font::ROWS + 2) * size;
    let text = if lines.is_empty() { 0 } else { gap + lines.len() * line - 2 * size };
    let total = band.saturating_add(2 * margin + text);
    let mut canvas = Canvas::new(inner.saturating_add(2 * margin), total)?;
    for (i, panel) in panels.iter().enumerate() {
        canvas.draw(margin + i * (width + gap), margin + (band - height) / 2, panel, factor);
    }
    if let Some(bar) = bar {
        bar.draw(&mut canvas, margin + panels_width + gap, margin, band);
    }
    for (i, text) in lines.iter().enumerate() {
        canvas.write(margin, margin + band + gap + i * line, text, size);
    }
    canvas.into_picture()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::colour::{ColourMap, NOT_FINITE};

    fn photograph(width: usize, height: usize) -> Picture {
        let rgb = (0..width * height * 3).map(|i| (i * 31 % 256) as u8).collect();
        Picture::new(width, height, rgb).unwrap()
    }

    fn bare(opacity: f64) -> OverlayOptions {
        OverlayOptions { opacity, ..OverlayOptions::default() }
    }

    #[test]
    fn the_ends_of_opacity_are_the_picture_and_the_map_alone() {
        let picture = photograph(8, 6);
        let map = Map::new(2, 2, vec![-1.0, 0.5, 0.0, 1.0]).unwrap();
        assert_eq!(blend(&picture, &map, &bare(0.0)).unwrap().picture, picture.to_grey());
        let colour = OverlayOptions { underlay: Underlay::Colour, ..bare(0.0) };
        assert_eq!(blend(&picture, &map, &colour).unwrap().picture, picture);
        let full = blend(&picture, &map, &bare(1.0)).unwrap();
        assert_eq!(full.picture.rgb()[..3], ColourMap::Diverging.at(-1.0));
        for opacity in [-0.1, 1.1, f64::NAN] {
            assert!(blend(&picture, &map, &bare(opacity)).is_err());
        }
    }

    #[test]
    fn a_flat_map_tints_every_place_alike() {
        let grey = Picture::new(5, 4, vec![100; 60]).unwrap();
        let map = Map::new(2, 3, vec![0.3; 6]).unwrap();
        let mixed = blend(&grey, &map, &bare(0.5)).unwrap();
        assert!(mixed.picture.rgb().iter().all(|v| *v == mixed.picture.rgb()[0]));
        assert_eq!(mixed.scale.note().unwrap().to_string(), "constant 0.3");
    }

    #[test]
    fn what_is_not_finite_hides_the_picture() {
        let picture = photograph(2, 1);
        let map = Map::new(2, 1, vec![f32::NAN, 1.0]).unwrap();
        assert_eq!(blend(&picture, &map, &bare(0.1)).unwrap().picture.rgb()[..3], NOT_FINITE);
    }

    #[test]
    fn small_pictures_are_drawn_in_whole_squares_and_large_ones_as_they_are() {
        let map = Map::new(7, 7, (0..49).map(|i| i as f32).collect()).unwrap();
        let options = OverlayOptions { colour_bar: false, layout: Layout::Single, ..bare(0.5) };
        let caption = Caption::default();
        let margins = |side: usize, least: usize| {
            let page = overlay(&photograph(side, side), &map, &caption, &options).unwrap().picture;
            page.width() - least
        };
        assert_eq!(margins(28, 224), margins(16, 224));
        assert_eq!(margins(28, 224), margins(300, 300));
        let tiny = photograph(16, 16);
        let page = overlay(&tiny, &map, &caption, &options).unwrap().picture;
        let mixed = blend(&tiny, &map, &options).unwrap().picture;
        let margin = margins(16, 224) / 2;
        for (x, y) in [(0, 0), (13, 13), (14, 0), (223, 223), (100, 30)] {
            let drawn = ((margin + y) * page.width() + margin + x) * 3;
            let source = (y / 14 * 16 + x / 14) * 3;
            assert_eq!(page.rgb()[drawn..drawn + 3], mixed.rgb()[source..source + 3]);
        }
    }

    #[test]
    fn a_caption_holds_what_is_known() {
        let mut caption = Caption { method: "SplitCAM".into(), ..Caption::default() };
        assert_eq!(caption.text(), "SplitCAM");
        caption.layer = "features.28".into();
        caption.class = "Egyptian Mau".into();
        caption.confidence = Some(0.8734);
        caption.alpha = Some(0.4);
        assert_eq!(caption.text(), "SplitCAM · layer features.28 · class Egyptian Mau (87.3%) · α = 0.4");
    }

    #[test]
    fn any_size_any_caption_and_any_map_is_drawn_the_same_each_time() {
        let long =
            Caption { method: "x".repeat(100_000), class: "漢字 ".repeat(999), ..Caption::default() };
        for (width, height) in [(1, 1), (1000, 1), (1, 700), (28, 28)] {
            for values in [vec![0.0; 4], vec![f32::NAN; 4], vec![-1e-30, 3e38, f32::INFINITY, 0.0]] {
                let map = Map::new(2, 2, values).unwrap();
                let draw = || overlay(&photograph(width, height), &map, &long, &OverlayOptions::default());
                assert_eq!(draw().unwrap().picture, draw().unwrap().picture);
            }
        }
        let map = Map::new(1, 1, vec![1.0]).unwrap();
        let endless = OverlayOptions { least_side: usize::MAX, ..OverlayOptions::default() };
        assert!(overlay(&photograph(2, 2), &map, &long, &endless).is_err());
    }
}
