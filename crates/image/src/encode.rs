//! PNG files out, and files that are either whole or not there.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use monosplit_graph::{Error, ErrorKind, Result, element_count};
use png::{BitDepth, ColorType, Encoder};

use crate::picture::Picture;

/// A file that was begun so recently may still be written.
const YOUNG: Duration = Duration::from_secs(60);

/// Pixels to be written, row by row, one byte a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pixels<'a> {
    /// Shades of grey, one byte a pixel.
    Grey(&'a [u8]),
    /// Red, green, blue.
    Rgb(&'a [u8]),
    /// Red, green, blue, opacity; the colours are not multiplied by the opacity.
    Rgba(&'a [u8]),
}

impl<'a> From<&'a Picture> for Pixels<'a> {
    fn from(picture: &'a Picture) -> Self {
        Pixels::Rgb(picture.rgb())
    }
}

/// The bytes of a PNG file of `width * height` pixels.
pub fn encode_png(width: usize, height: usize, pixels: Pixels<'_>) -> Result<Vec<u8>> {
    let (color, samples, bytes) = match pixels {
        Pixels::Grey(bytes) => (ColorType::Grayscale, 1, bytes),
        Pixels::Rgb(bytes) => (ColorType::Rgb, 3, bytes),
        Pixels::Rgba(bytes) => (ColorType::Rgba, 4, bytes),
    };
    let size = (u32::try_from(width).ok(), u32::try_from(height).ok());
    let (Some(columns @ 1..), Some(rows @ 1..)) = size else {
        return Err(Error::argument(format!("a PNG cannot have {width}×{height} pixels")));
    };
    if element_count(&[width, height, samples]) != Some(bytes.len()) {
        return Err(Error::argument(format!(
            "a PNG of {width}×{height} pixels with {samples} bytes each cannot be made of {} bytes",
            bytes.len()
        )));
    }
    let failure = |cause| Error::new(ErrorKind::Io, format!("the PNG could not be encoded: {cause}"));
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, columns, rows);
    encoder.set_color(color);
    encoder.set_depth(BitDepth::Eight);
    let mut writer = encoder.write_header().map_err(failure)?;
    writer.write_image_data(bytes).map_err(failure)?;
    writer.finish().map_err(failure)?;
    Ok(file)
}

/// Writes a PNG file of `width * height` pixels to `path`, whole or not at all.
pub fn write_png(path: impl AsRef<Path>, width: usize, height: usize, pixels: Pixels<'_>) -> Result<()> {
    write_atomically(path, &encode_png(width, height, pixels)?)
}

/// Writes `bytes` to `path` under a temporary name in the same folder and then renames, so that nobody
/// ever sees half a file; what was at `path` before is replaced.
pub fn write_atomically(path: impl AsRef<Path>, bytes: &[u8]) -> Result<()> {
    let path = &destination(path.as_ref())?;
    let temporary = temporary_beside(path)?;
    remove_remains(path);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&temporary)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&temporary, path));
    written.map_err(|cause| {
        // The first failure is the one to report, whether or not the remains can be removed.
        let _ = fs::remove_file(&temporary);
        Error::io(path, &cause)
    })
}

/// The file that a path stands for: a link is followed, and a device or a pipe, which a rename would replace, refused.
fn destination(path: &Path) -> Result<PathBuf> {
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => Err(Error::argument(format!(
            "'{}' is not a regular file and cannot be replaced by one",
            path.display()
        ))),
        Ok(_) => fs::canonicalize(path).map_err(|cause| Error::io(path, &cause)),
        Err(_) => match fs::read_link(path) {
            Ok(target) => Ok(path.parent().unwrap_or(Path::new("")).join(target)),
            Err(_) => Ok(path.to_owned()),
        },
    }
}

/// Removes, before the first file is written into a folder, what processes that were killed while they wrote have left
/// there. Whether a process is alive is asked where the system says so in its file tree, and what is less than a minute
/// old is spared: it may belong to another machine that shares the folder.
fn remove_remains(path: &Path) {
    static SWEPT: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let processes = Path::new("/proc");
    let first = SWEPT.lock().is_ok_and(|mut swept| swept.insert(folder.to_owned()));
    if !first || !processes.join("self").exists() {
        return;
    }
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let middle = name.to_str().and_then(|name| name.strip_prefix('.')?.strip_suffix(".tmp"));
        let process = middle.and_then(|middle| middle.rsplit_once('.')?.1.split_once('-'));
        let Some(process) = process.and_then(|(process, _)| process.parse::<u32>().ok()) else { continue };
        let changed = entry.metadata().ok().and_then(|found| found.modified().ok());
        let old = changed.and_then(|at| at.elapsed().ok()).is_some_and(|age| age > YOUNG);
        if old && !processes.join(process.to_string()).exists() {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn temporary_beside(path: &Path) -> Result<PathBuf> {
    static SERIAL: AtomicUsize = AtomicUsize::new(0);
    let Some(name) = path.file_name() else {
        return Err(Error::argument(format!("'{}' does not name a file to write", path.display())));
    };
    let mut temporary = OsString::from(".");
    temporary.push(name);
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    temporary.push(format!(".{}-{serial}.tmp", std::process::id()));
    Ok(path.with_file_name(temporary))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("monosplit-image-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_and_devices_left_alone() {
        let folder = std::env::temp_dir().join(format!("monosplit-links-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (link, target) = (folder.join("link"), folder.join("target"));
        std::os::unix::fs::symlink("target", &link).unwrap();
        for content in [b"first", b"later"] {
            write_atomically(&link, content).unwrap();
            assert_eq!(fs::read(&target).unwrap(), content);
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        }
        assert!(write_atomically("/dev/null", b"x").is_err());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_is_encoded_is_decoded_again() {
        let bytes: Vec<u8> = (0..60).map(|v| v * 4).collect();
        let rgb = encode_png(5, 4, Pixels::Rgb(&bytes)).unwrap();
        assert_eq!(Picture::decode(&rgb).unwrap().rgb(), bytes);
        let grey = encode_png(12, 5, Pixels::Grey(&bytes)).unwrap();
        let tripled: Vec<u8> = bytes.iter().flat_map(|&v| [v; 3]).collect();
        assert_eq!(Picture::decode(&grey).unwrap().rgb(), tripled);
        let rgba = encode_png(5, 3, Pixels::Rgba(&bytes)).unwrap();
        let opaque: Vec<u8> = bytes.chunks(4).flat_map(|p| p[..3].to_vec()).collect();
        assert_eq!(Picture::decode(&rgba).unwrap().rgb(), opaque);
    }

    #[test]
    fn pixels_that_do_not_fit_are_refused() {
        assert!(encode_png(2, 2, Pixels::Rgb(&[0; 11])).is_err());
        assert!(encode_png(0, 2, Pixels::Grey(&[])).is_err());
        assert!(encode_png(usize::MAX, 2, Pixels::Grey(&[0; 4])).is_err());
    }

    #[test]
    fn a_file_is_replaced_whole_and_nothing_else_is_left() {
        let folder = folder("replace");
        let path = folder.join("map.png");
        write_atomically(&path, b"before").unwrap();
        write_png(&path, 1, 1, Pixels::Grey(&[7])).unwrap();
        assert_eq!(Picture::open(&path).unwrap().rgb(), [7, 7, 7]);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_failed_write_leaves_nothing_behind() {
        let folder = folder("failed");
        assert!(write_atomically(folder.join("absent/map.png"), b"x").is_err());
        fs::create_dir(folder.join("taken.png")).unwrap();
        assert!(write_atomically(folder.join("taken.png"), b"x").is_err());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        assert!(write_atomically("..", b"x").is_err());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_a_killed_process_left_is_removed_and_what_a_living_one_writes_is_not() {
        let folder = std::env::temp_dir().join(format!("monosplit-remains-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        // No process has a number above 2²².
        let [dead, young, alive, other] = [
            ".a.png.4194999-3.tmp".to_owned(),
            ".b.png.4194999-4.tmp".to_owned(),
            format!(".c.png.{}-999.tmp", std::process::id()),
            ".d.png.notes.tmp".to_owned(),
        ]
        .map(|name| folder.join(name));
        for path in [&dead, &young, &alive, &other] {
            fs::write(path, "half").unwrap();
            let before = std::time::SystemTime::now() - 2 * YOUNG;
            if path != &young {
                OpenOptions::new().write(true).open(path).unwrap().set_modified(before).unwrap();
            }
        }
        write_atomically(folder.join("map.png"), b"whole").unwrap();
        assert_eq!(dead.exists(), !Path::new("/proc/self").exists());
        assert!(young.exists() && alive.exists() && other.exists());
        let _ = fs::remove_dir_all(folder);
    }
}
