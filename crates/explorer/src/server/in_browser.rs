//! The page as `scripts/build_web.sh` has built it, which computes in the browser, and what it opens with.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use monosplit::graph::FileBytes;
use monosplit::{Error, ErrorKind, Result};
use serde_json::json;

/// The files of the engine's builds by the builds' names.
const MODULES: [(&str, &str); 3] = [
    ("threads", "threads/monosplit_web_bg.wasm"),
    ("simd", "monosplit_web_bg.wasm"),
    ("plain", "plain/monosplit_web_bg.wasm"),
];
/// The most files that a folder with the page has.
const MOST_FILES: usize = 200;

/// A page that computes in the browser: the folder that `scripts/build_web.sh` has written, and the network it opens with.
#[derive(Clone, Debug)]
pub struct BrowserPage {
    folder: PathBuf,
    /// Paths within the folder.
    files: Vec<String>,
    builds: Vec<&'static str>,
    network: Option<PathBuf>,
}

impl BrowserPage {
    /// The page in a folder, which must have a build of the engine.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self> {
        let folder = folder.into();
        let mut files = Vec::new();
        list(&folder, "", &mut files).map_err(|cause| missing(&folder).caused_by(cause))?;
        let has = |name: &str| files.iter().any(|file| file == name);
        let builds: Vec<_> = MODULES.iter().filter(|(_, file)| has(file)).map(|(build, _)| *build).collect();
        match has("index.html") && !builds.is_empty() {
            true => Ok(BrowserPage { folder, files, builds, network: None }),
            false => Err(missing(&folder)),
        }
    }

    /// Opens with this ONNX file. The browser reads it, and it alone: weights in files beside it do not get there.
    #[must_use]
    pub fn network(self, file: impl Into<PathBuf>) -> Self {
        BrowserPage { network: Some(file.into()), ..self }
    }

    /// The builds of the engine that there are, fastest first.
    pub fn builds(&self) -> &[&'static str] {
        &self.builds
    }

    /// What the page reads before anything else.
    pub(super) fn configuration(&self, pictures: &[PathBuf]) -> String {
        let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let said = json!({
            "backend": "worker",
            "builds": self.builds,
            "network": self.network.as_ref().map(name),
            "pictures": pictures.iter().map(name).collect::<Vec<_>>(),
        });
        format!("export default {said};\n")
    }

    /// A file of the page, or the network.
    pub(super) fn file(&self, path: &str) -> Option<(&'static str, Arc<FileBytes>)> {
        let file = match path {
            "network" => self.network.clone()?,
            _ => self.folder.join(self.files.iter().find(|file| *file == path)?),
        };
        let media_type = match path.rsplit('.').next() {
            Some("html") => "text/html; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("js") => "text/javascript; charset=utf-8",
            Some("svg") => "image/svg+xml",
            Some("png") => "image/png",
            Some("wasm") => "application/wasm",
            _ => "application/octet-stream",
        };
        Some((media_type, FileBytes::read(&file).ok()?))
    }
}

/// Adds the files of a folder and of the folders in it.
fn list(folder: &Path, below: &str, files: &mut Vec<String>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (Ok(name), kind) = (entry.file_name().into_string(), entry.file_type()?) else { continue };
        if kind.is_dir() && below.is_empty() {
            list(&entry.path(), &format!("{name}/"), files)?;
        } else if kind.is_file() && files.len() < MOST_FILES {
            files.push(format!("{below}{name}"));
        }
    }
    Ok(())
}

fn missing(folder: &Path) -> Error {
    Error::new(
        ErrorKind::Io,
        format!(
            "{}: this folder has no page that computes in the browser; build it in the repository with \
             `rustup target add wasm32-unknown-unknown` and `scripts/build_web.sh`, or leave out --in-browser: then this \
             machine's engine computes, and nothing has to be built",
            folder.display()
        ),
    )
}
