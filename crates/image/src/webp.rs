//! WebP files in, lossy and lossless, through `image-webp`, whose pixels are libwebp's and so Pillow's.

use std::io::Cursor;

use image_webp::{DecodingError, WebPDecoder};
use monosplit_graph::{Error, Result};

use crate::decoded::{Decoded, DecodedPixels, checked_expansion};
use crate::orientation::Orientation;
use crate::picture::MAX_BYTES;

/// Most bytes of EXIF and of XMP that are read.
const MAX_METADATA: usize = 1 << 20;

/// Decodes a WebP file; of an animation, the first frame.
pub(crate) fn decode(bytes: &[u8]) -> Result<Decoded> {
    let mut decoder = WebPDecoder::new(Cursor::new(bytes)).map_err(failure)?;
    let (width, height) = decoder.dimensions();
    let (width, height) = (width as usize, height as usize);
    let samples = if decoder.has_alpha() { 4 } else { 3 };
    // The decoder works on four samples a pixel whatever it hands over.
    checked_expansion(width, height, 4, bytes.len())?;
    check_sizes(bytes.get(12..).unwrap_or_default(), (width, height), false)?;
    decoder.set_memory_limit(MAX_METADATA);
    let exif = decoder.exif_metadata().ok().flatten();
    let xmp = decoder.xmp_metadata().ok().flatten();
    decoder.set_memory_limit(MAX_BYTES);
    let mut pixels = vec![0; width * height * samples];
    match decoder.is_animated() {
        true => drop(decoder.read_frame(&mut pixels).map_err(failure)?),
        false => decoder.read_image(&mut pixels).map_err(failure)?,
    }
    let pixels = if samples == 4 { DecodedPixels::Rgba(pixels) } else { DecodedPixels::Rgb(pixels) };
    let orientation = exif.as_deref().and_then(Orientation::of_exif);
    let orientation = orientation.or_else(|| xmp.as_deref().and_then(Orientation::of_xmp));
    Ok(Decoded::new(width, height, pixels).oriented(orientation))
}

/// Checks that what is coded, of a picture or of a frame of it, has the size that is announced: the decoder makes room for the size inside a coded frame before
/// it compares the two, and where the frame has alpha it does not compare them at all.
fn check_sizes(chunks: &[u8], (width, height): (usize, usize), is_frame: bool) -> Result<()> {
    for (kind, content) in Chunks(chunks) {
        let found = match kind {
            b"VP8 " => lossy_size(content),
            b"VP8L" => lossless_size(content),
            b"ANMF" if is_frame => return Err(corrupt("a frame holds another frame")),
            b"ANMF" => {
                let side = |at: usize| {
                    content
                        .get(at..at + 3)
                        .map(|b| usize::from(b[0]) | usize::from(b[1]) << 8 | usize::from(b[2]) << 16)
                };
                let (Some(w), Some(h)) = (side(6), side(9)) else {
                    return Err(corrupt("a frame is cut short"));
                };
                let frame = (w + 1, h + 1);
                if frame.0 > width || frame.1 > height {
                    return Err(corrupt("a frame is larger than the picture"));
                }
                check_sizes(content.get(16..).unwrap_or_default(), frame, true)?;
                continue;
            }
            _ => continue,
        };
        if found != Some((width, height)) {
            return Err(corrupt("a frame has another size than it announces"));
        }
    }
    Ok(())
}

fn lossy_size(content: &[u8]) -> Option<(usize, usize)> {
    match *content.get(3..10)? {
        [0x9d, 0x01, 0x2a, a, b, c, d] => {
            let side = |low, high| usize::from(u16::from_le_bytes([low, high]) & 0x3fff);
            Some((side(a, b), side(c, d)))
        }
        _ => None,
    }
}

fn lossless_size(content: &[u8]) -> Option<(usize, usize)> {
    match *content.get(..5)? {
        [0x2f, a, b, c, d] => {
            let bits = u32::from_le_bytes([a, b, c, d]) as usize;
            Some(((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1))
        }
        _ => None,
    }
}

/// The chunks of a RIFF file, each padded to an even length. The last may be cut short.
struct Chunks<'a>(&'a [u8]);

impl<'a> Iterator for Chunks<'a> {
    type Item = (&'a [u8; 4], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (kind, rest) = self.0.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let length = u32::from_le_bytes(*length) as usize;
        self.0 = rest.get(length.saturating_add(length % 2)..).unwrap_or_default();
        Some((kind, &rest[..length.min(rest.len())]))
    }
}

fn corrupt(what: &str) -> Error {
    Error::malformed(format!("the WebP is truncated or corrupt: {what}"))
}

fn failure(error: DecodingError) -> Error {
    match error {
        DecodingError::MemoryLimitExceeded => {
            Error::unsupported(format!("the WebP takes more than {} MiB to decode", MAX_BYTES >> 20))
        }
        error => corrupt(&error.to_string()),
    }
}
