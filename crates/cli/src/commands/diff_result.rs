//! The results of `monosplit diff`: which pictures two networks are furthest apart on, as text and as JSON.

use std::cmp::Ordering;
use std::io::Write;
use std::path::Path;

use monosplit::render::number;
use monosplit::{DifferenceMeasure, Labels, MapDifference, Sample, SampleDifference};
use serde::Serialize;

use super::inputs::{SkippedOutput, skipped_outputs};
use crate::failure::Failure;
use crate::json;
use crate::table::{Align, TextTable, counted, printable};

/// The widest column of names in characters.
const WIDEST_NAME: usize = 32;

/// What is the same for all inputs.
pub(super) struct DiffContext {
    /// The two networks.
    pub(super) networks: [String; 2],
    pub(super) target: Option<String>,
    /// The name of the method in the catalogue, and in captions.
    pub(super) method: &'static str,
    pub(super) title: String,
    /// Whether the maps are of inputs by name, which stand in place of the layers.
    pub(super) is_of_inputs: bool,
    /// The layers of both networks; none is the image.
    pub(super) layers: Vec<(Option<String>, Option<String>)>,
    pub(super) labels: Labels,
    /// The class that a target names.
    pub(super) named_class: Option<usize>,
    /// The measure that says which input is worst.
    pub(super) by: DifferenceMeasure,
    pub(super) limits: Vec<Limit>,
    /// How many inputs are shown.
    pub(super) worst: usize,
}

/// A limit that no input may be above.
pub(super) struct Limit {
    pub(super) measure: DifferenceMeasure,
    pub(super) most: f64,
}

/// The comparison on one input.
pub(super) struct Compared {
    /// Its position among the inputs.
    offset: usize,
    pub(super) input: String,
    pub(super) class: usize,
    /// The explained score of each network.
    pub(super) scores: [f64; 2],
    pub(super) predicted: [Option<usize>; 2],
    /// The measures, in the order of [`DifferenceMeasure::ALL`]; none where one is undefined.
    measures: [Option<f64>; DifferenceMeasure::ALL.len()],
    /// The numbers of each map.
    maps: Vec<MapNumbers>,
    /// What is drawn of the worst.
    pub(super) drawn: Option<DrawnMaps>,
}

/// What is explained of an input, and its maps.
pub(super) struct DrawnMaps {
    /// One for all maps, or one for each.
    samples: Vec<Sample>,
    /// For each map of token ids the words that they stand for.
    words: Vec<Option<Vec<String>>>,
    pub(super) maps: Vec<MapDifference>,
}

impl DrawnMaps {
    /// Whether each map is of an input that was named, and not of a layer.
    pub(super) fn is_of_inputs(&self) -> bool {
        !self.words.is_empty()
    }

    /// What a map is of.
    pub(super) fn sample(&self, map: usize) -> Option<&Sample> {
        self.samples.get(if self.samples.len() == 1 { 0 } else { map })
    }

    /// The words of a map of token ids.
    pub(super) fn words(&self, map: usize) -> Option<&[String]> {
        self.words.get(map)?.as_deref()
    }
}

#[derive(Clone, Copy)]
struct MapNumbers {
    relative: f64,
    spearman: Option<f64>,
    ssim: Option<f64>,
}

impl Compared {
    pub(super) fn new(offset: usize, sample: Sample, found: SampleDifference, context: &DiffContext) -> Self {
        Compared::of_inputs(offset, vec![sample], Vec::new(), found, context)
    }

    /// The comparison of several explained inputs, each with a map, and the words of those that are texts.
    pub(super) fn of_inputs(
        offset: usize,
        samples: Vec<Sample>,
        words: Vec<Option<Vec<String>>>,
        found: SampleDifference,
        context: &DiffContext,
    ) -> Self {
        let measures = DifferenceMeasure::ALL.map(|measure| measure.of(&found));
        let score = |side: usize| found.scores[side].get(found.class).copied().unwrap_or(f64::NAN);
        let numbers = |map: &MapDifference| MapNumbers {
            relative: map.relative,
            spearman: map.spearman,
            ssim: map.ssim,
        };
        debug_assert_eq!(found.maps.len(), context.layers.len());
        Compared {
            offset,
            input: samples.first().map_or_else(String::new, |sample| sample.name.clone()),
            class: found.class,
            scores: [score(0), score(1)],
            predicted: found.predicted,
            measures,
            maps: found.maps.iter().map(numbers).collect(),
            drawn: Some(DrawnMaps { samples, words, maps: found.maps }),
        }
    }

    /// A measure; none where it is undefined.
    pub(super) fn measure(&self, measure: DifferenceMeasure) -> Option<f64> {
        let position = DifferenceMeasure::ALL.iter().position(|one| *one == measure)?;
        self.measures[position]
    }
}

/// The worse of two inputs first. What cannot be measured is worse than any number.
fn worse(a: Option<f64>, b: Option<f64>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => b.total_cmp(&a),
        (None, Some(_)) => Ordering::Less,
        (Some(_), None) => Ordering::Greater,
        (None, None) => Ordering::Equal,
    }
}

impl Limit {
    /// The worst number of an input; none where one cannot be measured.
    fn worst(&self, compared: &[Compared]) -> Option<f64> {
        compared.iter().map(|one| one.measure(self.measure)).min_by(|a, b| worse(*a, *b)).flatten()
    }

    fn is_above(&self, compared: &[Compared]) -> bool {
        self.worst(compared).is_none_or(|worst| worst > self.most)
    }
}

impl DiffContext {
    /// Sorts the worst first, equals in the order of the inputs.
    pub(super) fn sort(&self, compared: &mut [Compared]) {
        compared.sort_by(|a, b| {
            worse(a.measure(self.by), b.measure(self.by)).then_with(|| a.offset.cmp(&b.offset))
        });
    }

    /// Drops the maps of all but the worst, so that any number of inputs fits into memory.
    pub(super) fn forget_all_but_the_worst(&self, compared: &mut [Compared]) {
        let kept = || compared.iter().filter(|one| one.drawn.is_some());
        if kept().count() <= self.worst {
            return;
        }
        let order = |a: &&mut Compared, b: &&mut Compared| {
            worse(a.measure(self.by), b.measure(self.by)).then_with(|| a.offset.cmp(&b.offset))
        };
        let least = compared.iter_mut().filter(|one| one.drawn.is_some()).max_by(order);
        if let Some(least) = least {
            least.drawn = None;
        }
    }

    /// Whether an input is above a limit.
    pub(super) fn is_above(&self, compared: &[Compared]) -> bool {
        self.limits.iter().any(|limit| limit.is_above(compared))
    }

    /// The method and the layers of both networks in words.
    pub(super) fn heading(&self) -> String {
        let layers: Vec<String> = self.layers.iter().map(layer_names).collect();
        format!("{} {} {}", self.title, if self.is_of_inputs { "of" } else { "at" }, layers.join(", "))
    }

    /// The explained class, and what the networks predict where they disagree.
    pub(super) fn class_words(&self, one: &Compared) -> String {
        let name = |class| self.labels.name(class);
        match one.predicted {
            [Some(a), Some(b)] if a != b && a == one.class => format!("{} → {}", name(a), name(b)),
            [Some(a), Some(b)] if a != b => format!("{} ({} → {})", name(one.class), name(a), name(b)),
            _ => name(one.class),
        }
    }

    /// What all inputs together show, in one line.
    pub(super) fn summary(&self, compared: &[Compared]) -> String {
        let changed =
            compared.iter().filter(|one| one.measure(DifferenceMeasure::Class) == Some(1.0)).count();
        let defined: Vec<f64> = compared.iter().filter_map(|one| one.measure(self.by)).collect();
        let undefined = compared.len() - defined.len();
        let mean = defined.iter().sum::<f64>() / defined.len().max(1) as f64;
        let most = defined.iter().copied().fold(0.0, f64::max);
        let mut words = format!("{}, another class on {changed}", counted(compared.len(), "input"));
        if !defined.is_empty() {
            words += &format!("; {} at most {}, mean {}", self.by.name(), number(most), number(mean));
        }
        if undefined > 0 {
            words += &format!("; {} cannot be measured on {undefined}", self.by.name());
        }
        words
    }

    pub(super) fn print(
        &self,
        compared: &[Compared],
        page: Option<&Path>,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        writeln!(out, "A {}", printable(&self.networks[0]))?;
        writeln!(out, "B {}", printable(&self.networks[1]))?;
        writeln!(out, "{}", printable(&self.heading()))?;
        let mut table = TextTable::new(&[
            ("input", Align::Left, WIDEST_NAME),
            ("class", Align::Left, WIDEST_NAME),
            ("score of A", Align::Right, 12),
            ("of B", Align::Right, 12),
            ("score", Align::Right, 9),
            ("map", Align::Right, 9),
            ("spearman", Align::Right, 9),
            ("ssim", Align::Right, 9),
        ]);
        for one in compared.iter().take(self.worst) {
            let cell = |measure| one.measure(measure).map_or_else(|| "–".to_owned(), number);
            table.row([
                one.input.clone(),
                self.class_words(one),
                number(one.scores[0]),
                number(one.scores[1]),
                cell(DifferenceMeasure::Score),
                cell(DifferenceMeasure::Map),
                cell(DifferenceMeasure::Spearman),
                cell(DifferenceMeasure::Ssim),
            ]);
        }
        for line in table.lines() {
            writeln!(out, "{line}")?;
        }
        let hidden = compared.len().saturating_sub(self.worst);
        if hidden > 0 {
            writeln!(out, "and {hidden} more, no further apart")?;
        }
        writeln!(out, "{}", self.summary(compared))?;
        for limit in &self.limits {
            writeln!(out, "{}", limit_words(limit, compared))?;
        }
        if let Some(page) = page {
            writeln!(out, "{}", printable(&page.display().to_string()))?;
        }
        Ok(())
    }

    pub(super) fn print_json(
        &self,
        compared: &[Compared],
        page: Option<&Path>,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let layer = |name: &Option<String>| name.clone().unwrap_or_else(|| "the image".to_owned());
        let limit = |limit: &Limit| LimitOutput {
            measure: limit.measure.name(),
            limit: limit.most,
            worst: limit.worst(compared),
            holds: !limit.is_above(compared),
        };
        let output = DiffOutput {
            networks: &self.networks,
            target: self.target.as_deref(),
            method: self.method,
            title: &self.title,
            layers: self.layers.iter().map(|(a, b)| [layer(a), layer(b)]).collect(),
            by: self.by.name(),
            inputs: compared.iter().map(|one| self.input_output(one)).collect(),
            limits: self.limits.iter().map(limit).collect(),
            page: page.map(|page| page.display().to_string()),
            skipped: skipped_outputs(),
        };
        json::print(&output, out)
    }

    fn input_output<'a>(&self, one: &'a Compared) -> DiffInputOutput<'a> {
        let map = |map: &MapNumbers| MapNumbersOutput {
            relative_difference: map.relative,
            spearman: map.spearman,
            ssim: map.ssim,
        };
        DiffInputOutput {
            input: &one.input,
            class: self.named_class.unwrap_or(one.class),
            name: self.labels.name(one.class),
            scores: one.scores,
            predicted: one.predicted,
            predicted_names: one.predicted.map(|class| class.map(|class| self.labels.name(class))),
            map: one.measure(DifferenceMeasure::Map),
            score: one.measure(DifferenceMeasure::Score),
            spearman: one.measure(DifferenceMeasure::Spearman),
            ssim: one.measure(DifferenceMeasure::Ssim),
            class_changed: one.measure(DifferenceMeasure::Class).map(|changed| changed > 0.0),
            maps: one.maps.iter().map(map).collect(),
        }
    }
}

/// The names of a layer in both networks.
fn layer_names((a, b): &(Option<String>, Option<String>)) -> String {
    let name = |layer: &Option<String>| layer.clone().unwrap_or_else(|| "the image".to_owned());
    if a == b { name(a) } else { format!("{} of A and {} of B", name(a), name(b)) }
}

/// Whether a limit holds, in words.
pub(super) fn limit_words(limit: &Limit, compared: &[Compared]) -> String {
    let (name, most) = (limit.measure.name(), number(limit.most));
    match limit.worst(compared) {
        None => {
            format!("{name} cannot be measured on every input, so that the limit of {most} does not hold")
        }
        Some(worst) if worst > limit.most => {
            format!("{name} is above the limit of {most}: {}", number(worst))
        }
        Some(_) => format!("{name} is nowhere above {most}"),
    }
}

/// The comparison for programs.
#[derive(Serialize)]
struct DiffOutput<'a> {
    networks: &'a [String; 2],
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<&'a str>,
    method: &'a str,
    title: &'a str,
    layers: Vec<[String; 2]>,
    by: &'a str,
    inputs: Vec<DiffInputOutput<'a>>,
    limits: Vec<LimitOutput<'a>>,
    page: Option<String>,
    skipped: Vec<SkippedOutput>,
}

#[derive(Serialize)]
struct DiffInputOutput<'a> {
    input: &'a str,
    class: usize,
    name: String,
    scores: [f64; 2],
    predicted: [Option<usize>; 2],
    predicted_names: [Option<String>; 2],
    map: Option<f64>,
    score: Option<f64>,
    spearman: Option<f64>,
    ssim: Option<f64>,
    class_changed: Option<bool>,
    maps: Vec<MapNumbersOutput>,
}

#[derive(Serialize)]
struct MapNumbersOutput {
    relative_difference: f64,
    spearman: Option<f64>,
    ssim: Option<f64>,
}

#[derive(Serialize)]
struct LimitOutput<'a> {
    measure: &'a str,
    limit: f64,
    worst: Option<f64>,
    holds: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_measured_is_worse_than_any_number() {
        let mut all = [Some(0.5), None, Some(2.0), Some(0.0)];
        all.sort_by(|a, b| worse(*a, *b));
        assert_eq!(all, [None, Some(2.0), Some(0.5), Some(0.0)]);
    }
}
