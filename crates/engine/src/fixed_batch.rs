//! Programs of graphs that were written for one batch size, run on any number of samples.

use monosplit_graph::batch::{filled_rows, rows, stack};
use monosplit_graph::{Kind, Result, Tensor};

use crate::Program;

/// Runs a program whose graph takes exactly `size` samples on as many as the first input has. They are run batch by batch; the
/// last batch is filled up with its last sample. The other inputs are the same for every batch. For each output, `axes` says
/// along which axis it has samples and how many elements of that axis one sample has, as
/// [`monosplit_graph::batch::sample_axis`] tells.
pub fn run_in_fixed_batches(
    program: &dyn Program,
    inputs: &[Tensor],
    size: usize,
    axes: &[Option<(usize, usize)>],
) -> Result<Vec<Tensor>> {
    let Some((first, others)) = inputs.split_first() else { return program.run(inputs) };
    let samples = first.shape().first().copied().unwrap_or(1);
    let mut parts: Vec<Vec<Tensor>> = vec![Vec::new(); axes.len()];
    for start in (0..samples).step_by(size.max(1)) {
        let batch = rows(first, filled_rows(samples, start, size)?.into_iter())?;
        let found = program.run(&[&[batch], others].concat())?;
        for ((parts, axis), tensor) in parts.iter_mut().zip(axes).zip(found) {
            match axis {
                Some((_, per_sample)) => {
                    parts.push(rows(&tensor, 0..size.min(samples - start) * per_sample)?)
                }
                None if parts.is_empty() => parts.push(tensor),
                None => {}
            }
        }
    }
    let joined = |parts: &Vec<Tensor>| stack(parts, parts.first().map_or(Kind::Float, Tensor::kind));
    parts.iter().map(joined).collect()
}

#[cfg(test)]
mod tests {
    use monosplit_graph::{Graph, Shape};

    use super::*;
    use crate::{Cpu, Engine};

    #[test]
    fn samples_that_do_not_fill_a_batch_are_computed_as_the_others_are() {
        let mut graph = Graph::new();
        let x = graph.input("x", Shape::fixed(&[2, 3]), Kind::Float);
        let factor = graph.input("factor", Shape::fixed(&[3]), Kind::Float);
        let product = graph.times(x, factor).unwrap();
        graph.output("product", product);
        let program = Cpu::default().compile(&graph).unwrap();
        let x = Tensor::new([5, 3], (0..15).map(|i| i as f32).collect::<Vec<_>>()).unwrap();
        let inputs = [x, Tensor::vector(vec![1f32, 10.0, 100.0])];
        let found = run_in_fixed_batches(&*program, &inputs, 2, &[Some((0, 1))]).unwrap().remove(0);
        assert_eq!(found.shape(), [5, 3]);
        let expected = (0..15).map(|i| i as f32 * 10f32.powi(i % 3)).collect::<Vec<_>>();
        assert_eq!(&*found.to_f32(), &expected);
    }
}
