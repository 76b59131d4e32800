//! The short way from a picture to its explanation: one method at one layer, with everything else as the program chooses
//! it. [`monosplit_explain::Explainer`] takes batches and computes several maps at once.

use std::path::Path;

use monosplit_engine::{Cpu, Engine};
use monosplit_explain::{
    Class, Explainer, Explanation, Finish, MapRequest, SaliencyMap, Settings, chosen_layer,
};
use monosplit_graph::{Error, Result};
use monosplit_image::{Picture, Preprocess};
use monosplit_render as render;
use monosplit_render::{Caption, OverlayOptions};

use crate::catalogue::{MethodChoice, ValueBounds};
use crate::input::{ModelInput, Sample};
use crate::labels::Labels;
use crate::model::Model;
use crate::prediction::{RankedClass, ScoreKind};
#[cfg(doc)]
use crate::target::TargetChoice;
use crate::target::TargetContext;

/// The method that explains unless another is named.
pub const DEFAULT_METHOD: &str = "splitcam";

/// The class that is explained.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClassChoice {
    /// The class with the highest score.
    #[default]
    Top,
    /// The class of this number.
    Index(usize),
    /// The class of this name, whatever its case.
    Name(String),
}

impl From<usize> for ClassChoice {
    fn from(index: usize) -> Self {
        ClassChoice::Index(index)
    }
}

impl From<&str> for ClassChoice {
    fn from(name: &str) -> Self {
        ClassChoice::Name(name.to_owned())
    }
}

impl From<String> for ClassChoice {
    fn from(name: String) -> Self {
        ClassChoice::Name(name)
    }
}

impl Model {
    /// Explains the prediction for a picture by [`DEFAULT_METHOD`]. Compiles the explanation anew for each call; an
    /// [`explainer`](Model::explainer) that was built once explains any number of pictures.
    pub fn explain(&self, picture: &Picture) -> Result<PictureExplanation> {
        self.explainer(DEFAULT_METHOD).explain(picture)
    }

    /// How pictures are explained, to be changed before the explanation is compiled: by a method and if need be its
    /// options, `"lrp:gamma=0.1"`. [`catalogue::entries`](crate::catalogue::entries) lists them.
    pub fn explainer(&self, method: impl Into<String>) -> ExplainerBuilder<'_> {
        ExplainerBuilder {
            model: self,
            method: method.into(),
            options: Vec::new(),
            layer: None,
            class: ClassChoice::default(),
            target: None,
            finish: Finish::default(),
            preprocess: None,
            labels: None,
        }
    }
}

/// How pictures are explained.
#[derive(Clone, Debug)]
pub struct ExplainerBuilder<'a> {
    model: &'a Model,
    method: String,
    options: Vec<(String, String)>,
    layer: Option<String>,
    class: ClassChoice,
    target: Option<String>,
    finish: Finish,
    preprocess: Option<Preprocess>,
    labels: Option<Labels>,
}

impl ExplainerBuilder<'_> {
    /// An option of the method.
    #[must_use]
    pub fn option(mut self, key: impl Into<String>, value: impl ToString) -> Self {
        self.options.push((key.into(), value.to_string()));
        self
    }

    /// The shift α of the methods of the split.
    #[must_use]
    pub fn alpha(self, alpha: f64) -> Self {
        self.option("alpha", alpha)
    }

    /// The layer the map belongs to, a module path as PyTorch writes it, an ONNX node or a tensor: what enters it, unless
    /// `:out` follows. By default it is the one the method is best read at.
    #[must_use]
    pub fn layer(mut self, layer: impl Into<String>) -> Self {
        self.layer = Some(layer.into());
        self
    }

    /// The class that is explained; by default the one with the highest score.
    #[must_use]
    pub fn class(mut self, class: impl Into<ClassChoice>) -> Self {
        self.class = class.into();
        self
    }

    /// What of the network's outputs is explained, as [`TargetChoice`] writes it; by default the score of a class.
    #[must_use]
    pub fn target(mut self, target: impl Into<String>) -> Self {
        self.target = Some(target.into());
        self
    }

    /// How the attribution becomes a map.
    #[must_use]
    pub fn finish(mut self, finish: Finish) -> Self {
        self.finish = finish;
        self
    }

    /// How pictures are made ready; by default as [`Model::preprocess`] says.
    #[must_use]
    pub fn preprocess(mut self, preprocess: Preprocess) -> Self {
        self.preprocess = Some(preprocess);
        self
    }

    /// The names of the classes; by default as [`Model::labels`] says.
    #[must_use]
    pub fn labels(mut self, labels: Labels) -> Self {
        self.labels = Some(labels);
        self
    }

    /// Compiles the explanation for the processor.
    pub fn build(self) -> Result<PictureExplainer> {
        self.build_on(&Cpu::default())
    }

    /// Compiles the explanation for an engine.
    pub fn build_on(self, engine: &dyn Engine) -> Result<PictureExplainer> {
        let choice = MethodChoice::parse(&self.method, &self.options)?;
        let preprocess = self.preprocess.map_or_else(|| self.model.preprocess(), Ok)?;
        let targeted = match &self.target {
            Some(text) => {
                let context = TargetContext { preprocess: Some(&preprocess), ..TargetContext::new(engine) };
                Some(self.model.reopened_for(&text.parse()?)?.with_target(&text.parse()?, &context)?)
            }
            None => None,
        };
        let model = targeted.as_ref().unwrap_or(self.model);
        let classes = model.expect_classes()?;
        let labels = self.labels.map_or_else(|| model.labels(), Ok)?;
        let class = match self.class {
            ClassChoice::Top => model.explained_class(),
            ClassChoice::Index(index) => Class::Index(index),
            ClassChoice::Name(name) => Class::Index(labels.find(&name, classes)?),
        };
        let method = choice.resolve(&ValueBounds::of(Some(&preprocess))?, model.graph())?;
        let chosen = || chosen_layer(model.graph(), method.method.default_layer()).map(|layer| layer.name);
        let layer = self.layer.or_else(chosen);
        let request = MapRequest::of(method.method.clone(), layer.clone()).finish(self.finish);
        Ok(PictureExplainer {
            explainer: Explainer::new(model.graph(), &[request], engine)?,
            input: ModelInput::new(model, model.picture_input()?.order)?,
            preprocess,
            class,
            settings: method.settings,
            title: method.title,
            alpha: method.alpha,
            layer,
            labels,
            score_kind: model.score_kind(),
            is_target: model.target().is_some_and(|target| !target.is_class()),
        })
    }

    /// Compiles the explanation for the processor and explains one picture.
    pub fn explain(self, picture: &Picture) -> Result<PictureExplanation> {
        self.build()?.explain(picture)
    }
}

/// A compiled explanation of pictures by one method at one layer.
pub struct PictureExplainer {
    explainer: Explainer,
    input: ModelInput,
    preprocess: Preprocess,
    class: Class,
    settings: Settings,
    title: String,
    alpha: Option<f64>,
    layer: Option<String>,
    labels: Labels,
    score_kind: ScoreKind,
    is_target: bool,
}

impl PictureExplainer {
    /// Explains the prediction for a picture.
    pub fn explain(&self, picture: &Picture) -> Result<PictureExplanation> {
        let prepared = self.input.picture(picture, &self.preprocess)?;
        let Explanation { logits, classes, mut maps } =
            self.explainer.explain(&prepared.tensor, &self.class, &self.settings)?;
        let scores = logits.to_f64().into_vec();
        let ranking = RankedClass::best(&scores, scores.len(), self.score_kind).ok_or_else(|| {
            Error::argument(
                "the network returned numbers that are not finite; compute in double precision, and check the \
                 preprocessing",
            )
        })?;
        let (Some(&class), Some(map)) = (classes.first(), maps.pop()) else {
            return Err(Error::argument("the explanation returned no map"));
        };
        let explained = ranking.iter().find(|ranked| ranked.class == class);
        Ok(PictureExplanation {
            class,
            class_name: self.labels.name(class),
            probability: explained.and_then(|ranked| ranked.probability),
            scores,
            ranking,
            map,
            title: self.title.clone(),
            layer: self.layer.clone(),
            alpha: self.alpha,
            caption: self.labels.named(class).unwrap_or_else(|| class.to_string()),
            is_target: self.is_target,
            sample: Sample {
                name: String::new(),
                tensor: prepared.tensor,
                picture: Some(prepared.picture),
                features: None,
            },
        })
    }
}

/// A picture's prediction and the map that explains it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PictureExplanation {
    /// The explained class.
    pub class: usize,
    /// The name of the explained class; `class 7` where it has none.
    pub class_name: String,
    /// The probability of the explained class, where the scores say something about it.
    pub probability: Option<f64>,
    /// The class scores, bit for bit those of the network alone.
    pub scores: Vec<f64>,
    /// All classes, the one with the highest score first.
    pub ranking: Vec<RankedClass>,
    /// The map, `[1, H, W]` for layers with spatial axes.
    pub map: SaliencyMap,
    /// The method's name as it stands in captions.
    pub title: String,
    /// The layer the map belongs to; none is the image.
    pub layer: Option<String>,
    /// The shift α, where the method has one.
    pub alpha: Option<f64>,
    /// What stands for the class in captions: its name or its number.
    caption: String,
    /// Whether a target is explained and no class.
    is_target: bool,
    sample: Sample,
}

impl PictureExplanation {
    /// The picture as the network saw it, scaled and cropped.
    pub fn picture(&self) -> Option<&Picture> {
        self.sample.picture.as_ref()
    }

    /// The map drawn over the picture, beside the picture itself, with the key to its colours and a caption.
    pub fn overlay(&self) -> Result<Picture> {
        self.overlay_with(&OverlayOptions::default())
    }

    /// The same, drawn in another way.
    pub fn overlay_with(&self, options: &OverlayOptions) -> Result<Picture> {
        let caption = Caption {
            method: self.title.clone(),
            layer: self.layer.clone().unwrap_or_else(|| "the image".to_owned()),
            class: if self.is_target { String::new() } else { self.caption.clone() },
            target: if self.is_target { self.caption.clone() } else { String::new() },
            confidence: self.probability,
            alpha: self.alpha,
        };
        let map = render::ScalarField::from_tensor(&self.map.values, 0)?;
        Ok(self.sample.overlay(&map, &caption, options)?.picture)
    }

    /// Writes the overlay as a PNG file, whole or not at all.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        self.overlay()?.save(path)
    }
}
