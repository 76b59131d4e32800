//! An image whose places are covered when their turn has come, and what the network says of it on the way. The network is
//! told the turns and how far each copy is; the copies themselves are made where they are computed.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use monosplit_engine::{Engine, Program};
use monosplit_graph::batch::samples_interact;
use monosplit_graph::op::Binary;
use monosplit_graph::{Dim, Error, Graph, Kind, Result, Shape, Tensor};

use crate::network::Network;

/// Turns are counted in single precision, which knows all whole numbers below this.
const MOST_TURNS: usize = 1 << 24;

/// What covers an image, and when. Both have the rank of the image and are repeated along the axes where they are 1 long.
#[derive(Clone, Debug, PartialEq)]
pub struct Cover {
    /// For every place the number of the step that covers it, counted from 0; of one that is never covered, as many as there
    /// are steps.
    pub turns: Tensor,
    /// What places become.
    pub levels: Tensor,
}

impl Cover {
    /// Whether so many steps can be told apart.
    pub fn can_count(steps: usize) -> bool {
        steps < MOST_TURNS
    }
}

/// A network that is shown an image ever more of which is covered.
#[derive(Clone)]
pub struct Covering {
    program: Arc<dyn Program>,
}

impl Covering {
    /// For covers of the shape of this one; `None` where the copies of an image must be made one by one: for a network of
    /// several inputs or of a fixed batch size.
    pub fn new(network: &Graph, cover: &Cover, engine: &dyn Engine) -> Result<Option<Self>> {
        if samples_interact(network) || network.inputs().len() != 1 {
            return Ok(None);
        }
        let network = Network::new(network)?;
        let image = network.graph().node(network.input());
        let [Dim::Batch(1), rest @ ..] = image.shape.dims() else { return Ok(None) };
        let one = Shape::new([&[Dim::Fixed(1)], rest].concat());
        let mut graph = Graph::new();
        let start = graph.input("image", one, Kind::Float);
        let turns = graph.input("turns", Shape::fixed(cover.turns.shape()), Kind::Float);
        let levels = graph.input("levels", Shape::fixed(cover.levels.shape()), Kind::Float);
        let far = graph.input("steps", Shape::batched(&vec![1; rest.len()]), Kind::Float);
        let covered = graph.binary(Binary::Greater, far, turns)?;
        let copies = graph.select(covered, levels, start)?;
        if graph.node(copies).shape != image.shape {
            let (found, wanted) = (&graph.node(copies).shape, &image.shape);
            return Err(Error::shape(format!("covered images are {found}, the network takes {wanted}")));
        }
        let given = HashMap::from([(network.input(), copies)]);
        let map = network.graph().copy_into_with(&mut graph, &given)?;
        graph.output("scores", map[network.logits()]);
        Ok(Some(Covering { program: engine.compile(&graph.pruned()?)?.into() }))
    }

    /// The class scores `[steps, classes]` of an image `[1, C, H, W]` after so many steps each.
    pub fn scores(&self, image: &Tensor, cover: &Cover, steps: Range<usize>) -> Result<Tensor> {
        let far: Vec<f32> = steps.map(|step| step as f32).collect();
        let shape: Vec<usize> =
            std::iter::once(far.len()).chain(vec![1; image.shape().len().saturating_sub(1)]).collect();
        let inputs = [image.clone(), cover.turns.clone(), cover.levels.clone(), Tensor::new(shape, far)?];
        Ok(self.program.run(&inputs)?.swap_remove(0))
    }
}
