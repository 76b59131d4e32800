//! The evaluated model: its class scores, and the maps of groups of candidates, compiled once and run on many images.

use std::borrow::Cow;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex};

use monosplit_engine::Engine;
use monosplit_explain::{
    Class, ExplainBatch, Explainer, HeldNetwork, HeldValues, MapRequest, SaliencyMap, Settings,
};
use monosplit_graph::batch::{rows, samples_interact};
use monosplit_graph::{Data, Error, Graph, Result, Tensor};

use crate::candidate::{Candidate, Source};
use crate::given_maps::GivenMaps;
use crate::metric::ExplainedNetwork;
use crate::perturbation::{PerturbationScorer, Perturbations};
use crate::randomisation::{randomised, trained};

/// The number of groups whose programs stay compiled. An ablation evaluates the same groups repeatedly.
const CACHED_PROGRAMS: usize = 3;

/// A network compiled for class scores and for maps.
pub struct EvaluatedModel<'a> {
    graph: Cow<'a, Graph>,
    engine: &'a dyn Engine,
    /// An explainer without maps runs the network alone, at any batch size.
    scores: Explainer,
    /// The same with the choices of its target held at another image.
    held: Option<HeldScores>,
    compiled: Mutex<Vec<(Vec<MapRequest>, Arc<Explainer>)>>,
    perturbation_scorer: PerturbationScorer,
}

impl<'a> EvaluatedModel<'a> {
    /// Compiles `graph`, whose first input is the image `[N, C, H, W]` and whose first output holds the class scores.
    pub fn new(graph: &'a Graph, engine: &'a dyn Engine) -> Result<Self> {
        Self::of(Cow::Borrowed(graph), engine)
    }

    /// The same for a graph that nobody else needs.
    pub fn owned(graph: Graph, engine: &'a dyn Engine) -> Result<Self> {
        Self::of(Cow::Owned(graph), engine)
    }

    fn of(graph: Cow<'a, Graph>, engine: &'a dyn Engine) -> Result<Self> {
        if samples_interact(&graph) {
            return Err(Error::unsupported(
                "in this network the samples of a batch depend on each other, so one image has no score of its own; \
                 export it in evaluation mode",
            ));
        }
        let scores = Explainer::new(&graph, &[], engine)?;
        let held = HeldScores::new(&graph, engine)?;
        Ok(EvaluatedModel {
            graph,
            engine,
            scores,
            held,
            compiled: Mutex::new(Vec::new()),
            perturbation_scorer: PerturbationScorer::default(),
        })
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The class scores `[N, classes]` of images.
    pub fn scores(&self, images: &Tensor) -> Result<Tensor> {
        Ok(self.scores.explain(images, &Class::Index(0), &Settings::default())?.logits)
    }

    /// The scores `[N, classes]` of perturbed copies of an image `[1, C, H, W]`: choices that a target makes from the forward
    /// pass are those of the image.
    fn perturbed_scores(&self, copies: &Tensor, image: &Tensor) -> Result<Tensor> {
        self.held.as_ref().map_or_else(|| self.scores(copies), |held| held.scores(copies, image))
    }

    /// The class of the highest score of each image.
    pub fn classes(&self, images: &Tensor) -> Result<Vec<usize>> {
        Ok(self.scores.explain(images, &Class::Top, &Settings::default())?.classes)
    }

    /// What metrics ask about while they measure a map of `image` `[1, C, H, W]`: scores of this model, and maps of other
    /// images by the same method.
    pub fn measured<'p>(
        &'p self,
        image: &'p Tensor,
        maps: &'p dyn MapFunction,
    ) -> impl ExplainedNetwork + 'p {
        MeasuredImage { model: self, image, maps }
    }

    /// Forgets the scores of perturbed images, so that the next measurement computes all of them.
    pub fn clear_cache(&self) {
        self.perturbation_scorer.clear_cache();
    }

    /// Compiles a group of candidates with the same run-time settings.
    pub fn compile_group(&self, candidates: &[&Candidate]) -> Result<CompiledGroup> {
        let mut requests: Vec<MapRequest> = Vec::new();
        let mut origins = Vec::with_capacity(candidates.len());
        for candidate in candidates {
            let Some(request) = candidate.request() else {
                origins.push(match &candidate.source {
                    Source::Given(maps) => MapOrigin::Given(maps.clone()),
                    _ => MapOrigin::Mask,
                });
                continue;
            };
            let at = requests.iter().position(|known| *known == request).unwrap_or_else(|| {
                requests.push(request);
                requests.len() - 1
            });
            origins.push(MapOrigin::Computed(at));
        }
        let settings = candidates.first().map_or_else(Settings::default, |first| first.settings.clone());
        if candidates.iter().any(|c| c.settings != settings && matches!(c.source, Source::Method(..))) {
            return Err(Error::argument("candidates of a group have the same run-time settings"));
        }
        let explainer = self.explainer(&requests)?;
        let absolute = candidates.iter().map(|candidate| candidate.configuration.absolute).collect();
        Ok(CompiledGroup { explainer, requests, settings, origins, absolute })
    }

    fn explainer(&self, requests: &[MapRequest]) -> Result<Arc<Explainer>> {
        let Ok(mut compiled) = self.compiled.lock() else {
            return Ok(Arc::new(Explainer::new(&self.graph, requests, self.engine)?));
        };
        if let Some(at) = compiled.iter().position(|(known, _)| known == requests) {
            let found = compiled.remove(at);
            let explainer = found.1.clone();
            compiled.push(found);
            return Ok(explainer);
        }
        if compiled.len() >= CACHED_PROGRAMS {
            compiled.remove(0);
        }
        let explainer = Arc::new(Explainer::new(&self.graph, requests, self.engine)?);
        compiled.push((requests.to_vec(), explainer.clone()));
        Ok(explainer)
    }
}

/// Candidates whose maps are computed together.
pub struct CompiledGroup {
    explainer: Arc<Explainer>,
    requests: Vec<MapRequest>,
    settings: Settings,
    origins: Vec<MapOrigin>,
    absolute: Vec<bool>,
}

/// Where the map of a candidate comes from.
enum MapOrigin {
    /// The index of its map among those of the explainer.
    Computed(usize),
    /// The object mask.
    Mask,
    /// Maps that were made elsewhere.
    Given(GivenMaps),
}

/// An image as candidates need it that do not compute their map.
#[derive(Clone, Copy, Debug)]
pub struct ImageFacts<'a> {
    /// Its id in the store.
    pub id: i64,
    /// Its object mask.
    pub mask: Option<&'a [bool]>,
}

/// The maps of all candidates of a compiled group for a batch of images.
#[derive(Clone, Debug)]
pub struct Maps(Vec<Tensor>);

impl CompiledGroup {
    /// The maps `[N, H, W]` of images, each for its own class.
    pub fn maps(&self, images: &Tensor, classes: &[usize]) -> Result<Maps> {
        let class = Class::PerSample(classes.to_vec());
        let batch = ExplainBatch { position: None, ..ExplainBatch::new(images, &class, &self.settings) };
        let explained = self.explainer.explain_unchecked(&batch)?;
        explained.maps.into_iter().map(scaled).collect::<Result<_>>().map(Maps)
    }

    /// The map of one candidate for image `index` of a batch, one value for each pixel; `None` if the candidate is the mask
    /// and the image has none.
    pub fn of(
        &self,
        maps: &Maps,
        candidate: usize,
        index: usize,
        image: &ImageFacts<'_>,
    ) -> Result<Option<Tensor>> {
        let map = match &self.origins[candidate] {
            MapOrigin::Computed(place) => rows(&maps.0[*place], index..index + 1)?,
            MapOrigin::Mask => return drawn(&[image.mask]),
            MapOrigin::Given(maps) => maps.of(image.id)?,
        };
        self.signed(map, candidate).map(Some)
    }

    /// A map, or its absolute value if the candidate asks for it.
    fn signed(&self, map: Tensor, candidate: usize) -> Result<Tensor> {
        if !self.absolute[candidate] {
            return Ok(map);
        }
        let shape = map.shape().to_vec();
        match map.data() {
            Data::F64(values) => Tensor::new(shape, values.iter().map(|v| v.abs()).collect::<Vec<_>>()),
            _ => Tensor::new(shape, map.to_f32().iter().map(|v| v.abs()).collect::<Vec<_>>()),
        }
    }

    /// Whether a candidate has maps of the images alone: they were made elsewhere and cannot be computed for others.
    pub fn is_given(&self, candidate: usize) -> bool {
        matches!(self.origins[candidate], MapOrigin::Given(_))
    }
}

/// The values of a map multiplied by two to the power of its exponents.
fn scaled(map: SaliencyMap) -> Result<Tensor> {
    if map.exponents.iter().all(|&exponent| exponent == 0) {
        return Ok(map.values);
    }
    let size = map.values.len() / map.exponents.len().max(1);
    let values = map.values.to_f64();
    let scaled = values.chunks(size.max(1)).zip(&map.exponents).flat_map(|(sample, &exponent)| {
        let factor = f64::from(exponent).exp2();
        sample.iter().map(move |v| v * factor)
    });
    Tensor::new(map.values.shape().to_vec(), scaled.collect::<Vec<_>>())
}

/// Masks as maps of ones and zeros; `None` if one is missing.
fn drawn(masks: &[Option<&[bool]>]) -> Result<Option<Tensor>> {
    let mut values = Vec::new();
    for mask in masks {
        let Some(mask) = mask else { return Ok(None) };
        values.extend(mask.iter().map(|&inside| f32::from(u8::from(inside))));
    }
    let size = values.len() / masks.len().max(1);
    Tensor::new([masks.len(), 1, size], values).map(Some)
}

/// Maps of perturbed images. All candidates of a group read the maps of one run.
#[derive(Default)]
pub(crate) struct MapCache(Mutex<Vec<CachedMaps>>);

/// Images, the class that was explained, and the maps.
struct CachedMaps {
    hash: u64,
    images: Tensor,
    class: usize,
    maps: Arc<Maps>,
}

impl MapCache {
    /// Removes all entries.
    pub(crate) fn clear(&self) {
        if let Ok(mut known) = self.0.lock() {
            known.clear();
        }
    }

    fn maps(&self, compiled_group: &CompiledGroup, images: &Tensor, class: usize) -> Result<Arc<Maps>> {
        let mut hasher = DefaultHasher::new();
        images.to_f32().iter().for_each(|v| v.to_bits().hash(&mut hasher));
        let hash = hasher.finish();
        if let Ok(known) = self.0.lock() {
            let same = |one: &&CachedMaps| one.hash == hash && one.class == class && one.images == *images;
            if let Some(one) = known.iter().find(same) {
                return Ok(one.maps.clone());
            }
        }
        let samples = images.shape().first().copied().unwrap_or(0);
        let maps = Arc::new(compiled_group.maps(images, &vec![class; samples])?);
        if let Ok(mut known) = self.0.lock() {
            known.push(CachedMaps { hash, images: images.clone(), class, maps: maps.clone() });
        }
        Ok(maps)
    }
}

/// A network that reads the choices of its target.
struct HeldScores {
    values: HeldValues,
    scores: Explainer,
}

impl HeldScores {
    /// None if the network's target makes no choice from the forward pass.
    fn new(graph: &Graph, engine: &dyn Engine) -> Result<Option<Self>> {
        let Some(HeldNetwork { graph, values }) = HeldNetwork::new(graph, engine)? else { return Ok(None) };
        Ok(Some(HeldScores { values, scores: Explainer::new(&graph, &[], engine)? }))
    }

    fn scores(&self, copies: &Tensor, image: &Tensor) -> Result<Tensor> {
        let (class, settings) = (Class::Index(0), Settings::default());
        let held = self.values.of(&ExplainBatch::new(image, &class, &settings))?;
        let count = copies.shape().first().copied().unwrap_or(0);
        let repeated =
            |(name, value): (&str, Tensor)| Ok((name.to_owned(), rows(&value, (0..count).map(|_| 0))?));
        let held: Vec<(String, Tensor)> = held.into_iter().map(repeated).collect::<Result<_>>()?;
        let given: Vec<(&str, Tensor)> =
            held.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        let batch = ExplainBatch { other_inputs: &given, ..ExplainBatch::new(copies, &class, &settings) };
        Ok(self.scores.explain_batch(&batch)?.logits)
    }
}

/// How the evaluated method explains other images than the measured one, and other networks.
pub trait MapFunction: Sync {
    /// The maps `[N, H, W]` of preprocessed images for one class.
    fn maps(&self, images: &Tensor, class: usize) -> Result<Tensor>;

    /// What the method computes, for maps of networks with re-initialised layers; `None` for maps that are not computed by a
    /// method of ours.
    fn method(&self) -> Option<(&MapRequest, &Settings)> {
        None
    }

    /// What is done to a map of the method before it is measured.
    fn finished(&self, map: Tensor) -> Result<Tensor> {
        Ok(map)
    }
}

/// The [`ExplainedNetwork`] of one measured image: scores by an [`EvaluatedModel`], maps by a [`MapFunction`].
struct MeasuredImage<'p> {
    model: &'p EvaluatedModel<'p>,
    /// The image, unperturbed.
    image: &'p Tensor,
    maps: &'p dyn MapFunction,
}

impl ExplainedNetwork for MeasuredImage<'_> {
    fn scores(&self, images: &Tensor) -> Result<Tensor> {
        self.model.perturbed_scores(images, self.image)
    }

    fn preferred_batch_size(&self) -> Option<usize> {
        self.model.engine.preferred_batch_size()
    }

    fn scores_after(
        &self,
        image: &Tensor,
        changes: &dyn Perturbations,
        batch: Option<usize>,
    ) -> Result<Option<Tensor>> {
        let EvaluatedModel { graph, engine, perturbation_scorer, held, .. } = self.model;
        if held.is_some() {
            return Ok(None);
        }
        perturbation_scorer.scores(graph, *engine, image, changes, batch)
    }

    fn maps(&self, images: &Tensor, class: usize) -> Result<Tensor> {
        self.maps.maps(images, class)
    }

    fn randomised_maps(&self, image: &Tensor, class: usize, seed: u64) -> Result<Option<Vec<Tensor>>> {
        let Some((request, settings)) = self.maps.method() else { return Ok(None) };
        let EvaluatedModel { graph, engine, .. } = self.model;
        let &[_, _, height, width] = image.shape() else {
            return Err(Error::shape(format!("expected an image [1, C, H, W], found {:?}", image.shape())));
        };
        let mut maps = Vec::new();
        // Only one network is held at a time, because all of them might not fit into memory.
        for count in 1..=trained(graph).len() {
            let (randomised_graph, _) = randomised(graph, count, seed)?;
            let explainer = Explainer::new(&randomised_graph, std::slice::from_ref(request), *engine)?;
            let class = Class::Index(class);
            let explained = explainer.explain_unchecked(&ExplainBatch::new(image, &class, settings))?;
            let map = explained.maps.into_iter().next();
            let map = scaled(map.ok_or_else(|| Error::argument("there is no map"))?)?;
            maps.push(self.maps.finished(map)?.reshaped([height, width])?);
        }
        Ok(Some(maps))
    }
}

/// A method compiled for a network: the maps of any image.
pub struct CompiledMethod<'a> {
    /// The compiled method. Its last map is the one that is measured.
    pub explainer: &'a Explainer,
    /// What is computed.
    pub request: &'a MapRequest,
    /// The numbers of a split.
    pub settings: &'a Settings,
}

impl MapFunction for CompiledMethod<'_> {
    fn maps(&self, images: &Tensor, class: usize) -> Result<Tensor> {
        let explained = self.explainer.explain(images, &Class::Index(class), self.settings)?;
        scaled(explained.maps.into_iter().next_back().ok_or_else(|| Error::argument("there is no map"))?)
    }

    fn method(&self) -> Option<(&MapRequest, &Settings)> {
        Some((self.request, self.settings))
    }
}

/// The maps of one candidate of a compiled group.
pub(crate) struct CandidateMaps<'p> {
    pub(crate) compiled_group: &'p CompiledGroup,
    pub(crate) candidate: usize,
    pub(crate) mask: Option<&'p [bool]>,
    pub(crate) map_cache: &'p MapCache,
}

impl MapFunction for CandidateMaps<'_> {
    fn maps(&self, images: &Tensor, class: usize) -> Result<Tensor> {
        let &[samples, _, height, width] = images.shape() else {
            return Err(Error::shape(format!("expected images [N, C, H, W], found {:?}", images.shape())));
        };
        let maps = match &self.compiled_group.origins[self.candidate] {
            MapOrigin::Mask => drawn(&vec![self.mask; samples])?
                .ok_or_else(|| Error::argument("the image has no mask to show"))?,
            MapOrigin::Given(_) => {
                return Err(Error::argument("maps that were given cannot be computed for other images"));
            }
            MapOrigin::Computed(place) => {
                let maps = self.map_cache.maps(self.compiled_group, images, class)?;
                self.compiled_group.signed(maps.0[*place].clone(), self.candidate)?
            }
        };
        maps.reshaped([samples, height, width])
    }

    fn method(&self) -> Option<(&MapRequest, &Settings)> {
        let MapOrigin::Computed(place) = self.compiled_group.origins[self.candidate] else { return None };
        Some((&self.compiled_group.requests[place], &self.compiled_group.settings))
    }

    fn finished(&self, map: Tensor) -> Result<Tensor> {
        self.compiled_group.signed(map, self.candidate)
    }
}

#[cfg(test)]
mod tests {
    use monosplit_engine::{Cpu, Precision};
    use monosplit_explain::{Mask, Parameters, Target, settled};
    use monosplit_graph::{Kind, Noise, Shape};

    use super::*;

    /// Perturbed copies are measured by the region in which the network finds the class in the image as it is.
    #[test]
    fn copies_are_scored_by_the_choices_of_the_image() {
        let mut network = Graph::new();
        let image = network.input("x", Shape::batched(&[3, 4, 4]), Kind::Float);
        let maps = network.rectified(image).unwrap();
        network.output("maps", maps);
        let target = Target::Region { output: None, mask: Mask::Predicted, class: None };
        let graph = target.graft(&network, Parameters::Constant).unwrap().graph;
        let engine = Cpu::default().precision(Precision::F64);
        let noise = Noise::new(3);
        let values: Vec<f64> = (0..144).map(|i| noise.gaussian(i)).collect();
        let (image, copies) = (
            Tensor::new([1, 3, 4, 4], values[..48].to_vec()).unwrap(),
            Tensor::new([2, 3, 4, 4], values[48..].to_vec()).unwrap(),
        );
        let model = EvaluatedModel::new(&graph, &engine).unwrap();
        let fixed = settled(&graph, &image, &engine).unwrap();
        let expected = EvaluatedModel::new(&fixed, &engine).unwrap().scores(&copies).unwrap();
        assert_eq!(model.perturbed_scores(&copies, &image).unwrap(), expected);
        assert_ne!(model.scores(&copies).unwrap(), expected);
    }
}
