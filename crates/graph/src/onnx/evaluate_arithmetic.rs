//! Arithmetic on values that are known while a file is read.

use std::cmp::Ordering;

use super::call::Call;
use super::elements;
use super::extent::Extent;
use super::host::{self, Elements, Host, broadcast, broadcast_positions};
use super::import_reduce::reduced_axes;
use crate::element::Element;
use crate::error::{Error, Result};
use crate::tensor::Kind;

fn batch_size(what: &str) -> Error {
    Error::unsupported(format!("{what} depends on the batch size in a way that is not known before it runs"))
}

/// Elementwise ops of one, two or more values; `None` for anything else.
pub(crate) fn elementwise(call: &Call, hosts: &[Option<Host>]) -> Result<Option<Vec<Host>>> {
    let present: Vec<&Host> = hosts.iter().flatten().collect();
    let result = match (call.op(), &present[..]) {
        ("Sum", [a, rest @ ..]) => chain("Add", a, rest)?,
        ("Max" | "Min", [a, rest @ ..]) => chain(call.op(), a, rest)?,
        ("Mod", [a, b]) if call.flag("fmod", false)? => binary("Fmod", a, b)?,
        (op, [a]) => unary(op, a)?,
        (op, [a, b]) => binary(op, a, b)?,
        _ => None,
    };
    Ok(result.map(|h| vec![h]))
}

fn chain(op: &str, first: &Host, rest: &[&Host]) -> Result<Option<Host>> {
    let mut result = first.clone();
    for other in rest {
        match binary(op, &result, other)? {
            Some(next) => result = next,
            None => return Ok(None),
        }
    }
    Ok(Some(result))
}

fn unary(op: &str, x: &Host) -> Result<Option<Host>> {
    let elements = match &x.elements {
        Elements::Int(v) => match op {
            "Neg" => Elements::Int(each(op, v, |e| Extent::from(0).minus(e))?),
            "Abs" => Elements::Int(each(op, v, |e| match e.compare(0.into())? {
                Ordering::Less => Extent::from(0).minus(e),
                _ => Some(e),
            })?),
            _ => return Ok(None),
        },
        Elements::Bool(v) if op == "Not" => Elements::Bool(v.iter().map(|b| !b).collect()),
        Elements::Bool(_) => return Ok(None),
        Elements::Float { values, double } => {
            let f: fn(f64) -> f64 = match op {
                "Neg" => |v| -v,
                "Abs" => f64::abs,
                "Floor" => f64::floor,
                "Ceil" => f64::ceil,
                "Round" => f64::round_ties_even,
                "Sqrt" => f64::sqrt,
                "Reciprocal" => f64::recip,
                "Exp" => f64::exp,
                "Log" => f64::ln,
                _ => return Ok(None),
            };
            Elements::Float { values: values.iter().map(|&v| f(v)).collect(), double: *double }
        }
    };
    Host::new(x.shape.clone(), elements).map(Some)
}

fn each(op: &str, values: &[Extent], f: impl Fn(Extent) -> Option<Extent>) -> Result<Vec<Extent>> {
    values.iter().map(|&e| f(e)).collect::<Option<_>>().ok_or_else(|| batch_size(op))
}

/// An elementwise op of two values; `None` if it is not one of those computed here.
pub(crate) fn binary(op: &str, a: &Host, b: &Host) -> Result<Option<Host>> {
    let logical = matches!(op, "And" | "Or" | "Xor");
    if ints(op).is_none() && floats(op).is_none() && comparison(op).is_none() && !logical {
        return Ok(None);
    }
    let shape = broadcast(&a.shape, &b.shape)?;
    let (left, right) = (broadcast_positions(&a.shape, &shape)?, broadcast_positions(&b.shape, &shape)?);
    let pairs = || left.iter().copied().zip(right.iter().copied());
    let elements = match (&a.elements, &b.elements) {
        (Elements::Int(x), Elements::Int(y)) => {
            let pairs = pairs().map(|(i, j)| (x[i], y[j]));
            match ints(op) {
                Some(f) => Elements::Int(
                    pairs.map(|(p, q)| f(p, q)).collect::<Option<_>>().ok_or_else(|| batch_size(op))?,
                ),
                None => match comparison(op) {
                    Some(f) => {
                        Elements::Bool(pairs.map(|(p, q)| compare(op, f, p, q)).collect::<Result<_>>()?)
                    }
                    None => return Ok(None),
                },
            }
        }
        (Elements::Float { values: x, double }, Elements::Float { values: y, double: other }) => {
            let pairs = pairs().map(|(i, j)| (x[i], y[j]));
            match (floats(op), comparison(op)) {
                (Some(f), _) => Elements::Float {
                    values: pairs.map(|(p, q)| f(p, q)).collect(),
                    double: *double || *other,
                },
                (_, Some(f)) => {
                    Elements::Bool(pairs.map(|(p, q)| p.partial_cmp(&q).is_some_and(f)).collect())
                }
                _ => return Ok(None),
            }
        }
        (Elements::Bool(x), Elements::Bool(y)) => {
            let f: fn(bool, bool) -> bool = match op {
                "And" => |p, q| p && q,
                "Or" => |p, q| p || q,
                "Xor" => |p, q| p != q,
                "Equal" => |p, q| p == q,
                _ => return Ok(None),
            };
            Elements::Bool(pairs().map(|(i, j)| f(x[i], y[j])).collect())
        }
        _ => return Ok(None),
    };
    Host::new(shape, elements).map(Some)
}

type IntOp = fn(Extent, Extent) -> Option<Extent>;

fn ints(op: &str) -> Option<IntOp> {
    Some(match op {
        "Add" => Extent::plus,
        "Sub" => Extent::minus,
        "Mul" => Extent::times,
        "Div" => Extent::over,
        "Mod" => Extent::modulo,
        "Fmod" => |a, b| a.known()?.checked_rem(b.known()?).map(Extent::from),
        "Max" => |a, b| Some(if a.compare(b)? == Ordering::Less { b } else { a }),
        "Min" => |a, b| Some(if a.compare(b)? == Ordering::Greater { b } else { a }),
        "Pow" => |a, b| a.known()?.checked_pow(u32::try_from(b.known()?).ok()?).map(Extent::from),
        _ => return None,
    })
}

fn floats(op: &str) -> Option<fn(f64, f64) -> f64> {
    Some(match op {
        "Add" => |a, b| a + b,
        "Sub" => |a, b| a - b,
        "Mul" => |a, b| a * b,
        "Div" => |a, b| a / b,
        "Fmod" => |a, b| a % b,
        "Max" => |a: f64, b: f64| if a.is_nan() || a > b { a } else { b },
        "Min" => |a: f64, b: f64| if a.is_nan() || a < b { a } else { b },
        "Pow" => f64::powf,
        _ => return None,
    })
}

fn comparison(op: &str) -> Option<fn(Ordering) -> bool> {
    Some(match op {
        "Equal" => Ordering::is_eq,
        "Less" => Ordering::is_lt,
        "LessOrEqual" => Ordering::is_le,
        "Greater" => Ordering::is_gt,
        "GreaterOrEqual" => Ordering::is_ge,
        _ => return None,
    })
}

/// A batch size that could equal a number is not taken to: graphs hold for every batch size.
fn compare(op: &str, holds: fn(Ordering) -> bool, a: Extent, b: Extent) -> Result<bool> {
    match a.compare(b) {
        Some(ordering) => Ok(holds(ordering)),
        None if op == "Equal" => Ok(false),
        None => Err(batch_size("a comparison")),
    }
}

/// `Where`.
pub(crate) fn choose(hosts: &[Option<Host>]) -> Result<Host> {
    let [Some(condition), Some(a), Some(b)] = hosts else {
        return Err(Error::malformed("Where reads three values"));
    };
    let Elements::Bool(flags) = &condition.elements else {
        return Err(Error::shape("the condition of Where should be truth values"));
    };
    let shape = broadcast(&broadcast(&condition.shape, &a.shape)?, &b.shape)?;
    let (a, b) = (a.expanded(&shape)?, b.expanded(&shape)?);
    let count = a.elements.len();
    let both = Host::joined(&[a.reshaped(vec![count])?, b.reshaped(vec![count])?], 0)?;
    let chosen = broadcast_positions(&condition.shape, &shape)?;
    let sources: Vec<usize> =
        chosen.iter().enumerate().map(|(i, &c)| if flags[c] { i } else { count + i }).collect();
    both.select(shape, &sources)
}

/// `Cast` to the type with ONNX's number `to`.
pub(crate) fn cast(x: &Host, to: i64) -> Result<Host> {
    let to = elements::element(to)?;
    let known = |v: &[Extent]| v.iter().map(|e| e.known()).collect::<Option<Vec<i64>>>();
    let elements = match (to.kind(), &x.elements) {
        (Kind::Int, Elements::Int(_)) | (Kind::Bool, Elements::Bool(_)) => x.elements.clone(),
        (Kind::Int, Elements::Float { values, .. }) => {
            Elements::Int(values.iter().map(|&v| (v as i64).into()).collect())
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
            Elements::Float { values, double: to == Element::F64 }
        }
    };
    Host::new(x.shape.clone(), elements)
}

/// `Range`.
pub(crate) fn range(hosts: &[Option<Host>]) -> Result<Host> {
    let [Some(start), Some(limit), Some(delta)] = hosts else {
        return Err(Error::malformed("Range reads three values"));
    };
    let bounds = [start, limit, delta].map(|h| h.floats().and_then(|v| v.first().copied()));
    let [Some(start_value), Some(limit_value), Some(step)] = bounds else {
        return Err(batch_size("a range"));
    };
    let count = ((limit_value - start_value) / step).ceil().max(0.0);
    if step == 0.0 || count.is_nan() || count > host::LIMIT as f64 {
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
    Host::new(vec![count], elements)
}

/// A reduction; `None` if it is not one of those computed here.
pub(crate) fn reduce(call: &Call, x: &Host) -> Result<Option<Vec<Host>>> {
    let combine = match call.op() {
        "ReduceProd" => "Mul",
        "ReduceSum" => "Add",
        "ReduceMax" => "Max",
        "ReduceMin" => "Min",
        _ => return Ok(None),
    };
    let Some(axes) = reduced_axes(call, x.shape.len())? else { return Ok(Some(vec![x.clone()])) };
    let keep = call.flag("keepdims", true)?;
    let mut result = x.clone();
    for &axis in axes.iter().rev() {
        let length = result.shape[axis];
        let slice = |host: &Host, i: usize| host.taken(axis, &[i], if keep { &[1] } else { &[] });
        if length == 0 {
            return Ok(None);
        }
        let mut total = slice(&result, 0)?;
        for i in 1..length {
            match binary(combine, &total, &slice(&result, i)?)? {
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

    fn host(values: &[(i64, i64)]) -> Host {
        Host::ints(values.iter().map(|&(fixed, batch)| Extent { fixed, batch }).collect())
    }

    #[test]
    fn shapes_are_computed_with_the_batch_in_them() {
        let shape = host(&[(0, 1), (8, 0)]);
        let doubled = binary("Mul", &shape, &Host::int(2.into())).unwrap().unwrap();
        assert_eq!(doubled, host(&[(0, 2), (16, 0)]));
        let is_open = binary("Equal", &shape, &Host::int((-1).into())).unwrap().unwrap();
        assert_eq!(is_open.elements, Elements::Bool(vec![false, false]));
        let chosen = choose(&[Some(is_open), Some(host(&[(1, 0), (1, 0)])), Some(shape)]).unwrap();
        assert_eq!(chosen, host(&[(0, 1), (8, 0)]));
    }

    #[test]
    fn endless_ranges_are_refused() {
        let range_to = |limit: i64, step: i64| {
            range(&[Some(Host::int(0.into())), Some(Host::int(limit.into())), Some(Host::int(step.into()))])
        };
        assert_eq!(range_to(5, 2).unwrap(), host(&[(0, 0), (2, 0), (4, 0)]));
        assert!(range_to(i64::MAX, 1).is_err() && range_to(1, 0).is_err() && range_to(0, 0).is_err());
        assert_eq!(range_to(-3, 1).unwrap().shape, [0]);
    }
}
