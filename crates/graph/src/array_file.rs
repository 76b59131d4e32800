//! Files that hold an array: `.npy` files and `.npz` archives of them, told apart by their contents.

use std::path::Path;

use crate::npz::Arrays;
use crate::{Error, Result, Tensor, npy, npz};

/// How many bytes [`is_array`] looks at.
pub const BEGINNING: usize = 6;

/// Whether a file that starts with `beginning` is read as an array.
pub fn is_array(beginning: &[u8]) -> bool {
    npy::is_npy(beginning) || npz::is_npz(beginning)
}

/// Whether the name of a file ends as that of an array.
pub fn is_array_name(path: impl AsRef<Path>) -> bool {
    let ending = path.as_ref().extension();
    ending.is_some_and(|ending| ["npy", "npz"].iter().any(|known| ending.eq_ignore_ascii_case(known)))
}

/// The array in a file. Of an archive with several arrays it is the one whose name is among `wanted`.
pub fn read(bytes: &[u8], wanted: &[&str]) -> Result<Tensor> {
    if npz::is_npz(bytes) {
        Arrays::open(bytes)?.choose(wanted)
    } else if npy::is_npy(bytes) {
        npy::read(bytes)
    } else {
        Err(Error::malformed("expected an array in a .npy or .npz file, found neither"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_in_either_way() {
        for name in ["x.npy", "a/b.NPZ", "x.y.npz"] {
            assert!(is_array_name(name), "{name}");
        }
        for name in ["x.png", "npy", "x.npy.png", "x.npy/y"] {
            assert!(!is_array_name(name), "{name}");
        }
    }
}
