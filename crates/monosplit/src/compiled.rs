//! Compiled files: networks that return their own explanation. What they contain is written down in their metadata.

use monosplit_explain::Request;
use monosplit_graph::{Graph, Result, Tensor};

use crate::model::Model;

/// The metadata property that says which program and version compiled a file.
const COMPILER: &str = "monosplit.version";
/// The metadata property that names the network's own file.
const NETWORK: &str = "monosplit.network";
/// What the metadata property of a map begins with; the output's name follows.
const MAP: &str = "monosplit.map:";

/// A map that a compiled file returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompiledMap {
    /// The output.
    pub output: String,
    /// The method, its options and its finish, in words.
    pub description: String,
}

/// `graph` with what it contains written into its metadata.
pub(crate) fn described(mut graph: Graph, model: &Model, requests: &[Request], names: &[String]) -> Graph {
    let file = model.origin().to_string();
    let file = file.rsplit(['/', '\\']).next().unwrap_or_default().to_owned();
    graph.set_metadata(COMPILER, env!("CARGO_PKG_VERSION"));
    graph.set_metadata(NETWORK, file);
    for (request, name) in requests.iter().zip(names) {
        let layer = request.layer.as_deref().unwrap_or("the image");
        let description = format!("{:?} at {layer}, {:?}", request.method, request.finish);
        graph.set_metadata(format!("{MAP}{name}"), description);
    }
    graph
}

/// The maps a graph returns, if it was compiled.
pub fn compiled_maps(graph: &Graph) -> Vec<CompiledMap> {
    let maps = graph.metadata().iter().filter_map(|(key, value)| {
        Some(CompiledMap { output: key.strip_prefix(MAP)?.to_owned(), description: value.clone() })
    });
    maps.filter(|map| graph.outputs().iter().any(|output| output.name == map.output)).collect()
}

/// `graph` with an input replaced by a constant.
pub(crate) fn with_constant(graph: &Graph, input: &str, value: &Tensor) -> Result<Graph> {
    let mut fixed = Graph::new();
    let found = graph.inputs().iter().find(|&&id| graph.node(id).label.tensor == input);
    let given = found.map(|&id| (id, fixed.constant(value.clone()))).into_iter().collect();
    let map = graph.copy_into_with(&mut fixed, &given)?;
    graph.outputs().iter().for_each(|output| fixed.output(output.name.clone(), map[output.node]));
    fixed.pruned()
}
