//! A node whose operands are known can be computed in two places: by the importer, as shape arithmetic, and by an engine, when
//! constants are folded. Every case that the importer computes, with its operands known, is run by an engine too, with operands that
//! are fed: the elements are the same, and they are ONNX Runtime's.

use std::collections::BTreeSet;

use monosplit_engine::{Cpu, Engine, Precision};
use monosplit_graph::onnx::{self, ImportOptions};
use monosplit_graph::{Graph, Op, Tensor};

use crate::operators::{DECIDED, Field, Fields, cases, difference, values};

/// Operators whose result, where it is known, is a weight that keeps the single precision of the file.
const ROUNDED: [&str; 1] = ["DequantizeLinear"];

/// A protocol buffer field of the bytes `content`.
fn message(key: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![key];
    let mut length = content.len();
    while length >= 0x80 {
        bytes.push(length as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.extend_from_slice(content);
    bytes
}

/// The same file with the values to feed as initializers that have the names of the inputs.
fn with_known_inputs(file: &[u8]) -> Vec<u8> {
    let (mut fields, mut known) = (Fields(file), Vec::new());
    while let before = fields.0
        && let Some((number, field)) = fields.next()
    {
        match (number, field) {
            (7, Field::Bytes(graph)) => known.extend(message(0x3a, &[graph, &initializers(graph)].concat())),
            _ => known.extend(&before[..before.len() - fields.0.len()]),
        }
    }
    known
}

/// Initializers `x0`, `x1`, … of the values that the graph holds as `__x0`, `__x1`, … Of a name that a message gives twice, the
/// last counts.
fn initializers(graph: &[u8]) -> Vec<u8> {
    let mut initializers = Vec::new();
    for (_, tensor) in Fields(graph).filter(|(number, _)| *number == 5) {
        let Field::Bytes(tensor) = tensor else { continue };
        let name = Fields(tensor).find_map(|field| match field {
            (8, Field::Bytes(name)) => name.strip_prefix(b"__x"),
            _ => None,
        });
        if let Some(number) = name {
            let name = message(0x42, &[b"x", number].concat());
            initializers.extend(message(0x2a, &[tensor, &name].concat()));
        }
    }
    initializers
}

/// The outputs, if the importer computed all of them.
fn computed_by_importer(graph: &Graph) -> Option<Vec<Tensor>> {
    let constant = |id| match &graph.node(id).op {
        Op::Constant(value) => Some(Tensor::clone(value)),
        _ => None,
    };
    graph.outputs().iter().map(|output| constant(output.node)).collect()
}

/// Whether two values have the same kind, shape and elements.
fn same(a: &Tensor, b: &Tensor) -> bool {
    let equal = |(a, b): (&f64, &f64)| a == b || (a.is_nan() && b.is_nan());
    a.kind() == b.kind() && a.shape() == b.shape() && a.to_f64().iter().zip(&*b.to_f64()).all(equal)
}

#[test]
fn importer_and_engine_compute_the_same_of_known_operands() {
    let (mut wrong, mut importers) = (Vec::new(), BTreeSet::new());
    let engine = Cpu::default().threads(1).precision(Precision::F64);
    let run = |graph: &Graph, inputs: &[Tensor]| engine.compile(graph)?.run(inputs);
    for (name, file) in cases() {
        let operator = name.split('-').next().unwrap();
        if DECIDED.iter().any(|(case, _)| *case == name) {
            continue;
        }
        let known = match onnx::read(&with_known_inputs(&file), None, &ImportOptions::default()) {
            Ok(graph) => graph,
            Err(error) => {
                wrong.push(format!("{name}: not read: {error}"));
                continue;
            }
        };
        let Some(found) = computed_by_importer(&known) else { continue };
        importers.insert(operator.to_owned());
        let expected = values(&file, "__y");
        if found.len() != expected.len() {
            wrong.push(format!("{name}: {} outputs instead of {}", found.len(), expected.len()));
        }
        for (found, (_, expected)) in found.iter().zip(&expected) {
            wrong.extend(difference(found, expected).map(|why| format!("{name}: {why}")));
        }
        // An operator that graphs do not have is computed by the importer alone.
        let Ok(fed) = onnx::read(&file, None, &ImportOptions::default()) else { continue };
        let inputs: Vec<Tensor> = values(&file, "__x").into_iter().map(|(_, tensor)| tensor).collect();
        match run(&fed, &inputs) {
            Ok(run) if ROUNDED.contains(&operator) || run.iter().zip(&found).all(|(a, b)| same(a, b)) => {}
            Ok(_) => wrong.push(format!("{name}: fed, it has another value than with known operands")),
            Err(error) => wrong.push(format!("{name}: not run with inputs: {error}")),
        }
    }
    assert!(wrong.is_empty(), "{} cases fail:\n{}", wrong.len(), wrong.join("\n"));
    assert!(importers.len() >= 30, "the importer computed only {importers:?}");
}
