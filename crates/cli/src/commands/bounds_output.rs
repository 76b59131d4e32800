//! What `monosplit bounds` prints for programs.

use std::path::PathBuf;

use monosplit::MarginBound;
use serde::Serialize;

use super::bounds::{Found, Opened};

/// The largest certified change, for programs.
#[derive(Serialize)]
pub(super) struct RadiusOutput {
    pub(super) class: usize,
    pub(super) name: String,
    pub(super) radius: f64,
}

/// Bounds, for programs.
#[derive(Serialize)]
pub(super) struct BoundsOutput {
    epsilon: f64,
    class: usize,
    name: String,
    certified: bool,
    /// The least margin that an input of the box was found to have.
    found: f64,
    scores: Vec<ScoreOutput>,
    margins: Vec<MarginOutput>,
    samples: usize,
    violations: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    patches: Option<PatchesOutput>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
}

#[derive(Serialize)]
struct ScoreOutput {
    class: usize,
    score: f64,
    least: f64,
    most: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    g: Option<[f64; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    h: Option<[f64; 2]>,
}

#[derive(Serialize)]
struct MarginOutput {
    rival: usize,
    at_input: f64,
    intervals: f64,
    streams: Option<f64>,
    linear: Option<f64>,
}

#[derive(Serialize)]
struct PatchesOutput {
    side: usize,
    rows: usize,
    columns: usize,
    certified: Vec<bool>,
    margins: Vec<f64>,
}

impl BoundsOutput {
    pub(super) fn of(opened: &Opened, found: &Found, file: Option<&PathBuf>) -> Self {
        let Found { epsilon, certificate, tried, patches } = found;
        let of = |range: &(f64, f64)| [range.0, range.1];
        let score = |class: usize| ScoreOutput {
            class,
            score: certificate.scores[class],
            least: certificate.score_ranges[class].0,
            most: certificate.score_ranges[class].1,
            g: certificate.streams.as_ref().map(|streams| of(&streams.g[class])),
            h: certificate.streams.as_ref().map(|streams| of(&streams.h[class])),
        };
        let margin = |m: &MarginBound| MarginOutput {
            rival: m.rival,
            at_input: m.at_input,
            intervals: m.intervals,
            streams: m.streams,
            linear: m.linear,
        };
        BoundsOutput {
            epsilon: *epsilon,
            class: certificate.class,
            name: opened.labels.name(certificate.class),
            certified: certificate.certified,
            found: certificate.found,
            scores: (0..certificate.scores.len()).map(score).collect(),
            margins: certificate.margins.iter().map(margin).collect(),
            samples: tried.tried,
            violations: tried.violations,
            patches: patches.as_ref().map(|patches| PatchesOutput {
                side: patches.side,
                rows: patches.grid.0,
                columns: patches.grid.1,
                certified: patches.certified.clone(),
                margins: patches.margins.clone(),
            }),
            file: file.map(|path| path.display().to_string()),
        }
    }
}
