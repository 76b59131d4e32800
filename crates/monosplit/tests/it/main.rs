//! Tests of the library through its public interface, in one binary because each binary links all crates.

mod certified_bounds;
mod chosen_output;
mod default_layers;
mod inputs;
mod odd_clips;
mod odd_weights;
mod op_cases;
mod picture_explainer;
mod random_runs;
mod targets;
mod theory;
