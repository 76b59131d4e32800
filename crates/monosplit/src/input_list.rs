//! The input files of a command: paths with folders spread out.

use std::path::{Path, PathBuf};

use monosplit_graph::{Error, Hint, Result};
use monosplit_image::{PictureFolder, PictureFormat};

use crate::input::InputFile;
use crate::standard_input;

/// The folders of a folder may be looked into.
const RECURSIVE: Hint = Hint::new("recursive", "list its folders too");

/// Input files, and the folders that were passed over to find them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InputList {
    /// The files, in the order of the paths; those of a folder sorted by path.
    pub files: Vec<InputFile>,
    /// Folders inside given folders that were not looked into.
    pub unread_folders: Vec<PathBuf>,
}

impl InputList {
    /// The files at `paths`; for a folder, the pictures in it that are not hidden; for `-`, what standard input holds.
    /// `recursive` also looks into the folders of a folder.
    pub fn of(paths: &[PathBuf], recursive: bool) -> Result<Self> {
        let mut list = InputList::default();
        let mut held: Option<InputFile> = None;
        for path in paths {
            if standard_input::is_meant(path) {
                let file = match held.take() {
                    Some(file) => file,
                    None => InputFile::of_bytes(standard_input::read()?.into()),
                };
                list.files.push(held.insert(file).clone());
            } else if path.is_dir() {
                list.add_folder(path, recursive)?;
            } else {
                let file = match InputFile::of_file(path) {
                    // The reader says what is wrong with it, or leaves it out. A name that is not there is a mistake.
                    Err(_) if path.exists() => InputFile::Picture(path.clone()),
                    found => found?,
                };
                list.files.push(file);
            }
        }
        Ok(list)
    }

    fn add_folder(&mut self, folder: &Path, recursive: bool) -> Result<()> {
        let found = PictureFolder::list(folder, recursive)?;
        if found.pictures.is_empty() {
            let endings: Vec<String> =
                PictureFormat::ALL.iter().map(|format| format!(".{}", format.endings()[0])).collect();
            let error = Error::argument(format!(
                "{}: the folder holds no pictures (files ending in {} and the like)",
                folder.display(),
                endings.join(", ")
            ));
            let helps = !recursive && !found.unread_folders.is_empty();
            return Err(if helps { error.hint(RECURSIVE) } else { error });
        }
        found.pictures.iter().for_each(monosplit_graph::keep);
        self.files.extend(found.pictures.into_iter().map(InputFile::Picture));
        self.unread_folders.extend(found.unread_folders);
        Ok(())
    }
}
