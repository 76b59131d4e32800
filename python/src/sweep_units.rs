//! Units of work, rows and images on their way between processes: tuples and arrays, which every pickle keeps bit by bit.

use monosplit::engine::EngineIdentity;
use monosplit::eval::EvaluatedImage;
use monosplit::eval::dataset::{ExcludedImage, ImageIssue};
use monosplit::eval::protocol::{FoundImage, Inspected};
use monosplit::eval::store::{Provenance, Row};
use monosplit::eval::sweep::{MissingValues, WorkUnit};
use monosplit::{Error, Result};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;

/// An image: id, name, hash, class, index in the data set.
type ImageTuple = (i64, String, String, usize, usize);

/// A unit: its group, its images, and for each candidate and image with missing values the indices of both and of the metrics.
pub(crate) type UnitTuple = (usize, Vec<ImageTuple>, Vec<(usize, usize, Vec<usize>)>);

pub(crate) fn unit_tuple(unit: WorkUnit) -> UnitTuple {
    let images = unit.images.into_iter();
    let images = images.map(|image| (image.id, image.name, image.hash, image.class, image.index));
    let missing = unit.missing.into_iter().map(|values| (values.member, values.image, values.metrics));
    (unit.group, images.collect(), missing.collect())
}

pub(crate) fn unit((group, images, missing): UnitTuple) -> WorkUnit {
    let image = |(id, name, hash, class, index)| EvaluatedImage { id, name, hash, class, index };
    let values = |(member, image, metrics)| MissingValues { member, image, metrics };
    WorkUnit {
        group,
        images: images.into_iter().map(image).collect(),
        missing: missing.into_iter().map(values).collect(),
    }
}

/// An inspected image: its index, name, hash, class and the issue of its mask; or its name, an issue and details.
#[derive(FromPyObject, IntoPyObject)]
pub(crate) enum InspectedTuple {
    Found((usize, String, String, usize, Option<String>)),
    Excluded((String, String, String)),
}

/// The issues by the names they have between processes.
const ISSUES: [(&str, ImageIssue); 5] = [
    ("unreadable", ImageIssue::Unreadable),
    ("missing-mask", ImageIssue::MissingMask),
    ("sizes-differ", ImageIssue::SizesDiffer),
    ("empty-mask", ImageIssue::EmptyMask),
    ("repeated", ImageIssue::Repeated),
];

fn issue_name(issue: ImageIssue) -> String {
    ISSUES.iter().find(|(_, one)| *one == issue).map_or("unreadable", |(name, _)| name).to_owned()
}

fn issue(name: &str) -> Result<ImageIssue> {
    let found = ISSUES.iter().find(|(one, _)| *one == name);
    found.map(|(_, issue)| *issue).ok_or_else(|| Error::argument(format!("there is no issue '{name}'")))
}

pub(crate) fn inspected_tuple(inspected: Inspected) -> InspectedTuple {
    match inspected {
        Ok(FoundImage { index, name, hash, class, mask_issue }) => {
            InspectedTuple::Found((index, name, hash, class, mask_issue.map(issue_name)))
        }
        Err(ExcludedImage { name, issue, detail }) => {
            InspectedTuple::Excluded((name, issue_name(issue), detail))
        }
    }
}

pub(crate) fn inspected(tuple: InspectedTuple) -> Result<Inspected> {
    Ok(match tuple {
        InspectedTuple::Found((index, name, hash, class, mask_issue)) => {
            let mask_issue = mask_issue.as_deref().map(issue).transpose()?;
            Ok(FoundImage { index, name, hash, class, mask_issue })
        }
        InspectedTuple::Excluded((name, what, detail)) => {
            Err(ExcludedImage { name, issue: issue(&what)?, detail })
        }
    })
}

/// Rows as columns: ids of configurations, images and metrics, values, seconds; the reasons of rows without a value; and what
/// measured them: version, engine, instructions.
pub(crate) type RowsTuple<'py> = (
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<f64>>,
    Bound<'py, PyArray1<f64>>,
    Vec<(usize, String)>,
    (String, String, String),
);

pub(crate) fn rows_tuple<'py>(py: Python<'py>, rows: Vec<Row>, made_by: &Provenance) -> RowsTuple<'py> {
    let whole = |of: fn(&Row) -> i64| PyArray1::from_vec(py, rows.iter().map(of).collect());
    let real = |of: fn(&Row) -> f64| PyArray1::from_vec(py, rows.iter().map(of).collect());
    let reasons = rows.iter().enumerate();
    let reasons = reasons.filter_map(|(at, row)| Some((at, row.undefined.clone()?))).collect();
    let Provenance { version, identity: EngineIdentity { engine, instructions } } = made_by.clone();
    (
        whole(|row| row.configuration),
        whole(|row| row.image),
        whole(|row| row.metric),
        real(|row| row.value.unwrap_or(f64::NAN)),
        real(|row| row.seconds),
        reasons,
        (version, engine, instructions),
    )
}

/// The same, read.
pub(crate) type GivenRows<'py> = (
    PyReadonlyArray1<'py, i64>,
    PyReadonlyArray1<'py, i64>,
    PyReadonlyArray1<'py, i64>,
    PyReadonlyArray1<'py, f64>,
    PyReadonlyArray1<'py, f64>,
    Vec<(usize, String)>,
    (String, String, String),
);

pub(crate) fn rows(given: &GivenRows<'_>) -> PyResult<(Vec<Row>, Provenance)> {
    let (configurations, images, metrics, values, seconds, reasons, (version, engine, instructions)) = given;
    let (configurations, images, metrics) =
        (configurations.as_slice()?, images.as_slice()?, metrics.as_slice()?);
    let (values, seconds) = (values.as_slice()?, seconds.as_slice()?);
    let count = configurations.len();
    if [images.len(), metrics.len(), values.len(), seconds.len()] != [count; 4] {
        return Err(pyo3::exceptions::PyValueError::new_err("columns of rows have the same length"));
    }
    let mut rows: Vec<Row> = (0..count)
        .map(|at| Row {
            configuration: configurations[at],
            image: images[at],
            metric: metrics[at],
            value: Some(values[at]).filter(|value| value.is_finite()),
            undefined: None,
            seconds: seconds[at],
        })
        .collect();
    for (at, reason) in reasons {
        match rows.get_mut(*at) {
            Some(row) => row.undefined = Some(reason.clone()),
            None => return Err(pyo3::exceptions::PyValueError::new_err(format!("there is no row {at}"))),
        }
    }
    let identity = EngineIdentity { engine: engine.clone(), instructions: instructions.clone() };
    Ok((rows, Provenance { version: version.clone(), identity }))
}
