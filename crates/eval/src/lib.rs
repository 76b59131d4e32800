//! Which explanation is right? Metrics that judge a saliency map by the network it explains, by what is known about the
//! image, or by itself.

#[cfg(test)]
mod golden;
mod metric;
pub mod metrics;
pub mod similarity;
mod subject;

pub use metric::{Better, Case, Metric, Network, Silence};
pub use similarity::Similarity;
