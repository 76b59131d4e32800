//! Where the weights of a network may lie: in its own file, or in files of external data beside it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::file::FileBytes;

/// The files a network may read.
#[derive(Default)]
pub(crate) struct Files<'m> {
    /// Its own, where it is one.
    pub(crate) own: Option<&'m Arc<FileBytes>>,
    folder: Option<&'m Path>,
    opened: RefCell<HashMap<PathBuf, Arc<FileBytes>>>,
}

impl<'m> Files<'m> {
    pub(crate) fn new(own: Option<&'m Arc<FileBytes>>, folder: Option<&'m Path>) -> Self {
        Files { own, folder, opened: RefCell::default() }
    }

    /// The files beside it that were read, by name.
    pub(crate) fn external(self) -> Vec<Arc<FileBytes>> {
        let mut opened: Vec<_> = self.opened.into_inner().into_iter().collect();
        opened.sort_by(|(one, _), (other, _)| one.cmp(other));
        opened.into_iter().map(|(_, file)| file).collect()
    }

    /// The file at `location`, which has to lie in the network's folder.
    pub(crate) fn beside(&self, location: &str) -> Result<Arc<FileBytes>> {
        let folder = self.folder.ok_or_else(|| {
            Error::unsupported(format!("its data lies in the file '{location}', which was not given"))
        })?;
        let outside =
            || Error::malformed(format!("its external data '{location}' lies outside the model's folder"));
        let relative = Path::new(location);
        let plain = relative.components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
        if !plain || location.contains('\\') {
            return Err(outside());
        }
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let root = folder.canonicalize().map_err(|cause| missing(location, cause))?;
        let path = root.join(relative).canonicalize().map_err(|cause| missing(location, cause))?;
        if !path.starts_with(&root) {
            return Err(outside());
        }
        if let Some(file) = self.opened.borrow().get(&path) {
            return Ok(file.clone());
        }
        if path.metadata().is_ok_and(|found| !found.is_file()) {
            return Err(Error::malformed(format!("its external data '{location}' is not a file")));
        }
        let file = FileBytes::open(&path).map_err(|error| missing(location, error))?;
        crate::keep(&path);
        self.opened.borrow_mut().insert(path, file.clone());
        Ok(file)
    }
}

fn missing(location: &str, cause: impl std::error::Error + Send + Sync + 'static) -> Error {
    let said = format!("its external data '{location}' cannot be read beside the model: {cause}");
    Error::new(ErrorKind::Io, said).caused_by(cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_is_known_by_name_and_once() {
        let folder = std::env::temp_dir().join(format!("monosplit-beside-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for name in ["a", "b", "c"] {
            std::fs::write(folder.join(name), name).unwrap();
        }
        let files = Files::new(None, Some(&folder));
        for name in ["b", "a", "./b"] {
            files.beside(name).unwrap();
        }
        let read: Vec<Vec<u8>> = files.external().iter().map(|file| file.to_vec()).collect();
        assert_eq!(read, [b"a", b"b"]);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
