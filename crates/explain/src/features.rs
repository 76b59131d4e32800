//! Features of an image: groups of elements that are removed together.

use monosplit_graph::{Error, Result, Tensor};

use crate::sample_layout::SampleLayout;
use crate::scorer::Region;
use crate::slic::{self, Pixels};

/// The largest number of superpixels.
const MOST_SEGMENTS: usize = 10_000;

/// How an image is divided into features.
#[derive(Clone, Debug, PartialEq)]
pub enum Features {
    /// Superpixels by SLIC.
    Superpixels {
        /// Their approximate number.
        segments: usize,
        /// The weight of spatial distance against colour distance: the greater, the squarer the superpixels.
        compactness: f64,
    },
    /// Squares with sides of this many pixels; the last of a row or column may be smaller.
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
    pub(crate) fn regions(&self, layout: &SampleLayout) -> Result<Vec<Region>> {
        let (_, width) = layout.plane()?;
        let mut regions: Vec<Option<Region>> = vec![None; self.count];
        for (element, &group) in self.of_element.iter().enumerate() {
            let position = layout.position(element);
            let at = [position / width, position % width];
            let region = regions[group].get_or_insert_with(|| at.map(|at| at..at + 1));
            for (range, at) in region.iter_mut().zip(at) {
                *range = range.start.min(at)..range.end.max(at + 1);
            }
        }
        Ok(regions.into_iter().map(|region| region.unwrap_or([0..1, 0..1])).collect())
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
                layout.plane()?;
                let fine = *compactness > 0.0 && compactness.is_finite();
                if !fine || !(1..=MOST_SEGMENTS).contains(segments) {
                    return Err(Error::argument(format!(
                        "{segments} superpixels of compactness {compactness}: expected 1 to {MOST_SEGMENTS} superpixels, \
                         and a compactness above 0"
                    )));
                }
            }
            Features::Grid(side) => {
                let (height, width) = layout.plane()?;
                if !(1..=height.max(width)).contains(side) {
                    return Err(Error::argument(format!(
                        "squares of {side} pixels a side on {height} × {width}: expected 1 to {}",
                        height.max(width)
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
    pub(crate) fn largest(&self, layout: &SampleLayout) -> Result<Option<[usize; 2]>> {
        if layout.plane().is_err() || matches!(self, Features::Superpixels { .. }) {
            return Ok(None);
        }
        let regions = self.groups(&[], layout)?.regions(layout)?;
        let most = |axis: usize| regions.iter().map(|region| region[axis].len()).max().unwrap_or(1);
        Ok(Some([most(0), most(1)]))
    }

    /// The features of an image.
    pub(crate) fn groups(&self, image: &[f64], layout: &SampleLayout) -> Result<Groups> {
        let (of_position, count) = match self {
            Features::Elements => {
                return Ok(Groups { of_element: (0..layout.len()).collect(), count: layout.len() });
            }
            Features::Mask(mask) => return self.mask(mask, layout),
            Features::Grid(side) => {
                let (height, width) = layout.plane()?;
                let across = width.div_ceil(*side);
                let cell = |position: usize| position / width / side * across + position % width / side;
                ((0..height * width).map(cell).collect::<Vec<_>>(), height.div_ceil(*side) * across)
            }
            Features::Superpixels { segments, compactness } => {
                let (height, width) = layout.plane()?;
                let channels = layout.channels();
                let positions = 0..height * width;
                let values = positions
                    .flat_map(|position| (0..channels).map(move |c| image[layout.element(c, position)]))
                    .collect();
                slic::superpixels(Pixels { height, width, channels, values }, *segments, *compactness)
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
}
