//! Tests of explanations through the public interface, in one binary because each binary links all crates.

mod asked;
mod dropout;
mod four_streams;
mod gradients_and_cams;
mod propagation;
mod repeated;
mod vectors;
