//! Occlusion: the drop of the score when a window of the image is replaced by a baseline.

use monosplit_engine::Engine;
use monosplit_graph::{Error, Result, Tensor};

use crate::baseline::Baseline;
use crate::explain_batch::ExplainBatch;
use crate::method::{
    AttributedLayer, Attributions, Method, MultiPass, NetworkLayer, PreparedMethod, Procedure,
};
use crate::network_partition::{batch_of, resolve_layer};
use crate::sample_layout::SampleLayout;
use crate::scorer::{BATCH, Region, Scorer};

/// The default side of a window, as a fraction of the side of the image.
const SHARE: usize = 7;

/// `f(x) − f(x with the window replaced)`, at each position averaged over the windows that contain it. The last window of a row
/// or column ends at the border of the image.
#[derive(Clone, Debug, PartialEq)]
pub struct Occlusion {
    /// Height and width of the window; by default a seventh of those of the image.
    pub window: Option<[usize; 2]>,
    /// Vertical and horizontal stride; by default half the window.
    pub stride: Option<[usize; 2]>,
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
}

impl MultiPass for Occlusion {
    fn prepare(&self, target: &NetworkLayer<'_>, engine: &dyn Engine) -> Result<Box<dyn PreparedMethod>> {
        let (_, _, layout) = resolve_layer(target)?;
        let windows = self.windows(&layout)?;
        let most = |axis: usize| windows.iter().map(|window| window[axis].len()).max().unwrap_or(1);
        let scorer = Scorer::local(target, engine, self.batch, [most(0), most(1)])?;
        let layer = target.layer.map(str::to_owned);
        Ok(Box::new(Sliding { windows, baseline: self.baseline.clone(), scorer, layer }))
    }
}

impl Occlusion {
    fn windows(&self, layout: &SampleLayout) -> Result<Vec<Region>> {
        let (height, width) = layout.plane()?;
        let window = self.window.unwrap_or([height.div_ceil(SHARE), width.div_ceil(SHARE)]);
        let stride = self.stride.unwrap_or(window.map(|side| side.div_ceil(2)));
        let down = spans(height, window[0], stride[0])?;
        let right = spans(width, window[1], stride[1])?;
        Ok(down.iter().flat_map(|rows| right.iter().map(|columns| [rows.clone(), columns.clone()])).collect())
    }
}

/// The positions of a window along a side.
fn spans(length: usize, window: usize, stride: usize) -> Result<Vec<std::ops::Range<usize>>> {
    if !(1..=length).contains(&window) || stride == 0 || (stride > window && window < length) {
        return Err(Error::argument(format!(
            "a window of {window} that moves by {stride} along {length} pixels: expected a window of 1 to {length} \
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

impl Sliding {
    /// Calls `f` for every position of a window.
    fn at_positions(window: &Region, width: usize, mut act: impl FnMut(usize)) {
        let [rows, columns] = window;
        rows.clone().for_each(|y| columns.clone().for_each(|x| act(y * width + x)));
    }
}

impl PreparedMethod for Sliding {
    fn attribute(&self, batch: &ExplainBatch<'_>, classes: &[usize]) -> Result<Attributions> {
        let scorer = &self.scorer;
        let cut_values = scorer.cut_values(batch, classes)?;
        let replacements = scorer.replacements(&cut_values, &self.baseline)?;
        let layout = scorer.layout();
        let (_, width) = layout.plane()?;
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
                    Sliding::at_positions(window, width, |position| {
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
                    Sliding::at_positions(&self.windows[i], width, |position| map[position] += fall);
                }
            },
        )?;
        let mut times = vec![0.0; layout.position_count()];
        self.windows
            .iter()
            .for_each(|window| Sliding::at_positions(window, width, |position| times[position] += 1.0));
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
