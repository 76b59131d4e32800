//! What there is: methods and their options.

use monosplit::catalogue;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// All methods, each a dictionary with name, family, summary, citation and options.
#[pyfunction]
pub(crate) fn methods(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    catalogue::entries()
        .map(|entry| {
            let found = PyDict::new(py);
            found.set_item("name", entry.name)?;
            found.set_item("family", entry.family.title())?;
            found.set_item("summary", entry.summary)?;
            found.set_item("citation", entry.citation)?;
            let options = PyDict::new(py);
            for option in entry.options {
                options.set_item(option.key, (option.default, option.meaning))?;
            }
            found.set_item("options", options)?;
            Ok(found)
        })
        .collect()
}
