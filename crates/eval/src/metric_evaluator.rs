//! The evaluator that measures maps by metrics.

use monosplit_graph::batch::stack;
use monosplit_graph::{Error, Kind, Noise, Result, Tensor};

use crate::candidate::Candidate;
use crate::compiled_group::{CompiledGroup, ImageFacts, MapCache, Maps};
use crate::dataset::DatasetSample;
use crate::evaluated_model::EvaluatedModel;
use crate::map_function::CandidateMaps;
use crate::metric::{Case, Metric, Undefined};
use crate::sweep::{EvaluatedImage, Evaluator, Outcome};

/// Measures maps by metrics.
pub struct MetricEvaluator<'a> {
    evaluated_model: &'a EvaluatedModel<'a>,
    metrics: Vec<Box<dyn Metric>>,
    seed: u64,
    map_cache: MapCache,
    compiled_group: Option<CompiledGroup>,
    loaded: LoadedBatch,
}

/// A batch of images and the maps of a group of candidates.
#[derive(Default)]
pub(crate) struct LoadedBatch {
    pub(crate) samples: Vec<DatasetSample>,
    pub(crate) classes: Vec<usize>,
    seeds: Vec<u64>,
    ids: Vec<i64>,
    maps: Option<Maps>,
}

impl LoadedBatch {
    /// Computes the maps of a compiled group for some images.
    pub(crate) fn at(
        compiled_group: &CompiledGroup,
        samples: Vec<DatasetSample>,
        images: &[EvaluatedImage],
        seed: u64,
    ) -> Result<Self> {
        let tensors: Vec<Tensor> = samples.iter().map(|sample| sample.tensor.clone()).collect();
        let classes: Vec<usize> = images.iter().map(|image| image.class).collect();
        // All candidates get the same random perturbations of an image, so that their values can be compared.
        let own = |image: &EvaluatedImage| Noise::new(seed).stream(&image.hash).bits(0);
        let maps = compiled_group.maps(&stack(&tensors, Kind::Float)?, &classes)?;
        let seeds = images.iter().map(own).collect();
        let ids = images.iter().map(|image| image.id).collect();
        Ok(LoadedBatch { samples, classes, seeds, ids, maps: Some(maps) })
    }

    /// The map `[H, W]` of one candidate for one image; `None` if the candidate is the mask and the image has none.
    pub(crate) fn map(
        &self,
        compiled_group: &CompiledGroup,
        image: usize,
        candidate: usize,
    ) -> Result<Option<Tensor>> {
        let maps = self.maps.as_ref().ok_or_else(|| Error::argument("no batch of images was loaded"))?;
        let sample = &self.samples[image];
        let &[_, _, height, width] = sample.tensor.shape() else {
            return Err(Error::shape("expected an image [1, C, H, W]"));
        };
        let facts = ImageFacts { id: self.ids[image], mask: sample.mask.as_deref() };
        let map = compiled_group.of(maps, candidate, image, &facts)?;
        map.map(|map| map.reshaped([height, width])).transpose()
    }
}

impl<'a> MetricEvaluator<'a> {
    /// Measures the maps of `evaluated_model` by `metrics`, whose random numbers come from `seed`.
    pub fn new(evaluated_model: &'a EvaluatedModel<'a>, metrics: Vec<Box<dyn Metric>>, seed: u64) -> Self {
        MetricEvaluator {
            evaluated_model,
            metrics,
            seed,
            map_cache: MapCache::default(),
            compiled_group: None,
            loaded: LoadedBatch::default(),
        }
    }
}

impl Evaluator for MetricEvaluator<'_> {
    fn prepare(&mut self, group: &[&Candidate]) -> Result<()> {
        self.compiled_group = Some(self.evaluated_model.compile_group(group)?);
        Ok(())
    }

    fn load(&mut self, samples: Vec<DatasetSample>, images: &[EvaluatedImage]) -> Result<()> {
        let compiled_group =
            self.compiled_group.as_ref().ok_or_else(|| Error::argument("no candidates were prepared"))?;
        self.loaded = LoadedBatch::at(compiled_group, samples, images, self.seed)?;
        Ok(())
    }

    fn evaluate(&mut self, metric: usize, image: usize, candidate: usize) -> Result<Outcome> {
        let compiled_group =
            self.compiled_group.as_ref().ok_or_else(|| Error::argument("no candidates were prepared"))?;
        let (metric, sample) = (&self.metrics[metric], &self.loaded.samples[image]);
        if metric.needs_mask() && sample.mask.is_none() {
            return Ok(Err(Undefined("the image has no mask".into())));
        }
        if metric.recomputes_maps() && compiled_group.is_given(candidate) {
            return Ok(Err(Undefined(
                "a given map cannot be computed for another image, class or network".into(),
            )));
        }
        let Some(map) = self.loaded.map(compiled_group, image, candidate)? else {
            return Ok(Err(Undefined("the image has no mask".into())));
        };
        if map.to_f64().iter().any(|v| !v.is_finite()) {
            return Ok(Err(Undefined("the map holds numbers that are not finite".into())));
        }
        let mask = sample.mask.as_deref();
        let maps = CandidateMaps { compiled_group, candidate, mask, map_cache: &self.map_cache };
        let network = self.evaluated_model.measured(&sample.tensor, &maps);
        metric.measure(&Case {
            image: &sample.tensor,
            class: self.loaded.classes[image],
            map: &map,
            mask,
            network: &network,
            seed: self.loaded.seeds[image],
        })
    }

    fn next_case(&mut self) {
        self.map_cache.clear();
    }
}
