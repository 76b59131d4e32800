//! Descriptions of experiments.

#![no_main]

use std::path::Path;

use monosplit::eval::experiment::Experiment;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = Experiment::parse(text, Path::new("nowhere/experiment.toml"));
});
