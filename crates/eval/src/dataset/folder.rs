//! A folder with `images/` and, optionally, `masks/` and `labels.csv`.

use std::collections::HashMap;
use std::path::Path;

use monosplit_graph::options::closest;
use monosplit_graph::{CsvRecord, Error, Result, open_csv};

use super::{Entry, Mask, Pixels, file_name, pictures};
use crate::path_suggestion::suggest_path;

/// Usual names of a column of class indices.
const USUAL: [&str; 6] = ["label", "class", "class_index", "class_id", "index", "target"];

/// The images of a folder, and files that look like images but are of a kind that is not read.
pub(super) fn entries(
    folder: &Path,
    part: Option<&str>,
    column: Option<&str>,
) -> Result<(Vec<Entry>, Vec<String>)> {
    let folder = &part.map_or_else(|| folder.to_owned(), |part| folder.join(part));
    if !folder.is_dir() {
        let (close, folder) = (suggest_path(folder), folder.display());
        return Err(Error::argument(format!("{close}expected a folder of images, found none at {folder}")));
    }
    let images = folder.join("images");
    let images = if images.is_dir() { images } else { folder.clone() };
    let list = folder.join("labels.csv");
    let labels = if list.exists() { Labels::open(&list, column)? } else { Labels::default() };
    let masks = folder.join("masks");
    let mut entries = Vec::new();
    for path in pictures(&images)? {
        let name = file_name(&path);
        let mask = masks.join(&name).with_extension("png");
        let mask = if mask.is_file() { Mask::File(mask) } else { Mask::Absent };
        let label = match labels.of(&name) {
            None if !labels.is_empty() => {
                return Err(Error::malformed(format!(
                    "{}: there is no line for the image '{name}'",
                    list.display()
                )));
            }
            label => label,
        };
        let stratum = label.map_or_else(String::new, |label| format!("{label:08}"));
        entries.push(Entry { name, pixels: Pixels::File(path), label, stratum, mask });
    }
    let mut remarks = Vec::new();
    let mut listed: Vec<&String> = labels.0.keys().filter(|name| !images.join(name).exists()).collect();
    listed.sort();
    if let Some(first) = listed.first() {
        let (list, count) = (list.display(), listed.len());
        remarks.push(format!("{list}: {count} of the images in it are not there, '{first}' first"));
    }
    let others = unread(&images)?;
    if let Some(first) = others.first() {
        let (images, count) = (images.display(), others.len());
        remarks.push(format!("{images}: {count} pictures are of a format that is not read, '{first}' first"));
    }
    Ok((entries, remarks))
}

/// The names of image files of a kind that is not read.
fn unread(folder: &Path) -> Result<Vec<String>> {
    const ENDINGS: [&str; 6] = ["heic", "heif", "avif", "jxl", "jp2", "svg"];
    let entries = std::fs::read_dir(folder).map_err(|cause| Error::io(folder, cause))?;
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let is_other = |name: &String| {
        let ending = name.rsplit_once('.').map(|(_, ending)| ending.to_lowercase());
        ending.is_some_and(|ending| ENDINGS.contains(&&*ending))
    };
    let mut others: Vec<String> = names.filter(is_other).collect();
    others.sort();
    Ok(others)
}

/// Class indices by file name.
#[derive(Default)]
struct Labels(HashMap<String, usize>);

impl Labels {
    fn open(path: &Path, column: Option<&str>) -> Result<Self> {
        Labels::read(open_csv(path)?, column).map_err(|error| error.context(path.display()))
    }

    fn read(records: Vec<CsvRecord>, column: Option<&str>) -> Result<Self> {
        let mut records = records.into_iter().filter(|record| record.cells.len() > 1);
        let header = records.next().ok_or_else(|| {
            Error::malformed("expected a first line that names columns, such as 'file,class'")
        })?;
        let (header, rows) = (header.cells, records.collect::<Vec<CsvRecord>>());
        let file = header.iter().position(|name| name.eq_ignore_ascii_case("file")).unwrap_or(0);
        let chosen = chosen_column(&header, &rows, file, column)?;
        let mut labels = HashMap::with_capacity(rows.len());
        for CsvRecord { line: number, cells } in rows {
            let cell = |column: usize| cells.get(column).map_or("", String::as_str);
            let name = cell(file);
            let label = cell(chosen).parse::<usize>().map_err(|_| {
                Error::malformed(format!(
                    "data.label-column: line {number}: expected a class number in the column '{}', found '{}'",
                    header[chosen],
                    cell(chosen)
                ))
            })?;
            if let Some(other) = labels.insert(name.to_owned(), label).filter(|&other| other != label) {
                return Err(Error::malformed(format!(
                    "line {number}: '{name}' is of class {label}, and of class {other} in a line before"
                )));
            }
        }
        Ok(Labels(labels))
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn of(&self, name: &str) -> Option<usize> {
        self.0.get(name).copied()
    }
}

/// The column of class indices: the one asked for, else the only one with whole numbers, else one with a usual name.
fn chosen_column(header: &[String], rows: &[CsvRecord], file: usize, wanted: Option<&str>) -> Result<usize> {
    let names: Vec<&str> = header.iter().map(String::as_str).collect();
    if let Some(wanted) = wanted {
        return names.iter().position(|name| *name == wanted).ok_or_else(|| {
            let close = closest(wanted, &names);
            Error::argument(format!(
                "data.label-column: there is no column '{wanted}'; {close}there are {}",
                names.join(", ")
            ))
        });
    }
    let whole = |column: &usize| {
        rows.iter().all(|row| row.cells.get(*column).is_some_and(|text| text.parse::<usize>().is_ok()))
    };
    let candidates: Vec<usize> = (0..names.len()).filter(|&column| column != file).filter(whole).collect();
    let usual = candidates.iter().find(|&&column| USUAL.contains(&&*names[column].to_lowercase()));
    match (&*candidates, usual) {
        ([only], _) | (_, Some(only)) => Ok(*only),
        ([], _) => Err(Error::malformed(format!(
            "data.label-column: expected a column of class numbers, found none among {}",
            names.join(", ")
        ))),
        (several, _) => {
            let several: Vec<&str> = several.iter().map(|&column| names[column]).collect();
            Err(Error::argument(format!(
                "data.label-column: the columns {} all hold class numbers; say which the network knows",
                several.join(", ")
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use monosplit_graph::read_csv;

    use super::*;

    fn parse(text: &str, column: Option<&str>) -> Result<Labels> {
        Labels::read(read_csv(text)?, column)
    }

    const LIST: &str =
        "file,breed,pet_class_index,imagenet_index\na.jpg,\"hound, basset\",3,161\nb.jpg,beagle,4,162\n";

    #[test]
    fn the_column_that_is_named_is_read() {
        let labels = parse(LIST, Some("imagenet_index")).unwrap();
        assert_eq!(
            (labels.of("a.jpg"), labels.of("b.jpg"), labels.of("c.jpg")),
            (Some(161), Some(162), None)
        );
    }

    #[test]
    fn a_column_that_is_not_there_is_answered_with_the_closest() {
        let refused = parse(LIST, Some("imagenet-index")).err().unwrap().to_string();
        assert!(refused.contains("did you mean 'imagenet_index'"), "{refused}");
    }

    #[test]
    fn columns_that_cannot_be_told_apart_are_named() {
        let refused = parse(LIST, None).err().unwrap().to_string();
        assert!(refused.contains("pet_class_index, imagenet_index"), "{refused}");
        assert_eq!(parse("file,class\na.png,7\n", None).unwrap().of("a.png"), Some(7));
    }

    #[test]
    fn a_label_that_is_no_number_is_named_with_its_line() {
        let refused = parse("file,class\na.png,7\nb.png,cat\n", Some("class")).err().unwrap();
        assert!(refused.to_string().contains("line 3") && refused.to_string().contains("'cat'"));
    }
}
