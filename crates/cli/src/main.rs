//! The command `monosplit`.

use std::process::ExitCode;

fn main() -> ExitCode {
    monosplit_cli::run(std::env::args_os()).into()
}
