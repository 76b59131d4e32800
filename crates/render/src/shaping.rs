//! Words become glyphs: which face each letter is taken from, in which order they stand, and where each glyph goes.
//!
//! Everything that measures or draws words does it through here, so that they take the same room in every format.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use harfrust::{Buffer, BufferFlags, Direction, Script, ShapeOptions, ShaperFont, unicode};
use unicode_bidi::{BidiInfo, Level};

use crate::system_fonts::SystemFonts;
use crate::typeface::Typeface;

/// Glyphs of one face, from left to right.
pub(crate) struct Run {
    pub(crate) face: Arc<Typeface>,
    pub(crate) glyphs: Vec<Glyph>,
}

/// A glyph and its place, in ems.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Glyph {
    pub(crate) id: u16,
    /// Where it is drawn relative to the pen, to the right and upwards.
    pub(crate) offset: (f64, f64),
    /// How far the pen moves.
    pub(crate) advance: f64,
    /// The bytes of the words that it shows, alone or with the glyphs beside it.
    pub(crate) letters: Range<usize>,
}

/// The glyphs of one line of `words`, from left to right.
pub(crate) fn shape(words: &str) -> Vec<Run> {
    // Labels are parts of figures that are read from left to right, whatever they begin with; so does SVG.
    let bidi = BidiInfo::new(words, Some(Level::ltr()));
    let mut runs = Vec::new();
    for paragraph in &bidi.paragraphs {
        let (levels, ranges) = bidi.visual_runs(paragraph, paragraph.range.clone());
        for range in ranges {
            let leftwards = levels[range.start].is_rtl();
            let mut segments = segments(words, range);
            if leftwards {
                segments.reverse();
            }
            runs.extend(segments.into_iter().map(|segment| shape_segment(words, segment, leftwards)));
        }
    }
    runs
}

/// The width of `words` in ems.
pub(crate) fn width(words: &str) -> f64 {
    shape(words).iter().flat_map(|run| &run.glyphs).map(|glyph| glyph.advance).sum()
}

/// Where `words` may be broken without tearing a letter apart, and the width up to there in ems, in the order they are read.
pub(crate) fn breaks(words: &str) -> Vec<(usize, f64)> {
    let runs = shape(words);
    let mut glyphs: Vec<&Glyph> = runs.iter().flat_map(|run| &run.glyphs).collect();
    glyphs.sort_by_key(|glyph| glyph.letters.start);
    let mut breaks: Vec<(usize, f64)> = Vec::new();
    let mut taken = 0.0;
    for glyph in glyphs {
        taken += glyph.advance;
        match breaks.last_mut() {
            Some(last) if last.0 == glyph.letters.end => last.1 = taken,
            _ => breaks.push((glyph.letters.end, taken)),
        }
    }
    breaks
}

/// Letters of one face and one script.
struct Segment {
    range: Range<usize>,
    face: Arc<Typeface>,
    script: Script,
}

/// A letter with the marks on it.
struct Letter {
    range: Range<usize>,
    script: Script,
}

fn segments(words: &str, range: Range<usize>) -> Vec<Segment> {
    let mut segments: Vec<Segment> = Vec::new();
    let bundled = Typeface::bundled();
    let has =
        |face: &Typeface, letter: &Letter| words[letter.range.clone()].chars().all(|c| is_shown_by(face, c));
    let letters = letters(words, range);
    for kind in letters.chunk_by(|a, b| a.script == b.script && has(bundled, a) == has(bundled, b)) {
        let script = kind[0].script;
        let mut push = |range: Range<usize>, face: &Arc<Typeface>| match segments.last_mut() {
            Some(last) if Arc::ptr_eq(&last.face, face) && last.script == script => {
                last.range.end = range.end
            }
            _ => segments.push(Segment { range, face: face.clone(), script }),
        };
        let whole = kind[0].range.start..kind[kind.len() - 1].range.end;
        if has(bundled, &kind[0]) {
            push(whole, bundled);
        } else if let Some(face) = SystemFonts::find(&needed(&words[whole.clone()])) {
            push(whole, &face);
        } else {
            for letter in kind {
                let needed = needed(&words[letter.range.clone()]);
                let face = SystemFonts::find(&needed);
                push(letter.range.clone(), face.as_ref().unwrap_or(bundled));
            }
        }
    }
    segments
}

/// The characters of `words` that neither the bundled face nor one of the machine has.
pub(crate) fn missing(words: &str) -> BTreeSet<char> {
    let bundled = Typeface::bundled();
    let mut missing = BTreeSet::new();
    for letter in letters(words, 0..words.len()) {
        let letter = &words[letter.range];
        let shown = letter.chars().all(|c| is_shown_by(bundled, c));
        if !shown && SystemFonts::find(&needed(letter)).is_none() {
            missing.extend(letter.chars().filter(|c| !is_shown_by(bundled, *c)));
        }
    }
    missing
}

/// The letters of a part of `words`. Marks belong to the letter before them; signs that all scripts share, to the script before.
fn letters(words: &str, range: Range<usize>) -> Vec<Letter> {
    let mut letters: Vec<Letter> = Vec::new();
    for (at, character) in words[range.clone()].char_indices() {
        let (start, end) = (range.start + at, range.start + at + character.len_utf8());
        let script = unicode::script(character.into());
        match letters.last_mut() {
            Some(last) if script == Script::INHERITED || unicode::combining_class(character.into()) != 0 => {
                last.range.end = end;
            }
            Some(last) if script == Script::COMMON => {
                let script = last.script;
                letters.push(Letter { range: start..end, script });
            }
            _ => letters.push(Letter { range: start..end, script }),
        }
    }
    letters
}

/// Whether nothing is missing when `face` draws `character`: it has a glyph, or there is nothing to draw.
fn is_shown_by(face: &Typeface, character: char) -> bool {
    character.is_whitespace() || is_joiner(character) || face.covers(character)
}

/// Characters that change how their neighbours are drawn and are not drawn themselves: joiners, isolates, variation selectors.
fn is_joiner(character: char) -> bool {
    matches!(character, '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{2066}'..='\u{2069}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}')
}

/// The characters of `words` that a face has to have, each once.
fn needed(words: &str) -> String {
    let seen: BTreeSet<char> = words.chars().filter(|c| !c.is_whitespace() && !is_joiner(*c)).collect();
    seen.into_iter().collect()
}

fn shape_segment(words: &str, segment: Segment, leftwards: bool) -> Run {
    let Segment { range, face, script } = segment;
    let mut buffer = Buffer::new();
    buffer.push_str(&words[range.clone()]);
    buffer.set_direction(if leftwards { Direction::RightToLeft } else { Direction::LeftToRight });
    buffer.set_script(Some(script));
    buffer.set_flags(BufferFlags::REMOVE_DEFAULT_IGNORABLES);
    // The direction is set and there is no plan to disagree with: shaping cannot fail.
    let shaped = harfrust::shape(&ShaperFont::new(face.font()), &mut buffer, ShapeOptions::new());
    let unit = face.unit();
    let mut glyphs = Vec::new();
    if shaped.is_ok() {
        let mut starts: Vec<usize> = buffer.glyph_infos().iter().map(|info| info.cluster as usize).collect();
        starts.sort_unstable();
        starts.dedup();
        for (info, place) in buffer.glyph_infos().iter().zip(buffer.glyph_positions()) {
            let start = info.cluster as usize;
            let next = starts.partition_point(|other| *other <= start);
            let end = starts.get(next).copied().unwrap_or(range.len());
            glyphs.push(Glyph {
                id: u16::try_from(info.glyph_id).unwrap_or(0),
                offset: (f64::from(place.x_offset) * unit, f64::from(place.y_offset) * unit),
                advance: f64::from(place.x_advance) * unit,
                letters: range.start + start..range.start + end,
            });
        }
    }
    Run { face, glyphs }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Glyph, first byte, advance and offsets in font units.
    fn in_units(run: &Run) -> Vec<[i64; 5]> {
        let units = |ems: f64| (ems / run.face.unit()).round() as i64;
        let glyph = |glyph: &Glyph| {
            let (x, y) = glyph.offset;
            [i64::from(glyph.id), glyph.letters.start as i64, units(glyph.advance), units(x), units(y)]
        };
        run.glyphs.iter().map(glyph).collect()
    }

    #[test]
    fn glyphs_and_their_places_are_those_of_harfbuzz() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/fonts");
        for line in include_str!("../tests/fixtures/fonts/harfbuzz.tsv").lines() {
            let [file, direction, script, words, glyphs] = line.split('\t').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            let face = match file {
                "bundled" => Typeface::bundled().clone(),
                file => Arc::new(Typeface::open(&folder.join(file), 0).unwrap()),
            };
            let script = Script::from_iso15924_tag(harfrust::Tag::from_be_bytes(
                script.as_bytes().try_into().unwrap(),
            ));
            let segment = Segment { range: 0..words.len(), face, script: script.unwrap() };
            let found = in_units(&shape_segment(words, segment, direction == "rtl"));
            let expected: Vec<[i64; 5]> = glyphs
                .split(';')
                .map(|glyph| {
                    let numbers: Vec<i64> = glyph.split(',').map(|number| number.parse().unwrap()).collect();
                    numbers.try_into().unwrap()
                })
                .collect();
            assert_eq!(found, expected, "{words}");
        }
    }

    #[test]
    fn names_from_right_to_left_keep_their_place_in_a_label() {
        for name in ["חתול", "קט קט"] {
            let words = crate::text::isolated(&format!("cat.png · {name} 87%"));
            let runs = shape(&words);
            let shown = |glyph: &Glyph| words[glyph.letters.clone()].replace(crate::text::ISOLATES, "");
            let order: String = runs.iter().flat_map(|run| &run.glyphs).map(shown).collect();
            let reversed: String = name.chars().rev().collect();
            assert_eq!(order, format!("cat.png · {reversed} 87%"));
        }
    }

    #[test]
    fn marks_stay_on_their_letter_where_lines_are_broken() {
        let ends: Vec<usize> = breaks("xe\u{301}q\u{323}y").iter().map(|(end, _)| *end).collect();
        assert_eq!(ends, [1, 4, 7, 8]);
        let (last, whole) = (breaks("Wagen").pop().unwrap().1, width("Wagen"));
        assert!((last - whole).abs() < 1e-9);
    }

    #[test]
    fn every_byte_of_any_words_is_shown_by_some_glyph() {
        for words in ["", "a\u{a0}b", "漢字 mixed ملف α", "\u{301}", "👩‍👩‍👧 x", "\u{fffd}\u{fffd}"]
        {
            let mut parts: Vec<Range<usize>> =
                shape(words).into_iter().flat_map(|run| run.glyphs).map(|glyph| glyph.letters).collect();
            parts.sort_by_key(|part| part.start);
            parts.dedup();
            assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start), "{words:?} {parts:?}");
            assert_eq!(parts.first().map_or(0, |part| part.start), 0);
            assert_eq!(parts.last().map_or(0, |part| part.end), words.len(), "{words:?}");
        }
    }
}
