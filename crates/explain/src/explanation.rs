//! The result of explaining a batch: class scores, explained classes and maps.

use monosplit_graph::batch::{rows, stack};
use monosplit_graph::{Data, Kind, Result, Tensor};

use crate::explanation_graph::MapOutput;
use crate::method::Diagnostic;

/// A map for every sample of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct SaliencyMap {
    /// `[N, H, W]` for layers with spatial axes, exactly as defined unless the finish asks for a scale.
    pub values: Tensor,
    /// For each sample, the power of two its values are to be multiplied by: 0 unless they would overflow.
    pub exponents: Vec<i32>,
    /// What the method measured about itself.
    pub diagnostics: Vec<Diagnostic>,
}

/// The result of explaining a batch: class scores, explained classes, maps.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The class scores `[N, classes]`, bit for bit those of the network alone.
    pub logits: Tensor,
    /// The explained class of each sample.
    pub classes: Vec<usize>,
    /// The maps, in the order they were asked for.
    pub maps: Vec<SaliencyMap>,
}

impl SaliencyMap {
    /// The map that an output of an explanation graph holds.
    pub(crate) fn from_outputs(outputs: &[Tensor], output: MapOutput, samples: usize) -> Self {
        let exponents = match output.exponent {
            None => vec![0; samples],
            Some(at) => {
                let found = outputs[at].to_f64();
                (0..samples).map(|i| *found.get(i).or(found.first()).unwrap_or(&0.0) as i32).collect()
            }
        };
        SaliencyMap { values: outputs[output.map].clone(), exponents, diagnostics: Vec::new() }
    }

    /// The map with a power of two taken out of every sample whose numbers single precision could not hold, so that it can be
    /// drawn and written in either precision.
    pub(crate) fn within_single_range(mut self) -> Result<Self> {
        let Data::F64(values) = self.values.data() else { return Ok(self) };
        let mut values = values.to_vec();
        let each = values.len() / self.exponents.len().max(1);
        for (sample, exponent) in values.chunks_mut(each.max(1)).zip(&mut self.exponents) {
            let largest = sample.iter().fold(0f64, |most, v| most.max(v.abs()));
            if largest.is_finite() && largest > f64::from(f32::MAX) {
                let taken = largest.log2().floor() as i32;
                sample.iter_mut().for_each(|v| *v *= 2f64.powi(-taken));
                *exponent += taken;
            }
        }
        self.values = Tensor::new(self.values.shape().to_vec(), values)?;
        Ok(self)
    }

    /// The map in the precision of the class scores.
    pub(crate) fn in_precision_of(self, logits: &Tensor) -> Result<Self> {
        let values = match logits.data() {
            Data::F32(_) => Tensor::new(self.values.shape().to_vec(), self.values.to_f32().into_vec())?,
            _ => self.values,
        };
        Ok(SaliencyMap { values, ..self })
    }
}

impl Explanation {
    /// The first sample whose class scores are finite and whose map is not, as an error.
    pub(crate) fn check_finite(&self, map: &SaliencyMap) -> std::result::Result<(), usize> {
        let samples = self.classes.len().max(1);
        let (scores, values) = (self.logits.to_f64(), map.values.to_f64());
        let finite = |all: &[f64], row: usize| {
            let each = all.len() / samples;
            all[row * each..(row + 1) * each].iter().all(|value| value.is_finite())
        };
        match (0..self.classes.len()).find(|&row| finite(&scores, row) && !finite(&values, row)) {
            Some(row) => Err(row),
            None => Ok(()),
        }
    }

    /// The first samples alone.
    pub(crate) fn cut_to(self, count: usize) -> Result<Self> {
        let cut = |map: SaliencyMap| -> Result<SaliencyMap> {
            let exponents = map.exponents[..count].to_vec();
            Ok(SaliencyMap { values: rows(&map.values, 0..count)?, exponents, ..map })
        };
        Ok(Explanation {
            logits: rows(&self.logits, 0..count)?,
            classes: self.classes[..count].to_vec(),
            maps: self.maps.into_iter().map(cut).collect::<Result<_>>()?,
        })
    }

    /// The samples of several batches.
    pub(crate) fn joined(parts: &[Explanation]) -> Result<Self> {
        let all = |of: &dyn Fn(&Explanation) -> Tensor| {
            stack(&parts.iter().map(of).collect::<Vec<_>>(), Kind::Float)
        };
        let maps = (0..parts.first().map_or(0, |part| part.maps.len())).map(|i| {
            Ok(SaliencyMap {
                values: all(&|part| part.maps[i].values.clone())?,
                exponents: parts.iter().flat_map(|part| part.maps[i].exponents.iter().copied()).collect(),
                diagnostics: Vec::new(),
            })
        });
        Ok(Explanation {
            logits: all(&|part| part.logits.clone())?,
            classes: parts.iter().flat_map(|part| part.classes.iter().copied()).collect(),
            maps: maps.collect::<Result<_>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explanation(maps: Vec<SaliencyMap>) -> Explanation {
        let logits = Tensor::new([2, 1], vec![1f64, f64::NAN]).unwrap();
        Explanation { logits, classes: vec![0; 2], maps }
    }

    fn map(values: [f64; 4]) -> SaliencyMap {
        let values = Tensor::new([2, 1, 2], values.to_vec()).unwrap();
        SaliencyMap { values, exponents: vec![0; 2], diagnostics: Vec::new() }
    }

    #[test]
    fn issue_27_numbers_too_large_for_single_precision_have_a_power_of_two() {
        let found = map([3e48, -1e40, 1.0, 2.0]).within_single_range().unwrap();
        assert_eq!(found.exponents[1], 0);
        let restored: Vec<f64> =
            found.values.to_f64()[..2].iter().map(|v| v * f64::from(found.exponents[0]).exp2()).collect();
        assert_eq!(restored, [3e48, -1e40]);
        assert!(found.values.to_f32().iter().all(|v| v.is_finite()));
    }

    #[test]
    fn issue_27_a_map_is_finite_where_its_scores_are() {
        let bad = explanation(Vec::new());
        assert_eq!(bad.check_finite(&map([1.0, 2.0, f64::NAN, 3.0])), Ok(()));
        assert_eq!(bad.check_finite(&map([1.0, f64::INFINITY, 0.0, 3.0])), Err(0));
    }
}
