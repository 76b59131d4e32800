//! Smooth activations and their slopes, for nodes that are treated as locally affine.

use monosplit_graph::op::Unary;

pub(crate) fn value(function: Unary, z: f64) -> f64 {
    match function {
        Unary::Tanh => z.tanh(),
        Unary::Sigmoid => 1.0 / (1.0 + (-z).exp()),
        Unary::Softplus => (1.0 + z.exp()).ln(),
        Unary::Silu => z / (1.0 + (-z).exp()),
        Unary::Sqrt => z.sqrt(),
        Unary::Reciprocal => 1.0 / z,
        other => panic!("the generator makes no {}", other.name()),
    }
}

pub(crate) fn slope(function: Unary, z: f64) -> f64 {
    let sigmoid = 1.0 / (1.0 + (-z).exp());
    match function {
        Unary::Tanh => 1.0 - z.tanh() * z.tanh(),
        Unary::Sigmoid => sigmoid * (1.0 - sigmoid),
        Unary::Softplus => sigmoid,
        Unary::Silu => sigmoid * (1.0 + z * (1.0 - sigmoid)),
        Unary::Sqrt => 0.5 / z.sqrt(),
        Unary::Reciprocal => -1.0 / (z * z),
        other => panic!("the generator makes no {}", other.name()),
    }
}
