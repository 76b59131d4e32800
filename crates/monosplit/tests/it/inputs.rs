//! Explanations of several inputs and of token ids, held against PyTorch and Captum (`scripts/make_input_fixtures.py`).

use std::path::{Path, PathBuf};

use monosplit::engine::{Cpu, Precision};
use monosplit::explain::{Channels, Class, Finish};
use monosplit::graph::{Tensor, npy};
use monosplit::{InputKind, Model};
use monosplit_testing::relative_error;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/inputs")
}

fn array(name: &str) -> Tensor {
    npy::read(&std::fs::read(folder().join(format!("{name}.npy"))).unwrap()).unwrap()
}

fn opened(network: &str) -> Model {
    Model::open(folder().join(format!("{network}.onnx"))).unwrap()
}

fn engine() -> Cpu {
    Cpu::default().precision(Precision::F64)
}

/// The two inputs of a network, by name.
fn values(network: &str) -> [(&'static str, Tensor); 2] {
    let names = if network == "text" { ["ids", "mask"] } else { ["picture", "facts"] };
    names.map(|name| (name, array(&format!("{network}.{name}"))))
}

/// Explains `of` by a method and compares each map with `NETWORK.REFERENCE.INPUT.npy`, within `limit` of the largest number.
fn compare(network: &str, method: &str, of: &[&str], reference: &str, limit: f64) {
    let finish = match network {
        "text" => Finish::default(),
        _ => Finish { channels: Channels::Keep, ..Finish::default() },
    };
    let explainer = opened(network).inputs_explainer_on(method, of, finish, &engine()).unwrap();
    let found = explainer.explain(&values(network), &Class::Top).unwrap();
    let error = relative_error(&found.logits.to_f64(), &array(&format!("{network}.scores")).to_f64());
    assert!(error < 1e-7, "{network}: scores differ by {error:e}");
    assert_eq!(found.maps.len(), of.len());
    for name in of {
        let wanted = array(&format!("{network}.{reference}.{name}"));
        let map = found.map(name).unwrap();
        assert_eq!(map.values.len(), wanted.len(), "{method} of {name}: {:?}", map.values.shape());
        let error = relative_error(&map.values.to_f64(), &wanted.to_f64());
        assert!(error < limit, "{network}, {method} of {name}: differs by {error:e}");
    }
}

#[test]
fn tokens_are_explained_at_their_embedding_as_by_captum() {
    for method in ["gradient", "input-x-gradient"] {
        compare("text", method, &["ids"], method, 1e-6);
    }
    let path = "integrated-gradients:steps=20";
    compare("text", path, &["ids"], "integrated-gradients-zero", 1e-6);
    // Captum keeps differences of scores of occluded inputs in single precision.
    compare("text", "occlusion:window=1,stride=1", &["ids"], "occlusion", 1e-5);
    compare("text", "feature-ablation:parts=grid,cell=1", &["ids"], "occlusion", 1e-5);
}

#[test]
fn a_baseline_of_tokens_is_looked_up_as_captum_does() {
    let baseline = folder().join("text.baseline.npy");
    let path = format!("integrated-gradients:steps=20,baseline={}", baseline.display());
    compare("text", &path, &["ids"], "integrated-gradients-padded", 1e-6);
}

#[test]
fn several_inputs_are_explained_jointly_as_by_autograd_and_captum() {
    for method in ["gradient", "input-x-gradient"] {
        for of in [&["picture", "facts"][..], &["facts", "picture"], &["picture"], &["facts"]] {
            compare("pair", method, of, method, 1e-6);
        }
    }
    let path = "integrated-gradients:steps=20";
    compare("pair", path, &["picture", "facts"], "integrated-gradients", 1e-6);
    compare("pair", "occlusion:window=1,stride=1", &["facts"], "occlusion", 1e-5);
}

/// Methods that remove windows remove them from one input at a time: the map of an input is the same beside others.
#[test]
fn windows_are_removed_from_one_input_at_a_time() {
    let explained = |of: &[&str]| {
        let method = "feature-ablation:parts=grid,cell=2";
        let explainer = opened("pair").inputs_explainer_on(method, of, Finish::default(), &engine()).unwrap();
        explainer.explain(&values("pair"), &Class::Top).unwrap()
    };
    let both = explained(&["picture", "facts"]);
    for name in ["picture", "facts"] {
        let alone = explained(&[name]);
        assert_eq!(both.map(name).unwrap().values, alone.map(name).unwrap().values, "{name}");
    }
}

/// One sample of the given inputs serves all explained samples.
#[test]
fn a_given_input_of_one_sample_holds_for_all() {
    let explainer = opened("text").inputs_explainer("gradient", &["ids"]).unwrap();
    let row = |row: usize| monosplit::graph::batch::rows(&array("text.mask"), row..row + 1).unwrap();
    let (all, one) = (Tensor::new([2, 6], [1i64; 12].to_vec()).unwrap(), row(1));
    assert_eq!(*one.to_i64().unwrap(), [1; 6]);
    let with = |mask: Tensor| {
        let values = [("mask", mask), ("ids", array("text.ids"))];
        explainer.explain(&values, &Class::Index(2)).unwrap().maps[0].map.values.clone()
    };
    assert_eq!(with(one), with(all));
    assert_ne!(with(array("text.mask")), with(row(1)));
}

#[test]
fn inputs_say_what_they_hold_and_which_are_explained() {
    let facts = |network: &str| {
        let model = opened(network);
        model
            .input_facts()
            .into_iter()
            .map(|input| (input.name, input.holds, input.is_default))
            .collect::<Vec<_>>()
    };
    let held =
        |tokens: usize, width: usize, rows: usize| InputKind::Tokens { tokens, width, rows: Some(rows) };
    assert_eq!(
        facts("text"),
        [("ids".to_owned(), held(6, 8, 11), true), ("mask".to_owned(), InputKind::Integers, false),]
    );
    assert_eq!(
        facts("pair"),
        [("picture".to_owned(), InputKind::Real, true), ("facts".to_owned(), InputKind::Real, true),]
    );
}

#[test]
fn what_cannot_be_explained_is_refused_in_a_line() {
    let refused = |network: &str, of: &[&str], values: &[(&str, Tensor)]| {
        let explainer = opened(network).inputs_explainer("gradient", of);
        let error = explainer.and_then(|explainer| explainer.explain(values, &Class::Top)).unwrap_err();
        let text = error.to_string();
        assert!(!text.contains('\n'), "{text}");
        text
    };
    let [ids, mask] = values("text");
    let both = [ids.clone(), mask.clone()];
    assert!(
        refused("text", &["word"], &both).contains("there is no input 'word'; the inputs are 'ids', 'mask'")
    );
    assert!(refused("text", &["ids", "ids"], &both).contains("named twice"));
    assert!(refused("text", &[], &both).contains("no input is explained"));
    assert!(refused("text", &["ids"], std::slice::from_ref(&ids)).contains("also reads input 'mask'"));
    assert!(refused("text", &["ids"], &[ids.clone(), ids.clone(), mask.clone()]).contains("given twice"));
    let beyond = Tensor::new([1, 6], vec![1i64, 2, 3, 11, 0, 0]).unwrap();
    let text = refused("text", &["ids"], &[("ids", beyond), ("mask", mask.1)]);
    assert!(text.contains("token id 11, but its table has 11 rows, 0 to 10"), "{text}");
}
