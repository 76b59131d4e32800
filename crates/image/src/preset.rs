//! The usual ways of preprocessing, by name, and how one is fitted to the input a network has.

use std::fmt;
use std::str::FromStr;

use monosplit_graph::{Error, ErrorKind, Result};

use crate::preprocess::{Channels, PixelRange, Preprocess, Resize};
use crate::resize::Filter;

/// The shorter side to which torchvision's networks scale, and the crop they take out of it.
const USUAL_SIDE: usize = 256;
const USUAL_CROP: usize = 224;

/// A usual way of preprocessing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Preset {
    /// torchvision's networks: shorter side to 256, centre 224×224, RGB from 0 to 1, less the mean and over
    /// the standard deviation of ImageNet.
    #[default]
    Imagenet,
    /// Caffe's and Keras' older networks: the same crop, BGR from 0 to 255 less the mean of ImageNet.
    ImagenetBgr,
    /// The same crop, RGB from 0 to 1.
    Unit,
    /// The values as they are in the picture, RGB from 0 to 255. Nothing is scaled or cropped until
    /// [`fit`](Preprocess::fit) brings pictures to the size of a network.
    None,
}

impl Preset {
    /// All presets.
    pub const ALL: [Preset; 4] = [Preset::Imagenet, Preset::ImagenetBgr, Preset::Unit, Preset::None];

    /// The name by which a person asks for it.
    pub fn name(self) -> &'static str {
        match self {
            Preset::Imagenet => "imagenet",
            Preset::ImagenetBgr => "imagenet-bgr",
            Preset::Unit => "unit",
            Preset::None => "none",
        }
    }

    /// What it does, in options each of which can be changed.
    pub fn options(self) -> Preprocess {
        let unit = Preprocess {
            resize: Resize::Shorter(USUAL_SIDE),
            filter: Filter::Bilinear,
            crop: Some((USUAL_CROP, USUAL_CROP)),
            keep_cropped_size: false,
            scale: PixelRange::Unit,
            mean: vec![0.0],
            std: vec![1.0],
            channels: Channels::Rgb,
        };
        match self {
            Preset::Imagenet => unit.mean([0.485, 0.456, 0.406]).std([0.229, 0.224, 0.225]),
            Preset::ImagenetBgr => {
                unit.scale(PixelRange::Bytes).channels(Channels::Bgr).mean([103.939, 116.779, 123.68])
            }
            Preset::Unit => unit,
            Preset::None => unit.resize(Resize::Keep).crop(None).scale(PixelRange::Bytes),
        }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Preset {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Preset::ALL.into_iter().find(|preset| preset.name() == name).ok_or_else(|| {
            let known = Preset::ALL.map(Preset::name).join(", ");
            Error::new(
                ErrorKind::UnknownName,
                format!("there is no preprocessing named '{name}'; known are {known}"),
            )
        })
    }
}

impl Default for Preprocess {
    fn default() -> Self {
        Preset::default().options()
    }
}

/// How a picture is brought to the size of a network's input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fit {
    /// A picture that already has the network's size is taken as it is; any other is scaled and cropped.
    /// This is the default because a picture of exactly the right size has been prepared already: enlarging it and
    /// cutting off its rim would explain another picture.
    #[default]
    Auto,
    /// Every picture is scaled and cropped, as torchvision does, also one that has the network's size.
    Crop,
    /// Every picture is scaled to exactly the network's size, giving up its proportions, and nothing is
    /// cut off.
    Squash,
}

impl Preprocess {
    /// The same preprocessing for a network whose input is `[channels, height, width]`.
    ///
    /// The crop becomes `height * width`. A shorter side that was set along with a crop keeps its ratio to it:
    /// 256 around a crop of 224 becomes 146 around one of 128 (of a crop that is not square the longer side
    /// counts, so that the scaled picture always covers it). An exact size becomes the network's. Options that neither
    /// scale nor crop, as [`Preset::None`], scale and crop like the others from here on: a network reads one size.
    ///
    /// A network of one channel reads [`Channels::Grey`]; a mean and standard deviation of three numbers
    /// then mean nothing and become 0 and 1. Set them afterwards if the network was trained with others.
    pub fn fit(mut self, [channels, height, width]: [usize; 3], fit: Fit) -> Result<Self> {
        if height == 0 || width == 0 {
            return Err(Error::argument(format!("no picture fits an input of {height}×{width} pixels")));
        }
        self.fit_channels(channels)?;
        self.keep_cropped_size = fit == Fit::Auto;
        if fit == Fit::Squash || matches!(self.resize, Resize::Exact { .. }) {
            self.resize = Resize::Exact { height, width };
            self.crop = None;
        } else {
            if (self.resize, self.crop) == (Resize::Keep, None) {
                (self.resize, self.crop) = (Resize::Shorter(USUAL_SIDE), Some((USUAL_CROP, USUAL_CROP)));
            }
            if let (Resize::Shorter(side), Some((rows, columns))) = (self.resize, self.crop) {
                self.resize = Resize::Shorter(rescaled(side, rows.max(columns), height.max(width))?);
            }
            self.crop = Some((height, width));
        }
        Ok(self)
    }

    fn fit_channels(&mut self, channels: usize) -> Result<()> {
        match (channels, self.channels) {
            (1, Channels::Grey) | (3, Channels::Rgb | Channels::Bgr) => {}
            (1, _) => {
                self.channels = Channels::Grey;
                if self.mean.len() != 1 {
                    self.mean = vec![0.0];
                }
                if self.std.len() != 1 {
                    self.std = vec![1.0];
                }
            }
            (3, Channels::Grey) => {
                return Err(Error::argument("the network reads three channels, but grey was asked for"));
            }
            _ => {
                return Err(Error::unsupported(format!(
                    "the network reads {channels} channels; a picture has three, or one when grey"
                )));
            }
        }
        Ok(())
    }
}

/// `side * to / from`, rounded to the nearest.
fn rescaled(side: usize, from: usize, to: usize) -> Result<usize> {
    let doubled = side.checked_mul(to).and_then(|product| product.checked_mul(2)?.checked_add(from));
    match (doubled, from.checked_mul(2)) {
        (Some(numerator), Some(denominator @ 1..)) => Ok((numerator / denominator).max(1)),
        _ => Err(Error::argument(format!(
            "a shorter side of {side} around a crop of {from} cannot be fitted to {to} pixels"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::Picture;

    fn picture(width: usize, height: usize) -> Picture {
        Picture::new(width, height, (0..width * height * 3).map(|v| (v * 7) as u8).collect()).unwrap()
    }

    #[test]
    fn names_are_understood_again() {
        for preset in Preset::ALL {
            assert_eq!(preset.name().parse::<Preset>().unwrap(), preset);
        }
        assert_eq!("cifar".parse::<Preset>().unwrap_err().kind(), ErrorKind::UnknownName);
    }

    #[test]
    fn the_margin_keeps_its_ratio() {
        let sides = [(224, 256), (128, 146), (299, 342), (1, 1)];
        for (size, side) in sides {
            let fitted = Preprocess::default().fit([3, size, size], Fit::Crop).unwrap();
            assert_eq!((fitted.resize, fitted.crop), (Resize::Shorter(side), Some((size, size))));
        }
        assert!(Preprocess::default().fit([3, usize::MAX, 2], Fit::Crop).is_err());
        assert!(Preprocess::default().fit([3, 0, 2], Fit::Crop).is_err());
    }

    #[test]
    fn only_a_forced_crop_touches_a_picture_of_the_right_size() {
        let picture = picture(64, 48);
        let seen =
            |fit| Preprocess::default().fit([3, 48, 64], fit).unwrap().apply(&picture).unwrap().picture;
        assert_eq!(seen(Fit::Auto), picture);
        assert_eq!(seen(Fit::Squash), picture);
        assert_ne!(seen(Fit::Crop), picture);
    }

    #[test]
    fn every_fit_comes_out_in_the_size_of_the_network() {
        for preset in Preset::ALL {
            for fit in [Fit::Auto, Fit::Crop, Fit::Squash] {
                for shape in [[3, 32, 32], [3, 17, 40], [1, 28, 28]] {
                    let prepared = preset.options().fit(shape, fit).unwrap().apply(&picture(50, 33)).unwrap();
                    assert_eq!(prepared.tensor.shape()[1..], shape);
                }
            }
        }
        let raw = Preset::None.options();
        assert!(raw.clone().fit([4, 9, 9], Fit::Auto).is_err());
        assert!(raw.channels(Channels::Grey).fit([3, 9, 9], Fit::Auto).is_err());
    }

    #[test]
    fn one_channel_reads_grey_without_the_colours_mean() {
        let grey = Preprocess::default().fit([1, 3, 3], Fit::Auto).unwrap();
        assert_eq!((grey.channels, &grey.mean[..], &grey.std[..]), (Channels::Grey, &[0.0][..], &[1.0][..]));
        let digits = Preset::Unit.options().mean([0.1307]).std([0.3081]).fit([1, 3, 3], Fit::Auto).unwrap();
        assert_eq!((&digits.mean[..], &digits.std[..]), (&[0.1307][..], &[0.3081][..]));
    }
}
