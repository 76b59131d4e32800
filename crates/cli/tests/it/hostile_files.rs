//! Files made to do harm, given to the program as a person would give them: one line, exit code 2, and memory
//! that stays below what the system is told to allow.

#![cfg(unix)]

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::program::{chelsea, model, refuses};
use monosplit_testing::{ScratchFolder, crates_folder};

/// Address space the program may take, in KiB.
const MEMORY: u32 = 2 << 20;

/// What the program says of bad files: its exit code and its errors, with little memory to take.
fn confined(arguments: &[&str]) -> (i32, String) {
    let output = Command::new("sh")
        .args(["-c", &format!("ulimit -v {MEMORY}; exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_monosplit")])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .expect("the program starts");
    (output.status.code().unwrap_or(-1), String::from_utf8(output.stderr).expect("the errors are text"))
}

/// The files of a folder whose names begin and end like this.
fn files(folder: &Path, beginning: &str, ending: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> = entries
        .filter(|path| {
            let name = path.file_name().unwrap().to_string_lossy();
            name.starts_with(beginning) && name.ends_with(ending)
        })
        .collect();
    found.sort();
    assert!(!found.is_empty());
    found
}

fn is_one_line(code: i32, said: &str) {
    assert_eq!(code, 2, "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("monosplit: "), "{said}");
}

#[test]
fn hostile_networks_are_refused_in_little_memory() {
    let picture = chelsea();
    for path in files(&crates_folder().join("../fuzz/seeds"), "", ".onnx") {
        let (code, said) = confined(&["run", path.to_str().unwrap(), picture.to_str().unwrap()]);
        is_one_line(code, &said);
    }
}

/// Among them pickles that call functions.
#[test]
fn hostile_weights_are_refused_in_little_memory() {
    let picture = chelsea();
    let mut paths = files(&crates_folder().join("../fuzz/seeds"), "", ".pth");
    paths.extend(files(&crates_folder().join("graph/tests/fixtures/weights"), "hostile", ".pth"));
    for path in paths {
        let path = path.to_str().unwrap();
        let (code, said) =
            confined(&["run", "--arch", "resnet18", "--weights", path, picture.to_str().unwrap()]);
        is_one_line(code, &said);
        assert!(!path.contains("system") || said.contains("system"), "{said}");
    }
}

#[test]
fn hostile_arrays_are_refused_in_little_memory() {
    let network = model("vgg/torchscript-17.onnx");
    for path in files(&crates_folder().join("../fuzz/seeds"), "", ".npy") {
        let (code, said) = confined(&["run", network.to_str().unwrap(), path.to_str().unwrap()]);
        is_one_line(code, &said);
    }
}

#[test]
fn files_that_never_end_are_refused() {
    let picture = chelsea();
    let picture = picture.to_str().unwrap();
    refuses(["run", "--arch", "resnet18", "--weights", "/dev/zero", picture], &["/dev/zero"]);
    let (code, said) = confined(&["inspect", "/dev/zero"]);
    is_one_line(code, &said);
}

#[test]
fn links_that_lead_nowhere_are_unreadable_files() {
    let folder = ScratchFolder::new();
    let (nowhere, circle) = (folder.path("nowhere"), folder.path("circle"));
    symlink(folder.path("absent"), &nowhere).unwrap();
    symlink(&circle, &circle).unwrap();
    let (network, picture) = (model("vgg/torchscript-17.onnx"), chelsea());
    for link in [nowhere.to_str().unwrap(), circle.to_str().unwrap()] {
        refuses(["inspect", link], &[link]);
        refuses(["run", network.to_str().unwrap(), link], &[link]);
        refuses(["run", "--arch", "resnet18", "--weights", link, picture.to_str().unwrap()], &[link]);
    }
}

/// A network whose weights lie in `location`, which has as many letters as `../secret`.
fn network_with_weights_at(location: &str) -> Vec<u8> {
    let mut bytes = std::fs::read(crates_folder().join("../fuzz/seeds/outside.onnx")).unwrap();
    let place = bytes.windows(9).position(|part| part == b"../secret").unwrap();
    bytes[place..place + 9].copy_from_slice(location.as_bytes());
    bytes
}

#[test]
fn weights_outside_the_folder_of_a_network_stay_unread() {
    let (folder, picture) = (ScratchFolder::new(), chelsea());
    std::fs::create_dir(folder.path("inner")).unwrap();
    folder.write("secret", [0; 8]);
    symlink(folder.path("secret"), folder.path("inner/symbolic1")).unwrap();
    symlink(folder.path(""), folder.path("inner/up")).unwrap();
    for (location, reason) in [
        ("../secret", "outside"),
        ("/dev/zero", "outside"),
        ("symbolic1", "outside"),
        ("up/secret", "outside"),
        ("absent123", "absent123"),
        ("./inner/.", "./inner/."),
    ] {
        let path = folder.write("inner/network.onnx", network_with_weights_at(location));
        refuses(["run", path.to_str().unwrap(), picture.to_str().unwrap()], &[reason]);
        refuses(["inspect", path.to_str().unwrap()], &[]);
    }
}
