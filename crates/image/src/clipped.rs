//! Numbers of more than 8 bits, clipped to a byte as Pillow's `convert("RGB")` clips them.

use std::sync::Once;

/// A 16-bit shade. Pillow clips it, which leaves little but white of a picture that uses the whole range; that is worth a
/// warning, but one is enough.
pub(crate) fn clip_16_bits(value: u16) -> u8 {
    static WARNED: Once = Once::new();
    if value > 255 {
        WARNED.call_once(|| {
            log::warn!(
                "a grey picture has values above 255, which become white, as in Pillow's convert(\"RGB\"); \
                 scale 16-bit pictures to 8 bits first"
            );
        });
    }
    value.min(255) as u8
}
