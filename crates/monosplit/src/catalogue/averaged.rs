//! Gradients averaged along a path or over noise.

use monosplit_explain::methods::{
    GradientShap, IntegratedGradients, SmoothGrad, Smoothed, Strength, VarGrad,
};
use monosplit_explain::{Baseline, Quadrature};
use monosplit_graph::{Error, Result, array_file};

use super::{ConfiguredMethod, MethodEntry, MethodFamily, MethodOption, Options, files, option};

pub(super) const BASELINE: MethodOption =
    option("baseline", "0", "what the image is compared with: a number, mean (its own), or a .npy file");
pub(super) const BATCH: MethodOption =
    option("batch", "16", "how many copies of the image are computed at once");
pub(super) const SEED: MethodOption = option("seed", "0", "which random numbers");
const NOISY: MethodOption = option("samples", "5", "noisy copies of each image");
const STDEV: MethodOption = option(
    "stdev",
    "1",
    "standard deviation of the noise, in units of the network's input or as 15% of its range",
);

pub(super) const ENTRIES: &[MethodEntry] = &[
    MethodEntry {
        name: "integrated-gradients",
        family: MethodFamily::Gradient,
        summary: "the gradient averaged on the way from a baseline to the image, times the way",
        citation: "Sundararajan, Taly, Yan: Axiomatic Attribution for Deep Networks, ICML 2017",
        options: &[
            option("steps", "50", "points along the way, 1 to 10000"),
            option(
                "quadrature",
                "gauss-legendre",
                "where they lie: gauss-legendre, left, right, middle or trapezoid",
            ),
            BASELINE,
            BATCH,
        ],
        make: integrated_gradients,
    },
    MethodEntry {
        name: "gradient-shap",
        family: MethodFamily::Gradient,
        summary: "gradients at random points between noisy copies of the image and random baselines",
        citation: "Lundberg, Lee: A Unified Approach to Interpreting Model Predictions, NeurIPS 2017; as in Captum",
        options: &[
            option("samples", "5", "random points for each image"),
            option("stdev", "0", "standard deviation of noise on the image, or as 15% of its range"),
            option(
                "baseline",
                "0",
                "a number, mean (the image's own), or a .npy file of one or more images to draw from",
            ),
            SEED,
            BATCH,
        ],
        make: gradient_shap,
    },
    MethodEntry {
        name: "smoothgrad",
        family: MethodFamily::Gradient,
        summary: "the gradient averaged over noisy copies of the image",
        citation: "Smilkov, Thorat, Kim, Viégas, Wattenberg: SmoothGrad: removing noise by adding noise, 2017",
        options: &[
            NOISY,
            STDEV,
            option("of", "gradient", "what is averaged: gradient, magnitude or square"),
            SEED,
            BATCH,
        ],
        make: smooth_grad,
    },
    MethodEntry {
        name: "vargrad",
        family: MethodFamily::Gradient,
        summary: "the variance of the gradient over noisy copies of the image",
        citation: "Adebayo, Gilmer, Goodfellow, Kim: Local Explanation Methods for Deep Neural Networks Lack \
                   Sensitivity to Parameter Values, 2018",
        options: &[NOISY, STDEV, SEED, BATCH],
        make: var_grad,
    },
];

fn integrated_gradients(options: &mut Options) -> Result<ConfiguredMethod> {
    let method = IntegratedGradients {
        steps: options.count("steps", 50, 1..=10_000)?,
        quadrature: options.one_of(
            "quadrature",
            Quadrature::default(),
            &[
                ("gauss-legendre", Quadrature::GaussLegendre),
                ("left", Quadrature::RiemannLeft),
                ("right", Quadrature::RiemannRight),
                ("middle", Quadrature::RiemannMiddle),
                ("trapezoid", Quadrature::Trapezoid),
            ],
        )?,
        baseline: baseline(options)?,
        batch: batch(options)?,
    };
    Ok(ConfiguredMethod::new(method, "Integrated Gradients"))
}

fn gradient_shap(options: &mut Options) -> Result<ConfiguredMethod> {
    let method = GradientShap {
        samples: samples(options, 5)?,
        strength: strength(options, 0.0)?,
        baseline: baseline(options)?,
        seed: options.seed()?,
        batch: batch(options)?,
    };
    Ok(ConfiguredMethod::new(method, "GradientSHAP"))
}

fn smooth_grad(options: &mut Options) -> Result<ConfiguredMethod> {
    let of =
        [("gradient", Smoothed::Gradient), ("magnitude", Smoothed::Magnitude), ("square", Smoothed::Square)];
    let method = SmoothGrad {
        samples: samples(options, 5)?,
        strength: strength(options, 1.0)?,
        of: options.one_of("of", Smoothed::Gradient, &of)?,
        seed: options.seed()?,
        batch: batch(options)?,
    };
    Ok(ConfiguredMethod::new(method, "SmoothGrad"))
}

fn var_grad(options: &mut Options) -> Result<ConfiguredMethod> {
    let method = VarGrad {
        samples: samples(options, 5)?,
        strength: strength(options, 1.0)?,
        seed: options.seed()?,
        batch: batch(options)?,
    };
    Ok(ConfiguredMethod::new(method, "VarGrad"))
}

/// The batch size.
pub(super) fn batch(options: &mut Options) -> Result<usize> {
    options.count("batch", 16, 1..=4096)
}

/// The number of random samples.
pub(super) fn samples(options: &mut Options, default: usize) -> Result<usize> {
    options.count("samples", default, 1..=100_000)
}

/// The baseline.
pub(super) fn baseline(options: &mut Options) -> Result<Baseline> {
    let Some(text) = options.text("baseline") else { return Ok(Baseline::default()) };
    if array_file::is_array_name(&text) {
        return files::array(&text).map(Baseline::Images);
    }
    if text.eq_ignore_ascii_case("mean") {
        return Ok(Baseline::Mean);
    }
    text.parse().ok().filter(|number: &f64| number.is_finite()).map(Baseline::Value).ok_or_else(|| {
        Error::argument(format!("a baseline is a number, mean, or a .npy file, found '{text}'"))
    })
}

/// The strength of noise: a standard deviation, or a share of the image's range.
fn strength(options: &mut Options, default: f64) -> Result<Strength> {
    let Some(text) = options.text("stdev") else { return Ok(Strength::Deviation(default)) };
    let (number, share) = match text.strip_suffix('%') {
        Some(number) => (number.trim(), true),
        None => (text.as_str(), false),
    };
    let number = number.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
    let number = number.ok_or_else(|| {
        Error::argument(format!("stdev is a number from 0 on, or a share like 15%, found '{text}'"))
    })?;
    Ok(if share { Strength::Share(number / 100.0) } else { Strength::Deviation(number) })
}
