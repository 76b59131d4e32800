//! Methods that perturb parts of the image.

use monosplit_explain::Features;
use monosplit_explain::methods::{FeatureAblation, KernelShap, Lime, Measure, Occlusion, Rise};
use monosplit_graph::{Error, Result, array_file};

use super::averaged::{BASELINE, BATCH, SEED, baseline, batch, samples};
use super::{ConfiguredMethod, MethodEntry, MethodFamily, MethodOption, Options, files, option};

const PARTS: MethodOption = option(
    "parts",
    "slic",
    "the parts: slic (superpixels; the features of a table), grid, elements (every number), or a .npy file of whole numbers",
);
const SEGMENTS: MethodOption = option("segments", "50", "about how many superpixels");
const COMPACTNESS: MethodOption =
    option("compactness", "10", "how much nearness counts against likeness of colour in a superpixel");
const CELL: MethodOption = option("cell", "32", "side of the cells of the grid");
const PROBABILITY: MethodOption =
    option("measure", "probability", "what is measured: probability or score of the class");

pub(super) const ENTRIES: &[MethodEntry] = &[
    MethodEntry {
        name: "occlusion",
        family: MethodFamily::Perturbation,
        summary: "how much the score falls when a window slides over the image",
        citation: "Zeiler, Fergus: Visualizing and Understanding Convolutional Networks, ECCV 2014",
        options: &[
            option(
                "window",
                "auto",
                "side of the window, or one for each axis, as HEIGHTxWIDTH; auto is a seventh of the input, or one feature of a table",
            ),
            option(
                "stride",
                "auto",
                "how far it moves, or how far along each axis, as DOWNxRIGHT; auto is half the window",
            ),
            BASELINE,
            BATCH,
        ],
        make: occlusion,
    },
    MethodEntry {
        name: "feature-ablation",
        family: MethodFamily::Perturbation,
        summary: "how much the score falls when a part of the image is taken away",
        citation: "as in Captum; superpixels: Achanta et al.: SLIC Superpixels, TPAMI 2012",
        options: &[PARTS, SEGMENTS, COMPACTNESS, CELL, BASELINE, BATCH],
        make: feature_ablation,
    },
    MethodEntry {
        name: "rise",
        family: MethodFamily::Perturbation,
        summary: "random smooth masks, counted by what the network says of the image behind them",
        citation: "Petsiuk, Das, Saenko: RISE: Randomized Input Sampling for Explanation, BMVC 2018",
        options: &[
            option("samples", "1000", "number of masks"),
            option("grid", "8", "cells of a mask along each axis; of a table every feature is one"),
            option("open", "0.5", "how likely a cell is open"),
            PROBABILITY,
            BASELINE,
            SEED,
            BATCH,
        ],
        make: rise,
    },
    MethodEntry {
        name: "lime",
        family: MethodFamily::Perturbation,
        summary: "a linear model of the network around the image, in terms of its parts (ridge regression)",
        citation: "Ribeiro, Singh, Guestrin: \"Why Should I Trust You?\", KDD 2016",
        options: &[
            option("samples", "1000", "copies of each image, with parts missing"),
            PARTS,
            SEGMENTS,
            COMPACTNESS,
            CELL,
            PROBABILITY,
            option("width", "0.25", "width of the kernel by which copies count"),
            option("penalty", "1", "penalty of the regression"),
            BASELINE,
            SEED,
            BATCH,
        ],
        make: lime,
    },
    MethodEntry {
        name: "kernel-shap",
        family: MethodFamily::Perturbation,
        summary: "Shapley values of the parts of the image; exact where all sets of parts fit into the samples",
        citation: "Lundberg, Lee: A Unified Approach to Interpreting Model Predictions, NeurIPS 2017",
        options: &[
            option("samples", "1000", "sets of parts asked about"),
            PARTS,
            SEGMENTS,
            COMPACTNESS,
            CELL,
            option("measure", "score", "what is measured: probability or score of the class"),
            BASELINE,
            SEED,
            BATCH,
        ],
        make: kernel_shap,
    },
];

fn occlusion(options: &mut Options) -> Result<ConfiguredMethod> {
    let method = Occlusion {
        window: extent(options, "window")?,
        stride: extent(options, "stride")?,
        baseline: baseline(options)?,
        batch: batch(options)?,
    };
    Ok(ConfiguredMethod::new(method, "Occlusion"))
}

fn feature_ablation(options: &mut Options) -> Result<ConfiguredMethod> {
    let method = FeatureAblation {
        features: features(options)?,
        baseline: baseline(options)?,
        batch: batch(options)?,
    };
    Ok(ConfiguredMethod::new(method, "Feature Ablation"))
}

fn rise(options: &mut Options) -> Result<ConfiguredMethod> {
    let method = Rise {
        samples: samples(options, 1000)?,
        grid: options.count("grid", 8, 1..=1024)?,
        probability: options.number("open", 0.5, f64::MIN_POSITIVE..=1.0)?,
        measure: measure(options, Measure::Probability)?,
        baseline: baseline(options)?,
        seed: options.seed()?,
        batch: batch(options)?,
    };
    Ok(ConfiguredMethod::new(method, "RISE"))
}

fn lime(options: &mut Options) -> Result<ConfiguredMethod> {
    let method = Lime {
        samples: samples(options, 1000)?,
        features: features(options)?,
        baseline: baseline(options)?,
        measure: measure(options, Measure::Probability)?,
        width: options.number("width", 0.25, 1e-3..=1e3)?,
        penalty: options.number("penalty", 1.0, 0.0..=1e9)?,
        seed: options.seed()?,
        batch: batch(options)?,
    };
    Ok(ConfiguredMethod::new(method, "LIME"))
}

fn kernel_shap(options: &mut Options) -> Result<ConfiguredMethod> {
    let method = KernelShap {
        samples: samples(options, 1000)?,
        features: features(options)?,
        baseline: baseline(options)?,
        measure: measure(options, Measure::Score)?,
        seed: options.seed()?,
        batch: batch(options)?,
    };
    Ok(ConfiguredMethod::new(method, "KernelSHAP"))
}

fn measure(options: &mut Options, default: Measure) -> Result<Measure> {
    options.one_of("measure", default, &[("probability", Measure::Probability), ("score", Measure::Score)])
}

fn features(options: &mut Options) -> Result<Features> {
    let segments = options.count("segments", 50, 1..=10_000)?;
    let compactness = options.number("compactness", 10.0, 1e-6..=1e6)?;
    let side = options.count("cell", 32, 1..=65_536)?;
    match options.text("parts").as_deref() {
        None | Some("slic") => Ok(Features::Superpixels { segments, compactness }),
        Some("grid") => Ok(Features::Grid(side)),
        Some("elements") => Ok(Features::Elements),
        Some(file) if array_file::is_array_name(file) => files::array(file).map(Features::Mask),
        Some(other) => Err(Error::argument(format!(
            "parts are slic, grid, elements, or a .npy file of whole numbers, found '{other}'"
        ))),
    }
}

/// A number for each axis, or one for all.
fn extent(options: &mut Options, key: &str) -> Result<Option<Vec<usize>>> {
    let Some(text) = options.text(key).filter(|text| !text.eq_ignore_ascii_case("auto")) else {
        return Ok(None);
    };
    let lengths: Option<Vec<usize>> =
        text.split('x').map(|part| part.trim().parse().ok().filter(|&length| length > 0)).collect();
    lengths.map(Some).ok_or_else(|| {
        Error::argument(format!(
            "occlusion: option '{key}' is a number of pixels, one for each axis (HEIGHTxWIDTH, DEPTHxHEIGHTxWIDTH) or auto, \
             found '{text}'"
        ))
    })
}
