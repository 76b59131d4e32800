//! Weights so small that sums are less than the rounding error of their biases.

use monosplit::engine::{Cpu, Precision};
use monosplit::explain::audit;
use monosplit::graph::op::Unary;
use monosplit::graph::{Graph, Kind, Op, Shape, Tensor};

/// Two dense layers with a bias of about 1 and a batch norm with a shift of about 1, all weights of about `size`.
fn network(size: f32) -> Graph {
    let mut g = Graph::new();
    let constant = |g: &mut Graph, shape: &[usize], values: &[f32], factor: f32| {
        let values: Vec<f32> = values.iter().map(|value| value * factor).collect();
        g.constant(Tensor::new(shape, values).unwrap())
    };
    let x = g.input("x", Shape::batched(&[2]), Kind::Float);
    let v = constant(&mut g, &[2, 3], &[1.0, -2.0, 3.0, 2.0, 1.0, -1.0], size);
    let bias = constant(&mut g, &[3], &[1.0, 0.7, -0.1], 1.0);
    let product = Op::MatMul { trans_a: false, trans_b: false };
    let hidden = g.add(product.clone(), &[x, v, bias]).unwrap();
    let scale = constant(&mut g, &[3], &[1.0, -0.5, 2.0], size);
    let (mean, variance) =
        (constant(&mut g, &[3], &[0.1; 3], 1.0), constant(&mut g, &[3], &[1.0, 2.0, 0.5], 1.0));
    let normed = g.add(Op::BatchNorm { epsilon: 1e-5 }, &[hidden, scale, bias, mean, variance]).unwrap();
    let rectified = g.unary(Unary::Relu, normed).unwrap();
    let w = constant(&mut g, &[3, 2], &[1.0, 2.0, -3.0, 1.0, 0.5, -1.0], size);
    let last = constant(&mut g, &[2], &[0.3, 0.2], 1.0);
    let scores = g.add(product, &[rectified, w, last]).unwrap();
    g.output("scores", scores);
    g
}

#[test]
fn relevance_is_conserved_where_sums_are_less_than_the_rounding_error_of_their_biases() {
    let cpu = Cpu::default().threads(1).precision(Precision::F64);
    let x = Tensor::new([1, 2], vec![0.7f64, -0.3]).unwrap();
    for size in [1.0, 1e-5, 1e-9, 1e-20, 1e-37] {
        let found = audit(&network(size), &x, &cpu).unwrap();
        assert!(found.relevance_loss.abs() < 1e-9, "weights of {size:e}: {:e} lost", found.relevance_loss);
    }
}
