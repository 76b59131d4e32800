//! What the theory says, on a trained network and a real photograph: the network that is built in, and those beside the
//! repository where they are.

use std::path::{Path, PathBuf};

use monosplit::engine::{Cpu, Engine, Precision};
use monosplit::explain::methods::{Gradient, SplitCam, SplitGrad};
use monosplit::explain::{
    Class, ClosedFormula, DecomposedMap, Explainer, MapRequest, Settings, Split, Stabiliser, Stream,
    StreamPart, audit,
};
use monosplit::image::{Fit, Picture, Preset};
use monosplit::{Model, Tensor, default_layer};

fn asset(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("assets").join(name)
}

/// The built-in network, and those beside the repository.
fn networks() -> Vec<PathBuf> {
    let mut found = vec![asset("pets-small.onnx")];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/models");
    for name in ["resnet18-imagenet.onnx", "squeezenet1.1-imagenet.onnx", "vgg16-pets.onnx"] {
        match folder.join(name) {
            path if path.is_file() => found.push(path),
            _ => println!("skipped: {name} is not beside the repository"),
        }
    }
    found
}

fn open(path: &Path) -> (Model, Tensor) {
    let model = Model::open(path).unwrap();
    let preprocess = Preset::Imagenet.options().fit(model.picture_input().unwrap().size, Fit::Crop).unwrap();
    let image = preprocess.apply(&Picture::open(asset("chelsea.png")).unwrap()).unwrap().tensor;
    (model, image)
}

fn explain(
    model: &Model,
    image: &Tensor,
    requests: &[MapRequest],
    alpha: f64,
) -> (Vec<f32>, Vec<Vec<f32>>, usize) {
    let explainer = Explainer::new(model.graph(), requests, &Cpu::default()).unwrap();
    let explained = explainer.explain(image, &Class::Top, &Settings::default().alpha(alpha)).unwrap();
    let maps = explained.maps.iter().map(|map| map.values.to_f32().to_vec()).collect();
    (explained.logits.to_f32().to_vec(), maps, explained.classes[0])
}

#[test]
fn predictions_have_the_same_bits_with_and_without_an_explanation() {
    for path in networks() {
        let (model, image) = open(&path);
        let alone = Cpu::default().compile(model.graph()).unwrap().run(std::slice::from_ref(&image)).unwrap();
        let layer = default_layer(model.graph()).unwrap();
        let request = [MapRequest::new(SplitCam { part: StreamPart::Plus, ..SplitCam::default() }, layer)];
        let (logits, _, _) = explain(&model, &image, &request, 0.4);
        let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&alone[0].to_f32()), bits(&logits), "{}", path.display());
    }
}

#[test]
fn at_one_half_the_maps_are_halves_of_the_gradient() {
    for path in networks() {
        let (model, image) = open(&path);
        let layer = default_layer(model.graph()).unwrap();
        let requests = [
            MapRequest::new(SplitGrad::default(), layer.clone()),
            MapRequest::new(SplitGrad { stream: Stream::H, ..SplitGrad::default() }, layer.clone()),
            MapRequest::new(Gradient, layer),
        ];
        let (_, maps, _) = explain(&model, &image, &requests, 0.5);
        for ((g, h), d) in maps[0].iter().zip(&maps[1]).zip(&maps[2]) {
            assert_eq!((2.0 * g, -2.0 * h), (*d, *d), "{}", path.display());
        }
    }
}

#[test]
fn the_closed_formula_gives_the_same_map() {
    for path in networks() {
        let (model, image) = open(&path);
        let layer = default_layer(model.graph()).unwrap();
        for alpha in [0.0, 0.3] {
            let request = [MapRequest::new(SplitCam::default(), layer.clone())];
            let (_, maps, class) = explain(&model, &image, &request, alpha);
            let split = Split::default();
            let formula =
                ClosedFormula::new(model.graph(), &split, &layer, DecomposedMap::SplitCam, &Cpu::default())
                    .unwrap();
            let mut sum = vec![0.0; maps[0].len()];
            for term in formula.terms(&image, &[class], alpha).unwrap() {
                sum.iter_mut().zip(term.share.to_f64().iter()).for_each(|(s, v)| *s += v);
            }
            let largest = maps[0].iter().fold(0f32, |m, v| m.max(v.abs()));
            for (a, b) in maps[0].iter().zip(&sum) {
                assert!((f64::from(*a) - b).abs() <= 1e-4 * f64::from(largest), "{} {a} {b}", path.display());
            }
        }
    }
}

#[test]
fn streams_keep_their_promises_layer_by_layer() {
    for path in networks().into_iter().filter(|path| !path.ends_with("vgg16-pets.onnx")) {
        let (model, image) = open(&path);
        let found = audit(model.graph(), &image, &Cpu::default()).unwrap();
        assert!(found.same_bits);
        assert!(found.relevance_loss.abs() < 1e-6, "{} {}", path.display(), found.relevance_loss);
        for layer in &found.layers {
            assert_eq!((layer.forward_error, layer.backward_error), (0.0, 0.0), "{}", layer.layer);
            assert!(layer.least_sensitivity >= -1e-6, "{} {}", layer.layer, layer.least_sensitivity);
        }
        let last = found.layers.last().unwrap();
        assert!(
            last.growth[0] > 15.0,
            "without a stabiliser the streams explode, found 1e{:.1}",
            last.growth[0]
        );
        assert!(last.growth[1] < 3.0, "scaled streams stay small, found 1e{:.1}", last.growth[1]);
    }
}

#[test]
fn remembered_masses_change_nothing() {
    let (model, image) = open(&asset("pets-small.onnx"));
    let split = Split::default().stabiliser(Stabiliser::None);
    let requests = [MapRequest::new(
        SplitGrad { split, part: StreamPart::Plus, ..SplitGrad::default() },
        "layer2.0.conv1",
    )];
    let cpu = Cpu::default().precision(Precision::F32);
    let direct = Explainer::new(model.graph(), &requests, &cpu).unwrap();
    let remembering = Explainer::with_class_cache(model.graph(), &requests, &cpu).unwrap();
    let (class, settings) = (Class::Index(7), Settings::default().alpha(0.1));
    let expected = direct.explain(&image, &class, &settings).unwrap();
    for _ in 0..2 {
        let found = remembering.explain(&image, &class, &settings).unwrap();
        assert_eq!(found.maps, expected.maps);
    }
}
