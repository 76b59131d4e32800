//! TIFF and BigTIFF files in: the first page, in strips or tiles, plain, LZW, deflate or PackBits, as Pillow's
//! `convert("RGB")` makes it. Fax and JPEG coding, and colours other than grey, RGB, palettes and CMYK, are refused.

mod chunk;
mod layout;
mod sample;

use monosplit_graph::{Error, Result};

use crate::clipped::Clipper;
use crate::cmyk;
use crate::decoded::{Decoded, DecodedPixels};
use crate::ifd::{Directory, corrupt};
use crate::orientation::Orientation;
use crate::palette::Palette;
use layout::{Colours, Layout};

const COLOUR_MAP: u16 = 320;
/// The values of the largest palette: three for each number of 16 bits.
const MAX_COLOURS: usize = 3 << 16;

/// Decodes the first page of a TIFF file.
pub(crate) fn decode(bytes: &[u8]) -> Result<Decoded> {
    let directory = Directory::first(bytes)?;
    let layout = Layout::read(&directory, bytes.len())?;
    let clipper = Clipper::default();
    let samples = chunk::samples(bytes, &layout, &clipper)?;
    let pixels = match layout.colours {
        Colours::Grey { inverted } => grey(&samples, inverted),
        Colours::GreyAlpha => DecodedPixels::Rgba(repeated(&samples)),
        Colours::Palette => {
            let map = directory
                .unsigned(COLOUR_MAP, MAX_COLOURS)?
                .ok_or_else(|| corrupt("it lacks its palette"))?;
            palette(&map, layout.bits).pixels(&samples, false)
        }
        Colours::Rgb => DecodedPixels::Rgb(samples),
        Colours::Rgba => DecodedPixels::Rgba(samples),
        Colours::PremultipliedRgba => DecodedPixels::Rgba(divided(samples)),
        Colours::Cmyk => {
            let rgb = |inks: &[u8]| cmyk::to_rgb([inks[0], inks[1], inks[2]], inks[3]);
            DecodedPixels::Rgb(samples.chunks_exact(4).flat_map(rgb).collect())
        }
    };
    let orientation = Orientation::of_directory(&directory);
    let decoded =
        Decoded::new(layout.width, layout.height, pixels).oriented(orientation).clipped_by(&clipper);
    Ok(Decoded { always_turned: true, ..decoded })
}

fn unsupported(what: &str) -> Error {
    Error::unsupported(format!("{what}; save the picture as a PNG"))
}

fn grey(samples: &[u8], inverted: bool) -> DecodedPixels {
    let flip = if inverted { 255 } else { 0 };
    DecodedPixels::Rgb(samples.iter().flat_map(|&shade| [shade ^ flip; 3]).collect())
}

fn repeated(samples: &[u8]) -> Vec<u8> {
    samples.chunks_exact(2).flat_map(|pixel| [pixel[0], pixel[0], pixel[0], pixel[1]]).collect()
}

/// A palette of 16-bit numbers, all reds before all greens before all blues.
fn palette(map: &[u64], bits: usize) -> Palette {
    let colours = 1 << bits;
    let value =
        |channel: usize, index: usize| map.get(channel * colours + index).map_or(0, |v| (v / 256) as u8);
    Palette::new((0..colours).map(|index| [0, 1, 2].map(|channel| value(channel, index))))
}

/// Colours that were multiplied by alpha, divided by it again.
fn divided(mut rgba: Vec<u8>) -> Vec<u8> {
    for pixel in rgba.chunks_exact_mut(4) {
        let alpha = u32::from(pixel[3]);
        for value in &mut pixel[..3] {
            *value = match alpha {
                0 => 0,
                255 => *value,
                _ => (255 * u32::from(*value) / alpha).min(255) as u8,
            };
        }
    }
    rgba
}
