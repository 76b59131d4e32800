//! Readings of the stabiliser `Scale`: the paper says that a pair is multiplied by θ when one of its entries is past Θ and then
//! corrected so that its difference is the network's own activation, and leaves open how.

/// How a scaled pair is corrected. `a` is the network's own activation and `s = a⁺ + a⁻`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Correction {
    /// Both members move equally far: `s ← θs`.
    #[default]
    Both,
    /// The member that the sign of `a` names gets what is missing: `s ← θs + (1 − θ)|a|`. Members that were not negative stay so.
    Signed,
    /// The positive member gets what is missing, `a⁻ ← θa⁻` and `a⁺ = a + a⁻`: `s ← θs + (1 − θ)a`.
    Plus,
}

/// How often a pair is scaled at one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Repetition {
    /// Once.
    #[default]
    Once,
    /// Until no entry of the pair is past the limit; then it is corrected.
    UntilWithin,
}

/// Whose largest entry decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ScaledOver {
    /// Each sample's own.
    #[default]
    Sample,
    /// That of the whole batch. Maps then depend on the other samples of their batch.
    Batch,
}

/// What Θ is compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Threshold {
    /// The largest entry of the pair itself.
    #[default]
    Absolute,
    /// The largest entry of the pair over the largest magnitude of the network's own activations at the node.
    Relative,
}

/// How the stabiliser `Scale` is read. It has no effect with another stabiliser.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Scaling {
    /// How a scaled pair is corrected.
    pub correction: Correction,
    /// How often a pair is scaled.
    pub repetition: Repetition,
    /// Whose largest entry decides.
    pub over: ScaledOver,
    /// What the limit is compared with.
    pub threshold: Threshold,
}

impl Scaling {
    /// Another correction.
    #[must_use]
    pub fn correction(self, correction: Correction) -> Self {
        Scaling { correction, ..self }
    }

    /// Another number of times.
    #[must_use]
    pub fn repetition(self, repetition: Repetition) -> Self {
        Scaling { repetition, ..self }
    }

    /// Another choice of whose largest entry decides.
    #[must_use]
    pub fn over(self, over: ScaledOver) -> Self {
        Scaling { over, ..self }
    }

    /// Another meaning of the limit.
    #[must_use]
    pub fn threshold(self, threshold: Threshold) -> Self {
        Scaling { threshold, ..self }
    }
}
