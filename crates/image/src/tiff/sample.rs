//! Single samples of a TIFF file, as bytes.

use super::layout::{Colours, Layout, SampleFormat};
use crate::clipped::Clipper;

/// The sample at a position of a row. Shades of fewer than 8 bits are scaled to 255, indices are not; of 16-bit colours the
/// high byte counts; wide shades are clipped.
pub(super) fn byte(row: &[u8], position: usize, layout: &Layout, clipper: &Clipper) -> u8 {
    match layout.bits {
        8 => row[position],
        16 => {
            let value = u16::from_ne_bytes(ordered(row, position, layout.big_endian));
            match (layout.colours, layout.format) {
                (Colours::Grey { .. }, SampleFormat::Signed) => (value as i16).clamp(0, 255) as u8,
                (Colours::Grey { .. }, _) => clipper.clip(value),
                _ => (value >> 8) as u8,
            }
        }
        32 => {
            let value = ordered(row, position, layout.big_endian);
            match layout.format {
                SampleFormat::Float => f32::from_ne_bytes(value) as u8,
                // Pillow holds unsigned numbers as signed ones.
                _ => i32::from_ne_bytes(value).clamp(0, 255) as u8,
            }
        }
        bits => {
            let shift = 8 - bits - position * bits % 8;
            let mask = 255 >> (8 - bits);
            let value = row[position * bits / 8] >> shift & mask;
            if layout.colours == Colours::Palette { value } else { value * (255 / mask) }
        }
    }
}

/// The bytes of a sample in the order of this machine.
fn ordered<const N: usize>(row: &[u8], position: usize, big_endian: bool) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&row[position * N..][..N]);
    if big_endian != cfg!(target_endian = "big") {
        bytes.reverse();
    }
    bytes
}

/// Undoes horizontal differencing: each sample of a row was stored less the one of the pixel before it.
pub(super) fn add_up(row: &mut [u8], samples: usize, layout: &Layout) {
    match layout.bits {
        8 => {
            for i in samples..row.len() {
                row[i] = row[i].wrapping_add(row[i - samples]);
            }
        }
        16 => sums::<2>(row, samples, layout.big_endian),
        _ => sums::<4>(row, samples, layout.big_endian),
    }
}

fn sums<const N: usize>(row: &mut [u8], samples: usize, big_endian: bool) {
    let significance = |byte: usize| if big_endian { N - 1 - byte } else { byte };
    for i in samples..row.len() / N {
        let mut carry = 0;
        for byte in (0..N).map(significance) {
            let sum = u16::from(row[i * N + byte]) + u16::from(row[(i - samples) * N + byte]) + carry;
            row[i * N + byte] = sum as u8;
            carry = sum >> 8;
        }
    }
}
