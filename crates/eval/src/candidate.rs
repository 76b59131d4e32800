//! Who is examined: a method with its options, at a layer, with or without signs.

use std::sync::Arc;

use monosplit_explain::{Finish, MapRequest, Method, Settings, Size};

use crate::store::Configuration;

/// What makes a map.
#[derive(Clone, Debug)]
pub enum Source {
    /// A method, read off at a layer; none is the image.
    Method(Arc<dyn Method>, Option<String>),
    /// The mask of the image itself: what the metrics say of a map that marks the object and nothing else.
    Mask,
}

/// A configuration under examination.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// What tells it from others, in a store.
    pub configuration: Configuration,
    /// What it is listed under.
    pub family: String,
    /// What it is called.
    pub title: String,
    /// Where it stands on the axis of its stage: a layer, a value.
    pub place: String,
    /// Why it is here.
    pub note: String,
    /// What makes its map.
    pub source: Source,
    /// The numbers the method takes at run time.
    pub settings: Settings,
}

impl Candidate {
    /// The map that is asked for, at the size of the image; the absolute value is taken afterwards, so that a
    /// configuration with signs and one without share it.
    pub(crate) fn request(&self) -> Option<MapRequest> {
        match &self.source {
            Source::Method(method, layer) => {
                let finish = Finish { size: Size::Input, ..Finish::default() };
                Some(MapRequest::of(method.clone(), layer.clone()).finish(finish))
            }
            Source::Mask => None,
        }
    }

    /// What tells its map from others that take the same numbers at run time.
    pub(crate) fn map_key(&self) -> String {
        match &self.source {
            Source::Method(method, layer) => format!("{method:?} at {layer:?}"),
            Source::Mask => String::new(),
        }
    }
}

/// Candidates by the programs that compute their maps: those of a group take the same numbers at run time, and have at
/// most `most` different maps. The grouping depends on the candidates alone.
pub(crate) fn groups(candidates: &[Candidate], most: usize) -> Vec<Vec<usize>> {
    let mut groups: Vec<(Settings, Vec<String>, Vec<usize>)> = Vec::new();
    for (index, candidate) in candidates.iter().enumerate() {
        let key = candidate.map_key();
        let fits = |(settings, maps, _): &&mut (Settings, Vec<String>, Vec<usize>)| {
            *settings == candidate.settings && (maps.contains(&key) || maps.len() < most)
        };
        match groups.iter_mut().find(fits) {
            Some((_, maps, members)) => {
                if !maps.contains(&key) {
                    maps.push(key);
                }
                members.push(index);
            }
            None => groups.push((candidate.settings.clone(), vec![key], vec![index])),
        }
    }
    groups.into_iter().map(|(_, _, members)| members).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use monosplit_explain::methods::SplitGrad;

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
            settings: Settings::default().alpha(alpha),
        }
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
