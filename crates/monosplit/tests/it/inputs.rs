//! Explanations of several inputs and of token ids, held against PyTorch and Captum (`scripts/make_input_fixtures.py`).

use std::path::{Path, PathBuf};

use monosplit::catalogue::parse;
use monosplit::engine::{Cpu, Engine, Precision};
use monosplit::explain::methods::Gradient;
use monosplit::explain::{ChannelReduction, Class, Explainer, Finish, MapRequest, Settings};
use monosplit::graph::{Tensor, npy};
use monosplit::{ClassSource, Compilation, InputKind, Model};
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

/// The inputs of a network, by name.
fn all_values(network: &str) -> Vec<(&'static str, Tensor)> {
    let names: &[&str] = match network {
        "text" => &["ids", "mask"],
        "pair" => &["picture", "facts"],
        _ => &["x"],
    };
    names.iter().map(|&name| (name, array(&format!("{network}.{name}")))).collect()
}

fn values(network: &str) -> [(&'static str, Tensor); 2] {
    all_values(network).try_into().unwrap()
}

/// Explains `of` by a method and compares each map with `NETWORK.REFERENCE.INPUT.npy`, within `limit` of the largest number.
fn compare(network: &str, method: &str, of: &[&str], reference: &str, limit: f64) {
    let finish = match network {
        "text" => Finish::default(),
        _ => Finish { channels: ChannelReduction::Keep, ..Finish::default() },
    };
    let explainer = opened(network).inputs_explainer_on(method, of, finish, &engine()).unwrap();
    let found = explainer.explain(&all_values(network), &Class::Top).unwrap();
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

#[test]
fn series_volumes_and_tables_are_explained_as_by_autograd_and_captum() {
    for network in ["series", "volume", "table"] {
        for method in ["gradient", "input-x-gradient"] {
            compare(network, method, &["x"], method, 1e-6);
        }
        compare(network, "integrated-gradients:steps=20", &["x"], "integrated-gradients", 1e-6);
    }
    for (network, window) in [("series", "3"), ("volume", "2x3x2"), ("table", "1")] {
        compare(network, &format!("occlusion:window={window},stride={window}"), &["x"], "occlusion", 1e-5);
    }
}

#[test]
fn cams_of_series_and_volumes_are_captums() {
    for network in ["series", "volume"] {
        let model = opened(network);
        let request = MapRequest::of(parse("gradcam:relu=no", &[]).unwrap().method, Some("3:out".to_owned()));
        let explainer = Explainer::new(model.graph(), &[request], &engine()).unwrap();
        let x = array(&format!("{network}.x"));
        let found = explainer.explain(&x, &Class::Top, &Settings::default()).unwrap();
        let wanted = array(&format!("{network}.gradcam.x"));
        assert_eq!(found.maps[0].values.shape(), wanted.shape());
        let error = relative_error(&found.maps[0].values.to_f64(), &wanted.to_f64());
        assert!(error < 1e-6, "{network}: {error:e}");
    }
}

/// Recurrent layers written out step by step, and the operators of the newest exporter.
#[test]
fn recurrent_and_newest_operators_are_explained_as_by_autograd_and_captum() {
    for network in ["recurrent", "newest"] {
        for method in ["gradient", "input-x-gradient"] {
            compare(network, method, &["x"], method, 1e-6);
        }
        compare(network, "integrated-gradients:steps=20", &["x"], "integrated-gradients", 1e-6);
    }
}

/// A file of named inputs returns what PyTorch and Captum attribute, and reads what the network reads.
#[test]
fn maps_of_named_inputs_are_compiled() {
    let methods = ["gradient", "input-x-gradient", "integrated-gradients:steps=20"];
    for (network, of, path) in [
        ("text", &["ids"][..], "integrated-gradients-zero"),
        ("pair", &["picture", "facts"], "integrated-gradients"),
        ("series", &["x"], "integrated-gradients"),
        ("recurrent", &["x"], "integrated-gradients"),
        ("newest", &["x"], "integrated-gradients"),
    ] {
        let finish = match network {
            "text" => Finish::default(),
            _ => Finish { channels: ChannelReduction::Keep, ..Finish::default() },
        };
        let model = opened(network);
        let chosen = methods.map(|method| parse(method, &[]).unwrap());
        let options = (Some(Precision::F64), Some(5));
        let file = Compilation::of_inputs(&model, ClassSource::Top, &chosen, of, finish, options).unwrap();
        let graph = file.graph();
        let own = all_values(network);
        let default = |name: &str| file.defaults().iter().find(|(known, _)| *known == name);
        let given: Vec<Tensor> = graph
            .inputs()
            .iter()
            .map(|&id| graph.node(id).label.tensor.as_str())
            .map(|name| own.iter().find(|(known, _)| *known == name).or(default(name)).unwrap().1.clone())
            .collect();
        let outputs = engine().compile(graph).unwrap().run(&given).unwrap();
        for (method, reference) in methods.iter().zip(["gradient", "input-x-gradient", path]) {
            for input in of {
                let name = format!("saliency/{}/{input}", method.split(':').next().unwrap());
                let at = graph.outputs().iter().position(|output| output.name == name);
                let map = &outputs[at.unwrap_or_else(|| panic!("{network}: no output {name}"))];
                let wanted = array(&format!("{network}.{reference}.{input}"));
                let error = relative_error(&map.to_f64(), &wanted.to_f64());
                assert!(error < 1e-6, "{network}, {name}: {error:e}");
            }
        }
    }
}

/// What is held as a constant is what was given as an input: scores and maps have the same bits.
#[test]
fn inputs_held_as_constants_change_no_bit() {
    let row = |name: &str| monosplit::graph::batch::rows(&array(name), 1..2).unwrap();
    let facts = [("facts".to_owned(), row("pair.facts"))];
    let held = opened("pair").with_held_inputs(&facts).unwrap();
    let request = || vec![MapRequest::at_input(Gradient)];
    let pictures = array("pair.picture");
    let found = Explainer::new(held.graph(), &request(), &engine()).unwrap();
    let found = found.explain(&pictures, &Class::Top, &Settings::default()).unwrap();
    let explainer =
        opened("pair").inputs_explainer_on("gradient", &["picture"], Finish::default(), &engine());
    let values = [("picture", pictures.clone()), ("facts", row("pair.facts"))];
    let given = explainer.unwrap().explain(&values, &Class::Top).unwrap();
    assert_eq!(found.logits, given.logits);
    assert_eq!(found.maps[0].values, given.maps[0].map.values);
    let two = [("facts".to_owned(), array("pair.facts"))];
    let refused = opened("pair").with_held_inputs(&two).unwrap_err().to_string();
    assert!(refused.contains("2 samples of it were given; give one"), "{refused}");
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
