//! Gradients, alone or averaged.

use monosplit_explain::methods::{Gradient, InputXGradient, Saliency};

use super::{ConfiguredMethod, Entry, Family};

const SIMONYAN: &str = "Simonyan, Vedaldi, Zisserman: Deep Inside Convolutional Networks, ICLR workshop 2014";

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        name: "gradient",
        family: Family::Gradient,
        summary: "the gradient of the class score with its sign, averaged over channels",
        citation: SIMONYAN,
        options: &[],
        make: |_| Ok(ConfiguredMethod::new(Gradient, "Gradient")),
    },
    Entry {
        name: "saliency",
        family: Family::Gradient,
        summary: "the size of the gradient, the largest over channels",
        citation: SIMONYAN,
        options: &[],
        make: |_| Ok(ConfiguredMethod::new(Saliency, "Saliency")),
    },
    Entry {
        name: "input-x-gradient",
        family: Family::Gradient,
        summary: "the gradient times the value it belongs to, added up over channels",
        citation: "Shrikumar, Greenside, Shcherbina, Kundaje: Not Just a Black Box, 2016",
        options: &[],
        make: |_| Ok(ConfiguredMethod::new(InputXGradient, "Input × Gradient")),
    },
];
