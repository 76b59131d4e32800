//! Baselines: what replaces removed pixels.

use monosplit_graph::{Error, Options, Result};

use crate::case_arrays::CaseArrays;

/// What replaces a removed pixel, in units of the network's input.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum PixelBaseline {
    /// The smallest value of the image, over all channels.
    #[default]
    Black,
    /// The largest value of the image, over all channels.
    White,
    /// The mean of the image, over all channels.
    Mean,
    /// The mean of each channel of the image.
    ChannelMean,
    /// The mean of the partly removed image at that step, over all channels; Quantus's `mean`.
    RunningMean,
    /// This number.
    Value(f64),
}

impl PixelBaseline {
    pub(crate) fn read(self, options: &mut Options) -> Result<Self> {
        let Some(text) = options.text("baseline") else { return Ok(self) };
        let number = || text.parse().ok().filter(|number: &f64| number.is_finite()).map(PixelBaseline::Value);
        let named = match text.to_ascii_lowercase().as_str() {
            "black" => Some(PixelBaseline::Black),
            "white" => Some(PixelBaseline::White),
            "mean" => Some(PixelBaseline::Mean),
            "channel-mean" => Some(PixelBaseline::ChannelMean),
            "running-mean" => Some(PixelBaseline::RunningMean),
            _ => number(),
        };
        named.ok_or_else(|| {
            Error::argument(format!(
                "a baseline is black, white, mean, channel-mean, running-mean or a number, found '{text}'"
            ))
        })
    }

    /// The replacement for each channel, given the current image.
    pub(crate) fn levels(self, arrays: &CaseArrays<'_>, image: &[f32]) -> Vec<f32> {
        let original = &arrays.image;
        let level = match self {
            PixelBaseline::Black => original.iter().copied().fold(f32::INFINITY, f32::min),
            PixelBaseline::White => original.iter().copied().fold(f32::NEG_INFINITY, f32::max),
            PixelBaseline::Mean => mean(original),
            PixelBaseline::RunningMean => mean(image),
            PixelBaseline::Value(value) => value as f32,
            PixelBaseline::ChannelMean => return original.chunks(arrays.pixels()).map(mean).collect(),
        };
        vec![level; arrays.channels]
    }

    /// Whether the replacement depends on the pixels removed before.
    pub(crate) fn moves(self) -> bool {
        self == PixelBaseline::RunningMean
    }
}

fn mean(values: &[f32]) -> f32 {
    (values.iter().map(|&value| f64::from(value)).sum::<f64>() / values.len().max(1) as f64) as f32
}
