//! A preprocessed image with its mask.

use monosplit_graph::{Error, Result, Tensor};
use monosplit_image::{Filter, Picture, Preprocess};

use super::Photograph;

/// The smallest grey value of a mask pixel on the object.
pub(super) const WHITE: u8 = 128;

/// A preprocessed image.
#[derive(Clone, Debug)]
pub struct DatasetSample {
    /// `[1, C, H, W]`
    pub tensor: Tensor,
    /// The resized and cropped image, for overlays.
    pub picture: Picture,
    /// The object mask, `H·W` pixels.
    pub mask: Option<Vec<bool>>,
}

impl DatasetSample {
    /// Resizes, crops and normalises an image. Its mask is resized by nearest neighbours and cropped alike.
    pub fn new(photograph: &Photograph, preprocess: &Preprocess) -> Result<Self> {
        let about = |error: Error| error.context(format!("image '{}'", photograph.name));
        let prepared = preprocess.apply(&photograph.picture).map_err(about)?;
        let nearest = preprocess.clone().filter(Filter::Nearest);
        let mask = photograph.mask.as_ref().map(|mask| {
            let seen = nearest.apply(mask).map_err(about)?.picture;
            Ok::<_, Error>(seen.rgb().chunks_exact(3).map(|pixel| pixel[0] >= WHITE).collect())
        });
        Ok(DatasetSample { tensor: prepared.tensor, picture: prepared.picture, mask: mask.transpose()? })
    }
}

#[cfg(test)]
mod tests {
    use monosplit_image::{Fit, Preset};

    use super::*;

    #[test]
    fn a_mask_follows_its_image() {
        let left = |width: usize, height: usize| -> Picture {
            let rgb = (0..width * height).flat_map(|i| [if i % width < width / 2 { 255 } else { 0 }; 3]);
            Picture::new(width, height, rgb.collect()).unwrap()
        };
        let photograph = Photograph {
            name: "a".into(),
            label: None,
            picture: left(40, 20),
            mask: Some(left(40, 20)),
            hash: String::new(),
        };
        for fit in [Fit::Auto, Fit::Crop, Fit::Squash] {
            let preprocess = Preset::Unit.options().fit([1, 8, 8], fit).unwrap();
            let sample = DatasetSample::new(&photograph, &preprocess).unwrap();
            let mask = sample.mask.unwrap();
            assert_eq!(mask.len(), 64);
            for (place, &inside) in mask.iter().enumerate() {
                assert_eq!(inside, place % 8 < 4, "{fit:?} {place}");
            }
        }
    }
}
