//! A bounded run of the fuzz target of random networks: the same networks on every machine, from none of which anything may
//! fail to come back.

#[path = "../random_networks/mod.rs"]
mod random_networks;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use monosplit_testing::{SplitMix64, crates_folder};

/// Number of networks; `MONOSPLIT_FUZZ_ITERATIONS` overrules it, and `MONOSPLIT_FUZZ_FIRST` says with which to begin.
const NETWORKS: u64 = 1200;
/// Bytes that describe one.
const LENGTH: usize = 160;

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The bytes with this number.
fn bytes(number: u64) -> Vec<u8> {
    let mut random = SplitMix64::new(SplitMix64::new(number).bits());
    (0..LENGTH / 8).flat_map(|_| random.bits().to_le_bytes()).collect()
}

/// Whether the network ran; an error if something panicked. The bytes are in the file `kept`, also where the process dies.
fn survived(data: &[u8], kept: &Path) -> Result<bool, ()> {
    fs::write(kept, data).unwrap();
    catch_unwind(AssertUnwindSafe(|| random_networks::check(data))).map_err(|_| ())
}

#[test]
fn slow_random_networks_are_run_and_explained_or_refused() {
    let folder = std::env::temp_dir();
    let running = folder.join(format!("random-network-{}", std::process::id()));
    let (first, count) =
        (variable("MONOSPLIT_FUZZ_FIRST", 0), variable("MONOSPLIT_FUZZ_ITERATIONS", NETWORKS));
    let (mut ran, mut failed) = (0, Vec::new());
    for number in first..first + count {
        match survived(&bytes(number), &running) {
            Ok(one) => ran += u64::from(one),
            Err(()) => {
                let kept = folder.join(format!("random-network-{number}.network"));
                fs::copy(&running, &kept).unwrap();
                println!("panicked; its bytes are kept as {}", kept.display());
                failed.push(number);
            }
        }
    }
    fs::remove_file(&running).unwrap();
    println!("{ran} of {count} networks ran");
    assert!(failed.is_empty(), "networks {failed:?} failed");
    assert!(count < 100 || ran > count / 10, "{ran} of {count} networks ran");
}

/// Networks that something once failed on; `MONOSPLIT_FUZZ_KEPT` names another folder of them.
#[test]
fn issue_35_networks_that_failed_are_survived() {
    let kept = std::env::temp_dir().join(format!("known-network-{}", std::process::id()));
    let given = std::env::var_os("MONOSPLIT_FUZZ_KEPT").map(PathBuf::from);
    let folder = given.unwrap_or_else(|| crates_folder().join("../fuzz/seeds"));
    let (mut found, mut failed) = (0, false);
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "network") {
            println!("{}", path.display());
            failed |= survived(&fs::read(&path).unwrap(), &kept).is_err();
            found += 1;
        }
    }
    let _ = fs::remove_file(&kept);
    assert!(!failed, "one of {found} networks failed");
}
