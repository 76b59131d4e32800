//! Class activation maps whose weights come from one forward pass for each channel.

use monosplit_explain::methods::{Ablated, AblationCam, Definition, ScoreCam};
use monosplit_graph::Result;

use super::averaged::{BATCH, batch};
use super::{ConfiguredMethod, MethodEntry, MethodFamily, MethodOption, Options, option};

const RELU: MethodOption = option("relu", "yes", "whether what is below zero becomes zero");

pub(super) const ENTRIES: &[MethodEntry] = &[
    MethodEntry {
        name: "scorecam",
        family: MethodFamily::Cam,
        summary: "the channels of a layer, weighted by what the network says of the image behind each",
        citation: "Wang et al.: Score-CAM: Score-Weighted Visual Explanations for CNNs, CVPR Workshops 2020",
        options: &[
            option(
                "definition",
                "grad-cam",
                "whose: grad-cam (softmax of scores) or paper (softmax of risen probabilities)",
            ),
            RELU,
            BATCH,
        ],
        make: score_cam,
    },
    MethodEntry {
        name: "ablationcam",
        family: MethodFamily::Cam,
        summary: "the channels of a layer, weighted by how much the score falls without each",
        citation: "Desai, Ramaswamy: Ablation-CAM: Visual Explanations via Gradient-free Localization, WACV 2020",
        options: &[
            option(
                "ablated",
                "zero",
                "what a missing channel becomes: zero, or below-least (far below all others unless they start at 0)",
            ),
            RELU,
            BATCH,
        ],
        make: ablation_cam,
    },
];

fn score_cam(options: &mut Options) -> Result<ConfiguredMethod> {
    let definitions = [("grad-cam", Definition::GradCam), ("paper", Definition::Paper)];
    let definition = options.one_of("definition", Definition::default(), &definitions)?;
    let rectified = options.flag("relu", true)?;
    Ok(ConfiguredMethod::new(ScoreCam { definition, rectified, batch: batch(options)? }, "Score-CAM"))
}

fn ablation_cam(options: &mut Options) -> Result<ConfiguredMethod> {
    let ways = [("zero", Ablated::Zero), ("below-least", Ablated::BelowLeast)];
    let ablated = options.one_of("ablated", Ablated::default(), &ways)?;
    let rectified = options.flag("relu", true)?;
    Ok(ConfiguredMethod::new(AblationCam { ablated, rectified, batch: batch(options)? }, "Ablation-CAM"))
}
