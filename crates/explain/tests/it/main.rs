//! Tests of explanations through the public interface, in one binary because each binary links all crates.

mod bounds;
mod dropout;
mod four_streams;
mod fused;
mod gradients_and_cams;
mod multi_pass;
mod propagation;
mod relevance_of_deep_networks;
mod split_map;
mod vectors;
