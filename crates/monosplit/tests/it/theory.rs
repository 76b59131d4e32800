//! What the theory says of a network's maps and streams: on a trained network and a photograph, on small random networks of
//! four families, and on the large networks of `../shared` where they are there.

use std::path::{Path, PathBuf};

use monosplit::engine::{Cpu, Engine, Precision};
use monosplit::explain::methods::{Gradient, SplitCam, SplitGrad};
use monosplit::explain::{
    Class, ClosedFormula, DecomposedMap, Explainer, MapRequest, Settings, Split, Stabiliser, Stream,
    StreamPart, audit,
};
use monosplit::graph::npy;
use monosplit::image::{Fit, Picture, Preset};
use monosplit::{Inference, Model, Tensor, default_layer};
use monosplit_testing::{crates_folder, shared, vectors};

/// A network and what it is given.
struct Case {
    name: String,
    model: Model,
    images: Tensor,
}

fn asset(name: &str) -> PathBuf {
    crates_folder().join("monosplit/assets").join(name)
}

fn open(path: &Path) -> Model {
    Model::open(path).unwrap()
}

/// A network on the photograph.
fn trained(path: &Path) -> Case {
    let model = open(path);
    let preprocess = Preset::Imagenet.options().fit(model.picture_input().unwrap().size, Fit::Crop).unwrap();
    let images = preprocess.apply(&Picture::open(asset("chelsea.png")).unwrap()).unwrap().tensor;
    Case { name: path.display().to_string(), model, images }
}

/// The built-in network, and four random ones with residual sums, max pools, depthwise convolutions or none at all.
fn kept_networks() -> Vec<Case> {
    let random = ["mlp", "tinyvgg", "tinyresnet", "mobile"].map(|name| {
        let folder = vectors(name);
        let images = npy::read(&std::fs::read(folder.join("x.npy")).unwrap()).unwrap();
        Case { name: name.to_owned(), model: open(&folder.join("model.onnx")), images }
    });
    [trained(&asset("pets-small.onnx"))].into_iter().chain(random).collect()
}

/// Those networks of `../shared` that are there.
fn large_networks() -> impl Iterator<Item = Case> {
    ["resnet18-imagenet", "squeezenet1.1-imagenet", "vgg16-pets"]
        .into_iter()
        .filter_map(|name| shared(&format!("models/{name}.onnx")))
        .map(|path| trained(&path))
}

impl Case {
    fn layer(&self) -> String {
        default_layer(self.model.graph()).unwrap()
    }

    /// Scores, maps and explained classes.
    fn explain(&self, requests: &[MapRequest], alpha: f64) -> (Vec<f32>, Vec<Vec<f32>>, Vec<usize>) {
        let explainer = Explainer::new(self.model.graph(), requests, &Cpu::default()).unwrap();
        let explained =
            explainer.explain(&self.images, &Class::Top, &Settings::default().alpha(alpha)).unwrap();
        let maps = explained.maps.iter().map(|map| map.values.to_f32().to_vec()).collect();
        (explained.logits.to_f32().to_vec(), maps, explained.classes)
    }

    fn keeps_the_bits_of_its_prediction(&self) {
        let inputs = std::slice::from_ref(&self.images);
        let compiled = Cpu::default().compile(self.model.graph()).unwrap().run(inputs).unwrap().remove(0);
        let inferred = Inference::new(&self.model, &Cpu::default()).unwrap().run(inputs).unwrap();
        let request =
            [MapRequest::new(SplitCam { part: StreamPart::Plus, ..SplitCam::default() }, self.layer())];
        let (logits, _, _) = self.explain(&request, 0.4);
        let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&compiled.to_f32()), bits(&logits), "{}", self.name);
        assert_eq!(bits(&inferred.to_f32()), bits(&logits), "{}", self.name);
    }

    fn has_halves_of_the_gradient_at_one_half(&self) {
        let requests = [
            MapRequest::new(SplitGrad::default(), self.layer()),
            MapRequest::new(SplitGrad { stream: Stream::H, ..SplitGrad::default() }, self.layer()),
            MapRequest::new(Gradient, self.layer()),
        ];
        let (_, maps, _) = self.explain(&requests, 0.5);
        for ((g, h), d) in maps[0].iter().zip(&maps[1]).zip(&maps[2]) {
            assert_eq!((2.0 * g, -2.0 * h), (*d, *d), "{}", self.name);
        }
    }

    fn has_the_map_of_the_closed_formula(&self) {
        let layer = self.layer();
        for alpha in [0.0, 0.3] {
            let request = [MapRequest::new(SplitCam::default(), layer.clone())];
            let (_, maps, classes) = self.explain(&request, alpha);
            let split = Split::default();
            let formula = ClosedFormula::new(
                self.model.graph(),
                &split,
                &layer,
                DecomposedMap::SplitCam,
                &Cpu::default(),
            )
            .unwrap();
            let mut sum = vec![0.0; maps[0].len()];
            for term in formula.terms(&self.images, &classes, alpha).unwrap() {
                sum.iter_mut().zip(term.share.to_f64().iter()).for_each(|(s, v)| *s += v);
            }
            let largest = maps[0].iter().fold(0f32, |m, v| m.max(v.abs()));
            for (a, b) in maps[0].iter().zip(&sum) {
                assert!((f64::from(*a) - b).abs() <= 1e-4 * f64::from(largest), "{} {a} {b}", self.name);
            }
        }
    }

    /// How large the streams of the last layer become, as powers of ten: without a stabiliser, and scaled.
    fn growth_of_exact_streams(&self) -> [f64; 2] {
        let found = audit(self.model.graph(), &self.images, &Cpu::default()).unwrap();
        assert!(found.same_bits);
        assert!(found.relevance_loss.abs() < 1e-6, "{} {}", self.name, found.relevance_loss);
        for layer in &found.layers {
            assert_eq!((layer.forward_error, layer.backward_error), (0.0, 0.0), "{}", layer.layer);
            assert!(layer.least_sensitivity >= -1e-6, "{} {}", layer.layer, layer.least_sensitivity);
        }
        let [bare, scaled] = [0, 1].map(|i| found.layers.last().unwrap().growth[i]);
        assert!(scaled < 3.0, "{}: scaled streams stay small, found 1e{scaled:.1}", self.name);
        [bare, scaled]
    }

    fn has_streams_that_explode_unless_scaled(&self) {
        let [bare, _] = self.growth_of_exact_streams();
        assert!(bare > 15.0, "{}: without a stabiliser the streams explode, found 1e{bare:.1}", self.name);
    }
}

#[test]
fn predictions_have_the_same_bits_with_and_without_an_explanation() {
    kept_networks().iter().for_each(Case::keeps_the_bits_of_its_prediction);
}

#[test]
fn slow_predictions_of_large_networks_have_the_same_bits() {
    large_networks().for_each(|case| case.keeps_the_bits_of_its_prediction());
}

#[test]
fn at_one_half_the_maps_are_halves_of_the_gradient() {
    kept_networks().iter().for_each(Case::has_halves_of_the_gradient_at_one_half);
}

#[test]
fn slow_at_one_half_the_maps_of_large_networks_are_halves_of_the_gradient() {
    large_networks().for_each(|case| case.has_halves_of_the_gradient_at_one_half());
}

#[test]
fn the_closed_formula_gives_the_same_map() {
    kept_networks().iter().for_each(Case::has_the_map_of_the_closed_formula);
}

#[test]
fn slow_the_closed_formula_gives_the_same_map_of_large_networks() {
    large_networks().for_each(|case| case.has_the_map_of_the_closed_formula());
}

#[test]
fn streams_are_exact_layer_by_layer() {
    for case in kept_networks() {
        case.growth_of_exact_streams();
    }
}

/// Deep networks only; VGG16 is left out because its audit takes long.
#[test]
fn slow_streams_of_deep_networks_explode_unless_scaled() {
    trained(&asset("pets-small.onnx")).has_streams_that_explode_unless_scaled();
    large_networks()
        .filter(|case| !case.name.ends_with("vgg16-pets.onnx"))
        .for_each(|case| case.has_streams_that_explode_unless_scaled());
}

#[test]
fn remembered_masses_change_nothing() {
    let Case { model, images, .. } = trained(&asset("pets-small.onnx"));
    let split = Split::default().stabiliser(Stabiliser::None);
    let requests = [MapRequest::new(
        SplitGrad { split, part: StreamPart::Plus, ..SplitGrad::default() },
        "layer2.0.conv1",
    )];
    let cpu = Cpu::default().precision(Precision::F32);
    let direct = Explainer::new(model.graph(), &requests, &cpu).unwrap();
    let remembering = Explainer::with_class_cache(model.graph(), &requests, &cpu).unwrap();
    let (class, settings) = (Class::Index(7), Settings::default().alpha(0.1));
    let expected = direct.explain(&images, &class, &settings).unwrap();
    for _ in 0..2 {
        let found = remembering.explain(&images, &class, &settings).unwrap();
        assert_eq!(found.maps, expected.maps);
    }
}
