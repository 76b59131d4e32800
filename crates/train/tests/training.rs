//! Properties of whole trainings: that they can be interrupted anywhere, that threads change nothing, and that networks
//! keep what their restriction promises.

use std::path::PathBuf;

use monosplit_engine::{Cpu, Engine, Precision, Program};
use monosplit_graph::onnx::{self, ExportOptions, ImportOptions};
use monosplit_graph::{Graph, Noise, Tensor};
use monosplit_train::{
    Architecture, Positivity, PropertyCheck, Restriction, Samples, Trainer, TrainingData, TrainingSettings,
    UpdateRule,
};

const LAYERS: &str = "conv 8 3; norm; maxout 2; pool 2; dense 32; norm; maxout 2; dense 16; maxout 2; scores";

/// Three classes of 6×6 pictures: a bright row, a bright column, a bright corner, under noise.
fn pictures() -> TrainingData {
    let noise = Noise::new(11);
    let draw = |sample: usize| {
        let class = sample % 3;
        let place = (noise.stream("place").uniform(sample as u64) * 6.0) as usize;
        (0..36).map(move |i| {
            let (row, column) = (i / 6, i % 6);
            let bright = [row == place, column == place, row < 3 && column < 3][class];
            let level = noise.numbered(sample as u64).uniform(i as u64) * 100.0;
            level as u8 + if bright { 150 } else { 0 }
        })
    };
    let part = |samples: std::ops::Range<usize>| {
        let labels = samples.clone().map(|sample| (sample % 3) as u32).collect();
        Samples::new([1, 6, 6], samples.flat_map(draw).collect(), labels).unwrap()
    };
    TrainingData {
        train: part(0..300),
        test: part(300..420),
        classes: ["row", "column", "corner"].map(String::from).into(),
    }
}

fn settings(restriction: Restriction) -> TrainingSettings {
    let mut settings = TrainingSettings::new(LAYERS.parse().unwrap(), restriction);
    (settings.batch, settings.epochs, settings.rate, settings.seed) = (20, 3, 0.01, 5);
    settings
}

fn finished(mut trainer: Trainer<'_>) -> Vec<u8> {
    while !trainer.is_finished() {
        trainer.advance().unwrap();
    }
    onnx::write(&trainer.network().unwrap(), &ExportOptions::default()).unwrap()
}

fn checkpoint(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("monosplit-training-{name}-{}.safetensors", std::process::id()))
}

#[test]
fn a_training_interrupted_anywhere_ends_with_the_same_bits() {
    let data = pictures();
    let file = checkpoint("resume");
    for patience in [None, Some(2)] {
        let mut settings = settings(Restriction::DifferenceConvexInverted);
        settings.patience = patience;
        let whole = finished(Trainer::new(settings.clone(), &data, 2).unwrap());
        for steps in [1, 7, 13, 15, 16, 31] {
            let mut first = Trainer::new(settings.clone(), &data, 1).unwrap();
            for _ in 0..steps {
                first.advance().unwrap();
            }
            first.save(&file).unwrap();
            // What is done after the checkpoint is lost with the process.
            first.advance().unwrap();
            drop(first);
            let mut second = Trainer::new(settings.clone(), &data, 2).unwrap();
            second.resume(&file).unwrap();
            assert!(finished(second) == whole, "interrupted after {steps} steps");
        }
    }
    std::fs::remove_file(file).unwrap();
}

/// The same steps whether the processor moves parameters in place or the optimiser is part of the graph; there an
/// interrupted training ends with the same bits, too.
#[test]
fn a_state_that_stays_with_the_engine_comes_to_the_same() {
    let data = pictures();
    let file = checkpoint("resident");
    for rule in UpdateRule::ALL {
        for positivity in Positivity::ALL {
            let mut settings = settings(Restriction::DifferenceConvexInverted);
            (settings.optimiser.rule, settings.positivity) = (rule, positivity);
            let resident =
                || Trainer::resident(settings.clone(), &data, Box::new(Cpu::default().threads(2))).unwrap();
            let mut here = Trainer::new(settings.clone(), &data, 2).unwrap();
            let mut there = resident();
            for _ in 0..15 {
                here.advance().unwrap();
                there.advance().unwrap();
            }
            let (a, b) = (here.epochs()[0], there.epochs()[0]);
            assert!((a.train_loss - b.train_loss).abs() < 1e-4 * a.train_loss, "{rule:?} {positivity:?}");
            assert!((a.test_loss - b.test_loss).abs() < 1e-3 * a.test_loss, "{rule:?} {positivity:?}");
            there.advance().unwrap();
            there.save(&file).unwrap();
            let mut other = resident();
            other.resume(&file).unwrap();
            assert!(finished(other) == finished(there), "{rule:?} {positivity:?}");
        }
    }
    std::fs::remove_file(file).unwrap();
}

#[test]
fn a_checkpoint_of_other_settings_and_a_truncated_one_are_refused() {
    let data = pictures();
    let file = checkpoint("refused");
    let mut trainer = Trainer::new(settings(Restriction::InputConvex), &data, 1).unwrap();
    trainer.advance().unwrap();
    trainer.save(&file).unwrap();
    let mut other = Trainer::new(settings(Restriction::Monotone), &data, 1).unwrap();
    assert!(other.resume(&file).unwrap_err().to_string().contains("restriction = IC"));
    let mut fewer = pictures();
    fewer.train = fewer.train.subset(20, Noise::new(1));
    let mut other = Trainer::new(settings(Restriction::InputConvex), &fewer, 1).unwrap();
    assert!(other.resume(&file).unwrap_err().to_string().contains("use the same data"));
    let mut labels = data.train.labels().to_vec();
    labels.swap(0, 1);
    let pixels = (0..labels.len()).flat_map(|index| data.train.picture(index).to_vec()).collect();
    let train = Samples::new(data.train.shape(), pixels, labels).unwrap();
    let swapped = TrainingData { train, ..pictures() };
    let mut other = Trainer::new(settings(Restriction::InputConvex), &swapped, 1).unwrap();
    assert!(other.resume(&file).unwrap_err().to_string().contains("use the same data"));
    let bytes = std::fs::read(&file).unwrap();
    for length in [0, 4, 100, bytes.len() / 2, bytes.len() - 1] {
        std::fs::write(&file, &bytes[..length]).unwrap();
        assert!(trainer.resume(&file).is_err(), "{length} bytes");
    }
    // Bits of the numbers behind the header, spread over all of them.
    let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    for at in (header..bytes.len()).step_by((bytes.len() - header).div_ceil(50)) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        std::fs::write(&file, flipped).unwrap();
        let said = trainer.resume(&file).unwrap_err().to_string();
        assert!(said.contains("does not have its checksum"), "byte {at}: {said}");
    }
    std::fs::write(&file, bytes).unwrap();
    assert!(trainer.resume(&file).is_ok());
    std::fs::remove_file(file).unwrap();
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let data = pictures();
    let trained =
        |threads| finished(Trainer::new(settings(Restriction::DifferenceMonotone), &data, threads).unwrap());
    let one = trained(1);
    assert!(trained(2) == one && trained(3) == one);
}

/// The scores of each stream of a network as a program in double precision.
fn streams(network: &Graph) -> Vec<Box<dyn Program>> {
    let names = network.metadata().iter().find(|(key, _)| key == monosplit_train::STREAMS);
    let named =
        |name: &str| network.nodes().find(|(_, node)| node.label.tensor == name).map(|(id, _)| id).unwrap();
    let ends = match names {
        Some((_, names)) => names.split(' ').map(named).collect(),
        None => vec![network.outputs()[0].node],
    };
    let engine = Cpu::default().precision(Precision::F64);
    let compiled = ends.into_iter().map(|id| {
        let mut stream = network.clone();
        stream.set_outputs(Vec::new());
        stream.output("scores", id);
        engine.compile(&stream).unwrap()
    });
    compiled.collect()
}

#[test]
fn every_restriction_learns_and_keeps_its_promise_in_the_file_it_writes() {
    let data = pictures();
    for restriction in Restriction::ALL {
        let mut settings = settings(restriction);
        settings.epochs = 12;
        let mut trainer = Trainer::new(settings, &data, 0).unwrap();
        while !trainer.is_finished() {
            trainer.advance().unwrap();
        }
        let accuracy = trainer.epochs().last().unwrap().test_accuracy;
        assert!(accuracy > 0.7, "{restriction}: {accuracy}");
        let bytes = onnx::write(&trainer.network().unwrap(), &ExportOptions::default()).unwrap();
        let network = onnx::read(&bytes, None, &ImportOptions::default()).unwrap();
        check_weights(&network, restriction);
        for (index, stream) in streams(&network).iter().enumerate() {
            let falls = restriction.is_inverted() && index == 1;
            check_stream(&**stream, restriction, if falls { -1.0 } else { 1.0 });
        }
    }
}

#[test]
fn a_network_that_begins_with_a_maximum_or_a_norm_keeps_its_promise() {
    let data = pictures();
    let engine = Cpu::default();
    for layers in
        ["pool 2; dense 12; norm; maxout 2; scores", "relu; conv 4 3; scores", "norm; dense 8; relu; scores"]
    {
        for restriction in [Restriction::InputConvex, Restriction::Monotone, Restriction::DifferenceConvex] {
            let architecture: Architecture = layers.parse().unwrap();
            let settings = TrainingSettings {
                rate: 1e-2,
                epochs: 6,
                batch: 10,
                ..TrainingSettings::new(architecture, restriction)
            };
            let mut trainer = Trainer::new(settings, &data, 0).unwrap();
            while !trainer.is_finished() {
                trainer.advance().unwrap();
            }
            let network = trainer.network().unwrap();
            for stream in streams(&network) {
                check_stream(&*stream, restriction, 1.0);
            }
            let promise = PropertyCheck::check(&network, &data.test.images(&[0]).unwrap(), 3, &engine)
                .unwrap()
                .unwrap();
            let (least, name) = promise.smallest.unwrap();
            assert!(least >= 0.0, "{layers} {restriction}: {least} of {name}");
        }
    }
}

/// All but the weights of an input-convex network's first layer, and the statistics, are not negative.
fn check_weights(network: &Graph, restriction: Restriction) {
    for (id, node) in network.nodes() {
        let Some(tensor) = network.constant_value(id) else { continue };
        let name = &node.label.tensor;
        let free = name.ends_with("conv1.weight") && !restriction.is_monotone();
        if restriction.is_convex() && !free && !name.ends_with(".mean") && tensor.len() > 1 {
            let least = tensor.to_f64().iter().copied().fold(f64::INFINITY, f64::min);
            assert!(least >= 0.0, "{restriction} {name}: {least}");
        }
    }
}

/// Convexity at midpoints and monotonicity along `sign`, on random inputs that are partly outside of what was trained on.
fn check_stream(stream: &dyn Program, restriction: Restriction, sign: f64) {
    let run = |x: &[f64]| stream.run(&[Tensor::new([1, 1, 6, 6], x.to_vec()).unwrap()]).unwrap()[0].to_f64();
    let noise = Noise::new(2).stream("probe");
    for trial in 0..50 {
        let draw = |which: u64| {
            let noise = noise.numbered(4 * trial + which);
            (0..36).map(|i| noise.uniform(i) * 3.0 - 1.0).collect::<Vec<f64>>()
        };
        let (a, b) = (draw(0), draw(1));
        let middle: Vec<f64> = a.iter().zip(&b).map(|(a, b)| (a + b) / 2.0).collect();
        let larger: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a + sign * (b + 1.0)).collect();
        let (fa, fb, fm, fl) = (run(&a), run(&b), run(&middle), run(&larger));
        for class in 0..3 {
            if restriction.is_convex() {
                assert!(fm[class] <= (fa[class] + fb[class]) / 2.0 + 1e-9, "{restriction} is not convex");
            }
            if restriction.is_monotone() {
                assert!(fl[class] >= fa[class] - 1e-9, "{restriction} is not monotone");
            }
        }
    }
}

#[test]
fn every_transform_trains() {
    let data = pictures();
    for positivity in Positivity::ALL {
        let mut settings = settings(Restriction::DifferenceConvexInverted);
        (settings.positivity, settings.epochs) = (positivity, 8);
        let mut trainer = Trainer::new(settings, &data, 0).unwrap();
        while !trainer.is_finished() {
            trainer.advance().unwrap();
        }
        let accuracy = trainer.epochs().last().unwrap().test_accuracy;
        assert!(accuracy > 0.6, "{positivity:?}: {accuracy}");
    }
}
