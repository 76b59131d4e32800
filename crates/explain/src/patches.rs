//! How tokens stand for square patches of the image.

use monosplit_graph::Shape;

/// Tokens that may stand in front of the patches: one for the class, one for a teacher, registers.
const MOST_DROPPED: usize = 8;

/// Tokens as the patches of an image, row by row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    /// Tokens in front that stand for no patch: the class token, if there is one, and what stands beside it.
    pub(crate) dropped: usize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

impl Grid {
    /// The grid that so many tokens make of an image whose channels lie along an axis; none if there is none.
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
            // Almost any number is a small grid and some more.
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
