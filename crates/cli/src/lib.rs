//! The command `monosplit` as a function: options become calls of the library, results become words.

mod commands;
mod config;
mod exit_status;
mod failure;
mod interruption;
mod json;
mod logging;
mod output_style;
mod report;
mod shell_word;
mod table;

use std::ffi::OsString;

pub use exit_status::ExitStatus;

/// Runs the program with these arguments, the first of which is its own name. It handles signals of the process, writes to
/// its standard output and keeps what it was told for the rest of the process: call it once.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitStatus {
    commands::main(arguments)
}
