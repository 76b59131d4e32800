//! The evaluation protocol. Its stages are the selection of configurations on validation images, their comparison on other
//! images, ablations of one option, curves over layers, the randomisation check, and run times. Every stage stores its values
//! row by row, so that an interrupted run can be resumed.

mod candidates;
mod checks;
mod given;
mod images;
mod selection;
mod stages;

use std::collections::HashSet;
use std::sync::Arc;

use monosplit_engine::Engine;
use monosplit_explain::{Finish, Method, Progress, Settings, is_target_score};
use monosplit_graph::{Error, Result};
use monosplit_image::Preprocess;

use crate::evaluated_model::EvaluatedModel;
use crate::experiment::{Experiment, ExplainedClass};
use crate::metric::CaseShape;
use crate::store::{Store, Worker};
use candidates::{GIVEN, MethodCandidates, choices};

pub use images::{Images, Part};

/// The name that given maps have in a store in place of a method's.
pub const GIVEN_MAPS: &str = GIVEN;

/// A method resolved from its text.
#[derive(Clone, Debug)]
pub struct ResolvedMethod {
    /// Its name.
    pub name: String,
    /// The options that differ from its defaults, in alphabetical order.
    pub options: String,
    /// Its title in reports.
    pub title: String,
    /// The family it is listed under.
    pub family: String,
    /// The method; `None` is the object mask.
    pub method: Option<Arc<dyn Method>>,
    /// Its run-time settings.
    pub settings: Settings,
    /// How its attribution becomes a map.
    pub finish: Finish,
}

/// Resolves methods from their texts.
pub trait Catalogue {
    /// The method written as `text`.
    fn method(&self, text: &str) -> Result<ResolvedMethod>;

    /// The default layer of a method; `None` is the image.
    fn usual_layer(&self, method: &ResolvedMethod) -> Option<String>;
}

/// Receives the events of a run.
pub trait Observer {
    /// The images of a part were read.
    fn part(&self, part: &Part);

    /// A stage begins. Some of its rows may already be stored.
    fn stage(&self, name: &str, configurations: usize, images: usize, rows: usize) -> Box<dyn Progress>;

    /// A warning about the experiment.
    fn remark(&self, message: &str);

    /// A method's configuration was chosen.
    fn chosen(&self, title: &str, criterion: &str, configuration: &str);
}

/// The protocol of one experiment with everything it needs.
pub struct Protocol<'a> {
    /// The experiment.
    pub experiment: &'a Experiment,
    /// The network.
    pub evaluated_model: &'a EvaluatedModel<'a>,
    /// The engine that compiles randomised networks.
    pub engine: &'a dyn Engine,
    /// The methods.
    pub catalogue: &'a dyn Catalogue,
    /// How images are preprocessed.
    pub preprocess: &'a Preprocess,
    /// The store of the results.
    pub store: &'a mut Store,
    /// This process.
    pub worker: &'a Worker,
    /// The id of the model in the store.
    pub model: i64,
    /// The id of the experiment in the store.
    pub id: i64,
    /// Receives events and progress.
    pub observer: &'a dyn Observer,
}

impl Protocol<'_> {
    /// Runs all stages over some images.
    pub fn run(&mut self, Images { validation, test, .. }: Images) -> Result<()> {
        let experiment = self.experiment;
        let mut choices: Vec<MethodCandidates> = experiment
            .methods
            .iter()
            .zip(1..)
            .map(|(part, number)| {
                choices(part, self.catalogue, self.evaluated_model.graph())
                    .map_err(|error| inside(&format!("method[{number}]"), &error))
            })
            .collect::<Result<_>>()?;
        self.check_texts()?;
        self.check_parts(&choices, validation.is_some())?;
        let frame = images::frame(&test, self.evaluated_model, self.preprocess)?;
        self.check_metrics(frame)?;
        self.check_given_maps(&choices)?;
        let asks_masks = self.asks_masks(&choices)?;
        let enter = |name, data| {
            let how = (self.evaluated_model, self.preprocess);
            // Labels are classes of the images, and the scores of a target are others.
            let is_target = is_target_score(self.evaluated_model.graph());
            let class = if is_target { ExplainedClass::Top } else { experiment.data.class };
            let mut part = Part::enter(name, data, class, how, self.store)?;
            part.unmasked.retain(|_| asks_masks);
            self.observer.part(&part);
            Ok::<_, Error>(part)
        };
        let validation = validation.map(|data| enter("validation", data)).transpose()?;
        let test = enter("test", test)?;
        if let Some(CaseShape { height, width, .. }) = frame {
            self.read_given_maps(&mut choices, validation.as_ref(), &test, [height, width])?;
        }
        let chosen_on: HashSet<i64> =
            validation.iter().flat_map(|part| &part.images).map(|image| image.id).collect();
        let both = test.images.iter().filter(|image| chosen_on.contains(&image.id)).count();
        if both > 0 {
            self.observer.remark(&format!(
                "data.validation and data.test share {both} images: what was chosen on them is compared on them"
            ));
        }
        for part in validation.iter().chain([&test]) {
            let ids: Vec<i64> = part.images.iter().map(|image| image.id).collect();
            self.store.set_images(self.id, part.name, &ids)?;
            self.store.set_image_issues(self.id, part.name, &part.excluded, &part.unmasked)?;
        }
        let mut position = 0;
        let compared = self.select(&choices, validation.as_ref(), &mut position)?;
        if let Some(metrics) = &experiment.comparison {
            let task = self.task("comparison", "comparison", &compared, &test);
            self.evaluate_metrics(task, metrics, &mut position)?;
        }
        for ablation in &experiment.ablations {
            let part = self.part(ablation.on_validation, &ablation.name, validation.as_ref(), &test)?;
            self.ablate(ablation, part, &mut position)?;
        }
        if let Some(layers) = &experiment.layers {
            let part = self.part(layers.on_validation, "layers", validation.as_ref(), &test)?;
            let curves = self.all_fixed("layers.of", &layers.of)?;
            let task = self.task("layers", "layers", &curves, part);
            self.evaluate_metrics(task, &layers.metrics, &mut position)?;
        }
        if let Some(sanity) = &experiment.sanity {
            self.check_sanity(sanity, &compared, &test, &mut position)?;
        }
        if let Some(timing) = &experiment.timing {
            self.time(timing, &compared, &test, &mut position)?;
        }
        Ok(())
    }

    fn part<'p>(
        &self,
        on_validation: bool,
        stage: &str,
        validation: Option<&'p Part>,
        test: &'p Part,
    ) -> Result<&'p Part> {
        match (on_validation, validation) {
            (false, _) => Ok(test),
            (true, Some(part)) => Ok(part),
            (true, None) => Err(no_validation(stage)),
        }
    }
}

/// An error about a key inside of a table.
fn inside(table: &str, error: &Error) -> Error {
    error.clone().prefixed(&format!("{table}."))
}

fn no_validation(key: &str) -> Error {
    Error::argument(format!(
        "{key}: validation images are needed, but there are none; set data.validation to a part of the data set, or \
         data.validation-per-class to a number"
    ))
}
