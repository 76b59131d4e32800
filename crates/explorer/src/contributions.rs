//! What each layer contributes to a map.

use monosplit::{LayerContributions, LayerDecomposition, Result};
use serde_json::{Value, json};

use crate::maps::ChosenMap;
use crate::request::{MapChoice, Question};
use crate::response::Response;
use crate::session::Session;

impl Session {
    pub(crate) fn shares(&mut self, question: &Question, map: &MapChoice) -> Result<Response> {
        let prepared = self.prepared(&question.subject)?;
        let targeted = self.targeted(question)?;
        let chosen = ChosenMap::new(map, question.alpha, &targeted.model, &prepared.preprocess)?;
        let class = self.explained_class(question)?;
        let layers = [chosen.layer.clone()];
        let formula = LayerDecomposition::new(&targeted.model, &chosen.method, &layers, &*self.engine)?;
        let alpha = chosen.method.settings.alpha.first().copied().unwrap_or_default();
        let found = formula.contributions(&prepared.sample.tensor, &[class], alpha)?;
        let (kind, named) = match &found {
            LayerContributions::Terms(terms) => ("terms", magnitudes(terms)),
            LayerContributions::Relevance(layers) => {
                let totals = layers.iter().map(|layer| (layer.layer.clone(), layer.totals[0]));
                ("relevance", totals.collect())
            }
        };
        let sum: f64 = named.iter().map(|(_, value)| value.abs()).sum();
        let whole = match kind {
            "relevance" => named.first().map_or(0.0, |(_, value)| *value),
            _ => sum,
        };
        let bars: Vec<Value> = named
            .iter()
            .map(|(layer, value)| {
                let share = if whole == 0.0 { 0.0 } else { value / whole };
                json!({ "layer": layer, "value": value, "share": share })
            })
            .collect();
        Ok(Response::new(json!({ "title": chosen.method.title, "kind": kind, "bars": bars })))
    }
}

/// The mean magnitude of each term.
fn magnitudes(terms: &[monosplit::explain::Term]) -> Vec<(String, f64)> {
    let magnitude = |(index, term): (usize, &monosplit::explain::Term)| {
        let values = term.share.to_f64();
        let mean = values.iter().map(|value| value.abs()).sum::<f64>() / values.len().max(1) as f64;
        let name = if index == 0 { "ordinary gradient".to_owned() } else { term.layer.clone() };
        (name, mean)
    };
    terms.iter().enumerate().map(magnitude).collect()
}
