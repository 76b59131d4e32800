//! How the elements of one sample of a value are arranged: which of them lie at the same place, and in which channel.

use monosplit_graph::{Error, Result, Shape};

use crate::channels::Axes;

/// The arrangement of one sample's elements, row-major as the value has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    dims: Vec<usize>,
    channels: usize,
    /// Elements from one channel to the next.
    stride: usize,
    places: Vec<usize>,
}

impl Layout {
    /// The arrangement of a value of this shape, whose first axis runs over samples.
    pub(crate) fn new(shape: &Shape, axes: Axes) -> Result<Self> {
        let fixed = (1..shape.rank()).map(|axis| shape.fixed_at(axis)).collect::<Option<Vec<_>>>();
        let dims = fixed.filter(|dims| monosplit_graph::element_count(dims).is_some_and(|count| count > 0));
        let dims = dims.ok_or_else(|| {
            Error::shape(format!("a value of shape {shape} has no elements that could be changed"))
        })?;
        let Some(axis) = axes.channels.and_then(|axis| axis.checked_sub(1)) else {
            return Ok(Layout { places: dims.clone(), channels: 1, stride: dims.iter().product(), dims });
        };
        let places = dims.iter().enumerate().filter(|(i, _)| *i != axis).map(|(_, &n)| n).collect();
        Ok(Layout { channels: dims[axis], stride: dims[axis + 1..].iter().product(), places, dims })
    }

    /// Lengths of the axes after the samples.
    pub(crate) fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Number of elements.
    pub(crate) fn len(&self) -> usize {
        self.dims.iter().product()
    }

    /// Number of channels.
    pub(crate) fn channels(&self) -> usize {
        self.channels
    }

    /// Lengths of the axes that are neither samples nor channels.
    pub(crate) fn places(&self) -> &[usize] {
        &self.places
    }

    /// Number of places.
    pub(crate) fn place_count(&self) -> usize {
        self.places.iter().product()
    }

    /// Height and width; an error if the places are not those of a picture.
    pub(crate) fn plane(&self) -> Result<(usize, usize)> {
        match *self.places {
            [height, width] => Ok((height, width)),
            _ => Err(Error::shape(format!(
                "expected a value with height and width, found places of shape {:?}; name a layer that has them",
                self.places
            ))),
        }
    }

    /// The element of a channel at a place.
    pub(crate) fn element(&self, channel: usize, place: usize) -> usize {
        (place / self.stride * self.channels + channel) * self.stride + place % self.stride
    }

    /// The place of an element.
    pub(crate) fn place(&self, element: usize) -> usize {
        element / (self.stride * self.channels) * self.stride + element % self.stride
    }

    /// The channel of an element.
    pub(crate) fn channel(&self, element: usize) -> usize {
        element / self.stride % self.channels
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_and_places_belong_together_wherever_the_channels_are() {
        let shape = Shape::batched(&[2, 3, 5]);
        for axis in 1..4 {
            let layout = Layout::new(&shape, Axes { channels: Some(axis), image_channels: 1 }).unwrap();
            assert_eq!(layout.channels(), [2, 3, 5][axis - 1]);
            assert_eq!(layout.channels() * layout.place_count(), layout.len());
            for element in 0..layout.len() {
                let (channel, place) = (layout.channel(element), layout.place(element));
                assert_eq!(layout.element(channel, place), element);
            }
        }
    }
}
