//! The program among others: in pipes, scripts and folders with defaults, interrupted, asked for JSON, for
//! completions and for its manual.

#![cfg(unix)]

use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::json::assert_json;
use crate::program::succeeds;
use monosplit::image::Picture;
use monosplit_testing::{ScratchFolder, crates_folder};

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_monosplit"));
    command.args(arguments).current_dir(folder).env("MONOSPLIT_CONFIG", "").stdin(Stdio::null());
    command
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, arguments).output().expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A folder with the networks and pictures that `demo` writes, where it writes them.
fn staged() -> ScratchFolder {
    let folder = ScratchFolder::new();
    std::fs::create_dir(folder.path("demo")).unwrap();
    let assets = crates_folder().join("monosplit/assets");
    for (from, to) in [
        ("pets-small.onnx", "pets-small.onnx"),
        ("chelsea.png", "chelsea.png"),
        ("digits.onnx", "digits.onnx"),
        ("digits/3.png", "3.png"),
    ] {
        std::fs::copy(assets.join(from), folder.path("demo").join(to)).unwrap();
    }
    folder
}

#[test]
fn slow_the_commands_below_the_pictures_of_the_demo_can_be_pasted() {
    let begun = Instant::now();
    let folder = ScratchFolder::new();
    let output = run(&folder.path(""), &["demo"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    // About two seconds on a quiet machine, ten where several builds run beside it.
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    let said = text(&output.stdout);
    assert!(said.contains("Bengal") && !said.contains('\u{1b}'), "{said}");
    let page = std::fs::read_to_string(folder.path("demo/index.html")).unwrap();
    let figures = page.matches("<figure").count();
    assert!(page.matches("<svg").count() >= 6 && figures >= 9, "{figures}");
    let commands: Vec<&str> =
        page.split("<code>").skip(1).filter_map(|part| part.split("</code>").next()).collect();
    // Every figure but the photograph, which no command made.
    assert_eq!(commands.len(), figures - 1);
    for command in commands {
        let line = command.replace("<span>", "").replace("</span>", "");
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[0], "monosplit", "{line}");
        let output = run(&folder.path(""), &words[1..]);
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
        if let Some(written) = words.iter().position(|word| *word == "-o").map(|at| words[at + 1]) {
            Picture::open(folder.path(written)).unwrap();
        }
    }
}

#[test]
fn the_scores_of_the_split_are_the_differences_of_its_streams() {
    let folder = staged();
    let line = ["figure", "split", "demo/pets-small.onnx", "demo/chelsea.png", "-o", "f.pdf", "--top", "37"];
    let said = text(&run(&folder.path(""), &line).stdout);
    let mut found = 0;
    for line in said.lines().filter(|line| line.contains(" = ")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |i: usize| words[i].trim_matches(['(', ')']).parse::<f64>().unwrap();
        assert_eq!(words[4].starts_with('('), number(4) < 0.0, "{line}");
        assert!((number(0) - (number(2) - number(4))).abs() < 2e-4, "{line}");
        found += 1;
    }
    assert_eq!(found, 37, "{said}");
    assert!(said.contains("streams kept small"), "{said}");
    assert!(std::fs::read(folder.path("f.pdf")).unwrap().starts_with(b"%PDF-"));
}

#[test]
fn slow_the_demo_takes_nothing_from_anybody() {
    let folder = ScratchFolder::new();
    let here = folder.path("");
    folder.write("demo", "notes");
    let refused = run(&here, &["demo"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("demo is a file"), "{}", text(&refused.stderr));
    std::fs::create_dir(folder.path("own")).unwrap();
    folder.write("own/index.html", "<html><head><title>monosplit</title></head></html>");
    let refused = run(&here, &["demo", "-o", "own"]);
    assert_eq!(refused.status.code(), Some(2));
    let said = text(&refused.stderr);
    assert!(said.contains("own/index.html was not written by monosplit"), "{said}");
    assert_eq!(std::fs::read_dir(folder.path("own")).unwrap().count(), 1);
    for _ in 0..2 {
        assert!(run(&here, &["demo", "-o", "page"]).status.success());
    }
}

#[test]
fn drawings_fit_into_the_columns_there_are() {
    let folder = ScratchFolder::new();
    let drawn = command(&folder.path(""), &["demo"]).env("COLUMNS", "40").output().unwrap();
    let said = text(&drawn.stdout);
    let drawings = said.split("Where it sees that:").nth(1).unwrap().split("f = g").next().unwrap();
    assert!(drawings.lines().all(|line| line.chars().count() < 40), "{drawings}");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let mut child = command(Path::new("."), &["methods"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    drop(child.stdout.take());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(child.wait().unwrap().success(), "{said}");
    assert!(!said.contains("could not be written"), "{said}");
}

#[test]
fn slow_quiet_is_quiet_and_json_is_json() {
    let folder = staged();
    let (net, cat) = ("demo/pets-small.onnx", "demo/chelsea.png");
    let here = folder.path("");
    let lines: [&[&str]; 14] = [
        &["run", net, cat],
        &["explain", net, cat],
        &["inspect", net],
        &["verify", net, cat, "--samples", "1"],
        &["compare", net, cat, "--methods", "splitcam", "-o", "c.png"],
        &["figure", "alpha", net, cat, "--alphas", "0,0.5"],
        &["figure", "layers", net, cat, "--contours", "2"],
        &["figure", "polytope", net, cat, cat, cat],
        &["compile", net, "-o", "compiled.onnx"],
        &["split", "demo/digits.onnx", "--out-g", "g.onnx", "--out-h", "h.onnx"],
        &["counterfactual", "demo/digits.onnx", "demo/3.png", "-o", "c.svg"],
        &["methods"],
        &["methods", "lrp"],
        &["ops"],
    ];
    for line in lines {
        let hinted = run(&here, line);
        assert!(hinted.status.success(), "{line:?}: {}", text(&hinted.stderr));
        assert_eq!(text(&hinted.stderr).matches("monosplit: next: `monosplit ").count(), 1, "{line:?}");
        let quiet = run(&here, &[line, &["--quiet"]].concat());
        assert!(quiet.status.success() && quiet.stderr.is_empty(), "{line:?}: {}", text(&quiet.stderr));
        assert!(!quiet.stdout.is_empty());
        let json = run(&here, &[line, &["--json"]].concat());
        assert!(!text(&json.stderr).contains("next:"), "{}", text(&json.stderr));
        assert_json(&text(&json.stdout));
    }
}

#[test]
fn completions_and_manual_know_every_command() {
    let help = succeeds(["--help"]).out;
    let listed = help.split("Commands:").nth(1).unwrap().split("Options:").next().unwrap();
    let names: Vec<&str> = listed
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(names.len() > 15, "{names:?}");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = succeeds(["completions", shell]).out;
        assert!(names.iter().all(|name| script.contains(name)), "{shell}");
        assert!(shell == "elvish" || shell == "powershell" || script.contains("smoothgrad"), "{shell}");
        assert!(script.contains("alphas"), "{shell} does not know the options of `figure alpha`");
    }
    let manual = succeeds(["man"]).out;
    assert!(names.iter().all(|name| manual.contains(name)));
    assert!(succeeds(["help"]).out.contains("Commands:"));
    assert_eq!(succeeds(["help", "figure"]).out, succeeds(["figure", "--help"]).out);
    assert!(succeeds(["figure"]).out.contains("polytope"));
    assert!(succeeds(["man", "figure", "alpha"]).out.contains(".SH OPTIONS"));
    crate::program::refuses(["man", "explian"], &["no command 'explian'", "did you mean 'explain'?"]);
    let folder = ScratchFolder::new();
    folder.write("monosplit.bash", succeeds(["completions", "bash"]).out);
    if let Ok(checked) = Command::new("bash").arg("-n").arg(folder.path("monosplit.bash")).status() {
        assert!(checked.success());
    }
}

#[test]
fn defaults_come_from_the_folder_and_from_the_user_and_yield_to_the_command_line() {
    let folder = staged();
    let here = folder.path("");
    std::fs::create_dir_all(folder.path("user/monosplit")).unwrap();
    folder.write("user/monosplit/config.toml", "alpha = 0.1\n[explain]\nmethod = 'splitgrad'\n");
    folder.write("monosplit.toml", "[explain]\nalpha = 0.2\nlayer = ['layer3.2.conv2']\n");
    let explain = |more: &[&str]| {
        let line = [&["explain", "demo/pets-small.onnx", "demo/chelsea.png", "--json"], more].concat();
        let mut command = command(&here, &line);
        command.env_remove("MONOSPLIT_CONFIG").env("XDG_CONFIG_HOME", folder.path("user"));
        let output = command.output().unwrap();
        (text(&output.stdout), text(&output.stderr), output.status.code())
    };
    let (found, said, _) = explain(&[]);
    assert!(found.contains("\"method\": \"splitgrad\"") && found.contains("\"alpha\": 0.2"), "{found}{said}");
    assert!(found.contains("layer3.2.conv2"), "{found}");
    // What the folder changes is said, what the user's own file does is not.
    let words = "monosplit.toml in this folder sets layer = layer3.2.conv2, alpha = 0.2\n";
    assert!(said.contains(words) && !said.contains("splitgrad"), "{said}");
    let (found, said, _) = explain(&["--alpha", "0.45", "--layer", "layer4.2.conv2"]);
    assert!(!said.contains("in this folder"), "{said}");
    assert!(found.contains("\"alpha\": 0.45") && !found.contains("layer3.2.conv2"), "{found}");
    folder.write("monosplit.toml", "[explain]\nalhpa = 0.2\n");
    let (_, said, code) = explain(&[]);
    assert_eq!(code, Some(2));
    assert!(said.contains("monosplit.toml, line 2") && said.contains("did you mean 'alpha'?"), "{said}");
    for (text, place, words) in [
        ("[explain]\nprecision = 'f99'\n", "monosplit.toml, line 2", "precision: invalid value 'f99'"),
        ("\nalpha = 'much'\n", "monosplit.toml, line 2", "alpha = much stands in"),
        ("[explain]\nstream = 'q'\n", "monosplit.toml, line 2", "option 'stream' is one of g, h"),
        ("no-color = 'yes'\n", "monosplit.toml, line 1", "no-color: expected true or false"),
        ("[explain]\nstream = ['g', 'h']\n", "monosplit.toml, line 2", "stream: expected one value"),
        ("alpha = {a = 1}\n", "monosplit.toml, line 1", "alpha: expected words, a number"),
        ("[figure]\ncontours = 2\n", "monosplit.toml, line 2", "[figure.layers]"),
    ] {
        folder.write("monosplit.toml", text);
        let (_, said, code) = explain(&[]);
        assert!(code == Some(2) && said.contains(place) && said.contains(words), "{text}: {said}");
        let errors = said.lines().filter(|line| !line.contains("monosplit.toml in this folder sets"));
        assert_eq!(errors.count(), 1, "{said}");
    }
    // What was typed is not blamed on a file.
    folder.write("monosplit.toml", "alpha = 0.2\n");
    let (_, said, _) = explain(&["--alpha", "much"]);
    assert!(said.contains("'much'") && !said.contains("monosplit.toml"), "{said}");
}

/// A downloaded folder of a network cannot have files of its user overwritten.
#[test]
fn the_folder_cannot_choose_where_anything_is_written() {
    let folder = staged();
    let here = folder.path("");
    let precious = folder.write("precious.txt", "mine");
    let (network, picture) = ("demo/pets-small.onnx", "demo/chelsea.png");
    let target = precious.display();
    let lines: [(&str, &str, &[&str]); 6] = [
        ("run", "raw", &["run", network, picture]),
        ("explain", "out", &["explain", network, picture]),
        ("explain", "raw", &["explain", network, picture]),
        ("demo", "out", &["demo"]),
        ("compile", "out", &["compile", network]),
        ("split", "out-g", &["split", network, "--out-h", "h.onnx"]),
    ];
    for (name, option, line) in lines {
        for table in [format!("[{name}]\n{option} = \"{target}\""), format!("{option} = \"{target}\"")] {
            folder.write("monosplit.toml", &table);
            let output = command(&here, line).env_remove("MONOSPLIT_CONFIG").output().unwrap();
            let said = text(&output.stderr);
            assert!(output.status.code() == Some(2) && said.lines().count() == 1, "{said}");
            assert!(said.contains(option) && said.contains("cannot say which files"), "{said}");
            assert_eq!(std::fs::read_to_string(&precious).unwrap(), "mine");
        }
    }
    let texts = [
        "target = \"region:mask.png\"",
        "target = \"head:head.onnx\"",
        "method = \"deeplift:baseline=b.npy\"",
        "method = \"deeplift:baseline=B.NPY\"",
    ];
    let own = folder.write("own.toml", "[run]\nraw = \"scores.npy\"\n");
    let texts = texts.map(|line| format!("[explain]\n{line}"));
    for text_of in texts.into_iter().chain([format!("base = {:?}", own.display().to_string())]) {
        folder.write("monosplit.toml", &text_of);
        let output =
            command(&here, &["explain", network, picture]).env_remove("MONOSPLIT_CONFIG").output().unwrap();
        assert!(
            text(&output.stderr).contains("cannot say which files"),
            "{text_of}: {}",
            text(&output.stderr)
        );
    }
    // The same line in the user's own file is theirs.
    std::fs::remove_file(folder.path("monosplit.toml")).unwrap();
    let output = command(&here, &["run", network, picture]).env("MONOSPLIT_CONFIG", own).output().unwrap();
    assert!(output.status.success() && folder.path("scores.npy").is_file(), "{}", text(&output.stderr));
}

#[test]
fn a_mistake_in_the_defaults_keeps_nobody_from_the_help() {
    let folder = ScratchFolder::new();
    let here = folder.path("");
    let there = |line: &[&str]| command(&here, line).env_remove("MONOSPLIT_CONFIG").output().unwrap();
    folder.write("monosplit.toml", "alpa = 1\n");
    let lines: [&[&str]; 8] = [
        &["--help"],
        &["--version"],
        &["help", "figure"],
        &["figure"],
        &["explain", "--help"],
        &["completions", "bash"],
        &["man"],
        &["ops"],
    ];
    for line in lines {
        let output = there(line);
        assert!(output.status.success() && !output.stdout.is_empty(), "{line:?}: {}", text(&output.stderr));
    }
    assert_eq!(there(&["inspect", "a.onnx"]).status.code(), Some(2));
    folder.write("monosplit.toml", "json = true\n");
    let output = there(&["ops"]);
    assert_json(&text(&output.stdout));
    assert_eq!(text(&output.stderr), "monosplit: monosplit.toml in this folder sets json = true\n");
    // A file cannot silence what is said of it; a person can.
    folder.write("monosplit.toml", "json = true\nquiet = true\n");
    assert!(text(&there(&["ops"]).stderr).contains("json = true"));
    assert!(there(&["ops", "--quiet"]).stderr.is_empty());
    std::fs::remove_file(folder.path("monosplit.toml")).unwrap();
    std::fs::create_dir(folder.path("monosplit.toml")).unwrap();
    let said = text(&there(&["inspect", "a.onnx"]).stderr);
    assert!(said.contains("monosplit.toml: this is a folder"), "{said}");
}

/// What is named to be read stays as it is, whatever else is asked.
#[test]
fn nothing_is_written_over_what_is_read() {
    let folder = staged();
    let (net, cat) = ("demo/pets-small.onnx", "demo/chelsea.png");
    let here = folder.path("");
    let before = std::fs::read(folder.path("demo/chelsea.png")).unwrap();
    let lines: [&[&str]; 5] = [
        &["compare", net, cat, "--methods", "splitcam", "-o", cat],
        &["compare", net, cat, "--methods", "splitcam", "-o", "demo/chelsea"],
        &["figure", "alpha", net, cat, "--alphas", "0,0.5", "-o", cat],
        &["run", net, cat, "--raw", cat],
        &["compile", net, "-o", net],
    ];
    for line in lines {
        let refused = run(&here, line);
        assert_eq!(refused.status.code(), Some(2), "{line:?}");
        assert!(text(&refused.stderr).contains("would be replaced"), "{}", text(&refused.stderr));
    }
    assert_eq!(std::fs::read(folder.path("demo/chelsea.png")).unwrap(), before);
}

/// The next command reads network and picture in the same way, and can be pasted.
#[test]
fn the_next_step_says_again_how_things_are_read() {
    let folder = staged();
    let net = "demo/pets-small.onnx";
    let here = folder.path("");
    std::fs::create_dir_all(folder.path("my pics")).unwrap();
    std::fs::copy(folder.path("demo/chelsea.png"), folder.path("my pics/a cat.png")).unwrap();
    let said =
        run(&here, &["run", net, "my pics/a cat.png", "--fit=squash", "--top", "1", "--filter", "bicubic"]);
    let expected = format!("explain {net} 'my pics/a cat.png' --fit squash --filter bicubic`");
    assert!(text(&said.stderr).contains(&expected), "{}", text(&said.stderr));
}

/// Whenever Ctrl-C is pressed, a file that is there is whole, and there are no others.
#[test]
fn slow_an_interrupted_run_leaves_no_half_of_a_file() {
    let folder = staged();
    let here = folder.path("");
    std::fs::create_dir_all(folder.path("photos")).unwrap();
    (0..40).for_each(|i| {
        std::fs::copy(folder.path("demo/chelsea.png"), folder.path(&format!("photos/{i}.png"))).unwrap();
    });
    let maps = || -> Vec<std::path::PathBuf> {
        let listed = std::fs::read_dir(folder.path("explained"));
        listed.map(|files| files.map(|file| file.unwrap().path()).collect()).unwrap_or_default()
    };
    let line = ["explain", "demo/pets-small.onnx", "photos", "--raw", "maps.npy", "--batch", "1"];
    for round in 0..6u64 {
        let already = maps().len();
        let mut child = command(&here, &line).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let begun = Instant::now();
        while maps().len() <= already && round == 0 && begun.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(2));
        }
        std::thread::sleep(Duration::from_millis(40 * round));
        // On a busy machine the run may be over before it can be interrupted; then there is nothing to leave behind.
        let _ = Command::new("kill").args(["-INT", &child.id().to_string()]).stderr(Stdio::null()).status();
        child.wait().unwrap();
        for path in maps() {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            assert!(Picture::open(&path).is_ok(), "{name} is not whole");
        }
        let numbers = std::fs::read(folder.path("maps.npy"));
        assert!(numbers.is_err() || monosplit::graph::npy::read(&numbers.unwrap()).is_ok());
        let _ = std::fs::remove_file(folder.path("maps.npy"));
    }
    assert!(!maps().is_empty());
    assert!(run(&here, &line).status.success());
    assert_eq!(maps().len(), 40);
}
