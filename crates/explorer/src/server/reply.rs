//! What is sent back.

use std::io::{self, Write};
use std::net::TcpStream;
use std::time::Duration;

/// How long a client may take for what is sent to it.
const TIMEOUT: Duration = Duration::from_secs(30);

/// What browsers may do with all that is sent: nothing that leaves this server. Notebooks of this machine may frame the page.
const POLICY: &str = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' blob: data:; \
                      connect-src 'self'; worker-src 'self'; form-action 'none'; base-uri 'none'; \
                      frame-ancestors 'self' http://localhost:* http://127.0.0.1:*";

/// Keeps the page apart from all others, so that its workers may share memory.
const ISOLATION: &str =
    "Cross-Origin-Opener-Policy: same-origin\r\nCross-Origin-Embedder-Policy: require-corp\r\n";

const REPORT_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:; form-action 'none'; \
                             base-uri 'none'; frame-ancestors 'self' http://localhost:* http://127.0.0.1:*";

/// Why a request is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Malformed(&'static str),
    Forbidden(&'static str),
    NotFound,
    MethodNotAllowed,
    Timeout,
    LengthRequired,
    BodyTooLarge,
    HeadTooLarge,
    Busy,
}

impl Refusal {
    fn status(self) -> (&'static str, &'static str) {
        match self {
            Refusal::Malformed(why) => ("400 Bad Request", why),
            Refusal::Forbidden(why) => ("403 Forbidden", why),
            Refusal::NotFound => ("404 Not Found", "there is nothing here"),
            Refusal::MethodNotAllowed => ("405 Method Not Allowed", "only GET and POST are understood"),
            Refusal::Timeout => ("408 Request Timeout", "the request did not arrive in time"),
            Refusal::LengthRequired => ("411 Length Required", "say how long the body is"),
            Refusal::BodyTooLarge => ("413 Content Too Large", "the file is larger than is taken in"),
            Refusal::HeadTooLarge => ("431 Request Header Fields Too Large", "the head is too long"),
            Refusal::Busy => ("503 Service Unavailable", "as many pages as can be are being served"),
        }
    }

    pub(super) fn send(self, stream: &mut TcpStream) {
        let (status, why) = self.status();
        // The client may be gone, which is not our concern.
        let _ = send(stream, status, "text/plain; charset=utf-8", POLICY, format!("{why}\n").as_bytes());
    }
}

/// Sends content.
pub(super) fn send_content(stream: &mut TcpStream, media_type: &str, content: &[u8]) -> io::Result<()> {
    send(stream, "200 OK", media_type, POLICY, content)
}

/// Sends a file of a report: its styles are in it, and it runs nothing.
pub(super) fn send_report(stream: &mut TcpStream, media_type: &str, content: &[u8]) -> io::Result<()> {
    send(stream, "200 OK", media_type, REPORT_POLICY, content)
}

/// Answers that there is nothing to send.
pub(super) fn send_nothing(stream: &mut TcpStream) -> io::Result<()> {
    send(stream, "204 No Content", "text/plain; charset=utf-8", POLICY, &[])
}

fn send(
    stream: &mut TcpStream,
    status: &str,
    media_type: &str,
    policy: &str,
    content: &[u8],
) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\nConnection: close\r\n\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
         Cross-Origin-Resource-Policy: same-origin\r\n{ISOLATION}Content-Security-Policy: {policy}\r\n\r\n",
        content.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(content)?;
    stream.flush()
}
