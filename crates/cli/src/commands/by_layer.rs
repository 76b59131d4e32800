//! The contributions of layers to a map, as a table.

use std::io::Write;

use monosplit::explain::{LayerRelevance, Term};
use monosplit::render;
use monosplit::{LayerContributions, Sample};

use crate::failure::Failure;
use crate::table::{Align, TextTable, printable};

/// Prints a table for every sample.
pub(crate) fn print(
    contributions: &LayerContributions,
    samples: &[Sample],
    out: &mut dyn Write,
) -> Result<(), Failure> {
    match contributions {
        LayerContributions::Terms(terms) => print_terms(terms, samples, out),
        LayerContributions::Relevance(layers) => print_relevance(layers, samples, out),
    }
}

/// Prints the mean magnitude of each term of the closed formula and its share of the sum.
fn print_terms(terms: &[Term], samples: &[Sample], out: &mut dyn Write) -> Result<(), Failure> {
    for (row, sample) in samples.iter().enumerate() {
        let magnitude = |term: &Term| {
            let length = term.share.len() / term.share.shape()[0].max(1);
            let values = &term.share.to_f64()[row * length..(row + 1) * length];
            values.iter().map(|v| v.abs()).sum::<f64>() / length.max(1) as f64
        };
        let total: f64 = terms.iter().map(magnitude).sum();
        let mut table = TextTable::new(&[
            ("term", Align::Left, 40),
            ("mean", Align::Right, 12),
            ("share", Align::Right, 8),
        ]);
        for (i, term) in terms.iter().enumerate() {
            let name = if i == 0 { "ordinary gradient".to_owned() } else { term.layer.clone() };
            let share = 100.0 * magnitude(term) / total.max(f64::MIN_POSITIVE);
            table.row([name, render::number(magnitude(term)), format!("{share:.1} %")]);
        }
        writeln!(out, "  what each layer contributed to the map of {}:", printable(&sample.name))?;
        for line in table.lines() {
            writeln!(out, "    {line}")?;
        }
    }
    Ok(())
}

/// Prints the relevance of each layer, from the scores down to the image, and its share of the relevance at the scores.
fn print_relevance(
    layers: &[LayerRelevance],
    samples: &[Sample],
    out: &mut dyn Write,
) -> Result<(), Failure> {
    for (row, sample) in samples.iter().enumerate() {
        let mut table = TextTable::new(&[
            ("layer", Align::Left, 40),
            ("relevance", Align::Right, 12),
            ("of all", Align::Right, 8),
            ("", Align::Left, 12),
        ]);
        let all = layers.first().map_or(0.0, |layer| layer.totals[row]);
        for layer in layers {
            let total = layer.totals[row];
            let share = if all == 0.0 { String::new() } else { format!("{:.1} %", 100.0 * total / all) };
            let branch = if layer.whole { "" } else { "on a branch" };
            table.row([layer.layer.clone(), render::number(total), share, branch.to_owned()]);
        }
        writeln!(out, "  the relevance on each layer of {}:", printable(&sample.name))?;
        for line in table.lines() {
            writeln!(out, "    {line}")?;
        }
    }
    writeln!(out, "  What is missing stayed with biases and with ε, or the rule does not hand on all.")?;
    Ok(())
}
