//! What a PDF reader has without being given it: which characters its Helvetica and Symbol fonts hold, under
//! which byte, and how wide they are (Adobe's font metrics for the fourteen standard fonts).

/// Height of a capital letter, in ems.
pub(crate) const CAP_HEIGHT: f64 = 0.718;

/// One of the two standard fonts that words are set in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Face {
    /// Helvetica in Windows' Latin encoding.
    Helvetica,
    /// Symbol in its own encoding: Greek letters and mathematical signs.
    Symbol,
}

/// A character as a PDF writes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Code {
    pub(crate) face: Face,
    pub(crate) byte: u8,
    /// Distance to the next character, in ems.
    pub(crate) advance: f64,
}

/// The code of `character`, if either font has it.
pub(crate) fn code(character: char) -> Option<Code> {
    if let Some(&(_, byte, width)) = SYMBOLS.iter().find(|(symbol, ..)| *symbol == character) {
        return Some(Code { face: Face::Symbol, byte, advance: f64::from(width) / 1000.0 });
    }
    let byte = latin(character)?;
    let width = WIDTHS.get(usize::from(byte).checked_sub(32)?).copied().filter(|&width| width > 0)?;
    Some(Code { face: Face::Helvetica, byte, advance: f64::from(width) / 1000.0 })
}

fn latin(character: char) -> Option<u8> {
    match character {
        ' '..='~' | '\u{a0}'..='\u{ff}' => u8::try_from(character as u32).ok(),
        _ => BEYOND_LATIN_1
            .iter()
            .position(|&other| other == character)
            .and_then(|place| u8::try_from(128 + place).ok()),
    }
}

/// The bytes 128 to 159 of Windows' Latin encoding; NUL where there is no character.
const BEYOND_LATIN_1: [char; 32] = [
    '€', '\0', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\0', 'Ž', '\0', '\0', '‘', '’', '“',
    '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\0', 'ž', 'Ÿ',
];

/// Widths of Helvetica's characters from 32 on, in thousandths of an em; 0 where there is none.
#[rustfmt::skip]
const WIDTHS: [u16; 224] = [
    278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278,
    556, 556, 556, 556, 556, 556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556,
    1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833, 722, 778,
    667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556,
    333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556,
    556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584, 0,
    556, 0, 222, 556, 333, 1000, 556, 556, 333, 1000, 667, 333, 1000, 0, 611, 0,
    0, 222, 222, 333, 333, 350, 556, 1000, 333, 1000, 500, 333, 944, 0, 500, 667,
    278, 333, 556, 556, 556, 556, 260, 556, 333, 737, 370, 556, 584, 333, 737, 333,
    400, 584, 333, 333, 333, 556, 537, 278, 333, 333, 365, 556, 834, 834, 834, 611,
    667, 667, 667, 667, 667, 667, 1000, 722, 667, 667, 667, 667, 278, 278, 278, 278,
    722, 722, 778, 778, 778, 778, 778, 584, 778, 722, 722, 722, 722, 667, 667, 611,
    556, 556, 556, 556, 556, 556, 889, 500, 556, 556, 556, 556, 278, 278, 278, 278,
    556, 556, 556, 556, 556, 556, 556, 584, 611, 556, 556, 556, 556, 500, 556, 500,
];

/// Characters of the Symbol font that Helvetica lacks: the character, its byte and its width.
#[rustfmt::skip]
const SYMBOLS: [(char, u8, u16); 47] = [
    ('α', 0x61, 631), ('β', 0x62, 549), ('γ', 0x67, 411), ('δ', 0x64, 494), ('ε', 0x65, 439),
    ('ζ', 0x7A, 494), ('η', 0x68, 603), ('θ', 0x71, 521), ('ι', 0x69, 329), ('κ', 0x6B, 549),
    ('λ', 0x6C, 549), ('μ', 0x6D, 576), ('ν', 0x6E, 521), ('ξ', 0x78, 493), ('π', 0x70, 549),
    ('ρ', 0x72, 549), ('σ', 0x73, 603), ('τ', 0x74, 439), ('υ', 0x75, 576), ('φ', 0x66, 521),
    ('χ', 0x63, 549), ('ψ', 0x79, 686), ('ω', 0x77, 686), ('Γ', 0x47, 603), ('Δ', 0x44, 612),
    ('Θ', 0x51, 741), ('Λ', 0x4C, 686), ('Ξ', 0x58, 645), ('Π', 0x50, 768), ('Σ', 0x53, 592),
    ('Φ', 0x46, 763), ('Ψ', 0x59, 795), ('Ω', 0x57, 768), ('−', 0x2D, 549), ('≤', 0xA3, 549),
    ('≥', 0xB3, 549), ('≠', 0xB9, 549), ('≈', 0xBB, 549), ('→', 0xAE, 987), ('←', 0xAC, 987),
    ('∞', 0xA5, 713), ('∂', 0xB6, 494), ('∇', 0xD1, 713), ('√', 0xD6, 549), ('∈', 0xCE, 713),
    ('∑', 0xE5, 713), ('∏', 0xD5, 823),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sign_of_the_bitmap_font_has_a_place_in_a_standard_font() {
        for character in (' '..='~').chain("αβγεθΘσ±−×·…→≤≥°–—".chars()) {
            assert!(code(character).is_some(), "{character}");
        }
        for absent in ['漢', '\0', '\u{7f}', '\u{81}', '\u{9d}', '😀'] {
            assert!(code(absent).is_none(), "{absent:?}");
        }
    }

    #[test]
    fn the_windows_encoding_is_that_of_its_definition() {
        // unicode.org, Mappings/VENDORS/MICSFT/WINDOWS/CP1252.TXT
        for (character, byte) in
            [('€', 0x80), ('…', 0x85), ('Š', 0x8A), ('•', 0x95), ('™', 0x99), ('Ÿ', 0x9F), ('é', 0xE9)]
        {
            assert_eq!(code(character).map(|code| (code.face, code.byte)), Some((Face::Helvetica, byte)));
        }
    }
}
