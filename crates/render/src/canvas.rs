//! A page to draw on: rectangles, pictures and words. What falls outside the page is left out.

use monosplit_graph::{Error, Result, element_count};
use monosplit_image::{MAX_BYTES, MAX_SIDE, Picture};

use crate::colour::Rgb;
use crate::font::{self, Glyph};
use crate::scene::{INK, PAPER};

pub(crate) struct Canvas {
    width: usize,
    height: usize,
    rgb: Vec<u8>,
}

impl Canvas {
    /// White paper.
    pub(crate) fn new(width: usize, height: usize) -> Result<Self> {
        match element_count(&[width, height, 3]) {
            Some(bytes) if bytes > 0 && width.max(height) <= MAX_SIDE && bytes <= MAX_BYTES => {
                Ok(Canvas { width, height, rgb: vec![PAPER[0]; bytes] })
            }
            _ => Err(Error::argument(format!(
                "a figure of {width}×{height} pixels is empty or beyond the limits of {MAX_SIDE} pixels a side and \
                 {} MiB; draw fewer or smaller pictures",
                MAX_BYTES >> 20
            ))),
        }
    }

    pub(crate) fn width(&self) -> usize {
        self.width
    }

    pub(crate) fn height(&self) -> usize {
        self.height
    }

    /// Lays `colour` over the pixel at `x`, `y`, hiding this `share` of it.
    pub(crate) fn mix(&mut self, x: usize, y: usize, colour: Rgb, share: f64) {
        if x < self.width && y < self.height {
            for (under, over) in self.rgb[(y * self.width + x) * 3..][..3].iter_mut().zip(colour) {
                *under = (f64::from(*under) * (1.0 - share) + f64::from(over) * share).round() as u8;
            }
        }
    }

    fn fill(&mut self, left: usize, top: usize, width: usize, height: usize, colour: Rgb) {
        let right = left.saturating_add(width).min(self.width);
        for y in top..top.saturating_add(height).min(self.height) {
            for x in left..right {
                self.rgb[(y * self.width + x) * 3..][..3].copy_from_slice(&colour);
            }
        }
    }

    /// Draws `picture` with each pixel as a square of `factor` pixels.
    pub(crate) fn draw(&mut self, left: usize, top: usize, picture: &Picture, factor: usize) {
        for (i, pixel) in picture.rgb().chunks_exact(3).enumerate() {
            let (x, y) = (i % picture.width(), i / picture.width());
            let (left, top) = (left.saturating_add(x * factor), top.saturating_add(y * factor));
            self.fill(left, top, factor, factor, [pixel[0], pixel[1], pixel[2]]);
        }
    }

    /// Writes one line of `text` with its upper left corner at `left`, `top`, `size` pixels a dot.
    pub(crate) fn write(&mut self, left: usize, top: usize, text: &str, size: usize) {
        if left >= self.width || top >= self.height {
            return;
        }
        let mut x = left;
        for character in text.chars() {
            let glyph = font::glyph(character);
            for row in 0..font::ROWS {
                for column in 0..glyph.width {
                    self.dot(x + column * size, top + row * size, &glyph, (column, row), size);
                }
            }
            x += font::advance(character, size);
        }
    }

    /// One dot of a letter: a square of ink, or the corners of an empty square that smooth a slanted stroke.
    fn dot(&mut self, left: usize, top: usize, glyph: &Glyph, (column, row): (usize, usize), size: usize) {
        if glyph.has(column, row) {
            return self.fill(left, top, size, size, INK);
        }
        let leg = size / 2;
        for (right, below) in [(false, false), (false, true), (true, false), (true, true)] {
            let beside = if right { column + 1 } else { column.wrapping_sub(1) };
            let over = if below { row + 1 } else { row.wrapping_sub(1) };
            if glyph.has(beside, row) && glyph.has(column, over) && !glyph.has(beside, over) {
                for step in 0..leg {
                    let y = if below { size - 1 - step } else { step };
                    let x = if right { size - (leg - step) } else { 0 };
                    self.fill(left + x, top + y, leg - step, 1, INK);
                }
            }
        }
    }

    pub(crate) fn into_picture(self) -> Result<Picture> {
        Picture::new(self.width, self.height, self.rgb)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_falls_outside_is_left_out() {
        let mut canvas = Canvas::new(4, 3).unwrap();
        canvas.fill(3, 2, 10, usize::MAX, INK);
        canvas.fill(9, 9, 1, 1, INK);
        canvas.write(3, 0, "words", 1);
        let picture = canvas.into_picture().unwrap();
        assert_eq!(picture.rgb()[33..], INK);
    }

    #[test]
    fn pages_beyond_reason_are_refused() {
        assert!(Canvas::new(usize::MAX, 2).is_err());
        assert!(Canvas::new(0, 2).is_err());
        assert!(Canvas::new(MAX_SIDE, MAX_SIDE).is_err());
    }

    #[test]
    fn a_letter_is_drawn_dot_by_dot() {
        let mut canvas = Canvas::new(10, 18).unwrap();
        canvas.write(0, 0, "T", 2);
        let picture = canvas.into_picture().unwrap();
        let inked = picture.rgb().chunks(3).filter(|pixel| *pixel == INK).count();
        assert_eq!(inked, 4 * (5 + 6));
    }
}
