//! `monosplit run` as a person uses it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::program::{chelsea, model, op_case, refuses, succeeds};
use crate::reference::{array, relative_error};
use monosplit::Tensor;
use monosplit::graph::npy;
use monosplit_testing::ScratchFolder;

fn arguments(words: &[&str], files: &[&Path]) -> Vec<String> {
    let files = files.iter().map(|path| path.to_str().unwrap().to_owned());
    std::iter::once("run".to_owned()).chain(files).chain(words.iter().map(|&word| word.to_owned())).collect()
}

fn raw(folder: &ScratchFolder, words: &[&str], files: &[&Path]) -> Tensor {
    let path = folder.path("raw.npy");
    let mut all = arguments(words, files);
    all.extend(["--raw".to_owned(), path.to_str().unwrap().to_owned()]);
    succeeds(all);
    array(&path)
}

/// A batch of `count` samples shaped like `sample`, no two alike.
fn samples(folder: &ScratchFolder, count: usize, sample: &[usize]) -> PathBuf {
    let size: usize = sample.iter().product();
    let values: Vec<f32> = (0..count * size).map(|v| ((v * 37 + 11) % 101) as f32 / 50.0 - 1.0).collect();
    let tensor = Tensor::new([&[count], sample].concat(), values).unwrap();
    folder.write(&format!("x{count}.npy"), npy::write(&tensor))
}

#[test]
fn a_picture_is_answered_with_five_classes() {
    let said = succeeds(arguments(&[], &[&model("vgg/torchscript-17.onnx"), &chelsea()])).out;
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 6, "{said}");
    assert!(lines[0].ends_with("chelsea.png"));
    let percent: Vec<f64> =
        lines[1..].iter().map(|l| l.trim().split(' ').next().unwrap().parse().unwrap()).collect();
    assert!(percent.is_sorted_by(|a, b| a >= b) && percent.iter().sum::<f64>() <= 100.05, "{percent:?}");
    assert!(lines[1].contains("class "));
}

#[test]
fn names_come_from_the_labels() {
    let folder = ScratchFolder::new();
    let labels = folder.write("labels.txt", "a\nb\r\nc\nd\ne\nf\ngé\n\n");
    let words = ["--labels", labels.to_str().unwrap(), "--top", "7"];
    let said = succeeds(arguments(&words, &[&model("vgg/torchscript-17.onnx"), &chelsea()])).out;
    let mut names: Vec<&str> = said.lines().skip(1).map(|line| line.rsplit(' ').next().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["a", "b", "c", "d", "e", "f", "gé"]);
}

#[test]
fn a_folder_is_its_pictures_in_order() {
    let folder = ScratchFolder::new();
    let picture = std::fs::read(chelsea()).unwrap();
    for name in ["b.png", "a.PNG", "notes.txt"] {
        folder.write(name, &picture);
    }
    let said =
        succeeds(arguments(&["--top", "1"], &[&model("fire/torchscript-20.onnx"), &folder.path("")])).out;
    let files: Vec<&str> = said.lines().step_by(2).map(|line| line.rsplit('/').next().unwrap()).collect();
    assert_eq!(files, ["a.PNG", "b.png"]);
}

#[test]
fn neither_batch_size_nor_threads_change_a_bit() {
    let folder = ScratchFolder::new();
    let x = samples(&folder, 5, &[3, 16, 16]);
    let network = model("vgg/torchscript-17.onnx");
    let expected = raw(&folder, &[], &[&network, &x]);
    assert_eq!(expected.shape(), [5, 7]);
    for words in [["--batch", "1"], ["--batch", "3"], ["--threads", "1"], ["--threads", "3"]] {
        assert_eq!(raw(&folder, &words, &[&network, &x]), expected, "{words:?}");
    }
}

/// The operator cases are networks for a batch of a certain size.
#[test]
fn a_fixed_batch_size_serves_any_number_of_samples() {
    let folder = ScratchFolder::new();
    let network = op_case("Gemm-plain-13.onnx");
    let inspected = succeeds(["inspect", "--json", network.to_str().unwrap()]).out;
    let shape = inspected.split("\"shape\": [").nth(1).unwrap().split(']').next().unwrap();
    let lengths: Vec<usize> = shape.split(',').map(|n| n.trim().parse().unwrap()).collect();
    let [batch, width] = lengths[..] else { panic!("{lengths:?}") };
    assert!(batch > 1);
    let many = raw(&folder, &[], &[&network, &samples(&folder, 2 * batch + 1, &[width])]);
    let classes = many.shape()[1];
    let whole = array(&samples(&folder, 2 * batch + 1, &[width]));
    for row in 0..=2 * batch {
        let one = Tensor::new([1, width], whole.to_f32()[row * width..][..width].to_vec()).unwrap();
        let alone = raw(&folder, &[], &[&network, &folder.write("one.npy", npy::write(&one))]);
        assert_eq!(*alone.to_f32(), many.to_f32()[row * classes..][..classes], "sample {row}");
    }
}

/// `y.npy` holds probabilities, so the softmax of what `--raw` writes must be those.
#[test]
fn a_softmax_at_the_end_is_taken_off_and_not_applied_twice() {
    let folder = ScratchFolder::new();
    let network = model("caffe/handmade-7.onnx");
    let expected = array(&network.with_extension("y.npy"));
    let logits = raw(&folder, &[], &[&network, &network.with_file_name("x.npy")]);
    assert_eq!(logits.shape(), [2, 5]);
    let softmax = |row: &[f64]| {
        let sum: f64 = row.iter().map(|v| v.exp()).sum();
        row.iter().map(|v| v.exp() / sum).collect::<Vec<f64>>()
    };
    let found: Vec<f64> = logits.to_f64().chunks(5).flat_map(softmax).collect();
    assert!(relative_error(&Tensor::new([2, 5], found).unwrap(), &expected) < 1e-5);
    let outcome = succeeds(arguments(&[], &[&network, &network.with_file_name("x.npy")]));
    assert!(outcome.errors.starts_with("monosplit: the network ends in a softmax"), "{}", outcome.errors);
    let most = expected.to_f64()[..5].iter().copied().fold(0.0, f64::max);
    let line = outcome.out.lines().nth(1).unwrap();
    assert!(line.contains(&format!("{:.2} %", 100.0 * most)), "{line}");
}

#[test]
fn a_network_of_tensorflow_reads_pictures_with_colours_last() {
    let said = succeeds(arguments(&[], &[&model("keras_valid/handmade-18.onnx"), &chelsea()])).out;
    assert_eq!(said.lines().count(), 6);
}

#[test]
fn json_holds_what_the_text_says() {
    let network = model("vgg/torchscript-17.onnx");
    let said = succeeds(arguments(&["--json", "--top", "2", "--profile"], &[&network, &chelsea()])).out;
    for key in [
        "\"network\"",
        "\"inputs\"",
        "\"class\"",
        "\"probability\"",
        "\"score\"",
        "\"profile\"",
        "\"kernel\"",
    ] {
        assert!(said.contains(key), "{key} is not in {said}");
    }
    assert_eq!(said.matches("\"class\"").count(), 2);
}

#[test]
fn a_profile_lists_the_layers() {
    let said = succeeds(arguments(&["--profile"], &[&model("vgg/torchscript-17.onnx"), &chelsea()])).out;
    // A layer that took too small a share of the time has no line of its own, whichever that was this time; every kernel has.
    for expected in ["layer ", "\nkernel ", "\npool ", "\nconv, ", "\nmatrix product ", "share"] {
        assert!(said.contains(expected), "{expected:?} is not in {said}");
    }
}

#[test]
fn an_output_that_is_no_list_of_classes_can_be_written() {
    let folder = ScratchFolder::new();
    let network = model("decoder/dynamo-18.onnx");
    let x = network.with_file_name("x.npy");
    refuses(arguments(&[], &[&network, &x]), &["[N, 2, 24, 24]", "--raw"]);
    assert_eq!(raw(&folder, &[], &[&network, &x]).shape(), [2, 2, 24, 24]);
}

/// BGR pictures with the means of BGR are what a network of swapped channels would read.
#[test]
fn options_overrule_the_preset() {
    let folder = ScratchFolder::new();
    let (network, picture) = (model("fire/torchscript-20.onnx"), chelsea());
    let files = [&*network, &*picture];
    let preset = raw(&folder, &["--preset", "imagenet-bgr"], &files);
    let spelled = ["--preset", "unit", "--scale", "bytes", "--bgr", "--mean", "103.939,116.779,123.68"];
    assert_eq!(raw(&folder, &spelled, &files), preset);
    let resized = raw(&folder, &["--resize", "17", "--crop", "15"], &files);
    assert_eq!(resized, raw(&folder, &["--fit", "crop"], &files));
    assert_ne!(resized, raw(&folder, &["--fit", "squash"], &files));
    assert_ne!(resized, raw(&folder, &["--filter", "bicubic"], &files));
}

#[test]
fn a_reader_that_stops_early_is_no_failure() {
    let picture = chelsea();
    let mut words = arguments(&["--batch", "1"], &[&model("fire/torchscript-20.onnx")]);
    words.extend(std::iter::repeat_n(picture.to_str().unwrap().to_owned(), 12));
    let mut child = Command::new(env!("CARGO_BIN_EXE_monosplit"))
        .args(words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "");
    assert_eq!(ended.status.code(), Some(0));
}

/// Archives that `scripts/make_npz_inputs.py` wrote with NumPy, against the `.npy` file they were made from.
#[test]
fn an_archive_is_the_array_in_it() {
    let folder = ScratchFolder::new();
    let network = model("vgg/torchscript-17.onnx");
    let archive = |name: &str| network.with_file_name("../../npz").join(name);
    let expected = raw(&folder, &[], &[&network, &network.with_file_name("x.npy")]);
    for name in ["one.npz", "compressed.npz", "fortran.npz"] {
        assert_eq!(raw(&folder, &[], &[&network, &archive(name)]), expected, "{name}");
    }
    let renamed = folder.write("renamed", std::fs::read(archive("one.npz")).unwrap());
    assert_eq!(raw(&folder, &[], &[&network, &renamed]), expected);
    refuses(
        arguments(&[], &[&network, &archive("several.npz")]),
        &["several.npz", "one called 'x'", "'images', 'labels'"],
    );
    let cut = std::fs::read(archive("one.npz")).unwrap();
    let cut = folder.write("cut.npz", &cut[..cut.len() / 2]);
    refuses(arguments(&[], &[&network, &cut]), &["cut.npz", "truncated"]);
    let other = folder.write("words.npz", "not an archive");
    refuses(arguments(&[], &[&network, &other]), &["words.npz", "neither"]);
}
