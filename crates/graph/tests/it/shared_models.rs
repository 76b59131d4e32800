//! Models as PyTorch exports them: their layers have PyTorch's names, and writing and reading them again changes nothing.

use monosplit_graph::onnx::{self, ExportOptions, ImportOptions};
use monosplit_graph::{Graph, Op, Shape};
use monosplit_testing::{shared, vectors};

fn modules(graph: &Graph, op: &str) -> Vec<String> {
    let named = graph.nodes().filter(|(_, n)| n.op.name() == op);
    named.map(|(_, n)| n.label.module.clone()).collect()
}

#[test]
fn layers_have_the_names_pytorch_gives_them() {
    let Some(path) = shared("models/resnet18-imagenet.onnx") else { return };
    let graph = onnx::open(&path, &ImportOptions::default()).unwrap();
    assert_eq!(graph.node(graph.inputs()[0]).shape, Shape::batched(&[3, 224, 224]));
    let convolutions = modules(&graph, "Conv");
    assert_eq!(convolutions.len(), 20);
    for name in ["conv1", "layer1.0.conv1", "layer2.0.downsample.0", "layer4.1.conv2"] {
        assert!(convolutions.iter().any(|c| c == name), "{name} is not in {convolutions:?}");
    }
    assert_eq!(modules(&graph, "MatMul"), ["fc"]);
}

#[test]
fn a_model_written_and_read_again_has_the_same_nodes() {
    let kept = ["tinyresnet", "mobile"].map(|network| vectors(network).join("model.onnx"));
    for path in kept.into_iter().chain(shared("models/pets-small.onnx")) {
        let graph = onnx::open(&path, &ImportOptions::default()).unwrap();
        for opset in [13, 17, 21] {
            let bytes = onnx::write(&graph, &ExportOptions::default().opset(opset)).unwrap();
            let again = onnx::read(&bytes, None, &ImportOptions::default()).unwrap();
            let computed = |g: &Graph| {
                let nodes = g.nodes().filter(|(_, n)| !matches!(n.op, Op::Constant(_)));
                nodes.map(|(_, n)| (n.op.clone(), n.shape.clone(), n.label.clone())).collect::<Vec<_>>()
            };
            assert_eq!(computed(&again), computed(&graph), "{} at {opset}", path.display());
        }
    }
}
