//! Small networks and pictures to try things with. [Their README][files] says where each comes from.
//!
//! [files]: https://docs.rs/crate/monosplit/latest/source/assets/README.md

/// A classifier of 37 breeds of cats and dogs that reads pictures of 128×128 pixels, an ONNX file.
pub const PETS_SMALL: &[u8] = include_bytes!("../assets/pets-small.onnx");
/// A photograph of a cat, a PNG file.
pub const CHELSEA: &[u8] = include_bytes!("../assets/chelsea.png");
/// A classifier of handwritten digits that is a difference of two input-convex networks, an ONNX file.
pub const DIGITS: &[u8] = include_bytes!("../assets/digits.onnx");
/// Handwritten digits by the name of their file, PNG files.
pub const DIGIT_PICTURES: [(&str, &[u8]); 5] = [
    ("3.png", include_bytes!("../assets/digits/3.png")),
    ("4.png", include_bytes!("../assets/digits/4.png")),
    ("7.png", include_bytes!("../assets/digits/7.png")),
    ("8.png", include_bytes!("../assets/digits/8.png")),
    ("9.png", include_bytes!("../assets/digits/9.png")),
];
