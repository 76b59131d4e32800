//! A run of an experiment beside the page: its tables, whose rows and images open in the explorer, and its report.

use serde::Serialize;

/// A run of an experiment that a server shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExhibitedRun {
    /// What was measured.
    pub tables: RunTables,
    /// The files of its report by their names; the page is called `index.html`.
    pub report: Vec<(String, Vec<u8>)>,
}

/// What a run has measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunTables {
    /// The experiment's name.
    pub name: String,
    /// The preprocessing of its pictures, a preset's name.
    pub preset: Option<String>,
    /// Its stages, each a table.
    pub stages: Vec<RunStage>,
}

/// A stage of a run: members by metrics, over images.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunStage {
    /// What it is called.
    pub name: String,
    /// The metrics, in the order of the columns.
    pub metrics: Vec<RunMetric>,
    /// What was measured, in the order of the rows.
    pub members: Vec<RunMember>,
    /// The images it was measured on.
    pub images: Vec<RunImage>,
}

/// A metric of a stage.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunMetric {
    /// Its title.
    pub title: String,
    /// Whether higher values are better.
    pub is_higher_better: bool,
}

/// A method at a layer, as it was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunMember {
    /// Its title.
    pub title: String,
    /// The method with its options; none where its maps were made elsewhere.
    pub method: Option<String>,
    /// The layer; without one the image.
    pub layer: String,
    /// Whether the absolute values of its maps were measured.
    pub is_absolute: bool,
    /// The mean over the images by each metric.
    pub means: Vec<Option<f64>>,
    /// The value of each image by each metric; empty where the run has too many to be sent.
    pub values: Vec<Vec<Option<f64>>>,
}

/// An image of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunImage {
    /// Its name.
    pub name: String,
    /// The class that was explained.
    pub class: usize,
    /// Its number in the gallery, where its file is there.
    pub gallery: Option<usize>,
}
