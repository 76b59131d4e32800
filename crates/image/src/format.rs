//! Which picture formats are read, told from the first bytes of a file; and which names of files promise one of
//! them, for those who look through folders.

use std::path::Path;

/// A picture format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PictureFormat {
    /// JPEG: 8 bits, Huffman-coded.
    Jpeg,
    /// PNG; of an animation, its still picture.
    Png,
    /// WebP, lossy or lossless; of an animation, the first frame.
    WebP,
    /// GIF; of an animation, the first frame.
    Gif,
    /// Windows and OS/2 bitmaps.
    Bmp,
    /// TIFF and BigTIFF; of several pages, the first.
    Tiff,
    /// Netpbm's bitmaps (PBM), grey maps (PGM) and pixel maps (PPM), plain and raw.
    Pnm,
}

impl PictureFormat {
    /// All formats.
    pub const ALL: [PictureFormat; 7] = [
        PictureFormat::Jpeg,
        PictureFormat::Png,
        PictureFormat::WebP,
        PictureFormat::Gif,
        PictureFormat::Bmp,
        PictureFormat::Tiff,
        PictureFormat::Pnm,
    ];

    /// All formats in words, as part of a sentence.
    pub const NAMES: &'static str = "JPEG, PNG, WebP, GIF, BMP, TIFF or PPM";

    /// The format of a file that begins with `bytes`.
    pub fn of(bytes: &[u8]) -> Option<PictureFormat> {
        Some(match bytes {
            [0xff, 0xd8, 0xff, ..] => PictureFormat::Jpeg,
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => PictureFormat::Png,
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => PictureFormat::WebP,
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => PictureFormat::Gif,
            [b'B', b'M', ..] => PictureFormat::Bmp,
            [b'I', b'I', 42 | 43, 0, ..] | [b'M', b'M', 0, 42 | 43, ..] => PictureFormat::Tiff,
            [b'P', b'1'..=b'6', space, ..] if space.is_ascii_whitespace() => PictureFormat::Pnm,
            _ => return None,
        })
    }

    /// The usual endings of its files, in lower case.
    pub fn endings(self) -> &'static [&'static str] {
        match self {
            PictureFormat::Jpeg => &["jpg", "jpeg", "jpe", "jfif"],
            PictureFormat::Png => &["png", "apng"],
            PictureFormat::WebP => &["webp"],
            PictureFormat::Gif => &["gif"],
            PictureFormat::Bmp => &["bmp"],
            PictureFormat::Tiff => &["tif", "tiff"],
            PictureFormat::Pnm => &["ppm", "pgm", "pbm", "pnm"],
        }
    }
}

/// Whether a file of this name is taken for a picture where a folder is looked through: it ends as one of the
/// [formats](PictureFormat::endings) does, in upper or lower case, and is not hidden.
pub fn is_picture_name(path: &Path) -> bool {
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase());
    let is_known = |ending: String| PictureFormat::ALL.iter().any(|f| f.endings().contains(&&*ending));
    !is_hidden(path) && ending.is_some_and(is_known)
}

/// Whether a file or folder is hidden: its name begins with a dot, as that of the companions that macOS leaves
/// beside pictures (`._cat.jpg`).
pub fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_promise_pictures_by_their_endings() {
        for name in ["a.jpg", "b.JPE", "c/d.webp", "e.f.TIFF", "g.pgm"] {
            assert!(is_picture_name(Path::new(name)), "{name}");
        }
        for name in [".jpg", "._cat.jpg", "c/.hidden.png", "notes.txt", "png", "a.npy", "a.svg"] {
            assert!(!is_picture_name(Path::new(name)), "{name}");
        }
    }

    #[test]
    fn every_format_has_an_ending_and_a_name_of_its_own() {
        let endings: Vec<&str> =
            PictureFormat::ALL.iter().flat_map(|format| format.endings()).copied().collect();
        let distinct: std::collections::BTreeSet<&str> = endings.iter().copied().collect();
        assert_eq!(endings.len(), distinct.len());
        assert_eq!(
            PictureFormat::NAMES.split([',', ' ']).filter(|word| word.len() > 2).count(),
            PictureFormat::ALL.len()
        );
    }
}
