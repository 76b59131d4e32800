//! A scene as a PDF of one page: shapes stay shapes, words stay words that can be searched and copied, and the parts of the fonts
//! they are set in are embedded (`pdf_font.rs`). The file holds no date: the same scene gives the same bytes.

use std::collections::BTreeSet;

use monosplit_graph::{Error, ErrorKind, Result};
use monosplit_image::{Picture, encode_png};
use pdf_writer::types::{LineJoinStyle, Predictor};
use pdf_writer::{Content, Filter, Finish, Name, Pdf, Rect, Ref, Str, TextStr};

use crate::pdf_font::{DocumentFonts, compressed};
use crate::scene::{Anchor, INK, Item, PAPER, Paint, Point, Polyline, Scene, Style};
use crate::shaping::{self, Glyph, Run};
use crate::text::TextSize;

/// Points of a seventy-second of an inch that a unit takes.
const POINTS: f64 = 0.75;

/// Glyphs are moved by no less than this, in ems.
const SMALLEST_MOVE: f64 = 5e-4;

impl Scene {
    /// The drawing as the bytes of a PDF file.
    pub fn to_pdf(&self) -> Result<Vec<u8>> {
        self.warn_of_missing_characters();
        let mut page = PageContent::new(self);
        for item in self.items() {
            page.draw(item);
        }
        let mut next = Ref::new(1);
        let mut new = || next.bump();
        let mut pdf = Pdf::new();
        let (catalogue, pages, sheet, content, facts) = (new(), new(), new(), new(), new());
        let mut root = pdf.catalog(catalogue);
        root.pages(pages).lang(TextStr("en"));
        root.viewer_preferences().display_doc_title(true);
        root.finish();
        pdf.pages(pages).kids([sheet]).count(1);
        pdf.document_info(facts)
            .title(TextStr(self.title()))
            .subject(TextStr(self.description()))
            .producer(TextStr("monosplit"));
        let pictures: Vec<(String, Ref)> = page.named("Picture", page.pictures.len(), &mut new);
        for (picture, (_, id)) in page.pictures.iter().zip(&pictures) {
            embed(&mut pdf, *id, picture)?;
        }
        let fonts: Vec<(String, Ref)> = page.named("Font", page.fonts.len(), &mut new);
        for (font, (_, id)) in page.fonts.iter().zip(&fonts) {
            font.embed(&mut pdf, *id, &mut new)?;
        }
        let mut sheet = pdf.page(sheet);
        sheet.parent(pages).contents(content);
        sheet.media_box(Rect::new(0.0, 0.0, short(self.width() * POINTS), short(self.height() * POINTS)));
        let mut resources = sheet.resources();
        resources.x_objects().pairs(pictures.iter().map(|(name, id)| (Name(name.as_bytes()), *id)));
        resources.fonts().pairs(fonts.iter().map(|(name, id)| (Name(name.as_bytes()), *id)));
        let mut states = resources.ext_g_states();
        for hundredths in &page.opacities {
            let share = f32::from(*hundredths) / 100.0;
            let name = opacity_name(*hundredths);
            let mut state =
                states.insert(Name(name.as_bytes())).start::<pdf_writer::writers::ExtGraphicsState>();
            state.non_stroking_alpha(share).stroking_alpha(share);
        }
        states.finish();
        resources.finish();
        sheet.finish();
        let operators = compressed(&page.content.finish());
        pdf.stream(content, &operators).filter(Filter::FlateDecode);
        Ok(pdf.finish())
    }
}

/// The operators that draw a page and what they refer to.
struct PageContent<'a> {
    content: Content,
    pictures: Vec<&'a Picture>,
    fonts: DocumentFonts,
    /// Opacities in use, in hundredths.
    opacities: BTreeSet<u8>,
}

impl<'a> PageContent<'a> {
    fn new(scene: &Scene) -> Self {
        let mut page = PageContent {
            content: Content::new(),
            pictures: Vec::new(),
            fonts: DocumentFonts::default(),
            opacities: BTreeSet::new(),
        };
        // Scenes count downwards from the upper left corner, pages upwards from the lower left.
        let points = POINTS as f32;
        page.content.transform([points, 0.0, 0.0, -points, 0.0, short(scene.height() * POINTS)]);
        page.fill(PAPER.into());
        page.content.rect(0.0, 0.0, short(scene.width()), short(scene.height())).fill_nonzero();
        page
    }

    /// `count` names of one kind, each with an object of its own.
    fn named(&self, kind: &str, count: usize, new: &mut impl FnMut() -> Ref) -> Vec<(String, Ref)> {
        (0..count).map(|i| (format!("{kind}{i}"), new())).collect()
    }

    fn draw(&mut self, item: &'a Item) {
        match item {
            Item::Rectangle { left, top, width, height, fill } => {
                self.fill(*fill);
                let [left, top, width, height] = [*left, *top, *width, *height].map(short);
                self.content.rect(left, top, width, height).fill_nonzero();
            }
            Item::Path { lines, style } => self.path(lines, *style),
            Item::Text { place, words, size, anchor } => self.text(*place, words, *size, *anchor),
            Item::Image { left, top, width, height, picture } => {
                let [left, bottom, width, height] = [*left, top + height, *width, *height].map(short);
                let name = format!("Picture{}", self.pictures.len());
                self.pictures.push(picture);
                self.content.save_state().transform([width, 0.0, 0.0, -height, left, bottom]);
                self.opacity(1.0);
                self.content.x_object(Name(name.as_bytes())).restore_state();
            }
            Item::Begin { origin: (x, y), .. } => {
                self.content.save_state().transform([1.0, 0.0, 0.0, 1.0, short(*x), short(*y)]);
            }
            Item::End => {
                self.content.restore_state();
            }
        }
    }

    fn fill(&mut self, paint: Paint) {
        let [red, green, blue] = paint.colour.map(|part| f32::from(part) / 255.0);
        self.content.set_fill_rgb(red, green, blue);
        self.opacity(paint.opacity);
    }

    fn opacity(&mut self, opacity: f64) {
        let hundredths = (opacity.clamp(0.0, 1.0) * 100.0).round() as u8;
        self.opacities.insert(hundredths);
        self.content.set_parameters(Name(opacity_name(hundredths).as_bytes()));
    }

    fn path(&mut self, lines: &[Polyline], style: Style) {
        match style {
            Style::Fill(paint) => self.fill(paint),
            Style::Stroke(paint, width) => {
                let [red, green, blue] = paint.colour.map(|part| f32::from(part) / 255.0);
                self.content.set_stroke_rgb(red, green, blue).set_line_width(short(width));
                self.content.set_line_join(LineJoinStyle::RoundJoin);
                self.opacity(paint.opacity);
            }
        }
        for line in lines {
            for (i, (x, y)) in line.points.iter().enumerate() {
                let step = if i == 0 { Content::move_to } else { Content::line_to };
                step(&mut self.content, short(*x), short(*y));
            }
            if line.closed {
                self.content.close_path();
            }
        }
        match style {
            Style::Fill(_) => self.content.fill_nonzero(),
            Style::Stroke(..) => self.content.stroke(),
        };
    }

    fn text(&mut self, (x, y): Point, words: &str, size: TextSize, anchor: Anchor) {
        let runs = shaping::shape(words);
        let width: f64 = runs.iter().flat_map(|run| &run.glyphs).map(|glyph| glyph.advance).sum();
        self.fill(INK.into());
        let left = x - anchor.share() * width * size.em();
        // Letters would stand on their heads on a page that counts downwards.
        self.content.begin_text().set_text_matrix([1.0, 0.0, 0.0, -1.0, short(left), short(y)]);
        for run in &runs {
            self.run(run, words, size);
        }
        self.content.end_text();
    }

    fn run(&mut self, run: &Run, words: &str, size: TextSize) {
        let font = self.fonts.of(&run.face);
        self.content.set_font(Name(format!("Font{font}").as_bytes()), short(size.em()));
        // How far the pen of the page is behind that of the run, in ems.
        let mut behind = 0.0;
        for part in parts(&run.glyphs) {
            // Where several glyphs show one letter together, none of them alone can be copied as that letter.
            let together = part.len() > 1 && part[0].letters == part[1].letters;
            if together {
                let mut mark = self.content.begin_marked_content_with_properties(Name(b"Span"));
                mark.properties().actual_text(TextStr(&words[part[0].letters.clone()]));
            }
            for level in part.chunk_by(|a, b| a.offset.1 == b.offset.1) {
                self.show(font, run, level, words, size, &mut behind);
            }
            if together {
                self.content.end_marked_content();
            }
        }
        if behind.abs() > SMALLEST_MOVE {
            self.content.show_positioned().items().adjust(short(-1000.0 * behind));
        }
    }

    /// Shows glyphs of one height where those before end. What shaping moved, by kerning for instance, is moved by thousandths of
    /// an em.
    fn show(
        &mut self,
        font: usize,
        run: &Run,
        glyphs: &[Glyph],
        words: &str,
        size: TextSize,
        behind: &mut f64,
    ) {
        let rise = short(glyphs[0].offset.1 * size.em());
        if rise != 0.0 {
            self.content.set_rise(rise);
        }
        let mut shown = self.content.show_positioned();
        let mut items = shown.items();
        for glyph in glyphs {
            *behind += glyph.offset.0;
            if behind.abs() > SMALLEST_MOVE {
                items.adjust(short(-1000.0 * std::mem::take(behind)));
            }
            items.show(Str(&self.fonts.add(font, glyph, words).to_be_bytes()));
            *behind += glyph.advance - glyph.offset.0 - run.face.advance(glyph.id);
        }
        items.finish();
        shown.finish();
        if rise != 0.0 {
            self.content.set_rise(0.0);
        }
    }
}

/// `glyphs` cut so that several that show one letter together stand alone.
fn parts(glyphs: &[Glyph]) -> Vec<&[Glyph]> {
    let (mut parts, mut plain, mut at) = (Vec::new(), 0, 0);
    for cluster in glyphs.chunk_by(|a, b| a.letters == b.letters) {
        let end = at + cluster.len();
        if cluster.len() > 1 {
            parts.extend([&glyphs[plain..at], cluster]);
            plain = end;
        }
        at = end;
    }
    parts.push(&glyphs[plain..]);
    parts.retain(|part| !part.is_empty());
    parts
}

/// A coordinate in as few digits as a drawing needs.
fn short(value: f64) -> f32 {
    ((value * 1000.0).round() / 1000.0) as f32
}

fn opacity_name(hundredths: u8) -> String {
    format!("Opacity{hundredths}")
}

/// Stores a picture. The compressed rows of a PNG are exactly what a PDF calls a Flate stream with PNG predictors, so they are
/// taken over as they are.
fn embed(pdf: &mut Pdf, id: Ref, picture: &Picture) -> Result<()> {
    let png = encode_png(picture.width(), picture.height(), picture.into())?;
    let rows = image_data(&png).ok_or_else(|| {
        Error::new(ErrorKind::Io, "a picture could not be stored in the PDF: its PNG has no image data")
    })?;
    let (width, height) = (picture.width() as i32, picture.height() as i32);
    let mut image = pdf.image_xobject(id, &rows);
    image.width(width).height(height).bits_per_component(8).color_space().device_rgb();
    image.filter(Filter::FlateDecode);
    image.decode_parms().predictor(Predictor::PngOptimum).colors(3).bits_per_component(8).columns(width);
    Ok(())
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

#[cfg(test)]
mod tests {
    use hayro_syntax::object::{Array, Dict, Name as PdfName, Object, Stream, String as PdfString};

    use super::*;
    use crate::scene::sample;

    /// Hands the only page of the file to `check`, as a reader that we did not write sees it.
    fn read(scene: &Scene, check: impl FnOnce(&hayro_syntax::page::Page<'_>)) {
        let pdf = hayro_syntax::Pdf::new(scene.to_pdf().unwrap()).unwrap();
        assert_eq!(pdf.pages().len(), 1);
        check(&pdf.pages()[0]);
    }

    fn fonts<'a>(page: &hayro_syntax::page::Page<'a>) -> Vec<Dict<'a>> {
        let fonts = &page.resources().fonts;
        fonts.keys().map(|name| fonts.get::<Dict<'a>>(&*name).unwrap()).collect()
    }

    fn one_line(words: &str) -> Scene {
        let mut scene = Scene::new(400.0, 40.0, words).unwrap();
        scene.text((10.0, 20.0), words, TextSize::Small, Anchor::Start);
        scene
    }

    #[test]
    fn every_font_is_embedded_and_spells_its_letters() {
        read(&one_line("To AVATAR 87.3 % αβ"), |page| {
            let fonts = fonts(page);
            assert_eq!(fonts.len(), 1);
            let spelling = fonts[0].get::<Stream<'_>>("ToUnicode").unwrap().decoded().unwrap().into_owned();
            let spelling = String::from_utf8(spelling).unwrap();
            for letter in "ToAVR873.% αβ".chars() {
                assert!(spelling.contains(&format!("<{:04X}>\n", letter as u32)), "{letter} {spelling}");
            }
            let descendants = fonts[0].get::<Array<'_>>("DescendantFonts").unwrap();
            let font = descendants.iter::<Dict<'_>>().next().unwrap();
            let descriptor = font.get::<Dict<'_>>("FontDescriptor").unwrap();
            let file = descriptor.get::<Stream<'_>>("FontFile2").unwrap().decoded().unwrap().into_owned();
            let kept = harfrust::Font::new(file, 0).unwrap();
            assert_eq!(kept.num_glyphs(), 14, "the letters and the box for what is missing");
        });
    }

    #[test]
    fn letters_of_several_glyphs_are_copied_as_one() {
        let glyph = |id, letters| Glyph { id, offset: (0.0, 0.0), advance: 0.5, letters };
        let glyphs = [glyph(1, 0..1), glyph(2, 1..2), glyph(3, 2..5), glyph(4, 2..5), glyph(5, 5..6)];
        let lengths: Vec<usize> = parts(&glyphs).iter().map(|part| part.len()).collect();
        assert_eq!(lengths, [2, 2, 1]);
        for (words, together) in [("xq\u{323}", true), ("class cat", false), ("חתול", false)] {
            read(&one_line(words), |page| {
                let content = String::from_utf8_lossy(page.page_stream().unwrap()).into_owned();
                assert_eq!(content.contains("/ActualText"), together, "{words}");
            });
        }
    }

    #[test]
    fn words_take_the_room_they_were_measured_to_take() {
        for words in ["To AVATAR", "Русская голубая", "a\u{a0}b", "q\u{323}x"] {
            read(&one_line(words), |page| {
                let font = fonts(page)[0].get::<Array<'_>>("DescendantFonts").unwrap();
                let font = font.iter::<Dict<'_>>().next().unwrap();
                let all = font.get::<Array<'_>>("W").unwrap();
                let widths: Vec<f32> =
                    all.iter::<Object<'_>>().find_map(|o| o.into_array()).unwrap().iter::<f32>().collect();
                let mut moved = 0.0;
                let mut operations = page.operations();
                while let Some(operation) = operations.next() {
                    if &**operation.operator == b"TJ" {
                        let items = operation.operands().next().unwrap().clone().into_array().unwrap();
                        for item in items.iter::<Object<'_>>() {
                            moved += match &item {
                                Object::String(codes) => shown(codes, &widths),
                                Object::Number(number) => -number.as_f64(),
                                _ => panic!("neither glyphs nor a move"),
                            };
                        }
                    }
                }
                let expected = shaping::width(words) * 1000.0;
                assert!((moved - expected).abs() < 1.0, "{words}: {moved} {expected}");
            });
        }
    }

    fn shown(codes: &PdfString<'_>, widths: &[f32]) -> f64 {
        let codes: Vec<u8> = codes.as_bytes().to_vec();
        codes
            .chunks(2)
            .map(|code| f64::from(widths[usize::from(u16::from_be_bytes([code[0], code[1]]))]))
            .sum()
    }

    #[test]
    fn hostile_words_stay_words() {
        read(&sample(), |page| {
            let (mut operations, mut saved) = (page.operations(), 0);
            while let Some(operation) = operations.next() {
                match &**operation.operator {
                    b"q" => saved += 1,
                    b"Q" => saved -= 1,
                    _ => {}
                }
                assert!(saved >= 0);
            }
            assert_eq!(saved, 0, "every state that is saved is restored");
            assert!(
                (page.media_box().width() - 90.0).abs() < 1e-6
                    && (page.media_box().height() - 60.0).abs() < 1e-6
            );
        });
        assert!(!sample().to_pdf().unwrap().windows(4).any(|part| part == b"Date"));
    }

    #[test]
    fn the_pixels_of_a_picture_are_taken_out_as_they_were_put_in() {
        let picture = Picture::new(5, 3, (0..45).collect()).unwrap();
        let mut scene = Scene::new(20.0, 20.0, "").unwrap();
        scene.image(0.0, 0.0, 10.0, 6.0, picture.clone());
        read(&scene, |page| {
            let image = page.resources().get_x_object(&PdfName::new(b"Picture0").unwrap()).unwrap();
            assert_eq!(&*image.decoded().unwrap(), picture.rgb());
        });
        assert!(image_data(b"").is_none() && image_data(&[0; 20]).is_none());
    }
}
