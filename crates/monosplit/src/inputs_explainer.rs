//! Explanations of one or several inputs of a network by name, the others given: several pictures or vectors at once, and
//! token ids, which are explained at their embedding.

use monosplit_engine::{Cpu, Engine};
use monosplit_explain::{
    BatchPosition, Class, ExplainBatch, ExplainedInputs, Explainer, Finish, InputEncoder, InputPart,
    MapRequest, NoProgress, Progress, SaliencyMap, Settings,
};
use monosplit_graph::{Dim, Kind, LayerName, Result, Tensor};

use crate::catalogue::{ConfiguredMethod, parse};
use crate::given_inputs::{fitting, of_kind};
use crate::model::{GIVEN, Model};

impl Model {
    /// Explains the inputs `of` by a method, as [`Model::explainer`] takes it; the other inputs are given and held fixed.
    ///
    /// Each explained input has a map of its own. Paths, noise and relevance are joint; methods that remove windows or
    /// segments remove them from one input at a time. Of token ids the map has one number for each token: the sum over its
    /// embedding, or whatever else the method makes of channels.
    pub fn inputs_explainer(&self, method: &str, of: &[&str]) -> Result<InputsExplainer> {
        self.inputs_explainer_on(method, of, Finish::default(), &Cpu::default())
    }

    /// The same with a finish and an engine.
    pub fn inputs_explainer_on(
        &self,
        method: &str,
        of: &[&str],
        finish: Finish,
        engine: &dyn Engine,
    ) -> Result<InputsExplainer> {
        self.configured_inputs_explainer(parse(method, &[])?, of, finish, engine)
    }

    /// The same by a method that is configured already.
    pub fn configured_inputs_explainer(
        &self,
        chosen: ConfiguredMethod,
        of: &[&str],
        finish: Finish,
        engine: &dyn Engine,
    ) -> Result<InputsExplainer> {
        self.finished_inputs_explainer(chosen, of, &[finish], engine)
    }

    /// The same at layers of the network, one map for each, where one input is explained. Of token ids, the map of a layer that has
    /// the tokens along an axis has one number for each of them.
    pub fn configured_layers_explainer(
        &self,
        chosen: ConfiguredMethod,
        input: &str,
        layers: &[String],
        finish: Finish,
        engine: &dyn Engine,
    ) -> Result<InputsExplainer> {
        let inputs =
            ExplainedInputs::new(self.graph(), &[input]).map_err(|error| error.context(self.origin()))?;
        let encoder = inputs.encoder(engine)?;
        let network = inputs.network();
        let chosen = chosen.for_network(network)?;
        let chosen = self.with_encoded_baseline(chosen, &inputs, &encoder)?;
        let tokens = inputs.parts()[0].tokens();
        let place = |layer: &String| {
            let value = LayerName::parse(layer).value(network).map_err(|error| error.about(self.origin()))?;
            let dims = network.node(value).shape.dims();
            let has_tokens = |&count: &usize| dims.len() == 3 && dims[1..].contains(&Dim::Fixed(count));
            Ok(LayerPlace { name: layer.clone(), tokens: tokens.filter(has_tokens) })
        };
        let layers = layers.iter().map(place).collect::<Result<Vec<_>>>()?;
        let request = |place: &LayerPlace| {
            MapRequest::of(chosen.method.clone(), Some(place.name.clone())).finish(finish)
        };
        let requests: Vec<MapRequest> = layers.iter().map(request).collect();
        let explainer = Explainer::new(network, &requests, engine)?;
        let (title, settings) = (chosen.title, chosen.settings);
        Ok(InputsExplainer { model: self.clone(), title, settings, inputs, encoder, explainer, layers })
    }

    /// The same with several finishes of one computation: the maps of all inputs in the first, then those in the next.
    pub fn finished_inputs_explainer(
        &self,
        chosen: ConfiguredMethod,
        of: &[&str],
        finishes: &[Finish],
        engine: &dyn Engine,
    ) -> Result<InputsExplainer> {
        let inputs = ExplainedInputs::new(self.graph(), of).map_err(|error| error.context(self.origin()))?;
        let encoder = inputs.encoder(engine)?;
        let chosen = chosen.for_network(inputs.network())?;
        let chosen = self.with_encoded_baseline(chosen, &inputs, &encoder)?;
        let requests = MapRequest::of_inputs(&chosen.method, inputs.parts());
        let finished = |&finish: &Finish| requests.iter().cloned().map(move |request| request.finish(finish));
        let requests: Vec<MapRequest> = finishes.iter().flat_map(finished).collect();
        let explainer = Explainer::new(inputs.network(), &requests, engine)?;
        Ok(InputsExplainer {
            model: self.clone(),
            title: chosen.title,
            settings: chosen.settings,
            inputs,
            encoder,
            explainer,
            layers: Vec::new(),
        })
    }

    /// The method with a baseline of token ids as their embedding.
    pub(crate) fn with_encoded_baseline(
        &self,
        mut chosen: ConfiguredMethod,
        inputs: &ExplainedInputs,
        encoder: &InputEncoder,
    ) -> Result<ConfiguredMethod> {
        if let Some(given) = chosen.method.baseline_array() {
            let encoded = self.encoded_baseline(inputs, encoder, given)?;
            if let Some(method) = chosen.method.with_baseline_array(encoded) {
                chosen.method = method;
            }
        }
        Ok(chosen)
    }

    /// A baseline of token ids as their embedding. Of several inputs a baseline is a number.
    fn encoded_baseline(
        &self,
        inputs: &ExplainedInputs,
        encoder: &InputEncoder,
        given: &Tensor,
    ) -> Result<Tensor> {
        match inputs.parts() {
            [part] if part.tokens().is_some() => {
                encoder.encode(&[fitting(self.graph(), part.name(), given.clone())?])
            }
            [_] => Ok(given.clone()),
            _ => Err(self
                .unfit("of several explained inputs the baseline is one number; leave out the file".into())),
        }
    }
}

/// The value of an explained input: integers that the network turns into real numbers are real.
pub(crate) fn explained_value(part: &InputPart, value: Tensor) -> Result<Tensor> {
    match part.tokens() {
        Some(_) => Ok(value),
        None => of_kind(value, Kind::Float, part.name()),
    }
}

/// A compiled explanation of inputs by one method.
pub struct InputsExplainer {
    model: Model,
    title: String,
    settings: Settings,
    inputs: ExplainedInputs,
    encoder: InputEncoder,
    explainer: Explainer,
    /// The layers that the maps are at; none where they are of the inputs themselves.
    layers: Vec<LayerPlace>,
}

/// A layer that a map is at.
struct LayerPlace {
    name: String,
    /// The number of tokens along an axis of it.
    tokens: Option<usize>,
}

/// The map of an explained input.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct InputMap {
    /// The name of the input.
    pub input: String,
    /// The layer that the map is at; none is the input itself.
    pub layer: Option<String>,
    /// The number of tokens of a sample, where the input holds token ids: the map is `[N, tokens]`.
    pub tokens: Option<usize>,
    /// The map.
    pub map: SaliencyMap,
}

/// The class scores of a batch and a map for each explained input.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct InputsExplanation {
    /// The class scores `[N, classes]`.
    pub logits: Tensor,
    /// The explained class of each sample.
    pub classes: Vec<usize>,
    /// The maps, in the order in which the inputs were named; with several finishes, those of the first come first.
    pub maps: Vec<InputMap>,
}

impl InputsExplanation {
    /// The map of the input of this name.
    pub fn map(&self, input: &str) -> Option<&SaliencyMap> {
        self.maps.iter().find(|found| found.input == input).map(|found| &found.map)
    }
}

impl InputsExplainer {
    /// The method's name as it stands in captions.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// The explained inputs.
    pub fn parts(&self) -> &[InputPart] {
        self.inputs.parts()
    }

    /// The number of tokens of a sample of each map; none for one that is not of tokens.
    pub fn tokens(&self) -> impl Iterator<Item = Option<usize>> {
        let of_layers = self.layers.iter().map(|layer| layer.tokens);
        let parts = if self.layers.is_empty() { self.inputs.parts() } else { &[] };
        of_layers.chain(parts.iter().map(InputPart::tokens))
    }

    /// Explains a batch. `values` holds all inputs of the network by name, each with one sample for all or one for each.
    pub fn explain(&self, values: &[(&str, Tensor)], class: &Class) -> Result<InputsExplanation> {
        self.explain_at(values, class, BatchPosition::default(), &NoProgress)
    }

    /// The same for one of several batches, whose place among them random numbers depend on.
    pub fn explain_at(
        &self,
        values: &[(&str, Tensor)],
        class: &Class,
        position: BatchPosition,
        progress: &dyn Progress,
    ) -> Result<InputsExplanation> {
        let graph = self.model.graph();
        let mut known: Vec<(&str, Tensor)> = Vec::with_capacity(values.len());
        for (name, value) in values {
            if known.iter().any(|(other, _)| other == name) {
                return Err(self.model.unfit(format!("input '{name}' is given twice; give it once")));
            }
            let value = fitting(graph, name, value.clone());
            known.push((name, value.map_err(|error| error.context(self.model.origin()))?));
        }
        let samples = known.iter().filter_map(|(_, value)| value.shape().first().copied()).max().unwrap_or(1);
        let of_all = |name: &str| -> Result<Tensor> {
            let Some((_, value)) = known.iter().find(|(other, _)| *other == name) else {
                return Err(self
                    .model
                    .unfit(format!("the network also reads input '{name}'"))
                    .hint(GIVEN.about(name)));
            };
            match value.shape().first() {
                Some(&count) if count == samples => Ok(value.clone()),
                Some(1) => monosplit_graph::batch::rows(value, std::iter::repeat_n(0, samples)),
                count => Err(self.model.unfit(format!(
                    "input '{name}' was given for {} samples and another for {samples}; give one for all, or one for each",
                    count.copied().unwrap_or(0)
                ))),
            }
        };
        let explained = self.inputs.parts().iter().map(|part| explained_value(part, of_all(part.name())?));
        let value = self.encoder.encode(&explained.collect::<Result<Vec<_>>>()?)?;
        let network = self.inputs.network();
        let others = network.inputs()[1..].iter().map(|&id| network.node(id).label.tensor.as_str());
        let others = others.map(|name| Ok((name, of_all(name)?))).collect::<Result<Vec<_>>>()?;
        let batch = ExplainBatch {
            other_inputs: &others,
            position: Some(position),
            progress,
            ..ExplainBatch::new(&value, class, &self.settings)
        };
        let found = self.explainer.explain_batch(&batch)?;
        let maps = self.inputs.parts().iter().cycle().zip(found.maps).enumerate();
        let maps = maps.map(|(index, (part, map))| {
            let (layer, tokens) = match self.layers.get(index) {
                Some(place) => (Some(place.name.clone()), place.tokens),
                None => (None, part.tokens()),
            };
            InputMap { input: part.name().to_owned(), layer, tokens, map }
        });
        Ok(InputsExplanation { logits: found.logits, classes: found.classes, maps: maps.collect() })
    }
}
