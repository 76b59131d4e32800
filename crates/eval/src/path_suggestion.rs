//! Suggestions for paths that do not exist.

use std::path::Path;

use monosplit_graph::options::closest;

/// `did you mean 'x'? ` if `path` does not exist and its folder has an entry with a similar name; else an empty text.
pub fn suggest_path(path: &Path) -> String {
    if path.exists() {
        return String::new();
    }
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return String::new() };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let Ok(entries) = std::fs::read_dir(folder) else { return String::new() };
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    closest(&name.to_string_lossy(), &names.iter().map(String::as_str).collect::<Vec<_>>())
}
