//! What can go wrong, said so that a person can act on it.

use std::fmt;

/// Result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What sort of failure an [`Error`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A file could not be read or written.
    Io,
    /// A file is truncated, corrupt or hostile.
    Malformed,
    /// A well-formed file asks for something this crate does not do.
    Unsupported,
    /// Shapes or kinds of the values entering a node do not fit its op.
    Shape,
    /// A layer, tensor, class or architecture name is not known.
    UnknownName,
    /// A caller handed over something that cannot be right.
    Argument,
    /// There is not enough memory for what was asked.
    Memory,
}

/// A failure: its kind, the node it concerns where there is one, and a sentence that says what was
/// expected, what was found and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    node: Option<String>,
    message: String,
}

impl Error {
    /// A failure of `kind` described by `message`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error { kind, node: None, message: message.into() }
    }

    /// A file could not be read or written.
    pub fn io(path: &std::path::Path, cause: &std::io::Error) -> Self {
        Error::new(ErrorKind::Io, format!("{}: {cause}", path.display()))
    }

    /// A file is truncated, corrupt or hostile.
    pub fn malformed(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Malformed, message)
    }

    /// A well-formed file asks for something this crate does not do.
    pub fn unsupported(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Unsupported, message)
    }

    /// There is not enough memory.
    pub fn memory(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Memory, message)
    }

    /// Values do not fit the op they enter.
    pub fn shape(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Shape, message)
    }

    /// A caller handed over something that cannot be right.
    pub fn argument(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Argument, message)
    }

    pub(crate) fn tensor(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Argument, message)
    }

    /// The same failure, said to concern `node`; a node named before stays, and one without a name says nothing.
    #[must_use]
    pub fn at(mut self, node: impl Into<String>) -> Self {
        let node = node.into();
        if !node.is_empty() {
            self.node.get_or_insert(node);
        }
        self
    }

    /// What sort of failure this is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The node this concerns, if any.
    pub fn node(&self) -> Option<&str> {
        self.node.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.node {
            Some(node) => write!(f, "in node '{node}': {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for Error {}
