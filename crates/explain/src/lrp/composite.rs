//! Composites: the rule of each layer, by its kind, by its position as first layer, or by its name.

use monosplit_graph::op::AffineLayer;
use monosplit_graph::{Error, Label, Result};

use super::rule::Rule;
use crate::layer_pattern::fits;

/// The default ε.
const STABILISER: f64 = 1e-6;
/// The ε of composites with one rule everywhere, as in Captum.
const CAPTUM_STABILISER: f64 = 1e-9;

/// The rule for products of activations, and for softmaxes and norms, which contain such products.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Products {
    /// A factor that is a gate (a sigmoid, a softmax, a normaliser) is treated as a constant, and the other factor receives all
    /// relevance; if both or neither are gates, each receives half (Ali et al. 2022). Added constants receive nothing.
    #[default]
    GatesHeld,
    /// AttnLRP (Achtibat et al. 2024): half to each factor; `R_i = x_i (R_i − s_i Σ_j R_j)` through a softmax `s` of `x`; only the
    /// deviation that a norm divides by is treated as a constant. Added constants receive their share, like a bias.
    Halved,
}

/// A choice of rules for the layers of a network.
///
/// Activations pass relevance unchanged; sums, average pooling and interpolation distribute it in proportion to contributions; a
/// maximum passes all of it to the selected element.
#[derive(Clone, Debug, PartialEq)]
pub struct Composite {
    /// A short name: `epsilon-plus`.
    pub name: String,
    /// The rule of first convolutions (no affine layer before them), if it differs.
    pub first_convolution: Option<Rule>,
    /// The same for fully connected layers.
    pub first_dense: Option<Rule>,
    /// The rule of convolutions.
    pub convolution: Rule,
    /// The rule of fully connected layers.
    pub dense: Rule,
    /// The rule of batch norms that could not be merged into another layer.
    pub normalisation: Rule,
    /// Rules for layers by name. The first that matches takes precedence over all of the above.
    pub named: Vec<NamedRule>,
    /// The rule for products of activations.
    pub products: Products,
    /// The ε of all denominators but those of [`Rule::Epsilon`].
    pub stabiliser: f64,
}

/// A rule for layers by name.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedRule {
    /// The name of a layer or of a container of layers; `*` stands for anything.
    pub pattern: String,
    /// The rule.
    pub rule: Rule,
}

/// ε-γ-box for inputs between −3 and 3, a range that contains images after the usual normalisations.
impl Default for Composite {
    fn default() -> Self {
        Composite::epsilon_gamma_box(vec![-3.0], vec![3.0])
    }
}

impl Composite {
    /// γ (¼) for convolutions, ε (10⁻⁶) for fully connected layers, the box rule for the first convolution: Zennit's
    /// `EpsilonGammaBox`.
    pub fn epsilon_gamma_box(low: Vec<f64>, high: Vec<f64>) -> Self {
        Composite {
            first_convolution: Some(Rule::ZBox { low, high }),
            ..Composite::with_epsilon("epsilon-gamma-box", Rule::Gamma { gamma: 0.25 })
        }
    }

    /// z⁺ for convolutions, ε (10⁻⁶) for fully connected layers: Zennit's `EpsilonPlus`.
    pub fn epsilon_plus() -> Self {
        Composite::with_epsilon("epsilon-plus", Rule::ZPlus)
    }

    /// As [`Composite::epsilon_plus`], the first layer flat: Zennit's `EpsilonPlusFlat`.
    pub fn epsilon_plus_flat() -> Self {
        Composite::epsilon_plus().flat_first("epsilon-plus-flat")
    }

    /// αβ (2, 1) for convolutions, ε (10⁻⁶) for fully connected layers: Zennit's `EpsilonAlpha2Beta1`.
    pub fn epsilon_alpha2_beta1() -> Self {
        Composite::with_epsilon("epsilon-alpha2-beta1", Rule::AlphaBeta { alpha: 2.0, beta: 1.0 })
    }

    /// As [`Composite::epsilon_alpha2_beta1`], the first layer flat: Zennit's `EpsilonAlpha2Beta1Flat`.
    pub fn epsilon_alpha2_beta1_flat() -> Self {
        Composite::epsilon_alpha2_beta1().flat_first("epsilon-alpha2-beta1-flat")
    }

    /// The ε rule everywhere, batch norms included, as Captum's `LRP` has it: ε = 10⁻⁹.
    pub fn epsilon() -> Self {
        let rule = Rule::Epsilon { epsilon: CAPTUM_STABILISER };
        Composite { stabiliser: CAPTUM_STABILISER, ..Composite::everywhere(rule) }
    }

    /// The γ rule as Captum's `GammaRule` has it everywhere: ¼, the bias left as it is, ε = 10⁻⁹.
    pub fn gamma() -> Self {
        let rule = Rule::PaperGamma { gamma: 0.25 };
        Composite { stabiliser: CAPTUM_STABILISER, name: "gamma".into(), ..Composite::everywhere(rule) }
    }

    /// AttnLRP: relevance passes through attention, to queries and keys too. The paper uses the ε rule for affine layers, and the
    /// γ rule in vision transformers, where it is less noisy.
    pub fn attention(rule: Rule) -> Self {
        Composite { name: "attention".into(), products: Products::Halved, ..Composite::everywhere(rule) }
    }

    /// One rule for all affine layers.
    pub fn everywhere(rule: Rule) -> Self {
        Composite {
            name: rule.name().into(),
            first_convolution: None,
            first_dense: None,
            convolution: rule.clone(),
            dense: rule.clone(),
            normalisation: rule,
            named: Vec::new(),
            products: Products::GatesHeld,
            stabiliser: STABILISER,
        }
    }

    fn with_epsilon(name: &str, convolution: Rule) -> Self {
        let epsilon = Rule::Epsilon { epsilon: STABILISER };
        let normalisation = Rule::Pass;
        Composite { name: name.into(), convolution, normalisation, ..Composite::everywhere(epsilon) }
    }

    fn flat_first(self, name: &str) -> Self {
        let flat = Some(Rule::Flat);
        Composite { name: name.into(), first_convolution: flat.clone(), first_dense: flat, ..self }
    }

    /// All rules, those by name included.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        let kinds = [&self.convolution, &self.dense, &self.normalisation].into_iter();
        kinds
            .chain(&self.first_convolution)
            .chain(&self.first_dense)
            .chain(self.named.iter().map(|named| &named.rule))
    }

    /// An error if a number is out of its range.
    pub fn check(&self) -> Result<()> {
        if !(self.stabiliser.is_finite() && self.stabiliser > 0.0) {
            return Err(Error::argument("the stabiliser must be greater than 0"));
        }
        self.rules().try_for_each(Rule::check)
    }

    /// The rule of a layer.
    pub(super) fn rule(&self, kind: AffineLayer, first: bool, label: &Label) -> &Rule {
        if let Some(named) = self.named.iter().find(|named| named.fits(label)) {
            return &named.rule;
        }
        let (own, usual) = match kind {
            AffineLayer::Convolution => (&self.first_convolution, &self.convolution),
            AffineLayer::Dense => (&self.first_dense, &self.dense),
            AffineLayer::Normalisation => (&None, &self.normalisation),
        };
        own.as_ref().filter(|_| first).unwrap_or(usual)
    }
}

impl NamedRule {
    /// Whether the pattern matches one of the names of a node, or of a module that contains it.
    pub(super) fn fits(&self, label: &Label) -> bool {
        fits(&self.pattern, label)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_lose_relevance_are_refused() {
        let composite = |rule: Rule| Composite::everywhere(rule).check().is_err();
        assert!(composite(Rule::AlphaBeta { alpha: 2.0, beta: 0.0 }));
        assert!(composite(Rule::Epsilon { epsilon: 0.0 }));
        assert!(composite(Rule::ZBox { low: vec![1.0], high: vec![0.0] }));
        assert!(composite(Rule::ZBox { low: vec![], high: vec![0.0] }));
        assert!(Composite::default().check().is_ok());
    }
}
