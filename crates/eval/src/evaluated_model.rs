//! The evaluated model: its class scores, and the maps of groups of candidates, compiled once and run on many images.

use std::borrow::Cow;
use std::sync::{Arc, Mutex};

use monosplit_engine::Engine;
use monosplit_explain::{Class, ExplainBatch, Explainer, HeldNetwork, HeldValues, MapRequest, Settings};
use monosplit_graph::batch::{rows, samples_interact};
use monosplit_graph::{Error, Graph, Result, Tensor};

use crate::candidate::{Candidate, Source};
use crate::compiled_group::{CompiledGroup, MapOrigin, scaled};
use crate::map_function::MapFunction;
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
