//! `monosplit explain` as a person uses it.

use std::path::Path;

use crate::json::assert_json;
use crate::networks::{CLASSES, SIDE, Small, images, numbers};
use crate::program::{chelsea, model, refuses, succeeds};
use crate::reference::{array, relative_error};
use monosplit::Model;
use monosplit::Tensor;
use monosplit::graph::{Dim, Op};
use monosplit::image::Picture;
use monosplit_testing::{ScratchFolder, crates_folder};

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// Explains, and returns what was printed and the numbers.
fn explained(folder: &ScratchFolder, network: &str, input: &str, words: &[&str]) -> (String, Tensor) {
    let raw = folder.path("raw.npy");
    let out = folder.path("pictures");
    let mut all =
        vec!["explain", network, input, "--out", out.to_str().unwrap(), "--raw", raw.to_str().unwrap()];
    all.extend(words);
    let said = succeeds(all).out;
    (said, array(&raw))
}

fn map(folder: &ScratchFolder, network: &str, input: &str, words: &[&str]) -> Tensor {
    explained(folder, network, input, words).1
}

/// The small golden network of a name, and its input.
fn golden(name: &str, file: &str) -> (String, String) {
    (text(&model(&format!("{name}/{file}.onnx"))), text(&model(&format!("{name}/x.npy"))))
}

fn zipped(a: &Tensor, b: &Tensor, f: impl Fn(f32, f32) -> f32) -> Tensor {
    assert_eq!(a.shape(), b.shape());
    let values: Vec<f32> = a.to_f32().iter().zip(b.to_f32().iter()).map(|(&a, &b)| f(a, b)).collect();
    Tensor::new(a.shape().to_vec(), values).unwrap()
}

#[test]
fn without_options_a_picture_shows_the_best_class_at_a_layer_that_is_named() {
    let folder = ScratchFolder::new();
    let (network, _) = golden("vgg", "torchscript-17");
    let out = folder.path("new/pictures");
    let said = succeeds(["explain", &network, &text(&chelsea()), "--out", &text(&out)]).out;
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("SplitCAM g at 3 ") && lines[0].contains("chosen"), "{said}");
    assert!(lines[1].ends_with("chelsea.png") && lines[2].contains(" % "), "{said}");
    assert!(lines[3].contains("map from") && lines[3].ends_with(" ms"), "{said}");
    let drawn = Picture::open(out.join("chelsea.splitcam.png")).unwrap();
    assert!(drawn.width() > drawn.height(), "the photograph and the overlay stand side by side");
}

#[test]
fn the_name_of_a_picture_is_not_made_a_folder() {
    let folder = ScratchFolder::new();
    let (network, _) = golden("vgg", "torchscript-17");
    let explain = |layers: &[&str], out: &str| {
        let out = text(&folder.path(out));
        let mut words = vec!["explain", &network];
        let photograph = text(&chelsea());
        words.extend([photograph.as_str(), "--out", &out]);
        words.extend(layers.iter().flat_map(|layer| ["--layer", layer]));
        succeeds(words).out
    };
    let said = explain(&[], "cat.png");
    assert!(said.trim_end().ends_with("cat.png"), "{said}");
    assert!(Picture::open(folder.path("cat.png")).is_ok());
    explain(&["0:out", "3:out"], "two.png");
    assert!(folder.path("two.0_out.png").is_file() && folder.path("two.3_out.png").is_file());
    let (photograph, named) = (text(&chelsea()), text(&folder.path("cat.jpg")));
    refuses(["explain", &network, &photograph, "--out", &named], &["are drawn as PNG files"]);
    assert!(!folder.path("cat.jpg").exists());
}

#[test]
fn the_prediction_is_the_one_run_prints() {
    let folder = ScratchFolder::new();
    let networks = [
        ("vgg", "torchscript-17"),
        ("resnet", "torchscript-7"),
        ("keras_valid", "handmade-18"),
        ("transformer", "torchscript-17"),
        ("squeeze_excite_hard", "torchscript-14"),
        ("softplus_mish_silu", "torchscript-13"),
    ];
    for (name, file) in networks {
        let (network, x) = golden(name, file);
        if !Path::new(&network).exists() {
            continue;
        }
        let run = succeeds(["run", &network, &x, "--top", "1"]).out;
        for method in ["splitcam", "splitgrad", "splitlrp", "gradient"] {
            let (said, map) = explained(&folder, &network, &x, &["--method", method]);
            let said: Vec<&str> = said.lines().filter(|line| line.contains(" % ")).collect();
            let run: Vec<&str> = run.lines().filter(|line| line.contains(" % ")).collect();
            assert_eq!(said, run, "{name} {method}");
            assert!(map.to_f32().iter().all(|v| v.is_finite()), "{name} {method}");
        }
    }
}

/// At α = ½ no mass is left, so the sensitivity of g is the gradient, halved, which is exact in binary. The only freedom
/// is the slope of a ReLU at exactly zero, which the split takes for one and the gradient for zero; no unit of these
/// networks stands there.
#[test]
fn half_a_shift_is_half_the_gradient_to_the_bit() {
    let folder = ScratchFolder::new();
    for (name, file) in [("vgg", "torchscript-17"), ("resnet", "torchscript-7"), ("caffe", "handmade-13")] {
        let (network, x) = golden(name, file);
        let gradient = map(&folder, &network, &x, &["--method", "gradient"]);
        for pool in ["convex", "wta"] {
            let words = ["--method", "splitgrad", "--layer", "x", "--alpha", "0.5", "--pool", pool];
            let split = map(&folder, &network, &x, &words);
            let same = zipped(&split, &gradient, |s, g| f32::from(s.to_bits() == (0.5 * g).to_bits()));
            assert!(same.to_f32().iter().all(|&v| v == 1.0), "{name} {pool}");
        }
    }
}

/// The definitions: `δ = (δ⁺ − δ⁻)/2` in each stream, `δᵍ − δʰ` is the gradient, `comb = pos − neg`.
#[test]
fn streams_parts_and_relevances_add_up() {
    let folder = ScratchFolder::new();
    let (network, x) = golden("vgg", "torchscript-17");
    let grad = |stream: &str, part: &str| {
        let words = ["--method", "splitgrad", "--layer", "x", "--stream", stream, "--part", part];
        map(&folder, &network, &x, &words)
    };
    let close = |a: &Tensor, b: &Tensor| assert!(relative_error(a, b) < 1e-4, "{}", relative_error(a, b));
    let [g, h] = ["g", "h"].map(|stream| {
        let combined = grad(stream, "combined");
        close(&zipped(&grad(stream, "plus"), &grad(stream, "minus"), |p, m| (p - m) / 2.0), &combined);
        combined
    });
    close(&zipped(&g, &h, |g, h| g - h), &map(&folder, &network, &x, &["--method", "gradient"]));
    let relevance = |name: &str| map(&folder, &network, &x, &["--method", "splitlrp", "--map", name]);
    close(&zipped(&relevance("pos"), &relevance("neg"), |p, n| p - n), &relevance("comb"));
    for options in [["--relu", "min"], ["--input-split", "positive"], ["--stabiliser", "recentre"]] {
        let plain = map(&folder, &network, &x, &["--part", "plus"]);
        let other = map(&folder, &network, &x, &["--part", "plus", options[0], options[1]]);
        assert!(relative_error(&other, &plain) > 1e-6, "{options:?} changes nothing");
    }
}

#[test]
fn absolute_values_and_sizes_are_what_they_say() {
    let folder = ScratchFolder::new();
    let (network, x) = golden("vgg", "torchscript-17");
    let plain = map(&folder, &network, &x, &[]);
    let absolute = map(&folder, &network, &x, &["--abs", "map"]);
    assert_eq!(zipped(&plain, &plain, |v, _| v.abs()), absolute);
    let channels = map(&folder, &network, &x, &["--abs", "channels"]);
    assert!(zipped(&channels, &absolute, |c, a| c - a).to_f32().iter().all(|&v| v >= -1e-7));
    let large = map(&folder, &network, &x, &["--size", "input"]);
    assert_eq!(large.shape()[1..], array(Path::new(&x)).shape()[2..]);
}

#[test]
fn what_leaves_a_layer_enters_the_next() {
    let folder = ScratchFolder::new();
    let network = Small::default().save(&folder, "small.onnx");
    let x = images(&folder, 2);
    let at = |layer: &str| map(&folder, &network, &x, &["--layer", layer]);
    assert_eq!(at("conv:out"), at("relu"));
    assert_eq!(at("conv"), at("x"));
    assert_eq!(at("relu:out").shape(), [2, SIDE, SIDE]);
    let (said, flat) = explained(&folder, &network, &x, &["--layer", "dense"]);
    assert_eq!(flat.shape(), [2, 4]);
    assert!(said.contains("--raw FILE") && !said.contains(".png"), "{said}");
}

#[test]
fn a_class_is_a_number_a_name_or_the_best() {
    let folder = ScratchFolder::new();
    let network = Small::default().save(&folder, "small.onnx");
    let x = images(&folder, 1);
    let labels = text(&folder.write("labels.txt", "cat\ndog\nred_fox\nowl\nred_deer\n"));
    let of = |class: &str| explained(&folder, &network, &x, &["--labels", &labels, "--class", class]);
    let (said, fox) = of("Red Fox");
    assert!(said.contains("red_fox"), "{said}");
    assert_eq!(of("2").1, fox);
    let best = explained(&folder, &network, &x, &["--labels", &labels]);
    assert_eq!(of("top1").1, best.1);
    let words =
        |class: &str| ["explain", &network, &x, "--labels", &labels, "--class", class].map(String::from);
    refuses(words("red"), &["'red'", "red_fox", "red_deer"]);
    refuses(words("5"), &["no class 5", "0 to 4"]);
    refuses(words("-1"), &["'-1'"]);
    refuses(["explain", &network, &x, "--class", "cat"], &["--labels"]);
}

#[test]
fn wrong_wishes_are_answered_in_one_line_and_leave_nothing() {
    let folder = ScratchFolder::new();
    let network = Small { branch: true, ..Small::default() }.save(&folder, "small.onnx");
    let x = images(&folder, 1);
    let file = text(&folder.write("file", "no folder"));
    let missing = text(&folder.path("missing/raw.npy"));
    let out = text(&folder.path("pictures"));
    let refusals: [(&[&str], &[&str]); 15] = [
        (&["--layer", "canv"], &["no layer 'canv'", "'conv'"]),
        (&["--layer", "aside:out"], &["'aside'", "between the image and the class scores"]),
        (&["--layer", "dense", "--size", "input"], &["[N, 4]", "layer's own size"]),
        (&["--alpha", "1.5"], &["'alpha'", "from 0 to 1"]),
        (&["--alpha", "-0.1"], &["'alpha'", "from 0 to 1"]),
        (&["--alpha", "nan"], &["'alpha'"]),
        (&["--theta", "0"], &["'theta'", "at most 1"]),
        (&["--limit", "-3"], &["'limit'", "-3"]),
        (&["--stabiliser", "shift", "--theta", "0.2"], &["theta", "stabiliser scale"]),
        (&["--method", "gradient", "--stream", "h"], &["'stream'", "gradient"]),
        (&["--map", "pos"], &["'map'", "splitcam"]),
        (&["--method", "splitcan"], &["splitcan", "did you mean 'splitcam'?"]),
        (&["--raw", &missing], &["there is no folder"]),
        (&["--out", &file], &["this is a file"]),
        (&["--labels", &file], &["5 class names"]),
    ];
    for (wish, words) in refusals {
        let mut all = vec!["explain", &network, &x];
        if wish[0] != "--out" {
            all.extend(["--out", &out]);
        }
        all.extend(wish);
        refuses(all, words);
    }
    refuses(["explain", &network], &["nothing to explain"]);
    assert_eq!(folder.names(), ["file", "small.onnx", "x.npy"]);
}

#[test]
fn maps_without_shape_are_said_to_be_so() {
    let folder = ScratchFolder::new();
    let x = images(&folder, 1);
    let remark = |network: &Small, words: &[&str]| {
        let network = network.save(&folder, "small.onnx");
        explained(&folder, &network, &x, words)
    };
    let dead = Small { bias: -1e3, ..Small::default() };
    let (said, map) = remark(&dead, &["--method", "gradient"]);
    assert!(said.contains("map from 0 to 0") && said.contains("all zero"), "{said}");
    assert!(map.to_f32().iter().all(|&v| v == 0.0));
    let linear = Small { rectified: false, ..Small::default() };
    let (said, map) = remark(&linear, &["--method", "gradient", "--layer", "conv:out"]);
    assert!(said.contains("constant "), "{said}");
    assert!(map.to_f32().iter().all(|&v| v == map.to_f32()[0] && v != 0.0));
    let negative = zipped(&numbers(&[4, CLASSES], 3), &numbers(&[4, CLASSES], 3), |v, _| -v.abs() - 0.1);
    let negative = Small { dense: negative, ..Small::default() };
    let (said, map) = remark(&negative, &["--alpha", "0.5", "--layer", "relu:out"]);
    assert!(map.to_f32().iter().all(|&v| v <= 0.0), "{said}");
    let range = said.lines().find(|line| line.contains("map from")).unwrap();
    assert!(range.contains("map from -"), "{said}");
}

/// The pixel that matters is red where it is in the photograph: neither mirrored nor turned.
#[test]
fn the_overlay_lies_over_the_photograph() {
    let folder = ScratchFolder::new();
    let network =
        Small { dense: Tensor::new([4, CLASSES], vec![1f32; 4 * CLASSES]).unwrap(), ..Small::default() };
    let network = network.save(&folder, "small.onnx");
    let (width, height) = (16, 16);
    let corner = |x: usize, y: usize| if x >= 12 && y < 4 { 255u8 } else { 0 };
    let pixels: Vec<u8> = (0..height).flat_map(|y| (0..width).flat_map(move |x| [corner(x, y); 3])).collect();
    let photograph = folder.path("corner.png");
    monosplit::image::write_png(&photograph, width, height, monosplit::image::Pixels::Rgb(&pixels)).unwrap();
    let words = ["--fit", "squash", "--mean", "0,0,0", "--std", "1,1,1", "--layer", "x", "--abs", "channels"];
    let map = map(&folder, &network, &text(&photograph), &words);
    let values = map.to_f32();
    let strongest = (0..values.len()).max_by(|&a, &b| values[a].total_cmp(&values[b])).unwrap();
    let (row, column) = (strongest / SIDE, strongest % SIDE);
    assert!(row <= 2 && column >= 5, "strongest at row {row}, column {column}: {values:?}");
}

#[test]
fn several_inputs_get_pictures_of_their_own_and_the_same_maps_in_any_batch() {
    let folder = ScratchFolder::new();
    let (network, x) = golden("vgg", "torchscript-17");
    let photographs = folder.path("photographs");
    std::fs::create_dir(&photographs).unwrap();
    for name in ["a.png", "b.png", "c.png"] {
        std::fs::copy(chelsea(), photographs.join(name)).unwrap();
    }
    let (out, raw) = (folder.path("out"), folder.path("raw.npy"));
    let of_batch = |batch: &str| {
        succeeds([
            "explain",
            &network,
            &text(&photographs),
            &x,
            &text(&chelsea()),
            &text(&photographs.join("a.png")),
            "--out",
            &text(&out),
            "--raw",
            &text(&raw),
            "--batch",
            batch,
        ]);
        array(&raw)
    };
    let (one, many) = (of_batch("1"), of_batch("5"));
    let count = 5 + array(Path::new(&x)).shape()[0];
    assert_eq!(one.shape()[0], count);
    assert!(relative_error(&many, &one) < 1e-5);
    assert_eq!(std::fs::read_dir(&out).unwrap().count(), count);
}

#[test]
fn json_is_json() {
    let folder = ScratchFolder::new();
    let (network, x) = golden("vgg", "torchscript-17");
    let (score, mlp) = (
        Small { dense: numbers(&[4, 1], 2), ..Small::default() }.save(&folder, "score.onnx"),
        Small { end: Some(Op::Softmax { axis: 1 }), ..Small::default() }.save(&folder, "a \"b\"\n.onnx"),
    );
    let small = images(&folder, 2);
    let out = text(&folder.path("out"));
    for words in [[&network, &x, "--json"], [&score, &small, "--json"], [&mlp, &small, "--json"]] {
        for more in [&["--profile"][..], &["--method", "splitlrp"], &["--alpha", "0"]] {
            let said = succeeds(["explain", "--out", &out].iter().chain(&words).chain(more)).out;
            assert_json(&said);
            assert_eq!(said.contains("\"profile\""), more[0] == "--profile");
        }
    }
}

/// A method that asks the network many times shows how often: more than the one run that the scores take.
#[test]
fn a_profile_counts_the_runs_of_perturbations() {
    let folder = ScratchFolder::new();
    let (network, x) = golden("vgg", "torchscript-17");
    let out = text(&folder.path("out"));
    let most_runs = |method: &str| {
        let words = ["explain", &network, &x, "--out", &out, "--method", method, "--profile", "--json"];
        let said = succeeds(words).out;
        let counts = said.split("\"runs\":").skip(1).map(|rest| {
            let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<usize>().unwrap()
        });
        counts.max().unwrap()
    };
    assert_eq!(most_runs("gradient"), 1);
    assert!(most_runs("occlusion:window=4,stride=2,batch=4") > 1);
}

#[test]
fn a_single_score_is_printed_and_a_softmax_is_mentioned() {
    let folder = ScratchFolder::new();
    let x = images(&folder, 1);
    let score = Small { dense: numbers(&[4, 1], 2), ..Small::default() }.save(&folder, "score.onnx");
    let run = succeeds(["run", &score, &x]).out;
    let (said, _) = explained(&folder, &score, &x, &[]);
    assert_eq!(said.lines().nth(2), run.lines().nth(1));
    let softmax =
        Small { end: Some(Op::Softmax { axis: 1 }), ..Small::default() }.save(&folder, "softmax.onnx");
    let outcome = succeeds(["explain", &softmax, &x, "--out", &text(&folder.path("out"))]);
    assert!(outcome.errors.contains("ends in a softmax"), "{}", outcome.errors);
    let plain = Small::default().save(&folder, "plain.onnx");
    assert_eq!(map(&folder, &softmax, &x, &[]), map(&folder, &plain, &x, &[]));
}

#[test]
fn a_network_of_fixed_batch_size_explains_any_number() {
    let folder = ScratchFolder::new();
    let x = images(&folder, 5);
    let fixed = Small { samples: Dim::Fixed(3), ..Small::default() }.save(&folder, "fixed.onnx");
    let free = Small::default().save(&folder, "free.onnx");
    let (fixed, free) = (map(&folder, &fixed, &x, &[]), map(&folder, &free, &x, &[]));
    assert_eq!(fixed.shape(), [5, SIDE, SIDE]);
    assert!(relative_error(&fixed, &free) < 1e-6);
}

#[test]
fn channels_are_added_up_wherever_they_are() {
    let folder = ScratchFolder::new();
    let (network, x) = golden("keras_valid", "handmade-18");
    let image = array(Path::new(&x)).shape().to_vec();
    let at = |words: &[&str]| map(&folder, &network, &x, words);
    assert_eq!(at(&["--layer", "x"]).shape(), &image[..3]);
    assert_eq!(at(&["--layer", "x"]), at(&["--layer", "Pad_1"]), "the same image, channels first");
    assert_eq!(at(&["--size", "input"]).shape(), &image[..3]);
    let (network, x) = golden("transformer", "torchscript-17");
    let at = |layer: &str| map(&folder, &network, &x, &["--layer", layer]);
    for layer in ["/Transpose:out", "norm1", "qkv:out", "mlp.0"] {
        assert_eq!(
            at(layer).shape(),
            [2, 3, 3],
            "{layer}: tokens return to the grid of patches, the class token does not"
        );
    }
    let kept = map(&folder, &network, &x, &["--layer", "norm1", "--channels", "keep"]);
    assert_eq!(kept.shape(), [2, 10, 12]);
    let cam = map(&folder, &network, &x, &["--layer", "norm1", "--method", "hirescam", "--size", "input"]);
    assert_eq!(cam.shape(), [2, 12, 12]);
    let words = ["explain", &network, &x, "--layer", "/Transpose_1:out"];
    refuses(words, &["/Transpose_1", "[3, N, 2, 10, 6]", "samples along its first axis"]);
}

#[cfg(unix)]
#[test]
fn an_interrupted_run_leaves_whole_pictures_and_no_numbers() {
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};
    let folder = ScratchFolder::new();
    let (network, _) = golden("vgg", "torchscript-17");
    let many = numbers(&[4000, 3, 16, 16], 1);
    let x = folder.write("many.npy", monosplit::graph::npy::write(&many));
    let (out, raw) = (folder.path("out"), folder.path("raw.npy"));
    let mut child = Command::new(env!("CARGO_BIN_EXE_monosplit"))
        .args(["explain", &network, &text(&x), "--out", &text(&out), "--raw", &text(&raw), "--batch", "1"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let pictures = || std::fs::read_dir(&out).map_or(0, |entries| entries.count());
    while pictures() < 3 && begun.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(2));
    }
    // The hardest way to end; an interrupt may be ignored where tests run in the background.
    child.kill().unwrap();
    assert!(!child.wait().unwrap().success());
    assert!(!raw.exists() && pictures() < 4000);
    for entry in std::fs::read_dir(&out).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "png") {
            Picture::open(&path).unwrap();
        }
    }
}

/// Behind a layer norm the channels of a gradient sum to zero, and a picture of what is left looks like any other.
#[test]
fn channels_that_cancel_are_said_to() {
    let folder = ScratchFolder::new();
    let [network, x] =
        ["transformer/torchscript-17.onnx", "transformer/x.npy"].map(|name| text(&model(name)));
    let out = text(&folder.path("maps"));
    let words = |more: &[&str]| succeeds([&["explain", &network, &x, "-o", &out][..], more].concat()).errors;
    let at = ["--method", "splitgrad", "--layer", "norm1"];
    assert!(words(&at).contains("at norm1 channels cancel"), "{}", words(&at));
    for more in [&["--abs", "channels"][..], &["--channels", "keep"], &["--channels", "max"]] {
        assert!(!words(&[&at[..], more].concat()).contains("cancel"), "{more:?}");
    }
}

#[test]
fn the_library_finds_the_map_that_the_program_writes() {
    let folder = ScratchFolder::new();
    let network = crates_folder().join("monosplit/assets/pets-small.onnx");
    let model = Model::open(&network).unwrap();
    for method in ["splitcam", "lrp", "gradcam"] {
        let words = ["--method", method, "--class", "Bengal"];
        let written = map(&folder, &text(&network), &text(&chelsea()), &words);
        let found = model.explainer(method).class("Bengal").explain(&Picture::open(chelsea()).unwrap());
        assert_eq!(found.unwrap().map.values, written, "{method}");
    }
}
