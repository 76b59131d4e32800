//! Explanation methods by their names on the command line. The bench prints `not built` for unknown ones.

use monosplit::catalogue::{self, ConfiguredMethod, MethodEntry};
use monosplit::engine::{Engine, Profile, ProfiledEngine};
use monosplit::explain::{
    ChannelReduction, Class, Explainer, Explanation, Finish, MapRequest, Settings, Size,
};
use monosplit::graph::Graph;
use monosplit::{Model, Result, Tensor};

use crate::Results;
use crate::job::{Job, Options};

/// Options of the job itself; all others are the method's.
const OWN: [&str; 14] = [
    "attributions",
    "clock",
    "engine",
    "precision",
    "input",
    "threads",
    "network",
    "class",
    "last",
    "name",
    "layers",
    "size",
    "remembering",
    "number",
];

/// Compiles the methods `name=` (separated by commas) at `layers=` (likewise; by default the image) for `class=`. With
/// `size=input` maps are scaled to the input; with `attributions=yes` each comes with its attributions, channels apart, as in
/// the Python package; with `remembering=yes` values that do not depend on the image are cached. `None`
/// if there is no such method.
pub(crate) fn load(
    model: &Model,
    images: Tensor,
    engine: Box<dyn Engine>,
    options: &Options<'_>,
) -> Result<Option<Box<dyn Job>>> {
    let names: Vec<&str> = options.need("name")?.split(',').collect();
    if names.iter().any(|name| MethodEntry::find(name).is_err()) {
        return Ok(None);
    }
    let further = options.others(&OWN);
    let chosen = names
        .iter()
        .map(|name| catalogue::parse(name, &further))
        .collect::<Result<Vec<ConfiguredMethod>>>()?;
    let layers: Vec<Option<String>> = match options.get("layers") {
        Some(layers) => layers.split(',').map(|layer| Some(layer.to_owned())).collect(),
        None => vec![None],
    };
    let size = match options.get("size") {
        Some("input") => Size::Input,
        _ => Size::Layer,
    };
    let finish = Finish { size, ..Finish::default() };
    let request = |layer: &Option<String>| -> Vec<MapRequest> {
        chosen.iter().map(|c| MapRequest::of(c.method.clone(), layer.clone()).finish(finish)).collect()
    };
    let mut requests: Vec<MapRequest> = layers.iter().flat_map(request).collect();
    if options.get("attributions") == Some("yes") {
        let kept = Finish { channels: ChannelReduction::Keep, ..Finish::default() };
        let attributions: Vec<_> = requests.iter().cloned().map(|request| request.finish(kept)).collect();
        requests = attributions.into_iter().chain(requests).collect();
    }
    let class = options.number("class")?.map_or(Class::Top, Class::Index);
    let compile = match options.get("remembering") {
        Some("yes") => Explainer::with_class_cache,
        _ => Explainer::new,
    };
    let explainer = compile(model.graph(), &requests, &*engine)?;
    let settings = chosen[0].settings.clone();
    let network = model.graph().clone();
    Ok(Some(Box::new(Explaining { network, engine, explainer, class, images, requests, settings })))
}

struct Explaining {
    network: Graph,
    engine: Box<dyn Engine>,
    explainer: Explainer,
    class: Class,
    images: Tensor,
    requests: Vec<MapRequest>,
    settings: Settings,
}

impl Job for Explaining {
    fn run(&mut self) -> Result<Results> {
        let Explanation { logits, maps, .. } =
            self.explainer.explain(&self.images, &self.class, &self.settings)?;
        let mut results = vec![("logits".to_owned(), logits)];
        for (request, map) in self.requests.iter().zip(maps) {
            let layer = request.layer.as_deref().unwrap_or("image").replace('/', "_");
            let name = format!("{}@{layer}", request.method.name());
            let exponents = Tensor::vector(map.exponents.iter().map(|&e| i64::from(e)).collect::<Vec<_>>());
            results.push((format!("{name}.exponent"), exponents));
            results.push((name, map.values));
        }
        Ok(results)
    }

    fn profile(&mut self) -> Result<Profile> {
        let engine = ProfiledEngine::new(&*self.engine);
        let explainer = Explainer::new(&self.network, &self.requests, &engine)?;
        explainer.explain(&self.images, &self.class, &self.settings)?;
        Ok(engine.take_profile())
    }
}
