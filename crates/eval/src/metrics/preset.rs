//! Presets: definitions of metrics differ between versions of Quantus and the paper.

use monosplit_graph::{Options, Result};

/// The definition a metric follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetricPreset {
    /// Quantus 0.6.0.
    Quantus06,
    /// Quantus 0.5.3.
    Quantus05,
    /// The paper's protocol.
    Paper,
}

impl MetricPreset {
    /// All of them.
    pub const ALL: [MetricPreset; 3] =
        [MetricPreset::Quantus06, MetricPreset::Quantus05, MetricPreset::Paper];

    /// Its name in options.
    pub fn name(self) -> &'static str {
        match self {
            MetricPreset::Quantus06 => "quantus-0.6",
            MetricPreset::Quantus05 => "quantus-0.5",
            MetricPreset::Paper => "paper",
        }
    }

    pub(crate) fn read(options: &mut Options, default: MetricPreset) -> Result<MetricPreset> {
        options.one_of("preset", default, &MetricPreset::ALL.map(|preset| (preset.name(), preset)))
    }
}
