//! The style of the output: whether remarks are printed, and in which colours. Set once, by the global options and the
//! environment.

use std::io::{self, IsTerminal};
use std::sync::OnceLock;

use console::Term;
use monosplit::render::TerminalColours;

/// The width of a terminal of unknown width.
const USUAL_COLUMNS: usize = 80;

static STYLE: OnceLock<OutputStyle> = OnceLock::new();

/// The global options for the output.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OutputStyle {
    /// Only results and errors.
    pub(crate) quiet: bool,
    /// No colours.
    pub(crate) plain: bool,
}

impl OutputStyle {
    /// Sets the style for the whole process; the first call counts.
    pub(crate) fn settle(self) {
        STYLE.get_or_init(|| self);
    }

    fn settled() -> Self {
        STYLE.get().copied().unwrap_or_default()
    }
}

/// Whether remarks, progress and hints are suppressed.
pub(crate) fn is_quiet() -> bool {
    OutputStyle::settled().quiet
}

/// Whether the error stream is a terminal that may show progress.
pub(crate) fn is_watched() -> bool {
    !is_quiet() && io::stderr().is_terminal()
}

/// The width of the output in characters: what COLUMNS says, else what the terminal says, else 80.
pub(crate) fn columns() -> usize {
    let said = std::env::var("COLUMNS").ok().and_then(|text| width_of(&text));
    said.or_else(|| terminal_columns(&Term::stdout())).unwrap_or(USUAL_COLUMNS)
}

/// The width of a terminal, where it is one and knows; a terminal of unknown size reports 0.
pub(crate) fn terminal_columns(terminal: &Term) -> Option<usize> {
    terminal.size_checked().map(|(_, columns)| columns.into()).filter(|columns| *columns > 0)
}

/// A width above 0.
fn width_of(text: &str) -> Option<usize> {
    text.trim().parse().ok().filter(|columns| *columns > 0)
}

/// The colours of the output.
pub(crate) fn colours() -> TerminalColours {
    match OutputStyle::settled().plain || !io::stdout().is_terminal() {
        true => TerminalColours::None,
        false => colours_of(|name| std::env::var(name).ok()),
    }
}

/// The colours of a terminal by its environment variables.
fn colours_of(variable: impl Fn(&str) -> Option<String>) -> TerminalColours {
    let said = |name: &str| variable(name).unwrap_or_default();
    let (depth, terminal) = (said("COLORTERM"), said("TERM"));
    if !said("NO_COLOR").is_empty() || terminal == "dumb" {
        TerminalColours::None
    } else if depth == "truecolor" || depth == "24bit" || terminal.ends_with("-direct") {
        TerminalColours::True
    } else if terminal.contains("256color") {
        TerminalColours::Indexed
    } else {
        TerminalColours::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_width_is_a_number_above_zero() {
        assert_eq!(
            ["40", " 132\n", "0", "-3", "wide", ""].map(width_of),
            [Some(40), Some(132), None, None, None, None]
        );
    }

    #[test]
    fn a_terminal_gets_the_colours_it_has_and_none_where_they_are_unwanted() {
        let of = |said: &[(&str, &str)]| {
            colours_of(|name| said.iter().find(|(known, _)| *known == name).map(|(_, v)| (*v).to_owned()))
        };
        assert_eq!(of(&[("TERM", "xterm-256color"), ("COLORTERM", "truecolor")]), TerminalColours::True);
        assert_eq!(of(&[("TERM", "xterm-256color")]), TerminalColours::Indexed);
        assert_eq!(of(&[("TERM", "vt100")]), TerminalColours::None);
        assert_eq!(of(&[("TERM", "dumb"), ("COLORTERM", "truecolor")]), TerminalColours::None);
        let unwanted = [("TERM", "xterm-256color"), ("COLORTERM", "truecolor"), ("NO_COLOR", "1")];
        assert_eq!(of(&unwanted), TerminalColours::None);
        // https://no-color.org: only a value that is not empty counts.
        assert_eq!(of(&[("TERM", "xterm-256color"), ("NO_COLOR", "")]), TerminalColours::Indexed);
        assert_eq!(of(&[]), TerminalColours::None);
    }
}
