//! Strips and tiles: unpacked one by one and put in their places, as one byte for each sample that is used.

use std::io::Read;

use flate2::bufread::ZlibDecoder;
use monosplit_graph::Result;
use weezl::BitOrder;
use weezl::decode::Configuration;

use super::layout::{Compression, Layout};
use super::sample;
use crate::clipped::Clipper;
use crate::ifd::corrupt;

/// The samples of all pixels that are used, pixel by pixel.
pub(super) fn samples(bytes: &[u8], layout: &Layout, clipper: &Clipper) -> Result<Vec<u8>> {
    let used = layout.colours.used();
    let mut pixels = vec![0; layout.width * layout.height * used];
    let across = layout.width.div_ceil(layout.chunk.0);
    let down = layout.height.div_ceil(layout.chunk.1);
    let planes = if layout.separate_planes { used } else { 1 };
    for index in 0..planes * across * down {
        let (plane, place) = (index / (across * down), index % (across * down));
        let place = (place % across, place / across);
        let chunk = Chunk::read(bytes, layout, index, place)?;
        chunk.put(layout, plane, clipper, &mut pixels);
    }
    Ok(pixels)
}

/// An unpacked strip or tile.
struct Chunk {
    bytes: Vec<u8>,
    /// Its top left pixel, and how much of it lies in the picture.
    corner: (usize, usize),
    size: (usize, usize),
    row_bytes: usize,
}

impl Chunk {
    fn read(bytes: &[u8], layout: &Layout, index: usize, place: (usize, usize)) -> Result<Chunk> {
        let corner = (place.0 * layout.chunk.0, place.1 * layout.chunk.1);
        let size =
            (layout.chunk.0.min(layout.width - corner.0), layout.chunk.1.min(layout.height - corner.1));
        let rows = if layout.tiled { layout.chunk.1 } else { size.1 };
        let samples = if layout.separate_planes { 1 } else { layout.samples };
        let row_bytes = (layout.chunk.0 * samples * layout.bits).div_ceil(8);
        let part = |values: &[u64]| values.get(index).and_then(|&value| usize::try_from(value).ok());
        let (start, length) = match (part(&layout.offsets), part(&layout.lengths)) {
            (Some(start), Some(length)) => (start, length),
            _ => return Err(corrupt("strips or tiles are missing")),
        };
        let packed = bytes.get(start..).and_then(|rest| rest.get(..length));
        let packed = packed.ok_or_else(|| corrupt("it ends too early"))?;
        let reversed: Vec<u8>;
        let packed = match layout.reversed_bits {
            true => {
                reversed = packed.iter().map(|byte| byte.reverse_bits()).collect();
                &reversed
            }
            false => packed,
        };
        let mut bytes = unpacked(packed, layout.compression, rows * row_bytes)?;
        if layout.has_predictor {
            bytes.chunks_exact_mut(row_bytes).for_each(|row| sample::add_up(row, samples, layout));
        }
        Ok(Chunk { bytes, corner, size, row_bytes })
    }

    fn put(&self, layout: &Layout, plane: usize, clipper: &Clipper, pixels: &mut [u8]) {
        let used = layout.colours.used();
        let (stride, kept) = if layout.separate_planes { (1, 1) } else { (layout.samples, used) };
        for y in 0..self.size.1 {
            let row = &self.bytes[y * self.row_bytes..][..self.row_bytes];
            let start = ((self.corner.1 + y) * layout.width + self.corner.0) * used + plane;
            for x in 0..self.size.0 {
                for channel in 0..kept {
                    let byte = sample::byte(row, x * stride + channel, layout, clipper);
                    pixels[start + x * used + channel] = byte;
                }
            }
        }
    }
}

/// Exactly `length` bytes.
fn unpacked(packed: &[u8], compression: Compression, length: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match compression {
        Compression::None => bytes.extend_from_slice(&packed[..length.min(packed.len())]),
        Compression::PackBits => unpack_bits(packed, length, &mut bytes),
        Compression::Deflate => {
            let read = ZlibDecoder::new(packed).take(length as u64).read_to_end(&mut bytes);
            read.map_err(|error| corrupt(&error.to_string()))?;
        }
        Compression::Lzw => {
            bytes.resize(length, 0);
            let mut decoder = Configuration::with_tiff_size_switch(BitOrder::Msb, 8).build();
            let (mut taken, mut made) = (0, 0);
            while made < length {
                let step = decoder.decode_bytes(&packed[taken..], &mut bytes[made..]);
                taken += step.consumed_in;
                made += step.consumed_out;
                step.status.map_err(|error| corrupt(&error.to_string()))?;
                if step.consumed_in == 0 && step.consumed_out == 0 {
                    break;
                }
            }
            bytes.truncate(made);
        }
    }
    match bytes.len() == length {
        true => Ok(bytes),
        false => Err(corrupt("a strip or tile is too short")),
    }
}

/// Runs of one byte and runs of literal bytes.
fn unpack_bits(mut packed: &[u8], length: usize, bytes: &mut Vec<u8>) {
    while let [count, rest @ ..] = packed
        && bytes.len() < length
    {
        let left = length - bytes.len();
        packed = match *count as i8 {
            -128 => rest,
            count @ 0.. => {
                let (run, rest) = rest.split_at(rest.len().min(count as usize + 1));
                bytes.extend_from_slice(&run[..run.len().min(left)]);
                rest
            }
            count => match rest {
                [byte, rest @ ..] => {
                    let run = usize::from(count.unsigned_abs()) + 1;
                    bytes.resize(bytes.len() + run.min(left), *byte);
                    rest
                }
                [] => rest,
            },
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pack_bits_as_in_the_specification() {
        let packed =
            [0xfe, 0xaa, 0x02, 0x80, 0x00, 0x2a, 0xfd, 0xaa, 0x03, 0x80, 0x00, 0x2a, 0x22, 0xf7, 0xaa];
        let mut bytes = Vec::new();
        unpack_bits(&packed, 24, &mut bytes);
        let expected: Vec<u8> =
            [&[0xaa; 3][..], &[0x80, 0, 0x2a], &[0xaa; 4], &[0x80, 0, 0x2a, 0x22], &[0xaa; 10]].concat();
        assert_eq!(bytes, expected);
        bytes.clear();
        unpack_bits(&packed, 5, &mut bytes);
        assert_eq!(bytes, expected[..5]);
    }
}
