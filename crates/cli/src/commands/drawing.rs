//! The options of commands that end in a figure: how it is drawn, and the files it goes to.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use monosplit::graph::{Error, Result, write_atomically};
use monosplit::image::is_picture_name;
use monosplit::render::{Format, HeatmapOptions, MOST_LEVELS, OverlayOptions, Scene};
use serde::Serialize;

use super::inputs::{SkippedOutput, skipped_outputs};
use super::run::check_writable;
use crate::failure::Failure;
use crate::json::{self, WrittenFiles};
use crate::table::printable;

/// A command whose result is one figure.
pub(crate) trait Draws {
    /// Computes the figure and prints its numbers to `out`.
    fn scene(&self, out: &mut dyn Write) -> Result<Scene, Failure>;
}

/// The files of a figure and what it was drawn without, for programs.
#[derive(Serialize)]
struct DrawingOutput {
    #[serde(flatten)]
    files: WrittenFiles,
    skipped: Vec<SkippedOutput>,
}

/// How a figure is drawn, and where it goes.
#[derive(Args)]
pub(crate) struct DrawingArgs {
    /// Write the figure to FILE.png and FILE.svg, or, if FILE ends in .png, .svg or .pdf, in
    /// that format alone; may be given several times [default: named after the figure].
    #[arg(short, long, value_name = "FILE", verbatim_doc_comment)]
    out: Vec<PathBuf>,

    /// The colours of a map end at this percentile of its magnitudes, so that a few extreme
    /// places do not pale all others; 100 is the largest magnitude.
    #[arg(verbatim_doc_comment, long, value_name = "PERCENT", default_value_t = 99.5, value_parser = percentile)]
    clip: f64,

    /// Draw N lines of equal value on each side of zero.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = contours)]
    contours: usize,

    /// Print JSON, for programs.
    #[arg(long)]
    json: bool,
}

impl DrawingArgs {
    /// How maps are drawn.
    pub(crate) fn overlay(&self) -> OverlayOptions {
        let clip = (self.clip < 100.0).then_some(self.clip);
        OverlayOptions {
            heatmap: HeatmapOptions { clip, ..HeatmapOptions::default() },
            contours: self.contours,
            ..OverlayOptions::default()
        }
    }

    /// Draws a figure and writes its files. Checks that they can be written before the work begins. Without named files,
    /// `usual` is their name.
    pub(crate) fn write(
        &self,
        scene: impl FnOnce(&mut dyn Write) -> Result<Scene, Failure>,
        usual: &str,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        self.finish(&self.files(usual)?, scene, |scene, path| scene.write(path), out)
    }

    /// Writes a page in place of a figure, for what is read and not looked at.
    pub(crate) fn write_page(
        &self,
        page: impl FnOnce(&mut dyn Write) -> Result<String, Failure>,
        usual: &str,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let write = |html: &String, path: &Path| write_atomically(path, html.as_bytes());
        self.finish(&self.pages(usual)?, page, write, out)
    }

    /// Makes what is drawn and writes it into each file.
    fn finish<T>(
        &self,
        files: &[PathBuf],
        make: impl FnOnce(&mut dyn Write) -> Result<T, Failure>,
        write: impl Fn(&T, &Path) -> Result<()>,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        files.iter().try_for_each(|path| check_writable(path))?;
        let made = if self.json { make(&mut std::io::sink())? } else { make(out)? };
        for path in files {
            write(&made, path)?;
            if !self.json {
                writeln!(out, "{}", printable(&path.display().to_string()))?;
            }
        }
        if self.json {
            let (files, skipped) = (WrittenFiles::new(files), skipped_outputs());
            json::print(&DrawingOutput { files, skipped }, out)?;
        }
        Ok(())
    }

    fn pages(&self, usual: &str) -> Result<Vec<PathBuf>> {
        let usual = [PathBuf::from(usual)];
        let named = if self.out.is_empty() { &usual[..] } else { &self.out };
        let page = |path: &PathBuf| {
            let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase());
            match ending.as_deref() {
                Some("html" | "htm") => Ok(path.clone()),
                _ if Format::of(path).is_ok() || is_picture_name(path) => Err(Error::argument(format!(
                    "{}: a text is written as a page; name {}",
                    path.display(),
                    path.with_extension("html").display()
                ))),
                _ => {
                    let mut name = path.clone().into_os_string();
                    name.push(".html");
                    Ok(PathBuf::from(name))
                }
            }
        };
        named.iter().map(page).collect()
    }

    fn files(&self, usual: &str) -> Result<Vec<PathBuf>> {
        let usual = [PathBuf::from(usual)];
        let named = if self.out.is_empty() { &usual[..] } else { &self.out };
        let mut files = Vec::new();
        for path in named {
            match Format::of(path) {
                Ok(_) => files.push(path.clone()),
                // A kind of picture that is read but not written.
                Err(error) if is_picture_name(path) => return Err(error),
                Err(_) => files.extend(["png", "svg"].map(|ending| {
                    let mut name = path.clone().into_os_string();
                    name.push(".");
                    name.push(ending);
                    PathBuf::from(name)
                })),
            }
        }
        Ok(files)
    }
}

/// Parses a percentile above 0.
fn percentile(text: &str) -> std::result::Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|p| *p > 0.0 && *p <= 100.0);
    number.ok_or_else(|| "expected a number above 0 and at most 100".to_owned())
}

/// Parses a number of contours.
pub(super) fn contours(text: &str) -> std::result::Result<usize, String> {
    let number = text.parse::<usize>().ok().filter(|count| *count <= MOST_LEVELS / 2);
    number.ok_or_else(|| format!("expected a whole number, at most {}", MOST_LEVELS / 2))
}
