//! Text before it is drawn: cleaned, measured, and broken into lines.
//!
//! A figure is laid out once and then drawn with the bitmap font, with Helvetica, or with whatever sans-serif
//! a browser has. What is measured here is the widest of these, so that words stay in their place in each.

use crate::font;
use crate::helvetica::{self, CAP_HEIGHT};

/// The sizes words are set in. A dot of the smallest is one unit of the scene.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextSize {
    /// Labels, captions and numbers.
    Small,
    /// Titles.
    Large,
}

impl TextSize {
    /// Units a dot of the bitmap font takes.
    pub(crate) fn dot(self) -> f64 {
        match self {
            TextSize::Small => 1.0,
            TextSize::Large => 1.5,
        }
    }

    /// The em of outline fonts whose capitals are as high as those of the bitmap font.
    pub(crate) fn em(self) -> f64 {
        font::ASCENT as f64 * self.dot() / CAP_HEIGHT
    }

    /// From one baseline to the next.
    pub(crate) fn line(self) -> f64 {
        (font::ROWS + 2) as f64 * self.dot()
    }

    /// Height of the letters above the baseline.
    pub(crate) fn ascent(self) -> f64 {
        font::ASCENT as f64 * self.dot()
    }
}

/// Units from left to right that `text` takes at most, whatever font it is drawn with.
pub(crate) fn width(text: &str, size: TextSize) -> f64 {
    text.chars().map(|character| advance(character, size)).sum()
}

fn advance(character: char, size: TextSize) -> f64 {
    // A character neither font knows is drawn by a browser, where the widest take an em.
    let outline = helvetica::code(character).map_or(1.0, |code| code.advance) * size.em();
    outline.max(font::advance(character, 1) as f64 * size.dot())
}

/// `text` without what may not stand in a document or would disturb the words around it: control characters
/// and marks that turn the direction of writing become `�`.
pub(crate) fn clean(text: &str) -> String {
    let disturbing = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}')
    };
    text.chars()
        .map(|c| match c {
            '\t' | '\n' | '\r' => ' ',
            c if disturbing(c) => '\u{fffd}',
            c => c,
        })
        .collect()
}

/// Breaks `text` between words into at most `most` lines of at most `room` units; a word too long for a line
/// is broken where it must be, and what does not fit at all ends in `…`. No-break spaces hold words together.
pub(crate) fn lines(text: &str, room: f64, size: TextSize, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let (mut line, mut taken) = (String::new(), 0.0);
    let space = advance(' ', size);
    'text: for word in text.split([' ', '\t', '\n', '\r']).filter(|word| !word.is_empty()) {
        let needed = width(word, size);
        if !line.is_empty() {
            if taken + space + needed <= room {
                line.push(' ');
                line.push_str(word);
                taken += space + needed;
                continue;
            }
            lines.push(std::mem::take(&mut line));
            taken = 0.0;
            if lines.len() > most {
                break;
            }
        }
        for character in word.chars() {
            let wide = advance(character, size);
            if !line.is_empty() && taken + wide > room {
                let rest = line.split_off(seam(&line));
                lines.push(std::mem::replace(&mut line, rest));
                taken = width(&line, size);
                if lines.len() > most {
                    break 'text;
                }
            }
            line.push(character);
            taken += wide;
        }
    }
    if !line.is_empty() {
        lines.push(line);
    }
    if lines.len() > most {
        lines.truncate(most);
        if let Some(last) = lines.last_mut() {
            shorten(last, room, size);
        }
    }
    lines
}

/// Where a word that is too long for a line is best broken: behind its last dot, slash or dash.
fn seam(word: &str) -> usize {
    let seam = word.rfind(['.', '/', '-', '_', ':']).map(|at| at + 1);
    seam.filter(|&at| at < word.len()).unwrap_or(word.len())
}

/// `text` in one line of at most `room` units, ending in `…` where something had to go.
pub(crate) fn one_line(text: &str, room: f64, size: TextSize) -> String {
    lines(&text.replace([' ', '\t', '\n', '\r'], "\u{a0}"), room, size, 1).pop().unwrap_or_default()
}

fn shorten(line: &mut String, room: f64, size: TextSize) {
    let mut taken = width(line, size) + advance('…', size);
    while taken > room {
        let Some(last) = line.pop() else { break };
        taken -= advance(last, size);
    }
    line.push('…');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_and_lose_nothing_unless_they_say_so() {
        let text = "SplitGrad at features.28.output-with-a-very-long-name for class 285";
        for room in [40.0, 90.0, 200.0, 1000.0] {
            let broken = lines(text, room, TextSize::Small, 100);
            assert!(broken.iter().all(|line| width(line, TextSize::Small) <= room), "{broken:?}");
            let letters = |s: &str| s.chars().filter(|c| !c.is_whitespace()).collect::<String>();
            assert_eq!(letters(&broken.concat()), letters(text));
        }
        let short = lines(text, 90.0, TextSize::Small, 2);
        assert_eq!(short.len(), 2);
        assert!(short[1].ends_with('…') && width(&short[1], TextSize::Small) <= 90.0);
        assert!(lines("", 90.0, TextSize::Small, 2).is_empty());
        let names = lines("the-same-picture-again.png", 84.0, TextSize::Small, 3);
        assert_eq!(names, ["the-same-", "picture-again.", "png"]);
        let held = width("a b", TextSize::Small);
        assert_eq!(lines("a b\u{a0}c", held, TextSize::Small, 9), ["a", "b\u{a0}c"]);
    }

    #[test]
    fn one_line_is_one_line() {
        assert_eq!(one_line("as it is", 100.0, TextSize::Small), "as\u{a0}it\u{a0}is");
        let short = one_line(&"very long ".repeat(10_000), 100.0, TextSize::Large);
        assert!(short.ends_with('…') && width(&short, TextSize::Large) <= 100.0);
        assert_eq!(one_line("word", 0.0, TextSize::Small), "…");
    }

    #[test]
    fn what_is_measured_holds_both_fonts() {
        for text in ["SplitGrad", "α = 0.4", "WWWW", "iiii", "漢字", ""] {
            for size in [TextSize::Small, TextSize::Large] {
                assert!(width(text, size) >= font::width(text, 1) as f64 * size.dot());
                let outline: f64 =
                    text.chars().filter_map(helvetica::code).map(|code| code.advance).sum::<f64>()
                        * size.em();
                assert!(width(text, size) >= outline);
            }
        }
    }

    #[test]
    fn control_characters_and_turned_writing_do_not_get_through() {
        assert_eq!(clean("a\0b\u{1b}[31mc\u{202e}d\ne\u{85}"), "a\u{fffd}b\u{fffd}[31mc\u{fffd}d e\u{fffd}");
        assert_eq!(clean("Ägyptische Mau α ≥ 漢"), "Ägyptische Mau α ≥ 漢");
    }
}
