//! The columns of stored rows. They have the same names, order and types in the view `results` and in every exported format.

use super::query::StoredRow;
use crate::parquet::Column;

/// The names of the columns, in order.
pub(super) const COLUMNS: [&str; 21] = [
    "model",
    "model_hash",
    "preprocessing",
    "method",
    "title",
    "options",
    "layer",
    "absolute",
    "part",
    "image",
    "image_hash",
    "class",
    "metric",
    "better",
    "value",
    "undefined",
    "seconds",
    "seed",
    "version",
    "engine",
    "instructions",
];

/// Rows as named columns.
pub fn columns(rows: &[StoredRow]) -> Vec<(&'static str, Column)> {
    let text =
        |of: fn(&StoredRow) -> &String| Column::Text(rows.iter().map(|row| Some(of(row).clone())).collect());
    let whole = |of: fn(&StoredRow) -> i64| Column::Whole(rows.iter().map(of).collect());
    let real = |of: fn(&StoredRow) -> Option<f64>| Column::Real(rows.iter().map(of).collect());
    let columns: [Column; COLUMNS.len()] = [
        text(|row| &row.model),
        text(|row| &row.model_hash),
        text(|row| &row.preprocessing),
        text(|row| &row.method),
        text(|row| &row.title),
        text(|row| &row.options),
        text(|row| &row.layer),
        Column::Flag(rows.iter().map(|row| row.absolute).collect()),
        text(|row| &row.part),
        text(|row| &row.image),
        text(|row| &row.image_hash),
        whole(|row| row.class),
        text(|row| &row.metric),
        text(|row| &row.better),
        real(|row| row.value),
        Column::Text(rows.iter().map(|row| row.undefined.clone()).collect()),
        real(|row| Some(row.seconds)),
        whole(|row| row.seed),
        text(|row| &row.version),
        Column::Text(rows.iter().map(|row| row.engine.clone()).collect()),
        Column::Text(rows.iter().map(|row| row.instructions.clone()).collect()),
    ];
    COLUMNS.into_iter().zip(columns).collect()
}
