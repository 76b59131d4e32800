//! The program as a person runs it, in one binary because each binary links all crates.

mod bad_input;
mod compile;
mod documentation;
mod engines;
mod evaluate;
mod explain;
mod explain_vectors;
mod given_maps;
mod golden_models;
mod hostile_files;
mod json;
mod json_errors;
mod maxout;
mod networks;
mod photographs;
mod pictures;
mod program;
mod propagation;
mod reference;
mod repeated;
mod run_command;
mod shell;
mod split;
mod train;
mod training_mode;
mod verify;
