//! The command `monosplit`: options become calls of the library, results become words.

mod commands;
mod config;
mod failure;
mod interruption;
mod json;
mod logging;
mod output_style;
mod report;
mod table;

use std::process::ExitCode;

fn main() -> ExitCode {
    commands::main(std::env::args_os())
}
