//! The head of an HTTP request.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::reply::Refusal;

/// The longest head in bytes.
const MOST_BYTES: usize = 16 << 10;
/// The most header lines.
const MOST_LINES: usize = 64;
/// How long a head may take to arrive.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What is read of a request's head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) method: String,
    /// Without what follows a question mark.
    pub(super) path: String,
    /// What follows it.
    pub(super) query: String,
    pub(super) host: Option<String>,
    pub(super) origin: Option<String>,
    /// Whether the browser says that another site asks.
    pub(super) is_cross_site: bool,
    pub(super) length: Option<usize>,
    pub(super) expects_continue: bool,
}

impl Head {
    /// Reads a head, and the bytes of the body that came with it. None if the connection ended before.
    pub(super) fn read(stream: &mut TcpStream) -> Result<Option<(Head, Vec<u8>)>, Refusal> {
        let start = Instant::now();
        let mut bytes = Vec::new();
        let mut chunk = [0; 4096];
        loop {
            let left = TIMEOUT.saturating_sub(start.elapsed());
            if left.is_zero() || stream.set_read_timeout(Some(left)).is_err() {
                return Err(Refusal::Timeout);
            }
            let count = match stream.read(&mut chunk) {
                Ok(0) => return Ok(None),
                Ok(count) => count,
                Err(cause) if cause.kind() == ErrorKind::Interrupted => continue,
                Err(cause) if matches!(cause.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Err(Refusal::Timeout);
                }
                Err(_) => return Ok(None),
            };
            bytes.extend(&chunk[..count]);
            let found = Head::parse(&bytes)?;
            if found.as_ref().map_or(bytes.len(), |(_, length)| *length) > MOST_BYTES {
                return Err(Refusal::HeadTooLarge);
            }
            if let Some((head, length)) = found {
                return Ok(Some((head, bytes.split_off(length))));
            }
        }
    }

    /// The head in these bytes and its length; none if it is not complete.
    fn parse(bytes: &[u8]) -> Result<Option<(Head, usize)>, Refusal> {
        let mut lines = [httparse::EMPTY_HEADER; MOST_LINES];
        let mut request = httparse::Request::new(&mut lines);
        let length = match request.parse(bytes) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(httparse::Error::TooManyHeaders) => return Err(Refusal::HeadTooLarge),
            Err(_) => return Err(Refusal::Malformed("the request is no HTTP")),
        };
        let target = request.path.unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut head = Head {
            method: request.method.unwrap_or_default().to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            ..Head::default()
        };
        for line in request.headers.iter() {
            head.take(line.name, line.value)?;
        }
        Ok(Some((head, length)))
    }

    fn take(&mut self, name: &str, value: &[u8]) -> Result<(), Refusal> {
        let twice = Refusal::Malformed("a header is there twice");
        let text = std::str::from_utf8(value).map_err(|_| Refusal::Malformed("a header is no text"))?.trim();
        let once = |place: &mut Option<String>| match place.replace(text.to_owned()) {
            None => Ok(()),
            Some(_) => Err(twice),
        };
        match name.to_ascii_lowercase().as_str() {
            "host" => once(&mut self.host),
            "origin" => once(&mut self.origin),
            "sec-fetch-site" => {
                self.is_cross_site |= !matches!(text, "same-origin" | "none" | "same-site");
                Ok(())
            }
            "transfer-encoding" => Err(Refusal::LengthRequired),
            "expect" => {
                self.expects_continue = text.eq_ignore_ascii_case("100-continue");
                Ok(())
            }
            "content-length" => {
                let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
                let length = text.parse().ok().filter(|_| digits);
                let length = length.ok_or(Refusal::Malformed("the length of the body is no number"))?;
                match self.length.replace(length) {
                    None => Ok(()),
                    Some(_) => Err(twice),
                }
            }
            _ => Ok(()),
        }
    }

    /// The value of a key of the query.
    pub(super) fn query_value(&self, key: &str) -> Option<&str> {
        self.query.split('&').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='))
    }
}
