//! Checksums of stored results. Each covers a row and what it refers to, so that a flipped bit anywhere in what is shown or used
//! again is noticed. Rows of earlier versions of the program have none.

use monosplit_graph::{Error, Result};
use rusqlite::{Connection, OptionalExtension, Row, Statement, params};

use super::Store;
use crate::sha256::Sha256;

/// What a checksum covers, in order; then columns that it covers where they are set, and the checksum itself.
const COVERED: &str = "model.hash, model.preprocessing, configuration.method, configuration.options, configuration.layer, \
     configuration.absolute, image.hash, image.class, metric.name, metric.better, result.value, result.undefined, \
     result.seconds, result.seed, result.version, result.engine, result.instructions, result.checksum";
const ALWAYS_COVERED: usize = 15;
/// Rows of earlier versions do not have the last two.
const COVERED_COLUMNS: usize = 17;
const TABLES: &str = "result LEFT JOIN model ON model.id = result.model \
     LEFT JOIN configuration ON configuration.id = result.configuration \
     LEFT JOIN image ON image.id = result.image LEFT JOIN metric ON metric.id = result.metric";

/// The checksum of a row of [`COVERED`].
fn of_row(row: &Row<'_>) -> rusqlite::Result<String> {
    use rusqlite::types::ValueRef;
    let mut hash = Sha256::default();
    for column in 0..COVERED_COLUMNS {
        let value = row.get_ref(column)?;
        if column >= ALWAYS_COVERED && value == ValueRef::Null {
            continue;
        }
        let (kind, bytes): (u8, Vec<u8>) = match value {
            ValueRef::Null => (0, Vec::new()),
            ValueRef::Integer(number) => (1, number.to_le_bytes().to_vec()),
            ValueRef::Real(number) => (2, number.to_bits().to_le_bytes().to_vec()),
            ValueRef::Text(bytes) => (3, bytes.to_vec()),
            ValueRef::Blob(bytes) => (4, bytes.to_vec()),
        };
        if column >= ALWAYS_COVERED {
            hash.update(&[column as u8]);
        }
        hash.update(&[kind]);
        hash.update(&(bytes.len() as u64).to_le_bytes());
        hash.update(&bytes);
    }
    Ok(hash.finish())
}

/// Columns of results that versions of the program added after the first stores of this schema were written.
const ADDED: [&str; 3] = ["checksum", "engine", "instructions"];

fn has_column(connection: &Connection, name: &str) -> rusqlite::Result<bool> {
    let find = "SELECT 1 FROM pragma_table_info('result') WHERE name = ?1";
    connection.query_row(find, [name], |_| Ok(())).optional().map(|found| found.is_some())
}

/// Adds the columns that a store of an earlier version lacks; returns whether there were any.
pub(super) fn add_columns(connection: &Connection) -> rusqlite::Result<bool> {
    let mut added = false;
    for name in ADDED {
        if !has_column(connection, name)? {
            connection.execute_batch(&format!("ALTER TABLE result ADD COLUMN {name} TEXT"))?;
            added = true;
        }
    }
    Ok(added)
}

/// Shows the results of a store of an earlier version with all columns, without changing the file.
pub(super) fn show_columns(connection: &Connection) -> rusqlite::Result<()> {
    let mut missing = Vec::new();
    for name in &ADDED[1..] {
        if !has_column(connection, name)? {
            missing.push(format!(", NULL AS {name}"));
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    let missing = missing.concat();
    connection.execute_batch(&format!("CREATE TEMP VIEW result AS SELECT *{missing} FROM main.result"))
}

/// Sets the checksums of rows that were just added.
pub(super) struct Seal<'c> {
    find: Statement<'c>,
    set: Statement<'c>,
}

impl<'c> Seal<'c> {
    pub(super) fn new(connection: &'c Connection) -> rusqlite::Result<Self> {
        let at = "WHERE result.model = ?1 AND result.configuration = ?2 AND result.image = ?3 AND result.metric = ?4 \
                  AND result.seed = ?5";
        Ok(Seal {
            find: connection.prepare(&format!("SELECT {COVERED} FROM {TABLES} {at}"))?,
            set: connection.prepare(&format!("UPDATE result SET checksum = ?6 {at}"))?,
        })
    }

    /// Seals the row with these ids of model, configuration, image and metric, and this seed.
    pub(super) fn row(
        &mut self,
        [model, configuration, image, metric, seed]: [i64; 5],
    ) -> rusqlite::Result<()> {
        let found = self.find.query_row(params![model, configuration, image, metric, seed], of_row)?;
        self.set.execute(params![model, configuration, image, metric, seed, found])?;
        Ok(())
    }
}

impl Store {
    /// An error if the file is damaged, as far as its structure and the checksums of its rows tell.
    pub(super) fn check(&self) -> Result<()> {
        let said = self.connection.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
        let said = said.map_err(|cause| self.failed(cause))?;
        if said != "ok" {
            return Err(self.damaged(said.lines().next().unwrap_or_default()));
        }
        if !has_column(&self.connection, "checksum").map_err(|cause| self.failed(cause))? {
            return Ok(());
        }
        let find = format!("SELECT {COVERED} FROM {TABLES} WHERE result.checksum IS NOT NULL");
        let differs = || -> rusqlite::Result<Option<String>> {
            let mut statement = self.connection.prepare(&find)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                let stored = row.get::<_, Option<String>>(COVERED_COLUMNS).unwrap_or_default();
                if stored != Some(of_row(row)?) {
                    let word =
                        |column| row.get::<_, Option<String>>(column).ok().flatten().unwrap_or_default();
                    return Ok(Some(format!("a row of {} by {}", word(2), word(8))));
                }
            }
            Ok(None)
        };
        match differs().map_err(|cause| self.failed(cause))? {
            Some(row) => Err(self.damaged(&format!("{row} does not have its checksum"))),
            None => Ok(()),
        }
    }

    fn damaged(&self, why: &str) -> Error {
        Error::malformed(format!(
            "{}: the run store is damaged: {why}; use a copy of the file, or remove it and run again",
            self.path.display()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Scratch, configuration, provenance};
    use super::super::{Row, RowFilter};
    use super::*;
    use crate::metric::Better;

    fn filled(scratch: &Scratch) {
        let mut store = Store::open(&scratch.store()).unwrap();
        let model = store.model("m", "p", "net").unwrap();
        let configuration = store.configuration(&configuration("a")).unwrap();
        store.configuration(&super::super::tests::configuration("b")).unwrap();
        let metric = store.metric("pointing game", Better::Higher).unwrap();
        let rows: Vec<Row> = (0..20)
            .map(|number| Row {
                configuration,
                image: store.image(&format!("i{number}"), 0, "cat").unwrap(),
                metric,
                value: Some(0.1 * f64::from(number)),
                undefined: None,
                seconds: 0.5,
            })
            .collect();
        store.put((model, 7), &rows, &provenance()).unwrap();
    }

    #[test]
    fn changed_values_and_references_are_refused_by_reader_and_writer() {
        for change in [
            "UPDATE result SET value = value + 1e-12 WHERE image = 3",
            "UPDATE result SET seed = 8 WHERE image = 3",
            "UPDATE result SET configuration = 2 WHERE image = 3",
            "UPDATE result SET metric = 9 WHERE image = 3",
            "UPDATE image SET class = 1 WHERE id = 4",
            "UPDATE metric SET better = 'lower'",
            "UPDATE result SET checksum = 'x' WHERE image = 2",
        ] {
            let scratch = Scratch::new("checksums");
            filled(&scratch);
            assert_eq!(Store::read(&scratch.store()).unwrap().rows(&RowFilter::default()).unwrap().len(), 20);
            let connection = Connection::open(scratch.store()).unwrap();
            connection.execute_batch(&format!("PRAGMA foreign_keys = OFF; {change}")).unwrap();
            drop(connection);
            for opened in [Store::read(&scratch.store()), Store::open(&scratch.store())] {
                let said = opened.unwrap_err().to_string();
                assert!(said.contains("is damaged") && !said.contains('\n'), "{change}: {said}");
            }
        }
    }

    /// Every bit of the stored values that is flipped in the file is noticed.
    #[test]
    fn flipped_bits_of_values_are_noticed() {
        let scratch = Scratch::new("flipped");
        filled(&scratch);
        let connection = Connection::open(scratch.store()).unwrap();
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        drop(connection);
        let whole = std::fs::read(scratch.store()).unwrap();
        let pattern = 0.7f64.to_be_bytes();
        let at = whole.windows(8).position(|bytes| bytes == pattern).unwrap_or_else(|| {
            let pattern = (0.1 * 7.0f64).to_be_bytes();
            whole.windows(8).position(|bytes| bytes == pattern).unwrap()
        });
        for bit in 0..64 {
            let mut bytes = whole.clone();
            bytes[at + bit / 8] ^= 1 << (bit % 8);
            std::fs::write(scratch.store(), bytes).unwrap();
            assert!(Store::read(&scratch.store()).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn stores_without_checksums_are_read_and_continued() {
        let scratch = Scratch::new("unsealed");
        filled(&scratch);
        let connection = Connection::open(scratch.store()).unwrap();
        let older = "DROP VIEW results; ALTER TABLE result DROP COLUMN checksum; \
                     ALTER TABLE result DROP COLUMN engine; ALTER TABLE result DROP COLUMN instructions; \
                     CREATE VIEW results AS SELECT value FROM result";
        connection.execute_batch(older).unwrap();
        drop(connection);
        let read = Store::read(&scratch.store()).unwrap();
        let rows = read.rows(&RowFilter::default()).unwrap();
        assert!(rows.len() == 20 && rows.iter().all(|row| row.engine.is_none() && row.value.is_some()));
        assert!(read.identities((1, 7)).unwrap().is_empty());
        filled(&scratch);
        let store = Store::open(&scratch.store()).unwrap();
        let sealed =
            store.list("SELECT count(checksum) FROM result", &[], |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(sealed, [0], "rows that were there keep what they are");
        let shown =
            store.list("SELECT count(*) - count(engine) FROM results", &[], |row| row.get::<_, i64>(0));
        assert_eq!(shown.unwrap(), [20], "the view has the present columns");
    }
}
