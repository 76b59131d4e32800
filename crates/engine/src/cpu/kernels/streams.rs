//! Several vectors times one matrix, each time with the matrix or with its magnitudes, in one pass over the
//! matrix: a fully connected layer is bound by reading its weights, so they are read once for all streams, and
//! magnitudes are taken on the way and never stored. Every stream gets the bits it would get alone.

use monosplit_graph::Result;
use rayon::prelude::*;

use super::broadcast::expand;
use super::gemm::dot;
use super::matmul::{Product, SMALL, SPAN, VECTOR_BLOCK};
use crate::cpu::real::Real;

/// Columns of the result that are computed at a time where magnitudes have to be stored for a product.
const CHUNK: usize = 512;

/// A matrix `[outputs, inputs]`, or `[inputs, outputs]` unless transposed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weights<'a, R> {
    pub(crate) data: &'a [R],
    pub(crate) transposed: bool,
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
}

/// One of the vectors, or several as rows of a matrix.
#[derive(Debug)]
pub(crate) struct Stream<'a, R> {
    pub(crate) x: &'a [R],
    /// Whether the magnitudes of the weights are meant.
    pub(crate) magnitude: bool,
    /// What is added, and its shape.
    pub(crate) bias: Option<(&'a [R], &'a [usize])>,
    pub(crate) out: &'a mut [R],
}

impl<R: Real> Weights<'_, R> {
    /// Computes all streams.
    pub(crate) fn multiply(&self, streams: &mut [Stream<'_, R>]) -> Result<()> {
        let is_vector = |stream: &Stream<'_, R>| stream.x.len() == self.inputs;
        let small = self.inputs * self.outputs <= SMALL || self.outputs == 1;
        if small || !streams.iter().all(is_vector) {
            return streams.iter_mut().try_for_each(|stream| self.product(stream));
        }
        for stream in streams.iter_mut() {
            match stream.bias {
                Some(bias) => expand(bias, (stream.out, &[1, self.outputs]))?,
                None => stream.out.fill(R::ZERO),
            }
        }
        let mut blocks: Vec<Vec<&mut [R]>> =
            (0..self.outputs.div_ceil(VECTOR_BLOCK)).map(|_| Vec::new()).collect();
        let vectors: Vec<(&[R], bool)> = streams.iter().map(|stream| (stream.x, stream.magnitude)).collect();
        for stream in streams.iter_mut() {
            blocks
                .iter_mut()
                .zip(stream.out.chunks_mut(VECTOR_BLOCK))
                .for_each(|(block, out)| block.push(out));
        }
        blocks.into_par_iter().enumerate().for_each(|(block, mut out)| match self.transposed {
            true => self.rows(block * VECTOR_BLOCK, &vectors, &mut out),
            false => self.columns(block * VECTOR_BLOCK, &vectors, &mut out),
        });
        Ok(())
    }

    /// Adds the outputs from `first` on where each is a dense row of the matrix.
    fn rows(&self, first: usize, vectors: &[(&[R], bool)], out: &mut [&mut [R]]) {
        let mut magnitudes = vec![R::ZERO; self.inputs];
        for row in 0..out.first().map_or(0, |out| out.len()) {
            let weights = &self.data[(first + row) * self.inputs..][..self.inputs];
            if vectors.iter().any(|(_, magnitude)| *magnitude) {
                magnitudes.iter_mut().zip(weights).for_each(|(m, w)| *m = w.abs());
            }
            for ((x, magnitude), out) in vectors.iter().zip(out.iter_mut()) {
                out[row] += dot(if *magnitude { &magnitudes } else { weights }, x);
            }
        }
    }

    /// Adds the outputs from `first` on where each is a column of the matrix, in spans whose sums are rounded apart.
    fn columns(&self, first: usize, vectors: &[(&[R], bool)], out: &mut [&mut [R]]) {
        let width = out.first().map_or(0, |out| out.len());
        let mut sums = [R::ZERO; VECTOR_BLOCK];
        let sums = &mut sums[..width];
        for start in (0..self.inputs).step_by(SPAN) {
            let span = start..(start + SPAN).min(self.inputs);
            for ((x, magnitude), out) in vectors.iter().zip(out.iter_mut()) {
                sums.fill(R::ZERO);
                for (row, &x) in span.clone().zip(&x[span.clone()]) {
                    let weights = &self.data[row * self.outputs + first..][..width];
                    if *magnitude {
                        sums.iter_mut().zip(weights).for_each(|(sum, w)| *sum += w.abs() * x);
                    } else {
                        sums.iter_mut().zip(weights).for_each(|(sum, &w)| *sum += w * x);
                    }
                }
                out.iter_mut().zip(sums.iter()).for_each(|(out, &sum)| *out += sum);
            }
        }
    }

    /// One stream by itself.
    fn product(&self, stream: &mut Stream<'_, R>) -> Result<()> {
        let rows = stream.x.len() / self.inputs.max(1);
        let product = Product { trans_a: false, trans_b: self.transposed };
        let shape = |columns: usize| match self.transposed {
            true => [columns, self.inputs],
            false => [self.inputs, columns],
        };
        let x = (stream.x, &[rows, self.inputs][..]);
        if !stream.magnitude {
            let out = (&mut *stream.out, &[rows, self.outputs][..]);
            return product.run(x, (self.data, &shape(self.outputs)), stream.bias, out);
        }
        match stream.bias {
            Some(bias) => expand(bias, (stream.out, &[rows, self.outputs]))?,
            None => stream.out.fill(R::ZERO),
        }
        // A chunk is always long enough for the product to go about it as it would about the whole.
        let chunk = CHUNK.max(SMALL / (rows * self.inputs).max(1) + 1).max(rows + 1).next_multiple_of(CHUNK);
        let mut first = 0;
        while first < self.outputs {
            let left = self.outputs - first;
            let columns = if left < 2 * chunk { left } else { chunk };
            let magnitudes = self.magnitudes(first, columns);
            let strips = stream.out.chunks(self.outputs).map(|row| &row[first..first + columns]);
            let bias: Vec<R> = strips.flatten().copied().collect();
            let mut part = vec![R::ZERO; rows * columns];
            let sizes = [rows, columns];
            product.run(x, (&magnitudes, &shape(columns)), Some((&bias, &sizes)), (&mut part, &sizes))?;
            for (out, part) in stream.out.chunks_mut(self.outputs).zip(part.chunks(columns)) {
                out[first..first + columns].copy_from_slice(part);
            }
            first += columns;
        }
        Ok(())
    }

    /// The magnitudes behind `columns` outputs, laid out as the matrix is.
    fn magnitudes(&self, first: usize, columns: usize) -> Vec<R> {
        if self.transposed {
            let rows = &self.data[first * self.inputs..][..columns * self.inputs];
            return rows.par_iter().map(|w| w.abs()).collect();
        }
        let strips = self.data.par_chunks(self.outputs).map(|row| &row[first..first + columns]);
        strips.flat_map_iter(|strip| strip.iter().map(|w| w.abs())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::kernels::testing::Random;

    #[test]
    fn every_stream_gets_the_bits_it_gets_alone() {
        let mut random = Random::new(31);
        let sizes = [
            (700, 1030, 1),
            (300, 520, 3),
            (40, 1100, 5),
            (9, 1300, 2),
            (4, 5, 1),
            (1100, 64, 1),
            (90, 1, 1),
        ];
        for (inputs, outputs, rows) in sizes {
            for transposed in [false, true] {
                let data = random.reals::<f32>(inputs * outputs);
                let weights = Weights { data: &data, transposed, inputs, outputs };
                let magnitudes: Vec<f32> = data.iter().map(|w| w.abs()).collect();
                let xs: Vec<Vec<f32>> = (0..3).map(|_| random.reals(rows * inputs)).collect();
                let (bias, bias_shape) = (random.reals::<f32>(outputs), [outputs]);
                let mut found = vec![vec![f32::NAN; rows * outputs]; 3];
                let mut streams: Vec<Stream<'_, f32>> = Vec::new();
                for (i, (x, out)) in xs.iter().zip(&mut found).enumerate() {
                    let bias = (i != 1).then_some((&bias[..], &bias_shape[..]));
                    streams.push(Stream { x, magnitude: i > 0, bias, out });
                }
                weights.multiply(&mut streams).unwrap();
                for (i, (x, found)) in xs.iter().zip(&found).enumerate() {
                    let shape = if transposed { [outputs, inputs] } else { [inputs, outputs] };
                    let matrix = if i > 0 { &magnitudes } else { &data };
                    let bias = (i != 1).then_some((&bias[..], &bias_shape[..]));
                    let mut alone = vec![f32::NAN; rows * outputs];
                    let product = Product { trans_a: false, trans_b: transposed };
                    let out = (&mut alone[..], &[rows, outputs][..]);
                    product.run((x, &[rows, inputs]), (matrix, &shape), bias, out).unwrap();
                    assert!(*found == alone, "{inputs} {outputs} {rows} {transposed} {i}");
                }
            }
        }
    }
}
