//! A map as a picture of its own, one pixel a value.

use std::path::Path;

use monosplit_graph::Result;
use monosplit_image::{Pixels, write_png};

use crate::scalar_field::ScalarField;
use crate::scale::{Note, Scale};

/// How values near zero are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Zero {
    /// In the light neutral colour, as opaque as all others.
    #[default]
    Neutral,
    /// Transparent: the opacity of a value is its magnitude on the scale.
    Transparent,
}

/// How a map becomes colours.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HeatmapOptions {
    /// Ends the scale at this percentile of the magnitudes, so that a few extreme values do not pale all
    /// others; the note counts the values beyond. Nothing is clipped unless asked.
    pub clip: Option<f64>,
    /// How values near zero are drawn.
    pub zero: Zero,
}

/// A drawn map.
#[derive(Clone, Debug, PartialEq)]
pub struct Heatmap {
    /// Number of columns.
    pub width: usize,
    /// Number of rows.
    pub height: usize,
    /// Red, green, blue, opacity of each pixel, row by row.
    pub rgba: Vec<u8>,
    /// Smallest and largest finite value; both NaN where no value is finite.
    pub range: (f32, f32),
    /// The note beside the picture; none for an ordinary map.
    pub note: Option<Note>,
}

impl Heatmap {
    /// Draws `map`.
    pub fn new(map: &ScalarField, options: &HeatmapOptions) -> Result<Self> {
        let scale = Scale::new(map, options.clip)?;
        let mut heatmap = Heatmap::scaled(map, &scale, options.zero);
        heatmap.note = scale.note().cloned();
        Ok(heatmap)
    }

    /// Draws `map` on the scale of another, so that both can be compared colour by colour. There is no note:
    /// it belongs to the map the scale was made of.
    pub fn scaled(map: &ScalarField, scale: &Scale, zero: Zero) -> Self {
        let mut rgba = Vec::with_capacity(map.values().len() * 4);
        for &value in map.values() {
            rgba.extend(scale.colour(value));
            rgba.push(match (zero, scale.position(value)) {
                (Zero::Transparent, Some(position)) => (position.abs() * 255.0).round() as u8,
                _ => 255,
            });
        }
        Heatmap { width: map.width(), height: map.height(), rgba, range: scale.range(), note: None }
    }

    /// The pixels, ready to be encoded.
    pub fn pixels(&self) -> Pixels<'_> {
        Pixels::Rgba(&self.rgba)
    }

    /// Writes a PNG file to `path`, whole or not at all.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        write_png(path, self.width, self.height, self.pixels())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::colour::{ColourMap, NOT_FINITE};

    #[test]
    fn each_value_is_one_pixel_of_its_colour() {
        let map = ScalarField::new(2, 2, vec![-1.0, 1.0, 0.0, f32::NAN]).unwrap();
        let heatmap = Heatmap::new(&map, &HeatmapOptions::default()).unwrap();
        let colours = [-1.0, 1.0, 0.0].map(|p| ColourMap::Diverging.at(p));
        let expected = [colours[0], colours[1], colours[2], NOT_FINITE].map(|[r, g, b]| [r, g, b, 255]);
        assert_eq!(heatmap.rgba, expected.as_flattened());
        assert_eq!(heatmap.range, (-1.0, 1.0));
        assert_eq!(heatmap.note.unwrap().not_finite, 1);
    }

    #[test]
    fn a_transparent_zero_shows_through_and_what_is_not_finite_never_does() {
        let map = ScalarField::new(5, 1, vec![-1.0, -0.5, 0.0, 1.0, f32::INFINITY]).unwrap();
        let options = HeatmapOptions { zero: Zero::Transparent, ..HeatmapOptions::default() };
        let heatmap = Heatmap::new(&map, &options).unwrap();
        let opacities: Vec<u8> = heatmap.rgba.chunks(4).map(|pixel| pixel[3]).collect();
        assert_eq!(opacities, [255, 128, 0, 255, 255]);
    }

    #[test]
    fn two_maps_on_one_scale_share_their_colours() {
        let large = ScalarField::new(2, 1, vec![0.0, 10.0]).unwrap();
        let small = ScalarField::new(2, 1, vec![5.0, 5.0]).unwrap();
        let scale = Scale::new(&large, None).unwrap();
        let heatmap = Heatmap::scaled(&small, &scale, Zero::Neutral);
        assert_eq!(heatmap.rgba[..3], ColourMap::Sequential.at(0.5));
    }
}
