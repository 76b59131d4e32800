//! The options that say which map is wanted.

use clap::{Args, ValueEnum};
use monosplit_explain as explain;
use monosplit_explain::{Absolute, Finish, Settings, Size};
use monosplit_graph::{Error, Result};

/// Which map is wanted, and the choices of the split behind it.
#[derive(Args)]
#[command(next_help_heading = "The map")]
pub(crate) struct MethodArgs {
    /// What the map shows:
    ///   splitcam   the activations of a layer, weighted by a stream's sensitivities and added up
    ///   splitgrad  a stream's sensitivities, averaged over channels
    ///   splitlrp   relevance propagated through the pair of streams (in double precision)
    ///   gradient   the ordinary gradient, averaged over channels
    #[arg(
        long,
        value_name = "NAME",
        value_enum,
        default_value_t,
        hide_possible_values = true,
        verbatim_doc_comment
    )]
    method: MethodName,

    /// The layer it is read off at: a module path as PyTorch writes it (layer4.1.conv2), an ONNX
    /// node or a tensor; what enters the layer, unless `:out` follows. `monosplit inspect` lists
    /// them.
    #[arg(long, value_name = "NAME[:out]", verbatim_doc_comment)]
    layer: Option<String>,

    /// The network of the pair: g (what speaks for the class) or h (what speaks against it).
    #[arg(long, value_name = "NAME", value_enum, default_value_t, hide_possible_values = true)]
    stream: StreamName,

    /// Sensitivity: combined, or with respect to the positive (plus) or negative input (minus).
    #[arg(long, value_name = "NAME", value_enum, default_value_t, hide_possible_values = true)]
    part: PartName,

    /// The relevance of splitlrp: pos, neg, or comb, their difference.
    #[arg(long = "map", value_name = "NAME", value_enum, default_value_t, hide_possible_values = true)]
    relevance: RelevanceName,

    /// How far sensitivities are shifted: 0 gives the true gradients of g and h, 0.5 multiples of
    /// the ordinary gradient.
    #[arg(
        long,
        value_name = "A",
        default_value_t = 0.4,
        allow_negative_numbers = true,
        verbatim_doc_comment
    )]
    alpha: f64,

    /// Shift at every node (every) or at affine ones only (affine).
    #[arg(long, value_name = "WHERE", value_enum, default_value_t, hide_possible_values = true)]
    shift_at: ShiftAtName,

    /// How streams are kept small: none, scale (times --theta past --limit), shift or recentre.
    #[arg(long, value_name = "NAME", value_enum, default_value_t, hide_possible_values = true)]
    stabiliser: StabiliserName,

    /// The factor of the stabiliser scale.
    #[arg(long, value_name = "T", default_value_t = 0.1, allow_negative_numbers = true)]
    theta: f64,

    /// The limit of the stabiliser scale.
    #[arg(long, value_name = "L", default_value_t = 10.0, allow_negative_numbers = true)]
    limit: f64,

    /// Max pooling keeps both streams convex (convex) or follows the winner (wta).
    #[arg(long, value_name = "NAME", value_enum, default_value_t, hide_possible_values = true)]
    pool: PoolName,

    /// How the input is written as a difference: half, signed, positive or negative.
    #[arg(long, value_name = "NAME", value_enum, default_value_t, hide_possible_values = true)]
    input_split: InputSplitName,

    /// How a ReLU divides between the streams: max (the paper's), min or half.
    #[arg(long, value_name = "NAME", value_enum, default_value_t, hide_possible_values = true)]
    relu: ReluName,

    /// Absolute values: none, of the finished map (map), or of every channel (channels).
    #[arg(long, value_name = "WHERE", value_enum, default_value_t, hide_possible_values = true)]
    abs: AbsName,

    /// The resolution of --raw: that of the layer, or of the network's input.
    #[arg(long, value_name = "NAME", value_enum, default_value_t, hide_possible_values = true)]
    size: SizeName,
}

/// The methods by name.
#[derive(Clone, Copy, Default, PartialEq, ValueEnum)]
enum MethodName {
    #[default]
    Splitcam,
    Splitgrad,
    Splitlrp,
    Gradient,
}

#[derive(Clone, Copy, Default, PartialEq, ValueEnum)]
enum StreamName {
    #[default]
    G,
    H,
}

#[derive(Clone, Copy, Default, PartialEq, ValueEnum)]
enum PartName {
    #[default]
    Combined,
    Plus,
    Minus,
}

#[derive(Clone, Copy, Default, PartialEq, ValueEnum)]
enum RelevanceName {
    #[default]
    Comb,
    Pos,
    Neg,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum ShiftAtName {
    #[default]
    Every,
    Affine,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum StabiliserName {
    #[default]
    Scale,
    None,
    Shift,
    Recentre,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum PoolName {
    #[default]
    Convex,
    Wta,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum InputSplitName {
    #[default]
    Half,
    Signed,
    Positive,
    Negative,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum ReluName {
    #[default]
    Max,
    Min,
    Half,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum AbsName {
    #[default]
    None,
    Map,
    Channels,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum SizeName {
    #[default]
    Layer,
    Input,
}

impl MethodArgs {
    /// The layer that was named.
    pub(crate) fn layer(&self) -> Option<&str> {
        self.layer.as_deref()
    }

    /// What the map shows; an error if an option was given that the method does not have.
    pub(crate) fn method(&self) -> Result<explain::Method> {
        let stream = match self.stream {
            StreamName::G => explain::Stream::G,
            StreamName::H => explain::Stream::H,
        };
        let part = match self.part {
            PartName::Combined => explain::Part::Combined,
            PartName::Plus => explain::Part::Plus,
            PartName::Minus => explain::Part::Minus,
        };
        let relevance = match self.relevance {
            RelevanceName::Pos => explain::RelevanceMap::Pos,
            RelevanceName::Neg => explain::RelevanceMap::Neg,
            RelevanceName::Comb => explain::RelevanceMap::Comb,
        };
        let split = matches!(self.method, MethodName::Splitcam | MethodName::Splitgrad);
        if !split && (self.stream != StreamName::G || self.part != PartName::Combined) {
            return Err(Error::argument("--stream and --part belong to splitcam and splitgrad"));
        }
        if self.method != MethodName::Splitlrp && self.relevance != RelevanceName::Comb {
            return Err(Error::argument("--map belongs to splitlrp"));
        }
        Ok(match self.method {
            MethodName::Splitcam => explain::Method::SplitCam(stream, part),
            MethodName::Splitgrad => explain::Method::SplitGrad(stream, part),
            MethodName::Splitlrp => explain::Method::SplitLrp(relevance),
            MethodName::Gradient => explain::Method::Gradient,
        })
    }

    /// The choices that shape the split.
    pub(crate) fn split(&self) -> explain::Split {
        explain::Split::default()
            .stabiliser(match self.stabiliser {
                StabiliserName::None => explain::Stabiliser::None,
                StabiliserName::Scale => explain::Stabiliser::Scale,
                StabiliserName::Shift => explain::Stabiliser::Shift,
                StabiliserName::Recentre => explain::Stabiliser::Recentre,
            })
            .pooling(match self.pool {
                PoolName::Convex => explain::Pooling::Convex,
                PoolName::Wta => explain::Pooling::Winner,
            })
            .input_split(match self.input_split {
                InputSplitName::Half => explain::InputSplit::Half,
                InputSplitName::Signed => explain::InputSplit::Signed,
                InputSplitName::Positive => explain::InputSplit::Positive,
                InputSplitName::Negative => explain::InputSplit::Negative,
            })
            .relu(match self.relu {
                ReluName::Max => explain::ReluMode::Max,
                ReluName::Min => explain::ReluMode::Min,
                ReluName::Half => explain::ReluMode::Half,
            })
            .shift_at(match self.shift_at {
                ShiftAtName::Every => explain::ShiftAt::Every,
                ShiftAtName::Affine => explain::ShiftAt::Affine,
            })
    }

    /// The numbers of the split.
    pub(crate) fn settings(&self) -> Result<Settings> {
        let settings = Settings { alpha: vec![self.alpha], theta: self.theta, limit: self.limit };
        settings.check()?;
        Ok(settings)
    }

    /// How channels become a map.
    pub(crate) fn finish(&self) -> Finish {
        Finish {
            absolute: match self.abs {
                AbsName::None => Absolute::None,
                AbsName::Map => Absolute::Map,
                AbsName::Channels => Absolute::Channels,
            },
            size: match self.size {
                SizeName::Layer => Size::Layer,
                SizeName::Input => Size::Input,
            },
        }
    }

    /// α, where the method has one.
    pub(crate) fn alpha_shown(&self) -> Option<f64> {
        matches!(self.method, MethodName::Splitcam | MethodName::Splitgrad).then_some(self.alpha)
    }

    /// The map in words.
    pub(crate) fn describe(&self) -> String {
        let sign = match self.part {
            PartName::Combined => "",
            PartName::Plus => "+",
            PartName::Minus => "−",
        };
        let stream = match self.stream {
            StreamName::G => "g",
            StreamName::H => "h",
        };
        match self.method {
            MethodName::Splitcam => format!("SplitCAM {stream}{sign}"),
            MethodName::Splitgrad => format!("SplitGrad {stream}{sign}"),
            MethodName::Splitlrp => match self.relevance {
                RelevanceName::Pos => "SplitLRP pos".to_owned(),
                RelevanceName::Neg => "SplitLRP neg".to_owned(),
                RelevanceName::Comb => "SplitLRP comb".to_owned(),
            },
            MethodName::Gradient => "Gradient".to_owned(),
        }
    }
}
