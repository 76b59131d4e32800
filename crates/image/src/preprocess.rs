//! From a picture to the numbers a network reads: scale, crop, and normalise in single precision, in the
//! order and with the roundings of torchvision's `Resize`, `CenterCrop`, `ToTensor` and `Normalize`.

use monosplit_graph::{Error, Result, Tensor};

use crate::crop::Overlap;
use crate::picture::Picture;
use crate::resize::{AxisPart, Filter};

/// How a picture is scaled before it is cropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Resize {
    /// Not at all.
    Keep,
    /// The shorter side to this many pixels, the longer one in proportion, rounded down: torchvision's
    /// `Resize(n)`.
    Shorter(usize),
    /// Exactly to these sides, whatever becomes of the proportions: torchvision's `Resize((height, width))`.
    Exact {
        /// Rows.
        height: usize,
        /// Columns.
        width: usize,
    },
}

/// What range the pixel values have before the mean is taken off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PixelRange {
    /// Divided by 255: 0 to 1.
    Unit,
    /// As they are in the file: 0 to 255.
    Bytes,
}

/// Which channels a network reads, and in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Channels {
    /// Red, green, blue.
    Rgb,
    /// Blue, green, red.
    Bgr,
    /// One channel of luminance. The picture is turned grey before it is scaled, as if it had been
    /// opened with Pillow's `convert("L")`.
    Grey,
}

impl Channels {
    /// Number of channels.
    pub fn count(self) -> usize {
        match self {
            Channels::Rgb | Channels::Bgr => 3,
            Channels::Grey => 1,
        }
    }

    fn positions(self) -> &'static [usize] {
        match self {
            Channels::Rgb => &[0, 1, 2],
            Channels::Bgr => &[2, 1, 0],
            Channels::Grey => &[0],
        }
    }
}

/// How a picture becomes a tensor. The default is what the torchvision networks trained on ImageNet expect;
/// see [`Preset`](crate::Preset) for the others and [`fit`](Preprocess::fit) for networks of another size.
#[derive(Clone, Debug, PartialEq)]
pub struct Preprocess {
    pub(crate) resize: Resize,
    pub(crate) filter: Filter,
    pub(crate) crop: Option<(usize, usize)>,
    pub(crate) keep_cropped_size: bool,
    pub(crate) scale: PixelRange,
    pub(crate) mean: Vec<f32>,
    pub(crate) std: Vec<f32>,
    pub(crate) channels: Channels,
}

/// A picture made ready for a network.
#[derive(Clone, Debug, PartialEq)]
pub struct Prepared {
    /// What the network reads: `[1, channels, height, width]`, single precision.
    pub tensor: Tensor,
    /// The scaled and cropped picture the tensor was made from, to draw explanations over.
    pub picture: Picture,
}

/// Several pictures made ready for a network.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// What the network reads: `[pictures, channels, height, width]`, single precision.
    pub tensor: Tensor,
    /// The scaled and cropped pictures, in the order given.
    pub pictures: Vec<Picture>,
}

impl Preprocess {
    /// Sets how the picture is scaled.
    #[must_use]
    pub fn resize(mut self, resize: Resize) -> Self {
        self.resize = resize;
        self
    }

    /// Sets how pixels are weighted when the picture is scaled.
    #[must_use]
    pub fn filter(mut self, filter: Filter) -> Self {
        self.filter = filter;
        self
    }

    /// Sets the `(height, width)` kept around the centre; `None` keeps all.
    #[must_use]
    pub fn crop(mut self, crop: Option<(usize, usize)>) -> Self {
        self.crop = crop;
        self
    }

    /// Sets whether a picture that already has the size of the crop is taken as it is, neither scaled nor
    /// cropped. torchvision has no such rule, so the presets say no; [`fit`](Preprocess::fit) says yes by
    /// default.
    #[must_use]
    pub fn keep_cropped_size(mut self, keep: bool) -> Self {
        self.keep_cropped_size = keep;
        self
    }

    /// Sets the range of the values before the mean is taken off.
    #[must_use]
    pub fn scale(mut self, scale: PixelRange) -> Self {
        self.scale = scale;
        self
    }

    /// Sets what is subtracted: one number for each channel in the order the network reads them, or one
    /// for all.
    #[must_use]
    pub fn mean(mut self, mean: impl Into<Vec<f32>>) -> Self {
        self.mean = mean.into();
        self
    }

    /// Sets what the difference is divided by: one number for each channel in the order the network
    /// reads them, or one for all.
    #[must_use]
    pub fn std(mut self, std: impl Into<Vec<f32>>) -> Self {
        self.std = std.into();
        self
    }

    /// Sets which channels the network reads. The mean and the standard deviation stay as they are, in
    /// the new order.
    #[must_use]
    pub fn channels(mut self, channels: Channels) -> Self {
        self.channels = channels;
        self
    }

    /// Sets that the network reads blue, green, red; the mean and the standard deviation of a colour go with it.
    #[must_use]
    pub fn bgr(mut self) -> Self {
        if self.channels != Channels::Bgr {
            self.mean.reverse();
            self.std.reverse();
        }
        self.channels(Channels::Bgr)
    }

    /// Makes `picture` ready.
    pub fn apply(&self, picture: &Picture) -> Result<Prepared> {
        let Batch { tensor, mut pictures } = self.batch(std::slice::from_ref(picture))?;
        Ok(Prepared { tensor, picture: pictures.remove(0) })
    }

    /// Makes `pictures` ready and stacks them; an error if they do not come out in one size.
    pub fn batch(&self, pictures: &[Picture]) -> Result<Batch> {
        let tables = self.tables()?;
        let mut seen = Vec::with_capacity(pictures.len());
        for picture in pictures {
            seen.push(self.frame(picture)?);
        }
        let Some(first) = seen.first() else {
            return Err(Error::argument("a batch needs at least one picture, but none was given"));
        };
        let (width, height) = (first.width(), first.height());
        if let Some(other) = seen.iter().find(|p| (p.width(), p.height()) != (width, height)) {
            return Err(Error::argument(format!(
                "pictures of {width}×{height} and {}×{} pixels cannot share a batch; set a crop or an exact size",
                other.width(),
                other.height()
            )));
        }
        let channels = self.channels.positions();
        let mut values = Vec::with_capacity(seen.len() * channels.len() * width * height);
        for picture in &seen {
            for (&position, table) in channels.iter().zip(&tables) {
                values.extend(picture.rgb().chunks_exact(3).map(|pixel| table[usize::from(pixel[position])]));
            }
        }
        let tensor = Tensor::new([seen.len(), channels.len(), height, width], values)?;
        Ok(Batch { tensor, pictures: seen })
    }

    /// The picture the network sees: turned grey, scaled and cropped, still in bytes.
    fn frame(&self, picture: &Picture) -> Result<Picture> {
        let grey = (self.channels == Channels::Grey).then(|| picture.to_grey());
        let picture = grey.as_ref().unwrap_or(picture);
        let (width, height) = (picture.width(), picture.height());
        if self.keep_cropped_size && self.crop == Some((height, width)) {
            return Ok(picture.clone());
        }
        let (scaled_height, scaled_width) = match self.resize {
            Resize::Keep => (height, width),
            Resize::Exact { height, width } => (height, width),
            Resize::Shorter(side) => shorter_side(height, width, side),
        };
        let beyond = |scaled: usize| scaled > MAX_SCALED_SIDE;
        let too_large = |error: Error| match (scaled_height, scaled_width) == (height, width) {
            true => error,
            false => Error::unsupported(format!(
                "a picture of {width}×{height} pixels would be scaled to {scaled_width}×{scaled_height}, which is \
                 beyond the limits; crop it first, or scale both sides to the network's"
            )),
        };
        match self.crop {
            Some(_) if beyond(scaled_width) || beyond(scaled_height) => {
                Err(too_large(Error::unsupported("the picture is too large")))
            }
            // Only what the crop keeps is scaled.
            Some((rows, columns)) => {
                let part = |whole: usize, crop: usize| {
                    let Overlap { from, length, .. } = Overlap::new(whole, crop);
                    AxisPart { whole, part: from..from + length }
                };
                let (across, down) = (part(scaled_width, columns), part(scaled_height, rows));
                picture.resize_part(&across, &down, self.filter)?.centre_crop(columns, rows)
            }
            None => picture.resize(scaled_width, scaled_height, self.filter).map_err(too_large),
        }
    }

    /// The `(height, width)` that every picture comes out with, if it does not depend on the picture.
    pub fn output_size(&self) -> Option<(usize, usize)> {
        match (self.crop, self.resize) {
            (Some(size), _) => Some(size),
            (None, Resize::Exact { height, width }) => Some((height, width)),
            (None, _) => None,
        }
    }

    /// The least and the greatest value a pixel can have, for each channel the network reads.
    pub fn bounds(&self) -> Result<Vec<(f32, f32)>> {
        let ends = |table: &[f32; 256]| (table[0].min(table[255]), table[0].max(table[255]));
        Ok(self.tables()?.iter().map(ends).collect())
    }

    /// What each byte becomes, for each channel.
    fn tables(&self) -> Result<Vec<[f32; 256]>> {
        let mean = per_channel("mean", &self.mean, self.channels)?;
        let std = per_channel("standard deviation", &self.std, self.channels)?;
        if std.contains(&0.0) {
            return Err(Error::argument(
                "a standard deviation of zero cannot be divided by; use 1 for no change",
            ));
        }
        let divisor = match self.scale {
            PixelRange::Unit => 255.0,
            PixelRange::Bytes => 1.0,
        };
        let table = |(mean, std): (&f32, &f32)| std::array::from_fn(|v| (v as f32 / divisor - mean) / std);
        Ok(mean.iter().zip(&std).map(table).collect())
    }
}

/// Longest side that a picture may be scaled to before a part of it is cut out.
const MAX_SCALED_SIDE: usize = 1 << 26;

/// `(height, width)` after torchvision's `Resize(side)`.
fn shorter_side(height: usize, width: usize, side: usize) -> (usize, usize) {
    let (short, long) = (height.min(width), height.max(width));
    let longer = side.saturating_mul(long) / short;
    if width <= height { (longer, side) } else { (side, longer) }
}

fn per_channel(name: &str, values: &[f32], channels: Channels) -> Result<Vec<f32>> {
    if let Some(odd) = values.iter().find(|value| !value.is_finite()) {
        return Err(Error::argument(format!("the {name} must be finite, but holds {odd}")));
    }
    match values.len() {
        1 => Ok(vec![values[0]; channels.count()]),
        n if n == channels.count() => Ok(values.to_vec()),
        n => Err(Error::argument(format!(
            "the {name} holds {n} numbers, but the network reads {} channels; give one for each or one for all",
            channels.count()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(width: usize, height: usize) -> Picture {
        Picture::new(width, height, (0..width * height * 3).map(|v| v as u8).collect()).unwrap()
    }

    #[test]
    fn the_longer_side_is_rounded_down() {
        assert_eq!(shorter_side(300, 451, 256), (256, 384));
        assert_eq!(shorter_side(451, 300, 256), (384, 256));
        assert_eq!(shorter_side(5, 5, 3), (3, 3));
    }

    /// Issue 27, point 11: a picture of 3000×2 pixels was refused with a size that it does not have.
    #[test]
    fn issue_27_a_sliver_is_scaled_where_it_is_kept() {
        for (width, height) in [(3000, 2), (1, 20_000)] {
            let seen = Preprocess::default().apply(&picture(width, height)).unwrap().picture;
            assert_eq!((seen.width(), seen.height()), (224, 224));
        }
        let error = Preprocess::default().crop(None).apply(&picture(3000, 2)).unwrap_err().to_string();
        assert!(error.contains("3000×2 pixels would be scaled to 384000×256"), "{error}");
        assert!(Preprocess::default().resize(Resize::Shorter(usize::MAX)).apply(&picture(2, 3)).is_err());
    }

    #[test]
    fn channels_are_planes_in_the_order_asked_for() {
        let raw = crate::Preset::None.options();
        let rgb = raw.apply(&picture(2, 1)).unwrap().tensor;
        assert_eq!(rgb.shape(), [1, 3, 1, 2]);
        assert_eq!(&*rgb.to_f32(), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        let bgr = raw.channels(Channels::Bgr).apply(&picture(2, 1)).unwrap().tensor;
        assert_eq!(&*bgr.to_f32(), [2.0, 5.0, 1.0, 4.0, 0.0, 3.0]);
    }

    #[test]
    fn colours_keep_their_mean_when_their_order_changes() {
        let rgb = Preprocess::default().resize(Resize::Keep).crop(None);
        let [one, other] =
            [rgb.clone(), rgb.bgr().bgr()].map(|options| options.apply(&picture(2, 1)).unwrap());
        let (one, other) = (one.tensor.to_f32(), other.tensor.to_f32());
        for (plane, opposite) in [(0, 2), (1, 1), (2, 0)] {
            assert_eq!(one[2 * plane..][..2], other[2 * opposite..][..2]);
        }
    }

    #[test]
    fn a_batch_is_its_pictures_one_after_another() {
        let pictures = [picture(40, 30), picture(31, 64)];
        let options = Preprocess::default().resize(Resize::Shorter(20)).crop(Some((16, 12)));
        let batch = options.batch(&pictures).unwrap();
        assert_eq!(batch.tensor.shape(), [2, 3, 16, 12]);
        let mut values = Vec::new();
        for (picture, seen) in pictures.iter().zip(&batch.pictures) {
            let single = options.apply(picture).unwrap();
            assert_eq!(&single.picture, seen);
            values.extend_from_slice(&single.tensor.to_f32());
        }
        assert_eq!(&*batch.tensor.to_f32(), values);
    }

    #[test]
    fn options_that_cannot_be_right_are_refused() {
        let pictures = [picture(4, 3), picture(3, 4)];
        let raw = crate::Preset::None.options();
        assert!(raw.batch(&pictures).is_err(), "sizes differ");
        assert!(raw.batch(&[]).is_err());
        assert!(raw.clone().std([0.0]).apply(&pictures[0]).is_err());
        assert!(raw.clone().mean([f32::NAN]).apply(&pictures[0]).is_err());
        assert!(raw.clone().mean([0.0, 1.0]).apply(&pictures[0]).is_err());
        assert!(raw.clone().crop(Some((0, 3))).apply(&pictures[0]).is_err());
        assert!(raw.resize(Resize::Shorter(0)).apply(&pictures[0]).is_err());
    }
}
