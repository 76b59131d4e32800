//! How an evaluated method explains further images: by a compiled method, or as a candidate of a group.

use monosplit_explain::{Class, Explainer, MapRequest, Settings};
use monosplit_graph::{Error, Result, Tensor};

use crate::compiled_group::{CompiledGroup, MapCache, MapOrigin, drawn, scaled};

/// How the evaluated method explains other images than the measured one, and other networks.
pub trait MapFunction: Sync {
    /// The maps `[N, H, W]` of preprocessed images for one class.
    fn maps(&self, images: &Tensor, class: usize) -> Result<Tensor>;

    /// What the method computes, for maps of networks with re-initialised layers; `None` for maps that are not computed by a
    /// method of ours.
    fn method(&self) -> Option<(&MapRequest, &Settings)> {
        None
    }

    /// What is done to a map of the method before it is measured.
    fn finished(&self, map: Tensor) -> Result<Tensor> {
        Ok(map)
    }
}

/// A method compiled for a network: the maps of any image.
pub struct CompiledMethod<'a> {
    /// The compiled method. Its last map is the one that is measured.
    pub explainer: &'a Explainer,
    /// What is computed.
    pub request: &'a MapRequest,
    /// The numbers of a split.
    pub settings: &'a Settings,
}

impl MapFunction for CompiledMethod<'_> {
    fn maps(&self, images: &Tensor, class: usize) -> Result<Tensor> {
        let explained = self.explainer.explain(images, &Class::Index(class), self.settings)?;
        scaled(explained.maps.into_iter().next_back().ok_or_else(|| Error::argument("there is no map"))?)
    }

    fn method(&self) -> Option<(&MapRequest, &Settings)> {
        Some((self.request, self.settings))
    }
}

/// The maps of one candidate of a compiled group.
pub(crate) struct CandidateMaps<'p> {
    pub(crate) compiled_group: &'p CompiledGroup,
    pub(crate) candidate: usize,
    pub(crate) mask: Option<&'p [bool]>,
    pub(crate) map_cache: &'p MapCache,
}

impl MapFunction for CandidateMaps<'_> {
    fn maps(&self, images: &Tensor, class: usize) -> Result<Tensor> {
        let &[samples, _, height, width] = images.shape() else {
            return Err(Error::shape(format!("expected images [N, C, H, W], found {:?}", images.shape())));
        };
        let maps = match &self.compiled_group.origins[self.candidate] {
            MapOrigin::Mask => drawn(&vec![self.mask; samples])?
                .ok_or_else(|| Error::argument("the image has no mask to show"))?,
            MapOrigin::Given(_) => {
                return Err(Error::argument("maps that were given cannot be computed for other images"));
            }
            MapOrigin::Computed(place) => {
                let maps = self.map_cache.maps(self.compiled_group, images, class)?;
                self.compiled_group.signed(maps.0[*place].clone(), self.candidate)?
            }
        };
        maps.reshaped([samples, height, width])
    }

    fn method(&self) -> Option<(&MapRequest, &Settings)> {
        let MapOrigin::Computed(place) = self.compiled_group.origins[self.candidate] else { return None };
        Some((&self.compiled_group.requests[place], &self.compiled_group.settings))
    }

    fn finished(&self, map: Tensor) -> Result<Tensor> {
        self.compiled_group.signed(map, self.candidate)
    }
}
