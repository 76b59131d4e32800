//! PNG files in: every colour type and bit depth, to 8-bit RGB.

use std::io::Cursor;

use monosplit_graph::{Error, Result};
use png::{BitDepth, ColorType, Decoder, DecodingError, Info, Limits, Transformations};

use crate::picture::{MAX_BYTES, Picture, checked_area};

/// No compressed stream is smaller than its content by more than this.
const DEFLATE_RATIO: u64 = 1032;

/// Decodes a PNG file; of an animation, its still picture.
pub(crate) fn decode(bytes: &[u8]) -> Result<Picture> {
    let mut decoder = Decoder::new_with_limits(Cursor::new(bytes), Limits { bytes: MAX_BYTES });
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    decoder.set_transformations(Transformations::EXPAND | Transformations::STRIP_16);
    let header = decoder.read_header_info().map_err(failure)?;
    let (width, height) = (header.width as usize, header.height as usize);
    // Up to four samples a pixel are decoded before they become three.
    checked_area(width, height, 4)?;
    let packed = (width as u64 * bits_per_pixel(header)).div_ceil(8) * height as u64;
    if packed / DEFLATE_RATIO > bytes.len() as u64 {
        return Err(Error::malformed("the PNG is truncated: it is too short for a picture of its size"));
    }

    let mut reader = decoder.read_info().map_err(failure)?;
    let size = reader.output_buffer_size().filter(|&size| size <= MAX_BYTES);
    let mut samples = vec![0; size.ok_or_else(|| failure(DecodingError::LimitsExceeded))?];
    let frame = reader.next_frame(&mut samples).map_err(failure)?;
    samples.truncate(frame.buffer_size());
    if frame.bit_depth != BitDepth::Eight {
        return Err(Error::unsupported(format!("a PNG with samples of {:?} bits", frame.bit_depth)));
    }
    let rgb = match frame.color_type {
        ColorType::Rgb => samples,
        ColorType::Rgba => samples.chunks_exact(4).flat_map(|p| [p[0], p[1], p[2]]).collect(),
        ColorType::Grayscale => samples.iter().flat_map(|&v| [v; 3]).collect(),
        ColorType::GrayscaleAlpha => samples.chunks_exact(2).flat_map(|p| [p[0]; 3]).collect(),
        ColorType::Indexed => return Err(Error::malformed("the PNG lacks the palette its pixels refer to")),
    };
    Picture::new(frame.width as usize, frame.height as usize, rgb)
}

fn bits_per_pixel(header: &Info<'_>) -> u64 {
    header.color_type.samples() as u64 * header.bit_depth as u64
}

fn failure(error: DecodingError) -> Error {
    match error {
        DecodingError::LimitsExceeded => {
            Error::unsupported(format!("the PNG takes more than {} MiB to decode", MAX_BYTES >> 20))
        }
        error => Error::malformed(format!("the PNG is truncated or corrupt ({error})")),
    }
}
