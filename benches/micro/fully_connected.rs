//! Fully connected layers and their input gradients. At batch 1 they are bound by reading the weights, so the table
//! shows the rate at which weights are read and the fraction of the machine's peak.
//!
//!     cargo bench -p monosplit-bench --bench fully_connected -- [--threads N] [--batch N]

use monosplit::Result;
use monosplit::graph::Op;
use monosplit_bench::{Options, Table, single_node, speed};

/// Input and output features: VGG16's three, its head for pets, ResNet18, ResNet50, MobileNetV2.
const LAYERS: [(usize, usize); 7] =
    [(25088, 4096), (4096, 4096), (4096, 1000), (2048, 512), (512, 1000), (2048, 1000), (1280, 1000)];

fn main() -> Result<()> {
    let Some(options) = Options::from_command_line()? else { return Ok(()) };
    let columns = [
        "fully connected",
        "forward GFLOP/s",
        "of peak",
        "weights read GB/s",
        "input gradient GFLOP/s",
        "of peak",
        "weights read GB/s",
    ];
    let table = Table::begin(&options, &columns);
    for (inputs, outputs) in LAYERS {
        let operations = (2 * inputs * outputs * options.batch) as f64;
        let bytes = (4 * inputs * outputs) as f64;
        let [forward, gradient] = [(inputs, true), (outputs, false)].map(|(length, trans_b)| {
            let op = Op::MatMul { trans_a: false, trans_b };
            let graph = single_node(op, &[&[length]], &[&[outputs, inputs]])?;
            let seconds = speed(&graph, &[&[length]], &options)?;
            Result::Ok(format!("{} | {:.1}", table.rate(operations, seconds), bytes / seconds / 1e9))
        });
        println!("| {inputs}→{outputs} | {} | {} |", forward?, gradient?);
    }
    Ok(())
}
