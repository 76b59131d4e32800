//! Standard input as an input file. It can be read only once, so that what it held is kept for those who ask for its kind and
//! then for its content.

use std::io::{IsTerminal, Read};
use std::path::Path;
use std::sync::OnceLock;

use monosplit_graph::{Error, Result};
use monosplit_image::MAX_BYTES;

/// How it is called in results.
const NAME: &str = "stdin";

/// Whether a path means standard input.
pub(crate) fn is_meant(path: &Path) -> bool {
    ["-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"].iter().any(|name| path == Path::new(name))
}

/// The name of an input in results.
pub(crate) fn name(path: &Path) -> String {
    if is_meant(path) { NAME.to_owned() } else { path.display().to_string() }
}

/// What standard input held, up to its end.
pub(crate) fn bytes() -> Result<&'static [u8]> {
    static HELD: OnceLock<Result<Vec<u8>>> = OnceLock::new();
    let held = HELD.get_or_init(|| read().map_err(|error| error.context(NAME)));
    held.as_deref().map_err(Clone::clone)
}

fn read() -> Result<Vec<u8>> {
    let input = std::io::stdin();
    if input.is_terminal() {
        return Err(Error::argument("nothing is piped into standard input; expected a picture or an array"));
    }
    let mut bytes = Vec::new();
    let read = input.lock().take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|cause| Error::io(Path::new(NAME), cause))?;
    match bytes.len() {
        0 => Err(Error::argument("standard input is empty; expected a picture or an array")),
        length if length > MAX_BYTES => Err(Error::unsupported(format!(
            "more than the {} MiB that are read from standard input; give a file",
            MAX_BYTES >> 20
        ))),
        _ => Ok(bytes),
    }
}
