//! Several vectors, or batches of them, times one matrix, each time with the matrix or with its magnitudes, in one pass
//! over the matrix: a fully connected layer is bound by reading its weights, so they are read once for all streams, and
//! magnitudes are taken on the way and never stored. Every stream gets the bits it would get alone.

use monosplit_graph::Result;
use rayon::prelude::*;

use super::broadcast::expand;
use super::gemm::{LhsPanels, Matrix, Region, dot};
use super::gemm_rhs::PackedRhs;
use super::matmul::{BLOCK, Product, SMALL, SPAN, VECTOR_BLOCK, flip};
use super::scratch::Scratch;
use super::simd_level::SimdLevel;
use crate::cpu::real::Real;
use crate::cpu::unwinding::filled;

/// A matrix `[outputs, inputs]`, or `[inputs, outputs]` unless transposed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamMatrix<'a, R> {
    pub(crate) data: &'a [R],
    pub(crate) transposed: bool,
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
}

/// One of the vectors, or several as rows of a matrix.
#[derive(Debug)]
pub(crate) struct Stream<'a, R> {
    pub(crate) x: &'a [R],
    /// Whether it is multiplied by the magnitudes of the weights.
    pub(crate) magnitude: bool,
    /// What is added, and its shape.
    pub(crate) bias: Option<(&'a [R], &'a [usize])>,
    pub(crate) out: &'a mut [R],
}

impl<R: Real> StreamMatrix<'_, R> {
    /// Computes all streams, which are of one batch.
    pub(crate) fn multiply(&self, streams: &mut [Stream<'_, R>]) -> Result<()> {
        let rows = streams.first().map_or(0, |stream| stream.x.len() / self.inputs.max(1));
        let small = rows * self.inputs * self.outputs <= SMALL;
        // Where a batch is larger than the layer, reading the weights costs least.
        if small || self.outputs <= rows {
            return streams.iter_mut().try_for_each(|stream| self.product(stream, rows));
        }
        for stream in streams.iter_mut() {
            match stream.bias {
                Some(bias) => expand(bias, (stream.out, &[rows, self.outputs]))?,
                None => stream.out.fill(R::ZERO),
            }
        }
        match rows {
            1 => self.vectors(streams),
            _ => self.batches(streams, rows),
        }
        Ok(())
    }

    /// Adds the products of one vector each.
    fn vectors(&self, streams: &mut [Stream<'_, R>]) {
        let vectors: Vec<(&[R], bool)> = streams.iter().map(|stream| (stream.x, stream.magnitude)).collect();
        let out = blocks(streams.iter_mut().map(|stream| &mut *stream.out), VECTOR_BLOCK);
        out.into_par_iter().enumerate().for_each(|(block, mut out)| match self.transposed {
            true => self.rows(block * VECTOR_BLOCK, &vectors, &mut out),
            false => self.columns(block * VECTOR_BLOCK, &vectors, &mut out),
        });
    }

    /// Adds the products of a batch each. The weights of some outputs are packed, multiplied by the streams that use them as they
    /// are, and replaced by their magnitudes for the others.
    fn batches(&self, streams: &mut [Stream<'_, R>], rows: usize) {
        let matrix = match self.transposed {
            true => Matrix::dense(self.data, self.outputs, self.inputs),
            false => Matrix::dense(self.data, self.inputs, self.outputs).transposed(),
        };
        let packed = |stream: &Stream<'_, R>| {
            let batch = Matrix::dense(stream.x, rows, self.inputs);
            (PackedRhs::pack(batch.transposed()), stream.magnitude)
        };
        let batches: Vec<(PackedRhs<R>, bool)> = streams.iter().map(packed).collect();
        let mut flipped: Vec<Scratch<R>> = streams.iter().map(|s| Scratch::new(s.out.len())).collect();
        let parts = blocks(flipped.iter_mut().map(|flipped| &mut **flipped), BLOCK * rows);
        parts.into_par_iter().enumerate().for_each(|(block, mut parts)| {
            let width = parts.first().map_or(0, |part| part.len() / rows);
            let mut weights = LhsPanels::pack(SimdLevel::current(), matrix.rows(block * BLOCK, width));
            for magnitude in [false, true] {
                if magnitude {
                    weights = weights.into_magnitudes();
                }
                let meant = batches.iter().zip(&mut parts).filter(|((_, other), _)| *other == magnitude);
                for ((batch, _), part) in meant {
                    batch.multiply_packed(&weights, &mut Region::new(part, width, rows, rows), false);
                }
            }
        });
        for (stream, flipped) in streams.iter_mut().zip(&flipped) {
            flip(flipped, stream.out, rows, stream.bias.is_some());
        }
    }

    /// Adds the outputs from `first` on where each is a dense row of the matrix.
    fn rows(&self, first: usize, vectors: &[(&[R], bool)], out: &mut [&mut [R]]) {
        let mut magnitudes = filled(R::ZERO, self.inputs);
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
    fn product(&self, stream: &mut Stream<'_, R>, rows: usize) -> Result<()> {
        let product = Product { trans_a: false, trans_b: self.transposed };
        let shape = if self.transposed { [self.outputs, self.inputs] } else { [self.inputs, self.outputs] };
        let magnitudes: Vec<R> = match stream.magnitude {
            true => self.data.iter().map(|w| w.abs()).collect(),
            false => Vec::new(),
        };
        let weights = if stream.magnitude { &magnitudes } else { self.data };
        let out = (&mut *stream.out, &[rows, self.outputs][..]);
        product.run((stream.x, &[rows, self.inputs]), (weights, &shape), stream.bias, out)
    }
}

/// Chunks of `size` elements of all slices, those of the same index together.
fn blocks<'a, R: 'a>(all: impl Iterator<Item = &'a mut [R]>, size: usize) -> Vec<Vec<&'a mut [R]>> {
    let mut blocks: Vec<Vec<&mut [R]>> = Vec::new();
    for slice in all {
        for (at, piece) in slice.chunks_mut(size).enumerate() {
            if blocks.len() <= at {
                blocks.push(Vec::new());
            }
            blocks[at].push(piece);
        }
    }
    blocks
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
            (70, 90, 33),
            (40, 30, 50),
            (4, 5, 1),
            (1100, 64, 1),
            (90, 1, 1),
        ];
        for (inputs, outputs, rows) in sizes {
            for transposed in [false, true] {
                let data = random.reals::<f32>(inputs * outputs);
                let matrix = StreamMatrix { data: &data, transposed, inputs, outputs };
                let magnitudes: Vec<f32> = data.iter().map(|w| w.abs()).collect();
                let xs: Vec<Vec<f32>> = (0..3).map(|_| random.reals(rows * inputs)).collect();
                let (bias, bias_shape) = (random.reals::<f32>(outputs), [outputs]);
                let mut found = vec![vec![f32::NAN; rows * outputs]; 3];
                let mut streams: Vec<Stream<'_, f32>> = Vec::new();
                for (i, (x, out)) in xs.iter().zip(&mut found).enumerate() {
                    let bias = (i != 1).then_some((&bias[..], &bias_shape[..]));
                    streams.push(Stream { x, magnitude: i > 0, bias, out });
                }
                matrix.multiply(&mut streams).unwrap();
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
