//! Decoding, resizing, cropping and normalising against files made by Pillow and torchvision
//! (`scripts/make_image_fixtures.py`); nothing may differ by even one bit.

use std::fs;
use std::path::{Path, PathBuf};

use monosplit_image::{
    Channels, Filter, Fit, OrientationChoice, Picture, PixelRange, Preprocess, Preset, ReadOptions, Resize,
};
use monosplit_testing::shared;

/// A file of the fixtures; the photograph lies with what is built into the program.
fn fixture(name: &str) -> PathBuf {
    let folder = if name == "chelsea.png" { "../monosplit/assets" } else { "tests/fixtures" };
    Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join(name)
}

fn open(name: &str) -> Picture {
    Picture::open(fixture(name)).unwrap()
}

/// A file as Pillow's `Image.open` gives it.
fn as_stored(name: &str) -> Picture {
    Picture::open_with(fixture(name), &ReadOptions::default().orientation(OrientationChoice::Ignore)).unwrap()
}

/// Names, without extension, of the files in `folder` that end in `extension`.
fn names(folder: &str, extension: &str) -> Vec<String> {
    let files = fs::read_dir(fixture(folder)).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|found| found == extension));
    files.map(|path| path.file_stem().unwrap().to_str().unwrap().to_string()).collect()
}

/// Shape and bytes of a NumPy file whose elements are of type `descr`.
fn npy(name: &str, descr: &str) -> (Vec<usize>, Vec<u8>) {
    let bytes = fs::read(fixture(name)).unwrap();
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00");
    let length = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let header = std::str::from_utf8(&bytes[10..10 + length]).unwrap();
    assert!(header.contains(descr) && header.contains("'fortran_order': False"), "{header}");
    let shape = header.split(['(', ')']).nth(1).unwrap();
    let shape = shape.split(',').filter_map(|side| side.trim().parse().ok()).collect();
    (shape, bytes[10 + length..].to_vec())
}

fn sides(text: &str) -> (usize, usize) {
    let (width, height) = text.split_once('x').unwrap();
    (width.parse().unwrap(), height.parse().unwrap())
}

#[track_caller]
fn assert_same(found: &Picture, expected: &Picture, name: &str) {
    assert_eq!((found.width(), found.height()), (expected.width(), expected.height()), "{name}");
    let differing = found.rgb().iter().zip(expected.rgb()).filter(|(a, b)| a != b).count();
    assert_eq!(differing, 0, "{name}: bytes that differ of {}", expected.rgb().len());
}

#[test]
fn jpegs_decode_to_pillows_bytes() {
    let names = names("jpeg", "jpg");
    assert!(names.len() >= 19, "{names:?}");
    for name in names {
        assert_same(&as_stored(&format!("jpeg/{name}.jpg")), &open(&format!("jpeg/{name}.png")), &name);
    }
}

/// What Pillow's `convert("RGB")` made of a file.
fn array(name: &str) -> Picture {
    let (shape, rgb) = npy(name, "|u1");
    Picture::new(shape[1], shape[0], rgb).unwrap()
}

/// Compares all files of a format, of which there are at least `least`.
#[track_caller]
fn assert_format(folder: &str, ending: &str, least: usize) {
    let names = names(folder, ending);
    assert!(names.len() >= least, "{names:?}");
    for name in names {
        let found = as_stored(&format!("{folder}/{name}.{ending}"));
        assert_same(&found, &array(&format!("{folder}/{name}.npy")), &name);
    }
}

#[test]
fn pngs_of_every_kind_become_pillows_rgb() {
    assert_format("png", "png", 19);
}

#[test]
fn webps_become_pillows_rgb() {
    assert_format("webp", "webp", 18);
}

#[test]
fn gifs_become_pillows_rgb() {
    assert_format("gif", "gif", 12);
}

#[test]
fn bmps_become_pillows_rgb() {
    assert_format("bmp", "bmp", 21);
}

#[test]
fn tiffs_become_pillows_rgb() {
    assert_format("tiff", "tif", 38);
}

#[test]
fn netpbm_files_become_pillows_rgb() {
    assert_format("pnm", "pnm", 13);
}

/// Issue 27, point 3: photographs of phones arrive upright, as by `ImageOps.exif_transpose`.
#[test]
fn issue_27_photographs_are_turned_upright() {
    let mut compared = 0;
    for ending in ["jpg", "png", "webp", "tif"] {
        for name in names("orientation", ending) {
            let found = open(&format!("orientation/{name}.{ending}"));
            assert_same(&found, &array(&format!("orientation/{name}.npy")), &name);
            compared += 1;
        }
    }
    assert!(compared >= 46, "{compared}");
}

#[test]
fn transparent_pictures_lie_on_the_colour_asked_for() {
    let options = ReadOptions::default().background(Some([200, 30, 90]));
    let names = names("background", "npy");
    assert!(names.len() >= 17, "{names:?}");
    for name in names {
        let found = Picture::open_with(fixture(&name.replacen('-', "/", 1)), &options).unwrap();
        assert_same(&found, &array(&format!("background/{name}.npy")), &name);
    }
}

#[test]
fn resizing_is_pillows() {
    let names = names("resize", "png");
    assert!(names.len() >= 65, "{names:?}");
    for name in names {
        let parts: Vec<&str> = name.split('-').collect();
        let filter = match parts[1] {
            "nearest" => Filter::Nearest,
            "box" => Filter::Box,
            "bilinear" => Filter::Bilinear,
            "bicubic" => Filter::Bicubic,
            "lanczos" => Filter::Lanczos,
            other => panic!("no filter is named {other}"),
        };
        let (width, height) = sides(parts[2]);
        let found = open(&format!("{}.png", parts[0])).resize(width, height, filter).unwrap();
        assert_same(&found, &open(&format!("resize/{name}.png")), &name);
    }
}

#[test]
fn cropping_is_torchvisions() {
    let names = names("crop", "png");
    assert!(names.len() >= 9, "{names:?}");
    for name in names {
        let (source, size) = name.split_once('-').unwrap();
        let (width, height) = sides(size);
        let found = open(&format!("{source}.png")).centre_crop(width, height).unwrap();
        assert_same(&found, &open(&format!("crop/{name}.png")), &name);
    }
}

/// Every `step`-th number of the tensor made of `source`, bit for bit.
#[track_caller]
fn assert_tensor(options: Preprocess, source: &str, name: &str, step: usize) {
    let tensor = options.apply(&open(source)).unwrap().tensor;
    let (shape, bytes) = npy(&format!("tensor/{name}.npy"), "<f4");
    if step == 1 {
        assert_eq!(tensor.shape(), shape, "{name}");
    }
    let found: Vec<u8> = tensor.to_f32().iter().step_by(step).flat_map(|value| value.to_le_bytes()).collect();
    assert_eq!(found.len(), bytes.len(), "{name}");
    let differing = found.chunks(4).zip(bytes.chunks(4)).filter(|(a, b)| a != b).count();
    assert_eq!(differing, 0, "{name}: numbers that differ of {}", bytes.len() / 4);
}

#[test]
fn tensors_are_torchvisions() {
    let chelsea = "chelsea.png";
    assert_tensor(Preprocess::default(), chelsea, "imagenet-every-97th", 97);
    let fitted = |preset: Preset, size| preset.options().fit([3, size, size], Fit::Auto).unwrap();
    assert_tensor(fitted(Preset::Imagenet, 20), chelsea, "imagenet-20", 1);
    assert_tensor(fitted(Preset::ImagenetBgr, 20), chelsea, "imagenet-bgr-20", 1);
    assert_tensor(fitted(Preset::Unit, 20).filter(Filter::Bicubic), chelsea, "unit-bicubic-20", 1);
    let squashed = Preprocess::default().fit([3, 17, 24], Fit::Squash).unwrap();
    assert_tensor(squashed, chelsea, "squash-17x24", 1);
    let padded = Preprocess::default().resize(Resize::Shorter(12)).crop(Some((16, 15)));
    assert_tensor(padded, "noise.png", "imagenet-padded", 1);
    let digit = Preset::Unit.options().fit([1, 28, 28], Fit::Squash).unwrap().mean([0.1307]).std([0.3081]);
    assert_tensor(digit, chelsea, "grey-28", 1);
    assert_tensor(fitted(Preset::Imagenet, 20), "sliver.png", "sliver", 1);
    let bicubic = fitted(Preset::Imagenet, 20).filter(Filter::Bicubic);
    assert_tensor(bicubic, "upright-sliver.png", "sliver-bicubic", 1);
    let raw = Preset::None.options().scale(PixelRange::Bytes).channels(Channels::Rgb);
    assert_tensor(raw, "line.png", "raw", 1);
}

/// The photographs used for evaluation are prepared in the size of the networks: they go in untouched.
#[test]
fn prepared_photographs_go_in_untouched() {
    let Some(folder) = shared("data/pets/test/images") else { return };
    let files = fs::read_dir(folder).unwrap();
    let options = Preprocess::default().fit([3, 224, 224], Fit::default()).unwrap();
    for file in files.take(20) {
        let picture = Picture::open(file.unwrap().path()).unwrap();
        assert_eq!(options.apply(&picture).unwrap().picture, picture);
    }
}
