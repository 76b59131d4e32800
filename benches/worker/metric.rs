//! A metric of the explanations of some images. It needs scores and maps of perturbed copies of the images.

use std::path::Path;
use std::sync::Mutex;

use monosplit::catalogue;
use monosplit::engine::Engine;
use monosplit::explain::{Class, Explainer, Finish, MapRequest, Settings, Size};
use monosplit::graph::{Graph, npy};
use monosplit::{Error, Inference, Model, Result, Tensor};
use monosplit_eval::{Case, Metric, Network, PerturbationScorer, Perturbations, metrics};

use crate::Results;
use crate::job::{Job, Options};

/// Compiles the network and the method `name=`, and reads `metric=`, the maps `maps=` and the masks `masks=` (`.npy` files with
/// one for each image). Without `maps=` maps are computed, without `masks=` there are none. An undefined value is NaN.
pub(crate) fn load(
    model: &Model,
    images: &Tensor,
    engine: Box<dyn Engine>,
    options: &Options<'_>,
) -> Result<Option<Box<dyn Job>>> {
    let chosen = catalogue::parse(options.get("name").unwrap_or("gradient"), &[])?;
    let layer = options.get("layers").map(str::to_owned);
    let finish = Finish { size: Size::Input, ..Finish::default() };
    let requests = [MapRequest::of(chosen.method.clone(), layer).finish(finish)];
    let network = EvaluatedNetwork {
        inference: Mutex::new(Inference::new(model, &*engine)?),
        explainer: Explainer::new(model.graph(), &requests, &*engine)?,
        settings: chosen.settings,
        graph: model.graph().clone(),
        engine,
        perturbation_scorer: PerturbationScorer::default(),
    };
    let class = options.number("class")?.unwrap_or(0);
    let maps = match options.get("maps") {
        Some(path) => read(path)?,
        None => network.maps(images, class)?,
    };
    let masks = options.get("masks").map(read).transpose()?;
    Ok(Some(Box::new(Measuring {
        metric: metrics::parse(options.need("metric")?)?,
        images: rows(images, 4)?.into_iter().map(one).collect::<Result<_>>()?,
        maps: rows(&maps, 3)?,
        masks: match &masks {
            Some(masks) => {
                rows(masks, 3)?.iter().map(|m| m.to_f64().iter().map(|v| *v > 0.0).collect()).collect()
            }
            None => Vec::new(),
        },
        network,
        class,
    })))
}

fn read(path: &str) -> Result<Tensor> {
    let path = Path::new(path);
    npy::read(&std::fs::read(path).map_err(|cause| Error::io(path, cause))?)
}

/// The samples of a tensor, which must have `axes` axes.
fn rows(tensor: &Tensor, axes: usize) -> Result<Vec<Tensor>> {
    let shape = tensor.shape();
    if shape.len() != axes || tensor.is_empty() {
        return Err(Error::shape(format!("expected {axes} axes, found {shape:?}")));
    }
    let values = tensor.to_f32();
    values.chunks(tensor.len() / shape[0]).map(|row| Tensor::new(&shape[1..], row.to_vec())).collect()
}

/// A batch of one.
fn one(image: Tensor) -> Result<Tensor> {
    let mut shape = vec![1];
    shape.extend(image.shape());
    image.reshaped(shape)
}

struct EvaluatedNetwork {
    inference: Mutex<Inference>,
    explainer: Explainer,
    settings: Settings,
    graph: Graph,
    engine: Box<dyn Engine>,
    perturbation_scorer: PerturbationScorer,
}

impl Network for EvaluatedNetwork {
    fn scores(&self, images: &Tensor) -> Result<Tensor> {
        let mut inference =
            self.inference.lock().map_err(|_| Error::argument("the network has failed before"))?;
        inference.run(std::slice::from_ref(images))
    }

    fn preferred_batch_size(&self) -> Option<usize> {
        self.engine.preferred_batch_size()
    }

    fn scores_after(
        &self,
        image: &Tensor,
        changes: &dyn Perturbations,
        batch: Option<usize>,
    ) -> Result<Option<Tensor>> {
        self.perturbation_scorer.scores(&self.graph, &*self.engine, image, changes, batch)
    }

    fn maps(&self, images: &Tensor, class: usize) -> Result<Tensor> {
        let explained = self.explainer.explain(images, &Class::Index(class), &self.settings)?;
        let map = explained.maps.into_iter().next();
        map.map(|map| map.values).ok_or_else(|| Error::argument("the method gave no map"))
    }
}

struct Measuring {
    metric: Box<dyn Metric>,
    images: Vec<Tensor>,
    maps: Vec<Tensor>,
    masks: Vec<Vec<bool>>,
    network: EvaluatedNetwork,
    class: usize,
}

impl Job for Measuring {
    fn run(&mut self) -> Result<Results> {
        // Every run starts with an empty cache.
        self.network.perturbation_scorer.clear_cache();
        let mut values = Vec::new();
        for (index, (image, map)) in self.images.iter().zip(&self.maps).enumerate() {
            let mask = self.masks.get(index).map(Vec::as_slice);
            let (network, class) = (&self.network, self.class);
            let case = Case { image, class, map, mask, network, seed: index as u64 };
            values.push(self.metric.measure(&case)?.unwrap_or(f64::NAN));
        }
        let maps: Vec<f32> = self.maps.iter().flat_map(|map| map.to_f32().to_vec()).collect();
        let mut shape = vec![self.maps.len()];
        shape.extend(self.maps[0].shape());
        Ok(vec![
            ("values".to_owned(), Tensor::vector(values)),
            ("maps".to_owned(), Tensor::new(shape, maps)?),
        ])
    }
}
