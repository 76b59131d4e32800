//! `monosplit bounds` as a person uses it: on the built-in difference of convex networks, which is certified, and on others.

use monosplit_testing::{ScratchFolder, crates_folder};

use crate::json::assert_json;
use crate::program::{model, refuses, succeeds};

fn asset(name: &str) -> String {
    crates_folder().join("monosplit/assets").join(name).to_str().unwrap().to_owned()
}

/// The numbers behind a key of JSON output, in order.
fn numbers(json: &str, key: &str) -> Vec<f64> {
    let key = format!("\"{key}\": ");
    let behind = json.split(&key).skip(1);
    let ends = |c: char| c == ',' || c == '\n' || c == '}';
    behind.map(|rest| rest.split(ends).next().unwrap().parse().unwrap_or(f64::NAN)).collect()
}

#[test]
fn a_trained_difference_is_certified_and_no_sample_lies_outside() {
    let (network, picture) = (asset("digits.onnx"), asset("digits/3.png"));
    let line = ["bounds", &network, &picture, "--epsilon", "4/255", "--samples", "10000", "--json"];
    let said = succeeds(line).out;
    assert_json(&said);
    assert!(said.contains("\"certified\": true") && said.contains("\"samples\": 10000"), "{said}");
    assert_eq!(numbers(&said, "violations"), [0.0]);
    // The nearest class: the linear bound is above that of intervals, which is that of the streams, and below the margin.
    let first = |key: &str| numbers(&said, key)[0];
    let (here, intervals, streams, linear) =
        (first("at_input"), first("intervals"), first("streams"), first("linear"));
    assert!(intervals < linear && linear < first("found") && first("found") <= here, "{said}");
    assert!((intervals - streams).abs() < 1e-6 * (1.0 + intervals.abs()), "{intervals} {streams}");
    // h is subtracted: both have ranges, and g − h is the score.
    assert!(said.contains("\"g\"") && said.contains("\"h\""), "{said}");
}

#[test]
fn patches_and_the_largest_change_are_certified() {
    let (network, picture) = (asset("digits.onnx"), asset("digits/3.png"));
    let folder = ScratchFolder::new();
    let drawn = folder.path("patches.png");
    let line =
        ["bounds", &network, &picture, "--epsilon", "1", "--patch", "4", "-o", drawn.to_str().unwrap()];
    let said = succeeds(line).out;
    assert!(said.contains("of 49 patches of 4×4 pixels cannot flip the class"), "{said}");
    assert!(said.contains('·'), "{said}");
    assert!(drawn.is_file());

    let said = succeeds(["bounds", &network, &picture, "--radius", "--json"]).out;
    let radius = numbers(&said, "radius")[0];
    assert!(radius > 4.0 / 255.0 && radius < 0.5, "{said}");
    let certified = |epsilon: f64| {
        let said = succeeds(["bounds", &network, &picture, "--epsilon", &epsilon.to_string(), "--json"]).out;
        said.contains("\"certified\": true")
    };
    assert!(certified(radius) && !certified(1.01 * radius));

    // What is printed is not above it.
    let said = succeeds(["bounds", &network, &picture, "--radius"]).out;
    let printed = said.split("at most ").nth(1).unwrap().split(' ').next().unwrap();
    let printed: f64 = printed.parse().unwrap();
    assert!(printed <= radius && radius - printed < 1e-4, "{said}");
    // A class that is not the highest has no margin to begin with.
    let said = succeeds(["bounds", &network, &picture, "--radius", "--class", "5"]).out;
    assert!(said.contains("not certified for a change of 1e-6"), "{said}");
}

#[test]
fn what_cannot_be_bounded_is_refused_with_a_reason() {
    let (network, picture) = (asset("digits.onnx"), asset("digits/3.png"));
    refuses(["bounds", &network, &picture], &["--epsilon"]);
    refuses(["bounds", &network, &picture, "--epsilon", "-1"], &["expected a number from 0"]);
    let transformer = model("transformer/torchscript-17.onnx");
    let line = ["bounds", transformer.to_str().unwrap(), &asset("chelsea.png"), "--epsilon", "0.1"];
    refuses(line, &["bounds need samples along the first axis"]);
}
