//! Pictures and folders of pictures as people have them: formats, photographs of phones, one bad file among many, standard
//! input, pipes.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use monosplit_testing::{ScratchFolder, crates_folder};

use crate::program::{Outcome, chelsea, monosplit, op_case, refuses, succeeds};

fn network() -> PathBuf {
    crates_folder().join("monosplit/assets/pets-small.onnx")
}

fn fixture(name: &str) -> PathBuf {
    crates_folder().join("image/tests/fixtures").join(name)
}

/// A command line: a command, the network, then words.
fn line<S: AsRef<OsStr>>(command: &[&str], words: impl IntoIterator<Item = S>) -> Vec<OsString> {
    let mut line: Vec<OsString> = command.iter().map(OsString::from).collect();
    line.push(network().into());
    line.extend(words.into_iter().map(|word| word.as_ref().to_owned()));
    line
}

/// A folder with two good pictures, a damaged one, a text, a hidden file and a folder with one more picture.
fn photos() -> ScratchFolder {
    let scratch = ScratchFolder::new();
    fs::create_dir_all(scratch.path("photos/more")).unwrap();
    for (name, from) in [
        ("a.jpe", "jpeg/420-baseline.jpg"),
        ("b.jpg", "bad/too-few-rows.jpg"),
        ("c.WEBP", "webp/lossy.webp"),
        (".hidden.png", "png/rgb.png"),
        ("more/d.gif", "gif/palette.gif"),
    ] {
        fs::copy(fixture(from), scratch.path("photos").join(name)).unwrap();
    }
    fs::write(scratch.path("photos/notes.txt"), "no picture").unwrap();
    scratch
}

#[track_caller]
fn skips_one(outcome: &Outcome) {
    assert_eq!(outcome.code, 2, "{}", outcome.errors);
    let skipped = outcome.errors.lines().filter(|line| line.contains("skipped ")).collect::<Vec<_>>();
    assert_eq!(skipped.len(), 1, "{}", outcome.errors);
    assert!(skipped[0].contains("b.jpg") && skipped[0].contains("JPEG is truncated"), "{}", skipped[0]);
    assert!(outcome.errors.contains("1 input was skipped; --strict"), "{}", outcome.errors);
}

#[test]
fn issue_27_4_one_bad_file_does_not_end_a_folder() {
    let scratch = photos();
    let folder = scratch.path("photos");
    let run = monosplit(line(&["run"], [folder.as_os_str(), "--top".as_ref(), "1".as_ref()]));
    skips_one(&run);
    assert!(run.out.contains("a.jpe") && run.out.contains("c.WEBP"), "{}", run.out);
    assert!(!run.out.contains("hidden") && !run.out.contains("d.gif"), "{}", run.out);
    assert!(run.errors.contains("more was not looked into; --recursive does"), "{}", run.errors);

    let out = scratch.path("explained");
    skips_one(&monosplit(line(&["explain"], [folder.as_os_str(), "-o".as_ref(), out.as_os_str()])));
    let mut written: Vec<_> = fs::read_dir(out).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    written.sort();
    assert_eq!(written, ["a.splitcam.png", "c.splitcam.png"]);
}

#[test]
fn issue_27_4_figures_go_on_without_a_bad_file() {
    let scratch = photos();
    let (folder, figure) = (scratch.path("photos"), scratch.path("figure.png"));
    for command in [&["compare"][..], &["figure", "layers"], &["figure", "split"]] {
        let mut words = line(command, [folder.as_os_str(), "-o".as_ref(), figure.as_os_str()]);
        if command[0] == "compare" {
            words.extend(["--methods", "gradcam"].map(OsString::from));
        }
        skips_one(&monosplit(words));
        fs::remove_file(&figure).unwrap();
    }
    fs::remove_file(folder.join("a.jpe")).unwrap();
    let verify = monosplit(line(&["verify"], [folder.as_os_str(), "--samples".as_ref(), "1".as_ref()]));
    skips_one(&verify);
    // A file after the one that is looked at counts too.
    fs::rename(folder.join("b.jpg"), folder.join("z.jpg")).unwrap();
    let verify = monosplit(line(&["verify"], [folder.as_os_str(), "--samples".as_ref(), "1".as_ref()]));
    assert_eq!(verify.code, 2, "{}", verify.errors);
    assert!(verify.errors.contains("z.jpg: the JPEG is truncated"), "{}", verify.errors);
}

#[test]
fn issue_27_4_strict_stops_at_the_first_bad_file() {
    let scratch = photos();
    let folder = scratch.path("photos");
    let words = line(&["run"], [folder.as_os_str(), "--strict".as_ref(), "-q".as_ref()]);
    monosplit(words).refused(&["b.jpg", "the JPEG is truncated"]);
    // With a class for each input, skipping one would give its class to the next.
    let classes = ["--class", "1", "--class", "2", "--class", "3", "-q"].map(OsStr::new);
    let words = line(&["explain"], [&[folder.as_os_str()][..], &classes].concat());
    monosplit(words).refused(&["b.jpg"]);
}

#[test]
fn issue_27_4_folders_of_folders_are_read_when_asked() {
    let scratch = photos();
    let folder = scratch.path("photos");
    fs::remove_file(folder.join("b.jpg")).unwrap();
    let run = succeeds(line(&["run"], [folder.as_os_str(), "--recursive".as_ref(), "--json".as_ref()]));
    assert_eq!(run.out.matches("\"input\"").count(), 3, "{}", run.out);
    assert!(run.out.contains("\"skipped\": []"), "{}", run.out);
    for name in ["a.jpe", "c.WEBP"] {
        fs::remove_file(folder.join(name)).unwrap();
    }
    refuses(line(&["run"], [&folder]), &["holds no pictures", ".webp", "--recursive"]);
}

#[test]
fn issue_27_4_json_says_what_was_skipped() {
    let scratch = photos();
    let run = monosplit(line(&["run"], [scratch.path("photos").as_os_str(), "--json".as_ref()]));
    assert_eq!(run.code, 2);
    let skipped = run.out.split("\"skipped\":").nth(1).unwrap();
    assert!(skipped.contains("b.jpg") && skipped.contains("truncated"), "{skipped}");
}

#[test]
fn when_no_file_can_be_read_that_is_said_in_one_line() {
    let scratch = ScratchFolder::new();
    for name in ["a.png", "b.png"] {
        scratch.write(name, "no picture");
    }
    refuses(line(&["run"], [scratch.root()]), &["none of the 2 inputs", "a.png", "JPEG, PNG, WebP"]);
}

#[test]
fn issue_27_5_preset_none_and_fit_crop_take_ordinary_photographs() {
    for options in [&["--preset", "none"][..], &["--fit", "crop"], &["--preset", "none", "--fit", "crop"]] {
        let options = options.iter().map(OsString::from);
        succeeds(line(&["run"], [chelsea().into_os_string()].into_iter().chain(options)));
    }
}

#[test]
fn issue_27_11_a_sliver_of_3000_by_2_is_read() {
    succeeds(line(&["run"], [fixture("sliver.png")]));
}

#[test]
fn issue_27_11_the_rank_is_named_where_it_is_the_problem() {
    let scratch = ScratchFolder::new();
    let raw = scratch.path("raw.npy");
    let (case, picture) = (op_case("Conv-1d-11.onnx"), chelsea());
    let words: [&OsStr; 5] =
        ["run".as_ref(), case.as_os_str(), picture.as_os_str(), "--raw".as_ref(), raw.as_os_str()];
    let said = refuses(words, &["which no picture fits", "expected four axes", "found 3"]);
    assert!(!said.contains("1 or 3 channels"), "{said}");
}

/// Issue 27, point 3: the same photograph, stored upright and stored as a phone stores it.
#[test]
fn issue_27_3_a_sideways_photograph_is_seen_upright() {
    let scores = |picture: &Path, options: &[&str]| {
        let words =
            [&[picture.as_os_str()][..], &options.iter().map(OsStr::new).collect::<Vec<_>>()].concat();
        let out = succeeds(line(&["run"], words)).out;
        out.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    let upright = scores(&fixture("orientation/png-1.png"), &[]);
    let sideways = fixture("orientation/png-6.png");
    let ignored = scores(&sideways, &["--orientation", "ignore"]);
    assert_eq!(ignored, upright, "the stored pixels are the same");
    assert_ne!(scores(&sideways, &[]), ignored);
    let turned = scores(&fixture("orientation/png-8.png"), &["--orientation", "upright"]);
    assert_ne!(turned, scores(&sideways, &[]));
}

#[test]
fn transparent_pictures_are_laid_on_a_colour_when_asked() {
    let seen = |options: &[&str]| {
        let words = options.iter().map(OsString::from);
        succeeds(line(&["run"], [fixture("png/rgba.png").into_os_string()].into_iter().chain(words))).out
    };
    assert_ne!(seen(&[]), seen(&["--background", "white"]));
    assert_eq!(seen(&["--background", "white"]), seen(&["--background", "#ffffff"]));
    refuses(line(&["run"], [chelsea().as_os_str(), "--background=pink".as_ref()]), &["hexadecimal"]);
}

pub(crate) fn piped(words: Vec<OsString>, bytes: &[u8]) -> Outcome {
    let mut child = Command::new(env!("CARGO_BIN_EXE_monosplit"))
        .args(words)
        .env("MONOSPLIT_CONFIG", "")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    // The program may refuse before it has read everything.
    let _ = child.stdin.take().unwrap().write_all(bytes);
    let output = child.wait_with_output().unwrap();
    Outcome {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        errors: String::from_utf8(output.stderr).unwrap(),
    }
}

#[test]
fn issue_27_11_a_picture_or_an_array_comes_from_standard_input() {
    let picture = fixture("jpeg/420-baseline.jpg");
    let expected = succeeds(line(&["run"], [&picture])).out.replace(&picture.display().to_string(), "stdin");
    let names = if cfg!(unix) { &["-", "/dev/stdin"][..] } else { &["-"] };
    for name in names {
        let found = piped(line(&["run"], [name]), &fs::read(&picture).unwrap());
        assert_eq!((found.code, found.out), (0, expected.clone()), "{}", found.errors);
    }
    let scratch = ScratchFolder::new();
    let found = piped(
        line(&["explain"], ["-".as_ref(), "-o".as_ref(), scratch.root().as_os_str()]),
        &fs::read(&picture).unwrap(),
    );
    assert_eq!(found.code, 0, "{}", found.errors);
    assert_eq!(scratch.names(), ["stdin.splitcam.png"]);
    let figure = scratch.path("compared.png");
    let words = ["-", "--methods", "gradient,gradcam", "-o"].map(OsString::from);
    let compare = line(&["compare"], words.into_iter().chain([figure.clone().into()]));
    let found = piped(compare, &fs::read(&picture).unwrap());
    assert!(found.code == 0 && figure.is_file(), "{}", found.errors);

    let values = monosplit::Tensor::new([1, 3, 128, 128], vec![0.25f32; 3 * 128 * 128]).unwrap();
    let array = monosplit::graph::npy::write(&values);
    let file = scratch.write("x.npy", &array);
    let expected = succeeds(line(&["run"], [&file])).out.replace(&file.display().to_string(), "stdin");
    assert_eq!(piped(line(&["run"], ["-"]), &array).out, expected);
}

#[test]
fn standard_input_without_a_picture_is_refused() {
    piped(line(&["run"], ["-"]), b"").refused(&["stdin", "empty"]);
    piped(line(&["run"], ["-"]), b"no picture").refused(&["stdin", "JPEG, PNG"]);
}

#[cfg(unix)]
#[test]
fn issue_35_a_pipe_or_device_is_not_waited_for() {
    let scratch = ScratchFolder::new();
    let pipe = scratch.path("pipe.jpg");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo is there").success());
    for command in ["run", "explain", "verify"] {
        refuses(line(&[command], [&pipe]), &["pipe.jpg", "found a device or pipe"]);
    }
    refuses(line(&["run"], ["/dev/zero"]), &["found a device or pipe"]);
    // Among others it is skipped, in a folder too.
    let both = monosplit(line(&["run"], [chelsea(), pipe.clone()]));
    assert_eq!(both.code, 2);
    assert!(both.errors.contains("skipped") && both.out.contains("chelsea"), "{}{}", both.out, both.errors);
    fs::copy(chelsea(), scratch.path("cat.png")).unwrap();
    std::os::unix::fs::symlink(scratch.path("nowhere"), scratch.path("gone.png")).unwrap();
    let folder = monosplit(line(&["run"], [scratch.root()]));
    assert_eq!(folder.code, 2);
    for said in ["2 inputs were skipped", "pipe.jpg: expected a file", "gone.png: the link leads to nothing"]
    {
        assert!(folder.errors.contains(said), "{said}: {}", folder.errors);
    }
}

#[test]
fn every_format_is_read_whatever_its_name() {
    let scratch = ScratchFolder::new();
    for (index, name) in
        ["webp/lossy.webp", "gif/palette.gif", "bmp/rgb.bmp", "tiff/rgb-lzw.tif", "pnm/rgb.pnm"]
            .iter()
            .enumerate()
    {
        fs::copy(fixture(name), scratch.path(&format!("{index}.jpg"))).unwrap();
    }
    let run = succeeds(line(&["run"], [scratch.root().as_os_str(), "--top".as_ref(), "1".as_ref()]));
    assert_eq!(run.out.lines().count(), 10, "{}", run.out);
}
