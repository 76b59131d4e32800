//! Constants of a file being written: weights, the parameters of ops, and shapes computed from the batch size.

use super::export::{Exporter, MAX_BYTES, int, too_large};
use super::export_precision::FLOAT;
use super::model::TensorProto;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{Label, NodeId};
use crate::half;
use crate::shape::{Dim, Shape};
use crate::tensor::{Data, Kind, Tensor};

/// Parameters of ops with at most this many elements are stored once and shared by all nodes that read them.
const MOST_SHARED: usize = 32;
/// ONNX's number for half precision.
const FLOAT16: i32 = 10;
/// Constants of fewer elements are not worth a cast.
const LEAST_HALVED: usize = 64;

impl Exporter<'_> {
    /// Adds a constant of the graph; with the cast that makes it what it was where it is stored in half precision, as
    /// asked, or in single precision, which takes nothing away from most.
    pub(crate) fn weight(&mut self, id: NodeId, tensor: &Tensor) -> Result<()> {
        let name = self.result.clone();
        let large = tensor.len() >= LEAST_HALVED && tensor.kind() == Kind::Float;
        let in_full = self.double && !self.single_outside;
        let (data_type, raw): (i32, Vec<u8>) = match (large && !in_full, self.half) {
            (true, true) => {
                let bits = tensor.to_f32().iter().flat_map(|&v| half::f32_to_f16(v).to_le_bytes()).collect();
                (FLOAT16, bits)
            }
            (true, false) if self.double && is_single(tensor) => {
                (FLOAT, Data::F32(tensor.to_f32()).to_le_bytes().into_owned())
            }
            _ => return self.initializer(name, tensor),
        };
        // What people look for by its name is what is stored.
        let stored = match self.graph.outputs().iter().any(|output| output.name == name) {
            true => self.value_names.fresh(&format!("{name}/stored")),
            false => {
                self.result = self.rename(id, &format!("{name}/cast"));
                name
            }
        };
        self.store(stored.clone(), tensor, data_type, raw)?;
        self.current = Label::default();
        self.finish("Cast", &[&stored], &[("to", int(self.data_type(Kind::Float)))]);
        Ok(())
    }

    /// Adds a constant of the file.
    pub(crate) fn initializer(&mut self, name: String, tensor: &Tensor) -> Result<()> {
        let (data_type, raw) = self.raw(tensor);
        self.store(name, tensor, data_type, raw)
    }

    fn store(&mut self, name: String, tensor: &Tensor, data_type: i32, raw: Vec<u8>) -> Result<()> {
        self.bytes = self.bytes.saturating_add(raw.len());
        if self.bytes > MAX_BYTES {
            return Err(too_large());
        }
        self.initializers.push(TensorProto {
            name,
            dims: tensor.shape().iter().map(|&n| n as i64).collect(),
            data_type,
            raw: Some(raw.into()),
            ..TensorProto::default()
        });
        Ok(())
    }

    fn raw(&self, tensor: &Tensor) -> (i32, Vec<u8>) {
        let bytes = match tensor.kind() {
            Kind::Float if self.double => Data::F64(tensor.to_f64()).to_le_bytes().into_owned(),
            Kind::Float => Data::F32(tensor.to_f32()).to_le_bytes().into_owned(),
            Kind::Int | Kind::Bool => tensor.data().to_le_bytes().into_owned(),
        };
        (self.data_type(tensor.kind()), bytes)
    }

    /// Adds a constant of the op being written, unless a small one is there already; its name.
    pub(crate) fn constant(&mut self, role: &str, tensor: &Tensor) -> Result<String> {
        if tensor.len() > MOST_SHARED {
            let base = if self.current.node.is_empty() { &self.result } else { &self.current.node };
            let name = self.value_names.fresh(&format!("{base}/{role}"));
            self.initializer(name.clone(), tensor)?;
            return Ok(name);
        }
        let (data_type, raw) = self.raw(tensor);
        let key = (data_type, tensor.shape().to_vec(), raw);
        if let Some(known) = self.shared.get(&key) {
            return Ok(known.clone());
        }
        let name = self.value_names.fresh(role);
        self.initializer(name.clone(), tensor)?;
        self.shared.insert(key, name.clone());
        Ok(name)
    }

    /// Adds a list of integers.
    pub(crate) fn ints(&mut self, role: &str, values: Vec<i64>) -> Result<String> {
        self.constant(role, &Tensor::vector(values))
    }

    /// Adds the scales of a resize, which are single precision whatever else is.
    pub(crate) fn scales(&mut self, values: Vec<f32>) -> Result<String> {
        let double = std::mem::replace(&mut self.double, false);
        let name = self.constant("scales", &Tensor::vector(values));
        self.double = double;
        name
    }

    /// Adds one real number.
    pub(crate) fn float(&mut self, role: &str, value: f64) -> Result<String> {
        self.constant(role, &Tensor::scalar(value))
    }

    /// A list of axis lengths, computed from the batch size where it depends on it.
    pub(crate) fn shape_value(&mut self, shape: &Shape) -> Result<String> {
        if !shape.is_batched() {
            return self.ints("shape", shape.dims().iter().map(|d| d.at(0).unwrap_or(0) as i64).collect());
        }
        let mut parts = Vec::new();
        for &dim in shape.dims() {
            parts.push(match dim {
                Dim::Fixed(n) => self.ints("length", vec![n as i64])?,
                Dim::Batch(1) => self.batch_size()?,
                Dim::Batch(k) => {
                    let (batch, factor) = (self.batch_size()?, self.ints("factor", vec![k as i64])?);
                    self.emit("Mul", &[&batch, &factor], &[])
                }
            });
        }
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        Ok(self.emit("Concat", &parts, &[("axis", int(0))]))
    }

    /// The batch size, read off an input that has it.
    fn batch_size(&mut self) -> Result<String> {
        if let Some(name) = &self.batch {
            return Ok(name.clone());
        }
        let graph = self.graph;
        let found = graph.inputs().iter().find_map(|&id| {
            let dims = graph.node(id).shape.dims();
            dims.iter().enumerate().find_map(|(axis, d)| match d {
                Dim::Batch(k) if *k > 0 => Some((id, axis, *k)),
                _ => None,
            })
        });
        let (id, axis, factor) = found
            .ok_or_else(|| Error::new(ErrorKind::Shape, "the batch size is not known from any input"))?;
        let input = self.name(id).to_owned();
        let shape = self.emit("Shape", &[&input], &[]);
        let index = self.ints("axis", vec![axis as i64])?;
        let mut batch = self.emit("Gather", &[&shape, &index], &[]);
        if factor != 1 {
            let divisor = self.ints("factor", vec![factor as i64])?;
            batch = self.emit("Div", &[&batch, &divisor], &[]);
        }
        self.batch = Some(batch.clone());
        Ok(batch)
    }
}

/// Whether every element is a number of single precision.
fn is_single(tensor: &Tensor) -> bool {
    match tensor.data() {
        Data::F64(elements) => elements.iter().all(|&v| f64::from(v as f32) == v),
        _ => true,
    }
}
