//! The suggestion after a successful command: one line with the file names that were just used.

use std::ffi::OsString;
use std::path::Path;

use clap::CommandFactory;
use monosplit::holds_maps;
use monosplit::image::is_picture_name;

use super::network_input::{NetworkInput, OpenedNetwork};
use super::{Command, CommandLine, is_written};
use crate::shell_word::quoted;

/// The options that say how a network and its pictures are read. The next command needs them too.
const READING: [&str; 19] = [
    "target",
    "output",
    "arch",
    "weights",
    "input-shape",
    "no-transform-input",
    "labels",
    "preset",
    "resize",
    "crop",
    "fit",
    "filter",
    "mean",
    "std",
    "bgr",
    "scale",
    "orientation",
    "background",
    "recursive",
];

/// Those of them that concern the network.
const NETWORK: [&str; 6] = ["target", "arch", "weights", "input-shape", "no-transform-input", "output"];

/// The suggestion after `command`, which was given as `arguments`; none for commands that shells read.
pub(super) fn after(command: &Command, arguments: &[OsString]) -> Option<String> {
    let words: Vec<String> =
        arguments.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let (mut line, mut does) = suggestion(command)?;
    let (written, read) = sorted(command, arguments);
    // A compiled file can be compared by any method, but `explain` shows only the maps it holds.
    if matches!(command, Command::Compare(_)) && named(&read, &["onnx"]).is_some_and(|file| holds_maps(&file))
    {
        (line, does) = ("explain {model} {picture}", "shows the maps the file holds");
    }
    let file = |endings: &[&str], otherwise: &str| {
        named(&read, endings).map_or_else(|| otherwise.to_owned(), |name| quoted(&name))
    };
    // With --arch there is no model file. The --arch of training means something else.
    let nameless = given(&words, "arch") && !matches!(command, Command::Train(_));
    let model = file(&["onnx"], if nameless { "" } else { "MODEL.onnx" });
    let any = || written.first().filter(|_| matches!(command, Command::Compile(_))).cloned();
    let written = named(&written, &["onnx"]).or_else(any);
    // The store of an experiment has its name by default.
    let store =
        |file: String| Path::new(&file).with_extension("sqlite").file_name()?.to_str().map(String::from);
    let run = named(&words, &["sqlite"]).or_else(|| store(named(&read, &["toml"])?));
    let picture = read.iter().find(|word| is_picture_name(Path::new(word))).map(|name| quoted(name));
    let picture = || picture.clone().unwrap_or_else(|| "PICTURE.jpg".to_owned());
    let complete = line.contains("{written}");
    let next = line.split(' ').next().unwrap_or_default();
    // A network that the next command refuses gets no suggestion. One that was just written has the output it needs.
    let opened = OpenedNetwork::get().filter(|_| line.contains("{picture}"));
    let needed = match opened {
        Some(network) if !network.input.suits(next) => return None,
        Some(network) if !complete => network.options_for(next, given(&words, "output"))?,
        _ => String::new(),
    };
    if needed.contains("--raw") {
        does = "writes what it returns";
    }
    let input = match opened.map(|network| network.input) {
        Some(NetworkInput::Arrays | NetworkInput::Integers) => file(&["npy", "npz"], "BATCH.npy"),
        // Figures are drawn over pictures.
        _ if line.starts_with("compare") => picture(),
        _ => named(&read, &["npy", "npz"]).map_or_else(picture, |name| quoted(&name)),
    };
    let line = line
        .replace("{written}", &written.map_or_else(|| model.clone(), |name| quoted(&name)))
        .replace("{model}", &model)
        .replace("{picture}", &input)
        .replace("{run}", &run.map_or_else(|| "RUN.sqlite".into(), |name| quoted(&name)));
    let line = if model.is_empty() { line.replace("  ", " ").trim_end().to_owned() } else { line };
    let carried = carried(&words, next, complete);
    Some(format!("next: `monosplit {line}{needed}{carried}` {does}"))
}

/// The file names on a command line: those that are written and those that are read.
fn sorted(command: &Command, arguments: &[OsString]) -> (Vec<String>, Vec<String>) {
    let (mut written, mut read) = (Vec::new(), Vec::new());
    for pair in arguments.windows(2) {
        let word = pair[1].to_string_lossy().into_owned();
        match word.split_once('=').filter(|(option, _)| option.starts_with("--")) {
            Some((option, value)) if is_written(command, &option.into()) => written.push(value.to_owned()),
            // A target names files that are not the input.
            Some(("--target", _)) => {}
            Some((_, value)) => read.push(value.to_owned()),
            None if pair[0] == "--target" => {}
            None if is_written(command, &pair[0]) => written.push(word),
            None => read.push(word),
        }
    }
    (written, read)
}

/// Whether an option was given.
fn given(words: &[String], name: &str) -> bool {
    words.iter().any(|word| word.strip_prefix("--").is_some_and(|word| word.split('=').next() == Some(name)))
}

/// The options of `READING` that were given and that the next command has too. Without those of `NETWORK` where the next
/// command reads a `complete` network that was just written.
fn carried(words: &[String], next: &str, complete: bool) -> String {
    let all = CommandLine::command();
    let Some(next) = all.find_subcommand(next) else { return String::new() };
    let mut line = String::new();
    for (at, word) in words.iter().enumerate() {
        let Some(option) = word.strip_prefix("--") else { continue };
        let (name, value) =
            option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
        let known = next.get_arguments().find(|argument| argument.get_long() == Some(name));
        let settled = complete && NETWORK.contains(&name);
        let Some(argument) = known.filter(|_| READING.contains(&name) && !settled) else { continue };
        line += &format!(" --{name}");
        let following = || words.get(at + 1).map(String::as_str);
        if let (true, Some(value)) = (argument.get_action().takes_values(), value.or_else(following)) {
            line += &format!(" {}", quoted(value));
        }
    }
    line
}

fn suggestion(command: &Command) -> Option<(&'static str, &'static str)> {
    Some(match command {
        Command::Bounds(_) => ("explain {model} {picture}", "shows what the score depends on"),
        Command::Compare(_) => ("explain {model} {picture} --method NAME", "draws one of them large"),
        Command::Compile(_) => ("explain {written} {picture}", "shows the maps the new file holds"),
        Command::Counterfactual(_) => ("verify {model} {picture}", "checks what the network promises"),
        Command::Demo(_) => {
            ("explain MODEL.onnx PICTURE.jpg", "does it with a network and a picture of yours")
        }
        Command::Diff(_) => ("explain {model} {picture}", "shows what the first of them looks at"),
        Command::Evaluate(_) => ("report {run} -o report", "makes a page of what was measured"),
        Command::Explain(_) => ("compare {model} {picture}", "draws other methods beside it"),
        Command::Figure(_) => ("figure --help", "lists the other figures"),
        Command::Inspect(_) => ("run {model} {picture}", "says what it predicts"),
        Command::Maxout(_) => ("maxout --help", "lists what else can be done with such a network"),
        Command::Methods(_) => ("explain {model} {picture} --method NAME", "draws what a method shows"),
        Command::Ops(_) => ("inspect {model}", "says what is missing for a file"),
        Command::Report(_) => ("results {run} -o rows.csv", "writes every number it is made of"),
        Command::Results(_) => ("report {run} -o report", "makes a page of it"),
        Command::Run(_) => ("explain {model} {picture}", "shows where it found that"),
        Command::Split(_) => ("verify {model} {picture}", "checks that f = g − h, layer by layer"),
        Command::Train(_) => {
            ("counterfactual {written} {picture} -o figure.png", "draws what it has learned")
        }
        Command::Verify(_) => ("explain {model} {picture}", "shows what the network looks at"),
        // Shells and pagers read their output.
        Command::Completions(_) | Command::Man(_) => return None,
        // It serves until it is ended.
        Command::Serve(_) => return None,
    })
}

/// The first argument that names a file with one of these endings.
fn named(words: &[String], endings: &[&str]) -> Option<String> {
    words.iter().find(|word| has_ending(word, endings)).cloned()
}

fn has_ending(word: &str, endings: &[&str]) -> bool {
    let ending = Path::new(word).extension().map(|ending| ending.to_string_lossy().to_lowercase());
    ending.is_some_and(|ending| endings.contains(&&*ending))
}
