//! Files that are empty, cut short, absurd or not pictures: each is refused in one sentence, none panics.

use std::fs;
use std::path::{Path, PathBuf};

use monosplit_graph::ErrorKind;
use monosplit_image::Picture;

fn fixtures(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(folder);
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn pictures() -> impl Iterator<Item = (PathBuf, Vec<u8>)> {
    let paths = ["jpeg", "png", "webp", "gif", "bmp", "tiff", "pnm"].into_iter().flat_map(fixtures);
    let paths = paths.filter(|path| path.extension().is_some_and(|found| found != "npy"));
    paths.map(|path| (path.clone(), fs::read(path).unwrap()))
}

#[test]
fn bad_files_are_refused_by_name() {
    let paths = fixtures("bad");
    assert!(paths.len() >= 46, "{}", paths.len());
    for path in paths {
        let error = Picture::open(&path).expect_err(&path.display().to_string());
        assert!(matches!(error.kind(), ErrorKind::Malformed | ErrorKind::Unsupported), "{error}");
        let text = error.to_string();
        assert!(text.contains(path.file_name().unwrap().to_str().unwrap()) && !text.contains('\n'), "{text}");
    }
}

/// Limits are checked before anything is decoded or held.
#[test]
fn limits_are_named_where_they_are_passed() {
    for (name, words) in [
        ("bomb.webp", "decompression bomb"),
        ("bomb.gif", "decompression bomb"),
        ("bomb.bmp", "decompression bomb"),
        ("bomb.tif", "decompression bomb"),
        ("bomb-of-one-tile.tif", "beyond the limits"),
        ("bomb.pnm", "decompression bomb"),
        ("many-tiles.tif", "360000 pieces"),
        ("huge.bmp", "beyond the limits"),
        ("fax.tif", "coded as a fax"),
        ("holds-a-jpeg.tif", "holds a JPEG"),
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/bad").join(name);
        let error = Picture::open(path).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn a_missing_file_and_a_folder_are_input_failures() {
    for path in ["tests/fixtures/absent.png", "tests/fixtures"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        let kind = Picture::open(path).unwrap_err().kind();
        assert!(matches!(kind, ErrorKind::Io | ErrorKind::Argument), "{kind:?}");
    }
}

/// A file may lack what follows its pixels (the end of a PNG, the second frame of an animation), as for Pillow; a JPEG may
/// not. Netpbm's plain files are text without an end: half a number is a number.
#[test]
fn a_file_cut_short_anywhere_is_refused() {
    let is_text =
        |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("plain-"));
    for (path, bytes) in pictures().filter(|(path, _)| !is_text(path)) {
        let jpeg = path.extension().is_some_and(|found| found == "jpg");
        let whole = Picture::decode(&bytes).unwrap();
        for length in (0..bytes.len()).step_by(if bytes.len() > 2000 { 7 } else { 1 }) {
            match Picture::decode(&bytes[..length]) {
                Err(_) => {}
                Ok(picture) => {
                    assert!(!jpeg && picture == whole, "{path:?} cut to {length}");
                }
            }
        }
    }
}

/// Damage may go unnoticed, as in any format without checksums, but never panics or takes for ever.
#[test]
fn damaged_files_do_not_panic() {
    let mut state = 7u64;
    let mut random = |bound: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % bound
    };
    let (mut refused, mut read) = (0, 0);
    for (_, bytes) in pictures() {
        for _ in 0..100 {
            let mut damaged = bytes.clone();
            for _ in 0..1 + random(4) {
                let position = 2 + random(damaged.len() - 2);
                damaged[position] = random(256) as u8;
            }
            match Picture::decode(&damaged) {
                Ok(_) => read += 1,
                Err(_) => refused += 1,
            }
        }
    }
    println!("{refused} refused, {read} read all the same");
    assert!(refused > 0);
}
