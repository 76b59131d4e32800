//! Gradients, alone or averaged.

use monosplit_explain::methods;

use super::{Chosen, Entry, Family};

pub(super) const ENTRIES: &[Entry] = &[Entry {
    name: "gradient",
    family: Family::Gradient,
    summary: "the ordinary gradient with its sign, averaged over channels",
    citation: "Simonyan, Vedaldi, Zisserman: Deep Inside Convolutional Networks, 2014",
    options: &[],
    make: |_| Ok(Chosen::new(methods::Gradient, "Gradient")),
}];
