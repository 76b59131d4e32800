//! Attributions by Captum and grad-cam in double precision (`scripts/make_cam_fixtures.py`): a convolution and an in-place
//! ReLU used several times, residual sums, concatenations, overlapping max pools with ties, average pools with padding,
//! depthwise and strided convolutions, batch norms.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use monosplit_engine::{Cpu, Engine, Precision};
use monosplit_explain::methods::{
    CoarseMap, Deconvolution, EigenCam, GradCam, GradCamPlusPlus, Gradient, GuidedBackprop, GuidedCam,
    HiResCam, InputXGradient, LayerCam, Saliency, XGradCam,
};
use monosplit_explain::{
    ChannelReduction, Class, Explainer, Finish, MapRequest, Method, Settings, Upsampling,
};
use monosplit_graph::onnx::{self, ImportOptions};
use monosplit_graph::passes::{CanonicalOptions, Stored, canonicalise};
use monosplit_graph::{Graph, Tensor, npy};

const NETWORKS: [&str; 3] = ["reused", "residual", "joined"];

struct Fixture {
    folder: PathBuf,
    network: Graph,
}

impl Fixture {
    fn open(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/cams").join(name);
        let graph = onnx::open(&folder.join("network.onnx"), &ImportOptions::default()).unwrap();
        let double = Cpu::default().precision(Precision::F64);
        let evaluate = |g: &Graph| double.compile(g)?.run(&[]);
        let options = CanonicalOptions::default().stored(Stored::Double);
        let network = canonicalise(&graph, options, &evaluate).unwrap().0;
        Fixture { folder, network }
    }

    fn array(&self, name: &str) -> Tensor {
        npy::read(&std::fs::read(self.folder.join(name)).unwrap()).unwrap()
    }

    fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.join(name)).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    /// All requests in one run, with the class of each sample.
    fn attributions(&self, requests: &[MapRequest], precision: Precision) -> Vec<Vec<f64>> {
        let engine = Cpu::default().precision(precision);
        let explainer = Explainer::new(&self.network, requests, &engine).unwrap();
        let classes = self.array("classes.npy").to_i64().unwrap().iter().map(|&c| c as usize).collect();
        let class = Class::PerSample(classes);
        let found = explainer.explain(&self.array("x.npy"), &class, &Settings::default()).unwrap();
        found.maps.iter().map(|map| map.values.to_f64().into_vec()).collect()
    }

    /// The relative distance from every kept map, by its name.
    fn distances(&self, precision: Precision) -> Vec<(String, f64)> {
        let mut requests = Vec::new();
        let mut expected = Vec::new();
        let mut ask = |file: &str, cases: Vec<String>, layer: Option<&String>| {
            let rows = self.array(file).to_f64();
            let each = rows.len() / cases.len();
            for (case, row) in cases.into_iter().zip(rows.chunks(each)) {
                let (name, own) = case.split_once(" /").unwrap_or((&case, ""));
                let layer = layer.cloned().or_else(|| (!own.is_empty()).then(|| format!("/{own}")));
                let finish = Finish { channels: ChannelReduction::Keep, ..Finish::default() };
                let place = layer.as_ref().map(|layer| format!("{layer}:out"));
                requests.push(MapRequest::of(method(name), place).finish(finish));
                expected.push((format!("{case} {}", layer.unwrap_or_default()), row.to_vec()));
            }
        };
        ask("image.npy", self.lines("image.txt"), None);
        for (i, layer) in self.lines("layers.txt").iter().enumerate() {
            ask(&format!("map-{i}.npy"), self.lines("maps.txt"), Some(layer));
        }
        let found = self.attributions(&requests, precision);
        let distances = expected.into_iter().zip(found).map(|((case, expected), found)| {
            let expected =
                if case.starts_with("eigencam") { signed_like(&found, expected) } else { expected };
            let distance = distance(&found, &expected);
            (case, distance)
        });
        distances.collect()
    }
}

fn method(name: &str) -> Arc<dyn Method> {
    let guided = |map| Arc::new(GuidedCam { map, upsampling: Upsampling::Nearest });
    match name {
        "gradient" => Arc::new(Gradient),
        "saliency" => Arc::new(Saliency),
        "input-x-gradient" => Arc::new(InputXGradient),
        "guided-backprop" => Arc::new(GuidedBackprop),
        "deconvolution" => Arc::new(Deconvolution),
        "guided-gradcam" => guided(CoarseMap::GradCam),
        "guided-layercam" => guided(CoarseMap::LayerCam),
        "gradcam" => Arc::new(GradCam { rectified: false }),
        "gradcam rectified" => Arc::new(GradCam { rectified: true }),
        "gradcam++" => Arc::new(GradCamPlusPlus { rectified: false }),
        "layercam" => Arc::new(LayerCam { positive_gradients: true, rectified: false }),
        "hirescam" => Arc::new(HiResCam { rectified: false }),
        "xgradcam" => Arc::new(XGradCam { rectified: false }),
        "eigencam" => Arc::new(EigenCam { rectified: false }),
        other => panic!("no method for {other}"),
    }
}

/// Nothing defines the sign of a principal component: of each of the two samples it is turned to ours.
fn signed_like(found: &[f64], expected: Vec<f64>) -> Vec<f64> {
    let half = expected.len() / 2;
    let samples = found.chunks(half).zip(expected.chunks(half));
    let turned = samples.flat_map(|(found, expected)| {
        let product: f64 = found.iter().zip(expected).map(|(a, b)| a * b).sum();
        expected.iter().map(move |v| v * product.signum())
    });
    turned.collect()
}

fn distance(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    norm(&mut found.iter().zip(expected).map(|(a, b)| a - b)) / norm(&mut expected.iter().copied())
}

fn agree(precision: Precision, tolerance: impl Fn(&str) -> f64) {
    let mut failures = Vec::new();
    for name in NETWORKS {
        for (case, distance) in Fixture::open(name).distances(precision) {
            if distance.is_nan() || distance > tolerance(&case) {
                failures.push(format!("{name}, {case}: {distance:.2e}"));
            }
        }
    }
    assert!(failures.is_empty(), "too far from the peers:\n{}", failures.join("\n"));
}

#[test]
fn attributions_are_those_of_captum_and_grad_cam() {
    // grad-cam rounds Eigen-CAM to single precision.
    agree(Precision::F64, |case| if case.starts_with("eigencam") { 1e-6 } else { 1e-9 });
}

#[test]
fn single_precision_loses_little() {
    agree(Precision::F32, |_| 1e-4);
}
