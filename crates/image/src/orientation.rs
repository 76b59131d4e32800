//! The eight ways a camera may have been held, and how a picture taken so is turned upright: what Pillow's
//! `ImageOps.exif_transpose` does.

use crate::ifd::Directory;
use crate::picture::Picture;

/// The tag of the orientation, in TIFF files and in EXIF.
const ORIENTATION: u16 = 274;

/// Bytes of the EXIF standard before the block itself, which some files leave out.
const EXIF_PREFIX: &[u8] = b"Exif\0\0";

/// An EXIF orientation from 1 to 8: where the first row and the first column of the stored pixels belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Orientation(u8);

impl Default for Orientation {
    fn default() -> Self {
        Orientation(1)
    }
}

impl Orientation {
    fn new(value: u64) -> Option<Self> {
        (1..=8).contains(&value).then_some(Orientation(value as u8))
    }

    /// What an EXIF block says. A block that cannot be read says nothing, like one without the tag.
    pub(crate) fn of_exif(mut block: &[u8]) -> Option<Self> {
        while let Some(rest) = block.strip_prefix(EXIF_PREFIX) {
            block = rest;
        }
        Orientation::of_directory(&Directory::first(block).ok()?)
    }

    /// What the tags of a TIFF file say.
    pub(crate) fn of_directory(directory: &Directory<'_>) -> Option<Self> {
        match directory.unsigned(ORIENTATION, 2).ok()??[..] {
            [value] => Orientation::new(value),
            _ => None,
        }
    }

    /// What a packet of XMP says, to which Pillow turns where EXIF is silent.
    pub(crate) fn of_xmp(packet: &[u8]) -> Option<Self> {
        const NAME: &[u8] = b"tiff:Orientation";
        let after = |start: usize| &packet[start + NAME.len()..];
        let starts = packet.windows(NAME.len()).enumerate().filter(|(_, window)| *window == NAME);
        starts
            .map(|(start, _)| after(start))
            .find_map(|rest| match *rest {
                [b'=', b'"', digit @ b'0'..=b'9', ..] | [b'>', digit @ b'0'..=b'9', ..] => Some(digit - b'0'),
                _ => None,
            })
            .and_then(|value| Orientation::new(value.into()))
    }

    /// The picture turned upright.
    pub(crate) fn upright(self, picture: Picture) -> Picture {
        if self.0 == 1 {
            return picture;
        }
        let (width, height) = (picture.width(), picture.height());
        let sideways = self.0 >= 5;
        let (new_width, new_height) = if sideways { (height, width) } else { (width, height) };
        let (last_x, last_y) = (width - 1, height - 1);
        let from = |x: usize, y: usize| match self.0 {
            2 => (last_x - x, y),
            3 => (last_x - x, last_y - y),
            4 => (x, last_y - y),
            5 => (y, x),
            6 => (y, last_y - x),
            7 => (last_x - y, last_y - x),
            8 => (last_x - y, x),
            _ => (x, y),
        };
        let mut rgb = Vec::with_capacity(picture.rgb().len());
        for y in 0..new_height {
            for x in 0..new_width {
                let (x, y) = from(x, y);
                rgb.extend_from_slice(&picture.rgb()[(y * width + x) * 3..][..3]);
            }
        }
        picture.replaced(new_width, new_height, rgb)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upright(value: u64, width: usize, shades: &[u8]) -> (usize, Vec<u8>) {
        let rgb = shades.iter().flat_map(|&v| [v; 3]).collect();
        let picture = Picture::new(width, shades.len() / width, rgb).unwrap();
        let turned = Orientation::new(value).unwrap().upright(picture);
        (turned.width(), turned.rgb().iter().step_by(3).copied().collect())
    }

    #[test]
    fn a_camera_held_on_its_side() {
        assert_eq!(upright(6, 3, &[1, 2, 3, 4, 5, 6]), (2, vec![4, 1, 5, 2, 6, 3]));
        assert_eq!(upright(8, 3, &[1, 2, 3, 4, 5, 6]), (2, vec![3, 6, 2, 5, 1, 4]));
    }

    #[test]
    fn each_turn_is_undone_by_another() {
        let shades = [1, 2, 3, 4, 5, 6];
        for (value, inverse) in [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 8), (7, 7), (8, 6)] {
            let (width, turned) = upright(value, 3, &shades);
            assert_eq!(upright(inverse, width, &turned), (3, shades.to_vec()));
        }
    }

    #[test]
    fn xmp_says_it_as_an_attribute_or_an_element() {
        let of = |text: &str| Orientation::of_xmp(text.as_bytes());
        assert_eq!(of(r#"<rdf tiff:Orientation="6"/>"#), Some(Orientation(6)));
        assert_eq!(of("<tiff:Orientation>3</tiff:Orientation>"), Some(Orientation(3)));
        assert_eq!(of(r#"tiff:Orientation="9""#), None);
        assert_eq!(of("tiff:Orientation"), None);
    }

    #[test]
    fn a_damaged_block_says_nothing() {
        for block in
            [&b""[..], b"Exif\0\0", b"Exif\0\0II*\0\xff\xff\xff\xff", b"MM\0*\0\0\0\x08\0\x01\x01\x12"]
        {
            assert_eq!(Orientation::of_exif(block), None);
        }
    }
}
