//! One connection: one request and its answer.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use monosplit::graph::{FileBytes, shown};
use monosplit::image::PictureFormat;
use monosplit::{Error, assets};
use serde_json::{Value, json};

use super::Shared;
use super::head::Head;
use super::reply::{Refusal, send_content, send_nothing, send_report};
use crate::page::FILES;
use crate::response::Response;

/// How long a body may pause.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest name of a session or a slot.
const LONGEST_NAME: usize = 64;
/// The largest picture of the gallery that is sent to be shown.
const LARGEST_SHOWN: u64 = 64 << 20;
/// The longest request without its file.
const LONGEST_REQUEST: usize = 4 << 20;
/// What is read and dropped of a refused body, so that the refusal arrives.
const DROPPED: u64 = 1 << 20;

/// Tells the page that a server is behind it.
const CONFIGURATION: &[u8] = b"export default { backend: \"server\" };\n";

pub(super) fn serve(mut stream: TcpStream, shared: &Shared) {
    let refused = match Head::read(&mut stream) {
        Ok(None) => return,
        Ok(Some((head, begun))) => answer(&mut stream, &head, begun, shared),
        Err(refusal) => Err(refusal),
    };
    if let Err(refusal) = refused {
        refusal.send(&mut stream);
        // A connection that is closed over unread bytes is reset, and the client never sees why.
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.set_read_timeout(Some(Duration::from_millis(200)));
        let _ = std::io::copy(&mut stream.take(DROPPED), &mut std::io::sink());
    }
}

fn answer(stream: &mut TcpStream, head: &Head, begun: Vec<u8>, shared: &Shared) -> Result<(), Refusal> {
    // Browsers ask every server for this, without being told a path. There is none, and that is no fault of theirs.
    if head.method == "GET" && head.path == "/favicon.ico" {
        let _ = send_nothing(stream);
        return Ok(());
    }
    let path = shared.gate.admit(head)?;
    match (head.method.as_str(), path) {
        ("GET", path) => get(stream, path, shared),
        ("POST", _) if shared.exhibit.in_browser.is_some() => Err(Refusal::NotFound),
        ("POST", "ask") => {
            let body = body(stream, head, begun, shared)?;
            ask(stream, head, &body, shared)
        }
        ("POST", "close") => {
            shared.sessions.close(session_name(head)?);
            sent(stream, "text/plain", b"")
        }
        ("POST", _) => Err(Refusal::NotFound),
        _ => Err(Refusal::MethodNotAllowed),
    }
}

/// Sends a file of the page, or a picture of the gallery.
fn get(stream: &mut TcpStream, path: &str, shared: &Shared) -> Result<(), Refusal> {
    let path = if path.is_empty() { "index.html" } else { path };
    if let Some(number) = path.strip_prefix("pictures/") {
        let number: usize = number.parse().map_err(|_| Refusal::NotFound)?;
        let file = shared.exhibit.pictures.get(number).ok_or(Refusal::NotFound)?;
        let length = fs::metadata(file).map_err(|_| Refusal::NotFound)?.len();
        if length > LARGEST_SHOWN {
            return Err(Refusal::NotFound);
        }
        let bytes = FileBytes::read(file).map_err(|_| Refusal::NotFound)?;
        return sent(stream, media_type(&bytes), &bytes);
    }
    if let Some(name) = path.strip_prefix("report/") {
        return report(stream, name, shared);
    }
    if let Some(page) = &shared.exhibit.in_browser {
        if path == "config.js" {
            let configuration = page.configuration(&shared.exhibit.pictures);
            return sent(stream, "text/javascript; charset=utf-8", configuration.as_bytes());
        }
        let (media_type, bytes) = page.file(path).ok_or(Refusal::NotFound)?;
        return sent(stream, media_type, &bytes);
    }
    match path {
        "run.json" => {
            let run = shared.exhibit.run.as_ref().ok_or(Refusal::NotFound)?;
            let tables = serde_json::to_vec(&run.tables).map_err(|_| Refusal::NotFound)?;
            sent(stream, "application/json", &tables)
        }
        "config.js" => sent(stream, "text/javascript; charset=utf-8", CONFIGURATION),
        "pets-small.onnx" => sent(stream, "application/octet-stream", assets::PETS_SMALL),
        "chelsea.png" => sent(stream, "image/png", assets::CHELSEA),
        _ => {
            let file = FILES.iter().find(|file| file.path == path).ok_or(Refusal::NotFound)?;
            sent(stream, file.media_type, file.bytes)
        }
    }
}

/// Sends a file of the run's report.
fn report(stream: &mut TcpStream, name: &str, shared: &Shared) -> Result<(), Refusal> {
    let name = if name.is_empty() { "index.html" } else { name };
    let run = shared.exhibit.run.as_ref().ok_or(Refusal::NotFound)?;
    let (_, bytes) = run.report.iter().find(|(known, _)| known == name).ok_or(Refusal::NotFound)?;
    let media_type = match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    };
    let _ = send_report(stream, media_type, bytes);
    Ok(())
}

/// The media type of a picture that browsers show.
fn media_type(bytes: &[u8]) -> &'static str {
    match PictureFormat::of(bytes) {
        Some(PictureFormat::Png) => "image/png",
        Some(PictureFormat::Jpeg) => "image/jpeg",
        Some(PictureFormat::Gif) => "image/gif",
        Some(PictureFormat::WebP) => "image/webp",
        Some(PictureFormat::Bmp) => "image/bmp",
        _ => "application/octet-stream",
    }
}

/// The body: the length of the request, the request, and the file that comes with it.
fn body(stream: &mut TcpStream, head: &Head, begun: Vec<u8>, shared: &Shared) -> Result<Vec<u8>, Refusal> {
    let length = head.length.ok_or(Refusal::LengthRequired)?;
    if length > shared.exhibit.upload_bytes.saturating_add(LONGEST_REQUEST) {
        return Err(Refusal::BodyTooLarge);
    }
    if head.expects_continue {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").map_err(|_| Refusal::Timeout)?;
    }
    stream.set_read_timeout(Some(TIMEOUT)).map_err(|_| Refusal::Timeout)?;
    // Memory is taken as bytes arrive, not as they are announced.
    let mut bytes = begun;
    if bytes.len() > length {
        return Err(Refusal::Malformed("there is more than one request"));
    }
    let mut rest = stream.take((length - bytes.len()) as u64);
    rest.read_to_end(&mut bytes).map_err(|_| Refusal::Timeout)?;
    match bytes.len() == length {
        true => Ok(bytes),
        false => Err(Refusal::Malformed("the body is shorter than was said")),
    }
}

fn session_name(head: &Head) -> Result<&str, Refusal> {
    let is_name = |name: &&str| {
        (8..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    head.query_value("session").filter(is_name).ok_or(Refusal::Malformed("the page has no name"))
}

fn ask(stream: &mut TcpStream, head: &Head, body: &[u8], shared: &Shared) -> Result<(), Refusal> {
    let name = session_name(head)?;
    let (request, payload) = split(body)?;
    let value: Value =
        serde_json::from_slice(request).map_err(|_| Refusal::Malformed("the request is no JSON"))?;
    let kind = value["type"].as_str().unwrap_or_default();
    let slot = value["slot"].as_str().filter(|slot| slot.len() <= LONGEST_NAME).unwrap_or(kind);
    let (session, is_new) = match shared.sessions.get(name, &shared.exhibit) {
        Ok(found) => found,
        Err(error) => return sent_response(stream, &Response::failure(&error)),
    };
    // Pictures of the gallery are read here; the page names them by number.
    let file = match value["gallery"].as_u64().filter(|_| kind == "open-picture") {
        None => None,
        Some(number) => match gallery_picture(number as usize, shared) {
            Ok(file) => Some(file),
            Err(error) => return sent_response(stream, &Response::failure(&error)),
        },
    };
    let payload = file.as_deref().map_or(payload, |file| &file[..]);
    let _ = stream.set_nonblocking(true);
    let is_gone = || {
        matches!(stream.peek(&mut [0]), Ok(0))
            || matches!(stream.peek(&mut [0]), Err(cause) if cause.kind() != ErrorKind::WouldBlock)
    };
    let computed = shared.sessions.compute(&session, slot, (request, payload), &is_gone);
    let mut response = computed.ok_or(Refusal::Busy)?;
    // A page that was away for long learns that what it had opened is gone.
    response.set("newSession", is_new);
    if kind == "state" {
        response.set("gallery", gallery(shared));
        response.set("run", shared.exhibit.run.is_some());
    }
    sent_response(stream, &response)
}

/// The names of the gallery's pictures.
fn gallery(shared: &Shared) -> Vec<Value> {
    let name = |path: &Path| shown(&path.file_name().unwrap_or_default().to_string_lossy()).to_string();
    let pictures = shared.exhibit.pictures.iter().enumerate();
    pictures.map(|(number, path)| json!({ "gallery": number, "name": name(path) })).collect()
}

fn gallery_picture(number: usize, shared: &Shared) -> Result<std::sync::Arc<FileBytes>, Error> {
    let path = shared.exhibit.pictures.get(number);
    let path = path.ok_or_else(|| Error::argument("there is no such picture in the gallery"))?;
    FileBytes::read(path)
}

/// The request and the file of a body.
fn split(body: &[u8]) -> Result<(&[u8], &[u8]), Refusal> {
    let cut = Refusal::Malformed("the body is cut off");
    let (length, rest) = body.split_first_chunk::<4>().ok_or(cut)?;
    let length = u32::from_le_bytes(*length) as usize;
    if length > LONGEST_REQUEST {
        return Err(Refusal::BodyTooLarge);
    }
    rest.split_at_checked(length).ok_or(cut)
}

fn sent_response(stream: &mut TcpStream, response: &Response) -> Result<(), Refusal> {
    sent(stream, "application/octet-stream", &response.encode())
}

/// Sends content. A client that is gone needs no refusal.
fn sent(stream: &mut TcpStream, media_type: &str, content: &[u8]) -> Result<(), Refusal> {
    let _ = send_content(stream, media_type, content);
    Ok(())
}
