//! SplitCAM by share and fused SplitCAM, against an implementation in PyTorch and double precision that shares no code with this
//! one (`scripts/make_fused_fixtures.py`).

use std::path::Path;

use monosplit_engine::{Cpu, Engine, Precision};
use monosplit_explain::methods::{Combination, FusedSplitCam, Gradient, SplitCam, SplitGrad};
use monosplit_explain::{
    AlphaInput, Class, ClassInput, Explainer, ExplanationGraph, MapRequest, Pooling, Settings, Split,
};
use monosplit_graph::onnx::{self, ImportOptions};
use monosplit_graph::passes::{CanonicalOptions, canonicalise};
use monosplit_graph::{Graph, Op, Tensor, npy};
use monosplit_testing::read_npz;

const NETWORKS: [&str; 2] = ["tinyresnet", "tinyvgg"];

fn fixtures() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn engine() -> Cpu {
    Cpu::default().precision(Precision::F64)
}

fn network(name: &str) -> Graph {
    let file = fixtures().join("vectors").join(name).join("model.onnx");
    let graph = onnx::open(&file, &ImportOptions::default()).unwrap();
    let evaluate = |g: &Graph| engine().compile(g)?.run(&[]);
    canonicalise(&graph, CanonicalOptions::default(), &evaluate).unwrap().0
}

fn images(name: &str) -> Tensor {
    let x = npy::read(&std::fs::read(fixtures().join("vectors").join(name).join("x.npy")).unwrap()).unwrap();
    let (each, shape) = (x.shape()[1..].iter().product::<usize>(), x.shape());
    Tensor::new([&[2], &shape[1..]].concat(), x.to_f64()[..2 * each].to_vec()).unwrap()
}

fn map(graph: &Graph, images: &Tensor, request: MapRequest, settings: &Settings) -> Vec<f64> {
    let explainer = Explainer::new(graph, &[request], &engine()).unwrap();
    let explanation = explainer.explain(images, &Class::Top, settings).unwrap();
    explanation.maps[0].values.to_f64().to_vec()
}

fn assert_close(what: &str, found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(0.0f64, |most, v| most.max(v.abs()));
    assert!(largest > 0.0, "{what}: nothing is expected");
    let apart = found.iter().zip(expected).fold(0.0f64, |most, (a, b)| most.max((a - b).abs()));
    assert!(apart <= 1e-7 * largest, "{what}: {apart:e} apart, of {largest:e}");
}

fn split(pooling: &str) -> Split {
    let pooling = if pooling == "wta" { Pooling::Winner } else { Pooling::Convex };
    Split::default().alpha(AlphaInput::Share).pooling(pooling)
}

#[test]
fn maps_by_share_and_fused_maps_are_those_of_the_reference() {
    for name in NETWORKS {
        let (graph, images) = (network(name), images(name));
        let mut compared = 0;
        for (key, bytes) in read_npz(&fixtures().join("fused").join(format!("{name}.npz"))) {
            let parts: Vec<&str> = key.splitn(4, '/').collect();
            let expected = npy::read(&bytes).unwrap().to_f64().to_vec();
            let (request, settings) = match parts[..] {
                ["cam", pooling, share, layer] => {
                    let cam = SplitCam { split: split(pooling), ..SplitCam::default() };
                    (MapRequest::new(cam, layer), Settings::default().share(share.parse().unwrap()))
                }
                ["fused", pooling, choice] => fused(split(pooling), choice),
                _ => continue,
            };
            assert_close(&format!("{name}: {key}"), &map(&graph, &images, request, &settings), &expected);
            compared += 1;
        }
        assert_eq!(compared, 24, "{name}");
    }
}

fn fused(split: Split, choice: &str) -> (MapRequest, Settings) {
    let mut method = FusedSplitCam { split, ..FusedSplitCam::default() };
    let mut settings = Settings::default();
    for option in choice.split(',') {
        let (key, value) = option.split_once('=').unwrap();
        match key {
            "share" => settings.share = value.parse().unwrap(),
            "alpha" => {
                method.split.alpha = AlphaInput::Uniform;
                settings = settings.alpha(value.parse().unwrap());
            }
            "epsilon" => method.epsilon = value.parse().unwrap(),
            "exponent" => method.exponent = value.parse().unwrap(),
            _ if value == "arithmetic" => method.combination = Combination::Mean,
            _ => method.combination = Combination::HarmonicMean,
        }
    }
    (MapRequest::at_input(method), settings)
}

#[test]
fn the_share_is_the_ratio_of_the_hidden_to_the_ordinary_gradient() {
    // δ = (d − E)/2 per channel, so that E = d − 2δ.
    for name in NETWORKS {
        let (graph, images) = (network(name), images(name));
        let layer = if name == "tinyresnet" { "/layer2/conv1/Conv" } else { "/features/features.7/Conv" };
        let channels = |request: MapRequest| {
            let finish = monosplit_explain::Finish {
                channels: monosplit_explain::ChannelReduction::Keep,
                ..Default::default()
            };
            request.finish(finish)
        };
        let gradient = map(&graph, &images, channels(MapRequest::new(Gradient, layer)), &Settings::default());
        for share in [0.0, 0.3, 1.0, 4.0] {
            let method = SplitGrad { split: split("convex"), ..SplitGrad::default() };
            let delta = map(
                &graph,
                &images,
                channels(MapRequest::new(method, layer)),
                &Settings::default().share(share),
            );
            let each = gradient.len() / 2;
            for (d, delta) in gradient.chunks(each).zip(delta.chunks(each)) {
                let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
                let hidden = norm(&mut d.iter().zip(delta).map(|(d, delta)| d - 2.0 * delta));
                let ratio = hidden / norm(&mut d.iter().copied());
                assert!((ratio - share).abs() < 1e-9, "{name}: {ratio} instead of {share}");
            }
        }
    }
}

#[test]
fn all_members_of_a_fused_map_share_one_walk() {
    let graph = network("tinyresnet");
    let products = |request: MapRequest| {
        let explanation = ExplanationGraph::new(&graph, ClassInput::Top, &[request]).unwrap();
        let is_product =
            |op: &Op| matches!(op, Op::Conv { .. } | Op::ConvTranspose { .. } | Op::MatMul { .. });
        explanation.graph().nodes().filter(|(_, node)| is_product(&node.op)).count()
    };
    // The finest layer of the chain is the image.
    let finest = SplitCam { split: split("convex"), ..SplitCam::default() };
    assert_eq!(
        products(MapRequest::at_input(FusedSplitCam::default())),
        products(MapRequest::at_input(finest))
    );
}

#[test]
fn named_layers_take_the_place_of_the_resolution_stages() {
    let (graph, images) = (network("tinyvgg"), images("tinyvgg"));
    let named = |names: &[&str]| {
        let layers = names.iter().map(|&name| name.to_owned()).collect();
        let method = FusedSplitCam { layers, ..FusedSplitCam::default() };
        map(&graph, &images, MapRequest::at_input(method), &Settings::default())
    };
    let stages = ["/features/features.2/Conv", "/features/features.7/Conv", "/features/features.12/Conv"];
    let own = map(&graph, &images, MapRequest::at_input(FusedSplitCam::default()), &Settings::default());
    assert_eq!(named(&stages), own);
    assert_ne!(named(&stages[1..]), own);
    let refused = ExplanationGraph::new(
        &graph,
        ClassInput::Top,
        &[MapRequest::new(FusedSplitCam::default(), "/features/features.12/Conv:out")],
    );
    assert!(refused.unwrap_err().to_string().contains("name the layers that are combined"));
}
