//! The closed list of names a weights file may mention. A pickle calls functions by name; these are the ones
//! whose meaning is written down in this crate, and no name is ever looked up anywhere else.

use crate::element::Element;
use crate::{Error, Result, shown};

/// What a name in a pickle means to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Global {
    /// A class whose values are dictionaries.
    Dictionary,
    /// `torch.Size`: a tuple by another name.
    Size,
    /// `_rebuild_tensor(storage, offset, shape, strides)` and its second version, which adds to the end.
    Tensor,
    /// `_rebuild_tensor_v3(storage, offset, shape, strides, requires_grad, hooks, type)`.
    TensorOfType,
    /// `_rebuild_parameter(tensor, …)`.
    Parameter,
    /// `_rebuild_from_type_v2(function, class, arguments, state)`.
    TensorOfClass,
    /// A storage of numbers of one type.
    Storage(Element),
    /// A storage of bytes.
    Bytes,
    /// The type of a tensor's numbers.
    Type(Element),
    /// Something a checkpoint may keep next to its tensors; it stays an empty token.
    Inert,
}

impl Global {
    /// The meaning of `module.name`; an error naming it if it has none.
    pub(super) fn named(module: &str, name: &str) -> Result<Self> {
        let known = match (module, name) {
            ("collections", "OrderedDict" | "defaultdict" | "Counter") => Global::Dictionary,
            ("torch", "Size") => Global::Size,
            ("torch._utils", "_rebuild_tensor" | "_rebuild_tensor_v2") => Global::Tensor,
            ("torch._utils", "_rebuild_tensor_v3") => Global::TensorOfType,
            ("torch._utils", "_rebuild_parameter" | "_rebuild_parameter_with_state")
            | ("torch.nn.parameter", "Parameter") => Global::Parameter,
            ("torch._tensor", "_rebuild_from_type_v2") => Global::TensorOfClass,
            ("torch.storage" | "torch", "UntypedStorage") => Global::Bytes,
            ("torch" | "torch.cuda", storage) if storage.ends_with("Storage") => {
                Global::Storage(storage_element(storage)?)
            }
            ("torch", name) => match number_type(name)? {
                Some(element) => Global::Type(element),
                None if matches!(name, "device" | "Tensor") => Global::Inert,
                None => return Err(refused(module, name)),
            },
            ("numpy", "dtype" | "ndarray")
            | ("numpy.core.multiarray" | "numpy._core.multiarray", "scalar" | "_reconstruct")
            | ("_codecs", "encode")
            | ("argparse", "Namespace")
            | ("builtins" | "__builtin__", "set" | "frozenset" | "list" | "dict" | "int" | "float") => {
                Global::Inert
            }
            _ => return Err(refused(module, name)),
        };
        Ok(known)
    }
}

fn storage_element(class: &str) -> Result<Element> {
    Ok(match class {
        "BoolStorage" => Element::Bool,
        "CharStorage" => Element::I8,
        "ShortStorage" => Element::I16,
        "IntStorage" => Element::I32,
        "LongStorage" => Element::I64,
        "ByteStorage" => Element::U8,
        "HalfStorage" => Element::F16,
        "BFloat16Storage" => Element::BF16,
        "FloatStorage" => Element::F32,
        "DoubleStorage" => Element::F64,
        _ => return Err(unsupported_numbers(class)),
    })
}

/// The number type called `torch.name`; none if it is no type at all.
fn number_type(name: &str) -> Result<Option<Element>> {
    Ok(Some(match name {
        "bool" => Element::Bool,
        "int8" => Element::I8,
        "int16" => Element::I16,
        "int32" => Element::I32,
        "int64" => Element::I64,
        "uint8" => Element::U8,
        "uint16" => Element::U16,
        "uint32" => Element::U32,
        "uint64" => Element::U64,
        "float16" => Element::F16,
        "bfloat16" => Element::BF16,
        "float32" => Element::F32,
        "float64" => Element::F64,
        _ if ["complex", "qint", "quint", "float8", "float4"]
            .iter()
            .any(|prefix| name.starts_with(prefix)) =>
        {
            return Err(unsupported_numbers(name));
        }
        _ => return Ok(None),
    }))
}

fn unsupported_numbers(name: &str) -> Error {
    Error::unsupported(format!(
        "the weights hold numbers of type 'torch.{}': convert them to float32 before saving",
        shown(name)
    ))
}

fn refused(module: &str, name: &str) -> Error {
    Error::unsupported(format!(
        "the file calls '{}.{}': a weights file may only hold tensors, containers and numbers; re-save it with \
         torch.save(model.state_dict(), …)",
        shown(module),
        shown(name)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_outside_of_the_list_are_refused_by_name() {
        for (module, name) in [
            ("os", "system"),
            ("posix", "system"),
            ("builtins", "eval"),
            ("builtins", "getattr"),
            ("torch", "load"),
            ("torch.hub", "load"),
            ("torch.storage", "_load_from_bytes"),
            ("torch.nn.modules.linear", "Linear"),
            ("collections", "OrderedDict.fromkeys"),
        ] {
            let message = Global::named(module, name).unwrap_err().to_string();
            assert!(message.contains(&format!("'{module}.{name}'")), "{message}");
        }
    }

    #[test]
    fn numbers_we_cannot_hold_say_so() {
        for name in ["QInt8Storage", "ComplexFloatStorage", "float8_e4m3fn", "complex64"] {
            let message = Global::named("torch", name).unwrap_err().to_string();
            assert!(message.contains(name) && message.contains("float32"), "{message}");
        }
    }

    #[test]
    fn messages_stay_short_and_on_one_line() {
        let message = Global::named("a\nb", &"x".repeat(1 << 20)).unwrap_err().to_string();
        assert!(message.len() < 400 && !message.contains('\n'));
    }
}
