//! Convolution where every output channel reads one input channel: too thin for a matrix product, so the
//! taps are added up row by row.

use monosplit_graph::op::Window;
use rayon::prelude::*;

use super::conv::Finish;
use super::window::{Walk, pair};
use crate::cpu::real::Real;

/// A depthwise convolution of known sizes.
pub(crate) struct Depthwise {
    walk: Walk,
    channels: usize,
    multiplier: usize,
}

impl Depthwise {
    /// The convolution of an input `x` with a kernel `w: [channels·multiplier, 1, …]` to an output `y`.
    pub(crate) fn new(window: &Window, x: &[usize], w: &[usize], y: &[usize]) -> Self {
        Depthwise {
            walk: Walk::new(window, &x[2..], &y[2..]),
            channels: x[1],
            multiplier: w[0] / x[1].max(1),
        }
    }

    /// `y ← w ⋆ x + bias`, channel by channel, each finished once computed.
    pub(crate) fn run<R: Real>(
        &self,
        x: &[R],
        w: &[R],
        bias: Option<&[R]>,
        finish: Option<&Finish<'_, R>>,
        y: &mut [R],
    ) {
        let (inputs, taps) = (self.walk.input_len(), self.walk.taps());
        let outputs = self.channels * self.multiplier;
        y.par_chunks_mut(self.walk.output_len()).enumerate().for_each(|(plane, y)| {
            let (image, channel) = (plane / outputs, plane % outputs);
            let from = image * self.channels + channel / self.multiplier;
            let x = &x[from * inputs..(from + 1) * inputs];
            let w = &w[channel * taps..(channel + 1) * taps];
            y.fill(bias.map_or(R::ZERO, |b| b[channel]));
            self.plane(x, w, y);
            if let Some(finish) = finish {
                finish(plane * y.len(), y);
            }
        });
    }

    fn plane<R: Real>(&self, x: &[R], w: &[R], y: &mut [R]) {
        let step = self.walk.step();
        for (row, y) in y.chunks_mut(self.walk.width()).enumerate() {
            self.walk.visit(row, |tap, start, run| {
                let weight = w[tap];
                pair(&mut y[run.first..run.end], &x[start + run.input..], step, |y, &x| *y += weight * x);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::kernels::conv::tests::{definition, output_shape};
    use crate::cpu::kernels::testing::{Random, assert_close, windows};

    #[test]
    fn depthwise_convolutions_equal_direct_sums() {
        let mut random = Random::new(6);
        for axes in 1..=2 {
            for (mut window, input) in windows(&mut random, axes, 30) {
                window.ceil = false;
                let (channels, multiplier) = (random.within(1, 4), random.within(1, 3));
                let xs = [&[2, channels], input.as_slice()].concat();
                let ws = [&[channels * multiplier, 1], window.kernel.as_slice()].concat();
                let ys = output_shape(&window, 2, channels * multiplier, &input);
                let x = random.reals::<f64>(xs.iter().product());
                let w = random.reals::<f64>(ws.iter().product());
                let mut y = vec![f64::NAN; ys.iter().product()];
                Depthwise::new(&window, &xs, &ws, &ys).run(&x, &w, None, None, &mut y);
                assert_close(&y, &definition(&window, channels, (&x, &xs), (&w, &ws), &ys), 1e-13);
            }
        }
    }
}
