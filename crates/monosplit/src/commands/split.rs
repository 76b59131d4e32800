//! `monosplit split`: the two monotone convex networks as files of their own.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use monosplit_engine::{Cpu, Engine, Precision};
use monosplit_explain::materialise;
use monosplit_graph::onnx::{self, ExportOptions};
use monosplit_graph::passes::fold_constants;
use monosplit_graph::{Error, Graph, Op, Result};

use super::network::{NetworkArgs, PiecewiseArgs};
use super::preprocessing::PreprocessingArgs;
use super::run::check_writable;
use crate::failure::Failure;
use crate::model::Model;

/// Writes the two monotone convex networks of a split as ONNX files
#[derive(Args)]
#[command(override_usage = "monosplit split MODEL --out-g G.onnx --out-h H.onnx [OPTIONS]")]
#[command(long_about = "\
Writes the two monotone convex networks of a split as ONNX files.

  monosplit split resnet18.onnx --out-g g.onnx --out-h h.onnx

Both read `x_plus` and `x_minus`, whose difference is the image (`x/2` and `−x/2`, or its positive and
negative part, or anything else), and return one number for each class, with f = g − h. All weights
are ≥ 0; nonlinearities are maxima.

What cancels in g − h is lost to rounding: where g and h grow to 1e18, as in VGG16, single precision
keeps nothing of their difference. `monosplit verify` shows how large they get.")]
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
}

impl SplitCommand {
    pub(crate) fn execute(&self, out: &mut dyn Write) -> Result<(), Failure> {
        check_writable(&self.out_g)?;
        check_writable(&self.out_h)?;
        if self.out_g == self.out_h {
            return Err(Error::argument("--out-g and --out-h name the same file, expected two").into());
        }
        let model = Model::open(self.network.origin(self.model.as_deref())?, &self.network.options())?;
        let sample = self.preprocessing.one_sample(&model, self.fit_to.as_ref())?;
        let model = self.piecewise.apply(model, &sample, &Cpu::default())?;
        let pair = materialise(model.graph())?;
        for (name, graph, path) in [("g", &pair.g, &self.out_g), ("h", &pair.h, &self.out_h)] {
            let least = self.save(graph, path)?;
            writeln!(out, "{name}: {}, smallest weight {least}", path.display())?;
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
