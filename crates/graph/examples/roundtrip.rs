//! Reads an ONNX file and writes it again: `roundtrip IN OUT [--opset N]`. Checked against ONNX Runtime by
//! `scripts/check_roundtrip.py`.

use std::path::Path;
use std::process::ExitCode;

use monosplit_graph::onnx::{self, ExportOptions, ImportOptions};
use monosplit_graph::{Error, Result};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &[String]) -> Result<()> {
    let usage = || Error::argument("usage: roundtrip IN OUT [--opset N]");
    let (from, to, options) = match arguments {
        [from, to] => (from, to, ExportOptions::default()),
        [from, to, flag, opset] if flag == "--opset" => {
            (from, to, ExportOptions::default().opset(opset.parse().map_err(|_| usage())?))
        }
        _ => return Err(usage()),
    };
    let graph = onnx::open(Path::new(from), &ImportOptions::default())?;
    onnx::save(&graph, Path::new(to), &options)
}
