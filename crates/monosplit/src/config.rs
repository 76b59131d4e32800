//! Defaults from files: what a person would otherwise write behind every command. A key is the long name of an
//! option; in front of all tables it counts for every command that has the option, in the table of a command for
//! that command.

use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, Command};
use monosplit_eval::experiment::value::{Kind, Value};
use monosplit_graph::Result;
use monosplit_graph::options::closest;

/// The file in the folder a command is given in.
const HERE: &str = "monosplit.toml";
/// Names a file instead of those that are looked for; empty, none is read.
const VARIABLE: &str = "MONOSPLIT_CONFIG";

/// An option with the values it has unless given.
struct Setting {
    /// The command it belongs to, by the names from the first on; empty for all commands.
    command: Vec<String>,
    option: String,
    values: Vec<String>,
}

/// The files that are there, the least important first.
pub(crate) fn files() -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var_os(name);
    if let Some(named) = variable(VARIABLE) {
        return if named.is_empty() { Vec::new() } else { vec![named.into()] };
    }
    let filled = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || filled("HOME").map(|home| home.join(".config"));
    let own = filled("XDG_CONFIG_HOME").or_else(|| filled("APPDATA")).or_else(home);
    let own = own.map(|folder| folder.join("monosplit").join("config.toml"));
    own.into_iter().chain([PathBuf::from(HERE)]).filter(|path| path.is_file()).collect()
}

/// `command` with the defaults that `files` say.
pub(crate) fn apply(mut command: Command, files: &[PathBuf]) -> Result<Command> {
    for path in files {
        for setting in settings(&command, path)? {
            command = set(command, &setting.command, &setting);
        }
    }
    Ok(command)
}

fn settings(command: &Command, path: &Path) -> Result<Vec<Setting>> {
    let value = Value::open(path)?;
    let mut found = Vec::new();
    collect(command, &value, &mut Vec::new(), &mut found)?;
    // What is said of one command counts more than what is said of all, wherever it stands.
    found.sort_by_key(|setting| setting.command.len());
    Ok(found)
}

fn collect(command: &Command, value: &Value, path: &mut Vec<String>, found: &mut Vec<Setting>) -> Result<()> {
    let Kind::Table(table) = &value.kind else { return Ok(()) };
    for (key, value) in table.iter().filter(|(key, _)| key != "base") {
        if let Kind::Table(_) = value.kind {
            let names: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
            let Some(inner) = command.find_subcommand(key) else {
                let said = format!("there is no command '{key}'; {}", closest(key, &names));
                return Err(value.place.error(said.trim_end_matches("; ").trim_end()));
            };
            path.push(key.clone());
            collect(inner, value, path, found)?;
            path.pop();
            continue;
        }
        let option = key.replace('_', "-");
        let names = options(command, path.is_empty());
        if !names.contains(&&*option) {
            let whose = if path.is_empty() { String::new() } else { format!(" of {}", path.join(" ")) };
            let said = format!("there is no option '{key}'{whose}; {}", closest(&option, &names));
            return Err(value.place.error(said.trim_end_matches("; ").trim_end()));
        }
        found.push(Setting { command: path.clone(), option, values: words(value)? });
    }
    Ok(())
}

/// The long names of the options of a command, with those of all its commands if asked for.
fn options(command: &Command, all: bool) -> Vec<&str> {
    let own = command.get_arguments().filter_map(Arg::get_long);
    let mut names: Vec<&str> = own.filter(|name| !matches!(*name, "help" | "version")).collect();
    if all {
        names.extend(command.get_subcommands().flat_map(|inner| options(inner, true)));
    }
    names.sort_unstable();
    names.dedup();
    names
}

/// A value as it would be written on a command line.
fn words(value: &Value) -> Result<Vec<String>> {
    let plain = |value: &Value| match &value.kind {
        Kind::Text(text) => Ok(text.clone()),
        Kind::Whole(_) | Kind::Real(_) | Kind::Flag(_) => Ok(value.kind.said()),
        Kind::List(_) | Kind::Table(_) => {
            Err(value.place.error(format!("expected words or a number, found {}", value.kind.said())))
        }
    };
    match &value.kind {
        Kind::List(list) => list.iter().map(plain).collect(),
        _ => Ok(vec![plain(value)?]),
    }
}

/// Gives the option its values in the command at the end of `path`, or without a path in all that have it.
fn set(mut command: Command, path: &[String], setting: &Setting) -> Command {
    if let [first, rest @ ..] = path {
        return command.mut_subcommand(first, |inner| set(inner, rest, setting));
    }
    let found = command.get_arguments().find(|arg| arg.get_long() == Some(&setting.option));
    if let Some(id) = found.map(|arg| arg.get_id().clone()) {
        command = command.mut_arg(id, |arg| with_default(arg, &setting.values));
    }
    if setting.command.is_empty() {
        let names: Vec<String> = command.get_subcommands().map(|inner| inner.get_name().to_owned()).collect();
        for name in names {
            command = command.mut_subcommand(name, |inner| set(inner, &[], setting));
        }
    }
    command
}

fn with_default(arg: Arg, values: &[String]) -> Arg {
    if matches!(arg.get_action(), ArgAction::SetTrue) {
        return arg.default_value(if values == ["true"] { "true" } else { "false" });
    }
    // The parser keeps defaults as long as the program runs, and is made once.
    let kept: Vec<&'static str> = values.iter().map(|value| &*value.clone().leak()).collect();
    arg.default_values(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> Command {
        let alpha = || Arg::new("alpha").long("alpha");
        let quiet = Arg::new("quiet").long("quiet").action(ArgAction::SetTrue).global(true);
        let layer = Arg::new("layers").long("layer").action(ArgAction::Append);
        let figure = Command::new("figure").subcommand(Command::new("strip").arg(alpha()));
        Command::new("p")
            .arg(quiet)
            .subcommand(Command::new("explain").arg(alpha()).arg(layer))
            .subcommand(figure)
    }

    fn applied(text: &str) -> Result<Command> {
        let serial = std::thread::current().name().unwrap_or("config").replace("::", "-");
        let path = std::env::temp_dir().join(format!("monosplit-{}-{serial}.toml", std::process::id()));
        std::fs::write(&path, text).unwrap();
        let applied = apply(command(), std::slice::from_ref(&path));
        let _ = std::fs::remove_file(path);
        applied
    }

    fn alpha(command: &Command, line: &[&str]) -> Option<String> {
        let matches = command.clone().try_get_matches_from(line).unwrap();
        let (_, mut found) = matches.subcommand().unwrap();
        while let Some((_, inner)) = found.subcommand() {
            found = inner;
        }
        found.get_one::<String>("alpha").cloned()
    }

    #[test]
    fn a_command_counts_more_than_all_and_the_command_line_more_than_both() {
        let command =
            applied("[explain]\nalpha = 0.3\nlayer = ['a', 'b']\n[figure.strip]\nalpha = 0.2").unwrap();
        assert_eq!(alpha(&command, &["p", "explain"]).as_deref(), Some("0.3"));
        assert_eq!(alpha(&command, &["p", "explain", "--alpha", "0"]).as_deref(), Some("0"));
        assert_eq!(alpha(&command, &["p", "figure", "strip"]).as_deref(), Some("0.2"));
        let matches = command.clone().try_get_matches_from(["p", "explain", "--layer", "c"]).unwrap();
        let layers = matches.subcommand().unwrap().1.get_many::<String>("layers").unwrap();
        assert_eq!(layers.collect::<Vec<_>>(), ["c"]);
        let all = applied("alpha = 0.1\n[explain]\nalpha = 0.3").unwrap();
        assert_eq!(alpha(&all, &["p", "explain"]).as_deref(), Some("0.3"));
        assert_eq!(alpha(&all, &["p", "figure", "strip"]).as_deref(), Some("0.1"));
    }

    #[test]
    fn what_is_not_known_is_answered_with_its_line_and_what_is_close() {
        for (text, words) in [
            ("alpa = 1", ["line 1", "no option 'alpa'", "did you mean 'alpha'?"]),
            ("\n[explane]\nalpha = 1", ["line 2", "no command 'explane'", "did you mean 'explain'?"]),
            ("[explain]\nlayr = 1", ["line 2", "'layr' of explain", "did you mean 'layer'?"]),
            ("[explain]\nlayer = [[1]]", ["line 2", "expected words", "a list of 1"]),
        ] {
            let said = applied(text).unwrap_err().to_string();
            assert!(words.iter().all(|word| said.contains(word)), "{said}");
        }
        let own = applied("").unwrap();
        assert_eq!(alpha(&own, &["p", "explain"]), None);
    }
}
