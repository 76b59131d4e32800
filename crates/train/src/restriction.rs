//! Restrictions of the weights of a network: which are non-negative, and by which transform.

use std::fmt;
use std::str::FromStr;

use monosplit_graph::{Error, Result, Tensor};

/// The guaranteed property of a network (paper, section "Differences of networks" and appendix D).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Restriction {
    /// Nothing.
    None,
    /// Input-convex: weights after the first layer or a maximum are not negative.
    InputConvex,
    /// Monotone (and convex): no weight is negative.
    Monotone,
    /// A difference of two unrestricted networks.
    DifferenceNone,
    /// A difference of two input-convex networks.
    DifferenceConvex,
    /// A difference of two monotone networks.
    DifferenceMonotone,
    /// A difference of two input-convex networks of which the second reads `1 − x`.
    DifferenceConvexInverted,
    /// A difference of two monotone networks of which the second reads `1 − x`.
    DifferenceMonotoneInverted,
}

impl Restriction {
    /// All of them, in the order of the paper's table.
    pub const ALL: [Restriction; 8] = [
        Restriction::InputConvex,
        Restriction::Monotone,
        Restriction::None,
        Restriction::DifferenceConvex,
        Restriction::DifferenceMonotone,
        Restriction::DifferenceNone,
        Restriction::DifferenceConvexInverted,
        Restriction::DifferenceMonotoneInverted,
    ];

    /// The paper's name.
    pub fn name(self) -> &'static str {
        match self {
            Restriction::None => "None",
            Restriction::InputConvex => "IC",
            Restriction::Monotone => "Mon",
            Restriction::DifferenceNone => "Diff_None",
            Restriction::DifferenceConvex => "DIC",
            Restriction::DifferenceMonotone => "DM",
            Restriction::DifferenceConvexInverted => "DICIN",
            Restriction::DifferenceMonotoneInverted => "DMIN",
        }
    }

    /// Whether the network is `g − h`.
    pub fn is_difference(self) -> bool {
        !matches!(self, Restriction::None | Restriction::InputConvex | Restriction::Monotone)
    }

    /// Whether `h` reads `1 − x`.
    pub fn is_inverted(self) -> bool {
        matches!(self, Restriction::DifferenceConvexInverted | Restriction::DifferenceMonotoneInverted)
    }

    /// Whether each stream never decreases when its input grows.
    pub fn is_monotone(self) -> bool {
        matches!(
            self,
            Restriction::Monotone | Restriction::DifferenceMonotone | Restriction::DifferenceMonotoneInverted
        )
    }

    /// Whether each stream is convex in its input.
    pub fn is_convex(self) -> bool {
        !matches!(self, Restriction::None | Restriction::DifferenceNone)
    }
}

impl fmt::Display for Restriction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Restriction {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let found = Restriction::ALL.into_iter().find(|r| r.name().eq_ignore_ascii_case(name));
        found.ok_or_else(|| {
            let names = Restriction::ALL.map(Restriction::name).join(", ");
            Error::argument(format!("there is no restriction '{name}'; there are {names}"))
        })
    }
}

/// The transform `p` that makes a parameter `p(w)` not negative whatever `w` is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Positivity {
    /// `max(w, 0)`, the paper's choice.
    #[default]
    Relu,
    /// `log(1 + eʷ)`
    Softplus,
    /// `eʷ`
    Exp,
    /// `w²`
    Square,
}

impl Positivity {
    /// All of them.
    pub const ALL: [Positivity; 4] =
        [Positivity::Relu, Positivity::Softplus, Positivity::Exp, Positivity::Square];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Positivity::Relu => "relu",
            Positivity::Softplus => "softplus",
            Positivity::Exp => "exp",
            Positivity::Square => "square",
        }
    }

    /// `p(w)`
    pub(crate) fn of(self, w: f32) -> f32 {
        match self {
            Positivity::Relu => w.max(0.0),
            Positivity::Softplus => w.max(0.0) + (-w.abs()).exp().ln_1p(),
            Positivity::Exp => w.exp(),
            Positivity::Square => w * w,
        }
    }

    /// `p` of every element.
    pub(crate) fn applied(self, raw: &Tensor) -> Result<Tensor> {
        Tensor::new(raw.shape(), raw.to_f32().iter().map(|&w| self.of(w)).collect::<Vec<f32>>())
    }

    /// `p′(w)`; that of the ReLU is zero at zero, as in PyTorch.
    pub(crate) fn slope(self, w: f32) -> f32 {
        match self {
            Positivity::Relu => f32::from(w > 0.0),
            Positivity::Softplus => 1.0 / (1.0 + (-w).exp()),
            Positivity::Exp => w.exp(),
            Positivity::Square => 2.0 * w,
        }
    }

    /// A `w` with `p(w) = value`, or close to it if there is none, for a non-negative value.
    pub(crate) fn inverse(self, value: f64) -> f64 {
        let positive = value.max(1e-12);
        match self {
            Positivity::Relu => value,
            Positivity::Softplus => positive + (-(-positive).exp()).ln_1p(),
            Positivity::Exp => positive.ln(),
            Positivity::Square => value.sqrt(),
        }
    }
}

impl FromStr for Positivity {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let found = Positivity::ALL.into_iter().find(|p| p.name().eq_ignore_ascii_case(name));
        found.ok_or_else(|| {
            let names = Positivity::ALL.map(Positivity::name).join(", ");
            Error::argument(format!("there is no transform '{name}'; there are {names}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for restriction in Restriction::ALL {
            assert_eq!(restriction.name().parse::<Restriction>().unwrap(), restriction);
        }
        assert!("convex".parse::<Restriction>().is_err());
        for transform in Positivity::ALL {
            assert_eq!(transform.name().parse::<Positivity>().unwrap(), transform);
        }
    }

    #[test]
    fn slopes_equal_central_differences() {
        for transform in Positivity::ALL {
            for w in [-2.0f32, -0.5, 0.25, 1.0, 3.0] {
                let step = 1e-2;
                let expected = (transform.of(w + step) - transform.of(w - step)) / (2.0 * step);
                let slope = transform.slope(w);
                assert!(
                    (slope - expected).abs() < 1e-3 * (1.0 + expected.abs()),
                    "{transform:?} at {w}: {slope} {expected}"
                );
            }
            assert!(
                transform == Positivity::Relu
                    || transform == Positivity::Square
                    || transform.slope(0.0) > 0.0
            );
        }
        assert_eq!(Positivity::Relu.slope(0.0), 0.0);
    }

    #[test]
    fn every_transform_reaches_the_values_it_is_asked_for_and_none_below_zero() {
        for transform in Positivity::ALL {
            for value in [1e-6, 1e-3, 0.5, 1.0, 3.0] {
                let reached = f64::from(transform.of(transform.inverse(value) as f32));
                assert!((reached - value).abs() < 1e-5 * value, "{transform:?} {value} {reached}");
            }
            for w in [-30f32, -1.0, -0.0, 0.0, 1e-30, 2.0, 30.0] {
                assert!(transform.of(w) >= 0.0);
            }
        }
    }
}
