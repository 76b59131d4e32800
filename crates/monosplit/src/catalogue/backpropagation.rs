//! Gradients with other rules for ReLUs.

use monosplit_explain::Upsampling;
use monosplit_explain::methods::{CoarseMap, Deconvolution, GuidedBackprop, GuidedCam};
use monosplit_graph::Result;

use super::{ConfiguredMethod, MethodEntry, MethodFamily, MethodOption, Options, option};

const UPSAMPLING: MethodOption =
    option("upsampling", "nearest", "how the coarse map is drawn finer: nearest or bilinear");
const SELVARAJU: &str = "Selvaraju et al.: Grad-CAM, ICCV 2017";

pub(super) const ENTRIES: &[MethodEntry] = &[
    MethodEntry {
        name: "guided-backprop",
        family: MethodFamily::Backpropagation,
        summary: "the gradient, of which every ReLU passes only what is positive",
        citation: "Springenberg, Dosovitskiy, Brox, Riedmiller: Striving for Simplicity, ICLR workshop 2015",
        options: &[],
        make: |_| Ok(ConfiguredMethod::new(GuidedBackprop, "Guided Backprop")),
    },
    MethodEntry {
        name: "deconvolution",
        family: MethodFamily::Backpropagation,
        summary: "the gradient, of which every ReLU, open or closed, passes what is positive",
        citation: "Zeiler, Fergus: Visualizing and Understanding Convolutional Networks, ECCV 2014",
        options: &[],
        make: |_| Ok(ConfiguredMethod::new(Deconvolution, "Deconvolution")),
    },
    MethodEntry {
        name: "guided-gradcam",
        family: MethodFamily::Backpropagation,
        summary: "guided backpropagation at the image, times the layer's Grad-CAM",
        citation: SELVARAJU,
        options: &[UPSAMPLING],
        make: |options| guided(options, CoarseMap::GradCam, "Guided Grad-CAM"),
    },
    MethodEntry {
        name: "guided-layercam",
        family: MethodFamily::Backpropagation,
        summary: "guided backpropagation at the image, times the layer's LayerCAM",
        citation: "after Selvaraju et al., ICCV 2017, and Jiang et al., TIP 2021",
        options: &[UPSAMPLING],
        make: |options| guided(options, CoarseMap::LayerCam, "Guided LayerCAM"),
    },
];

fn guided(options: &mut Options, map: CoarseMap, title: &str) -> Result<ConfiguredMethod> {
    let choices = [("nearest", Upsampling::Nearest), ("bilinear", Upsampling::Bilinear)];
    let upsampling = options.one_of("upsampling", Upsampling::Nearest, &choices)?;
    Ok(ConfiguredMethod::new(GuidedCam { map, upsampling }, title))
}
