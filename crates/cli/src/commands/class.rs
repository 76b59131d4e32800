//! The options that say which class is explained.

use std::path::{Path, PathBuf};

use clap::Args;
use monosplit::engine::Engine;
use monosplit::explain::Class;
use monosplit::graph::{Error, Result};
use monosplit::image::Preprocess;
use monosplit::{Labels, Model, SampleReader, ScoreKind, TargetChoice};

use super::target::{TargetArgs, with_target};

/// Which class is explained, and what classes are called.
#[derive(Args)]
pub(crate) struct ClassArgs {
    /// The class that is explained: its number, its name, or `top1` for the one with the
    /// highest score of each input, which is the default. Given several times, one for each.
    #[arg(long, value_name = "CLASS", conflicts_with = "target", verbatim_doc_comment)]
    class: Vec<String>,

    #[command(flatten)]
    pub(crate) target: TargetArgs,

    /// Class names, one a line. For networks with 1000 classes those of ImageNet are built in.
    #[arg(long, value_name = "FILE", verbatim_doc_comment)]
    labels: Option<PathBuf>,
}

/// The classes to explain: one for all inputs or one for each. `None` is the class with the highest score.
pub(crate) struct Classes {
    given: Vec<Option<usize>>,
    /// What is explained where none is given.
    otherwise: Class,
}

impl ClassArgs {
    /// Whether a class was given.
    pub(crate) fn is_given(&self) -> bool {
        !self.class.is_empty()
    }

    /// A reader for these classes: where each input has a class of its own, none may be skipped, or the others would get
    /// the classes of their neighbours.
    pub(crate) fn fitting(&self, reader: SampleReader) -> SampleReader {
        if self.class.len() > 1 { reader.skip_unreadable(false) } else { reader }
    }

    /// The network with the target that was given.
    pub(crate) fn with_target(
        &self,
        model: Model,
        target: Option<&TargetChoice>,
        preprocess: Option<&Preprocess>,
        engine: &dyn Engine,
    ) -> Result<Model> {
        with_target(model, target, (self.labels.as_deref(), preprocess), engine)
    }

    /// The names of the classes and the kind of their scores.
    pub(crate) fn labels(&self, model: &Model) -> Result<(Labels, ScoreKind)> {
        let (labels, _) = labels(self.labels.as_deref(), model)?;
        Ok((labels, model.score_kind()))
    }

    /// The classes to explain.
    pub(crate) fn classes(&self, model: &Model, labels: &Labels) -> Result<Classes> {
        let classes = model.classes().unwrap_or(0);
        if !self.class.is_empty() && model.target().is_some() {
            return Err(Error::argument(
                "expected a class or a target, found defaults of both; leave out one",
            ));
        }
        let given = self.class.iter().map(|text| class(text, labels, classes)).collect::<Result<_>>()?;
        Ok(Classes { given, otherwise: model.explained_class() })
    }
}

/// The names of the classes, from a file if one is given, and the number of classes.
pub(crate) fn labels(file: Option<&Path>, model: &Model) -> Result<(Labels, usize)> {
    let classes = model.expect_classes()?;
    let labels = match file {
        // The names that a target gives its scores hold those of the classes.
        Some(path) if model.target().is_none_or(TargetChoice::is_class) => Labels::open(path, classes)?,
        _ => Labels::of(model, classes),
    };
    Ok((labels, classes))
}

/// The class of a number or a name; `None` for `top1`, the class with the highest score.
pub(crate) fn class(text: &str, labels: &Labels, classes: usize) -> Result<Option<usize>> {
    match text.to_ascii_lowercase().as_str() {
        "top1" | "top" => Ok(None),
        _ => labels.find(text, classes).map(Some),
    }
}

impl Classes {
    /// Whether all of them are this class.
    pub(crate) fn are_all(&self, class: Option<usize>) -> bool {
        self.given.iter().all(|given| *given == class)
    }

    /// The classes of `count` inputs from `first` on.
    pub(crate) fn of(&self, first: usize, count: usize) -> Result<Class> {
        let given: Vec<Option<usize>> = match &*self.given {
            [] => return Ok(self.otherwise.clone()),
            [one] => vec![*one; count],
            each => each.iter().skip(first).take(count).copied().collect(),
        };
        if given.len() < count {
            return Err(Error::argument(format!(
                "{} classes were given, but there are more inputs; give one --class for all, or one for each",
                self.given.len()
            )));
        }
        Ok(if given.iter().all(Option::is_none) { Class::Top } else { Class::PerSampleOrTop(given) })
    }

    /// An error if there were fewer inputs than classes.
    pub(crate) fn all_used(&self, inputs: usize) -> Result<()> {
        match self.given.len() {
            given if given > 1 && given != inputs => {
                Err(Error::argument(format!("{given} classes were given for {inputs} inputs")))
            }
            _ => Ok(()),
        }
    }
}
