//! What each layer contributes to a map.

use monosplit_engine::Engine;
use monosplit_explain::{Class, ClosedFormula, Conservation, LayerRelevance, Term};
use monosplit_graph::{Error, Result, Tensor};

use crate::catalogue::ConfiguredMethod;
use crate::model::Model;

/// A method whose maps can be decomposed by layer, compiled.
pub enum LayerDecomposition {
    /// The closed formula of a split map.
    ClosedFormula(Box<ClosedFormula>),
    /// The relevance of an LRP map.
    Conservation(Box<Conservation>),
}

/// What each layer contributes to the maps of a batch.
#[derive(Clone, Debug)]
pub enum LayerContributions {
    /// The terms of the closed formula, the ordinary gradient first.
    Terms(Vec<Term>),
    /// The relevance on each layer, from the scores down to the image.
    Relevance(Vec<LayerRelevance>),
}

impl LayerDecomposition {
    /// Compiles the decomposition; an error if the method has none.
    pub fn new(
        model: &Model,
        method: &ConfiguredMethod,
        layers: &[Option<String>],
        engine: &dyn Engine,
    ) -> Result<Self> {
        if let Some(lrp) = &method.relevance {
            let conservation = Conservation::new(model.graph(), lrp, engine)?;
            return Ok(LayerDecomposition::Conservation(Box::new(conservation)));
        }
        let (Some(closed), [Some(layer)]) = (method.closed, layers) else {
            return Err(Error::argument(
                "a map is decomposed by layer for splitcam and splitgrad of stream g, combined part, at one layer; \
                 and lrp shows the relevance that it leaves on each",
            ));
        };
        let formula = ClosedFormula::new(model.graph(), &closed.split, layer, closed.whole, engine)?;
        Ok(LayerDecomposition::ClosedFormula(Box::new(formula)))
    }

    /// The contributions for images that are explained for `classes`, one for each.
    pub fn contributions(
        &self,
        images: &Tensor,
        classes: &[usize],
        alpha: f64,
    ) -> Result<LayerContributions> {
        match self {
            LayerDecomposition::ClosedFormula(formula) => {
                formula.terms(images, classes, alpha).map(LayerContributions::Terms)
            }
            LayerDecomposition::Conservation(conservation) => {
                let class = Class::PerSample(classes.to_vec());
                conservation.totals(images, &class).map(LayerContributions::Relevance)
            }
        }
    }
}
