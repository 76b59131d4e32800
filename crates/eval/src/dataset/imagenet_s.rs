//! ImageNet-S as it is distributed: images in folders by WordNet id, masks whose colours are class numbers.
//!
//! A pixel of a mask holds `R + 256·G`: 0 is background, 1000 is ignored and counts as background, and any other number is
//! the index, counted from 1, of a class among the WordNet ids in alphabetical order.

use std::path::Path;

use monosplit_graph::{Error, Result};
use monosplit_image::Picture;

use super::{Entry, Mask, Pixels, file_name, pictures};
use crate::path_suggestion::suggest_path;

/// The WordNet ids of ImageNet's thousand classes in the usual order.
const SYNSETS: &str = include_str!("../../assets/imagenet-synsets.txt");

pub(super) fn entries(folder: &Path, part: Option<&str>) -> Result<Vec<Entry>> {
    let part = part.unwrap_or("validation");
    let (images, masks) = (folder.join(part), folder.join(format!("{part}-segmentation")));
    if !images.is_dir() {
        let (close, images) = (suggest_path(&images), images.display());
        return Err(Error::argument(format!(
            "{close}expected a folder of WordNet ids, found none at {images}"
        )));
    }
    let failed = |cause| Error::io(&images, cause);
    let mut synsets = Vec::new();
    for entry in std::fs::read_dir(&images).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() && is_synset(&file_name(&path)) {
            synsets.push(path);
        }
    }
    synsets.sort();
    let mut entries = Vec::new();
    for (place, path) in synsets.iter().enumerate() {
        let synset = file_name(path);
        let label = SYNSETS.lines().position(|known| known == synset);
        for image in pictures(path)? {
            let mask = masks.join(&synset).join(file_name(&image)).with_extension("png");
            let code = u32::try_from(place + 1).unwrap_or(u32::MAX);
            let mask = if mask.is_file() { Mask::Coded(mask, code) } else { Mask::Absent };
            let name = format!("{synset}/{}", file_name(&image));
            entries.push(Entry { name, pixels: Pixels::File(image), label, stratum: synset.clone(), mask });
        }
    }
    Ok(entries)
}

fn is_synset(name: &str) -> bool {
    name.len() == 9 && name.starts_with('n') && name[1..].bytes().all(|b| b.is_ascii_digit())
}

/// A mask that is white on the pixels of `class`.
pub(super) fn object(coded: &Picture, class: u32) -> Result<Picture> {
    let white = |pixel: &[u8]| {
        let found = u32::from(pixel[0]) + 256 * u32::from(pixel[1]);
        [if found == class { 255 } else { 0 }; 3]
    };
    Picture::new(coded.width(), coded.height(), coded.rgb().chunks_exact(3).flat_map(white).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_class_numbers_and_blue_says_nothing() {
        let coded = Picture::new(4, 1, vec![1, 1, 0, 1, 1, 9, 1, 0, 0, 232, 3, 0]).unwrap();
        let white = |class| -> Vec<bool> {
            object(&coded, class).unwrap().rgb().chunks(3).map(|p| p[0] == 255).collect()
        };
        assert_eq!(white(257), [true, true, false, false]);
        assert_eq!(white(1), [false, false, true, false]);
        assert_eq!(white(1000), [false, false, false, true]);
    }

    /// Classes every user of ImageNet knows by number.
    #[test]
    fn wordnet_ids_are_in_the_usual_order() {
        let place = |synset: &str| SYNSETS.lines().position(|known| known == synset);
        assert_eq!(SYNSETS.lines().count(), 1000);
        assert_eq!(place("n01440764"), Some(0));
        assert_eq!(place("n02123045"), Some(281));
        assert_eq!(place("n15075141"), Some(999));
        assert!(SYNSETS.lines().is_sorted() && SYNSETS.lines().all(is_synset));
    }
}
