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

/// A review's finding: frames within frames, each a call deeper, overflowed the stack.
#[test]
fn frames_of_a_webp_within_frames_are_refused() {
    let mut nested = Vec::new();
    for _ in 0..20_000 {
        let mut frame = b"ANMF".to_vec();
        frame.extend(((nested.len() + 16) as u32).to_le_bytes());
        frame.extend([0; 16]);
        // Frames are written from the inside; the length of all is that of the outermost.
        frame.append(&mut nested);
        nested = frame;
        if nested.len() > 400_000 {
            break;
        }
    }
    let mut file = b"RIFF\0\0\0\0WEBPVP8X".to_vec();
    file.extend([10, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    file.extend(b"ANIM\x06\0\0\0\0\0\0\0\0\0");
    file.extend(nested);
    let length = (file.len() - 8) as u32;
    file[4..8].copy_from_slice(&length.to_le_bytes());
    let error = Picture::decode(&file).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Malformed, "{error}");
}

/// A review's finding: many tiles that share the same bytes were read one by one, minutes for a file of megabytes.
#[test]
fn pieces_of_a_tiff_that_share_bytes_are_refused() {
    let (side, shared) = (64u32, 4096u32);
    let tiles = side * side;
    let mut file = b"II*\0\x08\0\0\0".to_vec();
    let entries = [
        (256u16, 4u16, 1, side),
        (257, 4, 1, side),
        (258, 3, 1, 8),
        (259, 3, 1, 1),
        (262, 3, 1, 1),
        (266, 3, 1, 2),
        (322, 4, 1, 1),
        (323, 4, 1, 1),
        (324, 4, tiles, 0),
        (325, 4, tiles, 0),
    ];
    let lists = 8 + 2 + entries.len() as u32 * 12 + 4;
    file.extend((entries.len() as u16).to_le_bytes());
    for (tag, kind, count, value) in entries {
        let value = match tag {
            324 => lists,
            325 => lists + 4 * tiles,
            _ => value,
        };
        file.extend(tag.to_le_bytes());
        file.extend(kind.to_le_bytes());
        file.extend(u32::to_le_bytes(count));
        file.extend(value.to_le_bytes());
    }
    file.extend([0; 4]);
    for value in [lists + 8 * tiles, shared] {
        (0..tiles).for_each(|_| file.extend(value.to_le_bytes()));
    }
    file.extend(vec![7; shared as usize]);
    let error = Picture::decode(&file).unwrap_err();
    assert!(error.to_string().contains("longer than the file"), "{error}");
}
