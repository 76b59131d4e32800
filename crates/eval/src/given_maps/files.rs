//! The files that given maps are read from: a folder of `.npy` files, a `.npz` file, or one `.npy` array of all maps.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use monosplit_graph::batch::rows;
use monosplit_graph::npz::Arrays;
use monosplit_graph::{Error, Result, Tensor, npy, npz};

use crate::path_suggestion::suggest_path;
use crate::sha256::Sha256;

/// The largest file of maps in bytes.
const MAX_FILE: u64 = 4 << 30;
/// How deep folders of maps are read: a part, and a class within it.
const MAX_DEPTH: usize = 3;
/// The largest number of maps.
const MAX_MAPS: usize = 1 << 20;

/// Maps and their names.
#[derive(Debug)]
pub(super) struct MapFiles {
    content: Content,
    names: Vec<String>,
    places: HashMap<String, usize>,
}

#[derive(Debug)]
enum Content {
    /// A file for each map.
    Folder(Vec<PathBuf>),
    /// The maps of an archive.
    Archive(Vec<Tensor>),
    /// All maps `[N, H, W]`, in the order of the data set.
    Array(Tensor),
}

impl MapFiles {
    /// Opens a folder or file. Returns it with the hash of all maps.
    pub(super) fn open(path: &Path) -> Result<(Self, String)> {
        let mut hash = Sha256::default();
        let about = |error: Error| error.context(path.display());
        const EXPECTED: &str = "expected a folder of .npy files, a .npz file or a .npy file of maps";
        if !path.exists() {
            let (close, path) = (suggest_path(path), path.display());
            return Err(Error::argument(format!("{close}{EXPECTED}, found none at {path}")));
        }
        let (content, names) = if path.is_dir() {
            folder(path, &mut hash)?
        } else {
            let bytes = bytes(path)?;
            hash.update(&bytes);
            match npz::is_npz(&bytes) {
                true => archive(&bytes).map_err(about)?,
                false if npy::is_npy(&bytes) => {
                    (npy::read(&bytes).and_then(ordered).map_err(about)?, Vec::new())
                }
                false => return Err(about(Error::argument(format!("{EXPECTED}, found another file")))),
            }
        };
        let places = names.iter().enumerate().map(|(place, name)| (name.clone(), place)).collect();
        Ok((MapFiles { content, names, places }, hash.finish()))
    }

    /// The number of maps, if they are in the order of the data set and have no names.
    pub(super) fn ordered(&self) -> Option<usize> {
        match &self.content {
            Content::Array(array) => array.shape().first().copied(),
            _ => None,
        }
    }

    /// The names of the maps; none if they are in the order of the data set.
    pub(super) fn names(&self) -> Vec<&str> {
        self.names.iter().map(String::as_str).collect()
    }

    /// The place of a map by its name.
    pub(super) fn place(&self, name: &str) -> Option<usize> {
        self.places.get(name).copied()
    }

    /// The name of the map at a place.
    pub(super) fn name(&self, place: usize) -> &str {
        self.names.get(place).map_or("", String::as_str)
    }

    /// The map at a place, as it is in its file.
    pub(super) fn map(&self, place: usize) -> Result<Tensor> {
        match &self.content {
            Content::Folder(paths) => {
                let path = &paths[place];
                npy::read(&bytes(path)?).map_err(|error| error.context(path.display()))
            }
            Content::Archive(maps) => Ok(maps[place].clone()),
            Content::Array(array) => rows(array, place..place + 1),
        }
    }
}

fn bytes(path: &Path) -> Result<Vec<u8>> {
    let failed = |cause| Error::io(path, cause).prefixed(&suggest_path(path));
    let found = path.metadata().map_err(failed)?;
    if !found.is_file() || found.len() > MAX_FILE {
        return Err(Error::argument(format!(
            "{}: expected a file of at most {} GiB",
            path.display(),
            MAX_FILE >> 30
        )));
    }
    std::fs::read(path).map_err(failed)
}

/// The `.npy` files in a folder and the folders in it, called by their path without the ending.
fn folder(path: &Path, hash: &mut Sha256) -> Result<(Content, Vec<String>)> {
    let mut found: Vec<(String, PathBuf)> = Vec::new();
    let mut open = vec![(path.to_owned(), String::new(), 0)];
    while let Some((folder, prefix, depth)) = open.pop() {
        let failed = |cause| Error::io(&folder, cause);
        for entry in std::fs::read_dir(&folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            if path.is_dir() && depth < MAX_DEPTH {
                open.push((path, format!("{prefix}{name}/"), depth + 1));
            } else if let Some(stem) = name.strip_suffix(".npy").filter(|stem| !stem.starts_with('.')) {
                found.push((format!("{prefix}{stem}"), path));
            }
            if found.len() > MAX_MAPS {
                return Err(Error::argument(format!(
                    "{}: there are more than {MAX_MAPS} maps",
                    folder.display()
                )));
            }
        }
    }
    if found.is_empty() {
        return Err(Error::argument(format!(
            "expected .npy files, one for each image, found none at {}",
            path.display()
        )));
    }
    found.sort();
    for (name, path) in &found {
        hash.update(name.as_bytes());
        hash.update(&bytes(path)?);
    }
    let (names, paths) = found.into_iter().unzip();
    Ok((Content::Folder(paths), names))
}

/// The maps of a `.npz` file by name. A single array of three axes, whatever its name, holds all maps in order.
fn archive(bytes: &[u8]) -> Result<(Content, Vec<String>)> {
    let mut arrays = Arrays::open(bytes)?;
    let mut names: Vec<String> = arrays.names().map(str::to_owned).collect();
    names.sort();
    if names.len() > MAX_MAPS {
        return Err(Error::argument(format!("there are more than {MAX_MAPS} maps")));
    }
    let mut values = 0usize;
    let mut maps = Vec::with_capacity(names.len());
    for name in &names {
        let map = arrays.read(name)?;
        values = values.saturating_add(map.len());
        if values > super::MAX_VALUES {
            return Err(Error::memory(format!(
                "the arrays hold more than {} values; save maps as single precision in a folder, one file each",
                super::MAX_VALUES
            )));
        }
        maps.push(map);
    }
    match &maps[..] {
        [all] if matches!(all.shape(), [count, _, _] if *count > 1) => {
            Ok((ordered(all.clone())?, Vec::new()))
        }
        _ => Ok((Content::Archive(maps), names)),
    }
}

/// An array of all maps, `[N, H, W]` or `[N, 1, H, W]`.
fn ordered(array: Tensor) -> Result<Content> {
    match array.shape() {
        [_, _, _] | [_, 1, _, _] => Ok(Content::Array(array)),
        shape => Err(Error::shape(format!(
            "expected one map for each image, [images, height, width], found {shape:?}"
        ))),
    }
}
