//! Grids of patch tokens: which tokens of a vision transformer stand for which square patch of the image.

use monosplit_graph::Shape;

/// The largest number of extra tokens before the patches: class token, distillation token, registers.
const MOST_DROPPED: usize = 8;

/// Tokens as patches of an image, row by row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    /// The number of extra tokens before the patches: the class token, if there is one, and others.
    pub(crate) dropped: usize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

impl Grid {
    /// The grid of this number of tokens for an image whose channels lie along an axis; none if no grid fits.
    pub(crate) fn of(image: &Shape, channels: usize, tokens: usize) -> Option<Self> {
        let spatial: Vec<usize> = (1..image.rank())
            .filter(|&axis| axis != channels)
            .map(|axis| image.fixed_at(axis))
            .collect::<Option<_>>()?;
        let &[height, width] = spatial.as_slice() else { return None };
        let grid = |count: usize| {
            let sides = (1..=height.min(width)).filter(|side| height % side == 0 && width % side == 0);
            sides.map(|side| (height / side, width / side)).find(|(rows, columns)| rows * columns == count)
        };
        (0..=MOST_DROPPED).find_map(|dropped| {
            // Almost any number of tokens is a small grid and some extra tokens.
            let least = if dropped < 2 { 2 } else { 4 * dropped };
            let (rows, columns) = grid(tokens.checked_sub(dropped).filter(|&count| count >= least)?)?;
            Some(Grid { dropped, rows, columns })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_patches_with_and_without_a_class_token() {
        let grid = |height, width, tokens| Grid::of(&Shape::batched(&[3, height, width]), 1, tokens);
        assert_eq!(grid(224, 224, 197), Some(Grid { dropped: 1, rows: 14, columns: 14 }));
        assert_eq!(grid(224, 224, 196), Some(Grid { dropped: 0, rows: 14, columns: 14 }));
        assert_eq!(grid(32, 64, 9), Some(Grid { dropped: 1, rows: 2, columns: 4 }));
        assert_eq!(grid(32, 48, 6), Some(Grid { dropped: 0, rows: 2, columns: 3 }));
        assert_eq!(grid(224, 224, 198), Some(Grid { dropped: 2, rows: 14, columns: 14 }));
        assert_eq!(grid(64, 64, 20), Some(Grid { dropped: 4, rows: 4, columns: 4 }));
        assert_eq!(grid(224, 224, 11), None);
    }
}
