//! `monosplit explain` on a compiled file, which returns its own maps. Methods and layers on the command line select among
//! them, and only the inputs of the file can be changed.

use std::collections::BTreeSet;

use monosplit::catalogue::MethodChoice;
use monosplit::engine::{Engine, Precision};
use monosplit::explain::{Explainer, ExplanationGraph, Finish, Settings, inputs};
use monosplit::graph::Result;
use monosplit::{CompiledFileFacts, CompiledMap, Model, compiled_maps};

use super::explain::{Explain, ExplainJob};
use super::explain_result::{ExplainContext, MapDescription};
use super::method::MapFilter;
use super::named_inputs::graph_inputs;

/// A compiled file.
pub(super) struct CompiledFile<'a> {
    model: &'a Model,
    maps: Vec<CompiledMap>,
}

impl<'a> CompiledFile<'a> {
    /// The file, if it is a compiled one.
    pub(super) fn of(model: &'a Model) -> Option<Self> {
        let maps = compiled_maps(model.original());
        (!maps.is_empty()).then_some(CompiledFile { model, maps })
    }

    /// An error if an option asks for something that was fixed when the file was compiled.
    pub(super) fn check(&self, explain: &Explain, choice: &MethodChoice) -> Result<()> {
        let refused = |what: &str, why: &str| Err(self.model.unfit(format!("{what} {why}")));
        let settled =
            "was settled when this file was compiled; explain the network itself, or compile it anew";
        if explain.method.finish() != Finish::default() {
            return refused("how a map is finished", settled);
        }
        if self.wanted(explain, choice).is_empty() {
            let held = self.maps.iter().map(|map| {
                let layer = map.layer.as_ref().map_or_else(String::new, |layer| format!(" --layer {layer}"));
                format!("'--method {}{layer}'", map.method)
            });
            let held = held.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(", ");
            let numbers = [inputs::ALPHA, inputs::SHARE, inputs::THETA, inputs::LIMIT]
                .into_iter()
                .filter(|name| self.reads(name));
            let numbers: String = numbers.map(|name| format!("; --{name} is free")).collect();
            return refused(
                "it holds no such map; what it shows",
                &format!("{settled} (it has {held}{numbers})"),
            );
        }
        if explain.class.target.choice()?.is_some() {
            return refused("--target", settled);
        }
        if explain.piecewise.is_given() {
            return refused("--piecewise", settled);
        }
        if explain.by_layer {
            return refused("--by-layer", "needs the network itself; this file holds finished maps");
        }
        let given = explain.method.numbers();
        let asked = given.into_iter().chain((!self.has_class_of(explain)?).then_some(inputs::CLASS));
        match asked.into_iter().find(|name| !self.reads(name)) {
            Some(name) => {
                refused(&format!("--{name}"), "is not an input of this file; compile it so that it is")
            }
            None => Ok(()),
        }
    }

    /// Whether no class was given, or the one that the file always explains.
    fn has_class_of(&self, explain: &Explain) -> Result<bool> {
        if !explain.class.is_given() {
            return Ok(true);
        }
        let Some(own) = CompiledFileFacts::of(self.model.original()).class else { return Ok(false) };
        let own = match own.as_str() {
            "top1" => None,
            number => match number.parse() {
                Ok(number) => Some(number),
                Err(_) => return Ok(false),
            },
        };
        let (labels, _) = explain.class.labels(self.model)?;
        Ok(explain.class.classes(self.model, &labels)?.are_all(own))
    }

    /// The maps that match the methods, options and layers of the command line.
    fn wanted(&self, explain: &Explain, choice: &MethodChoice) -> Vec<&CompiledMap> {
        let MapFilter { method, options } = explain.method.filter(choice);
        let layers = explain.method.layers();
        // A map at the image is addressed as `input`.
        let is_at =
            |map: &CompiledMap| layers.iter().any(|layer| layer == map.layer.as_deref().unwrap_or("input"));
        let is_wanted = |map: &&CompiledMap| {
            method.is_none_or(|method| map.method == method)
                && options.iter().all(|(key, value)| map.option(key) == Some(value))
                && (layers.is_empty() || is_at(map))
        };
        self.maps.iter().filter(is_wanted).collect()
    }

    /// Compiles its maps with the numbers of `choice`.
    pub(super) fn prepared(
        &self,
        explain: &Explain,
        choice: &MethodChoice,
        engine: &dyn Engine,
    ) -> Result<ExplainJob> {
        let (labels, score_kind) = explain.class.labels(self.model)?;
        let settings = self.settings(explain, &choice.configured().settings);
        settings.check()?;
        let maps = self.wanted(explain, choice);
        let names: Vec<&str> = maps.iter().map(|map| map.output.as_str()).collect();
        let explanation = ExplanationGraph::of_graph(self.model.graph().clone(), &names)
            .map_err(|error| error.context(self.model.origin()))?;
        let alpha = self.reads(inputs::ALPHA).then_some(settings.alpha[0]);
        let descriptions = maps.iter().map(|map| {
            // Where several inputs are explained, each map has the name of its own.
            let (explained, layer) = map.layer.clone().map_or((None, None), |name| {
                if graph_inputs(self.model).any(|input| input.label.tensor == name) {
                    (Some(name), None)
                } else {
                    (None, Some(name))
                }
            });
            let (method, title) = (map.method.clone(), map.title.clone());
            MapDescription { method, title, layer, alpha: alpha.filter(|_| map.takes_alpha), explained }
        });
        let contours = explain.contours;
        let is_target = CompiledFileFacts::of(self.model.original())
            .target
            .is_some_and(|target| !target.starts_with("class:"));
        let descriptions = descriptions.collect();
        let context = ExplainContext {
            labels,
            score_kind,
            descriptions,
            settings,
            contours,
            is_target,
            named_class: None,
        };
        let precision = match CompiledFileFacts::of(self.model.original()).precision {
            Precision::F64 => Precision::F64,
            Precision::F32 => engine.native_precision(),
        };
        let explainer = Explainer::from_graph(explanation, engine, precision)?;
        Ok(ExplainJob { context, explainer, by_layer: None, remark: " (as compiled)".into(), precision: "" })
    }

    fn reads(&self, input: &str) -> bool {
        self.model.defaults().iter().any(|(name, _)| name == input)
    }

    /// The given numbers, and the defaults of the file for the others.
    fn settings(&self, explain: &Explain, given: &Settings) -> Settings {
        let numbers = explain.method.numbers();
        let own = |name: &str| {
            let value = self.model.defaults().iter().find(|(input, _)| input == name)?;
            // The shortest decimal of the float32 is the intended number: 0.4, not the double next to it.
            value.1.to_f32().first().and_then(|single| single.to_string().parse::<f64>().ok())
        };
        let pick = |name: &str, given: f64| match numbers.contains(&name) {
            true => given,
            false => own(name).unwrap_or(given),
        };
        Settings {
            alpha: vec![pick(inputs::ALPHA, given.alpha[0])],
            share: pick(inputs::SHARE, given.share),
            theta: pick(inputs::THETA, given.theta),
            limit: pick(inputs::LIMIT, given.limit),
        }
    }
}
