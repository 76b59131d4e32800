//! The command `monosplit`.

use std::process::ExitCode;

fn main() -> ExitCode {
    monosplit::commands::main(std::env::args_os())
}
