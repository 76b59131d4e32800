//! A typeface: the bytes of a font file, read for shaping, measuring, drawing and embedding. One comes with this crate; others are
//! found on the machine (`system_fonts.rs`).

use std::path::Path;
use std::sync::{Arc, OnceLock};

use harfrust::font::Blob;
use harfrust::font::attribute::{Style, Width};
use harfrust::font::glyph::outline::{DrawMemory, DrawOptions, OutlineSource, PathSink};
use harfrust::font::name::NameId;
use harfrust::{Font, GlyphId};
use monosplit_graph::FileBytes;
use subsetter::GlyphRemapper;

/// Liberation Sans: as wide as Helvetica and Arial letter by letter, so that an SVG shown in these keeps its layout.
static BUNDLED: &[u8] = include_bytes!("../fonts/LiberationSans-Regular.ttf");

/// The embedding permission of a font that may not be part of a document (OpenType, `OS/2`, `fsType`).
const RESTRICTED: u16 = 2;

/// One face of a font file.
pub(crate) struct Typeface {
    font: Font,
    data: Blob,
    index: u32,
}

impl Typeface {
    /// The face at `index` of a font file, if it can be drawn and may be embedded.
    pub(crate) fn new(data: impl Into<Blob>, index: u32) -> Option<Self> {
        let data = data.into();
        let font = Font::new(data.clone(), index)?;
        let drawable = matches!(font.outline_glyphs().source()?, OutlineSource::Glyf | OutlineSource::Cff);
        let permission = table(&data, index, *b"OS/2").and_then(|os2| read_u16(os2, 8)).unwrap_or(0);
        (drawable && permission & 0xf != RESTRICTED).then_some(Typeface { font, data, index })
    }

    /// The face at `index` of the font file at `path`, which is mapped.
    pub(crate) fn open(path: &Path, index: u32) -> Option<Self> {
        let data: Arc<dyn AsRef<[u8]> + Send + Sync> = FileBytes::open(path).ok()?;
        Typeface::new(data, index)
    }

    /// The typeface that words are set in unless it lacks their letters.
    pub(crate) fn bundled() -> &'static Arc<Typeface> {
        static TYPEFACE: OnceLock<Arc<Typeface>> = OnceLock::new();
        // The file is part of the program, and every test with words reads it.
        TYPEFACE.get_or_init(|| Arc::new(Typeface::new(BUNDLED, 0).expect("the bundled font is whole")))
    }

    pub(crate) fn font(&self) -> &Font {
        &self.font
    }

    /// Whether the face has a glyph for `character`.
    pub(crate) fn covers(&self, character: char) -> bool {
        self.font.charmap().map_unicode(character).is_some_and(|glyph| glyph != GlyphId::NOTDEF)
    }

    /// What one font unit is in ems.
    pub(crate) fn unit(&self) -> f64 {
        1.0 / f64::from(self.font.units_per_em().max(1))
    }

    /// Distance from `glyph` to the next before kerning, in ems.
    pub(crate) fn advance(&self, glyph: u16) -> f64 {
        f64::from(self.font.glyph_metrics().h_advance(GlyphId::new(glyph.into()))) * self.unit()
    }

    /// Draws the outline of `glyph` in font units, upwards; nothing where it has none or is damaged.
    pub(crate) fn draw(&self, glyph: u16, sink: &mut dyn PathSink) {
        if let Some(outline) = self.font.outline_glyphs().get(GlyphId::new(glyph.into())) {
            // A damaged glyph of a font of the machine stays blank.
            let _ = outline.draw(&DrawOptions::new(), DrawMemory::Scratch, sink);
        }
    }

    /// Orders faces by how well they stand beside the bundled one: upright before slanted, then by weight, then normal before
    /// narrow, then without serifs before others.
    pub(crate) fn plainness(&self) -> (bool, u32, bool, bool) {
        let attributes = self.font.default_attributes();
        let heavier = (attributes.weight.value() - 400.0).abs() as u32;
        let sans = self.name().contains("Sans");
        (attributes.style != Style::Normal, heavier, attributes.width != Width::NORMAL, !sans)
    }

    /// The name for documents: letters, digits and hyphens.
    pub(crate) fn name(&self) -> String {
        let name = self.font.names().get(NameId::POSTSCRIPT_NAME).and_then(|name| name.english_or_first());
        let letters = name.iter().flat_map(|name| name.name().chars().collect::<Vec<char>>());
        let name: String = letters.filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(63).collect();
        if name.is_empty() { "Unnamed".into() } else { name }
    }

    /// Whether a document can hold a part of the font; damaged files fail here.
    pub(crate) fn can_be_embedded(&self) -> bool {
        self.subset(&GlyphRemapper::new()).is_some()
    }

    /// A font file of the glyphs in `kept` alone, for a document.
    pub(crate) fn subset(&self, kept: &GlyphRemapper) -> Option<Vec<u8>> {
        subsetter::subset(&self.data, self.index, kept).ok()
    }

    /// Whether the outlines are those of PostScript (`CFF`), not of TrueType.
    pub(crate) fn is_postscript(&self) -> bool {
        self.font.outline_glyphs().source() == Some(OutlineSource::Cff)
    }
}

/// The bytes of a table of a font file, or of the face at `index` of a collection.
pub(crate) fn table(data: &[u8], index: u32, tag: [u8; 4]) -> Option<&[u8]> {
    let start = match data.starts_with(b"ttcf") {
        true => read_u32(data, 12 + 4 * index as usize)? as usize,
        false => 0,
    };
    let count = usize::from(read_u16(data, start.checked_add(4)?)?);
    let records = data.get(start + 12..)?.chunks_exact(16).take(count);
    let record = records.into_iter().find(|record| record.starts_with(&tag))?;
    let (offset, length) = (read_u32(record, 8)? as usize, read_u32(record, 12)? as usize);
    data.get(offset..offset.checked_add(length)?)
}

fn read_u16(data: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*data.get(at..)?.first_chunk()?))
}

fn read_u32(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*data.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bundled_face_has_the_letters_of_europe_and_the_signs_of_captions() {
        let face = Typeface::bundled();
        let letters = ('!'..='~').chain('¡'..='ſ').chain('Ά'..='ώ').chain('Ѐ'..='џ').chain('א'..='ת');
        for character in letters.chain("αβγεθΘσ±−×·…→≤≥°–—≈√∑∂∞≠Δ".chars())
        {
            // Unicode left these numbers of the Greek block empty.
            assert!(face.covers(character) || "΋΍΢\u{ad}".contains(character), "{character}");
        }
        assert!(!face.covers('漢') && !face.covers('ह') && !face.covers('ق'));
    }

    #[test]
    fn letters_are_as_wide_as_those_of_helvetica() {
        // Adobe's metrics of Helvetica, in thousandths of an em.
        for (character, width) in [('A', 667), ('W', 944), ('i', 222), ('m', 833), ('0', 556), (' ', 278)] {
            let face = Typeface::bundled();
            let glyph = face.font().charmap().map_unicode(character).unwrap();
            let found = face.advance(glyph.to_u32() as u16) * 1000.0;
            assert!((found - f64::from(width)).abs() < 1.0, "{character}: {found} {width}");
        }
    }

    #[test]
    fn damaged_font_files_are_refused_or_read_without_harm() {
        for length in [0, 3, 4, 11, 12, 100, 1000, 50_000, 300_000] {
            if let Some(face) = Typeface::new(BUNDLED[..length].to_vec(), 0) {
                let mut sink = harfrust::font::glyph::outline::SvgSink::new();
                (0..200).for_each(|glyph| face.draw(glyph, &mut sink));
            }
        }
        assert!(Typeface::new(BUNDLED, 1).is_none(), "one face only");
        assert!(Typeface::new(b"ttcf\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff".to_vec(), 0).is_none());
        assert!(table(b"ttcf", u32::MAX, *b"OS/2").is_none());
    }

    #[test]
    fn a_face_that_may_not_be_embedded_is_refused() {
        let mut restricted = BUNDLED.to_vec();
        let at = table(BUNDLED, 0, *b"OS/2").unwrap().as_ptr() as usize - BUNDLED.as_ptr() as usize;
        restricted[at + 9] = 2;
        assert!(Typeface::new(restricted, 0).is_none());
    }
}
