//! The reader of TIFF files.

#![no_main]

use monosplit_image::{Picture, PictureFormat};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if PictureFormat::of(bytes) == Some(PictureFormat::Tiff) {
        let _ = Picture::decode(bytes);
    }
});
