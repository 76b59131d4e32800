//! Small values computed while a file is read: shapes, axes, indices, bounds. Integers may contain the batch
//! size, so that `Shape → Gather → Concat → Reshape` is done here and never becomes part of the graph.

use super::symbolic_int::SymbolicInt;
use crate::error::{Error, Result};
use crate::shape::Shape;
use crate::tensor::{Data, Tensor, element_count};

/// The most elements a value computed here may have.
pub(crate) const LIMIT: usize = 1 << 20;

/// The elements of a [`StaticArray`] value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Elements {
    Int(Vec<SymbolicInt>),
    Float { values: Vec<f64>, double: bool },
    Bool(Vec<bool>),
}

/// A small value, known up to the batch size.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StaticArray {
    pub(crate) shape: Vec<usize>,
    pub(crate) elements: Elements,
}

impl Elements {
    pub(crate) fn len(&self) -> usize {
        match self {
            Elements::Int(v) => v.len(),
            Elements::Float { values, .. } => values.len(),
            Elements::Bool(v) => v.len(),
        }
    }

    /// The elements at these positions.
    fn select(&self, positions: &[usize]) -> Elements {
        match self {
            Elements::Int(v) => Elements::Int(positions.iter().map(|&i| v[i]).collect()),
            Elements::Float { values, double } => {
                Elements::Float { values: positions.iter().map(|&i| values[i]).collect(), double: *double }
            }
            Elements::Bool(v) => Elements::Bool(positions.iter().map(|&i| v[i]).collect()),
        }
    }

    fn append(&mut self, other: &Elements) -> Result<()> {
        match (self, other) {
            (Elements::Int(a), Elements::Int(b)) => a.extend(b),
            (Elements::Float { values: a, .. }, Elements::Float { values: b, .. }) => a.extend(b),
            (Elements::Bool(a), Elements::Bool(b)) => a.extend(b),
            _ => return Err(Error::shape("values of different kinds cannot be joined")),
        }
        Ok(())
    }
}

/// Checks that a result of this shape may be computed while a file is read; its number of elements.
pub(crate) fn checked_count(shape: &[usize]) -> Result<usize> {
    element_count(shape)
        .filter(|&n| n <= LIMIT)
        .ok_or_else(|| Error::unsupported(format!("a computed constant of shape {shape:?} is too large")))
}

impl StaticArray {
    pub(crate) fn new(shape: Vec<usize>, elements: Elements) -> Result<Self> {
        if element_count(&shape) != Some(elements.len()) {
            return Err(Error::shape(format!("{} elements do not fill the shape {shape:?}", elements.len())));
        }
        Ok(StaticArray { shape, elements })
    }

    /// A list of integers.
    pub(crate) fn ints(values: Vec<SymbolicInt>) -> Self {
        StaticArray { shape: vec![values.len()], elements: Elements::Int(values) }
    }

    /// One integer.
    pub(crate) fn int(value: SymbolicInt) -> Self {
        StaticArray { shape: Vec::new(), elements: Elements::Int(vec![value]) }
    }

    /// A tensor, if it is small enough to compute with here.
    pub(crate) fn of(tensor: &Tensor) -> Option<Self> {
        if tensor.len() > LIMIT {
            return None;
        }
        let elements = match tensor.data() {
            Data::I64(b) => Elements::Int(b.iter().map(|&v| v.into()).collect()),
            Data::Bool(b) => Elements::Bool(b.to_vec()),
            Data::F32(b) => Elements::Float { values: b.iter().map(|&v| v.into()).collect(), double: false },
            Data::F64(b) => Elements::Float { values: b.to_vec(), double: true },
        };
        Some(StaticArray { shape: tensor.shape().to_vec(), elements })
    }

    /// The axis lengths of a value.
    pub(crate) fn of_shape(shape: &Shape) -> Option<Self> {
        shape.dims().iter().map(|&d| SymbolicInt::of(d)).collect::<Option<Vec<_>>>().map(StaticArray::ints)
    }

    /// As a tensor; `None` if the batch size is in it.
    pub(crate) fn tensor(&self) -> Option<Tensor> {
        let data: Data = match &self.elements {
            Elements::Int(v) => v.iter().map(|e| e.known()).collect::<Option<Vec<i64>>>()?.into(),
            Elements::Float { values, double: true } => values.clone().into(),
            Elements::Float { values, .. } => {
                // What was computed here keeps its digits, so that a run in double precision is one.
                let exact = values.iter().all(|&v| v.is_nan() || f64::from(v as f32) == v);
                match exact {
                    true => values.iter().map(|&v| v as f32).collect::<Vec<_>>().into(),
                    false => values.clone().into(),
                }
            }
            Elements::Bool(v) => v.clone().into(),
        };
        Tensor::new(self.shape.clone(), data).ok()
    }

    /// The integers, if it holds such.
    pub(crate) fn as_ints(&self) -> Result<&[SymbolicInt]> {
        match &self.elements {
            Elements::Int(v) => Ok(v),
            _ => Err(Error::shape("expected integers")),
        }
    }

    /// The elements as real numbers; `None` if the batch size is in them.
    pub(crate) fn floats(&self) -> Option<Vec<f64>> {
        match &self.elements {
            Elements::Int(v) => v.iter().map(|e| e.known().map(|v| v as f64)).collect(),
            Elements::Float { values, .. } => Some(values.clone()),
            Elements::Bool(v) => Some(v.iter().map(|&b| f64::from(u8::from(b))).collect()),
        }
    }

    /// The elements at these positions, under a shape.
    pub(crate) fn select(&self, shape: Vec<usize>, positions: &[usize]) -> Result<Self> {
        StaticArray::new(shape, self.elements.select(positions))
    }

    /// The same elements under another shape.
    pub(crate) fn reshaped(&self, shape: Vec<usize>) -> Result<Self> {
        StaticArray::new(shape, self.elements.clone())
    }

    /// Broadcast to a shape.
    pub(crate) fn expanded(&self, shape: &[usize]) -> Result<Self> {
        let positions = broadcast_positions(&self.shape, shape)?;
        self.select(shape.to_vec(), &positions)
    }

    /// Elements taken along an axis.
    pub(crate) fn taken(&self, axis: usize, indices: &[usize], index_shape: &[usize]) -> Result<Self> {
        let outer: usize = self.shape[..axis].iter().product();
        let inner: usize = self.shape[axis + 1..].iter().product();
        let length = self.shape[axis];
        let shape = [&self.shape[..axis], index_shape, &self.shape[axis + 1..]].concat();
        let mut positions = Vec::with_capacity(checked_count(&shape)?);
        for o in 0..outer {
            for &index in indices {
                if index >= length {
                    return Err(Error::shape(format!("index {index} is outside an axis of length {length}")));
                }
                positions.extend((0..inner).map(|i| (o * length + index) * inner + i));
            }
        }
        self.select(shape, &positions)
    }

    /// Axes reordered.
    pub(crate) fn transposed(&self, axes: &[usize]) -> Result<Self> {
        let shape: Vec<usize> = axes.iter().map(|&a| self.shape[a]).collect();
        let strides = strides(&self.shape);
        let moved: Vec<usize> = axes.iter().map(|&a| strides[a]).collect();
        self.select(shape.clone(), &walk(&shape, &moved))
    }

    /// Values joined along an axis.
    pub(crate) fn joined(parts: &[StaticArray], axis: usize) -> Result<Self> {
        let first = parts.first().ok_or_else(|| Error::shape("nothing to join"))?;
        // Bringing the axis to the front makes joining an append.
        let rank = first.shape.len();
        if axis >= rank {
            return Err(Error::shape(format!("there is no axis {axis} in {:?}", first.shape)));
        }
        let mut axes: Vec<usize> = (0..rank).filter(|&a| a != axis).collect();
        axes.insert(0, axis);
        let mut joined: Option<StaticArray> = None;
        for part in parts {
            if part.shape.len() != rank {
                return Err(Error::shape("values of different rank cannot be joined"));
            }
            let part = part.transposed(&axes)?;
            match &mut joined {
                None => joined = Some(part),
                Some(all) if all.shape[1..] == part.shape[1..] => {
                    all.shape[0] += part.shape[0];
                    checked_count(&all.shape)?;
                    all.elements.append(&part.elements)?;
                }
                Some(_) => return Err(Error::shape("values of different shape cannot be joined")),
            }
        }
        let mut back: Vec<usize> = (1..rank).collect();
        back.insert(axis, 0);
        joined.map_or_else(|| Ok(first.clone()), |all| all.transposed(&back))
    }
}

/// Distance in memory between neighbours along each axis.
pub(crate) fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    strides
}

/// The positions visited in row-major order over `shape`, moving by `steps`.
pub(crate) fn walk(shape: &[usize], steps: &[usize]) -> Vec<usize> {
    // Before the axis of length zero is reached, those around it could fill the memory.
    if shape.contains(&0) {
        return Vec::new();
    }
    let mut positions = vec![0];
    for (&length, &step) in shape.iter().zip(steps) {
        positions = positions.iter().flat_map(|&p| (0..length).map(move |i| p + i * step)).collect();
    }
    positions
}

/// NumPy's broadcast of two shapes.
pub(crate) fn broadcast(a: &[usize], b: &[usize]) -> Result<Vec<usize>> {
    let shape = Shape::fixed(a).broadcast(&Shape::fixed(b))?;
    Ok(shape.dims().iter().filter_map(|d| d.fixed()).collect())
}

/// Where each element of the larger `shape` comes from.
pub(crate) fn broadcast_positions(from: &[usize], shape: &[usize]) -> Result<Vec<usize>> {
    checked_count(shape)?;
    if broadcast(from, shape)? != shape {
        return Err(Error::shape(format!("{from:?} cannot be expanded to {shape:?}")));
    }
    let own = strides(from);
    let missing = shape.len() - from.len();
    let steps: Vec<usize> = (0..shape.len())
        .map(|axis| match axis.checked_sub(missing) {
            Some(a) if from[a] != 1 => own[a],
            _ => 0,
        })
        .collect();
    Ok(walk(shape, &steps))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(shape: &[usize]) -> StaticArray {
        let count = element_count(shape).unwrap() as i64;
        StaticArray::new(shape.to_vec(), Elements::Int((0..count).map(SymbolicInt::from).collect())).unwrap()
    }

    fn values(array: &StaticArray) -> Vec<i64> {
        array.as_ints().unwrap().iter().map(|e| e.fixed).collect()
    }

    #[test]
    fn layouts_are_numpys() {
        assert_eq!(values(&grid(&[2, 3]).transposed(&[1, 0]).unwrap()), [0, 3, 1, 4, 2, 5]);
        assert_eq!(values(&grid(&[3]).expanded(&[2, 3]).unwrap()), [0, 1, 2, 0, 1, 2]);
        assert_eq!(values(&grid(&[2, 1]).expanded(&[2, 3]).unwrap()), [0, 0, 0, 1, 1, 1]);
        assert_eq!(values(&grid(&[2, 3]).taken(1, &[2, 0], &[2]).unwrap()), [2, 0, 5, 3]);
        let joined = StaticArray::joined(&[grid(&[2, 1]), grid(&[2, 2])], 1).unwrap();
        assert_eq!((values(&joined), joined.shape), (vec![0, 0, 1, 1, 2, 3], vec![2, 3]));
    }

    #[test]
    fn large_results_are_refused_before_they_are_made() {
        assert!(grid(&[1]).expanded(&[1 << 40]).is_err());
        assert!(grid(&[1]).expanded(&[1 << 40, 1 << 40]).is_err());
    }
}
