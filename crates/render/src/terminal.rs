//! Pictures and maps as lines of characters for a terminal: two pixels to a character as half blocks in as
//! many colours as the terminal has, or shades of ASCII where it has none.
//!
//! The caller says what the terminal can do.

use std::fmt::Write;

use monosplit_graph::{Error, Result};
use monosplit_image::{Filter, Picture};

use crate::colour::Rgb;
use crate::heatmap::{Heatmap, Zero};
use crate::scalar_field::ScalarField;
use crate::scale::Scale;

/// Widest drawing, in characters.
const MOST_COLUMNS: usize = 1000;
/// Tallest drawing, in lines.
const MOST_LINES: usize = 1000;

/// The colours of a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TerminalColours {
    /// Every colour, by its red, green and blue.
    True,
    /// The 256 colours of xterm.
    Indexed,
    /// None: characters of more or less ink.
    #[default]
    None,
}

/// Draws `picture` in `columns` characters a line, each line ended. Without colours, dark places are drawn
/// with much ink, as on paper.
pub fn terminal_picture(picture: &Picture, columns: usize, colours: TerminalColours) -> Result<String> {
    let shape = Shape::new(picture.width(), picture.height(), columns)?;
    if colours != TerminalColours::None {
        return shape.half_blocks(picture, colours);
    }
    let grey = picture.to_grey().resize(shape.columns, shape.lines, Filter::Box)?;
    let darkness = |pixel: &[u8]| (1.0 - f64::from(pixel[0]) / 255.0, 0.0);
    Ok(shape.letters(grey.rgb().chunks_exact(3).map(darkness)))
}

/// Draws `map` on `scale` in `columns` characters a line, each line ended. Without colours, the ink of a
/// character is the magnitude there; signs below zero are made of strokes (`,-=%&`), those above of dots and
/// crosses (`.:+#@`), and `?` stands where a value is not finite.
pub fn terminal_map(
    map: &ScalarField,
    scale: &Scale,
    columns: usize,
    colours: TerminalColours,
) -> Result<String> {
    let shape = Shape::new(map.width(), map.height(), columns)?;
    if colours != TerminalColours::None {
        let heatmap = Heatmap::scaled(map, scale, Zero::Neutral);
        let opaque = heatmap.rgba.chunks_exact(4).flat_map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect();
        return shape.half_blocks(&Picture::new(map.width(), map.height(), opaque)?, colours);
    }
    // Positive parts, negative parts and holes are averaged apart, so that none hides another.
    let parts = map.values().iter().flat_map(|&value| {
        let byte = |share: f64| (share.clamp(0.0, 1.0) * 255.0).round() as u8;
        scale.position(value).map_or([0, 0, 255], |position| [byte(position), byte(-position), 0])
    });
    let parts = Picture::new(map.width(), map.height(), parts.collect())?;
    let parts = parts.resize(shape.columns, shape.lines, Filter::Box)?;
    let shares = |pixel: &[u8]| {
        let [above, below, hole] = [0, 1, 2].map(|i| f64::from(pixel[i]) / 255.0);
        if hole > 0.5 { (f64::NAN, f64::NAN) } else { (above, below) }
    };
    Ok(shape.letters(parts.rgb().chunks_exact(3).map(shares)))
}

/// Drawings of `columns` characters a line beside each other, each below its title.
pub fn terminal_row(drawings: &[(&str, String)], columns: usize) -> String {
    const GAP: usize = 2;
    let height = drawings.iter().map(|(_, drawing)| drawing.lines().count()).max().unwrap_or(0);
    let mut text = String::new();
    for line in 0..=height {
        let mut words = String::new();
        let mut missing = 0;
        for (title, drawing) in drawings {
            let part: String = match line {
                0 => title.chars().take(columns).collect(),
                _ => drawing.lines().nth(line - 1).unwrap_or_default().to_owned(),
            };
            words.extend(std::iter::repeat_n(' ', missing));
            missing = columns.saturating_sub(visible(&part)) + GAP;
            words.push_str(&part);
        }
        text.push_str(words.trim_end());
        text.push('\n');
    }
    text
}

/// Number of characters of a line that are seen: all but the sequences that set colours.
fn visible(line: &str) -> usize {
    let mut parts = line.split('\x1b');
    let first = parts.next().map_or(0, |part| part.chars().count());
    first + parts.filter_map(|part| part.split_once('m')).map(|(_, seen)| seen.chars().count()).sum::<usize>()
}

/// Characters are about twice as high as they are wide.
struct Shape {
    columns: usize,
    lines: usize,
}

impl Shape {
    fn new(width: usize, height: usize, columns: usize) -> Result<Self> {
        if !(1..=MOST_COLUMNS).contains(&columns) {
            return Err(Error::argument(format!(
                "a terminal is 1 to {MOST_COLUMNS} characters wide, but {columns} were given"
            )));
        }
        let lines = (columns as f64 * height as f64 / width as f64 / 2.0).round() as usize;
        let lines = lines.clamp(1, MOST_LINES);
        // A picture too tall for the limit becomes narrower rather than flatter.
        let widest = (2.0 * lines as f64 * width as f64 / height as f64).ceil() as usize;
        Ok(Shape { columns: columns.min(widest.max(1)), lines })
    }

    fn half_blocks(&self, picture: &Picture, colours: TerminalColours) -> Result<String> {
        // Pixels of small pictures are drawn as squares.
        let enlarged = self.columns >= 2 * picture.width();
        let filter = if enlarged { Filter::Nearest } else { Filter::Box };
        let pixels = picture.resize(self.columns, 2 * self.lines, filter)?;
        let rows: Vec<&[u8]> = pixels.rgb().chunks_exact(3 * self.columns).collect();
        let mut text = String::new();
        for pair in rows.chunks_exact(2) {
            let mut before = None;
            for (upper, lower) in pair[0].chunks_exact(3).zip(pair[1].chunks_exact(3)) {
                let both = [[upper[0], upper[1], upper[2]], [lower[0], lower[1], lower[2]]];
                if before != Some(both) {
                    // Writing into a string cannot fail.
                    let _ = write!(text, "{}{}", code(38, both[0], colours), code(48, both[1], colours));
                    before = Some(both);
                }
                text.push('▀');
            }
            text.push_str("\x1b[0m\n");
        }
        Ok(text)
    }

    /// One character for each pair of an amount above zero and an amount below.
    fn letters(&self, shares: impl Iterator<Item = (f64, f64)>) -> String {
        const ABOVE: &[u8; 6] = b" .:+#@";
        const BELOW: &[u8; 6] = b" ,-=%&";
        let letter = |(above, below): (f64, f64)| {
            if above.is_nan() {
                return '?';
            }
            let (share, ramp) = if above >= below { (above, ABOVE) } else { (below, BELOW) };
            char::from(ramp[((share * 6.0) as usize).min(5)])
        };
        let mut text = String::with_capacity((self.columns + 1) * self.lines);
        for (i, shares) in shares.enumerate() {
            text.push(letter(shares));
            if (i + 1) % self.columns == 0 {
                text.truncate(text.trim_end_matches(' ').len());
                text.push('\n');
            }
        }
        text
    }
}

/// The sequence that sets the colour of a character (38) or of the background behind it (48).
pub(crate) fn code(what: u8, [red, green, blue]: Rgb, colours: TerminalColours) -> String {
    match colours {
        TerminalColours::True => format!("\x1b[{what};2;{red};{green};{blue}m"),
        TerminalColours::Indexed => format!("\x1b[{what};5;{}m", indexed([red, green, blue])),
        TerminalColours::None => String::new(),
    }
}

/// The nearest of xterm's cube of six levels a channel (16 to 231) and its 24 greys (232 to 255).
fn indexed(colour: Rgb) -> u8 {
    const LEVELS: [u8; 6] = [0, 95, 135, 175, 215, 255];
    let nearest = |part: u8| (0..6).min_by_key(|&i| LEVELS[usize::from(i)].abs_diff(part)).unwrap_or(0);
    let [red, green, blue] = colour.map(nearest);
    let mean = colour.iter().map(|&part| u32::from(part)).sum::<u32>() / 3;
    let grey = (mean.saturating_sub(3) / 10).min(23) as u8;
    let apart =
        |other: Rgb| -> u32 { colour.iter().zip(other).map(|(a, b)| u32::from(a.abs_diff(b)).pow(2)).sum() };
    let cube = [red, green, blue].map(|i| LEVELS[usize::from(i)]);
    if apart([8 + 10 * grey; 3]) < apart(cube) { 232 + grey } else { 16 + 36 * red + 6 * green + blue }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(width: usize, height: usize) -> Picture {
        Picture::new(width, height, (0..width * height * 3).map(|i| (i * 37 % 256) as u8).collect()).unwrap()
    }

    fn widths(text: &str) -> Vec<usize> {
        text.lines().map(visible).collect()
    }

    #[test]
    fn drawings_beside_each_other_keep_their_columns() {
        for colours in [TerminalColours::True, TerminalColours::None] {
            let drawing = |height| terminal_picture(&picture(20, height), 10, colours).unwrap();
            let (low, high) = (drawing(8), drawing(20));
            let row = terminal_row(&[("low", low.clone()), ("high", high.clone())], 10);
            let lines: Vec<&str> = row.lines().collect();
            assert_eq!(lines.len(), 6);
            assert_eq!(lines[0], "low         high");
            assert!(high.lines().zip(&lines[1..]).all(|(part, line)| line.ends_with(part.trim_end())));
            assert!(low.lines().zip(&lines[1..]).all(|(part, line)| line.starts_with(part)));
            assert!(widths(&row).iter().all(|&width| width <= 22));
        }
    }

    #[test]
    fn a_drawing_is_as_wide_as_asked_and_keeps_its_shape() {
        for (width, height, lines) in [(28, 28, 20), (451, 300, 13), (10, 40, 80), (500, 1, 1)] {
            for colours in [TerminalColours::True, TerminalColours::Indexed] {
                let text = terminal_picture(&picture(width, height), 40, colours).unwrap();
                let found = widths(&text);
                assert_eq!(found.len(), lines);
                assert!(found.iter().all(|&columns| columns == 40.min(found[0])), "{found:?}");
            }
        }
        let tower = terminal_picture(&picture(1, 20_000), 200, TerminalColours::True).unwrap();
        assert_eq!(widths(&tower), [1; MOST_LINES]);
    }

    #[test]
    fn every_line_leaves_the_terminal_as_it_was() {
        let text = terminal_picture(&picture(9, 9), 12, TerminalColours::True).unwrap();
        assert!(text.ends_with('\n') && text.lines().all(|line| line.ends_with("\x1b[0m")));
        let plain = terminal_picture(&picture(9, 9), 12, TerminalColours::None).unwrap();
        assert!(plain.bytes().all(|byte| byte == b'\n' || (b' '..=b'~').contains(&byte)));
    }

    #[test]
    fn two_pixels_become_one_character_in_their_own_colours() {
        let two = Picture::new(1, 2, vec![1, 2, 3, 4, 5, 6]).unwrap();
        let text = terminal_picture(&two, 1, TerminalColours::True).unwrap();
        assert_eq!(text, "\x1b[38;2;1;2;3m\x1b[48;2;4;5;6m▀\x1b[0m\n");
    }

    #[test]
    fn the_nearest_of_the_256_colours_is_taken() {
        // The values of xterm's own table.
        for (colour, index) in [
            ([0, 0, 0], 16),
            ([255, 255, 255], 231),
            ([255, 0, 0], 196),
            ([95, 135, 175], 67),
            ([8, 8, 8], 232),
            ([238, 238, 238], 255),
            ([128, 128, 128], 244),
        ] {
            assert_eq!(indexed(colour), index, "{colour:?}");
        }
    }

    #[test]
    fn without_colour_the_signs_and_holes_of_a_map_can_be_told_apart() {
        let map =
            ScalarField::new(5, 2, [[-1.0, -0.4, 0.0, 0.4, 1.0], [f32::NAN, 0.0, 0.0, 0.0, 0.0]].concat())
                .unwrap();
        let scale = Scale::new(&map, None).unwrap();
        let tall = terminal_map(&map, &scale, 10, TerminalColours::None).unwrap();
        assert_eq!(tall, "&&--  ::@@\n??\n");
        let coloured = terminal_map(&map, &scale, 10, TerminalColours::True).unwrap();
        assert!(coloured.contains("38;2;0;0;0m") || coloured.contains("48;2;0;0;0m"), "a hole is black");
    }

    #[test]
    fn widths_beyond_reason_are_refused() {
        for columns in [0, 1001, usize::MAX] {
            assert!(terminal_picture(&picture(2, 2), columns, TerminalColours::True).is_err());
        }
    }
}
