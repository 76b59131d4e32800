//! Palettes: which colour an index stands for. An index beyond the palette is black, as for Pillow.

use crate::decoded::DecodedPixels;

/// Up to 256 colours, red, green, blue and alpha.
pub(crate) struct Palette([[u8; 4]; 256]);

impl Palette {
    /// A palette of these colours; those beyond the 256th are not used.
    pub(crate) fn new(colours: impl IntoIterator<Item = [u8; 3]>) -> Self {
        let mut palette = Palette([[0, 0, 0, 255]; 256]);
        for (place, [r, g, b]) in palette.0.iter_mut().zip(colours) {
            *place = [r, g, b, 255];
        }
        palette
    }

    /// A palette of colours of three bytes each.
    pub(crate) fn of_rgb(bytes: &[u8]) -> Self {
        Palette::new(bytes.chunks_exact(3).map(|colour| [colour[0], colour[1], colour[2]]))
    }

    /// Each index is a shade of grey.
    pub(crate) fn grey() -> Self {
        Palette::new((0..=255).map(|shade| [shade; 3]))
    }

    /// Makes one colour transparent.
    pub(crate) fn make_transparent(&mut self, index: u8) {
        self.0[usize::from(index)][3] = 0;
    }

    /// The pixels of these indices.
    pub(crate) fn pixels(&self, indices: &[u8], with_alpha: bool) -> DecodedPixels {
        let colours = indices.iter().map(|&index| self.0[usize::from(index)]);
        match with_alpha {
            true => DecodedPixels::Rgba(collected(colours, indices.len() * 4)),
            false => DecodedPixels::Rgb(collected(colours.map(|[r, g, b, _]| [r, g, b]), indices.len() * 3)),
        }
    }
}

fn collected<const N: usize>(colours: impl Iterator<Item = [u8; N]>, bytes: usize) -> Vec<u8> {
    let mut pixels = Vec::with_capacity(bytes);
    colours.for_each(|colour| pixels.extend_from_slice(&colour));
    pixels
}
