//! Stages as tables.

use monosplit::eval::store::{Member, RecordedIssue, Stage};
use monosplit::eval::{Better, ComparisonVerdict, Estimate, MetricSummary, StageSummary, metric_title};
use monosplit::render::{Best, Table, TableEntry};

use crate::commands::is_ranked;
use crate::table::grouped;

fn best_end(better: Better) -> Best {
    match better {
        Better::Higher => Best::Highest,
        Better::Lower => Best::Lowest,
    }
}

fn entry(found: &MetricSummary) -> TableEntry {
    match found.estimate {
        Some(estimate) => TableEntry::Range(estimate.mean, estimate.low, estimate.high),
        None => TableEntry::Absent,
    }
}

fn words(text: impl Into<String>) -> TableEntry {
    TableEntry::Words(text.into())
}

fn layer(member: &Member) -> &str {
    if member.configuration.layer.is_empty() { "image" } else { &member.configuration.layer }
}

fn sign(member: &Member) -> &'static str {
    if member.configuration.absolute { "yes" } else { "no" }
}

/// The columns of all metrics.
fn metric_columns(stage: &Stage) -> impl Iterator<Item = (String, Best)> {
    stage.metrics.iter().map(|(_, name, better)| (metric_title(name), best_end(*better)))
}

/// The rows at which another family begins.
fn headings(members: &[Member]) -> Vec<(usize, String)> {
    let new = |&(index, member): &(usize, &Member)| index == 0 || members[index - 1].family != member.family;
    let heading = |(index, member): (usize, &Member)| (index, member.family.clone());
    members.iter().enumerate().filter(new).map(heading).collect()
}

/// One row for each configuration.
fn listed(summary: &StageSummary, describe: impl Fn(&Member) -> Vec<TableEntry>, columns: &[&str]) -> Table {
    let stage = &summary.stage;
    let row = |(member, found): (&Member, &Vec<MetricSummary>)| {
        let mut row = describe(member);
        row.extend(found.iter().map(entry));
        row
    };
    let plain = columns.iter().map(|name| ((*name).to_owned(), Best::None));
    Table {
        caption: format!("{} ({})", summary.extent(), stage.part),
        columns: plain.chain(metric_columns(stage)).collect(),
        rows: stage.members.iter().zip(&summary.rows).map(row).collect(),
        headings: headings(&stage.members),
        unranked: (0..stage.members.len()).filter(|&row| !is_ranked(stage, row)).collect(),
        note: undefined_notes(stage, stage.members.iter().map(named).zip(&summary.rows)),
    }
}

/// What is missing of an incomplete stage.
pub(super) fn missing_values_note(summary: &StageSummary) -> Option<String> {
    let StageSummary { stage, seen, rows, .. } = summary;
    let found: usize = rows.iter().flatten().map(|found| found.values.len() + found.undefined).sum();
    let all = stage.members.len() * stage.metrics.len() * seen;
    match found {
        0 => Some(format!("The stage '{}' holds no values yet.", stage.name)),
        found if found < all => Some(format!(
            "The stage '{}' is not complete: {} of {} values are there for the images that were begun, and means are over those.",
            stage.name,
            grouped(found),
            grouped(all)
        )),
        _ => None,
    }
}

/// The comparison: method, layer, sign, and every metric.
pub(super) fn comparison(summary: &StageSummary) -> Table {
    let describe = |member: &Member| {
        let options = &member.configuration.options;
        let title = match options.is_empty() {
            true => member.title.clone(),
            false => format!("{} ({options})", member.title),
        };
        vec![words(title), words(layer(member)), words(sign(member))]
    };
    listed(summary, describe, &["Method", "Layer", "Abs"])
}

/// The selected configurations and the number of candidates.
pub(super) fn selection(summary: &StageSummary, chosen: Option<&Stage>) -> Table {
    let mut titles: Vec<&str> = Vec::new();
    for member in &summary.stage.members {
        if !titles.contains(&member.title.as_str()) {
            titles.push(&member.title);
        }
    }
    let mut rows = Vec::new();
    for title in titles {
        let of = summary.stage.members.iter().filter(|member| member.title == title).count();
        let winners = chosen.iter().flat_map(|stage| &stage.members);
        for member in winners.filter(|member| member.title == title && !member.note.is_empty()) {
            let formula = if member.place.is_empty() { "–" } else { &member.place };
            rows.push(vec![
                words(title),
                words(&*member.note),
                words(layer(member)),
                words(formula),
                words(sign(member)),
                words(of.to_string()),
            ]);
        }
    }
    let columns = ["Method", "Best by", "Layer", "Formula", "Abs", "Chosen from"];
    Table {
        caption: format!("{} ({})", summary.extent(), summary.stage.part),
        columns: columns.map(|name| (name.to_owned(), Best::None)).to_vec(),
        rows,
        ..Table::default()
    }
}

/// The best configuration of the split against all others; none where one of them is missing.
pub(super) fn verdicts(summary: &StageSummary) -> Option<Table> {
    let stage = &summary.stage;
    let is_split = |row: usize| stage.members[row].configuration.method.starts_with("split");
    let best_splits: Vec<usize> =
        (0..stage.metrics.len()).map(|metric| summary.best(metric, is_split)).collect::<Option<_>>()?;
    let others: Vec<usize> =
        (0..stage.members.len()).filter(|&row| !is_split(row) && is_ranked(stage, row)).collect();
    if others.is_empty() {
        return None;
    }
    let row = |&other: &usize| {
        let member = &stage.members[other];
        let mut row = vec![words(format!("{}, {}", member.title, layer(member)))];
        row.extend(best_splits.iter().enumerate().map(|(metric, &best_split)| {
            match summary.verdict(best_split, other, metric) {
                None => TableEntry::Absent,
                Some((verdict, difference)) => {
                    let word = match verdict {
                        ComparisonVerdict::Won => "won",
                        ComparisonVerdict::Tied => "tied",
                        ComparisonVerdict::Lost => "lost",
                    };
                    let Estimate { mean, low, high, .. } = difference;
                    TableEntry::Judged(format!("{word} {mean:+.3}"), format!("{low:+.3} … {high:+.3}"))
                }
            }
        }));
        row
    };
    let columns = stage.metrics.iter().zip(&best_splits).map(|((_, name, _), &best_split)| {
        let member = &stage.members[best_split];
        (format!("{}: {}, {}", metric_title(name), member.title, layer(member)), Best::None)
    });
    Some(Table {
        caption: "The split's best by each metric, against:".into(),
        columns: std::iter::once(("Other".to_owned(), Best::None)).chain(columns).collect(),
        rows: others.iter().map(row).collect(),
        ..Table::default()
    })
}

/// Where a metric had no value for some images of a row; nothing where it always had.
fn undefined_notes<'a>(
    stage: &Stage,
    rows: impl Iterator<Item = (String, &'a Vec<MetricSummary>)>,
) -> String {
    let rows: Vec<(String, &Vec<MetricSummary>)> = rows.collect();
    let lines = (0..stage.metrics.len()).flat_map(|metric| undefined_rows(stage, &rows, metric));
    as_note(&lines.collect::<Vec<_>>())
}

/// The same of one metric of a stage.
pub(super) fn undefined_by_metric(summary: &StageSummary, metric: usize) -> String {
    let rows: Vec<(String, &Vec<MetricSummary>)> =
        summary.stage.members.iter().map(named).zip(&summary.rows).collect();
    as_note(&undefined_rows(&summary.stage, &rows, metric))
}

fn undefined_rows(stage: &Stage, rows: &[(String, &Vec<MetricSummary>)], metric: usize) -> Vec<String> {
    let title = metric_title(&stage.metrics[metric].1);
    if rows.iter().all(|(_, row)| row[metric].values.is_empty() && row[metric].undefined > 0) {
        return vec![format!("all of them by {title}")];
    }
    let undefined = rows.iter().filter(|(_, row)| row[metric].undefined > 0).map(|(name, row)| {
        let (undefined, valued) = (row[metric].undefined, row[metric].values.len());
        format!("{name} by {title}: {undefined} of {}", undefined + valued)
    });
    undefined.collect()
}

fn as_note(lines: &[String]) -> String {
    match lines.is_empty() {
        true => String::new(),
        false => format!("Images without a value, which the mean leaves out: {}.", lines.join("; ")),
    }
}

/// A configuration in a line.
fn named(member: &Member) -> String {
    let abs = if member.configuration.absolute { ", abs" } else { "" };
    format!("{} at {}{abs}", member.title, layer(member))
}

/// One table for each configuration that was varied: a row for each value.
pub(super) fn ablation(summary: &StageSummary) -> Vec<Table> {
    let stage = &summary.stage;
    let mut names: Vec<String> = Vec::new();
    for member in &stage.members {
        if !names.contains(&named(member)) {
            names.push(named(member));
        }
    }
    let one = |name: &String| {
        let rows = || stage.members.iter().zip(&summary.rows).filter(|(member, _)| named(member) == *name);
        let row = |(member, found): (&Member, &Vec<MetricSummary>)| {
            let mut row = vec![words(&*member.place)];
            row.extend(found.iter().map(entry));
            row
        };
        let value = stage.name.rsplit(' ').next().unwrap_or("value").to_owned();
        Table {
            caption: format!("{name}, {} ({})", summary.extent(), stage.part),
            columns: std::iter::once((value, Best::None)).chain(metric_columns(stage)).collect(),
            rows: rows().map(row).collect(),
            note: undefined_notes(stage, rows().map(|(member, found)| (member.place.clone(), found))),
            ..Table::default()
        }
    };
    names.iter().map(one).collect()
}

/// The randomisation check.
pub(super) fn sanity(summary: &StageSummary) -> Table {
    let describe = |member: &Member| vec![words(&*member.title), words(layer(member)), words(sign(member))];
    let mut table = listed(summary, describe, &["Method", "Layer", "Abs"]);
    for (column, (_, name, _)) in table.columns[3..].iter_mut().zip(&summary.stage.metrics) {
        column.0 = match name.rsplit('=').next().unwrap_or(name) {
            short @ ("hog" | "ssim") => short.to_uppercase(),
            long => metric_title(long),
        };
    }
    table.caption = format!("Similarity of maps, {}", summary.extent());
    table
}

/// The times for maps.
pub(super) fn timing(summary: &StageSummary) -> Table {
    let mut table =
        listed(summary, |member| vec![words(&*member.title), words(layer(member))], &["Method", "Layer"]);
    table.caption = format!("Seconds, {} one at a time", summary.extent());
    table
}

/// Images with problems.
pub(super) fn image_issues(issues: &[RecordedIssue]) -> Table {
    let row = |one: &RecordedIssue| {
        let fate = if one.kept { "yes" } else { "no" };
        vec![words(&*one.image), words(&*one.part), words(fate), words(&*one.detail)]
    };
    Table {
        columns: ["Image", "Part", "Kept", "Why"].map(|name| (name.to_owned(), Best::None)).to_vec(),
        rows: issues.iter().map(row).collect(),
        ..Table::default()
    }
}

#[cfg(test)]
mod tests {
    use monosplit::eval::store::Configuration;

    use super::*;

    /// Two configurations on seven images by one metric: one of the split, and a baseline that is undefined on the last image and
    /// worse by a tenth on the others.
    fn summary() -> StageSummary {
        let member = |method: &str| Member {
            id: 0,
            configuration: Configuration {
                method: method.into(),
                options: String::new(),
                layer: "conv".into(),
                absolute: false,
            },
            family: String::new(),
            title: method.into(),
            place: String::new(),
            note: String::new(),
        };
        let value = |image: i64| 0.1 * image as f64;
        let found = |values: Vec<(i64, f64)>| {
            let all: Vec<f64> = values.iter().map(|(_, value)| *value).collect();
            vec![MetricSummary {
                undefined: 7 - all.len(),
                estimate: Estimate::of(&all),
                values: values.into_iter().collect(),
            }]
        };
        StageSummary {
            stage: Stage {
                name: "comparison".into(),
                kind: "comparison".into(),
                part: "test".into(),
                members: vec![member("splitcam"), member("gradcam")],
                metrics: vec![(0, "auc".into(), Better::Higher)],
            },
            images: (0..7).map(|image| (image, image.to_string(), 0)).collect(),
            seen: 7,
            rows: vec![
                found((0..7).map(|image| (image, value(image))).collect()),
                found((0..6).map(|image| (image, value(image) - 0.1)).collect()),
            ],
        }
    }

    #[test]
    fn a_difference_stands_with_its_interval() {
        let table = verdicts(&summary()).unwrap();
        let judged = TableEntry::Judged("won +0.100".into(), "+0.100 … +0.100".into());
        assert_eq!(table.rows, [[words("gradcam, conv"), judged]]);
    }

    #[test]
    fn a_stage_that_is_not_complete_says_so() {
        let mut summary = summary();
        assert_eq!(missing_values_note(&summary), None, "an undefined value is not missing");
        summary.rows[1][0].undefined = 0;
        assert!(missing_values_note(&summary).is_some_and(|said| said.contains("13 of 14")));
    }

    #[test]
    fn images_that_a_mean_leaves_out_are_told_in_every_format() {
        let table = comparison(&summary());
        for text in [table.to_html(), table.to_markdown(), table.to_latex()] {
            assert!(
                text.contains("gradcam at conv by Auc: 1 of 7.") && !text.contains("splitcam at"),
                "{text}"
            );
        }
    }
}
