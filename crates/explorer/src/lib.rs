//! The explorer: a page on which networks and pictures are dropped, and the [`Session`] behind it that answers what the page
//! asks.
//!
//! A session knows no threads, files or clocks of its own: it runs in a browser as WebAssembly and behind a server alike.
//! Requests are JSON ([`Request`]), files are bytes beside them, and answers ([`Response`]) are JSON with arrays.
//!
//! ```
//! use monosplit::assets;
//! use monosplit_explorer::{Session, Values};
//!
//! let mut session = Session::default();
//! let network = session.handle(br#"{"type": "open-network", "name": "pets.onnx"}"#, assets::PETS_SMALL);
//! assert_eq!(network.header()["classes"], 37);
//! let picture = session.handle(br#"{"type": "open-picture", "name": "cat.png"}"#, assets::CHELSEA);
//! let asked = format!(
//!     r#"{{"type": "explain", "subject": {{"picture": {}}}, "alpha": 0.3, "maps": [{{"method": "splitcam"}}]}}"#,
//!     picture.header()["picture"]
//! );
//! let explained = session.handle(asked.as_bytes(), &[]);
//! assert_eq!(explained.error(), None);
//! assert!(matches!(explained.arrays()[0].values, Values::F32(_)));
//! ```

mod contributions;
mod curves;
mod edit;
mod files;
mod interruption;
mod lines;
mod maps;
mod network;
mod page;
mod recently_used;
mod request;
mod response;
#[cfg(feature = "server")]
mod run;
#[cfg(feature = "server")]
mod server;
mod session;
mod verification;

pub use interruption::Interruption;
pub use page::{FILES, PageFile};
pub use request::{Becomes, Edit, FileFormat, MapChoice, Part, Question, Request, Subject};
pub use response::{Array, Response, Values};
#[cfg(feature = "server")]
pub use run::{ExhibitedRun, RunImage, RunMember, RunMetric, RunStage, RunTables};
#[cfg(feature = "server")]
pub use server::{BrowserPage, Exhibit, RunningServer, Server};
pub use session::{Limits, Session};
