//! The headers of a BMP file.

use monosplit_graph::{Error, Result};

use super::corrupt;

/// What the headers say.
pub(super) struct Header {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) is_bottom_up: bool,
    pub(super) bits: usize,
    pub(super) coding: Coding,
    /// Where the palette begins, its number of colours and the bytes of each.
    pub(super) palette: usize,
    pub(super) colours: usize,
    pub(super) colour_size: usize,
    /// Where the pixels begin.
    pub(super) data: usize,
}

/// How pixels are stored.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Coding {
    /// Indices of 1, 4 or 8 bits.
    Palette,
    /// Runs of indices of 4 or 8 bits.
    RunLength,
    /// 16 bits, five of each colour.
    Rgb555,
    /// 16 bits, six of green.
    Rgb565,
    /// Pixels of `size` bytes, with the places of red, green and blue among them.
    Bytes { size: usize, order: [usize; 3], alpha: Option<usize> },
}

const RUN_LENGTH_8: u32 = 1;
const RUN_LENGTH_4: u32 = 2;
const MASKS: u32 = 3;

impl Header {
    pub(super) fn read(bytes: &[u8]) -> Result<Header> {
        let u32_at = |at: usize| -> Result<u32> {
            let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
            found.map(|value| u32::from_le_bytes(*value)).ok_or_else(|| corrupt("it ends too early"))
        };
        let u16_at = |at: usize| -> Result<usize> {
            let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
            found
                .map(|value| usize::from(u16::from_le_bytes(*value)))
                .ok_or_else(|| corrupt("it ends too early"))
        };
        let size = u32_at(14)? as usize;
        let is_core = size == 12;
        if !matches!(size, 12 | 40 | 52 | 56 | 64 | 108 | 124) {
            return Err(Error::unsupported(format!("a BMP with a header of {size} bytes")));
        }
        let (width, height, bits) = match is_core {
            true => (u16_at(18)?, u16_at(20)? as i64, u16_at(24)?),
            false => (u32_at(18)? as usize, i64::from(u32_at(22)? as i32), u16_at(28)?),
        };
        let compression = if is_core { 0 } else { u32_at(30)? };
        let colours = if is_core { 0 } else { u32_at(46)? as usize };
        let colours = if colours == 0 { 1 << bits.min(16) } else { colours };
        let mut palette = 14 + size;
        let mut masks = [0; 4];
        if compression == MASKS {
            let count = if size >= 56 { 4 } else { 3 };
            for (index, mask) in masks.iter_mut().enumerate().take(count) {
                *mask = u32_at(54 + 4 * index)?;
            }
            palette += if size == 40 { 12 } else { 0 };
        }
        let coding = coding(bits, compression, masks)?;
        let colour_size = if is_core { 3 } else { 4 };
        let mut data = u32_at(10)? as usize;
        // Some writers leave the palette out of the offset.
        if data == 14 + size && bits <= 8 {
            data += colour_size * colours.min(bytes.len());
        }
        let rows = usize::try_from(height.unsigned_abs()).unwrap_or(usize::MAX);
        Ok(Header {
            width,
            height: rows,
            is_bottom_up: height > 0,
            bits,
            coding,
            palette,
            colours: colours.min(256),
            colour_size,
            data,
        })
    }
}

fn coding(bits: usize, compression: u32, masks: [u32; 4]) -> Result<Coding> {
    let bytes = |size, order, alpha| Ok(Coding::Bytes { size, order, alpha });
    match (bits, compression) {
        (1 | 4 | 8, 0) => Ok(Coding::Palette),
        (8, RUN_LENGTH_8) | (4, RUN_LENGTH_4) => Ok(Coding::RunLength),
        (16, 0) => Ok(Coding::Rgb555),
        (24, 0) => bytes(3, [2, 1, 0], None),
        (32, 0) => bytes(4, [2, 1, 0], None),
        (_, MASKS) => match (bits, masks) {
            (16, [0x7c00, 0x3e0, 0x1f, _]) => Ok(Coding::Rgb555),
            (16, [0xf800, 0x7e0, 0x1f, _]) => Ok(Coding::Rgb565),
            (24, [0xff_0000, 0xff00, 0xff, _]) => bytes(3, [2, 1, 0], None),
            (32, [0, 0, 0, 0]) => bytes(4, [2, 1, 0], Some(3)),
            (32, [red, green, blue, alpha]) => match [red, green, blue].map(place) {
                [Some(r), Some(g), Some(b)] if alpha == 0 || place(alpha).is_some() => {
                    bytes(4, [r, g, b], place(alpha))
                }
                _ => Err(unsupported()),
            },
            _ => Err(unsupported()),
        },
        _ => Err(Error::unsupported(format!("a BMP of {bits} bits a pixel and compression {compression}"))),
    }
}

fn unsupported() -> Error {
    Error::unsupported("the BMP has colours of an unusual number of bits; save it with 24 bits a pixel")
}

/// Which byte of four a mask selects.
fn place(mask: u32) -> Option<usize> {
    (0..4).find(|&at| mask == 0xff << (8 * at))
}
