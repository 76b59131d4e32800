//! Arithmetic on values that are known while a file is read: shapes, indices and lengths, whose integers may contain the batch
//! size and must not overflow. What an engine computes of constants is folded later by a pass that is given the engine. Functions
//! of real numbers have one definition for both, in `op/elementwise.rs`.

use std::cmp::Ordering;

use super::call::Call;
use super::import_reduce::reduced_axes;
use super::static_array::{self, Elements, StaticArray, broadcast, broadcast_positions};
use super::symbolic_int::SymbolicInt;
use crate::element::Element;
use crate::error::{Error, Result};
use crate::op::{Binary, Unary, wrap};
use crate::tensor::Kind;

fn batch_size(what: &str) -> Error {
    Error::unsupported(format!("{what} depends on the batch size in a way that is not known before it runs"))
}

/// Elementwise ops of one, two or more values; `None` for anything else.
pub(crate) fn elementwise(call: &Call, arrays: &[Option<StaticArray>]) -> Result<Option<Vec<StaticArray>>> {
    let present: Vec<&StaticArray> = arrays.iter().flatten().collect();
    let result = match (call.op(), &present[..]) {
        ("Sum", [a, rest @ ..]) => chain(Binary::Add, a, rest)?,
        ("Max", [a, rest @ ..]) => chain(Binary::Max, a, rest)?,
        ("Min", [a, rest @ ..]) => chain(Binary::Min, a, rest)?,
        ("Mod", [a, b]) => match call.flag("fmod", false)? {
            true => combine(Function::Remainder, a, b)?,
            false => combine(Function::Modulo, a, b)?,
        },
        (op, [a]) => match Unary::from_onnx(op, |_, default| Ok(default))? {
            Some(function) => unary(function, a)?,
            None => None,
        },
        (op, [a, b]) => match Binary::from_onnx(op) {
            Some(function) => binary(function, a, b)?,
            None => None,
        },
        _ => None,
    };
    Ok(result.map(|h| vec![h]))
}

fn chain(function: Binary, first: &StaticArray, rest: &[&StaticArray]) -> Result<Option<StaticArray>> {
    let mut result = first.clone();
    for other in rest {
        match binary(function, &result, other)? {
            Some(next) => result = next,
            None => return Ok(None),
        }
    }
    Ok(Some(result))
}

/// The functions that are computed while a file is read. All others become nodes, which an engine evaluates.
fn unary(function: Unary, x: &StaticArray) -> Result<Option<StaticArray>> {
    use Unary::{Abs, Ceil, Exp, Floor, Log, Neg, Not, Reciprocal, Round, Sqrt};
    let elements = match (&x.elements, function) {
        (Elements::Int(v), Neg) => Elements::Int(each(function, v, |e| SymbolicInt::from(0).minus(e))?),
        (Elements::Int(v), Abs) => Elements::Int(each(function, v, |e| match e.compare(0.into())? {
            Ordering::Less => SymbolicInt::from(0).minus(e),
            _ => Some(e),
        })?),
        (Elements::Bool(v), Not) => Elements::Bool(v.iter().map(|b| !b).collect()),
        (
            Elements::Float { values, double },
            Neg | Abs | Floor | Ceil | Round | Sqrt | Reciprocal | Exp | Log,
        ) => match values.iter().map(|&v| function.eval(v)).collect() {
            Some(values) => Elements::Float { values, double: *double },
            None => return Ok(None),
        },
        _ => return Ok(None),
    };
    StaticArray::new(x.shape.clone(), elements).map(Some)
}

fn each(
    function: Unary,
    values: &[SymbolicInt],
    f: impl Fn(SymbolicInt) -> Option<SymbolicInt>,
) -> Result<Vec<SymbolicInt>> {
    values.iter().map(|&e| f(e)).collect::<Option<_>>().ok_or_else(|| batch_size(function.name()))
}

/// What is computed of two values: an elementwise function, or ONNX's `Mod`, which graphs do not have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Function {
    Elementwise(Binary),
    /// The remainder with the sign of the divisor.
    Modulo,
    /// The remainder with the sign of the dividend (`fmod`).
    Remainder,
}

/// An elementwise function of two values; `None` if it is not one of those computed here.
pub(crate) fn binary(function: Binary, a: &StaticArray, b: &StaticArray) -> Result<Option<StaticArray>> {
    combine(Function::Elementwise(function), a, b)
}

fn combine(function: Function, a: &StaticArray, b: &StaticArray) -> Result<Option<StaticArray>> {
    if function == Function::Elementwise(Binary::PRelu) {
        return Ok(None);
    }
    let shape = broadcast(&a.shape, &b.shape)?;
    let (left, right) = (broadcast_positions(&a.shape, &shape)?, broadcast_positions(&b.shape, &shape)?);
    let pairs = || left.iter().copied().zip(right.iter().copied());
    let elements = match (&a.elements, &b.elements) {
        (Elements::Int(x), Elements::Int(y)) => {
            let pairs = pairs().map(|(i, j)| (x[i], y[j]));
            match (of_symbolic_ints(function), comparison(function)) {
                (Some(f), _) => {
                    let results = pairs.map(|(p, q)| f(p, q)).collect::<Option<_>>();
                    Elements::Int(results.ok_or_else(|| batch_size(name(function)))?)
                }
                (_, Some(holds)) => {
                    let equality = function == Function::Elementwise(Binary::Equal);
                    let results = pairs.map(|(p, q)| compare(equality, holds, p, q));
                    Elements::Bool(results.collect::<Result<_>>()?)
                }
                _ => return Ok(None),
            }
        }
        (Elements::Float { values: x, double }, Elements::Float { values: y, double: other }) => {
            let mut pairs = pairs().map(|(i, j)| (x[i], y[j]));
            match comparison(function) {
                Some(holds) => {
                    Elements::Bool(pairs.map(|(p, q)| p.partial_cmp(&q).is_some_and(holds)).collect())
                }
                None => match pairs.by_ref().map(|(p, q)| of_reals(function, p, q)).collect() {
                    Some(values) => Elements::Float { values, double: *double || *other },
                    None => return Ok(None),
                },
            }
        }
        (Elements::Bool(x), Elements::Bool(y)) => {
            let f: fn(bool, bool) -> bool = match function {
                Function::Elementwise(Binary::And) => |p, q| p && q,
                Function::Elementwise(Binary::Or) => |p, q| p || q,
                Function::Elementwise(Binary::Xor) => |p, q| p != q,
                Function::Elementwise(Binary::Equal) => |p, q| p == q,
                _ => return Ok(None),
            };
            Elements::Bool(pairs().map(|(i, j)| f(x[i], y[j])).collect())
        }
        _ => return Ok(None),
    };
    StaticArray::new(shape, elements).map(Some)
}

fn name(function: Function) -> &'static str {
    match function {
        Function::Elementwise(function) => function.name(),
        Function::Modulo | Function::Remainder => "Mod",
    }
}

type OfSymbolicInts = fn(SymbolicInt, SymbolicInt) -> Option<SymbolicInt>;

/// The function of integers that may contain the batch size.
fn of_symbolic_ints(function: Function) -> Option<OfSymbolicInts> {
    use Binary::*;
    let binary = match function {
        Function::Modulo => return Some(SymbolicInt::modulo),
        Function::Remainder => {
            return Some(|a, b| a.known()?.checked_rem(b.known()?).map(SymbolicInt::from));
        }
        Function::Elementwise(binary) => binary,
    };
    Some(match binary {
        Add => SymbolicInt::plus,
        Sub => SymbolicInt::minus,
        Mul => SymbolicInt::times,
        Div => SymbolicInt::over,
        Max => |a, b| Some(if a.compare(b)? == Ordering::Less { b } else { a }),
        Min => |a, b| Some(if a.compare(b)? == Ordering::Greater { b } else { a }),
        Pow => |a, b| a.known()?.checked_pow(u32::try_from(b.known()?).ok()?).map(SymbolicInt::from),
        PRelu | Equal | Less | LessOrEqual | Greater | GreaterOrEqual | And | Or | Xor => return None,
    })
}

fn of_reals(function: Function, a: f64, b: f64) -> Option<f64> {
    match function {
        Function::Elementwise(function) => function.eval(a, b),
        Function::Remainder => Some(a % b),
        Function::Modulo => None,
    }
}

fn comparison(function: Function) -> Option<fn(Ordering) -> bool> {
    match function {
        Function::Elementwise(Binary::Equal) => Some(Ordering::is_eq),
        Function::Elementwise(Binary::Less) => Some(Ordering::is_lt),
        Function::Elementwise(Binary::LessOrEqual) => Some(Ordering::is_le),
        Function::Elementwise(Binary::Greater) => Some(Ordering::is_gt),
        Function::Elementwise(Binary::GreaterOrEqual) => Some(Ordering::is_ge),
        Function::Elementwise(_) | Function::Modulo | Function::Remainder => None,
    }
}

/// A batch size that could equal a number is not taken to: graphs hold for every batch size.
fn compare(equality: bool, holds: fn(Ordering) -> bool, a: SymbolicInt, b: SymbolicInt) -> Result<bool> {
    match a.compare(b) {
        Some(ordering) => Ok(holds(ordering)),
        None if equality => Ok(false),
        None => Err(batch_size("a comparison")),
    }
}

/// `Where`.
pub(crate) fn choose(arrays: &[Option<StaticArray>]) -> Result<StaticArray> {
    let [Some(condition), Some(a), Some(b)] = arrays else {
        return Err(Error::malformed("Where reads three values"));
    };
    let Elements::Bool(flags) = &condition.elements else {
        return Err(Error::shape("the condition of Where should be truth values"));
    };
    let shape = broadcast(&broadcast(&condition.shape, &a.shape)?, &b.shape)?;
    let (a, b) = (a.expanded(&shape)?, b.expanded(&shape)?);
    let count = a.elements.len();
    let both = StaticArray::joined(&[a.reshaped(vec![count])?, b.reshaped(vec![count])?], 0)?;
    let chosen = broadcast_positions(&condition.shape, &shape)?;
    let sources: Vec<usize> =
        chosen.iter().enumerate().map(|(i, &c)| if flags[c] { i } else { count + i }).collect();
    both.select(shape, &sources)
}

/// `Cast`. An integer type of fewer bits keeps the lowest; half precision rounds.
pub(crate) fn cast(x: &StaticArray, to: Element) -> Result<StaticArray> {
    let fitted = |e: SymbolicInt| match (e.known(), to.range()) {
        (Some(known), Some((min, max))) => wrap(known, min as i64, max as i64).into(),
        _ => e,
    };
    let known = |v: &[SymbolicInt]| v.iter().map(|e| e.known()).collect::<Option<Vec<i64>>>();
    let elements = match (to.kind(), &x.elements) {
        (Kind::Bool, Elements::Bool(_)) => x.elements.clone(),
        (Kind::Int, Elements::Int(v)) => Elements::Int(v.iter().map(|&e| fitted(e)).collect()),
        (Kind::Int, Elements::Float { values, .. }) => {
            Elements::Int(values.iter().map(|&v| fitted((v as i64).into())).collect())
        }
        (Kind::Int, Elements::Bool(v)) => Elements::Int(v.iter().map(|&b| i64::from(b).into()).collect()),
        (Kind::Bool, Elements::Float { values, .. }) => {
            Elements::Bool(values.iter().map(|&v| v != 0.0).collect())
        }
        (Kind::Bool, Elements::Int(v)) => {
            let v = known(v).ok_or_else(|| batch_size("a cast"))?;
            Elements::Bool(v.iter().map(|&v| v != 0).collect())
        }
        (Kind::Float, _) => {
            let values = x.floats().ok_or_else(|| batch_size("a cast to real numbers"))?;
            let rounded = |v: f64| match to {
                Element::F16 => Unary::Half.eval(v).unwrap_or(v),
                Element::BF16 => Unary::Bfloat16.eval(v).unwrap_or(v),
                _ => v,
            };
            let values = values.into_iter().map(rounded).collect();
            Elements::Float { values, double: to == Element::F64 }
        }
    };
    StaticArray::new(x.shape.clone(), elements)
}

/// `Range`.
pub(crate) fn range(arrays: &[Option<StaticArray>]) -> Result<StaticArray> {
    let [Some(start), Some(limit), Some(delta)] = arrays else {
        return Err(Error::malformed("Range reads three values"));
    };
    if [start, limit, delta].iter().any(|bound| !bound.shape.is_empty()) {
        return Err(Error::malformed("Range reads three numbers, not arrays; they have no axes"));
    }
    let bounds = [start, limit, delta].map(|h| h.floats().and_then(|v| v.first().copied()));
    let [Some(start_value), Some(limit_value), Some(step)] = bounds else {
        return Err(batch_size("a range"));
    };
    let count = ((limit_value - start_value) / step).ceil().max(0.0);
    if step == 0.0 || count.is_nan() || count > static_array::LIMIT as f64 {
        return Err(Error::unsupported(format!("a range of {count} elements is too large")));
    }
    let count = count as usize;
    let elements = match &start.elements {
        Elements::Int(_) => Elements::Int(
            (0..count as i64)
                .map(|i| (start_value as i64).saturating_add(i.saturating_mul(step as i64)).into())
                .collect(),
        ),
        _ => Elements::Float {
            values: (0..count).map(|i| start_value + i as f64 * step).collect(),
            double: matches!(start.elements, Elements::Float { double: true, .. }),
        },
    };
    StaticArray::new(vec![count], elements)
}

/// A reduction; `None` if it is not one of those computed here.
pub(crate) fn reduce(call: &Call, x: &StaticArray) -> Result<Option<Vec<StaticArray>>> {
    let function = match call.op() {
        "ReduceProd" => Binary::Mul,
        "ReduceSum" => Binary::Add,
        "ReduceMax" => Binary::Max,
        "ReduceMin" => Binary::Min,
        _ => return Ok(None),
    };
    let Some(axes) = reduced_axes(call, x.shape.len())? else { return Ok(Some(vec![x.clone()])) };
    let keep = call.flag("keepdims", true)?;
    let mut result = x.clone();
    for &axis in axes.iter().rev() {
        let length = result.shape[axis];
        let slice = |array: &StaticArray, i: usize| array.taken(axis, &[i], if keep { &[1] } else { &[] });
        if length == 0 {
            return Ok(None);
        }
        let mut total = slice(&result, 0)?;
        for i in 1..length {
            match binary(function, &total, &slice(&result, i)?)? {
                Some(next) => total = next,
                None => return Ok(None),
            }
        }
        result = total;
    }
    Ok(Some(vec![result]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(values: &[(i64, i64)]) -> StaticArray {
        StaticArray::ints(values.iter().map(|&(fixed, batch)| SymbolicInt { fixed, batch }).collect())
    }

    #[test]
    fn shapes_are_computed_with_the_batch_in_them() {
        let shape = array(&[(0, 1), (8, 0)]);
        let doubled = binary(Binary::Mul, &shape, &StaticArray::int(2.into())).unwrap().unwrap();
        assert_eq!(doubled, array(&[(0, 2), (16, 0)]));
        let is_open = binary(Binary::Equal, &shape, &StaticArray::int((-1).into())).unwrap().unwrap();
        assert_eq!(is_open.elements, Elements::Bool(vec![false, false]));
        let chosen = choose(&[Some(is_open), Some(array(&[(1, 0), (1, 0)])), Some(shape)]).unwrap();
        assert_eq!(chosen, array(&[(0, 1), (8, 0)]));
    }

    #[test]
    fn endless_ranges_are_refused() {
        let range_to = |limit: i64, step: i64| {
            range(&[
                Some(StaticArray::int(0.into())),
                Some(StaticArray::int(limit.into())),
                Some(StaticArray::int(step.into())),
            ])
        };
        assert_eq!(range_to(5, 2).unwrap(), array(&[(0, 0), (2, 0), (4, 0)]));
        assert!(range_to(i64::MAX, 1).is_err() && range_to(1, 0).is_err() && range_to(0, 0).is_err());
        assert_eq!(range_to(-3, 1).unwrap().shape, [0]);
    }
}
