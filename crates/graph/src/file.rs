//! Input files. Only regular files are opened, since devices and pipes may never end. They are mapped into memory: pages that
//! are not used are not read, and aligned elements are used without a copy.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::ops::Deref;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

use bytes::Bytes;
use memmap2::Mmap;

use crate::error::{Error, Result};

/// Tensors of fewer bytes are copied, because mapping them saves less than a page costs.
const MIN_SHARED_BYTES: usize = 1 << 16;

/// The bytes of a file, mapped or read.
///
/// # The file must not change
///
/// A mapped file must not be written to or truncated, by this or any other process, as long as this value or a tensor read
/// from it lives. Writing changes weights while they are used, which is a data race. Truncating makes the next access to the
/// lost pages raise `SIGBUS`, which ends the process. Replacing the file by renaming another over it is allowed: the mapping
/// keeps the old contents.
///
/// [`FileBytes::map`] is `unsafe` for this reason. [`FileBytes::read`] copies the file and has no such condition.
/// [`FileBytes::open`] maps and is safe to call nevertheless; its documentation says why.
pub struct FileBytes(Content);

enum Content {
    Mapped(Mmap),
    /// A copy: it was asked for, or the system cannot map the file.
    Copied(Vec<u8>),
}

impl FileBytes {
    /// Maps a file, under the condition that it [does not change](FileBytes#the-file-must-not-change).
    ///
    /// The condition is not the compiler's to check, and this function is not `unsafe`. That is a deliberate exception:
    /// network files are large, and copying them would cost time and memory at every start; like the file of a running
    /// program or library, they are expected to be replaced, not overwritten; and only another process, or code that opens
    /// the same file for writing, can break the condition, just as it could write to this process's memory through the
    /// system's debugging interfaces. Where other processes are not trusted to replace files, use [`FileBytes::read`], or
    /// pass bytes to the readers.
    pub fn open(path: impl AsRef<Path>) -> Result<Arc<Self>> {
        // SAFETY: an accepted exception, described above: the condition is the user's, by documentation.
        #[allow(unsafe_code)]
        unsafe {
            Self::map(path)
        }
    }

    /// Maps a file. Where the system cannot map it, it is read.
    ///
    /// # Safety
    /// Nothing writes to the file or truncates it as long as the returned value, or a tensor read from it, lives.
    #[allow(unsafe_code)]
    pub unsafe fn map(path: impl AsRef<Path>) -> Result<Arc<Self>> {
        let path = path.as_ref();
        let file = open_regular(path)?;
        // SAFETY: the bytes are only read, every byte is valid, and the caller guarantees that they do not change.
        match unsafe { Mmap::map(&file) } {
            // Files of unknown length, as in `/proc`, are reported as empty. Reading them finds what they hold.
            Ok(map) if !map.is_empty() => Ok(Arc::new(FileBytes(Content::Mapped(map)))),
            _ => Self::read(path),
        }
    }

    /// Reads a file into memory. Later changes of the file have no effect.
    pub fn read(path: impl AsRef<Path>) -> Result<Arc<Self>> {
        let path = path.as_ref();
        let mut bytes = Vec::new();
        open_regular(path)?.read_to_end(&mut bytes).map_err(|cause| Error::io(path, cause))?;
        Ok(Arc::new(FileBytes(Content::Copied(bytes))))
    }

    /// The bytes, without a copy: slices of them keep the file open.
    pub(crate) fn bytes(self: &Arc<Self>) -> Bytes {
        Bytes::from_owner(Owner(self.clone()))
    }

    /// The elements in `part` of the file without a copy; `None` if they have to be copied.
    pub(crate) fn share<T: Plain>(self: &Arc<Self>, part: &[u8]) -> Option<MappedSlice<T>> {
        let Content::Mapped(map) = &self.0 else { return None };
        if cfg!(target_endian = "big") || part.len() < MIN_SHARED_BYTES || !within(map, part) {
            return None;
        }
        // SAFETY: every bit pattern is a value of a `Plain` type.
        #[allow(unsafe_code)]
        let (before, elements, after) = unsafe { part.align_to::<T>() };
        let fits = before.is_empty() && after.is_empty();
        fits.then(|| MappedSlice { elements: elements.into(), _file: self.clone() })
    }

    /// Frees the pages of `part`, which was copied. A later access reads them from the file again.
    #[cfg(unix)]
    pub(crate) fn release(&self, part: &[u8]) {
        if let Content::Mapped(map) = &self.0
            && part.len() >= MIN_SHARED_BYTES
            && within(map, part)
        {
            let start = part.as_ptr() as usize - map.as_ptr() as usize;
            // SAFETY: the mapping is read-only and backed by the file, so its pages can be read again.
            #[allow(unsafe_code)]
            let _ =
                unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, part.len()) };
        }
    }

    /// Other systems have no such call. They drop clean pages when memory is short.
    #[cfg(not(unix))]
    pub(crate) fn release(&self, _part: &[u8]) {}
}

/// A file that `Bytes` can own.
struct Owner(Arc<FileBytes>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
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

impl AsRef<[u8]> for FileBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Deref for FileBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Content::Mapped(map) => map,
            Content::Copied(bytes) => bytes,
        }
    }
}

/// Opens a regular file. The kind is checked before the file is opened, because opening a pipe waits for a writer.
pub fn open_regular(path: &Path) -> Result<File> {
    let failed = |cause: std::io::Error| match std::fs::read_link(path) {
        Ok(target) if cause.kind() == ErrorKind::NotFound => Error::io(
            path,
            std::io::Error::new(
                ErrorKind::NotFound,
                format!("the link leads to nothing, there is no {}", target.display()),
            ),
        ),
        _ => Error::io(path, cause),
    };
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        let found = if path.is_dir() { "a folder" } else { "a device or pipe" };
        return Err(Error::argument(format!("{}: expected a file, found {found}", path.display())));
    }
    File::open(path).map_err(failed)
}

/// Element types that may be read from any bytes.
///
/// # Safety
/// Every bit pattern is a value of the type.
#[allow(unsafe_code)]
pub(crate) unsafe trait Plain: Copy {}
// SAFETY: every bit pattern is a number.
#[allow(unsafe_code)]
unsafe impl Plain for f32 {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Plain for f64 {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Plain for i64 {}

/// Elements in a mapped file.
#[derive(Clone)]
pub(crate) struct MappedSlice<T> {
    elements: NonNull<[T]>,
    _file: Arc<FileBytes>,
}

impl<T> Deref for MappedSlice<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: `share` took the slice from the mapping, which lives as long as `_file`. Nothing in this process writes to it;
        // that no other process does is the condition of `FileBytes`.
        #[allow(unsafe_code)]
        unsafe {
            self.elements.as_ref()
        }
    }
}

// SAFETY: the elements are only read.
#[allow(unsafe_code)]
unsafe impl<T: Sync> Send for MappedSlice<T> {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl<T: Sync> Sync for MappedSlice<T> {}

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
    fn a_copy_does_not_change_with_the_file() {
        let path = std::env::temp_dir().join(format!("monosplit-copied-{}", std::process::id()));
        std::fs::write(&path, vec![1u8; 2 * MIN_SHARED_BYTES]).unwrap();
        let file = FileBytes::read(&path).unwrap();
        std::fs::write(&path, [2u8; 4]).unwrap();
        assert_eq!(**file, vec![1u8; 2 * MIN_SHARED_BYTES]);
        assert!(file.share::<f32>(&file).is_none(), "a copy is not shared");
        std::fs::remove_file(&path).unwrap();
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
    fn aligned_elements_of_a_mapped_file_are_not_copied() {
        let path = std::env::temp_dir().join(format!("monosplit-mapped-{}", std::process::id()));
        let count = MIN_SHARED_BYTES / 4;
        let numbers: Vec<f32> = (0..2 * count).map(|i| i as f32).collect();
        std::fs::write(&path, numbers.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>()).unwrap();
        let file = FileBytes::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let part = &file[count * 2..count * 2 + MIN_SHARED_BYTES];
        let shared = file.share::<f32>(part).unwrap();
        assert_eq!(shared.as_ptr().cast(), part.as_ptr());
        assert!(file.share::<f32>(&file[2..MIN_SHARED_BYTES + 2]).is_none(), "not aligned");
        assert!(file.share::<f32>(&file[..MIN_SHARED_BYTES + 2]).is_none(), "not a whole number of them");
        assert!(file.share::<f32>(&file[..4]).is_none(), "small");
        assert!(file.share::<f32>(&file.to_vec()).is_none(), "not in the file");
        file.release(part);
        drop(file);
        assert_eq!(*shared, numbers[count / 2..count / 2 + count]);
    }
}
