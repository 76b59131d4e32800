//! The paper's table of accuracies: many trainings, each with its own files in one folder, and their results.

use std::path::{Path, PathBuf};

use monosplit_graph::Result;

use crate::architecture::Architecture;
use crate::settings::TrainingSettings;
use crate::training_run::{Files, TrainingResult};

/// The files of a training in the folder of a table.
pub fn files_in(folder: &Path, settings: &TrainingSettings) -> Files {
    let name = format!("{}-{}-{}", settings.architecture.name(), settings.restriction, settings.seed);
    Files::beside(&folder.join(name + ".onnx"))
}

/// The accuracies of some trainings.
#[derive(Clone, Debug, PartialEq)]
pub struct AccuracyCell {
    /// Test accuracies, ascending.
    pub accuracies: Vec<f64>,
    /// Trainings that are not done.
    pub missing: usize,
}

impl AccuracyCell {
    /// Gathers what trainings with these settings, which differ in their seeds, on data of these fingerprints left in a
    /// folder.
    pub fn gather(folder: &Path, trainings: &[(TrainingSettings, String)]) -> Result<Self> {
        let mut cell = AccuracyCell { accuracies: Vec::new(), missing: 0 };
        for (settings, data) in trainings {
            let path: PathBuf = files_in(folder, settings).result;
            match TrainingResult::read(&path, settings, data)? {
                Some(outcome) => cell.accuracies.push(outcome.test_accuracy),
                None => cell.missing += 1,
            }
        }
        cell.accuracies.sort_by(f64::total_cmp);
        Ok(cell)
    }

    /// The median; `None` if nothing is done.
    pub fn median(&self) -> Option<f64> {
        let sorted = &self.accuracies;
        let upper = *sorted.get(sorted.len() / 2)?;
        let lower = sorted[(sorted.len() - 1) / 2];
        Some((lower + upper) / 2.0)
    }
}

/// Medians the paper reports (appendix D), in percent; `None` where it has none.
pub fn paper_median(architecture: &Architecture, restriction: crate::Restriction) -> Option<f64> {
    use crate::Restriction::*;
    let column = match restriction {
        InputConvex => 0,
        Monotone => 1,
        None => 2,
        DifferenceConvex => 3,
        DifferenceMonotone => 4,
        DifferenceNone => 5,
        DifferenceConvexInverted => 6,
        DifferenceMonotoneInverted => 7,
    };
    match architecture.name() {
        // A network of the user's own may have the same name.
        name if Architecture::named(name).ok().as_ref() != Some(architecture) => Option::None,
        "mlp_maxout" => Some([98.36, 98.30, 98.39, 98.56, 98.55, 98.47, 98.58, 98.54][column]),
        "cnn_maxout" => Some([99.16, 98.50, 99.19, 97.94, 98.06, 97.94, 98.17, 98.28][column]),
        _ => Option::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_even_and_odd_counts() {
        let cell = |accuracies: &[f64]| AccuracyCell { accuracies: accuracies.to_vec(), missing: 0 }.median();
        assert_eq!(cell(&[]), None);
        assert_eq!(cell(&[1.0, 2.0, 9.0]), Some(2.0));
        assert_eq!(cell(&[1.0, 2.0, 4.0, 9.0]), Some(3.0));
    }
}
