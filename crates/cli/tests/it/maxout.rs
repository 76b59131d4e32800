//! `monosplit maxout` as a person uses it: what it writes is read again and computed.

use std::path::Path;

use crate::networks::Small;
use crate::program::{model, refuses, succeeds};
use monosplit::maxout::{Rational, parse};
use monosplit_testing::ScratchFolder;

const GATE: &str = "\
# x where 2x − y is large
input x, y
s = max(2x - y + 1/2, 0)
f = x * s
output f
";

fn gate(folder: &ScratchFolder) -> String {
    text(&folder.write("gate.txt", GATE))
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// What is printed is a network again, and its outputs are two functions whose difference is the gate.
fn check_pair(printed: &str) {
    let both = parse(printed).unwrap();
    for x in -4..5i64 {
        for y in -4..5i64 {
            let found = both.evaluate(&[Rational::from(x), Rational::from(y)]).unwrap();
            let expected = Rational::ratio(x * (4 * x - 2 * y + 1).max(0), 2).unwrap();
            assert_eq!(&found[0] - &found[1], expected);
        }
    }
}

#[test]
fn the_pair_that_is_printed_is_the_network() {
    let folder = ScratchFolder::new();
    let file = gate(&folder);
    for ways in [
        &[][..],
        &["--convex"],
        &["--monotone", "0"],
        &["--monotone", "5/2"],
        &["--monotone", "3", "--convex"],
    ] {
        let words = [&["maxout", "split", &file], ways].concat();
        let printed = succeeds(&words).out;
        assert!(printed.contains("# f = g − h: exact at 5 points"), "{printed}");
        check_pair(&printed);
        let negative = parse(&printed).unwrap();
        assert!(if ways.contains(&"--monotone") {
            negative.is_monotone()
        } else {
            negative.is_input_convex()
        });
        let written = text(&folder.path("pair.txt"));
        let said = succeeds([&words[..], &["-o", &written]].concat()).out;
        assert!(said.contains("linear bound") && !said.contains('#'), "{said}");
        assert_eq!(std::fs::read_to_string(&written).unwrap(), printed);
    }
    assert_eq!(folder.names(), ["gate.txt", "pair.txt"]);
}

#[test]
fn posynomials_are_listed_as_text_and_for_latex() {
    let folder = ScratchFolder::new();
    let file = gate(&folder);
    let plain = succeeds(["maxout", "expand", &file]).out;
    assert!(plain.contains("f⁺ = max(\n") && plain.contains("·(x⁺)²"), "{plain}");
    let latex = succeeds(["maxout", "expand", &file, "--latex"]).out;
    assert!(latex.contains("\\max\\left\\{") && latex.contains("\\left(x^{+}\\right)^{2}"), "{latex}");
    assert_eq!(latex.matches('{').count(), latex.matches('}').count());
    let moved = succeeds(["maxout", "expand", &file, "--monotone", "3"]).out;
    assert!(moved.contains("x' = x + 3") && moved.contains("x'²"), "{moved}");
    let monotone = text(&folder.write("monotone.txt", "input x, y\nf = max(2 x, y + 1)\np = f^2\noutput p"));
    let said = succeeds(["maxout", "expand", &monotone]).out;
    assert!(said.ends_with("p = max(\n  4·x²,\n  y² + 2·y + 1\n)\n"), "{said}");
}

#[test]
fn pictures_show_every_neuron() {
    let folder = ScratchFolder::new();
    let file = gate(&folder);
    let [svg, dot] = ["gate.svg", "gate.dot"].map(|name| text(&folder.path(name)));
    succeeds(["maxout", "draw", &file, "-o", &svg]);
    let drawn = std::fs::read_to_string(&svg).unwrap();
    assert!(drawn.starts_with("<svg ") && drawn.ends_with("</svg>\n"));
    for name in ["x", "y", "s", "f"] {
        assert!(drawn.contains(&format!(">{name}</text>")), "{drawn}");
    }
    succeeds(["maxout", "draw", &file, "--split", "-o", &dot]);
    let drawn = std::fs::read_to_string(&dot).unwrap();
    assert!(drawn.starts_with("digraph") && drawn.contains("f⁻.2"), "{drawn}");
    assert_eq!(succeeds(["maxout", "draw", &file, "--split", "--dot"]).out, drawn);
    assert!(succeeds(["maxout", "draw", &file]).out.starts_with("<svg "));
}

#[test]
fn a_small_onnx_file_is_a_network_too() {
    let folder = ScratchFolder::new();
    let network = Small::default().save(&folder, "small.onnx");
    let said = succeeds(["maxout", "split", &network, "-o", &text(&folder.path("pair.txt"))]).out;
    assert!(said.contains("f = g − h: exact"), "{said}");
    let both = parse(&std::fs::read_to_string(folder.path("pair.txt")).unwrap()).unwrap();
    assert!(both.is_input_convex());
    assert_eq!((both.inputs().len(), both.outputs().len()), (3 * 8 * 8, 2 * 5));
}

#[test]
fn what_cannot_be_done_is_said_in_one_line_and_leaves_nothing() {
    let folder = ScratchFolder::new();
    let file = gate(&folder);
    let path = |name: &str| text(&folder.path(name));
    refuses(["maxout", "split", &path("missing.txt")], &["missing.txt"]);
    refuses(["maxout", "split", &path("")], &["folder"]);
    refuses(["maxout", "split", &file, "-o", &path("missing/pair.txt")], &["there is no folder"]);
    for constant in ["-1", "x", "1/0", "inf"] {
        refuses(["maxout", "split", &file, "--monotone", constant], &["--monotone", constant]);
    }
    refuses(["maxout", "draw", &file, "--convex"], &["--split"]);
    refuses(["maxout", "draw", &file, "--svg", "--dot"], &["--dot"]);
    refuses(["maxout", "paint", &file], &["paint"]);
    let bad = text(&folder.write("bad.txt", "input x\ny = 2 z\noutput y"));
    refuses(["maxout", "expand", &bad], &["bad.txt", "line 2, column 7", "'z' is not known"]);
    let bytes = text(&folder.write("bytes.txt", [0xff, 0xfe, 0]));
    refuses(["maxout", "draw", &bytes], &["bytes.txt", "no text"]);
    let smooth = model("transformer/torchscript-17.onnx");
    refuses(["maxout", "split", &text(&smooth)], &["not made of sums, maxima and products"]);
    let long = text(&folder.write("long.txt", long_list()));
    refuses(["maxout", "expand", &long], &["long.txt", "in node 's'", "more than 512 posynomials"]);
    assert_eq!(folder.names(), ["bad.txt", "bytes.txt", "gate.txt", "long.txt"]);
}

/// A sum of ten maxima of two is the largest of 1024 sums.
fn long_list() -> String {
    let names: Vec<usize> = (0..10).collect();
    let all = |write: &dyn Fn(usize) -> String, between: &str| {
        names.iter().map(|&i| write(i)).collect::<Vec<_>>().join(between)
    };
    let inputs = all(&|i| format!("input x{i}, y{i}"), "\n");
    let maxima = all(&|i| format!("v{i} = max(x{i}, y{i})"), "\n");
    format!("{inputs}\n{maxima}\ns = {}\noutput s", all(&|i| format!("v{i}"), " + "))
}
