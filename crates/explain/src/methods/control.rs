//! Control maps, which other methods are compared with: random numbers, the image itself, and a given mask.

use monosplit_engine::Engine;
use monosplit_graph::op::Reduction;
use monosplit_graph::{Error, Hint, Noise, Result, Tensor};

use crate::explain_batch::ExplainBatch;
use crate::method::{
    AttributedLayer, Attributions, GraphMethod, Method, MultiPass, NetworkLayer, PreparedMethod, Procedure,
};
use crate::network::Network;
use crate::network_partition::{PrefixProgram, batch_of, resolve_layer};
use crate::sample_layout::SampleLayout;

/// A random number between 0 and 1 at every position, drawn from the seed and the image. The map of an image does not depend
/// on the other images of the batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RandomMap {
    /// The seed of the random numbers.
    pub seed: u64,
}

/// The image as the network sees it, or the value of a layer: mean over channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ImageItself;

/// A given map.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroundTruth {
    /// `[H, W]` for all samples, or `[N, H, W]` for each, with as many axes as the layer has besides samples and channels; at
    /// another resolution, the nearest pixel is taken.
    pub masks: Option<Tensor>,
}

impl Method for RandomMap {
    fn name(&self) -> String {
        "random".into()
    }

    fn procedure(&self) -> Procedure<'_> {
        Procedure::MultiPass(self)
    }
}

impl Method for ImageItself {
    fn name(&self) -> String {
        "image".into()
    }

    fn procedure(&self) -> Procedure<'_> {
        Procedure::MultiPass(self)
    }
}

impl Method for GroundTruth {
    fn name(&self) -> String {
        "mask".into()
    }

    fn procedure(&self) -> Procedure<'_> {
        Procedure::MultiPass(self)
    }
}

impl MultiPass for RandomMap {
    fn prepare(&self, target: &NetworkLayer<'_>, _: &dyn Engine) -> Result<Box<dyn PreparedMethod>> {
        Ok(Box::new(RandomMaps { seed: self.seed, layer: ControlLayer::new(target)?.1 }))
    }

    fn obstacle(&self) -> &'static str {
        "does not run the network"
    }
}

impl MultiPass for ImageItself {
    fn unrolled(&self) -> Option<&dyn GraphMethod> {
        Some(self)
    }

    fn prepare(&self, target: &NetworkLayer<'_>, engine: &dyn Engine) -> Result<Box<dyn PreparedMethod>> {
        let (network, layer) = ControlLayer::new(target)?;
        let prefix = PrefixProgram::new(&network, &[layer.at], engine)?;
        Ok(Box::new(LayerValues { prefix, layer }))
    }

    fn obstacle(&self) -> &'static str {
        "does not run the network"
    }
}

impl MultiPass for GroundTruth {
    fn prepare(&self, target: &NetworkLayer<'_>, _: &dyn Engine) -> Result<Box<dyn PreparedMethod>> {
        let (_, layer) = ControlLayer::new(target)?;
        let masks = self.masks.clone().ok_or_else(|| {
            Error::argument("no mask was given").hint(Hint::new("mask-file", "the method needs one"))
        })?;
        let (to, shape) = (layer.layout.spatial_dims(), masks.shape());
        let from = match shape.len().checked_sub(to.len()) {
            Some(leading @ (0 | 1)) if !shape.contains(&0) => shape[leading..].to_vec(),
            _ => {
                return Err(Error::shape(format!(
                    "a mask of shape {shape:?}: expected the {} axes of {to:?}, with a number of masks before them or not",
                    to.len()
                )));
            }
        };
        let of = masks.to_f64();
        let mut fitted =
            Vec::with_capacity(of.len() / from.iter().product::<usize>() * layer.layout.position_count());
        for mask in of.chunks(from.iter().product()) {
            fitted.extend((0..layer.layout.position_count()).map(|position| {
                let along = layer.layout.coordinates(position).into_iter().zip(from.iter().zip(to));
                let nearest =
                    |i: usize, from: usize, to: usize| ((2 * i + 1) * from / (2 * to)).min(from - 1);
                mask[along.fold(0, |index, (i, (&from, &to))| index * from + nearest(i, from, to))]
            }));
        }
        Ok(Box::new(MaskMaps { maps: fitted, layer }))
    }

    fn obstacle(&self) -> &'static str {
        "does not run the network"
    }
}

/// The layer of a control map.
struct ControlLayer {
    at: monosplit_graph::NodeId,
    layout: SampleLayout,
    name: Option<String>,
}

impl ControlLayer {
    fn new(target: &NetworkLayer<'_>) -> Result<(Network, Self)> {
        let (network, at, layout) = resolve_layer(target)?;
        Ok((network, ControlLayer { at, layout, name: target.layer.map(str::to_owned) }))
    }

    fn maps(&self, samples: usize, values: Vec<f64>) -> Result<Attributions> {
        let values = Tensor::new(batch_of(samples, self.layout.spatial_dims()), values)?;
        Ok(Attributions { values, diagnostics: Vec::new() })
    }
}

struct RandomMaps {
    seed: u64,
    layer: ControlLayer,
}

impl PreparedMethod for RandomMaps {
    fn attribute(&self, batch: &ExplainBatch<'_>, classes: &[usize]) -> Result<Attributions> {
        let (images, samples) = (batch.images.to_f64(), classes.len());
        let mut values = Vec::with_capacity(samples * self.layer.layout.position_count());
        for image in images.chunks((images.len() / samples.max(1)).max(1)) {
            let seed = Noise::new(self.seed).stream("random map");
            let own = image.iter().fold(seed, |noise, v| noise.numbered(v.to_bits()));
            values
                .extend((0..self.layer.layout.position_count() as u64).map(|position| own.uniform(position)));
        }
        self.layer.maps(samples, values)
    }

    fn attributed_layer(&self) -> AttributedLayer {
        AttributedLayer { layer: self.layer.name.clone(), channels: None }
    }
}

struct LayerValues {
    prefix: PrefixProgram,
    layer: ControlLayer,
}

impl PreparedMethod for LayerValues {
    fn attribute(&self, batch: &ExplainBatch<'_>, _: &[usize]) -> Result<Attributions> {
        Ok(Attributions { values: self.prefix.values(batch)?.swap_remove(0), diagnostics: Vec::new() })
    }

    fn attributed_layer(&self) -> AttributedLayer {
        AttributedLayer { layer: self.layer.name.clone(), channels: Some(Reduction::Mean) }
    }
}

struct MaskMaps {
    maps: Vec<f64>,
    layer: ControlLayer,
}

impl PreparedMethod for MaskMaps {
    fn attribute(&self, batch: &ExplainBatch<'_>, classes: &[usize]) -> Result<Attributions> {
        let length = self.layer.layout.position_count();
        let own = batch.item_indices(self.maps.len() / length, "masks")?;
        let maps = own.iter().flat_map(|&i| &self.maps[i * length..(i + 1) * length]);
        self.layer.maps(classes.len(), maps.copied().collect())
    }

    fn attributed_layer(&self) -> AttributedLayer {
        AttributedLayer { layer: self.layer.name.clone(), channels: None }
    }
}
