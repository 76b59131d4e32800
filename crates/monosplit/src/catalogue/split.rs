//! The methods of the split.

use monosplit_explain::methods::{
    Combination, FusedSplitCam, RelevanceMap, SplitCam, SplitGrad, SplitLrp, SplitStream,
};
use monosplit_explain::{
    AlphaInput, Correction, DecomposedMap, InputSplit, Invariant, Pooling, ReluMode, Repetition, ScaledOver,
    Scaling, Settings, Split, Stabiliser, Stream, StreamPart, Threshold,
};
use monosplit_graph::{Error, Result};

use super::shift::{self, Shift, Usual};
use super::{Closed, ConfiguredMethod, MethodEntry, MethodFamily, MethodOption, Options, option};

const PAPER: &str =
    "Hidden Monotonicity: Explaining Deep Neural Networks via their DC Decomposition, CVPR 2026";

const STREAM: MethodOption =
    option("stream", "g", "the network of the pair: g (what speaks for the class) or h (against it)");
const PART: MethodOption = option("part", "combined", "the input of the stream: combined, plus or minus");
const STREAM_PART: MethodOption =
    option("part", "plus", "the stream: plus or minus, or combined, their difference");
const MAP: MethodOption = option("map", "comb", "the relevance: pos, neg, or comb, their difference");
const ALPHA: MethodOption = option(
    "alpha",
    "0.4",
    "how far sensitivities are shifted, 0 to 1; 0.5 gives multiples of the gradient; or one for each layer, 0.3/0.4/0.4",
);
const ALPHA_AT: MethodOption = option(
    "alpha-at",
    "",
    "another alpha for layers by name: layer4.*=0.3;convolutions=0.42 (* stands for any text)",
);
const SHARE: MethodOption = option(
    "share",
    "none",
    "instead of alpha: the norm of the hidden gradient at the layer over that of the ordinary one",
);
const FUSED_ALPHA: MethodOption = option(
    "alpha",
    "none",
    "instead of share: how far sensitivities are shifted, 0 to 1; or one for each layer, 0.3/0.4/0.4",
);
const FUSED_SHARE: MethodOption =
    option("share", "0.5", "the norm of the hidden gradient at each layer over that of the ordinary one");
const LAYERS: MethodOption = option(
    "layers",
    "auto",
    "the layers, separated by semicolons; auto: one for each spatial size of the network",
);
const MEAN: MethodOption =
    option("mean", "product", "how the layers' maps are combined: product, arithmetic or harmonic");
const EPSILON: MethodOption = option(
    "epsilon",
    "0.01",
    "added to the square of a layer's map, over its mean, before maps are combined",
);
const EXPONENT: MethodOption =
    option("exponent", "1", "the power of each map: the larger, the more a product concentrates");
const SHIFT_AT: MethodOption = option("shift-at", "every", "shift at every node, or at affine ones only");
const STABILISER: MethodOption =
    option("stabiliser", "scale", "how streams are kept small: none, scale, shift or recentre");
const THETA: MethodOption = option("theta", "0.1", "the factor of the stabiliser scale");
const LIMIT: MethodOption = option("limit", "10", "the limit of the stabiliser scale");
const CORRECTION: MethodOption = option(
    "correction",
    "both",
    "after scaling the pair's difference is restored in both members alike (both), in the one the sign names (signed), or in the positive one (plus)",
);
const REPEAT: MethodOption =
    option("repeat", "no", "scale until no entry is past the limit, instead of once at each node");
const SCALE_OVER: MethodOption =
    option("scale-over", "sample", "whose largest entry decides: that of each sample or of the batch");
const THRESHOLD: MethodOption = option(
    "threshold",
    "absolute",
    "the limit is a number (absolute), or a multiple of the layer's largest activation (relative)",
);
const INVARIANT: MethodOption = option(
    "invariant",
    "halved",
    "the sensitivities' sum is the gradient with the factor one half (halved), or without it as the paper writes (whole)",
);
const POOL: MethodOption =
    option("pool", "convex", "max pooling keeps streams convex, or follows the winner (wta)");
const INPUT_SPLIT: MethodOption =
    option("input-split", "half", "how the input is divided: half, signed, positive or negative");
const RELU: MethodOption = option("relu", "max", "how a ReLU divides between the streams: max, min or half");

const FUSED: &[MethodOption] = &[
    LAYERS,
    MEAN,
    EPSILON,
    EXPONENT,
    STREAM,
    PART,
    FUSED_SHARE,
    FUSED_ALPHA,
    ALPHA_AT,
    SHIFT_AT,
    INVARIANT,
    STABILISER,
    THETA,
    LIMIT,
    CORRECTION,
    REPEAT,
    SCALE_OVER,
    THRESHOLD,
    POOL,
    INPUT_SPLIT,
    RELU,
];
const SENSITIVITY: &[MethodOption] = &[
    STREAM,
    PART,
    ALPHA,
    ALPHA_AT,
    SHARE,
    SHIFT_AT,
    INVARIANT,
    STABILISER,
    THETA,
    LIMIT,
    CORRECTION,
    REPEAT,
    SCALE_OVER,
    THRESHOLD,
    POOL,
    INPUT_SPLIT,
    RELU,
];
const ACTIVATION: &[MethodOption] = &[
    STREAM_PART,
    STABILISER,
    THETA,
    LIMIT,
    CORRECTION,
    REPEAT,
    SCALE_OVER,
    THRESHOLD,
    POOL,
    INPUT_SPLIT,
    RELU,
];
const RELEVANCE: &[MethodOption] =
    &[MAP, STABILISER, THETA, LIMIT, CORRECTION, REPEAT, SCALE_OVER, THRESHOLD, POOL, INPUT_SPLIT, RELU];

const PARTS: [(&str, StreamPart); 3] =
    [("combined", StreamPart::Combined), ("plus", StreamPart::Plus), ("minus", StreamPart::Minus)];

pub(super) const ENTRIES: &[MethodEntry] = &[
    MethodEntry {
        name: "splitcam",
        family: MethodFamily::Split,
        summary: "the activations of a layer, weighted by a stream's sensitivities and added up",
        citation: PAPER,
        options: SENSITIVITY,
        make: split_cam,
    },
    MethodEntry {
        name: "splitcam-fused",
        family: MethodFamily::Split,
        summary: "the SplitCAMs of layers of all spatial sizes, combined into one map at the image",
        citation: "monosplit, the chapter Beyond the paper; SplitCAM: Hidden Monotonicity, CVPR 2026",
        options: FUSED,
        make: fused,
    },
    MethodEntry {
        name: "splitgrad",
        family: MethodFamily::Split,
        summary: "a stream's sensitivities, averaged over channels",
        citation: PAPER,
        options: SENSITIVITY,
        make: split_grad,
    },
    MethodEntry {
        name: "splitlrp",
        family: MethodFamily::Split,
        summary: "relevance propagated through the pair of streams, in double precision",
        citation: PAPER,
        options: RELEVANCE,
        make: split_lrp,
    },
    MethodEntry {
        name: "splitstream",
        family: MethodFamily::Split,
        summary: "the activations of one of the two streams, added up; their difference is the network's own",
        citation: PAPER,
        options: ACTIVATION,
        make: split_stream,
    },
];

fn split_cam(options: &mut Options) -> Result<ConfiguredMethod> {
    let (stream, part) = sensitivity(options)?;
    let Shift { split, settings, alpha, layer_alphas } = shift::read(options, Usual::Alpha)?;
    let title = format!("SplitCAM {}{}", stream.letter(), sign(part));
    let closed = closed(split, stream, part, DecomposedMap::SplitCam);
    Ok(ConfiguredMethod {
        settings,
        alpha,
        closed,
        layer_alphas,
        ..ConfiguredMethod::new(SplitCam { split, stream, part }, title)
    })
}

fn split_grad(options: &mut Options) -> Result<ConfiguredMethod> {
    let (stream, part) = sensitivity(options)?;
    let Shift { split, settings, alpha, layer_alphas } = shift::read(options, Usual::Alpha)?;
    let title = format!("SplitGrad {}{}", stream.letter(), sign(part));
    let closed = closed(split, stream, part, DecomposedMap::SplitGrad);
    Ok(ConfiguredMethod {
        settings,
        alpha,
        closed,
        layer_alphas,
        ..ConfiguredMethod::new(SplitGrad { split, stream, part }, title)
    })
}

fn fused(options: &mut Options) -> Result<ConfiguredMethod> {
    let combinations = [
        ("product", Combination::Product),
        ("arithmetic", Combination::Mean),
        ("harmonic", Combination::HarmonicMean),
    ];
    let layers = options.text("layers").filter(|text| !text.eq_ignore_ascii_case("auto"));
    let layers = layers.map_or_else(Vec::new, |text| {
        text.split(';').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
    });
    let combination = options.one_of("mean", Combination::Product, &combinations)?;
    let epsilon = options.number("epsilon", 0.01, f64::MIN_POSITIVE..=1e6)?;
    let exponent = options.number("exponent", 1.0, f64::MIN_POSITIVE..=8.0)?;
    let (stream, part) = sensitivity(options)?;
    let Shift { split, settings, alpha, layer_alphas } = shift::read(options, Usual::Share)?;
    let method = FusedSplitCam { split, stream, part, layers, combination, epsilon, exponent };
    let title = format!("Fused SplitCAM {}{}", stream.letter(), sign(part));
    Ok(ConfiguredMethod { settings, alpha, layer_alphas, ..ConfiguredMethod::new(method, title) })
}

fn split_lrp(options: &mut Options) -> Result<ConfiguredMethod> {
    let maps = [("pos", RelevanceMap::Pos), ("neg", RelevanceMap::Neg), ("comb", RelevanceMap::Comb)];
    let map = options.one_of("map", RelevanceMap::Comb, &maps)?;
    let (split, settings) = split(options)?;
    shift::pass_over(options)?;
    let title = match map {
        RelevanceMap::Pos => "SplitLRP pos",
        RelevanceMap::Neg => "SplitLRP neg",
        RelevanceMap::Comb => "SplitLRP comb",
    };
    Ok(ConfiguredMethod { settings, ..ConfiguredMethod::new(SplitLrp { split, map }, title) })
}

fn split_stream(options: &mut Options) -> Result<ConfiguredMethod> {
    let part = options.one_of("part", StreamPart::Plus, &PARTS)?;
    let (split, settings) = split(options)?;
    shift::pass_over(options)?;
    let title = format!("Split activations{}", sign(part));
    Ok(ConfiguredMethod { settings, ..ConfiguredMethod::new(SplitStream { split, part }, title) })
}

/// The arguments of the closed formula, which holds for stream g, the combined part, one α and the usual invariant.
fn closed(split: Split, stream: Stream, part: StreamPart, whole: DecomposedMap) -> Option<Closed> {
    let holds = (stream, part) == (Stream::G, StreamPart::Combined)
        && split.alpha == AlphaInput::Uniform
        && split.invariant == Invariant::Halved;
    holds.then_some(Closed { split, whole })
}

fn sign(part: StreamPart) -> &'static str {
    match part {
        StreamPart::Combined => "",
        StreamPart::Plus => "+",
        StreamPart::Minus => "−",
    }
}

fn sensitivity(options: &mut Options) -> Result<(Stream, StreamPart)> {
    let stream = options.one_of("stream", Stream::G, &[("g", Stream::G), ("h", Stream::H)])?;
    Ok((stream, options.one_of("part", StreamPart::Combined, &PARTS)?))
}

/// The options of the split and its run-time numbers.
pub(super) fn split(options: &mut Options) -> Result<(Split, Settings)> {
    let stabilisers = [
        ("scale", Stabiliser::Scale),
        ("none", Stabiliser::None),
        ("shift", Stabiliser::Shift),
        ("recentre", Stabiliser::Recentre),
    ];
    let stabiliser = options.one_of("stabiliser", Stabiliser::Scale, &stabilisers)?;
    let given = OF_SCALE.iter().find(|key| options.is_given(key));
    if let Some(given) = given.filter(|_| stabiliser != Stabiliser::Scale) {
        return Err(Error::argument(format!("{given} belongs to the stabiliser scale")));
    }
    let inputs = [
        ("half", InputSplit::Half),
        ("signed", InputSplit::Signed),
        ("positive", InputSplit::Positive),
        ("negative", InputSplit::Negative),
    ];
    let relus = [("max", ReluMode::Max), ("min", ReluMode::Min), ("half", ReluMode::Half)];
    let pools = [("convex", Pooling::Convex), ("wta", Pooling::Winner)];
    let split = Split::default()
        .stabiliser(stabiliser)
        .pooling(options.one_of("pool", Pooling::Convex, &pools)?)
        .input_split(options.one_of("input-split", InputSplit::Half, &inputs)?)
        .relu(options.one_of("relu", ReluMode::Max, &relus)?);
    let mut settings = Settings::default();
    let mut split = split;
    if stabiliser == Stabiliser::Scale {
        split = split.scaling(scaling(options)?);
        settings.theta = options.number("theta", 0.1, f64::MIN_POSITIVE..=1.0)?;
        settings.limit = options.number("limit", 10.0, f64::MIN_POSITIVE..=f64::MAX)?;
    }
    Ok((split, settings))
}

/// The options that the stabiliser scale alone has.
const OF_SCALE: [&str; 6] = ["theta", "limit", "correction", "repeat", "scale-over", "threshold"];

fn scaling(options: &mut Options) -> Result<Scaling> {
    let corrections =
        [("both", Correction::Both), ("signed", Correction::Signed), ("plus", Correction::Plus)];
    let over = [("sample", ScaledOver::Sample), ("batch", ScaledOver::Batch)];
    let thresholds = [("absolute", Threshold::Absolute), ("relative", Threshold::Relative)];
    let repetition = match options.flag("repeat", false)? {
        true => Repetition::UntilWithin,
        false => Repetition::Once,
    };
    Ok(Scaling::default()
        .correction(options.one_of("correction", Correction::Both, &corrections)?)
        .repetition(repetition)
        .over(options.one_of("scale-over", ScaledOver::Sample, &over)?)
        .threshold(options.one_of("threshold", Threshold::Absolute, &thresholds)?))
}
