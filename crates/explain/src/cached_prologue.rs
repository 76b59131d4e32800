//! A cache of the values that depend on the class and the settings but not on the image.

use std::collections::VecDeque;
use std::sync::Mutex;

use monosplit_engine::{Engine, Program};
use monosplit_graph::{Buffer, Data, Dim, Error, Graph, Result, Tensor};

use crate::bindings::bind;
use crate::explain_batch::{ExplainBatch, Settings};
use crate::explanation_graph::inputs;
use crate::prologue::{PrologueSplit, cut};

/// The two programs of an explanation that is cut into a part that does not depend on the image (the prologue) and the
/// rest, and the values the prologue computed for the last few classes.
pub(crate) struct CachedPrologue {
    cut: PrologueSplit,
    prologue: Box<dyn Program>,
    main: Box<dyn Program>,
    cache: Mutex<VecDeque<(Key, Vec<Tensor>)>>,
}

#[derive(Clone, PartialEq)]
struct Key {
    class: i64,
    settings: Settings,
}

/// The number of classes whose prologue values are kept.
const CACHED_CLASSES: usize = 4;

impl CachedPrologue {
    /// Cuts and compiles the graph of an explanation whose class is given; `None` if it has no such part.
    pub(crate) fn new(graph: &Graph, engine: &dyn Engine) -> Result<Option<Self>> {
        let numbers = [inputs::ALPHA, inputs::SHARE, inputs::THETA, inputs::LIMIT];
        let Some(cut) = cut(graph, inputs::CLASS, &numbers)? else { return Ok(None) };
        let (prologue, main) = (engine.compile(&cut.prologue)?, engine.compile(&cut.main)?);
        Ok(Some(CachedPrologue { cut, prologue, main, cache: Mutex::new(VecDeque::new()) }))
    }

    /// The outputs of the explanation for a batch with these classes. `graph` is the explanation, uncut.
    pub(crate) fn run(
        &self,
        graph: &Graph,
        classes: &[i64],
        batch: &ExplainBatch<'_>,
    ) -> Result<Vec<Tensor>> {
        let mut inputs = bind(graph, batch, classes)?;
        let mut per_sample = Vec::with_capacity(classes.len());
        for &class in classes {
            per_sample.push(self.crossing(graph, class, batch)?);
        }
        for i in 0..self.cut.crossing {
            let parts: Vec<&Tensor> = per_sample.iter().map(|crossing| &crossing[i]).collect();
            let shape = &self.cut.prologue.node(self.cut.prologue.outputs()[i].node).shape;
            let axis = shape.dims().iter().position(|d| matches!(d, Dim::Batch(_))).unwrap_or(0);
            inputs.push(stacked(&parts, axis)?);
        }
        self.main.run(&inputs)
    }

    /// The values that cross the cut for one class, computed once.
    fn crossing(&self, graph: &Graph, class: i64, batch: &ExplainBatch<'_>) -> Result<Vec<Tensor>> {
        let key = Key { class, settings: batch.settings.clone() };
        if let Some(crossing) = self.recall(&key) {
            log::debug!("class {class}: what does not depend on the image was cached");
            return Ok(crossing);
        }
        log::debug!("class {class}: what does not depend on the image is computed and cached");
        let all = bind(graph, batch, &[class])?;
        let given: Vec<Tensor> = self.cut.prologue_inputs.iter().map(|&i| all[i].clone()).collect();
        let crossing = self.prologue.run(&given)?;
        if let Ok(mut cache) = self.cache.lock() {
            cache.push_front((key, crossing.clone()));
            cache.truncate(CACHED_CLASSES);
        }
        Ok(crossing)
    }

    fn recall(&self, key: &Key) -> Option<Vec<Tensor>> {
        let mut cache = self.cache.lock().ok()?;
        let position = cache.iter().position(|(k, _)| k == key)?;
        let entry = cache.remove(position)?;
        let values = entry.1.clone();
        cache.push_front(entry);
        Some(values)
    }
}

/// Tensors of equal shape joined along an axis.
fn stacked(parts: &[&Tensor], axis: usize) -> Result<Tensor> {
    if let [only] = parts {
        return Ok((*only).clone());
    }
    let first = parts.first().ok_or_else(|| Error::argument("a batch needs at least one sample"))?;
    let mut shape = first.shape().to_vec();
    let block: usize = shape[axis..].iter().product();
    let blocks: usize = shape[..axis].iter().product();
    shape[axis] *= parts.len();
    if let Data::F32(_) = first.data() {
        let buffers: Vec<_> = parts.iter().map(|t| t.to_f32()).collect();
        return Tensor::new(shape, interleaved(&buffers, blocks, block));
    }
    let buffers: Vec<_> = parts.iter().map(|t| t.to_f64()).collect();
    Tensor::new(shape, interleaved(&buffers, blocks, block))
}

fn interleaved<T: Copy>(parts: &[Buffer<T>], blocks: usize, block: usize) -> Vec<T> {
    let at = |part: &Buffer<T>, b: usize| part[b * block..(b + 1) * block].to_vec();
    (0..blocks).flat_map(|b| parts.iter().flat_map(move |part| at(part, b))).collect()
}
