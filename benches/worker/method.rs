//! Every explanation method by its name on the command line. The one place to connect a new one: until then the
//! bench prints it as not built.

use monosplit::engine::Cpu;
use monosplit::explain::{
    Class, Explained, Explainer, Finish, Method, Part, RelevanceMap, Request, Settings, Size, Split, Stream,
};
use monosplit::{Model, Result, Tensor};

use crate::Results;
use crate::job::{Job, Options};

/// The maps a name stands for at one layer; `None` if it stands for nothing yet.
fn methods(name: &str) -> Option<Vec<Method>> {
    let cam = Method::SplitCam(Stream::G, Part::Combined);
    let grad = Method::SplitGrad(Stream::G, Part::Combined);
    match name {
        "gradient" => Some(vec![Method::Gradient]),
        "splitcam" => Some(vec![cam]),
        "splitgrad" => Some(vec![grad]),
        "splitcam+splitgrad" => Some(vec![cam, grad]),
        "splitlrp" => Some(vec![Method::SplitLrp(RelevanceMap::Comb)]),
        _ => None,
    }
}

/// Compiles the method `name=` at `layers=` (separated by commas) for `class=`, the maps scaled up if `size=input`, and
/// what does not depend on the image remembered if `remembering=yes`. `None` if there is no such method.
pub(crate) fn load(
    model: &Model,
    images: Tensor,
    engine: &Cpu,
    options: &Options<'_>,
) -> Result<Option<Box<dyn Job>>> {
    let Some(methods) = methods(options.need("name")?) else { return Ok(None) };
    let layers = options.need("layers")?.split(',');
    let size = match options.get("size") {
        Some("input") => Size::Input,
        _ => Size::Layer,
    };
    let finish = Finish { size, ..Finish::default() };
    let request = |layer| methods.iter().map(move |&method| Request::new(method, layer).finish(finish));
    let requests: Vec<Request> = layers.flat_map(request).collect();
    let class = options.number("class")?.map_or(Class::Top, Class::Index);
    let compile = match options.get("remembering") {
        Some("yes") => Explainer::remembering,
        _ => Explainer::new,
    };
    let explainer = compile(model.graph(), &Split::default(), &requests, engine)?;
    Ok(Some(Box::new(Explaining { explainer, class, images, requests })))
}

struct Explaining {
    explainer: Explainer,
    class: Class,
    images: Tensor,
    requests: Vec<Request>,
}

impl Job for Explaining {
    fn run(&mut self) -> Result<Results> {
        let Explained { logits, maps, .. } =
            self.explainer.explain(&self.images, &self.class, &Settings::default())?;
        let mut results = vec![("logits".to_owned(), logits)];
        for (request, map) in self.requests.iter().zip(maps) {
            let name = format!("{}@{}", request.method.name(), request.layer.replace('/', "_"));
            let exponents = Tensor::vector(map.exponents.iter().map(|&e| i64::from(e)).collect::<Vec<_>>());
            results.push((format!("{name}.exponent"), exponents));
            results.push((name, map.values));
        }
        Ok(results)
    }
}
