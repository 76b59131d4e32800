//! The option α: one number, one for each shifted layer, or another one for layers that a pattern names.

use monosplit_explain::{LayerAlphas, Split};
use monosplit_graph::{Error, Graph, Result};

use super::Options;

/// The usual α.
const ALPHA: f64 = 0.4;

/// α as it was given.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Alpha {
    /// One number for all layers.
    One(f64),
    /// Numbers that depend on the layers of a network.
    ByLayer(Numbers),
}

/// α of several layers.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Numbers {
    /// One for each shifted layer, the class scores last.
    Each(Vec<f64>),
    /// One for all, and others by pattern.
    Patterns(LayerAlphas),
}

/// α by layer, which becomes numbers where the network is known.
#[derive(Clone, Debug)]
pub struct AlphaChoice {
    pub(super) split: Split,
    pub(super) numbers: Numbers,
}

impl AlphaChoice {
    /// One α for each shifted layer of a network, the class scores last.
    pub(super) fn of(&self, network: &Graph) -> Result<Vec<f64>> {
        match &self.numbers {
            Numbers::Patterns(alphas) => {
                alphas.of(&self.split, network).map_err(|error| error.context("alpha-at"))
            }
            Numbers::Each(each) => {
                let layers = self.split.shifted_layers(network)?;
                if layers.len() != each.len() {
                    let (given, needed) = (each.len(), layers.len());
                    return Err(Error::argument(format!(
                        "alpha: {given} numbers were given, and the network has {needed} shifted layers, from '{}' to the class \
                         scores; give one number for all, or name layers in alpha-at",
                        layers.first().map_or("", |layer| layer)
                    )));
                }
                Ok(each.clone())
            }
        }
    }
}

/// Reads `alpha` and `alpha-at`.
pub(super) fn read(options: &mut Options) -> Result<Alpha> {
    let patterns = options.text("alpha-at").filter(|text| !text.is_empty());
    let Some(list) = options.given_text("alpha").filter(|text| text.contains('/')) else {
        let alpha = options.number("alpha", ALPHA, 0.0..=1.0)?;
        let Some(patterns) = patterns else { return Ok(Alpha::One(alpha)) };
        let parts = patterns.split(';').filter(|part| !part.trim().is_empty());
        let alphas = parts.map(pattern).try_fold(LayerAlphas::new(alpha), |alphas, part| {
            part.map(|(pattern, alpha)| alphas.at(pattern, alpha))
        })?;
        return Ok(Alpha::ByLayer(Numbers::Patterns(alphas)));
    };
    if patterns.is_some() {
        return Err(Error::argument(
            "alpha-at changes one alpha for all layers; a list of them says all there is to say",
        ));
    }
    options.text("alpha");
    let each = list.split('/').map(|text| number("alpha", text)).collect::<Result<_>>()?;
    Ok(Alpha::ByLayer(Numbers::Each(each)))
}

fn pattern(part: &str) -> Result<(String, f64)> {
    let (pattern, alpha) = part.rsplit_once('=').ok_or_else(|| {
        Error::argument(format!(
            "alpha-at: expected PATTERN=ALPHA, several with a semicolon between, found '{part}'"
        ))
    })?;
    Ok((pattern.trim().to_owned(), number("alpha-at", alpha)?))
}

fn number(option: &str, text: &str) -> Result<f64> {
    let number = text.trim().parse::<f64>().ok().filter(|alpha| (0.0..=1.0).contains(alpha));
    number.ok_or_else(|| Error::argument(format!("{option}: expected a number from 0 to 1, found '{text}'")))
}
