//! DOT, for Graphviz and everything that reads it.

use std::fmt::Write;

use monosplit_graph::Result;

use super::{Picture, Shape, Stream};
use crate::network::MaxoutNetwork;

/// The network in the DOT language.
pub fn dot(network: &MaxoutNetwork) -> Result<String> {
    let picture = Picture::of(network)?;
    let mut text = String::from(
        "digraph network {\n  rankdir=LR;\n  node [fontname=\"Helvetica\", style=\"filled\", fillcolor=\"white\"];\n  edge [fontname=\"Helvetica\", fontsize=10];\n",
    );
    for (i, neuron_box) in picture.boxes.iter().enumerate() {
        let shape = match neuron_box.shape {
            Shape::Input => "circle",
            Shape::Addition => "box",
            Shape::Multiplication => "hexagon",
        };
        let fill = match neuron_box.stream {
            Stream::Plus => ", fillcolor=\"#fdebd3\"",
            Stream::Minus => ", fillcolor=\"#dcebfa\"",
            Stream::Neither => "",
        };
        let label = if neuron_box.rule.is_empty() {
            neuron_box.name.clone()
        } else {
            format!("{}\\n{}", neuron_box.name, neuron_box.rule)
        };
        let border = if neuron_box.output { ", penwidth=3" } else { "" };
        // Writing to a string cannot fail; names hold neither quotes nor backslashes.
        let _ = writeln!(text, "  n{i} [label=\"{label}\", shape={shape}{fill}{border}];");
    }
    for arrow in &picture.arrows {
        let label = if arrow.label.is_empty() { String::new() } else { format!("label=\"{}\"", arrow.label) };
        let colour = if arrow.negative { "color=\"#c0392b\", fontcolor=\"#c0392b\"" } else { "" };
        let attributes: Vec<&str> =
            [label.as_str(), colour].into_iter().filter(|part| !part.is_empty()).collect();
        let attributes = attributes.join(", ");
        let brackets = if attributes.is_empty() { String::new() } else { format!(" [{attributes}]") };
        let _ = writeln!(text, "  n{} -> n{}{brackets};", arrow.from, arrow.to);
    }
    text.push_str("}\n");
    Ok(text)
}
