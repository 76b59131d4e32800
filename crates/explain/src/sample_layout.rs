//! The layout of one sample of a value: the channel and the spatial position of each element.

use std::ops::Range;

use monosplit_graph::{Error, Result, Shape};

use crate::channels::Axes;

/// A box of positions: a range along each spatial axis.
pub(crate) type Region = Vec<Range<usize>>;

/// The layout of the elements of one sample, row-major as in the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SampleLayout {
    dims: Vec<usize>,
    channels: usize,
    /// The distance from one channel to the next, in elements.
    stride: usize,
    spatial_dims: Vec<usize>,
    has_channels: bool,
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
                has_channels: false,
            });
        };
        let spatial_dims = dims.iter().enumerate().filter(|(i, _)| *i != axis).map(|(_, &n)| n).collect();
        Ok(SampleLayout {
            channels: dims[axis],
            stride: dims[axis + 1..].iter().product(),
            spatial_dims,
            dims,
            has_channels: true,
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

    /// Whether it is a row of a table, `[N, F]`: its positions have no channels, and neighbours mean nothing.
    pub(crate) fn is_table(&self) -> bool {
        !self.has_channels
    }

    /// Whether the only spatial axes are height and width.
    pub(crate) fn is_plane(&self) -> bool {
        self.has_channels && self.spatial_dims.len() == 2
    }

    /// Calls `act` for every position of a region, in the order of their indices.
    pub(crate) fn for_each_position(&self, region: &[Range<usize>], mut act: impl FnMut(usize)) {
        for_each_in(&self.spatial_dims, region, 0, &mut act);
    }

    /// The index of a position along each spatial axis.
    pub(crate) fn coordinates(&self, position: usize) -> Vec<usize> {
        let mut rest = position;
        let mut coordinates = vec![0; self.spatial_dims.len()];
        for (coordinate, &length) in coordinates.iter_mut().zip(&self.spatial_dims).rev() {
            (*coordinate, rest) = (rest % length, rest / length);
        }
        coordinates
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

/// Calls `act` for the positions of a region along `dims`, at the outer positions whose row-major index is `outer`.
fn for_each_in(dims: &[usize], region: &[Range<usize>], outer: usize, act: &mut impl FnMut(usize)) {
    let (Some((&length, dims)), Some((range, region))) = (dims.split_first(), region.split_first()) else {
        act(outer);
        return;
    };
    range.clone().for_each(|at| for_each_in(dims, region, outer * length + at, act));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_of_any_number_of_axes_holds_the_positions_whose_coordinates_are_in_it() {
        for dims in [&[2, 7][..], &[2, 4, 5], &[3, 3, 4, 5]] {
            let axes = Axes { channels: Some(1), image_channels: 1 };
            let layout = SampleLayout::new(&Shape::batched(dims), axes).unwrap();
            let region: Region = dims[1..].iter().map(|&length| 1..length - 1).collect();
            let mut found = Vec::new();
            layout.for_each_position(&region, |position| found.push(position));
            let within = |position: &usize| {
                layout.coordinates(*position).iter().zip(&region).all(|(at, range)| range.contains(at))
            };
            assert_eq!(found, (0..layout.position_count()).filter(within).collect::<Vec<_>>());
        }
    }

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
