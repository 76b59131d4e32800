//! What the program says: suggestions that suit the network, names that fit on a line, warnings that are said once (issues 27
//! and 35).

use std::fs;
use std::path::Path;

use monosplit::graph::onnx::{self, ExportOptions};
use monosplit::graph::op::{Reduction, Window};
use monosplit::graph::{Graph, Kind, Label, Op, Shape};
use monosplit_testing::{ScratchFolder, crates_folder};

use crate::networks::{CLASSES, SIDE, Small, numbers};
use crate::program::{chelsea, monosplit, refuses, succeeds};

/// The shortest line that no message may reach, in characters.
const TOO_LONG: usize = 2200;

/// A network whose outputs are a feature map, under the names of `maps`, and then the scores of classes if it has `scores`.
fn with_outputs(folder: &ScratchFolder, file: &str, maps: &[&str], scores: Option<&str>) -> String {
    let mut g = Graph::new();
    let x = g.input("x", Shape::batched(&[3, SIDE, SIDE]), Kind::Float);
    let w = g.constant(numbers(&[4, 3, 1, 1], 1));
    let z = g
        .add_named(Label::named("conv"), Op::Conv { window: Window::new([1, 1]), groups: 1 }, &[x, w])
        .unwrap();
    maps.iter().for_each(|name| g.output(*name, z));
    if let Some(name) = scores {
        let mean = g.reduced(Reduction::Mean, z, &[2, 3], false).unwrap();
        let w = g.constant(numbers(&[4, CLASSES], 2));
        let y = g.add(Op::MatMul { trans_a: false, trans_b: false }, &[mean, w]).unwrap();
        g.output(name, y);
    }
    let path = folder.path(file);
    onnx::save(&g, &path, &ExportOptions::default()).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The command that a line of the error stream suggests.
fn suggested(errors: &str) -> Vec<String> {
    let line = errors.split('`').nth(1).expect("a suggestion");
    line.split(' ').skip(1).map(str::to_owned).collect()
}

#[test]
fn issue_27_every_suggestion_after_a_network_can_be_carried_out() {
    let folder = ScratchFolder::new();
    let networks = [
        with_outputs(&folder, "segmentation.onnx", &["mask"], None),
        with_outputs(&folder, "detection.onnx", &["boxes"], Some("kinds")),
        with_outputs(&folder, "classifier.onnx", &[], Some("y")),
        Small::default().save(&folder, "small.onnx"),
    ];
    let picture = chelsea().display().to_string();
    let raw = folder.path("raw.npy").display().to_string();
    for network in networks {
        let said = succeeds(["inspect", &network]).errors;
        let next: Vec<String> = suggested(&said)
            .into_iter()
            .map(|word| word.replace("PICTURE.jpg", &picture).replace("OUTPUT.npy", &raw))
            .collect();
        let outcome = monosplit(&next);
        assert_eq!(outcome.code, 0, "{next:?}: {}", outcome.errors);
        if outcome.errors.contains("next:") {
            let mut next = suggested(&outcome.errors);
            next.extend(["--out".to_owned(), folder.path("out").display().to_string()]);
            let outcome = monosplit(&next);
            assert_eq!(outcome.code, 0, "{next:?}: {}", outcome.errors);
        }
    }
}

#[test]
fn issue_27_a_network_of_several_outputs_is_refused_with_the_one_that_would_do() {
    let folder = ScratchFolder::new();
    let (detection, picture) =
        (with_outputs(&folder, "d.onnx", &["boxes"], Some("kinds")), chelsea().display().to_string());
    for command in ["run", "explain", "verify", "compare"] {
        let words = ["output 'boxes' has the shape", "--output kinds holds one for each"];
        refuses([command, &detection, &picture, "-q"], &words);
    }
    let bare = with_outputs(&folder, "s.onnx", &["mask"], None);
    let said = refuses(["explain", &bare, &picture, "-q"], &["output 'mask' has the shape [N, 4, 8, 8]"]);
    assert!(!said.contains("--output"), "{said}");
}

#[test]
fn issue_27_names_of_any_length_fit_on_a_line() {
    let folder = ScratchFolder::new();
    let picture = chelsea().display().to_string();
    for name in ["n".repeat(100_000), "long name ".repeat(10_000), "\u{202e}\u{2066}gnol".repeat(5000)] {
        let network = with_outputs(&folder, "n.onnx", &[&name], None);
        for words in
            [&["inspect", &network][..], &["run", &network, &picture], &["explain", &network, &picture]]
        {
            let outcome = monosplit(words);
            for line in outcome.out.lines().chain(outcome.errors.lines()) {
                assert!(line.chars().count() < TOO_LONG, "{words:?}: {} characters", line.chars().count());
                assert!(!line.contains(['\u{202e}', '\u{2066}']), "{words:?}: {line}");
            }
        }
    }
}

#[test]
fn issue_35_names_of_classes_are_bounded_and_without_marks_of_direction() {
    let folder = ScratchFolder::new();
    let network = with_outputs(&folder, "c.onnx", &[], Some("y"));
    let mut names = vec!["\u{202e}tac".to_owned(), "w".repeat(1 << 20)];
    names.resize(CLASSES, "cat".to_owned());
    let labels = folder.write("labels.txt", names.join("\n"));
    let words = ["run".as_ref(), Path::new(&network), &chelsea(), "--labels".as_ref(), &labels];
    let found = succeeds(words).out;
    assert!(found.lines().all(|line| line.chars().count() < 400), "{}", found.len());
    assert!(found.contains("\\u{202e}tac") && !found.contains('\u{202e}'), "{found}");
}

#[test]
fn issue_27_letters_without_a_font_are_one_warning() {
    let folder = ScratchFolder::new();
    let network = with_outputs(&folder, "c.onnx", &[], Some("y"));
    // No font of a usual machine has these.
    let names: Vec<String> =
        (0..CLASSES).map(|_| "\u{1ddb0}\u{1ddb1}\u{1ddb2}\u{10fffd}".to_owned()).collect();
    let (labels, out) = (folder.write("labels.txt", names.join("\n")), folder.path("out"));
    let pictures = ["a.png", "b.png"].map(|name| folder.path(name));
    for path in &pictures {
        fs::copy(chelsea(), path).unwrap();
    }
    let words = [
        "explain".as_ref(),
        Path::new(&network),
        &pictures[0],
        &pictures[1],
        "--labels".as_ref(),
        &labels,
        "--out".as_ref(),
        &out,
    ];
    let said = succeeds(words).errors;
    assert_eq!(said.matches("no font on this machine").count(), 1, "{said}");
}

#[test]
fn issue_27_the_warning_of_16_bit_grey_names_its_file_and_does_not_flood() {
    let folder = ScratchFolder::new();
    let network = with_outputs(&folder, "c.onnx", &[], Some("y"));
    let grey = crates_folder().join("image/tests/fixtures/png/grey-16.png");
    fs::create_dir(folder.path("pictures")).unwrap();
    for number in 0..9 {
        fs::copy(&grey, folder.path(&format!("pictures/{number}.png"))).unwrap();
    }
    let said = succeeds(["run".as_ref(), Path::new(&network), &folder.path("pictures")]).errors;
    assert!(said.contains("0.png: grey of 16 bits") && said.contains("4.png: grey"), "{said}");
    assert!(said.contains("4 more warnings of this kind") && !said.contains("5.png"), "{said}");
}

#[test]
fn issue_27_a_damaged_chunk_of_a_png_is_named_in_words() {
    let folder = ScratchFolder::new();
    let network = with_outputs(&folder, "c.onnx", &[], Some("y"));
    let mut bytes = fs::read(chelsea()).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 0x10;
    let damaged = folder.write("damaged.png", bytes);
    let said =
        refuses(["run".as_ref(), Path::new(&network), &damaged, "-q".as_ref()], &["damaged.png", "corrupt"]);
    assert!(!said.contains('{') && !said.contains("ChunkType"), "{said}");
}
