//! The server, spoken to over bare TCP: what it refuses, and what becomes of jobs that nobody waits for.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use monosplit::{Model, assets};
use monosplit_explorer::{
    BrowserPage, Exhibit, ExhibitedRun, RunMember, RunStage, RunTables, RunningServer, Server,
};
use serde_json::{Value, json};

/// Longer than anything here takes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(120);
const SESSION: &str = "0123456789abcdef";

struct Served {
    server: RunningServer,
    port: u16,
    token: String,
}

impl Served {
    fn new() -> Self {
        Served::with(Exhibit::default())
    }

    fn with(exhibit: Exhibit) -> Self {
        let server = Server::bind(0, exhibit).unwrap().start();
        let rest = server.address().strip_prefix("http://127.0.0.1:").unwrap().to_owned();
        let (port, token) = rest.split_once('/').unwrap();
        let (port, token) = (port.parse().unwrap(), token.trim_end_matches('/').to_owned());
        Served { server, port, token }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], self.port))).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream
    }

    /// Sends bytes and returns all that comes back.
    fn send(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = self.connect();
        stream.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        // The server may end the connection before all was read.
        let _ = stream.read_to_end(&mut answer);
        answer
    }

    fn head(&self, line: &str, more: &str) -> String {
        let line = line.replace("TOKEN", &self.token);
        format!("{line}\r\nHost: 127.0.0.1:{}\r\n{more}\r\n", self.port)
            .replace("PORT", &self.port.to_string())
    }

    fn ask_bytes(&self, session: &str, request: &Value, payload: &[u8]) -> Vec<u8> {
        let text = request.to_string();
        let mut body = (text.len() as u32).to_le_bytes().to_vec();
        body.extend(text.as_bytes());
        body.extend(payload);
        let line = format!("POST /TOKEN/ask?session={session} HTTP/1.1");
        let mut bytes = self.head(&line, &format!("Content-Length: {}\r\n", body.len())).into_bytes();
        bytes.extend(body);
        bytes
    }

    /// The header of the answer.
    fn ask(&self, session: &str, request: &Value, payload: &[u8]) -> Value {
        let answer = self.send(&self.ask_bytes(session, request, payload));
        assert!(
            answer.starts_with(b"HTTP/1.1 200"),
            "{}",
            String::from_utf8_lossy(&answer[..answer.len().min(200)])
        );
        let body = body_of(&answer);
        let length = u32::from_le_bytes(body[..4].try_into().unwrap()) as usize;
        serde_json::from_slice(&body[4..4 + length]).unwrap()
    }

    fn opened(&self, session: &str) {
        for (request, payload) in [
            (json!({"type": "open-network", "name": "pets-small.onnx"}), assets::PETS_SMALL),
            (json!({"type": "open-picture", "name": "chelsea.png"}), assets::CHELSEA),
        ] {
            assert_eq!(self.ask(session, &request, payload)["error"], Value::Null);
        }
    }

    fn wait_for_no_jobs(&self) {
        let start = Instant::now();
        while self.server.jobs() > 0 {
            assert!(start.elapsed() < TIMEOUT, "{} jobs go on", self.server.jobs());
            thread::sleep(Duration::from_millis(10));
        }
    }
}

fn body_of(answer: &[u8]) -> &[u8] {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    &answer[end + 4..]
}

/// Much work: a method that runs the network once for each of very many windows.
fn endless() -> Value {
    json!({"type": "explain", "subject": {"picture": 0}, "maps": [{"method": "occlusion:stride=1"}]})
}

fn explained(alpha: f64) -> Value {
    json!({"type": "explain", "subject": {"picture": 0}, "alpha": alpha, "maps": [{"method": "splitcam"}]})
}

#[test]
fn the_page_is_there_and_everything_it_names() {
    let served = Served::new();
    let page = served.send(served.head("GET /TOKEN/ HTTP/1.1", "").as_bytes());
    let text = String::from_utf8(page).unwrap();
    assert!(text.starts_with("HTTP/1.1 200") && text.contains("<title>monosplit explorer"));
    let names = monosplit_explorer::FILES.iter().map(|file| file.path);
    for name in names.chain(["pets-small.onnx", "chelsea.png"]) {
        let file = served.send(served.head(&format!("GET /TOKEN/{name} HTTP/1.1"), "").as_bytes());
        assert!(file.starts_with(b"HTTP/1.1 200") && !body_of(&file).is_empty(), "{name}");
    }
    // Without its own icon, which reports do not have, a browser asks for one that nobody told it of.
    let icon = served.send(served.head("GET /favicon.ico HTTP/1.1", "").as_bytes());
    assert!(icon.starts_with(b"HTTP/1.1 204") && body_of(&icon).is_empty());
    // Browsers keep to what the page needs, and apart from other pages.
    assert!(text.contains(
        "Cross-Origin-Opener-Policy: same-origin\r\nCross-Origin-Embedder-Policy: require-corp\r\n"
    ));
    assert!(text.contains("default-src 'none'") && text.contains("connect-src 'self'"));
}

#[test]
fn a_run_is_there_with_its_report_and_only_where_one_is_shown() {
    let without = Served::new();
    for name in ["run.json", "report/", "report/index.html"] {
        let answer = without.send(without.head(&format!("GET /TOKEN/{name} HTTP/1.1"), "").as_bytes());
        assert!(answer.starts_with(b"HTTP/1.1 404"), "{name}");
    }
    assert_eq!(without.ask(SESSION, &json!({"type": "state"}), &[])["run"], false);
    let member =
        RunMember { title: "SplitCAM".to_owned(), means: vec![None, Some(0.5)], ..RunMember::default() };
    let stage = RunStage { members: vec![member], ..RunStage::default() };
    let tables = RunTables { name: "pets".to_owned(), preset: None, stages: vec![stage] };
    let report = vec![
        ("index.html".to_owned(), b"<style></style>".to_vec()),
        ("table.svg".to_owned(), b"<svg/>".to_vec()),
    ];
    let mut exhibit = Exhibit::default();
    exhibit.run = Some(ExhibitedRun { tables, report });
    let served = Served::with(exhibit);
    assert_eq!(served.ask(SESSION, &json!({"type": "state"}), &[])["run"], true);
    let get = |name: &str| served.send(served.head(&format!("GET /TOKEN/{name} HTTP/1.1"), "").as_bytes());
    let found: Value = serde_json::from_slice(body_of(&get("run.json"))).unwrap();
    assert_eq!(found["stages"][0]["members"][0]["means"], json!([null, 0.5]));
    // Its styles stand in the page; scripts run in none of its files.
    let page = String::from_utf8(get("report/")).unwrap();
    assert!(page.ends_with("<style></style>") && page.contains("Content-Type: text/html"));
    assert!(page.contains("default-src 'none'; style-src 'unsafe-inline'") && !page.contains("script-src"));
    assert!(String::from_utf8(get("report/table.svg")).unwrap().contains("image/svg+xml"));
    assert!(get("report/../run.json").starts_with(b"HTTP/1.1 404"));
}

#[test]
fn whoever_is_not_meant_is_refused() {
    let served = Served::new();
    let head = |line: &str, more: &str| served.head(line, more).into_bytes();
    let elsewhere =
        |host: &str| format!("GET /{}/ HTTP/1.1\r\nHost: {host}\r\n\r\n", served.token).into_bytes();
    let post = |more: &str| head(&format!("POST /TOKEN/ask?session={SESSION} HTTP/1.1"), more);
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("no token", head("GET / HTTP/1.1", ""), "403"),
        ("another token", head(&format!("GET /{}/ HTTP/1.1", "0".repeat(32)), ""), "403"),
        ("a part of the token", head(&format!("GET /{}/ HTTP/1.1", &served.token[..31]), ""), "403"),
        ("the token without the slash", head("GET /TOKEN HTTP/1.1", ""), "403"),
        ("no host", format!("GET /{}/ HTTP/1.1\r\n\r\n", served.token).into_bytes(), "403"),
        ("another host", elsewhere("example.org"), "403"),
        ("another host on the same port", elsewhere(&format!("example.org:{}", served.port)), "403"),
        ("another port", elsewhere("127.0.0.1:1"), "403"),
        ("two hosts", head("GET /TOKEN/ HTTP/1.1", "Host: example.org\r\n"), "400"),
        ("another origin", post("Origin: http://example.org\r\nContent-Length: 0\r\n"), "403"),
        ("an origin that hides", post("Origin: null\r\nContent-Length: 0\r\n"), "403"),
        ("another port's origin", post("Origin: http://127.0.0.1:1\r\nContent-Length: 0\r\n"), "403"),
        (
            "another origin for a file",
            head("GET /TOKEN/chelsea.png HTTP/1.1", "Origin: http://example.org\r\n"),
            "403",
        ),
        ("another site", post("Sec-Fetch-Site: cross-site\r\nContent-Length: 0\r\n"), "403"),
        ("another method", head("PUT /TOKEN/ask HTTP/1.1", "Content-Length: 0\r\n"), "405"),
        ("OPTIONS, which asks for others", head("OPTIONS /TOKEN/ask HTTP/1.1", ""), "405"),
        ("another path", head("GET /TOKEN/../../etc/passwd HTTP/1.1", ""), "404"),
        ("an encoded path", head("GET /TOKEN/%2e%2e/Cargo.toml HTTP/1.1", ""), "404"),
        ("a picture that is not there", head("GET /TOKEN/pictures/0 HTTP/1.1", ""), "404"),
        ("a picture of no number", head("GET /TOKEN/pictures/-1 HTTP/1.1", ""), "404"),
        ("no HTTP", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n".to_vec(), "400"),
        ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), "400"),
        ("no length", post(""), "411"),
        ("chunks", post("Transfer-Encoding: chunked\r\n"), "411"),
        ("two lengths", post("Content-Length: 0\r\nContent-Length: 5\r\n"), "400"),
        ("a negative length", post("Content-Length: -1\r\n"), "400"),
        ("a length of no number", post("Content-Length: 1e9\r\n"), "400"),
        ("a length past every number", post(&format!("Content-Length: {}\r\n", "9".repeat(40))), "400"),
        ("a body too large", post("Content-Length: 99999999999\r\n"), "413"),
        ("an empty body", post("Content-Length: 0\r\n"), "400"),
        ("a head too long", head("GET /TOKEN/ HTTP/1.1", &format!("X: {}\r\n", "x".repeat(20_000))), "431"),
        ("too many lines", head("GET /TOKEN/ HTTP/1.1", &"X: x\r\n".repeat(100)), "431"),
        ("no session", head("POST /TOKEN/ask HTTP/1.1", "Content-Length: 4\r\n"), "400"),
        (
            "a session of odd letters",
            head("POST /TOKEN/close?session=../../../.. HTTP/1.1", "Content-Length: 0\r\n"),
            "400",
        ),
    ];
    for (what, bytes, status) in cases {
        let with_body = [bytes, vec![0; 4]].concat();
        let answer = served.send(&with_body);
        let text = String::from_utf8_lossy(&answer).into_owned();
        assert!(
            text.starts_with(&format!("HTTP/1.1 {status}")),
            "{what}: {}",
            text.lines().next().unwrap_or("nothing")
        );
        assert!(!text.contains(&served.token), "{what}: the token was told");
    }
    // Bodies that are not what they say.
    for (what, body) in [
        ("a length alone", vec![200, 0, 0, 0]),
        ("a request that is cut off", [&[200, 0, 0, 0][..], b"{"].concat()),
        ("no JSON", [&[3, 0, 0, 0][..], b"{{{"].concat()),
        ("a length of everything", vec![255; 64]),
    ] {
        let mut bytes = post(&format!("Content-Length: {}\r\n", body.len()));
        bytes.extend(body);
        let answer = served.send(&bytes);
        assert!(answer.starts_with(b"HTTP/1.1 4"), "{what}");
    }
    // After all that it serves as before.
    served.opened(SESSION);
    assert_eq!(served.ask(SESSION, &explained(0.4), &[])["error"], Value::Null);
}

#[test]
fn a_larger_file_than_is_taken_in_is_refused_before_it_is_sent() {
    let mut exhibit = Exhibit::default();
    exhibit.upload_bytes = 1 << 20;
    let served = Served::with(exhibit);
    let line = format!("POST /TOKEN/ask?session={SESSION} HTTP/1.1");
    let answer = served.send(served.head(&line, "Content-Length: 8000000\r\n").as_bytes());
    assert!(answer.starts_with(b"HTTP/1.1 413"));
    // A smaller body with a network that is too large.
    let request = json!({"type": "open-network", "name": "n.onnx"});
    let said = served.ask(SESSION, &request, assets::PETS_SMALL);
    assert!(said["error"].as_str().unwrap().contains("at most 1 MiB"), "{said}");
}

#[test]
fn a_network_and_a_gallery_are_there_at_once() {
    let folder = monosplit_testing::ScratchFolder::new();
    let mut exhibit = Exhibit::default();
    exhibit.network =
        Some(("pets.onnx".into(), Model::options().read("pets.onnx", assets::PETS_SMALL).unwrap()));
    exhibit.pictures = vec![folder.write("cat.png", assets::CHELSEA), folder.path("lost.png")];
    let served = Served::with(exhibit);
    let state = served.ask(SESSION, &json!({"type": "state"}), &[]);
    assert_eq!(state["network"]["name"], "pets.onnx");
    assert_eq!(
        state["gallery"],
        json!([{"gallery": 0, "name": "cat.png"}, {"gallery": 1, "name": "lost.png"}])
    );
    let opened = served.ask(SESSION, &json!({"type": "open-picture", "name": "cat.png", "gallery": 0}), &[]);
    assert_eq!(opened["picture"], 0);
    assert_eq!(served.ask(SESSION, &explained(0.4), &[])["error"], Value::Null);
    for number in [1, 2] {
        let lost = served.ask(SESSION, &json!({"type": "open-picture", "name": "x", "gallery": number}), &[]);
        assert!(lost["error"].is_string(), "{lost}");
    }
    let shown = served.send(served.head("GET /TOKEN/pictures/0 HTTP/1.1", "").as_bytes());
    assert_eq!(body_of(&shown), assets::CHELSEA);
}

#[test]
fn a_page_that_computes_in_the_browser_is_sent_with_its_files_and_nothing_is_computed() {
    let folder = monosplit_testing::ScratchFolder::new();
    for (name, content) in [
        ("page/index.html", "<title>built"),
        ("page/config.js", "as built"),
        ("page/threads/monosplit_web_bg.wasm", "\0asm"),
        ("secret.txt", "secret"),
    ] {
        let path = folder.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    assert!(
        BrowserPage::open(folder.path("nothing")).unwrap_err().to_string().contains("scripts/build_web.sh")
    );
    assert!(BrowserPage::open(folder.path("page/threads")).is_err());
    let page = BrowserPage::open(folder.path("page")).unwrap();
    assert_eq!(page.builds(), ["threads"]);
    let mut exhibit = Exhibit::default();
    exhibit.in_browser = Some(page.network(folder.write("cat.onnx", b"onnx")));
    exhibit.pictures = vec![folder.write("cat.png", assets::CHELSEA)];
    let served = Served::with(exhibit);
    let get = |name: &str| served.send(served.head(&format!("GET /TOKEN/{name} HTTP/1.1"), "").as_bytes());
    assert_eq!((body_of(&get("")), body_of(&get("network"))), (&b"<title>built"[..], &b"onnx"[..]));
    assert_eq!(body_of(&get("pictures/0")), assets::CHELSEA);
    assert_eq!(
        String::from_utf8_lossy(body_of(&get("config.js"))),
        "export default {\"backend\":\"worker\",\"builds\":[\"threads\"],\"network\":\"cat.onnx\",\"pictures\":[\"cat.png\"]};\n"
    );
    let module = String::from_utf8_lossy(&get("threads/monosplit_web_bg.wasm")).into_owned();
    assert!(module.contains("Content-Type: application/wasm") && module.ends_with("\0asm"));
    for name in ["../secret.txt", "threads/../../secret.txt", "%2e%2e/secret.txt", "threads", "worker.js"] {
        assert!(get(name).starts_with(b"HTTP/1.1 404"), "{name}");
    }
    let asked = served.send(&served.ask_bytes(SESSION, &json!({"type": "state"}), &[]));
    assert!(asked.starts_with(b"HTTP/1.1 404"));
}

/// The page was closed: its connection is gone, and so is what it asked for.
#[test]
fn a_connection_that_ends_takes_its_work_with_it() {
    let served = Served::new();
    served.opened(SESSION);
    let mut stream = served.connect();
    stream.write_all(&served.ask_bytes(SESSION, &endless(), &[])).unwrap();
    while served.server.jobs() == 0 {
        thread::sleep(Duration::from_millis(5));
    }
    drop(stream);
    served.wait_for_no_jobs();
    assert_eq!(served.ask(SESSION, &explained(0.4), &[])["error"], Value::Null);
}

#[test]
fn a_session_that_is_closed_ends_its_work() {
    let served = Served::new();
    served.opened(SESSION);
    let mut stream = served.connect();
    stream.write_all(&served.ask_bytes(SESSION, &endless(), &[])).unwrap();
    while served.server.jobs() == 0 {
        thread::sleep(Duration::from_millis(5));
    }
    let line = format!("POST /TOKEN/close?session={SESSION} HTTP/1.1");
    assert!(served.send(served.head(&line, "Content-Length: 0\r\n").as_bytes()).starts_with(b"HTTP/1.1 200"));
    served.wait_for_no_jobs();
}

/// The later request of the same slot is answered, the one before it says that it was cancelled.
#[test]
fn a_later_request_takes_the_place_of_the_one_before() {
    let served = Served::new();
    served.opened(SESSION);
    let mut before = served.connect();
    before.write_all(&served.ask_bytes(SESSION, &endless(), &[])).unwrap();
    while served.server.jobs() == 0 {
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(served.ask(SESSION, &explained(0.2), &[])["error"], Value::Null);
    let mut answer = Vec::new();
    before.read_to_end(&mut answer).unwrap();
    let said = String::from_utf8_lossy(&answer).into_owned();
    assert!(said.contains("\"cancelled\":true"), "{}", said.chars().take(1500).collect::<String>());
    served.wait_for_no_jobs();
}

/// A slider that was dragged: 200 requests as fast as they can be sent, without waiting for answers. The last of them is
/// answered, and nothing is left to do.
#[test]
fn two_hundred_slider_events_leave_no_queue() {
    let served = Served::new();
    served.opened(SESSION);
    served.ask(SESSION, &explained(0.0), &[]);
    let mut streams = std::collections::VecDeque::new();
    for event in 0..200 {
        let mut stream = served.connect();
        stream.write_all(&served.ask_bytes(SESSION, &explained(f64::from(event) / 400.0), &[])).unwrap();
        streams.push_back(stream);
        // A browser keeps six connections.
        if streams.len() > 6 {
            let _ = streams.pop_front().unwrap().read_to_end(&mut Vec::new());
        }
    }
    drop(streams);
    served.wait_for_no_jobs();
    let found = served.ask(SESSION, &explained(0.5), &[]);
    assert_eq!(found["maps"][0]["alpha"], 0.5);
}
