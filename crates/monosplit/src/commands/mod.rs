//! The command line: what a person types, turned into calls of the library. One command to a file.

mod answer;
mod by_layer;
mod class;
mod compare;
mod compile;
mod compute;
mod counterfactual;
mod demo;
mod drawing;
mod evaluate;
mod explain;
mod explain_compiled;
mod figure;
mod inspect;
mod maxout;
mod method;
mod methods;
mod network;
mod next_step;
mod ops;
mod panels;
mod preprocessing;
mod profile;
mod progress;
mod report;
mod results;
mod run;
mod shell;
mod split;
mod subject;
mod train;
mod verify;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use monosplit_graph::Error;

use crate::config;
use crate::failure::{Failure, complain, note};
use crate::manner::Manner;

pub(crate) use evaluate::is_ranked;
pub(crate) use method::known_of;

const OVERVIEW: &str = "\
monosplit opens a trained image classifier, runs it, and explains what it saw.

  monosplit demo                                a first look, with everything built in
  monosplit inspect resnet18.onnx               what is inside: layers, shapes, parameters, cost
  monosplit run resnet18.onnx cat.jpg           what it takes the picture for: the five best classes
  monosplit explain resnet18.onnx cat.jpg       where in the picture it found that
  monosplit verify resnet18.onnx cat.jpg        that the theory behind it holds on this network
  monosplit compare resnet18.onnx cat.jpg       the same by several methods, in one figure
  monosplit figure split resnet18.onnx cat.jpg  the figures of the paper
  monosplit split resnet18.onnx …               g and h as files of their own
  monosplit compile resnet18.onnx -o out.onnx   network and explanation as one file
  monosplit evaluate EXPERIMENT.toml            which explanation is right, measured
  monosplit report RUN -o FOLDER                a page about what was measured
  monosplit results RUN                         its numbers, also as CSV or Parquet
  monosplit methods                             which methods there are, with their options
  monosplit maxout draw FILE -o net.svg         abstract Maxout networks, split exactly
  monosplit train mnist/ --out model.onnx       a network that explains itself, trained
  monosplit counterfactual FILE three.png       what it says of a picture: present, missing
  monosplit ops                                 which ONNX operators can be read
  monosplit completions bash                    completions for a shell; `monosplit man`: the manual

Networks are ONNX files, or bare weights of a known architecture:

  monosplit run --arch resnet18 --weights resnet18.pth cat.jpg

`monosplit COMMAND --help` explains a command and all its options.
";

/// Runs trained image classifiers and explains what they saw.
#[derive(Parser)]
#[command(name = "monosplit", version, disable_help_subcommand = true)]
#[command(long_about = "\
Runs trained image classifiers and explains what they saw.

A network is an ONNX file (written by PyTorch, Keras, TensorFlow, …) or the bare weights of a known
architecture (`--arch resnet18 --weights resnet18.pth`). Nothing is downloaded and nothing in a file
is ever executed.

  monosplit demo                                a first look, with everything built in
  monosplit inspect resnet18.onnx               what is inside: layers, shapes, parameters, cost
  monosplit run resnet18.onnx cat.jpg           what it takes the picture for
  monosplit run resnet18.onnx photos/ --top 1   the same for all pictures in a folder
  monosplit explain resnet18.onnx cat.jpg       where in the picture it found that
  monosplit verify resnet18.onnx cat.jpg        that the theory behind it holds on this network
  monosplit compare resnet18.onnx cat.jpg       the same by several methods, in one figure
  monosplit figure split resnet18.onnx cat.jpg  the figures of the paper
  monosplit split resnet18.onnx …               g and h as files of their own
  monosplit compile resnet18.onnx -o out.onnx   network and explanation as one file
  monosplit evaluate EXPERIMENT.toml            which explanation is right, measured
  monosplit report RUN -o FOLDER                a page about what was measured
  monosplit results RUN                         its numbers, also as CSV or Parquet
  monosplit methods                             which methods there are, with their options
  monosplit maxout draw FILE -o net.svg         abstract Maxout networks, split exactly
  monosplit train mnist/ --out model.onnx       a network that explains itself, trained
  monosplit counterfactual FILE three.png       what it says of a picture: present, missing
  monosplit ops                                 which ONNX operators can be read
  monosplit completions bash                    completions for a shell; `monosplit man`: the manual

The exit code is 0 when all went well, 1 when `verify` found that something does not hold, and 2
otherwise, with one line on the error stream that says what was wrong. Defaults of options are read
from monosplit.toml in the current folder and from monosplit/config.toml where your system keeps
configurations; the environment variable MONOSPLIT_CONFIG names another file.")]
struct CommandLine {
    /// Print results and errors only: no progress, no remarks, no hints.
    #[arg(short, long, global = true, help_heading = "In general")]
    quiet: bool,

    /// Draw without colours, as NO_COLOR in the environment does.
    #[arg(long, global = true, help_heading = "In general", alias = "no-colour")]
    no_color: bool,

    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    Compare(Box<compare::Compare>),
    Compile(Box<compile::Compile>),
    Completions(shell::Completions),
    Counterfactual(Box<counterfactual::CounterfactualCommand>),
    Demo(demo::Demo),
    Evaluate(Box<evaluate::Evaluate>),
    Explain(Box<explain::Explain>),
    Figure(figure::Figure),
    Inspect(inspect::Inspect),
    Man(shell::Man),
    Maxout(maxout::Maxout),
    Methods(methods::Methods),
    Report(Box<report::ReportCommand>),
    Results(Box<results::Results>),
    Run(Box<run::Run>),
    Split(Box<split::SplitCommand>),
    Train(Box<train::Train>),
    Verify(Box<verify::Verify>),
    Ops(ops::Ops),
}

/// The options whose values are written, not read.
const WRITTEN: [&str; 7] = ["-o", "--out", "--output", "--out-g", "--out-h", "--raw", "--store"];

/// What is named on the command line, and not as something to write, is not written over.
fn keep_what_is_read(arguments: &[OsString]) {
    let written = |at: usize| WRITTEN.iter().any(|option| arguments[at - 1] == *option);
    for at in (1..arguments.len()).filter(|&at| !written(at)) {
        let path = std::path::Path::new(&arguments[at]);
        if path.is_file() {
            monosplit_graph::keep(path);
        }
    }
}

/// Runs the program with the given arguments, of which the first is its own name.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let parsed = match read(&arguments) {
        Ok(parsed) => parsed,
        Err(code) => return code,
    };
    Manner { quiet: parsed.quiet, plain: parsed.no_color }.settle();
    crate::interruption::leave_nothing_behind();
    keep_what_is_read(&arguments);
    let mut out = io::BufWriter::new(io::stdout().lock());
    let done = execute(parsed.command.as_ref(), &mut out).and_then(|code| {
        out.flush()?;
        Ok(code)
    });
    match done {
        Ok(code) => {
            let next = parsed.command.as_ref().and_then(|command| next_step::after(command, &arguments));
            // After a finding that is not good news, such as a failed check, hints are out of place.
            if let Some(next) = next.filter(|_| code == ExitCode::SUCCESS) {
                note(&next);
            }
            code
        }
        Err(failure) => {
            // What was computed before the failure is still worth having.
            let _ = out.flush();
            failure.report()
        }
    }
}

/// The command line as it was typed, with the defaults of the configuration.
fn read(arguments: &[OsString]) -> Result<CommandLine, ExitCode> {
    let typed = |command: clap::Command| {
        let matches = command.try_get_matches_from(arguments)?;
        CommandLine::from_arg_matches(&matches)
    };
    let files = config::files();
    let command = config::apply(CommandLine::command(), &files);
    let command = command.map_err(|error| complain(&error.to_string()))?;
    typed(command).map_err(|answer| {
        let at_fault = !answer.use_stderr() || files.is_empty() || typed(CommandLine::command()).is_err();
        let origin = files.last().filter(|_| !at_fault);
        refuse(&answer, origin.map(PathBuf::as_path))
    })
}

/// The command that the words of a command line mean.
fn parsed(words: &[String]) -> Result<Command, Failure> {
    let unclear = |said: String| Error::argument(format!("`{}`: {said}", words.join(" ")));
    let line = CommandLine::try_parse_from(words).map_err(|said| unclear(said.to_string()))?;
    Ok(line.command.ok_or_else(|| unclear("no command".into()))?)
}

fn execute(command: Option<&Command>, out: &mut dyn Write) -> Result<ExitCode, Failure> {
    match command {
        None => out.write_all(OVERVIEW.as_bytes())?,
        Some(Command::Compare(compare)) => compare.execute(out)?,
        Some(Command::Compile(compile)) => compile.execute(out)?,
        Some(Command::Completions(completions)) => completions.execute(out)?,
        Some(Command::Counterfactual(counterfactual)) => counterfactual.execute(out)?,
        Some(Command::Demo(demo)) => demo.execute(out)?,
        Some(Command::Evaluate(evaluate)) => evaluate.execute(out)?,
        Some(Command::Explain(explain)) => explain.execute(out)?,
        Some(Command::Figure(figure)) => figure.execute(out)?,
        Some(Command::Inspect(inspect)) => return inspect.execute(out),
        Some(Command::Man(man)) => man.execute(out)?,
        Some(Command::Maxout(maxout)) => maxout.execute(out)?,
        Some(Command::Methods(methods)) => methods.execute(out)?,
        Some(Command::Report(report)) => report.execute(out)?,
        Some(Command::Results(results)) => results.execute(out)?,
        Some(Command::Run(run)) => run.execute(out)?,
        Some(Command::Split(split)) => split.execute(out)?,
        Some(Command::Train(train)) => train.execute(out)?,
        Some(Command::Verify(verify)) => return verify.execute(out),
        Some(Command::Ops(ops)) => ops.execute(out)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Help and version go to the output; anything else is a mistake, said in one line, with the file it stands in if it
/// is not one of the command line.
fn refuse(answer: &clap::Error, origin: Option<&Path>) -> ExitCode {
    let text = answer.render().to_string();
    if matches!(answer.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        let written = io::stdout().write_all(text.as_bytes());
        return written.map_or_else(|cause| Failure::Output(cause).report(), |()| ExitCode::SUCCESS);
    }
    let said = text.lines().take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    let said: Vec<&str> = said.map(str::trim).filter(|line| !line.is_empty()).collect();
    let said = said.join(" ").replace(" tip: ", "; ");
    let said = said.trim_start_matches("error: ");
    match origin {
        Some(path) => complain(&format!("{}: {said}", path.display())),
        None => complain(&format!("{said} (`--help` explains the options)")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn help_fits_into_a_hundred_columns() {
        let mut all = CommandLine::command();
        let mut texts = vec![all.render_long_help().to_string(), OVERVIEW.to_owned()];
        for command in all.get_subcommands_mut() {
            texts.push(command.render_long_help().to_string());
            texts.extend(command.get_subcommands_mut().map(|inner| inner.render_long_help().to_string()));
        }
        for line in texts.iter().flat_map(|text| text.lines()) {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }
}
