//! Windows sliding over arrays of sums: convolutions and pools, and where they read.

use std::rc::Rc;

use monosplit_graph::op::{Divisor, Window};
use monosplit_graph::{Error, Result};

use super::array::{Array, accumulate, check_count, finished, number, positions};
use super::{Builder, element_name};
use crate::neuron::Form;
use crate::rational::Rational;

impl Builder {
    pub(super) fn convolution(
        &mut self,
        window: &Window,
        groups: usize,
        shape: &[usize],
        x: &[&Array],
    ) -> Result<Array> {
        let (image, weights) = (x[0], x[1]);
        let taps = positions(&window.kernel)?;
        let per_group = (weights.shape[0] / groups.max(1)).max(1);
        Array::build(shape, |p| {
            let mut sum = Form::new();
            let first = p[1] / per_group * weights.shape[1];
            for (tap, at) in covered(window, &taps, &p[2..], &image.shape[2..]) {
                for channel in 0..weights.shape[1] {
                    let weight = self.weight(weights.at(&[&[p[1], channel], &taps[tap][..]].concat()))?;
                    let element = image.at(&[&[p[0], first + channel], &at[..]].concat());
                    self.add(&mut sum, &weight, element)?;
                }
            }
            if let Some(bias) = x.get(2) {
                accumulate(&mut sum, &Rational::one(), bias.at(&p[1..2]));
            }
            Ok(finished(sum))
        })
    }

    fn weight(&self, form: &Form) -> Result<Rational> {
        number(form).ok_or_else(|| {
            Error::unsupported("the weights of a convolution are computed from an input, expected constants")
        })
    }

    pub(super) fn max_pool(
        &mut self,
        window: &Window,
        shape: &[usize],
        name: &str,
        x: &Array,
    ) -> Result<Array> {
        let taps = positions(&window.kernel)?;
        let count = check_count(shape)?;
        let mut index = 0;
        Array::build(shape, |p| {
            let under = covered(window, &taps, &p[2..], &x.shape[2..]);
            let rows: Vec<Rc<Form>> =
                under.iter().map(|(_, at)| x.at(&[&p[..2], &at[..]].concat()).clone()).collect();
            if rows.is_empty() {
                return Err(Error::unsupported("a window lies in the padding, where nothing is the largest"));
            }
            let name = element_name(name, index, count);
            index += 1;
            self.maximum(&rows, &name)
        })
    }

    pub(super) fn average_pool(
        &mut self,
        window: &Window,
        divisor: Divisor,
        shape: &[usize],
        x: &Array,
    ) -> Result<Array> {
        let taps = positions(&window.kernel)?;
        Array::build(shape, |p| {
            let under = covered(window, &taps, &p[2..], &x.shape[2..]);
            let share = match divisor {
                Divisor::One => 1,
                Divisor::Covered => under.len(),
                Divisor::Padded => padded_count(window, &p[2..], &x.shape[2..]),
            };
            let share = Rational::ratio(1, share as u64)
                .ok_or_else(|| Error::unsupported("a window covers nothing, so there is no mean"))?;
            let mut sum = Form::new();
            for (_, at) in under {
                self.add(&mut sum, &share, x.at(&[&p[..2], &at[..]].concat()))?;
            }
            Ok(finished(sum))
        })
    }
}

/// The taps of a window at output position `out` and their input positions, without those in the padding.
fn covered(
    window: &Window,
    taps: &[Vec<usize>],
    out: &[usize],
    spatial: &[usize],
) -> Vec<(usize, Vec<usize>)> {
    let place = |tap: &Vec<usize>| -> Option<Vec<usize>> {
        (0..tap.len())
            .map(|i| {
                let padded = out[i] * window.stride[i] + tap[i] * window.dilation[i];
                padded.checked_sub(window.pad[i].0).filter(|&p| p < spatial[i])
            })
            .collect()
    };
    taps.iter().enumerate().filter_map(|(i, tap)| place(tap).map(|at| (i, at))).collect()
}

/// Number of positions under a window that are input or padding.
fn padded_count(window: &Window, out: &[usize], spatial: &[usize]) -> usize {
    let along = |i: usize| {
        let end = spatial[i] + window.pad[i].0 + window.pad[i].1;
        (0..window.kernel[i]).filter(|&k| out[i] * window.stride[i] + k * window.dilation[i] < end).count()
    };
    (0..out.len()).map(along).product()
}
