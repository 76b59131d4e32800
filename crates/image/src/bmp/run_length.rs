//! Runs of palette indices. What the runs leave out has index 0, as for Pillow.

use monosplit_graph::Result;

use super::corrupt;
use super::header::Header;

/// Decodes runs to one index a pixel, in the order of rows in the file. `offset` is the place of `data` in the file, to
/// whose even bytes literal runs are padded.
pub(super) fn decode(data: &[u8], offset: usize, header: &Header) -> Result<Vec<u8>> {
    let (width, area) = (header.width, header.width * header.height);
    let is_narrow = header.bits == 4;
    let mut indices: Vec<u8> = Vec::with_capacity(area);
    let mut position = 0;
    let mut column = 0;
    while indices.len() < area {
        let Some(&[count, value]) = data.get(position..).and_then(|rest| rest.first_chunk()) else { break };
        position += 2;
        match (usize::from(count), value) {
            (0, 0) => {
                indices.resize(indices.len().next_multiple_of(width), 0);
                column = 0;
            }
            (0, 1) => break,
            (0, 2) => {
                let Some(&[right, up]) = data.get(position..).and_then(|rest| rest.first_chunk()) else {
                    break;
                };
                position += 2;
                let skipped = usize::from(right) + usize::from(up) * width;
                indices.resize((indices.len() + skipped).min(area), 0);
                column = indices.len() % width;
            }
            (0, literal) => {
                let literal = usize::from(literal);
                let count = literal.min(area - indices.len());
                let bytes = if is_narrow { count.div_ceil(2) } else { count };
                let Some(run) = data.get(position..).and_then(|rest| rest.get(..bytes)) else { break };
                position += bytes;
                match is_narrow {
                    true => indices.extend((0..count).map(|i| nibble(run[i / 2], i))),
                    false => indices.extend_from_slice(run),
                }
                column += literal;
                position += (offset + position) % 2;
            }
            (count, value) => {
                let count = count.min(width.saturating_sub(column));
                indices.extend((0..count).map(|i| if is_narrow { nibble(value, i) } else { value }));
                column += count;
            }
        }
    }
    if indices.len() < area {
        return Err(corrupt("its runs end too early"));
    }
    indices.truncate(area);
    Ok(indices)
}

/// The high half of a byte for even positions, the low half for odd ones.
fn nibble(byte: u8, position: usize) -> u8 {
    if position.is_multiple_of(2) { byte >> 4 } else { byte & 15 }
}
