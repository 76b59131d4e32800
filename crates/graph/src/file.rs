//! Files as they come from a person: only real ones are opened, since devices and pipes may never end. They are mapped,
//! not read: what is not used stays on the disk, and numbers that lie as they are needed are used where they lie.

use std::fs::File;
use std::ops::Deref;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

use memmap2::Mmap;

use crate::error::{Error, Result};

/// Elements that take less are copied: a page holds more than they do.
const WORTH_SHARING: usize = 1 << 16;

/// The bytes of a file.
///
/// They are the file itself: who shortens it while it is open ends this process with a bus error, and who writes into it
/// changes the weights. A file that is replaced, as every careful program does it, stays what it was.
pub struct FileBytes(Content);

enum Content {
    Mapped(Mmap),
    /// Where the system cannot map it.
    Read(Vec<u8>),
}

impl FileBytes {
    /// Opens a file.
    pub fn open(path: impl AsRef<Path>) -> Result<Arc<Self>> {
        let path = path.as_ref();
        let failed = |cause: std::io::Error| Error::io(path, cause);
        // Asked before it is opened: opening a pipe would wait for a writer.
        if !std::fs::metadata(path).map_err(failed)?.is_file() {
            let found = if path.is_dir() { "a folder" } else { "a device or pipe" };
            return Err(Error::argument(format!("{}: expected a file, found {found}", path.display())));
        }
        let file = File::open(path).map_err(failed)?;
        // SAFETY: the bytes are only read, and any bytes are valid ones. That nobody writes to the file meanwhile is what
        // the type's documentation asks for.
        #[allow(unsafe_code)]
        let mapped = unsafe { Mmap::map(&file) };
        Ok(Arc::new(FileBytes(match mapped {
            // A file that says it is empty may be one whose length nobody knows.
            Ok(map) if !map.is_empty() => Content::Mapped(map),
            _ => Content::Read(std::fs::read(path).map_err(failed)?),
        })))
    }

    /// The numbers in `part` of the file, where they lie; `None` where they have to be copied.
    pub(crate) fn share<T: Plain>(self: &Arc<Self>, part: &[u8]) -> Option<InFile<T>> {
        let Content::Mapped(map) = &self.0 else { return None };
        if cfg!(target_endian = "big") || part.len() < WORTH_SHARING || !within(map, part) {
            return None;
        }
        // SAFETY: any bytes are a number of this type.
        #[allow(unsafe_code)]
        let (before, numbers, after) = unsafe { part.align_to::<T>() };
        let fits = before.is_empty() && after.is_empty();
        fits.then(|| InFile { numbers: numbers.into(), _file: self.clone() })
    }

    /// Lets go of the memory behind `part`, which was copied; it can still be read, from the disk.
    pub(crate) fn release(&self, part: &[u8]) {
        #[cfg(unix)]
        if let Content::Mapped(map) = &self.0
            && part.len() >= WORTH_SHARING
            && within(map, part)
        {
            let start = part.as_ptr() as usize - map.as_ptr() as usize;
            // SAFETY: the mapping is never written to, so nothing is lost with its pages.
            #[allow(unsafe_code)]
            let _ =
                unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, part.len()) };
        }
    }
}

fn within(whole: &[u8], part: &[u8]) -> bool {
    let (whole, part) = (whole.as_ptr_range(), part.as_ptr_range());
    whole.start <= part.start && part.end <= whole.end
}

impl std::fmt::Debug for FileBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a file of {} bytes", self.len())
    }
}

impl Deref for FileBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Content::Mapped(map) => map,
            Content::Read(bytes) => bytes,
        }
    }
}

/// Numbers for which any bytes will do.
pub(crate) trait Plain {}
impl Plain for f32 {}
impl Plain for f64 {}
impl Plain for i64 {}

/// Numbers that lie in a file.
#[derive(Clone)]
pub(crate) struct InFile<T> {
    numbers: NonNull<[T]>,
    _file: Arc<FileBytes>,
}

impl<T> Deref for InFile<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: they lie in the file, which stays mapped for as long as it is held here, and nobody writes to them.
        #[allow(unsafe_code)]
        unsafe {
            self.numbers.as_ref()
        }
    }
}

// SAFETY: the numbers are only read.
#[allow(unsafe_code)]
unsafe impl<T: Sync> Send for InFile<T> {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl<T: Sync> Sync for InFile<T> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn only_files_are_opened() {
        assert_eq!(**FileBytes::open("src/file.rs").unwrap(), *std::fs::read("src/file.rs").unwrap());
        let refused = |path: &str| FileBytes::open(path).err().unwrap();
        assert_eq!(refused("absent").kind(), ErrorKind::Io);
        assert_eq!(refused("src").kind(), ErrorKind::Argument);
        #[cfg(unix)]
        assert!(refused("/dev/zero").to_string().contains("device"));
    }

    #[test]
    fn an_empty_file_has_no_bytes() {
        let path = std::env::temp_dir().join(format!("monosplit-empty-{}", std::process::id()));
        std::fs::write(&path, []).unwrap();
        assert!(FileBytes::open(&path).unwrap().is_empty());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn numbers_are_used_where_they_lie_if_they_are_aligned_and_in_the_file() {
        let path = std::env::temp_dir().join(format!("monosplit-mapped-{}", std::process::id()));
        let count = WORTH_SHARING / 4;
        let numbers: Vec<f32> = (0..2 * count).map(|i| i as f32).collect();
        std::fs::write(&path, numbers.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>()).unwrap();
        let file = FileBytes::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let part = &file[count * 2..count * 2 + WORTH_SHARING];
        let shared = file.share::<f32>(part).unwrap();
        assert_eq!(shared.as_ptr().cast(), part.as_ptr());
        assert!(file.share::<f32>(&file[2..WORTH_SHARING + 2]).is_none(), "not aligned");
        assert!(file.share::<f32>(&file[..WORTH_SHARING + 2]).is_none(), "not a whole number of them");
        assert!(file.share::<f32>(&file[..4]).is_none(), "small");
        assert!(file.share::<f32>(&file.to_vec()).is_none(), "not in the file");
        file.release(part);
        drop(file);
        assert_eq!(*shared, numbers[count / 2..count / 2 + count]);
    }
}
