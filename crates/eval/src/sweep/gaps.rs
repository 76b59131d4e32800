//! What is missing of a stage: the difference between its grid and the store.

use monosplit_graph::{Error, Result};

use super::{EvaluatedImage, MissingValues, StageGrid, StageIds, WorkUnit};
use crate::store::Store;

impl StageGrid {
    /// What is missing of a unit of work, whose number is below [`StageGrid::units`]. The blocks of a group follow each other, so
    /// that a group is prepared once.
    pub fn gap(
        &self,
        (store, key): (&Store, (i64, u64)),
        ids: &StageIds,
        images: &[EvaluatedImage],
        unit: usize,
    ) -> Result<WorkUnit> {
        let blocks = images.len().div_ceil(self.batch).max(1);
        let group = unit / blocks;
        let block = images.chunks(self.batch).nth(unit % blocks);
        let (Some(members), Some(block)) = (self.groups.get(group), block) else {
            return Err(Error::argument(format!("there is no unit {unit} of {}", self.units(images.len()))));
        };
        let wanted: Vec<(i64, i64)> = members
            .iter()
            .flat_map(|&candidate| block.iter().map(move |image| (ids.configurations[candidate], image.id)))
            .collect();
        let mut unit = WorkUnit { group, images: block.to_vec(), missing: Vec::new() };
        for (number, known) in store.measured(key, &wanted)?.into_iter().enumerate() {
            let missing = (0..ids.metrics.len()).filter(|&metric| !known.contains(&ids.metrics[metric]));
            let metrics: Vec<usize> = missing.collect();
            if !metrics.is_empty() {
                let (member, image) = (number / block.len(), number % block.len());
                unit.missing.push(MissingValues { member, image, metrics });
            }
        }
        Ok(unit)
    }

    /// The id of the configuration of a missing value, and that of its image.
    pub(super) fn key(&self, ids: &StageIds, unit: &WorkUnit, values: &MissingValues) -> (i64, i64) {
        (ids.configurations[self.groups[unit.group][values.member]], unit.images[values.image].id)
    }
}
