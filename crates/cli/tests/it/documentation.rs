//! What README and docs say, done: every command in them is run, every option they name exists, every link leads
//! somewhere. Networks and pictures of the reader are stood in for by those that are built in.

#![cfg(unix)]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use monosplit::Tensor;
use monosplit::graph::weights::Weights;
use monosplit::graph::{arch, npy};
use monosplit::image::{Filter, Picture, Pixels, write_png};
use monosplit_testing::{ScratchFolder, crates_folder};

/// What a command may do here instead of coming to a good end.
enum Instead {
    /// Say this: it needs something that need not be there.
    Says(&'static str),
    /// Go on for hours.
    GoesOn,
}

/// Commands of which no good end is expected, by a part of them.
const EXCEPTIONS: [(&str, Instead); 6] = [
    ("--in-browser", Instead::Says("scripts/build_web.sh")),
    ("monosplit serve", Instead::GoesOn),
    ("--engine cuda", Instead::Says("'cuda'")),
    ("--engine onnxruntime", Instead::Says("MONOSPLIT_ONNXRUNTIME")),
    ("--input table=table.npy", Instead::Says("two-towers.onnx")),
    ("train mnist/ --table --runs runs/  ", Instead::GoesOn),
];

fn root() -> PathBuf {
    crates_folder().join("..").canonicalize().unwrap()
}

/// README and the pages of the book, with their text.
fn pages() -> Vec<(PathBuf, String)> {
    let listed = std::fs::read_dir(root().join("docs/src")).unwrap();
    let mut paths: Vec<PathBuf> = listed.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "md"));
    paths.sort();
    paths.insert(0, root().join("README.md"));
    paths.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
}

/// The fenced blocks of a page: their language and their lines, a line that goes on joined with the next.
fn blocks(text: &str) -> Vec<(String, Vec<String>)> {
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    let mut open = false;
    for line in text.lines() {
        match (line.trim_start().strip_prefix("```"), open) {
            (Some(language), false) => found.push((language.trim().to_owned(), Vec::new())),
            (None, true) => {
                let lines = &mut found.last_mut().unwrap().1;
                match lines.last_mut().filter(|before| before.ends_with('\\')) {
                    Some(before) => {
                        before.pop();
                        before.push_str(line.trim());
                    }
                    None => lines.push(line.to_owned()),
                }
                continue;
            }
            (Some(_), true) => {}
            (None, false) => continue,
        }
        open = !open;
    }
    found
}

/// The commands of this program in a page, each with the lines that are said to follow it. Where a block shows what is
/// printed, commands follow a `$`.
fn commands(text: &str) -> Vec<(String, Vec<String>)> {
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    for (language, lines) in blocks(text) {
        if !["sh", "text", "console"].contains(&language.as_str()) {
            continue;
        }
        let prompted = lines.iter().any(|line| line.starts_with("$ "));
        let first = found.len();
        for line in lines {
            let command = if prompted { line.strip_prefix("$ ") } else { Some(line.trim()) };
            match command.map(|command| command.trim_start_matches("NO_COLOR=1 ")) {
                Some(command) if command.starts_with("monosplit ") => {
                    found.push((command.to_owned(), Vec::new()));
                }
                Some(_) => {}
                None if found.len() > first => found.last_mut().unwrap().1.push(line),
                None => {}
            }
        }
    }
    found
}

/// Whether a line that a page shows is one that was printed: the same words, and numbers that differ no more than those
/// of two machines. Times may be any.
fn is_printed(shown: &str, printed: &str) -> bool {
    let words = |line: &str| -> Vec<String> {
        let mut words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        for i in 1..words.len() {
            if ["ms", "s", "s)."].contains(&words[i].as_str()) {
                words[i - 1] = "time".into();
            }
        }
        words
    };
    let alike = |a: &String, b: &String| {
        let number = |word: &str| word.trim_end_matches([',', '%']).parse::<f64>().ok();
        match (number(a), number(b)) {
            (Some(a), Some(b)) => (a - b).abs() <= 0.01 * a.abs().max(b.abs()) + 1e-9,
            _ => a == b,
        }
    };
    let (shown, printed) = (words(shown), words(printed));
    shown.len() == printed.len() && shown.iter().zip(&printed).all(|(a, b)| alike(a, b))
}

/// Whether what a command prints can be compared: nothing stands in for the reader's files, and no time is told.
fn is_exact(command: &str) -> bool {
    let own = ["pets-small.onnx", "gate.txt", "monosplit methods", "monosplit ops", "monosplit demo"];
    own.iter().any(|part| command.contains(part))
        && !["--profile", "evaluate"].iter().any(|part| command.contains(part))
}

/// Whether a network is verified that stands in for another: what its samples show, `pets-small.onnx` has shown.
fn is_repeated(command: &str) -> bool {
    command.starts_with("monosplit verify ") && !is_exact(command) && !command.contains("--samples")
}

/// A folder with everything the pages name.
fn stage() -> ScratchFolder {
    let folder = ScratchFolder::new();
    let assets = crates_folder().join("monosplit/assets");
    let copy = |from: &Path, to: &str| {
        std::fs::copy(from, folder.path(to)).unwrap();
    };
    for name in ["photos", "experiments", "mnist", "demo", "runs", "dragonflies"] {
        std::fs::create_dir_all(folder.path(name)).unwrap();
    }
    for name in ["pets-small", "resnet18", "resnet18-dynamo", "keras", "pets", "vit_tiny_patch16_224"] {
        copy(&assets.join("pets-small.onnx"), &format!("{name}.onnx"));
    }
    copy(&assets.join("pets-classes.txt"), "pets-classes.txt");
    let cats = ["chelsea.png", "cat.jpg", "dog.jpg", "photos/1.jpg", "photos/2.jpg", "dragonflies/1.jpg"];
    cats.iter().for_each(|name| copy(&assets.join("chelsea.png"), name));
    ["pets-small.onnx", "chelsea.png"]
        .iter()
        .for_each(|name| copy(&assets.join(name), &format!("demo/{name}")));
    copy(&assets.join("digits.onnx"), "model.onnx");
    copy(&assets.join("digits/3.png"), "three.png");
    copy(&crate::program::model("softplus_mish_silu/torchscript-18.onnx"), "gelu.onnx");
    copy(&crate::program::model("transformer/torchscript-17.onnx"), "transformer.onnx");
    // The networks of the page on inputs.
    let inputs = crates_folder().join("monosplit/tests/fixtures/inputs");
    for (from, to) in [
        ("text.onnx", "text.onnx"),
        ("text.onnx", "tuned.onnx"),
        ("text.ids.npy", "ids.npy"),
        ("text.mask.npy", "mask.npy"),
        ("pair.onnx", "pair.onnx"),
        ("series.onnx", "series.onnx"),
        ("series.x.npy", "series.npy"),
    ] {
        copy(&inputs.join(from), to);
    }
    folder.write("vocab.txt", "the\nfilm\nwas\nnot\ngreat\n");
    folder.write("facts.csv", "age,height,weight,pulse\n0.5,-1,2,0\n");
    let values = (0..3 * 128 * 128).map(|i| (i % 17) as f32 / 17.0).collect::<Vec<_>>();
    folder.write("x.npy", npy::write(&Tensor::new(vec![1, 3, 128, 128], values).unwrap()));
    folder.write("short.toml", "[train]\nepochs = 1\n");
    folder.write("resnet18.pth", weights());
    digits(&folder.path("mnist"));
    animals(&folder.path("pets"));
    for name in ["experiments/pets-small-quick.toml", "experiment.toml"] {
        let up = if name.contains('/') { "../" } else { "" };
        folder.write(name, EXPERIMENT.replace("UP", up));
    }
    for text in pages().iter().flat_map(|(_, text)| blocks(text)).map(|(_, lines)| lines) {
        // The page about Maxout networks shows the file its commands read.
        if text.first().is_some_and(|line| line.starts_with("input ") || line.starts_with("# x where")) {
            folder.write("gate.txt", text.join("\n"));
        }
    }
    // The store that a page speaks of without saying how it came to be.
    let line = "monosplit evaluate experiment.toml --store run.sqlite --quiet";
    assert!(shell(&folder.path(""), line).status().unwrap().success());
    folder
}

const EXPERIMENT: &str = r#"
name = "stand-in"
[model]
file = "UPpets-small.onnx"
[data]
folder = "UPpets"
test = "test"
[[method]]
method = "splitcam"
[comparison]
metrics = ["pointing-game"]
"#;

/// Weights that fit ResNet18, as a safetensors file.
fn weights() -> Vec<u8> {
    let tensor = |(name, shape): (String, Vec<usize>)| {
        let count: usize = shape.iter().product();
        let value = |i: usize| if name.ends_with("running_var") { 1.0 } else { (i % 7) as f32 * 0.01 - 0.03 };
        let values: Vec<f32> = (0..count).map(value).collect();
        (name, Tensor::new(shape, values).unwrap())
    };
    let weights: Weights = arch::parameters("resnet18", 1000).unwrap().into_iter().map(tensor).collect();
    weights.to_safetensors().unwrap()
}

/// Idx files of the size of MNIST's pictures.
fn digits(folder: &Path) {
    let header = |axes: &[u32]| {
        let axes = axes.iter().flat_map(|n| n.to_be_bytes());
        [0, 0, 8, if axes.clone().count() > 4 { 3 } else { 1 }].into_iter().chain(axes).collect::<Vec<u8>>()
    };
    for (name, count) in [("train", 100u32), ("t10k", 30)] {
        let pixels: Vec<u8> = (0..count * 784).map(|i| (i.wrapping_mul(2654435761) >> 24) as u8).collect();
        let labels: Vec<u8> = (0..count).map(|i| (i % 10) as u8).collect();
        let images = [header(&[count, 28, 28]), pixels].concat();
        std::fs::write(folder.join(format!("{name}-images-idx3-ubyte")), images).unwrap();
        let labels = [header(&[count]), labels].concat();
        std::fs::write(folder.join(format!("{name}-labels-idx1-ubyte")), labels).unwrap();
    }
}

/// A data set of one image with its mask.
fn animals(folder: &Path) {
    let part = folder.join("test");
    ["images", "masks"].iter().for_each(|name| std::fs::create_dir_all(part.join(name)).unwrap());
    let picture =
        Picture::open(crate::program::chelsea()).unwrap().resize(128, 128, Filter::Bilinear).unwrap();
    write_png(part.join("images/1.png"), 128, 128, (&picture).into()).unwrap();
    write_png(part.join("masks/1.png"), 128, 128, Pixels::Grey(&[255; 128 * 128])).unwrap();
    std::fs::write(part.join("labels.csv"), "file,class\n1.png,5\n").unwrap();
}

/// A shell in which the program is found, and no configuration of whoever runs the tests.
fn shell(folder: &Path, command: &str) -> Command {
    let binary = Path::new(env!("CARGO_BIN_EXE_monosplit")).parent().unwrap().to_owned();
    let others = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(binary).chain(std::env::split_paths(&others))).unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).current_dir(folder).env("PATH", path);
    // Whether a command works does not depend on how long it trains.
    let short = folder.join("short.toml");
    let config = if short.exists() { short.into_os_string() } else { Default::default() };
    shell.env("MONOSPLIT_CONFIG", config).stdin(Stdio::null());
    shell
}

/// Whether a command is still at work after a while, or has ended well.
fn is_at_work(folder: &Path, command: &str) -> bool {
    let mut shell = shell(folder, &format!("exec {command}"));
    let mut child = shell.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("there is a shell");
    std::thread::sleep(std::time::Duration::from_secs(2));
    let ended = child.try_wait().unwrap();
    let _ = child.kill();
    let _ = child.wait();
    ended.is_none_or(|status| status.success())
}

#[test]
fn slow_every_command_in_readme_and_docs_runs() {
    let folder = stage();
    let (mut run, mut failed) = (0, Vec::new());
    // What several pages show is run once.
    let mut outputs: HashMap<String, Output> = HashMap::new();
    let begun = std::time::Instant::now();
    for (page, text) in pages() {
        for (command, shown) in commands(&text) {
            let instead =
                EXCEPTIONS.iter().find(|(part, _)| command.contains(part)).map(|(_, instead)| instead);
            let started = std::time::Instant::now();
            run += 1;
            if let Some(Instead::GoesOn) = instead {
                assert!(is_at_work(&folder.path(""), &command), "{command} did not go on");
                continue;
            }
            let uncommented = command.split("  #").next().unwrap_or(&command).trim_end().to_owned();
            let come_to_an_end = |uncommented: &String| {
                let line =
                    if is_repeated(uncommented) { &format!("{uncommented} --samples 1") } else { &command };
                shell(&folder.path(""), line).output().expect("there is a shell")
            };
            let output = outputs.entry(uncommented).or_insert_with_key(come_to_an_end);
            if let Some(Instead::Says(words)) = instead {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                assert!(output.status.success() || said.contains(words), "{command}: {said}");
                continue;
            }
            println!("{:.1} s  {command}", started.elapsed().as_secs_f64());
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                failed.push(format!("{}: {command}\n  {said}", page.display()));
            }
            let printed =
                [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            let printed = printed.concat();
            let untrue = |line: &&String| {
                let told = line.trim().is_empty() || line.contains('…') || line.contains("\"milliseconds\"");
                is_exact(&command) && !told && !printed.lines().any(|found| is_printed(line, found))
            };
            if let Some(line) = shown.iter().find(untrue) {
                failed.push(format!("{}: {command}\n  does not print: {line}", page.display()));
            }
        }
    }
    println!("{run} commands in {:.0} s", begun.elapsed().as_secs_f64());
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(run > 60, "only {run} commands were found");
    let commands: Vec<String> =
        pages().iter().flat_map(|(_, text)| commands(text)).map(|(command, _)| command).collect();
    for (part, _) in &EXCEPTIONS {
        assert!(commands.iter().any(|command| command.contains(part)), "no command has '{part}'");
    }
}

#[test]
fn every_command_and_option_named_in_a_sentence_exists() {
    let here = root();
    let mut helps: HashMap<String, String> = HashMap::new();
    let mut help = |command: &str| -> String {
        let ask = || {
            let output = shell(&here, &format!("monosplit {command} --help")).output().unwrap();
            if output.status.success() {
                String::from_utf8_lossy(&output.stdout).into_owned()
            } else {
                String::new()
            }
        };
        helps.entry(command.to_owned()).or_insert_with(ask).clone()
    };
    let mut checked = 0;
    for (page, text) in pages() {
        let outside: Vec<&str> = text.split("```").step_by(2).collect();
        for span in outside.iter().flat_map(|part| part.split('`').skip(1).step_by(2)) {
            let mut words = span.split_whitespace();
            if words.next() != Some("monosplit") {
                continue;
            }
            let Some(command) = words.next().filter(|word| word.chars().all(|c| c.is_ascii_lowercase()))
            else {
                continue;
            };
            let known = help(command);
            assert!(!known.is_empty(), "{}: there is no command `{span}`", page.display());
            for option in words.filter(|word| word.starts_with("--")) {
                assert!(known.contains(option), "{}: `{span}`: no {option}", page.display());
            }
            checked += 1;
        }
    }
    assert!(checked > 30, "only {checked} were found");
}

/// The name mdBook and GitHub give a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn every_page_is_listed_and_every_link_and_picture_is_there() {
    let pages = pages();
    let summary = std::fs::read_to_string(root().join("docs/src/SUMMARY.md")).unwrap();
    let anchors = |text: &str| -> Vec<String> {
        text.lines()
            .filter(|line| line.starts_with('#'))
            .map(|line| anchor(line.trim_start_matches('#')))
            .collect()
    };
    let mut links = 0;
    for (path, text) in &pages {
        let name = path.file_name().unwrap().to_string_lossy();
        let listed = ["README.md", "SUMMARY.md"].contains(&&*name) || summary.contains(&format!("({name})"));
        assert!(listed, "{name} is not in SUMMARY.md");
        let outside: String = text.split("```").step_by(2).collect();
        for target in outside.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if target.contains("://") || target.contains(' ') {
                continue;
            }
            links += 1;
            let (file, part) = target.split_once('#').unwrap_or((target, ""));
            let file = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            assert!(file.exists(), "{name}: there is no {target}");
            if !part.is_empty() && file.extension().is_some_and(|ending| ending == "md") {
                let there = std::fs::read_to_string(&file).unwrap();
                assert!(anchors(&there).iter().any(|known| known == part), "{name}: there is no {target}");
            }
        }
    }
    assert!(links > 40, "only {links} links were found");
}

#[test]
fn every_source_file_named_on_a_page_is_there() {
    let mut pages = pages();
    let contributing = root().join("CONTRIBUTING.md");
    pages.push((contributing.clone(), std::fs::read_to_string(contributing).unwrap()));
    let mut named = 0;
    for (path, text) in &pages {
        for file in
            text.split('`').filter(|piece| piece.starts_with("crates/") && !piece.contains(['*', '<', ' ']))
        {
            named += 1;
            assert!(root().join(file).exists(), "{}: there is no {file}", path.display());
        }
    }
    assert!(named > 30, "only {named} files were found");
}

/// The crates a manifest depends on in every build, from outside.
fn dependencies(manifest: &str) -> Vec<String> {
    let tables = manifest.split("\n[").filter(|table| {
        let head = table.lines().next().unwrap_or_default();
        head == "dependencies]" || (head.starts_with("target.") && head.ends_with(".dependencies]"))
    });
    let named =
        tables.flat_map(|table| table.lines().skip(1)).filter(|line| !line.contains("optional = true"));
    let names = named.filter_map(|line| line.split(['=', '.', ' ']).next()).map(str::to_owned);
    names
        .filter(|name| {
            !name.is_empty() && !name.starts_with(['#', ']', '}']) && !name.starts_with("monosplit")
        })
        .collect()
}

/// What the explorer depends on with the feature that the program turns on.
fn dependencies_of_the_server() -> Vec<String> {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    assert!(
        read("crates/cli/Cargo.toml")
            .contains(r#"monosplit-explorer = { workspace = true, features = ["server"] }"#)
    );
    let manifest = read("crates/explorer/Cargo.toml");
    let feature = manifest.lines().find(|line| line.starts_with("server = [")).unwrap();
    feature.split("\"dep:").skip(1).map(|name| name.split('"').next().unwrap().to_owned()).collect()
}

/// What stands between backquotes in a cell.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

#[test]
fn issue_35_every_limit_of_the_security_policy_has_its_name_in_the_code() {
    let text = std::fs::read_to_string(root().join("SECURITY.md")).unwrap();
    let mut checked = 0;
    for row in text.lines().filter(|line| line.starts_with('|')).skip(2) {
        let cells: Vec<&str> = row.split('|').collect();
        let sources: String =
            quoted(cells[4]).iter().map(|path| std::fs::read_to_string(root().join(path)).unwrap()).collect();
        for name in quoted(cells[3]) {
            let defined = [format!("const {name}: "), format!("struct {name} ")];
            assert!(defined.iter().any(|words| sources.contains(words)), "{name}: {row}");
            checked += 1;
        }
    }
    assert!(checked > 40, "{checked}");
}

#[test]
fn every_dependency_is_justified_and_every_justified_one_is_there() {
    let text = std::fs::read_to_string(root().join("docs/src/dependencies.md")).unwrap();
    let direct = text.split("## Direct").nth(1).unwrap().split("\n## ").next().unwrap();
    let mut used: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(root().join("crates")).unwrap() {
        let manifest = std::fs::read_to_string(entry.unwrap().path().join("Cargo.toml")).unwrap();
        // Only tests depend on a crate that is not published.
        if !manifest.contains("publish = false") {
            used.extend(dependencies(&manifest));
        }
    }
    used.extend(dependencies_of_the_server());
    used.sort();
    used.dedup();
    for name in &used {
        assert!(
            direct.contains(&format!("\n| `{name}` | ")),
            "{name} is not in the table of direct dependencies"
        );
    }
    assert_eq!(direct.matches("\n| `").count(), used.len(), "{used:?}");
    assert!(text.contains(&format!("has {} direct dependencies", used.len())), "{}", used.len());
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let told = text.lines().filter(|line| line.starts_with("| `")).filter_map(|line| line.split('|').nth(1));
    for name in told.flat_map(|cell| cell.split('`').skip(1).step_by(2)) {
        assert!(lock.contains(&format!("name = \"{name}\"")), "{name} is not in Cargo.lock");
    }
}

#[test]
fn the_ratios_of_the_readme_are_those_of_the_table_of_speed() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let speed = std::fs::read_to_string(root().join("docs/src/speed.md")).unwrap();
    let table = readme.split("## Beside the peers").nth(1).unwrap().split("\n## ").next().unwrap();
    let ratios: Vec<&str> = table
        .lines()
        .filter_map(|line| line.split('|').nth(2).map(str::trim).filter(|cell| cell.parse::<f64>().is_ok()))
        .collect();
    assert!(ratios.len() > 5, "{ratios:?}");
    for ratio in ratios {
        // The column of minima is the third.
        let known = speed.lines().any(|line| line.split('|').nth(3).is_some_and(|cell| cell.trim() == ratio));
        assert!(known, "{ratio} is not among the ratios of minima in speed.md");
    }
}
