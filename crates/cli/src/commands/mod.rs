//! The command line: options become calls of the library. One command to a file.

mod bounds;
mod bounds_output;
mod by_layer;
mod cancelled_channels;
mod class;
mod compare;
mod compare_named;
mod compile;
mod compute;
mod counterfactual;
mod demo;
mod diff;
mod diff_page;
mod diff_result;
mod drawing;
mod drawn_files;
mod evaluate;
mod explain;
mod explain_compiled;
mod explain_named;
mod explain_result;
mod figure;
mod figure_input;
mod inputs;
mod inspect;
mod inspect_output;
mod maxout;
mod method;
mod methods;
mod named_inputs;
mod network;
mod network_input;
mod next_step;
mod ops;
mod panels;
mod preprocessing;
mod profile;
pub(crate) mod progress;
mod read_files;
mod report;
mod results;
mod run;
mod serve;
mod served_run;
mod shell;
mod split;
mod target;
mod train;
mod training_bar;
mod verify;

use std::ffi::OsString;
use std::io::{self, Write};
use std::time::Instant;

use clap::error::{ContextKind, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use monosplit::graph::Error;

use crate::config::{self, Defaults};
use crate::exit_status::ExitStatus;
use crate::failure::{Failure, FailureOutput, complain, hint, note, say, text};
use crate::json;
use crate::output_style::OutputStyle;
use read_files::keep_what_is_read;

pub(crate) use evaluate::is_ranked;

const OVERVIEW: &str = "\
monosplit opens a trained image classifier, runs it, and explains what it saw.

  monosplit demo                                a first look, with everything built in
  monosplit inspect resnet18.onnx               what is inside: layers, shapes, parameters, cost
  monosplit run resnet18.onnx cat.jpg           what it takes the picture for: the five best classes
  monosplit explain resnet18.onnx cat.jpg       where in the picture it found that
  monosplit verify resnet18.onnx cat.jpg        that the theory behind it holds on this network
  monosplit bounds digits.onnx three.png        how far its scores can move, certified
  monosplit compare resnet18.onnx cat.jpg       the same by several methods, in one figure
  monosplit serve resnet18.onnx photos/         all of this in the browser, α on a slider
  monosplit diff before.onnx after.onnx cat.jpg two networks compared: scores and maps
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
#[command(name = "monosplit", version)]
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
  monosplit bounds digits.onnx three.png        how far its scores can move, certified
  monosplit compare resnet18.onnx cat.jpg       the same by several methods, in one figure
  monosplit serve resnet18.onnx photos/         all of this in the browser, α on a slider
  monosplit diff before.onnx after.onnx cat.jpg two networks compared: scores and maps
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

The exit code is 0 when all went well, 1 when `verify` found that something does not hold or `diff`
that a limit is passed, and 2 otherwise, with one line on the error stream that says what was wrong,
or one for each input that was skipped because it cannot be read. Defaults of options are read
from monosplit.toml in the current folder and from monosplit/config.toml where your system keeps
configurations; the environment variable MONOSPLIT_CONFIG names another file.")]
struct CommandLine {
    /// Print results and errors only: no progress, no remarks, no hints.
    #[arg(short, long, global = true, help_heading = "In general")]
    quiet: bool,

    /// Say what is done and how long it takes, for bug reports; twice: of every node.
    #[arg(short, long, global = true, action = ArgAction::Count, conflicts_with = "quiet", help_heading = "In general")]
    verbose: u8,

    /// Draw without colours, as NO_COLOR in the environment does.
    #[arg(long, global = true, help_heading = "In general", alias = "no-colour")]
    no_color: bool,

    /// Hold no more memory than this: 500M, 4G [default: three quarters of what is free].
    #[arg(long, global = true, value_name = "SIZE", value_parser = bytes, help_heading = "In general")]
    memory: Option<usize>,

    #[command(subcommand)]
    command: Option<Command>,
}

/// A number of bytes, with K, M, G or T for powers of 1024.
fn bytes(text: &str) -> Result<usize, String> {
    let expected = || format!("expected a size such as 500M or 4G, found '{text}'");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().trim_end_matches('B').trim_end_matches('I') {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(expected()),
    };
    let number: usize = digits.parse().map_err(|_| expected())?;
    number.checked_mul(1 << shift).filter(|&bytes| bytes > 0).ok_or_else(expected)
}

#[derive(Subcommand)]
enum Command {
    Bounds(Box<bounds::Bounds>),
    Compare(Box<compare::Compare>),
    Compile(Box<compile::Compile>),
    Completions(shell::Completions),
    Counterfactual(Box<counterfactual::CounterfactualCommand>),
    Demo(demo::Demo),
    Diff(Box<diff::Diff>),
    Evaluate(Box<evaluate::Evaluate>),
    Explain(Box<explain::Explain>),
    Figure(figure::Figure),
    Inspect(inspect::Inspect),
    Man(shell::Man),
    Maxout(maxout::Maxout),
    Methods(methods::Methods),
    Report(Box<report::ReportCommand>),
    Results(Box<results::Results>),
    Run(Box<run::RunCommand>),
    Serve(Box<serve::Serve>),
    Split(Box<split::SplitCommand>),
    Train(Box<train::Train>),
    Verify(Box<verify::Verify>),
    Ops(ops::Ops),
}

/// The options that name files to write.
const WRITTEN: [&str; 6] = ["-o", "--out", "--out-g", "--out-h", "--raw", "--store"];

/// Whether a word is an option that names a file to write.
fn is_written(command: &Command, word: &OsString) -> bool {
    // Where a network is opened, this is an output of the network.
    let also = !matches!(
        command,
        Command::Bounds(_)
            | Command::Compare(_)
            | Command::Compile(_)
            | Command::Diff(_)
            | Command::Explain(_)
            | Command::Figure(_)
            | Command::Inspect(_)
            | Command::Run(_)
            | Command::Serve(_)
            | Command::Split(_)
            | Command::Verify(_)
    );
    let short = |word: &str| word.starts_with('-') && !word.starts_with("--") && word.ends_with('o');
    (also && word == "--output")
        || WRITTEN.iter().any(|option| word == option)
        || word.to_str().is_some_and(short)
}

/// The parsed command line with the defaults of the configuration files.
struct Invocation {
    line: CommandLine,
    matches: ArgMatches,
    defaults: Defaults,
    /// What is wrong with a configuration file that this command does not need.
    remark: Option<String>,
}

/// Whether the purpose of a command is to write files rather than to print.
fn writes_files(command: &Command, arguments: &[OsString]) -> bool {
    let always = matches!(
        command,
        Command::Compare(_)
            | Command::Demo(_)
            | Command::Evaluate(_)
            | Command::Explain(_)
            | Command::Figure(_)
            | Command::Train(_)
    );
    let told = |word: &OsString| {
        is_written(command, word)
            || word.to_str().is_some_and(|word| WRITTEN.iter().any(|o| word.starts_with(&format!("{o}="))))
    };
    always || arguments.iter().any(told)
}

/// The output stream. A closed pipe is an error that ends the command, unless it `goes_on` because it writes files.
struct ResultStream<W> {
    out: W,
    goes_on: bool,
}

impl<W: Write> Write for ResultStream<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.out.write(bytes) {
            Err(cause) if self.goes_on && cause.kind() == io::ErrorKind::BrokenPipe => Ok(bytes.len()),
            answer => answer,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.out.flush() {
            Err(cause) if self.goes_on && cause.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            answer => answer,
        }
    }
}

/// Runs the program with the given arguments, of which the first is its own name.
pub(crate) fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitStatus {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let invocation = match read(&arguments) {
        Ok(invocation) => invocation,
        Err(refusal) => return refusal.report(&arguments),
    };
    let begun = Instant::now();
    let command = invocation.line.command.as_ref();
    OutputStyle { quiet: invocation.line.quiet, plain: invocation.line.no_color }.settle();
    if let Err(error) = crate::logging::install(invocation.line.verbose) {
        return Refusal::Mistake(text(&error)).report(&arguments);
    }
    invocation.line.memory.iter().for_each(|&bytes| monosplit::engine::set_memory_limit(bytes));
    crate::logging::describe_program(&arguments);
    invocation.remark.iter().for_each(|remark| note(remark));
    let announced = invocation.defaults.announcement(&CommandLine::command(), &invocation.matches);
    // A file that came with a download cannot silence what is said of it.
    let silenced = invocation.matches.value_source("quiet") == Some(ValueSource::CommandLine);
    announced.iter().filter(|_| !silenced).for_each(|words| say(words));
    crate::interruption::remove_unfinished_files_on_signals();
    crate::interruption::report_lost_files();
    monosplit::graph::protect_inputs();
    keep_what_is_read(&CommandLine::command(), &invocation.matches, &config::files());
    let goes_on = command.is_some_and(|command| writes_files(command, &arguments));
    let mut out = io::BufWriter::new(ResultStream { out: io::stdout().lock(), goes_on });
    let done = execute(command, &mut out).and_then(|code| {
        out.flush()?;
        Ok(code)
    });
    log::info!("{} after {:.1?}", if done.is_ok() { "done" } else { "failed" }, begun.elapsed());
    match done {
        Ok(code) => {
            crate::logging::report_left_out();
            let skipped = inputs::report_skipped();
            let code = skipped.filter(|_| code == ExitStatus::SUCCESS).map_or(code, ExitStatus::from);
            let next = command.and_then(|command| next_step::after(command, &arguments));
            // No hint after a failed check, and none beside JSON.
            if let Some(next) =
                next.filter(|_| code == ExitStatus::SUCCESS && !is_for_programs(&invocation.matches))
            {
                note(&next);
            }
            code
        }
        Err(failure) => {
            let Failure::Error(error) = &failure else { return failure.report() };
            if is_for_programs(&invocation.matches) {
                let statement = error.statement();
                let object = FailureOutput::new(error.kind().name(), &statement, hint(error));
                let _ = json::print(&object, &mut out);
            }
            // Results that were computed before the failure are printed.
            let _ = out.flush();
            let said = text(error);
            match invocation.defaults.origin(&CommandLine::command(), &invocation.matches, &said) {
                Some(origin) => complain(&format!("{said} ({origin})")),
                None => failure.report(),
            }
        }
    }
}

/// Why a command line was not carried out.
enum Refusal {
    /// It asks for help or the version.
    Help(String),
    /// It, or a file of defaults, cannot be right.
    Mistake(String),
}

impl Refusal {
    /// Prints help and version to the output, and anything else as an error of one line.
    fn report(self, arguments: &[OsString]) -> ExitStatus {
        match self {
            Refusal::Help(text) => {
                let written = io::stdout().write_all(text.as_bytes());
                written.map_or_else(|cause| Failure::Output(cause).report(), |()| ExitStatus::SUCCESS)
            }
            Refusal::Mistake(said) => {
                // Where options could not be parsed, the words tell what was meant.
                if arguments.iter().take_while(|word| *word != "--").any(|word| word == "--json") {
                    let _ = json::print(&FailureOutput::new("usage", &said, None), &mut io::stdout());
                }
                complain(&said)
            }
        }
    }
}

/// Whether JSON was asked for, on the command line or in a file of defaults.
fn is_for_programs(matches: &ArgMatches) -> bool {
    match matches.subcommand() {
        Some((_, inner)) => is_for_programs(inner),
        None => matches!(matches.try_get_one::<bool>("json"), Ok(Some(true))),
    }
}

/// The names of the commands that were typed.
fn names<'a>(command: &clap::Command, arguments: &'a [OsString]) -> Vec<&'a str> {
    let mut found = Vec::new();
    let mut command = command;
    for word in arguments.iter().skip(1).filter_map(|word| word.to_str()) {
        let Some(inner) = command.find_subcommand(word) else { continue };
        found.push(word);
        command = inner;
    }
    found
}

/// The same command, with negative numbers allowed as values. Each option checks its own range.
fn taking_negative_numbers(command: clap::Command) -> clap::Command {
    let options = command.mut_args(|argument| {
        let is_option = !argument.is_positional() && argument.get_action().takes_values();
        if is_option { argument.allow_negative_numbers(true) } else { argument }
    });
    options.mut_subcommands(taking_negative_numbers)
}

/// The command line as it was typed, with the defaults of the configuration.
fn read(arguments: &[OsString]) -> Result<Invocation, Refusal> {
    let typed = |command: clap::Command| {
        let matches = taking_negative_numbers(command).try_get_matches_from(arguments)?;
        Ok::<_, clap::Error>((CommandLine::from_arg_matches(&matches)?, matches))
    };
    let (command, defaults) = match config::apply(CommandLine::command(), &config::files()) {
        Ok(applied) => applied,
        Err(error) => return without_defaults(typed(CommandLine::command()), &error),
    };
    match typed(command) {
        Ok((line, matches)) => Ok(Invocation { line, matches, defaults, remark: None }),
        Err(answer) if is_help(&answer) || typed(CommandLine::command()).is_err() => Err(refuse(&answer)),
        // The typed line is valid by itself, so that a default is at fault.
        Err(answer) => {
            let option = answer.get(ContextKind::InvalidArg).map(ToString::to_string).unwrap_or_default();
            let names = names(&CommandLine::command(), arguments);
            let said = defaults.blamed(&names, &option, &in_one_line(&answer));
            Err(said.map_or_else(|| refuse(&answer), Refusal::Mistake))
        }
    }
}

/// Continues without defaults where a configuration file cannot be read: help and commands with hardly any options still
/// work.
fn without_defaults(
    typed: Result<(CommandLine, ArgMatches), clap::Error>,
    error: &Error,
) -> Result<Invocation, Refusal> {
    let said = text(error);
    match typed {
        Err(answer) if is_help(&answer) => Err(refuse(&answer)),
        Ok((line, matches)) => match line.command {
            None
            | Some(Command::Completions(_) | Command::Man(_) | Command::Ops(_) | Command::Methods(_)) => {
                Ok(Invocation { line, matches, defaults: Defaults::default(), remark: Some(said) })
            }
            Some(_) => Err(Refusal::Mistake(said)),
        },
        Err(_) => Err(Refusal::Mistake(said)),
    }
}

/// Parses the words of a command line.
fn parsed(words: &[String]) -> Result<Command, Failure> {
    let unclear = |said: String| Error::argument(format!("`{}`: {said}", words.join(" ")));
    let matches = taking_negative_numbers(CommandLine::command()).try_get_matches_from(words);
    let line = matches.and_then(|matches| CommandLine::from_arg_matches(&matches));
    let line = line.map_err(|said| unclear(said.to_string()))?;
    Ok(line.command.ok_or_else(|| unclear("no command".into()))?)
}

fn execute(command: Option<&Command>, out: &mut dyn Write) -> Result<ExitStatus, Failure> {
    match command {
        None => out.write_all(OVERVIEW.as_bytes())?,
        Some(Command::Bounds(bounds)) => return bounds.execute(out),
        Some(Command::Compare(compare)) => compare.execute(out)?,
        Some(Command::Compile(compile)) => compile.execute(out)?,
        Some(Command::Completions(completions)) => completions.execute(out)?,
        Some(Command::Counterfactual(counterfactual)) => counterfactual.execute(out)?,
        Some(Command::Demo(demo)) => demo.execute(out)?,
        Some(Command::Diff(diff)) => return diff.execute(out),
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
        Some(Command::Serve(serve)) => serve.execute(out)?,
        Some(Command::Split(split)) => split.execute(out)?,
        Some(Command::Train(train)) => train.execute(out)?,
        Some(Command::Verify(verify)) => return verify.execute(out),
        Some(Command::Ops(ops)) => ops.execute(out)?,
    }
    Ok(ExitStatus::SUCCESS)
}

fn refuse(answer: &clap::Error) -> Refusal {
    if is_help(answer) {
        return Refusal::Help(answer.render().to_string());
    }
    Refusal::Mistake(format!("{} (`--help` explains the options)", in_one_line(answer)))
}

/// Whether the command line asks for help or the version. `figure` without a subcommand asks for help too.
fn is_help(answer: &clap::Error) -> bool {
    use ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
    matches!(answer.kind(), DisplayHelp | DisplayHelpOnMissingArgumentOrSubcommand | DisplayVersion)
}

/// The error of a command line in one line.
fn in_one_line(answer: &clap::Error) -> String {
    let text = answer.render().to_string();
    let said = text.lines().take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    let said: Vec<&str> = said.map(str::trim).filter(|line| !line.is_empty()).collect();
    let said = said.join(" ").replace(" tip: ", "; ");
    said.trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use clap::builder::ValueParser;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        CommandLine::command().debug_assert();
    }

    /// All commands, whatever they will have.
    #[test]
    fn no_option_of_any_command_that_names_a_file_is_taken_from_the_folder() {
        fn check(command: &clap::Command, path: &[&str], found: &mut usize) {
            for arg in command.get_arguments() {
                let Some(option) = arg.get_long() else { continue };
                let is_path = arg.get_value_parser().type_id() == ValueParser::path_buf().type_id();
                let refused = config::refuses_here(&CommandLine::command(), path, option);
                // NAME=FILE is a text, and a file.
                assert_eq!(refused, is_path || option == "input", "{path:?} --{option}");
                // An option that says where something is written is a path, and no text.
                assert!(is_path || !WRITTEN.contains(&&*format!("--{option}")), "{path:?} --{option}");
                *found += usize::from(is_path);
            }
            for inner in command.get_subcommands() {
                check(inner, &[path, &[inner.get_name()]].concat(), found);
            }
        }
        let mut found = 0;
        check(&CommandLine::command(), &[], &mut found);
        assert!(found > 30, "{found}");
    }

    #[test]
    fn sizes_are_read_with_their_units() {
        assert_eq!(bytes("4G"), Ok(4 << 30));
        assert_eq!(bytes("500MiB"), Ok(500 << 20));
        assert_eq!(bytes("12k"), Ok(12 << 10));
        assert_eq!(bytes("7"), Ok(7));
        for wrong in ["", "G", "-1G", "4X", "0", "99999999999999T", "1.5G", "4 G"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
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
