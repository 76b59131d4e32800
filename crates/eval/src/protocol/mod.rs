//! The evaluation protocol. Its stages are the selection of configurations on validation images, their comparison on other
//! images, ablations of one option, curves over layers, the randomisation check, and run times. Every stage stores its values
//! row by row, so that an interrupted run can be resumed.

mod candidates;
mod checks;
mod given;
mod images;
mod plan;
mod selection;
mod stages;

use std::collections::HashSet;
use std::sync::Arc;

use monosplit_explain::{Finish, Method, Progress, Settings};
use monosplit_graph::{Error, Result};

use crate::dataset::DataSet;
use crate::metric::CaseShape;
use crate::store::Store;
use crate::sweep::StageIds;
use candidates::GIVEN;

pub use images::{FoundImage, Images, Inspected, StoredPart};
pub use plan::{Compared, Plan, PlannedStage, Setting, StageKind};
pub use stages::{EnteredStage, identity_remark};

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
    fn part(&self, part: &StoredPart);

    /// A stage begins. Some of its rows may already be stored.
    fn stage(&self, name: &str, configurations: usize, images: usize, rows: usize) -> Box<dyn Progress>;

    /// A warning about the experiment.
    fn remark(&self, message: &str);

    /// A method's configuration was chosen.
    fn chosen(&self, title: &str, criterion: &str, configuration: &str);
}

/// The protocol of one experiment over some images: its stages, one after the other.
pub struct Protocol<'a> {
    plan: Plan<'a>,
    /// The ids of the model and of the experiment in the store.
    model: i64,
    id: i64,
    validation: Option<StoredPart>,
    test: StoredPart,
    stages: Vec<StageKind>,
    /// The index of the next stage.
    next: usize,
    compared: Vec<Compared>,
    /// The ids of the selection, while nothing was chosen yet.
    selected: Option<StageIds>,
}

impl Plan<'_> {
    /// Checks everything that can be checked before all images are read.
    pub fn check(&self, images: &Images, observer: &dyn Observer) -> Result<()> {
        self.check_texts()?;
        self.check_parts(images.validation.is_some())?;
        self.check_metrics(self.frame(&images.test)?)?;
        self.check_given_maps(observer)
    }
}

impl<'a> Protocol<'a> {
    /// Checks an experiment, reads its images and enters them into the store, where `model` and `id` are the ids of the network
    /// and of the experiment.
    pub fn begin(
        plan: Plan<'a>,
        images: Images,
        (model, id): (i64, i64),
        store: &mut Store,
        observer: &dyn Observer,
    ) -> Result<Self> {
        plan.check(&images, observer)?;
        let inspected = |data: &DataSet| plan.inspect(data, 0..data.len());
        let validation = images.validation.as_ref().map(inspected).transpose()?;
        let test = inspected(&images.test)?;
        Protocol::enter(plan, images, (validation.unwrap_or_default(), test), (model, id), store, observer)
    }

    /// Enters images into the store that were inspected: those for validation, and those for the test.
    pub fn enter(
        mut plan: Plan<'a>,
        images: Images,
        (validation, test): (Vec<Inspected>, Vec<Inspected>),
        (model, id): (i64, i64),
        store: &mut Store,
        observer: &dyn Observer,
    ) -> Result<Self> {
        let asks_masks = plan.asks_masks()?;
        let mut enter = |name, data, inspected| {
            let mut part = StoredPart::enter(name, data, inspected, store)?;
            part.unmasked.retain(|_| asks_masks);
            observer.part(&part);
            Ok::<_, Error>(part)
        };
        let validation = images.validation.map(|data| enter("validation", data, validation)).transpose()?;
        let frame = if plan.has_given_maps() { plan.frame(&images.test)? } else { None };
        let test = enter("test", images.test, test)?;
        if let Some(CaseShape { height, width, .. }) = frame {
            plan.read_given_maps(observer, validation.as_ref(), &test, [height, width])?;
        }
        let chosen_on: HashSet<i64> =
            validation.iter().flat_map(|part| &part.images).map(|image| image.id).collect();
        let both = test.images.iter().filter(|image| chosen_on.contains(&image.id)).count();
        if both > 0 {
            observer.remark(&format!(
                "data.validation and data.test share {both} images: what was chosen on them is compared on them"
            ));
        }
        for part in validation.iter().chain([&test]) {
            let ids: Vec<i64> = part.images.iter().map(|image| image.id).collect();
            store.set_images(id, part.name, &ids)?;
            store.set_image_issues(id, part.name, &part.excluded, &part.unmasked)?;
        }
        let (stages, compared) = (plan.stages(), plan.all_compared());
        Ok(Protocol { plan, model, id, validation, test, stages, next: 0, compared, selected: None })
    }

    /// The plan.
    pub fn plan(&self) -> &Plan<'a> {
        &self.plan
    }

    /// The images of the validation part or of the test part that can be used.
    pub fn images(&self) -> (usize, usize) {
        (self.validation.as_ref().map_or(0, |part| part.images.len()), self.test.images.len())
    }

    /// Which candidates are compared, as far as the stages that were entered tell.
    pub fn compared(&self) -> &[Compared] {
        &self.compared
    }

    /// The id of the model in the store and the seed: with those of configuration, image and metric the key of a row.
    pub fn key(&self) -> (i64, u64) {
        (self.model, self.plan.setting.experiment.seed)
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
