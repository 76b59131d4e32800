//! A bounded run of the fuzz targets of the picture readers, the same on every machine: thousands of damaged
//! files, from none of which they may fail to come back.

#[path = "../../graph/tests/fuzzing/mod.rs"]
mod fuzzing;

use fuzzing::FuzzTest;
use monosplit_image::Picture;

/// What a reader of compressed pictures may take whatever the size of the file: a picture of the size that needs no
/// proof, decoded and converted.
const PICTURE_MEMORY: usize = 256 << 20;

fn survives(name: &'static str, memory: usize) {
    let test = FuzzTest { name, iterations: 20_000, memory, memory_per_byte: 1 << 16 };
    test.run(|bytes| Picture::decode(bytes).is_ok());
}

#[test]
fn slow_hostile_pictures_are_survived() {
    let test = FuzzTest { name: "image", iterations: 100_000, memory: 64 << 20, memory_per_byte: 1 << 16 };
    test.run(|bytes| Picture::decode(bytes).is_ok());
}

#[test]
fn slow_hostile_webps_are_survived() {
    survives("webp", PICTURE_MEMORY);
}

#[test]
fn slow_hostile_gifs_are_survived() {
    survives("gif", PICTURE_MEMORY);
}

#[test]
fn slow_hostile_bmps_are_survived() {
    survives("bmp", PICTURE_MEMORY);
}

#[test]
fn slow_hostile_tiffs_are_survived() {
    survives("tiff", PICTURE_MEMORY);
}

#[test]
fn slow_hostile_netpbm_files_are_survived() {
    survives("pnm", PICTURE_MEMORY);
}

/// EXIF blocks are read by the readers of all formats that have them.
#[test]
fn slow_hostile_orientations_are_survived() {
    survives("orientation", PICTURE_MEMORY);
}
