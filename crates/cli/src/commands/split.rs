//! `monosplit split`: the two monotone convex networks as files of their own.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use monosplit::engine::{Cpu, Engine, Precision};
use monosplit::explain::{Pair, materialise};
use monosplit::graph::onnx::{self, ExportOptions};
use monosplit::graph::passes::fold_constants;
use monosplit::graph::{Error, Graph, Kind, Op, Result, Tensor};

use super::network::{NetworkArgs, PiecewiseArgs};
use super::preprocessing::PreprocessingArgs;
use super::run::check_writable;
use crate::failure::{Failure, note};
use crate::json::Json;
use monosplit::graph::batch::stack;
use monosplit::{Inference, Model};

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

impl SplitCommand {
    pub(crate) fn execute(&self, out: &mut dyn Write) -> Result<(), Failure> {
        check_writable(&self.out_g)?;
        check_writable(&self.out_h)?;
        if self.out_g == self.out_h {
            return Err(Error::argument("--out-g and --out-h name the same file, expected two").into());
        }
        let model = self.network.options().open(self.network.origin(self.model.as_deref())?)?;
        let sample = self.preprocessing.one_sample(&model, self.fit_to.as_ref())?;
        let (model, _) = self.piecewise.apply(model, &sample, &Cpu::default())?;
        let pair = materialise(model.graph())?;
        for (name, graph, path) in [("g", &pair.g, &self.out_g), ("h", &pair.h, &self.out_h)] {
            let least = self.save(graph, path)?;
            if !self.json {
                writeln!(out, "{name}: {}, smallest weight {least}", path.display())?;
            }
        }
        let left = Cancellation::measure(&model, &pair, &sample)?;
        if self.json {
            let object = vec![
                ("files", Json::files([&self.out_g, &self.out_h])),
                ("largest_error", left.error.into()),
                ("largest_score", left.score.into()),
                ("largest_of_g_and_h", left.reach.into()),
            ];
            writeln!(out, "{}", Json::Object(object))?;
            return Ok(());
        }
        writeln!(
            out,
            "g − h: largest error {:.1e} in single precision, scores up to {:.1e}; g and h reach {:.1e}",
            left.error, left.score, left.reach
        )?;
        out.flush()?;
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

/// The error of `g − h` when the two networks are run in single precision.
struct Cancellation {
    error: f64,
    score: f64,
    reach: f64,
}

impl Cancellation {
    /// The largest relative error without a remark.
    const SMALL: f64 = 1e-2;

    fn measure(model: &Model, pair: &Pair, sample: &Tensor) -> Result<Self> {
        let image = stack(&vec![sample.clone(); model.fixed_batch()?.unwrap_or(1)], Kind::Float)?;
        let part = |part: fn(f32) -> f32| {
            Tensor::new(image.shape(), image.to_f32().iter().map(|&v| part(v)).collect::<Vec<f32>>())
        };
        // Half and half where streams are added only; the parts of the input where they are multiplied, too.
        let halves = [part(|v| v / 2.0)?, part(|v| -v / 2.0)?];
        let parts = [part(|v| v.max(0.0))?, part(|v| (-v).max(0.0))?];
        let both = Cpu::default().compile(&pair.both)?;
        let scores = Inference::new(model, &Cpu::default())?.run(std::slice::from_ref(&image))?.to_f64();
        let largest = |values: &mut dyn Iterator<Item = f64>| {
            values.fold(0.0, |most: f64, v| if v.abs() > most || v.is_nan() { v.abs() } else { most })
        };
        let mut found = Cancellation { error: 0.0, score: largest(&mut scores.iter().copied()), reach: 0.0 };
        for inputs in [halves, parts] {
            let streams = both.run(&inputs)?;
            let (g, h) = (streams[0].to_f64(), streams[1].to_f64());
            let errors = scores.iter().zip(g.iter().zip(h.iter())).map(|(f, (g, h))| f - (g - h));
            found.error = largest(&mut errors.chain([found.error]));
            found.reach = largest(&mut g.iter().chain(h.iter()).copied().chain([found.reach]));
        }
        Ok(found)
    }

    /// Whether the error needs a remark; NaN does.
    fn is_large(&self) -> bool {
        self.error.is_nan() || self.error > Self::SMALL * self.score
    }
}
