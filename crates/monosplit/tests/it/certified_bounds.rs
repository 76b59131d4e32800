//! Certificates against margins that are computed by hand, and against inputs of the box.

use monosplit::engine::Cpu;
use monosplit::graph::op::{Binary, Op};
use monosplit::graph::{Graph, Kind, Label, NodeId, Noise, Shape, Tensor};
use monosplit::{CertifiedBounds, InputBox, Model};

fn product(g: &mut Graph, x: NodeId, weights: Tensor) -> NodeId {
    let weights = g.constant(weights);
    g.add(Op::MatMul { trans_a: false, trans_b: false }, &[x, weights]).unwrap()
}

fn random(shape: [usize; 2], seed: u64) -> Tensor {
    let noise = Noise::new(seed);
    let count = (shape[0] * shape[1]) as u64;
    Tensor::new(shape, (0..count).map(|i| noise.gaussian(i) as f32).collect::<Vec<f32>>()).unwrap()
}

fn bounds(graph: Graph) -> CertifiedBounds {
    Model::options().open_graph("made here", graph).unwrap().certified_bounds(&Cpu::default()).unwrap()
}

/// Of 20 classes the last has the least margin, and is looked at last: `k` is behind class 0 by `k/100` and gains `k` times the
/// sum of all elements.
fn twenty_classes() -> Graph {
    let mut g = Graph::new();
    let x = g.input("x", Shape::batched(&[3, 4, 4]), Kind::Float);
    let flat = g.reshaped(x, Shape::batched(&[48])).unwrap();
    let weights = (0..48).flat_map(|_| (0..20).map(|k| k as f32)).collect::<Vec<f32>>();
    let gains = product(&mut g, flat, Tensor::new([48, 20], weights).unwrap());
    let behind = g.constant(Tensor::vector((0..20).map(|k| k as f32 / 100.0).collect::<Vec<f32>>()));
    let scores = g.minus(gains, behind).unwrap();
    g.output("scores", scores);
    g
}

#[test]
fn the_margin_of_a_patch_is_that_of_the_nearest_of_all_classes() {
    let bounds = bounds(twenty_classes());
    let image = Tensor::new([1, 3, 4, 4], vec![0f32; 48]).unwrap();
    let near = InputBox { epsilon: 0.1, ranges: None };
    let patches = bounds.patches(&image, &near, (2, Some(0)), |_, _| ()).unwrap();
    // A patch has 12 elements.
    let least = (1..20).map(|k| f64::from(k) * (0.01 - 12.0 * 0.1)).fold(f64::INFINITY, f64::min);
    assert_eq!((patches.grid, patches.certified.contains(&true)), ((2, 2), false));
    assert!(patches.margins.iter().all(|margin| *margin <= least + 1e-6), "{:?}", patches.margins);
    assert!(patches.margins.iter().all(|margin| least - margin < 1e-4), "{:?}", patches.margins);
}

#[test]
fn a_channel_without_a_range_has_no_share_of_it() {
    let bounds = bounds(twenty_classes());
    let image = Tensor::new([1, 3, 4, 4], vec![0f32; 48]).unwrap();
    let near = InputBox { epsilon: 0.1, ranges: Some(vec![(0.0, 1.0)]) };
    let error = bounds.certify(&image, &near, None).unwrap_err().to_string();
    assert!(error.contains("range of a channel"), "{error}");
}

/// `first − second` of two networks with one hidden layer each, and what the file says of it.
fn difference(streams: &str) -> Graph {
    let mut g = Graph::new();
    let x = g.input("x", Shape::batched(&[6]), Kind::Float);
    let mut branch = |name: &str, seed: u64| {
        let hidden = product(&mut g, x, random([6, 8], seed));
        let hidden = g.rectified(hidden).unwrap();
        let value = product(&mut g, hidden, random([8, 4], seed + 1));
        *g.label_mut(value) = Label::named(name);
        value
    };
    let (first, second) = (branch("first", 1), branch("second", 3));
    let scores = g.add_named(Label::named("scores"), Op::Binary(Binary::Sub), &[first, second]).unwrap();
    g.output("scores", scores);
    g.set_metadata("monosplit.streams", streams);
    g
}

#[test]
fn a_file_is_believed_only_where_its_scores_are_the_difference_it_names() {
    let input = Tensor::new([1, 6], vec![0.3f32, -0.2, 0.5, 0.1, -0.7, 0.4]).unwrap();
    let near = InputBox { epsilon: 0.05, ranges: None };
    for (streams, is_so) in [
        ("first second", true),
        ("second first", false),
        ("first first", false),
        ("x second", false),
        ("first none", false),
        ("first", false),
        ("first second second", false),
    ] {
        let bounds = bounds(difference(streams));
        assert_eq!(bounds.is_difference(), is_so, "{streams}");
        let certificate = bounds.certify(&input, &near, None).unwrap();
        assert!(certificate.streams.is_some(), "{streams}");
        let checked = bounds.check_samples(&input, &near, &certificate, 500).unwrap();
        assert_eq!((checked.tried, checked.violations), (500, 0), "{streams}");
    }
}
