//! The times of a run, layer by layer.

use std::io::Write;
use std::time::Duration;

use monosplit::engine::{NodeTime, Precision, Profile};
use serde::Serialize;

use crate::failure::Failure;
use crate::table::{Align, TextTable};

/// A node that takes less than this share of the time is not listed by itself.
const LISTED: f64 = 0.002;

/// One step, summed over all its runs.
struct Entry {
    timed: NodeTime,
}

/// All steps, the slowest first.
fn entries(profile: Profile) -> Vec<Entry> {
    let mut entries: Vec<Entry> = profile.merged().nodes.into_iter().map(|timed| Entry { timed }).collect();
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.timed.time));
    entries
}

fn milliseconds(time: Duration) -> String {
    format!("{:.2}", 1e3 * time.as_secs_f64())
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

impl Entry {
    fn op(&self) -> String {
        match self.timed.others.len() {
            0 => self.timed.op.to_owned(),
            others => format!("{} + {others}", self.timed.op),
        }
    }

    fn shape(&self) -> String {
        let lengths: Vec<String> = self.timed.shape.iter().map(usize::to_string).collect();
        lengths.join("×")
    }

    fn kernel(&self) -> String {
        match self.timed.precision {
            Precision::F32 => self.timed.kernel.to_owned(),
            Precision::F64 => format!("{}, f64", self.timed.kernel),
        }
    }

    fn row(&self, total: f64) -> [String; 9] {
        let timed = &self.timed;
        [
            timed.name.clone(),
            self.op(),
            self.shape(),
            self.kernel(),
            timed.runs.to_string(),
            milliseconds(timed.time),
            percent(timed.time.as_secs_f64() / total),
            timed.gigaflops().map(|g| format!("{g:.1}")).unwrap_or_default(),
            timed.share_of_peak().map(percent).unwrap_or_default(),
        ]
    }

    fn output(&self) -> NodeOutput {
        let timed = &self.timed;
        NodeOutput {
            name: timed.name.clone(),
            op: timed.op.into(),
            nodes: 1 + timed.others.len(),
            shape: timed.shape.to_vec(),
            kernel: timed.kernel.into(),
            precision: timed.precision.name(),
            instructions: timed.instructions,
            runs: timed.runs,
            seconds: timed.time.as_secs_f64(),
            gflops: timed.gigaflops(),
            share_of_peak: timed.share_of_peak(),
        }
    }
}

/// The time of a node, for programs.
#[derive(Serialize)]
pub(crate) struct NodeOutput {
    name: String,
    op: String,
    nodes: usize,
    shape: Vec<usize>,
    kernel: String,
    precision: &'static str,
    /// Empty if no processor computed it.
    instructions: &'static str,
    runs: usize,
    seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    gflops: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    share_of_peak: Option<f64>,
}

/// Prints a table.
pub(crate) fn print(profile: Profile, out: &mut dyn Write) -> Result<(), Failure> {
    let time = profile.total();
    let total = time.as_secs_f64().max(f64::MIN_POSITIVE);
    let entries = entries(profile);
    let mut table = TextTable::new(&[
        ("layer", Align::Left, 32),
        ("op", Align::Left, 22),
        ("shape", Align::Left, 20),
        ("kernel", Align::Left, 28),
        ("runs", Align::Right, 8),
        ("ms", Align::Right, 12),
        ("share", Align::Right, 8),
        ("GFLOP/s", Align::Right, 10),
        ("of peak", Align::Right, 8),
    ]);
    let is_listed = |entry: &&Entry| entry.timed.time.as_secs_f64() >= LISTED * total;
    let listed: Vec<&Entry> = entries.iter().filter(is_listed).collect();
    listed.iter().for_each(|entry| table.row(entry.row(total)));
    let others = entries.len() - listed.len();
    if others > 0 {
        let time = entries[listed.len()..].iter().map(|entry| entry.timed.time).sum::<Duration>();
        let name = format!("all other ({others})");
        let share = percent(time.as_secs_f64() / total);
        let empty = String::new;
        table.row([name, empty(), empty(), empty(), empty(), milliseconds(time), share, empty(), empty()]);
    }
    let empty = String::new;
    let all = milliseconds(time);
    table.row(["all".to_owned(), empty(), empty(), empty(), empty(), all, empty(), empty(), empty()]);
    writeln!(out)?;
    for line in table.lines() {
        writeln!(out, "{line}")?;
    }
    kernels(&entries, total, out)?;
    peaks(&entries, out)
}

/// The times summed by kernel.
fn kernels(entries: &[Entry], total: f64, out: &mut dyn Write) -> Result<(), Failure> {
    let mut kernels: Vec<(String, usize, Entry)> = Vec::new();
    for entry in entries {
        let name = entry.kernel();
        match kernels.iter_mut().find(|(known, ..)| *known == name) {
            Some((_, steps, sum)) => {
                *steps += entry.timed.runs;
                sum.timed.time += entry.timed.time;
                sum.timed.operations += entry.timed.operations;
            }
            None => kernels.push((name, entry.timed.runs, Entry { timed: entry.timed.clone() })),
        }
    }
    kernels.sort_by_key(|(.., sum)| std::cmp::Reverse(sum.timed.time));
    let mut table = TextTable::new(&[
        ("kernel", Align::Left, 32),
        ("steps", Align::Right, 8),
        ("ms", Align::Right, 12),
        ("share", Align::Right, 8),
        ("GFLOP/s", Align::Right, 10),
        ("of peak", Align::Right, 8),
    ]);
    for (name, steps, sum) in &kernels {
        let [.., time, share, gigaflops, of_peak] = sum.row(total);
        table.row([name.clone(), steps.to_string(), time, share, gigaflops, of_peak]);
    }
    writeln!(out)?;
    for line in table.lines() {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// Prints the measured peak that the shares refer to.
fn peaks(entries: &[Entry], out: &mut dyn Write) -> Result<(), Failure> {
    for (precision, name) in [(Precision::F32, "single"), (Precision::F64, "double")] {
        let timed = entries.iter().map(|entry| &entry.timed);
        let counted = timed.filter(|node| node.precision == precision && node.operations > 0);
        if let Some(node) = counted.max_by(|a, b| a.peak.total_cmp(&b.peak)) {
            let with = match node.instructions {
                "" => String::new(),
                instructions => format!(" with {instructions} instructions"),
            };
            let peak = 1e-9 * node.peak;
            writeln!(out, "peak of this machine in {name} precision{with}: {peak:.0} GFLOP/s, measured")?;
        }
    }
    Ok(())
}

/// The profile for programs.
pub(crate) fn outputs(profile: Profile) -> Vec<NodeOutput> {
    entries(profile).iter().map(Entry::output).collect()
}
