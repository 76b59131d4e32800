//! Fonts within a PDF: for each face in use, a font file of the glyphs that are shown, their widths, and the letters they stand for.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use flate2::{Compression, write::ZlibEncoder};
use monosplit_graph::{Error, ErrorKind, Result};
use pdf_writer::types::{CidFontType, FontFlags, SystemInfo, UnicodeCmap};
use pdf_writer::{Filter, Finish, Name, Pdf, Rect, Ref, Str};
use subsetter::GlyphRemapper;

use crate::shaping::Glyph;
use crate::text::ISOLATES;
use crate::typeface::{Typeface, table};

/// Codes are glyphs of the embedded file, two bytes each.
const ENCODING: Name = Name(b"Identity-H");
const SYSTEM: SystemInfo = SystemInfo { registry: Str(b"Adobe"), ordering: Str(b"Identity"), supplement: 0 };

/// The faces of a document in the order of their first use.
#[derive(Default)]
pub(crate) struct DocumentFonts(Vec<DocumentFont>);

/// A face and the glyphs of it that are shown.
pub(crate) struct DocumentFont {
    face: Arc<Typeface>,
    kept: GlyphRemapper,
    /// The letters that each code stands for.
    letters: BTreeMap<u16, String>,
}

impl DocumentFonts {
    /// The number of `face` in this document.
    pub(crate) fn of(&mut self, face: &Arc<Typeface>) -> usize {
        let known = self.0.iter().position(|font| Arc::ptr_eq(&font.face, face));
        known.unwrap_or_else(|| {
            let letters = BTreeMap::new();
            self.0.push(DocumentFont { face: face.clone(), kept: GlyphRemapper::new(), letters });
            self.0.len() - 1
        })
    }

    /// The code of a glyph of the face with this number, which shows a part of `words`.
    pub(crate) fn add(&mut self, font: usize, glyph: &Glyph, words: &str) -> u16 {
        let DocumentFont { kept, letters, .. } = &mut self.0[font];
        let code = kept.remap(glyph.id);
        let shown = words[glyph.letters.clone()].replace(ISOLATES, "");
        if !shown.is_empty() {
            letters.entry(code).or_insert(shown);
        }
        code
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &DocumentFont> {
        self.0.iter()
    }
}

impl DocumentFont {
    /// Writes the font as the object `id` and others that `new` numbers.
    pub(crate) fn embed(&self, pdf: &mut Pdf, id: Ref, new: &mut impl FnMut() -> Ref) -> Result<()> {
        let postscript = self.face.is_postscript();
        let file = self.face.subset(&self.kept).ok_or_else(|| self.failed())?;
        let program =
            if postscript { table(&file, 0, *b"CFF ").ok_or_else(|| self.failed())? } else { &file };
        let name = format!("{}+{}", self.tag(), self.face.name());
        let (descendant, descriptor, letters, data) = (new(), new(), new(), new());
        pdf.type0_font(id)
            .base_font(Name(name.as_bytes()))
            .encoding_predefined(ENCODING)
            .descendant_font(descendant)
            .to_unicode(letters);
        let mut font = pdf.cid_font(descendant);
        font.subtype(if postscript { CidFontType::Type0 } else { CidFontType::Type2 });
        font.base_font(Name(name.as_bytes())).system_info(SYSTEM).font_descriptor(descriptor);
        if !postscript {
            font.cid_to_gid_map_predefined(Name(b"Identity"));
        }
        let widths = self.kept.remapped_gids().map(|glyph| (1000.0 * self.face.advance(glyph)) as f32);
        font.widths().consecutive(0, widths);
        font.finish();
        self.describe(pdf, descriptor, &name, data);
        let mut spelling = UnicodeCmap::new(Name(b"Letters"), SYSTEM);
        for (code, letters) in &self.letters {
            spelling.pair_with_multiple(*code, letters.chars());
        }
        pdf.cmap(letters, &compressed(&spelling.finish())).filter(Filter::FlateDecode);
        let bytes = compressed(program);
        let mut stream = pdf.stream(data, &bytes);
        stream.filter(Filter::FlateDecode);
        match postscript {
            true => stream.pair(Name(b"Subtype"), Name(b"CIDFontType0C")),
            false => stream.pair(Name(b"Length1"), program.len() as i32),
        };
        Ok(())
    }

    fn describe(&self, pdf: &mut Pdf, id: Ref, name: &str, data: Ref) {
        let metrics = self.face.font().metrics();
        let thousandths = |units: f64| (units * self.face.unit() * 1000.0) as f32;
        let line = metrics.hhea_line.or(metrics.typo_line).unwrap_or_default();
        let bounds = metrics.bounds;
        let [left, bottom, right, top] =
            [bounds.x_min, bounds.y_min, bounds.x_max, bounds.y_max].map(|side| thousandths(side.to_f64()));
        let ascent = thousandths(line.ascender.to_f64());
        let mut descriptor = pdf.font_descriptor(id);
        descriptor
            .name(Name(name.as_bytes()))
            .flags(FontFlags::SYMBOLIC)
            .bbox(Rect::new(left, bottom, right, top))
            .italic_angle(0.0)
            .ascent(ascent)
            .descent(thousandths(line.descender.to_f64()))
            .cap_height(metrics.cap_height.map_or(ascent, |height| thousandths(height.to_f64())))
            .stem_v(80.0);
        match self.face.is_postscript() {
            true => descriptor.font_file3(data),
            false => descriptor.font_file2(data),
        };
    }

    /// Six letters that tell subsets of one font apart, from the glyphs they hold.
    fn tag(&self) -> String {
        let hash = self.kept.remapped_gids().fold(0xcbf2_9ce4_8422_2325u64, |hash, glyph| {
            (hash ^ u64::from(glyph)).wrapping_mul(0x0100_0000_01b3)
        });
        (0..6).map(|i| char::from(b'A' + (hash >> (8 * i) & 0xff) as u8 % 26)).collect()
    }

    fn failed(&self) -> Error {
        let name = self.face.name();
        Error::new(
            ErrorKind::Io,
            format!(
                "the font {name} could not be embedded in the PDF; write the figure as PNG or SVG, or remove the font"
            ),
        )
    }
}

/// The bytes of a Flate stream.
pub(crate) fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    // Writing into a vector cannot fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}
