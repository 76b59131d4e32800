//! Class activation maps computed in one pass.

use monosplit_explain::methods::{EigenCam, GradCam, GradCamPlusPlus, HiResCam, LayerCam, XGradCam};
use monosplit_graph::Result;

use super::{ConfiguredMethod, MethodEntry, MethodFamily, MethodOption, Options, option};

const RELU: MethodOption = option("relu", "yes", "whether what is below zero becomes zero");
const NO_RELU: MethodOption = option("relu", "no", "whether what is below zero becomes zero");
const POSITIVE: MethodOption =
    option("positive-gradients", "yes", "whether only positive gradients count, as published");

pub(super) const ENTRIES: &[MethodEntry] = &[
    MethodEntry {
        name: "gradcam",
        family: MethodFamily::Cam,
        summary: "a layer's activations, weighted by the mean gradient of each channel",
        citation: "Selvaraju et al.: Grad-CAM, ICCV 2017",
        options: &[RELU],
        make: |options| {
            let rectified = relu(options, true)?;
            Ok(ConfiguredMethod::new(GradCam { rectified }, "Grad-CAM"))
        },
    },
    MethodEntry {
        name: "gradcam++",
        family: MethodFamily::Cam,
        summary: "a layer's activations, weighted by pixelwise shares of the positive gradient",
        citation: "Chattopadhay et al.: Grad-CAM++, WACV 2018",
        options: &[RELU],
        make: |options| {
            let rectified = relu(options, true)?;
            Ok(ConfiguredMethod::new(GradCamPlusPlus { rectified }, "Grad-CAM++"))
        },
    },
    MethodEntry {
        name: "layercam",
        family: MethodFamily::Cam,
        summary: "a layer's activations, each weighted by its own positive gradient",
        citation: "Jiang et al.: LayerCAM, IEEE TIP 2021",
        options: &[POSITIVE, RELU],
        make: layer_cam,
    },
    MethodEntry {
        name: "hirescam",
        family: MethodFamily::Cam,
        summary: "a layer's activations, each weighted by its own gradient",
        citation: "Draelos, Carin: Use HiResCAM instead of Grad-CAM, 2020",
        options: &[NO_RELU],
        make: |options| {
            let rectified = relu(options, false)?;
            Ok(ConfiguredMethod::new(HiResCam { rectified }, "HiResCAM"))
        },
    },
    MethodEntry {
        name: "xgradcam",
        family: MethodFamily::Cam,
        summary: "a layer's activations, weighted by the activation-weighted mean gradient",
        citation: "Fu et al.: Axiom-based Grad-CAM, BMVC 2020",
        options: &[RELU],
        make: |options| {
            let rectified = relu(options, true)?;
            Ok(ConfiguredMethod::new(XGradCam { rectified }, "XGrad-CAM"))
        },
    },
    MethodEntry {
        name: "eigencam",
        family: MethodFamily::Cam,
        summary: "the first principal component of a layer's activations; knows no class",
        citation: "Muhammad, Yeasin: Eigen-CAM, IJCNN 2020",
        options: &[NO_RELU],
        make: |options| {
            let rectified = relu(options, false)?;
            Ok(ConfiguredMethod::new(EigenCam { rectified }, "Eigen-CAM"))
        },
    },
];

fn relu(options: &mut Options, default: bool) -> Result<bool> {
    options.flag("relu", default)
}

fn layer_cam(options: &mut Options) -> Result<ConfiguredMethod> {
    let positive_gradients = options.flag("positive-gradients", true)?;
    let rectified = relu(options, true)?;
    Ok(ConfiguredMethod::new(LayerCam { positive_gradients, rectified }, "LayerCAM"))
}
