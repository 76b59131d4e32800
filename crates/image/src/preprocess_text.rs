//! The text of a preprocessing, `resize=256 filter=bilinear crop=224x224 …`: what result tables show, and what tells two
//! preprocessings apart in a run store. Equal texts mean equal tensors.

use std::fmt;

use crate::preprocess::{Channels, PixelRange, Preprocess, Resize};
use crate::resize::Filter;

impl fmt::Display for Preprocess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Named one by one, so that the compiler asks for a word for each new field.
        let Preprocess { resize, filter, crop, keep_cropped_size, scale, mean, std, channels } = self;
        match resize {
            Resize::Keep => f.write_str("resize=keep")?,
            Resize::Shorter(side) => write!(f, "resize={side}")?,
            Resize::Exact { height, width } => write!(f, "resize={height}x{width}")?,
        }
        let filter = match filter {
            Filter::Nearest => "nearest",
            Filter::Box => "box",
            Filter::Bilinear => "bilinear",
            Filter::Bicubic => "bicubic",
            Filter::Lanczos => "lanczos",
        };
        write!(f, " filter={filter}")?;
        match crop {
            None => f.write_str(" crop=none")?,
            Some((height, width)) => write!(f, " crop={height}x{width}")?,
        }
        if *keep_cropped_size {
            f.write_str(" keep-cropped-size")?;
        }
        let scale = match scale {
            PixelRange::Unit => "unit",
            PixelRange::Bytes => "bytes",
        };
        let channels = match channels {
            Channels::Rgb => "rgb",
            Channels::Bgr => "bgr",
            Channels::Grey => "grey",
        };
        let numbers =
            |values: &[f32]| values.iter().map(|value| format!("{value:?}")).collect::<Vec<_>>().join(",");
        write!(f, " scale={scale} mean={} std={} channels={channels}", numbers(mean), numbers(std))
    }
}

#[cfg(test)]
mod tests {
    use crate::{Fit, Preset};

    #[test]
    fn a_preprocessing_is_said_in_words() {
        let crop = Preset::Imagenet.options().fit([3, 224, 224], Fit::Auto).unwrap();
        assert_eq!(
            crop.to_string(),
            "resize=256 filter=bilinear crop=224x224 keep-cropped-size scale=unit mean=0.485,0.456,0.406 \
             std=0.229,0.224,0.225 channels=rgb"
        );
        let squash = Preset::Unit.options().fit([1, 8, 9], Fit::Squash).unwrap();
        assert!(
            squash.to_string().starts_with("resize=8x9 filter=bilinear crop=none scale=unit"),
            "{squash}"
        );
    }
}
