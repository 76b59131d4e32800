//! Where the time of a run went, layer by layer.

use std::collections::HashMap;
use std::io::Write;
use std::time::Duration;

use monosplit_engine::Profile;
use monosplit_graph::{Graph, NodeId};

use crate::failure::Failure;
use crate::json::Json;
use crate::table::{Align, Table};

struct Entry {
    name: String,
    op: &'static str,
    kernel: &'static str,
    time: Duration,
}

/// The layers, the slowest first, and the time of all.
fn entries(graph: &Graph, profile: &Profile) -> (Vec<Entry>, Duration) {
    let mut positions: HashMap<NodeId, usize> = HashMap::new();
    let mut entries: Vec<Entry> = Vec::new();
    for timed in &profile.nodes {
        let node = graph.node(timed.node);
        let position = *positions.entry(timed.node).or_insert_with(|| {
            let name = match node.label.display() {
                "" => timed.node.to_string(),
                name => name.to_owned(),
            };
            entries.push(Entry { name, op: node.op.name(), kernel: timed.kernel, time: Duration::ZERO });
            entries.len() - 1
        });
        entries[position].time += timed.time;
    }
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.time));
    (entries, profile.total())
}

/// Prints a table.
pub(crate) fn print(graph: &Graph, profile: &Profile, out: &mut dyn Write) -> Result<(), Failure> {
    let (entries, total) = entries(graph, profile);
    let mut table = Table::new(&[
        ("layer", Align::Left, 42),
        ("op", Align::Left, 18),
        ("kernel", Align::Left, 28),
        ("ms", Align::Right, 12),
        ("share", Align::Right, 8),
    ]);
    let milliseconds = |time: Duration| format!("{:.2}", 1e3 * time.as_secs_f64());
    for entry in &entries {
        let share = entry.time.as_secs_f64() / total.as_secs_f64().max(f64::MIN_POSITIVE);
        table.row([
            entry.name.clone(),
            entry.op.to_owned(),
            entry.kernel.to_owned(),
            milliseconds(entry.time),
            format!("{:.1} %", 100.0 * share),
        ]);
    }
    table.row(["all".to_owned(), String::new(), String::new(), milliseconds(total), String::new()]);
    writeln!(out)?;
    for line in table.lines() {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// The same for programs.
pub(crate) fn json(graph: &Graph, profile: &Profile) -> Json {
    let (entries, _) = entries(graph, profile);
    let entry = |entry: &Entry| {
        Json::Object(vec![
            ("name", entry.name.as_str().into()),
            ("op", entry.op.into()),
            ("kernel", entry.kernel.into()),
            ("seconds", entry.time.as_secs_f64().into()),
        ])
    };
    entries.iter().map(entry).collect()
}
