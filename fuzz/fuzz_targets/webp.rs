//! The reader of WebP files.

#![no_main]

use monosplit_image::{Picture, PictureFormat};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if PictureFormat::of(bytes) == Some(PictureFormat::WebP) {
        let _ = Picture::decode(bytes);
    }
});
