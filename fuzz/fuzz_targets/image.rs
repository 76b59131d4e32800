//! The readers of pictures, whatever the format: JPEG, PNG and orientations in all of them.

#![no_main]

use monosplit_image::Picture;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = Picture::decode(bytes);
});
