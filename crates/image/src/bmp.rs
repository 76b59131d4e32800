//! BMP files in: Windows' and OS/2's bitmaps of 1, 4, 8, 16, 24 and 32 bits, also run-length coded, with Pillow's
//! rounding of 5-bit colours and its reading of the fourth byte.

mod header;
mod run_length;

use monosplit_graph::{Error, Result};

use crate::decoded::{Decoded, DecodedPixels, checked_expansion};
use crate::palette::Palette;
use header::{Coding, Header};

/// Decodes a BMP file.
pub(crate) fn decode(bytes: &[u8]) -> Result<Decoded> {
    let header = Header::read(bytes)?;
    let (width, height) = (header.width, header.height);
    checked_expansion(width, height, 4, bytes.len())?;
    let data = bytes.get(header.data..).unwrap_or_default();
    let mut pixels = match header.coding {
        Coding::Palette | Coding::RunLength => {
            let indices = match header.coding {
                Coding::RunLength => run_length::decode(data, header.data, &header)?,
                _ => indices(data, &header)?,
            };
            header.palette(bytes)?.pixels(&indices, false)
        }
        Coding::Rgb555 => DecodedPixels::Rgb(words(data, &header, |v| {
            [widen(v >> 10, 31), widen(v >> 5, 31), widen(v, 31)]
        })?),
        Coding::Rgb565 => DecodedPixels::Rgb(words(data, &header, |v| {
            [widen(v >> 11, 31), widen(v >> 5, 63), widen(v, 31)]
        })?),
        Coding::Bytes { size, order, alpha } => samples(data, &header, size, order, alpha)?,
    };
    if header.is_bottom_up {
        let row = match &pixels {
            DecodedPixels::Rgb(_) => 3 * width,
            DecodedPixels::Rgba(_) => 4 * width,
        };
        let (DecodedPixels::Rgb(bytes) | DecodedPixels::Rgba(bytes)) = &mut pixels;
        flip(bytes, row);
    }
    Ok(Decoded::new(width, height, pixels))
}

fn corrupt(what: &str) -> Error {
    Error::malformed(format!("the BMP is truncated or corrupt: {what}"))
}

fn flip(bytes: &mut [u8], row: usize) {
    let mut rows = bytes.chunks_exact_mut(row);
    while let (Some(first), Some(last)) = (rows.next(), rows.next_back()) {
        first.swap_with_slice(last);
    }
}

/// Rows as they are stored, each padded to four bytes.
fn rows<'a>(data: &'a [u8], header: &Header) -> Result<impl Iterator<Item = &'a [u8]>> {
    let stride = (header.width * header.bits).div_ceil(32) * 4;
    let used = (header.width * header.bits).div_ceil(8);
    // The padding of the last row may be missing.
    let needed = stride * (header.height - 1) + used;
    let data = data.get(..needed).ok_or_else(|| corrupt("it ends too early"))?;
    Ok(data.chunks(stride).map(move |row| &row[..used]))
}

fn indices(data: &[u8], header: &Header) -> Result<Vec<u8>> {
    let (bits, width) = (header.bits, header.width);
    let mut indices = Vec::with_capacity(width * header.height);
    for row in rows(data, header)? {
        indices.extend((0..width).map(|x| {
            let (byte, shift) = (row[x * bits / 8], 8 - bits - x * bits % 8);
            byte >> shift & (255 >> (8 - bits))
        }));
    }
    Ok(indices)
}

fn words(data: &[u8], header: &Header, colour: impl Fn(u16) -> [u8; 3]) -> Result<Vec<u8>> {
    let mut rgb = Vec::with_capacity(header.width * header.height * 3);
    for row in rows(data, header)? {
        row.chunks_exact(2).for_each(|v| rgb.extend_from_slice(&colour(u16::from_le_bytes([v[0], v[1]]))));
    }
    Ok(rgb)
}

/// The low bits of `value` up to `top`, as a byte.
fn widen(value: u16, top: u16) -> u8 {
    (u32::from(value & top) * 255 / u32::from(top)) as u8
}

fn samples(
    data: &[u8],
    header: &Header,
    size: usize,
    order: [usize; 3],
    alpha: Option<usize>,
) -> Result<DecodedPixels> {
    let mut pixels = Vec::with_capacity(header.width * header.height * if alpha.is_some() { 4 } else { 3 });
    for row in rows(data, header)? {
        for pixel in row.chunks_exact(size) {
            pixels.extend(order.map(|at| pixel[at]));
            pixels.extend(alpha.map(|at| pixel[at]));
        }
    }
    Ok(if alpha.is_some() { DecodedPixels::Rgba(pixels) } else { DecodedPixels::Rgb(pixels) })
}

impl Header {
    /// The colours between the header and the pixels.
    fn palette(&self, bytes: &[u8]) -> Result<Palette> {
        let (start, size) = (self.palette, self.colour_size);
        let colours = bytes.get(start..).unwrap_or_default().chunks_exact(size).take(self.colours);
        Ok(Palette::new(colours.map(|colour| [colour[2], colour[1], colour[0]])))
    }
}
