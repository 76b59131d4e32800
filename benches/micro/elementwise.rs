//! Elementwise steps of a network and of its split on VGG16's first maps. They are memory-bound: the table shows the rate at
//! which operands are read and results written, and the rate of a plain copy of the same size.
//!
//!     cargo bench -p monosplit-bench --bench elementwise -- [--threads N] [--batch N]

use std::time::Instant;

use monosplit::Result;
use monosplit::graph::op::{Binary, Unary};
use monosplit::graph::{Graph, Kind, NodeId, Shape};
use monosplit_bench::{Options, Table, speed, values};

/// VGG16's and ResNet18's first maps and a late one.
const MAPS: [[usize; 3]; 3] = [[64, 224, 224], [64, 112, 112], [512, 14, 14]];

type Write = fn(&mut Graph, &[NodeId]) -> Result<NodeId>;

/// What is computed, of how many operands.
const STEPS: [(&str, usize, Write); 4] = [
    ("relu(z)", 1, |g, x| g.unary(Unary::Relu, x[0])),
    ("a + b", 2, |g, x| g.plus(x[0], x[1])),
    ("s + relu(−z)", 2, |g, x| {
        let negated = g.negated(x[1])?;
        let rectified = g.rectified(negated)?;
        g.plus(x[0], rectified)
    }),
    ("z ≥ 0 ? E : σ", 3, |g, x| {
        let zero = g.number(0.0);
        let inactive = g.binary(Binary::Less, x[0], zero)?;
        g.select(inactive, x[2], x[1])
    }),
];

fn main() -> Result<()> {
    let Some(options) = Options::from_command_line()? else { return Ok(()) };
    let columns = ["elementwise", "GFLOP/s", "of peak", "GB/s", "of a copy on one thread"];
    let table = Table::begin(&options, &columns);
    for map in MAPS {
        let elements = map.iter().product::<usize>() * options.batch;
        let copy = copied(elements)?;
        for (name, operands, write) in STEPS {
            let mut graph = Graph::new();
            let input = |i: usize| (format!("x{i}"), Shape::batched(&map));
            let inputs: Vec<NodeId> = (0..operands)
                .map(|i| {
                    let (name, shape) = input(i);
                    graph.input(name, shape, Kind::Float)
                })
                .collect();
            let result = write(&mut graph, &inputs)?;
            graph.output("y", result);
            let seconds = speed(&graph, &vec![&map[..]; operands], &options)?;
            let bytes = (4 * elements * (operands + 1)) as f64 / seconds / 1e9;
            let rate = table.rate((elements * operands) as f64, seconds);
            println!("| {name} of {map:?} | {rate} | {bytes:.1} | {:.0} % |", 100.0 * bytes / copy);
        }
    }
    Ok(())
}

/// The rate of a copy, in GB/s read and written.
fn copied(elements: usize) -> Result<f64> {
    let from = values(&[elements])?.to_f32().into_vec();
    let mut to = vec![0f32; elements];
    let seconds = (0..9).map(|_| {
        let start = Instant::now();
        to.copy_from_slice(std::hint::black_box(&from));
        std::hint::black_box(&mut to);
        start.elapsed().as_secs_f64()
    });
    Ok((8 * elements) as f64 / seconds.fold(f64::INFINITY, f64::min) / 1e9)
}
