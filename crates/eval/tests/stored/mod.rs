//! Everything that is read of a run store.

use std::path::Path;

use monosplit_eval::store::{RowFilter, Store};

/// Reads the store at `path`; whether all of it could be read.
pub(crate) fn read(path: &Path) -> bool {
    let Ok(store) = Store::read(path) else { return false };
    let rows = store.rows(&RowFilter::default());
    let planned = store.experiments().and_then(|names| {
        names.iter().try_for_each(|name| store.planned(Some(name)).map(|_| ()))?;
        store.image_hashes()
    });
    rows.is_ok() && planned.is_ok()
}
