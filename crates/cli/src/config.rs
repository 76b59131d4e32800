//! Default values of options from configuration files. A key is the long name of an option. At the top level it applies to
//! each command that has the option, in the table of a command to that command. The file in the current folder may have come
//! with a download: it cannot name files, and what it changes is announced.

use std::path::{Path, PathBuf};

use clap::builder::{ArgPredicate, ValueParser};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, Id};
use monosplit::TargetChoice;
use monosplit::eval::experiment::value::{SourceLocation, Value, ValueKind};
use monosplit::graph::options::closest;
use monosplit::graph::{Error, Result};

/// The configuration file in the current folder.
const HERE: &str = "monosplit.toml";
/// The environment variable that names the configuration file; if it is empty, none is read.
const VARIABLE: &str = "MONOSPLIT_CONFIG";

/// An option with its default values.
struct Setting {
    location: SourceLocation,
    /// The command it belongs to, by the names from the first on; empty for all commands.
    command: Vec<String>,
    option: String,
    value: Form,
    /// Whether it stands in the current folder.
    is_here: bool,
}

/// The values of a key.
#[derive(Clone, PartialEq)]
enum Form {
    Flag(bool),
    One(String),
    Several(Vec<String>),
}

/// The defaults of all files, the least important first.
#[derive(Default)]
pub(crate) struct Defaults {
    settings: Vec<Setting>,
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
    own.into_iter().chain([PathBuf::from(HERE)]).filter(|path| path.exists()).collect()
}

/// `command` with the defaults that `files` say, and the defaults themselves.
pub(crate) fn apply(mut command: Command, files: &[PathBuf]) -> Result<(Command, Defaults)> {
    let mut defaults = Defaults::default();
    for path in files {
        let settings = settings(&command, path)?;
        if path == Path::new(HERE) {
            settings.iter().try_for_each(|setting| names_no_file(&command, setting))?;
        }
        for mut setting in settings {
            setting.is_here = path == Path::new(HERE);
            command = set(command, &setting.command, &setting);
            defaults.settings.push(setting);
        }
    }
    Ok((command, defaults))
}

impl Defaults {
    /// Where the default of `option` stands that counts for `command`.
    fn of(&self, command: &[&str], option: &str) -> Option<&Setting> {
        let counts = |setting: &&Setting| {
            setting.option == option && (setting.command.is_empty() || setting.command == command)
        };
        self.settings.iter().rev().find(counts)
    }

    /// `said` of an option that was not typed, with the file and the line its value stands in; `option` is
    /// written as in a usage line, `--alpha <A>`.
    pub(crate) fn blamed(&self, typed: &[&str], option: &str, said: &str) -> Option<String> {
        let name = option.trim_start_matches('-').split([' ', '=']).next()?;
        let setting =
            self.of(typed, name).or_else(|| self.settings.iter().rev().find(|s| s.option == name))?;
        Some(setting.location.error(format!("{name}: {said}")).to_string())
    }

    /// The defaults that were in force.
    fn in_force(&self, command: &Command, matches: &ArgMatches) -> Vec<&Setting> {
        fn defaulted<'a>(command: &'a Command, matches: &ArgMatches) -> Vec<&'a str> {
            let by_default = |arg: &&Arg| {
                let known = matches.ids().any(|id| id == arg.get_id());
                known && matches.value_source(arg.get_id().as_str()) == Some(ValueSource::DefaultValue)
            };
            command.get_arguments().filter(by_default).filter_map(Arg::get_long).collect()
        }
        let (mut inner, mut matches, mut path) = (command, matches, Vec::new());
        // Options of all commands are those of the program.
        let mut options = defaulted(command, matches);
        while let Some((name, further)) = matches.subcommand() {
            let Some(found) = inner.find_subcommand(name) else { break };
            (inner, matches) = (found, further);
            path.push(name);
        }
        if !path.is_empty() {
            options.extend(defaulted(inner, matches));
        }
        options.into_iter().filter_map(|option| self.of(&path, option)).collect()
    }

    /// Where the defaults stand that an error is about: those that were in force and whose name or value it quotes.
    pub(crate) fn origin(&self, command: &Command, matches: &ArgMatches, said: &str) -> Option<String> {
        let settings = self.in_force(command, matches).into_iter();
        let about: Vec<String> =
            settings.filter(|setting| setting.is_quoted(said)).map(Setting::to_string).collect();
        (!about.is_empty()).then(|| about.join("; "))
    }

    /// What the file in the current folder changes in this run.
    pub(crate) fn announcement(&self, command: &Command, matches: &ArgMatches) -> Option<String> {
        let settings = self.in_force(command, matches).into_iter();
        let set: Vec<String> = settings.filter(|setting| setting.is_here).map(Setting::assignment).collect();
        (!set.is_empty()).then(|| format!("{HERE} in this folder sets {}", set.join(", ")))
    }
}

/// An error if an option in the current folder names a file: it would choose what is read or overwritten.
fn names_no_file(command: &Command, setting: &Setting) -> Result<()> {
    let of = setting.command.iter().try_fold(command, |command, name| command.find_subcommand(name));
    let args = of.map_or(Vec::new(), |of| named(of, &setting.option, setting.command.is_empty()));
    let is_path = |arg: &&Arg| arg.get_value_parser().type_id() == ValueParser::path_buf().type_id();
    if !args.iter().any(is_path) && !setting.may_name_file() {
        return Ok(());
    }
    Err(setting.location.error(format!(
        "{}: a file in the current folder cannot say which files are read or written; give --{} on the command line, or \
         write it into your own configuration",
        setting.option, setting.option
    )))
}

/// Endings of the files that options of methods name.
const FILE_ENDINGS: [&str; 4] = [".npy", ".npz", ".onnx", ".png"];

impl Setting {
    /// Whether a text of several parts may have a file among them: the mask of a target, the baseline of a method, an input.
    fn may_name_file(&self) -> bool {
        let values = match &self.value {
            Form::Flag(_) => &[][..],
            Form::One(value) => std::slice::from_ref(value),
            Form::Several(values) => values,
        };
        let names_file = |value: &String| match &*self.option {
            "input" => true,
            "target" => value.parse::<TargetChoice>().is_ok_and(|target| target.file().is_some()),
            _ => {
                let lower = value.to_ascii_lowercase();
                lower.contains(['/', '\\']) || FILE_ENDINGS.iter().any(|ending| lower.contains(ending))
            }
        };
        values.iter().any(names_file)
    }

    fn assignment(&self) -> String {
        let value = match &self.value {
            Form::Flag(flag) => flag.to_string(),
            Form::One(value) => value.clone(),
            Form::Several(values) => values.join(", "),
        };
        format!("{} = {value}", self.option)
    }

    fn is_quoted(&self, said: &str) -> bool {
        let quoted = |word: &str| said.contains(&format!("'{word}'"));
        let option = &*self.option;
        let values = match &self.value {
            Form::Flag(_) => &[][..],
            Form::One(value) => std::slice::from_ref(value),
            Form::Several(values) => values,
        };
        quoted(option) || said.contains(&format!("--{option}")) || values.iter().any(|value| quoted(value))
    }
}

impl std::fmt::Display for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let SourceLocation { file, line, .. } = &self.location;
        write!(f, "{} stands in {}, line {line}", self.assignment(), file.display())
    }
}

fn settings(command: &Command, path: &Path) -> Result<Vec<Setting>> {
    if path.is_dir() {
        return Err(Error::argument(format!(
            "{}: this is a folder, but a file of defaults is looked for under that name; rename it, or set \
             {VARIABLE} to another file or to nothing",
            path.display()
        )));
    }
    let value = if path == Path::new(HERE) { alone(path)? } else { Value::open(path)? };
    let mut found = Vec::new();
    collect(command, &value, &mut Vec::new(), &mut found)?;
    // A default for one command takes precedence over a default for all, in whichever order they stand.
    found.sort_by_key(|setting| setting.command.len());
    Ok(found)
}

/// The file in the current folder, which may be based on no other: that would choose what is read.
fn alone(path: &Path) -> Result<Value> {
    let value = Value::open_alone(path)?;
    match value.get("base") {
        None => Ok(value),
        Some(base) => Err(base.location.error(
            "base: a file in the current folder cannot say which files are read or written; write its options into it",
        )),
    }
}

fn collect(command: &Command, value: &Value, path: &mut Vec<String>, found: &mut Vec<Setting>) -> Result<()> {
    let ValueKind::Table(table) = &value.kind else { return Ok(()) };
    for (key, value) in table.iter().filter(|(key, _)| key != "base") {
        let option = key.replace('_', "-");
        let args = named(command, &option, path.is_empty());
        if let ValueKind::Table(_) = value.kind {
            if let Some(inner) = command.find_subcommand(key) {
                path.push(key.clone());
                collect(inner, value, path, found)?;
                path.pop();
                continue;
            }
            if args.is_empty() {
                let names: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
                let said = format!("there is no command '{key}'; {}", closest(key, &names));
                return Err(value.location.error(said.trim_end_matches("; ").trim_end()));
            }
        }
        if args.is_empty() {
            return Err(value.location.error(unknown(command, key, &option, path)));
        }
        if let ValueKind::Table(_) = value.kind {
            let said = format!(
                "{key}: expected words, a number, or true or false, found {}",
                value.kind.description()
            );
            return Err(value.location.error(said));
        }
        let form = form(value)?;
        if let Some(said) = unfit(&args, &form) {
            return Err(value
                .location
                .error(format!("{key}: expected {said}, found {}", value.kind.description())));
        }
        let location = value.location.clone();
        found.push(Setting { location, command: path.clone(), option, value: form, is_here: false });
    }
    Ok(())
}

/// The error for a key that is not an option of the command at the end of `path`.
fn unknown(command: &Command, key: &str, option: &str, path: &[String]) -> String {
    if path.is_empty() {
        let said = format!("there is no option '{key}'; {}", closest(option, &options(command, true)));
        return said.trim_end_matches("; ").trim_end().to_owned();
    }
    let whose = path.join(" ");
    let inner = command.get_subcommands().filter(|inner| !named(inner, option, false).is_empty());
    let tables: Vec<String> =
        inner.map(|inner| format!("[{}.{}]", path.join("."), inner.get_name())).collect();
    if !tables.is_empty() {
        return format!("'{key}' is no option of {whose} itself; write it below {}", tables.join(" or "));
    }
    let said =
        format!("there is no option '{key}' of {whose}; {}", closest(option, &options(command, false)));
    said.trim_end_matches("; ").trim_end().to_owned()
}

/// The options of a command by a long name, with those of all its commands if asked for.
fn named<'a>(command: &'a Command, option: &str, all: bool) -> Vec<&'a Arg> {
    let own = command.get_arguments().filter(|arg| arg.get_long() == Some(option));
    let mut found: Vec<&Arg> = own.filter(|_| !matches!(option, "help" | "version")).collect();
    if all {
        found.extend(command.get_subcommands().flat_map(|inner| named(inner, option, true)));
    }
    found
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
fn form(value: &Value) -> Result<Form> {
    let plain = |value: &Value| match &value.kind {
        ValueKind::Text(text) => Ok(text.clone()),
        ValueKind::Whole(_) | ValueKind::Real(_) | ValueKind::Flag(_) => Ok(value.kind.description()),
        ValueKind::List(_) | ValueKind::Table(_) => Err(value
            .location
            .error(format!("expected words or a number, found {}", value.kind.description()))),
    };
    Ok(match &value.kind {
        ValueKind::Flag(flag) => Form::Flag(*flag),
        ValueKind::List(list) => Form::Several(list.iter().map(plain).collect::<Result<_>>()?),
        _ => Form::One(plain(value)?),
    })
}

/// Whether an option can have such a value.
fn fits(arg: &Arg, form: &Form) -> bool {
    match form {
        _ if is_flag(arg) => matches!(form, Form::Flag(_)),
        Form::Several(_) => takes_several(arg),
        Form::Flag(_) | Form::One(_) => true,
    }
}

fn is_flag(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::SetTrue)
}

fn takes_several(arg: &Arg) -> bool {
    let most = arg.get_num_args().map_or(1, |count| count.max_values());
    matches!(arg.get_action(), ArgAction::Append) || arg.get_value_delimiter().is_some() || most > 1
}

/// What is expected instead, where no option of the name can have such a value.
fn unfit(args: &[&Arg], form: &Form) -> Option<&'static str> {
    if args.iter().any(|arg| fits(arg, form)) {
        return None;
    }
    Some(if args.iter().all(|arg| is_flag(arg)) { "true or false" } else { "one value" })
}

/// Gives the option its values in the command at the end of `path`, or without a path in all that have it and can
/// have such a value.
fn set(mut command: Command, path: &[String], setting: &Setting) -> Command {
    if let [first, rest @ ..] = path {
        return command.mut_subcommand(first, |inner| set(inner, rest, setting));
    }
    let fitting = |arg: &&Arg| arg.get_long() == Some(&setting.option) && fits(arg, &setting.value);
    let found = command.get_arguments().find(fitting);
    if let Some(arg) = found {
        let (id, conflicting) = (arg.get_id().clone(), conflicting(&command, arg));
        command =
            command.mut_arg(id, |arg| default_unless_given(with_default(arg, &setting.value), &conflicting));
    }
    if setting.command.is_empty() {
        let names: Vec<String> = command.get_subcommands().map(|inner| inner.get_name().to_owned()).collect();
        for name in names {
            command = command.mut_subcommand(name, |inner| set(inner, &[], setting));
        }
    }
    command
}

/// The options that cannot be given together with one.
fn conflicting(command: &Command, arg: &Arg) -> Vec<Id> {
    let excludes = |one: &Arg, other: &Arg| {
        command.get_arg_conflicts_with(one).iter().any(|found| found.get_id() == other.get_id())
    };
    let others = command.get_arguments().filter(|other| other.get_id() != arg.get_id());
    others
        .filter(|other| excludes(arg, other) || excludes(other, arg))
        .map(|other| other.get_id().clone())
        .collect()
}

/// An option that has its default unless one of these is typed.
fn default_unless_given(arg: Arg, conflicting: &[Id]) -> Arg {
    let without = is_flag(&arg).then_some("false");
    arg.default_value_ifs(conflicting.iter().map(|other| (other.clone(), ArgPredicate::IsPresent, without)))
}

fn with_default(arg: Arg, form: &Form) -> Arg {
    // The parser needs defaults of static lifetime, and is built once.
    let kept = |value: &String| -> &'static str { &*value.clone().leak() };
    // An option with a default is not required.
    let arg = arg.required(false);
    match form {
        Form::Flag(true) => arg.default_value("true"),
        Form::Flag(false) => arg.default_value("false"),
        Form::One(value) => arg.default_value(kept(value)),
        Form::Several(values) => arg.default_values(values.iter().map(kept)),
    }
}

/// Whether an option of a command is refused in the current folder.
#[cfg(test)]
pub(crate) fn refuses_here(command: &Command, path: &[&str], option: &str) -> bool {
    let setting = Setting {
        location: SourceLocation { file: std::sync::Arc::new(HERE.into()), line: 1 },
        command: path.iter().map(|&name| name.to_owned()).collect(),
        option: option.to_owned(),
        value: Form::One("x".to_owned()),
        is_here: true,
    };
    names_no_file(command, &setting).is_err()
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
        Ok(applied?.0)
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
    fn a_default_yields_to_a_typed_option_that_excludes_it() {
        let class = Arg::new("class").long("class").action(ArgAction::Append).conflicts_with("target");
        let inner = Command::new("explain").arg(class).arg(Arg::new("target").long("target"));
        let path = std::env::temp_dir().join(format!("monosplit-{}-conflicting.toml", std::process::id()));
        for (text, typed, yields) in
            [("class = 3", "--target", "class"), ("target = 'sum:y'", "--class", "target")]
        {
            std::fs::write(&path, text).unwrap();
            let (command, _) =
                apply(Command::new("p").subcommand(inner.clone()), std::slice::from_ref(&path)).unwrap();
            let found = |line: &[&str]| {
                let matches = command.clone().try_get_matches_from(line).unwrap();
                matches.subcommand().unwrap().1.get_raw(yields).is_some()
            };
            assert!(found(&["p", "explain"]), "{text}");
            assert!(!found(&["p", "explain", typed, "norm:y"]), "{text}");
        }
        let _ = std::fs::remove_file(path);
    }

    #[test]
    fn what_is_not_known_is_answered_with_its_line_and_what_is_close() {
        for (text, words) in [
            ("alpa = 1", ["line 1", "no option 'alpa'", "did you mean 'alpha'?"]),
            ("\n[explane]\nalpha = 1", ["line 2", "no command 'explane'", "did you mean 'explain'?"]),
            ("[explain]\nlayr = 1", ["line 2", "'layr' of explain", "did you mean 'layer'?"]),
            ("[explain]\nalpha = [0.1, 0.2]", ["line 2", "alpha: expected one value", "a list of 2"]),
            ("quiet = 'yes'", ["line 1", "quiet: expected true or false", "found \"yes\""]),
            ("\nalpha = {a = 1}", ["line 2", "alpha: expected words, a number", "found a table"]),
            ("[figure]\nalpha = 1", ["line 2", "no option of figure itself", "below [figure.strip]"]),
            ("[explain]\nlayer = [[1]]", ["line 2", "expected words", "a list of 1"]),
        ] {
            let said = applied(text).unwrap_err().to_string();
            assert!(words.iter().all(|word| said.contains(word)), "{said}");
        }
        let folder = apply(command(), &[std::env::temp_dir()]).err().unwrap().to_string();
        assert!(folder.contains("this is a folder"), "{folder}");
        let own = applied("").unwrap();
        assert_eq!(alpha(&own, &["p", "explain"]), None);
    }
}
