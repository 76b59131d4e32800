//! Maps that were made elsewhere in an evaluation (issue 27, point 6).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use monosplit::Tensor;
use monosplit::eval::store::{RowFilter, Store, StoredRow};
use monosplit::graph::npy;

use crate::evaluate::Bench;
use crate::program::{Outcome, monosplit, succeeds};

const EXPERIMENT: &str = r#"
name = "own maps"
[model]
file = "MODEL"
[data]
folder = "data"
test = "test"
[[method]]
title = "Mine"
maps = "MAPS"
[[method]]
method = "mask"
[[method]]
method = "gradcam"
[comparison]
metrics = ["pointing-game", "attribution-localisation", "sparseness", "pixel-flipping:auc=2"]
"#;

/// The values of a map: those of the masks of the images.
fn mask() -> Vec<f32> {
    (0..128 * 128).map(|i| if (30..100).contains(&(i % 128)) { 1.0 } else { 0.0 }).collect()
}

fn save(path: &Path, shape: &[usize], values: Vec<f32>) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, npy::write(&Tensor::new(shape, values).unwrap())).unwrap();
}

/// A bench whose experiment has maps of its own.
struct MapBench(Bench);

impl MapBench {
    fn new() -> Self {
        let bench = MapBench(Bench::new());
        for number in 0..3 {
            save(&bench.path(&format!("folder/{number}.npy")), &[128, 128], mask());
        }
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path(name)
    }

    /// Runs the experiment with these maps and some of its text replaced.
    fn run(&self, maps: &str, replaced: &[(&str, &str)]) -> Outcome {
        self.write(maps, replaced);
        let store = self.path("maps.sqlite");
        let _ = std::fs::remove_file(&store);
        monosplit([Path::new("evaluate"), &self.path("own.toml"), Path::new("--store"), &store])
    }

    fn write(&self, maps: &str, replaced: &[(&str, &str)]) {
        let model = monosplit_testing::crates_folder().join("monosplit/assets/pets-small.onnx");
        let model = model.canonicalize().unwrap().display().to_string();
        let mut text = EXPERIMENT.replace("MODEL", &model).replace("MAPS", maps);
        for (from, to) in replaced {
            assert!(text.contains(from), "{from}");
            text = text.replace(from, to);
        }
        std::fs::write(self.path("own.toml"), text).unwrap();
    }

    /// Expects a refusal before anything is computed, which leaves no store.
    fn refuses(&self, maps: &str, replaced: &[(&str, &str)], words: &[&str]) {
        self.run(maps, replaced).refused(words);
        assert!(!self.path("maps.sqlite").exists(), "a store is left: {words:?}");
    }

    fn rows(&self, method: &str) -> Vec<StoredRow> {
        let filter = RowFilter { method: Some(method.into()), ..RowFilter::default() };
        Store::read(&self.path("maps.sqlite")).unwrap().rows(&filter).unwrap()
    }

    fn values(&self, method: &str) -> BTreeMap<(String, String), Option<f64>> {
        self.rows(method).into_iter().map(|row| ((row.image, row.metric), row.value)).collect()
    }
}

/// The masks as given maps have the values that the control `mask` has, from whichever file they are read.
#[test]
fn issue_27_own_maps_are_measured_like_those_of_any_method() {
    let bench = MapBench::new();
    save(&bench.path("array.npy"), &[3, 128, 128], [mask(), mask(), mask()].concat());
    for number in 0..3 {
        save(&bench.path(&format!("parts/test/{number}.png.npy")), &[1, 1, 128, 128], mask());
    }
    // Written by NumPy, compressed (`scripts/make_map_fixtures.py`).
    let numpy = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/maps.npz");
    std::fs::copy(numpy, bench.path("numpy.npz")).unwrap();
    for maps in ["folder", "array.npy", "parts", "numpy.npz"] {
        let run = bench.run(maps, &[]);
        assert_eq!(run.code, 0, "{maps}: {}", run.errors);
        assert!(run.out.contains("Mine"), "{}", run.out);
        let given = bench.values("maps");
        assert_eq!(given.len(), 12);
        assert_eq!(given, bench.values("mask"), "{maps}");
        assert!(bench.rows("maps")[0].options.starts_with(&format!("{maps}#")));
    }
    let (store, folder) = (bench.path("maps.sqlite"), bench.path("report"));
    let run = succeeds([Path::new("report"), &store, Path::new("-o"), &folder]);
    assert!(!run.errors.contains("without pictures"), "{}", run.errors);
    let page = std::fs::read_to_string(folder.join("comparison.md")).unwrap();
    assert!(page.contains("Mine"), "{page}");
    // Other maps under the same name are other rows.
    save(&bench.path("folder/1.npy"), &[128, 128], vec![1.0; 128 * 128]);
    bench.write("folder", &[]);
    succeeds([Path::new("evaluate"), &bench.path("own.toml"), Path::new("--store"), &store]);
    assert_eq!(bench.rows("maps").len(), 24);
}

#[test]
fn issue_27_own_maps_are_checked_before_anything_is_computed() {
    let bench = MapBench::new();
    bench.refuses("fold", &[], &["method[1].maps", "did you mean 'folder'?", "found none"]);
    bench.refuses("own.toml", &[], &["method[1].maps", ".npz"]);
    bench.refuses(
        "folder",
        &[("title = \"Mine\"", "layers = \"image\"")],
        &["method[1].layers", "beside `maps`"],
    );
    std::fs::rename(bench.path("folder/2.npy"), bench.path("folder/22.npy")).unwrap();
    let missing = &["method[1].maps", "1 of 3 images have no map", "'2.png'", "'test/2.png'"];
    bench.refuses("folder", &[], missing);
    let wrong: [(&[usize], f32, &[&str]); 4] = [
        (&[3, 128, 128], 1.0, &["image '2.png'", "[3, 128, 128]", "channels"]),
        (&[128], 1.0, &["image '2.png'", "[height, width]"]),
        (&[128, 200], 1.0, &["image '2.png'", "128×200", "128×128"]),
        (&[8, 8], f32::NAN, &["image '2.png'", "not numbers"]),
    ];
    for (shape, value, words) in wrong {
        save(&bench.path("folder/2.npy"), shape, vec![value; shape.iter().product()]);
        bench.refuses("folder", &[], words);
    }
    save(&bench.path("short.npy"), &[2, 128, 128], vec![0.5; 2 * 128 * 128]);
    bench.refuses("short.npy", &[], &["holds 2 maps", "3 images"]);
    std::fs::write(bench.path("broken.npz"), b"PK\x03\x04 and nothing").unwrap();
    bench.refuses("broken.npz", &[], &["broken.npz", "truncated or corrupt"]);
    // The validation images have the same names: their maps cannot be told apart.
    save(&bench.path("folder/2.npy"), &[128, 128], mask());
    let chosen = [
        ("test = \"test\"", "test = \"test\"\nvalidation = \"val\""),
        ("title = \"Mine\"", "title = \"Mine\"\nabsolute = \"both\""),
        ("[comparison]", "[selection]\nlocalisation = [\"pointing-game\"]\n[comparison]"),
    ];
    bench.refuses("folder", &chosen, &["two images", "'test/0.png'"]);
    // One array for each of several images was a mask that failed in the middle of a run.
    save(&bench.path("own.npy"), &[3, 128, 128], vec![0.5; 3 * 128 * 128]);
    let text = format!("method = \"mask:file={}\"", bench.path("own.npy").display());
    bench.refuses("folder", &[("method = \"mask\"", &text)], &["mask:file", "maps = \"FILE\""]);
}

#[test]
fn issue_27_what_cannot_be_asked_of_given_maps_is_said() {
    let bench = MapBench::new();
    save(&bench.path("folder/nobody.npy"), &[128, 128], mask());
    let asked = [
        ("\"sparseness\"", "\"max-sensitivity:samples=2\", \"random-logit\""),
        ("[comparison]", "[sanity]\nimages = 1\n[comparison]"),
    ];
    let run = bench.run("folder", &asked);
    assert_eq!(run.code, 0, "{}", run.errors);
    for remark in [
        "\"max-sensitivity:samples=2\" computes maps anew",
        "\"random-logit\" computes maps anew",
        "it is undefined for Mine",
        "sanity leaves out given maps",
        "1 of 4 maps have the name of no image in the parts of this experiment, 'nobody' first",
    ] {
        assert!(run.errors.contains(remark), "'{remark}' is not in: {}", run.errors);
    }
    for row in bench.rows("maps") {
        let recomputes = ["max-sensitivity:samples=2", "random-logit"].contains(&&*row.metric);
        assert_eq!(row.value.is_none(), recomputes, "{}", row.metric);
        assert!(!row.metric.starts_with("randomised"));
    }
    let alone = [
        ("[[method]]\nmethod = \"mask\"\n[[method]]\nmethod = \"gradcam\"\n", ""),
        ("\"sparseness\"", "\"max-sensitivity\""),
    ];
    bench.refuses(
        "folder",
        &alone,
        &["comparison.metrics \"max-sensitivity\"", "cannot be asked of given maps"],
    );
}

/// Given maps are known by their title, maps of the other part are no strays, and what is chosen has a name.
#[test]
fn issue_27_own_maps_have_names_wherever_they_are_listed() {
    let bench = MapBench::new();
    for (part, number) in [("val", 0), ("val", 1), ("val", 2), ("test", 0), ("test", 1), ("test", 2)] {
        save(&bench.path(&format!("parts/{part}/{number}.png.npy")), &[128, 128], mask());
    }
    let chosen = [
        ("test = \"test\"", "test = \"test\"\nvalidation = \"val\""),
        ("title = \"Mine\"", "title = \"Mine\"\nabsolute = \"both\""),
        ("[comparison]", "[selection]\nlocalisation = [\"pointing-game\"]\n[comparison]"),
    ];
    let run = bench.run("parts", &chosen);
    assert_eq!(run.code, 0, "{}", run.errors);
    assert!(run.out.contains("Mine: best by localisation is signed values\n"), "{}", run.out);
    let store = bench.path("maps.sqlite");
    let table = succeeds([Path::new("results"), &store, "--method".as_ref(), "mine".as_ref()]).out;
    assert!(table.contains("title") && table.contains("Mine"), "{table}");
    // Without a choice the maps of validation images are not needed, but they are maps of images.
    let run = bench.run("parts", &[chosen[0], ("title = \"Mine\"", "title = \"Mine\"\nabsolute = \"yes\"")]);
    assert_eq!(run.code, 0, "{}", run.errors);
    assert!(!run.errors.contains("name of no image"), "{}", run.errors);
}

/// The page is written first: where it cannot be, nothing is.
#[test]
fn issue_35_a_report_that_fails_leaves_no_tables_without_a_page() {
    let bench = MapBench::new();
    assert_eq!(bench.run("folder", &[]).code, 0);
    let (store, folder) = (bench.path("maps.sqlite"), bench.path("report"));
    std::fs::create_dir_all(folder.join("index.html")).unwrap();
    let words = [Path::new("report"), &store, Path::new("-o"), &folder, Path::new("-q")];
    monosplit(words).refused(&["index.html"]);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
}

/// A map of another size is resized. Constant maps stay constant, whatever the rule; `resize.rs` compares with PyTorch.
#[test]
fn maps_of_another_size_are_resized() {
    let bench = MapBench::new();
    for (number, side) in [(0, 1), (1, 4), (2, 256)] {
        save(&bench.path(&format!("folder/{number}.npy")), &[side, side], vec![2.0; side * side]);
    }
    let run = bench.run("folder", &[]);
    assert_eq!(run.code, 0, "{}", run.errors);
    for ((image, metric), value) in bench.values("maps") {
        // 70 of 128 columns lie on the object.
        if metric == "attribution-localisation" {
            assert!((value.unwrap() - 70.0 / 128.0).abs() < 1e-6, "{image} {value:?}");
        }
    }
}

#[test]
fn the_documentation_shows_how_the_fixture_was_written() {
    let root = monosplit_testing::crates_folder().join("..");
    let script = std::fs::read_to_string(root.join("scripts/make_map_fixtures.py")).unwrap();
    let page = std::fs::read_to_string(root.join("docs/src/evaluating.md")).unwrap();
    let shown =
        script.split("# begin: docs/src/evaluating.md\n").nth(1).unwrap().split("# end").next().unwrap();
    assert!(page.contains(shown), "{shown}");
}
