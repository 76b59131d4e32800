//! Candidates: configurations of methods that are evaluated and chosen from.

use std::sync::Arc;

use monosplit_explain::{Finish, MapRequest, Method, Settings, Size};

use crate::given_maps::GivenMaps;
use crate::store::Configuration;

/// What computes a map.
#[derive(Clone, Debug)]
pub enum Source {
    /// A method and the layer of its map; no layer is the image.
    Method(Arc<dyn Method>, Option<String>),
    /// The object mask itself, as the reference of a map that marks exactly the object.
    Mask,
    /// Maps that were made elsewhere.
    Given(GivenMaps),
}

/// An evaluated configuration: a method with its options, a layer, and whether signs are kept.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The configuration that identifies it in a store.
    pub configuration: Configuration,
    /// The family it is listed under.
    pub family: String,
    /// Its title.
    pub title: String,
    /// Its position on the axis of its stage: a layer, or the value of an option.
    pub place: String,
    /// A note on why it was chosen.
    pub note: String,
    /// What computes its map.
    pub source: Source,
    /// How the attribution becomes a map. Its size is that of the image.
    pub finish: Finish,
    /// The run-time settings of the method.
    pub settings: Settings,
}

impl Candidate {
    /// The request of its map, at the size of the image. The absolute value is taken afterwards, so that candidates with and
    /// without signs share one map.
    pub(crate) fn request(&self) -> Option<MapRequest> {
        match &self.source {
            Source::Method(method, layer) => {
                let finish = Finish { size: Size::Input, ..self.finish };
                Some(MapRequest::of(method.clone(), layer.clone()).finish(finish))
            }
            Source::Mask | Source::Given(_) => None,
        }
    }
}

/// Groups candidates whose maps are computed by one program. Those of a group have the same run-time settings and at most
/// `most` different maps. The grouping depends on the candidates alone.
pub(crate) fn groups(candidates: &[Candidate], most: usize) -> Vec<Vec<usize>> {
    type Group = (Settings, Vec<Option<MapRequest>>, Vec<usize>);
    let mut groups: Vec<Group> = Vec::new();
    for (index, candidate) in candidates.iter().enumerate() {
        let map = candidate.request();
        let fits = |(settings, maps, _): &&mut Group| {
            *settings == candidate.settings && (maps.contains(&map) || maps.len() < most)
        };
        match groups.iter_mut().find(fits) {
            Some((_, maps, members)) => {
                if !maps.contains(&map) {
                    maps.push(map);
                }
                members.push(index);
            }
            None => groups.push((candidate.settings.clone(), vec![map], vec![index])),
        }
    }
    groups.into_iter().map(|(_, _, members)| members).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use monosplit_explain::ReferenceImage;
    use monosplit_explain::methods::{DeepLift, PoolChange, SplitGrad};
    use monosplit_graph::Tensor;

    use super::*;

    pub(crate) fn candidate(layer: &str, alpha: f64, absolute: bool) -> Candidate {
        let configuration = Configuration {
            method: "splitgrad".into(),
            options: format!("alpha={alpha}"),
            layer: layer.into(),
            absolute,
        };
        Candidate {
            configuration,
            family: String::new(),
            title: "SplitGrad".into(),
            place: String::new(),
            note: String::new(),
            source: Source::Method(Arc::new(SplitGrad::default()), Some(layer.into())),
            finish: Finish::default(),
            settings: Settings::default().alpha(alpha),
        }
    }

    #[test]
    fn maps_of_unlike_baselines_are_two_maps() {
        let with = |last: f32| {
            let baseline = Tensor::vector([vec![0.0; 15], vec![last]].concat());
            let lift = DeepLift { baseline: ReferenceImage::Image(baseline), pool: PoolChange::default() };
            Candidate { source: Source::Method(Arc::new(lift), None), ..candidate("", 0.5, false) }
        };
        let requests = [0.0, 1.0, 0.0].map(|last| with(last).request());
        assert_ne!(requests[0], requests[1]);
        assert_eq!(requests[0], requests[2]);
    }

    #[test]
    fn a_group_shares_its_numbers_and_has_few_maps() {
        let candidates: Vec<Candidate> = ["a", "b", "c"]
            .iter()
            .flat_map(|layer| [0.3, 0.4].map(|alpha| (layer, alpha)))
            .flat_map(|(layer, alpha)| [false, true].map(|absolute| candidate(layer, alpha, absolute)))
            .collect();
        let groups = groups(&candidates, 2);
        assert_eq!(groups, [vec![0, 1, 4, 5], vec![2, 3, 6, 7], vec![8, 9], vec![10, 11]]);
    }
}
