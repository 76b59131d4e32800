//! An image that loses one small area after the other, and what the network says after each. What a loss reaches on its way
//! is computed and kept, so that the next one finds it; only above that all is computed again.

use std::ops::Range;
use std::sync::Arc;

use monosplit_engine::{CompileOptions, Engine, Precision, Program};
use monosplit_graph::batch::samples_interact;
use monosplit_graph::{Buffer, Dim, Error, Graph, Result, Tensor};

use crate::explain_batch::{Class, ExplainBatch, Settings};
use crate::network::Network;
use crate::number::Number;
use crate::pieces::Area;
use crate::ripple::{Ground, Ripple, emptied};
use crate::section::{Cut, batch_of};

/// A network that is shown an image with ever more changes.
#[derive(Clone)]
pub struct Erosion {
    parts: Arc<Parts>,
}

struct Parts {
    ripple: Ripple,
    /// What is above the value from which on everything is computed.
    top: Box<dyn Program>,
    /// Channels, height and width of that value.
    shape: Vec<usize>,
}

impl Erosion {
    /// So many images at a time are computed fastest: those whose changes reach as far as each other are computed together.
    pub const COPIES: usize = 64;

    /// For changes within areas of at most this size; `None` where computing everything again is as good.
    pub fn new(network: &Graph, largest: [usize; 2], engine: &dyn Engine) -> Result<Option<Self>> {
        if samples_interact(network) {
            return Ok(None);
        }
        let network = Network::new(network)?;
        if matches!(network.samples(), Dim::Fixed(_)) {
            return Ok(None);
        }
        let Some((ripple, last)) = Ripple::new(&network, largest, Erosion::COPIES, engine)? else {
            return Ok(None);
        };
        let (graph, logits) = (network.graph(), network.logits());
        let cut = Cut::new(graph, last, logits)?;
        if !cut.crossing.is_empty() {
            return Ok(None);
        }
        let shape = graph.node(last).shape.at(1).ok_or_else(|| Error::shape("a value is too large"))?;
        let top = engine.compile_with(
            &cut.above(graph, logits, &[])?,
            &CompileOptions::default().batch_size(Erosion::COPIES),
        )?;
        Ok(Some(Erosion { parts: Arc::new(Parts { ripple, top, shape: shape[1..].to_vec() }) }))
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
        match self.parts.ripple.precision() {
            Precision::F64 => self.eroded::<f64>(image, areas, batch, change),
            Precision::F32 => self.eroded::<f32>(image, areas, batch, change),
        }
    }

    fn eroded<N: Number>(
        &self,
        image: &Tensor,
        areas: &[Area],
        batch: usize,
        change: &mut dyn FnMut(usize, &mut [f32]),
    ) -> Result<Tensor> {
        let Parts { ripple, top, shape } = &*self.parts;
        let (class, settings) = (Class::Top, Settings::default());
        let calm = ripple.calm(&ExplainBatch::new(image, &class, &settings))?;
        let mut values: Vec<Vec<N>> = calm.values.into_iter().map(Buffer::into_vec).collect();
        let (mut image, mut flow) = (image.to_f32().to_vec(), ripple.flow::<N>());
        let (mut rows, mut scores) = (values[values.len() - 1].clone(), Vec::new());
        // The untouched image goes along; no batch is much smaller than the others.
        let images = 1 + areas.len();
        let batches = images.div_ceil(batch.max(1));
        for number in 0..batches {
            let (first, end) = (number * images / batches, (number + 1) * images / batches);
            for (step, area) in areas.iter().enumerate().take(end - 1).skip(first.saturating_sub(1)) {
                change(step, &mut image);
                flow.add(area.clone(), &image, |value| N::rounded(f64::from(value)));
            }
            flow.run(Ground::Shared(&mut values), &mut rows)?;
            let tensor = Tensor::new(batch_of(end - first, shape), N::data(rows))?;
            scores.extend_from_slice(&top.run(std::slice::from_ref(&tensor))?[0].to_f64());
            rows = emptied(tensor);
        }
        let classes = scores.len() / images;
        Tensor::new([images, classes], scores)
    }
}
