//! Controls: maps that explain nothing, for comparison.

use monosplit_explain::methods::{GroundTruth, ImageItself, RandomMap};
use monosplit_graph::Result;

use super::averaged::SEED;
use super::{ConfiguredMethod, MethodEntry, MethodFamily, Options, files, option};

pub(super) const ENTRIES: &[MethodEntry] = &[
    MethodEntry {
        name: "random",
        family: MethodFamily::Control,
        summary: "a random number at every place, another map for every image",
        citation: "a control",
        options: &[SEED],
        make: |options| Ok(ConfiguredMethod::new(RandomMap { seed: options.seed()? }, "Random map")),
    },
    MethodEntry {
        name: "image",
        family: MethodFamily::Control,
        summary: "the image itself, or the value of a layer, averaged over channels",
        citation: "a control",
        options: &[],
        make: |_| Ok(ConfiguredMethod::new(ImageItself, "Image")),
    },
    MethodEntry {
        name: "mask",
        family: MethodFamily::Control,
        summary: "what a person marked",
        citation: "a control",
        options: &[option(
            "file",
            "none",
            "the mask of all images, a picture or a .npy file [H, W], or a .npy file of one for each, [N, H, W]; \
             stretched over what the network sees",
        )],
        make: ground_truth,
    },
];

fn ground_truth(options: &mut Options) -> Result<ConfiguredMethod> {
    let file = options.text("file").filter(|file| file != "none");
    let masks = file.map(|file| files::mask(&file)).transpose()?;
    Ok(ConfiguredMethod::new(GroundTruth { masks }, "Mask"))
}

#[cfg(feature = "eval")]
/// For how many images the file in the options of `mask` holds a mask; 1 if there is no such file.
pub(crate) fn mask_count(options: &str) -> Result<usize> {
    let file = Options::parse(options)?.text("file").filter(|file| file != "none");
    let mask = file.map(|file| files::mask(&file)).transpose()?;
    Ok(match mask.as_ref().map(monosplit_graph::Tensor::shape) {
        Some([count, _, _]) => *count,
        _ => 1,
    })
}
