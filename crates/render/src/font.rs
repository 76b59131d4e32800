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

/// Breaks `text` between words into at most `most` lines of at most `columns`; a word too long for a line is
/// broken where it must be, and what does not fit at all ends in `…`. No-break spaces hold words together.
pub(crate) fn lines(text: &str, columns: usize, size: usize, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in text.split([' ', '\t', '\n', '\r']).filter(|word| !word.is_empty()) {
        let joined = if line.is_empty() { word.to_string() } else { format!("{line} {word}") };
        if width(&joined, size) <= columns {
            line = joined;
            continue;
        }
        if !line.is_empty() {
            lines.push(std::mem::take(&mut line));
        }
        for character in word.chars() {
            line.push(character);
            if width(&line, size) > columns && line.chars().count() > 1 {
                line.pop();
                lines.push(std::mem::replace(&mut line, character.to_string()));
            }
        }
        if lines.len() > most {
            break;
        }
    }
    if !line.is_empty() {
        lines.push(line);
    }
    if lines.len() > most {
        lines.truncate(most);
        if let Some(last) = lines.last_mut() {
            while !last.is_empty() && width(&format!("{last}…"), size) > columns {
                last.pop();
            }
            last.push('…');
        }
    }
    lines
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

    #[test]
    fn lines_fit_and_lose_nothing_unless_they_say_so() {
        let text = "SplitGrad at features.28.output-with-a-very-long-name for class 285";
        for columns in [40, 90, 200, 1000] {
            let broken = lines(text, columns, 1, 100);
            assert!(broken.iter().all(|line| width(line, 1) <= columns), "{broken:?}");
            let letters = |s: &str| s.chars().filter(|c| !c.is_whitespace()).collect::<String>();
            assert_eq!(letters(&broken.concat()), letters(text));
        }
        let short = lines(text, 90, 1, 2);
        assert_eq!(short.len(), 2);
        assert!(short[1].ends_with('…') && width(&short[1], 1) <= 90);
        assert!(lines("", 90, 1, 2).is_empty());
        assert_eq!(lines("a b\u{a0}c", width("a b", 1), 1, 9), ["a", "b\u{a0}c"]);
    }
}
