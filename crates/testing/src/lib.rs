//! What the tests of several crates need: files that are not part of the repository, scratch folders, `.npz` archives,
//! reproducible random numbers, and the distance from expected numbers.
//!
//! Only tests depend on this crate, and it depends on no other crate of the workspace, so that unit tests can use it too.
//!
//! ```
//! let folder = monosplit_testing::ScratchFolder::new();
//! let file = folder.write("notes.txt", "three");
//! assert_eq!(std::fs::read(file).unwrap(), b"three");
//! ```

mod npz;
mod processor_time;
mod random;
mod relative_error;
mod scratch_folder;
mod shared_files;

pub use npz::{ZipEntries, read_npz};
pub use processor_time::thread_seconds;
pub use random::SplitMix64;
pub use relative_error::relative_error;
pub use scratch_folder::ScratchFolder;
pub use shared_files::{crates_folder, shared, vectors};
