//! The readers of pictures, JPEG and PNG.

#![no_main]

use monosplit_image::Picture;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = Picture::decode(bytes);
});
