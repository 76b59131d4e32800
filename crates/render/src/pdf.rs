//! A scene as a PDF of one page: shapes and words stay shapes and words, set in the Helvetica and Symbol that
//! every reader has. A character that neither font holds is shown as `?`.

use std::collections::BTreeSet;
use std::fmt::Write;

use monosplit_graph::{Error, ErrorKind, Result};
use monosplit_image::{Picture, encode_png};

use crate::colour::Rgb;
use crate::helvetica::{self, Face};
use crate::scene::{Anchor, INK, Item, PAPER, Paint, Point, Polyline, Scene, Style, coordinate};
use crate::text::TextSize;

/// Points of a seventy-second of an inch that a unit takes.
const POINTS: f64 = 0.75;

/// Objects before the first picture, numbered from 1: catalogue, pages, page, content, two fonts, facts.
const FIXED: usize = 7;

impl Scene {
    /// The drawing as the bytes of a PDF file.
    pub fn to_pdf(&self) -> Result<Vec<u8>> {
        let mut content = Content::new(self);
        for item in self.items() {
            content.write(item);
        }
        let mut file = File::new();
        let (width, height) = (coordinate(self.width() * POINTS), coordinate(self.height() * POINTS));
        file.object(
            "<< /Type /Catalog /Pages 2 0 R /Lang (en) /ViewerPreferences << /DisplayDocTitle true >> >>",
        );
        file.object("<< /Type /Pages /Kids [3 0 R] /Count 1 >>");
        file.object(&format!(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {width} {height}] /Contents 4 0 R /Resources {} >>",
            content.resources()
        ));
        file.stream("", content.operators.as_bytes());
        file.object("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>");
        file.object("<< /Type /Font /Subtype /Type1 /BaseFont /Symbol >>");
        file.object(&format!(
            "<< /Title {} /Subject {} /Producer (monosplit) >>",
            utf16(self.title()),
            utf16(self.description())
        ));
        for picture in &content.pictures {
            let (dictionary, bytes) = compressed(picture)?;
            file.stream(&dictionary, &bytes);
        }
        Ok(file.finish())
    }
}

/// The operators that draw a page and what they refer to.
struct Content<'a> {
    operators: String,
    pictures: Vec<&'a Picture>,
    /// Opacities in use, in hundredths.
    opacities: BTreeSet<u8>,
}

impl<'a> Content<'a> {
    fn new(scene: &Scene) -> Self {
        let height = coordinate(scene.height() * POINTS);
        let mut content = Content {
            // Scenes count downwards from the upper left corner, pages upwards from the lower left.
            operators: format!("{POINTS} 0 0 -{POINTS} 0 {height} cm\n"),
            pictures: Vec::new(),
            opacities: BTreeSet::new(),
        };
        content.fill(PAPER.into());
        content.rectangle(0.0, 0.0, scene.width(), scene.height());
        content
    }

    fn write(&mut self, item: &'a Item) {
        match item {
            Item::Rectangle { left, top, width, height, fill } => {
                self.fill(*fill);
                self.rectangle(*left, *top, *width, *height);
            }
            Item::Path { lines, style } => self.path(lines, *style),
            Item::Text { place, words, size, anchor } => self.text(*place, words, *size, *anchor),
            Item::Image { left, top, width, height, picture } => {
                let [left, bottom, width, height] = [*left, top + height, *width, *height].map(coordinate);
                let name = self.pictures.len();
                self.pictures.push(picture);
                self.say(format_args!(
                    "q {width} 0 0 -{height} {left} {bottom} cm /Opaque gs /Picture{name} Do Q"
                ));
            }
            Item::Begin { origin: (x, y), .. } => {
                self.say(format_args!("q 1 0 0 1 {} {} cm", coordinate(*x), coordinate(*y)));
            }
            Item::End => self.say(format_args!("Q")),
        }
    }

    fn say(&mut self, operator: std::fmt::Arguments<'_>) {
        // Writing into a string cannot fail.
        let _ = writeln!(self.operators, "{operator}");
    }

    fn fill(&mut self, paint: Paint) {
        let (colour, opacity) = (colour(paint.colour), self.opacity(paint));
        self.say(format_args!("{colour} rg {opacity} gs"));
    }

    /// The name of the graphics state with the opacity of `paint`.
    fn opacity(&mut self, paint: Paint) -> String {
        if paint.opacity >= 1.0 {
            return "/Opaque".into();
        }
        let hundredths = (paint.opacity.max(0.0) * 100.0).round() as u8;
        self.opacities.insert(hundredths);
        format!("/Opacity{hundredths}")
    }

    fn rectangle(&mut self, left: f64, top: f64, width: f64, height: f64) {
        let [left, top, width, height] = [left, top, width, height].map(coordinate);
        self.say(format_args!("{left} {top} {width} {height} re f"));
    }

    fn path(&mut self, lines: &[Polyline], style: Style) {
        let operator = match style {
            Style::Fill(paint) => {
                self.fill(paint);
                "f"
            }
            Style::Stroke(paint, width) => {
                let (colour, opacity) = (colour(paint.colour), self.opacity(paint));
                self.say(format_args!("{colour} RG {opacity} gs {} w 1 j", coordinate(width)));
                "S"
            }
        };
        for line in lines {
            for (i, (x, y)) in line.points.iter().enumerate() {
                let step = if i == 0 { "m" } else { "l" };
                self.say(format_args!("{} {} {step}", coordinate(*x), coordinate(*y)));
            }
            if line.closed {
                self.say(format_args!("h"));
            }
        }
        self.say(format_args!("{operator}"));
    }

    fn text(&mut self, (x, y): Point, words: &str, size: TextSize, anchor: Anchor) {
        let codes: Vec<helvetica::Code> = words
            .chars()
            .filter_map(|character| helvetica::code(character).or_else(|| helvetica::code('?')))
            .collect();
        let width = codes.iter().map(|code| code.advance).sum::<f64>() * size.em();
        self.fill(INK.into());
        let (x, y) = (coordinate(x - anchor.share() * width), coordinate(y));
        // Letters would stand on their heads on a page that counts downwards.
        self.say(format_args!("BT 1 0 0 -1 {x} {y} Tm"));
        for run in codes.chunk_by(|a, b| a.face == b.face) {
            let font = match run[0].face {
                Face::Helvetica => "/Helvetica",
                Face::Symbol => "/Symbol",
            };
            let letters: String = run.iter().map(|code| escaped(code.byte)).collect();
            self.say(format_args!("{font} {} Tf ({letters}) Tj", coordinate(size.em())));
        }
        self.say(format_args!("ET"));
    }

    fn resources(&self) -> String {
        let pictures: String =
            (0..self.pictures.len()).map(|i| format!("/Picture{i} {} 0 R ", FIXED + 1 + i)).collect();
        let states: String = self
            .opacities
            .iter()
            .map(|hundredths| {
                let share = coordinate(f64::from(*hundredths) / 100.0);
                format!("/Opacity{hundredths} << /ca {share} /CA {share} >> ")
            })
            .collect();
        format!(
            "<< /Font << /Helvetica 5 0 R /Symbol 6 0 R >> /XObject << {pictures}>> \
             /ExtGState << /Opaque << /ca 1 /CA 1 >> {states}>> >>"
        )
    }
}

fn colour(rgb: Rgb) -> String {
    rgb.map(|part| format!("{:.3}", f64::from(part) / 255.0)).join(" ")
}

/// One byte of a string in parentheses.
fn escaped(byte: u8) -> String {
    match byte {
        b'(' | b')' | b'\\' => format!("\\{}", char::from(byte)),
        b' '..=b'~' => char::from(byte).to_string(),
        _ => format!("\\{byte:03o}"),
    }
}

/// Words outside of the page, where every character can be written.
fn utf16(words: &str) -> String {
    let digits: String = words.encode_utf16().map(|unit| format!("{unit:04X}")).collect();
    format!("<FEFF{digits}>")
}

/// A picture as PDF stores it. The compressed rows of a PNG are exactly what a PDF calls a Flate stream with
/// PNG predictors, so they are taken over as they are.
fn compressed(picture: &Picture) -> Result<(String, Vec<u8>)> {
    let (width, height) = (picture.width(), picture.height());
    let png = encode_png(width, height, picture.into())?;
    let rows = image_data(&png).ok_or_else(|| {
        Error::new(ErrorKind::Io, "a picture could not be stored in the PDF: its PNG has no image data")
    })?;
    let dictionary = format!(
        "/Type /XObject /Subtype /Image /Width {width} /Height {height} /ColorSpace /DeviceRGB \
         /BitsPerComponent 8 /Filter /FlateDecode /DecodeParms << /Predictor 15 /Colors 3 \
         /BitsPerComponent 8 /Columns {width} >>"
    );
    Ok((dictionary, rows))
}

/// The contents of all `IDAT` chunks of a PNG file, joined.
fn image_data(png: &[u8]) -> Option<Vec<u8>> {
    let (mut data, mut rest) = (Vec::new(), png.get(8..)?);
    while let Some((head, after)) = rest.split_first_chunk::<8>() {
        let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
        if &head[4..] == b"IDAT" {
            data.extend_from_slice(after.get(..length)?);
        }
        rest = after.get(length.checked_add(4)?..)?;
    }
    (!data.is_empty()).then_some(data)
}

/// Objects one after the other and the table of where each begins.
struct File {
    bytes: Vec<u8>,
    offsets: Vec<usize>,
}

impl File {
    fn new() -> Self {
        // The second line tells programs that move files that this one is not plain text.
        File { bytes: b"%PDF-1.4\n%\xE2\xE3\xCF\xD3\n".to_vec(), offsets: Vec::new() }
    }

    fn object(&mut self, body: &str) {
        self.begin();
        self.bytes.extend_from_slice(body.as_bytes());
        self.bytes.extend_from_slice(b"\nendobj\n");
    }

    fn stream(&mut self, dictionary: &str, content: &[u8]) {
        self.begin();
        let head = format!("<< {dictionary} /Length {} >>\nstream\n", content.len());
        self.bytes.extend_from_slice(head.as_bytes());
        self.bytes.extend_from_slice(content);
        self.bytes.extend_from_slice(b"\nendstream\nendobj\n");
    }

    fn begin(&mut self) {
        self.offsets.push(self.bytes.len());
        self.bytes.extend_from_slice(format!("{} 0 obj\n", self.offsets.len()).as_bytes());
    }

    fn finish(mut self) -> Vec<u8> {
        let (table, count) = (self.bytes.len(), self.offsets.len() + 1);
        let entries: String = self.offsets.iter().map(|offset| format!("{offset:010} 00000 n \n")).collect();
        let tail = format!(
            "xref\n0 {count}\n0000000000 65535 f \n{entries}trailer\n<< /Size {count} /Root 1 0 R \
             /Info {FIXED} 0 R >>\nstartxref\n{table}\n%%EOF\n"
        );
        self.bytes.extend_from_slice(tail.as_bytes());
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::sample;

    fn latin(bytes: &[u8]) -> String {
        bytes.iter().map(|b| char::from(*b)).collect()
    }

    #[test]
    fn the_table_says_where_each_object_begins() {
        let file = sample().to_pdf().unwrap();
        let words = latin(&file);
        let start: usize =
            words.rsplit("startxref\n").next().unwrap().lines().next().unwrap().parse().unwrap();
        let mut table = words[words.char_indices().nth(start).unwrap().0..].lines();
        assert_eq!(table.next(), Some("xref"));
        let count: usize = table.next().unwrap().strip_prefix("0 ").unwrap().parse().unwrap();
        assert_eq!(count, FIXED + 2, "one picture");
        for number in 0..count {
            let entry = table.next().unwrap();
            assert_eq!(entry.len() + 1, 20, "an entry is twenty bytes");
            if number > 0 {
                let offset: usize = entry[..10].parse().unwrap();
                assert!(file[offset..].starts_with(format!("{number} 0 obj\n").as_bytes()));
            }
        }
    }

    #[test]
    fn every_stream_is_as_long_as_it_says() {
        let file = sample().to_pdf().unwrap();
        let mut at = 0;
        let mut streams = 0;
        while let Some(found) = file[at..].windows(8).position(|w| w == b">>\nstrea") {
            let head = latin(&file[..at + found]);
            let length: usize = head.rsplit("/Length ").next().unwrap().trim().parse().unwrap();
            at += found + b">>\nstream\n".len() + length;
            assert!(file[at..].starts_with(b"\nendstream"));
            streams += 1;
        }
        assert_eq!(streams, 2);
    }

    #[test]
    fn parentheses_and_foreign_letters_stay_within_their_string() {
        let file = latin(&sample().to_pdf().unwrap());
        assert!(file.contains(r"'x' \\ \) \( "), "escaped");
        assert!(file.contains("/Symbol 9.75 Tf (a\\263-\\256) Tj"), "α≥−→ in Symbol");
        assert!(file.contains(r"(\205 \351 ??) Tj"), "… é in Windows' Latin, two characters unknown");
        let operators = file.split("stream\n").nth(1).unwrap();
        assert_eq!(operators.matches("q ").count(), operators.matches('Q').count());
    }

    #[test]
    fn the_pixels_of_a_picture_are_those_of_its_png() {
        let picture = Picture::new(5, 3, (0..45).collect()).unwrap();
        let (dictionary, rows) = compressed(&picture).unwrap();
        assert!(dictionary.contains("/Columns 5"));
        assert_eq!(rows[0] & 0x0f, 8, "a zlib stream");
        let png = encode_png(5, 3, (&picture).into()).unwrap();
        assert!(png.windows(rows.len()).any(|part| part == rows));
        assert!(image_data(&png[..20]).is_none() && image_data(b"").is_none());
    }
}
