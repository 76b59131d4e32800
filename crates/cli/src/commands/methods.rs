//! `monosplit methods`: which methods there are.

use std::io::Write;

use clap::Args;
use monosplit::catalogue::{MethodEntry, MethodFamily, MethodOption, entries};
use serde::Serialize;

use crate::failure::Failure;
use crate::json;
use crate::table::{Align, TextTable};

/// The width of lines. Names and defaults are shorter; meanings are broken into lines of it.
const WIDTH: usize = 72;

/// Lists the methods, or the options of one
#[derive(Args)]
#[command(long_about = "\
Lists the methods, each with one line and where it was published, or the options of one method.

  monosplit methods
  monosplit methods splitcam

Options are written behind the name, or each with --set:

  monosplit explain resnet18.onnx cat.jpg --method splitcam:stream=h,alpha=0.3
  monosplit explain resnet18.onnx cat.jpg --method splitcam --set stream=h --set alpha=0.3")]
pub(crate) struct Methods {
    /// The method whose options are listed.
    name: Option<String>,

    /// Print JSON, for programs.
    #[arg(long)]
    json: bool,
}

impl Methods {
    pub(crate) fn execute(&self, out: &mut dyn Write) -> Result<(), Failure> {
        if self.json {
            return match &self.name {
                Some(name) => json::print(&MethodOutput::of(MethodEntry::find(name)?), out),
                None => json::print(&entries().map(MethodOutput::of).collect::<Vec<_>>(), out),
            };
        }
        match &self.name {
            Some(name) => one(MethodEntry::find(name)?, out),
            None => all(out),
        }
    }
}

/// A method for programs.
#[derive(Serialize)]
struct MethodOutput {
    name: &'static str,
    family: &'static str,
    summary: &'static str,
    citation: &'static str,
    options: Vec<OptionOutput>,
}

#[derive(Serialize)]
struct OptionOutput {
    name: &'static str,
    default: &'static str,
    meaning: &'static str,
}

impl MethodOutput {
    fn of(entry: &MethodEntry) -> Self {
        let option = |option: &MethodOption| OptionOutput {
            name: option.key,
            default: option.default,
            meaning: option.meaning,
        };
        MethodOutput {
            name: entry.name,
            family: entry.family.title(),
            summary: entry.summary,
            citation: entry.citation,
            options: entry.options.iter().map(option).collect(),
        }
    }
}

fn all(out: &mut dyn Write) -> Result<(), Failure> {
    let listed =
        MethodFamily::ALL.map(|family| (family, entries().filter(move |entry| entry.family == family)));
    for (family, entries) in listed {
        let mut entries = entries.peekable();
        if entries.peek().is_none() {
            continue;
        }
        writeln!(out, "{}", family.title())?;
        for entry in entries {
            writeln!(out, "  {:<22} {}", entry.name, entry.summary)?;
            writeln!(out, "  {:<22}   {}", "", entry.citation)?;
        }
        writeln!(out)?;
    }
    writeln!(out, "`monosplit methods NAME` lists the options of one.")?;
    Ok(())
}

fn one(entry: &MethodEntry, out: &mut dyn Write) -> Result<(), Failure> {
    writeln!(out, "{}: {}\n  {}\n", entry.name, entry.summary, entry.citation)?;
    if entry.options.is_empty() {
        writeln!(out, "It has no options.")?;
        return Ok(());
    }
    let mut table = TextTable::new(&[
        ("option", Align::Left, WIDTH),
        ("default", Align::Left, WIDTH),
        ("", Align::Left, WIDTH),
    ]);
    for choice in entry.options {
        let (mut key, mut default) = (choice.key.to_owned(), choice.default.to_owned());
        for line in broken(choice.meaning) {
            table.row([std::mem::take(&mut key), std::mem::take(&mut default), line]);
        }
    }
    for line in table.lines() {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// A text in lines of at most [`WIDTH`] characters, broken between words.
fn broken(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.len() - 1;
        if lines[line].is_empty() {
            lines[line].push_str(word);
        } else if lines[line].chars().count() + 1 + word.chars().count() <= WIDTH {
            lines[line].push(' ');
            lines[line].push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_of_an_option_is_lost() {
        for entry in entries() {
            let mut shown = Vec::new();
            assert!(one(entry, &mut shown).is_ok());
            let shown = String::from_utf8_lossy(&shown).into_owned();
            assert!(!shown.contains('…'), "{shown}");
            let words: Vec<&str> = shown.split_whitespace().collect();
            for choice in entry.options {
                assert!(choice.meaning.split_whitespace().all(|word| words.contains(&word)), "{shown}");
            }
        }
    }
}
