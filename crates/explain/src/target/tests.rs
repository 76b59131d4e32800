use monosplit_engine::{Cpu, Engine, Precision};
use monosplit_graph::op::{Binary, Reduction, Unary, Window};
use monosplit_graph::{Op, Shape};

use super::*;
use crate::methods::{DeepShap, Gradient, Occlusion, SplitGrad, SplitLrp};
use crate::{Class, Explainer, MapRequest, Settings};

/// Two outputs: maps `[N, 3, 4, 5]`, and scores `[N, 3]` that are their means through a ReLU.
fn network() -> Graph {
    let mut g = Graph::new();
    let x = g.input("x", Shape::batched(&[2, 4, 5]), Kind::Float);
    let weights = (0..3 * 2 * 9).map(|i| (f64::from(i) * 1.7).sin()).collect::<Vec<_>>();
    let weights = g.constant(Tensor::new([3, 2, 3, 3], weights).unwrap());
    let window = Window { pad: vec![(1, 1); 2], ..Window::new([3, 3]) };
    let maps = g.add(Op::Conv { window, groups: 1 }, &[x, weights]).unwrap();
    let rectified = g.unary(Unary::Relu, maps).unwrap();
    let scores = g.reduced(Reduction::Mean, rectified, &[2, 3], false).unwrap();
    g.output("maps", maps);
    g.output("scores", scores);
    g
}

fn images(count: usize) -> Tensor {
    let values = (0..count * 40).map(|i| (i as f64 * 0.37).cos()).collect::<Vec<_>>();
    Tensor::new([count, 2, 4, 5], values).unwrap()
}

fn engine() -> Cpu {
    Cpu::default().precision(Precision::F64)
}

fn run(graph: &Graph, inputs: &[Tensor]) -> Vec<Vec<f64>> {
    let outputs = engine().compile(graph).unwrap().run(inputs).unwrap();
    outputs.iter().map(|output| output.to_f64().to_vec()).collect()
}

/// The scores of a target for two samples, sample by sample.
fn scores(target: &Target) -> Vec<Vec<f64>> {
    let grafted = target.graft(&network(), Parameters::Constant).unwrap();
    let constant = run(&grafted.graph, &[images(2)])[0].clone();
    assert!(grafted.parameters.is_empty());
    constant.chunks(constant.len() / 2).map(<[f64]>::to_vec).collect()
}

/// The maps `[sample][class][place]` and the scores `[sample][class]` of the network itself.
fn outputs() -> (Vec<Vec<Vec<f64>>>, Vec<Vec<f64>>) {
    let found = run(&network(), &[images(2)]);
    let maps = found[0].chunks(60).map(|sample| sample.chunks(20).map(<[f64]>::to_vec).collect()).collect();
    (maps, found[1].chunks(3).map(<[f64]>::to_vec).collect())
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-12 * a.abs().max(b.abs()).max(1.0)
}

fn order(scores: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    order
}

#[test]
fn a_contrast_is_the_difference_of_two_scores() {
    let (_, plain) = outputs();
    let contrast =
        |class, against| scores(&Target::Contrast { output: Some("scores".into()), class, against });
    for (sample, own) in plain.iter().enumerate() {
        let order = order(own);
        assert!(close(contrast(Some(2), Rival::Class(0))[sample][0], own[2] - own[0]));
        for (class, score) in own.iter().enumerate() {
            assert!(close(contrast(None, Rival::Class(1))[sample][class], score - own[1]));
            assert!(close(contrast(None, Rival::Top)[sample][class], score - own[order[0]]));
            assert!(close(contrast(None, Rival::Second)[sample][class], score - own[order[1]]));
        }
    }
}

#[test]
fn a_region_is_a_masked_sum_of_a_map() {
    let (maps, _) = outputs();
    let weights: Vec<f64> = (0..20).map(|place| f64::from(u8::from(place % 3 == 0)) * 0.5).collect();
    let given = Mask::Given(Tensor::new([4, 5], weights.clone()).unwrap());
    let region = |mask, class| scores(&Target::Region { output: None, mask, class });
    for (sample, maps) in maps.iter().enumerate() {
        let wins = |class: usize, place: usize| {
            (0..3).all(|other| other == class || maps[class][place] > maps[other][place])
        };
        for (class, map) in maps.iter().enumerate() {
            let inside: f64 = map.iter().zip(&weights).map(|(score, weight)| score * weight).sum();
            assert!(close(region(given.clone(), None)[sample][class], inside));
            assert!(close(region(given.clone(), Some(class))[sample][0], inside));
            let own: f64 = (0..20).filter(|&place| wins(class, place)).map(|place| map[place]).sum();
            assert!(close(region(Mask::Predicted, None)[sample][class], own));
            assert!(close(region(Mask::Predicted, Some(class))[sample][0], own));
        }
    }
}

#[test]
fn cells_and_summaries_are_those_of_the_output() {
    use AxisIndex::{At, Best, Range};
    let (maps, _) = outputs();
    let cell = |cells| scores(&Target::Cell { output: Some("maps".into()), cells });
    let summary = |summary| scores(&Target::Summary { output: None, summary });
    for (sample, maps) in maps.iter().enumerate() {
        assert!(close(cell(Cells::Each(vec![At(1), At(-1), At(2)]))[sample][0], maps[1][17]));
        let rows: f64 = maps[2][5..15].iter().sum();
        assert!(close(
            cell(Cells::Each(vec![At(2), Range(Some(1), Some(3)), Range(None, None)]))[sample][0],
            rows
        ));
        assert_eq!(cell(Cells::BestOf(1))[sample], maps[1]);
        let columns: Vec<f64> = (0..4).map(|row| maps[0][row * 5 + 3]).collect();
        assert_eq!(cell(Cells::Each(vec![At(0), Best, At(3)]))[sample], columns);
        let all: Vec<f64> = maps.concat();
        assert!(close(summary(Summary::Sum)[sample][0], all.iter().sum()));
        assert!(close(summary(Summary::Mean)[sample][0], all.iter().sum::<f64>() / 60.0));
        assert!(close(summary(Summary::Norm)[sample][0], all.iter().map(|v| v * v).sum::<f64>().sqrt()));
        let reference = Tensor::vector((0..60).map(|i| f64::from(i).sin()).collect::<Vec<_>>());
        let length = |v: &[f64]| v.iter().map(|v| v * v).sum::<f64>().sqrt();
        let r = reference.to_f64();
        let dot: f64 = all.iter().zip(r.iter()).map(|(a, b)| a * b).sum();
        let cosine = scores(&Target::Similarity { output: None, reference: reference.clone() });
        assert!(close(cosine[sample][0], dot / length(&all) / length(&r)));
    }
}

#[test]
fn a_head_reads_outputs_by_name() {
    let mut head = Graph::new();
    let scores = head.input("scores", Shape::batched(&[3]), Kind::Float);
    let maps = head.input("maps", Shape::batched(&[3, 4, 5]), Kind::Float);
    let total = head.reduced(Reduction::Sum, maps, &[1, 2, 3], false).unwrap();
    let best = head.reduced(Reduction::Max, scores, &[1], false).unwrap();
    let y = head.minus(total, best).unwrap();
    head.output("y", y);
    let (maps, plain) = outputs();
    let found = self::scores(&Target::Head { graph: Box::new(head) });
    for (sample, maps) in maps.iter().enumerate() {
        let total: f64 = maps.concat().iter().sum();
        assert!(close(found[sample][0], total - plain[sample][order(&plain[sample])[0]]));
    }
    let mut wide = Graph::new();
    let input = wide.input("anything", Shape::batched(&[3, 4, 5]), Kind::Float);
    wide.output("y", input);
    let refused = |graph: Graph| {
        Target::Head { graph: Box::new(graph) }
            .graft(&network(), Parameters::Constant)
            .unwrap_err()
            .to_string()
    };
    assert!(refused(wide).contains("one number for each"));
    let mut other = Graph::new();
    let input = other.input("anything", Shape::batched(&[7]), Kind::Float);
    other.output("y", input);
    assert!(refused(other).contains("[N, 7]"));
}

#[test]
fn parameters_may_be_inputs_with_the_same_scores() {
    let mask = Tensor::new([4, 5], (0..20).map(|i| f64::from(i % 2)).collect::<Vec<_>>()).unwrap();
    let reference = Tensor::vector((0..60).map(|i| f64::from(i).cos()).collect::<Vec<_>>());
    let targets = [
        Target::Region { output: None, mask: Mask::Given(mask), class: None },
        Target::Similarity { output: None, reference },
        Target::Contrast { output: Some("scores".into()), class: None, against: Rival::Class(2) },
        Target::Cell { output: None, cells: Cells::BestOf(1) },
    ];
    for target in targets {
        let grafted = target.graft(&network(), Parameters::Input).unwrap();
        let [(name, value)] = &grafted.parameters[..] else { panic!("one parameter") };
        assert!(parameter_inputs::ALL.contains(name));
        let found = run(&grafted.graph, &[images(2), value.clone()]);
        assert_eq!(found[0], scores(&target).concat(), "{name}");
    }
}

/// Indices that are an input are those of the target, and the nearest where there is no such element.
#[test]
fn indices_that_are_inputs_are_taken_as_constants_are() {
    use AxisIndex::{At, Best, Range};
    let cell = |indices: Vec<AxisIndex>| Target::Cell { output: None, cells: Cells::Each(indices) };
    let given = |target: &Target, indices: &[i64]| {
        let grafted = target.graft(&network(), Parameters::Input).unwrap();
        assert_eq!(grafted.parameters[0].0, parameter_inputs::CELL);
        let indices = Tensor::new([1, indices.len()], indices.to_vec()).unwrap();
        let exist = grafted.graph.nodes().find(|(_, node)| node.label.tensor == TARGET_IN_RANGE).unwrap().0;
        let mut graph = grafted.graph.clone();
        let exist = graph.add(Op::Cast { to: Kind::Float }, &[exist]).unwrap();
        graph.output("exist", exist);
        let found = run(&graph, &[images(2), indices]);
        (found[0].clone(), found[1] == [1.0, 1.0])
    };
    let target = cell(vec![At(0), At(0), At(0)]);
    for (indices, taken, exist) in [
        ([2, 3, 4], [2, 3, 4], true),
        ([-3, 1, -1], [0, 1, 4], true),
        ([3, 0, 0], [2, 0, 0], false),
        ([0, -9, 2], [0, 0, 2], false),
    ] {
        let constant = scores(&cell(taken.map(At).to_vec())).concat();
        assert_eq!(given(&target, &indices), (constant, exist), "{indices:?}");
    }
    let with = |row| cell(vec![Best, At(row), Range(Some(1), Some(3))]);
    assert_eq!(given(&with(0), &[2]), (scores(&with(2)).concat(), true));
}

/// Outputs that are masked with -inf.
#[test]
fn an_infinite_element_beside_the_chosen_one_does_not_change_it() {
    let mut network = network();
    let scores = network.outputs()[1].node;
    let kept = network.constant(Tensor::new([1, 3], vec![1i64, 0, 1]).unwrap());
    let zero = network.constant(Tensor::scalar(0i64));
    let is_masked = network.binary(Binary::Equal, kept, zero).unwrap();
    let least = network.number(f64::NEG_INFINITY);
    let masked = network.select(is_masked, least, scores).unwrap();
    network.output("masked", masked);
    let output = || Some("masked".to_owned());
    let targets = [
        Target::Cell { output: output(), cells: Cells::Each(vec![AxisIndex::At(2)]) },
        Target::Contrast { output: output(), class: Some(0), against: Rival::Class(2) },
    ];
    for target in targets {
        let graft = |parameters| target.graft(&network, parameters).unwrap();
        let constant = run(&graft(Parameters::Constant).graph, &[images(2)])[0].clone();
        let grafted = graft(Parameters::Input);
        let given = &run(&grafted.graph, &[images(2), grafted.parameters[0].1.clone()])[0];
        assert!(constant.iter().all(|score| score.is_finite()));
        // Of a contrast all classes are scores: the explained one is chosen where the file is used.
        let given = given.chunks(given.len() / 2).map(|scores| scores[0]).collect::<Vec<_>>();
        assert_eq!(given, constant);
    }
}

#[test]
fn what_does_not_fit_is_refused_with_what_does() {
    let refused = |target: Target| target.graft(&network(), Parameters::Constant).unwrap_err().to_string();
    let mask = || Mask::Given(Tensor::new([5, 4], vec![1f32; 20]).unwrap());
    let scores = || Some("scores".to_owned());
    for (target, words) in [
        (Target::Summary { output: Some("none".into()), summary: Summary::Sum }, "'maps', 'scores'"),
        (Target::Region { output: None, mask: mask(), class: None }, "[4, 5]"),
        (Target::Region { output: scores(), mask: Mask::Predicted, class: None }, "cell:scores[0]"),
        (Target::Region { output: None, mask: Mask::Predicted, class: Some(3) }, "0 to 2"),
        (Target::Contrast { output: None, class: None, against: Rival::Top }, "at least two classes"),
        (Target::Contrast { output: scores(), class: None, against: Rival::Class(3) }, "0 to 2"),
        (Target::Similarity { output: scores(), reference: Tensor::vector(vec![1.0; 4]) }, "4 numbers"),
    ] {
        let said = refused(target);
        assert!(said.contains(words) && said.lines().count() == 1, "{said}");
    }
}

/// Perturbed copies are measured by the region in which the network finds the class in the sample as it is.
#[test]
fn a_predicted_region_is_held_while_the_image_is_perturbed() {
    let predicted = Target::Region { output: None, mask: Mask::Predicted, class: Some(1) };
    let network = network();
    let sample = images(1);
    let free = predicted.graft(&network, Parameters::Constant).unwrap().graph;
    let fixed = settled(&free, &sample, &engine()).unwrap();
    assert_eq!(fixed.inputs().len(), 1);
    let requests = || {
        [
            MapRequest::at_input(Occlusion {
                window: Some(vec![2, 2]),
                stride: Some(vec![1, 1]),
                ..Occlusion::default()
            }),
            MapRequest::at_input(Gradient),
        ]
    };
    let maps = |graph: &Graph| {
        let explainer = Explainer::new(graph, &requests(), &engine()).unwrap();
        let found = explainer.explain(&sample, &Class::Top, &Settings::default()).unwrap();
        found.maps.iter().map(|map| map.values.to_f64().to_vec()).collect::<Vec<_>>()
    };
    assert_eq!(maps(&free), maps(&fixed));
    // The region of a perturbed image is another, so that holding it matters.
    let mut perturbed = sample.to_f64().to_vec();
    perturbed[..20].fill(0.0);
    let perturbed = Tensor::new([1, 2, 4, 5], perturbed).unwrap();
    assert_ne!(run(&free, std::slice::from_ref(&perturbed)), run(&fixed, &[perturbed]));
}

/// Numbers, a class that is named and the same class found by itself, explained for several samples at once and one by one.
#[test]
fn a_class_that_is_named_has_the_maps_of_the_same_class_when_it_is_chosen() {
    let scores = || Some("scores".to_owned());
    let (maps, plain) = outputs();
    let found = |class: usize| {
        let wins = |place: &usize| (0..3).all(|other| maps[0][class][*place] >= maps[0][other][*place]);
        (0..20).filter(wins).map(|place| maps[0][class][place]).sum::<f64>()
    };
    let region = order(&(0..3).map(found).collect::<Vec<_>>())[0];
    let best = order(&plain[0]);
    let predicted = |class| Target::Region { output: None, mask: Mask::Predicted, class };
    let contrast = |class, against| Target::Contrast { output: scores(), class, against };
    let pairs = [
        (predicted(None), predicted(Some(region))),
        (contrast(None, Rival::Second), contrast(Some(best[0]), Rival::Class(best[1]))),
    ];
    let requests = || {
        [
            MapRequest::at_input(SplitGrad::default()),
            MapRequest::at_input(SplitLrp::default()),
            MapRequest::at_input(DeepShap::default()),
        ]
    };
    for (chosen, named) in pairs {
        let maps = |target: &Target, images: &Tensor| {
            let graph = target.graft(&network(), Parameters::Constant).unwrap().graph;
            let explainer = Explainer::new(&graph, &requests(), &engine()).unwrap();
            // The stabiliser acts.
            let settings = Settings { limit: 0.01, ..Settings::default() };
            let found = explainer.explain(images, &Class::Top, &settings).unwrap();
            found.maps.iter().map(|map| map.values.to_f64()[..20].to_vec()).collect::<Vec<_>>()
        };
        let (all, alone) = (maps(&chosen, &images(2)), maps(&chosen, &images(1)));
        let by_name = maps(&named, &images(1));
        assert!(alone.iter().flatten().any(|&value| value != 0.0));
        // ε of SplitLRP, the second, acts at the sum that chooses a rival.
        for ((map, (all, named)), bound) in
            alone.iter().zip(all.iter().zip(&by_name)).zip([1e-12, 1e-3, 1e-12])
        {
            let largest = map.iter().fold(0f64, |most, value| most.max(value.abs()));
            let near = |a: &f64, b: &f64, within: f64| (a - b).abs() <= within * largest;
            assert!(map.iter().zip(all).all(|(a, b)| near(a, b, 1e-12)), "{chosen:?}: {map:?} {all:?}");
            assert!(map.iter().zip(named).all(|(a, b)| near(a, b, bound)), "{chosen:?}: {map:?} {named:?}");
        }
    }
}

#[test]
fn the_second_best_class_is_the_one_after_the_best() {
    let mut g = network();
    let scores = g.outputs()[1].clone();
    g.set_outputs(vec![scores]);
    let (_, plain) = outputs();
    let explainer = Explainer::new(&g, &[MapRequest::at_input(Gradient)], &engine()).unwrap();
    let explain = |class: &Class| explainer.explain(&images(2), class, &Settings::default()).unwrap();
    let second: Vec<usize> = plain.iter().map(|scores| order(scores)[1]).collect();
    let found = explain(&Class::Second);
    assert_eq!(found.classes, second);
    assert_eq!(found.maps[0].values, explain(&Class::PerSample(second)).maps[0].values);
}

#[test]
fn a_class_that_is_found_nowhere_is_not_the_one_explained() {
    // All maps lie far below zero; the first class is nowhere the largest, so that its sum is one of nothing.
    let mut g = Graph::new();
    let x = g.input("x", Shape::batched(&[3, 2, 2]), Kind::Float);
    let shift = g.number(-10.0);
    let maps = g.plus(x, shift).unwrap();
    g.output("maps", maps);
    let target = Target::Region { output: None, mask: Mask::Predicted, class: None };
    let grafted = target.graft(&g, Parameters::Constant).unwrap();
    let x =
        Tensor::new([1, 3, 2, 2], vec![0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.5, 1.0]).unwrap();
    let scores = run(&grafted.graph, &[x])[0].clone();
    assert_eq!((scores[1], scores[2]), (-27.0, -9.0));
    assert!(order(&scores) == [2, 1, 0], "{scores:?}");
}
