//! Features of an image: groups of elements that are removed together.

use monosplit_graph::{Error, Result, Tensor};

use crate::sample_layout::{Region, SampleLayout};
use crate::slic::{self, Pixels};

/// The largest number of superpixels.
const MOST_SEGMENTS: usize = 10_000;

/// How an image is divided into features.
#[derive(Clone, Debug, PartialEq)]
pub enum Features {
    /// Superpixels by SLIC: connected pieces of a picture, a series or a volume. In a table `[N, F]` every feature is one.
    Superpixels {
        /// Their approximate number.
        segments: usize,
        /// The weight of spatial distance against colour distance: the greater, the squarer the superpixels.
        compactness: f64,
    },
    /// Squares with sides of this many pixels (pieces of a series, cubes of a volume); the last along an axis may be
    /// smaller.
    Grid(usize),
    /// Every element is a feature.
    Elements,
    /// A tensor of whole numbers, shaped like the image or like one of its channels: elements with the same number are one
    /// feature.
    Mask(Tensor),
}

impl Default for Features {
    fn default() -> Self {
        Features::Superpixels { segments: 50, compactness: 10.0 }
    }
}

/// The feature each element of an image belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Groups {
    /// For each element, the index of its feature.
    pub(crate) of_element: Vec<usize>,
    /// Number of features.
    pub(crate) count: usize,
}

impl Groups {
    /// Replaces the elements of all features that are not kept.
    pub(crate) fn cover(&self, keep: impl Fn(usize) -> bool, cover: &[f64], value: &mut [f64]) {
        for ((v, cover), &group) in value.iter_mut().zip(cover).zip(&self.of_element) {
            if !keep(group) {
                *v = *cover;
            }
        }
    }

    /// The bounding box of each feature.
    pub(crate) fn regions(&self, layout: &SampleLayout) -> Vec<Region> {
        let mut regions: Vec<Option<Region>> = vec![None; self.count];
        for (element, &group) in self.of_element.iter().enumerate() {
            let at = layout.coordinates(layout.position(element));
            let region = regions[group].get_or_insert_with(|| at.iter().map(|&at| at..at + 1).collect());
            for (range, at) in region.iter_mut().zip(at) {
                *range = range.start.min(at)..range.end.max(at + 1);
            }
        }
        let first = || layout.spatial_dims().iter().map(|_| 0..1).collect();
        regions.into_iter().map(|region| region.unwrap_or_else(first)).collect()
    }

    /// A number for each position, from one for each feature; `whole` says whether features hold all channels of their
    /// positions.
    pub(crate) fn spread(&self, layout: &SampleLayout, whole: bool, of_group: &[f64]) -> Vec<f64> {
        if whole {
            return (0..layout.position_count())
                .map(|position| of_group[self.of_element[layout.element(0, position)]])
                .collect();
        }
        self.of_element.iter().map(|&group| of_group[group]).collect()
    }
}

impl Features {
    /// An error if a number is out of its range.
    pub(crate) fn check(&self, layout: &SampleLayout) -> Result<()> {
        match self {
            Features::Superpixels { segments, compactness } => {
                let fine = *compactness > 0.0 && compactness.is_finite();
                if !fine || !(1..=MOST_SEGMENTS).contains(segments) {
                    return Err(Error::argument(format!(
                        "{segments} superpixels of compactness {compactness}: expected 1 to {MOST_SEGMENTS} superpixels, \
                         and a compactness above 0"
                    )));
                }
            }
            Features::Grid(side) => {
                let longest = layout.spatial_dims().iter().max().copied().unwrap_or(1);
                if !(1..=longest).contains(side) {
                    let size: Vec<String> = layout.spatial_dims().iter().map(usize::to_string).collect();
                    return Err(Error::argument(format!(
                        "cells of {side} a side on {}: expected 1 to {longest}",
                        size.join(" × ")
                    )));
                }
            }
            Features::Elements => {}
            Features::Mask(mask) => {
                self.mask(mask, layout)?;
            }
        }
        Ok(())
    }

    /// Whether features hold all channels of their positions.
    pub(crate) fn holds_all_channels(&self, layout: &SampleLayout) -> bool {
        match self {
            Features::Superpixels { .. } | Features::Grid(_) => true,
            Features::Elements => layout.channels() == 1,
            Features::Mask(mask) => mask.len() == layout.position_count(),
        }
    }

    /// The size of the largest bounding box of a feature; none if it depends on the image.
    pub(crate) fn largest(&self, layout: &SampleLayout) -> Result<Option<Vec<usize>>> {
        if !layout.is_plane() || matches!(self, Features::Superpixels { .. }) {
            return Ok(None);
        }
        let regions = self.groups(&[], layout)?.regions(layout);
        let most = |axis: usize| regions.iter().map(|region| region[axis].len()).max().unwrap_or(1);
        Ok(Some(vec![most(0), most(1)]))
    }

    /// The features of an image.
    pub(crate) fn groups(&self, image: &[f64], layout: &SampleLayout) -> Result<Groups> {
        let (of_position, count) = match self {
            Features::Elements => {
                return Ok(Groups { of_element: (0..layout.len()).collect(), count: layout.len() });
            }
            Features::Mask(mask) => return self.mask(mask, layout),
            Features::Grid(side) => {
                let lengths = layout.spatial_dims();
                let cells = |length: &usize| length.div_ceil(*side);
                let cell = |position: usize| {
                    let along = layout.coordinates(position).into_iter().zip(lengths);
                    along.fold(0, |index, (at, length)| index * cells(length) + at / side)
                };
                let count = lengths.iter().map(cells).product();
                ((0..layout.position_count()).map(cell).collect::<Vec<_>>(), count)
            }
            // The features of a table have neither neighbours nor a common unit: each is one of its own.
            Features::Superpixels { .. } if layout.is_table() => {
                return Features::Elements.groups(image, layout);
            }
            Features::Superpixels { segments, compactness } => {
                let channels = layout.channels();
                let positions = 0..layout.position_count();
                let values = positions
                    .flat_map(|position| (0..channels).map(move |c| image[layout.element(c, position)]))
                    .collect();
                let lengths = layout.spatial_dims().to_vec();
                slic::superpixels(Pixels { lengths, channels, values }, *segments, *compactness)
            }
        };
        let of_element = (0..layout.len()).map(|element| of_position[layout.position(element)]).collect();
        Ok(Groups { of_element, count })
    }

    /// The parts a mask names, numbered without gaps in the order of their numbers.
    fn mask(&self, mask: &Tensor, layout: &SampleLayout) -> Result<Groups> {
        let shape: Vec<usize> = mask.shape().iter().copied().skip_while(|&length| length == 1).collect();
        let like =
            |dims: &[usize]| dims.iter().copied().skip_while(|&length| length == 1).eq(shape.iter().copied());
        let whole = like(layout.spatial_dims());
        let numbers = mask.to_i64().filter(|_| whole || like(layout.dims())).ok_or_else(|| {
            Error::argument(format!(
                "the mask holds {} numbers of shape {:?}, expected whole ones of shape {:?} or {:?}",
                mask.kind(),
                mask.shape(),
                layout.spatial_dims(),
                layout.dims()
            ))
        })?;
        let mut known: Vec<i64> = numbers.to_vec();
        known.sort_unstable();
        known.dedup();
        let of = |element: usize| {
            let number = numbers[if whole { layout.position(element) } else { element }];
            known.binary_search(&number).unwrap_or_default()
        };
        Ok(Groups { of_element: (0..layout.len()).map(of).collect(), count: known.len() })
    }
}

#[cfg(test)]
mod tests {
    use monosplit_graph::Shape;

    use super::*;
    use crate::channels::Axes;

    fn layout(dims: &[usize]) -> SampleLayout {
        SampleLayout::new(&Shape::batched(dims), Axes { channels: Some(1), image_channels: 1 }).unwrap()
    }

    #[test]
    fn a_mask_may_be_shaped_like_the_image_or_like_a_channel_of_it() {
        let layout = layout(&[2, 1, 2]);
        let channel = Features::Mask(Tensor::new([1, 2], vec![7i64, -3]).unwrap());
        assert_eq!(channel.groups(&[0.0; 4], &layout).unwrap().of_element, [1, 0, 1, 0]);
        assert!(channel.holds_all_channels(&layout));
        let image = Features::Mask(Tensor::new([1, 2, 1, 2], vec![0i64, 1, 2, 2]).unwrap());
        let groups = image.groups(&[0.0; 4], &layout).unwrap();
        assert_eq!((groups.of_element, groups.count), (vec![0, 1, 2, 2], 3));
        assert!(!image.holds_all_channels(&layout));
        let wrong = Features::Mask(Tensor::new([3], vec![0i64, 1, 2]).unwrap());
        assert!(wrong.check(&layout).unwrap_err().to_string().contains("[3]"));
        let real = Features::Mask(Tensor::new([1, 2], vec![0f32, 1.0]).unwrap());
        assert!(real.check(&layout).is_err());
    }

    #[test]
    fn squares_are_cut_off_at_the_edges() {
        let layout = layout(&[1, 5, 7]);
        let groups = Features::Grid(3).groups(&[0.0; 35], &layout).unwrap();
        let mut sizes = vec![0; groups.count];
        groups.of_element.iter().for_each(|&group| sizes[group] += 1);
        assert_eq!(sizes, [9, 9, 3, 6, 6, 2]);
    }

    #[test]
    fn cells_have_as_many_axes_as_the_input() {
        let series = Features::Grid(4).groups(&[0.0; 20], &layout(&[2, 10])).unwrap();
        assert_eq!(series.of_element[..10], [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]);
        assert_eq!(series.of_element[..10], series.of_element[10..]);
        let volume = Features::Grid(2).groups(&[0.0; 60], &layout(&[1, 3, 4, 5])).unwrap();
        assert_eq!(volume.count, 2 * 2 * 3);
        for (position, &cell) in volume.of_element.iter().enumerate() {
            let [d, h, w] = [position / 20, position / 5 % 4, position % 5];
            assert_eq!(cell, (d / 2 * 2 + h / 2) * 3 + w / 2);
        }
        let regions = volume.regions(&layout(&[1, 3, 4, 5]));
        assert_eq!(regions[11], [2..3, 2..4, 4..5]);
        assert!(Features::Grid(6).check(&layout(&[1, 3, 4, 5])).is_err());
    }

    #[test]
    fn superpixels_of_a_table_are_its_features() {
        let axes = Axes { channels: None, image_channels: 1 };
        let table = SampleLayout::new(&Shape::batched(&[4]), axes).unwrap();
        let groups = Features::default().groups(&[1.0, 5.0, 1.0, 1.0], &table).unwrap();
        assert_eq!((groups.of_element, groups.count), (vec![0, 1, 2, 3], 4));
    }
}
