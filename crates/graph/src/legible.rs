//! Text from files in messages. A name in a file may be of any length and hold characters that move the cursor or turn the
//! direction of writing; what a person reads is one line of bounded length, in which every such character is written out.

use std::borrow::Cow;

/// The longest name that is shown whole, in characters.
const LONGEST_NAME: usize = 80;
/// The longest stretch without a blank in a message; paths are longer than names.
const LONGEST_WORD: usize = 300;
/// The longest message.
const LONGEST_TEXT: usize = 2000;

/// Whether a character is not seen itself and changes how others are: a control character, a mark that turns the direction of
/// writing, a separator of lines, a tag. The joiners and spaces of no width that some scripts need are none of them.
pub fn is_disturbing(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2066}'..='\u{206f}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{fffe}'
                | '\u{ffff}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// A text with the characters written out that [disturb](is_disturbing) others.
///
/// ```
/// assert_eq!(monosplit_graph::escaped("a\n\u{1b}[2J\u{202e}b"), "a\\n\\u{1b}[2J\\u{202e}b");
/// ```
pub fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(is_disturbing) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if is_disturbing(c) { escaped.extend(c.escape_default()) } else { escaped.push(c) }
    }
    Cow::Owned(escaped)
}

/// A text of at most `most` characters. A longer one loses its middle, because names differ at their ends.
pub fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    if text.char_indices().nth(most).is_none() {
        return Cow::Borrowed(text);
    }
    let (before, after) = (most.saturating_sub(1).div_ceil(2), most.saturating_sub(1) / 2);
    let start = text.char_indices().nth(before).map_or(text.len(), |(at, _)| at);
    let end = match after {
        0 => text.len(),
        _ => text.char_indices().rev().nth(after - 1).map_or(0, |(at, _)| at),
    };
    Cow::Owned(format!("{}…{}", &text[..start], &text[end..]))
}

/// A name from a file as a message shows it: on one line, and not long.
pub fn shown(name: &str) -> String {
    // What is cut away need not be escaped, and a character becomes at most ten.
    shortened(&escaped(&shortened(name, LONGEST_NAME)), 2 * LONGEST_NAME).into_owned()
}

/// A sentence in which names from files stand, on one line and of bounded length.
pub(crate) fn sentence(text: String) -> String {
    let is_plain = text.len() <= LONGEST_WORD && !text.contains(is_disturbing);
    if is_plain {
        return text;
    }
    let words = text.split(' ').map(|word| shortened(word, LONGEST_WORD));
    let words = words.collect::<Vec<_>>().join(" ");
    escaped(&shortened(&words, LONGEST_TEXT)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_any_length_is_shown_by_its_ends() {
        let long = format!("begin{}end", "é".repeat(100_000));
        let found = shown(&long);
        assert_eq!(found.chars().count(), LONGEST_NAME);
        assert!(found.starts_with("beginé") && found.ends_with("éend") && found.contains('…'), "{found}");
        assert_eq!(shown("layer4.1.conv2"), "layer4.1.conv2");
        assert!(shown(&"\u{202e}".repeat(100_000)).chars().count() <= 2 * LONGEST_NAME);
    }

    #[test]
    fn a_shortened_text_has_exactly_the_length_asked_for() {
        for most in 1..12 {
            assert_eq!(shortened("abcdefghijklm", most).chars().count(), most);
        }
        assert_eq!(shortened("abcdefghi", 5), "ab…hi");
        assert_eq!(shortened("abcde", 5), "abcde");
    }

    #[test]
    fn marks_of_direction_are_written_out_and_joiners_are_kept() {
        let marks = ['\u{61c}', '\u{200e}', '\u{202a}', '\u{202e}', '\u{2066}', '\u{2069}', '\u{2028}'];
        for mark in marks {
            assert!(!escaped(&format!("a{mark}b")).contains(mark), "{:x}", mark as u32);
        }
        assert_eq!(escaped("न\u{200d}म 👩\u{200d}🔬"), "न\u{200d}म 👩\u{200d}🔬");
    }

    #[test]
    fn a_sentence_keeps_its_ends_whatever_stands_between() {
        let text = |name: &str| sentence(format!("the input '{name}' cannot be read"));
        assert_eq!(text("x"), "the input 'x' cannot be read");
        for name in ["y".repeat(100_000), "y ".repeat(100_000)] {
            let found = text(&name);
            assert!(found.chars().count() <= LONGEST_TEXT, "{}", found.len());
            assert!(found.starts_with("the input 'y") && found.ends_with("cannot be read"), "{found}");
        }
    }
}
