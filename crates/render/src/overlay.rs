//! A map drawn over the picture it explains, with the picture itself, a colour bar and a caption.

use monosplit_graph::{Error, Result};
use monosplit_image::Picture;

use crate::colour_bar::ColourBar;
use crate::contour::{self, Contour, contour_levels, contours};
use crate::heatmap::{Heatmap, HeatmapOptions};
use crate::number::number;
use crate::scalar_field::ScalarField;
use crate::scale::{Note, Palette, Scale};
use crate::scene::Scene;
use crate::text::{self, TextSize};

/// The background of a map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Underlay {
    /// The picture in shades of grey, so that every colour seen is the map's.
    #[default]
    Grey,
    /// The picture as it is.
    Colour,
}

/// The panels of the page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OverlayPanels {
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
    /// The background of the map.
    pub underlay: Underlay,
    /// The panels of the page.
    pub panels: OverlayPanels,
    /// Whether the key to the colours is drawn.
    pub colour_bar: bool,
    /// A picture whose longer side has fewer pixels is drawn with each pixel as a square, so that digits and
    /// icons can be seen.
    pub least_side: usize,
    /// Number of contours drawn on each side of zero, cutting the colours into equal steps.
    pub contours: usize,
}

impl Default for OverlayOptions {
    fn default() -> Self {
        OverlayOptions {
            heatmap: HeatmapOptions::default(),
            opacity: 0.5,
            underlay: Underlay::Grey,
            panels: OverlayPanels::SideBySide,
            colour_bar: true,
            least_side: 224,
            contours: 0,
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
    /// What is explained where it is no class.
    pub target: String,
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
        if !self.target.is_empty() {
            parts.push(self.target.clone());
        }
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
    /// The lines to draw over the mixture; none unless asked for.
    pub contours: Vec<Contour>,
}

/// An overlay ready to be shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Overlay {
    /// The page.
    pub picture: Picture,
    /// Smallest and largest finite value; both NaN where no value is finite.
    pub range: (f32, f32),
    /// The note below the caption; none for an ordinary map.
    pub note: Option<Note>,
}

/// Mixes `map`, scaled to the picture's size, with `picture`. The colours are those of the map as given:
/// its extremes are not those of the scaled map.
pub fn blend(picture: &Picture, map: &ScalarField, options: &OverlayOptions) -> Result<Blend> {
    let scale = Scale::new(map, options.heatmap.clip)?;
    blend_scaled(picture, map, scale, options)
}

/// The same on a scale that several maps share.
pub(crate) fn blend_scaled(
    picture: &Picture,
    map: &ScalarField,
    scale: Scale,
    options: &OverlayOptions,
) -> Result<Blend> {
    if !(0.0..=1.0).contains(&options.opacity) {
        return Err(Error::argument(format!(
            "the opacity of an overlay is between 0 and 1, but {} was given",
            options.opacity
        )));
    }
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
    let contours = lines_over(map, &scale, options.contours, (picture.width(), picture.height()))?;
    Ok(Blend { picture: Picture::new(picture.width(), picture.height(), mixed)?, scale, contours })
}

/// The contours of a map shown with these `sides`: finer than the map, and no finer than can be seen.
fn lines_over(map: &ScalarField, scale: &Scale, count: usize, sides: (usize, usize)) -> Result<Vec<Contour>> {
    const FINEST: usize = 256;
    if count == 0 {
        return Ok(Vec::new());
    }
    if count > contour::MOST_LEVELS / 2 {
        return Err(Error::argument(format!(
            "at most {} contours are drawn on each side of zero, but {count} were asked for",
            contour::MOST_LEVELS / 2
        )));
    }
    let fine = |shown: usize, own: usize| shown.min(FINEST).max(own.min(shown));
    let shown = map.resized(fine(sides.0, map.width()), fine(sides.1, map.height()))?;
    contours(&shown, &contour_levels(scale, count))
}

/// Draws `map` over `picture` with everything needed to read it.
pub fn overlay(
    picture: &Picture,
    map: &ScalarField,
    caption: &Caption,
    options: &OverlayOptions,
) -> Result<Overlay> {
    let (scene, scale) = side_by_side(picture, map, caption, options)?;
    Ok(Overlay { picture: scene.to_picture()?, range: scale.range(), note: scale.note().cloned() })
}

/// The same as a figure that can also be written as SVG or PDF, and how values became colours in it.
pub fn side_by_side(
    picture: &Picture,
    map: &ScalarField,
    caption: &Caption,
    options: &OverlayOptions,
) -> Result<(Scene, Scale)> {
    let mixed = blend(picture, map, options)?;
    let scene = page(picture, &mixed, &[caption.parts(), remarks(&mixed.scale)], options)?;
    let shown = match options.panels {
        OverlayPanels::SideBySide => "A picture and the map that explains it, laid over the picture. ",
        OverlayPanels::Single => "A map laid over the picture it explains. ",
    };
    let scene = scene.described(&format!("{shown}{}", remarks(&mixed.scale).join("; ")));
    Ok((scene, mixed.scale))
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

/// `parts` in lines of at most `room`, broken within a part only where it is longer than a line.
fn lines(parts: &[String], room: f64) -> Vec<String> {
    const MOST: usize = 4;
    let whole = |part: &String| {
        let held = part.replace(' ', "\u{a0}");
        let fits = text::fits(&format!("{held}\u{a0}·"), room, TextSize::Small);
        if fits { held } else { part.clone() }
    };
    let joined = parts.iter().map(whole).collect::<Vec<_>>().join("\u{a0}· ");
    let lines = text::lines(&joined, room, TextSize::Small, MOST);
    lines.into_iter().map(|line| line.trim_end_matches("\u{a0}·").to_string()).collect()
}

fn page(picture: &Picture, mixed: &Blend, words: &[Vec<String>], options: &OverlayOptions) -> Result<Scene> {
    const MARGIN: f64 = 5.0;
    const GAP: f64 = 4.0;
    let panels = match options.panels {
        OverlayPanels::SideBySide => vec![picture, &mixed.picture],
        OverlayPanels::Single => vec![&mixed.picture],
    };
    let display = DisplaySize::new(picture.width(), picture.height(), options.least_side);
    let (width, height) = (display.width, display.height);
    let bar = options.colour_bar.then(|| ColourBar::new(&mixed.scale)).flatten();
    let panels_width = panels.len() as f64 * (width + GAP) - GAP;
    let inner = panels_width + bar.as_ref().map_or(0.0, |bar| GAP + bar.width());
    let band = bar.as_ref().map_or(height, |bar| height.max(bar.least_height()));
    let lines: Vec<String> = words.iter().flat_map(|parts| lines(parts, inner)).collect();
    let written =
        if lines.is_empty() { 0.0 } else { GAP - 2.0 + lines.len() as f64 * TextSize::Small.line() };
    let title = words.first().map(|parts| parts.join(" · ")).unwrap_or_default();
    let mut scene = Scene::new(inner + 2.0 * MARGIN, band + 2.0 * MARGIN + written, &title)?
        .resolution(display.pixels_per_unit);
    let top = MARGIN + ((band - height) / 2.0).floor();
    for (i, panel) in panels.iter().enumerate() {
        scene.image(MARGIN + i as f64 * (width + GAP), top, width, height, (*panel).clone());
    }
    contour::draw(&mut scene, &mixed.contours, (MARGIN + panels_width - width, top), (width, height));
    if let Some(bar) = bar {
        bar.upright(&mut scene, MARGIN + panels_width + GAP, MARGIN, band)?;
    }
    scene.paragraph(MARGIN, MARGIN + band + GAP, &lines, TextSize::Small);
    Ok(scene)
}

/// How large pictures are shown in a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct DisplaySize {
    pub(crate) width: f64,
    pub(crate) height: f64,
    /// How finely the figure is drawn: large pictures are looked at from further away, so that a unit, and
    /// with it all words, takes more of their pixels.
    pub(crate) pixels_per_unit: usize,
}

impl DisplaySize {
    /// For pictures of `width` by `height` pixels: each pixel is a square, large enough to give the longer
    /// side at least `least_side` pixels.
    pub(crate) fn new(width: usize, height: usize, least_side: usize) -> Self {
        let longest = width.max(height).max(1);
        let factor = least_side.div_ceil(longest).max(1);
        let pixels_per_unit = (longest.saturating_mul(factor) / 350).clamp(2, 8);
        let units = |side: usize| side as f64 * factor as f64 / pixels_per_unit as f64;
        DisplaySize { width: units(width), height: units(height), pixels_per_unit }
    }
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
        let map = ScalarField::new(2, 2, vec![-1.0, 0.5, 0.0, 1.0]).unwrap();
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
        let map = ScalarField::new(2, 3, vec![0.3; 6]).unwrap();
        let mixed = blend(&grey, &map, &bare(0.5)).unwrap();
        assert!(mixed.picture.rgb().iter().all(|v| *v == mixed.picture.rgb()[0]));
        assert_eq!(mixed.scale.note().unwrap().to_string(), "constant 0.3");
    }

    #[test]
    fn what_is_not_finite_hides_the_picture() {
        let picture = photograph(2, 1);
        let map = ScalarField::new(2, 1, vec![f32::NAN, 1.0]).unwrap();
        assert_eq!(blend(&picture, &map, &bare(0.1)).unwrap().picture.rgb()[..3], NOT_FINITE);
    }

    #[test]
    fn small_pictures_are_drawn_in_whole_squares_and_large_ones_as_they_are() {
        let map = ScalarField::new(7, 7, (0..49).map(|i| i as f32).collect()).unwrap();
        let options = OverlayOptions { colour_bar: false, panels: OverlayPanels::Single, ..bare(0.5) };
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
                let map = ScalarField::new(2, 2, values).unwrap();
                let draw = || overlay(&photograph(width, height), &map, &long, &OverlayOptions::default());
                assert_eq!(draw().unwrap().picture, draw().unwrap().picture);
            }
        }
        let map = ScalarField::new(1, 1, vec![1.0]).unwrap();
        let endless = OverlayOptions { least_side: usize::MAX, ..OverlayOptions::default() };
        assert!(overlay(&photograph(2, 2), &map, &long, &endless).is_err());
    }
}
