//! Addresses of numbers in an output: an index, a range or the best cell along each axis of a sample.

use std::fmt;
use std::ops::Range;

use monosplit_graph::{Error, Result};

/// Which numbers of a sample are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cells {
    /// One entry for each axis of a sample. Ranges are added up; of the cells along the axes of [`AxisIndex::Best`] each has
    /// its score.
    Each(Vec<AxisIndex>),
    /// Every cell has the score of this class. Classes run along the channels of `[N, C, H, W, …]`, and along the last axis of
    /// `[N, cells, classes]` and of `[N, classes]`.
    BestOf(usize),
}

/// What is taken along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AxisIndex {
    /// One element; a negative index counts from the end.
    At(i64),
    /// The elements from the first bound to before the second, as Python's slices; none is the beginning or the end.
    Range(Option<i64>, Option<i64>),
    /// The element with the highest score of each sample.
    Best,
}

impl fmt::Display for AxisIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bound = |bound: &Option<i64>| bound.map_or_else(String::new, |bound| bound.to_string());
        match self {
            AxisIndex::At(index) => write!(f, "{index}"),
            AxisIndex::Range(from, to) => write!(f, "{}:{}", bound(from), bound(to)),
            AxisIndex::Best => f.write_str("best"),
        }
    }
}

impl fmt::Display for Cells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cells::BestOf(class) => write!(f, "best={class}"),
            Cells::Each(indices) => {
                let indices: Vec<String> = indices.iter().map(ToString::to_string).collect();
                f.write_str(&indices.join(","))
            }
        }
    }
}

/// The elements that are taken along an axis, and whether each has a score of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) elements: Range<usize>,
    pub(super) best: bool,
    /// Whether an index names one element.
    pub(super) single: bool,
}

impl Cells {
    /// What is taken along each axis of a sample of shape `lengths`.
    pub(super) fn taken(&self, output: &str, lengths: &[usize]) -> Result<Vec<Taken>> {
        let indices = match self {
            Cells::Each(indices) => indices.clone(),
            Cells::BestOf(class) => best_of(*class, output, lengths)?,
        };
        if indices.len() != lengths.len() {
            return Err(Error::argument(format!(
                "output '{output}' has {} axes besides that of the samples, {lengths:?}, and {} indices were given ({self}); \
                 give one for each",
                lengths.len(),
                indices.len()
            )));
        }
        let each = indices.iter().zip(lengths).enumerate();
        each.map(|(axis, (index, &length))| index.taken(output, axis, length)).collect()
    }

    /// The indices of the numbers whose scores are told apart: position `cell` among them, row by row.
    pub fn named(&self, lengths: &[usize], cell: usize) -> Result<String> {
        let taken = self.taken("", lengths)?;
        let mut rest = cell;
        let mut words: Vec<String> = Vec::with_capacity(taken.len());
        for Taken { elements, best, .. } in taken.iter().rev() {
            let length = elements.len().max(1);
            words.push(match (*best, elements.len()) {
                (true, _) => {
                    let at = elements.start + rest % length;
                    rest /= length;
                    at.to_string()
                }
                (false, 1) => elements.start.to_string(),
                (false, _) => format!("{}:{}", elements.start, elements.end),
            });
        }
        words.reverse();
        Ok(words.join(","))
    }
}

/// The indices of the best cell of a class.
fn best_of(class: usize, output: &str, lengths: &[usize]) -> Result<Vec<AxisIndex>> {
    let axis = match lengths.len() {
        0 => {
            return Err(Error::argument(format!(
                "output '{output}' is one number for each sample, among which none is the best; take its sum"
            )));
        }
        axes @ (1 | 2) => axes - 1,
        _ => 0,
    };
    if class >= lengths[axis] {
        return Err(Error::argument(format!(
            "output '{output}' has {} classes along axis {} of {lengths:?}, found class {class}; where classes lie along \
             another axis, give an index for each, as [{class},best]",
            lengths[axis],
            axis + 1
        )));
    }
    let mut indices = vec![AxisIndex::Best; lengths.len()];
    indices[axis] = AxisIndex::At(class as i64);
    Ok(indices)
}

impl AxisIndex {
    fn taken(self, output: &str, axis: usize, length: usize) -> Result<Taken> {
        let size = i64::try_from(length).unwrap_or(i64::MAX);
        let outside = |found: String| {
            Error::argument(format!(
                "output '{output}' has {length} elements along axis {} of a sample, from 0 (or -{length}) to {}, found {found}",
                axis + 1,
                size - 1
            ))
        };
        let from_end = |index: i64| if index < 0 { index.saturating_add(size) } else { index };
        match self {
            AxisIndex::Best if length > 0 => Ok(Taken { elements: 0..length, best: true, single: false }),
            AxisIndex::At(index) if (-size..size).contains(&index) => {
                let at = from_end(index) as usize;
                Ok(Taken { elements: at..at + 1, best: false, single: true })
            }
            AxisIndex::Range(from, to) => {
                let clamped = |index: i64| from_end(index).clamp(0, size) as usize;
                let elements = from.map_or(0, clamped)..to.map_or(length, clamped);
                match elements.is_empty() {
                    true => Err(outside(format!("the empty range {self}"))),
                    false => Ok(Taken { elements, best: false, single: false }),
                }
            }
            _ => Err(outside(self.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(indices: &[AxisIndex], lengths: &[usize]) -> Result<Vec<(Range<usize>, bool)>> {
        let taken = Cells::Each(indices.to_vec()).taken("y", lengths)?;
        Ok(taken.into_iter().map(|Taken { elements, best, .. }| (elements, best)).collect())
    }

    /// NumPy's indices and slices of an axis of five.
    #[test]
    fn indices_and_ranges_count_as_pythons() {
        use AxisIndex::{At, Best, Range};
        for (index, expected) in [
            (At(0), (0..1, false)),
            (At(-1), (4..5, false)),
            (At(-5), (0..1, false)),
            (Range(None, None), (0..5, false)),
            (Range(Some(1), Some(-1)), (1..4, false)),
            (Range(Some(-2), None), (3..5, false)),
            (Range(Some(-9), Some(99)), (0..5, false)),
            (Best, (0..5, true)),
        ] {
            assert_eq!(taken(&[index], &[5]).unwrap(), [expected], "{index}");
        }
        for wrong in
            [At(5), At(-6), At(i64::MAX), At(i64::MIN), Range(Some(3), Some(3)), Range(Some(4), Some(1))]
        {
            let error = taken(&[wrong], &[5]).unwrap_err().to_string();
            assert!(error.contains("from 0 (or -5) to 4"), "{error}");
        }
        assert!(taken(&[At(0)], &[5, 2]).unwrap_err().to_string().contains("one for each"));
        assert!(taken(&[Best], &[0]).is_err() && taken(&[At(0)], &[0]).is_err());
    }

    #[test]
    fn the_best_cell_of_a_class_is_named_by_all_its_indices() {
        let best = Cells::BestOf(2);
        assert_eq!(best.named(&[7, 3], 5).unwrap(), "5,2");
        assert_eq!(best.named(&[3, 4, 5], 13).unwrap(), "2,2,3");
        assert_eq!(best.named(&[3], 0).unwrap(), "2");
        let error = best.taken("y", &[7, 2]).unwrap_err().to_string();
        assert!(error.contains("2 classes along axis 2") && error.contains("[2,best]"), "{error}");
        let some = Cells::Each(vec![AxisIndex::At(-1), AxisIndex::Range(Some(1), None), AxisIndex::Best]);
        assert_eq!(some.named(&[4, 3, 6], 5).unwrap(), "3,1:3,5");
    }
}
