//! Methods that ask the network many times, held against Captum, grad-cam and scikit-image on a small network with a
//! residual sum, and against what their definitions promise.

mod agreement;
mod bounds;
mod properties;

use std::path::Path;

use monosplit_engine::{Cpu, Engine, Precision};
use monosplit_explain::{
    ChannelReduction, Class, ExplainBatch, Explainer, Finish, MapRequest, Method, SaliencyMap, Settings,
};
use monosplit_graph::onnx::{self, ImportOptions};
use monosplit_graph::{Graph, Tensor, npy};

/// A kept array.
fn kept(name: &str) -> Tensor {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/repeated");
    npy::read(&std::fs::read(folder.join(format!("{name}.npy"))).unwrap()).unwrap()
}

/// The network the arrays were computed with.
fn network() -> Graph {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/repeated");
    onnx::open(&folder.join("network.onnx"), &ImportOptions::default()).unwrap()
}

/// The classes that were explained.
const CLASSES: [usize; 2] = [2, 0];

fn double() -> Cpu {
    Cpu::default().precision(Precision::F64)
}

/// The map of a method, channels kept.
fn map(
    graph: &Graph,
    method: impl Method + 'static,
    layer: Option<&str>,
    engine: &dyn Engine,
    images: &Tensor,
) -> SaliencyMap {
    let finish = Finish { channels: ChannelReduction::Keep, ..Finish::default() };
    let request =
        MapRequest { layer: layer.map(str::to_owned), ..MapRequest::at_input(method) }.finish(finish);
    let explainer = Explainer::new(graph, &[request], engine).unwrap();
    let class = Class::PerSample(CLASSES[..images.shape()[0]].to_vec());
    let settings = Settings::default();
    explainer.explain_batch(&ExplainBatch::new(images, &class, &settings)).unwrap().maps.remove(0)
}

/// The distance of two arrays in relation to the second.
fn apart(found: &Tensor, expected: &Tensor) -> f64 {
    assert_eq!(found.len(), expected.len(), "{:?} {:?}", found.shape(), expected.shape());
    let (found, expected) = (found.to_f64(), expected.to_f64());
    let distance: f64 = found.iter().zip(&*expected).map(|(a, b)| (a - b).powi(2)).sum();
    (distance / expected.iter().map(|v| v * v).sum::<f64>()).sqrt()
}
