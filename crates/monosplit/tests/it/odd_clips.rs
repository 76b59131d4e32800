//! Issue 35: clips whose lower bound is above the upper one, or is no number.

use monosplit::engine::{Cpu, Engine, Precision};
use monosplit::explain::methods::Gradient;
use monosplit::explain::{Class, Explainer, MapRequest, Settings, audit, audit_pair};
use monosplit::graph::op::Unary;
use monosplit::graph::{Graph, Kind, Op, Shape, Tensor};

/// `W·clip(V·x)`
fn network(min: f64, max: f64) -> Graph {
    let mut g = Graph::new();
    let x = g.input("x", Shape::batched(&[2]), Kind::Float);
    let v = g.constant(Tensor::new([2, 3], vec![1f32, -2.0, 3.0, 2.0, 1.0, -1.0]).unwrap());
    let w = g.constant(Tensor::new([3, 2], vec![1f32, 2.0, -3.0, 1.0, 0.5, -1.0]).unwrap());
    let product = Op::MatMul { trans_a: false, trans_b: false };
    let hidden = g.add(product.clone(), &[x, v]).unwrap();
    let clipped = g.unary(Unary::Clip { min, max }, hidden).unwrap();
    let scores = g.add(product, &[clipped, w]).unwrap();
    g.output("scores", scores);
    g
}

#[test]
fn issue_35_odd_clips_have_the_gradient_and_the_split_of_what_they_compute() {
    let cpu = Cpu::default().threads(1).precision(Precision::F64);
    let x = Tensor::new([1, 2], vec![0.7f64, -0.3]).unwrap();
    for (min, max) in [(2.0, -2.0), (f64::NAN, 1.0), (-1.0, f64::NAN), (f64::NAN, f64::NAN), (-1.0, -1.0)] {
        let g = network(min, max);
        let program = cpu.compile(&g).unwrap();
        let score =
            |x: [f64; 2]| program.run(&[Tensor::new([1, 2], x.to_vec()).unwrap()]).unwrap()[0].to_f64()[0];
        let explainer = Explainer::new(&g, &[MapRequest::at_input(Gradient)], &cpu).unwrap();
        let found = explainer.explain(&x, &Class::Index(0), &Settings::default()).unwrap();
        let step = 1e-6;
        for (i, slope) in found.maps[0].values.to_f64().iter().enumerate() {
            let moved = |by: f64| {
                let mut at = [0.7, -0.3];
                at[i] += by;
                score(at)
            };
            let expected = (moved(step) - moved(-step)) / (2.0 * step);
            assert!((slope - expected).abs() < 1e-6, "clip to {min}, {max}: {slope}, expected {expected}");
        }
        let pair = audit_pair(&g, &x, 3, &cpu, |_, _| ()).unwrap();
        assert!(pair.difference < 1e-12 && pair.plain_difference < 1e-12, "{min}, {max}: {pair:?}");
        assert!(pair.decrease <= 1e-12 && pair.excess <= 1e-12, "{min}, {max}: {pair:?}");
        let found = audit(&g, &x, &cpu).unwrap();
        for layer in &found.layers {
            assert_eq!((layer.forward_error, layer.backward_error), (0.0, 0.0), "{min}, {max}: {layer:?}");
            assert!(layer.least_sensitivity >= 0.0, "{min}, {max}: {layer:?}");
        }
    }
}
