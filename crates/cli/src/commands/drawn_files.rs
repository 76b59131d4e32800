//! Where `monosplit explain` writes its pictures: a file for each map of each input, in a folder or beside one picture
//! that was named. No file of a run is written twice.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use monosplit::graph::{Error, Result};

use super::explain_result::MapDescription;
use super::run::check_writable;

/// The endings of what a picture is written as elsewhere; explanations are PNG files.
const OTHER_PICTURES: [&str; 8] = ["jpg", "jpeg", "svg", "pdf", "gif", "webp", "bmp", "tiff"];

/// The files that maps are drawn into.
pub(crate) struct DrawnFiles {
    destination: Destination,
    used: HashSet<PathBuf>,
}

enum Destination {
    /// A folder, which is made for the first file.
    Folder(PathBuf),
    /// The picture of the first map; the others stand beside it.
    Picture(PathBuf),
}

impl DrawnFiles {
    /// The files of `--out PATH`: a picture if the name ends as one, otherwise a folder.
    pub(crate) fn at(path: &Path) -> Result<Self> {
        let ending =
            path.extension().map_or_else(String::new, |ending| ending.to_string_lossy().to_lowercase());
        let destination = match path.is_dir() {
            true => Destination::Folder(path.to_owned()),
            false if ending == "png" => {
                check_writable(path)?;
                Destination::Picture(path.to_owned())
            }
            false if OTHER_PICTURES.contains(&ending.as_str()) => {
                return Err(Error::argument(format!(
                    "{}: explanations are drawn as PNG files; name {}, or a folder",
                    path.display(),
                    path.with_extension("png").display()
                )));
            }
            false if path.exists() => {
                return Err(Error::argument(format!(
                    "{}: this is a file, expected a folder to write into or a picture x.png",
                    path.display()
                )));
            }
            false => Destination::Folder(path.to_owned()),
        };
        Ok(DrawnFiles { destination, used: HashSet::new() })
    }

    /// The file for map `index` of `descriptions` of the input of this name, with this ending.
    pub(crate) fn next(
        &mut self,
        input: &str,
        (descriptions, index): (&[MapDescription], usize),
        ending: &str,
    ) -> Result<PathBuf> {
        let description = &descriptions[index];
        let again = descriptions.iter().filter(|other| other.method == description.method).count() > 1;
        let layer = description.own_place().filter(|_| again).map(in_file_name);
        let (folder, stem, told) = match &self.destination {
            Destination::Folder(folder) => {
                std::fs::create_dir_all(folder).map_err(|cause| Error::io(folder, cause))?;
                (folder.as_path(), input_stem(input), Some(in_file_name(&description.method)))
            }
            Destination::Picture(path) => {
                let several = descriptions.iter().any(|other| other.method != description.method);
                let folder = path.parent().unwrap_or(Path::new(""));
                let stem =
                    path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
                (folder, stem, several.then(|| in_file_name(&description.method)))
            }
        };
        let told = told.into_iter().chain(layer).chain([ending.to_owned()]).collect::<Vec<_>>().join(".");
        let mut path = folder.join(format!("{stem}.{told}"));
        let mut number = 2;
        while !self.used.insert(path.clone()) {
            path = folder.join(format!("{stem}-{number}.{told}"));
            number += 1;
        }
        Ok(path)
    }
}

/// What the files of an input begin with.
fn input_stem(input: &str) -> String {
    let name = Path::new(input).file_name().map_or_else(|| "input".into(), |name| name.to_string_lossy());
    match name.rsplit_once('.') {
        Some((stem, ending)) if !ending.contains('[') => stem.to_owned(),
        _ => [".npy[", ".npz[", ".csv["]
            .iter()
            .fold(name.replace(']', ""), |stem, ending| stem.replace(ending, "-")),
    }
}

/// A name with the characters that file names may have.
pub(crate) fn in_file_name(name: &str) -> String {
    name.chars()
        .map(|c| if c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '+') { c } else { '_' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(method: &str, layer: Option<&str>) -> MapDescription {
        MapDescription {
            method: method.to_owned(),
            title: method.to_owned(),
            layer: layer.map(str::to_owned),
            alpha: None,
            explained: None,
        }
    }

    #[test]
    fn no_picture_overwrites_another_of_the_same_run() {
        let folder = std::env::temp_dir();
        let mut files = DrawnFiles::at(&folder).unwrap();
        let mut next = |input: &str, maps: &[MapDescription], index: usize| {
            let path = files.next(input, (maps, index), "png").unwrap();
            path.strip_prefix(&folder).unwrap().to_str().unwrap().to_owned()
        };
        let one = [of("splitcam", Some("conv"))];
        assert_eq!(next("a/cat.jpg", &one, 0), "cat.splitcam.png");
        assert_eq!(next("b/cat.jpg", &one, 0), "cat-2.splitcam.png");
        assert_eq!(next("x.npy[3]", &one, 0), "x-3.splitcam.png");
        assert_eq!(next("y.npz[3]", &one, 0), "y-3.splitcam.png");
        let two = [of("lrp", Some("/conv:out")), of("lrp", Some("/fc")), of("gradcam++", None)];
        assert_eq!(next("cat.jpg", &two, 0), "cat.lrp._conv_out.png");
        assert_eq!(next("cat.jpg", &two, 2), "cat.gradcam++.png");
        // The names of methods in a compiled file are not trusted.
        assert_eq!(next("cat.jpg", &[of("d/../../up", None)], 0), "cat.d_.._.._up.png");
    }

    #[test]
    fn one_map_of_one_input_is_written_where_it_was_named() {
        let folder = std::env::temp_dir();
        let named = folder.join("no-such-picture.png");
        let mut files = DrawnFiles::at(&named).unwrap();
        let one = [of("splitcam", Some("conv"))];
        assert_eq!(files.next("cat.jpg", (&one, 0), "png").unwrap(), named);
        assert_eq!(files.next("dog.jpg", (&one, 0), "png").unwrap(), folder.join("no-such-picture-2.png"));
        assert_eq!(files.next("text", (&one, 0), "html").unwrap(), folder.join("no-such-picture.html"));
        let mut files = DrawnFiles::at(&named).unwrap();
        let two = [of("lrp", Some("a")), of("lrp", Some("b"))];
        assert_eq!(files.next("cat.jpg", (&two, 1), "png").unwrap(), folder.join("no-such-picture.b.png"));
        let error = DrawnFiles::at(Path::new("cat.svg")).err().unwrap().to_string();
        assert!(error.contains("name cat.png, or a folder"), "{error}");
    }
}
