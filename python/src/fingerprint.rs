//! What tells the weights of one module from those of another.

use numpy::PyReadonlyArrayDyn;
use pyo3::prelude::*;

/// Lanes that are mixed beside each other, so that the memory and not the multiplications sets the pace.
const LANES: usize = 8;
/// Odd, with its bits spread evenly: the golden ratio.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// A number of 64 bits that says which bytes these are. It takes as long as reading them. Each word changes its lane by a
/// bijection, so that bytes that differ in one word never have the same number, and others by a chance of 2^-64. It is not
/// meant against those who look for two of the same.
#[pyfunction]
pub(crate) fn fingerprint(py: Python<'_>, bytes: PyReadonlyArrayDyn<'_, u8>) -> PyResult<u64> {
    let bytes = bytes.as_slice()?;
    Ok(py.detach(|| hash(bytes)))
}

/// A bijection of the word. High bits, where the signs of numbers are, are brought down first: a multiplication carries
/// changes upwards alone.
fn mixed(state: u64, word: u64) -> u64 {
    let both = state ^ word;
    let product = (both ^ (both >> 32)).wrapping_mul(FACTOR);
    product ^ (product >> 29)
}

fn hash(bytes: &[u8]) -> u64 {
    let mut lanes: [u64; LANES] = std::array::from_fn(|lane| lane as u64 + 1);
    let (blocks, rest) = bytes.as_chunks::<{ 8 * LANES }>();
    for block in blocks {
        let (words, _) = block.as_chunks::<8>();
        for (lane, word) in lanes.iter_mut().zip(words) {
            *lane = mixed(*lane, u64::from_le_bytes(*word));
        }
    }
    let state = lanes.into_iter().fold(bytes.len() as u64, mixed);
    rest.chunks(8).fold(state, |state, part| {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        mixed(mixed(state, u64::from_le_bytes(word)), part.len() as u64)
    })
}
