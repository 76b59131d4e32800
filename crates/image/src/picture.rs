//! A picture in memory: 8-bit RGB, whatever the file held.
//!
//! The format is told from the first bytes, never from the file's name. Colours become RGB as Pillow's
//! `Image.open(path).convert("RGB")` makes them: alpha is dropped rather than blended, palettes are looked
//! up, colour profiles are ignored, and grey of 16 bits is clipped at 255. Unlike there, a picture is turned upright if its
//! EXIF orientation asks for it; [`ReadOptions`] says otherwise.

use std::io::Read;
use std::path::Path;

use monosplit_graph::{Error, Result, open_regular};

use crate::decoded::{Decoded, ReadOptions};
use crate::format::PictureFormat;
use crate::{bmp, gif, jpeg, png, pnm, tiff, webp};

/// Longest side of a picture, in pixels.
pub const MAX_SIDE: usize = 20_000;

/// Most bytes a file may hold, and most bytes any one copy of its pixels may take.
pub const MAX_BYTES: usize = 512 << 20;

/// A picture: rows from top to bottom, each pixel three bytes, red, green, blue.
#[derive(Clone, PartialEq, Eq)]
pub struct Picture {
    width: usize,
    height: usize,
    rgb: Vec<u8>,
}

impl Picture {
    /// A picture over `rgb`, which must hold `width * height * 3` bytes; no side may be zero or longer
    /// than [`MAX_SIDE`].
    pub fn new(width: usize, height: usize, rgb: Vec<u8>) -> Result<Self> {
        let expected = checked_area(width, height, 3)?;
        if rgb.len() != expected {
            return Err(Error::argument(format!(
                "a picture of {width}×{height} pixels needs {expected} bytes of RGB, but {} were given",
                rgb.len()
            )));
        }
        Ok(Picture { width, height, rgb })
    }

    /// Reads and decodes the picture at `path`, in any [format](PictureFormat).
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Picture::open_with(path, &ReadOptions::default())
    }

    /// The same, with options.
    pub fn open_with(path: impl AsRef<Path>, options: &ReadOptions) -> Result<Self> {
        let path = path.as_ref();
        let mut bytes = Vec::new();
        let read = open_regular(path)?.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes);
        read.map_err(|cause| Error::io(path, cause))?;
        let decoded = decode(&bytes).and_then(|decoded| {
            warn_of_clipping(&decoded, &path.display());
            decoded.into_picture(options)
        });
        decoded.map_err(|error| error.context(path.display()))
    }

    /// Decodes the bytes of a file.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        Picture::decode_with(bytes, &ReadOptions::default())
    }

    /// The same, with options.
    pub fn decode_with(bytes: &[u8], options: &ReadOptions) -> Result<Self> {
        let decoded = decode(bytes)?;
        warn_of_clipping(&decoded, &"a picture");
        decoded.into_picture(options)
    }

    /// A picture of as many pixels in another arrangement.
    pub(crate) fn replaced(self, width: usize, height: usize, rgb: Vec<u8>) -> Picture {
        debug_assert_eq!(rgb.len(), width * height * 3);
        Picture { width, height, rgb }
    }

    /// Number of columns.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Number of rows.
    pub fn height(&self) -> usize {
        self.height
    }

    /// The pixels, three bytes each, row by row.
    pub fn rgb(&self) -> &[u8] {
        &self.rgb
    }

    /// The pixels, giving up the picture.
    pub fn into_rgb(self) -> Vec<u8> {
        self.rgb
    }

    /// The picture in shades of grey, `L = 0.299 R + 0.587 G + 0.114 B` rounded as Pillow's `convert("L")`
    /// rounds it, repeated in all three channels.
    pub fn to_grey(&self) -> Picture {
        let mut rgb = self.rgb.clone();
        for pixel in rgb.chunks_exact_mut(3) {
            let [r, g, b] = [pixel[0], pixel[1], pixel[2]].map(u32::from);
            pixel.fill(((r * 19595 + g * 38470 + b * 7471 + 0x8000) >> 16) as u8);
        }
        Picture { rgb, ..*self }
    }
}

impl std::fmt::Debug for Picture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Picture({}×{})", self.width, self.height)
    }
}

/// Decodes the bytes of a file, whose format its first bytes tell.
fn decode(bytes: &[u8]) -> Result<Decoded> {
    let names = PictureFormat::NAMES;
    if bytes.is_empty() {
        return Err(Error::malformed(format!("the file is empty; give a picture ({names})")));
    }
    if bytes.len() > MAX_BYTES {
        return Err(Error::unsupported(format!("the file is larger than the limit of {MAX_BYTES} bytes")));
    }
    let decode = match PictureFormat::of(bytes) {
        Some(PictureFormat::Jpeg) => jpeg::decode,
        Some(PictureFormat::Png) => png::decode,
        Some(PictureFormat::WebP) => webp::decode,
        Some(PictureFormat::Gif) => gif::decode,
        Some(PictureFormat::Bmp) => bmp::decode,
        Some(PictureFormat::Tiff) => tiff::decode,
        Some(PictureFormat::Pnm) => pnm::decode,
        None => {
            return Err(Error::unsupported(format!(
                "the file does not start as a {names} does; convert the picture to one of them"
            )));
        }
    };
    decode(bytes)
}

/// Says of which picture little but white is left.
fn warn_of_clipping(decoded: &Decoded, name: &dyn std::fmt::Display) {
    if decoded.clipped {
        log::warn!(
            "{name}: grey of 16 bits has values above 255, which become white, as in Pillow's convert(\"RGB\"); \
             scale 16-bit pictures to 8 bits first"
        );
    }
}

/// Bytes taken by `width * height` pixels of `bytes_per_pixel`, if the picture is neither empty nor
/// beyond the limits.
pub(crate) fn checked_area(width: usize, height: usize, bytes_per_pixel: usize) -> Result<usize> {
    if width == 0 || height == 0 {
        return Err(Error::malformed(format!("a picture of {width}×{height} pixels is empty")));
    }
    let bytes = width.checked_mul(height).and_then(|pixels| pixels.checked_mul(bytes_per_pixel));
    match bytes {
        Some(bytes) if width.max(height) <= MAX_SIDE && bytes <= MAX_BYTES => Ok(bytes),
        _ => Err(Error::unsupported(format!(
            "a picture of {width}×{height} pixels is beyond the limits of {MAX_SIDE} pixels a side and {} MiB at \
             {bytes_per_pixel} bytes a pixel; scale it down first",
            MAX_BYTES >> 20
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_bytes_must_fit_the_sides() {
        assert!(Picture::new(2, 1, vec![0; 6]).is_ok());
        assert!(Picture::new(2, 1, vec![0; 5]).is_err());
        assert!(Picture::new(0, 1, vec![]).is_err());
        assert!(Picture::new(usize::MAX, 3, vec![]).is_err());
        assert!(Picture::new(MAX_SIDE + 1, 1, vec![0; 3 * (MAX_SIDE + 1)]).is_err());
    }

    #[test]
    fn grey_pixels_stay_as_they_are_in_grey() {
        let ramp: Vec<u8> = (0..=255).flat_map(|v| [v; 3]).collect();
        let picture = Picture::new(256, 1, ramp).unwrap();
        assert_eq!(picture.to_grey(), picture);
    }
}
