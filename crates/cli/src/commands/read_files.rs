//! Protects input files: a file that the command line or a configuration file names for reading is never overwritten by the
//! same command.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Command};

use super::WRITTEN;

/// Protects each file that an option names for reading, by itself or as the value of a method's option, as in
/// `deeplift:baseline=FILE`, and the configuration files `defaults`.
pub(super) fn keep_what_is_read(command: &Command, matches: &ArgMatches, defaults: &[PathBuf]) {
    defaults.iter().for_each(monosplit::graph::keep);
    for name in named(command, matches) {
        name.to_str().map_or_else(|| vec![name.as_os_str()], parts).into_iter().for_each(|part| {
            if Path::new(part).is_file() {
                monosplit::graph::keep(part);
            }
        });
    }
}

/// The values of all options that do not name files to write.
fn named(mut command: &Command, mut matches: &ArgMatches) -> Vec<std::ffi::OsString> {
    let mut found = Vec::new();
    loop {
        let read = command.get_arguments().filter(|arg| !is_written(arg));
        let values = read.filter_map(|arg| matches.try_get_raw(arg.get_id().as_str()).ok().flatten());
        found.extend(values.flatten().map(OsStr::to_owned));
        let inner =
            matches.subcommand().and_then(|(name, inner)| Some((command.find_subcommand(name)?, inner)));
        let Some(inner) = inner else { return found };
        (command, matches) = inner;
    }
}

fn is_written(arg: &Arg) -> bool {
    arg.get_long().is_some_and(|long| WRITTEN.iter().any(|option| option.strip_prefix("--") == Some(long)))
}

/// A text and its parts between commas, after colons and after equals signs.
fn parts(text: &str) -> Vec<&OsStr> {
    let mut parts = vec![OsStr::new(text)];
    for mut part in text.split(',') {
        parts.push(OsStr::new(part));
        while let Some((_, rest)) = part.split_once([':', '=']) {
            parts.push(OsStr::new(rest));
            part = rest;
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_inside_the_options_of_methods() {
        let found = parts("a.onnx");
        assert!(found.contains(&OsStr::new("a.onnx")));
        let found = parts("deeplift:baseline=x/b.npy,lrp:rules=c=flat,mask=m.png");
        for file in ["x/b.npy", "m.png", "flat"] {
            assert!(found.contains(&OsStr::new(file)), "{file} is not in {found:?}");
        }
    }

    #[test]
    fn what_is_written_is_not_among_what_is_read() {
        let arg = |long: &'static str| Arg::new(long).long(long);
        let inner = Command::new("compile").arg(Arg::new("model")).arg(arg("out").short('o'));
        let inner = inner.arg(arg("labels").default_value("l.txt")).arg(arg("raw"));
        let command = Command::new("p").subcommand(inner);
        let line = ["p", "compile", "m.onnx", "-o", "o.onnx", "--raw=r.npy"];
        let matches = command.clone().try_get_matches_from(line).unwrap();
        assert_eq!(named(&command, &matches), ["m.onnx", "l.txt"]);
    }
}
