//! Tests of the library through its public interface, in one binary because each binary links all crates.

mod chosen_output;
mod default_layers;
mod inputs;
mod op_cases;
mod picture_explainer;
mod targets;
mod theory;
