//! Text before it is drawn: cleaned, measured, and broken into lines.

use std::ops::Range;

use monosplit_graph::is_disturbing;
use unicode_bidi::{BidiClass, bidi_class};

use crate::shaping;

/// Room that a sum of widths may exceed by rounding.
const ROUNDING: f64 = 1e-9;

/// The sizes words are set in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextSize {
    /// Labels, captions and numbers: eight points.
    Small,
    /// Titles: eleven points.
    Large,
}

impl TextSize {
    /// The size of the font, in units of the scene.
    pub(crate) fn em(self) -> f64 {
        match self {
            TextSize::Small => 32.0 / 3.0,
            TextSize::Large => 44.0 / 3.0,
        }
    }

    /// From one baseline to the next.
    pub(crate) fn line(self) -> f64 {
        1.2 * self.em()
    }

    /// Height of capital letters above the baseline.
    pub(crate) fn ascent(self) -> f64 {
        0.688 * self.em()
    }

    /// How far letters reach below the baseline.
    #[cfg(test)]
    pub(crate) fn descent(self) -> f64 {
        0.212 * self.em()
    }
}

/// Units from left to right that `text` takes.
pub(crate) fn width(text: &str, size: TextSize) -> f64 {
    shaping::width(text) * size.em()
}

/// `text` without what may not stand in a document or would disturb the words around it: control characters
/// and marks that turn the direction of writing become `�`.
pub(crate) fn clean(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\t' | '\n' | '\r' => ' ',
            c if is_disturbing(c) => '\u{fffd}',
            c => c,
        })
        .collect()
}

/// Begins and ends words that run from right to left within others; not drawn.
pub(crate) const ISOLATES: [char; 2] = ['\u{2067}', '\u{2069}'];

/// `text` with each stretch of right-to-left words set apart, so that what follows such a name, a number and its percent sign for
/// instance, stays to its right.
pub(crate) fn isolated(text: &str) -> String {
    let mut apart = String::with_capacity(text.len());
    let (mut done, mut stretch): (usize, Option<Range<usize>>) = (0, None);
    let mut close = |stretch: Option<Range<usize>>| {
        if let Some(stretch) = stretch {
            let [begin, end] = ISOLATES;
            apart.push_str(&text[done..stretch.start]);
            apart.push(begin);
            apart.push_str(&text[stretch.clone()]);
            apart.push(end);
            done = stretch.end;
        }
    };
    for (at, character) in text.char_indices() {
        match bidi_class(character) {
            BidiClass::R | BidiClass::AL => stretch.get_or_insert(at..at).end = at + character.len_utf8(),
            BidiClass::L => close(stretch.take()),
            // Marks belong to the letter before them.
            BidiClass::NSM => {
                if let Some(stretch) = stretch.as_mut().filter(|stretch| stretch.end == at) {
                    stretch.end = at + character.len_utf8();
                }
            }
            _ => {}
        }
    }
    close(stretch);
    apart.push_str(&text[done..]);
    apart
}

/// Breaks `text` between words into at most `most` lines of at most `room` units; a word too long for a line
/// is broken where it must be, and what does not fit at all ends in `…`. No-break spaces hold words together.
pub(crate) fn lines(text: &str, room: f64, size: TextSize, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in text.split([' ', '\t', '\n', '\r']).filter(|word| !word.is_empty()) {
        if lines.len() > most {
            break;
        }
        if !line.is_empty() {
            let longer = format!("{line} {word}");
            if fits(&longer, room, size) {
                line = longer;
                continue;
            }
            lines.push(std::mem::take(&mut line));
        }
        let mut rest = word;
        while lines.len() <= most {
            let fitting = fitting(rest, room, size);
            if fitting == rest.len() {
                line = rest.to_owned();
                break;
            }
            let (start, end) = rest.split_at(seam(&rest[..fitting]));
            lines.push(start.to_owned());
            rest = end;
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

/// Whether `text` takes at most `room` units.
pub(crate) fn fits(text: &str, room: f64, size: TextSize) -> bool {
    text.len() <= most_bytes(room, size) && width(text, size) <= room + ROUNDING
}

/// The bytes at the start of `word` that fit into `room`; at least one letter.
fn fitting(word: &str, room: f64, size: TextSize) -> usize {
    let most = most_bytes(room, size);
    let end = word.char_indices().map(|(at, _)| at).find(|at| *at >= most).unwrap_or(word.len());
    let word = &word[..end];
    let breaks = shaping::breaks(word);
    let mut count = breaks.partition_point(|(_, wide)| wide * size.em() <= room + ROUNDING);
    // Letters may be wider apart from those that follow them: the last form of an Arabic letter is.
    while count > 1 && !fits(&word[..breaks[count - 1].0], room, size) {
        count -= 1;
    }
    breaks.get(count.max(1) - 1).map_or(word.len(), |(end, _)| *end)
}

/// Text of more bytes fits into no line of this length and need not be measured: the narrowest letters take a fifth of an em,
/// and no letter with its marks takes more than a few bytes.
fn most_bytes(room: f64, size: TextSize) -> usize {
    64 + (32.0 * room.max(0.0) / size.em()) as usize
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
    let ends: Vec<usize> = shaping::breaks(line).into_iter().map(|(end, _)| end).collect();
    let shortened = |end: usize| format!("{}…", line[..end].trim_end());
    let longest = ends.iter().rev().map(|end| shortened(*end)).find(|text| fits(text, room, size));
    *line = longest.unwrap_or_else(|| "…".into());
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
        let names =
            lines("the-same-picture-again.png", width("the-same-pict", TextSize::Small), TextSize::Small, 9);
        assert_eq!(names, ["the-same-", "picture-", "again.png"]);
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
    fn control_characters_and_turned_writing_do_not_get_through() {
        assert_eq!(clean("a\0b\u{1b}[31mc\u{202e}d\ne\u{85}"), "a\u{fffd}b\u{fffd}[31mc\u{fffd}d e\u{fffd}");
        assert_eq!(clean("Ägyptische Mau α ≥ 漢"), "Ägyptische Mau α ≥ 漢");
    }

    #[test]
    fn names_from_right_to_left_are_set_apart() {
        assert_eq!(isolated("cat.png · Mau 87.3%"), "cat.png · Mau 87.3%");
        assert_eq!(
            isolated("a · קט 3 קט 87.3% b אב"),
            "a · \u{2067}קט 3 קט\u{2069} 87.3% b \u{2067}אב\u{2069}"
        );
        let plain = width("קט 87", TextSize::Small);
        assert!((width(&isolated("קט 87"), TextSize::Small) - plain).abs() < 1e-9, "they take no room");
    }
}
