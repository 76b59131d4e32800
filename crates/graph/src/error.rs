//! What can go wrong, said so that a person can act on it.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use crate::legible::{sentence, shown};

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
    /// Whoever asked for a computation ended it.
    Cancelled,
    /// The program contradicts itself, whatever it was given.
    Internal,
}

impl ErrorKind {
    /// The name by which programs know the kind.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::Io => "io",
            ErrorKind::Malformed => "malformed",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::Shape => "shape",
            ErrorKind::UnknownName => "unknown-name",
            ErrorKind::Argument => "argument",
            ErrorKind::Memory => "memory",
            ErrorKind::Cancelled => "cancelled",
            ErrorKind::Internal => "internal",
        }
    }
}

/// What may be done about an [`Error`], in the words of the library. A program that has other words for it (a
/// command, an option) tells hints apart by their code: see [`Error::text`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Hint {
    /// The name by which programs know the hint.
    pub code: &'static str,
    /// The hint as a part of a sentence.
    pub text: &'static str,
    /// The value that the hint is about, where there is one.
    pub value: Option<String>,
}

impl Hint {
    /// The shape of a sample is to be given when the network is opened.
    pub const INPUT_SHAPE: Hint =
        Hint::new("input-shape", "give the shape of one sample, for example 3,224,224");
    /// The shape of a whole batch is to be given when the network is opened.
    pub const FIXED_BATCH: Hint =
        Hint::new("fixed-batch", "give the shape of the whole batch, for example 1,3,224,224");
    /// Numbers that single precision cannot hold may be held by double precision.
    pub const PRECISION: Hint =
        Hint::new("precision", "compute in double precision, or choose another method or layer");
    /// The layers of the network tell what there is.
    pub const LAYERS: Hint = Hint::new("layers", "the layers of the graph list all");
    /// The table of operators tells what there is.
    pub const OPERATORS: Hint = Hint::new("operators", "the table of operators lists what is supported");
    /// The import report of a file lists all that cannot be read.
    pub const IMPORT_REPORT: Hint = Hint::new("import report", "the import report of the file lists all");

    /// A hint of this code and text.
    pub const fn new(code: &'static str, text: &'static str) -> Self {
        Hint { code, text, value: None }
    }

    /// The same hint about a value.
    #[must_use]
    pub fn about(self, value: impl Into<String>) -> Self {
        Hint { value: Some(value.into()), ..self }
    }
}

/// A failure: its kind, the node it concerns where there is one, and a sentence that says what was
/// expected, what was found and what to do.
#[derive(Clone)]
pub struct Error(Box<Failure>);

#[derive(Clone)]
struct Failure {
    kind: ErrorKind,
    /// What the node belongs to, from the outside in; each part ends in a colon and a blank.
    context: String,
    node: Option<String>,
    message: String,
    hint: Option<Hint>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Error {
    /// A failure of `kind` described by `message`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let (context, message) = (String::new(), sentence(message.into()));
        Error(Box::new(Failure { kind, context, node: None, message, hint: None, source: None }))
    }

    /// A file could not be read or written.
    pub fn io(path: &std::path::Path, cause: std::io::Error) -> Self {
        Error::new(ErrorKind::Io, format!("{}: {cause}", path.display())).caused_by(cause)
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

    /// The program contradicts itself; `what` says where it noticed.
    pub fn internal(what: impl fmt::Display) -> Self {
        Error::new(ErrorKind::Internal, format!("this is a bug of monosplit, please report it: {what}"))
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
            self.0.node.get_or_insert(node);
        }
        self
    }

    /// The same failure without its node, for a caller that names another.
    #[must_use]
    pub fn without_node(mut self) -> Self {
        self.0.node = None;
        self
    }

    /// The same failure, said to be about `context`: a file, a key, an image. The text begins with it and a colon.
    #[must_use]
    pub fn context(self, context: impl fmt::Display) -> Self {
        self.prefixed(&format!("{context}: "))
    }

    /// The same as [`Error::context`], unless the text begins with it already.
    #[must_use]
    pub fn about(self, context: impl fmt::Display) -> Self {
        match self.is_about(&context) {
            true => self,
            false => self.context(context),
        }
    }

    /// Whether the text begins with `context` and a colon, as [`Error::context`] writes it.
    pub fn is_about(&self, context: impl fmt::Display) -> bool {
        self.statement().starts_with(&sentence(format!("{context}: ")))
    }

    /// The same failure with words in front of its text.
    #[must_use]
    pub fn prefixed(mut self, words: &str) -> Self {
        // A node is a part of what is named later, so that it stands after that.
        let text = if self.0.node.is_some() { &mut self.0.context } else { &mut self.0.message };
        text.insert_str(0, &sentence(words.to_owned()));
        self
    }

    /// The same failure with what may be done about it; a hint given before stays.
    #[must_use]
    pub fn hint(mut self, hint: Hint) -> Self {
        self.0.hint.get_or_insert(hint);
        self
    }

    /// The same failure with the error that caused it, which [`source`](StdError::source) returns.
    #[must_use]
    pub fn caused_by(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.0.source = Some(Arc::new(source));
        self
    }

    /// What sort of failure this is.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The node this concerns, if any.
    pub fn node(&self) -> Option<&str> {
        self.0.node.as_deref()
    }

    /// What is wrong, without the node, what the node belongs to, and the hint.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The whole text, with the hint in the words that `words` has for it; the library's own words stand where it has
    /// none.
    pub fn text(&self, words: impl Fn(&Hint) -> Option<String>) -> String {
        let statement = self.statement();
        match self.hint_text(words) {
            Some(hint) => {
                let separator = if statement.ends_with('?') { " " } else { "; " };
                format!("{statement}{separator}{hint}")
            }
            None => statement,
        }
    }

    /// The text without the hint.
    pub fn statement(&self) -> String {
        let Failure { context, node, message, .. } = &*self.0;
        let node = node.as_ref().map_or_else(String::new, |node| format!("in node '{}': ", shown(node)));
        format!("{context}{node}{message}")
    }

    /// The hint, in the words that `words` has for it or in the library's own.
    pub fn hint_text(&self, words: impl Fn(&Hint) -> Option<String>) -> Option<String> {
        self.0.hint.as_ref().map(|hint| words(hint).unwrap_or_else(|| hint.text.to_owned()))
    }
}

impl PartialEq for Error {
    /// Whether two failures are of the same kind and read the same.
    fn eq(&self, other: &Self) -> bool {
        self.kind() == other.kind() && self.to_string() == other.to_string()
    }
}

impl Eq for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(|_| None))
    }
}

/// The text for people: a program whose `main` returns the error prints it.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;

    use super::*;

    #[test]
    fn context_stands_before_the_node_and_the_hint_after_the_message() {
        let error = Error::unsupported("the op LSTM is not supported").at("lstm_1").hint(Hint::OPERATORS);
        let error = error.context("net.onnx").context("model.file");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let text = "model.file: net.onnx: in node 'lstm_1': the op LSTM is not supported; ";
        assert_eq!(error.to_string(), format!("{text}the table of operators lists what is supported"));
        let in_words = error.text(|hint| (hint.code == "operators").then(|| "see `ops`".to_owned()));
        assert_eq!(in_words, format!("{text}see `ops`"));
    }

    #[test]
    fn the_cause_of_a_failed_read_is_its_source() {
        let cause = io::Error::new(io::ErrorKind::PermissionDenied, "permission denied");
        let error = Error::io(Path::new("a.onnx"), cause).context("model.file");
        let source = error.source().and_then(|source| source.downcast_ref::<io::Error>()).unwrap();
        assert_eq!(source.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(error.to_string(), "model.file: a.onnx: permission denied");
    }

    #[test]
    fn a_program_whose_main_returns_an_error_prints_its_text() {
        let error = Error::argument("expected 3 channels, found 4").at("conv1").hint(Hint::FIXED_BATCH);
        assert_eq!(format!("{error:?}"), error.to_string());
    }
}
