//! What ONNX demands of a node: how many inputs and outputs it has, which attributes of which type, and since which version of
//! the operator set. The table is written by `scripts/make_onnx_schemas.py`. Nodes of other domains are not checked.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::model::{AttributeProto, AttributeValue, NodeProto};
use crate::error::{Error, Result};
use crate::op::Arity;

static TABLE: LazyLock<Table> =
    LazyLock::new(|| Table::read(include_str!("schemas.txt")).unwrap_or_default());

/// Attributes of older operator sets that exporters went on writing, and that change nothing when a network is evaluated: the
/// operator and the attribute. `docs/src/own-model.md` lists them.
const TOLERATED: [(&str, &str); 8] = [
    ("Add", "consumed_inputs"),
    ("BatchNormalization", "consumed_inputs"),
    ("BatchNormalization", "is_test"),
    // Where it is not its default, the network is refused.
    ("BatchNormalization", "spatial"),
    ("Dropout", "is_test"),
    ("Dropout", "ratio"),
    ("Mul", "consumed_inputs"),
    ("Relu", "consumed_inputs"),
];

/// The schemas of the default domain.
#[derive(Default)]
struct Table {
    /// The newest operator set there is.
    newest: i64,
    /// For every operator, its versions from the oldest to the newest; `None` where it was taken away.
    operators: HashMap<&'static str, Vec<(i64, Option<Schema>)>>,
}

/// A version of an operator.
struct Schema {
    inputs: Arity,
    outputs: Arity,
    attributes: Vec<Attribute>,
}

struct Attribute {
    name: &'static str,
    /// The letter of its type.
    letter: char,
    required: bool,
}

impl Table {
    fn read(text: &'static str) -> Option<Table> {
        let mut lines = text.lines();
        let mut table = Table { newest: lines.next()?.parse().ok()?, operators: HashMap::new() };
        for line in lines {
            let mut words = line.split(' ');
            let (name, since) = (words.next()?, words.next()?.parse().ok()?);
            let schema = match words.next()? {
                "-" => None,
                inputs => Some(Schema {
                    inputs: arity(inputs)?,
                    outputs: arity(words.next()?)?,
                    attributes: words.map(Attribute::read).collect::<Option<_>>()?,
                }),
            };
            table.operators.entry(name).or_default().push((since, schema));
        }
        Some(table)
    }
}

/// An arity as the table has it.
fn arity(text: &str) -> Option<Arity> {
    let (least, most) = text.split_once("..")?;
    let most = if most == "*" { usize::MAX } else { most.parse().ok()? };
    Some(Arity { least: least.parse().ok()?, most })
}

fn check_count(arity: Arity, found: usize, noun: &str, op: &str) -> Result<()> {
    match arity.admits(found) {
        true => Ok(()),
        false => Err(Error::malformed(format!("{op} has {}, found {found}", arity.of(noun)))),
    }
}

impl Attribute {
    fn read(text: &'static str) -> Option<Self> {
        let (name, letters) = text.split_once(':')?;
        Some(Attribute { name, letter: letters.chars().next()?, required: letters.ends_with('!') })
    }

    /// The type in words.
    fn expected(&self) -> &'static str {
        match self.letter {
            'i' => "an integer",
            'I' => "a list of integers",
            'f' => "a number",
            'F' => "a list of numbers",
            's' => "text",
            't' => "a tensor",
            'g' => "a graph",
            _ => "of another type",
        }
    }

    /// Whether a value has the type. Types that are not read are not told apart.
    fn admits(&self, value: &AttributeValue<'_>) -> bool {
        match value {
            AttributeValue::Int(_) => self.letter == 'i',
            AttributeValue::Ints(_) => self.letter == 'I',
            AttributeValue::Float(_) => self.letter == 'f',
            AttributeValue::Floats(_) => self.letter == 'F',
            AttributeValue::Text(_) => self.letter == 's',
            AttributeValue::Texts(_) => self.letter == 'S',
            AttributeValue::Tensor(_) => self.letter == 't',
            AttributeValue::Graph(_) => self.letter == 'g',
            AttributeValue::Reference(_) => true,
            AttributeValue::Other => !matches!(self.letter, 'i' | 'I' | 'f' | 'F' | 's' | 'S' | 't' | 'g'),
        }
    }
}

/// An error if this version of the default operator set is not read.
pub(crate) fn check_version(version: i64) -> Result<()> {
    if (1..=TABLE.newest).contains(&version) {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "the file is written in version {version} of the ONNX operators, expected 1 to {}",
        TABLE.newest
    )))
}

/// An error if a node is not what the operator set of its file says of its op.
pub(crate) fn check(node: &NodeProto, version: i64) -> Result<()> {
    let op = &*node.op_type;
    let Some(versions) = TABLE.operators.get(op).filter(|_| matches!(&*node.domain, "" | "ai.onnx")) else {
        return Ok(());
    };
    let schema = match versions.iter().rev().find(|(since, _)| *since <= version) {
        Some((_, Some(schema))) => schema,
        Some((since, None)) => {
            return Err(Error::malformed(format!(
                "{op} was taken out of the ONNX operators in version {since}, and the file is written in version {version}"
            )));
        }
        None => {
            let since = versions.first().map_or(1, |(since, _)| *since);
            return Err(Error::malformed(format!(
                "{op} is in the ONNX operators since version {since}, and the file is written in version {version}"
            )));
        }
    };
    check_count(schema.inputs, node.inputs.len(), "input", op)?;
    check_count(schema.outputs, node.outputs.len(), "output", op)?;
    // What comes first in these may be left out although inputs follow that may not.
    let needed = if matches!(op, "Loop" | "Scan") { 0 } else { schema.inputs.least.min(node.inputs.len()) };
    if let Some(left_out) = node.inputs[..needed].iter().position(String::is_empty) {
        return Err(Error::malformed(format!("{op} needs its input {}, which is left out", left_out + 1)));
    }
    for (index, attribute) in node.attributes.iter().enumerate() {
        if node.attributes[..index].iter().any(|other| other.name == attribute.name) {
            return Err(Error::malformed(format!("{op} has the attribute '{}' twice", attribute.name)));
        }
        schema.check_attribute(attribute, op, version)?;
    }
    let missing = |attribute: &&Attribute| attribute.required && node.attribute(attribute.name).is_none();
    match schema.attributes.iter().find(missing) {
        Some(missing) => {
            Err(Error::malformed(format!("{op} has no attribute '{}', which it needs", missing.name)))
        }
        None => Ok(()),
    }
}

impl Schema {
    fn check_attribute(&self, found: &AttributeProto, op: &str, version: i64) -> Result<()> {
        let name = &*found.name;
        let Some(known) = self.attributes.iter().find(|known| known.name == name) else {
            // Names that begin so are no part of the operator.
            if name.starts_with("__") || TOLERATED.contains(&(op, name)) {
                return Ok(());
            }
            let names: Vec<&str> = self.attributes.iter().map(|known| known.name).collect();
            let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Err(Error::malformed(format!(
                "{op} has no attribute '{name}' in version {version} of the ONNX operators; it has {names}"
            )));
        };
        if known.admits(&found.value()) {
            return Ok(());
        }
        Err(Error::malformed(format!("attribute '{name}' of {op} should be {}", known.expected())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(op: &str, inputs: usize, attributes: Vec<AttributeProto>) -> NodeProto {
        NodeProto {
            op_type: op.to_owned(),
            inputs: vec!["x".to_owned(); inputs],
            outputs: vec!["y".to_owned()],
            attributes,
            ..NodeProto::default()
        }
    }

    #[test]
    fn the_table_is_whole() {
        assert!(Table::read(include_str!("schemas.txt")).is_some());
        assert!(TABLE.newest >= 28 && TABLE.operators.len() > 180, "{}", TABLE.operators.len());
        check_version(1).unwrap();
        for version in [0, -1, TABLE.newest + 1, 100, i64::MAX] {
            assert!(check_version(version).unwrap_err().to_string().contains("expected 1 to"));
        }
    }

    #[test]
    fn nodes_are_what_their_operator_set_says() {
        let int = |name: &str| AttributeProto::int(1).named(name);
        let float = |name: &str| AttributeProto::float(1.0).named(name);
        let good = [
            (node("Relu", 1, vec![]), 17),
            (node("Concat", 3, vec![int("axis")]), 17),
            (node("Concat", 1, vec![]), 3),
            (node("Gemm", 3, vec![int("transB"), float("alpha")]), 13),
            (node("Relu", 1, vec![int("__origin")]), 17),
            (node("BatchNormalization", 5, vec![int("is_test")]), 9),
        ];
        for (node, version) in good {
            check(&node, version).unwrap();
        }
        let bad = [
            (node("Relu", 2, vec![]), 17, "Relu has 1 input, found 2"),
            (node("Conv", 1, vec![]), 17, "Conv has 2 to 3 inputs, found 1"),
            (node("Conv", 2, vec![int("stride")]), 17, "no attribute 'stride'"),
            (node("Conv", 2, vec![int("strides")]), 17, "'strides' of Conv should be a list of integers"),
            (node("Concat", 2, vec![]), 17, "Concat has no attribute 'axis'"),
            (node("Concat", 2, vec![int("axis"), int("axis")]), 17, "Concat has the attribute 'axis' twice"),
            (node("Gelu", 1, vec![]), 17, "Gelu is in the ONNX operators since version 20"),
            (node("Upsample", 2, vec![]), 13, "Upsample was taken out of the ONNX operators in version 10"),
        ];
        for (node, version, words) in bad {
            let said = check(&node, version).unwrap_err().to_string();
            assert!(said.contains(words), "{said}");
        }
        check(&NodeProto { domain: "com.microsoft".to_owned(), ..node("Gelu", 1, vec![]) }, 17).unwrap();
    }
}
