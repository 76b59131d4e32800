//! `monosplit split`: the two monotone convex networks as files of their own.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use monosplit::PairCancellation;
use monosplit::engine::{Cpu, Engine, Precision};
use monosplit::explain::materialise;
use monosplit::graph::onnx::{self, ExportOptions};
use monosplit::graph::passes::fold_constants;
use monosplit::graph::{Error, Graph, Op, Result};
use serde::Serialize;

use super::network::{NetworkArgs, PiecewiseArgs};
use super::network_input;
use super::preprocessing::PreprocessingArgs;
use super::run::check_writable;
use crate::failure::{Failure, note};
use crate::json::{self, WrittenFiles};

/// Writes the two monotone convex networks of a split as ONNX files
#[derive(Args)]
#[command(override_usage = "monosplit split MODEL --out-g G.onnx --out-h H.onnx [OPTIONS]")]
#[command(long_about = "\
Writes the two monotone convex networks of a split as ONNX files.

  monosplit split resnet18.onnx --out-g g.onnx --out-h h.onnx

Both read `x_plus` and `x_minus`, whose difference is the image (`x/2` and `−x/2`, or its positive
and negative part, or anything else), and return one number for each class, with f = g − h. All
weights are ≥ 0; nonlinearities are maxima.

What cancels in g − h is lost to rounding: where g and h grow to 1e18, as in VGG16, single precision
keeps nothing of their difference. How much is left of it on one input is measured and printed;
`monosplit verify` shows how large they get, layer by layer.")]
pub(crate) struct SplitCommand {
    /// The network, an ONNX file (leave it out with --arch and --weights).
    #[arg(value_name = "MODEL")]
    model: Option<PathBuf>,

    #[command(flatten)]
    network: NetworkArgs,

    /// Write g to this file.
    #[arg(long, value_name = "FILE")]
    out_g: PathBuf,

    /// Write h to this file.
    #[arg(long, value_name = "FILE")]
    out_h: PathBuf,

    #[command(flatten)]
    piecewise: PiecewiseArgs,

    /// A picture or .npy array the piecewise activations are fitted to [default: a fixed pattern].
    #[arg(long, value_name = "INPUT", requires = "piecewise")]
    fit_to: Option<PathBuf>,

    #[command(flatten)]
    preprocessing: PreprocessingArgs,

    /// Write for this version of the ONNX operators.
    #[arg(long, value_name = "N", default_value_t = 17)]
    opset: u32,

    /// Print JSON, for programs.
    #[arg(long)]
    json: bool,
}

/// The files and what is left of their difference, for programs.
#[derive(Serialize)]
struct SplitOutput {
    #[serde(flatten)]
    files: WrittenFiles,
    largest_error: f64,
    largest_score: f64,
    largest_of_g_and_h: f64,
}

impl SplitCommand {
    pub(crate) fn execute(&self, out: &mut dyn Write) -> Result<(), Failure> {
        check_writable(&self.out_g)?;
        check_writable(&self.out_h)?;
        if self.out_g == self.out_h {
            return Err(Error::argument("--out-g and --out-h name the same file, expected two").into());
        }
        let model =
            network_input::open(&self.network.options(), self.network.origin(self.model.as_deref())?)?;
        let sample = self.preprocessing.one_sample(&model, self.fit_to.as_ref())?;
        let (model, _) = self.piecewise.apply(model, &sample, &Cpu::default())?;
        let pair = materialise(model.graph())?;
        for (name, graph, path) in [("g", &pair.g, &self.out_g), ("h", &pair.h, &self.out_h)] {
            let least = self.save(graph, path)?;
            if !self.json {
                writeln!(out, "{name}: {}, smallest weight {least}", path.display())?;
            }
        }
        let left = PairCancellation::measure(&model, &pair, &sample)?;
        if self.json {
            let found = SplitOutput {
                files: WrittenFiles::new([&self.out_g, &self.out_h]),
                largest_error: left.error,
                largest_score: left.score,
                largest_of_g_and_h: left.magnitude,
            };
            return json::print(&found, out);
        }
        writeln!(
            out,
            "g − h: largest error {:.1e} in single precision, scores up to {:.1e}; g and h reach {:.1e}",
            left.error, left.score, left.magnitude
        )?;
        out.flush()?;
        if pair.rounding_dropped > 0 {
            let count = pair.rounding_dropped;
            note(&format!(
                "{count} nodes that round activations are left out: g − h are the scores without them"
            ));
        }
        if left.is_large() {
            note("g and h outgrow single precision: subtracted, they do not give the scores of the network");
        }
        Ok(())
    }

    /// Writes a network with its weights computed, and returns the smallest of them.
    fn save(&self, graph: &Graph, path: &Path) -> Result<f64> {
        let double = Cpu::default().precision(Precision::F64);
        let graph = fold_constants(graph, &|g: &Graph| double.compile(g)?.run(&[]))?;
        let least = graph.nodes().fold(f64::INFINITY, |least, (_, node)| match &node.op {
            Op::Constant(tensor) => tensor.to_f64().iter().fold(least, |least, &v| least.min(v)),
            _ => least,
        });
        onnx::save(&graph, path, &ExportOptions::default().opset(i64::from(self.opset)))?;
        Ok(least)
    }
}
