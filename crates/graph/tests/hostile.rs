//! A bounded run of the fuzz targets of this crate's readers, the same on every machine: thousands of damaged
//! files, from none of which a reader may fail to come back.

mod fuzzing;
mod round_trip;

use fuzzing::FuzzTest;
use monosplit_graph::npy;
use monosplit_graph::npz::Arrays;
use monosplit_graph::weights::Weights;

const DEFAULT: FuzzTest = FuzzTest { name: "", iterations: 4_000, memory: 64 << 20, memory_per_byte: 64 };

#[test]
fn slow_hostile_onnx_files_are_survived() {
    FuzzTest { name: "onnx", ..DEFAULT }.run(round_trip::read_and_write);
}

#[test]
fn hostile_weights_are_survived() {
    FuzzTest { name: "pth", ..DEFAULT }.run(|bytes| Weights::from_bytes(bytes).is_ok());
}

/// What was read is also written, and is then the same.
#[test]
fn hostile_arrays_are_survived() {
    FuzzTest { name: "npy", ..DEFAULT }.run(|bytes| {
        let Ok(array) = npy::read(bytes) else { return false };
        let written = npy::write(&array);
        let again = npy::read(&written).expect("what is written can be read");
        assert_eq!(npy::write(&again), written);
        true
    });
}

/// What was read is also written, and is then the same.
#[test]
fn hostile_safetensors_are_survived() {
    FuzzTest { name: "safetensors", ..DEFAULT }.run(|bytes| {
        let Ok(weights) = Weights::from_safetensors(bytes) else { return false };
        let written = weights.to_safetensors().expect("what was read can be written");
        let again = Weights::from_safetensors(&written).expect("what is written can be read");
        assert_eq!(again.to_safetensors().expect("what was read can be written"), written);
        true
    });
}

#[test]
fn hostile_archives_of_arrays_are_survived() {
    FuzzTest { name: "npz", ..DEFAULT }.run(|bytes| {
        let Ok(mut arrays) = Arrays::open(bytes) else { return false };
        let names: Vec<String> = arrays.names().map(str::to_owned).collect();
        names.iter().filter(|name| arrays.read(name).is_ok()).count() > 0
    });
}
