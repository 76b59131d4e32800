//! The pictures in a folder.

use std::path::{Path, PathBuf};

use monosplit_graph::{Error, Result};

use crate::format::{is_hidden, is_picture_name};

/// Deepest folder that is looked into.
const MAX_DEPTH: usize = 64;

/// What a folder holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PictureFolder {
    /// What has the [name](is_picture_name) of a picture, sorted by path. Links that lead nowhere, pipes and devices are among
    /// them: whoever reads them says what is wrong.
    pub pictures: Vec<PathBuf>,
    /// The folders in it that were not looked into, sorted.
    pub unread_folders: Vec<PathBuf>,
}

impl PictureFolder {
    /// Lists a folder; `recursive` also looks into the folders in it, though not into those that are links. Hidden
    /// files and folders are left out.
    pub fn list(folder: impl AsRef<Path>, recursive: bool) -> Result<Self> {
        let mut found = PictureFolder::default();
        found.add(folder.as_ref(), recursive.then_some(MAX_DEPTH))?;
        found.pictures.sort();
        found.unread_folders.sort();
        Ok(found)
    }

    fn add(&mut self, folder: &Path, depth: Option<usize>) -> Result<()> {
        let failed = |cause| Error::io(folder, cause);
        for entry in std::fs::read_dir(folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let path = entry.path();
            if is_hidden(&path) {
                continue;
            }
            if path.is_dir() {
                let is_link = entry.file_type().map_err(failed)?.is_symlink();
                match depth {
                    Some(left @ 1..) if !is_link => self.add(&path, Some(left - 1))?,
                    _ => self.unread_folders.push(path),
                }
            } else if is_picture_name(&path) {
                self.pictures.push(path);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use monosplit_testing::ScratchFolder;

    use super::*;

    #[test]
    fn folders_in_folders_are_read_only_when_asked() {
        let scratch = ScratchFolder::new();
        let root = scratch.root().to_owned();
        std::fs::create_dir_all(root.join("b/deep")).unwrap();
        std::fs::create_dir_all(root.join(".hidden")).unwrap();
        for name in ["z.png", "a.WEBP", "notes.txt", ".a.png", "b/c.jpe", "b/deep/d.gif", ".hidden/e.png"] {
            std::fs::write(root.join(name), b"").unwrap();
        }
        let names = |paths: &[PathBuf]| {
            let name =
                |path: &PathBuf| path.strip_prefix(&root).unwrap().to_string_lossy().replace('\\', "/");
            paths.iter().map(name).collect::<Vec<_>>()
        };
        let flat = PictureFolder::list(&root, false).unwrap();
        assert_eq!(names(&flat.pictures), ["a.WEBP", "z.png"]);
        assert_eq!(names(&flat.unread_folders), ["b"]);
        let all = PictureFolder::list(&root, true).unwrap();
        assert_eq!(names(&all.pictures), ["a.WEBP", "b/c.jpe", "b/deep/d.gif", "z.png"]);
        assert!(all.unread_folders.is_empty());
    }

    #[cfg(unix)]
    #[test]
    fn issue_27_a_link_that_leads_nowhere_is_listed_and_named_when_it_is_read() {
        let scratch = ScratchFolder::new();
        let link = scratch.path("gone.png");
        std::os::unix::fs::symlink(scratch.path("nowhere.png"), &link).unwrap();
        let found = PictureFolder::list(scratch.root(), false).unwrap();
        assert_eq!(found.pictures, [link]);
        let error = crate::Picture::open(&found.pictures[0]).unwrap_err().to_string();
        assert!(error.contains("gone.png") && error.contains("leads to nothing"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn a_link_to_a_folder_is_not_followed() {
        let scratch = ScratchFolder::new();
        let root = scratch.root().to_owned();
        std::fs::write(root.join("a.png"), b"").unwrap();
        std::os::unix::fs::symlink(&root, root.join("again")).unwrap();
        let all = PictureFolder::list(&root, true).unwrap();
        assert_eq!((all.pictures.len(), all.unread_folders), (1, vec![root.join("again")]));
    }
}
