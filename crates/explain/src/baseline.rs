//! Baselines: images without evidence.

use monosplit_graph::batch::rows;
use monosplit_graph::{Error, Result, Tensor};

use crate::explain_batch::ExplainBatch;
use crate::network_partition::batch_of;
use crate::sample_layout::SampleLayout;

/// An image without evidence: the start of a path, or what replaces removed elements.
#[derive(Clone, Debug, PartialEq)]
pub enum Baseline {
    /// This number everywhere, in the units of the preprocessed image: 0 is the mean colour of normalised images.
    Value(f64),
    /// The mean of each channel of each image.
    Mean,
    /// These images: one for all samples, or one for each.
    Images(Tensor),
}

impl Default for Baseline {
    fn default() -> Self {
        Baseline::Value(0.0)
    }
}

impl Baseline {
    /// The images, where they are given.
    pub(crate) fn array(&self) -> Option<&Tensor> {
        match self {
            Baseline::Images(images) => Some(images),
            Baseline::Value(_) | Baseline::Mean => None,
        }
    }

    /// The baseline of a value; none if it depends on images and not on the value alone.
    pub(crate) fn of_value(&self, value: &[f64], layout: &SampleLayout) -> Option<Vec<f64>> {
        match self {
            Baseline::Value(number) => Some(vec![*number; value.len()]),
            Baseline::Mean => {
                let mut sums = vec![0.0; layout.channels()];
                value.iter().enumerate().for_each(|(element, v)| sums[layout.channel(element)] += v);
                let mean = |element| sums[layout.channel(element)] / layout.position_count() as f64;
                Some((0..value.len()).map(mean).collect())
            }
            Baseline::Images(_) => None,
        }
    }

    /// The baseline image of each image of a batch.
    pub(crate) fn images(&self, batch: &ExplainBatch<'_>, layout: &SampleLayout) -> Result<Tensor> {
        let samples = batch.samples();
        if let Some(given) = self.given(layout)? {
            return rows(&given, batch.item_indices(given.shape()[0], "baseline images")?.into_iter());
        }
        let values = batch.images.to_f64();
        let each = values.chunks(layout.len()).filter_map(|image| self.of_value(image, layout));
        Tensor::new(batch_of(samples, layout.dims()), each.flatten().collect::<Vec<f64>>())
    }

    /// The given baseline images, `[count, …]`; none for other baselines.
    pub(crate) fn given(&self, layout: &SampleLayout) -> Result<Option<Tensor>> {
        let Baseline::Images(given) = self else { return Ok(None) };
        let dims = layout.dims();
        let alone = given.shape() == dims;
        let given = if alone { given.clone().reshaped(batch_of(1, dims))? } else { given.clone() };
        match given.shape().split_first() {
            Some((&count, found)) if found == dims && count > 0 => Ok(Some(given)),
            _ => Err(Error::shape(format!(
                "the baseline has the shape {:?}, expected that of an image, {dims:?}",
                given.shape()
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use monosplit_graph::Shape;

    use super::*;
    use crate::channels::Axes;
    use crate::explain_batch::{BatchPosition, Class, Settings};

    /// The baselines of a batch that is the whole set of images.
    fn found(baseline: &Baseline, images: &Tensor, dims: &[usize]) -> Result<Tensor> {
        baseline.images(&ExplainBatch::new(images, &Class::Top, &Settings::default()), &layout(dims))
    }

    fn layout(dims: &[usize]) -> SampleLayout {
        let channels = (dims.len() > 1).then_some(1);
        SampleLayout::new(&Shape::batched(dims), Axes { channels, image_channels: 1 }).unwrap()
    }

    #[test]
    fn the_mean_is_taken_for_each_channel_of_each_image() {
        let images = Tensor::new([2, 2, 1, 2], vec![1f32, 3.0, 10.0, 20.0, 0.0, 0.0, 1.0, 1.0]).unwrap();
        let found = found(&Baseline::Mean, &images, &[2, 1, 2]).unwrap();
        assert_eq!(&*found.to_f64(), &[2.0, 2.0, 15.0, 15.0, 0.0, 0.0, 1.0, 1.0]);
    }

    #[test]
    fn one_image_serves_all_samples_and_a_wrong_shape_is_refused() {
        let images = Tensor::new([2, 2], vec![0f32; 4]).unwrap();
        let one = Baseline::Images(Tensor::vector(vec![5f32, 6.0]));
        assert_eq!(&*found(&one, &images, &[2]).unwrap().to_f64(), &[5.0, 6.0, 5.0, 6.0]);
        let wrong = Baseline::Images(Tensor::vector(vec![5f32, 6.0, 7.0]));
        assert!(found(&wrong, &images, &[2]).unwrap_err().to_string().contains("[2]"));
        let many = Baseline::Images(Tensor::new([3, 2], vec![0f32; 6]).unwrap());
        assert!(found(&many, &images, &[2]).unwrap_err().to_string().contains("3 baseline images"));
    }

    #[test]
    fn each_image_of_a_series_has_its_own_however_the_series_is_divided() {
        let images = Tensor::new([2, 1], vec![0f32; 2]).unwrap();
        let baseline = Baseline::Images(Tensor::new([4, 1], vec![1f32, 2.0, 3.0, 4.0]).unwrap());
        let asked = |offset: usize, is_last: bool| {
            let (class, settings) = (Class::Top, Settings::default());
            let position = BatchPosition { offset, is_last };
            let batch =
                ExplainBatch { position: Some(position), ..ExplainBatch::new(&images, &class, &settings) };
            baseline.images(&batch, &layout(&[1])).map(|found| found.to_f64().to_vec())
        };
        assert_eq!(asked(0, false).unwrap(), [1.0, 2.0]);
        assert_eq!(asked(2, true).unwrap(), [3.0, 4.0]);
        assert!(asked(0, true).is_err(), "too many");
        assert!(asked(4, true).is_err(), "too few");
    }
}
