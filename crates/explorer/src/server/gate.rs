//! Who is let in: requests that know the token, name this server as their host, and come from its own page.

use monosplit::{Error, ErrorKind, Result};

use super::head::Head;
use super::reply::Refusal;

/// Random bytes of a token.
const TOKEN_BYTES: usize = 16;

/// The token and the port of a server.
pub(super) struct Gate {
    token: String,
    port: u16,
}

impl Gate {
    pub(super) fn new(port: u16) -> Result<Self> {
        let mut bytes = [0; TOKEN_BYTES];
        getrandom::fill(&mut bytes).map_err(|cause| {
            Error::new(ErrorKind::Io, format!("the system gave no random numbers for the address: {cause}"))
        })?;
        Ok(Gate { token: bytes.iter().map(|byte| format!("{byte:02x}")).collect(), port })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn address(&self) -> String {
        format!("http://127.0.0.1:{}/{}/", self.port, self.token)
    }

    /// The path behind the token; a refusal for whoever is not let in.
    pub(super) fn admit<'h>(&self, head: &'h Head) -> Result<&'h str, Refusal> {
        // A page elsewhere whose name was made to point at this machine names its own host.
        let hosts = ["127.0.0.1", "localhost"].map(|name| format!("{name}:{}", self.port));
        if !head.host.as_ref().is_some_and(|host| hosts.iter().any(|own| own.eq_ignore_ascii_case(host))) {
            return Err(Refusal::Forbidden("the host is not this server"));
        }
        let origins = hosts.map(|host| format!("http://{host}"));
        if head.origin.as_ref().is_some_and(|origin| !origins.contains(origin)) {
            return Err(Refusal::Forbidden("requests of other pages are not answered"));
        }
        if head.is_cross_site && head.method != "GET" {
            return Err(Refusal::Forbidden("requests of other pages are not answered"));
        }
        let (token, path) = head.path.strip_prefix('/').unwrap_or("").split_once('/').unwrap_or(("", ""));
        match is_same(token.as_bytes(), self.token.as_bytes()) {
            true => Ok(path),
            false => Err(Refusal::Forbidden("the address is not complete; open it as it was printed")),
        }
    }
}

/// Whether two texts are the same, in a time that does not tell where they differ.
fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differing, (a, b)| differing | (a ^ b)) == 0
}
