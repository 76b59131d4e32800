//! The plans of experiments, stored beside the results, so that a report needs the store alone.

use monosplit_graph::{Error, Result};
use rusqlite::{OptionalExtension, Row, Transaction, TransactionBehavior, params};

use super::{Configuration, Store, failure};
use crate::dataset::ExcludedImage;
use crate::metric::Better;

/// An experiment as it was run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its name.
    pub name: String,
    /// Its complete description.
    pub text: String,
    /// The id of the model.
    pub model: i64,
    /// The path of the model.
    pub model_path: String,
    /// The path of the data set.
    pub data_path: String,
    /// Its seed.
    pub seed: u64,
    /// The version of the program that started it.
    pub version: String,
}

/// A part of an experiment: some configurations, measured by some metrics on some images.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// Its name.
    pub name: String,
    /// Its kind: `selection`, `comparison`, `ablation`, `layers`, `sanity` or `timing`.
    pub kind: String,
    /// The part of the data set.
    pub part: String,
    /// Its configurations, in order.
    pub members: Vec<Member>,
    /// Its metrics, in order: id, name, and whether higher is better.
    pub metrics: Vec<(i64, String, Better)>,
}

/// A configuration in a stage.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Its id.
    pub id: i64,
    /// The configuration.
    pub configuration: Configuration,
    /// The family it is listed under.
    pub family: String,
    /// Its name.
    pub title: String,
    /// Its position on the axis of its stage: a layer, or the value of an option.
    pub place: String,
    /// A note on why it was chosen.
    pub note: String,
}

/// An image with an issue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedIssue {
    /// The part of the data set.
    pub part: String,
    /// The image's name.
    pub image: String,
    /// The issue in words.
    pub detail: String,
    /// Whether it is evaluated nevertheless.
    pub kept: bool,
}

/// An experiment with its stages.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Its id.
    pub id: i64,
    /// The experiment.
    pub record: Record,
    /// The stages that have started, in order.
    pub stages: Vec<Stage>,
}

impl Store {
    /// The id of an experiment, which `hash` identifies.
    pub fn experiment(&self, hash: &str, record: &Record) -> Result<i64> {
        let add = "INSERT INTO experiment (hash, name, text, model, model_path, data_path, seed, version) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (hash) DO UPDATE SET \
                   model_path = excluded.model_path, data_path = excluded.data_path";
        let Record { name, text, model, model_path, data_path, seed, version } = record;
        let entered = || -> rusqlite::Result<i64> {
            let values = params![hash, name, text, model, model_path, data_path, *seed as i64, version];
            self.connection.execute(add, values)?;
            self.connection.query_row("SELECT id FROM experiment WHERE hash = ?1", [hash], |row| row.get(0))
        };
        entered().map_err(|cause| self.failed(cause))
    }

    /// Stores the images of a part of an experiment, in order.
    pub fn set_images(&mut self, experiment: i64, part: &str, images: &[i64]) -> Result<()> {
        self.within(|transaction| {
            transaction.execute(
                "DELETE FROM experiment_image WHERE experiment = ?1 AND part = ?2",
                params![experiment, part],
            )?;
            let add =
                "INSERT INTO experiment_image (experiment, part, position, image) VALUES (?1, ?2, ?3, ?4)";
            for (position, image) in images.iter().enumerate() {
                transaction.prepare(add)?.execute(params![experiment, part, position as i64, image])?;
            }
            Ok(())
        })
    }

    /// Stores which images of a part were excluded, and which are kept without a mask although masks are needed.
    pub fn set_image_issues(
        &mut self,
        experiment: i64,
        part: &str,
        excluded: &[ExcludedImage],
        unmasked: &[ExcludedImage],
    ) -> Result<()> {
        let excluded = excluded.iter().map(|out| (&out.name, out.to_string(), false));
        let unmasked = unmasked.iter().map(|out| (&out.name, out.to_string(), true));
        let all: Vec<(&String, String, bool)> = excluded.chain(unmasked).collect();
        self.within(|transaction| {
            let forget = "DELETE FROM image_issue WHERE experiment = ?1 AND part = ?2";
            transaction.execute(forget, params![experiment, part])?;
            let add = "INSERT INTO image_issue (experiment, part, position, image, detail, kept) \
                       VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
            for (position, (image, detail, kept)) in all.iter().enumerate() {
                let values = params![experiment, part, position as i64, image, detail, kept];
                transaction.prepare(add)?.execute(values)?;
            }
            Ok(())
        })
    }

    /// The images of an experiment that have issues.
    pub fn image_issues(&self, experiment: i64) -> Result<Vec<RecordedIssue>> {
        self.list(
            "SELECT part, image, detail, kept FROM image_issue WHERE experiment = ?1 ORDER BY part DESC, position",
            &[&experiment],
            |row| {
                Ok(RecordedIssue {
                    part: row.get(0)?,
                    image: row.get(1)?,
                    detail: row.get(2)?,
                    kept: row.get(3)?,
                })
            },
        )
    }

    /// Stores a stage of an experiment.
    pub fn set_stage(&mut self, experiment: i64, position: usize, stage: &Stage) -> Result<()> {
        let at = position as i64;
        self.within(|transaction| {
            for table in ["stage WHERE position", "member WHERE stage", "stage_metric WHERE stage"] {
                let forget = format!("DELETE FROM {table} = ?2 AND experiment = ?1");
                transaction.execute(&forget, params![experiment, at])?;
            }
            let add = "INSERT INTO stage (experiment, position, name, kind, part) VALUES (?1, ?2, ?3, ?4, ?5)";
            transaction.execute(add, params![experiment, at, stage.name, stage.kind, stage.part])?;
            let add = "INSERT INTO member (experiment, stage, position, configuration, family, title, place, note) \
                       VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
            for (order, member) in stage.members.iter().enumerate() {
                let Member { id, family, title, place, note, .. } = member;
                let values = params![experiment, at, order as i64, id, family, title, place, note];
                transaction.prepare(add)?.execute(values)?;
            }
            let add = "INSERT INTO stage_metric (experiment, stage, position, metric) VALUES (?1, ?2, ?3, ?4)";
            for (order, (metric, ..)) in stage.metrics.iter().enumerate() {
                transaction.prepare(add)?.execute(params![experiment, at, order as i64, metric])?;
            }
            Ok(())
        })
    }

    pub(super) fn within<T>(&mut self, work: impl Fn(&Transaction<'_>) -> rusqlite::Result<T>) -> Result<T> {
        let path = self.path.clone();
        let mut done = || {
            let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let found = work(&transaction)?;
            transaction.commit()?;
            Ok(found)
        };
        done().map_err(|cause| failure(&path, cause))
    }

    /// The names of all experiments, the oldest first.
    pub fn experiments(&self) -> Result<Vec<String>> {
        self.list("SELECT name FROM experiment ORDER BY id", &[], |row| row.get(0))
    }

    /// The experiment of that name, the latest if there are several; without a name, the latest of all.
    pub fn planned(&self, name: Option<&str>) -> Result<Planned> {
        let find = "SELECT id, name, text, model, model_path, data_path, seed, version FROM experiment \
                    WHERE ?1 IS NULL OR name = ?1 ORDER BY id DESC LIMIT 1";
        let read = |row: &Row<'_>| {
            let record = Record {
                name: row.get(1)?,
                text: row.get(2)?,
                model: row.get(3)?,
                model_path: row.get(4)?,
                data_path: row.get(5)?,
                seed: row.get::<_, i64>(6)? as u64,
                version: row.get(7)?,
            };
            Ok((row.get(0)?, record))
        };
        let found = self.connection.query_row(find, [name], read).optional();
        let Some((id, record)) = found.map_err(|cause| self.failed(cause))? else {
            let known = self.experiments()?.join(", ");
            return Err(Error::argument(match name {
                Some(name) => {
                    format!("{}: there is no experiment '{name}'; there are: {known}", self.path.display())
                }
                None => format!("{}: no experiment was begun in this store", self.path.display()),
            }));
        };
        let stages = self.stages(id)?;
        Ok(Planned { id, record, stages })
    }

    fn stages(&self, experiment: i64) -> Result<Vec<Stage>> {
        let heads: Vec<(i64, String, String, String)> = self.list(
            "SELECT position, name, kind, part FROM stage WHERE experiment = ?1 ORDER BY position",
            &[&experiment],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)),
        )?;
        let stage = |(position, name, kind, part)| {
            let members = self.list(
                "SELECT c.id, c.method, c.options, c.layer, c.absolute, m.family, m.title, m.place, m.note \
                 FROM member m JOIN configuration c ON c.id = m.configuration \
                 WHERE m.experiment = ?1 AND m.stage = ?2 ORDER BY m.position",
                &[&experiment, &position],
                member,
            )?;
            let metrics = self.list(
                "SELECT m.id, m.name, m.better FROM stage_metric a JOIN metric m ON m.id = a.metric \
                 WHERE a.experiment = ?1 AND a.stage = ?2 ORDER BY a.position",
                &[&experiment, &position],
                |row| {
                    let better = match row.get::<_, String>(2)?.as_str() {
                        "lower" => Better::Lower,
                        _ => Better::Higher,
                    };
                    Ok((row.get(0)?, row.get(1)?, better))
                },
            )?;
            Ok(Stage { name, kind, part, members, metrics })
        };
        heads.into_iter().map(stage).collect()
    }

    /// The images of a part of an experiment: id, name, explained class.
    pub fn images(&self, experiment: i64, part: &str) -> Result<Vec<(i64, String, usize)>> {
        self.list(
            "SELECT i.id, i.name, i.class FROM experiment_image s JOIN image i ON i.id = s.image \
             WHERE s.experiment = ?1 AND s.part = ?2 ORDER BY s.position",
            &[&experiment, &part],
            |row| Ok((row.get(0)?, row.get(1)?, row.get::<_, i64>(2)? as usize)),
        )
    }

    pub(super) fn list<T>(
        &self,
        find: &str,
        values: &[&dyn rusqlite::ToSql],
        read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>> {
        let found = || -> rusqlite::Result<Vec<T>> {
            let mut statement = self.connection.prepare(find)?;
            statement.query_map(values, |row| read(row))?.collect()
        };
        found().map_err(|cause| self.failed(cause))
    }
}

fn member(row: &Row<'_>) -> rusqlite::Result<Member> {
    let configuration = Configuration {
        method: row.get(1)?,
        options: row.get(2)?,
        layer: row.get(3)?,
        absolute: row.get(4)?,
    };
    Ok(Member {
        id: row.get(0)?,
        configuration,
        family: row.get(5)?,
        title: row.get(6)?,
        place: row.get(7)?,
        note: row.get(8)?,
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Scratch, configuration};
    use super::*;
    use crate::dataset::ImageIssue;

    #[test]
    fn a_plan_is_read_as_it_was_written_and_replaced_whole() {
        let scratch = Scratch::new("plan");
        let mut store = Store::open(&scratch.store()).unwrap();
        let record = Record {
            name: "quick".into(),
            text: "seed = 3".into(),
            model: store.model("m", "p", "net").unwrap(),
            model_path: "net.onnx".into(),
            data_path: "pets".into(),
            seed: u64::MAX,
            version: "0".into(),
        };
        let id = store.experiment("h", &record).unwrap();
        assert_eq!(store.experiment("h", &record).unwrap(), id);
        let metric = store.metric("a", Better::Lower).unwrap();
        let image = store.image("i", 2, "cat").unwrap();
        store.set_images(id, "test", &[image]).unwrap();
        for layers in [&["x", "y"][..], &["z"]] {
            let members = layers.iter().map(|layer| Member {
                id: store.configuration(&configuration(layer)).unwrap(),
                configuration: configuration(layer),
                family: "Split methods".into(),
                title: "SplitCAM".into(),
                place: String::new(),
                note: String::new(),
            });
            let stage = Stage {
                name: "comparison".into(),
                kind: "comparison".into(),
                part: "test".into(),
                members: members.collect(),
                metrics: vec![(metric, "a".into(), Better::Lower)],
            };
            store.set_stage(id, 0, &stage).unwrap();
            let read = Store::read(&scratch.store()).unwrap().planned(Some("quick")).unwrap();
            assert_eq!((read.record, read.stages), (record.clone(), vec![stage]));
        }
        assert_eq!(store.images(id, "test").unwrap(), [(image, "cat".to_owned(), 2)]);
        assert!(store.planned(Some("slow")).unwrap_err().to_string().contains("quick"));
    }

    #[test]
    fn images_that_something_is_wrong_with_are_all_named() {
        let scratch = Scratch::new("issues");
        let mut store = Store::open(&scratch.store()).unwrap();
        let broken = |name: &str| ExcludedImage {
            name: name.into(),
            issue: ImageIssue::Unreadable,
            detail: "no PNG".into(),
        };
        store.set_image_issues(7, "test", &[broken("a"), broken("b")], &[broken("c")]).unwrap();
        store.set_image_issues(7, "test", &[broken("a")], &[broken("c")]).unwrap();
        store.set_image_issues(8, "test", &[broken("z")], &[]).unwrap();
        let detail: Vec<(String, String, bool)> =
            store.image_issues(7).unwrap().into_iter().map(|one| (one.image, one.detail, one.kept)).collect();
        let expected = [("a", "cannot be read (no PNG)", false), ("c", "cannot be read (no PNG)", true)];
        assert_eq!(detail, expected.map(|(image, detail, kept)| (image.to_owned(), detail.to_owned(), kept)));
    }
}
