//! Run stores of version 1, written by versions up to 0.1.0 of the program. They are migrated when they are opened for writing.
//! A store that is only read stays as it is: temporary views show its tables as those of the present version.
//!
//! What differs: names of tables and columns, the text of the preprocessing, and two metrics whose values are shares by the
//! share rule now. A share that is no share is known from its stored value, so nothing is computed again.

use rusqlite::{Connection, Transaction};

use crate::metrics::NO_SHARE_REASON;

const MIGRATE: &str = include_str!("migrate_version_1.sql");
const READ: &str = include_str!("read_version_1.sql");
/// The rows whose value is no share. The metrics of the Quantus presets have their values as before.
const NO_SHARE: &str = "value IS NOT NULL AND (value < 0 OR value > 1) AND metric IN (SELECT id FROM main.metric \
    WHERE (name LIKE 'attribution-localisation%' OR name LIKE 'relevance-mass-accuracy%') \
    AND name NOT LIKE '%preset=quantus%')";

/// Migrates a store to version 2, all but the version itself and the view `results`.
pub(super) fn migrate(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    transaction.execute_batch(&with_share_rule(MIGRATE))?;
    rewrite_preprocessing(transaction)
}

/// Shows the tables of a store as those of version 2, without changing the file.
pub(super) fn show(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.execute_batch(&with_share_rule(READ))?;
    let issues: i64 = connection.query_row(
        "SELECT count(*) FROM main.sqlite_master WHERE name = 'trouble'",
        [],
        |row| row.get(0),
    )?;
    connection.execute_batch(match issues {
        0 => "CREATE TEMP TABLE image_issue (experiment, part, position, image, detail, kept)",
        _ => {
            "CREATE TEMP VIEW image_issue AS \
             SELECT experiment, part, position, image, said AS detail, kept FROM main.trouble"
        }
    })?;
    rewrite_preprocessing(connection)
}

fn with_share_rule(statements: &str) -> String {
    statements.replace("NO_SHARE", NO_SHARE).replace("REASON", NO_SHARE_REASON)
}

fn rewrite_preprocessing(connection: &Connection) -> rusqlite::Result<()> {
    let mut find = connection.prepare("SELECT id, preprocessing FROM model")?;
    let models: Vec<(i64, String)> =
        find.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<rusqlite::Result<_>>()?;
    for (id, text) in models {
        if let Some(text) = rewritten(&text) {
            connection.execute("UPDATE model SET preprocessing = ?2 WHERE id = ?1", (id, text))?;
        }
    }
    Ok(())
}

/// The fields of the preprocessing as version 1 wrote it, in their order.
const FIELDS: [&str; 8] =
    ["resize", "filter", "crop", "keep_cropped_size", "scale", "mean", "std", "channels"];

/// The text of a preprocessing as [`Preprocess`](monosplit_image::Preprocess) displays it, from that of version 1; `None` if
/// it is another text.
fn rewritten(text: &str) -> Option<String> {
    let mut rest = text.strip_prefix("Preprocess { ")?;
    let mut values = [""; FIELDS.len()];
    for (index, field) in FIELDS.iter().enumerate() {
        rest = rest.strip_prefix(field)?.strip_prefix(": ")?;
        let end = match FIELDS.get(index + 1) {
            Some(next) => format!(", {next}: "),
            None => " }".to_owned(),
        };
        let at = rest.find(&end)?;
        values[index] = &rest[..at];
        // The name of the next field is kept.
        rest = if index + 1 < FIELDS.len() { &rest[at + 2..] } else { &rest[at + end.len()..] };
    }
    let [resize, filter, crop, kept, scale, mean, std, channels] = values;
    let numbers = |text: &str| text.trim_matches(['[', ']']).replace(", ", ",");
    let mut words = vec![format!("resize={}", sides(resize)?), format!("filter={}", filter.to_lowercase())];
    words.push(format!("crop={}", sides(crop)?));
    if kept == "true" {
        words.push("keep-cropped-size".into());
    }
    words.push(format!("scale={}", scale.to_lowercase()));
    words.push(format!("mean={}", numbers(mean)));
    words.push(format!("std={}", numbers(std)));
    words.push(format!("channels={}", channels.to_lowercase()));
    Some(format!("{}{rest}", words.join(" ")))
}

/// `Shorter(256)` is `256`, `Exact { height: 8, width: 9 }` and `Some((8, 9))` are `8x9`, `Keep` and `None` are words.
fn sides(text: &str) -> Option<String> {
    match text {
        "Keep" | "None" => Some(text.to_lowercase()),
        _ => {
            let numbers: Vec<&str> =
                text.split(|letter: char| !letter.is_ascii_digit()).filter(|part| !part.is_empty()).collect();
            (1..=2).contains(&numbers.len()).then(|| numbers.join("x"))
        }
    }
}

#[cfg(test)]
mod tests {
    use monosplit_image::{Filter, Fit, Preset};

    use super::super::tests::Scratch;
    use super::super::{RowFilter, Store, StoredRow};
    use super::*;

    /// A store of version 1 that version 0.1.0 wrote (`scripts/make_store_fixture.sh`).
    fn written(scratch: &Scratch) -> std::path::PathBuf {
        let path = scratch.store();
        let statements = include_str!("../../tests/fixtures/store-version-1.sql");
        Connection::open(&path).unwrap().execute_batch(statements).unwrap();
        path
    }

    fn rows(store: &Store, metric: &str) -> Vec<StoredRow> {
        let mut rows = store.rows(&RowFilter::default()).unwrap();
        rows.retain(|row| row.metric == metric);
        rows
    }

    /// Issue 27: columns are named by what they hold, and stores of earlier versions still open.
    #[test]
    fn issue_27_a_store_of_version_1_is_read_without_being_changed() {
        let scratch = Scratch::new("version-1-read");
        let path = written(&scratch);
        let before = std::fs::read(&path).unwrap();
        let store = Store::read(&path).unwrap();
        assert_eq!(store.rows(&RowFilter::default()).unwrap().len(), 32);
        let crop = Preset::Imagenet.options().fit([3, 128, 128], Fit::Auto).unwrap().to_string();
        assert!(store.rows(&RowFilter::default()).unwrap().iter().all(|row| row.preprocessing == crop));
        // What Quantus computes keeps its value; by the share rule a value outside of 0 to 1 is undefined.
        let kept = rows(&store, "attribution-localisation:abs=no,preset=quantus-0.6");
        let shares = rows(&store, "attribution-localisation");
        assert!(kept.iter().any(|row| row.value.is_some_and(|value| value < 0.0)));
        for (kept, share) in kept.iter().zip(&shares) {
            let expected = kept.value.filter(|value| (0.0..=1.0).contains(value));
            assert_eq!((&share.image, share.value), (&kept.image, expected));
            assert_eq!(share.undefined.is_some(), share.value.is_none());
        }
        let planned = store.planned(None).unwrap();
        assert_eq!((planned.stages.len(), planned.stages[0].metrics.len()), (1, 4));
        assert_eq!(store.images(planned.id, "test").unwrap().len(), 4);
        assert_eq!(store.image_issues(planned.id).unwrap()[0].image, "broken.png");
        drop(store);
        assert!(before == std::fs::read(&path).unwrap(), "reading has changed the file");
    }

    #[test]
    fn issue_27_a_store_of_version_1_is_migrated_when_it_is_written_to() {
        let scratch = Scratch::new("version-1-written");
        let path = written(&scratch);
        let read = Store::read(&path).unwrap().rows(&RowFilter::default()).unwrap();
        let store = Store::open(&path).unwrap();
        assert_eq!(store.rows(&RowFilter::default()).unwrap(), read);
        assert_eq!(Store::read(&path).unwrap().rows(&RowFilter::default()).unwrap(), read);
        // The same network with the same preprocessing is the same model, so that a run goes on where it was.
        let crop = Preset::Imagenet.options().fit([3, 128, 128], Fit::Auto).unwrap().to_string();
        assert_eq!(store.model(&read[0].model_hash, &crop, "net").unwrap(), 1);
        let viewed = store.list("SELECT undefined FROM results WHERE options = ''", &[], |_| Ok(())).unwrap();
        assert!(!viewed.is_empty());
        assert_eq!(store.image_issues(store.planned(None).unwrap().id).unwrap().len(), 1);
    }

    #[test]
    fn a_store_of_version_1_is_not_migrated_while_another_process_works_on_it() {
        let scratch = Scratch::new("version-1-busy");
        let path = written(&scratch);
        let other = Scratch::new("version-1-worker");
        let worker = super::super::Worker::start(&Store::open(&other.store()).unwrap()).unwrap();
        // The lock of a worker that lives, beside the old store.
        let lock = other.0.join("run.sqlite-worker-1");
        std::fs::hard_link(lock, scratch.0.join("run.sqlite-worker-9")).unwrap();
        let refused = Store::open(&path).unwrap_err().to_string();
        assert!(refused.contains("earlier version"), "{refused}");
        drop(worker);
        Store::open(&path).unwrap();
    }

    /// The texts were written by version 0.1.0.
    #[test]
    fn the_preprocessing_of_version_1_becomes_the_text_of_today() {
        let written = "Preprocess { resize: Exact { height: 128, width: 128 }, filter: Bicubic, crop: None, \
                       keep_cropped_size: false, scale: Unit, mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225], \
                       channels: Rgb } (tf32)";
        let today =
            Preset::Imagenet.options().fit([3, 128, 128], Fit::Squash).unwrap().filter(Filter::Bicubic);
        assert_eq!(rewritten(written), Some(format!("{today} (tf32)")));
        let written = "Preprocess { resize: Shorter(256), filter: Bilinear, crop: Some((224, 224)), keep_cropped_size: true, \
                       scale: Unit, mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225], channels: Rgb }";
        let today = Preset::Imagenet.options().fit([3, 224, 224], Fit::Auto).unwrap();
        assert_eq!(rewritten(written), Some(today.to_string()));
        for other in ["", "p", "Preprocess { resize: }", "Preprocess { resize: Keep, filter"] {
            assert_eq!(rewritten(other), None);
        }
    }
}
