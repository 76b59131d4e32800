//! `monosplit maxout`: small networks neuron by neuron, split, expanded and drawn.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use monosplit::Model;
use monosplit::engine::Precision;
use monosplit::graph::{Error, Result, write_atomically};
use monosplit::maxout::{
    Bound, Counts, DecomposedNetwork, Expansion, Inputs, MaxoutNetwork, ProductDecomposition, Rational,
    SplitOptions, Style, Variables, dot, from_graph, parse, parse_number, split, svg,
};

use super::run::check_writable;
use crate::failure::Failure;
use crate::table::{Align, TextTable, grouped};

/// The largest text that is read. The parser limits the size of the network.
const MAX_FILE: u64 = 1 << 30;
/// Number of points at which f = g − h is checked.
const POINTS: i64 = 5;

/// Split, expand and draw multiplicative Maxout networks, neuron by neuron
#[derive(Args)]
#[command(long_about = "\
Works on small networks neuron by neuron, exactly: sums, the largest of several sums, and products.

  monosplit maxout split gate.txt               the two networks g and h with f = g − h
  monosplit maxout expand gate.txt              what they are the largest of: posynomials
  monosplit maxout draw gate.txt -o gate.svg    a picture of the network
  monosplit maxout draw gate.txt --split -o split.svg

FILE is an ONNX file of a small network, or a text like this one:

  # x where 2x − y is large
  input x, y
  s = max(2x - y + 1/2, 0)
  f = x * s
  output f

One neuron a line, defined before it is used: a sum with weights (a number alone is a bias), the
largest of several sums, or a product of powers (`x^2 * s`). Numbers are 3, 0.25, 1e-3 or 2/3 and
are taken exactly.")]
pub(crate) struct Maxout {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    Split(SplitNetwork),
    Expand(Expand),
    Draw(Draw),
}

impl Maxout {
    pub(crate) fn execute(&self, out: &mut dyn Write) -> Result<(), Failure> {
        match &self.action {
            Action::Split(split) => split.execute(out),
            Action::Expand(expand) => expand.execute(out),
            Action::Draw(draw) => draw.execute(out),
        }
    }
}

/// How the two networks are made.
#[derive(Args)]
struct SplitArgs {
    /// Do not split the inputs: g and h are then networks without any negative weight, and never
    /// decrease where all inputs are at least −C.
    #[arg(long, value_name = "C", verbatim_doc_comment, allow_hyphen_values = true)]
    monotone: Option<String>,

    /// Write products as sums of powers, so that g and h are convex between any two points (with
    /// --monotone, any two above −C). Multiplied out, as the paper does it, they need not be so
    /// where a product mixes two inputs.
    #[arg(long, verbatim_doc_comment)]
    convex: bool,
}

impl SplitArgs {
    fn options(&self) -> Result<SplitOptions> {
        let inputs = match &self.monotone {
            None => Inputs::Rectified,
            Some(text) => {
                let constant = parse_number(text).filter(|constant| !constant.is_negative());
                Inputs::Shifted(constant.ok_or_else(|| {
                    Error::argument(format!(
                        "--monotone is '{text}', expected a number ≥ 0 like 3, 0.5 or 2/3"
                    ))
                })?)
            }
        };
        let products =
            if self.convex { ProductDecomposition::Powers } else { ProductDecomposition::Binomial };
        Ok(SplitOptions::default().inputs(inputs).products(products))
    }
}

/// Write a network as a difference of two, f = g − h, without negative weights
#[derive(Args)]
#[command(long_about = "\
Writes a network as a difference of two, f = g − h, without negative weights.

  monosplit maxout split gate.txt
  monosplit maxout split gate.txt --monotone 3 -o pair.txt

Every neuron v becomes two, v⁺ and v⁻, whose difference it is; g is the last v⁺ and h the last v⁻.
Inputs are split into max(x, 0) and max(−x, 0), the only places where a weight is negative. Printed
are the network of both, how many neurons and arcs it has, the most it could have, and whether
g − h is f at a few points, in exact arithmetic.")]
struct SplitNetwork {
    /// The network: a text (see `monosplit maxout --help`) or a small .onnx file.
    file: PathBuf,

    #[command(flatten)]
    split_args: SplitArgs,

    /// Write the network of both to this file instead of printing it.
    #[arg(short, long, alias = "output", value_name = "FILE")]
    out: Option<PathBuf>,
}

impl SplitNetwork {
    fn execute(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let options = self.split_args.options()?;
        self.out.as_deref().map_or(Ok(()), check_writable)?;
        let network = open(&self.file)?;
        let pair = split(&network, &options).map_err(|error| of(&self.file, error))?;
        let report = report(&network, &pair, &options).map_err(|error| of(&self.file, error))?;
        let remarks: String =
            report.iter().map(|line| format!("# {line}\n").replace("# \n", "#\n")).collect();
        let text = format!("{remarks}{}", pair.both);
        match &self.out {
            None => out.write_all(text.as_bytes())?,
            Some(path) => {
                write_atomically(path, text.as_bytes())?;
                report.iter().try_for_each(|line| writeln!(out, "{line}"))?;
            }
        }
        Ok(())
    }
}

/// The facts about a split.
fn report(network: &MaxoutNetwork, pair: &DecomposedNetwork, options: &SplitOptions) -> Result<Vec<String>> {
    let right = |title| (title, Align::Right, 20);
    let columns = ["inputs", "sums", "products", "neurons", "arcs"].map(right);
    let mut table = TextTable::new(&[&[("", Align::Left, 20)], &columns[..]].concat());
    for (name, part) in [("f", network), ("g and h", &pair.both), ("g alone", &pair.g), ("h alone", &pair.h)]
    {
        let counts = Counts::of(part);
        let numbers =
            [counts.inputs, counts.additions, counts.multiplications, counts.neurons(), counts.arcs];
        let [a, b, c, d, e] = numbers.map(grouped);
        table.row([name.to_owned(), a, b, c, d, e]);
    }
    let bound = Bound::of(network, options);
    let dash = || "–".to_owned();
    table.row(["at most".to_owned(), dash(), dash(), dash(), grouped(bound.neurons), grouped(bound.arcs)]);
    let mut lines = table.lines();
    lines.push(format!("linear bound: at most {} neurons for each neuron of f", grouped(bound.factor)));
    lines.push(match checked(network, pair)? {
        true => format!("f = g − h: exact at {POINTS} points"),
        false => "f = g − h: not checked, exact activations are too large".to_owned(),
    });
    Ok(lines)
}

/// Whether `g − h` was compared with `f`; an error if it is something else.
fn checked(network: &MaxoutNetwork, pair: &DecomposedNetwork) -> Result<bool> {
    for point in 0..POINTS {
        let number =
            |i: usize| Rational::ratio((i as i64 * 5 + point * 7) % 11 - 5, 2).unwrap_or_else(Rational::zero);
        let at: Vec<Rational> = (0..network.inputs().len()).map(number).collect();
        match (network.evaluate(&at), pair.difference(&at)) {
            (Ok(f), Ok(difference)) if f == difference => {}
            (Ok(_), Ok(_)) => {
                return Err(Error::argument(format!("g − h is not f at {at:?}; please report this")));
            }
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// List the posynomials that a network without negative weights is the largest of
#[derive(Args)]
#[command(long_about = "\
Lists the posynomials (polynomials with positive coefficients) that a network is the largest of.

  monosplit maxout expand gate.txt
  monosplit maxout expand gate.txt --latex

A network without negative weights is the largest of finitely many posynomials wherever its inputs
are ≥ 0. One with negative weights is split first, and both streams are listed: in the variables
x⁺ = max(x, 0) and x⁻ = max(−x, 0), or x' = x + C with --monotone C. Lists can be long: past 512
posynomials the command gives up and says so.")]
struct Expand {
    /// The network: a text (see `monosplit maxout --help`) or a small .onnx file.
    file: PathBuf,

    #[command(flatten)]
    split_args: SplitArgs,

    /// Write formulas for LaTeX.
    #[arg(long)]
    latex: bool,

    /// Write the formulas to this file instead of printing them.
    #[arg(short, long, alias = "output", value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Expand {
    fn execute(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let options = self.split_args.options()?;
        self.out.as_deref().map_or(Ok(()), check_writable)?;
        let network = open(&self.file)?;
        let plain = network.is_monotone() && self.split_args.monotone.is_none();
        let expansion = match plain {
            true => Expansion::of(&network, Variables::Free),
            false => Expansion::of_split(&network, &options),
        };
        let expansion = expansion.map_err(|error| of(&self.file, error))?;
        let style = if self.latex { Style::Latex } else { Style::Text };
        let remark = match (&options.inputs, plain) {
            (_, true) => "no weight is negative; wherever all inputs are ≥ 0:".to_owned(),
            (Inputs::Shifted(c), _) if !c.is_zero() => {
                format!("f = f⁺ − f⁻ for every output f; x' = x + {c} for every input x:")
            }
            (Inputs::Shifted(_), _) => "f = f⁺ − f⁻ for every output f:".to_owned(),
            _ => "f = f⁺ − f⁻ for every output f; x⁺ = max(x, 0) and x⁻ = max(−x, 0) for every input x:"
                .to_owned(),
        };
        let mark = if self.latex { "%" } else { "#" };
        let text = format!("{mark} {remark}\n{}", expansion.written(style));
        deliver(self.out.as_deref(), &text, out)
    }
}

/// Draw a network, or the pair it is split into
#[derive(Args)]
#[command(long_about = "\
Draws a network, or the pair it is split into, as SVG or as DOT for Graphviz.

  monosplit maxout draw gate.txt -o gate.svg
  monosplit maxout draw gate.txt --split -o split.svg
  monosplit maxout draw gate.txt --dot | dot -Tpdf > gate.pdf

Inputs are round, sums are boxes, products have six corners; outputs have thick borders. Up to 120
arcs, weights are written beside them; those with a negative weight are red.")]
struct Draw {
    /// The network: a text (see `monosplit maxout --help`) or a small .onnx file.
    file: PathBuf,

    /// Draw the network of both streams.
    #[arg(long)]
    split: bool,

    #[command(flatten)]
    split_args: SplitArgs,

    /// Write SVG [default, unless the file to write ends in .dot or .gv].
    #[arg(long, conflicts_with = "dot")]
    svg: bool,

    /// Write DOT.
    #[arg(long)]
    dot: bool,

    /// Write the picture to this file instead of printing it.
    #[arg(short, long, alias = "output", value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Draw {
    fn execute(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let options = self.split_args.options()?;
        if !self.split && (self.split_args.convex || self.split_args.monotone.is_some()) {
            return Err(Error::argument(
                "--monotone and --convex say how to split; add --split to draw that",
            )
            .into());
        }
        self.out.as_deref().map_or(Ok(()), check_writable)?;
        let mut network = open(&self.file)?;
        if self.split {
            network = split(&network, &options).map_err(|error| of(&self.file, error))?.both;
        }
        let ending = self.out.as_deref().and_then(|path| path.extension()?.to_str());
        let draw = if self.dot || (!self.svg && matches!(ending, Some("dot" | "gv"))) { dot } else { svg };
        let picture = draw(&network).map_err(|error| of(&self.file, error))?;
        deliver(self.out.as_deref(), &picture, out)
    }
}

/// Writes a text to the file that was asked for, or prints it.
fn deliver(path: Option<&Path>, text: &str, out: &mut dyn Write) -> Result<(), Failure> {
    match path {
        Some(path) => write_atomically(path, text.as_bytes())?,
        None => out.write_all(text.as_bytes())?,
    }
    Ok(())
}

/// The network in a file.
fn open(path: &Path) -> Result<MaxoutNetwork> {
    if path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("onnx")) {
        let model = Model::options().precision(Precision::F64).open(path)?;
        return from_graph(model.graph()).map_err(|error| of(path, error));
    }
    let text =
        std::str::from_utf8(&monosplit::read_file(path, MAX_FILE)?).map(str::to_owned).map_err(|_| {
            let found =
                "expected the text of a network or a file ending in .onnx, found bytes that are no text";
            Error::malformed(format!("{}: {found}", path.display()))
        })?;
    parse(&text).map_err(|error| of(path, error))
}

fn of(path: &Path, error: Error) -> Error {
    error.context(path.display())
}
