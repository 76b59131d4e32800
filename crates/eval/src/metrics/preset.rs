//! Presets: definitions of metrics differ between versions of Quantus and the paper.

use monosplit_graph::{Options, Result};

/// The definition a metric follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Preset {
    /// Quantus 0.6.0.
    Quantus06,
    /// Quantus 0.5.3.
    Quantus05,
    /// The paper's protocol.
    Paper,
}

impl Preset {
    /// All of them.
    pub const ALL: [Preset; 3] = [Preset::Quantus06, Preset::Quantus05, Preset::Paper];

    /// Its name in options.
    pub fn name(self) -> &'static str {
        match self {
            Preset::Quantus06 => "quantus-0.6",
            Preset::Quantus05 => "quantus-0.5",
            Preset::Paper => "paper",
        }
    }

    pub(crate) fn read(options: &mut Options, default: Preset) -> Result<Preset> {
        options.one_of("preset", default, &Preset::ALL.map(|preset| (preset.name(), preset)))
    }
}
