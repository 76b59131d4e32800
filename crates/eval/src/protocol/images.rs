//! The images of an experiment: one part to choose configurations on, and one to compare them on.

use std::collections::HashMap;
use std::collections::hash_map::Entry::{Occupied, Vacant};
use std::ops::Range;
use std::path::Path;

use monosplit_explain::is_target_score;
use monosplit_graph::{Error, Result};

use super::Plan;
use crate::dataset::{DataSet, DatasetSample, ExcludedImage, ImageIssue, Photograph};
use crate::experiment::{Experiment, ExplainedClass, about};
use crate::metric::CaseShape;
use crate::parallel;
use crate::store::Store;
use crate::sweep::EvaluatedImage;

/// A part of a data set. Every image has an id in the store.
pub struct StoredPart {
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

/// An image that can be used, as a process found it that has no store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundImage {
    /// Its index in the data set.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// Its hash.
    pub hash: String,
    /// The class that is explained.
    pub class: usize,
    /// Why metrics that need a mask are undefined.
    pub mask_issue: Option<ImageIssue>,
}

/// An image, or why it is excluded.
pub type Inspected = std::result::Result<FoundImage, ExcludedImage>;

impl Plan<'_> {
    /// Reads some images of a data set, and finds the class that is explained for each.
    pub fn inspect(&self, data: &DataSet, indices: Range<usize>) -> Result<Vec<Inspected>> {
        // Labels are classes of the images, and the scores of a target are others.
        let is_target = is_target_score(self.setting.evaluated_model.graph());
        let class = if is_target { ExplainedClass::Top } else { self.setting.experiment.data.class };
        let read = |index: usize| {
            let kept = |photograph: Photograph| {
                let issue = photograph.mask_issue();
                (photograph.name, photograph.hash, photograph.label, issue)
            };
            Ok(data.load(index)?.map(kept))
        };
        let first = indices.start;
        let found: Vec<Result<_>> = parallel::map(indices.len(), |offset| read(first + offset));
        let (mut inspected, mut classes) = (Vec::with_capacity(found.len()), None);
        for (index, one) in indices.zip(found) {
            let (name, hash, label, mask_issue) = match one? {
                Ok(found) => found,
                Err(issue) => {
                    inspected.push(Err(issue));
                    continue;
                }
            };
            let class = match (class, label) {
                (ExplainedClass::Label, Some(label)) => {
                    if classes.is_none() {
                        classes = Some(self.class_count(data, index)?);
                    }
                    checked(&name, label, classes.unwrap_or(0))?
                }
                (ExplainedClass::Label, None) => {
                    return Err(Error::argument(format!(
                        "image '{name}' has no label; list it in labels.csv, or set data.class to \"top\" to explain what the \
                         network finds"
                    )));
                }
                (ExplainedClass::Top, _) => self.found_class(data, index)?,
            };
            inspected.push(Ok(FoundImage { index, name, hash, class, mask_issue }));
        }
        Ok(inspected)
    }

    /// The shape of the images of a data set, read from the first that can be used; `None` if there is none.
    pub(super) fn frame(&self, data: &DataSet) -> Result<Option<CaseShape>> {
        for index in 0..data.len() {
            let Ok(photograph) = data.load(index)? else { continue };
            let image = DatasetSample::new(&photograph, self.setting.preprocess)?.tensor;
            let &[_, channels, height, width] = image.shape() else { return Ok(None) };
            let classes = self.setting.evaluated_model.scores(&image)?.shape().get(1).copied().unwrap_or(0);
            return Ok(Some(CaseShape { channels, height, width, classes }));
        }
        Ok(None)
    }

    fn sample(&self, data: &DataSet, index: usize) -> Result<DatasetSample> {
        let loaded = data.load(index)?;
        let photograph =
            loaded.map_err(|out| Error::malformed(format!("image '{}' {}", out.name, out.issue)))?;
        DatasetSample::new(&photograph, self.setting.preprocess)
    }

    fn class_count(&self, data: &DataSet, index: usize) -> Result<usize> {
        let scores = self.setting.evaluated_model.scores(&self.sample(data, index)?.tensor)?;
        Ok(scores.shape().get(1).copied().unwrap_or(0))
    }

    fn found_class(&self, data: &DataSet, index: usize) -> Result<usize> {
        let found = self.setting.evaluated_model.classes(&self.sample(data, index)?.tensor)?;
        found.first().copied().ok_or_else(|| Error::argument("the network has no classes"))
    }
}

impl StoredPart {
    /// Enters the images of a data set into the store, in order.
    pub(super) fn enter(
        name: &'static str,
        data: DataSet,
        inspected: Vec<Inspected>,
        store: &mut Store,
    ) -> Result<Self> {
        let (mut images, mut excluded, mut unmasked) = (Vec::new(), Vec::new(), Vec::new());
        let keys = inspected.iter().flatten().map(|one| (&*one.hash, one.class, &*one.name));
        let mut ids = store.images_entered(&keys.collect::<Vec<_>>())?.into_iter();
        let mut entered: HashMap<i64, String> = HashMap::new();
        for one in inspected {
            let FoundImage { index, name, hash, class, mask_issue } = match one {
                Ok(found) => found,
                Err(issue) => {
                    excluded.push(issue);
                    continue;
                }
            };
            let Some(id) = ids.next() else { continue };
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
        Ok(StoredPart { name, data, images, excluded, unmasked })
    }

    /// At most `count` of the images, evenly spaced over the part.
    pub(super) fn at_most(&self, count: Option<usize>) -> Vec<EvaluatedImage> {
        let all = self.images.len();
        let count = count.unwrap_or(all).min(all);
        (0..count).map(|i| self.images[i * all / count.max(1)].clone()).collect()
    }
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
