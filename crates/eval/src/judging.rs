//! An examiner who judges maps by metrics.

use monosplit_graph::batch::{rows, stack};
use monosplit_graph::{Error, Kind, Noise, Result, Tensor};

use crate::candidate::Candidate;
use crate::dataset::Sample;
use crate::examinee::{Examinee, Maps, Memory, Panel, Watched};
use crate::metric::{Case, Metric, Silence};
use crate::sweep::{Examiner, Outcome, Seen};

/// Judges maps by metrics.
pub struct Judging<'a> {
    examinee: &'a Examinee<'a>,
    metrics: &'a [Box<dyn Metric>],
    seed: u64,
    memory: Memory,
    panel: Option<Panel>,
    looked: Looked,
}

/// Images and their maps.
#[derive(Default)]
pub(crate) struct Looked {
    pub(crate) samples: Vec<Sample>,
    pub(crate) classes: Vec<usize>,
    seeds: Vec<u64>,
    maps: Option<Maps>,
}

impl Looked {
    /// The maps of all candidates of a panel for some images.
    pub(crate) fn at(panel: &Panel, samples: Vec<Sample>, images: &[Seen], seed: u64) -> Result<Self> {
        let tensors: Vec<Tensor> = samples.iter().map(|sample| sample.tensor.clone()).collect();
        let classes: Vec<usize> = images.iter().map(|image| image.class).collect();
        // Every candidate sees the same perturbations of an image: differences between them are their own.
        let own = |image: &Seen| Noise::new(seed).stream(&image.hash).bits(0);
        let maps = panel.maps(&stack(&tensors, Kind::Float)?, &classes)?;
        Ok(Looked { samples, classes, seeds: images.iter().map(own).collect(), maps: Some(maps) })
    }

    /// The map `[H, W]` of one candidate for one image; none where it is the mask and there is none.
    pub(crate) fn map(&self, panel: &Panel, image: usize, candidate: usize) -> Result<Option<Tensor>> {
        let maps = self.maps.as_ref().ok_or_else(|| Error::argument("no image was looked at"))?;
        let sample = &self.samples[image];
        let &[_, _, height, width] = sample.tensor.shape() else {
            return Err(Error::shape("expected an image [1, C, H, W]"));
        };
        if panel.is_mask(candidate) {
            let mask = panel.of(maps, candidate, &[sample.mask.as_deref()])?;
            return mask.map(|mask| mask.reshaped([height, width])).transpose();
        }
        let all = panel.of(maps, candidate, &[])?.ok_or_else(|| Error::argument("there is no map"))?;
        rows(&all, image..image + 1)?.reshaped([height, width]).map(Some)
    }
}

impl<'a> Judging<'a> {
    /// Judges the maps of `examinee` by `metrics`, whose random numbers come from `seed`.
    pub fn new(examinee: &'a Examinee<'a>, metrics: &'a [Box<dyn Metric>], seed: u64) -> Self {
        Judging { examinee, metrics, seed, memory: Memory::default(), panel: None, looked: Looked::default() }
    }
}

impl Examiner for Judging<'_> {
    fn prepare(&mut self, group: &[&Candidate]) -> Result<()> {
        self.panel = Some(self.examinee.panel(group)?);
        Ok(())
    }

    fn look(&mut self, samples: Vec<Sample>, images: &[Seen]) -> Result<()> {
        let panel = self.panel.as_ref().ok_or_else(|| Error::argument("no candidates were prepared"))?;
        self.looked = Looked::at(panel, samples, images, self.seed)?;
        Ok(())
    }

    fn examine(&mut self, metric: usize, image: usize, candidate: usize) -> Result<Outcome> {
        let panel = self.panel.as_ref().ok_or_else(|| Error::argument("no candidates were prepared"))?;
        let (metric, sample) = (&self.metrics[metric], &self.looked.samples[image]);
        if metric.needs_mask() && sample.mask.is_none() {
            return Ok(Err(Silence("the image has no mask".into())));
        }
        let Some(map) = self.looked.map(panel, image, candidate)? else {
            return Ok(Err(Silence("the image has no mask".into())));
        };
        if map.to_f64().iter().any(|v| !v.is_finite()) {
            return Ok(Err(Silence("the map holds numbers that are not finite".into())));
        }
        let mask = sample.mask.as_deref();
        let network = Watched { examinee: self.examinee, panel, candidate, mask, memory: &self.memory };
        metric.measure(&Case {
            image: &sample.tensor,
            class: self.looked.classes[image],
            map: &map,
            mask,
            network: &network,
            seed: self.looked.seeds[image],
        })
    }

    fn turn(&mut self) {
        self.memory.clear();
    }
}
