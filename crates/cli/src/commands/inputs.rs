//! The options that say which input files are read, and what is said of those that are not.

use std::path::PathBuf;
use std::sync::Mutex;

use clap::Args;
use monosplit::graph::Result;
use monosplit::{InputFile, InputList, SampleReader, SkippedInput};
use serde::Serialize;

use crate::failure::{self, FAILED, note, text};

/// So many skipped inputs are named one by one.
const NAMED: usize = 20;

/// Which files are read.
#[derive(Args)]
#[command(next_help_heading = "Inputs")]
pub(crate) struct InputArgs {
    /// Look into the folders of a folder too. Hidden files and folders are always left out.
    #[arg(long)]
    recursive: bool,

    /// Stop at the first file that cannot be read. Without it, such files are skipped and
    /// listed at the end, and the exit code is 2.
    #[arg(long, verbatim_doc_comment)]
    strict: bool,
}

impl InputArgs {
    /// The files at `paths`, folders spread out. A note says which folders were passed over.
    pub(crate) fn list(&self, paths: &[PathBuf]) -> Result<Vec<InputFile>> {
        let list = InputList::of(paths, self.recursive)?;
        if let Some(first) = list.unread_folders.first() {
            let first = first.display();
            // What even --recursive passes over are links, which could lead round in circles, and the depths of a tree.
            let why = if self.recursive { "links are not followed" } else { "--recursive does" };
            note(&match list.unread_folders.len() {
                1 => format!("the folder {first} was not looked into; {why}"),
                n => format!("{n} folders were not looked into, {first} first; {why}"),
            });
        }
        Ok(list.files)
    }

    /// A reader that skips what cannot be read, unless it is to be strict.
    pub(crate) fn skipping(&self, reader: SampleReader) -> SampleReader {
        reader.skip_unreadable(!self.strict)
    }
}

/// The inputs that were skipped, for the end of the command.
static SKIPPED: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// Keeps what a reader has skipped until the end of the command.
pub(crate) fn remember_skipped(reader: &SampleReader) {
    let said = |skipped: &SkippedInput| (skipped.name.clone(), text(&skipped.error));
    if let Ok(mut all) = SKIPPED.lock() {
        all.extend(reader.skipped().iter().map(said));
    }
}

/// A skipped input, for programs.
#[derive(Serialize)]
pub(crate) struct SkippedOutput {
    input: String,
    error: String,
}

/// What was skipped, for programs.
pub(crate) fn skipped_outputs() -> Vec<SkippedOutput> {
    let all = SKIPPED.lock().map(|all| all.clone()).unwrap_or_default();
    all.into_iter().map(|(input, error)| SkippedOutput { input, error }).collect()
}

/// Says at the end of a command what was skipped; the exit code of that.
pub(crate) fn report_skipped() -> Option<u8> {
    let all = SKIPPED.lock().map(|mut all| std::mem::take(&mut *all)).unwrap_or_default();
    if all.is_empty() {
        return None;
    }
    for (_, error) in all.iter().take(NAMED) {
        failure::say(&format!("skipped {error}"));
    }
    let rest = all.len().saturating_sub(NAMED);
    let unnamed = if rest > 0 { format!(" ({rest} more than are named here)") } else { String::new() };
    let count = if all.len() == 1 { "1 input was".to_owned() } else { format!("{} inputs were", all.len()) };
    failure::say(&format!("{count} skipped{unnamed}; --strict stops at the first"));
    Some(FAILED)
}
