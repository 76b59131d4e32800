//! The words of a text on the colours of their values, in a terminal and in a page.

use std::fmt::Write;

use monosplit_graph::{Error, Result};

use crate::colour::Rgb;
use crate::scalar_field::ScalarField;
use crate::scale::Scale;
use crate::svg::escaped;
use crate::terminal::{TerminalColours, code};
use crate::text::clean;

/// Without colours, values of less than this share of the largest are not written behind their words.
const LEAST_SHARE: f64 = 0.05;

/// Tokens with a value for each.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenText {
    tokens: Vec<(String, f32)>,
    scale: Scale,
}

impl TokenText {
    /// Tokens as words, and as many values.
    pub fn new(words: Vec<String>, values: &[f32]) -> Result<Self> {
        if words.len() != values.len() || words.is_empty() {
            return Err(Error::argument(format!(
                "each token has one value, but {} tokens and {} values were given",
                words.len(),
                values.len()
            )));
        }
        let scale = Scale::new(&ScalarField::new(values.len(), 1, values.to_vec())?, None)?;
        Ok(TokenText { tokens: words.into_iter().zip(values.iter().copied()).collect(), scale })
    }

    /// The tokens with their values.
    pub fn tokens(&self) -> &[(String, f32)] {
        &self.tokens
    }

    /// Lines of at most `columns` characters where words allow it, each ended. Without colours, the number behind a word is
    /// its value in per cent of the largest magnitude, where that is five or more.
    pub fn to_terminal(&self, columns: usize, colours: TerminalColours) -> String {
        let (mut text, mut filled) = (String::new(), 0);
        for (word, value) in &self.tokens {
            let position = self.scale.position(*value);
            let mut shown = clean(word);
            if colours == TerminalColours::None {
                match position {
                    Some(share) if share.abs() >= LEAST_SHARE => {
                        let _ = write!(shown, "({:+.0})", 100.0 * share);
                    }
                    Some(_) => {}
                    None => shown.push_str("(?)"),
                }
            }
            let width = shown.chars().count();
            if filled > 0 {
                let breaks = filled + 1 + width > columns;
                text.push(if breaks { '\n' } else { ' ' });
                filled = if breaks { 0 } else { filled + 1 };
            }
            filled += width;
            if colours == TerminalColours::None {
                text.push_str(&shown);
            } else {
                let background = self.scale.colour(*value);
                let (letters, background) =
                    (code(38, ink_on(background), colours), code(48, background, colours));
                let _ = write!(text, "{letters}{background}{shown}\x1b[0m");
            }
        }
        text.push('\n');
        text
    }

    /// A paragraph of HTML; a word under the pointer shows its value.
    pub(crate) fn to_html(&self) -> String {
        let mut html = String::from("<p class=\"tokens\">\n");
        let hex = |[red, green, blue]: Rgb| format!("#{red:02x}{green:02x}{blue:02x}");
        for (word, value) in &self.tokens {
            let background = self.scale.colour(*value);
            let _ = writeln!(
                html,
                "<span style=\"background:{};color:{}\" title=\"{value}\">{}</span>",
                hex(background),
                hex(ink_on(background)),
                escaped(&clean(word))
            );
        }
        html.push_str("</p>\n");
        html
    }
}

/// Black or white, whichever is easier to read on a colour: by its luminance, as WCAG weighs the channels.
fn ink_on(background: Rgb) -> Rgb {
    let linear = background.map(|part| (f64::from(part) / 255.0).powf(2.2));
    let luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
    if luminance > 0.18 { [0; 3] } else { [255; 3] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::colour::ColourMap;
    use crate::html::Page;
    use crate::xml::assert_well_formed;

    fn text() -> TokenText {
        let words = ["a", "great", "</p><script>", "\u{1b}[31mfilm", "not"].map(str::to_owned).to_vec();
        TokenText::new(words, &[0.0, 2.0, -1.0, 0.04, f32::NAN]).unwrap()
    }

    #[test]
    fn words_have_the_colours_of_their_values() {
        let lines = text().to_terminal(80, TerminalColours::True);
        let [red, green, blue] = ColourMap::Diverging.at(1.0);
        assert!(lines.contains(&format!("48;2;{red};{green};{blue}mgreat\x1b[0m")), "{lines:?}");
        assert!(!lines.contains("\x1b[31m"), "control characters of words are not written");
        assert!(lines.ends_with("\x1b[0m\n"));
    }

    #[test]
    fn without_colours_values_stand_behind_the_words_that_matter() {
        let lines = text().to_terminal(80, TerminalColours::None);
        assert!(lines.starts_with("a great(+100) </p><script>(-50) "), "{lines}");
        assert!(lines.ends_with("not(?)\n") && !lines.contains("film("), "{lines}");
        let narrow = text().to_terminal(14, TerminalColours::None);
        assert!(narrow.lines().count() > 2 && narrow.starts_with("a great(+100)\n"), "{narrow}");
    }

    #[test]
    fn a_page_of_any_words_is_well_formed_and_runs_nothing() {
        let page = Page::new("text").tokens(&text()).finish();
        let tags = assert_well_formed(page.strip_prefix("<!DOCTYPE html>\n").unwrap());
        assert!(tags.iter().all(|tag| tag != "script"));
        assert_eq!(tags.iter().filter(|tag| *tag == "span").count(), 5);
        assert!(page.contains("title=\"2\">great</span>"));
    }

    #[test]
    fn letters_can_be_read_on_every_colour() {
        let luminance = |colour: Rgb| {
            let part = |v: u8| {
                let v = f64::from(v) / 255.0;
                if v <= 0.04045 { v / 12.92 } else { ((v + 0.055) / 1.055).powf(2.4) }
            };
            0.2126 * part(colour[0]) + 0.7152 * part(colour[1]) + 0.0722 * part(colour[2])
        };
        for step in -100..=100 {
            let background = ColourMap::Diverging.at(f64::from(step) / 100.0);
            let [a, b] = [luminance(background), luminance(ink_on(background))];
            let contrast = (a.max(b) + 0.05) / (a.min(b) + 0.05);
            assert!(contrast > 4.5, "{step}: {contrast}");
        }
    }

    #[test]
    fn each_token_has_a_value() {
        assert!(TokenText::new(vec!["a".into()], &[1.0, 2.0]).is_err());
        assert!(TokenText::new(Vec::new(), &[]).is_err());
    }
}
