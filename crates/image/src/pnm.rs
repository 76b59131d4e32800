//! Netpbm's files in: bitmaps, grey maps and pixel maps, plain (`P1` to `P3`) and raw (`P4` to `P6`).
//!
//! Values are scaled to 255 as Pillow scales them. Grey maps of more than 8 bits become 16-bit numbers first, which
//! Pillow then clips at 255.

use monosplit_graph::{Error, Result};

use crate::clipped::Clipper;
use crate::decoded::{Decoded, DecodedPixels, checked_expansion};

/// Most digits of a number.
const MAX_DIGITS: usize = 10;

/// Decodes a file.
pub(crate) fn decode(bytes: &[u8]) -> Result<Decoded> {
    let mut tokens = Tokens { bytes, position: 2 };
    let (is_plain, samples) = match bytes.get(1) {
        Some(b'1') => (true, Samples::Bits),
        Some(b'2') => (true, Samples::Grey),
        Some(b'3') => (true, Samples::Rgb),
        Some(b'4') => (false, Samples::Bits),
        Some(b'5') => (false, Samples::Grey),
        _ => (false, Samples::Rgb),
    };
    let (width, height) = (tokens.number()?, tokens.number()?);
    let maximum = if samples == Samples::Bits { 1 } else { tokens.number()? };
    let maximum = u16::try_from(maximum).ok().filter(|&maximum| maximum > 0);
    let maximum = maximum.ok_or_else(|| corrupt("its largest value is not between 1 and 65535"))?;
    checked_expansion(width, height, 3, bytes.len())?;
    // Every sample takes at least a byte, but eight bits of a raw bitmap share one.
    let per_row = if samples == Samples::Rgb { 3 * width } else { width };
    let least = if samples == Samples::Bits && !is_plain { width.div_ceil(8) } else { per_row } * height;
    let rest = bytes.get(tokens.position..).unwrap_or_default();
    if rest.len() < least {
        return Err(corrupt("it is too short for a picture of its size"));
    }
    let count = per_row * height;
    let scale = Scale::new(samples, maximum);
    let values = match (is_plain, samples) {
        (true, Samples::Bits) => tokens.plain_bits(count)?,
        (false, Samples::Bits) => raw_bits(rest, width, height),
        (true, _) => {
            let value = |_| tokens.value(maximum).map(|value| scale.apply(value));
            (0..count).map(value).collect::<Result<_>>()?
        }
        (false, _) => raw_values(rest, count, &scale)?,
    };
    let rgb = if samples == Samples::Rgb { values } else { values.iter().flat_map(|&v| [v; 3]).collect() };
    Ok(Decoded::new(width, height, DecodedPixels::Rgb(rgb)).clipped_by(&scale.clipper))
}

fn corrupt(what: &str) -> Error {
    Error::malformed(format!("the PPM is truncated or corrupt: {what}"))
}

#[derive(Clone, Copy, PartialEq)]
enum Samples {
    Bits,
    Grey,
    Rgb,
}

/// How values become bytes.
struct Scale {
    maximum: u16,
    /// Grey maps of more than 8 bits.
    is_wide: bool,
    clipper: Clipper,
}

impl Scale {
    fn new(samples: Samples, maximum: u16) -> Self {
        let is_wide = samples == Samples::Grey && maximum > 255;
        Scale { maximum, is_wide, clipper: Clipper::default() }
    }

    fn apply(&self, value: u16) -> u8 {
        let top = if self.is_wide { 65535.0 } else { 255.0 };
        let scaled = (f64::from(value) / f64::from(self.maximum) * top).round_ties_even().min(top);
        if self.is_wide { self.clipper.clip(scaled as u16) } else { scaled as u8 }
    }
}

fn raw_values(bytes: &[u8], count: usize, scale: &Scale) -> Result<Vec<u8>> {
    let width = if scale.maximum < 256 { 1 } else { 2 };
    let bytes = bytes.get(..count.saturating_mul(width)).ok_or_else(|| corrupt("it ends too early"))?;
    let value = |sample: &[u8]| sample.iter().fold(0, |value, &byte| value << 8 | u16::from(byte));
    Ok(bytes.chunks_exact(width).map(|sample| scale.apply(value(sample))).collect())
}

/// Rows of bits, a one for black, each padded to a whole byte.
fn raw_bits(bytes: &[u8], width: usize, height: usize) -> Vec<u8> {
    let mut values = Vec::with_capacity(width * height);
    for row in bytes.chunks_exact(width.div_ceil(8)).take(height) {
        values.extend((0..width).map(|x| if row[x / 8] >> (7 - x % 8) & 1 == 1 { 0 } else { 255 }));
    }
    values
}

/// Numbers between white space and comments.
struct Tokens<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl Tokens<'_> {
    fn next_byte(&mut self) -> Option<u8> {
        let byte = self.bytes.get(self.position).copied();
        self.position += usize::from(byte.is_some());
        byte
    }

    /// The next byte that is neither space nor part of a comment.
    fn next_visible(&mut self) -> Option<u8> {
        loop {
            match self.next_byte()? {
                b'#' => while !matches!(self.next_byte(), None | Some(b'\r' | b'\n')) {},
                byte if is_space(byte) => {}
                byte => return Some(byte),
            }
        }
    }

    /// The next number, and the one space after it.
    fn number(&mut self) -> Result<usize> {
        let mut byte = self.next_visible();
        let mut value: usize = 0;
        let mut digits = 0;
        while let Some(digit @ b'0'..=b'9') = byte {
            digits += 1;
            // A number that 32 bits cannot hold is beyond every limit, and is not counted further.
            value = value.saturating_mul(10).saturating_add(usize::from(digit - b'0'));
            if digits > MAX_DIGITS {
                break;
            }
            byte = self.next_byte();
        }
        match byte {
            None if digits > 0 => Ok(value),
            Some(b'#') if digits > 0 => {
                self.position -= 1;
                Ok(value)
            }
            Some(byte) if digits > 0 && is_space(byte) => Ok(value),
            _ => Err(corrupt("a number is missing or wrong")),
        }
    }

    fn value(&mut self, maximum: u16) -> Result<u16> {
        let value = u16::try_from(self.number()?).ok().filter(|&value| value <= maximum);
        value.ok_or_else(|| corrupt("a value is larger than it says is the largest"))
    }

    /// Digits with or without space between them, a one for black.
    fn plain_bits(&mut self, count: usize) -> Result<Vec<u8>> {
        let bit = |tokens: &mut Self| match tokens.next_visible() {
            Some(b'0') => Ok(255),
            Some(b'1') => Ok(0),
            _ => Err(corrupt("a bit is missing or neither 0 nor 1")),
        };
        (0..count).map(|_| bit(self)).collect()
    }
}

fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}
