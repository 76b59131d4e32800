//! The convolutions of VGG16, ResNet18, ResNet50 and MobileNetV2, forward and input gradient, as fractions of
//! the machine's peak. Operations are counted as in a direct convolution, so Winograd can exceed 100 %.
//!
//!     cargo bench -p monosplit-bench --bench convolution -- [NETWORK…] [--threads N] [--batch N]

use monosplit::Result;
use monosplit_bench::{Convolution, NETWORKS, Options, Table, single_node, speed};

fn main() -> Result<()> {
    let Some(options) = Options::from_command_line()? else { return Ok(()) };
    let columns = ["convolution", "times", "forward GFLOP/s", "of peak", "input gradient GFLOP/s", "of peak"];
    let table = Table::begin(&options, &columns);
    for network in NETWORKS.iter().filter(|network| options.wants(network.name)) {
        let mut totals = [0.0; 3];
        for layer in network.layers {
            let seconds = [forward(layer, &options)?, input_gradient(layer, &options)?];
            let operations = (layer.operations()? * options.batch) as f64;
            let rates = seconds.map(|seconds| table.rate(operations, seconds));
            println!("| {} {layer} | {} | {} | {} |", network.name, layer.count, rates[0], rates[1]);
            let once = [operations, seconds[0], seconds[1]];
            totals.iter_mut().zip(once).for_each(|(total, v)| *total += layer.count as f64 * v);
        }
        let [operations, forward, gradient] = totals;
        let rates = [forward, gradient].map(|seconds| table.rate(operations, seconds));
        let count: usize = network.layers.iter().map(|layer| layer.count).sum();
        println!("| **{}, all** | {count} | {} | {} |", network.name, rates[0], rates[1]);
    }
    Ok(())
}

fn weight(layer: &Convolution) -> [usize; 4] {
    [layer.outputs, layer.inputs / layer.groups, layer.kernel, layer.kernel]
}

fn forward(layer: &Convolution, options: &Options) -> Result<f64> {
    let x: &[usize] = &[layer.inputs, layer.size, layer.size];
    let graph = single_node(layer.forward(), &[x], &[&weight(layer), &[layer.outputs]])?;
    speed(&graph, &[x], options)
}

fn input_gradient(layer: &Convolution, options: &Options) -> Result<f64> {
    let size = layer.output_size()?;
    let y: &[usize] = &[layer.outputs, size, size];
    let graph = single_node(layer.input_gradient()?, &[y], &[&weight(layer)])?;
    speed(&graph, &[y], options)
}
