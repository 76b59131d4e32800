//! torchvision's centre crop: which pixels it keeps when the margins are uneven, and what it adds when
//! the picture is smaller than the crop.

use monosplit_graph::Result;

use crate::picture::{Picture, checked_area};

impl Picture {
    /// The `width * height` pixels in the middle, equal to torchvision's `CenterCrop((height, width))`: a
    /// picture smaller than that is first padded with black.
    pub fn centre_crop(&self, width: usize, height: usize) -> Result<Picture> {
        let mut rgb = vec![0; checked_area(width, height, 3)?];
        let across = Overlap::new(self.width(), width);
        let down = Overlap::new(self.height(), height);
        for row in 0..down.length {
            let from = ((down.from + row) * self.width() + across.from) * 3;
            let to = ((down.to + row) * width + across.to) * 3;
            let length = across.length * 3;
            rgb[to..to + length].copy_from_slice(&self.rgb()[from..from + length]);
        }
        Picture::new(width, height, rgb)
    }
}

/// Where along one axis the picture and its crop share pixels.
pub(crate) struct Overlap {
    pub(crate) from: usize,
    to: usize,
    pub(crate) length: usize,
}

impl Overlap {
    pub(crate) fn new(picture: usize, crop: usize) -> Overlap {
        if crop > picture {
            Overlap { from: 0, to: (crop - picture) / 2, length: picture }
        } else {
            Overlap { from: half_to_even(picture - crop), to: 0, length: crop }
        }
    }
}

/// `round(n / 2)` as Python rounds: a half goes to the even neighbour.
fn half_to_even(n: usize) -> usize {
    let half = n / 2;
    if n % 2 == 1 { half + half % 2 } else { half }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_round_to_even() {
        let rounded: Vec<_> = (0..8).map(half_to_even).collect();
        assert_eq!(rounded, [0, 0, 1, 2, 2, 2, 3, 4]);
    }
}
