//! Compiled files: networks that return their own explanation. Their metadata describe the maps, one property for each fact;
//! this module writes and reads them.

use monosplit_engine::Precision;
use monosplit_graph::Graph;

/// The metadata property that says which version compiled a file.
const VERSION: &str = "monosplit.version";
/// The metadata property that names the network's own file.
const NETWORK: &str = "monosplit.network";
/// The metadata property that says in which precision a file is computed.
const PRECISION: &str = "monosplit.precision";
/// The metadata property that says in which precision the weights of a file are stored.
const WEIGHTS: &str = "monosplit.weights";
/// The metadata property that says where the explained class comes from: `input`, `top1`, or the class itself.
const CLASS: &str = "monosplit.class";
/// The metadata property that says what of the network's outputs is explained.
const TARGET: &str = "monosplit.target";
/// The metadata property with the name of a class that is always explained.
const CLASS_NAME: &str = "monosplit.class_name";

// The properties of a map are these words, a colon and the output's name.
const METHOD: &str = "monosplit.method";
const TITLE: &str = "monosplit.title";
const LAYER: &str = "monosplit.layer";
const OPTIONS: &str = "monosplit.options";
const FINISH: &str = "monosplit.finish";
const ALPHA: &str = "monosplit.alpha";

/// A map that a compiled file returns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompiledMap {
    /// The output.
    pub output: String,
    /// The name of the method in the catalogue.
    pub method: String,
    /// The title in captions.
    pub title: String,
    /// The layer as it was named; none is the image.
    pub layer: Option<String>,
    /// Whether α is an input of the file that the method reads.
    pub takes_alpha: bool,
    /// All options of the method, `key=value,key=value`. Where α, θ and the limit are inputs of the file, these are their
    /// default values.
    pub options: String,
    /// How the attribution became a map, in the same form.
    pub finish: String,
}

impl CompiledMap {
    /// The value of an option of the method.
    pub fn option(&self, key: &str) -> Option<&str> {
        let mut options = self.options.split(',').filter_map(|option| option.split_once('='));
        options.find(|(known, _)| *known == key).map(|(_, value)| value)
    }

    fn properties(&self) -> Vec<(String, String)> {
        let facts = [
            (METHOD, Some(self.method.as_str())),
            (TITLE, Some(&self.title)),
            (LAYER, self.layer.as_deref()),
            (OPTIONS, Some(self.options.as_str()).filter(|options| !options.is_empty())),
            (FINISH, Some(&self.finish)),
            (ALPHA, self.takes_alpha.then_some("input")),
        ];
        let told = facts.into_iter().filter_map(|(key, value)| Some((key, value?)));
        told.map(|(key, value)| (format!("{key}:{}", self.output), value.to_owned())).collect()
    }

    /// The map at an output, if the metadata describe one.
    fn read(output: &str, metadata: &[(String, String)]) -> Option<Self> {
        let find = |wanted: &str| {
            let mut of_output =
                metadata.iter().filter_map(|(key, value)| Some((key.split_once(':')?, value)));
            of_output.find(|((key, of), _)| (*key, *of) == (wanted, output)).map(|(_, value)| value.clone())
        };
        Some(CompiledMap {
            output: output.to_owned(),
            method: find(METHOD)?,
            title: find(TITLE).unwrap_or_else(|| output.to_owned()),
            layer: find(LAYER),
            takes_alpha: find(ALPHA).is_some(),
            options: find(OPTIONS).unwrap_or_default(),
            finish: find(FINISH).unwrap_or_default(),
        })
    }
}

/// Facts about a compiled file as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompiledFileFacts {
    /// The version that compiled it.
    pub version: Option<String>,
    /// The network it was compiled from.
    pub network: Option<String>,
    /// Where the explained class comes from: `input`, `top1`, or the number of the class.
    pub class: Option<String>,
    /// The name of a class that is always explained.
    pub class_name: Option<String>,
    /// What of the network's outputs is explained, where it is not the score of a class.
    pub target: Option<String>,
    /// The precision in which weights are stored.
    pub weights: Option<String>,
    /// The precision it is meant to be computed in.
    pub precision: Precision,
}

impl CompiledFileFacts {
    /// What the metadata of a graph say.
    pub fn of(graph: &Graph) -> Self {
        let find = |wanted: &str| {
            graph.metadata().iter().find(|(key, _)| *key == wanted).map(|(_, value)| value.clone())
        };
        CompiledFileFacts {
            version: find(VERSION),
            network: find(NETWORK),
            class: find(CLASS),
            class_name: find(CLASS_NAME),
            target: find(TARGET),
            weights: find(WEIGHTS),
            precision: match find(PRECISION).as_deref() == Some(Precision::F64.name()) {
                true => Precision::F64,
                false => Precision::F32,
            },
        }
    }
}

/// Writes into the metadata of `graph` what it was compiled from, how, and which of its outputs are maps.
pub(crate) fn describe(
    graph: &mut Graph,
    network: &str,
    class: &str,
    precision: Precision,
    maps: &[CompiledMap],
) {
    graph.set_metadata(VERSION, env!("CARGO_PKG_VERSION"));
    graph.set_metadata(NETWORK, network);
    graph.set_metadata(CLASS, class);
    graph.set_metadata(PRECISION, precision.name());
    describe_weights(graph, false);
    for (key, value) in maps.iter().flat_map(CompiledMap::properties) {
        graph.set_metadata(key, value);
    }
}

/// Writes into the metadata of `graph` in which precision its weights are stored.
pub(crate) fn describe_weights(graph: &mut Graph, half: bool) {
    graph.set_metadata(WEIGHTS, if half { "f16" } else { "f32" });
}

/// Writes the target into the metadata of `graph`.
pub(crate) fn describe_target(graph: &mut Graph, target: &str) {
    graph.set_metadata(TARGET, target);
}

/// Writes the name of the class that is always explained into the metadata of `graph`.
pub(crate) fn describe_class(graph: &mut Graph, name: String) {
    graph.set_metadata(CLASS_NAME, name);
}

/// Whether metadata belong to a compiled file.
pub fn is_compiled(metadata: &[(String, String)]) -> bool {
    metadata.iter().any(|(key, _)| key.split_once(':').is_some_and(|(key, _)| key == METHOD))
}

/// The maps a graph returns, if it was compiled, in the order of the outputs.
pub fn compiled_maps(graph: &Graph) -> Vec<CompiledMap> {
    let outputs = graph.outputs().iter();
    outputs.filter_map(|output| CompiledMap::read(&output.name, graph.metadata())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_map_is_survives_being_written_down() {
        let map = CompiledMap {
            output: "saliency/a/b:out".into(),
            method: "splitcam".into(),
            title: "SplitCAM g = x".into(),
            layer: None,
            takes_alpha: true,
            options: "part=plus,rules=a=flat".into(),
            finish: "size=layer".into(),
        };
        assert_eq!(CompiledMap::read("saliency/a/b:out", &map.properties()), Some(map.clone()));
        assert_eq!(CompiledMap::read("saliency/a/b", &map.properties()), None);
        assert!(is_compiled(&map.properties()));
    }

    #[test]
    fn a_method_alone_is_enough_for_a_map() {
        let told = [("monosplit.method:out".to_owned(), "lrp".to_owned()), ("x".to_owned(), "y".to_owned())];
        let map = CompiledMap::read("out", &told).unwrap();
        assert_eq!((map.title.as_str(), map.layer), ("out", None));
    }
}
