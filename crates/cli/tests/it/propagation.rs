//! `lrp`, `deeplift` and `deepshap` as a person asks for them.

use crate::program::{chelsea, model, refuses, succeeds};
use crate::reference::array;
use monosplit::Tensor;
use monosplit::graph::npy;
use monosplit_testing::ScratchFolder;

fn text(path: &std::path::Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// Explains with further words; what was printed, and the numbers.
fn explained(folder: &ScratchFolder, input: &str, words: &[&str]) -> (String, Tensor) {
    let network = text(&model("vgg/torchscript-17.onnx"));
    let (raw, out) = (text(&folder.path("raw.npy")), text(&folder.path("pictures")));
    let all = ["explain", &network, input, "--out", &out, "--raw", &raw];
    let said = succeeds(all.into_iter().chain(words.iter().copied())).out;
    (said, array(folder.path("raw.npy").as_path()))
}

#[test]
fn relevance_on_each_layer_ends_with_what_lies_on_the_image() {
    let folder = ScratchFolder::new();
    let words = ["--method", "lrp:composite=epsilon-plus", "--by-layer", "--channels", "sum"];
    let (said, relevance) = explained(&folder, &text(&chelsea()), &words);
    assert!(said.starts_with("LRP ε-plus at the image"), "{said}");
    let lines = said.lines().skip_while(|line| !line.contains("relevance on each layer"));
    let table: Vec<&str> = lines.take_while(|line| !line.contains("What is missing")).collect();
    let number = |line: &str| line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap();
    let (first, last) = (table[2], *table.last().unwrap());
    assert!(first.contains("100.0 %"), "{said}");
    let total: f64 = relevance.to_f64().iter().sum();
    assert!((number(last) - total).abs() <= 0.01 * total.abs(), "{last} of {total}");
}

#[test]
fn the_box_is_what_preprocessing_leaves_of_black_and_white() {
    let folder = ScratchFolder::new();
    let picture = text(&chelsea());
    let of = |words: &[&str]| explained(&folder, &picture, words).1;
    let own = of(&["--method", "lrp"]);
    let low = (0..3).map(|c| -[0.485, 0.456, 0.406][c] / [0.229, 0.224, 0.225][c]);
    let high = (0..3).map(|c| (1.0 - [0.485, 0.456, 0.406][c]) / [0.229, 0.224, 0.225][c]);
    let joined = |bounds: &mut dyn Iterator<Item = f64>| -> String {
        bounds.map(|bound| (bound as f32).to_string()).collect::<Vec<_>>().join("/")
    };
    let (low, high) = (joined(&mut low.into_iter()), joined(&mut high.into_iter()));
    let given = of(&["--method", "lrp", "--set", &format!("low={low}"), "--set", &format!("high={high}")]);
    let wide = of(&["--method", "lrp:low=-3,high=3"]);
    let apart = |a: &Tensor, b: &Tensor| {
        let (a, b) = (a.to_f64(), b.to_f64());
        a.iter().zip(b.iter()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
            / b.iter().fold(0f64, |most, b| most.max(b.abs()))
    };
    assert!(apart(&own, &given) < 1e-4, "{}", apart(&own, &given));
    assert!(apart(&own, &wide) > 1e-3, "{}", apart(&own, &wide));
}

#[test]
fn baselines_are_read_from_files() {
    let folder = ScratchFolder::new();
    let input = text(&model("vgg/x.npy"));
    let images = array(&model("vgg/x.npy"));
    let blank: Vec<usize> = [&[1], &images.shape()[1..]].concat();
    let blank = Tensor::new(blank.clone(), vec![0f32; blank.iter().product()]).unwrap();
    let file = folder.path("blank.npy");
    std::fs::write(&file, npy::write(&blank)).unwrap();
    let lift = explained(&folder, &input, &["--method", "deeplift"]).1;
    let image = explained(&folder, &input, &["--method", &format!("deeplift:baseline={}", text(&file))]).1;
    let (said, shap) =
        explained(&folder, &input, &["--method", &format!("deepshap:baselines={}", text(&file))]);
    assert!(said.contains("completeness gap"), "{said}");
    assert_eq!(lift, image);
    assert_eq!(lift, shap);
    let network = text(&model("vgg/torchscript-17.onnx"));
    refuses(["explain", &network, &input, "--method", "deeplift:baseline=black"], &["'black'", ".npy"]);
}

#[test]
fn a_rule_for_no_layer_is_refused_by_its_name() {
    let network = text(&model("vgg/torchscript-17.onnx"));
    let input = text(&model("vgg/x.npy"));
    refuses(["explain", &network, &input, "--method", "lrp:rules=nowhere=flat"], &["'nowhere'"]);
}
