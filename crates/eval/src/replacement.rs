//! An image whose pixels are replaced step by step, and its class scores after any number of steps. The compiled graph makes
//! the perturbed copies itself from the step and the new value of each pixel, so that no copies are moved to the engine.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use monosplit_engine::{Engine, Program};
use monosplit_explain::class_scores;
use monosplit_graph::batch::samples_interact;
use monosplit_graph::op::Binary;
use monosplit_graph::{Dim, Error, Graph, Kind, Result, Shape, Tensor};

/// Steps are single precision numbers in the graph, which represents all whole numbers below this.
const MAX_STEPS: usize = 1 << 24;

/// Which step replaces each pixel, and by what. Both tensors have the rank of the image; axes of length 1 are broadcast.
#[derive(Clone, Debug, PartialEq)]
pub struct PixelReplacement {
    /// The step that replaces each pixel, counted from 0; the number of steps for a pixel that is never replaced.
    pub steps: Tensor,
    /// The new values.
    pub values: Tensor,
}

impl PixelReplacement {
    /// Whether this many steps can be represented.
    pub(crate) fn can_represent(steps: usize) -> bool {
        steps < MAX_STEPS
    }
}

/// A network compiled together with the replacement of pixels.
#[derive(Clone)]
pub(crate) struct ReplacementProgram {
    program: Arc<dyn Program>,
}

impl ReplacementProgram {
    /// Compiles for replacements with the shapes of `replacement`. `None` for networks of several inputs or of fixed batch
    /// size, and where the samples of a batch interact.
    pub(crate) fn new(
        network: &Graph,
        replacement: &PixelReplacement,
        engine: &dyn Engine,
    ) -> Result<Option<Self>> {
        if samples_interact(network) || network.inputs().len() != 1 {
            return Ok(None);
        }
        let network = class_scores(network)?;
        let input = network.inputs()[0];
        let image = network.node(input);
        let [Dim::Batch(1), rest @ ..] = image.shape.dims() else { return Ok(None) };
        let one = Shape::new([&[Dim::Fixed(1)], rest].concat());
        let mut graph = Graph::new();
        let start = graph.input("image", one, Kind::Float);
        let steps = graph.input("steps", Shape::fixed(replacement.steps.shape()), Kind::Float);
        let values = graph.input("values", Shape::fixed(replacement.values.shape()), Kind::Float);
        let done = graph.input("done", Shape::batched(&vec![1; rest.len()]), Kind::Float);
        let replaced = graph.binary(Binary::Greater, done, steps)?;
        let copies = graph.select(replaced, values, start)?;
        if graph.node(copies).shape != image.shape {
            let (found, wanted) = (&graph.node(copies).shape, &image.shape);
            return Err(Error::shape(format!("perturbed images are {found}, the network takes {wanted}")));
        }
        let map = network.copy_into_with(&mut graph, &HashMap::from([(input, copies)]))?;
        for output in network.outputs() {
            graph.output(output.name.clone(), map[output.node]);
        }
        Ok(Some(ReplacementProgram { program: engine.compile(&graph.pruned()?)?.into() }))
    }

    /// The class scores `[N, classes]` of an image `[1, C, H, W]` after each number of steps in the range.
    pub(crate) fn scores(
        &self,
        image: &Tensor,
        replacement: &PixelReplacement,
        done: Range<usize>,
    ) -> Result<Tensor> {
        let done: Vec<f32> = done.map(|step| step as f32).collect();
        let shape: Vec<usize> =
            std::iter::once(done.len()).chain(vec![1; image.shape().len().saturating_sub(1)]).collect();
        let (steps, values) = (replacement.steps.clone(), replacement.values.clone());
        let inputs = [image.clone(), steps, values, Tensor::new(shape, done)?];
        Ok(self.program.run(&inputs)?.swap_remove(0))
    }
}
