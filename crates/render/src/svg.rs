//! A scene as SVG: one file that needs no other, with words as words and a description for screen readers.

use std::fmt::Write;

use monosplit_graph::Result;
use monosplit_image::{Picture, encode_png};

use crate::base64::base64;
use crate::colour::Rgb;
use crate::scene::{Anchor, Item, PAPER, Paint, Polyline, Scene, Style, coordinate, pixels_are_shown};

impl Scene {
    /// The drawing as an SVG document, which may also stand inside a page of HTML.
    pub fn to_svg(&self) -> Result<String> {
        let (width, height) = (coordinate(self.width()), coordinate(self.height()));
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" \
             font-family=\"Helvetica, Arial, 'Liberation Sans', sans-serif\">\n"
        );
        named(&mut svg, "title", self.title());
        named(&mut svg, "desc", self.description());
        line(&mut svg, format_args!("<rect width=\"{width}\" height=\"{height}\" fill=\"{}\"/>", hex(PAPER)));
        for item in self.items() {
            self.write(&mut svg, item)?;
        }
        svg.push_str("</svg>\n");
        Ok(svg)
    }

    fn write(&self, svg: &mut String, item: &Item) -> Result<()> {
        match item {
            Item::Rectangle { left, top, width, height, fill } => {
                let place = area(*left, *top, *width, *height);
                line(svg, format_args!("<rect {place} {}/>", painted("fill", *fill)));
            }
            Item::Path { lines, style } => {
                let shape = outline(lines);
                let style = match style {
                    Style::Fill(paint) => painted("fill", *paint),
                    Style::Stroke(paint, width) => format!(
                        "fill=\"none\" {} stroke-width=\"{}\" stroke-linejoin=\"round\"",
                        painted("stroke", *paint),
                        coordinate(*width)
                    ),
                };
                line(svg, format_args!("<path d=\"{shape}\" {style}/>"));
            }
            Item::Text { place, words, size, anchor } => {
                let anchor = match anchor {
                    Anchor::Start => "start",
                    Anchor::Middle => "middle",
                    Anchor::End => "end",
                };
                let (x, y) = (coordinate(place.0), coordinate(place.1));
                let (em, fill) = (coordinate(size.em()), hex(crate::scene::INK));
                let words = escaped(words);
                line(
                    svg,
                    format_args!(
                        "<text x=\"{x}\" y=\"{y}\" font-size=\"{em}\" text-anchor=\"{anchor}\" \
                         fill=\"{fill}\">{words}</text>"
                    ),
                );
            }
            Item::Image { left, top, width, height, picture } => {
                let rendering = match pixels_are_shown(picture, *width, self.pixels_per_unit()) {
                    true => " style=\"image-rendering:pixelated\"",
                    false => "",
                };
                let place = area(*left, *top, *width, *height);
                let source = data_uri(picture)?;
                line(
                    svg,
                    format_args!(
                        "<image {place} preserveAspectRatio=\"none\"{rendering} href=\"{source}\"/>"
                    ),
                );
            }
            Item::Begin { origin: (x, y), label } => {
                line(svg, format_args!("<g transform=\"translate({} {})\">", coordinate(*x), coordinate(*y)));
                named(svg, "title", label);
            }
            Item::End => svg.push_str("</g>\n"),
        }
        Ok(())
    }
}

/// The picture as a PNG within an address.
pub(crate) fn data_uri(picture: &Picture) -> Result<String> {
    let png = encode_png(picture.width(), picture.height(), picture.into())?;
    Ok(format!("data:image/png;base64,{}", base64(&png)))
}

/// `text` as it stands in a document or in a quoted attribute.
pub(crate) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

fn line(svg: &mut String, words: std::fmt::Arguments<'_>) {
    // Writing into a string cannot fail.
    let _ = writeln!(svg, "{words}");
}

fn named(svg: &mut String, tag: &str, words: &str) {
    if !words.is_empty() {
        line(svg, format_args!("<{tag}>{}</{tag}>", escaped(words)));
    }
}

fn area(left: f64, top: f64, width: f64, height: f64) -> String {
    let [left, top, width, height] = [left, top, width, height].map(coordinate);
    format!("x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\"")
}

fn outline(lines: &[Polyline]) -> String {
    let mut shape = String::new();
    for line in lines {
        for (i, (x, y)) in line.points.iter().enumerate() {
            let letter = if i == 0 { 'M' } else { 'L' };
            let _ = write!(shape, "{letter}{} {}", coordinate(*x), coordinate(*y));
        }
        if line.closed {
            shape.push('Z');
        }
    }
    shape
}

fn painted(what: &str, paint: Paint) -> String {
    let colour = hex(paint.colour);
    if paint.opacity < 1.0 {
        format!("{what}=\"{colour}\" {what}-opacity=\"{}\"", coordinate(paint.opacity))
    } else {
        format!("{what}=\"{colour}\"")
    }
}

fn hex([red, green, blue]: Rgb) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::sample;
    use crate::xml::assert_well_formed;

    #[test]
    fn hostile_words_stay_words() {
        let svg = sample().to_svg().unwrap();
        let tags = assert_well_formed(&svg);
        assert!(tags.iter().all(|tag| tag != "script"), "{tags:?}");
        assert!(!svg.contains('\0') && !svg.contains('\u{202e}') && !svg.contains("NaN"));
        assert!(svg.contains("&lt;script&gt;alert(&quot;1&quot;)"));
    }

    #[test]
    fn a_drawing_names_itself_and_needs_no_other_file() {
        let svg = sample().to_svg().unwrap();
        let tags = assert_well_formed(&svg);
        assert_eq!(tags[..3], ["svg", "title", "desc"]);
        for (at, _) in svg.match_indices("href=") {
            assert!(svg[at..].starts_with("href=\"data:image/png;base64,"));
        }
        assert_eq!(svg.matches("http").count(), 1, "only the name space");
    }

    #[test]
    fn a_picture_is_the_same_when_it_is_taken_out_again() {
        let picture = Picture::new(3, 1, vec![1, 2, 3, 4, 5, 6, 7, 8, 9]).unwrap();
        let uri = data_uri(&picture).unwrap();
        let letters = uri.strip_prefix("data:image/png;base64,").unwrap();
        let value = |c: u8| match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            _ => 63,
        };
        let six: Vec<u8> = letters.bytes().filter(|c| *c != b'=').map(value).collect();
        let bytes: Vec<u8> = six
            .chunks(4)
            .flat_map(|four| {
                let joined = (0..4).fold(0u32, |all, i| all << 6 | u32::from(*four.get(i).unwrap_or(&0)));
                joined.to_be_bytes()[1..four.len()].to_vec()
            })
            .collect();
        assert_eq!(Picture::decode(&bytes).unwrap(), picture);
    }
}
