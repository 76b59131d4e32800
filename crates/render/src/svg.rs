//! A scene as SVG: one file that needs no other, with words as words and a description for screen readers.

use std::fmt::Write;

use monosplit_graph::Result;
use monosplit_image::{Picture, encode_png};

use crate::base64::base64;
use crate::colour::Rgb;
use crate::scene::{Anchor, INK, Item, PAPER, Paint, Polyline, Scene, Style, coordinate, pixels_are_shown};
use crate::text;

impl Scene {
    /// The drawing as an SVG document, which may also stand inside a page of HTML.
    pub fn to_svg(&self) -> Result<String> {
        let (width, height) = (coordinate(self.width()), coordinate(self.height()));
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" \
             font-family=\"'Liberation Sans', Arial, Helvetica, sans-serif\">\n"
        );
        named(&mut svg, "title", self.title());
        named(&mut svg, "desc", self.description());
        svg += &format!("<rect width=\"{width}\" height=\"{height}\" fill=\"{}\"/>\n", hex(PAPER));
        for item in self.items() {
            svg.push_str(&element(item, self.pixels_per_unit())?);
            svg.push('\n');
        }
        svg.push_str("</svg>\n");
        Ok(svg)
    }
}

fn element(item: &Item, pixels_per_unit: usize) -> Result<String> {
    Ok(match item {
        Item::Rectangle { left, top, width, height, fill } => {
            format!("<rect {} {}/>", area(*left, *top, *width, *height), painted("fill", *fill))
        }
        Item::Path { lines, style } => format!("<path d=\"{}\" {}/>", outline(lines), styled(*style)),
        Item::Text { place, words, size, anchor } => {
            let anchor = match anchor {
                Anchor::Start => "start",
                Anchor::Middle => "middle",
                Anchor::End => "end",
            };
            // The length holds words to the room they were given, whatever font the viewer has.
            let [x, y, em, length] = [place.0, place.1, size.em(), text::width(words, *size)].map(coordinate);
            format!(
                "<text x=\"{x}\" y=\"{y}\" font-size=\"{em}\" text-anchor=\"{anchor}\" textLength=\"{length}\" \
                 lengthAdjust=\"spacingAndGlyphs\" fill=\"{}\">{}</text>",
                hex(INK),
                escaped(words)
            )
        }
        Item::Image { left, top, width, height, picture } => {
            let shown = pixels_are_shown(picture, *width, pixels_per_unit);
            let rendering = if shown { " style=\"image-rendering:pixelated\"" } else { "" };
            format!(
                "<image {} preserveAspectRatio=\"none\"{rendering} href=\"{}\"/>",
                area(*left, *top, *width, *height),
                data_uri(picture)?
            )
        }
        Item::Begin { origin: (x, y), label } => {
            let mut group = format!("<g transform=\"translate({} {})\">\n", coordinate(*x), coordinate(*y));
            named(&mut group, "title", label);
            group
        }
        Item::End => "</g>".into(),
    })
}

fn styled(style: Style) -> String {
    match style {
        Style::Fill(paint) => painted("fill", paint),
        Style::Stroke(paint, width) => format!(
            "fill=\"none\" {} stroke-width=\"{}\" stroke-linejoin=\"round\"",
            painted("stroke", paint),
            coordinate(width)
        ),
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

fn named(svg: &mut String, tag: &str, words: &str) {
    if !words.is_empty() {
        *svg += &format!("<{tag}>{}</{tag}>\n", escaped(words));
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
            // Writing into a string cannot fail.
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
