//! What a session answers, against the library and against properties of the methods.

mod hostile;
#[cfg(feature = "server")]
mod server;
mod session;
