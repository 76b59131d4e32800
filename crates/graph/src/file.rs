//! Files as they come from a person: only real ones are read, since devices and pipes may never end.

use std::path::Path;

use crate::error::{Error, Result};

/// The bytes of a file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    let failed = |cause: std::io::Error| Error::io(path, &cause);
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        let found = if path.is_dir() { "a folder" } else { "a device or pipe" };
        return Err(Error::argument(format!("{}: expected a file, found {found}", path.display())));
    }
    std::fs::read(path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn only_files_are_read() {
        assert!(read(Path::new("src/file.rs")).is_ok());
        assert_eq!(read(Path::new("absent")).unwrap_err().kind(), ErrorKind::Io);
        assert_eq!(read(Path::new("src")).unwrap_err().kind(), ErrorKind::Argument);
        #[cfg(unix)]
        assert!(read(Path::new("/dev/zero")).unwrap_err().to_string().contains("device"));
    }
}
