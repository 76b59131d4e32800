//! The methods of the split.

use monosplit_explain::methods::{RelevanceMap, SplitCam, SplitGrad, SplitLrp, SplitStream};
use monosplit_explain::{
    DecomposedMap, InputSplit, Pooling, ReluMode, Settings, ShiftAt, Split, Stabiliser, Stream, StreamPart,
};
use monosplit_graph::{Error, Result};

use super::{Closed, ConfiguredMethod, Entry, Family, MethodOption, Options, option};

const PAPER: &str =
    "Hidden Monotonicity: Explaining Deep Neural Networks via their DC Decomposition, CVPR 2026";

const STREAM: MethodOption =
    option("stream", "g", "the network of the pair: g (what speaks for the class) or h (against it)");
const PART: MethodOption = option("part", "combined", "the input of the stream: combined, plus or minus");
const STREAM_PART: MethodOption =
    option("part", "plus", "the stream: plus or minus, or combined, their difference");
const MAP: MethodOption = option("map", "comb", "the relevance: pos, neg, or comb, their difference");
const ALPHA: MethodOption =
    option("alpha", "0.4", "how far sensitivities are shifted, 0 to 1; 0.5 gives multiples of the gradient");
const SHIFT_AT: MethodOption = option("shift-at", "every", "shift at every node, or at affine ones only");
const STABILISER: MethodOption =
    option("stabiliser", "scale", "how streams are kept small: none, scale, shift or recentre");
const THETA: MethodOption = option("theta", "0.1", "the factor of the stabiliser scale");
const LIMIT: MethodOption = option("limit", "10", "the limit of the stabiliser scale");
const POOL: MethodOption =
    option("pool", "convex", "max pooling keeps streams convex, or follows the winner (wta)");
const INPUT_SPLIT: MethodOption =
    option("input-split", "half", "how the input is divided: half, signed, positive or negative");
const RELU: MethodOption = option("relu", "max", "how a ReLU divides between the streams: max, min or half");

const SENSITIVITY: &[MethodOption] =
    &[STREAM, PART, ALPHA, SHIFT_AT, STABILISER, THETA, LIMIT, POOL, INPUT_SPLIT, RELU];
const ACTIVATION: &[MethodOption] = &[STREAM_PART, STABILISER, THETA, LIMIT, POOL, INPUT_SPLIT, RELU];
const RELEVANCE: &[MethodOption] = &[MAP, STABILISER, THETA, LIMIT, POOL, INPUT_SPLIT, RELU];

const PARTS: [(&str, StreamPart); 3] =
    [("combined", StreamPart::Combined), ("plus", StreamPart::Plus), ("minus", StreamPart::Minus)];

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        name: "splitcam",
        family: Family::Split,
        summary: "the activations of a layer, weighted by a stream's sensitivities and added up",
        citation: PAPER,
        options: SENSITIVITY,
        make: split_cam,
    },
    Entry {
        name: "splitgrad",
        family: Family::Split,
        summary: "a stream's sensitivities, averaged over channels",
        citation: PAPER,
        options: SENSITIVITY,
        make: split_grad,
    },
    Entry {
        name: "splitlrp",
        family: Family::Split,
        summary: "relevance propagated through the pair of streams, in double precision",
        citation: PAPER,
        options: RELEVANCE,
        make: split_lrp,
    },
    Entry {
        name: "splitstream",
        family: Family::Split,
        summary: "the activations of one of the two streams, added up; their difference is the network's own",
        citation: PAPER,
        options: ACTIVATION,
        make: split_stream,
    },
];

fn split_cam(options: &mut Options) -> Result<ConfiguredMethod> {
    let (stream, part) = sensitivity(options)?;
    let (split, settings) = split(options)?;
    let title = format!("SplitCAM {}{}", stream.letter(), sign(part));
    let alpha = Some(settings.alpha[0]);
    let closed = closed(split, stream, part, DecomposedMap::SplitCam);
    Ok(ConfiguredMethod {
        settings,
        alpha,
        closed,
        ..ConfiguredMethod::new(SplitCam { split, stream, part }, title)
    })
}

fn split_grad(options: &mut Options) -> Result<ConfiguredMethod> {
    let (stream, part) = sensitivity(options)?;
    let (split, settings) = split(options)?;
    let title = format!("SplitGrad {}{}", stream.letter(), sign(part));
    let alpha = Some(settings.alpha[0]);
    let closed = closed(split, stream, part, DecomposedMap::SplitGrad);
    Ok(ConfiguredMethod {
        settings,
        alpha,
        closed,
        ..ConfiguredMethod::new(SplitGrad { split, stream, part }, title)
    })
}

fn split_lrp(options: &mut Options) -> Result<ConfiguredMethod> {
    let maps = [("pos", RelevanceMap::Pos), ("neg", RelevanceMap::Neg), ("comb", RelevanceMap::Comb)];
    let map = options.one_of("map", RelevanceMap::Comb, &maps)?;
    let (split, settings) = split(options)?;
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
    let title = format!("Split activations{}", sign(part));
    Ok(ConfiguredMethod { settings, ..ConfiguredMethod::new(SplitStream { split, part }, title) })
}

/// The arguments of the closed formula, which holds for stream g and the combined part.
fn closed(split: Split, stream: Stream, part: StreamPart, whole: DecomposedMap) -> Option<Closed> {
    ((stream, part) == (Stream::G, StreamPart::Combined)).then_some(Closed { split, whole })
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
fn split(options: &mut Options) -> Result<(Split, Settings)> {
    let stabilisers = [
        ("scale", Stabiliser::Scale),
        ("none", Stabiliser::None),
        ("shift", Stabiliser::Shift),
        ("recentre", Stabiliser::Recentre),
    ];
    let stabiliser = options.one_of("stabiliser", Stabiliser::Scale, &stabilisers)?;
    if stabiliser != Stabiliser::Scale && (options.is_given("theta") || options.is_given("limit")) {
        return Err(Error::argument("theta and limit belong to the stabiliser scale"));
    }
    let inputs = [
        ("half", InputSplit::Half),
        ("signed", InputSplit::Signed),
        ("positive", InputSplit::Positive),
        ("negative", InputSplit::Negative),
    ];
    let relus = [("max", ReluMode::Max), ("min", ReluMode::Min), ("half", ReluMode::Half)];
    let pools = [("convex", Pooling::Convex), ("wta", Pooling::Winner)];
    let places = [("every", ShiftAt::Every), ("affine", ShiftAt::Affine)];
    let split = Split::default()
        .stabiliser(stabiliser)
        .pooling(options.one_of("pool", Pooling::Convex, &pools)?)
        .input_split(options.one_of("input-split", InputSplit::Half, &inputs)?)
        .relu(options.one_of("relu", ReluMode::Max, &relus)?)
        .shift_at(options.one_of("shift-at", ShiftAt::Every, &places)?);
    let mut settings =
        Settings { alpha: vec![options.number("alpha", 0.4, 0.0..=1.0)?], ..Settings::default() };
    if stabiliser == Stabiliser::Scale {
        settings.theta = options.number("theta", 0.1, f64::MIN_POSITIVE..=1.0)?;
        settings.limit = options.number("limit", 10.0, f64::MIN_POSITIVE..=f64::MAX)?;
    }
    Ok((split, settings))
}
