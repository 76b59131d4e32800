//! Which explanation is right? Metrics that judge a saliency map by the network it explains, by what is known about the
//! image, or by itself; data sets to judge it on; the protocol that does so fairly; and the store of the results.

mod candidate;
pub mod dataset;
mod erosions;
mod examinee;
pub mod experiment;
#[cfg(test)]
mod golden;
mod judging;
mod metric;
pub mod metrics;
mod nearby;
mod parquet;
pub mod protocol;
mod randomisation;
mod sanity;
mod selection;
mod sha256;
pub mod similarity;
mod statistics;
pub mod store;
mod subject;
mod summary;
mod sweep;
mod timing;

pub use candidate::{Candidate, Source};
pub use erosions::{Area, Changes, Erosions};
pub use examinee::{Examinee, Maps, Panel};
pub use judging::Judging;
pub use metric::{Better, Case, Frame, Metric, Network, Silence};
pub use nearby::nearby;
pub use parquet::{Column, parquet};
pub use randomisation::randomised;
pub use sanity::{SIMILARITIES, Sanity};
pub use selection::{Said, Standing, average_ranks, best, ranks, standings};
pub use sha256::Sha256;
pub use similarity::Similarity;
pub use statistics::{Estimate, Verdict, mean, verdict};
pub use summary::{Found, Summary, metric_title};
pub use sweep::{Examiner, Ground, Outcome, Seen, Sweep};
pub use timing::Timing;
