//! What a decoder hands over: pixels as the file holds them, with its alpha and the side that is up. Here they become
//! the upright, opaque picture that was asked for.

use monosplit_graph::{Error, Result};

use crate::clipped::Clipper;
use crate::orientation::Orientation;
use crate::picture::{Picture, checked_area};

/// Files of any length may hold a picture of this many bytes.
const FREE_BYTES: usize = 64 << 20;

/// A larger picture has at least one byte of file for this many of its own. Photographs have one for three to a hundred;
/// deflate gets to 1032 on a blank page.
const MAX_EXPANSION: usize = 4096;

/// Whether transparent pictures show what lies behind them, and which way up they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ReadOptions {
    /// Which way up the picture is.
    pub orientation: OrientationChoice,
    /// The colour behind transparent pixels, red, green, blue. Without one, alpha is dropped and each pixel has the colour
    /// that is stored for it, as Pillow's `convert("RGB")` does.
    pub background: Option<[u8; 3]>,
}

impl ReadOptions {
    /// Sets which way up the picture is.
    #[must_use]
    pub fn orientation(mut self, orientation: OrientationChoice) -> Self {
        self.orientation = orientation;
        self
    }

    /// Sets the colour behind transparent pixels.
    #[must_use]
    pub fn background(mut self, background: Option<[u8; 3]>) -> Self {
        self.background = background;
        self
    }
}

/// Which way up a picture is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OrientationChoice {
    /// Turned as its EXIF orientation says, which is how people see it: Pillow's `ImageOps.exif_transpose`.
    #[default]
    Upright,
    /// As Pillow's `Image.open` gives it: JPEG, PNG and WebP as they are stored; TIFF, which Pillow always turns, upright.
    Ignore,
}

/// A decoded file.
pub(crate) struct Decoded {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) pixels: DecodedPixels,
    /// What EXIF says of it; the top left corner is the default.
    pub(crate) orientation: Orientation,
    /// Whether Pillow turns pictures of this format without being asked.
    pub(crate) always_turned: bool,
    /// Whether shades of 16 bits were clipped to a byte.
    pub(crate) clipped: bool,
}

/// Pixels row by row.
pub(crate) enum DecodedPixels {
    /// Three bytes each.
    Rgb(Vec<u8>),
    /// Four bytes each, colours not multiplied by alpha.
    Rgba(Vec<u8>),
}

impl Decoded {
    /// A decoded file with its top at the top.
    pub(crate) fn new(width: usize, height: usize, pixels: DecodedPixels) -> Self {
        let orientation = Orientation::default();
        Decoded { width, height, pixels, orientation, always_turned: false, clipped: false }
    }

    /// The same with an orientation, where there is one.
    pub(crate) fn oriented(mut self, orientation: Option<Orientation>) -> Self {
        self.orientation = orientation.unwrap_or_default();
        self
    }

    /// The same with what the clipper of its shades knows.
    pub(crate) fn clipped_by(mut self, clipper: &Clipper) -> Self {
        self.clipped = clipper.any();
        self
    }

    /// The picture that was asked for.
    pub(crate) fn into_picture(self, options: &ReadOptions) -> Result<Picture> {
        let rgb = match (self.pixels, options.background) {
            (DecodedPixels::Rgb(rgb), _) => rgb,
            (DecodedPixels::Rgba(rgba), None) => compact(rgba, |pixel| [pixel[0], pixel[1], pixel[2]]),
            (DecodedPixels::Rgba(rgba), Some(background)) => compact(rgba, |pixel| over(pixel, background)),
        };
        let picture = Picture::new(self.width, self.height, rgb)?;
        let turned = options.orientation == OrientationChoice::Upright || self.always_turned;
        Ok(if turned { self.orientation.upright(picture) } else { picture })
    }
}

/// Three bytes for each four, in place.
fn compact(mut rgba: Vec<u8>, colour: impl Fn([u8; 4]) -> [u8; 3]) -> Vec<u8> {
    let pixels = rgba.len() / 4;
    for i in 0..pixels {
        let pixel = [rgba[4 * i], rgba[4 * i + 1], rgba[4 * i + 2], rgba[4 * i + 3]];
        rgba[3 * i..3 * i + 3].copy_from_slice(&colour(pixel));
    }
    rgba.truncate(3 * pixels);
    rgba
}

/// A pixel over a background, rounded as Pillow's `paste` with a mask rounds.
fn over([r, g, b, alpha]: [u8; 4], background: [u8; 3]) -> [u8; 3] {
    let alpha = u32::from(alpha);
    std::array::from_fn(|i| {
        let mixed = u32::from([r, g, b][i]) * alpha + u32::from(background[i]) * (255 - alpha) + 128;
        (((mixed >> 8) + mixed) >> 8) as u8
    })
}

/// Bytes taken by `width * height` pixels, if the picture is within the limits and not larger than a file of `available`
/// bytes can be believed to hold. Formats whose coding has no bound of its own would otherwise let a short file ask for
/// half a gigabyte.
pub(crate) fn checked_expansion(
    width: usize,
    height: usize,
    bytes_per_pixel: usize,
    available: usize,
) -> Result<usize> {
    let bytes = checked_area(width, height, bytes_per_pixel)?;
    if bytes > FREE_BYTES && bytes / MAX_EXPANSION > available {
        return Err(Error::unsupported(format!(
            "a picture of {width}×{height} pixels in a file of {available} bytes is taken for a decompression bomb; \
             save it less compressed"
        )));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opaque_pixels_hide_the_background_and_transparent_ones_show_it() {
        assert_eq!(over([1, 2, 3, 255], [9, 9, 9]), [1, 2, 3]);
        assert_eq!(over([1, 2, 3, 0], [9, 8, 7]), [9, 8, 7]);
        assert_eq!(over([0, 100, 200, 128], [0, 0, 0]), [0, 50, 100]);
    }

    #[test]
    fn short_files_hold_no_large_pictures() {
        assert_eq!(checked_expansion(4000, 4000, 4, 10).unwrap(), 64_000_000);
        assert!(checked_expansion(9000, 9000, 4, 10).is_err());
        assert!(checked_expansion(9000, 9000, 4, 100_000).is_ok());
        assert!(checked_expansion(30_000, 2, 4, 1 << 30).is_err());
    }
}
