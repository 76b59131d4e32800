//! The files of the page, as they are sent to browsers.

/// A file of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageFile {
    /// Its path below the page's own.
    pub path: &'static str,
    /// Its media type.
    pub media_type: &'static str,
    /// Its content.
    pub bytes: &'static [u8],
}

const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! file {
    ($path:literal, $media_type:expr) => {
        PageFile { path: $path, media_type: $media_type, bytes: include_bytes!(concat!("../page/", $path)) }
    };
}

/// All files of the page but the network and the picture it opens with ([`monosplit::assets`]) and the WebAssembly module.
pub const FILES: &[PageFile] = &[
    file!("index.html", HTML),
    file!("style.css", STYLE),
    file!("icon.svg", "image/svg+xml"),
    file!("explorer.js", SCRIPT),
    file!("backend.js", SCRIPT),
    file!("charts.js", SCRIPT),
    file!("panels.js", SCRIPT),
    file!("state.js", SCRIPT),
    file!("worker.js", SCRIPT),
    file!("config.js", SCRIPT),
];
