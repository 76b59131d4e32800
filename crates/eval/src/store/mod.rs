//! The run store: one SQLite file with a row for every (model, method, configuration, layer, image, metric) that was
//! measured. Rows are written in transactions: a process that is killed loses only what it had not written. Several processes
//! may work on one store.

mod checksum;
mod columns;
mod plan;
mod put;
mod query;
mod version_1;
mod worker;

use std::path::{Path, PathBuf};
use std::time::Duration;

use monosplit_graph::{Error, ErrorKind, Hint, Result};
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, TransactionBehavior, ffi, params};

use crate::metric::Better;

pub use columns::columns;
pub use plan::{Member, Planned, Record, RecordedIssue, Stage};
pub use put::{Provenance, Row};
pub use query::{RowFilter, StoredRow};
pub use worker::Worker;

const SCHEMA: &str = include_str!("schema.sql");
/// The query that joins results with names.
const RESULTS: &str = include_str!("results.sql");
/// `msp1`, the application id in the header of the file.
const APPLICATION: i64 = 0x6d73_7031;
/// The version of the schema.
const VERSION: i64 = 2;
/// How long a process waits for another that is writing.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// An open run store.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
    path: PathBuf,
}

/// A measured configuration: a method with its options, a layer, and whether signs are kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Configuration {
    /// The method's name.
    pub method: String,
    /// The options that differ from the method's defaults, `key=value,key=value` in alphabetical order.
    pub options: String,
    /// The layer; empty for the image.
    pub layer: String,
    /// Whether the absolute value was taken before anything was measured.
    pub absolute: bool,
}

impl Store {
    /// Opens the store at `path` for writing; creates it if it does not exist.
    pub fn open(path: &Path) -> Result<Self> {
        let connection = Connection::open(path).map_err(|cause| failure(path, cause))?;
        let mut store = Store { connection, path: path.to_owned() };
        store.prepare().map_err(|cause| failure(path, cause))??;
        store.check()?;
        Ok(store)
    }

    /// Removes the store if it holds no results and no process works on it.
    pub fn discard_if_empty(self) {
        let rows = self.connection.query_row("SELECT count(*) FROM result", [], |row| row.get::<_, i64>(0));
        if rows.is_ok_and(|rows| rows == 0) && !worker::has_live_worker(&self.path) {
            drop(self.connection);
            for ending in ["", "-wal", "-shm"] {
                let mut path = self.path.clone().into_os_string();
                path.push(ending);
                let _ = std::fs::remove_file(path);
            }
        }
    }

    /// Opens an existing store for reading.
    pub fn read(path: &Path) -> Result<Self> {
        if !path.is_file() {
            return Err(Error::argument(format!("{}: there is no run store", path.display()))
                .hint(Hint::new("evaluate", "an evaluation makes one")));
        }
        let opened = |name: &Path, flags: OpenFlags| {
            let connection = Connection::open_with_flags(name, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
            connection.busy_timeout(LOCK_TIMEOUT)?;
            let store = Store { connection, path: path.to_owned() };
            let marks = marks(&store.connection)?;
            Ok((store, marks))
        };
        // With write permission, SQLite recovers from its journal; without it, the file is read as it is.
        let found = opened(path, OpenFlags::SQLITE_OPEN_READ_WRITE)
            .or_else(|_| opened(path, OpenFlags::SQLITE_OPEN_READ_ONLY))
            .or_else(|cause| match unchanging(path) {
                Some(name) => opened(&name, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI),
                None => Err(cause),
            });
        match found.map_err(|cause: rusqlite::Error| failure(path, cause))? {
            (store, (APPLICATION, VERSION)) => {
                checksum::show_columns(&store.connection).map_err(|cause| failure(path, cause))?;
                store.check()?;
                Ok(store)
            }
            (store, (APPLICATION, 1)) => {
                version_1::show(&store.connection).map_err(|cause| failure(path, cause))?;
                Ok(store)
            }
            (store, marks) => Err(store.foreign(marks)),
        }
    }

    fn prepare(&mut self) -> rusqlite::Result<Result<()>> {
        self.connection.busy_timeout(LOCK_TIMEOUT)?;
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let tables: i64 = transaction.query_row("SELECT count(*) FROM sqlite_master", [], |r| r.get(0))?;
        if tables == 0 {
            transaction.execute_batch(SCHEMA)?;
            complete(&transaction)?;
        } else if marks(&transaction)? == (APPLICATION, 1) {
            if worker::has_live_worker(&self.path) {
                return Ok(Err(in_use(&self.path)));
            }
            version_1::migrate(&transaction)?;
            complete(&transaction)?;
        }
        if marks(&transaction)? == (APPLICATION, VERSION) && checksum::add_columns(&transaction)? {
            show_results(&transaction)?;
        }
        transaction.commit()?;
        let marks = marks(&self.connection)?;
        if marks != (APPLICATION, VERSION) {
            return Ok(Err(self.foreign(marks)));
        }
        // A commit returns after the data has reached the disk, so that finished rows survive a power cut.
        self.connection.pragma_update(None, "journal_mode", "WAL")?;
        self.connection.pragma_update(None, "synchronous", "FULL")?;
        self.connection.pragma_update(None, "foreign_keys", "ON")?;
        Ok(Ok(()))
    }

    fn foreign(&self, (application, version): (i64, i64)) -> Error {
        let path = self.path.display();
        if application == APPLICATION {
            return Error::unsupported(format!(
                "{path}: the run store has version {version}, this program reads versions 1 and {VERSION}"
            ));
        }
        Error::malformed(format!("{path}: this SQLite file is no run store; name another file"))
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The id of a model with its preprocessing.
    pub fn model(&self, hash: &str, preprocessing: &str, name: &str) -> Result<i64> {
        self.numbered(
            "SELECT id FROM model WHERE hash = ?1 AND preprocessing = ?2",
            "INSERT OR IGNORE INTO model (hash, preprocessing, name) VALUES (?1, ?2, ?3)",
            &[&hash, &preprocessing],
            &[&name],
        )
    }

    /// The id of a configuration.
    pub fn configuration(&self, of: &Configuration) -> Result<i64> {
        self.numbered(
            "SELECT id FROM configuration WHERE method = ?1 AND options = ?2 AND layer = ?3 AND absolute = ?4",
            "INSERT OR IGNORE INTO configuration (method, options, layer, absolute) VALUES (?1, ?2, ?3, ?4)",
            &[&of.method, &of.options, &of.layer, &of.absolute],
            &[],
        )
    }

    /// The id of an image and its explained class.
    pub fn image(&self, hash: &str, class: usize, name: &str) -> Result<i64> {
        image(&self.connection, hash, class, name).map_err(|cause| self.failed(cause))
    }

    /// The ids of images, each its hash, its explained class and its name, in one transaction.
    pub fn images_entered(&mut self, images: &[(&str, usize, &str)]) -> Result<Vec<i64>> {
        self.within(|transaction| {
            images.iter().map(|(hash, class, name)| image(transaction, hash, *class, name)).collect()
        })
    }

    /// The id of a metric.
    pub fn metric(&self, name: &str, better: Better) -> Result<i64> {
        let better = match better {
            Better::Higher => "higher",
            Better::Lower => "lower",
        };
        self.numbered(
            "SELECT id FROM metric WHERE name = ?1",
            "INSERT OR IGNORE INTO metric (name, better) VALUES (?1, ?2)",
            &[&name],
            &[&better],
        )
    }

    fn numbered(
        &self,
        find: &str,
        add: &str,
        key: &[&dyn rusqlite::ToSql],
        rest: &[&dyn rusqlite::ToSql],
    ) -> Result<i64> {
        numbered(&self.connection, find, add, key, rest).map_err(|cause| self.failed(cause))
    }

    /// For each `(configuration, image)` the metrics that are already stored.
    pub fn measured(&self, (model, seed): (i64, u64), of: &[(i64, i64)]) -> Result<Vec<Vec<i64>>> {
        let find =
            "SELECT metric FROM result WHERE model = ?1 AND configuration = ?2 AND image = ?3 AND seed = ?4";
        let found = || -> rusqlite::Result<Vec<Vec<i64>>> {
            let mut statement = self.connection.prepare(find)?;
            let mut one = |&(configuration, image): &(i64, i64)| {
                let key = params![model, configuration, image, seed as i64];
                statement.query_map(key, |row| row.get(0))?.collect()
            };
            of.iter().map(&mut one).collect()
        };
        found().map_err(|cause| self.failed(cause))
    }

    fn failed(&self, cause: rusqlite::Error) -> Error {
        failure(&self.path, cause)
    }
}

/// The id of the row with `key`, which is inserted with `rest` if it is new.
fn numbered(
    connection: &Connection,
    find: &str,
    add: &str,
    key: &[&dyn rusqlite::ToSql],
    rest: &[&dyn rusqlite::ToSql],
) -> rusqlite::Result<i64> {
    let found = || -> rusqlite::Result<Option<i64>> {
        connection.prepare(find)?.query_row(key, |row| row.get(0)).optional()
    };
    if let Some(number) = found()? {
        return Ok(number);
    }
    let all: Vec<&dyn rusqlite::ToSql> = key.iter().chain(rest).copied().collect();
    connection.prepare(add)?.execute(&*all)?;
    found()?.ok_or(rusqlite::Error::QueryReturnedNoRows)
}

fn image(connection: &Connection, hash: &str, class: usize, name: &str) -> rusqlite::Result<i64> {
    numbered(
        connection,
        "SELECT id FROM image WHERE hash = ?1 AND class = ?2",
        "INSERT OR IGNORE INTO image (hash, class, name) VALUES (?1, ?2, ?3)",
        &[&hash, &(class as i64)],
        &[&name],
    )
}

/// The application id and the version of the schema.
fn marks(connection: &Connection) -> rusqlite::Result<(i64, i64)> {
    let mark = |name: &str| connection.pragma_query_value(None, name, |row| row.get(0));
    Ok((mark("application_id")?, mark("user_version")?))
}

/// Adds the view of all results to new tables and marks them as of the present version.
fn complete(connection: &Connection) -> rusqlite::Result<()> {
    checksum::add_columns(connection)?;
    show_results(connection)?;
    connection.pragma_update(None, "application_id", APPLICATION)?;
    connection.pragma_update(None, "user_version", VERSION)
}

/// Makes the view of all results, with the present columns.
fn show_results(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(&format!("DROP VIEW IF EXISTS results; CREATE VIEW results AS {RESULTS}"))
}

fn in_use(path: &Path) -> Error {
    Error::argument(format!(
        "{}: an earlier version of the program works on this run store; run again when it is done",
        path.display()
    ))
}

/// The URI by which SQLite reads an unchanging file without creating files beside it; `None` if a write-ahead log is left.
fn unchanging(path: &Path) -> Option<PathBuf> {
    let left = PathBuf::from(format!("{}-wal", path.display()));
    if left.metadata().is_ok_and(|left| left.len() > 0) {
        return None;
    }
    let name = path.to_str()?.replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    Some(PathBuf::from(format!("file:{name}?immutable=1")))
}

/// An error of SQLite in words that help.
fn failure(path: &Path, cause: rusqlite::Error) -> Error {
    let path = path.display();
    let io = |message: String| Error::new(ErrorKind::Io, message);
    let error = match cause.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => {
            io(format!("{path}: the disk is full; make room and run again, what is finished is kept"))
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => io(format!(
            "{path}: another process has been writing for {} s; run again when it is done",
            LOCK_TIMEOUT.as_secs()
        )),
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            Error::malformed(format!("{path}: this is no run store, or a damaged one ({cause})"))
        }
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            io(format!("{path}: the run store cannot be opened or written ({cause})"))
        }
        Some(ErrorCode::SystemIoFailure) if is_write(&cause) => io(format!(
            "{path}: the run store could not be written ({cause}); is the disk full? What is finished is kept"
        )),
        _ => io(format!("{path}: {cause}")),
    };
    error.caused_by(cause)
}

fn is_write(cause: &rusqlite::Error) -> bool {
    matches!(cause, rusqlite::Error::SqliteFailure(error, _)
        if [ffi::SQLITE_IOERR_WRITE, ffi::SQLITE_IOERR_FSYNC, ffi::SQLITE_IOERR_SHMSIZE].contains(&error.extended_code))
}

#[cfg(test)]
pub(crate) mod tests {
    use monosplit_engine::EngineIdentity;

    use super::*;

    /// A file of its own for a test, removed with what belongs to it.
    pub(crate) struct Scratch(pub(crate) PathBuf);

    impl Scratch {
        pub(crate) fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("monosplit-eval-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::create_dir_all(&folder).unwrap();
            Scratch(folder)
        }

        pub(crate) fn store(&self) -> PathBuf {
            self.0.join("run.sqlite")
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    pub(crate) fn configuration(layer: &str) -> Configuration {
        Configuration {
            method: "splitcam".into(),
            options: "alpha=0.3".into(),
            layer: layer.into(),
            absolute: false,
        }
    }

    pub(crate) fn provenance() -> Provenance {
        let identity = EngineIdentity { engine: "cpu".into(), instructions: "avx2".into() };
        Provenance { version: "0".into(), identity }
    }

    fn row(metric: i64, value: f64) -> Row {
        Row { configuration: 1, image: 1, metric, value: Some(value), undefined: None, seconds: 0.5 }
    }

    #[test]
    fn the_same_thing_has_the_same_number_in_every_process() {
        let scratch = Scratch::new("numbers");
        let [one, other] = [(); 2].map(|()| Store::open(&scratch.store()).unwrap());
        let first = one.configuration(&configuration("a")).unwrap();
        assert_eq!(other.configuration(&configuration("a")).unwrap(), first);
        assert_ne!(other.configuration(&configuration("b")).unwrap(), first);
        let image = other.image("hash", 3, "cat.jpg").unwrap();
        assert_eq!(one.image("hash", 3, "cat.jpg").unwrap(), image);
        assert_ne!(one.image("hash", 4, "cat.jpg").unwrap(), image);
    }

    #[test]
    fn a_finished_row_stays_as_it_was_first_written() {
        let scratch = Scratch::new("rows");
        let mut store = Store::open(&scratch.store()).unwrap();
        let model = store.model("m", "p", "net").unwrap();
        store.configuration(&configuration("a")).unwrap();
        store.image("i", 0, "cat").unwrap();
        let metric = store.metric("pointing game", Better::Higher).unwrap();
        store.put((model, 0), &[row(metric, 1.0)], &provenance()).unwrap();
        store.put((model, 0), &[row(metric, 2.0)], &provenance()).unwrap();
        let rows = Store::read(&scratch.store()).unwrap().rows(&RowFilter::default()).unwrap();
        assert_eq!(rows.iter().map(|row| row.value).collect::<Vec<_>>(), [Some(1.0)]);
        assert_eq!(store.measured((model, 0), &[(1, 1), (1, 2)]).unwrap(), [vec![metric], vec![]]);
        assert_eq!(
            store.measured((model, 1), &[(1, 1)]).unwrap(),
            [[0i64; 0]],
            "another seed is another row"
        );
    }

    #[test]
    fn files_that_are_no_run_stores_are_refused() {
        let scratch = Scratch::new("foreign");
        let text = scratch.0.join("notes.txt");
        std::fs::write(
            &text,
            "this is no database, and long enough for a header of one, it says ".repeat(20),
        )
        .unwrap();
        assert!(Store::open(&text).unwrap_err().to_string().contains("no run store"));
        let other = scratch.0.join("other.sqlite");
        Connection::open(&other).unwrap().execute_batch("CREATE TABLE a (b)").unwrap();
        assert!(Store::open(&other).unwrap_err().to_string().contains("no run store"));
        assert!(Store::read(&scratch.0.join("absent")).unwrap_err().to_string().contains("no run store"));
    }

    #[test]
    fn a_full_disk_is_reported_and_finished_rows_are_kept() {
        let scratch = Scratch::new("full");
        let mut store = Store::open(&scratch.store()).unwrap();
        let model = store.model("m", "p", "net").unwrap();
        store.configuration(&configuration("a")).unwrap();
        store.image("i", 0, "cat").unwrap();
        let metric = store.metric("a", Better::Higher).unwrap();
        store.put((model, 0), &[row(metric, 1.0)], &provenance()).unwrap();
        let pages: i64 = store.connection.pragma_query_value(None, "page_count", |r| r.get(0)).unwrap();
        store.connection.pragma_update(None, "max_page_count", pages).unwrap();
        let more: Vec<Row> = (0..5000)
            .map(|seconds| Row {
                undefined: Some("x".repeat(100)),
                seconds: f64::from(seconds),
                ..row(metric, 0.0)
            })
            .collect();
        let mut refused = None;
        for seed in 1..5000 {
            if let Err(error) = store.put((model, seed), &more[..1], &provenance()) {
                refused = Some(error.to_string());
                break;
            }
        }
        assert!(refused.unwrap().contains("the disk is full"));
        assert_eq!(store.measured((model, 0), &[(1, 1)]).unwrap(), [[metric]]);
    }
}
