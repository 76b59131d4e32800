//! Several methods on the same images.

use monosplit_engine::Engine;
use monosplit_explain::{
    BatchPosition, Class, ExplainBatch, Explainer, Explanation, Finish, MapRequest, Progress, SaliencyMap,
    Settings,
};
use monosplit_graph::{Error, Result, Tensor};

use crate::catalogue::ConfiguredMethod;
use crate::model::Model;

/// Several methods, each at a layer. Methods with the same run-time numbers are compiled into one graph, which computes
/// what they share once.
pub struct MethodSet {
    groups: Vec<Group>,
    methods: usize,
}

/// Methods with the same run-time numbers.
struct Group {
    /// Their positions in the set.
    members: Vec<usize>,
    explainer: Explainer,
    settings: Settings,
}

impl MethodSet {
    /// Compiles `methods` with the layer of each; a layer that is none is the image.
    pub fn new(
        model: &Model,
        methods: &[(&ConfiguredMethod, Option<&str>)],
        finish: Finish,
        engine: &dyn Engine,
    ) -> Result<Self> {
        let mut sorted: Vec<(Settings, Vec<usize>)> = Vec::new();
        for (index, (method, _)) in methods.iter().enumerate() {
            match sorted.iter_mut().find(|(known, _)| *known == method.settings) {
                Some((_, members)) => members.push(index),
                None => sorted.push((method.settings.clone(), vec![index])),
            }
        }
        let group = |(settings, members): (Settings, Vec<usize>)| {
            let request = |&index: &usize| {
                let (method, layer) = methods[index];
                MapRequest::of(method.method.clone(), layer.map(str::to_owned)).finish(finish)
            };
            let requests: Vec<MapRequest> = members.iter().map(request).collect();
            let explainer = Explainer::new(model.graph(), &requests, engine)?;
            Ok(Group { members, explainer, settings })
        };
        let groups = sorted.into_iter().map(group).collect::<Result<_>>()?;
        Ok(MethodSet { groups, methods: methods.len() })
    }

    /// Explains images by all methods, with the maps in the order of the methods. Each group of methods reports its progress
    /// to a `progress` of its own.
    pub fn explain(
        &self,
        images: &Tensor,
        class: &Class,
        position: BatchPosition,
        progress: impl Fn() -> Box<dyn Progress>,
    ) -> Result<Explanation> {
        let mut maps: Vec<Option<SaliencyMap>> = vec![None; self.methods];
        let mut last = None;
        for group in &self.groups {
            let progress = progress();
            let batch = ExplainBatch {
                progress: &*progress,
                position: Some(position),
                ..ExplainBatch::new(images, class, &group.settings)
            };
            let mut explanation = group.explainer.explain_batch(&batch)?;
            for (&member, map) in group.members.iter().zip(std::mem::take(&mut explanation.maps)) {
                maps[member] = Some(map);
            }
            last = Some(explanation);
        }
        let last = last.ok_or_else(|| Error::argument("name at least one method"))?;
        Ok(Explanation { maps: maps.into_iter().flatten().collect(), ..last })
    }
}
