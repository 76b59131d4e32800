//! Baselines: what replaces removed pixels.

use monosplit_graph::{Error, Options, Result};

use crate::case_arrays::CaseArrays;

/// What replaces a removed pixel, in units of the network's input.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Baseline {
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

impl Baseline {
    pub(crate) fn read(self, options: &mut Options) -> Result<Self> {
        let Some(text) = options.text("baseline") else { return Ok(self) };
        let number = || text.parse().ok().filter(|number: &f64| number.is_finite()).map(Baseline::Value);
        let named = match text.to_ascii_lowercase().as_str() {
            "black" => Some(Baseline::Black),
            "white" => Some(Baseline::White),
            "mean" => Some(Baseline::Mean),
            "channel-mean" => Some(Baseline::ChannelMean),
            "running-mean" => Some(Baseline::RunningMean),
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
            Baseline::Black => original.iter().copied().fold(f32::INFINITY, f32::min),
            Baseline::White => original.iter().copied().fold(f32::NEG_INFINITY, f32::max),
            Baseline::Mean => mean(original),
            Baseline::RunningMean => mean(image),
            Baseline::Value(value) => value as f32,
            Baseline::ChannelMean => return original.chunks(arrays.pixels()).map(mean).collect(),
        };
        vec![level; arrays.channels]
    }

    /// Whether the replacement depends on the pixels removed before.
    pub(crate) fn moves(self) -> bool {
        self == Baseline::RunningMean
    }
}

fn mean(values: &[f32]) -> f32 {
    (values.iter().map(|&value| f64::from(value)).sum::<f64>() / values.len().max(1) as f64) as f32
}
