//! Occlusion: the drop of the score when a window of the image is replaced by a baseline.

use monosplit_engine::Engine;
use monosplit_graph::{Error, Result, Tensor};

use crate::baseline::Baseline;
use crate::explain_batch::ExplainBatch;
use crate::method::{
    AttributedLayer, Attributions, GraphMethod, Method, MultiPass, NetworkLayer, PreparedMethod, Procedure,
};
use crate::network_partition::{batch_of, resolve_layer};
use crate::sample_layout::{Region, SampleLayout};
use crate::scorer::{BATCH, Scorer};

/// The default side of a window, as a fraction of the side of the image.
const SHARE: usize = 7;

/// `f(x) − f(x with the window replaced)`, at each position averaged over the windows that contain it. A window has as many
/// axes as the input has besides samples and channels: two for images `[N, C, H, W]`, one for series `[N, C, T]`, three for
/// volumes `[N, C, D, H, W]`. The last window along an axis ends at the border of the input.
#[derive(Clone, Debug, PartialEq)]
pub struct Occlusion {
    /// The length of the window along each axis, or one for all; by default a seventh of the lengths of the input, and one
    /// feature of a table `[N, F]`.
    pub window: Option<Vec<usize>>,
    /// The stride along each axis, or one for all; by default half the window.
    pub stride: Option<Vec<usize>>,
    /// What replaces the window.
    pub baseline: Baseline,
    /// The number of windows in a batch.
    pub batch: usize,
}

impl Default for Occlusion {
    fn default() -> Self {
        Occlusion { window: None, stride: None, baseline: Baseline::default(), batch: BATCH }
    }
}

impl Method for Occlusion {
    fn name(&self) -> String {
        "occlusion".into()
    }

    fn procedure(&self) -> Procedure<'_> {
        Procedure::MultiPass(self)
    }

    fn takes_inputs_in_turn(&self) -> bool {
        true
    }

    fn baseline_array(&self) -> Option<&Tensor> {
        self.baseline.array()
    }

    fn with_baseline_array(&self, baseline: Tensor) -> Option<std::sync::Arc<dyn Method>> {
        let baseline = Baseline::Images(baseline);
        Some(std::sync::Arc::new(Occlusion { baseline, ..self.clone() }))
    }
}

impl MultiPass for Occlusion {
    fn unrolled(&self) -> Option<&dyn GraphMethod> {
        Some(self)
    }

    fn prepare(&self, target: &NetworkLayer<'_>, engine: &dyn Engine) -> Result<Box<dyn PreparedMethod>> {
        let (_, _, layout) = resolve_layer(target)?;
        let windows = self.windows(&layout)?;
        let axes = 0..layout.spatial_dims().len();
        let most = |axis: usize| windows.iter().map(|window| window[axis].len()).max().unwrap_or(1);
        let largest: Vec<usize> = axes.map(most).collect();
        let scorer = Scorer::local(target, engine, self.batch, &largest)?;
        let layer = target.layer.map(str::to_owned);
        Ok(Box::new(Sliding { windows, baseline: self.baseline.clone(), scorer, layer }))
    }
}

impl Occlusion {
    /// The windows, row by row.
    pub(crate) fn windows(&self, layout: &SampleLayout) -> Result<Vec<Region>> {
        let lengths = layout.spatial_dims();
        let share = |&length: &usize| if layout.is_table() { 1 } else { length.div_ceil(SHARE) };
        let window = along_axes("window", self.window.as_deref(), lengths)?;
        let window = window.unwrap_or_else(|| lengths.iter().map(share).collect());
        let stride = along_axes("stride", self.stride.as_deref(), lengths)?;
        let stride = stride.unwrap_or_else(|| window.iter().map(|side| side.div_ceil(2)).collect());
        let mut windows = vec![Region::new()];
        for ((&length, &window), &stride) in lengths.iter().zip(&window).zip(&stride) {
            let spans = spans(length, window, stride)?;
            let longer = |region: &Region| {
                let region = region.clone();
                spans
                    .iter()
                    .map(move |span| [region.as_slice(), std::slice::from_ref(span)].concat())
                    .collect::<Vec<_>>()
            };
            windows = windows.iter().flat_map(longer).collect();
        }
        Ok(windows)
    }
}

/// A number for each axis, from one for each or one for all; none if none were given.
fn along_axes(what: &str, given: Option<&[usize]>, lengths: &[usize]) -> Result<Option<Vec<usize>>> {
    match given {
        None => Ok(None),
        Some(&[one]) => Ok(Some(vec![one; lengths.len()])),
        Some(each) if each.len() == lengths.len() => Ok(Some(each.to_vec())),
        Some(each) => Err(Error::argument(format!(
            "the {what} {each:?} has {} axes, but the input has {} of the lengths {lengths:?}; give one number for each, or \
             one for all",
            each.len(),
            lengths.len()
        ))),
    }
}

/// The positions of a window along a side.
fn spans(length: usize, window: usize, stride: usize) -> Result<Vec<std::ops::Range<usize>>> {
    if !(1..=length).contains(&window) || stride == 0 || (stride > window && window < length) {
        return Err(Error::argument(format!(
            "a window of {window} that moves by {stride} along {length} positions: expected a window of 1 to {length} \
             and a stride of 1 to the window's size"
        )));
    }
    let count = (length - window).div_ceil(stride) + 1;
    Ok((0..count).map(|i| i * stride..(i * stride + window).min(length)).collect())
}

/// Occlusion compiled for a layer.
struct Sliding {
    windows: Vec<Region>,
    baseline: Baseline,
    scorer: Scorer,
    layer: Option<String>,
}

impl PreparedMethod for Sliding {
    fn attribute(&self, batch: &ExplainBatch<'_>, classes: &[usize]) -> Result<Attributions> {
        let scorer = &self.scorer;
        let cut_values = scorer.cut_values(batch, classes)?;
        let replacements = scorer.replacements(&cut_values, &self.baseline)?;
        let layout = scorer.layout();
        let mut falls = vec![vec![0.0; layout.position_count()]; cut_values.samples()];
        let mut whole = vec![0.0; cut_values.samples()];
        scorer.run_perturbed_regions(
            &cut_values,
            &vec![self.windows.len() + 1; cut_values.samples()],
            // The first copy is the unperturbed image, for which any window will do.
            |perturbation| self.windows[perturbation.number.saturating_sub(1)].clone(),
            |perturbation, image| {
                let Some(window) = perturbation.number.checked_sub(1).map(|i| &self.windows[i]) else {
                    return;
                };
                for channel in 0..layout.channels() {
                    layout.for_each_position(window, |position| {
                        let element = layout.element(channel, position);
                        image[element] = replacements[perturbation.sample][element];
                    });
                }
            },
            |perturbation, output| match perturbation.number.checked_sub(1) {
                None => whole[perturbation.sample] = output.score(),
                Some(i) => {
                    let (fall, map) =
                        (whole[perturbation.sample] - output.score(), &mut falls[perturbation.sample]);
                    layout.for_each_position(&self.windows[i], |position| map[position] += fall);
                }
            },
        )?;
        let mut times = vec![0.0; layout.position_count()];
        self.windows
            .iter()
            .for_each(|window| layout.for_each_position(window, |position| times[position] += 1.0));
        falls.iter_mut().for_each(|map| map.iter_mut().zip(&times).for_each(|(v, times)| *v /= times));
        let values = Tensor::new(batch_of(cut_values.samples(), layout.spatial_dims()), falls.concat())?;
        Ok(Attributions { values, diagnostics: Vec::new() })
    }

    fn attributed_layer(&self) -> AttributedLayer {
        AttributedLayer { layer: self.layer.clone(), channels: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_cover_every_place_and_end_with_the_image() {
        for (length, window, stride) in [(7, 3, 2), (7, 3, 3), (8, 8, 100), (5, 1, 1), (224, 32, 16)] {
            let spans = spans(length, window, stride).unwrap();
            assert!((0..length).all(|position| spans.iter().any(|span| span.contains(&position))));
            assert!(spans.iter().all(|span| span.end <= length && !span.is_empty()));
        }
        assert!(spans(7, 8, 1).is_err());
        assert!(spans(7, 3, 4).is_err());
        assert!(spans(7, 3, 0).is_err());
    }
}
