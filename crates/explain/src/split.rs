//! Options of the split that shape its graph: how streams are stabilised, how nonlinearities and the input are divided between
//! them, and where sensitivities are shifted.

use monosplit_graph::{Graph, Result};

use crate::network::Network;
use crate::scaling::Scaling;
use crate::shift::shifted_nodes;

/// How the sum stream is kept small. No choice changes the network's activations or any gradient.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Stabiliser {
    /// Not at all.
    None,
    /// Multiplied by θ, once per node, for samples with an element of `a⁺` or `a⁻` past Θ (the paper's choice).
    #[default]
    Scale,
    /// Set to zero: `a⁺ = a/2`, `a⁻ = −a/2`.
    Shift,
    /// Set to `|a|`: `a⁺ = relu(a)`, `a⁻ = relu(−a)`.
    Recentre,
}

/// How max pooling (and any maximum) divides between the streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Pooling {
    /// Both streams stay convex and monotone.
    #[default]
    Convex,
    /// Winner takes all: both streams select the element that the original activations select. They are not convex.
    Winner,
}

/// How the input is written as `x⁺ − x⁻`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum InputSplit {
    /// `x/2` and `−x/2`.
    #[default]
    Half,
    /// `relu(x)` and `relu(−x)`.
    Signed,
    /// `x` and `0`.
    Positive,
    /// `0` and `−x`.
    Negative,
}

/// How a ReLU divides between the streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReluMode {
    /// `g` takes the maximum (the paper's choice; convex).
    #[default]
    Max,
    /// `h` takes the minimum.
    Min,
    /// Half each.
    Half,
}

impl ReluMode {
    pub(crate) fn sign(self) -> f64 {
        match self {
            ReluMode::Max => 1.0,
            ReluMode::Min => -1.0,
            ReluMode::Half => 0.0,
        }
    }
}

/// The nodes at which sensitivities are shifted by `α` times their sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ShiftAt {
    /// The class scores and every affine, activation, pooling and addition node.
    #[default]
    Every,
    /// The class scores and affine nodes only, as in the paper's formulas.
    Affine,
}

/// Where the size of the shift comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AlphaInput {
    /// One number for all nodes.
    #[default]
    Uniform,
    /// One number per shifted node, in the order [`Split::shifted_layers`] lists them.
    PerLayer,
    /// No number: every node is shifted as far as it takes for the hidden gradient to keep the norm of the ordinary one. The
    /// input [`share`](crate::inputs::SHARE) is the ratio `‖E‖/‖d‖` at the layer.
    Share,
}

/// The sum that the four sensitivities of a value keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Invariant {
    /// `((δ⁺ᵍ − δ⁻ᵍ) − (δ⁺ʰ − δ⁻ʰ))/2 = ∂f/∂a`, which follows from `f = g − h`.
    #[default]
    Halved,
    /// `(δ⁺ᵍ − δ⁻ᵍ) − (δ⁺ʰ − δ⁻ʰ) = ∂f/∂a`, the paper's equation to the letter: sensitivities are corrected until it holds, and the
    /// ordinary gradient has half its weight beside the hidden one, unless a [share](AlphaInput::Share) sets that weight.
    Whole,
}

/// The options that shape the graph of a split. `α`, `θ`, `Θ`, the class and the image are not among them: they are inputs of the
/// graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Split {
    /// How the sum stream is kept small.
    pub stabiliser: Stabiliser,
    /// How maxima divide between the streams.
    pub pooling: Pooling,
    /// How the input is divided.
    pub input_split: InputSplit,
    /// How ReLUs divide between the streams.
    pub relu: ReluMode,
    /// Where sensitivities are shifted.
    pub shift_at: ShiftAt,
    /// Where the size of the shift comes from.
    pub alpha: AlphaInput,
    /// How the stabiliser `Scale` is read.
    pub scaling: Scaling,
    /// The sum that sensitivities keep.
    pub invariant: Invariant,
}

impl Split {
    /// The names of the nodes of `network` at which sensitivities are shifted, the class scores last: one α for each
    /// where the split was set up so.
    pub fn shifted_layers(&self, network: &Graph) -> Result<Vec<String>> {
        let network = Network::new(network)?;
        let nodes = shifted_nodes(&network, self.shift_at).into_iter().chain([network.logits()]);
        Ok(nodes.map(|id| network.graph().node(id).label.display().to_owned()).collect())
    }

    /// Another stabiliser.
    #[must_use]
    pub fn stabiliser(self, stabiliser: Stabiliser) -> Self {
        Split { stabiliser, ..self }
    }

    /// Another treatment of maxima.
    #[must_use]
    pub fn pooling(self, pooling: Pooling) -> Self {
        Split { pooling, ..self }
    }

    /// Another division of the input.
    #[must_use]
    pub fn input_split(self, input_split: InputSplit) -> Self {
        Split { input_split, ..self }
    }

    /// Another treatment of ReLUs.
    #[must_use]
    pub fn relu(self, relu: ReluMode) -> Self {
        Split { relu, ..self }
    }

    /// Another placement of the shift.
    #[must_use]
    pub fn shift_at(self, shift_at: ShiftAt) -> Self {
        Split { shift_at, ..self }
    }

    /// One α for all nodes, one each, or a share of the hidden gradient.
    #[must_use]
    pub fn alpha(self, alpha: AlphaInput) -> Self {
        Split { alpha, ..self }
    }

    /// Another reading of the stabiliser `Scale`.
    #[must_use]
    pub fn scaling(self, scaling: Scaling) -> Self {
        Split { scaling, ..self }
    }

    /// Another sum that sensitivities keep.
    #[must_use]
    pub fn invariant(self, invariant: Invariant) -> Self {
        Split { invariant, ..self }
    }
}
