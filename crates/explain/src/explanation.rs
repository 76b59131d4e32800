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
