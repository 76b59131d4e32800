//! Files made to do harm, given to the program as a person would give them: one line, exit code 2, and memory
//! that stays below what the system is told to allow.

#![cfg(unix)]

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::program::{chelsea, model, refuses};
use monosplit::graph::op::Reduction;
use monosplit::graph::{Dim, Graph, Kind, NodeId, Op, Shape, Tensor, npy, onnx};
use monosplit_testing::{ScratchFolder, crates_folder, shared};

/// Address space the program may take, in KiB.
const MEMORY: u32 = 2 << 20;

/// What the program says of bad files: its exit code and its errors, with little memory to take.
fn confined(arguments: &[&str]) -> (i32, String) {
    let output = Command::new("sh")
        .args(["-c", &format!("ulimit -v {MEMORY}; exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_monosplit")])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .expect("the program starts");
    (output.status.code().unwrap_or(-1), String::from_utf8(output.stderr).expect("the errors are text"))
}

/// The files of a folder whose names begin and end like this.
fn files(folder: &Path, beginning: &str, ending: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> = entries
        .filter(|path| {
            let name = path.file_name().unwrap().to_string_lossy();
            name.starts_with(beginning) && name.ends_with(ending)
        })
        .collect();
    found.sort();
    assert!(!found.is_empty());
    found
}

fn is_one_line(code: i32, said: &str) {
    assert_eq!(code, 2, "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("monosplit: "), "{said}");
}

#[test]
fn hostile_networks_are_refused_in_little_memory() {
    let picture = chelsea();
    for path in files(&crates_folder().join("../fuzz/seeds"), "", ".onnx") {
        let (code, said) = confined(&["run", path.to_str().unwrap(), picture.to_str().unwrap()]);
        is_one_line(code, &said);
    }
}

/// Among them pickles that call functions.
#[test]
fn hostile_weights_are_refused_in_little_memory() {
    let picture = chelsea();
    let mut paths = files(&crates_folder().join("../fuzz/seeds"), "", ".pth");
    paths.extend(files(&crates_folder().join("graph/tests/fixtures/weights"), "hostile", ".pth"));
    for path in paths {
        let path = path.to_str().unwrap();
        let (code, said) =
            confined(&["run", "--arch", "resnet18", "--weights", path, picture.to_str().unwrap()]);
        is_one_line(code, &said);
        assert!(!path.contains("system") || said.contains("system"), "{said}");
    }
}

#[test]
fn hostile_arrays_are_refused_in_little_memory() {
    let network = model("vgg/torchscript-17.onnx");
    for path in files(&crates_folder().join("../fuzz/seeds"), "", ".npy") {
        let (code, said) = confined(&["run", network.to_str().unwrap(), path.to_str().unwrap()]);
        is_one_line(code, &said);
    }
}

#[test]
fn files_that_never_end_are_refused() {
    let picture = chelsea();
    let picture = picture.to_str().unwrap();
    refuses(["run", "--arch", "resnet18", "--weights", "/dev/zero", picture], &["/dev/zero"]);
    let (code, said) = confined(&["inspect", "/dev/zero"]);
    is_one_line(code, &said);
}

#[test]
fn lists_that_are_pipes_are_not_waited_for() {
    let folder = ScratchFolder::new();
    std::fs::create_dir(folder.path("images")).unwrap();
    std::fs::copy(chelsea(), folder.path("images/0.png")).unwrap();
    for pipe in ["labels.csv", "run.sqlite"] {
        assert!(Command::new("mkfifo").arg(folder.path(pipe)).status().unwrap().success());
    }
    let network = crates_folder().join("monosplit/assets/pets-small.onnx");
    let experiment = format!(
        "name = \"pipe\"\n[model]\nfile = {network:?}\n[data]\nfolder = \".\"\n[[method]]\nmethod = \"splitcam\"\n\
         [comparison]\nmetrics = [\"pointing-game\"]\n"
    );
    let experiment = folder.write("experiment.toml", experiment);
    let (data, run) = (folder.root().display().to_string(), folder.path("run.sqlite"));
    let model = folder.path("model.onnx");
    refuses(["train", &data, "--out", model.to_str().unwrap()], &["labels.csv", "pipe"]);
    refuses(["evaluate", experiment.to_str().unwrap(), "--quiet"], &["labels.csv", "pipe"]);
    refuses(["serve", run.to_str().unwrap()], &["run.sqlite"]);
    refuses(["results", run.to_str().unwrap()], &["run.sqlite"]);
}

#[test]
fn links_that_lead_nowhere_are_unreadable_files() {
    let folder = ScratchFolder::new();
    let (nowhere, circle) = (folder.path("nowhere"), folder.path("circle"));
    symlink(folder.path("absent"), &nowhere).unwrap();
    symlink(&circle, &circle).unwrap();
    let (network, picture) = (model("vgg/torchscript-17.onnx"), chelsea());
    for link in [nowhere.to_str().unwrap(), circle.to_str().unwrap()] {
        refuses(["inspect", link], &[link]);
        refuses(["run", network.to_str().unwrap(), link], &[link]);
        refuses(["run", "--arch", "resnet18", "--weights", link, picture.to_str().unwrap()], &[link]);
    }
}

/// A network whose weights lie in `location`, which has as many letters as `../secret`.
fn network_with_weights_at(location: &str) -> Vec<u8> {
    let mut bytes = std::fs::read(crates_folder().join("../fuzz/seeds/outside.onnx")).unwrap();
    let place = bytes.windows(9).position(|part| part == b"../secret").unwrap();
    bytes[place..place + 9].copy_from_slice(location.as_bytes());
    bytes
}

#[test]
fn weights_outside_the_folder_of_a_network_stay_unread() {
    let (folder, picture) = (ScratchFolder::new(), chelsea());
    std::fs::create_dir(folder.path("inner")).unwrap();
    folder.write("secret", [0; 8]);
    symlink(folder.path("secret"), folder.path("inner/symbolic1")).unwrap();
    symlink(folder.path(""), folder.path("inner/up")).unwrap();
    for (location, reason) in [
        ("../secret", "outside"),
        ("/dev/zero", "outside"),
        ("symbolic1", "outside"),
        ("up/secret", "outside"),
        ("absent123", "absent123"),
        ("./inner/.", "./inner/."),
    ] {
        let path = folder.write("inner/network.onnx", network_with_weights_at(location));
        refuses(["run", path.to_str().unwrap(), picture.to_str().unwrap()], &[reason]);
        refuses(["inspect", path.to_str().unwrap()], &[]);
    }
}

/// The commands that compute or rewrite a network, with where they write.
fn commands(network: &str, input: Option<&str>, folder: &ScratchFolder) -> Vec<Vec<String>> {
    let out = |name: &str| folder.path(name).display().to_string();
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<String>>();
    let mut lines = vec![
        words(&["verify", network]),
        words(&["compile", network, "-o", &out("compiled.onnx")]),
        words(&["split", network, "--out-g", &out("g.onnx"), "--out-h", &out("h.onnx")]),
        words(&["inspect", network]),
    ];
    if let Some(input) = input {
        lines.push(words(&["run", network, input, "--raw", &out("scores.npy")]));
        lines.push(words(&["explain", network, input, "-o", &out("map.png")]));
    }
    lines
}

/// Every file that once broke the program ends with an answer.
#[test]
fn slow_files_that_broke_the_program_are_answered() {
    let Some(hostile) = shared("hostile") else { return };
    for network in files(&hostile, "", ".onnx") {
        let own = network.with_extension("npy");
        let input = if own.is_file() { own } else { hostile.join("bomb-x.npy") };
        let folder = ScratchFolder::new();
        for line in commands(network.to_str().unwrap(), input.to_str(), &folder) {
            let line: Vec<&str> = line.iter().map(String::as_str).collect();
            let (code, said) = confined(&line);
            assert!((0..=2).contains(&code), "{line:?} ends with {code}: {said}");
            assert!(!said.contains("please report"), "{line:?}: {said}");
        }
    }
}

/// A network of five classes whose scores are means of what `write` makes of an input of this shape.
fn network(
    folder: &ScratchFolder,
    name: &str,
    shape: Shape,
    write: impl Fn(&mut Graph, NodeId) -> NodeId,
) -> String {
    let mut g = Graph::new();
    let x = g.input("x", shape, Kind::Float);
    let made = write(&mut g, x);
    let axes: Vec<usize> = (2..g.node(made).shape.rank()).collect();
    let mean = g.reduced(Reduction::Mean, made, &axes, false).unwrap();
    let mean = g.reduced(Reduction::Mean, mean, &[1], true).unwrap();
    let weights = g.constant(Tensor::new([1, 5], vec![1f32, -2.0, 3.0, 0.5, 0.1]).unwrap());
    let scores = g.add(Op::MatMul { trans_a: false, trans_b: false }, &[mean, weights]).unwrap();
    g.output("scores", scores);
    saved(&g, folder, name)
}

/// The path of a network's new file.
fn saved(g: &Graph, folder: &ScratchFolder, name: &str) -> String {
    let path = folder.path(name);
    onnx::save(g, &path, &onnx::ExportOptions::default()).unwrap();
    path.display().to_string()
}

#[test]
fn small_files_that_ask_for_much_memory_are_refused_before_anything_is_computed() {
    let folder = ScratchFolder::new();
    let sample = folder.write("x.npy", npy::write(&Tensor::new([1, 1, 8, 8], vec![0.5f32; 64]).unwrap()));
    let sample = sample.to_str().unwrap();
    let expanded = network(&folder, "expanded.onnx", Shape::batched(&[1, 8, 8]), |g, x| {
        let shape = Shape::new([Dim::Batch(1), Dim::Fixed(1 << 26), Dim::Fixed(8), Dim::Fixed(8)]);
        g.add(Op::Expand { shape }, &[x]).unwrap()
    });
    let product = network(&folder, "product.onnx", Shape::batched(&[1, 8, 8]), |g, x| {
        let column = g.reshaped(x, Shape::batched(&[64, 1])).unwrap();
        let wide = Op::Expand { shape: Shape::new([Dim::Batch(1), Dim::Fixed(64), Dim::Fixed(1 << 18)]) };
        let wide = g.add(wide, &[column]).unwrap();
        g.add(Op::MatMul { trans_a: true, trans_b: false }, &[wide, wide]).unwrap()
    });
    let constant = network(&folder, "constant.onnx", Shape::batched(&[1, 8, 8]), |g, x| {
        let one = g.constant(Tensor::scalar(1f32));
        let wide = g.add(Op::Expand { shape: Shape::fixed(&[1 << 14, 1 << 14, 8]) }, &[one]).unwrap();
        let sum = g.reduced(Reduction::Sum, wide, &[0, 1], false).unwrap();
        g.times(x, sum).unwrap()
    });
    for network in [&expanded, &product] {
        for command in ["run", "explain", "verify"] {
            let (code, said) = confined(&[command, network, sample]);
            is_one_line(code, &said);
            assert!(said.contains("memory budget") && said.contains("most of it for '"), "{said}");
            assert!(said.contains("--memory"), "{said}");
        }
    }
    let (code, said) = confined(&["run", &constant, sample]);
    is_one_line(code, &said);
    // Pictures for each of many classes.
    let mut g = Graph::new();
    let x = g.input("x", Shape::batched(&[1, 8, 8]), Kind::Float);
    let mean = g.reduced(Reduction::Mean, x, &[2, 3], false).unwrap();
    let scores = g.add(Op::Expand { shape: Shape::batched(&[1 << 21]) }, &[mean]).unwrap();
    g.output("scores", scores);
    let (crowded, figure) = (saved(&g, &folder, "crowded.onnx"), folder.path("figure.svg"));
    let (code, said) = confined(&["counterfactual", &crowded, sample, "--out", figure.to_str().unwrap()]);
    is_one_line(code, &said);
    assert!(said.contains("memory budget"), "{said}");
    // A budget of one's own.
    let (code, said) =
        confined(&["run", "--memory", "1K", &model("vgg/torchscript-17.onnx").display().to_string(), sample]);
    is_one_line(code, &said);
}

/// The indices of its classes alone would take 256 GiB.
#[test]
fn more_classes_than_can_be_counted_are_refused_by_every_command() {
    let folder = ScratchFolder::new();
    let sample = folder.write("x.npy", npy::write(&Tensor::new([1, 1], vec![0.5f32]).unwrap()));
    let mut g = Graph::new();
    let x = g.input("x", Shape::batched(&[1]), Kind::Float);
    let scores = g.add(Op::Expand { shape: Shape::batched(&[1 << 35]) }, &[x]).unwrap();
    g.output("scores", scores);
    let crowded = saved(&g, &folder, "crowded.onnx");
    // A bias that is one number for all of them.
    let half = g.number(0.5);
    let shifted = g.plus(scores, half).unwrap();
    g.set_outputs(Vec::new());
    g.output("scores", shifted);
    let shifted = saved(&g, &folder, "shifted.onnx");
    let lines = [crowded, shifted].map(|network| commands(&network, sample.to_str(), &folder));
    for line in lines.iter().flatten() {
        let (code, said) = confined(&line.iter().map(String::as_str).collect::<Vec<_>>());
        match &*line[0] {
            "inspect" => assert_eq!(code, 0, "{said}"),
            _ => assert_eq!(code, 2, "{line:?}: {said}"),
        }
        assert!(said.lines().count() <= 2 && !said.contains("please report"), "{line:?}: {said}");
    }
}

#[test]
fn the_input_of_a_check_is_no_larger_than_memory() {
    let folder = ScratchFolder::new();
    let large = network(&folder, "large.onnx", Shape::batched(&[3, 30_000, 30_000]), |_, x| x);
    for line in commands(&large, None, &folder).iter().filter(|line| matches!(&*line[0], "verify" | "split"))
    {
        let (code, said) = confined(&line.iter().map(String::as_str).collect::<Vec<_>>());
        is_one_line(code, &said);
        assert!(said.contains("memory budget"), "{said}");
    }
}

/// One sample costs one sample, whatever batch the file fixes.
#[test]
fn a_declared_batch_of_a_million_takes_the_samples_given() {
    let folder = ScratchFolder::new();
    let sample = folder.write("x.npy", npy::write(&Tensor::new([1, 3, 8, 8], vec![0.5f32; 192]).unwrap()));
    let sample = sample.to_str().unwrap();
    for batch in [1_000_000, 1 << 31] {
        let fixed = network(&folder, "fixed.onnx", Shape::fixed(&[batch, 3, 8, 8]), |_, x| x);
        for line in commands(&fixed, Some(sample), &folder) {
            let (code, said) = confined(&line.iter().map(String::as_str).collect::<Vec<_>>());
            assert_eq!(code, 0, "{line:?}: {said}");
        }
        let open = network(&folder, "open.onnx", Shape::batched(&[3, 8, 8]), |_, x| x);
        let scores = |network: &str| {
            let target = folder.path("scores.npy");
            let (code, said) = confined(&["run", network, sample, "--raw", target.to_str().unwrap()]);
            assert_eq!(code, 0, "{said}");
            std::fs::read(target).unwrap()
        };
        assert_eq!(scores(&fixed), scores(&open));
        // Samples that depend on each other cannot be asked about one by one.
        let mixing = network(&folder, "mixing.onnx", Shape::fixed(&[batch, 3, 8, 8]), |g, x| {
            let mean = g.reduced(Reduction::Mean, x, &[0, 2, 3], true).unwrap();
            g.minus(x, mean).unwrap()
        });
        let (code, said) = confined(&["run", &mixing, sample]);
        is_one_line(code, &said);
    }
}

/// Batches of numbers that arithmetic stumbles over: a finite map, or one line.
#[test]
fn slow_issue_35_odd_numbers_have_finite_maps_or_are_refused() {
    let folder = ScratchFolder::new();
    let network = crates_folder().join("monosplit/assets/pets-small.onnx");
    let count = 3 * 128 * 128;
    let ordinary: Vec<f32> = (0..count).map(|i| (i % 251) as f32 / 125.0 - 1.0).collect();
    let with = |odd: f32| {
        let mut values = ordinary.clone();
        values[777] = odd;
        values
    };
    let mut batches: Vec<(String, Vec<f32>)> = [0.0, 0.5, 1e30, 1e-40, f32::MAX, f32::NAN, f32::INFINITY]
        .map(|value| (format!("all {value:e}"), vec![value; count]))
        .into();
    batches.extend([f32::NAN, f32::NEG_INFINITY].map(|value| (format!("one {value:e}"), with(value))));
    let (input, raw) = (folder.path("x.npy"), folder.path("map.npy"));
    for (name, values) in batches {
        std::fs::write(&input, npy::write(&Tensor::new([1, 3, 128, 128], values).unwrap())).unwrap();
        for method in ["splitcam", "splitgrad", "splitlrp", "gradcam", "lrp", "deeplift"] {
            let _ = std::fs::remove_file(&raw);
            let paths = [&network, &input, &raw].map(|path| path.to_str().unwrap());
            let out = folder.path("maps");
            let (code, said) = confined(&[
                "explain",
                paths[0],
                paths[1],
                "--raw",
                paths[2],
                "--out",
                out.to_str().unwrap(),
                "--method",
                method,
                "-q",
            ]);
            if code == 0 {
                let map = npy::read(&std::fs::read(&raw).unwrap()).unwrap();
                assert!(map.to_f64().iter().all(|value| value.is_finite()), "{name}, {method}");
            } else {
                assert_eq!(code, 2, "{name}, {method}: {said}");
                assert!(
                    said.starts_with("monosplit: ") && !said.contains("panicked"),
                    "{name}, {method}: {said}"
                );
            }
        }
    }
}
