//! `monosplit diff`: two networks on the same pictures (issue 29).

use monosplit::Tensor;
use monosplit::graph::npy;
use monosplit::graph::onnx::{self, ExportOptions, ImportOptions};
use monosplit::graph::op::Op;
use monosplit::graph::{Graph, Kind, Shape};
use monosplit_testing::{ScratchFolder, crates_folder};
use serde_json::Value;

use crate::program::{Outcome, chelsea, monosplit, refuses, succeeds};

const SIDE: usize = 8;

fn pets() -> String {
    crates_folder().join("monosplit/assets/pets-small.onnx").display().to_string()
}

/// Two scores, `±Σ (x + bend/2 · x²)`, whose gradient is `±(1 + bend · x)`.
fn curved(folder: &ScratchFolder, name: &str, bend: f32, side: usize) -> String {
    let mut g = Graph::new();
    let x = g.input("x", Shape::batched(&[1, side, side]), Kind::Float);
    let squares = g.times(x, x).unwrap();
    let bent = g.scaled(f64::from(bend) / 2.0, squares).unwrap();
    let sum = g.plus(x, bent).unwrap();
    let pixels = side * side;
    let flat = g.add(Op::Reshape { shape: Shape::batched(&[pixels]) }, &[sum]).unwrap();
    let weights = (0..2 * pixels).map(|i| if i % 2 == 0 { 1f32 } else { -1.0 }).collect::<Vec<_>>();
    let weights = g.constant(Tensor::new([pixels, 2], weights).unwrap());
    let scores = g.add(Op::MatMul { trans_a: false, trans_b: false }, &[flat, weights]).unwrap();
    g.output("scores", scores);
    let path = folder.path(name);
    onnx::save(&g, &path, &ExportOptions::default()).unwrap();
    path.display().to_string()
}

/// Samples whose pixels are all the same number.
fn samples(folder: &ScratchFolder, levels: &[f32], side: usize) -> String {
    let values: Vec<f32> = levels.iter().flat_map(|&level| vec![level; side * side]).collect();
    let tensor = Tensor::new([levels.len(), 1, side, side], values).unwrap();
    folder.write("x.npy", npy::write(&tensor)).display().to_string()
}

fn diff(arguments: &[&str]) -> Outcome {
    monosplit([&["diff"], arguments].concat())
}

fn json(arguments: &[&str]) -> (i32, Value) {
    let run = diff(&[arguments, &["--json"]].concat());
    let read = serde_json::from_str(&run.out);
    (run.code, read.unwrap_or_else(|_| panic!("{}{}", run.out, run.errors)))
}

fn column(found: &Value, name: &str) -> Vec<f64> {
    let inputs = found["inputs"].as_array().unwrap();
    inputs.iter().map(|one| one[name].as_f64().unwrap_or(f64::NAN)).collect()
}

/// The numbers follow from the formula of the networks: at `x = t` the maps are 1 and `1 + t`, the scores `64 t` and
/// `64 t + 32 t²`.
#[test]
fn issue_29_the_worst_of_several_inputs_come_first() {
    let folder = ScratchFolder::new();
    let (a, b) = (curved(&folder, "a.onnx", 0.0, SIDE), curved(&folder, "b.onnx", 1.0, SIDE));
    let x = samples(&folder, &[1.0, 0.0, 3.0], SIDE);
    let (code, found) = json(&[&a, &b, &x, "--method", "gradient"]);
    assert_eq!(code, 0, "{found}");
    assert_eq!(column(&found, "map"), [0.75, 0.5, 0.0]);
    let expected = [288.0 / 480.0, 32.0 / 96.0, 0.0];
    for (found, expected) in column(&found, "score").iter().zip(expected) {
        assert!((found - expected).abs() < 1e-6, "{found} {expected}");
    }
    assert_eq!(found["inputs"][0]["scores"], serde_json::json!([192.0, 480.0]));
    // Constant maps that differ have no ranks, so that no limit on them holds.
    assert!(found["inputs"][0]["spearman"].is_null());
    let limited = json(&[&a, &b, &x, "--method", "gradient", "--fail-above", "spearman=1.9"]);
    assert_eq!((limited.0, &limited.1["limits"][0]["holds"]), (1, &Value::Bool(false)));

    let run = diff(&[&a, &b, &x, "--method", "gradient", "--worst", "1"]);
    assert_eq!(run.code, 0, "{}", run.errors);
    assert!(run.out.contains("and 2 more, no further apart"), "{}", run.out);
    assert!(run.out.contains("map at most 0.75, mean 0.417"), "{}", run.out);
}

#[test]
fn issue_29_a_limit_that_is_passed_is_exit_code_1() {
    let folder = ScratchFolder::new();
    let (a, b) = (curved(&folder, "a.onnx", 0.0, SIDE), curved(&folder, "b.onnx", 1.0, SIDE));
    let x = samples(&folder, &[1.0], SIDE);
    let code = |limits: &[&str]| {
        let limits = limits.iter().flat_map(|limit| ["--fail-above", limit]);
        diff(&[&[&*a, &b, &x, "--method", "gradient"], &limits.collect::<Vec<_>>()[..]].concat())
    };
    assert_eq!(code(&["0.5"]).code, 0);
    let above = code(&["0.49"]);
    assert_eq!(above.code, 1);
    assert!(above.out.contains("map is above the limit of 0.49: 0.5"), "{}", above.out);
    assert_eq!(code(&["0.5", "score=0.3"]).code, 1);
    assert_eq!(code(&["0.5", "score=0.34", "class=0"]).code, 0);
    code(&["map=much"]).refused(&["--fail-above", "map=much"]);
}

#[test]
fn issue_29_a_network_does_not_differ_from_itself() {
    let (pets, cat) = (pets(), chelsea().display().to_string());
    let limits: Vec<String> =
        ["map", "score", "spearman", "ssim", "class"].iter().map(|name| format!("{name}=0")).collect();
    let limits = limits.iter().flat_map(|limit| ["--fail-above", limit]);
    let (code, found) = json(&[&[&*pets, &pets, &cat], &limits.collect::<Vec<_>>()[..]].concat());
    assert_eq!(code, 0, "{found}");
    let map = &found["inputs"][0]["maps"][0];
    assert_eq!((map["spearman"].as_f64(), map["ssim"].as_f64()), (Some(1.0), Some(1.0)));
}

/// In half precision a network differs a little, and the page shows where.
#[test]
fn issue_29_single_and_half_precision_are_compared_with_a_page() {
    let folder = ScratchFolder::new();
    let bytes = std::fs::read(pets()).unwrap();
    let graph = onnx::read(&bytes, None, &ImportOptions::default()).unwrap();
    let half = folder.path("half.onnx");
    onnx::save(&graph, &half, &ExportOptions::default().half(true)).unwrap();
    let page = folder.path("diff.html").display().to_string();
    let (pets, half, cat) = (pets(), half.display().to_string(), chelsea().display().to_string());
    let layers = ["--layer", "layer2.1.conv2", "--layer", "layer3.2.conv2"];
    let arguments = [&[&*pets, &half, &cat, "-o", &page, "--method", "gradcam"], &layers[..]].concat();
    let (code, found) = json(&arguments);
    assert_eq!(code, 0, "{found}");
    let (score, map) = (column(&found, "score")[0], column(&found, "map")[0]);
    assert!(score > 0.0 && score < 0.01, "{score}");
    assert!(map > 0.0 && map < 0.05, "{map}");
    let each: Vec<f64> = found["inputs"][0]["maps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|map| map["relative_difference"].as_f64().unwrap())
        .collect();
    assert_eq!((each.len(), each[0].max(each[1])), (2, map));
    let html = std::fs::read_to_string(folder.path("diff.html")).unwrap();
    for words in
        ["half.onnx", "A layer2.1.conv2", "B layer3.2.conv2", "A − B", "chelsea.png", "Bengal", "<svg"]
    {
        assert!(html.contains(words), "{words}");
    }
}

#[test]
fn issue_29_networks_of_other_sizes_are_compared_and_of_other_classes_refused() {
    let folder = ScratchFolder::new();
    let a = curved(&folder, "a.onnx", 0.0, SIDE);
    let small = curved(&folder, "small.onnx", 0.0, 4);
    let cat = chelsea().display().to_string();
    // The slope is 1 everywhere in both; the map of the second is scaled to the first's size.
    let (code, found) = json(&[&a, &small, &cat, "--method", "gradient"]);
    assert_eq!((code, column(&found, "map")), (0, vec![0.0]), "{found}");
    // A window of 7×7 does not fit into 4×4 pixels.
    let bent = curved(&folder, "bent.onnx", 1.0, 4);
    let run = succeeds(["diff", &small, &bent, &cat, "--method", "gradient"]);
    let row = run.out.lines().find(|line| line.contains("chelsea")).unwrap();
    assert!(row.trim_end().ends_with('–'), "{row}");

    refuses(["diff", &a, &pets(), &cat], &["a.onnx has 2 scores", "has 37"]);
    refuses(["diff", &a, &a], &["two networks and something"]);
    refuses(["diff", &a, "absent.onnx", &cat], &["absent.onnx"]);
    let layers = ["--layer", "a", "--other-layer", "b", "--other-layer", "c"];
    diff(&[&[&*a, &a, &cat], &layers[..]].concat()).refused(&["--other-layer", "2 times"]);
    let page = folder.path("none/diff.html").display().to_string();
    refuses(["diff", &a, &a, &cat, "-o", &page], &["there is no folder"]);
}
