//! The texts of targets, and the masks and references of others. What is read is written and read again, and grafted behind a
//! network of three outputs, with what the target is given as constants and as inputs.

#![no_main]

use monosplit::engine::Cpu;
use monosplit::explain::{Mask, Parameters, Target};
use monosplit::graph::op::Reduction;
use monosplit::graph::{Graph, Kind, Shape, Tensor};
use monosplit::{Model, TargetChoice, TargetContext};

const WAYS: [Parameters; 2] = [Parameters::Constant, Parameters::Input];

fn network() -> Model {
    let mut graph = Graph::new();
    let maps = graph.input("x", Shape::batched(&[3, 4, 5]), Kind::Float);
    let cells = graph.reduced(Reduction::Mean, maps, &[3], false).expect("it has that axis");
    let scores = graph.reduced(Reduction::Mean, cells, &[2], false).expect("it has that axis");
    for (name, value) in [("scores", scores), ("cells", cells), ("maps", maps)] {
        graph.output(name, value);
    }
    Model::options().open_graph("a network", graph).expect("it is well-formed")
}

/// A target is refused in both ways or in neither, and the ways have as many scores.
fn graft(target: &Target, network: &Graph) {
    let grafted = WAYS.map(|parameters| target.graft(network, parameters));
    assert_eq!(grafted[0].is_ok(), grafted[1].is_ok(), "{target:?}");
    for grafted in grafted.into_iter().flatten() {
        let scores = &grafted.graph.node(grafted.graph.outputs()[0].node).shape;
        assert!(scores.rank() == 2 && scores.fixed_at(1).is_some(), "{target:?}: {scores}");
    }
}

/// A mask and a reference of these bytes, of a shape that the first of them say.
fn given(bytes: &[u8]) {
    let [rows, rank, rest @ ..] = bytes else { return };
    let columns = rest.len() / usize::from(*rows).max(1);
    let mut dims = vec![1; usize::from(rank % 4)];
    dims.extend([usize::from(*rows), columns]);
    let count = dims.iter().product::<usize>();
    let values: Vec<f32> = rest.iter().take(count).map(|&byte| f32::from(byte) - 128.0).collect();
    let Ok(values) = Tensor::new(dims, values) else { return };
    let (network, output) = (network(), || Some("maps".to_owned()));
    let class = Some(usize::from(rank >> 4)).filter(|class| *class < 8);
    let mask = Mask::Given(values.clone());
    graft(&Target::Region { output: output(), mask, class }, network.graph());
    graft(&Target::Similarity { output: output(), reference: values }, network.graph());
}

libfuzzer_sys::fuzz_target!(|text: &str| {
    given(text.as_bytes());
    let Ok(target) = text.parse::<TargetChoice>() else { return };
    let again: TargetChoice = target.to_string().parse().expect("what is written can be read");
    assert_eq!(again, target);
    // Files of the machine are none of its business.
    if target.file().is_none() {
        let engine = Cpu::default();
        for parameters in WAYS {
            let context = TargetContext { parameters, ..TargetContext::new(&engine) };
            let _ = network().with_target(&target, &context);
        }
    }
});
