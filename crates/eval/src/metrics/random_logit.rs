//! Random Logit: whether the explanation of another class differs.

use monosplit_graph::{Error, Noise, Options, Result};

use super::map_normalisation::MapNormalisation;
use super::preset::MetricPreset;
use crate::case_arrays::{CaseArrays, MeasureError, measured, plane, undefined};
use crate::metric::{Better, Case, CaseShape, Metric, Undefined};
use crate::similarity::Similarity;

/// The similarity of the map to that of another, randomly drawn class.
#[derive(Clone, Debug, PartialEq)]
pub struct RandomLogit {
    /// The similarity.
    pub similarity: Similarity,
    /// The other class; drawn if there is none.
    pub other: Option<usize>,
    /// How both maps are normalised.
    pub normalisation: MapNormalisation,
}

impl Default for RandomLogit {
    fn default() -> Self {
        RandomLogit {
            similarity: Similarity::SsimFlat,
            other: None,
            normalisation: MapNormalisation::NORMALISED,
        }
    }
}

impl RandomLogit {
    pub(crate) fn read(options: &mut Options) -> Result<Self> {
        MetricPreset::read(options, MetricPreset::Paper)?;
        let default = Self::default();
        let other = options.is_given("other").then(|| options.count("other", 0, 0..=usize::MAX));
        Ok(RandomLogit {
            similarity: default.similarity.read(options)?,
            other: other.transpose()?,
            normalisation: default.normalisation.read(options)?,
        })
    }

    /// A class that is not the one explained.
    fn drawn(&self, case: &Case<'_>) -> Result<usize, MeasureError> {
        let classes = case.network.scores(case.image)?.shape().get(1).copied().unwrap_or(0);
        if classes < 2 || case.class >= classes {
            return Err(undefined("there is no other class"));
        }
        let draw = Noise::new(case.seed).stream("other class").uniform(0);
        let place = ((draw * (classes - 1) as f64) as usize).min(classes - 2);
        Ok(place + usize::from(place >= case.class))
    }

    fn value(&self, case: &Case<'_>) -> Result<f64, MeasureError> {
        let arrays = CaseArrays::of(case)?;
        let other = match self.other {
            Some(other) if other == case.class => {
                return Err(Error::argument("the other class is the one explained; name another").into());
            }
            Some(other) => other,
            None => self.drawn(case)?,
        };
        let explained = plane(&case.network.maps(case.image, other)?, arrays.height, arrays.width)?;
        let (a, b) = (self.normalisation.of(&arrays.map), self.normalisation.of(&explained));
        self.similarity.of(&a, &b, arrays.height).map_err(MeasureError::Undefined)
    }
}

impl Metric for RandomLogit {
    fn name(&self) -> &str {
        "random-logit"
    }

    fn needs_class_scores(&self) -> Option<&'static str> {
        Some("compares with the map of another class, and a target has none; leave it out")
    }

    fn better(&self) -> Better {
        Better::Lower
    }

    fn check(&self, frame: &CaseShape) -> Result<()> {
        match self.other {
            Some(other) if other >= frame.classes => Err(Error::argument(format!(
                "random-logit: option 'other' is a class from 0 to {}, found '{other}'",
                frame.classes.saturating_sub(1)
            ))),
            _ => Ok(()),
        }
    }

    fn recomputes_maps(&self) -> bool {
        true
    }

    fn measure(&self, case: &Case<'_>) -> Result<std::result::Result<f64, Undefined>> {
        measured(self.value(case))
    }
}
