//! `monosplit ops`: which ONNX operators can be read.

use std::io::Write;

use clap::Args;
use monosplit::graph::onnx::supported_ops;
use serde::Serialize;

use crate::failure::Failure;
use crate::json;
use crate::table::{Align, TextTable};

const WIDTH: usize = 80;

/// List the ONNX operators that can be read.
#[derive(Args)]
#[command(long_about = "\
Lists the ONNX operators that can be read, those with restrictions with a note on what is possible.

Versions 7 to the newest of the operator set are understood. Arithmetic on shapes and constants is
done when a file is opened, so more is possible there than on activations. To see what is missing
for a certain file, `monosplit inspect FILE` lists all of it at once.")]
pub(crate) struct Ops {
    /// Print JSON, for programs.
    #[arg(long)]
    json: bool,
}

impl Ops {
    pub(crate) fn execute(&self, out: &mut dyn Write) -> Result<(), Failure> {
        if self.json {
            let ops = supported_ops().map(|(name, restrictions)| OpOutput { name, restrictions });
            return json::print(&ops.collect::<Vec<_>>(), out);
        }
        let (plain, noted): (Vec<_>, Vec<_>) = supported_ops().partition(|(_, note)| note.is_empty());
        writeln!(out, "{} ONNX operators, operator sets 7 and newer:\n", plain.len() + noted.len())?;
        let names: Vec<&str> = plain.into_iter().map(|(name, _)| name).collect();
        for line in columns(&names) {
            writeln!(out, "  {line}")?;
        }
        writeln!(out, "\nwith restrictions:\n")?;
        let mut table = TextTable::new(&[("", Align::Left, WIDTH), ("", Align::Left, WIDTH)]);
        noted.into_iter().for_each(|(name, note)| table.row([name.to_owned(), note.to_owned()]));
        for line in table.lines() {
            writeln!(out, "  {line}")?;
        }
        Ok(())
    }
}

/// An operator for programs.
#[derive(Serialize)]
struct OpOutput {
    name: &'static str,
    restrictions: &'static str,
}

/// Names in as many columns as fit, read from top to bottom.
fn columns(names: &[&str]) -> Vec<String> {
    let width = names.iter().map(|name| name.len()).max().unwrap_or(0) + 2;
    let rows = names.len().div_ceil((WIDTH / width).max(1));
    let line = |row: usize| names.iter().skip(row).step_by(rows).map(|name| format!("{name:width$}"));
    (0..rows).map(|row| line(row).collect::<String>().trim_end().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_in_one_place() {
        let names: Vec<String> = (0..23).map(|n| format!("operator_{n:010}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let lines = columns(&names);
        assert!(lines.iter().all(|line| line.len() <= WIDTH));
        let mut found: Vec<&str> = lines.iter().flat_map(|line| line.split_whitespace()).collect();
        found.sort();
        assert_eq!(found, names);
        assert!(columns(&[]).is_empty());
    }
}
