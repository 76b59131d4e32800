//! A small bitmap font, five by seven with room for descenders, so that pictures can carry words without a
//! font file. Its letters are drawn in `font.txt`.

use std::collections::HashMap;
use std::sync::OnceLock;

/// Rows of a glyph: seven above the baseline, two below.
pub(crate) const ROWS: usize = 9;

/// Rows of a glyph above the baseline.
pub(crate) const ASCENT: usize = 7;

const COLUMNS: usize = 5;
const GAP: usize = 1;
const SPACE: Glyph = Glyph { width: 3, rows: [0; ROWS] };

/// What is drawn for a character the font does not have: an empty box.
const UNKNOWN: Glyph =
    Glyph { width: 4, rows: [0b1111, 0b1001, 0b1001, 0b1001, 0b1001, 0b1001, 0b1111, 0, 0] };

/// One character: bit `c` of a row is its column `c` from the left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Glyph {
    pub(crate) width: usize,
    pub(crate) rows: [u8; ROWS],
}

impl Glyph {
    /// Whether there is ink at `column` and `row`; there is none outside.
    pub(crate) fn has(&self, column: usize, row: usize) -> bool {
        column < self.width && self.rows.get(row).is_some_and(|bits| bits >> column & 1 == 1)
    }
}

/// The glyph of `character`, an empty box if the font does not have it.
pub(crate) fn glyph(character: char) -> Glyph {
    if character.is_whitespace() {
        return SPACE;
    }
    sheet().get(&character).copied().unwrap_or(UNKNOWN)
}

/// Columns that `text` takes at `size` pixels a dot.
pub(crate) fn width(text: &str, size: usize) -> usize {
    let columns: usize = text.chars().map(|c| glyph(c).width + GAP).sum();
    columns.saturating_sub(GAP) * size
}

/// Columns from the start of `character` to that of the next.
pub(crate) fn advance(character: char, size: usize) -> usize {
    (glyph(character).width + GAP) * size
}

fn sheet() -> &'static HashMap<char, Glyph> {
    static SHEET: OnceLock<HashMap<char, Glyph>> = OnceLock::new();
    SHEET.get_or_init(|| {
        let mut glyphs = HashMap::new();
        for block in include_str!("font.txt").split("\n\n") {
            let mut rows = block.lines();
            let Some(names) = rows.next().and_then(|line| line.strip_prefix("glyphs ")) else { continue };
            let rows: Vec<Vec<&str>> = rows.map(|row| row.split(' ').collect()).collect();
            for (column, name) in names.split(' ').enumerate() {
                let cells = rows.iter().filter_map(|row| row.get(column).copied());
                glyphs.extend(name.chars().next().map(|character| (character, drawn(cells))));
            }
        }
        glyphs
    })
}

/// The glyph of some rows of dots, moved to the left edge.
fn drawn<'a>(cells: impl Iterator<Item = &'a str>) -> Glyph {
    let mut rows = [0u8; ROWS];
    for (row, cell) in rows.iter_mut().zip(cells) {
        let dots = cell.bytes().take(COLUMNS).enumerate().filter(|(_, dot)| *dot == b'#');
        *row = dots.fold(0, |bits, (column, _)| bits | 1 << column);
    }
    let used = rows.iter().fold(0, |all, row| all | row);
    let left = if used == 0 { 0 } else { used.trailing_zeros() };
    Glyph { width: (u8::BITS - used.leading_zeros() - left) as usize, rows: rows.map(|row| row >> left) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_printable_ascii_character_and_the_signs_of_captions_are_drawn_and_all_differ() {
        let characters: Vec<char> = ('!'..='~').chain("αβγεθΘσ±−×·…→≤≥°–".chars()).collect();
        for (i, &character) in characters.iter().enumerate() {
            let found = glyph(character);
            assert!(found != UNKNOWN && (1..=COLUMNS).contains(&found.width), "{character}");
            let twin = characters[..i].iter().find(|&&other| glyph(other) == found);
            assert!(twin.is_none(), "{character} is drawn as {twin:?}");
        }
        assert_eq!(glyph('漢'), UNKNOWN);
    }

    #[test]
    fn the_sheet_is_a_regular_grid() {
        for block in include_str!("font.txt").split("\n\n").filter(|block| !block.trim().is_empty()) {
            let names = block.lines().next().unwrap().strip_prefix("glyphs ").unwrap();
            let count = names.split(' ').count();
            assert!((ASCENT..=ROWS).contains(&block.lines().skip(1).count()));
            for row in block.trim_end().lines().skip(1) {
                assert_eq!(row.split(' ').count(), count, "{row}");
                assert!(row.split(' ').all(|cell| cell.len() == COLUMNS), "{row}");
            }
        }
    }
}
