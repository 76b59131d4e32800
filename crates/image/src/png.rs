//! PNG files in: every colour type and bit depth, to 8-bit RGB.

use std::io::Cursor;

use monosplit_graph::{Error, Result};
use png::{BitDepth, ColorType, Decoder, DecodingError, Info, Limits, Transformations};

use crate::clipped::Clipper;
use crate::decoded::{Decoded, DecodedPixels};
use crate::orientation::Orientation;
use crate::picture::{MAX_BYTES, checked_area};

/// No compressed stream is smaller than its content by more than this.
const DEFLATE_RATIO: u64 = 1032;

/// Decodes a PNG file; of an animation, its still picture.
pub(crate) fn decode(bytes: &[u8]) -> Result<Decoded> {
    let mut decoder = Decoder::new_with_limits(Cursor::new(bytes), Limits { bytes: MAX_BYTES });
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let header = decoder.read_header_info().map_err(failure)?;
    let (width, height) = (header.width as usize, header.height as usize);
    let is_wide_grey = (header.color_type, header.bit_depth) == (ColorType::Grayscale, BitDepth::Sixteen);
    // Up to four samples a pixel are decoded before they become three.
    checked_area(width, height, 4)?;
    let packed = (width as u64 * bits_per_pixel(header)).div_ceil(8) * height as u64;
    if packed / DEFLATE_RATIO > bytes.len() as u64 {
        return Err(Error::malformed("the PNG is truncated: it is too short for a picture of its size"));
    }
    decoder.set_transformations(match is_wide_grey {
        true => Transformations::EXPAND,
        false => Transformations::EXPAND | Transformations::STRIP_16,
    });

    let mut reader = decoder.read_info().map_err(failure)?;
    let size = reader.output_buffer_size().filter(|&size| size <= MAX_BYTES);
    let mut samples = vec![0; size.ok_or_else(|| failure(DecodingError::LimitsExceeded))?];
    let frame = reader.next_frame(&mut samples).map_err(failure)?;
    samples.truncate(frame.buffer_size());
    let clipper = Clipper::default();
    if is_wide_grey {
        samples = samples.chunks_exact(2).map(|v| clipper.clip(u16::from_be_bytes([v[0], v[1]]))).collect();
    } else if frame.bit_depth != BitDepth::Eight {
        return Err(Error::unsupported(format!("a PNG with samples of {} bits", frame.bit_depth as u8)));
    }
    let pixels = match frame.color_type {
        ColorType::Rgb => DecodedPixels::Rgb(samples),
        ColorType::Rgba => DecodedPixels::Rgba(samples),
        ColorType::Grayscale => DecodedPixels::Rgb(samples.iter().flat_map(|&v| [v; 3]).collect()),
        ColorType::GrayscaleAlpha => {
            DecodedPixels::Rgba(samples.chunks_exact(2).flat_map(|p| [p[0], p[0], p[0], p[1]]).collect())
        }
        ColorType::Indexed => return Err(Error::malformed("the PNG lacks the palette its pixels refer to")),
    };
    let decoded = Decoded::new(frame.width as usize, frame.height as usize, pixels);
    Ok(decoded.oriented(orientation(bytes)).clipped_by(&clipper))
}

/// The orientation, from the chunk of EXIF, wherever it lies, or else from uncompressed XMP.
fn orientation(bytes: &[u8]) -> Option<Orientation> {
    const XMP: &[u8] = b"XML:com.adobe.xmp\0\0\0";
    let mut of_xmp = None;
    let mut rest = bytes.get(8..)?;
    while let Some((&[a, b, c, d, kind @ ..], data)) = rest.split_first_chunk::<8>() {
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        let Some(content) = data.get(..length) else { break };
        match &kind {
            b"eXIf" => {
                if let Some(found) = Orientation::of_exif(content) {
                    return Some(found);
                }
            }
            b"iTXt" if content.starts_with(XMP) => of_xmp = of_xmp.or_else(|| Orientation::of_xmp(content)),
            _ => {}
        }
        rest = data.get(length.saturating_add(4)..).unwrap_or_default();
    }
    of_xmp
}

fn bits_per_pixel(header: &Info<'_>) -> u64 {
    header.color_type.samples() as u64 * header.bit_depth as u64
}

fn failure(error: DecodingError) -> Error {
    match error {
        DecodingError::LimitsExceeded => {
            Error::unsupported(format!("the PNG takes more than {} MiB to decode", MAX_BYTES >> 20))
        }
        error => {
            let said = in_words(&error.to_string());
            Error::malformed(format!("the PNG is truncated or corrupt: {said}")).caused_by(error)
        }
    }
}

/// What the decoder says, with chunks by their four letters. It writes them as Rust prints structures.
fn in_words(said: &str) -> String {
    let mut words = String::new();
    let mut rest = said;
    while let Some((before, structure)) = rest.split_once("ChunkType { type: ") {
        let (fields, after) = structure.split_once('}').unwrap_or((structure, ""));
        words.push_str(before);
        words.push_str(fields.split(',').next().unwrap_or_default());
        rest = after;
    }
    words.push_str(rest);
    // What its decompressor found is the name of a variant.
    if let Some((statement, variant)) = words.split_once("stream. ") {
        let letters = variant.chars().flat_map(|c| [Some(' ').filter(|_| c.is_uppercase()), Some(c)]);
        words = format!("{statement}stream:{}", letters.flatten().collect::<String>().to_lowercase());
    }
    words.trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issue_27_messages_of_the_decoder_hold_no_debug_text() {
        let crc =
            "CRC error: expected 0x1 have 0x2 while decoding ChunkType { type: IDAT, critical: true } chunk.";
        assert_eq!(in_words(crc), "CRC error: expected 0x1 have 0x2 while decoding IDAT chunk");
        assert_eq!(
            in_words("Corrupt deflate stream. WrongChecksum"),
            "Corrupt deflate stream: wrong checksum"
        );
        assert_eq!(in_words("Invalid PNG signature."), "Invalid PNG signature");
    }
}
