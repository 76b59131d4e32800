//! Builds a known architecture from bare weights and writes it as ONNX:
//! `build_arch NAME WEIGHTS OUT.onnx [HEIGHT WIDTH]`. Without arguments, lists the names.

use std::path::Path;
use std::process::ExitCode;

use monosplit_graph::arch::{self, ArchOptions};
use monosplit_graph::onnx::{self, ExportOptions};
use monosplit_graph::weights::Weights;
use monosplit_graph::{Error, Result};

fn side(text: &str) -> Result<usize> {
    text.parse().map_err(|_| Error::argument(format!("expected a number of pixels, found '{text}'")))
}

fn run(arguments: &[&str]) -> Result<()> {
    let mut options = ArchOptions::default();
    let (name, weights, out) = match *arguments {
        [] => {
            println!("{}", arch::names().join("\n"));
            return Ok(());
        }
        [name, weights, out] => (name, weights, out),
        [name, weights, out, height, width] => {
            options.input = (side(height)?, side(width)?);
            (name, weights, out)
        }
        _ => return Err(Error::argument("expected NAME WEIGHTS OUT.onnx [HEIGHT WIDTH]")),
    };
    let graph = arch::build(name, &Weights::open(weights)?, &options)?;
    onnx::save(&graph, Path::new(out), &ExportOptions::default())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}
