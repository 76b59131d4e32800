//! Every operator against ONNX Runtime: each file under `fixtures/ops` holds one node, the values to feed and
//! the values to expect (see `scripts/make_op_cases.py`). Every engine passes the same cases, and so does what passes
//! that prepare graphs for other runtimes make of them.

use std::path::{Path, PathBuf};

use monosplit_engine::{Cpu, Engine, Precision};
use monosplit_graph::onnx::{self, ImportOptions};
use monosplit_graph::passes::{matrix_form, portable};
use monosplit_graph::{Data, Graph, Tensor};

/// Cases whose node is not among the graph's ops: they are refused as unsupported, or right.
const OUTSIDE: [&str; 6] = [
    "Mod-float-13",
    "Mod-int64-13",
    "ScatterND-elements-11",
    "ScatterND-rows-16",
    "Trilu-lower_shifted-14",
    "Trilu-upper-14",
];
/// Cases that are decided differently here, and why.
pub(crate) const DECIDED: [(&str, &str); 1] = [(
    "Reshape-allow_zero_on-14",
    "the first axis of an input is the batch, and a batch of none is not folded in",
)];

/// Just enough of protocol buffers to find the initializers of a file.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

pub(crate) enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Fields<'a> {
    fn number(&mut self) -> u64 {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first().unwrap();
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        value
    }

    fn bytes(&mut self, length: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(length);
        self.0 = rest;
        bytes
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, Field<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let key = self.number();
        let field = match key & 7 {
            0 => Field::Number(self.number()),
            1 => Field::Bytes(self.bytes(8)),
            5 => Field::Bytes(self.bytes(4)),
            _ => {
                let length = self.number() as usize;
                Field::Bytes(self.bytes(length))
            }
        };
        Some((key >> 3, field))
    }
}

/// Initializers whose name begins with `prefix`, in the order of their names.
pub(crate) fn values(file: &[u8], prefix: &str) -> Vec<(String, Tensor)> {
    let mut found = Vec::new();
    for (_, graph) in Fields(file).filter(|(number, _)| *number == 7) {
        let Field::Bytes(graph) = graph else { continue };
        for (_, tensor) in Fields(graph).filter(|(number, _)| *number == 5) {
            let Field::Bytes(tensor) = tensor else { continue };
            found.extend(value(tensor).filter(|(name, _)| name.starts_with(prefix)));
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

fn value(tensor: &[u8]) -> Option<(String, Tensor)> {
    let (mut shape, mut kind, mut name, mut raw) = (Vec::new(), 0, String::new(), &[][..]);
    for field in Fields(tensor) {
        match field {
            (1, Field::Number(length)) => shape.push(length as usize),
            (1, Field::Bytes(packed)) => {
                let mut packed = Fields(packed);
                while !packed.0.is_empty() {
                    shape.push(packed.number() as usize);
                }
            }
            (2, Field::Number(number)) => kind = number,
            (8, Field::Bytes(bytes)) => name = String::from_utf8(bytes.to_vec()).ok()?,
            (9, Field::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    macro_rules! read {
        ($of:ty, $as:ty) => {
            raw.chunks(size_of::<$of>())
                .map(|b| <$of>::from_le_bytes(b.try_into().unwrap()) as $as)
                .collect::<Vec<$as>>()
                .into()
        };
    }
    let data: Data = match kind {
        1 => read!(f32, f32),
        11 => read!(f64, f64),
        2 => read!(u8, i64),
        3 => read!(i8, i64),
        6 => read!(i32, i64),
        7 => read!(i64, i64),
        9 => raw.iter().map(|&b| b != 0).collect::<Vec<bool>>().into(),
        10 => raw.chunks(2).map(|b| half(u16::from_le_bytes([b[0], b[1]]))).collect::<Vec<f32>>().into(),
        _ => return None,
    };
    Some((name, Tensor::new(shape, data).ok()?))
}

fn half(bits: u16) -> f32 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, mantissa) = (i32::from(bits >> 10 & 31), f32::from(bits & 1023));
    sign * match exponent {
        0 => mantissa / 1024.0 * 2f32.powi(-14),
        31 if mantissa == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        _ => (1.0 + mantissa / 1024.0) * 2f32.powi(exponent - 15),
    }
}

/// Why `found` is not what was expected, if it is not.
pub(crate) fn difference(found: &Tensor, expected: &Tensor) -> Option<String> {
    if found.shape() != expected.shape() {
        return Some(format!("expected shape {:?}, found {:?}", expected.shape(), found.shape()));
    }
    if found.kind() != expected.kind() {
        return Some(format!("expected {}, found {}", expected.kind(), found.kind()));
    }
    let scale = expected.to_f64().iter().filter(|v| v.is_finite()).fold(1e-6f64, |m, v| m.max(v.abs()));
    for (i, (&f, &e)) in found.to_f64().iter().zip(expected.to_f64().iter()).enumerate() {
        let same = f == e || (f.is_nan() && e.is_nan()) || (f - e).abs() <= 1e-5 * scale;
        if !same {
            return Some(format!("element {i}: expected {e}, found {f}"));
        }
    }
    None
}

type Pass = fn(&Graph) -> monosplit_graph::Result<Graph>;

fn check(file: &[u8], engine: &dyn Engine, pass: Pass) -> Result<(), String> {
    let graph = onnx::read(file, None, &ImportOptions::default()).map_err(|e| format!("not read: {e}"))?;
    let inputs: Vec<Tensor> = values(file, "__x").into_iter().map(|(_, tensor)| tensor).collect();
    let expected = values(file, "__y");
    let outputs = pass(&graph)
        .and_then(|graph| engine.compile(&graph))
        .and_then(|program| program.run(&inputs))
        .map_err(|e| format!("not run: {e}"))?;
    if outputs.len() != expected.len() {
        return Err(format!("expected {} outputs, found {}", expected.len(), outputs.len()));
    }
    let wrong = outputs.iter().zip(&expected).find_map(|(found, (name, expected))| {
        difference(found, expected).map(|why| format!("{name}: {why}"))
    });
    wrong.map_or(Ok(()), Err)
}

#[test]
fn every_case_gives_onnx_runtimes_values() {
    every_case(&Cpu::default(), |graph| Ok(graph.clone()));
}

#[test]
fn every_case_gives_onnx_runtimes_values_in_double_precision() {
    every_case(&Cpu::default().precision(Precision::F64), |graph| Ok(graph.clone()));
}

#[test]
fn every_case_is_the_same_in_portable_matrix_form() {
    let pass: Pass = |graph| matrix_form(&portable(graph)?);
    every_case(&Cpu::default().precision(Precision::F64), pass);
}

#[cfg(feature = "onnxruntime")]
#[test]
fn every_case_gives_onnx_runtimes_values_in_onnx_runtime() {
    match monosplit_engine::OnnxRuntime::load() {
        Ok(engine) => every_case(&engine.threads(1), |graph| Ok(graph.clone())),
        Err(why) => println!("skipped: {why}"),
    }
}

#[cfg(feature = "cuda")]
#[test]
fn every_case_gives_onnx_runtimes_values_on_a_gpu() {
    match monosplit_engine::Cuda::open(0) {
        Ok(engine) => {
            every_case(&engine, |graph| Ok(graph.clone()));
            every_case(&engine.precision(Precision::F64), |graph| Ok(graph.clone()));
        }
        Err(why) => println!("skipped: {why}"),
    }
}

/// The name and the file of every case.
pub(crate) fn cases() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/ops");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "onnx"));
    files.sort();
    assert!(files.len() > 500, "only {} cases found", files.len());
    let named = |path: &PathBuf| path.file_stem().unwrap().to_string_lossy().into_owned();
    files.iter().map(|path| (named(path), std::fs::read(path).unwrap())).collect()
}

fn every_case(engine: &dyn Engine, pass: Pass) {
    let cases = cases();
    let mut wrong = Vec::new();
    for (name, file) in &cases {
        let outside =
            |why: &str| OUTSIDE.contains(&&**name) && why.contains("not read") && why.contains("supported");
        let decided = DECIDED.iter().any(|(case, _)| case == name);
        match check(file, engine, pass) {
            Err(why) if !outside(&why) && !decided => wrong.push(format!("{name}: {why}")),
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{} of {} cases fail:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}
