//! Results going into a store. A row is inserted unless its key is there, so that rows may be given more than once.

use monosplit_engine::{Engine, EngineIdentity};
use monosplit_graph::Result;
use rusqlite::{Transaction, params};

use super::checksum::Seal;
use super::{Store, Worker};

/// A result to be stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The id of its configuration.
    pub configuration: i64,
    /// The id of its image.
    pub image: i64,
    /// The id of its metric.
    pub metric: i64,
    /// The value; `None` if it is undefined.
    pub value: Option<f64>,
    /// Why the value is undefined.
    pub undefined: Option<String>,
    /// The time it took in seconds.
    pub seconds: f64,
}

/// What measured rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Provenance {
    /// The version of the program.
    pub version: String,
    /// The engine and its instructions.
    pub identity: EngineIdentity,
}

impl Provenance {
    /// This version of the program with an engine.
    pub fn of(engine: &dyn Engine) -> Result<Self> {
        Ok(Provenance { version: env!("CARGO_PKG_VERSION").to_owned(), identity: engine.identity()? })
    }
}

impl Store {
    /// Stores measured rows in one transaction; returns how many are new. A row that is stored already stays as it is, so
    /// rows may be given again.
    pub fn put(&mut self, (model, seed): (i64, u64), rows: &[Row], made_by: &Provenance) -> Result<usize> {
        self.within(|transaction| insert(transaction, (model, seed), rows, made_by))
    }

    /// Stores measured rows and releases the claims on them in one transaction.
    pub fn finish(
        &mut self,
        worker: &Worker,
        (model, seed): (i64, u64),
        (rows, made_by): (&[Row], &Provenance),
        claims: &[(i64, i64)],
    ) -> Result<()> {
        let free = "DELETE FROM claim WHERE model = ?1 AND configuration = ?2 AND image = ?3 AND worker = ?4";
        self.within(|transaction| {
            insert(transaction, (model, seed), rows, made_by)?;
            for (configuration, image) in claims {
                let key = params![model, configuration, image, worker.id()];
                transaction.prepare(free)?.execute(key)?;
            }
            Ok(())
        })
    }

    /// What computed the results of a model and a seed: engine and instructions; none for rows of earlier versions.
    pub fn identities(&self, (model, seed): (i64, u64)) -> Result<Vec<EngineIdentity>> {
        self.list(
            "SELECT DISTINCT engine, instructions FROM result WHERE model = ?1 AND seed = ?2 AND engine IS NOT NULL \
             ORDER BY 1, 2",
            &[&model, &(seed as i64)],
            |row| {
                let instructions = row.get::<_, Option<String>>(1)?.unwrap_or_default();
                Ok(EngineIdentity { engine: row.get(0)?, instructions })
            },
        )
    }
}

/// Inserts the rows that are not there; returns how many those were.
fn insert(
    transaction: &Transaction<'_>,
    (model, seed): (i64, u64),
    rows: &[Row],
    made_by: &Provenance,
) -> rusqlite::Result<usize> {
    let add = "INSERT INTO result (model, configuration, image, metric, seed, value, undefined, seconds, version, engine, \
               instructions) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) ON CONFLICT DO NOTHING";
    let Provenance { version, identity: EngineIdentity { engine, instructions } } = made_by;
    let (mut add, mut seal) = (transaction.prepare(add)?, Seal::new(transaction)?);
    let mut new = 0;
    for row in rows {
        let Row { configuration, image, metric, value, undefined, seconds } = row;
        let added = add.execute(params![
            model,
            configuration,
            image,
            metric,
            seed as i64,
            value,
            undefined,
            seconds,
            version,
            engine,
            instructions
        ])?;
        if added > 0 {
            seal.row([model, *configuration, *image, *metric, seed as i64])?;
            new += 1;
        }
    }
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Scratch, configuration, provenance};
    use super::super::{Configuration, RowFilter};
    use super::*;
    use crate::metric::Better;

    #[test]
    fn rows_given_again_change_nothing_and_say_what_computed_them() {
        let scratch = Scratch::new("put");
        let mut store = Store::open(&scratch.store()).unwrap();
        let model = store.model("m", "p", "net").unwrap();
        let metric = store.metric("a", Better::Higher).unwrap();
        let images = ["i", "j"].map(|name| store.image(name, 0, name).unwrap());
        let of: &Configuration = &configuration("a");
        let configuration = store.configuration(of).unwrap();
        let row = |image, value| Row { configuration, image, metric, value, undefined: None, seconds: 0.5 };
        let first = provenance();
        let identity = EngineIdentity { instructions: "neon".into(), ..first.identity.clone() };
        let second = Provenance { identity, ..first.clone() };
        assert_eq!(store.put((model, 7), &[row(images[0], Some(0.1))], &first).unwrap(), 1);
        let block = images.map(|image| row(image, Some(0.3)));
        assert_eq!(store.put((model, 7), &block, &second).unwrap(), 1);
        assert_eq!(store.put((model, 7), &block, &second).unwrap(), 0);
        let rows = Store::read(&scratch.store()).unwrap().rows(&RowFilter::default()).unwrap();
        let found: Vec<_> = rows.iter().map(|row| (row.value, row.instructions.as_deref())).collect();
        assert_eq!(found, [(Some(0.1), Some("avx2")), (Some(0.3), Some("neon"))]);
        assert_eq!(store.identities((model, 7)).unwrap(), [first.identity, second.identity]);
    }

    /// A block is stored whole or not at all.
    #[test]
    fn a_block_with_an_unknown_image_leaves_nothing() {
        let scratch = Scratch::new("put-whole");
        let mut store = Store::open(&scratch.store()).unwrap();
        let model = store.model("m", "p", "net").unwrap();
        let metric = store.metric("a", Better::Higher).unwrap();
        let image = store.image("i", 0, "i").unwrap();
        let configuration = store.configuration(&configuration("a")).unwrap();
        let row =
            |image| Row { configuration, image, metric, value: Some(1.0), undefined: None, seconds: 0.5 };
        assert!(store.put((model, 7), &[row(image), row(image + 1)], &provenance()).is_err());
        assert_eq!(store.measured((model, 7), &[(configuration, image)]).unwrap(), [[0i64; 0]]);
    }
}
