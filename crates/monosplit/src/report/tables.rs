//! Stages as tables.

use monosplit_eval::store::{Member, Stage, Troubled};
use monosplit_eval::{Better, Found, Summary, Verdict, metric_title};
use monosplit_render::{Best, Entry, Table};

use crate::commands::is_ranked;

fn best_end(better: Better) -> Best {
    match better {
        Better::Higher => Best::Highest,
        Better::Lower => Best::Lowest,
    }
}

fn entry(found: &Found) -> Entry {
    match found.estimate {
        Some(estimate) => Entry::Range(estimate.mean, estimate.low, estimate.high),
        None => Entry::Absent,
    }
}

fn words(text: impl Into<String>) -> Entry {
    Entry::Words(text.into())
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

/// Where the rows of another family begin.
fn headings(members: &[Member]) -> Vec<(usize, String)> {
    let new = |&(index, member): &(usize, &Member)| index == 0 || members[index - 1].family != member.family;
    let heading = |(index, member): (usize, &Member)| (index, member.family.clone());
    members.iter().enumerate().filter(new).map(heading).collect()
}

/// One row for each configuration.
fn listed(summary: &Summary, describe: impl Fn(&Member) -> Vec<Entry>, columns: &[&str]) -> Table {
    let stage = &summary.stage;
    let row = |(member, found): (&Member, &Vec<Found>)| {
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
    }
}

/// The comparison: method, layer, sign, and every metric.
pub(super) fn comparison(summary: &Summary) -> Table {
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

/// What was chosen of how many.
pub(super) fn selection(summary: &Summary, chosen: Option<&Stage>) -> Table {
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

/// The best of the split against all others; none where one of them is missing.
pub(super) fn verdicts(summary: &Summary) -> Option<Table> {
    let stage = &summary.stage;
    let is_split = |row: usize| stage.members[row].configuration.method.starts_with("split");
    let champions: Vec<usize> =
        (0..stage.metrics.len()).map(|metric| summary.best(metric, is_split)).collect::<Option<_>>()?;
    let others: Vec<usize> =
        (0..stage.members.len()).filter(|&row| !is_split(row) && is_ranked(stage, row)).collect();
    if others.is_empty() {
        return None;
    }
    let row = |&other: &usize| {
        let member = &stage.members[other];
        let mut row = vec![words(format!("{}, {}", member.title, layer(member)))];
        row.extend(champions.iter().enumerate().map(|(metric, &champion)| {
            match summary.verdict(champion, other, metric) {
                None => Entry::Absent,
                Some((verdict, difference)) => {
                    let word = match verdict {
                        Verdict::Won => "won",
                        Verdict::Tied => "tied",
                        Verdict::Lost => "lost",
                    };
                    words(format!("{word} ({:+.3})", difference.mean))
                }
            }
        }));
        row
    };
    let columns = stage.metrics.iter().zip(&champions).map(|((_, name, _), &champion)| {
        let member = &stage.members[champion];
        (format!("{}: {}, {}", metric_title(name), member.title, layer(member)), Best::None)
    });
    Some(Table {
        caption: "The split's best by each metric, against:".into(),
        columns: std::iter::once(("Other".to_owned(), Best::None)).chain(columns).collect(),
        rows: others.iter().map(row).collect(),
        ..Table::default()
    })
}

/// Where a metric had no value for some images of a configuration: one line for each.
pub(super) fn silences(summary: &Summary) -> Vec<String> {
    let mut lines = Vec::new();
    for (member, row) in summary.stage.members.iter().zip(&summary.rows) {
        for (found, (_, name, _)) in row.iter().zip(&summary.stage.metrics) {
            let silent = found.silent;
            if silent > 0 && !found.values.is_empty() {
                let (title, metric) = (&member.title, metric_title(name));
                let all = silent + found.values.len();
                lines.push(format!("{title} at {} by {metric}: {silent} of {all} images", layer(member)));
            }
        }
    }
    lines
}

/// One table for each configuration that was varied: a row for each value.
pub(super) fn ablation(summary: &Summary) -> Vec<Table> {
    let stage = &summary.stage;
    let key = |member: &Member| {
        let abs = if member.configuration.absolute { ", abs" } else { "" };
        format!("{} at {}{abs}", member.title, layer(member))
    };
    let mut names: Vec<String> = Vec::new();
    for member in &stage.members {
        if !names.contains(&key(member)) {
            names.push(key(member));
        }
    }
    let one = |name: &String| {
        let rows = stage.members.iter().zip(&summary.rows).filter(|(member, _)| key(member) == *name);
        let row = |(member, found): (&Member, &Vec<Found>)| {
            let mut row = vec![words(&*member.place)];
            row.extend(found.iter().map(entry));
            row
        };
        let value = stage.name.rsplit(' ').next().unwrap_or("value").to_owned();
        Table {
            caption: format!("{name}, {} ({})", summary.extent(), stage.part),
            columns: std::iter::once((value, Best::None)).chain(metric_columns(stage)).collect(),
            rows: rows.map(row).collect(),
            ..Table::default()
        }
    };
    names.iter().map(one).collect()
}

/// The randomisation check.
pub(super) fn sanity(summary: &Summary) -> Table {
    let describe = |member: &Member| vec![words(&*member.title), words(layer(member)), words(sign(member))];
    let mut table = listed(summary, describe, &["Method", "Layer", "Abs"]);
    for (column, (_, name, _)) in table.columns[3..].iter_mut().zip(&summary.stage.metrics) {
        column.0 = name.rsplit('=').next().unwrap_or(name).replace('-', " ");
    }
    table.caption = format!("Similarity of maps, {}", summary.extent());
    table
}

/// How long maps take.
pub(super) fn timing(summary: &Summary) -> Table {
    let mut table =
        listed(summary, |member| vec![words(&*member.title), words(layer(member))], &["Method", "Layer"]);
    table.caption = format!("Seconds, {} one at a time", summary.extent());
    table
}

/// Images that something is wrong with.
pub(super) fn troubles(troubles: &[Troubled]) -> Table {
    let row = |one: &Troubled| {
        let fate = if one.kept { "kept" } else { "left out" };
        vec![words(&*one.image), words(&*one.part), words(fate), words(&*one.said)]
    };
    Table {
        columns: ["Image", "Part", "", "Why"].map(|name| (name.to_owned(), Best::None)).to_vec(),
        rows: troubles.iter().map(row).collect(),
        ..Table::default()
    }
}
