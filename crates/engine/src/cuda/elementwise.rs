//! Elementwise nodes as the source of one kernel: every element is read once, goes through all of them in registers, and
//! is written once. The text does not depend on lengths, so that layers of a network share it.

use std::collections::HashMap;
use std::fmt::Write;

use monosplit_graph::op::{Binary, Unary};
use monosplit_graph::{Dim, Error, Graph, Kind, Node, NodeId, Op, Result, Shape};

/// Elements one thread takes at a time, so that their reads wait together.
pub(super) const AT_ONCE: usize = 4;

/// How an operand is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// Element by element.
    Along,
    /// One element for all.
    One,
    /// Repeated along some axes.
    Broadcast,
}

/// A kernel's text and what it is to be given.
pub(super) struct Source {
    /// The function, under the name [`Source::NAME`].
    pub(super) text: String,
    /// The values read, and how.
    pub(super) inputs: Vec<(NodeId, Reading)>,
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Float => "real",
        Kind::Int => "long long",
        Kind::Bool => "u8",
    }
}

impl Source {
    /// Stands for the function's name.
    pub(super) const NAME: &'static str = "KERNEL";

    /// The kernel that computes `nodes`, elementwise, of one shape and in topological order, and writes `outputs`. `same`
    /// tells for every node the one that stands for it.
    pub(super) fn new(graph: &Graph, same: &[NodeId], nodes: &[NodeId], outputs: &[NodeId]) -> Result<Self> {
        let shape = &graph.node(nodes[0]).shape;
        let mut names: HashMap<NodeId, String> = HashMap::new();
        let mut text = Text::default();
        for &id in nodes {
            let node = graph.node(id);
            let mut operands = Vec::with_capacity(node.inputs.len());
            for input in node.inputs.iter().map(|input| same[input.index()]) {
                let read = graph.node(input);
                let name = match names.get(&input) {
                    Some(name) => name.clone(),
                    None => text.read(input, read, shape),
                };
                names.insert(input, name.clone());
                operands.push((name, read.kind));
            }
            let name = format!("v{}", names.len());
            let value = expression(&node.op, &operands, node.kind)?;
            let _ = writeln!(text.body, "        {} {name} = {value};", kind_name(node.kind));
            names.insert(id, name);
        }
        for (position, output) in outputs.iter().enumerate() {
            let name = names.get(output).ok_or_else(|| Error::argument("an output is not computed"))?;
            let _ = write!(text.parameters, ", {} *q{position}", kind_name(graph.node(*output).kind));
            let _ = writeln!(text.body, "        q{position}[i] = {name};");
        }
        Ok(text.finish())
    }
}

/// A kernel being written.
#[derive(Default)]
struct Text {
    inputs: Vec<(NodeId, Reading)>,
    parameters: String,
    /// Room for what is read at once, how it is filled, and how one element of it is taken out.
    arrays: String,
    loads: String,
    takes: String,
    /// How one element is read alone.
    single: String,
    body: String,
}

impl Text {
    /// Reads another value; what it is called from here on.
    fn read(&mut self, input: NodeId, read: &Node, shape: &Shape) -> String {
        let reading = match read.shape.count() {
            _ if read.shape == *shape => Reading::Along,
            Some(Dim::Fixed(1)) => Reading::One,
            _ => Reading::Broadcast,
        };
        let (kind, number) = (kind_name(read.kind), self.inputs.len());
        let at = match reading {
            Reading::Along => "i".to_string(),
            Reading::One => "0".to_string(),
            Reading::Broadcast => format!("place(i, axes, s{number})"),
        };
        let _ = write!(self.parameters, ", const {kind} *p{number}");
        let _ = writeln!(self.arrays, "      {kind} l{number}[{AT_ONCE}];");
        let _ = writeln!(self.loads, "        l{number}[k] = p{number}[{at}];");
        let _ = writeln!(self.takes, "        {kind} x{number} = l{number}[k];");
        let _ = writeln!(self.single, "        {kind} x{number} = p{number}[{at}];");
        self.inputs.push((input, reading));
        format!("x{number}")
    }

    fn finish(self) -> Source {
        let Text { inputs, mut parameters, arrays, loads, takes, single, body } = self;
        let repeated =
            || inputs.iter().enumerate().filter(|(_, (_, reading))| *reading == Reading::Broadcast);
        if repeated().next().is_some() {
            parameters.push_str(", Axes axes");
        }
        for (number, _) in repeated() {
            let _ = write!(parameters, ", Strides s{number}");
        }
        let text = format!(
            "extern \"C\" __global__ void {name}(u32 n{parameters}) {{\n  \
             u32 step = gridDim.x * blockDim.x * {AT_ONCE};\n  \
             for (u32 start = blockIdx.x * blockDim.x * {AT_ONCE} + threadIdx.x; start < n; start += step) {{\n    \
             if (start + {last} * blockDim.x < n) {{\n{arrays}      \
             #pragma unroll\n      \
             for (u32 k = 0; k < {AT_ONCE}; ++k) {{\n        u32 i = start + k * blockDim.x;\n{loads}      }}\n      \
             #pragma unroll\n      \
             for (u32 k = 0; k < {AT_ONCE}; ++k) {{\n        u32 i = start + k * blockDim.x;\n{takes}{body}      }}\n    \
             }} else {{\n      \
             for (u32 i = start; i < n; i += blockDim.x) {{\n{single}{body}      }}\n    }}\n  }}\n}}\n",
            name = Source::NAME,
            last = AT_ONCE - 1,
        );
        Source { text, inputs }
    }
}

/// A real number as C++ writes it.
fn number(value: f64) -> String {
    match value {
        v if v.is_nan() => "(real)(INFINITY - INFINITY)".into(),
        v if v == f64::INFINITY => "(real)INFINITY".into(),
        v if v == f64::NEG_INFINITY => "(-(real)INFINITY)".into(),
        v => format!("((real){v:e})"),
    }
}

fn expression(op: &Op, operands: &[(String, Kind)], to: Kind) -> Result<String> {
    let (x, from) = &operands[0];
    let second = operands.get(1).map_or("", |(name, _)| name.as_str());
    Ok(match op {
        Op::Unary(unary) if *from == Kind::Float => real_function(*unary, x),
        Op::Unary(unary) => whole_function(*unary, x)?,
        Op::Binary(binary) => pair(*binary, (x, *from), (second, operands[1].1), to)?,
        Op::Where => format!("{x} ? {second} : {}", operands[2].0),
        Op::Cast { .. } => cast(x, *from, to),
        _ => return Err(Error::argument("not an elementwise node")),
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
        Unary::Sign => format!("{x} > 0 ? (real)1 : {x} < 0 ? (real)-1 : {x}"),
        Unary::Floor => format!("floor({x})"),
        Unary::Ceil => format!("ceil({x})"),
        Unary::Round => format!("rint({x})"),
        Unary::Clip { min, max } => limited(x, min, max),
        Unary::Not => format!("(real)({x} == 0)"),
    }
}

/// Functions of integers and truth values; an integer is limited to whole numbers within its bounds.
fn whole_function(unary: Unary, x: &str) -> Result<String> {
    Ok(match unary {
        Unary::Not => format!("(u8)!{x}"),
        Unary::Neg => format!("(long long)(0ULL - (u64){x})"),
        Unary::Abs => format!("{x} < 0 ? (long long)(0ULL - (u64){x}) : {x}"),
        Unary::Sign => format!("(long long)({x} > 0) - (long long)({x} < 0)"),
        Unary::Relu => format!("{x} < 0 ? 0LL : {x}"),
        Unary::Floor | Unary::Ceil | Unary::Round => x.to_string(),
        Unary::Clip { min, max } => format!("limited_whole({x}, {}LL, {}LL)", bound(min), bound(max)),
        other => {
            return Err(Error::unsupported(format!("{} is not defined for whole numbers", other.name())));
        }
    })
}

/// A bound as a whole number; the least of all cannot be written, the one above it is.
fn bound(value: f64) -> i64 {
    (value as i64).max(-i64::MAX)
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
        _ => format!("{a} {symbol} {b}"),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_of_different_sizes_share_a_kernel() {
        let text = |channels: usize| {
            let mut graph = Graph::new();
            let x = graph.input("x", Shape::batched(&[channels, 4, 4]), Kind::Float);
            let bias = graph.input("bias", Shape::fixed(&[channels, 1, 1]), Kind::Float);
            let sum = graph.plus(x, bias).unwrap();
            let y = graph.rectified(sum).unwrap();
            let same: Vec<NodeId> = graph.nodes().map(|(id, _)| id).collect();
            let source = Source::new(&graph, &same, &[sum, y], &[y]).unwrap();
            let readings: Vec<Reading> = source.inputs.iter().map(|(_, reading)| *reading).collect();
            assert_eq!(readings, [Reading::Along, Reading::Broadcast]);
            source.text
        };
        assert_eq!(text(3), text(64));
    }
}
