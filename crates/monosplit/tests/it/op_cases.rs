//! Every operator case, one node each with inputs and expected outputs inside the file, through import and engine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use monosplit::engine::{Cpu, Engine, Precision};
use monosplit::graph::onnx::{self, ImportOptions};
use monosplit::graph::{Data, Kind};
use monosplit::{Result, Tensor};
use monosplit_testing::relative_error;

/// Of the largest expected value.
const TOLERANCE: f64 = 2e-5;
/// What halves are rounded to.
const HALF_TOLERANCE: f64 = 1e-3;

/// The fields of a protocol buffer message: number and content, numbers without length as their eight bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 127) << shift;
            shift += 7;
            if byte < 128 {
                return value;
            }
        }
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let content = match key & 7 {
            0 => varint(&mut bytes).to_le_bytes().to_vec(),
            wire => {
                let length = match wire {
                    1 => 8,
                    2 => varint(&mut bytes) as usize,
                    _ => 4,
                };
                let (content, rest) = bytes.split_at(length);
                bytes = rest;
                content.to_vec()
            }
        };
        found.push((key >> 3, content));
    }
    found
}

/// A tensor stored as raw bytes, and whether it holds halves.
fn stored(proto: &[u8]) -> (String, Tensor, bool) {
    let whole = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    let (mut shape, mut kind, mut name, mut raw) = (Vec::new(), 0, String::new(), Vec::new());
    for (number, content) in fields(proto) {
        match number {
            1 => shape.push(whole(&content) as usize),
            2 => kind = whole(&content),
            8 => name = String::from_utf8(content).unwrap(),
            9 => raw = content,
            _ => {}
        }
    }
    let ints = |width: usize| {
        let mut signed = Vec::new();
        for element in raw.chunks_exact(width) {
            let fill = if element[width - 1] >= 128 && kind != 2 { 255 } else { 0 };
            let mut wide = [fill; 8];
            wide[..width].copy_from_slice(element);
            signed.push(i64::from_le_bytes(wide));
        }
        Data::from(signed)
    };
    let data: Data = match kind {
        1 => {
            raw.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect::<Vec<_>>().into()
        }
        11 => {
            raw.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect::<Vec<_>>().into()
        }
        10 => raw.chunks_exact(2).map(|b| half(u16::from_le_bytes([b[0], b[1]]))).collect::<Vec<_>>().into(),
        9 => raw.iter().map(|&b| b != 0).collect::<Vec<_>>().into(),
        2 | 3 => ints(1),
        6 => ints(4),
        7 => ints(8),
        other => panic!("'{name}' is of type {other}"),
    };
    (name, Tensor::new(shape, data).unwrap(), kind == 10)
}

fn half(bits: u16) -> f32 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f32::from(bits & 1023));
    match exponent {
        0 => sign * fraction * 2f32.powi(-24),
        31 if fraction == 0.0 => sign * f32::INFINITY,
        31 => f32::NAN,
        _ => sign * (1.0 + fraction / 1024.0) * 2f32.powi(exponent - 15),
    }
}

/// What is not supported, and the word an error must say about it.
const REFUSED: [(&str, &str); 5] = [
    ("Mod-float-13", "Mod"),
    ("Mod-int64-13", "Mod"),
    // An input of no samples at all: a length of zero is how some converters write an open one.
    ("Reshape-allow_zero_on-14", "reshaped"),
    ("ScatterND-elements-11", "ScatterND"),
    ("ScatterND-rows-16", "ScatterND"),
];

type Named = BTreeMap<String, (Tensor, bool)>;

/// The tensors of a file that belong to no node.
fn values(file: &[u8]) -> Named {
    let graph = fields(file).into_iter().find(|(number, _)| *number == 7).expect("a graph").1;
    let tensors = fields(&graph).into_iter().filter(|(number, _)| *number == 5).map(|(_, t)| stored(&t));
    tensors
        .filter_map(|(name, tensor, is_half)| Some((name.strip_prefix("__")?.to_owned(), (tensor, is_half))))
        .collect()
}

fn run(file: &[u8], values: &Named, precision: Precision) -> Result<Vec<String>> {
    let graph = onnx::read(file, None, &ImportOptions::default())?;
    let names = graph.inputs().iter().map(|&id| graph.node(id).label.tensor.clone());
    let inputs: Vec<Tensor> = names.map(|name| values[&name].0.clone()).collect();
    let outputs = Cpu::default().precision(precision).compile(&graph)?.run(&inputs)?;
    let mut wrong = Vec::new();
    for (output, found) in graph.outputs().iter().zip(&outputs) {
        let (expected, is_half) = &values[&output.name];
        let said = |what: String| format!("{}: {what}", output.name);
        if found.shape() != expected.shape() {
            wrong.push(said(format!("shape {:?}, expected {:?}", found.shape(), expected.shape())));
            continue;
        }
        let exact = expected.kind() != Kind::Float;
        let error = relative_error(&found.to_f64(), &expected.to_f64());
        let limit = if *is_half { HALF_TOLERANCE } else { TOLERANCE };
        if found.kind() != expected.kind() || (exact && found.to_i64() != expected.to_i64()) || error > limit
        {
            wrong.push(said(format!(
                "error {error:.1e}, {:?}, expected {:?}",
                found.data(),
                expected.data()
            )));
        }
    }
    Ok(wrong)
}

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/fixtures/ops");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "onnx"));
    files.sort();
    files
}

#[test]
fn every_case_gives_what_onnx_runtime_gives() {
    let cases = cases();
    assert!(cases.len() > 500);
    let mut failures = Vec::new();
    for path in &cases {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let file = std::fs::read(path).unwrap();
        let values = values(&file);
        if let Some((_, word)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
            match run(&file, &values, Precision::F32) {
                Err(error) if error.to_string().contains(word) && error.node().is_some() => {}
                answer => failures.push(format!("{name} should be refused, found {answer:?}")),
            }
            continue;
        }
        for precision in [Precision::F32, Precision::F64] {
            match run(&file, &values, precision) {
                Err(error) => failures.push(format!("{name} {precision:?}: {error}")),
                Ok(wrong) => {
                    failures.extend(wrong.iter().map(|said| format!("{name} {precision:?}, {said}")))
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} of {} cases:\n{}", failures.len(), cases.len(), failures.join("\n"));
}
