//! The indices along an axis, as constants of graphs hold them to compare or gather with.

use crate::error::{Error, Result};

/// The longest axis whose indices, or a number for each of them, are written down. Classes, tokens and channels are far fewer.
pub(crate) const MAX_INDICES: usize = 1 << 24;

/// `0, 1, …, length − 1`. The length may stand in a file, so an error if it is more than `MAX_INDICES` or there is no memory.
///
/// ```
/// assert_eq!(monosplit_graph::axis_indices(3).unwrap(), [0, 1, 2]);
/// assert!(monosplit_graph::axis_indices(1 << 40).is_err());
/// ```
pub fn axis_indices(length: usize) -> Result<Vec<i64>> {
    let mut indices = Vec::new();
    if length > MAX_INDICES || indices.try_reserve_exact(length).is_err() {
        return Err(Error::memory(format!(
            "the indices of an axis of length {length} take too much memory, the limit is {MAX_INDICES}; export it \
             with fewer classes"
        )));
    }
    indices.extend(0..length as i64);
    Ok(indices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_the_longest_axis() {
        assert_eq!(axis_indices(1000).unwrap().last(), Some(&999));
        let said = axis_indices(MAX_INDICES + 1).unwrap_err().to_string();
        assert!(said.contains("16777217"), "{said}");
        assert!(axis_indices(0).unwrap().is_empty());
    }
}
