//! Networks whose pictures have their channels last, for metrics that change pictures with channels first.

use monosplit_graph::{Dim, Graph, Kind, Op, Result, Shape};

use crate::model::{ChannelOrder, Model, PictureInput};

impl Model {
    /// The network with channels before rows in its input, where they come last.
    pub(crate) fn channels_first(self) -> Result<Self> {
        let PictureInput { size: [channels, height, width], order } = self.picture_input()?;
        if order == ChannelOrder::ChannelsFirst {
            return Ok(self);
        }
        let (graph, input) = (self.graph(), self.input()?);
        let samples = input.shape.dims()[0];
        let planes = [channels, height, width].map(Dim::Fixed);
        let mut turned = Graph::new();
        let name = input.label.tensor.clone();
        let planes = turned.input(name, Shape::new([&[samples], &planes[..]].concat()), Kind::Float);
        let pixels = turned.add(Op::Transpose { axes: vec![0, 2, 3, 1] }, &[planes])?;
        let read = graph.inputs().iter().find(|&&id| graph.node(id).label.tensor == input.label.tensor);
        let given = read.map(|&id| (id, pixels)).into_iter().collect();
        let map = graph.copy_into_with(&mut turned, &given)?;
        graph.outputs().iter().for_each(|output| turned.output(output.name.clone(), map[output.node]));
        for (key, value) in graph.metadata() {
            turned.set_metadata(key, value);
        }
        Ok(self.with_canonical(turned))
    }
}
