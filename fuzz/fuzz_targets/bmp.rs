//! The reader of BMP files.

#![no_main]

use monosplit_image::{Picture, PictureFormat};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if PictureFormat::of(bytes) == Some(PictureFormat::Bmp) {
        let _ = Picture::decode(bytes);
    }
});
