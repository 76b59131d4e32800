//! The maps of candidates that are computed together.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex};

use monosplit_explain::{Class, ExplainBatch, Explainer, MapRequest, SaliencyMap, Settings};
use monosplit_graph::batch::rows;
use monosplit_graph::{Data, Result, Tensor};

use crate::given_maps::GivenMaps;

/// Candidates whose maps are computed together.
pub struct CompiledGroup {
    pub(crate) explainer: Arc<Explainer>,
    pub(crate) requests: Vec<MapRequest>,
    pub(crate) settings: Settings,
    pub(crate) origins: Vec<MapOrigin>,
    pub(crate) absolute: Vec<bool>,
}

/// Where the map of a candidate comes from.
pub(crate) enum MapOrigin {
    /// The index of its map among those of the explainer.
    Computed(usize),
    /// The object mask.
    Mask,
    /// Maps that were made elsewhere.
    Given(GivenMaps),
}

/// An image as candidates need it that do not compute their map.
#[derive(Clone, Copy, Debug)]
pub struct ImageFacts<'a> {
    /// Its id in the store.
    pub id: i64,
    /// Its object mask.
    pub mask: Option<&'a [bool]>,
}

/// The maps of all candidates of a compiled group for a batch of images.
#[derive(Clone, Debug)]
pub struct Maps(pub(crate) Vec<Tensor>);

impl CompiledGroup {
    /// The maps `[N, H, W]` of images, each for its own class.
    pub fn maps(&self, images: &Tensor, classes: &[usize]) -> Result<Maps> {
        let class = Class::PerSample(classes.to_vec());
        let batch = ExplainBatch { position: None, ..ExplainBatch::new(images, &class, &self.settings) };
        let explained = self.explainer.explain_unchecked(&batch)?;
        explained.maps.into_iter().map(scaled).collect::<Result<_>>().map(Maps)
    }

    /// The map of one candidate for image `index` of a batch, one value for each pixel; `None` if the candidate is the mask
    /// and the image has none.
    pub fn of(
        &self,
        maps: &Maps,
        candidate: usize,
        index: usize,
        image: &ImageFacts<'_>,
    ) -> Result<Option<Tensor>> {
        let map = match &self.origins[candidate] {
            MapOrigin::Computed(place) => rows(&maps.0[*place], index..index + 1)?,
            MapOrigin::Mask => return drawn(&[image.mask]),
            MapOrigin::Given(maps) => maps.of(image.id)?,
        };
        self.signed(map, candidate).map(Some)
    }

    /// A map, or its absolute value if the candidate asks for it.
    pub(crate) fn signed(&self, map: Tensor, candidate: usize) -> Result<Tensor> {
        if !self.absolute[candidate] {
            return Ok(map);
        }
        let shape = map.shape().to_vec();
        match map.data() {
            Data::F64(values) => Tensor::new(shape, values.iter().map(|v| v.abs()).collect::<Vec<_>>()),
            _ => Tensor::new(shape, map.to_f32().iter().map(|v| v.abs()).collect::<Vec<_>>()),
        }
    }

    /// Whether a candidate has maps of the images alone: they were made elsewhere and cannot be computed for others.
    pub fn is_given(&self, candidate: usize) -> bool {
        matches!(self.origins[candidate], MapOrigin::Given(_))
    }
}

/// The values of a map multiplied by two to the power of its exponents.
pub(crate) fn scaled(map: SaliencyMap) -> Result<Tensor> {
    if map.exponents.iter().all(|&exponent| exponent == 0) {
        return Ok(map.values);
    }
    let size = map.values.len() / map.exponents.len().max(1);
    let values = map.values.to_f64();
    let scaled = values.chunks(size.max(1)).zip(&map.exponents).flat_map(|(sample, &exponent)| {
        let factor = f64::from(exponent).exp2();
        sample.iter().map(move |v| v * factor)
    });
    Tensor::new(map.values.shape().to_vec(), scaled.collect::<Vec<_>>())
}

/// Masks as maps of ones and zeros; `None` if one is missing.
pub(crate) fn drawn(masks: &[Option<&[bool]>]) -> Result<Option<Tensor>> {
    let mut values = Vec::new();
    for mask in masks {
        let Some(mask) = mask else { return Ok(None) };
        values.extend(mask.iter().map(|&inside| f32::from(u8::from(inside))));
    }
    let size = values.len() / masks.len().max(1);
    Tensor::new([masks.len(), 1, size], values).map(Some)
}

/// Maps of perturbed images. All candidates of a group read the maps of one run.
#[derive(Default)]
pub(crate) struct MapCache(Mutex<Vec<CachedMaps>>);

/// Images, the class that was explained, and the maps.
struct CachedMaps {
    hash: u64,
    images: Tensor,
    class: usize,
    maps: Arc<Maps>,
}

impl MapCache {
    /// Removes all entries.
    pub(crate) fn clear(&self) {
        if let Ok(mut known) = self.0.lock() {
            known.clear();
        }
    }

    pub(crate) fn maps(
        &self,
        compiled_group: &CompiledGroup,
        images: &Tensor,
        class: usize,
    ) -> Result<Arc<Maps>> {
        let mut hasher = DefaultHasher::new();
        images.to_f32().iter().for_each(|v| v.to_bits().hash(&mut hasher));
        let hash = hasher.finish();
        if let Ok(known) = self.0.lock() {
            let same = |one: &&CachedMaps| one.hash == hash && one.class == class && one.images == *images;
            if let Some(one) = known.iter().find(same) {
                return Ok(one.maps.clone());
            }
        }
        let samples = images.shape().first().copied().unwrap_or(0);
        let maps = Arc::new(compiled_group.maps(images, &vec![class; samples])?);
        if let Ok(mut known) = self.0.lock() {
            known.push(CachedMaps { hash, images: images.clone(), class, maps: maps.clone() });
        }
        Ok(maps)
    }
}
