//! `monosplit compare` and `diff` of what is no picture: texts, series, volumes, tables, several inputs.

use std::ffi::OsString;

use monosplit::Tensor;
use monosplit::graph::npy;
use monosplit::graph::onnx::{self, ExportOptions};
use monosplit::graph::op::Op;
use monosplit::graph::{Graph, Kind, Shape};
use monosplit_testing::ScratchFolder;
use serde_json::Value;

use crate::compile::text;
use crate::named_inputs::fixture;
use crate::pictures::piped;
use crate::program::{monosplit, refuses, succeeds};

/// The numbers that a page shows of its words.
fn shown(html: &str) -> Vec<f64> {
    html.split("title=\"").skip(1).filter_map(|rest| rest.split('"').next()?.parse().ok()).collect()
}

/// The numbers that `explain` finds by a method, token by token.
fn explained(method: &str, out: &str) -> Vec<f64> {
    let mask = format!("mask={}", fixture("text.mask.npy"));
    let (network, ids) = (fixture("text.onnx"), fixture("text.ids.npy"));
    let words = ["explain", &network, &ids, "--input", &mask, "--method", method, "-o", out, "--json"];
    let found: Value = serde_json::from_str(&succeeds(words).out).unwrap();
    let inputs = found["inputs"].as_array().unwrap().iter();
    let tokens = inputs.flat_map(|input| input["maps"][0]["tokens"].as_array().unwrap());
    tokens.map(|token| token["value"].as_f64().unwrap()).collect()
}

#[test]
fn texts_are_compared_in_a_page_with_the_numbers_that_explain_finds() {
    let folder = ScratchFolder::new();
    let (network, ids) = (fixture("text.onnx"), fixture("text.ids.npy"));
    let mask = format!("mask={}", fixture("text.mask.npy"));
    let page = text(&folder.path("both"));
    let compare = ["compare", &network, &ids, "--input", &mask, "-o", &page];
    let methods = ["--methods", "gradient,input-x-gradient"];
    let said = succeeds([&compare[..], &methods].concat()).out;
    let words: Vec<&str> = said.lines().filter(|line| line.starts_with("    ")).collect();
    assert_eq!(words.len(), 4, "two samples and two methods: {said}");
    let html = std::fs::read_to_string(folder.path("both.html")).unwrap();
    let shown = shown(&html);
    let out = text(&folder.path("out"));
    let [first, second] = ["gradient", "input-x-gradient"].map(|method| explained(method, &out));
    // Sample by sample both methods.
    let expected = [&first[..6], &second[..6], &first[6..], &second[6..]].concat();
    assert_eq!(shown.len(), expected.len());
    assert!(
        shown.iter().zip(&expected).all(|(a, b)| (a - b).abs() <= 1e-6 * b.abs()),
        "{shown:?} {expected:?}"
    );
    let wrong = [&compare[..5], &["-o", "never.png"], &methods].concat();
    refuses(wrong, &["a text is written as a page", "never.html"]);
    let said = succeeds([&compare[..], &["--methods", "gradient@wide:out"]].concat()).out;
    assert!(said.contains("  Gradient wide:out"), "{said}");
    let pair = fixture("pair.onnx");
    let given = ["picture", "facts"].map(|name| format!("{name}={}", fixture(&format!("pair.{name}.npy"))));
    let words =
        ["compare", &pair, "--input", &given[0], "--input", &given[1], "--methods", "gradient@trunk.0"];
    refuses(words, &["'trunk.0'", "name one with --of"]);
}

#[test]
fn series_tables_volumes_and_several_inputs_are_compared_in_one_figure() {
    let folder = ScratchFolder::new();
    let figure = text(&folder.path("figure.svg"));
    let said = |words: &[&str]| {
        succeeds([&["compare"], words, &["-o", &figure]].concat());
        std::fs::read_to_string(&figure).unwrap()
    };
    for name in ["series", "volume"] {
        let (network, x) = (fixture(&format!("{name}.onnx")), fixture(&format!("{name}.x.npy")));
        let svg = said(&[&network, &x, "--methods", "gradient,gradcam"]);
        assert_eq!(svg.matches(">Gradient</text>").count(), 2, "{name}");
        assert_eq!(svg.matches(">Grad-CAM 4:out</text>").count(), 2, "{name}");
    }
    let table = text(&folder.write("x.csv", "age,income,height,weight,rooms\n1,2,3,4,5\n"));
    let svg = said(&[&fixture("table.onnx"), &table, "--methods", "gradient,occlusion"]);
    assert_eq!(svg.matches(">income").count(), 2);
    let given = ["picture", "facts"].map(|name| format!("{name}={}", fixture(&format!("pair.{name}.npy"))));
    let network = fixture("pair.onnx");
    let svg = said(&[&network, "--input", &given[0], "--input", &given[1], "--methods", "gradient"]);
    assert_eq!(svg.matches(">Gradient of facts</text>").count(), 2);
    let none = ["no input that is explained holds token ids"];
    refuses(["compare", &fixture("table.onnx"), &table, "--tokens", &table], &none);
    let more = ["--input", &given[0], "--input", &given[1], "--of", "picture", "--tokens", &table];
    refuses([&["diff", &network, &network], &more[..], &["--method", "gradient"]].concat(), &none);
    refuses([&["explain", &network], &more[..], &["--method", "gradient"]].concat(), &none);
}

/// Two networks or methods never see a sample beside a value of another one.
#[test]
fn inputs_of_other_numbers_of_samples_are_refused() {
    let folder = ScratchFolder::new();
    let (network, ids) = (fixture("text.onnx"), [1i64, 7, 4, 9, 2, 0].repeat(3));
    let ids = text(&folder.write("ids.npy", npy::write(&Tensor::new([3, 6], ids).unwrap())));
    let mask = format!("mask={}", fixture("text.mask.npy"));
    let out = text(&folder.path("out"));
    let more = [&ids, "--input", &mask];
    let said = ["input 'mask' was given for 2 samples and another for 3", "one for all, or one for each"];
    refuses([&["compare", &network], &more[..], &["--methods", "gradient"]].concat(), &said);
    refuses([&["diff", &network, &network], &more[..], &["--method", "gradient"]].concat(), &said);
    let explain = ["--method", "gradient", "--batch", "2", "-o", &out];
    refuses([&["explain", &network], &more[..], &explain].concat(), &said);
}

/// A file without a name comes from standard input too.
#[test]
fn values_of_inputs_come_from_standard_input() {
    let folder = ScratchFolder::new();
    let (network, mask) = (fixture("text.onnx"), format!("mask={}", fixture("text.mask.npy")));
    let (out, page) = (text(&folder.path("out")), text(&folder.path("page.html")));
    let ids = std::fs::read(fixture("text.ids.npy")).unwrap();
    let more = ["-", "--input", &mask];
    for (command, words) in [
        (&["explain", &*network][..], ["--method", "gradient", "-o", &out]),
        (&["compare", &network], ["--methods", "gradient", "-o", &page]),
        (&["diff", &network, &network], ["--method", "gradient", "-o", &page]),
    ] {
        let words = [command, &more, &words].concat().into_iter().map(OsString::from).collect();
        let found = piped(words, &ids);
        assert!(found.code == 0 && found.out.contains("stdin"), "{command:?} {} {}", found.out, found.errors);
    }
    let verify = ["verify", &fixture("series.onnx"), "-"].into_iter().map(OsString::from).collect();
    let found = piped(verify, &std::fs::read(fixture("series.x.npy")).unwrap());
    assert!(found.code == 0 && found.out.contains("f = g − h"), "{} {}", found.out, found.errors);
}

/// Two scores, `±Σ (e + bend/2 · e²)` over the embedding `e` of the tokens, which is the number of each.
fn curved(folder: &ScratchFolder, name: &str, bend: f64) -> String {
    let mut g = Graph::new();
    let ids = g.input("ids", Shape::batched(&[4]), Kind::Int);
    let table = g.constant(Tensor::new([5, 1], vec![0f32, 1.0, 2.0, 3.0, 4.0]).unwrap());
    let rows = g.add(Op::Gather { axis: 0 }, &[table, ids]).unwrap();
    let squares = g.times(rows, rows).unwrap();
    let bent = g.scaled(bend / 2.0, squares).unwrap();
    let sum = g.plus(rows, bent).unwrap();
    let flat = g.add(Op::Reshape { shape: Shape::batched(&[4]) }, &[sum]).unwrap();
    let weights = g.constant(Tensor::new([4, 2], [1f32, -1.0].repeat(4)).unwrap());
    let scores = g.add(Op::MatMul { trans_a: false, trans_b: false }, &[flat, weights]).unwrap();
    g.output("scores", scores);
    let path = folder.path(name);
    onnx::save(&g, &path, &ExportOptions::default()).unwrap();
    text(&path)
}

/// The gradient of a token `t` is 1 in A and `1 + t` in B.
#[test]
fn texts_of_two_networks_are_compared_worst_first_with_limits() {
    let folder = ScratchFolder::new();
    let (a, b) = (curved(&folder, "a.onnx", 0.0), curved(&folder, "b.onnx", 1.0));
    let ids: Vec<i64> = [1i64, 0, 3].iter().flat_map(|&id| [id; 4]).collect();
    let ids = text(&folder.write("ids.npy", npy::write(&Tensor::new([3, 4], ids).unwrap())));
    let page = text(&folder.path("diff.html"));
    let words = ["diff", &a, &b, &ids, "--method", "gradient", "-o", &page];
    let found: Value = serde_json::from_str(&succeeds([&words[..], &["--json"]].concat()).out).unwrap();
    let column: Vec<f64> =
        found["inputs"].as_array().unwrap().iter().map(|input| input["map"].as_f64().unwrap()).collect();
    assert_eq!(column, [0.75, 0.5, 0.0]);
    // A, B and the difference of four tokens each, the worst text first.
    let html = std::fs::read_to_string(&page).unwrap();
    assert_eq!(shown(&html)[..12], [[1.0; 4], [4.0; 4], [-3.0; 4]].concat());
    let within = monosplit([&words[..6], &["--fail-above", "0.75"]].concat());
    assert!(within.code == 0 && within.out.contains("Gradient of ids"), "{}", within.out);
    assert_eq!(monosplit([&words[..6], &["--fail-above", "0.74"]].concat()).code, 1);
    refuses([&words[..6], &["--layer", "scores"]].concat(), &["inputs by name", "--layer does not apply"]);
}
