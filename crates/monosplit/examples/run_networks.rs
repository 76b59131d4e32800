//! Runs many networks in one process: for each line `NETWORK.onnx<tab>INPUT.npy<tab>OUTPUT.npy` on standard input, it writes the
//! first output and prints `ok`, or prints why it does not in one line. `scripts/compare_operators.py` feeds it.
//!
//!     cargo run --release --example run_networks < list.txt

use std::io::{self, BufRead, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

use monosplit::engine::{Cpu, Engine};
use monosplit::graph::npy;
use monosplit::graph::onnx::{self, ImportOptions};
use monosplit::{Error, Result};

fn run(network: &str, input: &str, output: &str, engine: &Cpu) -> Result<()> {
    let read = |path: &str| std::fs::read(path).map_err(|cause| Error::argument(format!("{path}: {cause}")));
    // As it is in the file, not in the form that is explained: a final softmax stays.
    let graph = onnx::read(&read(network)?, None, &ImportOptions::default())?;
    let input = npy::read(&read(input)?)?;
    let outputs = engine.compile(&graph)?.run(&[input])?;
    let first = outputs.first().ok_or_else(|| Error::argument("the network has no output"))?;
    std::fs::write(output, npy::write(first)).map_err(|cause| Error::argument(format!("{output}: {cause}")))
}

fn main() -> io::Result<()> {
    let engine = Cpu::default().threads(1).memory_limit(1 << 30);
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let line = line?;
        let mut fields = line.split('\t');
        let (Some(network), Some(input), Some(output)) = (fields.next(), fields.next(), fields.next()) else {
            writeln!(out, "three names are expected, separated by tabs")?;
            continue;
        };
        let answer = match catch_unwind(AssertUnwindSafe(|| run(network, input, output, &engine))) {
            Ok(Ok(())) => "ok".to_owned(),
            Ok(Err(error)) => error.to_string().replace('\n', " "),
            Err(_) => "panic".to_owned(),
        };
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}
