//! The options that say which map is wanted.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Args, Command, ValueEnum};
use monosplit::catalogue::{self, MethodChoice};
use monosplit::explain::{Absolute, ChannelReduction, Finish, Normalise, Size, Upsampling, inputs};
use monosplit::graph::{Error, Result};

/// Which map is wanted, and the choices behind it.
#[derive(Args)]
#[command(next_help_heading = "The map")]
pub(crate) struct MethodArgs {
    /// What the map shows, and if need be its options: splitcam, gradcam, lrp:gamma=0.1, ….
    /// `monosplit methods` lists them all, `monosplit methods NAME` the options of one
    /// [default: splitcam]
    #[arg(long, value_name = "NAME[:KEY=VALUE,…]", verbatim_doc_comment)]
    #[arg(value_parser = MethodWords, hide_possible_values = true)]
    method: Option<String>,

    /// An option of the method; may be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,

    /// The layer it is read off at: a module path as PyTorch writes it (layer4.1.conv2), an ONNX
    /// node or a tensor; what enters the layer, unless `:out` follows. `monosplit inspect` lists
    /// them. May be given several times.
    #[arg(long = "layer", value_name = "NAME[:out]", verbatim_doc_comment)]
    layers: Vec<String>,

    /// The network of the pair: g (what speaks for the class) or h (what speaks against it).
    #[arg(long, value_name = "NAME")]
    stream: Option<String>,

    /// Sensitivity: combined, or with respect to the positive (plus) or negative input (minus).
    #[arg(long, value_name = "NAME")]
    part: Option<String>,

    /// The relevance of splitlrp: pos, neg, or comb, their difference.
    #[arg(long, value_name = "NAME")]
    map: Option<String>,

    /// How far sensitivities are shifted: 0 gives the true gradients of g and h, 0.5 multiples of
    /// the ordinary gradient [default: 0.4]
    #[arg(long, value_name = "A", verbatim_doc_comment)]
    alpha: Option<String>,

    /// Another alpha for the layers that a pattern names, such as 'layer4.*=0.3'; `*`
    /// stands for any text, `convolutions` for all convolutions, `scores` for the class
    /// scores. May be given several times; the last that names a layer counts.
    #[arg(long, value_name = "PATTERN=A", verbatim_doc_comment)]
    alpha_at: Vec<String>,

    /// Instead of --alpha: the norm of the hidden gradient at the layer over that of the
    /// ordinary one, which means the same in every network
    /// [default of splitcam-fused: 0.5]
    #[arg(long, value_name = "R", verbatim_doc_comment)]
    share: Option<String>,

    /// Shift at every node (every) or at affine ones only (affine).
    #[arg(long, value_name = "WHERE")]
    shift_at: Option<String>,

    /// How streams are kept small: none, scale (times --theta past --limit), shift or recentre.
    #[arg(long, value_name = "NAME")]
    stabiliser: Option<String>,

    /// The factor of the stabiliser scale [default: 0.1]
    #[arg(long, value_name = "T")]
    theta: Option<String>,

    /// The limit of the stabiliser scale [default: 10]
    #[arg(long, value_name = "L")]
    limit: Option<String>,

    /// Max pooling keeps both streams convex (convex) or follows the winner (wta).
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,

    /// How the input is written as a difference: half, signed, positive or negative.
    #[arg(long, value_name = "NAME")]
    input_split: Option<String>,

    /// How a ReLU divides between the streams: max (the paper's), min or half.
    #[arg(long, value_name = "NAME")]
    relu: Option<String>,

    #[command(flatten)]
    finish: FinishArgs,
}

/// Which maps of a compiled file are wanted.
pub(crate) struct MapFilter {
    /// The method, if one was named.
    pub(crate) method: Option<&'static str>,
    /// The options that were given.
    pub(crate) options: Vec<(&'static str, String)>,
}

/// How an attribution becomes a map.
#[derive(Args)]
pub(crate) struct FinishArgs {
    /// Channels: as the method defines (own), kept apart (keep), or their sum, mean, max,
    /// the root of the sum of squares (l2), or the sum of those above zero (positive).
    /// Methods that change all channels of a place at once, like occlusion, have one number for
    /// each place in any case.
    #[arg(
        verbatim_doc_comment,
        long,
        value_name = "HOW",
        value_enum,
        default_value_t,
        hide_possible_values = true
    )]
    channels: ChannelsName,

    /// Absolute values: none, of the finished map (map), or of every channel (channels).
    #[arg(long, value_name = "WHERE", value_enum, default_value_t, hide_possible_values = true)]
    #[arg(num_args = 0..=1, default_missing_value = "map")]
    abs: AbsName,

    /// What is below zero becomes zero.
    #[arg(long)]
    rectify: bool,

    /// Scale every map: none, minmax (from 0 to 1) or max (largest magnitude 1).
    #[arg(long, value_name = "HOW", value_enum, default_value_t, hide_possible_values = true)]
    normalise: NormaliseName,

    /// The resolution of the numbers: that of the layer, or of the network's input.
    #[arg(long, value_name = "NAME", value_enum, default_value_t, hide_possible_values = true)]
    size: SizeName,

    /// How a map is brought to the size of the input: bilinear, or nearest (each place
    /// of the layer a block).
    #[arg(long, value_name = "HOW", value_enum, default_value_t, hide_possible_values = true)]
    #[arg(verbatim_doc_comment)]
    upsampling: UpsamplingName,
}

/// Takes a method as text, which the catalogue parses later. Shell completions get the names.
#[derive(Clone)]
pub(crate) struct MethodWords;

impl TypedValueParser for MethodWords {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> std::result::Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(catalogue::entries().map(|entry| PossibleValue::new(entry.name))))
    }
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum ChannelsName {
    #[default]
    Own,
    Keep,
    Sum,
    Mean,
    Max,
    L2,
    Positive,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum AbsName {
    #[default]
    None,
    Map,
    Channels,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum NormaliseName {
    #[default]
    None,
    Minmax,
    Max,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum UpsamplingName {
    #[default]
    Bilinear,
    Nearest,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum SizeName {
    #[default]
    Layer,
    Input,
}

impl MethodArgs {
    /// The layers that were named.
    pub(crate) fn layers(&self) -> &[String] {
        &self.layers
    }

    /// The method with its options; an error if one was given that it does not have.
    pub(crate) fn choice(&self) -> Result<MethodChoice> {
        MethodChoice::parse(self.method.as_deref().unwrap_or(monosplit::DEFAULT_METHOD), &self.options()?)
    }

    /// The options that were given beside the method, by name.
    pub(crate) fn options(&self) -> Result<Vec<(String, String)>> {
        let flags = [
            ("stream", &self.stream),
            ("part", &self.part),
            ("map", &self.map),
            (inputs::ALPHA, &self.alpha),
            (inputs::SHARE, &self.share),
            ("shift-at", &self.shift_at),
            ("stabiliser", &self.stabiliser),
            (inputs::THETA, &self.theta),
            (inputs::LIMIT, &self.limit),
            ("pool", &self.pool),
            ("input-split", &self.input_split),
            ("relu", &self.relu),
        ];
        let alpha_at = Some(self.alpha_at.join(";")).filter(|text| !text.is_empty());
        let given = flags.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value.clone()?)));
        let mut options: Vec<(String, String)> = given.collect();
        options.extend(alpha_at.map(|patterns| ("alpha-at".to_owned(), patterns)));
        for text in &self.set {
            let (key, value) = text
                .split_once('=')
                .ok_or_else(|| Error::argument(format!("expected --set KEY=VALUE, found '{text}'")))?;
            options.push((key.to_owned(), value.to_owned()));
        }
        Ok(options)
    }

    /// The method and the options that a map of a compiled file must have. Numbers that the file takes as inputs are not among
    /// them.
    pub(crate) fn filter(&self, choice: &MethodChoice) -> MapFilter {
        let numbers = self.numbers();
        let is_fixed = |key: &str| choice.is_given(key) && !numbers.contains(&key);
        let options = choice.configured().options.iter().filter(|(key, _)| is_fixed(key)).cloned();
        MapFilter { method: self.method.is_some().then_some(choice.name()), options: options.collect() }
    }

    /// How an attribution becomes a map.
    pub(crate) fn finish(&self) -> Finish {
        self.finish.finish()
    }

    /// The inputs of a compiled file that were given a number.
    pub(crate) fn numbers(&self) -> Vec<&'static str> {
        let all = [
            (inputs::ALPHA, &self.alpha),
            (inputs::SHARE, &self.share),
            (inputs::THETA, &self.theta),
            (inputs::LIMIT, &self.limit),
        ];
        all.into_iter().filter(|(_, value)| value.is_some()).map(|(name, _)| name).collect()
    }
}

impl FinishArgs {
    /// The options of the library.
    pub(crate) fn finish(&self) -> Finish {
        Finish {
            channels: match self.channels {
                ChannelsName::Own => ChannelReduction::Own,
                ChannelsName::Keep => ChannelReduction::Keep,
                ChannelsName::Sum => ChannelReduction::Sum,
                ChannelsName::Mean => ChannelReduction::Mean,
                ChannelsName::Max => ChannelReduction::Max,
                ChannelsName::L2 => ChannelReduction::L2,
                ChannelsName::Positive => ChannelReduction::Positive,
            },
            absolute: match self.abs {
                AbsName::None => Absolute::None,
                AbsName::Map => Absolute::Map,
                AbsName::Channels => Absolute::Channels,
            },
            rectified: self.rectify,
            normalise: match self.normalise {
                NormaliseName::None => Normalise::None,
                NormaliseName::Minmax => Normalise::MinMax,
                NormaliseName::Max => Normalise::Max,
            },
            size: match self.size {
                SizeName::Layer => Size::Layer,
                SizeName::Input => Size::Input,
            },
            upsampling: match self.upsampling {
                UpsamplingName::Bilinear => Upsampling::Bilinear,
                UpsamplingName::Nearest => Upsampling::Nearest,
            },
        }
    }
}
