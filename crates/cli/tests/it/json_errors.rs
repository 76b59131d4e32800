//! What programs read where a command fails, and the columns of exported rows (issue 27, point 12).

use std::path::Path;

use crate::evaluate::Bench;
use crate::json::assert_json;
use crate::program::{chelsea, monosplit, succeeds};

/// Every command with `--json` answers a mistake with an object on its output, and as before with a line and exit code 2.
#[test]
fn issue_27_with_json_an_error_is_an_object_on_the_output() {
    let picture = chelsea().display().to_string();
    let cases: [(&[&str], &str); 9] = [
        (&["run", "absent.onnx", &picture, "--json"], "io"),
        (&["explain", "absent.onnx", &picture, "--json"], "io"),
        (&["inspect", "absent.onnx", "--json"], "io"),
        (&["verify", "absent.onnx", &picture, "--json"], "io"),
        (&["compile", "absent.onnx", "-o", "never.onnx", "--json"], "io"),
        (&["evaluate", "absent.toml", "--json"], "io"),
        (&["results", "absent.sqlite", "--json"], "argument"),
        (&["report", "absent.sqlite", "-o", "never", "--json"], "argument"),
        (&["run", "--json", "--no-such-option"], "usage"),
    ];
    for (words, kind) in cases {
        let run = monosplit(words);
        assert_json(&run.out);
        assert!(run.out.contains("\"error\"") && run.out.contains("\"message\""), "{words:?}: {}", run.out);
        assert!(run.out.contains(&format!("\"kind\": \"{kind}\"")), "{words:?}: {}", run.out);
        run.refused(&[]);
    }
    let hinted = monosplit(["results", "absent.sqlite", "--json"]);
    assert!(hinted.out.contains("\"hint\": \"`monosplit evaluate` makes one\""), "{}", hinted.out);
    assert!(monosplit(["results", "absent.sqlite"]).out.is_empty());
}

#[test]
fn issue_27_rows_have_the_same_columns_in_every_format() {
    let bench = Bench::new();
    let (file, store) = (bench.path("experiment.toml"), bench.path("columns.sqlite"));
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("\"max-sensitivity:samples=2\", ", "")).unwrap();
    succeeds([Path::new("evaluate"), &file, Path::new("--store"), &store]);
    let written = |name: &str| {
        let path = bench.path(name);
        succeeds([Path::new("results"), &store, Path::new("-o"), &path]);
        std::fs::read(path).unwrap()
    };
    let csv = String::from_utf8(written("rows.csv")).unwrap();
    let json = String::from_utf8(written("rows.json")).unwrap();
    let parquet = written("rows.parquet");
    assert_json(&json);
    let columns: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
    assert!(
        columns.contains(&"undefined") && columns.contains(&"options") && columns.len() == 21,
        "{columns:?}"
    );
    let rows = csv.lines().count() - 1;
    for column in &columns {
        assert_eq!(json.matches(&format!("\"{column}\": ")).count(), rows, "{column}");
        assert!(parquet.windows(column.len()).any(|bytes| bytes == column.as_bytes()), "{column}");
    }
    assert!(
        csv.contains("resize=146 filter=bilinear crop=128x128") && !csv.contains("Preprocess {"),
        "{csv}"
    );
    // Every row says what computed it.
    assert_eq!(json.matches("\"engine\": \"cpu\"").count(), rows);
    assert_eq!(json.matches("\"instructions\": \"\"").count(), 0);
    let means = succeeds([Path::new("results"), &store, Path::new("--json")]).out;
    let keys = [
        "model",
        "model_hash",
        "preprocessing",
        "method",
        "title",
        "options",
        "layer",
        "absolute",
        "metric",
        "part",
        "seed",
    ];
    for key in keys {
        assert!(columns.contains(&key) && means.contains(&format!("\"{key}\": ")), "{key}");
    }
    assert!(means.contains("\"absolute\": true") && means.contains("\"undefined_images\": "), "{means}");
}
