//! The images of an experiment: one part to choose configurations on, and one to compare them on.

use std::collections::HashMap;
use std::collections::hash_map::Entry::{Occupied, Vacant};
use std::path::Path;

use monosplit_graph::{Error, Result};
use monosplit_image::Preprocess;

use crate::dataset::{DataSet, ExcludedImage, ImageIssue, Photograph, Sample};
use crate::evaluated_model::EvaluatedModel;
use crate::experiment::{Experiment, ExplainedClass, about};
use crate::grid_evaluation::EvaluatedImage;
use crate::metric::CaseShape;
use crate::parallel;
use crate::store::Store;

/// A part of a data set. Every image has an id in the store.
pub struct Part {
    /// Its name.
    pub name: &'static str,
    /// The data set the images are read from.
    pub data: DataSet,
    /// The images that can be used.
    pub images: Vec<EvaluatedImage>,
    /// Images that were excluded.
    pub excluded: Vec<ExcludedImage>,
    /// Images without a mask, or with an empty one, that are kept.
    pub unmasked: Vec<ExcludedImage>,
}

/// The data sets of an experiment.
#[derive(Clone, Debug)]
pub struct Images {
    /// The validation part, if there is one.
    pub validation: Option<DataSet>,
    /// The part configurations are compared on.
    pub test: DataSet,
    /// Warnings about the images.
    pub remarks: Vec<String>,
}

impl Images {
    /// Opens the data sets of an experiment in `folder`; `named_by` is the key or option that named it, for errors.
    pub fn open(experiment: &Experiment, (folder, named_by): (&Path, &str)) -> Result<Self> {
        let (part, seed) = (&experiment.data, experiment.seed);
        if !folder.is_dir() {
            let missing = DataSet::open(folder, None, &part.options).map(|_| ());
            missing.map_err(|error| prefixed(named_by, &error))?;
        }
        let open = |key: &str, name: Option<&str>| {
            DataSet::open(folder, name, &part.options).map_err(|error| match name {
                Some(name) => about(key, name, &error),
                None => prefixed(named_by, &error),
            })
        };
        let test = || open("data.test", part.test.as_deref());
        let (validation, test) = match (&part.validation, part.validation_per_class) {
            (Some(name), _) => (Some(open("data.validation", Some(name))?), test()?),
            (None, Some(count)) => {
                let (validation, test) = test()?.split(count, seed);
                if test.is_empty() {
                    return Err(Error::argument(format!(
                        "data.validation-per-class: {count} images of each class are all there are; take fewer"
                    )));
                }
                (Some(validation), test)
            }
            (None, None) => (None, test()?),
        };
        let mut remarks: Vec<String> =
            validation.iter().chain([&test]).flat_map(|data| &data.remarks).cloned().collect();
        remarks.dedup();
        let mut check = |key: &str, asked: Option<usize>, there: usize| match asked {
            Some(asked) if asked > there => {
                remarks
                    .push(format!("{key}: {asked} images are asked for, there are {there}; all are taken"));
            }
            _ => {}
        };
        let (asked, there) = (part.validation_images, validation.as_ref().map(DataSet::len));
        check("data.validation-images", there.and(asked), there.unwrap_or(0));
        check("data.test-images", part.test_images, test.len());
        let thinned = |data: DataSet, count: Option<usize>| match count {
            Some(count) => data.thinned(count, seed),
            None => data,
        };
        let validation = validation.map(|data| thinned(data, part.validation_images));
        let test = thinned(test, part.test_images);
        check("sanity.images", experiment.sanity.as_ref().and_then(|part| part.images), test.len());
        check("timing.images", experiment.timing.as_ref().and_then(|part| part.images), test.len());
        Ok(Images { validation, test, remarks })
    }
}

fn prefixed(key: &str, error: &Error) -> Error {
    error.clone().context(key)
}

impl Part {
    /// Reads all images of a data set and enters them into the store.
    pub(super) fn enter(
        name: &'static str,
        data: DataSet,
        class: ExplainedClass,
        (evaluated_model, preprocess): (&EvaluatedModel<'_>, &Preprocess),
        store: &Store,
    ) -> Result<Self> {
        type Read =
            std::result::Result<(usize, String, String, Option<usize>, Option<ImageIssue>), ExcludedImage>;
        let read = |index: usize| -> Result<Read> {
            let kept = |photograph: Photograph| {
                let issue = photograph.mask_issue();
                (index, photograph.name, photograph.hash, photograph.label, issue)
            };
            Ok(data.load(index)?.map(kept))
        };
        let found: Vec<Read> = parallel::map(data.len(), read).into_iter().collect::<Result<_>>()?;
        let (mut images, mut excluded, mut unmasked, mut classes) =
            (Vec::new(), Vec::new(), Vec::new(), None);
        let mut entered: HashMap<i64, String> = HashMap::new();
        for one in found {
            let (index, name, hash, label, mask_issue) = match one {
                Ok(found) => found,
                Err(issue) => {
                    excluded.push(issue);
                    continue;
                }
            };
            let class = match (class, label) {
                (ExplainedClass::Label, Some(label)) => {
                    if classes.is_none() {
                        classes = Some(class_count(&data, index, evaluated_model, preprocess)?);
                    }
                    checked(&name, label, classes.unwrap_or(0))?
                }
                (ExplainedClass::Label, None) => {
                    return Err(Error::argument(format!(
                        "image '{name}' has no label; list it in labels.csv, or set data.class to \"top\" to explain what the \
                         network finds"
                    )));
                }
                (ExplainedClass::Top, _) => found_class(&data, index, evaluated_model, preprocess)?,
            };
            let id = store.image(&hash, class, &name)?;
            // The same image with the same class has one row in the store and counts once.
            match entered.entry(id) {
                Occupied(first) => {
                    let detail = first.get().clone();
                    excluded.push(ExcludedImage { name, issue: ImageIssue::Repeated, detail });
                    continue;
                }
                Vacant(first) => _ = first.insert(name.clone()),
            }
            if let Some(issue) = mask_issue {
                unmasked.push(ExcludedImage { name: name.clone(), issue, detail: String::new() });
            }
            images.push(EvaluatedImage { id, name, hash, class, index });
        }
        if images.is_empty() {
            let why: Vec<String> =
                excluded.iter().take(1).map(|out| format!("; '{}' {out}", out.name)).collect();
            let why = why.concat();
            return Err(Error::argument(format!(
                "data.{name}: none of {} images can be used{why}",
                data.len()
            )));
        }
        Ok(Part { name, data, images, excluded, unmasked })
    }

    /// At most `count` of the images, evenly spaced over the part.
    pub(super) fn at_most(&self, count: Option<usize>) -> Vec<EvaluatedImage> {
        let all = self.images.len();
        let count = count.unwrap_or(all).min(all);
        (0..count).map(|i| self.images[i * all / count.max(1)].clone()).collect()
    }
}

fn sample(data: &DataSet, index: usize, preprocess: &Preprocess) -> Result<Sample> {
    let loaded = data.load(index)?;
    let photograph = loaded.map_err(|out| Error::malformed(format!("image '{}' {}", out.name, out.issue)))?;
    Sample::new(&photograph, preprocess)
}

fn class_count(
    data: &DataSet,
    index: usize,
    evaluated_model: &EvaluatedModel<'_>,
    preprocess: &Preprocess,
) -> Result<usize> {
    let scores = evaluated_model.scores(&sample(data, index, preprocess)?.tensor)?;
    Ok(scores.shape().get(1).copied().unwrap_or(0))
}

/// The shape of the images of a data set, read from the first that can be used; `None` if there is none.
pub(super) fn frame(
    data: &DataSet,
    evaluated_model: &EvaluatedModel<'_>,
    preprocess: &Preprocess,
) -> Result<Option<CaseShape>> {
    for index in 0..data.len() {
        let Ok(photograph) = data.load(index)? else { continue };
        let image = Sample::new(&photograph, preprocess)?.tensor;
        let &[_, channels, height, width] = image.shape() else { return Ok(None) };
        let classes = evaluated_model.scores(&image)?.shape().get(1).copied().unwrap_or(0);
        return Ok(Some(CaseShape { channels, height, width, classes }));
    }
    Ok(None)
}

fn found_class(
    data: &DataSet,
    index: usize,
    evaluated_model: &EvaluatedModel<'_>,
    preprocess: &Preprocess,
) -> Result<usize> {
    let found = evaluated_model.classes(&sample(data, index, preprocess)?.tensor)?;
    found.first().copied().ok_or_else(|| Error::argument("the network has no classes"))
}

fn checked(name: &str, label: usize, classes: usize) -> Result<usize> {
    if label < classes {
        return Ok(label);
    }
    Err(Error::argument(format!(
        "image '{name}' is labelled {label}, but the network has {classes} classes; does data.label-column name the \
         numbers this network knows?"
    )))
}
