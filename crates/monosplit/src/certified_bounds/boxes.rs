//! Boxes of inputs around a sample: all elements change, or those of a patch of a picture.

use std::ops::Range;

use monosplit_explain::InputBoxes;
use monosplit_graph::{Error, Result, Tensor};

use super::{CertifiedBounds, InputBox};
use crate::model::ChannelOrder;

impl CertifiedBounds {
    /// The boxes around a sample in which a patch changes, or everything.
    pub(super) fn boxes(
        &self,
        sample: &Tensor,
        near: &InputBox,
        patches: &[Option<Patch>],
    ) -> Result<InputBoxes> {
        let InputBox { epsilon, ranges } = near;
        if !(*epsilon >= 0.0 && epsilon.is_finite()) {
            return Err(Error::argument(format!(
                "the largest change is {epsilon}, expected a number from 0"
            )));
        }
        if sample.shape().first() != Some(&1) {
            return Err(Error::shape(format!("expected one sample, found the shape {:?}", sample.shape())));
        }
        let values = sample.to_f64();
        let layout = ElementLayout { order: self.order };
        let count = values.len();
        let (mut lower, mut upper) = (Vec::new(), Vec::new());
        for patch in patches {
            for (at, &value) in values.iter().enumerate().take(count) {
                let within = patch.as_ref().is_none_or(|patch| layout.holds(patch, at));
                let (least, most) = match (within, ranges, layout.channel(at)) {
                    (false, _, _) => (value, value),
                    (true, Some(ranges), channel) => {
                        let range = channel.and_then(|channel| ranges.get(channel));
                        let &(first, last) = range.ok_or_else(|| {
                            Error::argument(
                                "the range of a channel is not known, of which the largest change is a share",
                            )
                        })?;
                        let (first, last) = (f64::from(first), f64::from(last));
                        let by = epsilon * (last - first);
                        // A value beyond the range stays what it is.
                        ((value - by).max(first).min(value), (value + by).min(last).max(value))
                    }
                    (true, None, _) => (value - epsilon, value + epsilon),
                };
                lower.push(least);
                upper.push(most);
            }
        }
        let mut shape = sample.shape().to_vec();
        shape[0] = patches.len();
        InputBoxes::new(Tensor::new(shape.clone(), lower)?, Tensor::new(shape, upper)?)
    }
}

/// Rows and columns of pixels.
pub(super) type Patch = (Range<usize>, Range<usize>);

/// Where the elements of a picture lie.
struct ElementLayout {
    order: Option<(ChannelOrder, [usize; 3])>,
}

impl ElementLayout {
    /// Channel, row and column of an element.
    fn of(&self, at: usize) -> Option<[usize; 3]> {
        let (order, [channels, height, width]) = self.order?;
        let place = match order {
            ChannelOrder::ChannelsFirst => [at / (height * width), at / width % height, at % width],
            ChannelOrder::ChannelsLast => [at % channels, at / (channels * width), at / channels % width],
        };
        Some(place)
    }

    fn channel(&self, at: usize) -> Option<usize> {
        self.of(at).map(|[channel, ..]| channel)
    }

    fn holds(&self, (rows, columns): &Patch, at: usize) -> bool {
        self.of(at).is_some_and(|[_, row, column]| rows.contains(&row) && columns.contains(&column))
    }
}
