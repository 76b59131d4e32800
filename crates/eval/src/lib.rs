//! Which explanation is right? Metrics that judge a saliency map by the network it explains, by what is known about the
//! image, or by itself; data sets to judge it on; the protocol that does so fairly; and the store of the results.

pub mod dataset;
mod metric;
mod sha256;
pub mod store;

pub use metric::{Better, Case, Metric, Network, Silence};
pub use sha256::Sha256;
