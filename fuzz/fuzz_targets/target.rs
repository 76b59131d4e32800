//! The texts of targets. What is read is written and read again, and grafted behind a network of three outputs.

#![no_main]

use monosplit::engine::Cpu;
use monosplit::graph::op::Reduction;
use monosplit::graph::{Graph, Kind, Shape};
use monosplit::{Model, TargetChoice, TargetContext};

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

libfuzzer_sys::fuzz_target!(|text: &str| {
    let Ok(target) = text.parse::<TargetChoice>() else { return };
    let again: TargetChoice = target.to_string().parse().expect("what is written can be read");
    assert_eq!(again, target);
    // Files of the machine are none of its business.
    if target.file().is_none() {
        let _ = network().with_target(&target, &TargetContext::new(&Cpu::default()));
    }
});
