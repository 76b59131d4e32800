//! The context of an evaluation: the opened network of an experiment, the preprocessing of its pictures, and the methods it
//! names.

use std::path::{Path, PathBuf};

use monosplit_engine::Cpu;
use monosplit_eval::experiment::{BatchNorms, Experiment};
use monosplit_eval::protocol::{Catalogue, ResolvedMethod};
use monosplit_eval::store::{Record, Store};
use monosplit_eval::{Sha256, suggest_path};
use monosplit_graph::{Error, Graph, Hint, Result, arch};
use monosplit_image::Preprocess;

use crate::catalogue::{MethodChoice, MethodEntry, ValueBounds, mask_count, split_finish, tidied};
use crate::labels::Labels;
use crate::model::{self, Model};
use crate::model_options::Origin;
use crate::target::{TargetChoice, TargetContext};

/// The largest file of weights that is read.
const MAX_WEIGHTS: u64 = 64 << 30;

/// The network may be given beside the experiment.
const MODEL: Hint = Hint::new("model", "or a network beside the experiment");
/// Another network may be given in place of the one that an experiment names.
const MODEL_INSTEAD: Hint = Hint::new("model-instead", "another network may be given in its place");

/// The opened network of an experiment with what its evaluation needs.
pub struct EvaluationContext {
    /// The network.
    pub model: Model,
    /// The preprocessing of pictures.
    pub preprocess: Preprocess,
    /// SHA-256 of its file.
    pub hash: String,
    /// The path of the file.
    pub path: PathBuf,
    /// The names of its classes.
    pub labels: Labels,
    bounds: ValueBounds,
}

impl EvaluationContext {
    /// Opens the network an experiment names, or the ONNX file `instead` of it.
    pub fn open(experiment: &Experiment, instead: Option<&Path>) -> Result<Self> {
        let part = &experiment.model;
        let origin = match (instead, part.file.as_deref(), &part.architecture, &part.weights) {
            (Some(path), ..) | (None, Some(path), None, _) => Origin::onnx(path),
            (None, None, Some(name), Some(weights)) => Origin::architecture(name, weights),
            (None, Some(_), Some(_), _) => {
                return Err(Error::argument(
                    "model: expected either `file` or `arch` with `weights`, found both",
                ));
            }
            _ => {
                return Err(Error::argument("no network is named: expected model.file").hint(MODEL));
            }
        };
        let path = match &origin {
            Origin::Onnx(path) => path.clone(),
            Origin::Architecture { weights, .. } => weights.clone(),
        };
        let mut hash = Sha256::default();
        if let Origin::Architecture { name, .. } = &origin {
            hash.update(name.as_bytes());
        }
        let key = match origin {
            Origin::Onnx(_) => "model.file",
            Origin::Architecture { .. } => "model.weights",
        };
        let about = |error: Error| match instead {
            Some(_) => error,
            None => error.prefixed(&suggest_path(&path)).context(key).hint(MODEL_INSTEAD),
        };
        if let Origin::Architecture { name, .. } = &origin {
            arch::parameters(name, 1).map_err(|error| error.context("model.arch"))?;
        }
        let file = model::read_file(&path, MAX_WEIGHTS).map_err(about)?;
        hash.update(&file);
        let mut options = Model::options();
        if let Some(output) = &part.output {
            // Scores of another output are scores of another network.
            hash.update(format!("output {output}").as_bytes());
            options = options.output(output.parse().unwrap_or_default());
        }
        if part.batch_norms == BatchNorms::Keep {
            // The split of a network with its batch norms is another one.
            hash.update(b"batch norms kept");
            options = options.fold_batch_norms(false);
        }
        let target = experiment_target(experiment, None)?;
        if let Some(target) = &target {
            check_target(target)?;
            hash.update(format!("target {}", target.without_folders()).as_bytes());
            if let Some(path) = target.file() {
                hash.update(&model::read_file(path, MAX_WEIGHTS).map_err(about_target)?);
            }
            options = options.target(target);
        }
        let model = options.open(origin).map_err(about)?;
        model.external_data().iter().for_each(|file| hash.update(file));
        let model = with_given(model, &part.inputs, &mut hash)?;
        // Metrics read images with channels before rows.
        let model = model.channels_first()?;
        let input = model.picture_input()?;
        let preset = match part.preset {
            Some(preset) => preset,
            None => model.pixel_values()?.preset,
        };
        let preprocess = preset.options().fit(input.size, part.fit)?.filter(part.filter);
        let engine = Cpu::default();
        let model = match &target {
            Some(target) => {
                let labels = part.labels.as_deref();
                let context =
                    TargetContext { labels, preprocess: Some(&preprocess), ..TargetContext::new(&engine) };
                model.with_target(target, &context).map_err(about_target)?
            }
            None => model,
        };
        let classes = model.expect_classes()?;
        let labels = match &part.labels {
            Some(path) if target.is_none() => Labels::open(path, classes)
                .map_err(|error| error.prefixed(&suggest_path(path)).context("model.labels"))?,
            _ => Labels::of(&model, classes),
        };
        let bounds = ValueBounds::of(Some(&preprocess))?;
        Ok(EvaluationContext { model, preprocess, hash: hash.finish(), path, labels, bounds })
    }

    /// Enters the network and the experiment with the data set in `folder` into a store; returns their ids. A precision other
    /// than the default counts as another network, because its scores differ.
    pub fn enter(
        &self,
        store: &Store,
        experiment: &Experiment,
        folder: &Path,
        precision: Option<String>,
    ) -> Result<(i64, i64)> {
        let name = self.path.file_name().map(|name| name.to_string_lossy().into_owned());
        let said = precision.map(|name| format!(" ({name})")).unwrap_or_default();
        let preprocessing = format!("{}{said}", self.preprocess);
        let name = format!("{}{said}", name.unwrap_or_default());
        let model = store.model(&self.hash, &preprocessing, &name)?;
        let whole = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let record = Record {
            name: experiment.name.clone(),
            text: experiment.text_with_whole_paths().to_owned(),
            model,
            model_path: whole(&self.path).display().to_string(),
            data_path: whole(folder).display().to_string(),
            seed: experiment.seed,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let hash = Sha256::of(format!("{model}\n{}", experiment.text()).as_bytes());
        Ok((model, store.experiment(&hash, &record)?))
    }

    /// The network as it is explained.
    pub fn graph(&self) -> &Graph {
        self.model.graph()
    }
}

/// The network with the inputs that an experiment gives beside the picture as constants.
fn with_given(model: Model, inputs: &[(String, PathBuf)], hash: &mut Sha256) -> Result<Model> {
    let about = |error: Error| error.context("model.inputs");
    let mut given = Vec::with_capacity(inputs.len());
    for (name, path) in inputs {
        let missing = |error: Error| about(error.prefixed(&suggest_path(path)));
        // The network with other values is another one.
        hash.update(format!("input {name}").as_bytes());
        hash.update(&model::read_file(path, MAX_WEIGHTS).map_err(missing)?);
        given.push((name.clone(), model.read_input(name, path).map_err(about)?));
    }
    if given.is_empty() { Ok(model) } else { model.with_held_inputs(&given).map_err(about) }
}

/// The target of an experiment, or the one `instead` of it, with the whole path of its file.
fn experiment_target(experiment: &Experiment, instead: Option<&str>) -> Result<Option<TargetChoice>> {
    let (text, folder) = match (instead, &experiment.model.target) {
        (Some(text), _) => (text, Path::new("")),
        (None, Some(text)) => (text.as_str(), experiment.model.target_folder.as_path()),
        (None, None) => return Ok(None),
    };
    let target: TargetChoice = text.parse().map_err(about_target)?;
    Ok(Some(target.in_folder(folder)))
}

/// The experiment with the target `instead` of its own, if there is one. What is stored of it has the whole path of the
/// target's file.
pub fn with_target(experiment: Experiment, instead: Option<&str>) -> Result<Experiment> {
    let given = instead.or(experiment.model.target.as_deref()).map(str::to_owned);
    let whole = experiment_target(&experiment, instead)?;
    match (given, whole) {
        (Some(given), Some(whole)) => experiment.with_target(&given, &whole.to_string()),
        _ => Ok(experiment),
    }
}

fn about_target(error: Error) -> Error {
    error.context("model.target")
}

/// An error if images cannot be evaluated for a target.
fn check_target(target: &TargetChoice) -> Result<()> {
    let why = match target {
        TargetChoice::Class(_) => {
            "which class is explained is set by data.class, \"label\" or \"top\"; leave out the target"
        }
        TargetChoice::Contrast { class, .. } | TargetChoice::Region { class: Some(class), .. }
            if class.eq_ignore_ascii_case("top2") =>
        {
            "the second best class is not evaluated; name a class, or top"
        }
        _ => return Ok(()),
    };
    Err(about_target(Error::argument(why)))
}

impl Catalogue for EvaluationContext {
    fn method(&self, text: &str) -> Result<ResolvedMethod> {
        let (text, finish, of_maps) = split_finish(text)?;
        let (name, options) = tidied(&text)?;
        let family = MethodEntry::find(name)?.family.title().to_owned();
        if name == "mask" && options.is_empty() {
            let settings = monosplit_explain::Settings::default();
            let title = "Mask".to_owned();
            return Ok(ResolvedMethod {
                name: name.into(),
                options,
                title,
                family,
                method: None,
                settings,
                finish,
            });
        }
        let chosen = MethodChoice::parse(&text, &[])?.resolve(&self.bounds, self.graph())?;
        if name == "mask" && mask_count(&options)? > 1 {
            return Err(Error::argument(
                "the file holds a map for each of several images, and this method takes one for all; for maps of your own write \
                 `maps = \"FILE\"` in place of `method`",
            ));
        }
        let mut all: Vec<String> = of_maps;
        all.extend(options.split(',').filter(|option| !option.is_empty()).map(str::to_owned));
        all.sort();
        Ok(ResolvedMethod {
            name: name.into(),
            options: all.join(","),
            title: chosen.title,
            family,
            method: Some(chosen.method),
            settings: chosen.settings,
            finish,
        })
    }

    fn usual_layer(&self, method: &ResolvedMethod) -> Option<String> {
        let chosen = monosplit_explain::chosen_layer(self.graph(), method.method.as_ref()?.default_layer());
        chosen.map(|layer| layer.name)
    }
}
