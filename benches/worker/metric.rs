//! A metric of the explanations of some images. It needs scores and maps of perturbed copies of the images.

use std::path::Path;

use monosplit::catalogue;
use monosplit::engine::Engine;
use monosplit::explain::{Explainer, Finish, MapRequest, Settings, Size};
use monosplit::graph::npy;
use monosplit::{Error, Model, Result, Tensor};
use monosplit_eval::{Case, CompiledMethod, EvaluatedModel, MapFunction, Metric, metrics};

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
    // A worker measures one metric until its process ends, and so long it needs its engine.
    let engine: &'static dyn Engine = Box::leak(engine);
    let network = EvaluatedModel::owned(model.graph().clone(), engine)?;
    let explainer = Explainer::new(network.graph(), &requests, engine)?;
    let [request] = requests;
    let method = Method { explainer, request, settings: chosen.settings };
    let class = options.number("class")?.unwrap_or(0);
    let maps = match options.get("maps") {
        Some(path) => read(path)?,
        None => method.compiled().maps(images, class)?,
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
        method,
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

struct Method {
    explainer: Explainer,
    request: MapRequest,
    settings: Settings,
}

impl Method {
    fn compiled(&self) -> CompiledMethod<'_> {
        CompiledMethod { explainer: &self.explainer, request: &self.request, settings: &self.settings }
    }
}

struct Measuring {
    metric: Box<dyn Metric>,
    images: Vec<Tensor>,
    maps: Vec<Tensor>,
    masks: Vec<Vec<bool>>,
    network: EvaluatedModel<'static>,
    method: Method,
    class: usize,
}

impl Job for Measuring {
    fn run(&mut self) -> Result<Results> {
        // Every run starts with an empty cache.
        self.network.clear_cache();
        let method = self.method.compiled();
        let mut values = Vec::new();
        for (index, (image, map)) in self.images.iter().zip(&self.maps).enumerate() {
            let mask = self.masks.get(index).map(Vec::as_slice);
            let (network, class) = (&self.network.measured(image, &method), self.class);
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
