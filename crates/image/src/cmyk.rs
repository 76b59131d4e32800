//! Printing inks, by Pillow's formula.

/// The colour of four inks, of which 255 covers the paper.
pub(crate) fn to_rgb(inks: [u8; 3], black: u8) -> [u8; 3] {
    let light = 255 - u32::from(black);
    inks.map(|ink| {
        let product = u32::from(ink) * light + 128;
        light.saturating_sub((product + (product >> 8)) >> 8) as u8
    })
}
