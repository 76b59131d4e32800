//! Which output of a network is run and explained.

use monosplit::graph::op::{Op, Reduction, Unary};
use monosplit::graph::{Graph, Kind, Shape, Tensor};
use monosplit::{Model, OutputChoice};

/// A network whose first output is a feature map, and whose second has the class scores.
fn two_outputs(scores: &str) -> Graph {
    let mut graph = Graph::new();
    let image = graph.input("x", Shape::batched(&[3, 4, 4]), Kind::Float);
    let features = graph.unary(Unary::Relu, image).unwrap();
    let pooled = Op::Reduce { reduction: Reduction::Mean, axes: vec![2, 3], keep: false };
    let pooled = graph.add(pooled, &[features]).unwrap();
    let weights = graph.constant(Tensor::new(vec![3, 2], vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap());
    let logits = graph.add(Op::MatMul { trans_a: false, trans_b: false }, &[pooled, weights]).unwrap();
    graph.output("feat", features);
    graph.output(scores, logits);
    graph
}

/// A stranger's report: `--output logits` on a file with an output of that name took the first output.
#[test]
fn an_output_called_like_a_kind_of_score_is_found_by_its_name() {
    for name in ["logits", "probability", "scores"] {
        let choice: OutputChoice = name.parse().unwrap();
        let model = Model::options().output(choice).open_graph("made here", two_outputs(name)).unwrap();
        let output = &model.graph().outputs()[0];
        assert_eq!(output.name, name);
        assert_eq!(model.graph().node(output.node).shape, Shape::batched(&[2]));
    }
    // The word alone means a kind of score where no output has that name.
    let model = Model::options().output("logits".parse().unwrap());
    let model = model.open_graph("made here", two_outputs("other")).unwrap();
    assert_eq!(model.graph().outputs()[0].name, "feat");
}
