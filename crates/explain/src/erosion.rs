//! An image that loses one small area after the other, and what the network says after each. What a loss reaches on its way
//! is computed and kept, so that the next one finds it; only above that all is computed again.

use std::ops::Range;
use std::sync::Arc;

use monosplit_engine::{Engine, Program};
use monosplit_graph::batch::samples_interact;
use monosplit_graph::{Dim, Error, Graph, Result, Tensor};

use crate::network::Network;
use crate::number::Number;
use crate::question::{Class, Question, Settings};
use crate::ripple::{Area, Ripple};
use crate::section::{Below, Section, batch_of};

/// A network that is shown an image with ever more changes.
#[derive(Clone)]
pub struct Erosion {
    parts: Arc<Parts>,
}

struct Parts {
    ripple: Ripple,
    /// Computes the value above which everything is computed.
    last: Below,
    /// What is above it.
    top: Box<dyn Program>,
    /// Channels, height and width of that value.
    shape: Vec<usize>,
}

impl Erosion {
    /// For changes within areas of at most this size; `None` where computing everything again is as good.
    pub fn new(network: &Graph, largest: [usize; 2], engine: &dyn Engine) -> Result<Option<Self>> {
        if samples_interact(network) {
            return Ok(None);
        }
        let network = Network::new(network)?;
        let Some((ripple, last)) = Ripple::new(&network, largest, engine)? else { return Ok(None) };
        let section = Section::at(&network, last, engine)?;
        if !section.names.is_empty() || matches!(section.below.samples(), Dim::Fixed(_)) {
            return Ok(None);
        }
        let shape =
            network.graph().node(last).shape.at(1).ok_or_else(|| Error::shape("a value is too large"))?;
        let top = engine.compile(&section.above)?;
        let parts = Parts { ripple, last: section.below, top, shape: shape[1..].to_vec() };
        Ok(Some(Erosion { parts: Arc::new(parts) }))
    }

    /// The class scores `[1 + steps, classes]` of an image `[1, C, H, W]`, untouched and after each of the changes, which add
    /// up: number `s` lies within the rows and columns `areas[s]` and is made by `change`. So many images at a time are
    /// computed.
    pub fn scores(
        &self,
        image: &Tensor,
        areas: &[[Range<usize>; 2]],
        batch: usize,
        change: &mut dyn FnMut(usize, &mut [f32]),
    ) -> Result<Tensor> {
        let (class, settings) = (Class::Top, Settings::default());
        let question = Question::new(image, &class, &settings);
        let last = self.parts.last.values(&question)?.swap_remove(0);
        match last.data() {
            monosplit_graph::Data::F64(_) => self.eroded::<f64>(&question, &last, areas, batch, change),
            _ => self.eroded::<f32>(&question, &last, areas, batch, change),
        }
    }

    fn eroded<N: Number>(
        &self,
        question: &Question<'_>,
        last: &Tensor,
        areas: &[Area],
        batch: usize,
        change: &mut dyn FnMut(usize, &mut [f32]),
    ) -> Result<Tensor> {
        let Parts { ripple, top, shape, .. } = &*self.parts;
        let mut values: Vec<Vec<N>> =
            ripple.calm(question)?.values.iter().map(|value| value.to_vec()).collect();
        values.push(N::of(last).to_vec());
        let mut image = question.images.to_f32().to_vec();
        let untouched = top.run(std::slice::from_ref(last))?.swap_remove(0);
        let classes = untouched.shape().last().copied().unwrap_or(0);
        let (mut rows, mut scores, mut step) = (Vec::new(), untouched.to_f64().to_vec(), 0);
        for areas in areas.chunks(batch.max(1)) {
            let patches = ripple.changed(areas.to_vec(), |_, copy| {
                change(step, &mut image);
                step += 1;
                copy.extend(image.iter().map(|&value| f64::from(value)));
            });
            ripple.erode(&mut values, patches, &mut rows)?;
            let tensor = Tensor::new(batch_of(areas.len(), shape), N::data(std::mem::take(&mut rows)))?;
            let found = top.run(&[tensor])?.swap_remove(0);
            scores.extend_from_slice(&found.to_f64());
        }
        Tensor::new([1 + step, classes], scores)
    }
}
