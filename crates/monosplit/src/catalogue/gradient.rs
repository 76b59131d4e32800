//! Gradients, alone or averaged.

use monosplit_explain::methods::{Gradient, InputXGradient, Saliency};

use super::{ConfiguredMethod, MethodEntry, MethodFamily};

const SIMONYAN: &str = "Simonyan, Vedaldi, Zisserman: Deep Inside Convolutional Networks, ICLR workshop 2014";

pub(super) const ENTRIES: &[MethodEntry] = &[
    MethodEntry {
        name: "gradient",
        family: MethodFamily::Gradient,
        summary: "the gradient of the class score with its sign, averaged over channels",
        citation: SIMONYAN,
        options: &[],
        make: |_| Ok(ConfiguredMethod::new(Gradient, "Gradient")),
    },
    MethodEntry {
        name: "saliency",
        family: MethodFamily::Gradient,
        summary: "the size of the gradient, the largest over channels",
        citation: SIMONYAN,
        options: &[],
        make: |_| Ok(ConfiguredMethod::new(Saliency, "Saliency")),
    },
    MethodEntry {
        name: "input-x-gradient",
        family: MethodFamily::Gradient,
        summary: "the gradient times the value it belongs to, added up over channels",
        citation: "Shrikumar, Greenside, Shcherbina, Kundaje: Not Just a Black Box, 2016",
        options: &[],
        make: |_| Ok(ConfiguredMethod::new(InputXGradient, "Input × Gradient")),
    },
];
