//! How good an explanation is: metrics of saliency maps, data sets, the evaluation protocol, and the store of results.
//!
//! A metric measures a map by the network it explains, by the object mask of the image, or by the map alone.

mod candidate;
mod case_arrays;
mod compiled_group;
pub mod dataset;
mod evaluated_model;
pub mod experiment;
mod given_maps;
#[cfg(test)]
mod golden;
mod map_function;
mod metric;
mod metric_evaluator;
pub mod metrics;
mod parallel;
mod parquet;
mod path_suggestion;
mod perturbation;
pub mod protocol;
mod randomisation;
mod replacement;
mod sanity;
mod selection;
mod sha256;
pub mod similarity;
mod statistics;
pub mod store;
mod summary;
pub mod sweep;
mod timing;

pub use candidate::{Candidate, Source};
pub use compiled_group::{CompiledGroup, ImageFacts, Maps};
pub use evaluated_model::EvaluatedModel;
pub use given_maps::{GivenMaps, MapSource, MappedImages};
pub use map_function::{CompiledMethod, MapFunction};
pub use metric::{Better, Case, CaseShape, ExplainedNetwork, Metric, Undefined};
pub use metric_evaluator::MetricEvaluator;
pub use parquet::{Column, parquet};
pub use path_suggestion::suggest_path;
pub use perturbation::{Perturbations, Region};
pub use randomisation::{randomised, randomised_with, trained};
pub use replacement::PixelReplacement;
pub use sanity::{SIMILARITIES, Sanity};
pub use selection::{CandidateMean, MetricValues, average_ranks, best, candidate_means, ranks};
pub use sha256::Sha256;
pub use similarity::Similarity;
pub use statistics::{ComparisonVerdict, Estimate, mean, verdict};
pub use summary::{MetricSummary, StageSummary, metric_title};
pub use sweep::{EvaluatedImage, Evaluator, Outcome};
pub use timing::Timing;
