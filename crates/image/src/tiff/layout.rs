//! What the tags of a TIFF file say of its pixels, and the limits they have to keep.

use monosplit_graph::{Error, Result};

use super::unsupported;
use crate::decoded::checked_expansion;
use crate::ifd::{Directory, corrupt};

const WIDTH: u16 = 256;
const HEIGHT: u16 = 257;
const BITS: u16 = 258;
const COMPRESSION: u16 = 259;
const PHOTOMETRIC: u16 = 262;
const FILL_ORDER: u16 = 266;
const STRIP_OFFSETS: u16 = 273;
const SAMPLES: u16 = 277;
const ROWS_PER_STRIP: u16 = 278;
const STRIP_LENGTHS: u16 = 279;
const PLANES: u16 = 284;
const PREDICTOR: u16 = 317;
const TILE_WIDTH: u16 = 322;
const TILE_HEIGHT: u16 = 323;
const TILE_OFFSETS: u16 = 324;
const TILE_LENGTHS: u16 = 325;
const EXTRA_SAMPLES: u16 = 338;
const SAMPLE_FORMAT: u16 = 339;

/// Most samples of a pixel.
const MAX_SAMPLES: usize = 16;

/// Most strips or tiles of a plane: setting up the decoder of each takes time, however small it is. Tiles of 16×16 pixels,
/// the smallest the standard knows, make up a picture of 67 million pixels.
const MAX_CHUNKS: usize = 1 << 18;

/// What the samples of a pixel mean.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Colours {
    Grey { inverted: bool },
    GreyAlpha,
    Palette,
    Rgb,
    Rgba,
    PremultipliedRgba,
    Cmyk,
}

impl Colours {
    /// How many samples of a pixel are used; others are left out.
    pub(super) fn used(self) -> usize {
        match self {
            Colours::Grey { .. } | Colours::Palette => 1,
            Colours::GreyAlpha => 2,
            Colours::Rgb => 3,
            Colours::Rgba | Colours::PremultipliedRgba | Colours::Cmyk => 4,
        }
    }
}

/// How a sample is a number.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum SampleFormat {
    Unsigned,
    Signed,
    Float,
}

/// How strips or tiles are packed.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Compression {
    None,
    Lzw,
    Deflate,
    PackBits,
}

/// Where pixels lie in the file.
pub(super) struct Layout {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) bits: usize,
    /// Samples of a pixel.
    pub(super) samples: usize,
    pub(super) colours: Colours,
    pub(super) format: SampleFormat,
    pub(super) big_endian: bool,
    pub(super) compression: Compression,
    pub(super) has_predictor: bool,
    /// Whether the first pixel of a byte is in its low bits.
    pub(super) reversed_bits: bool,
    /// Whether each sample has strips or tiles of its own.
    pub(super) separate_planes: bool,
    /// Sides of a strip or tile.
    pub(super) chunk: (usize, usize),
    /// Whether they are tiles, which are whole even at the rim.
    pub(super) tiled: bool,
    pub(super) offsets: Vec<u64>,
    pub(super) lengths: Vec<u64>,
}

impl Layout {
    pub(super) fn read(directory: &Directory<'_>, available: usize) -> Result<Layout> {
        let one =
            |tag: u16| Ok::<_, Error>(directory.unsigned(tag, 1)?.and_then(|values| values.first().copied()));
        let side = |value: Option<u64>| usize::try_from(value.unwrap_or(0)).unwrap_or(usize::MAX);
        let (width, height) = (side(one(WIDTH)?), side(one(HEIGHT)?));
        let samples = side(Some(one(SAMPLES)?.unwrap_or(1)));
        if !(1..=MAX_SAMPLES).contains(&samples) {
            return Err(unsupported(&format!("a TIFF of {samples} samples a pixel")));
        }
        let bits = bits(directory.unsigned(BITS, MAX_SAMPLES)?.as_deref().unwrap_or(&[1]))?;
        let format = format(directory.unsigned(SAMPLE_FORMAT, MAX_SAMPLES)?.as_deref().unwrap_or(&[1]))?;
        let extra = one(EXTRA_SAMPLES)?;
        let colours = colours(one(PHOTOMETRIC)?, samples, extra, (bits, format))?;
        let bytes_per_sample = bits.div_ceil(8);
        checked_expansion(width, height, (samples * bytes_per_sample).max(4), available)?;
        let tile = (one(TILE_WIDTH)?, one(TILE_HEIGHT)?);
        let (chunk, offsets, lengths, tiled) = match tile {
            (Some(_), Some(_)) => ((side(tile.0), side(tile.1)), TILE_OFFSETS, TILE_LENGTHS, true),
            _ => {
                let rows = one(ROWS_PER_STRIP)?.map_or(height, |rows| side(Some(rows)));
                ((width, rows.min(height)), STRIP_OFFSETS, STRIP_LENGTHS, false)
            }
        };
        if chunk.0 == 0 || chunk.1 == 0 {
            return Err(corrupt("its strips or tiles are empty"));
        }
        // Tiles may reach beyond the picture; what has to be unpacked is bounded like the picture itself.
        let padded = |side: usize, chunk: usize| side.checked_next_multiple_of(chunk).unwrap_or(usize::MAX);
        let padded = (padded(width, chunk.0), if tiled { padded(height, chunk.1) } else { height });
        checked_expansion(padded.0, padded.1, samples * bytes_per_sample, available)?;
        let chunks = width.div_ceil(chunk.0) * height.div_ceil(chunk.1);
        if chunks > MAX_CHUNKS {
            return Err(unsupported(&format!("the TIFF is cut into {chunks} pieces")));
        }
        let separate_planes = samples > 1 && one(PLANES)? == Some(2);
        let pieces = if separate_planes { chunks * samples } else { chunks };
        let list = |tag| {
            let values = directory.unsigned(tag, pieces)?;
            values.ok_or_else(|| corrupt("the places of its pixels are missing"))
        };
        let (offsets, lengths) = (list(offsets)?, list(lengths)?);
        // Pieces that share bytes of the file could be far more to read than the file is long.
        let packed = lengths.iter().fold(0, |sum: u64, &length| sum.saturating_add(length));
        if packed > available as u64 {
            return Err(corrupt("its strips or tiles are longer than the file"));
        }
        Ok(Layout {
            width,
            height,
            bits,
            samples,
            colours,
            format,
            big_endian: directory.is_big_endian(),
            compression: compression(one(COMPRESSION)?)?,
            has_predictor: predictor(one(PREDICTOR)?, bits, format)?,
            reversed_bits: one(FILL_ORDER)? == Some(2),
            separate_planes,
            chunk,
            tiled,
            offsets,
            lengths,
        })
    }
}

fn bits(values: &[u64]) -> Result<usize> {
    match values {
        [first @ (1 | 2 | 4 | 8 | 16 | 32), rest @ ..] if rest.iter().all(|bits| bits == first) => {
            Ok(*first as usize)
        }
        _ => Err(unsupported(&format!("a TIFF with samples of {values:?} bits"))),
    }
}

fn format(values: &[u64]) -> Result<SampleFormat> {
    match values.first() {
        Some(1) => Ok(SampleFormat::Unsigned),
        Some(2) => Ok(SampleFormat::Signed),
        Some(3) => Ok(SampleFormat::Float),
        _ => Err(unsupported("a TIFF whose samples are neither whole numbers nor floats")),
    }
}

/// The kinds of colour Pillow opens.
fn colours(
    photometric: Option<u64>,
    samples: usize,
    extra: Option<u64>,
    (bits, format): (usize, SampleFormat),
) -> Result<Colours> {
    let plain = format == SampleFormat::Unsigned;
    Ok(match (photometric, samples, extra) {
        // Pillow shows white-is-zero as it is stored where samples are wide.
        (Some(0), 1, _) => Colours::Grey { inverted: bits <= 8 },
        (Some(1), 1, _) => Colours::Grey { inverted: false },
        (Some(1), 2, Some(0)) if bits == 8 => Colours::Grey { inverted: false },
        (Some(1), 2, Some(2)) if bits == 8 => Colours::GreyAlpha,
        (Some(3), 1, _) if plain && bits <= 8 => Colours::Palette,
        (Some(2), 3, _) if plain && matches!(bits, 8 | 16) => Colours::Rgb,
        (Some(2), 4.., Some(0)) if plain && matches!(bits, 8 | 16) => Colours::Rgb,
        (Some(2), 4.., Some(1)) if plain && bits == 8 => Colours::PremultipliedRgba,
        (Some(2), 4, None | Some(2 | 999)) | (Some(2), 5.., Some(2)) if plain && matches!(bits, 8 | 16) => {
            Colours::Rgba
        }
        (Some(5), 4.., _) if plain && matches!(bits, 8 | 16) => Colours::Cmyk,
        (Some(kind), ..) => {
            return Err(unsupported(&format!(
                "a TIFF of photometric kind {kind} with {samples} samples of {bits} bits is not read"
            )));
        }
        (None, ..) => return Err(corrupt("it does not say what its samples mean")),
    })
}

fn compression(value: Option<u64>) -> Result<Compression> {
    match value {
        None | Some(1) => Ok(Compression::None),
        Some(5) => Ok(Compression::Lzw),
        Some(8 | 32946) => Ok(Compression::Deflate),
        Some(32773) => Ok(Compression::PackBits),
        Some(2..=4) => Err(unsupported("the TIFF is coded as a fax")),
        Some(6 | 7) => Err(unsupported("the TIFF holds a JPEG")),
        Some(other) => {
            Err(unsupported(&format!("the TIFF is compressed by method {other}, which is not read")))
        }
    }
}

fn predictor(value: Option<u64>, bits: usize, format: SampleFormat) -> Result<bool> {
    match value {
        None | Some(1) => Ok(false),
        Some(2) if matches!(bits, 8 | 16 | 32) && format != SampleFormat::Float => Ok(true),
        Some(other) => Err(unsupported(&format!("the TIFF has predictor {other} on samples of {bits} bits"))),
    }
}
