//! Numbers of more than 8 bits, clipped to a byte as Pillow's `convert("RGB")` clips them. That leaves little but white of a
//! picture that uses the whole range, so that it is remembered for a warning.

use std::cell::Cell;

/// Clips the shades of one picture, and knows whether one of them was too large.
#[derive(Default)]
pub(crate) struct Clipper {
    any: Cell<bool>,
}

impl Clipper {
    /// A 16-bit shade as a byte.
    pub(crate) fn clip(&self, value: u16) -> u8 {
        if value > 255 {
            self.any.set(true);
        }
        value.min(255) as u8
    }

    /// Whether a shade was above 255.
    pub(crate) fn any(&self) -> bool {
        self.any.get()
    }
}
