//! The short form of the library against what it is short for.

use monosplit::engine::Cpu;
use monosplit::explain::methods::SplitCam;
use monosplit::explain::{
    BatchPosition, Class, Explainer, Finish, MapRequest, NoProgress, Progress, Settings,
};
use monosplit::image::{Fit, Picture, Preset};
use monosplit::{ClassChoice, ErrorKind, Labels, MethodSet, Model, catalogue, default_layer};

const ASSETS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/assets");

fn model() -> Model {
    Model::open(format!("{ASSETS}/pets-small.onnx")).unwrap()
}

fn cat() -> Picture {
    Picture::open(format!("{ASSETS}/chelsea.png")).unwrap()
}

#[test]
fn the_short_form_has_the_bits_of_the_long_one() {
    let model = model();
    let size = model.picture_input().unwrap().size;
    let prepared = Preset::Imagenet.options().fit(size, Fit::Auto).unwrap().apply(&cat()).unwrap();
    let layer = default_layer(model.graph()).unwrap();
    let request = MapRequest::new(SplitCam::default(), &layer);
    let explainer = Explainer::new(model.graph(), &[request], &Cpu::default()).unwrap();
    let long = explainer.explain(&prepared.tensor, &Class::Top, &Settings::default()).unwrap();

    let short = model.explain(&cat()).unwrap();
    assert_eq!(short.map, long.maps[0]);
    assert_eq!(short.scores, *long.logits.to_f64());
    assert_eq!((short.class, &short.layer), (long.classes[0], &Some(layer)));
    assert_eq!(short.picture(), Some(&prepared.picture));
}

#[test]
fn a_class_is_named_or_numbered() {
    let model = model();
    let explain = |class: ClassChoice| model.explainer("gradient").class(class).explain(&cat());
    let named = explain("Bengal".into()).unwrap();
    let numbered = explain(named.class.into()).unwrap();
    assert_eq!(named.map, numbered.map);
    assert_ne!(named.map, explain(ClassChoice::Index(named.class + 1)).unwrap().map);
    assert_eq!(explain("wolf".into()).unwrap_err().kind(), ErrorKind::UnknownName);
    assert!(explain(ClassChoice::Index(37)).unwrap_err().to_string().contains("37 classes"));
}

#[test]
fn options_are_those_of_the_method() {
    let model = model();
    let other = model.explainer("splitcam").alpha(0.1).explain(&cat()).unwrap();
    assert_eq!(other.map, model.explainer("splitcam:alpha=0.1").explain(&cat()).unwrap().map);
    assert_ne!(other.map, model.explain(&cat()).unwrap().map);
    let refused = model.explainer("gradient").alpha(0.1).build().err().unwrap().to_string();
    assert!(refused.contains("gradient has no option 'alpha'"), "{refused}");
}

#[test]
fn classes_without_names_are_captioned_by_their_number() {
    let model = model();
    let explainer = model.explainer("gradcam").labels(Labels::from_text("")).build().unwrap();
    let explanation = explainer.explain(&cat()).unwrap();
    assert_eq!(explanation.class_name, format!("class {}", explanation.class));
    assert!(explanation.overlay().unwrap().width() > explanation.picture().unwrap().width());
}

#[test]
fn methods_of_a_set_have_the_maps_they_have_alone() {
    let model = model();
    let prepared = model.preprocess().unwrap().apply(&cat()).unwrap();
    // Two of them have the same run-time numbers, the third has an α of its own.
    let texts = ["splitcam:alpha=0.1", "gradcam", "splitgrad"];
    let methods = texts.map(|text| catalogue::parse(text, &[]).unwrap());
    let layer = default_layer(model.graph()).unwrap();
    let asked: Vec<_> = methods.iter().map(|method| (method, Some(layer.as_str()))).collect();
    let set = MethodSet::new(&model, &asked, Finish::default(), &Cpu::default()).unwrap();
    let progress = || -> Box<dyn Progress> { Box::new(NoProgress) };
    let together = set.explain(&prepared.tensor, &Class::Top, BatchPosition::default(), progress).unwrap();
    assert_eq!(together.maps.len(), texts.len());
    for (text, map) in texts.iter().zip(&together.maps) {
        let alone = model.explainer(*text).layer(layer.as_str()).explain(&cat()).unwrap();
        assert_eq!((&alone.map, alone.class), (map, together.classes[0]), "{text}");
    }
}
