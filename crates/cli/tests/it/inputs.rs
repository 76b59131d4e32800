//! Networks that take their input in unusual ways, several heads, and quantised networks: what strangers found. Values are
//! ONNX Runtime's and PyTorch's (`scripts/make_input_networks.py`).

use std::path::{Path, PathBuf};

use crate::program::{models, monosplit, refuses, succeeds};
use crate::reference::{array, relative_error};
use monosplit::Tensor;
use monosplit::engine::{Cpu, Engine};
use monosplit::graph::onnx::{self, ImportOptions, Remark};
use monosplit::image::{Pixels, write_png};
use monosplit_testing::ScratchFolder;

pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/inputs").join(name)
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

fn network(name: &str) -> String {
    text(&fixture(&format!("{name}.onnx")))
}

/// The numbers that `command` writes about a network and an input, and what it says on the error stream.
fn raw(command: &str, name: &str, input: &str, words: &[&str]) -> (Tensor, String) {
    let folder = ScratchFolder::new();
    let (file, out) = (text(&folder.path("raw.npy")), text(&folder.path("out")));
    let mut all =
        vec![command.to_owned(), network(name), text(&fixture(input)), "--raw".into(), file.clone()];
    all.extend(words.iter().map(ToString::to_string));
    if command == "explain" {
        all.extend(["--out".to_owned(), out]);
    }
    let said = succeeds(all).errors;
    (array(Path::new(&file)), said)
}

const PICTURES: [(&str, &str); 4] = [
    (
        "bytes_nhwc",
        "0 … 255, channels last, without normalisation, because its input 'x' holds uint8 numbers",
    ),
    ("bytes_nchw", "0 … 255, without normalisation, because its input 'x' holds uint8 numbers"),
    ("scaled_nhwc", "0 … 255, channels last, without normalisation, because it scales its input itself"),
    ("normalised", "0 … 1, without normalisation, because it normalises its input itself"),
];

#[test]
fn issue_27_5_networks_that_scale_pictures_themselves_are_given_bytes() {
    for (name, words) in PICTURES {
        let expected = array(&fixture(&format!("{name}.y.npy")));
        let (scores, said) = raw("run", name, "picture.png", &[]);
        assert!(relative_error(&scores, &expected) < 1e-6, "{name}");
        assert!(said.contains(words), "{said}");
        let (scores, said) = raw("run", name, &format!("{name}.x.npy"), &[]);
        assert!(relative_error(&scores, &expected) < 1e-6, "{name}");
        assert!(!said.contains("without normalisation"), "{said}");
    }
}

#[test]
fn issue_27_5_bytes_are_explained_in_the_coordinates_of_the_picture() {
    let gradient = array(&fixture("bytes_nhwc.gradient.npy"));
    let largest = |pixel: &[f64]| pixel.iter().fold(0f64, |most, value| most.max(value.abs()));
    let pixels: Vec<f64> = gradient.to_f64().chunks(3).map(largest).collect();
    let expected = Tensor::new([1, 16, 24], pixels).unwrap();
    let (map, _) = raw("explain", "bytes_nhwc", "picture.png", &["--method", "saliency"]);
    assert!(relative_error(&map, &expected) < 1e-5);
    let folder = ScratchFolder::new();
    let (bytes, picture) = (network("bytes_nhwc"), text(&fixture("picture.png")));
    succeeds(["compare", &bytes, &picture, "-o", &text(&folder.path("compared.png"))]);
    succeeds(["figure", "split", &bytes, &picture, "-o", &text(&folder.path("split.png"))]);
    succeeds(["verify", &bytes, &picture]);
    succeeds(["verify", &bytes]);
}

/// The compiled file reads bytes as the network does, and gives the same scores and the same map.
#[test]
fn issue_27_5_a_compiled_file_reads_the_bytes_of_its_network() {
    let folder = ScratchFolder::new();
    let compiled = text(&folder.path("compiled.onnx"));
    succeeds(["compile", &network("bytes_nhwc"), "-o", &compiled, "--method", "saliency"]);
    let bytes = std::fs::read(&compiled).unwrap();
    let report = onnx::import_report(&bytes, None, &ImportOptions::default()).unwrap();
    assert_eq!(report.integer_inputs[0].type_name, "uint8");
    let (out, picture, maps) =
        (text(&folder.path("out")), text(&fixture("picture.png")), folder.path("m.npy"));
    succeeds(["explain", &compiled, &picture, "--out", &out, "--raw", &text(&maps)]);
    let (own, _) = raw("explain", "bytes_nhwc", "picture.png", &["--method", "saliency"]);
    assert!(relative_error(&array(&maps), &own) < 1e-6);
}

#[test]
fn issue_27_5_numbers_that_are_no_bytes_are_refused() {
    let x = text(&fixture("normalised.x.npy"));
    let nchw = network("bytes_nchw");
    refuses(["run", &nchw, &x], &["input 'x' holds uint8 numbers, from 0 to 255, found 0."]);
}

#[test]
fn issue_27_7_quantised_networks_give_the_scores_of_onnx_runtime() {
    for name in ["qdq_u8", "qdq_s8", "qoperator_u8", "qoperator_s8"] {
        let name = format!("quantised_{name}");
        let (scores, said) = raw("run", &name, "residual.x.npy", &[]);
        assert!(relative_error(&scores, &array(&fixture(&format!("{name}.y.npy")))) < 1e-6, "{name}");
        assert!(
            said.contains("explained dequantised") && said.contains("quantisers limit and round"),
            "{said}"
        );
    }
    let (scores, said) = raw("run", "quantised_dynamic", "residual.x.npy", &[]);
    // The quantisers of activations are left out; they move the scores by this much.
    assert!(relative_error(&scores, &array(&fixture("quantised_dynamic.y.npy"))) < 5e-3);
    assert!(said.contains("6 quantisers whose scale depends on the input are left out"), "{said}");
}

/// Numbers of eight bits are resized as the real numbers they stand for. ONNX Runtime cuts the integers off towards zero, so it is
/// at most one step behind, always on that side (a whole number may come out just below itself).
#[test]
fn issue_29_quantised_numbers_are_resized_without_cutting_off() {
    const STEP: f64 = 0.05;
    for (name, zero) in [("quantised_resize_u8", 117.0), ("quantised_resize_s8", -11.0)] {
        let (found, _) = raw("run", name, &format!("{name}.x.npy"), &[]);
        let cut = array(&fixture(&format!("{name}.y.npy")));
        let integers = |values: &Tensor| values.to_f64().iter().map(|y| y / STEP + zero).collect::<Vec<_>>();
        let (found, cut) = (integers(&found), integers(&cut));
        let lost: Vec<f64> = found.iter().zip(&cut).map(|(q, whole)| (q - whole) * q.signum()).collect();
        assert!(lost.iter().all(|&lost| lost > -1e-4 && lost < 1.0 + 1e-4), "{name}: {lost:?}");
        let most = lost.iter().copied().fold(0.0, f64::max);
        assert!(most > 0.5, "{name}: ONNX Runtime cuts off {most} steps at most");
        assert!(
            cut.iter().any(|&q| q < 0.0) == (zero < 0.0),
            "{name}: integers below zero are tried where there are any"
        );
    }
}

/// Exporters pick the row of a text's last token, and the elements of its mask, by positions that count the batch.
#[test]
fn issue_29_positions_in_the_batch_pick_something_of_every_sample() {
    let expected = array(&fixture("pooled_tokens.y.npy"));
    let (scores, _) = raw("run", "pooled_tokens", "pooled_tokens.x.npy", &[]);
    assert!(relative_error(&scores, &expected) < 1e-6);
    // The last tokens, which the mask leaves too, are all there is to explain; of two equal rows the first is the largest.
    let (map, _) = raw("explain", "pooled_tokens", "pooled_tokens.x.npy", &["--method", "gradient"]);
    let found: Vec<usize> = (0..map.len()).filter(|&token| map.to_f64()[token] != 0.0).collect();
    assert_eq!(found, [2, 7 + 6, 14]);
}

/// A network and its quantised form look at the same places.
#[test]
fn issue_27_7_quantised_networks_are_explained_like_the_network_they_were_made_of() {
    for method in ["gradcam", "saliency", "splitcam", "splitgrad", "splitlrp", "splitstream", "lrp"] {
        let (own, _) = raw("explain", "residual", "residual.x.npy", &["--method", method]);
        for name in ["qdq_u8", "qdq_s8", "qoperator_u8", "qoperator_s8", "dynamic"] {
            let name = format!("quantised_{name}");
            let (map, _) = raw("explain", &name, "residual.x.npy", &["--method", method]);
            let similar = cosine(&map.to_f64(), &own.to_f64());
            assert!(similar > 0.98, "{method} of {name}: {similar}");
        }
    }
}

/// Dynamic quantisation writes the scale of a product between it and its bias, which are one layer to every rule.
#[test]
fn issue_27_lrp_of_a_dynamically_quantised_network_has_the_size_of_its_own() {
    let (own, _) = raw("explain", "residual", "residual.x.npy", &["--method", "lrp"]);
    let (map, _) = raw("explain", "quantised_dynamic", "residual.x.npy", &["--method", "lrp"]);
    let error = relative_error(&map, &own);
    assert!(error < 6e-2, "{error}");
}

#[test]
fn issue_27_the_split_of_a_quantised_network_is_that_of_its_real_numbers() {
    let folder = ScratchFolder::new();
    let verified = succeeds(["verify", &network("quantised_qdq_u8")]).out;
    let line = verified.lines().find(|line| line.contains("f = g − h ")).unwrap();
    assert!(line.starts_with("holds"), "{line}");
    assert!(line.contains("without the rounding of activations (11 nodes)"), "{line}");
    let (g, h) = (text(&folder.path("g.onnx")), text(&folder.path("h.onnx")));
    let said = succeeds(["split", &network("quantised_qdq_u8"), "--out-g", &g, "--out-h", &h]).errors;
    assert!(said.contains("11 nodes that round activations are left out"), "{said}");
}

/// A sigmoid squeezed to `[N]` is one score a sample, explained like `[N, 1]`: values of ONNX Runtime and of PyTorch.
#[test]
fn issue_27_a_single_score_a_sample_is_explained() {
    let (logits, _) = raw("run", "single_score", "single_score.x.npy", &[]);
    assert_eq!(logits.shape(), [2, 1]);
    let p: Vec<f64> = logits.to_f64().iter().map(|z| 1.0 / (1.0 + (-z).exp())).collect();
    let found = Tensor::new([2], p).unwrap();
    assert!(relative_error(&found, &array(&fixture("single_score.y.npy"))) < 1e-6);
    let (map, said) = raw("explain", "single_score", "single_score.x.npy", &["--method", "saliency"]);
    assert!(relative_error(&map, &array(&fixture("single_score.saliency.npy"))) < 1e-5);
    assert!(said.contains("sigmoid"), "{said}");
    succeeds(["verify", &network("single_score")]);
}

#[test]
fn issue_27_a_map_that_is_not_finite_is_an_error() {
    let folder = ScratchFolder::new();
    let (roots, x, out) = (network("roots"), text(&fixture("roots.x.npy")), text(&folder.path("out")));
    let words = [
        "the map by gradient at input holds numbers that are not finite, first in sample 1",
        "--precision f64",
    ];
    refuses(["explain", &roots, &x, "--method", "gradient", "--out", &out], &words);
    assert!(!folder.path("out").join("roots.x.gradient.png").exists());
}

#[test]
fn issue_27_compile_says_that_half_and_double_become_float32() {
    let folder = ScratchFolder::new();
    let compiled = text(&folder.path("compiled.onnx"));
    for name in ["half", "double"] {
        let words = ["compile", &network(name), "-o", &compiled, "--method", "gradient"];
        let said = succeeds(words).errors;
        let expected = format!("numbers of {name} precision; the new file reads and returns float32");
        assert!(said.contains(&expected), "{said}");
    }
    assert!(
        !succeeds(["compile", &network("mlp"), "-o", &compiled, "--method", "gradient"])
            .errors
            .contains("float32")
    );
}

fn cosine(a: &[f64], b: &[f64]) -> f64 {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

#[test]
fn issue_27_7_inspect_says_that_a_network_is_quantised_and_it_can_be_compiled_and_verified() {
    let folder = ScratchFolder::new();
    for name in ["quantised_qdq_s8", "quantised_qoperator_u8", "quantised_dynamic"] {
        assert!(succeeds(["inspect", &network(name)]).out.contains("explained dequantised"));
        succeeds(["verify", &network(name)]);
        let compiled = text(&folder.path("compiled.onnx"));
        succeeds(["compile", &network(name), "-o", &compiled, "--method", "gradcam"]);
        let graph = onnx::read(&std::fs::read(&compiled).unwrap(), None, &ImportOptions::default()).unwrap();
        let x = array(&fixture("residual.x.npy"));
        let outputs = Cpu::default().compile(&graph).unwrap().run(&[x]).unwrap();
        let expected = array(&fixture(&format!("{name}.y.npy")));
        assert!(relative_error(&outputs[0], &expected) < 5e-3, "{name}");
    }
}

/// Explained at the logits, a sigmoid head has the maps of the same network without it.
#[test]
fn issue_27_9_sigmoid_heads_are_explained_on_logits_unless_probabilities_are_asked_for() {
    let (bare, _) = raw("explain", "bare", "bare.x.npy", &["--method", "gradient"]);
    let (map, said) = raw("explain", "heads", "heads.x.npy", &["--method", "gradient"]);
    assert_eq!(map, bare);
    assert!(said.contains("ends in a sigmoid at 'tags'; what enters it was taken as logits"), "{said}");
    let same = ["--method", "gradient", "--output", "logit"];
    assert_eq!(raw("explain", "heads", "heads.x.npy", &same).0, bare);
    let words = ["--method", "gradient", "--output", "probability"];
    let (map, said) = raw("explain", "heads", "heads.x.npy", &words);
    assert!(said.contains("the scores are the probabilities at 'tags'"), "{said}");
    let p = array(&fixture("heads.y.npy")).to_f64().iter().copied().fold(0.0, f64::max);
    let scaled: Vec<f64> = bare.to_f64().iter().map(|v| v * p * (1.0 - p)).collect();
    assert!(relative_error(&map, &Tensor::new(bare.shape().to_vec(), scaled).unwrap()) < 1e-5);
    let (scores, _) = raw("run", "heads", "heads.x.npy", &["--output", "probability"]);
    assert!(relative_error(&scores, &array(&fixture("heads.y.npy"))) < 1e-6);
    let (logits, _) = raw("run", "heads", "heads.x.npy", &[]);
    assert!(relative_error(&logits, &array(&fixture("bare.y.npy"))) < 1e-6);
}

#[test]
fn issue_27_9_a_head_is_chosen_by_its_name() {
    let kinds = array(&fixture("heads.kinds.npy"));
    let (scores, said) = raw("run", "heads", "heads.x.npy", &["--output", "kinds,probability"]);
    assert!(relative_error(&scores, &kinds) < 1e-6);
    assert!(said.contains("--output kinds,probability"), "{said}");
    let (scores, _) = raw("run", "heads", "heads.x.npy", &["--output", "kinds"]);
    assert_eq!(scores.shape(), [1, 3]);
    let folder = ScratchFolder::new();
    let (heads, x) = (network("heads"), text(&fixture("heads.x.npy")));
    let compiled = text(&folder.path("compiled.onnx"));
    let said = succeeds(["compile", &heads, "--output", "kinds", "-o", &compiled]).errors;
    assert!(said.contains("`logits`, are the network's output 'kinds'; it leaves out 'tags'"), "{said}");
    let said = succeeds(["compile", &heads, "--output", "probability", "-o", &compiled]).out;
    assert!(said.contains("returns probabilities"), "{said}");
    // The file knows that its scores are probabilities.
    let json = succeeds(["explain", &compiled, &x, "--json", "--out", &text(&folder.path("out"))]).out;
    let p = array(&fixture("heads.y.npy")).to_f64().iter().copied().fold(0.0, f64::max);
    let confidence = format!("\"confidence\": {p}");
    assert!(json.contains(&confidence[..20]), "{json}");
    succeeds(["verify", &heads, "--output", "kinds"]);
    refuses(
        ["verify", &heads, "--output", "file.onnx"],
        &["no output 'file.onnx'", "'tags', 'kinds'", "-o says"],
    );
}

#[test]
fn issue_27_8_suggestions_suit_the_network() {
    let folder = ScratchFolder::new();
    let compiled = text(&folder.path("compiled.onnx"));
    let said = succeeds(["compile", &network("two_inputs"), "-o", &compiled, "--method", "gradient"]).errors;
    assert!(!said.contains("next:"), "{said}");
    for (name, suggested) in [
        ("two_inputs", None),
        ("mlp", Some("BATCH.npy")),
        ("tokens", Some("BATCH.npy")),
        ("bare", Some("PICTURE.jpg")),
    ] {
        let said = succeeds(["inspect", &network(name)]).errors;
        match suggested {
            Some(input) => assert!(said.contains(&format!("{name}.onnx {input}`")), "{said}"),
            None => assert!(!said.contains("next:"), "{said}"),
        }
    }
    let (_, said) = raw("run", "mlp", "mlp.x.npy", &[]);
    assert!(said.contains("mlp.x.npy` shows"), "{said}");
    let (_, said) = raw("run", "tokens", "tokens.x.npy", &[]);
    assert!(said.contains("tokens.x.npy` shows"), "token ids are explained at their embedding: {said}");
    let (_, said) = raw("explain", "mlp", "mlp.x.npy", &["--method", "gradient"]);
    assert!(said.contains("mlp.x.npy` draws other methods"), "{said}");
}

#[test]
fn issue_27_11_messages_name_what_is_wrong() {
    let open = network("open_sizes");
    let outcome = succeeds(["inspect", &open]);
    assert!(outcome.out.contains("--input-shape x=3,224,224"), "{}", outcome.out);
    let (tokens, picture, ids) =
        (network("tokens"), text(&fixture("picture.png")), text(&fixture("tokens.x.npy")));
    refuses(["run", &tokens, &picture], &["input 'ids'", "token ids of a text", ".npy batch"]);
    let folder = ScratchFolder::new();
    succeeds(["explain", &tokens, &ids, "--out", &text(&folder.path("out"))]);
}

#[test]
fn issue_27_14_a_node_of_two_types_is_named() {
    let (mixed, x) = (network("mixed_types"), text(&fixture("mlp.x.npy")));
    let words = "in node 'product': MatMul reads float and double numbers";
    refuses(["run", &mixed, &x], &[words]);
    let outcome = monosplit(["inspect", &mixed]);
    assert!(outcome.code == 2 && outcome.out.contains("float and double"), "{}", outcome.out);
}

/// Files that ONNX Runtime accepts have no such node.
#[test]
fn issue_27_14_files_of_exporters_have_one_type_in_a_node() {
    let mut seen = 0;
    for folder in std::fs::read_dir(models()).unwrap().map(|entry| entry.unwrap().path()) {
        let files = folder.is_dir().then(|| std::fs::read_dir(&folder).unwrap());
        for file in files.into_iter().flatten().map(|entry| entry.unwrap().path()) {
            if file.extension().is_none_or(|ending| ending != "onnx") {
                continue;
            }
            let bytes = std::fs::read(&file).unwrap();
            let report = onnx::import_report(&bytes, Some(&folder), &ImportOptions::default()).unwrap();
            let mixed = |remark: &Remark| matches!(remark, Remark::MixedTypes { .. });
            assert!(!report.remarks.iter().any(mixed), "{}: {:?}", file.display(), report.remarks);
            seen += 1;
        }
    }
    assert!(seen > 50, "{seen}");
}

/// Values of a small experiment about a network of pictures, with a line for its section `model`.
fn evaluated(name: &str, line: &str) -> Vec<String> {
    let folder = ScratchFolder::new();
    let part = folder.path("data/test");
    for inner in ["images", "masks"] {
        std::fs::create_dir_all(part.join(inner)).unwrap();
    }
    std::fs::copy(fixture("picture.png"), part.join("images/0.png")).unwrap();
    let mask: Vec<u8> = (0..16 * 24).map(|i| if i % 24 < 12 { 255 } else { 0 }).collect();
    write_png(part.join("masks/0.png"), 24, 16, Pixels::Grey(&mask)).unwrap();
    std::fs::write(part.join("labels.csv"), "file,class\n0.png,2\n").unwrap();
    let experiment = format!(
        "name = \"small\"\n[model]\nfile = \"{}\"\n{line}\n[data]\nfolder = \"data\"\ntest = \"test\"\n\
         [[method]]\nmethod = \"gradient\"\n[[method]]\nmethod = \"gradcam\"\n[comparison]\nmetrics = [\"attribution-localisation\", \"pixel-flipping:auc=2\"]\n",
        network(name)
    );
    let (file, store) = (folder.path("e.toml"), text(&folder.path("e.sqlite")));
    std::fs::write(&file, experiment).unwrap();
    succeeds(["evaluate", &text(&file), "--store", &store]);
    let csv = folder.path("rows.csv");
    succeeds(["results", &store, "-o", &text(&csv)]);
    let rows = std::fs::read_to_string(csv).unwrap();
    // Quoted fields hold commas but no quotes.
    let unquoted = |line: &str| {
        line.split('"')
            .enumerate()
            .map(|(i, part)| if i % 2 == 1 { part.replace(',', ";") } else { part.into() })
            .collect::<String>()
    };
    let mut lines = rows.lines().map(|line| unquoted(line).split(',').map(str::to_owned).collect::<Vec<_>>());
    let at = lines.next().unwrap().iter().position(|name| name == "value").unwrap();
    lines.map(|fields| fields[at].clone()).collect()
}

#[test]
fn issue_27_5_networks_with_channels_last_are_evaluated() {
    let first = evaluated("bytes_nchw", "");
    assert!(first.len() > 2, "{first:?}");
    let last = evaluated("bytes_nhwc", "");
    for (a, b) in first.iter().zip(&last) {
        let [a, b] = [a, b].map(|value| value.parse::<f64>().unwrap());
        assert!((a - b).abs() < 1e-5, "{first:?} {last:?}");
    }
}
