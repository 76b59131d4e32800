//! Every small model, as exporters write them, gives the numbers of ONNX Runtime and of a float64 reference: as read, in
//! canonical form, and through the program.

use std::path::{Path, PathBuf};

use crate::reference::{array, relative_error};
use monosplit::engine::{Cpu, Engine, Precision};
use monosplit::graph::onnx::{self, ImportOptions};
use monosplit::graph::passes::{CanonicalOptions, Stored};
use monosplit::{Inference, Model, Result, Tensor};

const SINGLE: f64 = 1e-4;
const DOUBLE: f64 = 1e-10;

fn files() -> Vec<PathBuf> {
    let folders = std::fs::read_dir(crate::program::models()).unwrap().map(|entry| entry.unwrap().path());
    let inside = folders.filter(|path| path.is_dir()).flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let mut files: Vec<PathBuf> = inside.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "onnx"));
    files.sort();
    files
}

/// Exporters round weights and constants to single precision; where that shows, what the file itself computes in double
/// precision is kept beside it.
fn array_beside(path: &Path) -> Option<Tensor> {
    let rounded = path.with_extension("y64.npy");
    rounded.exists().then(|| array(&rounded))
}

fn compare(path: &Path) -> Result<Vec<(&'static str, f64, f64)>> {
    let folder = path.parent().unwrap();
    let (x, y64) = (array(&folder.join("x.npy")), array(&folder.join("y64.npy")));
    let y = array(&path.with_extension("y.npy"));
    let double = |found: &Tensor| match array_beside(path) {
        Some(rounded) => relative_error(found, &rounded).min(relative_error(found, &y64)),
        None => relative_error(found, &y64),
    };
    let canonical = |precision, stored| -> Result<Tensor> {
        let canonical = CanonicalOptions::default().logits(false).stored(stored);
        let model = Model::options().canonical(canonical).open(path)?;
        Inference::new(&model, &Cpu::default().precision(precision))?.run(std::slice::from_ref(&x))
    };
    let graph = onnx::open(path, &ImportOptions::default())?;
    let as_read = |precision| -> Result<Tensor> {
        let program = Cpu::default().precision(precision).compile(&graph)?;
        Ok(program.run(std::slice::from_ref(&x))?.remove(0))
    };
    Ok(vec![
        ("as read, f32", relative_error(&as_read(Precision::F32)?, &y), SINGLE),
        ("as read, f64", double(&as_read(Precision::F64)?), DOUBLE),
        ("canonical, f32", relative_error(&canonical(Precision::F32, Stored::AsBefore)?, &y), SINGLE),
        ("canonical, f64", double(&canonical(Precision::F64, Stored::Double)?), DOUBLE),
    ])
}

#[test]
fn all_models_agree_with_onnx_runtime_and_with_float64() {
    let files = files();
    let listed = std::fs::read_to_string(crate::program::models().join("manifest.json")).unwrap();
    assert_eq!(files.len(), listed.matches("\"name\"").count(), "the manifest lists the files");
    let mut failures = Vec::new();
    let mut worst = [0f64; 4];
    for path in &files {
        let name = path.strip_prefix(crate::program::models()).unwrap().display().to_string();
        match compare(path) {
            Err(error) => failures.push(format!("{name}: {error}")),
            Ok(errors) => {
                for (position, (what, error, limit)) in errors.into_iter().enumerate() {
                    worst[position] = worst[position].max(error);
                    if error > limit {
                        failures.push(format!("{name}, {what}: {error:.1e}"));
                    }
                }
            }
        }
    }
    println!(
        "{} files; largest errors {}",
        files.len(),
        worst.map(|error| format!("{error:.1e}")).join(", ")
    );
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), files.len(), failures.join("\n"));
}

#[test]
fn the_program_writes_the_same_numbers() {
    let folder = monosplit_testing::ScratchFolder::new();
    let raw = folder.path("logits.npy");
    for name in [
        "resnet/torchscript-11",
        "vgg/dynamo-18",
        "transformer/dynamo-18",
        "fire/torchscript-20",
        "sequence/torchscript-13",
        "decoder/dynamo-18",
    ] {
        let file = crate::program::model(&format!("{name}.onnx"));
        let x = file.with_file_name("x.npy");
        let [model, x, out] = [&file, &x, &raw].map(|path| path.as_os_str());
        crate::program::succeeds(["run".as_ref(), model, x, "--raw".as_ref(), out]);
        let error = relative_error(&array(&raw), &array(&file.with_extension("y.npy")));
        assert!(error <= SINGLE, "{name}: {error:.1e}");
        let double = ["--precision", "f64", "--threads", "1", "--batch", "1", "--raw"].map(AsRef::as_ref);
        crate::program::succeeds([&["run".as_ref(), model, x], &double[..], &[out]].concat());
        let expected = array_beside(&file).unwrap_or_else(|| array(&file.with_file_name("y64.npy")));
        let error = relative_error(&array(&raw), &expected);
        assert!(error <= DOUBLE, "{name} in f64: {error:.1e}");
    }
}
