//! `monosplit train` and `monosplit counterfactual` as a person uses them.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::program::{refuses, succeeds};
use monosplit_testing::ScratchFolder;

/// Idx files of 8×8 pictures of two classes: a bright upper or a bright lower half, with noise.
fn idx(folder: &Path) {
    for (name, count) in [("train", 200u32), ("t10k", 40)] {
        let labels: Vec<u8> = (0..count).map(|i| (i % 2) as u8).collect();
        let pixel = |sample: u32, place: u32| {
            let noise = (sample.wrapping_mul(2654435761).wrapping_add(place.wrapping_mul(40503)) >> 7) % 100;
            let bright = (place < 32) == sample.is_multiple_of(2);
            noise as u8 + if bright { 120 } else { 0 }
        };
        let pixels: Vec<u8> = (0..count).flat_map(|s| (0..64).map(move |p| pixel(s, p))).collect();
        let header = |axes: &[u32]| {
            let mut header = vec![0, 0, 8, axes.len() as u8];
            axes.iter().for_each(|n| header.extend(n.to_be_bytes()));
            header
        };
        let images = [header(&[count, 8, 8]), pixels].concat();
        std::fs::write(folder.join(format!("{name}-images-idx3-ubyte")), images).unwrap();
        std::fs::write(folder.join(format!("{name}-labels-idx1-ubyte")), [header(&[count]), labels].concat())
            .unwrap();
    }
}

/// A folder with data and the description of a small network.
fn prepared() -> (ScratchFolder, String) {
    let folder = ScratchFolder::new();
    idx(&folder.path(""));
    let text = "conv 8 3\nnorm\nmaxout 2\npool 2\ndense 12; norm; maxout 3   # the end\nscores\n";
    std::fs::write(folder.path("small.txt"), text).unwrap();
    let base = folder.path("").to_str().unwrap().to_owned();
    (folder, base)
}

fn train<'a>(base: &'a str, arch: &'a str, restriction: &'a str, out: &'a str) -> Vec<&'a str> {
    let settings = ["--epochs", "4", "--batch", "20", "--rate", "0.01", "--threads", "2"];
    [&["train", base, "--arch", arch, "--restriction", restriction, "--out", out][..], &settings].concat()
}

#[test]
fn a_trained_network_is_understood_by_the_other_commands() {
    let (folder, base) = prepared();
    let arch = format!("{base}/small.txt");
    for restriction in ["None", "IC", "Mon", "DICIN", "DM"] {
        let out = format!("{base}/{restriction}.onnx");
        let said = succeeds(train(&base, &arch, restriction, &out)).out;
        assert!(said.contains("100.00 %") || said.contains("9"), "{said}");
        for left in ["csv", "loss.svg", "error.svg", "result.txt"] {
            assert!(folder.path(&format!("{restriction}.{left}")).is_file(), "{left}");
        }
        assert!(!folder.path(&format!("{restriction}.checkpoint.safetensors")).exists());
        let picture = format!("{base}/picture.png");
        let pixels: Vec<u8> = (0..64).map(|i| if i < 32 { 200 } else { 20 }).collect();
        monosplit::image::write_png(&picture, 8, 8, monosplit::image::Pixels::Grey(&pixels)).unwrap();
        assert!(succeeds(["run", &out, &picture]).out.contains('%'));
        assert!(succeeds(["inspect", &out]).out.contains("conv1"));
        let said = succeeds(["verify", &out, &picture]).out;
        assert_eq!(said.contains("trained streams are convex"), restriction != "None", "{said}");
        assert_eq!(said.contains("trained streams never decrease"), restriction.contains('M'), "{said}");
        assert!(!said.contains("FAILS"), "{restriction}: {said}");
        let figures = [format!("{base}/figure.png"), format!("{base}/figure.svg")];
        succeeds(["counterfactual", &out, &picture, "--out", &figures[0], "--out", &figures[1]]);
        assert!(std::fs::read_to_string(&figures[1]).unwrap().contains("Logit 1"));
        let said = succeeds(["counterfactual", &out, &base, "--measure", "5"]).out;
        assert!(said.contains("strokes cover"), "{said}");
    }
}

#[test]
fn a_training_that_is_killed_goes_on_to_the_same_bytes() {
    let (_folder, base) = prepared();
    let arch = format!("{base}/small.txt");
    let (whole, broken) = (format!("{base}/whole.onnx"), format!("{base}/broken.onnx"));
    succeeds(train(&base, &arch, "DICIN", &whole));
    let checkpoint = format!("{base}/broken.checkpoint.safetensors");
    let more = ["--checkpoint-every", "3"];
    let mut child = Command::new(env!("CARGO_BIN_EXE_monosplit"))
        .args([&train(&base, &arch, "DICIN", &broken)[..], &more].concat())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let began = Instant::now();
    while !Path::new(&checkpoint).exists() && began.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    succeeds([&train(&base, &arch, "DICIN", &broken)[..], &["--resume"]].concat());
    assert!(std::fs::read(&whole).unwrap() == std::fs::read(&broken).unwrap());
}

#[test]
fn a_table_trains_what_is_missing_and_nothing_twice() {
    let (folder, base) = prepared();
    let (arch, runs) = (format!("{base}/small.txt"), format!("{base}/runs"));
    let table = ["train", &base, "--table", "--runs", &runs, "--arch", &arch, "--restriction", "IC,DICIN"];
    let table = [&table[..], &["--epochs", "1", "--batch", "20", "--seeds", "2"]].concat();
    assert!(succeeds([&table[..], &["--print"]].concat()).out.contains("0 of 2"));
    let said = succeeds(&table).out;
    assert_eq!(said.matches("2 of 2").count(), 2, "{said}");
    let written = |name: &str| std::fs::metadata(folder.path("runs").join(name)).unwrap().modified().unwrap();
    let before = written("small-IC-0.onnx");
    assert_eq!(succeeds(&table).out, said);
    assert_eq!(written("small-IC-0.onnx"), before);
    refuses([&table[..], &["--decay", "0.5"]].concat(), &["other settings"]);
    let images = folder.path("train-images-idx3-ubyte");
    let mut bytes = std::fs::read(&images).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(images, bytes).unwrap();
    refuses(&table, &["other data"]);
}

#[test]
fn a_seed_of_a_table_is_the_same_however_the_table_is_shared_out() {
    let (folder, base) = prepared();
    let arch = format!("{base}/small.txt");
    let table = |runs: &str, seed: &str, seeds: &str| {
        let runs = format!("{base}/{runs}");
        let settings =
            ["--epochs", "2", "--batch", "20", "--samples", "100", "--seed", seed, "--seeds", seeds];
        let table = ["train", &base, "--table", "--runs", &runs, "--arch", &arch, "--restriction", "DIC"];
        succeeds([&table[..], &settings].concat());
    };
    table("whole", "0", "2");
    let single = format!("{base}/single.onnx");
    let settings = ["--epochs", "2", "--batch", "20", "--samples", "100", "--seed", "1"];
    let one = ["train", &base, "--arch", &arch, "--restriction", "DIC", "--out", &single];
    succeeds([&one[..], &settings].concat());
    table("part", "1", "1");
    let network = |runs: &str| std::fs::read(folder.path(runs).join("small-DIC-1.onnx")).unwrap();
    assert_eq!(network("whole"), network("part"));
    assert_eq!(network("whole"), std::fs::read(folder.path("single.onnx")).unwrap());
}

#[test]
fn mistakes_are_said_in_one_line() {
    let (folder, base) = prepared();
    let out = format!("{base}/out.onnx");
    refuses(["train", &base, "--arch", "lstm", "--out", &out], &["mlp_maxout"]);
    refuses(["train", &base, "--restriction", "convex", "--out", &out], &["DICIN"]);
    refuses(["train", "/absent", "--out", &out], &["folder"]);
    refuses(["train", &base, "--batch", "100000", "--out", &out], &["batch"]);
    refuses(["train", &base, "--rate=-1", "--out", &out], &["--rate"]);
    refuses(["train", &base, "--decay=nan", "--out", &out], &["--decay"]);
    refuses(["train", &base, "--warmup=-5", "--out", &out], &["--warmup"]);
    refuses(["train", &base, "--epochs", "0", "--out", &out], &["--epochs"]);
    refuses(["train", &base], &["--out"]);
    refuses(["train", &base, "--out", &format!("{base}/out.csv")], &[".onnx"]);
    refuses(["train", &base, "--samples", "9", "--batch", "2", "--patience", "2", "--out", &out], &["tenth"]);
    let labels = folder.path("train-labels-idx1-ubyte");
    let right = std::fs::read(&labels).unwrap();
    let mut stray = right.clone();
    stray[8] = 255;
    std::fs::write(&labels, stray).unwrap();
    refuses(["train", &base, "--out", &out], &["256 classes", "check the labels"]);
    let zeros = [&right[..8], &vec![0; right.len() - 8]].concat();
    std::fs::write(&labels, zeros).unwrap();
    refuses(["train", &base, "--out", &out], &["1 class", "at least two"]);
    std::fs::write(&labels, right).unwrap();
    std::fs::write(folder.path("wrong.txt"), "dense 8\nmaxout 3\nscores").unwrap();
    let wrong = format!("{base}/wrong.txt");
    refuses(["train", &base, "--arch", &wrong, "--out", &out], &["groups of 3"]);
    std::fs::write(folder.path("t10k-labels-idx1-ubyte"), [0, 0, 8, 1, 0, 0]).unwrap();
    refuses(["train", &base, "--out", &out], &["t10k-labels", "header"]);
}
