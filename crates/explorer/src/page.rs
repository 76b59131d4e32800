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
    file!("app.js", SCRIPT),
    file!("backend.js", SCRIPT),
    file!("charts.js", SCRIPT),
    file!("classes.js", SCRIPT),
    file!("config.js", SCRIPT),
    file!("gallery.js", SCRIPT),
    file!("maps.js", SCRIPT),
    file!("module.js", SCRIPT),
    file!("panels.js", SCRIPT),
    file!("run.js", SCRIPT),
    file!("state.js", SCRIPT),
    file!("strip.js", SCRIPT),
    file!("tabs.js", SCRIPT),
    file!("worker.js", SCRIPT),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Modules, style and icon that a file of the page names are files of the page, and nothing is named that lies elsewhere.
    #[test]
    fn the_page_names_its_own_files() {
        let known = |name: &str| FILES.iter().any(|file| file.path == name);
        for file in FILES {
            let text = std::str::from_utf8(file.bytes).unwrap();
            for line in text.lines().filter(|line| line.starts_with("import ")) {
                let name = line.rsplit_once("\"./").unwrap().1.trim_end_matches("\";");
                // Built apart, and only where the engine is WebAssembly.
                assert!(known(name) || name == "monosplit_web.js", "{}: {line}", file.path);
            }
            for attribute in ["href=\"", "src=\""] {
                for rest in text.split(attribute).skip(1).filter(|_| file.media_type == HTML) {
                    let name = rest.split('"').next().unwrap();
                    assert!(known(name) || name.starts_with('#'), "{}: {name}", file.path);
                }
            }
            let named = text.replace("http://www.w3.org/2000/svg", "").replace("xmlns", "");
            assert!(!named.contains("http://") && !named.contains("https://"), "{}", file.path);
        }
    }
}
