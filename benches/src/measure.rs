//! How a program is timed, and how the result is printed: as a rate and as a fraction of the machine's peak, because a time
//! alone means nothing on another machine.

use std::time::{Duration, Instant};

use monosplit::engine::{CompileOptions, Cpu, Engine, Program};
use monosplit::graph::{Graph, Kind, Op, Result, Shape};
use monosplit::{Error, Tensor};

use crate::peak::{Peak, fused_multiply_add_peak};

/// A program is run at least this often and this long; the fastest run counts.
const RUNS: usize = 7;
const LONG_ENOUGH: Duration = Duration::from_millis(150);

/// The options of a micro-benchmark: `[WORD…] [--threads N] [--batch N]`.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads of the engine; 2 by default, as in the speed targets.
    pub threads: usize,
    /// Samples at once.
    pub batch: usize,
    words: Vec<String>,
}

impl Options {
    /// Reads the command line. `None` without `--bench`, which `cargo bench` passes and `cargo test` does not.
    pub fn from_command_line() -> Result<Option<Self>> {
        let mut options = Options { threads: 2, batch: 1, words: Vec::new() };
        let mut asked = false;
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut number = || {
                let value = arguments.next().and_then(|value| value.parse().ok()).filter(|&value| value > 0);
                value.ok_or_else(|| Error::argument(format!("{argument} needs a number, 1 or more")))
            };
            match argument.as_str() {
                "--bench" => asked = true,
                "--threads" => options.threads = number()?,
                "--batch" => options.batch = number()?,
                word if word.starts_with('-') => {
                    return Err(Error::argument(format!("unknown option {word}: --threads N, --batch N")));
                }
                _ => options.words.push(argument),
            }
        }
        Ok(asked.then_some(options))
    }

    /// Whether `name` is selected. Without words all are.
    pub fn wants(&self, name: &str) -> bool {
        self.words.is_empty() || self.words.iter().any(|word| name.contains(word.as_str()))
    }

    /// The engine that is timed.
    pub fn engine(&self) -> Cpu {
        Cpu::default().threads(self.threads)
    }
}

/// A table of rates, with the machine's peak above it.
pub struct Table {
    peak: Peak,
}

impl Table {
    /// Measures the peak and prints the head of the table.
    pub fn begin(options: &Options, columns: &[&str]) -> Self {
        let peak = fused_multiply_add_peak(options.threads);
        let Options { threads, batch, .. } = options;
        println!(
            "{threads} threads, batch {batch}; peak {:.1} GFLOP/s ({})\n",
            peak.gflops, peak.instructions
        );
        println!("| {} |", columns.join(" | "));
        println!("|---|{}", "---:|".repeat(columns.len() - 1));
        Table { peak }
    }

    /// A rate and its fraction of the peak.
    pub fn rate(&self, operations: f64, seconds: f64) -> String {
        let gflops = operations / seconds / 1e9;
        format!("{gflops:.1} | {:.0} %", 100.0 * gflops / self.peak.gflops)
    }
}

/// Numbers between -1 and 1, the same at every call.
pub fn values(shape: &[usize]) -> Result<Tensor> {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    Tensor::new(shape, (0..shape.iter().product()).map(next).collect::<Vec<f32>>())
}

/// A graph of one node over inputs of these shapes (without samples) and constants of those.
pub fn single_node(op: Op, inputs: &[&[usize]], constants: &[&[usize]]) -> Result<Graph> {
    let mut graph = Graph::new();
    let mut operands = Vec::new();
    for (i, shape) in inputs.iter().enumerate() {
        operands.push(graph.input(format!("x{i}"), Shape::batched(shape), Kind::Float));
    }
    for shape in constants {
        operands.push(graph.constant(values(shape)?));
    }
    let node = graph.add(op, &operands)?;
    graph.output("y", node);
    Ok(graph)
}

/// Seconds of the fastest of many runs of a graph on inputs of these shapes (without samples).
pub fn speed(graph: &Graph, inputs: &[&[usize]], options: &Options) -> Result<f64> {
    let program: Box<dyn Program> =
        options.engine().compile_with(graph, &CompileOptions::default().batch_size(options.batch))?;
    let batched = |shape: &&[usize]| values(&[&[options.batch], *shape].concat());
    let inputs: Vec<Tensor> = inputs.iter().map(batched).collect::<Result<_>>()?;
    program.run(&inputs)?;
    let begun = Instant::now();
    let (mut best, mut runs) = (f64::INFINITY, 0);
    while runs < RUNS || begun.elapsed() < LONG_ENOUGH {
        let start = Instant::now();
        program.run(&inputs)?;
        best = best.min(start.elapsed().as_secs_f64());
        runs += 1;
    }
    Ok(best)
}
