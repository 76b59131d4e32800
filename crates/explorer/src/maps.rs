//! Maps: those that are compared side by side, and that of one method at all layers.

use std::sync::Arc;

use monosplit::catalogue::{
    ConfiguredMethod, MethodChoice, MethodEntry, MethodFamily, MethodOption, ValueBounds,
};
use monosplit::engine::Engine;
use monosplit::explain::{
    Class, ExplainBatch, Explainer, Explanation, MapRequest, Procedure, Settings, chosen_layer,
};
use monosplit::image::{Filter, Preprocess};
use monosplit::render::{Heatmap, OverlayOptions, Palette, ScalarField, Scale, Zero, blend};
use monosplit::{Error, Model, RankedClass, Result, Tensor};
use serde_json::{Value, json};

use crate::interruption::Interruption;
use crate::network::{Network, Targeted};
use crate::request::{MapChoice, Question, Request};
use crate::response::{Response, Values};
use crate::session::{Session, not_finite};

/// The longer side of a thumbnail.
const THUMBNAIL: usize = 64;
/// The method that shows both streams.
const STREAM: &str = "stream";

/// Maps of a network, compiled.
pub(crate) struct CompiledMaps {
    explainer: Explainer,
}

impl CompiledMaps {
    pub(crate) fn new(model: &Model, requests: &[MapRequest], engine: &dyn Engine) -> Result<Self> {
        Ok(CompiledMaps { explainer: Explainer::new(model.graph(), requests, engine)? })
    }

    /// The class scores of one sample.
    pub(crate) fn scores(&self, image: &Tensor) -> Result<Vec<f64>> {
        let found = self.explainer.explain(image, &Class::Top, &Settings::default())?;
        Ok(found.logits.to_f64().into_vec())
    }

    fn explain(
        &self,
        image: &Tensor,
        class: &Class,
        settings: &Settings,
        interruption: Interruption<'_>,
    ) -> Result<Explanation> {
        let batch = ExplainBatch { progress: &interruption, ..ExplainBatch::new(image, class, settings) };
        self.explainer.explain_batch(&batch)
    }
}

/// A method that was chosen, at its layer.
#[derive(Clone)]
pub(crate) struct ChosenMap {
    pub(crate) method: ConfiguredMethod,
    /// None is the image.
    pub(crate) layer: Option<String>,
    /// The method with all that follows from the preprocessing, without α.
    key: String,
    /// The method as it is written, without α.
    written: String,
    is_shifted: bool,
}

/// Whether a method is shifted by α unless told otherwise. Others have options of the same name that mean something else.
pub(crate) fn takes_shift(entry: &MethodEntry) -> bool {
    let is_usual = |option: &MethodOption| option.key == "alpha" && option.default != "none";
    entry.family == MethodFamily::Split && entry.options.iter().any(is_usual)
}

/// A method in one word, without the shift α.
fn unshifted(method: &ConfiguredMethod, is_shifted: bool) -> String {
    let mut method = method.clone();
    method.options.retain(|(key, _)| !is_shifted || *key != "alpha");
    method.canonical()
}

impl ChosenMap {
    pub(crate) fn new(
        choice: &MapChoice,
        alpha: Option<f64>,
        model: &Model,
        preprocess: &Preprocess,
    ) -> Result<Self> {
        let asked = MethodChoice::parse(&choice.method, &[])?;
        // A share of the hidden gradient takes the place of α.
        let is_shifted = takes_shift(asked.entry()) && !asked.is_given("share");
        let asked = match alpha.filter(|_| is_shifted) {
            Some(alpha) => asked.with(&[("alpha".to_owned(), alpha.to_string())])?,
            None => asked,
        };
        let method = asked.resolve(&ValueBounds::of(Some(preprocess))?, model.graph())?;
        let own = || chosen_layer(model.graph(), method.method.default_layer()).map(|layer| layer.name);
        let layer = match choice.layer.as_deref() {
            None => own(),
            Some("") => None,
            Some(layer) => Some(layer.to_owned()),
        };
        let (key, written) = (unshifted(&method, is_shifted), unshifted(asked.configured(), is_shifted));
        Ok(ChosenMap { method, layer, key, written, is_shifted })
    }

    pub(crate) fn request(&self) -> MapRequest {
        MapRequest::of(self.method.method.clone(), self.layer.clone())
    }

    /// The method as it is written, without α.
    pub(crate) fn written(&self) -> &str {
        &self.written
    }

    /// The layer as it is given where the method would be read elsewhere without it; the image by the name of the input.
    pub(crate) fn named_layer(&self, model: &Model) -> Option<String> {
        let graph = model.graph();
        let image = || {
            chosen_layer(graph, self.method.method.default_layer())?;
            graph.inputs().first().map(|&image| graph.node(image).label.tensor.clone())
        };
        self.layer.clone().or_else(image)
    }

    /// The shift α, where the method takes it.
    pub(crate) fn shift(&self) -> Option<f64> {
        self.method.settings.alpha.first().copied().filter(|_| self.is_shifted)
    }

    /// Whether it is a map of one of the two streams, so that there is one of the other.
    fn has_streams(&self) -> bool {
        self.method.options.iter().any(|(key, _)| *key == STREAM)
    }

    /// The same map of the stream of this letter.
    fn of_stream(&self, letter: &str) -> Result<ChosenMap> {
        let mut options: Vec<(String, String)> =
            self.method.options.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
        options.retain(|(key, _)| key != STREAM);
        options.push((STREAM.to_owned(), letter.to_owned()));
        let method = MethodChoice::parse(self.method.name, &options)?.configured().clone();
        Ok(ChosenMap { method, layer: self.layer.clone(), ..self.clone() })
    }
}

/// A map that was computed, and what is said of it.
struct Computed<'a> {
    chosen: &'a ChosenMap,
    /// Which of the choices it belongs to.
    choice: usize,
    title: String,
    stream: Option<&'static str>,
    values: Tensor,
    exponent: i32,
}

impl Session {
    /// One map, with the network's scores beside it.
    pub(crate) fn one_map(
        &mut self,
        question: &Question,
        map: &MapChoice,
        interruption: Interruption<'_>,
    ) -> Result<(ChosenMap, Explanation)> {
        let prepared = self.prepared(&question.subject)?;
        let targeted = self.targeted(question)?;
        let chosen = ChosenMap::new(map, question.alpha, &targeted.model, &prepared.preprocess)?;
        let compiled = self.compiled(&targeted, &chosen, false)?;
        let settings = &chosen.method.settings;
        let found = compiled.explain(&prepared.sample.tensor, &targeted.class, settings, interruption)?;
        match found.maps.len() {
            1 => Ok((chosen, found)),
            _ => Err(Error::internal("the explanation returned no map")),
        }
    }

    /// The class that a question is about: the one it names, or that with the highest score.
    pub(crate) fn explained_class(&mut self, question: &Question) -> Result<usize> {
        let prepared = self.prepared(&question.subject)?;
        let targeted = self.targeted(question)?;
        if let Class::Index(class) = targeted.class {
            return Ok(class);
        }
        let scores = self.scores_of(&targeted)?.scores(&prepared.sample.tensor)?;
        let best = RankedClass::best(&scores, 1, targeted.score_kind()).ok_or_else(not_finite)?;
        best.first().map(|ranked| ranked.class).ok_or_else(not_finite)
    }

    /// The scores alone.
    pub(crate) fn scores_of(&mut self, targeted: &Targeted) -> Result<Arc<CompiledMaps>> {
        let engine = self.engine.clone();
        let make = || CompiledMaps::new(&targeted.model, &[], &*engine).map(Arc::new);
        self.explanations.get(format!("{} scores", targeted.key), make)
    }

    /// A map, or those of both streams, compiled for any α.
    fn compiled(&mut self, targeted: &Targeted, chosen: &ChosenMap, both: bool) -> Result<Arc<CompiledMaps>> {
        let key = format!("{} {}@{:?} {both}", targeted.key, chosen.key, chosen.layer);
        let engine = self.engine.clone();
        self.explanations.get(key, || {
            let requests = match both {
                true => vec![chosen.of_stream("g")?.request(), chosen.of_stream("h")?.request()],
                false => vec![chosen.request()],
            };
            CompiledMaps::new(&targeted.model, &requests, &*engine).map(Arc::new)
        })
    }

    pub(crate) fn explain(
        &mut self,
        question: &Question,
        maps: &[MapChoice],
        streams: bool,
        interruption: Interruption<'_>,
    ) -> Result<Response> {
        if maps.is_empty() || maps.len() > Request::MOST_MAPS {
            return Err(Error::argument(format!("choose one to {} methods", Request::MOST_MAPS)));
        }
        let network = self.network()?;
        let prepared = self.prepared(&question.subject)?;
        let targeted = self.targeted(question)?;
        let mut response = Response::default();
        let mut described = Vec::new();
        for (index, choice) in maps.iter().enumerate() {
            interruption.check()?;
            let chosen = ChosenMap::new(choice, question.alpha, &targeted.model, &prepared.preprocess)?;
            let both = streams && chosen.has_streams();
            let compiled = self.compiled(&targeted, &chosen, both)?;
            let settings = &chosen.method.settings;
            let found = compiled.explain(&prepared.sample.tensor, &targeted.class, settings, interruption)?;
            if described.is_empty() {
                self.describe_score(&mut response, &found, &targeted)?;
            }
            for map in computed(&chosen, index, &found, both)? {
                let side = [prepared.picture()?.height(), prepared.picture()?.width()];
                described.push(map.describe(&mut response, &network, side, described.len())?);
            }
        }
        response.set("maps", described);
        Ok(response)
    }

    /// Says what is explained.
    fn describe_score(
        &self,
        response: &mut Response,
        found: &Explanation,
        targeted: &Targeted,
    ) -> Result<()> {
        let scores = found.logits.to_f64().into_vec();
        let class = found.classes.first().copied().unwrap_or(0);
        let ranked = RankedClass::of_class(&scores, class, targeted.score_kind()).ok_or_else(not_finite)?;
        response.set(
            "explained",
            json!({
                "class": class,
                "name": targeted.labels.name(class),
                "score": ranked.score,
                "probability": ranked.probability,
            }),
        );
        Ok(())
    }

    pub(crate) fn layers(
        &mut self,
        question: &Question,
        map: &MapChoice,
        interruption: Interruption<'_>,
    ) -> Result<Response> {
        let network = self.network()?;
        let prepared = self.prepared(&question.subject)?;
        let targeted = self.targeted(question)?;
        let chosen = ChosenMap::new(map, question.alpha, &targeted.model, &prepared.preprocess)?;
        if let Procedure::MultiPass(_) = chosen.method.method.procedure() {
            return Err(Error::argument(format!(
                "{} runs the network many times and is shown at one layer at a time",
                chosen.method.title
            )));
        }
        let names: Vec<String> = network.layers.iter().map(|layer| layer.name.clone()).collect();
        let at = |layer: &String| MapRequest::of(chosen.method.method.clone(), Some(layer.clone()));
        let requests: Vec<MapRequest> = names.iter().map(at).collect();
        let key = format!("{} {} at all layers", targeted.key, chosen.key);
        let engine = self.engine.clone();
        let compiled = self
            .explanations
            .get(key, || CompiledMaps::new(&targeted.model, &requests, &*engine).map(Arc::new))?;
        let settings = &chosen.method.settings;
        let found = compiled.explain(&prepared.sample.tensor, &targeted.class, settings, interruption)?;
        let picture = prepared.picture()?;
        let longer = picture.width().max(picture.height());
        let side = |length: usize| (length * THUMBNAIL / longer).max(1);
        let small = picture.resize(side(picture.width()), side(picture.height()), Filter::Bilinear)?;
        let mut pixels = Vec::new();
        for map in &found.maps {
            let field = ScalarField::from_tensor(&map.values, 0)?;
            pixels.extend(blend(&small, &field, &OverlayOptions::default())?.picture.into_rgb());
        }
        let shape = [names.len(), small.height(), small.width(), 3];
        Ok(Response::new(json!({ "layers": names })).with("thumbnails", shape, Values::U8(pixels)))
    }
}

/// The maps of one choice: itself, or those of both streams and their difference.
fn computed<'a>(
    chosen: &'a ChosenMap,
    choice: usize,
    found: &Explanation,
    both: bool,
) -> Result<Vec<Computed<'a>>> {
    let map = |title: String, stream, values: Tensor, exponent| Computed {
        chosen,
        choice,
        title,
        stream,
        values,
        exponent,
    };
    let title = chosen.method.title.clone();
    let first = found.maps.first().ok_or_else(|| Error::internal("the explanation returned no map"))?;
    let exponent = first.exponents.first().copied().unwrap_or(0);
    if !both {
        return Ok(vec![map(title, None, first.values.clone(), exponent)]);
    }
    let second = found.maps.get(1).ok_or_else(|| Error::internal("the explanation returned one map"))?;
    let other = second.exponents.first().copied().unwrap_or(0);
    // Both on the scale of the larger, so that they can be subtracted.
    let common = exponent.max(other);
    let scaled = |tensor: &Tensor, exponent: i32| -> Vec<f64> {
        tensor.to_f64().iter().map(|value| value * 2f64.powi(exponent - common)).collect()
    };
    let (g, h) = (scaled(&first.values, exponent), scaled(&second.values, other));
    let difference: Vec<f32> = g.iter().zip(&h).map(|(g, h)| (g - h) as f32).collect();
    let tensor = |values: &[f64]| {
        Tensor::new(first.values.shape(), values.iter().map(|&value| value as f32).collect::<Vec<f32>>())
    };
    let stem = title.trim_end_matches([' ', 'g', 'h']).to_owned();
    Ok(vec![
        map(format!("{stem} g"), Some("g"), tensor(&g)?, common),
        map(format!("{stem} h"), Some("h"), tensor(&h)?, common),
        map(
            format!("{stem} g − h"),
            Some("difference"),
            Tensor::new(first.values.shape(), difference)?,
            common,
        ),
    ])
}

impl Computed<'_> {
    /// Adds the values and the colours, and says what they are.
    fn describe(
        self,
        response: &mut Response,
        network: &Network,
        [height, width]: [usize; 2],
        index: usize,
    ) -> Result<Value> {
        let field = ScalarField::from_tensor(&self.values, 0)?;
        let scale = Scale::new(&field, None)?;
        let colours = Heatmap::scaled(&field.resized(width, height)?, &scale, Zero::Neutral);
        response.add(
            format!("values {index}"),
            [field.height(), field.width()],
            Values::F32(field.values().to_vec()),
        );
        response.add(format!("colours {index}"), [height, width, 4], Values::U8(colours.rgba));
        let (low, high) = scale.range();
        let palette = match scale.palette() {
            Palette::Signed => "signed",
            Palette::Positive => "positive",
            Palette::Negative => "negative",
            _ => "flat",
        };
        // Nine colours from end to end, for the key.
        let (from, to) = scale.ends();
        let key: Vec<Value> = (0..=8)
            .map(|step| {
                let [r, g, b] = scale.colour((from + (to - from) * f64::from(step) / 8.0) as f32);
                Value::from(format!("#{r:02x}{g:02x}{b:02x}"))
            })
            .collect();
        Ok(json!({
            "title": self.title,
            "method": self.chosen.method.canonical(),
            "choice": self.choice,
            "stream": self.stream,
            "layer": self.chosen.layer,
            "alpha": self.chosen.shift(),
            "range": [low, high],
            "ends": [from, to],
            "key": key,
            "palette": palette,
            "note": scale.note().map(ToString::to_string),
            "exponent": self.exponent,
            "field": network.receptive_field(self.chosen.layer.as_deref()),
        }))
    }
}
