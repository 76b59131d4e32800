//! Elementwise nodes as C++ expressions.

// A new op must be decided here, so no match has a default.
#![deny(clippy::wildcard_enum_match_arm)]

use monosplit_graph::op::{Binary, ElementwiseOp, IntegerFunction, Unary};
use monosplit_graph::{Error, Kind, Op, Result};

/// A floating-point literal.
fn number(value: f64) -> String {
    match value {
        v if v.is_nan() => "(real)(INFINITY - INFINITY)".into(),
        v if v == f64::INFINITY => "(real)INFINITY".into(),
        v if v == f64::NEG_INFINITY => "(-(real)INFINITY)".into(),
        v => format!("((real){v:e})"),
    }
}

/// The expression that computes `op` of the operands, given by name and kind.
pub(super) fn expression(op: &Op, operands: &[(String, Kind)], to: Kind) -> Result<String> {
    let (x, from) = &operands[0];
    let second = operands.get(1).map_or("", |(name, _)| name.as_str());
    Ok(match op.elementwise().ok_or_else(|| Error::internal("a node is fused that is not elementwise"))? {
        ElementwiseOp::Unary(unary) if *from == Kind::Float => real_function(unary, x),
        ElementwiseOp::Unary(unary) => whole_function(unary, x)?,
        ElementwiseOp::Binary(binary) => pair(binary, (x, *from), (second, operands[1].1), to)?,
        ElementwiseOp::Where => format!("{x} ? {second} : {}", operands[2].0),
        ElementwiseOp::Cast => cast(x, *from, to),
    })
}

fn cast(x: &str, from: Kind, to: Kind) -> String {
    match (from, to) {
        (_, Kind::Bool) => format!("(u8)({x} != 0)"),
        (Kind::Float, Kind::Int) => format!("truncated((double){x})"),
        (_, Kind::Float) => format!("(real){x}"),
        (_, Kind::Int) => format!("(long long){x}"),
    }
}

fn limited(x: &str, min: f64, max: f64) -> String {
    format!("limited({x}, {}, {})", number(min), number(max))
}

fn real_function(unary: Unary, x: &str) -> String {
    let below = |value: String| format!("{x} < 0 ? {value} : {x}");
    match unary {
        Unary::Relu => format!("{x} < 0 ? (real)0 : {x}"),
        Unary::LeakyRelu { slope } => below(format!("{} * {x}", number(slope))),
        Unary::Elu { alpha } => below(format!("{} * expm1({x})", number(alpha))),
        Unary::Selu { alpha, gamma } => {
            format!("{} * ({})", number(gamma), below(format!("{} * expm1({x})", number(alpha))))
        }
        Unary::Celu { alpha } => below(format!("{0} * expm1({x} / {0})", number(alpha))),
        Unary::Sigmoid => format!("(real)1 / ((real)1 + exp(-{x}))"),
        Unary::Tanh => format!("tanh({x})"),
        Unary::Softplus => format!("softplus({x})"),
        Unary::HardSigmoid { alpha, beta } => {
            limited(&format!("{} * {x} + {}", number(alpha), number(beta)), 0.0, 1.0)
        }
        Unary::HardSwish => {
            let gate = limited(&format!("{x} * {} + (real)0.5", number(1.0 / 6.0)), 0.0, 1.0);
            format!("{x} * {gate}")
        }
        Unary::Silu => format!("{x} / ((real)1 + exp(-{x}))"),
        Unary::Gelu => format!("(real)(0.5 * (double){x} * erfc(-(double){x} * 0.70710678118654752440))"),
        Unary::GeluTanh => format!("gelu_tanh({x})"),
        Unary::Erf => format!("(real)erf((double){x})"),
        Unary::Mish => format!("{x} * tanh(softplus({x}))"),
        Unary::Neg => format!("-{x}"),
        Unary::Abs => format!("fabs({x})"),
        Unary::Sqrt => format!("sqrt({x})"),
        Unary::Exp => format!("exp({x})"),
        Unary::Log => format!("log({x})"),
        Unary::Reciprocal => format!("(real)1 / {x}"),
        Unary::Sin => format!("sin({x})"),
        Unary::Cos => format!("cos({x})"),
        Unary::Sign => format!("{x} > 0 ? (real)1 : {x} < 0 ? (real)-1 : {x}"),
        Unary::Floor => format!("floor({x})"),
        Unary::Ceil => format!("ceil({x})"),
        Unary::Round => format!("rint({x})"),
        Unary::Clip { min, max } => limited(x, min, max),
        Unary::Quantise { step, min, max } => {
            limited(&format!("rint({x} / {0}) * {0}", number(step)), min, max)
        }
        Unary::Half => format!("(real)rounded_to((float){x}, 13, -24, 65504.0f)"),
        Unary::Bfloat16 => format!("(real)rounded_to((float){x}, 16, -133, 3.3895314e38f)"),
        Unary::Wrap { .. } => x.to_owned(),
        Unary::Not => format!("(real)({x} == 0)"),
    }
}

/// Functions of integers and truth values; an integer is limited to whole numbers within its bounds.
fn whole_function(unary: Unary, x: &str) -> Result<String> {
    if unary == Unary::Not {
        return Ok(format!("(u8)!{x}"));
    }
    let Some(function) = unary.of_integers() else {
        return Err(Error::unsupported(format!("{} is not defined for whole numbers", unary.name())));
    };
    Ok(match function {
        IntegerFunction::Identity => x.to_string(),
        IntegerFunction::Neg => format!("(long long)(0ULL - (u64){x})"),
        IntegerFunction::Abs => format!("{x} < 0 ? (long long)(0ULL - (u64){x}) : {x}"),
        IntegerFunction::Sign => format!("(long long)({x} > 0) - (long long)({x} < 0)"),
        IntegerFunction::Relu => format!("{x} < 0 ? 0LL : {x}"),
        IntegerFunction::Wrap { min, max } => format!("wrapped({x}, {}LL, {}LL)", bound(min), bound(max)),
        IntegerFunction::Clip { min, max } => {
            format!("limited_whole({x}, {}LL, {}LL)", bound(min), bound(max))
        }
    })
}

/// A bound as a whole number; the least of all cannot be written, the one above it is.
fn bound(value: i64) -> i64 {
    value.max(-i64::MAX)
}

fn pair(binary: Binary, (a, ka): (&str, Kind), (b, kb): (&str, Kind), to: Kind) -> Result<String> {
    let undefined = || {
        Error::unsupported(format!(
            "{} is not defined for these kinds of number; cast them first",
            binary.name()
        ))
    };
    let compared = |symbol: &str| format!("(u8)({a} {symbol} {b})");
    let wrapping = |symbol: &str| match ka {
        Kind::Int => format!("(long long)((u64){a} {symbol} (u64){b})"),
        Kind::Float | Kind::Bool => format!("{a} {symbol} {b}"),
    };
    Ok(match (binary, ka, to) {
        (Binary::Equal, ..) => compared("=="),
        (Binary::Less, ..) => compared("<"),
        (Binary::LessOrEqual, ..) => compared("<="),
        (Binary::Greater, ..) => compared(">"),
        (Binary::GreaterOrEqual, ..) => compared(">="),
        (Binary::And, Kind::Bool, _) => compared("&"),
        (Binary::Or, Kind::Bool, _) => compared("|"),
        (Binary::Xor, Kind::Bool, _) => compared("^"),
        (_, Kind::Bool, _) | (Binary::And | Binary::Or | Binary::Xor, ..) => return Err(undefined()),
        (Binary::Pow, Kind::Float, _) if kb == Kind::Float => format!("power({a}, {b})"),
        (Binary::Pow, Kind::Float, _) => format!("power({a}, (real){b})"),
        (Binary::Pow, Kind::Int, _) if kb == Kind::Int => format!("whole_power({a}, {b})"),
        (Binary::Pow, ..) => format!("truncated(pow((double){a}, (double){b}))"),
        _ if ka != kb => return Err(undefined()),
        (Binary::Add, ..) => wrapping("+"),
        (Binary::Sub, ..) => wrapping("-"),
        (Binary::Mul, ..) => wrapping("*"),
        (Binary::Div, Kind::Int, _) => format!("quotient_of({a}, {b})"),
        (Binary::Div, ..) => format!("{a} / {b}"),
        (Binary::Max, ..) => format!("{a} > {b} || {a} != {a} ? {a} : {b}"),
        (Binary::Min, ..) => format!("{a} < {b} || {a} != {a} ? {a} : {b}"),
        (Binary::PRelu, ..) => format!("{a} < 0 ? {b} * {a} : {a}"),
    })
}
