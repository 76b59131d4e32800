//! The summary of a stage: for every configuration and metric the mean over the images with its confidence interval.

use std::collections::{HashMap, HashSet};

use monosplit_graph::Result;

use crate::metric::Better;
use crate::statistics::{ComparisonVerdict, Estimate, verdict};
use crate::store::{Planned, Stage, Store};

/// The values of one configuration by one metric.
#[derive(Clone, Debug, Default)]
pub struct MetricSummary {
    /// The defined values by image id.
    pub values: HashMap<i64, f64>,
    /// The number of undefined values.
    pub undefined: usize,
    /// The mean of the defined values; `None` if there are none.
    pub estimate: Option<Estimate>,
}

/// A stage and its values.
#[derive(Clone, Debug)]
pub struct StageSummary {
    /// The stage.
    pub stage: Stage,
    /// Its images: id, name and explained class.
    pub images: Vec<(i64, String, usize)>,
    /// How many of them were evaluated. A stage may use only some, or not be complete.
    pub seen: usize,
    /// For every configuration, in the order of the stage, the values of each metric.
    pub rows: Vec<Vec<MetricSummary>>,
}

impl StageSummary {
    /// Reads the values of a stage that are in the store so far.
    pub fn of(store: &Store, planned: &Planned, stage: &Stage) -> Result<Self> {
        let images = store.images(planned.id, &stage.part)?;
        let key = (planned.record.model, planned.record.seed);
        let mut rows = Vec::with_capacity(stage.members.len());
        let mut seen = HashSet::new();
        for member in &stage.members {
            let mut row = Vec::with_capacity(stage.metrics.len());
            for (metric, ..) in &stage.metrics {
                let stored = store.values(key, member.id, *metric)?;
                // In the order of the images, so that the same values always have the same interval.
                let measured: Vec<(i64, Option<f64>)> =
                    images.iter().filter_map(|(id, ..)| Some((*id, *stored.get(id)?))).collect();
                seen.extend(measured.iter().map(|(id, _)| *id));
                let defined: Vec<(i64, f64)> =
                    measured.iter().filter_map(|(id, value)| Some((*id, (*value)?))).collect();
                let ordered: Vec<f64> = defined.iter().map(|(_, value)| *value).collect();
                row.push(MetricSummary {
                    undefined: measured.len() - defined.len(),
                    estimate: Estimate::of(&ordered),
                    values: defined.into_iter().collect(),
                });
            }
            rows.push(row);
        }
        Ok(StageSummary { stage: stage.clone(), images, seen: seen.len(), rows })
    }

    /// The images in words: `24 images`, or `12 of 24 images` if not all were evaluated.
    pub fn extent(&self) -> String {
        match self.images.len() {
            all if all == self.seen => format!("{all} images"),
            all => format!("{} of {all} images", self.seen),
        }
    }

    /// The eligible row with the best mean by a metric.
    pub fn best(&self, metric: usize, eligible: impl Fn(usize) -> bool) -> Option<usize> {
        let mean = |row: usize| self.rows[row][metric].estimate.map(|estimate| estimate.mean);
        let cost = |row: usize| mean(row).map(|mean| sign(self.stage.metrics[metric].2) * -mean);
        let rows = (0..self.rows.len()).filter(|&row| eligible(row));
        let costs = rows.filter_map(|row| cost(row).map(|cost| (row, cost)));
        costs.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(row, _)| row)
    }

    /// Whether the mean of an eligible row is the best by a metric, alone or with others.
    pub fn is_best(&self, row: usize, metric: usize, eligible: impl Fn(usize) -> bool) -> bool {
        let mean = |row: usize| self.rows[row][metric].estimate.map(|estimate| estimate.mean);
        let best = self.best(metric, &eligible).and_then(mean);
        eligible(row) && best.is_some() && mean(row) == best
    }

    /// The paired comparison of two rows by a metric.
    pub fn verdict(&self, one: usize, other: usize, metric: usize) -> Option<(ComparisonVerdict, Estimate)> {
        let (first, second) = (&self.rows[one][metric].values, &self.rows[other][metric].values);
        let pairs: Vec<(f64, f64)> =
            self.images.iter().filter_map(|(id, ..)| Some((*first.get(id)?, *second.get(id)?))).collect();
        verdict(&pairs, sign(self.stage.metrics[metric].2))
    }
}

fn sign(better: Better) -> f64 {
    match better {
        Better::Higher => 1.0,
        Better::Lower => -1.0,
    }
}

/// The title of a metric's column: `pixel-flipping:auc=5` is `Pixel flipping @5`.
pub fn metric_title(name: &str) -> String {
    let (base, options) = name.split_once(':').unwrap_or((name, ""));
    let option = |part: &str| match part.split_once('=') {
        Some(("auc", percent)) => format!("@{percent}"),
        Some(("similarity", what)) => what.to_owned(),
        Some(("layers", count)) => format!("{count} layers"),
        Some(("preset", source)) => source.to_owned(),
        _ => part.to_owned(),
    };
    let mut words = base.replace('-', " ");
    if let Some(first) = words.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    let parts: Vec<String> = options.split(',').filter(|part| !part.is_empty()).map(option).collect();
    let (at, rest): (Vec<String>, Vec<String>) = parts.into_iter().partition(|part| part.starts_with('@'));
    let at: String = at.iter().map(|part| format!(" {part}")).collect();
    match rest.is_empty() {
        true => format!("{words}{at}"),
        false => format!("{words}{at} ({})", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Issue 27, point 12: the terminal marked the first of equal means only.
    #[test]
    fn issue_27_all_of_equal_means_are_the_best() {
        let found = |mean: f64| {
            vec![MetricSummary {
                values: HashMap::from([(0, mean)]),
                undefined: 0,
                estimate: Estimate::of(&[mean]),
            }]
        };
        let stage = Stage {
            name: String::new(),
            kind: String::new(),
            part: String::new(),
            members: Vec::new(),
            metrics: vec![(0, "a".into(), Better::Lower)],
        };
        let rows = [0.5, 0.25, 0.25, 0.125].map(found).to_vec();
        let summary = StageSummary { stage, images: Vec::new(), seen: 1, rows };
        // The last row is a control.
        let best: Vec<bool> = (0..4).map(|row| summary.is_best(row, 0, |row| row < 3)).collect();
        assert_eq!(best, [false, true, true, false]);
    }

    #[test]
    fn titles_are_words() {
        assert_eq!(metric_title("pointing-game"), "Pointing game");
        assert_eq!(metric_title("pixel-flipping:auc=5"), "Pixel flipping @5");
        assert_eq!(metric_title("max-sensitivity:samples=4"), "Max sensitivity (samples=4)");
    }
}
