//! GIF files in: the first frame, on the background that Pillow puts it on.

use std::num::NonZeroU64;

use gif::{ColorOutput, DecodeOptions, DecodingError, MemoryLimit};
use monosplit_graph::{Error, Result};

use crate::decoded::{Decoded, checked_expansion};
use crate::palette::Palette;
use crate::picture::MAX_BYTES;

/// Decodes the first frame of a GIF file. A frame that reaches beyond the screen enlarges it; what the frame leaves free
/// has the transparent colour, or else the first of the palette.
pub(crate) fn decode(bytes: &[u8]) -> Result<Decoded> {
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::Indexed);
    options.set_memory_limit(MemoryLimit::Bytes(NonZeroU64::MIN.saturating_add(MAX_BYTES as u64)));
    let mut decoder = options.read_info(bytes).map_err(failure)?;
    let (screen_width, screen_height) = (usize::from(decoder.width()), usize::from(decoder.height()));
    let Some(frame) = decoder.next_frame_info().map_err(failure)? else {
        return Err(corrupt("it holds no picture"));
    };
    let (left, top) = (usize::from(frame.left), usize::from(frame.top));
    let (frame_width, frame_height) = (usize::from(frame.width), usize::from(frame.height));
    let transparent = frame.transparent;
    let (width, height) = (screen_width.max(left + frame_width), screen_height.max(top + frame_height));
    checked_expansion(width, height, 4, bytes.len())?;
    let mut indices = vec![0; frame_width * frame_height];
    if indices.len() != decoder.buffer_size() {
        return Err(corrupt("its frame has no size"));
    }
    if !indices.is_empty() {
        decoder.read_into_buffer(&mut indices).map_err(failure)?;
    }
    let mut palette = match decoder.palette() {
        Ok(colours) => Palette::of_rgb(colours),
        Err(_) => Palette::grey(),
    };
    if let Some(index) = transparent {
        palette.make_transparent(index);
    }
    let mut screen = vec![transparent.unwrap_or(0); width * height];
    for (y, row) in indices.chunks_exact(frame_width.max(1)).enumerate() {
        screen[(top + y) * width + left..][..frame_width].copy_from_slice(row);
    }
    let pixels = palette.pixels(&screen, transparent.is_some());
    drop(screen);
    Ok(Decoded::new(width, height, pixels))
}

fn corrupt(what: &str) -> Error {
    Error::malformed(format!("the GIF is truncated or corrupt: {what}"))
}

fn failure(error: DecodingError) -> Error {
    corrupt(&error.to_string())
}
