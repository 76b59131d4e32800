//! Inputs by name, token ids, series, volumes and tables on the command line. Networks and values are those of
//! `scripts/make_input_fixtures.py`: PyTorch's and Captum's.

use std::path::Path;

use crate::program::{chelsea, refuses, succeeds};
use crate::reference::{array, relative_error};
use monosplit::Tensor;
use monosplit::graph::npy;
use monosplit_testing::{ScratchFolder, crates_folder};

pub(crate) fn fixture(name: &str) -> String {
    crates_folder().join("monosplit/tests/fixtures/inputs").join(name).display().to_string()
}

fn path(folder: &ScratchFolder, name: &str) -> String {
    folder.path(name).display().to_string()
}

/// The arguments for the inputs of a network, all by name.
fn named(network: &str, inputs: &[&str]) -> Vec<String> {
    let value =
        |name: &&str| ["--input".to_owned(), format!("{name}={}", fixture(&format!("{network}.{name}.npy")))];
    inputs.iter().flat_map(value).collect()
}

/// One sample of an array, as a file.
fn row(folder: &ScratchFolder, name: &str, row: usize) -> String {
    let all = array(Path::new(&fixture(name)));
    let one = monosplit::graph::batch::rows(&all, row..row + 1).unwrap();
    let file = folder.path(name);
    std::fs::write(&file, npy::write(&one)).unwrap();
    file.display().to_string()
}

fn near(file: &str, expected: &str, limit: f64) {
    let (found, expected) = (array(Path::new(file)), array(Path::new(&fixture(expected))));
    assert_eq!(found.len(), expected.len(), "{file}: {:?}", found.shape());
    let expected = Tensor::new(found.shape().to_vec(), expected.to_f64().into_vec()).unwrap();
    let error = relative_error(&found, &expected);
    assert!(error < limit, "{file}: {error:e}");
}

#[test]
fn a_text_is_explained_token_by_token_and_written_as_words() {
    let folder = ScratchFolder::new();
    let (ids, out, raw) = (fixture("text.ids.npy"), path(&folder, "out"), path(&folder, "raw.npy"));
    let words = path(&folder, "vocab.txt");
    std::fs::write(&words, "[PAD]\nthe\nfilm\nwas\nnot\ngreat\nat\n<all>\nly\n.\nend\n").unwrap();
    let network = fixture("text.onnx");
    let mut command: Vec<String> = ["explain", &network, &ids, "--tokens", &words, "-o", &out, "--raw", &raw]
        .map(str::to_owned)
        .to_vec();
    command.extend(named("text", &["mask"]));
    command.extend(["--precision", "f64", "--method", "integrated-gradients:steps=20"].map(str::to_owned));
    let said = succeeds(&command).out;
    near(&raw, "text.integrated-gradients-zero.ids.npy", 1e-6);
    // The strongest word is written with its share; the ids of the first sample are 1 7 4 9 2 0.
    assert!(said.contains("Integrated Gradients of ids"), "{said}");
    assert!(said.contains("film(+100)") || said.contains("film(-100)"), "{said}");
    let page = std::fs::read_to_string(folder.path("out/text.ids-0.integrated-gradients.html")).unwrap();
    assert!(page.contains(">film</span>") && page.contains(">&lt;all&gt;</span>"), "{page}");
    let json = succeeds(command.iter().map(String::as_str).chain(["--json"])).out;
    assert!(json.contains("\"explained_input\": \"ids\"") && json.contains("\"token\": \"film\""), "{json}");
    // In batches of one, the same bits.
    let one = path(&folder, "one.npy");
    let mut again = command.clone();
    let at = again.iter().position(|word| *word == raw).unwrap();
    again[at] = one.clone();
    succeeds(again.iter().map(String::as_str).chain(["--batch", "1"]));
    assert_eq!(array(Path::new(&raw)), array(Path::new(&one)));
}

#[test]
fn several_inputs_are_explained_and_each_is_drawn() {
    let folder = ScratchFolder::new();
    let (network, out, raw) = (fixture("pair.onnx"), path(&folder, "out"), path(&folder, "raw.npy"));
    let mut command: Vec<String> =
        ["explain", &network, "-o", &out, "--raw", &raw].map(str::to_owned).to_vec();
    command.extend(named("pair", &["picture", "facts"]));
    command.extend(
        ["--precision", "f64", "--method", "input-x-gradient", "--channels", "keep"].map(str::to_owned),
    );
    succeeds(&command);
    for input in ["picture", "facts"] {
        near(
            &path(&folder, &format!("raw.{input}.npy")),
            &format!("pair.input-x-gradient.{input}.npy"),
            1e-6,
        );
    }
    command.truncate(command.len() - 2);
    succeeds(&command);
    for name in ["pair.picture-1.input-x-gradient.picture.png", "pair.facts-0.input-x-gradient.facts.png"] {
        assert!(folder.path("out").join(name).is_file(), "{name}");
    }
    // A photograph for one input, a table for the other, which alone is explained.
    let table = path(&folder, "facts.csv");
    std::fs::write(&table, "age,height,weight,pulse\n0.5,-1,2,0\n").unwrap();
    let (facts, picture) = (format!("facts={table}"), format!("picture={}", chelsea().display()));
    let words = ["explain", &network, "-o", &out, "--input", &facts, "--input", &picture, "--of", "facts"];
    let said = succeeds(words.iter().copied().chain(["--method", "occlusion:window=1"])).out;
    assert!(said.contains("facts.csv[0]") && said.contains("facts-0.occlusion.png"), "{said}");
}

#[test]
fn series_volumes_and_tables_have_figures() {
    let folder = ScratchFolder::new();
    let out = path(&folder, "out");
    for network in ["series", "volume", "table"] {
        let (file, x) = (fixture(&format!("{network}.onnx")), fixture(&format!("{network}.x.npy")));
        let raw = path(&folder, "raw.npy");
        let words = ["explain", &file, &x, "-o", &out, "--raw", &raw, "--method", "occlusion", "--set"];
        let window = match network {
            "series" => ["window=3", "stride=3"],
            "volume" => ["window=2x3x2", "stride=2x3x2"],
            _ => ["window=1", "stride=1"],
        };
        let more = [window[0], "--set", window[1], "--precision", "f64"];
        succeeds(words.iter().chain(&more).copied());
        near(&raw, &format!("{network}.occlusion.x.npy"), 1e-5);
        assert!(folder.path(&format!("out/{network}.x-1.occlusion.png")).is_file(), "{network}");
        // Maps of layers behind strides are drawn over all of it, and those of units as bars.
        succeeds(["explain", &file, &x, "-o", &out]);
        assert!(folder.path(&format!("out/{network}.x-0.splitcam.png")).is_file(), "{network}");
    }
}

#[test]
fn verify_compare_and_compile_take_inputs_by_name() {
    let folder = ScratchFolder::new();
    let (pair, text) = (fixture("pair.onnx"), fixture("text.onnx"));
    let facts = format!("facts={}", row(&folder, "pair.facts.npy", 0));
    let picture = fixture("pair.picture.npy");
    let said = succeeds(["verify", &pair, &picture, "--input", &facts]).out;
    assert!(said.contains("holds           f = g − h  "), "{said}");
    assert!(said.contains("does not apply  SplitLRP conserves relevance"), "{said}");
    let mut words: Vec<String> = vec!["verify".into(), text.clone()];
    words.extend(named("text", &["ids", "mask"]));
    let said = succeeds(&words).out;
    assert!(said.contains("holds           δᵍ − δʰ = gradient at every layer"), "{said}");
    let figure = path(&folder, "compared.png");
    let photograph = chelsea().display().to_string();
    let methods = ["--methods", "gradient,gradcam", "-o", &figure];
    succeeds(["compare", &pair, &photograph, "--input", &facts].iter().chain(&methods).copied());
    assert!(Path::new(&figure).is_file());
    let compiled = path(&folder, "text.onnx");
    let said = succeeds(["compile", &text, "--method", "gradient", "-o", &compiled]).out;
    assert!(said.contains("reads   ids") && said.contains("returns saliency/gradient/ids"), "{said}");
    let said = succeeds(["inspect", &compiled]).out;
    assert!(said.contains("ids"), "{said}");
}

/// What is computed for an input of a size is what the network opened for that size computes, whatever came before it.
#[test]
fn open_lengths_are_those_of_each_input() {
    let folder = ScratchFolder::new();
    let network = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/inputs/open_sizes.onnx");
    let network = network.display().to_string();
    let image = |name: &str, height: usize, width: usize| {
        let numbers = (0..3 * height * width).map(|i| (i as f32 * 0.37).sin()).collect::<Vec<_>>();
        let file = folder.path(name);
        std::fs::write(&file, npy::write(&Tensor::new([1, 3, height, width], numbers).unwrap())).unwrap();
        file.display().to_string()
    };
    let (small, large) = (image("small.npy", 12, 16), image("large.npy", 20, 14));
    let (out, raw) = (path(&folder, "out"), path(&folder, "raw.npy"));
    let numbers = |command: &str, words: &[&str]| {
        let drawn = if command == "explain" { &["-o", &*out, "--method", "gradient"][..] } else { &[] };
        let words = [&[command, &*network], words, &["--raw", &*raw], drawn].concat();
        succeeds(words);
        array(Path::new(&raw))
    };
    for command in ["run", "explain"] {
        for (file, shape) in [(&small, "3,12,16"), (&large, "3,20,14")] {
            assert_eq!(
                numbers(command, &[file]),
                numbers(command, &[file, "--input-shape", shape]),
                "{command}"
            );
        }
    }
    let all = numbers("run", &[&small, &large, &small]);
    let [first, second] = [&small, &large].map(|file| numbers("run", &[file]).to_f64().into_vec());
    assert_eq!(all.to_f64().into_vec(), [&first[..], &second, &first].concat());
    let said = succeeds(["explain", &network, &small, &large, "-o", &out, "--method", "gradient"]);
    assert!(
        said.out.contains("large.gradient.png") || said.out.contains("large-0.gradient.png"),
        "{}",
        said.out
    );
    assert!(said.errors.contains("--input-shape settles them"), "{}", said.errors);
    let both = ["explain", &network, &small, &large, "-o", &out, "--method", "gradient", "-q", "--raw", &raw];
    refuses(both, &["maps of different sizes", "--raw"]);
    let photograph = chelsea().display().to_string();
    succeeds(["verify", &network, &photograph, "--resize", "16", "--crop", "16"]);
    refuses(["compile", &network, "-o", &path(&folder, "x.onnx")], &["'height'", "--input-shape 3,224,224"]);
}

#[test]
fn whole_numbers_are_read_as_what_an_input_holds() {
    let folder = ScratchFolder::new();
    let (text, ids, mask) = (fixture("text.onnx"), fixture("text.ids.npy"), fixture("text.mask.npy"));
    let rows = |file: &str| {
        let numbers = array(Path::new(file)).to_f64().into_vec();
        let words: Vec<String> = numbers.iter().map(f64::to_string).collect();
        words.chunks(6).map(|row| row.join(",")).collect::<Vec<_>>().join("\n")
    };
    let table = path(&folder, "ids.csv");
    std::fs::write(&table, rows(&ids)).unwrap();
    let logits = |inputs: &[&str]| {
        let raw = path(&folder, "logits.npy");
        succeeds([&["run", &*text, "--raw", &*raw], inputs].concat());
        array(Path::new(&raw))
    };
    let named = |name: &str, file: &str| format!("--input={name}={file}");
    let expected = logits(&[&ids, &named("mask", &mask)]);
    assert_eq!(logits(&[&table, &named("mask", &mask)]), expected);
    // All by name, in any order, and one sample that stands for all.
    assert_eq!(logits(&[&named("mask", &mask), &named("ids", &table)]), expected);
    std::fs::write(&table, "1,2,3,4,5,0.5\n").unwrap();
    refuses(["run", &text, &table, &named("mask", &mask)], &["'ids' reads whole numbers, found 0.5"]);
    let (pair, picture) = (fixture("pair.onnx"), fixture("pair.picture.npy"));
    let facts = named("facts", &row(&folder, "pair.facts.npy", 0));
    let said = succeeds(["diff", &pair, &pair, &picture, &facts, "--method", "gradient"]).out;
    assert!(said.contains("pair.picture.npy[0]"), "{said}");
    let compiled = path(&folder, "pair-explained.onnx");
    succeeds(["compile", &pair, "--of", "picture", "--method", "gradient", "-o", &compiled]);
    let out = path(&folder, "out");
    succeeds(["explain", &compiled, &picture, &facts, "-o", &out]);
}

/// Captum's `LayerGradientXActivation`, summed over the channels of each token.
#[test]
fn a_layer_of_a_text_has_a_number_for_each_token() {
    let folder = ScratchFolder::new();
    let (network, ids, raw) = (fixture("text.onnx"), fixture("text.ids.npy"), path(&folder, "raw.npy"));
    let (mask, out) = (format!("mask={}", fixture("text.mask.npy")), path(&folder, "out"));
    let explain = ["explain", &network, &ids, "--input", &mask, "-o", &out, "--precision", "f64"];
    let at = |words: &[&str]| succeeds([&explain[..], words].concat()).out;
    let said = at(&["--method", "input-x-gradient", "--layer", "wide:out", "--raw", &raw]);
    assert!(said.contains("Input × Gradient at wide:out of ids"), "{said}");
    assert!(folder.path("out/text.ids-0.input-x-gradient.html").exists(), "words, not bars");
    near(&raw, "text.input-x-gradient-wide.ids.npy", 1e-6);
    // What is pooled has units in place of tokens.
    at(&["--method", "gradient", "--layer", "scores"]);
    assert!(folder.path("out/text.ids-0.gradient.png").exists());
    let said = at(&["--method", "lrp", "--by-layer"]);
    assert!(said.contains("the relevance on each layer of"), "{said}");
    refuses(
        [&explain[..], &["--method", "gradient", "--by-layer"]].concat(),
        &["splitcam and splitgrad", "lrp"],
    );
    // Inputs that are given beside the explained one are constants of the decomposition.
    let (pair, picture) = (fixture("pair.onnx"), fixture("pair.picture.npy"));
    let facts = format!("facts={}", fixture("pair.facts.npy"));
    let words = ["explain", &pair, &picture, "--input", &facts, "--method", "lrp", "--by-layer", "-o", &out];
    let said = succeeds(words).out;
    assert_eq!(said.matches("the relevance on each layer of").count(), 2, "{said}");
}

/// What a compiled file explains is drawn as what it is of.
#[test]
fn compiled_files_of_token_ids_and_of_several_inputs_are_explained() {
    let folder = ScratchFolder::new();
    let (file, out, raw) = (path(&folder, "file.onnx"), path(&folder, "out"), path(&folder, "raw.npy"));
    let (ids, mask) = (fixture("text.ids.npy"), format!("mask={}", fixture("text.mask.npy")));
    let words = path(&folder, "vocab.txt");
    std::fs::write(&words, "[PAD]\nthe\nfilm\n").unwrap();
    let explain = ["explain", &file, "-o", &out, "--raw", &raw];
    // The class that a compiled file takes is no token id.
    succeeds(["compile", &fixture("series.onnx"), "--method", "gradient", "-o", &file]);
    let series = fixture("series.x.npy");
    refuses([&explain[..], &[&series, "--tokens", &words]].concat(), &["holds token ids", "vocab.txt"]);
    succeeds(["compile", &fixture("text.onnx"), "--of", "ids", "--method", "gradient", "-o", &file]);
    let said = succeeds([&explain[..], &[&ids, "--input", &mask, "--tokens", &words]].concat()).out;
    assert!(said.contains("the(+"), "{said}");
    let said = succeeds([&explain[..], &[&ids, "--input", &mask]].concat()).out;
    near(&raw, "text.gradient.ids.npy", 1e-5);
    assert!(said.contains("1(+") && folder.path("out/text.ids-0.gradient.html").exists(), "{said}");
    let (picture, facts) = (fixture("pair.picture.npy"), format!("facts={}", fixture("pair.facts.npy")));
    let network = fixture("pair.onnx");
    for method in ["gradient", "integrated-gradients:steps=20"] {
        succeeds(["compile", &network, "--of", "picture,facts", "--method", method, "-o", &file]);
        succeeds([&explain[..], &[&picture, "--input", &facts]].concat());
        let method = method.split(':').next().unwrap();
        for input in ["picture", "facts"] {
            let raw = path(&folder, &format!("raw.{input}.npy"));
            near(&raw, &format!("pair.{method}.{input}.npy"), 1e-5);
            assert!(folder.path(&format!("out/pair.picture-1.{method}.{input}.png")).exists());
        }
    }
}

#[test]
fn what_does_not_fit_is_refused_in_a_line() {
    let folder = ScratchFolder::new();
    let (text, ids) = (fixture("text.onnx"), fixture("text.ids.npy"));
    let mask = format!("mask={}", fixture("text.mask.npy"));
    refuses(["explain", &text, &ids], &["2 inputs ('ids', 'mask')", "--input mask=FILE"]);
    refuses(["explain", &text, &ids, "--of", "ids"], &["the inputs are ids, mask"]);
    refuses(["explain", &text, "--input", &mask], &["also reads input 'ids'", "--input ids=FILE"]);
    refuses(["explain", &text, &ids, "--input", "mask"], &["expected --input NAME=FILE, found 'mask'"]);
    refuses(
        ["explain", &text, &ids, "--input", &mask, "--of", "word"],
        &["no input 'word'", "'ids', 'mask'"],
    );
    let both = ["explain", &text, &ids, "--input", &mask, "--of", "ids,mask"];
    refuses([&both[..], &["--layer", "first"]].concat(), &["name one with --of"]);
    refuses([&both[..], &["--piecewise", "8"]].concat(), &["--piecewise does not apply"]);
    let beyond = path(&folder, "beyond.npy");
    std::fs::write(&beyond, npy::write(&Tensor::new([1, 6], vec![1i64, 2, 3, 99, 0, 0]).unwrap())).unwrap();
    refuses(["explain", &text, &beyond, "--input", &mask], &["token id 99", "11 rows"]);
    let (series, x) = (fixture("series.onnx"), fixture("series.x.npy"));
    let words = path(&folder, "vocab.txt");
    std::fs::write(&words, "a\n").unwrap();
    refuses(["explain", &series, &x, "--tokens", &words], &["holds token ids", "vocab.txt"]);
    let table = path(&folder, "wrong.csv");
    std::fs::write(&table, "a,b\n1,x\n").unwrap();
    refuses(["explain", &fixture("table.onnx"), &table], &["wrong.csv", "column 'b'", "found 'x'"]);
    std::fs::write(&table, "a,b\n1,2\n").unwrap();
    refuses(["explain", &fixture("table.onnx"), &table], &["wrong.csv", "[N, 5]", "[1, 2]"]);
}
