//! `--target` on every command that has it. The network and PyTorch's values are those of `scripts/make_target_fixtures.py`.

use std::path::{Path, PathBuf};

use crate::evaluate::Bench;
use crate::program::{chelsea, monosplit, refuses, succeeds};
use crate::reference::{array, relative_error};
use monosplit::Tensor;
use monosplit::graph::op::{Reduction, Unary};
use monosplit::graph::{Graph, Kind, Shape, npy, onnx};
use monosplit_testing::{ScratchFolder, crates_folder};

fn fixture(name: &str) -> String {
    crates_folder().join("monosplit/tests/fixtures/targets").join(name).display().to_string()
}

/// The texts of the targets, with whole paths.
fn targets() -> Vec<String> {
    let texts = std::fs::read_to_string(fixture("targets.txt")).unwrap();
    let whole = |text: &str| {
        ["mask.npy", "reference.npy", "head.onnx"].iter().fold(text.to_owned(), |text, name| {
            text.replace(&format!(":{name}"), &format!(":{}", fixture(name)))
        })
    };
    texts.lines().map(whole).collect()
}

/// The map of a target by a command line that starts so.
fn map(folder: &ScratchFolder, words: &[&str]) -> Tensor {
    let raw = folder.path("raw.npy").display().to_string();
    let out = folder.path("drawn").display().to_string();
    succeeds(["explain"].iter().chain(words).copied().chain(["--raw", &raw, "-o", &out, "--quiet"]));
    array(Path::new(&raw))
}

fn saved(folder: &ScratchFolder, name: &str, tensor: &Tensor) -> String {
    let path = folder.path(name);
    std::fs::write(&path, npy::write(tensor)).unwrap();
    path.display().to_string()
}

#[test]
fn maps_of_every_target_are_pytorchs_explained_and_compiled() {
    let folder = ScratchFolder::new();
    let (network, x) = (fixture("network.onnx"), fixture("x.npy"));
    for (number, target) in targets().iter().enumerate() {
        let gradient = array(Path::new(&fixture(&format!("{number}.gradient.npy"))));
        let mean: Vec<f64> = gradient
            .to_f64()
            .chunks(72)
            .flat_map(|sample| (0..36).map(|i| (sample[i] + sample[36 + i]) / 2.0).collect::<Vec<_>>())
            .collect();
        let expected = Tensor::new([2, 6, 6], mean).unwrap();
        let words = [&*network, &x, "--output", "scores", "--target", target, "--method", "gradient"];
        let error = relative_error(&map(&folder, &words), &expected);
        assert!(error < 1e-5, "{target}: {error:e}");
        let compiled = folder.path("compiled.onnx").display().to_string();
        let made = [
            "compile", &network, "--output", "scores", "--target", target, "--method", "gradient", "-o",
            &compiled,
        ];
        let said = succeeds(made).out;
        assert!(said.contains("returns score\n"), "{said}");
        let error = relative_error(&map(&folder, &[&compiled, &x]), &expected);
        assert!(error < 1e-5, "{target}, compiled: {error:e}");
    }
}

#[test]
fn what_a_target_is_given_is_an_optional_input_of_a_compiled_file() {
    let folder = ScratchFolder::new();
    let (network, mask, reference) = (fixture("network.onnx"), fixture("mask.npy"), fixture("reference.npy"));
    let compiled = folder.path("compiled.onnx").display().to_string();
    for (target, inputs) in [
        (format!("region:{mask},class=2,output=maps"), &["target_mask", "class"][..]),
        (format!("similarity:{reference},output=cells"), &["target_reference"]),
        ("contrast:1,3".to_owned(), &["target_against", "class"]),
        ("contrast:top,top2".to_owned(), &["class"]),
        ("cell:cells[-1,1:3]".to_owned(), &["target_cell"]),
        ("cell:cells[best=3]".to_owned(), &["target_cell", "class"]),
        ("norm:cells".to_owned(), &[]),
    ] {
        let words = ["compile", &network, "--output", "scores", "--target", &target, "--method", "saliency"];
        let said = succeeds(words.into_iter().chain(["-o", &compiled])).out;
        let found: Vec<&str> =
            said.lines().filter_map(|line| line.strip_suffix(" (may be left out)")).collect();
        let found: Vec<&str> = found.iter().map(|line| line.trim_start_matches("  reads   ")).collect();
        assert_eq!(found, inputs, "{target}: {said}");
    }
    let inspected = succeeds(["inspect", &compiled]).out;
    assert!(inspected.contains("of norm:cells"), "{inspected}");
    refuses(
        ["explain", &compiled, &fixture("x.npy"), "--target", "sum:score"],
        &["--target", "compile it anew"],
    );
}

/// A target that names its class has one score, and says the class's own number.
#[test]
fn the_class_that_a_target_names_is_counted_as_the_network_counts_it() {
    let folder = ScratchFolder::new();
    let (network, x) = (fixture("network.onnx"), fixture("x.npy"));
    let out = folder.path("drawn").display().to_string();
    let class = |target: &str| {
        let words =
            ["explain", &network, &x, "--output", "scores", "--target", target, "--method", "gradient"];
        let said = succeeds(words.into_iter().chain(["--json", "-o", &out])).out;
        let said: serde_json::Value = serde_json::from_str(&said).unwrap();
        said["inputs"][0]["class"].as_u64()
    };
    let mask = fixture("mask.npy");
    assert_eq!(class(&format!("region:{mask},class=2,output=maps")), Some(2));
    assert_eq!(class("contrast:3,1"), Some(3));
}

/// What a compiled file explains where nothing is given is what its target says, here as in ONNX Runtime.
#[test]
fn a_compiled_file_explains_the_class_of_its_target() {
    let folder = ScratchFolder::new();
    let (network, x, mask) = (fixture("network.onnx"), fixture("x.npy"), fixture("mask.npy"));
    let compiled = folder.path("compiled.onnx").display().to_string();
    for class in 0..3 {
        let target = format!("region:{mask},class={class},output=maps");
        let words = ["--output", "scores", "--target", &target, "--method", "gradcam"];
        succeeds(["compile", &network, "-o", &compiled].into_iter().chain(words));
        let native = map(&folder, &[&[&*network, &x][..], &words].concat());
        let error = relative_error(&map(&folder, &[&compiled, &x]), &native);
        assert!(error < 1e-5, "{target}: {error:e}");
    }
}

/// A sigmoid behind the maps of a segmentation is a matter of how they are read: the region is one of what enters it.
#[test]
fn a_region_is_one_of_logits_unless_probabilities_are_asked_for() {
    let folder = ScratchFolder::new();
    let mut bare = Graph::new();
    let x = bare.input("x", Shape::batched(&[2, 3, 4]), Kind::Float);
    let maps = bare.scaled(3.0, x).unwrap();
    let mut ended = bare.clone();
    let end = ended.unary(Unary::Sigmoid, maps).unwrap();
    bare.output("maps", maps);
    ended.output("maps", end);
    let x = (0..24).map(|i| (i as f32).sin()).collect::<Vec<_>>();
    let x = saved(&folder, "x.npy", &Tensor::new([1, 2, 3, 4], x).unwrap());
    let [bare, ended] = [("bare.onnx", bare), ("ended.onnx", ended)].map(|(name, graph)| {
        let path = folder.path(name);
        std::fs::write(&path, onnx::write(&graph, &onnx::ExportOptions::default()).unwrap()).unwrap();
        path.display().to_string()
    });
    let region = ["--target", "region:auto,class=1", "--method", "gradient"];
    let of = |network: &str, more: &[&str]| map(&folder, &[&[network, &x][..], &region, more].concat());
    assert_eq!(of(&ended, &[]), of(&bare, &[]));
    assert_ne!(of(&ended, &["--output", "probability"]), of(&bare, &[]));
}

/// A class that is found nowhere has a score of the size of the others, beside which their differences are seen.
#[test]
fn a_class_that_is_found_nowhere_hides_no_difference() {
    let folder = ScratchFolder::new();
    let network = |name: &str, factor: f64| {
        let mut graph = Graph::new();
        let x = graph.input("x", Shape::batched(&[3, 2, 2]), Kind::Float);
        let maps = graph.scaled(factor, x).unwrap();
        graph.output("maps", maps);
        let path = folder.path(name);
        std::fs::write(&path, onnx::write(&graph, &onnx::ExportOptions::default()).unwrap()).unwrap();
        path.display().to_string()
    };
    let (first, second) = (network("first.onnx", 1.0), network("second.onnx", 1.25));
    // The first class has three places, the second one, the third none.
    let x = [1f32, 2.0, 3.0, -5.0, 0.0, 0.0, 0.0, -4.0, -9.0, -9.0, -9.0, -9.0];
    let x = saved(&folder, "x.npy", &Tensor::new([1, 3, 2, 2], x.to_vec()).unwrap());
    let words = ["diff", &first, &second, &x, "--target", "region:auto", "--method", "gradient"];
    let outcome = monosplit(words.into_iter().chain(["--json", "--fail-above", "score=0.01"]));
    assert_eq!(outcome.code, 1, "{}", outcome.errors);
    let region = ["--target", "region:auto", "--method", "gradient", "-o"];
    let compiled = folder.path("compiled.onnx").display().to_string();
    succeeds(["compile", &first].into_iter().chain(region).chain([&*compiled]));
    let scores = folder.path("scores.npy").display().to_string();
    succeeds(["run", &compiled, &x, "--output", "logits", "--raw", &scores, "--quiet"]);
    let found = array(Path::new(&scores)).to_f64().into_vec();
    assert_eq!(found, [6.0, -4.0, -5.0]);
}

#[test]
fn inspect_suggests_targets_that_work() {
    let network = fixture("network.onnx");
    let said = succeeds(["inspect", &network]).out;
    for words in ["maps: region:auto", "cells: cell:cells[best=0]", "scores: cell:scores[0]"] {
        assert!(said.contains(words), "{words} is not in: {said}");
    }
    // The first of them is what the refusal of a network that is no classifier names.
    refuses(["explain", &network, &fixture("x.npy")], &["--output scores", "--target"]);
}

#[test]
fn what_cannot_be_explained_is_refused_in_one_line_with_the_next_step() {
    let (network, x) = (fixture("network.onnx"), fixture("x.npy"));
    for (target, words) in [
        ("regoin:auto", &["did you mean 'region'?"][..]),
        ("sum:none", &["no output 'none'", "'maps', 'cells', 'scores'", "`monosplit inspect`"]),
        ("cell:cells[5,0]", &["from 0 (or -5) to 4", "found 5"]),
        ("cell:cells[1]", &["2 axes", "one for each"]),
        ("region:auto,class=9", &["no class 9", "0 to 2"]),
        ("region:auto,output=scores", &["places"]),
        ("region:missing.png", &["missing.png", "No such file"]),
        ("contrast:1,2", &["at least two classes"]),
        ("similarity:missing.npy", &["missing.npy"]),
        ("head:missing.onnx", &["missing.onnx"]),
        ("class:1", &["expected one score for each class", "--output scores"]),
        ("region:auto,clas=1", &["'clas'", "did you mean 'class'?"]),
        ("region:auto,class=1,ouput=maps", &["'ouput'", "did you mean 'output'?"]),
    ] {
        refuses(["explain", &network, &x, "--target", target], words);
    }
    let beside = ["explain", &network, &x, "--target", "sum:cells", "--layer", "scores"];
    refuses(beside, &["'scores' is not on the way to sum:cells"]);
    let mismatched = format!("region:{}", fixture("reference.npy"));
    refuses(
        ["explain", &network, &x, "--target", &mismatched],
        &["[5, 4]", "[6, 6]", "a picture, which is scaled"],
    );
    refuses(["explain", &network, &x, "--target", "sum:maps", "--class", "1"], &["--class", "--target"]);
    let single = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/inputs/single_score.onnx");
    let single = single.display().to_string();
    let second = ["compile", &single, "--target", "class:top2", "-o", "never.onnx"];
    refuses(second, &["no second best class among 1", "name top"]);
}

#[test]
fn the_theory_holds_for_a_target_and_what_is_smooth_is_said_not_to_be_covered() {
    let network = fixture("network.onnx");
    let verify = |target: &str| succeeds(["verify", &network, "--target", target, "--output", "scores"]).out;
    for target in
        ["region:auto,output=maps", "contrast:top,top2", "cell:cells[best=3]", "mean:maps", "class:top2"]
    {
        let said = verify(target);
        assert!(said.starts_with("holds           f = g − h "), "{target}: {said}");
        assert!(!said.contains("fails"), "{target}: {said}");
    }
    let said = verify("norm:cells");
    assert!(said.starts_with("does not apply  f = g − h"), "{said}");
    let words = ["verify", &network, "--target", "similarity:", "--output", "scores"];
    refuses(words, &["a picture or an array"]);
}

#[test]
fn layers_add_up_to_the_map_of_a_target() {
    let folder = ScratchFolder::new();
    let out = folder.path("drawn").display().to_string();
    for method in ["splitgrad", "lrp"] {
        let network = fixture("network.onnx");
        let x = fixture("x.npy");
        let layer: &[&str] = if method == "splitgrad" { &["--layer", "trunk.2"] } else { &[] };
        let words = [
            "explain",
            &network,
            &x,
            "--target",
            "region:auto",
            "--by-layer",
            "--method",
            method,
            "-o",
            &out,
        ];
        let said = succeeds(words.into_iter().chain(layer.iter().copied())).out;
        assert!(said.contains("layer"), "{said}");
    }
}

#[test]
fn an_input_that_is_not_explained_is_given() {
    let folder = ScratchFolder::new();
    let network = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/inputs/two_inputs.onnx");
    let network = network.display().to_string();
    let values = |shift: f32| {
        Tensor::new([2, 4], (0..8).map(|i| (i as f32 + shift).sin()).collect::<Vec<_>>()).unwrap()
    };
    let (a, b) = (saved(&folder, "a.npy", &values(0.0)), saved(&folder, "b.npy", &values(0.5)));
    refuses(["explain", &network, &a], &["2 inputs ('a', 'b')", "--input b=FILE"]);
    let given = [format!("b={b}"), format!("a={a}"), format!("none={a}"), "b".to_owned()];
    let by = |given: &str, explained: &str| {
        map(&folder, &[&network, explained, "--input", given, "--method", "gradient"])
    };
    assert_eq!(by(&given[0], &a).shape()[0], 2);
    assert_eq!(by(&given[1], &b).shape()[0], 2);
    refuses(["explain", &network, &a, "--input", &given[2]], &["no input 'none'", "'a', 'b'"]);
    refuses(["explain", &network, &a, "--input", &given[3]], &["--input NAME=FILE, found"]);
    let target = ["explain", &network, &a, "--input", &given[0], "--target", "contrast:top,top2", "--json"];
    let out = folder.path("drawn").display().to_string();
    let said = succeeds(target.into_iter().chain(["-o", &out, "--method", "input-x-gradient"])).out;
    assert!(said.contains("\"target\": \"contrast:top,top2\""), "{said}");
}

#[test]
fn figures_and_comparisons_are_drawn_of_a_target() {
    let folder = ScratchFolder::new();
    let network = crates_folder().join("monosplit/assets/pets-small.onnx").display().to_string();
    let (picture, out) = (chelsea().display().to_string(), folder.path("figure.png").display().to_string());
    let target = ["--target", "contrast:bengal,abyssinian", "-o", &out];
    let compared = ["compare", &network, &picture, "--methods", "gradcam,saliency"];
    let said = succeeds(compared.into_iter().chain(target)).out;
    assert!(said.contains("Bengal against Abyssinian"), "{said}");
    succeeds(["figure", "layers", &network, &picture, "--layer", "layer4.2.conv2"].into_iter().chain(target));
    assert!(Path::new(&out).is_file());
    let similar = format!("similarity:{picture}");
    let drawn: PathBuf = folder.path("drawn");
    let words = ["explain", &network, &picture, "--target", &similar, "-o", drawn.to_str().unwrap()];
    let said = succeeds(words.into_iter().chain(["--method", "gradcam"])).out;
    assert!(said.contains("1.000000     0  similarity to chelsea.png"), "{said}");
}

#[test]
fn an_experiment_of_a_target_is_measured_by_scores_and_says_which_metrics_are_not() {
    let bench = Bench::new();
    let (experiment, store) = (bench.path("experiment.toml"), bench.path("run.sqlite"));
    let text = std::fs::read_to_string(&experiment).unwrap();
    let start = text.find("[[method]]").unwrap();
    let metrics = "\"sparseness\", \"deletion:step=4096,output=logit\"";
    let small = format!(
        "{}[[method]]\nmethod = \"gradcam\"\n[comparison]\nmetrics = [{metrics}]\n",
        text[..start].replace("[data]", "target = \"contrast:top,abyssinian\"\n[data]")
    );
    std::fs::write(&experiment, &small).unwrap();
    let paths = [experiment.to_str().unwrap(), "--store", store.to_str().unwrap()];
    let said = succeeds(["evaluate"].into_iter().chain(paths)).out;
    assert!(said.contains("complete"), "{said}");
    std::fs::write(&experiment, small.replace(",output=logit", "")).unwrap();
    refuses(["evaluate"].into_iter().chain(paths), &["deletion", "output=logit"]);
    std::fs::write(&experiment, small.replace("sparseness", "random-logit")).unwrap();
    refuses(["evaluate"].into_iter().chain(paths), &["random-logit", "another class"]);
    std::fs::write(&experiment, &small).unwrap();
    refuses(["evaluate", "--target", "class:3"].into_iter().chain(paths), &["model.target", "data.class"]);
}

/// The picture is explained, and what is known of it is the same for all.
#[test]
fn an_experiment_gives_the_inputs_beside_the_picture() {
    let bench = Bench::new();
    let (experiment, store) = (bench.path("experiment.toml"), bench.path("run.sqlite"));
    let mut graph = Graph::new();
    let picture = graph.input("picture", Shape::batched(&[3, 128, 128]), Kind::Float);
    let facts = graph.input("facts", Shape::batched(&[3]), Kind::Float);
    let means = graph.reduced(Reduction::Mean, picture, &[2, 3], false).unwrap();
    let scores = graph.times(means, facts).unwrap();
    graph.output("scores", scores);
    let network = onnx::write(&graph, &onnx::ExportOptions::default()).unwrap();
    std::fs::write(bench.path("pair.onnx"), network).unwrap();
    std::fs::write(bench.path("facts.csv"), "age,size,weight\n1,2,3\n").unwrap();
    let text = std::fs::read_to_string(&experiment).unwrap();
    let data = &text[text.find("[data]").unwrap()..text.find("[[method]]").unwrap()];
    let written = |inputs: &str| {
        let text = format!(
            "name = \"pair\"\n[model]\nfile = \"pair.onnx\"\n{inputs}\n{}class = \"top\"\n[[method]]\nmethod = \"saliency\"\n\
             [comparison]\nmetrics = [\"sparseness\"]\n",
            data.lines()
                .filter(|line| !line.starts_with("class"))
                .fold(String::new(), |all, line| all + line + "\n")
        );
        std::fs::write(&experiment, text).unwrap();
    };
    let words = ["evaluate", experiment.to_str().unwrap(), "--store", store.to_str().unwrap()];
    written("inputs = { facts = \"facts.csv\" }");
    let said = succeeds(words).out;
    assert!(said.contains("complete"), "{said}");
    written("");
    refuses(words, &["2 inputs ('picture', 'facts')"]);
    written("inputs = { fact = \"facts.csv\" }");
    refuses(words, &["model.inputs", "no input 'fact'"]);
}
