//! `monosplit completions` and `monosplit man`: shell completions and manual pages, generated from the command line.

use std::io::Write;

use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::Shell;

use super::CommandLine;
use crate::failure::Failure;

/// Writes completions for a shell
#[derive(Args)]
#[command(long_about = "\
Writes completions for a shell to the output.

  monosplit completions bash > ~/.local/share/bash-completion/completions/monosplit
  monosplit completions zsh > ~/.zfunc/_monosplit
  monosplit completions fish > ~/.config/fish/completions/monosplit.fish")]
pub(crate) struct Completions {
    /// The shell: bash, zsh, fish, elvish or powershell.
    #[arg(value_name = "SHELL", value_enum, hide_possible_values = true)]
    shell: ShellName,
}

#[derive(Clone, Copy, ValueEnum)]
enum ShellName {
    Bash,
    Zsh,
    Fish,
    Elvish,
    Powershell,
}

impl Completions {
    pub(crate) fn execute(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let shell = match self.shell {
            ShellName::Bash => Shell::Bash,
            ShellName::Zsh => Shell::Zsh,
            ShellName::Fish => Shell::Fish,
            ShellName::Elvish => Shell::Elvish,
            ShellName::Powershell => Shell::PowerShell,
        };
        // The generator panics on failed writes, so that it writes into memory.
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut CommandLine::command(), "monosplit", &mut text);
        Ok(out.write_all(&text)?)
    }
}

/// Writes the manual page of the program, or of a command
#[derive(Args)]
#[command(long_about = "\
Writes the manual page of the program, or of one of its commands, to the output.

  monosplit man > monosplit.1
  monosplit man explain > monosplit-explain.1")]
pub(crate) struct Man {
    /// The command, by all its names: `explain`, `figure alpha`.
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
}

impl Man {
    pub(crate) fn execute(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let mut found = CommandLine::command();
        found.build();
        for word in &self.command {
            let Some(inner) = found.find_subcommand(word) else {
                let names: Vec<&str> = found.get_subcommands().map(clap::Command::get_name).collect();
                let hint = monosplit::graph::options::closest(word, &names);
                let said = format!("there is no command '{word}'; {hint}`monosplit --help` lists them");
                return Err(monosplit::graph::Error::argument(said).into());
            };
            found = inner.clone();
        }
        let mut page = Vec::new();
        clap_mangen::Man::new(found).render(&mut page)?;
        Ok(out.write_all(with_examples_kept(&String::from_utf8_lossy(&page)).as_bytes())?)
    }
}

/// A manual page whose indented lines are neither filled nor justified, so that columns stay aligned.
fn with_examples_kept(page: &str) -> String {
    let mut kept = String::with_capacity(page.len());
    let mut within = false;
    for line in page.lines() {
        let indented = line.starts_with("  ");
        if indented != within {
            kept.push_str(if indented { ".nf\n" } else { ".fi\n" });
            within = indented;
        }
        kept.push_str(line);
        kept.push('\n');
    }
    if within {
        kept.push_str(".fi\n");
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_indented_line_of_a_manual_page_is_kept_as_it_is() {
        let page = "words\n.PP\n  a   one\n  b   two\n.PP\nmore\n  c\n";
        let kept = with_examples_kept(page);
        assert_eq!(kept, "words\n.PP\n.nf\n  a   one\n  b   two\n.fi\n.PP\nmore\n.nf\n  c\n.fi\n");
        assert_eq!(kept.replace(".nf\n", "").replace(".fi\n", ""), page);
    }
}
