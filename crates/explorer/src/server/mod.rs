//! The page over HTTP, with the engine of this machine behind it. The server listens on the loopback address alone, and
//! answers only requests that know a random token, name this server as their host and come from its own page.

mod connection;
mod gate;
mod head;
mod in_browser;
mod reply;
mod sessions;

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use monosplit::engine::{Cpu, Engine};
use monosplit::{Error, ErrorKind, Model, Result};

use crate::run::ExhibitedRun;
use gate::Gate;
pub use in_browser::BrowserPage;
use sessions::Sessions;

/// Connections that are served at a time; further ones are refused.
const MOST_CONNECTIONS: usize = 48;

/// What a server shows.
#[non_exhaustive]
pub struct Exhibit {
    /// The network that sessions begin with, and its name; the page's own without one.
    pub network: Option<(String, Model)>,
    /// The pictures of the gallery.
    pub pictures: Vec<PathBuf>,
    /// A run whose tables and report are shown beside the page.
    pub run: Option<ExhibitedRun>,
    /// The page computes in the browser: nothing but files is sent, no session is opened, and of what else is shown only the
    /// pictures are.
    pub in_browser: Option<BrowserPage>,
    /// What computes.
    pub engine: Arc<dyn Engine>,
    /// What computes in double precision.
    pub processor: Cpu,
    /// The largest upload in bytes.
    pub upload_bytes: usize,
}

impl Default for Exhibit {
    fn default() -> Self {
        Exhibit {
            network: None,
            pictures: Vec::new(),
            run: None,
            in_browser: None,
            engine: Arc::new(Cpu::default()),
            processor: Cpu::default(),
            upload_bytes: 1 << 30,
        }
    }
}

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    shared: Arc<Shared>,
}

/// What all connections know.
struct Shared {
    gate: Gate,
    exhibit: Exhibit,
    sessions: Sessions,
    connections: AtomicUsize,
    is_stopped: AtomicBool,
}

impl Server {
    /// Listens on a port of the loopback address; 0 is any that is free.
    pub fn bind(port: u16, exhibit: Exhibit) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|cause| {
            let said = format!("the port {port} cannot be listened on: {cause}; another one may be free");
            Error::new(ErrorKind::Io, said).caused_by(cause)
        })?;
        let address = listener.local_addr().map_err(|cause| {
            Error::new(ErrorKind::Io, format!("the port is not known: {cause}")).caused_by(cause)
        })?;
        let shared = Shared {
            gate: Gate::new(address.port())?,
            exhibit,
            sessions: Sessions::default(),
            connections: AtomicUsize::new(0),
            is_stopped: AtomicBool::new(false),
        };
        Ok(Server { listener, shared: Arc::new(shared) })
    }

    /// The address of the page. Whoever knows it may use the server.
    pub fn address(&self) -> String {
        self.shared.gate.address()
    }

    /// Serves until the process ends.
    pub fn run(&self) {
        serve(&self.listener, &self.shared);
    }

    /// Serves on threads of its own until what is returned is dropped.
    pub fn start(self) -> RunningServer {
        let address = self.address();
        let shared = self.shared.clone();
        let thread = std::thread::spawn(move || serve(&self.listener, &self.shared));
        RunningServer { address, shared, thread: Some(thread) }
    }
}

/// A server with threads of its own. It stops when it is dropped.
pub struct RunningServer {
    address: String,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl RunningServer {
    /// The address of the page.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// How many requests are computed or wait to be.
    pub fn jobs(&self) -> usize {
        self.shared.sessions.jobs()
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::SeqCst);
        // The listener waits for a connection; this is its last.
        let _ = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, self.shared.gate.port())));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn serve(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.is_stopped.load(Ordering::SeqCst) {
            return;
        }
        let Ok(stream) = stream else { continue };
        if shared.connections.fetch_add(1, Ordering::SeqCst) >= MOST_CONNECTIONS {
            shared.connections.fetch_sub(1, Ordering::SeqCst);
            continue;
        }
        let of_thread = shared.clone();
        let spawned = std::thread::Builder::new().name("connection".into()).spawn(move || {
            // Counted down whatever happens to the connection.
            let _counted = Counted(&of_thread.connections);
            connection::serve(stream, &of_thread);
        });
        if spawned.is_err() {
            shared.connections.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Counts something down when it is over.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
