//! Reads an ONNX file and writes it again: `roundtrip IN OUT [--opset N] [--double]`. Checked against ONNX Runtime by
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
    let usage = || Error::argument("usage: roundtrip IN OUT [--opset N] [--double]");
    let [from, to, rest @ ..] = arguments else { return Err(usage()) };
    let mut options = ExportOptions::default();
    let mut rest = rest.iter();
    while let Some(flag) = rest.next() {
        options = match flag.as_str() {
            "--double" => options.double(true),
            "--opset" => options.opset(rest.next().and_then(|n| n.parse().ok()).ok_or_else(usage)?),
            _ => return Err(usage()),
        };
    }
    let graph = onnx::open(Path::new(from), &ImportOptions::default())?;
    onnx::save(&graph, Path::new(to), &options)
}
