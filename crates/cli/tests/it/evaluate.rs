//! Evaluations as a person runs them: killed, shared among processes, described wrongly, reported.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::program::{refuses, succeeds};
use monosplit::eval::experiment::{Experiment, MapsFrom};
use monosplit::eval::store::{RowFilter, Store};
use monosplit::graph::Noise;
use monosplit::image::{Picture, Pixels, write_png};
use monosplit_testing::{ScratchFolder, crates_folder};

/// A folder of its own with a data set of a few images cut from one photograph, and an experiment about them.
pub(crate) struct Bench(ScratchFolder);

impl Bench {
    pub(crate) fn new() -> Self {
        let scratch = ScratchFolder::new();
        let folder = scratch.root();
        for (part, shift) in [("val", 0), ("test", 40)] {
            let images = folder.join("data").join(part).join("images");
            let masks = folder.join("data").join(part).join("masks");
            std::fs::create_dir_all(&images).unwrap();
            std::fs::create_dir_all(&masks).unwrap();
            let mut labels = "file,class\n".to_owned();
            for number in 0..3 {
                let cut = cut(30 * number + shift, 20 * number);
                write_png(images.join(format!("{number}.png")), 128, 128, (&cut).into()).unwrap();
                let mask: Vec<u8> =
                    (0..128 * 128).map(|i| if (30..100).contains(&(i % 128)) { 255 } else { 0 }).collect();
                write_png(masks.join(format!("{number}.png")), 128, 128, Pixels::Grey(&mask)).unwrap();
                labels.push_str(&format!("{number}.png,{}\n", 5 + number));
            }
            std::fs::write(folder.join("data").join(part).join("labels.csv"), labels).unwrap();
        }
        let model = crates_folder().join("monosplit/assets/pets-small.onnx");
        let text = EXPERIMENT.replace("MODEL", &model.canonicalize().unwrap().display().to_string());
        std::fs::write(folder.join("experiment.toml"), text).unwrap();
        Bench(scratch)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path(name)
    }

    fn start(&self, store: &Path) -> Child {
        self.start_with(store, 1)
    }

    fn start_with(&self, store: &Path, workers: usize) -> Child {
        self.command(store, workers).stderr(Stdio::null()).spawn().expect("the program starts")
    }

    fn command(&self, store: &Path, workers: usize) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_monosplit"));
        command
            .arg("evaluate")
            .arg(self.path("experiment.toml"))
            .arg("--store")
            .arg(store)
            .arg("--workers")
            .arg(workers.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command
    }

    /// All rows of a store but the times, as text.
    fn rows(&self, store: &Path) -> Vec<String> {
        let csv = self.path("rows.csv");
        succeeds([Path::new("results"), store, Path::new("-o"), &csv]);
        let text = std::fs::read_to_string(csv).unwrap();
        let seconds = text.lines().next().unwrap().split(',').position(|name| name == "seconds").unwrap();
        let without = |line: &str| -> String {
            // Quoted fields hold commas but no quotes.
            let mut fields = vec![String::new()];
            let mut quoted = false;
            for letter in line.chars() {
                match letter {
                    '"' => quoted = !quoted,
                    ',' if !quoted => fields.push(String::new()),
                    other => fields.last_mut().unwrap().push(other),
                }
            }
            fields.remove(seconds);
            fields.join("|")
        };
        text.lines().map(without).collect()
    }
}

const EXPERIMENT: &str = r#"
name = "small"
batch = 2
[model]
file = "MODEL"
[data]
folder = "data"
validation = "val"
test = "test"
[[method]]
title = "SplitGrad"
method = "splitgrad"
layers = ["layer3.0.conv2", "layer4.2.conv2"]
absolute = "both"
[[method]]
method = "gradcam"
[[method]]
method = "mask"
[selection]
localisation = ["pointing-game", "attribution-localisation"]
[comparison]
metrics = ["pointing-game", "sparseness", "complexity", "max-sensitivity:samples=2", "pixel-flipping:auc=2"]
[sanity]
images = 2
"#;

/// A piece of 128×128 pixels.
fn cut(left: usize, top: usize) -> Picture {
    let whole = Picture::open(crate::program::chelsea()).unwrap();
    let rows = (top..top + 128).map(|y| &whole.rgb()[3 * (y * whole.width() + left)..][..3 * 128]);
    Picture::new(128, 128, rows.flatten().copied().collect()).unwrap()
}

#[test]
fn slow_killed_twenty_times_a_run_ends_with_the_rows_of_one_that_was_not() {
    let bench = Bench::new();
    let (whole, torn) = (bench.path("whole.sqlite"), bench.path("torn.sqlite"));
    assert!(bench.start(&whole).wait().unwrap().success());
    let expected = bench.rows(&whole);
    assert!(expected.len() > 90, "{}", expected.len());
    let count = || {
        Store::read(&torn).and_then(|store| store.rows(&RowFilter::default())).map_or(0, |rows| rows.len())
    };
    let noise = Noise::new(20);
    let mut interrupted = 0;
    for kill in 0..20 {
        // A few rows later than the last, or none: then it is killed while it opens its files.
        let wanted = count() + (noise.uniform(2 * kill) * expected.len() as f64 / 30.0) as usize;
        let mut child = bench.start(&torn);
        while count() < wanted && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_secs_f64(0.02 * noise.uniform(2 * kill + 1)));
        interrupted += usize::from(child.try_wait().unwrap().is_none());
        // kill -9
        let _ = child.kill();
        child.wait().unwrap();
    }
    assert!(bench.start(&torn).wait().unwrap().success());
    assert!(interrupted >= 10, "only {interrupted} of 20 kills met a process at work");
    assert_eq!(expected, bench.rows(&torn));
}

/// What the system does to a process whose model is shortened under its feet, which cannot be timed from outside.
#[test]
#[cfg(target_os = "linux")]
fn a_file_that_is_gone_while_it_is_read_is_said() {
    let bench = Bench::new();
    let store = bench.path("store.sqlite");
    let mut child = bench.command(&store, 1).stderr(Stdio::piped()).spawn().expect("the program starts");
    while !store.exists() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(Command::new("kill").args(["-s", "BUS", &child.id().to_string()]).status().unwrap().success());
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(2), "{said}");
    assert!(said.contains("shortened while it was in use"), "{said}");
}

#[test]
fn slow_processes_and_their_workers_divide_a_run_and_find_the_same() {
    let bench = Bench::new();
    let (alone, shared) = (bench.path("alone.sqlite"), bench.path("shared.sqlite"));
    assert!(bench.start(&alone).wait().unwrap().success());
    let mut both = [bench.start(&shared), bench.start_with(&shared, 3)];
    assert!(both.iter_mut().all(|child| child.wait().unwrap().success()));
    assert_eq!(bench.rows(&alone), bench.rows(&shared));
    let left: Vec<String> = std::fs::read_dir(bench.0.root())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name.contains("-worker-"))
        .collect();
    assert!(left.is_empty(), "{left:?}");

    let folder = bench.path("report");
    let made = succeeds([Path::new("report"), &shared, Path::new("-o"), &folder]);
    for file in ["index.html", "comparison.md", "comparison.tex", "sanity.md", "maps.svg", "extremes.svg"] {
        assert!(made.out.contains(file) && folder.join(file).is_file(), "{file}: {}", made.out);
    }
    let page = std::fs::read_to_string(folder.join("index.html")).unwrap();
    assert!(page.contains("SplitGrad") && page.contains("<svg") && !page.contains("<script"));
    let splitgrad = ["--method", "splitgrad", "--metric", "pointing"];
    let [store, json] = [shared.to_str().unwrap(), "--json"];
    let listed = succeeds(["results", store, json].into_iter().chain(splitgrad));
    let counts = listed.out.matches("\"images\": 3").count();
    assert_eq!(counts, listed.out.matches("\"images\":").count(), "a mean mixes parts: {}", listed.out);
    assert!(listed.out.contains("\"validation\"") && listed.out.contains("\"test\""), "{}", listed.out);
    let shown = succeeds([Path::new("results"), &shared, Path::new("--part"), Path::new("test")]);
    assert!(
        shown.out.contains("test") && !shown.out.contains("validation") && !shown.out.contains("seed"),
        "{}",
        shown.out
    );
    let parquet = bench.path("rows.parquet");
    succeeds([Path::new("results"), &shared, Path::new("-o"), &parquet]);
    assert!(std::fs::read(parquet).unwrap().ends_with(b"PAR1"));
}

#[test]
fn a_bad_experiment_is_answered_with_the_key_and_what_is_close() {
    let bench = Bench::new();
    let file = bench.path("experiment.toml");
    let right = std::fs::read_to_string(&file).unwrap();
    std::fs::create_dir(bench.path("data/empty")).unwrap();
    let cases = [
        ("validation = \"val\"", "validaton = \"val\"", &["data.validaton", "'validation'"][..]),
        ("\"sparseness\"", "\"sparsness\"", &["sparsness", "did you mean 'sparseness'"]),
        ("method = \"splitgrad\"", "method = \"splitgrid\"", &["splitgrid", "did you mean 'splitgrad'"]),
        ("layer3.0.conv2", "layer3.0.conv9", &["method[1].layers", "layer3.0.conv9", "layer3.0.conv"]),
        (
            "[\"layer3.0.conv2\", \"layer4.2.conv2\"]",
            "\"convolutons\"",
            &["method[1].layers", "'convolutions'"],
        ),
        ("\"layer3.0.conv2\"", "\"imag\"", &["method[1].layers", "did you mean 'image'"]),
        ("method = \"splitgrad\"", "method = \"splitgrad:alpa=1\"", &["method[1].method", "'alpha'"]),
        ("validation = \"val\"", "validation = \"vall\"", &["data.validation", "'val'", "folder of images"]),
        ("validation = \"val\"\n", "", &["selection", "validation images", "data.validation"]),
        ("validation = \"val\"", "validation = \"val/masks/0\"", &["data.validation", "folder of images"]),
        (
            "folder = \"data\"",
            "folder = \"data\"\nlabel-column = \"clas\"",
            &["data.label-column", "'class'"],
        ),
        ("folder = \"data\"", "folder = \"mnist\"\nlayout = \"idx\"", &["data.folder", "expected", "mnist"]),
        ("test = \"test\"", "test = \"empty\"", &["data.test", "expected images", "empty"]),
        ("\"sparseness\"", "\"selectivity:patch=0\"", &["comparison.metrics", "'patch'", "from 1", "'0'"]),
        ("\"sparseness\"", "\"selectivity:patch=129\"", &["comparison.metrics", "1 to 128", "'129'"]),
        ("\"sparseness\"", "\"infidelity:patch=5\"", &["comparison.metrics", "patch=5", "128×128"]),
        ("\"sparseness\"", "\"random-logit:other=37\"", &["comparison.metrics", "0 to 36", "'37'"]),
        (
            "[sanity]",
            "[layers]\nmetrics = [\"sparseness\"]\nof = [{ method = \"gradcan\" }]\n[sanity]",
            &["layers.of[1].method", "'gradcam'"],
        ),
        ("[data]", "labels = \"names.txt\"\n[data]", &["model.labels", "names.txt"]),
        ("method = \"gradcam\"", "metod = \"gradcam\"", &["method[2].metod", "did you mean 'method'?"]),
        (
            "title = \"SplitGrad\"",
            "title = \"SplitGrad\"\nformulas = [\"part=pluss\"]",
            &["method[1].formulas", "part=pluss", "plus"],
        ),
        ("pets-small.onnx", "pets-smell.onnx", &["model.file", "pets-smell.onnx", "'pets-small.onnx'"]),
        ("absolute = \"both\"", "absolute = true", &["method[1].absolute", "one of no, yes, both", "true"]),
        ("folder = \"data\"", "folder = \"date\"", &["data.folder", "date", "folder of a data set"]),
        ("images = 2", "images = 2\nrandomise = 999", &["sanity.randomise", "999"]),
    ];
    for (good, bad, words) in cases {
        std::fs::write(&file, right.replacen(good, bad, 1)).unwrap();
        let store = bench.path("bad.sqlite");
        refuses([Path::new("evaluate"), &file, Path::new("--store"), &store], words);
        assert!(!store.exists(), "an empty store is left for {bad}");
    }
}

#[test]
fn more_images_than_there_are_is_remarked_with_the_key_and_both_numbers() {
    let bench = Bench::new();
    let file = bench.path("experiment.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let text = text.replace("test = \"test\"", "test = \"test\"\ntest-images = 50\nvalidation-images = 2");
    std::fs::write(&file, text.replace("\"sparseness\", ", "")).unwrap();
    let run = succeeds([Path::new("evaluate"), &file, Path::new("--store"), &bench.path("more.sqlite")]);
    let remarks: Vec<&str> = run.errors.lines().filter(|line| line.contains("asked for")).collect();
    assert_eq!(remarks.len(), 1, "{}", run.errors);
    assert!(["data.test-images", "50", "3"].iter().all(|word| remarks[0].contains(word)), "{}", remarks[0]);
}

#[test]
fn a_heading_counts_the_images_its_stage_has_looked_at() {
    let bench = Bench::new();
    let (file, store) = (bench.path("experiment.toml"), bench.path("heading.sqlite"));
    let run = succeeds([Path::new("evaluate"), &file, Path::new("--store"), &store]);
    assert!(run.out.contains("\ncomparison (3 images, test)\n"), "{}", run.out);
    assert!(run.out.contains("\nsanity check (2 of 3 images, test)\n"), "{}", run.out);
    let folder = bench.path("report");
    succeeds([Path::new("report"), &store, Path::new("-o"), &folder]);
    let table = std::fs::read_to_string(folder.join("sanity.md")).unwrap();
    assert!(table.starts_with("Similarity of maps, 2 of 3 images\n"), "{table}");
}

#[test]
fn images_with_something_wrong_are_counted_on_the_screen_and_all_named_in_the_report() {
    let bench = Bench::new();
    let test = bench.path("data/test");
    let list = test.join("labels.csv");
    let mut labels = std::fs::read_to_string(&list).unwrap();
    let broken: Vec<String> = (0..7).map(|number| format!("broken-{number}.png")).collect();
    for name in &broken {
        std::fs::write(test.join("images").join(name), "this is no picture").unwrap();
        labels.push_str(&format!("{name},1\n"));
    }
    std::fs::write(list, labels).unwrap();
    std::fs::remove_file(test.join("masks/1.png")).unwrap();
    let file = bench.path("experiment.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("test = \"test\"", "test = \"test\"\nunreadable = \"skip\"")).unwrap();
    let (store, folder) = (bench.path("troubled.sqlite"), bench.path("report"));
    let run = succeeds([Path::new("evaluate"), &file, Path::new("--store"), &store]);
    assert!(run.out.contains("3 images for test, 1 of them without a mask, 7 left out\n"), "{}", run.out);
    assert_eq!(run.out.matches("broken-").count(), 5, "{}", run.out);
    assert!(run.out.contains("and 2 more") && run.out.contains("3 images for validation\n"), "{}", run.out);
    succeeds([Path::new("report"), &store, Path::new("-o"), &folder]);
    for file in ["index.html", "images.md", "images.tex"] {
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        assert!(broken.iter().all(|name| text.contains(name)), "{file}: {text}");
        assert!(text.contains("1.png") && text.contains("has no mask"), "{file}: {text}");
    }
}

#[test]
fn images_that_repeat_another_count_once_and_masks_of_ones_count_as_white() {
    let bench = Bench::new();
    let test = bench.path("data/test");
    for folder in ["images", "masks"] {
        std::fs::copy(test.join(folder).join("0.png"), test.join(folder).join("again.png")).unwrap();
    }
    let list = test.join("labels.csv");
    let labels = std::fs::read_to_string(&list).unwrap();
    std::fs::write(&list, format!("{labels}again.png,5\ngone.png,5\n")).unwrap();
    std::fs::write(test.join("images/other.heic"), "").unwrap();
    let ones: Vec<u8> = (0..128 * 128).map(|i| u8::from((30..100).contains(&(i % 128)))).collect();
    write_png(test.join("masks/1.png"), 128, 128, Pixels::Grey(&ones)).unwrap();
    write_png(test.join("masks/2.png"), 128, 128, Pixels::Grey(&[0; 128 * 128])).unwrap();
    let (file, store) = (bench.path("experiment.toml"), bench.path("repeated.sqlite"));
    let run = succeeds([Path::new("evaluate"), &file, Path::new("--store"), &store]);
    let said = "3 images for test, 1 of them with an empty mask, 1 left out\n  again.png repeats another image (0.png)\n";
    assert!(run.out.contains(said), "{}", run.out);
    for remark in ["1 of the images in it are not there, 'gone.png' first", "'other.heic' first"] {
        assert!(run.errors.contains(remark), "{}", run.errors);
    }
    std::fs::write(&list, format!("{labels}1.png,9\n")).unwrap();
    refuses(
        [Path::new("evaluate"), &file, Path::new("--store"), &store],
        &["labels.csv", "line 5", "'1.png'", "class 9", "class 6"],
    );
}

#[test]
fn a_report_shows_no_pictures_of_what_was_not_measured() {
    let bench = Bench::new();
    let (file, store) = (bench.path("experiment.toml"), bench.path("changed.sqlite"));
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("validation = \"val\"", "validation = \"test\"")).unwrap();
    let run = succeeds([Path::new("evaluate"), &file, Path::new("--store"), &store]);
    assert!(run.errors.contains("data.validation and data.test share 3 images"), "{}", run.errors);
    refuses([Path::new("results"), &store, Path::new("--part"), Path::new("tset")], &["did you mean 'test'"]);
    let folder = bench.path("report");
    let report = [Path::new("report"), &store, Path::new("-o"), &folder];
    assert!(!succeeds(report).errors.contains("without pictures"));
    let left_out = |words: &str, more: &[&Path]| {
        let run = succeeds(report.iter().chain(more));
        assert!(run.errors.contains("without pictures") && run.errors.contains(words), "{}", run.errors);
        let page = std::fs::read_to_string(folder.join("index.html")).unwrap();
        assert!(page.contains("Pictures are left out"));
    };
    let other = crates_folder().join("monosplit/assets/digits.onnx");
    left_out("is not the network that was measured", &[Path::new("--model"), &other]);
    let images = bench.path("data/test/images");
    std::fs::copy(images.join("0.png"), images.join("1.png")).unwrap();
    left_out("image '1.png' is not the one that was measured", &[]);
}

#[test]
fn what_is_no_run_store_is_refused() {
    let bench = Bench::new();
    let file = bench.path("experiment.toml");
    refuses([Path::new("results"), &file], &["no run store"]);
    refuses(
        [Path::new("report"), &bench.path("absent"), Path::new("-o"), &bench.path("out")],
        &["no run store"],
    );
    refuses(
        [Path::new("results"), &file, Path::new("-o"), Path::new("rows.xls")],
        &[".csv, .json or .parquet"],
    );
}

/// Every method and every metric of every experiment that comes with the program is one there is.
#[test]
fn the_experiments_that_come_with_the_program_can_be_read() {
    let folder = crates_folder().join("../experiments");
    let mut read = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|ending| ending != "toml") {
            continue;
        }
        let experiment = Experiment::open(&path).unwrap_or_else(|error| panic!("{error}"));
        let said = |error| -> ! { panic!("{}: {error}", path.display()) };
        let method = |text: &str| {
            let (text, ..) = monosplit::catalogue::split_finish(text).unwrap_or_else(|error| said(error));
            monosplit::catalogue::parse(&text, &[]).map(|_| ()).unwrap_or_else(|error| said(error));
        };
        for part in &experiment.methods {
            let MapsFrom::Method(text) = &part.source else { continue };
            part.formulas.iter().for_each(|formula| {
                let joint = if text.contains(':') { ',' } else { ':' };
                method(format!("{text}{joint}{formula}").trim_end_matches([':', ',']));
            });
        }
        let fixed = experiment.ablations.iter().flat_map(|part| &part.of);
        let fixed = fixed.chain(experiment.layers.iter().flat_map(|part| &part.of));
        let fixed = fixed.chain(experiment.sanity.iter().flat_map(|part| &part.of));
        fixed.chain(experiment.timing.iter().flat_map(|part| &part.of)).for_each(|part| method(&part.method));
        let metrics = experiment.ablations.iter().flat_map(|part| &part.metrics);
        let metrics = metrics.chain(experiment.layers.iter().flat_map(|part| &part.metrics));
        let metrics = metrics.chain(experiment.comparison.iter().flatten());
        let chosen =
            experiment.selection.iter().flat_map(|part| &part.criteria).flat_map(|(_, metrics)| metrics);
        for metric in metrics.chain(chosen) {
            monosplit::eval::metrics::parse(metric).map(|_| ()).unwrap_or_else(|error| said(error));
        }
        read += 1;
    }
    assert!(read >= 20, "{read}");
}
