//! Tensors whose elements are weighted sums of neurons, and how their elements are found.

use std::rc::Rc;

use monosplit_graph::{Error, Result, Tensor, element_count};

use crate::neuron::{Form, NeuronId, add_term};
use crate::rational::Rational;

/// The largest number of elements of a value.
pub(super) const MAX_ELEMENTS: usize = 1 << 18;

/// A tensor of weighted sums, row-major. Elements are shared: most nodes only move them.
#[derive(Clone)]
pub(super) struct Array {
    pub(super) shape: Vec<usize>,
    pub(super) elements: Vec<Rc<Form>>,
}

impl Array {
    pub(super) fn new(shape: Vec<usize>, elements: Vec<Rc<Form>>) -> Self {
        Array { shape, elements }
    }

    /// A tensor of numbers.
    pub(super) fn constant(tensor: &Tensor) -> Result<Self> {
        check_count(tensor.shape())?;
        let number = |&value: &f64| {
            let value = Rational::from_f64(value).ok_or_else(|| {
                Error::unsupported(format!("a constant is {value}, expected finite numbers"))
            })?;
            Ok(Rc::new(constant(value)))
        };
        let elements: Result<Vec<_>> = tensor.to_f64().iter().map(number).collect();
        Ok(Array::new(tensor.shape().to_vec(), elements?))
    }

    /// An array whose elements are computed from their positions.
    pub(super) fn build(
        shape: &[usize],
        mut element: impl FnMut(&[usize]) -> Result<Rc<Form>>,
    ) -> Result<Self> {
        let count = check_count(shape)?;
        let mut position = vec![0; shape.len()];
        let mut elements = Vec::with_capacity(count);
        for _ in 0..count {
            elements.push(element(&position)?);
            advance(&mut position, shape);
        }
        Ok(Array::new(shape.to_vec(), elements))
    }

    pub(super) fn at(&self, position: &[usize]) -> &Rc<Form> {
        &self.elements[position.iter().zip(&self.shape).fold(0, |i, (&p, &n)| i * n + p)]
    }

    /// The element that a position of a larger shape falls on when this one is broadcast to it.
    pub(super) fn broadcast(&self, position: &[usize]) -> &Rc<Form> {
        let skipped = position.len() - self.shape.len();
        let own: Vec<usize> =
            position[skipped..].iter().zip(&self.shape).map(|(&p, &n)| p.min(n - 1)).collect();
        self.at(&own)
    }
}

/// Fails for shapes with too many elements.
pub(super) fn check_count(shape: &[usize]) -> Result<usize> {
    element_count(shape).filter(|&count| count <= MAX_ELEMENTS).ok_or_else(|| {
        Error::unsupported(format!(
            "a value of shape {shape:?} is too large to be looked at neuron by neuron, expected at most {MAX_ELEMENTS} elements"
        ))
    })
}

fn advance(position: &mut [usize], shape: &[usize]) {
    for (p, &n) in position.iter_mut().zip(shape).rev() {
        *p += 1;
        if *p < n {
            return;
        }
        *p = 0;
    }
}

/// All positions of a shape.
pub(super) fn positions(shape: &[usize]) -> Result<Vec<Vec<usize>>> {
    let count = check_count(shape)?;
    let mut position = vec![0; shape.len()];
    Ok((0..count)
        .map(|_| {
            let here = position.clone();
            advance(&mut position, shape);
            here
        })
        .collect())
}

/// A number.
pub(super) fn constant(value: Rational) -> Form {
    if value.is_zero() { Form::new() } else { Form::from([(NeuronId::UNIT, value)]) }
}

/// The number that a sum is, if it depends on no neuron.
pub(super) fn number(form: &Form) -> Option<Rational> {
    match form.len() {
        0 => Some(Rational::zero()),
        1 => form.get(&NeuronId::UNIT).cloned(),
        _ => None,
    }
}

/// `sum + factor·form`
pub(super) fn accumulate(sum: &mut Form, factor: &Rational, form: &Form) {
    if factor.is_zero() {
        return;
    }
    for (&neuron, weight) in form {
        add_term(sum, neuron, &(factor * weight));
    }
}

/// The sum without terms that cancelled.
pub(super) fn finished(mut sum: Form) -> Rc<Form> {
    sum.retain(|_, weight| !weight.is_zero());
    Rc::new(sum)
}
