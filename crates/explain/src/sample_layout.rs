//! The layout of one sample of a value: the channel and the spatial position of each element.

use monosplit_graph::{Error, Result, Shape};

use crate::channels::Axes;

/// The layout of the elements of one sample, row-major as in the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SampleLayout {
    dims: Vec<usize>,
    channels: usize,
    /// The distance from one channel to the next, in elements.
    stride: usize,
    spatial_dims: Vec<usize>,
}

impl SampleLayout {
    /// The layout of a value of this shape, whose first axis runs over samples.
    pub(crate) fn new(shape: &Shape, axes: Axes) -> Result<Self> {
        let fixed = (1..shape.rank()).map(|axis| shape.fixed_at(axis)).collect::<Option<Vec<_>>>();
        let dims = fixed.filter(|dims| monosplit_graph::element_count(dims).is_some_and(|count| count > 0));
        let dims = dims.ok_or_else(|| {
            Error::shape(format!("a value of shape {shape} has no elements that could be perturbed"))
        })?;
        let Some(axis) = axes.channels.and_then(|axis| axis.checked_sub(1)) else {
            return Ok(SampleLayout {
                spatial_dims: dims.clone(),
                channels: 1,
                stride: dims.iter().product(),
                dims,
            });
        };
        let spatial_dims = dims.iter().enumerate().filter(|(i, _)| *i != axis).map(|(_, &n)| n).collect();
        Ok(SampleLayout {
            channels: dims[axis],
            stride: dims[axis + 1..].iter().product(),
            spatial_dims,
            dims,
        })
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
    pub(crate) fn spatial_dims(&self) -> &[usize] {
        &self.spatial_dims
    }

    /// Number of spatial positions.
    pub(crate) fn position_count(&self) -> usize {
        self.spatial_dims.iter().product()
    }

    /// Height and width; an error if there are not two spatial axes.
    pub(crate) fn plane(&self) -> Result<(usize, usize)> {
        match *self.spatial_dims {
            [height, width] => Ok((height, width)),
            _ => Err(Error::shape(format!(
                "expected a value with height and width, found spatial axes {:?}; name a layer that has them",
                self.spatial_dims
            ))),
        }
    }

    /// The element of a channel at a spatial position.
    pub(crate) fn element(&self, channel: usize, position: usize) -> usize {
        (position / self.stride * self.channels + channel) * self.stride + position % self.stride
    }

    /// The spatial position of an element.
    pub(crate) fn position(&self, element: usize) -> usize {
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
            let layout = SampleLayout::new(&shape, Axes { channels: Some(axis), image_channels: 1 }).unwrap();
            assert_eq!(layout.channels(), [2, 3, 5][axis - 1]);
            assert_eq!(layout.channels() * layout.position_count(), layout.len());
            for element in 0..layout.len() {
                let (channel, position) = (layout.channel(element), layout.position(element));
                assert_eq!(layout.element(channel, position), element);
            }
        }
    }
}
