//! Nodes that are computed while the file is read, because all their operands are known: shape arithmetic, masks, axes
//! and bounds. Operations on large weights become nodes of the graph instead, whose constants an engine folds.
//!
//! This is no second engine. The nodes that are built depend on these values (the shape of a `Reshape`, the axes of a `Slice`), so
//! they are needed before there is a graph to run; and their integers may contain the batch size, which no tensor holds. What both
//! need has one definition: functions of real numbers in `op/elementwise.rs`, broadcasting in `shape.rs`, and the shapes that
//! `Reshape`, `Squeeze`, `Slice`, `Split` and the like ask for in the readers (`import_*.rs`) that also build the nodes. The tests of
//! the engine compute every case of every operator in both places and compare the elements (`known_operands.rs`).

use super::batch_positions;
use super::call::{self, Call};
use super::elements;
use super::evaluate_arithmetic as arithmetic;
use super::files::Files;
use super::import::Importer;
use super::import_layout::permutation;
use super::import_select::{parts_of, slices};
use super::import_shape::{flattened, reshaped, squeezed, unsqueezed};
use super::static_array::{self, Elements, StaticArray};
use super::symbolic_int::SymbolicInt;
use super::value::{Content, Known, Value};
use crate::element::Element;
use crate::error::{Error, Result};
use crate::shape::{Dim, Shape};
use crate::tensor::Kind;

/// The most real numbers an op that also exists in graphs is computed on here.
const MAX_FLOATS: usize = 1 << 16;

/// The values a node produces, if they can be computed now.
pub(crate) fn evaluate(importer: &mut Importer, call: &Call) -> Result<Option<Vec<Value>>> {
    if let Some(value) = batch_positions::counted(importer, call)? {
        return Ok(Some(vec![value]));
    }
    let array = match call.op() {
        "Constant" => return constant(importer, call).map(|value| Some(vec![value])),
        "Shape" => shape(importer, call)?,
        "Size" => {
            let count = value_shape(importer, call.input(0)?).count().and_then(SymbolicInt::of);
            StaticArray::int(
                count.ok_or_else(|| Error::unsupported("the size is not a multiple of the batch size"))?,
            )
        }
        "CastLike" => match call.known(0).and_then(Known::array) {
            Some(array) if array.elements.len() <= MAX_FLOATS => {
                arithmetic::cast(&array, like(importer, call)?)?
            }
            _ => return Ok(None),
        },
        _ => return evaluate_known(importer, call),
    };
    Ok(Some(vec![Value::array("", array)]))
}

/// The shape of a value.
pub(crate) fn value_shape(importer: &Importer, value: &Value) -> Shape {
    match value {
        Value::Node(id) => importer.shape(*id),
        Value::Known(known) => known.shape(),
        Value::Quantised(quantised) => importer.shape(quantised.real),
        Value::Positions(positions) => positions.shape(importer),
        Value::Sequence(_) | Value::Unknown => Shape::default(),
    }
}

/// The type that `CastLike` casts to: that of its second input, as far as it is known.
pub(crate) fn like(importer: &Importer, call: &Call) -> Result<Element> {
    let kind = match call.input(1)? {
        Value::Node(id) => importer.graph.node(*id).kind,
        Value::Known(known) => known.kind(),
        Value::Quantised(_) | Value::Positions(_) => Kind::Int,
        Value::Sequence(_) | Value::Unknown => Kind::Float,
    };
    Ok(call.element(1).unwrap_or(match kind {
        Kind::Float => Element::F32,
        Kind::Int => Element::I64,
        Kind::Bool => Element::Bool,
    }))
}

fn shape(importer: &Importer, call: &Call) -> Result<StaticArray> {
    let shape = value_shape(importer, call.input(0)?);
    let rank = shape.rank() as i64;
    let clamped = |v: i64| if v < 0 { v.saturating_add(rank) } else { v }.clamp(0, rank) as usize;
    let (start, end) = (clamped(call.int("start", 0)?), clamped(call.int("end", i64::MAX)?));
    let dims = shape.dims().get(start..end).unwrap_or(&[]);
    StaticArray::of_shape(&Shape::new(dims))
        .ok_or_else(|| Error::shape(format!("the shape {shape} has more elements than can be addressed")))
}

fn constant(importer: &mut Importer, call: &Call) -> Result<Value> {
    if let Some(proto) = call.tensor("value")? {
        let tensor = elements::tensor(proto, &importer.files)?;
        // A function may be called many times, each time with constants of its own.
        if !importer.active.is_empty() {
            importer.spend(tensor.len())?;
        }
        return Ok(Value::known("", Content::Tensor(tensor)));
    }
    let float = |values: Vec<f64>| Elements::Float { values, double: false };
    let array = if call.has("value_float") {
        StaticArray::new(Vec::new(), float(vec![call.float("value_float", 0.0)?]))?
    } else if call.has("value_int") {
        StaticArray::int(call.int("value_int", 0)?.into())
    } else if let Some(values) = call.floats("value_floats")? {
        StaticArray::new(vec![values.len()], float(values))?
    } else if let Some(values) = call.ints("value_ints")? {
        StaticArray::ints(values.into_iter().map(SymbolicInt::from).collect())
    } else {
        return Err(Error::unsupported("a Constant of strings or sparse values is not supported"));
    };
    Ok(Value::array("", array))
}

fn evaluate_known(importer: &mut Importer, call: &Call) -> Result<Option<Vec<Value>>> {
    let all_known = call.inputs.iter().flatten().all(|v| matches!(v, Value::Known(_)));
    if !all_known || call.inputs.is_empty() || matches!(call.op(), "If") {
        return Ok(None);
    }
    if matches!(call.op(), "Identity") {
        return Ok(Some(vec![call.input(0)?.clone()]));
    }
    let only_here = matches!(call.op(), "ScatterND" | "Trilu" | "Range" | "NonZero" | "Mod" | "CumSum");
    let known = || (0..call.inputs.len()).filter_map(|index| call.known(index));
    let floats: usize = known().filter(|k| k.kind() == Kind::Float).map(Known::len).sum();
    if (!only_here && floats > MAX_FLOATS) || known().any(|k| k.len() > static_array::LIMIT) {
        return Ok(None);
    }
    importer.spend(known().map(Known::len).sum())?;
    let mut arrays = Vec::with_capacity(call.inputs.len());
    for index in 0..call.inputs.len() {
        match (call.optional(index), call.known(index).and_then(Known::array)) {
            (None, _) => arrays.push(None),
            (_, Some(array)) => arrays.push(Some(array)),
            (Some(_), None) => return Ok(None),
        }
    }
    let results = compute(call, &arrays)?;
    importer.spend(results.iter().flatten().map(|h| h.elements.len()).sum())?;
    Ok(results.map(|results| results.into_iter().map(|h| Value::array("", h)).collect()))
}

fn compute(call: &Call, arrays: &[Option<StaticArray>]) -> Result<Option<Vec<StaticArray>>> {
    let x = || {
        arrays
            .first()
            .and_then(Option::as_ref)
            .ok_or_else(|| Error::malformed(format!("{} is missing its input 0", call.op())))
    };
    let one = |array: Result<StaticArray>| array.map(|h| Some(vec![h]));
    let own = |array: &StaticArray| Shape::fixed(&array.shape);
    let relaid = |shape: Shape| x()?.reshaped(fixed(&shape)?);
    match call.op() {
        "Reshape" => one(reshaped(call, &own(x()?)).and_then(relaid)),
        "Flatten" => one(flattened(call, &own(x()?)).and_then(relaid)),
        "Squeeze" => one(squeezed(call, &own(x()?)).and_then(relaid)),
        "Unsqueeze" => one(unsqueezed(call, &own(x()?)).and_then(relaid)),
        "Transpose" => one(permutation(call, x()?.shape.len()).and_then(|axes| x()?.transposed(&axes))),
        "Concat" => one(concat(call, arrays)),
        "Gather" => one(gather(call, arrays)),
        "GatherElements" => one(gather_elements(call, arrays)),
        "Slice" => one(slice(call, x()?)),
        "Split" => split(call, x()?).map(Some),
        "Expand" => expand(call, x()?),
        "ConstantOfShape" => constant_of_shape(call),
        "Range" => one(arithmetic::range(arrays)),
        "ScatterND" => one(scatter(call, arrays)),
        "Trilu" => one(trilu(call, x()?, arrays)),
        "NonZero" => one(nonzero(x()?)),
        "Where" => one(arithmetic::choose(arrays)),
        "Cast" => one(elements::element(call.int("to", 1)?).and_then(|to| arithmetic::cast(x()?, to))),
        op if op.starts_with("Reduce") => arithmetic::reduce(call, x()?),
        _ => arithmetic::elementwise(call, arrays),
    }
}

fn fixed(shape: &Shape) -> Result<Vec<usize>> {
    let lengths: Option<Vec<usize>> = shape.dims().iter().map(|d| d.fixed()).collect();
    lengths
        .ok_or_else(|| Error::unsupported(format!("a constant of shape {shape} depends on the batch size")))
}

fn concat(call: &Call, arrays: &[Option<StaticArray>]) -> Result<StaticArray> {
    let parts: Vec<StaticArray> = arrays.iter().flatten().cloned().collect();
    let rank = parts.first().map_or(0, |p| p.shape.len());
    StaticArray::joined(&parts, call::axis(call.int("axis", 1)?, rank)?)
}

fn gather(call: &Call, arrays: &[Option<StaticArray>]) -> Result<StaticArray> {
    let [Some(x), Some(indices)] = arrays else { return Err(Error::malformed("Gather reads two values")) };
    let axis = call::axis(call.int("axis", 0)?, x.shape.len())?;
    let length = x.shape[axis] as i64;
    let position = |e: &SymbolicInt| {
        let index = e.known()?;
        usize::try_from(if index < 0 { index.checked_add(length)? } else { index }).ok()
    };
    let positions = indices.as_ints()?.iter().map(position).collect::<Option<Vec<_>>>();
    let positions =
        positions.ok_or_else(|| Error::shape(format!("an index is outside an axis of {length}")))?;
    x.taken(axis, &positions, &indices.shape)
}

/// `GatherElements`: along the axis each index picks its element, on the others elements stay where they are.
fn gather_elements(call: &Call, arrays: &[Option<StaticArray>]) -> Result<StaticArray> {
    let [Some(x), Some(indices)] = arrays else {
        return Err(Error::malformed("GatherElements reads two values"));
    };
    let axis = call::axis(call.int("axis", 0)?, x.shape.len())?;
    let fits = x.shape.len() == indices.shape.len()
        && (0..x.shape.len()).all(|other| other == axis || indices.shape[other] <= x.shape[other]);
    if !fits {
        let (found, shape) = (&indices.shape, &x.shape);
        return Err(Error::shape(format!(
            "indices of shape {found:?} do not fit a value of shape {shape:?}"
        )));
    }
    let (own, length) = (static_array::strides(&x.shape), x.shape[axis] as i64);
    let along: Vec<usize> =
        own.iter().enumerate().map(|(at, &stride)| if at == axis { 0 } else { stride }).collect();
    let position = |(start, index): (usize, &SymbolicInt)| {
        let index = index.known()?;
        let index = usize::try_from(if index < 0 { index.checked_add(length)? } else { index }).ok()?;
        (index < x.shape[axis]).then_some(start + index * own[axis])
    };
    let starts = static_array::walk(&indices.shape, &along);
    let positions: Option<Vec<usize>> = starts.into_iter().zip(indices.as_ints()?).map(position).collect();
    let positions =
        positions.ok_or_else(|| Error::shape(format!("an index is outside an axis of {length}")))?;
    x.select(indices.shape.clone(), &positions)
}

fn slice(call: &Call, x: &StaticArray) -> Result<StaticArray> {
    let mut result = x.clone();
    for part in slices(call, &Shape::fixed(&x.shape))? {
        result = result.taken(part.axis, &part.positions(), &[part.length])?;
    }
    Ok(result)
}

fn split(call: &Call, x: &StaticArray) -> Result<Vec<StaticArray>> {
    parts_of(call, &Shape::fixed(&x.shape))?
        .iter()
        .map(|part| x.taken(part.axis, &part.positions(), &[part.length]))
        .collect()
}

fn expand(call: &Call, x: &StaticArray) -> Result<Option<Vec<StaticArray>>> {
    let dims = call.extents(1, "shape")?.unwrap_or_default();
    let lengths: Option<Vec<usize>> = dims.iter().map(|e| e.dim().and_then(Dim::fixed)).collect();
    let Some(lengths) = lengths else { return Ok(None) };
    let full = static_array::broadcast(&x.shape, &lengths)?;
    if static_array::checked_count(&full).is_err() {
        return Ok(None);
    }
    x.expanded(&full).map(|h| Some(vec![h]))
}

/// The element a `ConstantOfShape` repeats.
pub(crate) fn fill(call: &Call) -> Result<StaticArray> {
    let value = match call.tensor("value")? {
        Some(proto) => StaticArray::of(&elements::tensor(proto, &Files::default())?),
        None => Some(StaticArray {
            shape: Vec::new(),
            elements: Elements::Float { values: vec![0.0], double: false },
        }),
    };
    let value = value.filter(|h| h.elements.len() == 1);
    value
        .ok_or_else(|| Error::malformed("the value of ConstantOfShape should be one number"))?
        .reshaped(Vec::new())
}

fn constant_of_shape(call: &Call) -> Result<Option<Vec<StaticArray>>> {
    let dims = call.extents(0, "shape")?.unwrap_or_default();
    let lengths: Option<Vec<usize>> = dims.iter().map(|e| e.dim().and_then(Dim::fixed)).collect();
    let Some(lengths) = lengths else { return Ok(None) };
    if static_array::checked_count(&lengths).is_err() {
        return Ok(None);
    }
    fill(call)?.expanded(&lengths).map(|h| Some(vec![h]))
}

fn scatter(call: &Call, arrays: &[Option<StaticArray>]) -> Result<StaticArray> {
    let [Some(data), Some(indices), Some(updates)] = arrays else {
        return Err(Error::malformed("ScatterND reads three values"));
    };
    if call.text("reduction", "none")? != "none" {
        return Err(Error::unsupported("ScatterND with a reduction is not supported"));
    }
    let targets = nd_positions(&data.shape, indices)?;
    let depth = indices.shape.last().copied().unwrap_or(0);
    let block: usize = data.shape[depth..].iter().product();
    if updates.elements.len() != targets.len() * block {
        return Err(Error::shape("the updates of ScatterND do not fit its indices"));
    }
    let mut all = StaticArray::joined(
        &[data.reshaped(vec![data.elements.len()])?, updates.reshaped(vec![updates.elements.len()])?],
        0,
    )?;
    let mut sources: Vec<usize> = (0..data.elements.len()).collect();
    for (i, &target) in targets.iter().enumerate() {
        for k in 0..block {
            sources[target * block + k] = data.elements.len() + i * block + k;
        }
    }
    all = all.select(data.shape.clone(), &sources)?;
    Ok(all)
}

/// For indices whose last axis addresses the leading axes of `shape`: the flat position of each.
pub(crate) fn nd_positions(shape: &[usize], indices: &StaticArray) -> Result<Vec<usize>> {
    let depth = indices.shape.last().copied().filter(|&d| d > 0 && d <= shape.len()).ok_or_else(|| {
        Error::shape(format!("indices of shape {:?} do not fit a value of shape {shape:?}", indices.shape))
    })?;
    let flat = |tuple: &[SymbolicInt]| {
        tuple.iter().zip(shape).try_fold(0usize, |position, (index, &length)| {
            let index = index.known()?;
            let index = if index < 0 { index.checked_add(length as i64)? } else { index };
            let index = usize::try_from(index).ok().filter(|&i| i < length)?;
            position.checked_mul(length)?.checked_add(index)
        })
    };
    let positions = indices.as_ints()?.chunks(depth).map(flat).collect::<Option<Vec<_>>>();
    positions.ok_or_else(|| Error::shape("an index is outside the value it addresses"))
}

fn trilu(call: &Call, x: &StaticArray, arrays: &[Option<StaticArray>]) -> Result<StaticArray> {
    let [.., rows, columns] = x.shape[..] else { return Err(Error::shape("Trilu reads matrices")) };
    let k = match arrays.get(1).and_then(Option::as_ref) {
        Some(k) => k.as_ints()?.first().and_then(|e| e.known()).unwrap_or(0),
        None => 0,
    };
    let kept = triangle(call, rows, columns, k)?;
    let mut result = x.clone();
    match &mut result.elements {
        Elements::Int(v) => {
            v.iter_mut().enumerate().filter(|(i, _)| !kept(*i)).for_each(|(_, e)| *e = 0.into())
        }
        Elements::Float { values, .. } => {
            values.iter_mut().enumerate().filter(|(i, _)| !kept(*i)).for_each(|(_, e)| *e = 0.0)
        }
        Elements::Bool(v) => {
            v.iter_mut().enumerate().filter(|(i, _)| !kept(*i)).for_each(|(_, e)| *e = false)
        }
    }
    Ok(result)
}

/// Whether an element of a matrix lies in the triangle `Trilu` keeps.
pub(crate) fn triangle(call: &Call, rows: usize, columns: usize, k: i64) -> Result<impl Fn(usize) -> bool> {
    let upper = call.flag("upper", true)?;
    Ok(move |i: usize| {
        let (row, column) = ((i / columns % rows) as i64, (i % columns) as i64);
        if upper { column >= row.saturating_add(k) } else { column <= row.saturating_add(k) }
    })
}

fn nonzero(x: &StaticArray) -> Result<StaticArray> {
    let values = x.floats().ok_or_else(|| Error::unsupported("NonZero depends on the batch size"))?;
    let found: Vec<usize> = (0..values.len()).filter(|&i| values[i] != 0.0).collect();
    let strides = static_array::strides(&x.shape);
    let coordinate = |axis: usize, i: usize| ((i / strides[axis] % x.shape[axis]) as i64).into();
    let rank = x.shape.len();
    let elements =
        (0..rank).flat_map(|axis| found.iter().map(move |&i| (axis, i))).map(|(a, i)| coordinate(a, i));
    StaticArray::new(vec![rank, found.len()], Elements::Int(elements.collect()))
}
