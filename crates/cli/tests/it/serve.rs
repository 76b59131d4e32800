//! `monosplit serve`, driven as a user drives it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use monosplit::graph::npy;
use monosplit_testing::{ScratchFolder, crates_folder};
use serde_json::{Value, json};

use crate::program::refuses;

fn asset(name: &str) -> std::path::PathBuf {
    crates_folder().join("monosplit/assets").join(name)
}

/// A server that ends with this value.
struct Served {
    program: Child,
    host: String,
    token: String,
}

impl Served {
    fn new(folder: &Path, arguments: &[&str]) -> Self {
        let mut program = Command::new(env!("CARGO_BIN_EXE_monosplit"))
            .args(["serve", "--attached"])
            .args(arguments)
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut address = String::new();
        BufReader::new(program.stdout.take().unwrap()).read_line(&mut address).unwrap();
        let (host, token) = address.trim().strip_prefix("http://").unwrap().split_once('/').unwrap();
        Served { program, host: host.to_owned(), token: token.trim_end_matches('/').to_owned() }
    }

    /// The content of a file.
    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.host).unwrap();
        write!(stream, "GET /{}/{path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.token, self.host).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, content) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{path}: {head}");
        content.to_owned()
    }

    /// The header of the answer and the bytes behind it.
    fn ask(&self, request: &Value) -> (Value, Vec<u8>) {
        let text = request.to_string();
        let mut stream = TcpStream::connect(&self.host).unwrap();
        let head = format!(
            "POST /{}/ask?session=abcdefgh HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n\r\n",
            self.token,
            self.host,
            4 + text.len()
        );
        let body = [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
        stream.write_all(&[head.as_bytes(), &body].concat()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let start = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        let length = u32::from_le_bytes(answer[start..start + 4].try_into().unwrap()) as usize;
        let header: Value = serde_json::from_slice(&answer[start + 4..start + 4 + length]).unwrap();
        assert_eq!(header["error"], Value::Null, "{request}");
        (header, answer.split_off(start + 4 + length))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// The numbers of the first map of an answer.
fn map((header, bytes): &(Value, Vec<u8>)) -> Vec<f32> {
    let arrays = header["arrays"].as_array().unwrap();
    let array = arrays.iter().find(|array| array["name"] == "values 0").unwrap();
    let number = |key: &str| array[key].as_u64().unwrap() as usize;
    let values = &bytes[number("start")..number("start") + number("bytes")];
    values.chunks(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect()
}

/// The command line that the page shows, pasted into a shell, writes the numbers that the page drew.
#[cfg(unix)]
#[test]
fn the_command_line_of_the_page_gives_the_same_map() {
    let folder = ScratchFolder::new();
    for name in ["pets-small.onnx", "chelsea.png"] {
        std::fs::copy(asset(name), folder.path(name)).unwrap();
    }
    let served = Served::new(&folder.path(""), &["pets-small.onnx", "chelsea.png"]);
    served.ask(&json!({"type": "open-picture", "name": "chelsea.png", "gallery": 0}));
    let questions = [
        (
            json!({"class": 11, "alpha": 0.25}),
            json!({"method": "splitcam:stream=h", "layer": "layer3.2.conv2"}),
        ),
        (json!({"class": 5, "rival": 11}), json!({"method": "gradcam"})),
        (json!({"preset": "unit"}), json!({"method": "lrp"})),
    ];
    for (mut question, choice) in questions {
        let mut subject = json!({"picture": 0});
        if let Some(preset) = question.as_object_mut().unwrap().remove("preset") {
            subject["preset"] = preset;
        }
        question["subject"] = subject;
        let mut explain = question.clone();
        explain["type"] = "explain".into();
        explain["maps"] = json!([choice]);
        let drawn = map(&served.ask(&explain));
        question["type"] = "lines".into();
        question["map"] = choice;
        let (lines, _) = served.ask(&question);
        let line = lines["command"].as_str().unwrap();
        let rest = line.strip_prefix("monosplit").unwrap();
        let pasted = format!("\"$MONOSPLIT\"{rest} --quiet");
        let output = Command::new("sh")
            .args(["-c", &pasted])
            .env("MONOSPLIT", env!("CARGO_BIN_EXE_monosplit"))
            .current_dir(folder.path(""))
            .output()
            .unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        let written = npy::read(&std::fs::read(folder.path("map.npy")).unwrap()).unwrap();
        assert_eq!(&*written.to_f32(), &drawn[..], "{line}");
    }
}

/// A run store whose network and pictures are elsewhere still shows its tables and its report.
#[test]
fn a_run_store_is_served_with_its_tables_and_its_report() {
    let folder = ScratchFolder::new();
    let store = crates_folder().join("../fuzz/seeds/small.sqlite");
    let served = Served::new(&folder.path(""), &[store.to_str().unwrap()]);
    let (state, _) = served.ask(&json!({"type": "state"}));
    assert_eq!((&state["run"], &state["network"]), (&json!(true), &Value::Null));
    let tables: Value = serde_json::from_str(&served.get("run.json")).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_monosplit"))
        .args(["results", store.to_str().unwrap(), "--json"])
        .output()
        .unwrap();
    let means: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let mut compared = 0;
    for stage in tables["stages"].as_array().unwrap() {
        for member in stage["members"].as_array().unwrap() {
            for found in member["means"].as_array().unwrap().iter().filter_map(Value::as_f64) {
                let is_same =
                    |mean: &&Value| mean["mean"].as_f64().is_some_and(|mean| (mean - found).abs() < 1e-12);
                assert!(means.iter().any(|mean| is_same(&mean)), "{member}");
                compared += 1;
            }
        }
    }
    assert!(compared > 0);
    assert!(served.get("report/").to_lowercase().contains("<!doctype html>"));
    let none = "there is no experiment 'none'";
    refuses(["serve", "--attached", store.to_str().unwrap(), "--experiment", "none"], &[none]);
    refuses(["serve", "--attached", "--experiment", "none"], &["give the store first"]);
}

#[test]
fn the_server_ends_with_its_input() {
    let folder = ScratchFolder::new();
    let mut served = Served::new(&folder.path(""), &[]);
    let (state, _) = served.ask(&json!({"type": "state"}));
    assert_eq!(state["network"], Value::Null);
    assert!(state["methods"].as_array().unwrap().len() > 20);
    drop(served.program.stdin.take());
    assert!(served.program.wait().unwrap().success());
}

#[test]
fn what_cannot_be_shown_is_said_in_one_line() {
    let folder = ScratchFolder::new();
    let served = Served::new(&folder.path(""), &[]);
    let port = served.host.split_once(':').unwrap().1;
    let damaged = folder.write("damaged.onnx", &std::fs::read(asset("pets-small.onnx")).unwrap()[..1000]);
    let array = folder.write("x.npy", npy::write(&monosplit::Tensor::vector(vec![1f32])));
    let network = asset("pets-small.onnx");
    let cases: [(&[&str], &str); 7] = [
        (&["--port", port], "another one may be free"),
        (&[damaged.to_str().unwrap()], "damaged.onnx"),
        (&["nothing.onnx"], "nothing.onnx"),
        (&[network.to_str().unwrap(), array.to_str().unwrap()], "pictures, not arrays"),
        (&["--port", "99999"], "99999"),
        (&["--in-browser=nowhere"], "rustup target add wasm32-unknown-unknown"),
        (&["--in-browser", "--threads", "2"], "--in-browser"),
    ];
    for (arguments, said) in cases {
        refuses([&["serve", "--attached"], arguments].concat(), &[said]);
    }
}
