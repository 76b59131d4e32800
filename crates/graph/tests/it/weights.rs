//! Weights files as PyTorch, safetensors and NumPy write them, compared with what those libraries say the
//! files hold; and files no library should trust.

use std::path::PathBuf;

use monosplit_graph::npz::Arrays;
use monosplit_graph::weights::Weights;
use monosplit_graph::{Data, ErrorKind, Tensor, npy};

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/weights").join(name)
}

fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(fixture(name)).unwrap()
}

/// Names in the order the state dict has them.
const NAMES: [&str; 21] = [
    "parameter",
    "frozen",
    "transposed",
    "strided",
    "expanded",
    "channels_last",
    "shared.front",
    "shared.back",
    "shared.tied",
    "half",
    "bfloat16",
    "double",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "bool",
    "scalar",
    "empty",
];

const PTH_STATES: [&str; 5] =
    ["state.pth", "state-legacy.pth", "state-protocol4.pth", "checkpoint.pth", "checkpoint-legacy.pth"];

/// Bits, so that the sign of a zero counts too.
fn bits(tensor: &Tensor) -> Vec<u64> {
    match tensor.data() {
        Data::F32(elements) => elements.iter().map(|v| v.to_bits().into()).collect(),
        Data::F64(elements) => elements.iter().map(|v| v.to_bits()).collect(),
        Data::I64(elements) => elements.iter().map(|&v| v as u64).collect(),
        Data::Bool(elements) => elements.iter().map(|&v| v.into()).collect(),
    }
}

fn assert_as_expected(file: &str, weights: &Weights) {
    assert_eq!(weights.len(), NAMES.len(), "{file}");
    for name in NAMES {
        let expected = npy::read(&bytes(&format!("expected/{name}.npy"))).unwrap();
        let found = weights.get(name).unwrap_or_else(|| panic!("{file} lacks {name}"));
        assert_eq!(found.shape(), expected.shape(), "{file}: {name}");
        assert_eq!(
            std::mem::discriminant(found.data()),
            std::mem::discriminant(expected.data()),
            "{file}: {name}"
        );
        assert_eq!(bits(found), bits(&expected), "{file}: {name}");
    }
}

#[test]
fn every_container_of_torch_holds_the_tensors_torch_says() {
    for file in PTH_STATES {
        let weights = Weights::open(fixture(file)).unwrap();
        assert_as_expected(file, &weights);
        assert_eq!(weights.names().collect::<Vec<_>>(), NAMES, "{file}");
    }
}

#[test]
fn safetensors_hold_the_tensors_safetensors_says() {
    assert_as_expected("state.safetensors", &Weights::open(fixture("state.safetensors")).unwrap());
}

#[test]
fn files_of_big_endian_machines_hold_the_same_numbers() {
    let weights = Weights::open(fixture("big-endian.pth")).unwrap();
    let expected = Tensor::new([1, 3], vec![1.5f32, -2.0, 1e-3]).unwrap();
    assert_eq!(weights.get("numbers"), Some(&expected));
}

#[test]
fn compressed_files_are_told_from_corrupt_ones() {
    let error = Weights::open(fixture("compressed.pth")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("compressed"), "{error}");
}

#[test]
fn data_parallel_names_are_those_of_the_model() {
    let weights = Weights::open(fixture("data-parallel.pth")).unwrap();
    let expected = [
        "0.weight",
        "0.bias",
        "1.weight",
        "1.bias",
        "1.running_mean",
        "1.running_var",
        "1.num_batches_tracked",
    ];
    assert_eq!(weights.names().collect::<Vec<_>>(), expected);
}

#[test]
fn numpy_arrays_of_every_type_order_and_layout_are_read() {
    for kind in ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "b1"] {
        let expected: Data = match kind {
            "f2" | "f4" => (0..6).map(|v| v as f32).collect::<Vec<_>>().into(),
            "f8" => (0..6).map(f64::from).collect::<Vec<_>>().into(),
            "b1" => (0..6).map(|v| v != 0).collect::<Vec<_>>().into(),
            _ => (0..6).collect::<Vec<i64>>().into(),
        };
        for layout in ["little", "big", "fortran"] {
            let file = format!("npy/{kind}-{layout}.npy");
            assert_eq!(
                npy::read(&bytes(&file)).unwrap(),
                Tensor::new([2, 3], expected.clone()).unwrap(),
                "{file}"
            );
        }
    }
}

#[test]
fn arrays_are_written_byte_for_byte_as_numpy_writes_them() {
    for file in ["npy/f4-little.npy", "npy/f8-little.npy", "npy/i8-little.npy", "npy/b1-little.npy"] {
        let numpy = bytes(file);
        assert_eq!(npy::write(&npy::read(&numpy).unwrap()), numpy, "{file}");
    }
    for name in ["scalar", "empty", "double"] {
        let numpy = bytes(&format!("expected/{name}.npy"));
        assert_eq!(npy::write(&npy::read(&numpy).unwrap()), numpy, "{name}");
    }
}

#[test]
fn functions_are_refused_by_name() {
    for (file, function) in [
        ("hostile-system.pth", "'posix.system'"),
        ("hostile-eval.pth", "'__builtin__.eval'"),
        ("whole-model.pth", "'torch.nn.modules.container.Sequential'"),
    ] {
        let error = Weights::open(fixture(file)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let message = error.to_string();
        assert!(message.contains(function) && message.contains("state_dict()"), "{message}");
    }
}

#[test]
fn cycles_and_tensors_that_multiply_are_refused() {
    for (file, reason) in [
        ("hostile-cycle.pth", "no dictionary of tensors"),
        ("hostile-expansion.pth", "repeats a storage of 1 elements"),
        ("hostile-views.pth", "too many tensors share too few storages"),
    ] {
        let message = Weights::open(fixture(file)).unwrap_err().to_string();
        assert!(message.contains(reason), "{message}");
    }
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    for file in PTH_STATES.into_iter().chain(["state.safetensors"]) {
        let whole = bytes(file);
        for length in 0..whole.len() {
            assert!(Weights::from_bytes(&whole[..length]).is_err(), "{file} cut after {length} bytes");
        }
    }
}

#[test]
fn a_file_with_any_byte_changed_is_read_or_refused_in_peace() {
    for file in ["state.pth", "state-legacy.pth", "state.safetensors", "expected/strided.npy"] {
        let whole = bytes(file);
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] = [0x00, 0x7f, 0xff, whole[at] ^ 1][at % 4];
            let _ = Weights::from_bytes(&changed);
            let _ = npy::read(&changed);
        }
    }
}

#[test]
fn weights_that_share_a_storage_in_the_file_share_it_in_memory() {
    let weights = Weights::open(fixture("state.pth")).unwrap();
    let (front, tied) =
        (weights.get("shared.front").unwrap().to_f32(), weights.get("shared.tied").unwrap().to_f32());
    assert_eq!(front.as_ptr(), tied.as_ptr());
}

#[test]
fn a_missing_file_is_an_input_error() {
    assert_eq!(Weights::open(fixture("absent.pth")).unwrap_err().kind(), ErrorKind::Io);
}

/// Weights that lie in a file as they are needed are the file's own bytes, whoever wrote it, and stay when it is gone.
#[test]
#[cfg(target_endian = "little")]
fn large_weights_are_used_where_they_lie() {
    let path = std::env::temp_dir().join(format!("monosplit-large-{}.safetensors", std::process::id()));
    let numbers: Vec<f32> = (0..70_000).map(|i| i as f32).collect();
    let large = Tensor::new([700, 100], numbers).unwrap();
    let small = Tensor::vector(vec![1f32, 2.0]);
    let whole =
        Weights::from_iter([("large".to_owned(), large.clone()), ("small".to_owned(), small.clone())]);
    std::fs::write(&path, whole.to_safetensors().unwrap()).unwrap();
    let mut opened = Weights::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    for (name, expected, mapped) in [("large", large, true), ("small", small, false)] {
        let tensor = opened.take(name).unwrap();
        assert_eq!(tensor, expected);
        let Data::F32(buffer) = tensor.into_data() else { panic!("other numbers") };
        assert_eq!(buffer.try_into_vec().is_err(), mapped, "{name}");
    }
}

/// Against the `.npy` files of the same arrays, whose numbers the tests above know.
#[test]
fn archives_of_arrays_hold_what_numpy_put_into_them() {
    for file in ["npz/stored.npz", "npz/compressed.npz"] {
        let bytes_of_file = bytes(file);
        let mut arrays = Arrays::open(&bytes_of_file).unwrap();
        let names: Vec<String> = arrays.names().map(str::to_owned).collect();
        let kinds = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "b1"];
        let small = kinds.iter().flat_map(|kind| ["little", "big", "fortran"].map(|l| format!("{kind}-{l}")));
        for name in small {
            assert!(names.contains(&name), "{file} lacks {name}");
            let expected = npy::read(&bytes(&format!("npy/{name}.npy"))).unwrap();
            assert_eq!(arrays.read(&name).unwrap(), expected, "{file}: {name}");
        }
    }
    let file = bytes("npz/compressed.npz");
    let long = Tensor::new([3, 100, 200], (0..60_000).map(|i| (i % 251) as f32).collect::<Vec<_>>()).unwrap();
    assert_eq!(Arrays::open(&file).unwrap().read("größe").unwrap(), long);
}

#[test]
fn of_several_arrays_the_wanted_one_is_read() {
    let one = bytes("npz/one.npz");
    // The half-precision numbers nearest to 0.1 and −2.5.
    let expected = Tensor::new([1, 2], vec![0.099975586f32, -2.5]).unwrap();
    assert_eq!(Arrays::open(&one).unwrap().choose(&["x"]).unwrap(), expected);
    let several = bytes("npz/stored.npz");
    let mut several = Arrays::open(&several).unwrap();
    assert_eq!(several.choose(&["x", "f4-big"]).unwrap(), several.read("f4-big").unwrap());
    let error = several.choose(&["x"]).unwrap_err().to_string();
    assert!(error.contains("one called 'x'") && error.contains("'b1-big', 'b1-fortran'"), "{error}");
}

#[test]
fn arrays_that_unpack_to_more_than_is_read_are_refused() {
    let bomb = std::fs::read(monosplit_testing::crates_folder().join("../fuzz/seeds/bomb.npz")).unwrap();
    let error = Arrays::open(&bomb).unwrap().read("x").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("1024 MiB"), "{error}");
}
