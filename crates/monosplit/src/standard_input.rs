//! Standard input as an input file. It can be read only once, so that an [`InputFile`](crate::InputFile) holds what was read.

use std::io::{IsTerminal, Read};
use std::path::Path;

use monosplit_graph::{Error, Result};
use monosplit_image::MAX_BYTES;

/// How it is called in results.
pub(crate) const NAME: &str = "stdin";

/// Whether a path means standard input.
pub(crate) fn is_meant(path: &Path) -> bool {
    ["-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"].iter().any(|name| path == Path::new(name))
}

/// What standard input holds up to its end, which is read from it.
pub(crate) fn read() -> Result<Vec<u8>> {
    read_to_end().map_err(|error| error.context(NAME))
}

fn read_to_end() -> Result<Vec<u8>> {
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
