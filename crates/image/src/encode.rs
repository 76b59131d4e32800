//! PNG files out.

use std::path::Path;

use monosplit_graph::{Error, ErrorKind, Result, element_count, write_atomically};
use png::{BitDepth, ColorType, Encoder, EncodingError};

use crate::picture::Picture;

/// Pixels to be written, row by row, one byte a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pixels<'a> {
    /// Shades of grey, one byte a pixel.
    Grey(&'a [u8]),
    /// Red, green, blue.
    Rgb(&'a [u8]),
    /// Red, green, blue, opacity; the colours are not multiplied by the opacity.
    Rgba(&'a [u8]),
}

impl<'a> From<&'a Picture> for Pixels<'a> {
    fn from(picture: &'a Picture) -> Self {
        Pixels::Rgb(picture.rgb())
    }
}

/// The bytes of a PNG file of `width * height` pixels.
pub fn encode_png(width: usize, height: usize, pixels: Pixels<'_>) -> Result<Vec<u8>> {
    let (color, samples, bytes) = match pixels {
        Pixels::Grey(bytes) => (ColorType::Grayscale, 1, bytes),
        Pixels::Rgb(bytes) => (ColorType::Rgb, 3, bytes),
        Pixels::Rgba(bytes) => (ColorType::Rgba, 4, bytes),
    };
    let size = (u32::try_from(width).ok(), u32::try_from(height).ok());
    let (Some(columns @ 1..), Some(rows @ 1..)) = size else {
        return Err(Error::argument(format!("a PNG cannot have {width}×{height} pixels")));
    };
    if element_count(&[width, height, samples]) != Some(bytes.len()) {
        return Err(Error::argument(format!(
            "a PNG of {width}×{height} pixels with {samples} bytes each cannot be made of {} bytes",
            bytes.len()
        )));
    }
    let failure = |cause: EncodingError| {
        Error::new(ErrorKind::Io, format!("the PNG could not be encoded: {cause}")).caused_by(cause)
    };
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, columns, rows);
    encoder.set_color(color);
    encoder.set_depth(BitDepth::Eight);
    let mut writer = encoder.write_header().map_err(failure)?;
    writer.write_image_data(bytes).map_err(failure)?;
    writer.finish().map_err(failure)?;
    Ok(file)
}

/// Writes a PNG file of `width * height` pixels to `path`, whole or not at all.
pub fn write_png(path: impl AsRef<Path>, width: usize, height: usize, pixels: Pixels<'_>) -> Result<()> {
    write_atomically(path, &encode_png(width, height, pixels)?)
}

impl Picture {
    /// Writes the picture as a PNG file to `path`, whole or not at all.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        write_png(path, self.width(), self.height(), self.into())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_encoded_is_decoded_again() {
        let bytes: Vec<u8> = (0..60).map(|v| v * 4).collect();
        let rgb = encode_png(5, 4, Pixels::Rgb(&bytes)).unwrap();
        assert_eq!(Picture::decode(&rgb).unwrap().rgb(), bytes);
        let grey = encode_png(12, 5, Pixels::Grey(&bytes)).unwrap();
        let tripled: Vec<u8> = bytes.iter().flat_map(|&v| [v; 3]).collect();
        assert_eq!(Picture::decode(&grey).unwrap().rgb(), tripled);
        let rgba = encode_png(5, 3, Pixels::Rgba(&bytes)).unwrap();
        let opaque: Vec<u8> = bytes.chunks(4).flat_map(|p| p[..3].to_vec()).collect();
        assert_eq!(Picture::decode(&rgba).unwrap().rgb(), opaque);
    }

    #[test]
    fn pixels_that_do_not_fit_are_refused() {
        assert!(encode_png(2, 2, Pixels::Rgb(&[0; 11])).is_err());
        assert!(encode_png(0, 2, Pixels::Grey(&[])).is_err());
        assert!(encode_png(usize::MAX, 2, Pixels::Grey(&[0; 4])).is_err());
    }

    #[test]
    fn a_file_is_replaced_whole_and_nothing_else_is_left() {
        let folder = std::env::temp_dir().join(format!("monosplit-replace-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("map.png");
        write_atomically(&path, b"before").unwrap();
        write_png(&path, 1, 1, Pixels::Grey(&[7])).unwrap();
        assert_eq!(Picture::open(&path).unwrap().rgb(), [7, 7, 7]);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(folder).unwrap();
    }
}
