//! Questions to a store: the rows that fit, and the values of a configuration image by image.

use std::collections::HashMap;

use monosplit_graph::Result;

use super::Store;

/// Which rows are wanted; a text fits if it occurs anywhere in the row's, whatever its case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// In the model's name or hash.
    pub model: Option<String>,
    /// In the method's name.
    pub method: Option<String>,
    /// In the options.
    pub configuration: Option<String>,
    /// In the layer's name.
    pub layer: Option<String>,
    /// In the image's name.
    pub image: Option<String>,
    /// In the metric's name.
    pub metric: Option<String>,
}

/// A row of a store, in words.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct StoredRow {
    pub model: String,
    pub model_hash: String,
    pub preprocessing: String,
    pub method: String,
    pub configuration: String,
    pub layer: String,
    pub absolute: bool,
    pub image: String,
    pub image_hash: String,
    pub class: i64,
    pub metric: String,
    pub better: String,
    pub value: Option<f64>,
    pub silence: Option<String>,
    pub seconds: f64,
    pub seed: i64,
    pub version: String,
}

impl Store {
    /// The rows that fit, in an order that does not depend on who computed them when.
    pub fn rows(&self, filter: &Filter) -> Result<Vec<StoredRow>> {
        let find = "SELECT model, model_hash, preprocessing, method, configuration, layer, absolute, image, \
                    image_hash, class, metric, better, value, silence, seconds, seed, version FROM results \
                    WHERE (?1 IS NULL OR instr(lower(model || model_hash), ?1) > 0) \
                    AND (?2 IS NULL OR instr(lower(method), ?2) > 0) \
                    AND (?3 IS NULL OR instr(lower(configuration), ?3) > 0) \
                    AND (?4 IS NULL OR instr(lower(layer), ?4) > 0) \
                    AND (?5 IS NULL OR instr(lower(image), ?5) > 0) \
                    AND (?6 IS NULL OR instr(lower(metric), ?6) > 0) \
                    ORDER BY model, model_hash, preprocessing, method, configuration, layer, absolute, image, \
                    image_hash, class, metric, seed";
        let words = [
            &filter.model,
            &filter.method,
            &filter.configuration,
            &filter.layer,
            &filter.image,
            &filter.metric,
        ]
        .map(|word| word.as_ref().map(|word| word.to_lowercase()));
        let values: Vec<&dyn rusqlite::ToSql> =
            words.iter().map(|word| word as &dyn rusqlite::ToSql).collect();
        self.list(find, &values, |row| {
            Ok(StoredRow {
                model: row.get(0)?,
                model_hash: row.get(1)?,
                preprocessing: row.get(2)?,
                method: row.get(3)?,
                configuration: row.get(4)?,
                layer: row.get(5)?,
                absolute: row.get(6)?,
                image: row.get(7)?,
                image_hash: row.get(8)?,
                class: row.get(9)?,
                metric: row.get(10)?,
                better: row.get(11)?,
                value: row.get(12)?,
                silence: row.get(13)?,
                seconds: row.get(14)?,
                seed: row.get(15)?,
                version: row.get(16)?,
            })
        })
    }

    /// The values of a configuration by one metric, by image; silent ones are not there.
    pub fn values(
        &self,
        (model, seed): (i64, u64),
        configuration: i64,
        metric: i64,
    ) -> Result<HashMap<i64, f64>> {
        let rows = self.list(
            "SELECT image, value FROM result WHERE model = ?1 AND configuration = ?2 AND metric = ?3 \
             AND seed = ?4 AND value IS NOT NULL",
            &[&model, &configuration, &metric, &(seed as i64)],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        Ok(rows.into_iter().collect())
    }
}
