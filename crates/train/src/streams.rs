//! The streams of a trained network, found in its graph by its metadata.

use monosplit_graph::{Error, Graph, NodeId, Result};

use crate::export::RESTRICTION;
use crate::restriction::Restriction;
use monosplit_graph::metadata::STREAMS;

/// The restriction of a network, from its metadata; `None` if there is none.
pub fn restriction_of(network: &Graph) -> Result<Option<Restriction>> {
    property(network, RESTRICTION).map(str::parse).transpose()
}

fn property<'g>(network: &'g Graph, key: &str) -> Option<&'g str> {
    network.metadata().iter().find(|(k, _)| k == key).map(|(_, value)| value.as_str())
}

/// One stream: its scores, its input, and whether that is `1 − x`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stream {
    pub(crate) scores: NodeId,
    /// The image, or one less the image.
    pub(crate) input: NodeId,
    pub(crate) inverted: bool,
}

/// The streams of a network: `g` and `h` of a difference, else the network itself.
pub(crate) fn streams(network: &Graph) -> Result<Vec<Stream>> {
    let (Some(&image), Some(output)) = (network.inputs().first(), network.outputs().first()) else {
        return Err(Error::argument("the network has no input or no output"));
    };
    let Some(names) = property(network, STREAMS) else {
        return Ok(vec![Stream { scores: output.node, input: image, inverted: false }]);
    };
    let named = |name: &str| network.nodes().find(|(_, node)| node.label.tensor == name).map(|(id, _)| id);
    let ends: Option<Vec<NodeId>> = names.split(' ').map(named).collect();
    let Some(&[first, second]) = ends.as_deref() else {
        return Err(Error::malformed(format!(
            "the file says its streams end in '{names}', which are no two values of its network"
        )));
    };
    let inverted = restriction_of(network)?.is_some_and(Restriction::is_inverted);
    let seen = if inverted { named("inverted") } else { Some(image) };
    let seen =
        seen.ok_or_else(|| Error::malformed("the value 'inverted', which h reads, is not in the file"))?;
    Ok(vec![
        Stream { scores: first, input: image, inverted: false },
        Stream { scores: second, input: seen, inverted },
    ])
}

impl Stream {
    /// The network with this stream's scores as its only output.
    pub(crate) fn alone(&self, network: &Graph) -> Graph {
        let mut graph = network.clone();
        graph.set_outputs(Vec::new());
        graph.output("scores", self.scores);
        graph
    }
}
