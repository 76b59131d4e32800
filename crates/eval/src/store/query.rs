//! Queries of a store: the rows that match a filter, and the values of a configuration by image.

use std::collections::HashMap;

use monosplit_graph::Result;

use super::columns::COLUMNS;
use super::{RESULTS, Store};

/// A filter of rows. A text matches if the row's text contains it, regardless of case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowFilter {
    /// In the model's name or hash.
    pub model: Option<String>,
    /// In the method's name or in its title.
    pub method: Option<String>,
    /// In the options.
    pub options: Option<String>,
    /// In the layer's name.
    pub layer: Option<String>,
    /// In the name of the part of the data set.
    pub part: Option<String>,
    /// In the image's name.
    pub image: Option<String>,
    /// In the metric's name.
    pub metric: Option<String>,
    /// The exact seed.
    pub seed: Option<u64>,
}

/// A row of a store with names instead of ids.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct StoredRow {
    pub model: String,
    pub model_hash: String,
    pub preprocessing: String,
    pub method: String,
    /// The title that experiments in the store have for the configuration; several are joined by `or`.
    pub title: String,
    pub options: String,
    pub layer: String,
    pub absolute: bool,
    /// `validation` or `test`; both where experiments in the store differ about the image, empty where none knows it.
    pub part: String,
    pub image: String,
    pub image_hash: String,
    pub class: i64,
    pub metric: String,
    pub better: String,
    pub value: Option<f64>,
    pub undefined: Option<String>,
    pub seconds: f64,
    pub seed: i64,
    pub version: String,
    /// What computed it, by [`EngineIdentity`](monosplit_engine::EngineIdentity); none for rows of earlier versions.
    pub engine: Option<String>,
    /// The vector instructions or the GPU it was computed with.
    pub instructions: Option<String>,
}

impl Store {
    /// The hash of the model with this id.
    pub fn model_hash(&self, model: i64) -> Result<String> {
        let found = self.list("SELECT hash FROM model WHERE id = ?1", &[&model], |row| row.get(0))?;
        Ok(found.into_iter().next().unwrap_or_default())
    }

    /// The hashes of all images by id.
    pub fn image_hashes(&self) -> Result<HashMap<i64, String>> {
        let rows = self.list("SELECT id, hash FROM image", &[], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.into_iter().collect())
    }

    /// The matching rows, in an order that does not depend on when or by which process they were computed.
    pub fn rows(&self, filter: &RowFilter) -> Result<Vec<StoredRow>> {
        let columns =
            ["model || model_hash", "method || ' ' || title", "options", "layer", "part", "image", "metric"];
        let fits: Vec<String> = (1..)
            .zip(columns)
            .map(|(n, column)| format!("(?{n} IS NULL OR instr(lower({column}), ?{n}) > 0)"))
            .collect();
        // The view of older stores has other columns, so the query is spelled out here.
        let find = format!(
            "SELECT {} FROM ({RESULTS}) WHERE {} AND (?8 IS NULL OR seed = ?8) \
             ORDER BY model, model_hash, preprocessing, method, options, layer, absolute, part, image, image_hash, \
             class, metric, seed",
            COLUMNS.join(", "),
            fits.join(" AND ")
        );
        let words = [
            &filter.model,
            &filter.method,
            &filter.options,
            &filter.layer,
            &filter.part,
            &filter.image,
            &filter.metric,
        ]
        .map(|word| word.as_ref().map(|word| word.to_lowercase()));
        let seed = filter.seed.map(|seed| seed as i64);
        let values: Vec<&dyn rusqlite::ToSql> = words
            .iter()
            .map(|word| word as &dyn rusqlite::ToSql)
            .chain([&seed as &dyn rusqlite::ToSql])
            .collect();
        self.list(&find, &values, |row| {
            Ok(StoredRow {
                model: row.get(0)?,
                model_hash: row.get(1)?,
                preprocessing: row.get(2)?,
                method: row.get(3)?,
                title: row.get(4)?,
                options: row.get(5)?,
                layer: row.get(6)?,
                absolute: row.get(7)?,
                part: row.get(8)?,
                image: row.get(9)?,
                image_hash: row.get(10)?,
                class: row.get(11)?,
                metric: row.get(12)?,
                better: row.get(13)?,
                value: row.get(14)?,
                undefined: row.get(15)?,
                seconds: row.get(16)?,
                seed: row.get(17)?,
                version: row.get(18)?,
                engine: row.get(19)?,
                instructions: row.get(20)?,
            })
        })
    }

    /// The values of a configuration by one metric, by image; `None` where undefined.
    pub fn values(
        &self,
        (model, seed): (i64, u64),
        configuration: i64,
        metric: i64,
    ) -> Result<HashMap<i64, Option<f64>>> {
        let rows = self.list(
            "SELECT image, value FROM result WHERE model = ?1 AND configuration = ?2 AND metric = ?3 \
             AND seed = ?4",
            &[&model, &configuration, &metric, &(seed as i64)],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        Ok(rows.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Scratch, configuration, provenance};
    use super::super::{Record, Row};
    use super::*;
    use crate::metric::Better;

    /// An image is of the part in which the experiment of that network and seed has it.
    #[test]
    fn a_row_says_which_part_its_image_is_of_and_can_be_found_by_it() {
        let scratch = Scratch::new("parts");
        let mut store = Store::open(&scratch.store()).unwrap();
        let model = store.model("m", "p", "net").unwrap();
        let metric = store.metric("a", Better::Higher).unwrap();
        let at = store.configuration(&configuration("x")).unwrap();
        let images = ["v", "t", "b", "n"].map(|name| store.image(name, 0, name).unwrap());
        for seed in [0, 1] {
            let record = Record {
                name: "e".into(),
                text: String::new(),
                model,
                model_path: String::new(),
                data_path: String::new(),
                seed,
                version: String::new(),
            };
            let id = store.experiment(&seed.to_string(), &record).unwrap();
            let (validation, test) = ([images[0], images[2]], [images[1], images[2]]);
            // With the other seed the parts are the other way round.
            let [first, second] = if seed == 0 { [validation, test] } else { [test, validation] };
            store.set_images(id, "validation", &first).unwrap();
            store.set_images(id, "test", &second).unwrap();
            let row = |image| Row {
                configuration: at,
                image,
                metric,
                value: Some(1.0),
                undefined: None,
                seconds: 0.0,
            };
            store.put((model, seed), &images.map(row), &provenance()).unwrap();
        }
        let found = |filter: RowFilter| -> Vec<(String, String)> {
            store.rows(&filter).unwrap().into_iter().map(|row| (row.image, row.part)).collect()
        };
        let expected = |rows: &[(&str, &str)]| -> Vec<(String, String)> {
            rows.iter().map(|(image, part)| ((*image).to_owned(), (*part).to_owned())).collect()
        };
        let both = ("b", "validation and test");
        let seed = |seed| RowFilter { seed: Some(seed), ..RowFilter::default() };
        assert_eq!(found(seed(0)), expected(&[("n", ""), ("t", "test"), ("v", "validation"), both]));
        assert_eq!(found(seed(1)), expected(&[("n", ""), ("v", "test"), ("t", "validation"), both]));
        let tested = RowFilter { part: Some("Test".into()), ..seed(0) };
        assert_eq!(found(tested), expected(&[("t", "test"), both]));
        let viewed =
            store.list("SELECT DISTINCT part FROM results ORDER BY 1", &[], |row| row.get::<_, String>(0));
        assert_eq!(viewed.unwrap(), ["", "test", "validation", "validation and test"]);
    }
}
