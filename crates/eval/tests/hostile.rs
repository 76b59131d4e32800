//! A bounded run of the fuzz targets of this crate's readers, the same on every machine: damaged descriptions of experiments and
//! damaged run stores, from none of which reading may fail to come back.

#[path = "../../graph/tests/fuzzing/mod.rs"]
mod fuzzing;
mod stored;

use std::path::PathBuf;

use fuzzing::FuzzTest;
use monosplit_eval::experiment::Experiment;
use monosplit_testing::{ScratchFolder, crates_folder};

/// What SQLite keeps of a file, and what a description takes whatever its length.
const MEMORY: usize = 64 << 20;

#[test]
fn slow_hostile_experiments_are_survived() {
    let path: PathBuf = crates_folder().join("../experiments/damaged.toml");
    let test = FuzzTest { name: "experiment", iterations: 10_000, memory: MEMORY, memory_per_byte: 1 << 10 };
    test.run(|bytes| {
        let Ok(text) = str::from_utf8(bytes) else { return false };
        Experiment::parse(text, &path).is_ok()
    });
}

/// What is read is read row by row: a store that does not answer honestly is refused, or a row of it is.
#[test]
fn slow_hostile_stores_are_survived() {
    let scratch = ScratchFolder::new();
    let path = scratch.path("damaged.sqlite");
    let test = FuzzTest { name: "store", iterations: 3_000, memory: MEMORY, memory_per_byte: 1 << 10 };
    test.run(|bytes| {
        std::fs::write(&path, bytes).expect("the scratch folder is writable");
        stored::read(&path)
    });
}
