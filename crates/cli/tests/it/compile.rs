//! `monosplit compile` as a person uses it, and what becomes of the files it writes.

use std::path::Path;

use monosplit::Tensor;
use monosplit::catalogue::{MethodFamily, entries};
use monosplit::engine::{Cpu, Engine};
use monosplit::explain::Procedure;
use monosplit::graph::onnx::{self, ExportOptions, ImportOptions, ImportReport};
use monosplit::graph::{Dim, Graph, Kind, Op, Shape, npy};
use monosplit::{Model, compiled_maps};
use monosplit_testing::{ScratchFolder, crates_folder};

use crate::networks::{CLASSES, SIDE, Small, numbers};
use crate::program::{model, monosplit_with, refuses, succeeds};
use crate::reference::{array, relative_error};

pub(crate) fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// The names of the methods that are rewrites, or of those that no graph computes. Those of many passes are neither
/// ([`compile_passes`](crate::compile_passes)).
pub(crate) fn methods(rewrites: bool) -> Vec<&'static str> {
    let is_rewrite = |name: &&'static str| {
        let chosen = monosplit::catalogue::parse(name, &[]).unwrap();
        match chosen.method.procedure() {
            Procedure::GraphMethod(_) => rewrites,
            Procedure::MultiPass(passes) => !rewrites && passes.unrolled().is_none(),
        }
    };
    // The networks here have no attention.
    let entries = entries().filter(|entry| entry.family != MethodFamily::Attention);
    entries.map(|entry| entry.name).filter(is_rewrite).collect()
}

pub(crate) fn compiled(folder: &ScratchFolder, network: &str, words: &[&str]) -> String {
    let path = text(&folder.path("explained.onnx"));
    let mut all = vec!["compile", network, "-o", &path];
    all.extend(words);
    succeeds(all);
    path
}

pub(crate) fn import_report(path: &str) -> ImportReport {
    let import = ["class", "alpha", "share", "theta", "limit", "baseline"];
    let import = import.into_iter().fold(ImportOptions::default(), ImportOptions::optional_input);
    onnx::import_report(&std::fs::read(path).unwrap(), None, &import).unwrap()
}

/// The numbers `explain` writes.
pub(crate) fn map(folder: &ScratchFolder, network: &str, input: &str, words: &[&str]) -> Tensor {
    let (out, raw) = (text(&folder.path("pictures")), text(&folder.path("raw.npy")));
    let mut all = vec!["explain", network, input, "--out", &out, "--raw", &raw];
    all.extend(words);
    succeeds(all);
    array(Path::new(&raw))
}

/// Three samples that no network was compiled with.
pub(crate) fn samples(folder: &ScratchFolder) -> String {
    text(&folder.write("x.npy", npy::write(&numbers(&[3, 3, SIDE, SIDE], 17))))
}

#[test]
fn a_compiled_file_says_what_it_reads_returns_and_contains() {
    let folder = ScratchFolder::new();
    let network = Small::default().save(&folder, "small.onnx");
    for opset in ["13", "17", "26"] {
        let path = compiled(&folder, &network, &["--methods", "splitcam,gradcam", "--opset", opset]);
        let found = import_report(&path);
        assert_eq!(found.opset.to_string(), opset);
        assert!(found.problems.is_empty(), "{:?}", found.problems);
        let outputs: Vec<&str> = found.read.outputs().iter().map(|output| output.name.as_str()).collect();
        assert_eq!(outputs[..2], ["logits", "explained_class"]);
        assert!(outputs[2].starts_with("saliency/splitcam/"), "{outputs:?}");
        assert!(outputs.iter().any(|name| name.starts_with("saliency/gradcam/")), "{outputs:?}");
        let default = |name: &str| {
            let value = found.defaults.iter().find(|(input, _)| input == name);
            value.map(|(_, value)| (value.shape().to_vec(), value.to_f32()[0]))
        };
        assert_eq!(default("class"), Some((vec![1], -1.0)));
        assert_eq!(default("alpha"), Some((vec![], 0.4)));
        let maps = compiled_maps(&found.read);
        assert_eq!(maps.iter().map(|map| map.method.as_str()).collect::<Vec<_>>(), ["splitcam", "gradcam"]);
        let said = succeeds(["inspect", &path]).out;
        for word in ["SplitCAM g at conv", "class = -1", "alpha = 0.4", "from small.onnx by monosplit"] {
            assert!(said.contains(word), "'{word}' is not in: {said}");
        }
    }
}

/// What was chosen is written down in the words it was chosen by, one property for each fact.
#[test]
fn what_was_chosen_can_be_read_from_the_file() {
    let folder = ScratchFolder::new();
    let network = Small::default().save(&folder, "small.onnx");
    let words =
        "--method splitlrp:map=pos,theta=0.5,limit=4 --class 3 --fp16 --size input --normalise max --abs";
    let path = compiled(&folder, &network, &words.split(' ').collect::<Vec<_>>());
    let read = import_report(&path).read;
    let output = read.outputs()[2].name.clone();
    let said = |key: &str| read.metadata().iter().find(|(known, _)| known == key).map(|(_, v)| v.as_str());
    let facts = [
        ("monosplit.class".to_owned(), "3"),
        ("monosplit.weights".to_owned(), "f16"),
        ("monosplit.precision".to_owned(), "f64"),
        (format!("monosplit.method:{output}"), "splitlrp"),
        (
            format!("monosplit.options:{output}"),
            "map=pos,stabiliser=scale,theta=0.5,limit=4,correction=both,repeat=no,scale-over=sample,\
             threshold=absolute,pool=convex,input-split=half,relu=max",
        ),
        (format!("monosplit.finish:{output}"), "size=input,normalise=max,abs=map,rectify=no,channels=own"),
    ];
    for (key, value) in &facts {
        assert_eq!(said(key), Some(*value), "{key} of {:?}", read.metadata());
    }
    let shown = succeeds(["inspect", &path]).out;
    for word in ["theta=0.5", "limit=4", "size=input", "normalise=max", "for class 3", "weights f16"] {
        assert!(shown.contains(word), "'{word}' is not in: {shown}");
    }
    for (class, value) in [("top1", "top1"), ("4", "4")] {
        let path = compiled(&folder, &network, &["--class", class]);
        let read = import_report(&path).read;
        assert!(read.metadata().contains(&("monosplit.class".to_owned(), value.to_owned())));
    }
}

#[test]
fn what_is_fixed_is_no_input() {
    let folder = ScratchFolder::new();
    let (network, x) = (Small::default().save(&folder, "small.onnx"), samples(&folder));
    for (class, shown) in [("2", "2"), ("top1", "top1")] {
        let native = map(&folder, &network, &x, &["--method", "gradient", "--class", shown]);
        let path = compiled(&folder, &network, &["--method", "gradient", "--class", class]);
        assert!(import_report(&path).defaults.is_empty());
        assert!(relative_error(&map(&folder, &path, &x, &[]), &native) < 1e-6);
        // The class it has may be said, and no other.
        assert!(relative_error(&map(&folder, &path, &x, &["--class", shown]), &native) < 1e-6);
        refuses(["explain", &path, &x, "--class", "1"], &["--class", "not an input of this file"]);
        refuses(["explain", &path, &x, "--alpha", "0.2"], &["--alpha", "not an input of this file"]);
    }
}

#[test]
fn a_class_is_fixed_by_the_name_explain_knows_it_by() {
    let folder = ScratchFolder::new();
    let (network, x) = (Small::default().save(&folder, "small.onnx"), samples(&folder));
    let labels = text(&folder.write("labels.txt", "ant\nbee\nred fox\nowl\nyak\n"));
    let named = ["--class", "Red_Fox", "--labels", &labels];
    let native = map(&folder, &network, &x, &[&["--method", "gradient"], &named[..]].concat());
    let path = compiled(&folder, &network, &[&["--method", "gradient"], &named[..]].concat());
    assert!(relative_error(&map(&folder, &path, &x, &[]), &native) < 1e-6);
    let said = succeeds(["inspect", &path]).out;
    assert!(said.contains("for class 2 (red fox)"), "{said}");
    assert!(relative_error(&map(&folder, &path, &x, &["--class", "red fox"]), &native) < 1e-6);
    // The names stay with the file.
    let said = succeeds(["explain", &path, &x, "--out", &text(&folder.path("pictures"))]).out;
    assert!(said.contains("red fox"), "{said}");
    let refused = [("--class", "fox", "did you mean 'red fox'"), ("--class", "5", "5 classes, 0 to 4")];
    for (option, class, reason) in refused {
        let path = text(&folder.path("none.onnx"));
        refuses(["compile", &network, "-o", &path, option, class, "--labels", &labels], &[reason]);
    }
}

#[test]
fn what_was_compiled_is_not_compiled_again() {
    let folder = ScratchFolder::new();
    let network = Small::default().save(&folder, "small.onnx");
    let path = compiled(&folder, &network, &[]);
    let again = folder.path("again.onnx").display().to_string();
    refuses(["compile", &path, "--method", "gradcam", "-o", &again], &["holds maps already", "--methods"]);
    assert!(!folder.path("again.onnx").exists());
}

#[test]
fn what_was_settled_cannot_be_chosen_again() {
    let folder = ScratchFolder::new();
    let (network, x) = (Small::default().save(&folder, "small.onnx"), samples(&folder));
    let path = compiled(&folder, &network, &[]);
    let choices = [["--method", "gradient"], ["--layer", "x"], ["--stream", "h"], ["--set", "alpha=0.2"]];
    for [option, value] in choices {
        refuses(
            ["explain", &path, &x, option, value],
            &["no such map", "was settled when this file was compiled", "--method splitcam --layer conv"],
        );
    }
    refuses(["explain", &path, &x, "--by-layer"], &["--by-layer", "finished maps"]);
    refuses(["explain", &path, &x, "--size", "input"], &["finished", "settled"]);
}

/// Two outputs of one name could not be asked for, and two names of one map would only cost time.
#[test]
fn a_map_is_asked_for_once() {
    let folder = ScratchFolder::new();
    let network = Small::default().save(&folder, "small.onnx");
    let path = text(&folder.path("explained.onnx"));
    let twice: [(&[&str], &[&str]); 5] = [
        (&["--methods", "gradcam,gradcam"], &["'gradcam'", "twice at 'relu:out'"]),
        (&["--methods", "gradient,gradient"], &["'gradient'", "twice at 'input'"]),
        (&["--methods", "gradcam", "--layers", "conv,conv"], &["'gradcam'", "twice at 'conv'"]),
        (&["--methods", "splitcam,splitcam:stream=g"], &["'splitcam'", "twice"]),
        (&["--methods", "splitcam:alpha=0.25,splitcam:alpha=.25"], &["'splitcam:alpha=0.25'", "twice"]),
    ];
    for (words, said) in twice {
        refuses([&["compile", &network, "-o", &path][..], words].concat(), said);
    }
    let baseline = npy::write(&numbers(&[1, 3, SIDE, SIDE], 5));
    let [one, two, third] = ["one/b.npy", "two/b.npy", "two/c.npy"].map(|name| {
        std::fs::create_dir_all(folder.path(name).parent().unwrap()).unwrap();
        text(&folder.write(name, &baseline))
    });
    let with = |second: &str| format!("deeplift:baseline={one},deeplift:baseline={second}");
    let words = ["compile", &network, "-o", &path, "--methods"];
    refuses(
        [&words[..], &[&with(&two)]].concat(),
        &[&one, &two, "'deeplift:baseline=b.npy'", "another name"],
    );
    assert!(!Path::new(&path).exists());
    succeeds([&words[..], &[&with(&third)]].concat());
    let outputs =
        import_report(&path).read.outputs().iter().map(|output| output.name.clone()).collect::<Vec<_>>();
    for file in ["b", "c"] {
        let wanted = format!("saliency/deeplift:baseline={file}.npy/input");
        assert!(outputs.contains(&wanted), "{wanted} is not in {outputs:?}");
    }
}

/// Whatever a file holds can be asked for in the words it was compiled by.
#[test]
fn one_map_of_several_is_picked_by_what_it_is() {
    let folder = ScratchFolder::new();
    let (network, x) = (Small::default().save(&folder, "small.onnx"), samples(&folder));
    let methods = "splitcam,splitcam:stream=h,gradcam";
    let path = compiled(&folder, &network, &["--methods", methods, "--layers", "conv,conv:out"]);
    let read = import_report(&path).read;
    let outputs: Vec<&str> = read.outputs().iter().map(|output| output.name.as_str()).collect();
    for method in ["splitcam", "splitcam:stream=h", "gradcam"] {
        for layer in ["conv", "conv:out"] {
            let output = format!("saliency/{method}/{layer}");
            assert!(outputs.contains(&&*output), "{output} is not in {outputs:?}");
        }
    }
    let picks: [&[&str]; 4] = [
        &["--method", "gradcam", "--layer", "conv"],
        &["--method", "splitcam:stream=h", "--layer", "conv"],
        &["--stream", "g", "--layer", "conv:out"],
        &["--method", "splitcam", "--stream", "h", "--layer", "conv:out", "--alpha", "0.1"],
    ];
    for words in picks {
        let found = map(&folder, &path, &x, words);
        assert!(relative_error(&found, &map(&folder, &network, &x, words)) < 1e-6, "{words:?}");
    }
    let path_at_image = text(&folder.path("image.onnx"));
    succeeds(["compile", &network, "--methods", "gradient,gradcam", "-o", &path_at_image]);
    let gradient = map(&folder, &network, &x, &["--method", "gradient"]);
    let found = map(&folder, &path_at_image, &x, &["--layer", "input"]);
    assert!(relative_error(&found, &gradient) < 1e-6);
    let (out, raw) = (text(&folder.path("all")), text(&folder.path("all.npy")));
    succeeds(["explain", &path, &x, "--layer", "conv", "--out", &out, "--raw", &raw]);
    let written: Vec<String> = folder.names().into_iter().filter(|name| name.starts_with("all.")).collect();
    assert_eq!(written.len(), 3, "{written:?}");
}

/// Through our own engine nothing but rounding may differ, whatever the method, for other samples and classes than any
/// the compiler could have seen.
#[test]
fn slow_compiled_maps_are_the_native_ones() {
    let folder = ScratchFolder::new();
    let small = Small::default().save(&folder, "small.onnx");
    let golden = text(&model("resnet/torchscript-7.onnx"));
    let shape = Model::open(&golden).unwrap().sample_shape().unwrap();
    let other = numbers(&[&[3], &*shape].concat(), 5);
    let other = text(&folder.write("other.npy", npy::write(&other)));
    for (network, x) in [(small, samples(&folder)), (golden, other)] {
        for method in methods(true) {
            let given = ["--class", "1", "--class", "0", "--class", "2", "--precision", "f64"];
            let native = map(&folder, &network, &x, &[&["--method", method], &given[..]].concat());
            for opset in ["13", "26"] {
                let path = compiled(&folder, &network, &["--method", method, "--opset", opset]);
                let error = relative_error(&map(&folder, &path, &x, &given), &native);
                assert!(error < 1e-6, "{network} {method} at operator set {opset}: {error:e}");
            }
        }
    }
}

#[test]
fn the_class_and_alpha_are_chosen_at_run_time() {
    let folder = ScratchFolder::new();
    let (network, x) = (Small::default().save(&folder, "small.onnx"), samples(&folder));
    let path = compiled(&folder, &network, &["--method", "splitgrad", "--layer", "x"]);
    let grad = ["--method", "splitgrad", "--layer", "x"];
    let choices: [&[&str]; 4] =
        [&[], &["--class", "3"], &["--alpha", "0.1"], &["--class", "4", "--alpha", "0"]];
    let mut seen: Vec<Tensor> = Vec::new();
    for words in choices {
        let native = map(&folder, &network, &x, &[&grad[..], words].concat());
        let found = map(&folder, &path, &x, words);
        assert!(relative_error(&found, &native) < 1e-6, "{words:?}");
        assert!(seen.iter().all(|other| relative_error(other, &found) > 1e-3), "{words:?} changes nothing");
        seen.push(found);
    }
    let last = (CLASSES - 1).to_string();
    refuses(["explain", &path, &x, "--class", "99"], &["99", &last]);
}

/// No file can raise an error, but what it looks up in a table has to be there, and what is no number is seen.
#[test]
fn what_is_out_of_range_at_run_time_gives_no_map() {
    let folder = ScratchFolder::new();
    let network = Small::default().save(&folder, "small.onnx");
    let path = compiled(&folder, &network, &["--method", "splitgrad", "--layer", "x"]);
    let found = import_report(&path);
    let graph = found.graph.unwrap();
    let run = |class: i64, alpha: f32| {
        let given = |name: &str| match name {
            "class" => Tensor::vector(vec![class]),
            "alpha" => Tensor::scalar(alpha),
            other => match found.defaults.iter().find(|(input, _)| input == other) {
                Some((_, default)) => default.clone(),
                None => numbers(&[1, 3, SIDE, SIDE], 17),
            },
        };
        let inputs = graph.inputs().iter().map(|&id| given(&graph.node(id).label.tensor));
        Cpu::default().compile(&graph).unwrap().run(&inputs.collect::<Vec<_>>())
    };
    let map = |class: i64, alpha: f32| run(class, alpha).unwrap().swap_remove(2).to_f32();
    for (class, alpha) in [(-1, 0.4), (0, 0.0), (CLASSES as i64 - 1, 1.0)] {
        assert!(map(class, alpha).iter().all(|value| value.is_finite()), "{class} {alpha}");
    }
    for alpha in [-0.1, 1.5, f32::NAN] {
        assert!(map(1, alpha).iter().all(|value| value.is_nan()), "{alpha}");
    }
    // A class above the last one is taken for the last, and said to be none.
    let outputs = |class: i64| run(class, 0.4).unwrap();
    let last = CLASSES as i64 - 1;
    for (class, is_one) in [(-1, true), (0, true), (last, true), (last + 1, false), (i64::MAX, false)] {
        let found = outputs(class);
        assert_eq!(found.last().unwrap().to_f64()[0] == 1.0, is_one, "{class}");
        if !is_one {
            assert_eq!(found[1].to_f64()[0], last as f64);
            assert_eq!(found[2].to_f32(), outputs(last)[2].to_f32());
        }
    }
}

/// Numbers that only decide between others are seen too.
#[test]
fn a_theta_or_a_limit_that_is_out_of_range_gives_no_map() {
    let folder = ScratchFolder::new();
    let network = text(&crates_folder().join("monosplit/assets/pets-small.onnx"));
    let path = compiled(
        &folder,
        &network,
        &["--method", "splitlrp", "--layer", "layer4.2.conv2", "--precision", "f32"],
    );
    let found = import_report(&path);
    let graph = found.graph.unwrap();
    let names: Vec<&str> = found.defaults.iter().map(|(name, _)| name.as_str()).collect();
    assert!(names.contains(&"limit") && names.contains(&"theta"), "{names:?}");
    let compiled = Cpu::default().compile(&graph).unwrap();
    let run = |changed: &str, value: f32| {
        let given = |name: &str| match found.defaults.iter().find(|(input, _)| input == name) {
            Some(_) if name == changed => Tensor::scalar(value),
            Some((_, default)) => default.clone(),
            None => numbers(&[1, 3, 128, 128], 17),
        };
        let inputs = graph.inputs().iter().map(|&id| given(&graph.node(id).label.tensor));
        let outputs = compiled.run(&inputs.collect::<Vec<_>>()).unwrap();
        (outputs[0].to_f32().into_vec(), outputs[2].to_f32().into_vec())
    };
    let (scores, plain) = run("", 0.0);
    assert!(plain.iter().all(|value| value.is_finite()));
    for (name, value) in
        [("limit", -1.0), ("limit", f32::NAN), ("theta", 0.0), ("theta", 2.0), ("theta", f32::NAN)]
    {
        let (found, map) = run(name, value);
        assert!(map.iter().all(|value| value.is_nan()), "{name} {value}");
        assert_eq!(found, scores);
    }
}

#[test]
fn relevance_through_attention_is_written_into_files() {
    let folder = ScratchFolder::new();
    let x = text(&model("transformer/x.npy"));
    for file in ["torchscript-17.onnx", "dynamo-18.onnx"] {
        let network = text(&model("transformer").join(file));
        for words in [&["--method", "attn-lrp"][..], &["--method", "attn-lrp", "--set", "gamma=0.25"]] {
            let words = [words, &["--precision", "f64"]].concat();
            let native = map(&folder, &network, &x, &words);
            let path = compiled(&folder, &network, &words);
            let error = relative_error(&map(&folder, &path, &x, &[]), &native);
            assert!(error < 1e-6, "{file}: {error:e}");
        }
    }
}

/// What a file reads or returns of its own has one name in every compiled file, whether its method reads it or not.
#[test]
fn a_network_whose_input_has_a_name_of_the_file_s_own_is_refused() {
    let folder = ScratchFolder::new();
    let path = text(&folder.path("explained.onnx"));
    for input in [
        "class",
        "alpha",
        "theta",
        "limit",
        "baseline",
        "logits",
        "explained_class",
        "class_in_range",
        "target_cell",
    ] {
        let network = Small { input, ..Small::default() }.save(&folder, "small.onnx");
        for words in [["--method", "splitcam"], ["--method", "gradient"], ["--class", "1"]] {
            let all = [&["compile", &network, "-o", &path][..], &words[..]].concat();
            refuses(all, &[&format!("'{input}'"), "another name"]);
        }
    }
    assert!(!Path::new(&path).exists());
}

/// LRP's box is that of the values that pictures have, as `explain` knows them.
#[test]
fn the_box_of_pictures_is_the_one_explain_takes() {
    let folder = ScratchFolder::new();
    let network = text(&crates_folder().join("monosplit/assets/pets-small.onnx"));
    let picture = text(&crates_folder().join("monosplit/assets/chelsea.png"));
    let lrp = ["--method", "lrp", "--precision", "f64"];
    let native = map(&folder, &network, &picture, &lrp);
    let path = compiled(&folder, &network, &[&lrp[..], &["--preset", "imagenet"]].concat());
    assert!(relative_error(&map(&folder, &path, &picture, &[]), &native) < 1e-6);
    let said = |words: &[&str]| {
        let path = text(&folder.path("other.onnx"));
        succeeds([&["compile", &network, "-o", &path][..], words].concat()).errors
    };
    let remark = "nothing says how pictures are preprocessed";
    assert!(said(&["--method", "lrp"]).contains(remark));
    for words in [
        &["--method", "lrp:low=-2,high=2"][..],
        &["--method", "lrp", "--preset", "unit"],
        &["--method", "gradcam"],
    ] {
        assert!(!said(words).contains(remark), "{words:?}");
    }
}

/// Every file a network is read from is one that is not written over.
#[test]
fn external_data_are_not_written_over() {
    let folder = ScratchFolder::new();
    for name in ["torchscript-11.onnx", "torchscript-11.onnx.data"] {
        folder.write(name, std::fs::read(model(&format!("resnet/{name}"))).unwrap());
    }
    let [network, data] =
        ["torchscript-11.onnx", "torchscript-11.onnx.data"].map(|name| text(&folder.path(name)));
    let before = std::fs::read(&data).unwrap();
    let other = text(&folder.path("other.onnx"));
    refuses(["compile", &network, "-o", &data], &["would be replaced", "another file"]);
    refuses(["split", &network, "--out-g", &data, "--out-h", &other], &["would be replaced", "another file"]);
    assert_eq!(std::fs::read(&data).unwrap(), before);
    let labels = text(&folder.write("labels.txt", "ant\nbee\n"));
    let joined = format!("--labels={labels}");
    refuses(["compile", &network, &joined, "-o", &labels], &["would be replaced", "another file"]);
}

/// Nor is a file that only an option of a method names, or only the defaults.
#[test]
fn whatever_is_read_is_not_written_over() {
    let folder = ScratchFolder::new();
    let network = Small::default().save(&folder, "small.onnx");
    let baseline = text(&folder.write("b.npy", npy::write(&numbers(&[1, 3, SIDE, SIDE], 5))));
    let before = std::fs::read(&baseline).unwrap();
    let method = format!("deeplift:baseline={baseline}");
    let set = format!("baseline={baseline}");
    let x = samples(&folder);
    let commands: [&[&str]; 4] = [
        &["compile", &network, "--method", &method, "-o", &baseline],
        &["compile", &network, "--methods", &method, "-o", &baseline],
        &["compile", &network, "--method", "deeplift", "--set", &set, "-o", &baseline],
        &["explain", &network, &x, "--method", &method, "--raw", &baseline],
    ];
    for words in commands {
        refuses(words.iter().copied(), &["would be replaced", "another file"]);
        assert_eq!(std::fs::read(&baseline).unwrap(), before);
    }
    let labels = text(&folder.write("labels.txt", "ant\nbee\ncat\ndog\nelk\n"));
    let before = std::fs::read(&labels).unwrap();
    let defaults = text(&folder.write("defaults.toml", format!("labels = '{labels}'\n")));
    for output in [&labels, &defaults] {
        let words = ["compile", &network, "-o", output];
        let answer = monosplit_with(&[("MONOSPLIT_CONFIG", defaults.as_ref())], words);
        assert_eq!(answer.code, 2, "{}", answer.errors);
        assert!(answer.errors.contains("would be replaced"), "{}", answer.errors);
    }
    assert_eq!(std::fs::read(&labels).unwrap(), before);
}

/// Weights that are derived from others are nobody's parameters.
#[test]
fn a_compiled_file_has_the_parameters_of_its_network() {
    let folder = ScratchFolder::new();
    let network = text(&crates_folder().join("monosplit/assets/pets-small.onnx"));
    let parameters = |file: &str| {
        let said = succeeds(["inspect", file]).out;
        said.lines().find(|line| line.starts_with("parameters")).map(str::to_owned).unwrap()
    };
    let own = parameters(&network).split_whitespace().last().map(str::to_owned);
    for method in ["splitcam", "splitgrad", "lrp", "guided-backprop"] {
        for precision in ["f32", "f64"] {
            let path = compiled(&folder, &network, &["--method", method, "--precision", precision]);
            assert_eq!(parameters(&path).split_whitespace().last().map(str::to_owned), own, "{method}");
        }
    }
}

#[test]
fn run_gives_the_network_s_own_prediction() {
    let folder = ScratchFolder::new();
    let (network, x) = (Small::default().save(&folder, "small.onnx"), samples(&folder));
    let path = compiled(&folder, &network, &["--methods", "splitcam,gradient"]);
    let said = |file: &str| succeeds(["run", file, &x]).out;
    assert_eq!(said(&path), said(&network));
}

/// Weights are stored once: what is added are nodes.
#[test]
fn slow_a_compiled_file_is_hardly_larger_than_the_network() {
    let folder = ScratchFolder::new();
    let network = text(&crates_folder().join("monosplit/assets/pets-small.onnx"));
    let plain = Model::open(&network).unwrap();
    let plain = onnx::write(plain.graph(), &ExportOptions::default()).unwrap().len() as f64;
    let choices: [&[&str]; 2] = [&[], &["--layer", "x", "--precision", "f64"]];
    for method in methods(true) {
        for words in choices {
            let path = compiled(&folder, &network, &[&["--method", method], words].concat());
            let growth = std::fs::metadata(path).unwrap().len() as f64 / plain - 1.0;
            assert!(growth < 0.02, "{method} {words:?} adds {:.2} %", 100.0 * growth);
        }
    }
}

#[test]
fn what_is_refused_leaves_no_file() {
    let folder = ScratchFolder::new();
    let network = Small::default().save(&folder, "small.onnx");
    let path = text(&folder.path("explained.onnx"));
    let before = folder.names();
    let all = |words: &[&'static str]| {
        ["compile", &network, "-o", &path]
            .into_iter()
            .chain(words.iter().copied())
            .map(str::to_owned)
            .collect()
    };
    for method in methods(false) {
        let words: Vec<String> = all(&["--method", method]);
        let obstacle = match method {
            "eigencam" => "singular value decomposition",
            "random" | "mask" => "does not run the network",
            _ => "runs the network many times",
        };
        refuses(words, &[obstacle, "cannot be written as one graph"]);
    }
    let refused: [(&[&str], &str); 17] = [
        (&["--methods", "splitcam,gradcam", "--alpha", "0.3"], "splitcam:alpha=0.3"),
        (&["--precision", "tf32"], "f32 or f64"),
        (&["--precision", "f16"], "--fp16"),
        (&["--opset", "-1"], "-1"),
        (&["--methods", "splitcam@stem"], "stem"),
        (&["--method", "splitcam@stem"], "--layer stem"),
        (&["--method", "rise", "--copies", "0"], "the batch size is 0"),
        (&["--methods", "occlusion,integrated-gradients:baseline=1"], "takes it to be 0 and this one 1"),
        (&["--precision", "bf16"], "f32 or f64"),
        (&["--opset", "12"], "operator set 12"),
        (&["--class", "99"], "there is no class 99"),
        (&["--layer", "nowhere"], "nowhere"),
        (&["--methods", "splitcam:alpha=0.1,splitgrad:alpha=0.2"], "takes it to be 0.1 and 'splitgrad' 0.2"),
        // What one leaves at its default, another must not change.
        (&["--methods", "splitcam,splitgrad:alpha=1"], "'splitcam' takes it to be 0.4 and 'splitgrad' 1"),
        (&["--methods", "splitgrad:theta=0.5,splitstream"], "give both the same"),
        (&["--precision", "f64", "--methods", "splitlrp:limit=100,splitstream"], "give both the same"),
        (&["--layers", "conv,"], "an empty one"),
    ];
    refuses(["compile", &network, "-o", &network], &["would be replaced", "another file"]);
    for (words, reason) in refused {
        let words: Vec<String> = all(words);
        refuses(words, &[reason]);
    }
    assert_eq!(folder.names(), before);
}

#[test]
fn a_network_for_batches_of_one_size_is_compiled_for_any_if_it_can_be() {
    let folder = ScratchFolder::new();
    let x = samples(&folder);
    for (samples, name) in [(1, "one.onnx"), (4, "four.onnx")] {
        let network = Small { samples: Dim::Fixed(samples), ..Small::default() }.save(&folder, name);
        let path = text(&folder.path("open.onnx"));
        let said =
            succeeds(["compile", &network, "--method", "gradient", "--layer", "conv", "-o", &path]).errors;
        assert!(said.contains("takes any number of samples"), "{said}");
        let found = import_report(&path).read;
        assert_eq!(found.node(found.inputs()[0]).shape.dims()[0], Dim::Batch(1));
        let words = ["--method", "gradient", "--layer", "conv", "--class", "2"];
        let (own, shipped) = (map(&folder, &network, &x, &words), map(&folder, &path, &x, &["--class", "2"]));
        assert!(relative_error(&shipped, &own) < 1e-6);
    }
    // One that adds something to the first sample alone means the size it says.
    let mut g = Graph::new();
    let whole = g.input("x", Shape::fixed(&[2, 3, SIDE, SIDE]), Kind::Float);
    let first = g.add(Op::Slice { axis: 0, start: 0, step: 1, length: 1 }, &[whole]).unwrap();
    let sum = g.plus(whole, first).unwrap();
    let scores = g.reduced(monosplit::graph::op::Reduction::Mean, sum, &[2, 3], false).unwrap();
    g.output("scores", scores);
    let bytes = onnx::write(&g, &ExportOptions::default()).unwrap();
    let network = text(&folder.write("pair.onnx", bytes));
    let path = text(&folder.path("pair-explained.onnx"));
    let said = succeeds(["compile", &network, "--method", "gradient", "-o", &path]).errors;
    assert!(said.contains("batches of 2 and no others"), "{said}");
}

/// A network that standardises a table itself was taken for one of pictures, which no table fits.
#[test]
fn issue_29_a_network_that_standardises_its_table_is_compiled() {
    let folder = ScratchFolder::new();
    let mut g = Graph::new();
    let x = g.input("x", Shape::batched(&[3]), Kind::Float);
    let [mean, deviation] = [[40.0, 170.0, 70.0], [20.0, 10.0, 15.0]].map(|row| Tensor::vector(row.to_vec()));
    let (mean, deviation) = (g.constant(mean), g.constant(deviation));
    let centred = g.minus(x, mean).unwrap();
    let standard = g.over(centred, deviation).unwrap();
    let weights = g.constant(Tensor::new([3, 2], vec![1.0, -2.0, 0.5, 3.0, -1.0, 2.0]).unwrap());
    let scores = g.add(Op::MatMul { trans_a: false, trans_b: false }, &[standard, weights]).unwrap();
    g.output("scores", scores);
    let network = text(&folder.write("table.onnx", onnx::write(&g, &ExportOptions::default()).unwrap()));
    let path = text(&folder.path("explained.onnx"));
    for method in ["gradient", "lrp"] {
        succeeds(["compile", &network, "--method", method, "-o", &path]);
    }
    let words = ["compile", &network, "--preset", "imagenet", "-o", &path];
    refuses(words, &["input 'x' has the shape [N, 3], which no picture fits"]);
}

#[test]
fn what_of_the_network_a_compiled_file_leaves_out_is_said() {
    let folder = ScratchFolder::new();
    let path = text(&folder.path("explained.onnx"));
    let softmax =
        Small { end: Some(Op::Softmax { axis: 1 }), ..Small::default() }.save(&folder, "softmax.onnx");
    let said = succeeds(["compile", &softmax, "-o", &path]).errors;
    assert!(said.contains("what enters it"), "{said}");
    let branched = Small { branch: true, ..Small::default() }.save(&folder, "branched.onnx");
    let said = succeeds(["compile", &branched, "-o", &path]).errors;
    assert!(said.contains("are the network's output '") && said.contains("it leaves out '"), "{said}");
}
