//! Targets from their texts to maps, held against PyTorch's gradients (`scripts/make_target_fixtures.py`).

use std::path::{Path, PathBuf};

use monosplit::engine::{Cpu, Precision};
use monosplit::explain::methods::{Gradient, IntegratedGradients};
use monosplit::explain::{
    ChannelReduction, Class, Explainer, Explanation, Finish, MapRequest, Parameters, Settings,
};
use monosplit::graph::{Tensor, npy};
use monosplit::{Model, TargetChoice, TargetContext};
use monosplit_testing::relative_error;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/targets")
}

fn array(name: &str) -> Tensor {
    npy::read(&std::fs::read(folder().join(name)).unwrap()).unwrap()
}

fn engine() -> Cpu {
    Cpu::default().precision(Precision::F64)
}

/// The texts of the targets, their files in the folder.
fn targets() -> Vec<TargetChoice> {
    let texts = std::fs::read_to_string(folder().join("targets.txt")).unwrap();
    texts.lines().map(|text| text.parse::<TargetChoice>().unwrap().in_folder(&folder())).collect()
}

fn opened(target: &TargetChoice) -> Model {
    let options = Model::options().output("scores".parse().unwrap()).target(target);
    options.open(folder().join("network.onnx")).unwrap()
}

fn targeted(target: &TargetChoice) -> Model {
    opened(target).with_target(target, &TargetContext::new(&engine())).unwrap()
}

fn explained(model: &Model, requests: &[MapRequest]) -> Explanation {
    let explainer = Explainer::new(model.graph(), requests, &engine()).unwrap();
    explainer.explain(&array("x.npy"), &model.explained_class(), &Settings::default()).unwrap()
}

/// The explained score of each sample.
fn scores(explanation: &Explanation) -> Vec<f64> {
    let (all, classes) = (explanation.logits.to_f64(), &explanation.classes);
    let width = all.len() / classes.len();
    classes.iter().enumerate().map(|(row, class)| all[row * width + class]).collect()
}

#[test]
fn scores_and_gradients_of_every_target_are_pytorchs() {
    for (number, target) in targets().iter().enumerate() {
        let whole = Finish { channels: ChannelReduction::Keep, ..Finish::default() };
        let found = explained(&targeted(target), &[MapRequest::at_input(Gradient).finish(whole)]);
        let [wanted, gradient] = ["score", "gradient"].map(|what| array(&format!("{number}.{what}.npy")));
        let error = relative_error(&scores(&found), &wanted.to_f64());
        assert!(error < 1e-6, "{target}: scores differ by {error:e}");
        let error = relative_error(&found.maps[0].values.to_f64(), &gradient.to_f64());
        assert!(error < 1e-6, "{target}: gradients differ by {error:e}");
    }
}

/// Integrated gradients sum to the difference of the scores, which holds only if the choice of the target stays that of the
/// sample on the whole way from the baseline.
#[test]
fn integrated_gradients_of_every_target_are_complete() {
    for target in &targets() {
        let model = targeted(target);
        let method = IntegratedGradients { steps: 400, ..IntegratedGradients::default() };
        let found = explained(&model, &[MapRequest::at_input(method)]);
        let sums: Vec<f64> = found.maps[0].values.to_f64().chunks(36).map(|map| map.iter().sum()).collect();
        let sample = |row: usize| monosplit::graph::batch::rows(&array("x.npy"), row..row + 1).unwrap();
        for (row, score) in scores(&found).into_iter().enumerate() {
            let settled = monosplit::explain::settled(model.graph(), &sample(row), &engine()).unwrap();
            let explainer = Explainer::new(&settled, &[], &engine()).unwrap();
            let zero = Tensor::new([1, 2, 6, 6], vec![0f64; 72]).unwrap();
            let at_zero = explainer.explain(&zero, &Class::Index(found.classes[row]), &Settings::default());
            let difference = score - scores(&at_zero.unwrap())[0];
            let error = (sums[row] - difference).abs() / difference.abs().max(1e-3);
            assert!(error < 2e-2, "{target}, sample {row}: {} instead of {difference}", sums[row]);
        }
    }
}

#[test]
fn parameters_as_inputs_give_the_same_scores() {
    for target in &targets() {
        let engine = engine();
        let context = TargetContext { parameters: Parameters::Input, ..TargetContext::new(&engine) };
        let model = opened(target).with_target(target, &context).unwrap();
        assert_eq!(model.sample_shape().unwrap(), [2, 6, 6], "{target}");
        let explainer = Explainer::new(model.graph(), &[], &engine).unwrap();
        let (x, class, settings) = (array("x.npy"), model.explained_class(), Settings::default());
        let parameters = model.target_parameters();
        let batch = monosplit::explain::ExplainBatch {
            other_inputs: parameters,
            ..monosplit::explain::ExplainBatch::new(&x, &class, &settings)
        };
        let given = scores(&explainer.explain_batch(&batch).unwrap());
        let error = relative_error(&given, &scores(&explained(&targeted(target), &[])));
        assert!(error < 1e-12, "{target}: {error:e}");
    }
}

#[test]
fn what_is_suggested_for_a_network_can_be_explained() {
    let model = Model::open(folder().join("network.onnx")).unwrap();
    let suggested = model.suggested_targets();
    assert_eq!(
        suggested.iter().map(|of| of.output.as_str()).collect::<Vec<_>>(),
        ["maps", "cells", "scores"]
    );
    for text in suggested.iter().flat_map(|of| &of.targets) {
        let target: TargetChoice = text.parse().unwrap();
        let model = model.clone().with_target(&target, &TargetContext::new(&engine())).unwrap();
        let found = explained(&model, &[MapRequest::at_input(Gradient)]);
        assert!(found.maps[0].values.to_f64().iter().all(|value| value.is_finite()), "{text}");
        let names = model.labels().unwrap();
        assert!(names.named(found.classes[0]).is_some(), "{text}");
    }
    // A network that is no classifier says which targets suit it.
    let said = model.labels().unwrap_err();
    assert!(said.to_string().contains("[N, 3, 6, 6]"), "{said}");
}

#[test]
fn class_scores_keep_their_bits() {
    let choice: TargetChoice = "class:1".parse().unwrap();
    let (plain, with) = (opened(&choice), targeted(&choice));
    assert_eq!(with.explained_class(), Class::Index(1));
    let request = [MapRequest::at_input(Gradient)];
    let [a, b] = [&plain, &with].map(|model| explained(model, &request));
    assert_eq!(a.logits, b.logits);
}

/// Whatever text is read is grafted or refused in one line.
#[test]
fn texts_of_random_pieces_are_grafted_or_refused() {
    const PIECES: [&str; 24] = [
        "class:",
        "contrast:",
        "region:auto",
        "cell:cells[",
        "cell:maps[",
        "sum:",
        "norm:",
        "cell:[",
        "best",
        "best=",
        ",",
        "]",
        "]",
        "0",
        "-1",
        "7",
        "1:",
        ":",
        "-9:9",
        ",class=",
        ",output=",
        "maps",
        "scores",
        "top2",
    ];
    let model = Model::open(folder().join("network.onnx")).unwrap();
    let (noise, engine, mut grafted) = (monosplit::graph::Noise::new(5).stream("grafts"), engine(), 0);
    for case in 0..4000u64 {
        let piece =
            |i: u64| PIECES[(noise.uniform(case * 8 + i) * PIECES.len() as f64) as usize % PIECES.len()];
        let first = PIECES[(noise.uniform(case * 8 + 7) * 8.0) as usize % 8];
        let text: String = std::iter::once(first).chain((0..case % 5).map(piece)).collect();
        let Ok(target) = text.parse::<TargetChoice>() else { continue };
        if target.file().is_some() {
            continue;
        }
        match model.clone().with_target(&target, &TargetContext::new(&engine)) {
            Ok(model) => {
                grafted += 1;
                assert!(model.classes().is_some() || target.is_class(), "{text}");
            }
            Err(error) => assert_eq!(error.to_string().lines().count(), 1, "{text}: {error}"),
        }
    }
    assert!(grafted > 30, "{grafted}");
}
