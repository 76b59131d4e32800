//! Smaller files: attributes that have their default value and long names of inner values are left out. An explanation
//! has thousands of nodes, and these are most of what it adds to a file.

use std::collections::{HashMap, HashSet};

use super::model::{AttributeProto, AttributeValue, GraphProto};

/// Whether an attribute is what ONNX takes it for where it is not given.
pub(crate) fn is_default(op: &str, attribute: &str, value: &AttributeProto) -> bool {
    use AttributeValue::{Int, Ints, Text};
    match (attribute, value.value()) {
        ("strides" | "dilations", Ints(values)) => values.iter().all(|&v| v == 1),
        ("pads" | "output_padding", Ints(values)) => values.iter().all(|&v| v == 0),
        ("group" | "keepdims", Int(value)) => value == 1,
        ("ceil_mode" | "count_include_pad" | "transA" | "transB" | "allowzero", Int(value)) => value == 0,
        ("axis", Int(value)) => matches!(op, "Gather" | "ArgMax") && value == 0,
        ("mode", Text(text)) => op == "Pad" && text == b"constant",
        _ => false,
    }
}

/// Gives every value but the `kept` ones a name of a few letters, the fewer the more often it is written.
pub(crate) fn shorten_names(graph: &mut GraphProto, kept: &HashSet<String>) {
    let mut counts: HashMap<&str, (usize, usize)> = HashMap::new();
    let of_nodes = graph.nodes.iter().flat_map(|node| node.inputs.iter().chain(&node.outputs));
    let of_constants = graph.initializers.iter().map(|constant| &constant.name);
    for (place, name) in of_constants.chain(of_nodes).enumerate() {
        if !name.is_empty() && !kept.contains(name) {
            counts.entry(name).or_insert((0, place)).0 += 1;
        }
    }
    let mut ordered: Vec<(&str, (usize, usize))> = counts.into_iter().collect();
    ordered.sort_unstable_by_key(|&(_, (count, place))| (usize::MAX - count, place));
    let free = (0..).map(short_name).filter(|name| !kept.contains(name));
    let short: HashMap<String, String> =
        ordered.iter().map(|(name, _)| (*name).to_owned()).zip(free).collect();
    let rename = |name: &mut String| {
        if let Some(new) = short.get(name.as_str()) {
            name.clone_from(new);
        }
    };
    graph.nodes.iter_mut().flat_map(|node| node.inputs.iter_mut().chain(&mut node.outputs)).for_each(rename);
    graph.initializers.iter_mut().map(|constant| &mut constant.name).for_each(rename);
    graph.inner.iter_mut().map(|value| &mut value.name).for_each(rename);
}

/// The `number`th identifier, in order of length.
fn short_name(number: usize) -> String {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    const FIRST: usize = 52;
    let mut name = String::from(char::from(LETTERS[number % FIRST]));
    let mut rest = number / FIRST;
    while rest > 0 {
        rest -= 1;
        name.push(char::from(LETTERS[rest % LETTERS.len()]));
        rest /= LETTERS.len();
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_identifiers_that_do_not_repeat() {
        let names: Vec<String> = (0..20_000).map(short_name).collect();
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
        assert!(names.iter().all(|name| name.starts_with(|c: char| c.is_ascii_alphabetic())));
        assert!(names.iter().zip(&names[1..]).all(|(a, b)| a.len() <= b.len()));
        assert_eq!([names[51].len(), names[52].len(), names[52 + 52 * 62].len()], [1, 2, 3]);
    }
}
