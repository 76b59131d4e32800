//! Compiled files: networks that return their own explanation. What they contain is written down in their metadata, and
//! read again here.

use monosplit_engine::Precision;
use monosplit_graph::Graph;

/// The metadata property that says which version compiled a file.
const VERSION: &str = "monosplit.version";
/// The metadata property that names the network's own file.
const NETWORK: &str = "monosplit.network";
/// The metadata property that says in which precision a file is computed.
const PRECISION: &str = "monosplit.precision";
/// What the metadata property of a map begins with; the output's name follows.
const MAP: &str = "monosplit.map:";

/// A map that a compiled file returns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompiledMap {
    /// The output.
    pub output: String,
    /// The name the method was asked for by.
    pub method: String,
    /// What it is called in pictures.
    pub title: String,
    /// The layer as it was named; none is the image.
    pub layer: Option<String>,
    /// Whether the method has an α.
    pub takes_alpha: bool,
    /// All options of the method.
    pub options: String,
    /// How the attribution became a map.
    pub finish: String,
}

impl CompiledMap {
    fn fields(&self) -> [(&'static str, Option<&str>); 6] {
        [
            ("method", Some(&self.method)),
            ("title", Some(&self.title)),
            ("layer", self.layer.as_deref()),
            ("alpha", self.takes_alpha.then_some("input")),
            ("options", Some(&self.options)),
            ("finish", Some(&self.finish)),
        ]
    }

    /// One line `key=value` for everything but the output.
    fn to_text(&self) -> String {
        let lines = self.fields().into_iter().filter_map(|(key, value)| Some(format!("{key}={}", value?)));
        lines.collect::<Vec<_>>().join("\n")
    }

    fn parse(output: &str, text: &str) -> Self {
        let find = |key: &str| {
            let mut pairs = text.lines().filter_map(|line| line.split_once('='));
            pairs.find(|(name, _)| *name == key).map(|(_, value)| value.to_owned())
        };
        CompiledMap {
            output: output.to_owned(),
            method: find("method").unwrap_or_else(|| "map".to_owned()),
            title: find("title").unwrap_or_else(|| output.to_owned()),
            layer: find("layer"),
            takes_alpha: find("alpha").is_some(),
            options: find("options").unwrap_or_default(),
            finish: find("finish").unwrap_or_default(),
        }
    }
}

/// Writes into the metadata of `graph` that it was compiled from `network` and which of its outputs are maps.
pub(crate) fn describe(graph: &mut Graph, network: &str, precision: Precision, maps: &[CompiledMap]) {
    graph.set_metadata(VERSION, env!("CARGO_PKG_VERSION"));
    graph.set_metadata(NETWORK, network);
    graph.set_metadata(PRECISION, precision.name());
    for map in maps {
        graph.set_metadata(format!("{MAP}{}", map.output), map.to_text());
    }
}

/// Whether metadata are those of a compiled file.
pub(crate) fn is_compiled(metadata: &[(String, String)]) -> bool {
    metadata.iter().any(|(key, _)| key.starts_with(MAP))
}

/// The maps a graph returns, if it was compiled, in the order of the outputs.
pub fn compiled_maps(graph: &Graph) -> Vec<CompiledMap> {
    let described = |output: &str| {
        let mut properties = graph.metadata().iter();
        let (_, text) = properties.find(|(key, _)| key.strip_prefix(MAP) == Some(output))?;
        Some(CompiledMap::parse(output, text))
    };
    graph.outputs().iter().filter_map(|output| described(&output.name)).collect()
}

/// The precision a compiled graph is meant to be computed in.
pub(crate) fn precision(graph: &Graph) -> Precision {
    let mut properties = graph.metadata().iter();
    let double = properties.any(|(key, value)| key == PRECISION && value == Precision::F64.name());
    if double { Precision::F64 } else { Precision::F32 }
}

/// The version that compiled a graph and the network it was compiled from, as far as they are known.
pub(crate) fn provenance(graph: &Graph) -> [Option<&str>; 2] {
    let find = |wanted: &str| {
        graph.metadata().iter().find(|(key, _)| *key == wanted).map(|(_, value)| value.as_str())
    };
    [find(VERSION), find(NETWORK)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_map_is_survives_being_written_down() {
        let map = CompiledMap {
            output: "saliency/a/b".into(),
            method: "splitcam".into(),
            title: "SplitCAM g = x".into(),
            layer: None,
            takes_alpha: true,
            options: "SplitCam { part: Combined }".into(),
            finish: "Finish".into(),
        };
        assert_eq!(CompiledMap::parse("saliency/a/b", &map.to_text()), map);
    }

    #[test]
    fn text_that_says_nothing_still_gives_a_map() {
        let map = CompiledMap::parse("out", "nonsense\n==");
        assert_eq!((map.title.as_str(), map.layer), ("out", None));
    }
}
