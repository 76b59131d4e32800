//! An experiment, described by one TOML file: the network, the images, the methods with the options to choose from, and the
//! stages to run.

mod section;
pub mod value;

use std::path::{Path, PathBuf};

use monosplit_graph::options::closest;
use monosplit_graph::{Error, Result};
use monosplit_image::{Filter, Fit, Preset};

use crate::dataset::{DataOptions, FolderLayout, MissingMask, Unreadable};
use section::Section;
use value::Value;

/// An experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// Its name.
    pub name: String,
    /// Its purpose.
    pub about: String,
    /// The seed of all random numbers.
    pub seed: u64,
    /// How many images are explained together.
    pub batch: usize,
    /// How many maps are computed by one program.
    pub maps: usize,
    /// The network.
    pub model: ModelPart,
    /// The images.
    pub data: DataPart,
    /// The methods.
    pub methods: Vec<MethodPart>,
    /// How configurations are chosen. Without it, all are compared.
    pub selection: Option<SelectionPart>,
    /// The metrics of the comparison.
    pub comparison: Option<Vec<String>>,
    /// Ablations of one option each.
    pub ablations: Vec<AblationPart>,
    /// Curves over layers.
    pub layers: Option<LayersPart>,
    /// The randomisation check.
    pub sanity: Option<SanityPart>,
    /// Run times.
    pub timing: Option<TimingPart>,
    /// How many images the report shows.
    pub shown: usize,
    text: String,
}

/// The network of an experiment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelPart {
    /// An ONNX file.
    pub file: Option<PathBuf>,
    /// A known architecture instead.
    pub architecture: Option<String>,
    /// Its weights.
    pub weights: Option<PathBuf>,
    /// Its preprocessing; that of the file, or ImageNet's, if not given.
    pub preset: Option<Preset>,
    /// How images are resized and cropped.
    pub fit: Fit,
    /// The interpolation of the resizing.
    pub filter: Filter,
    /// Names of its classes, one a line.
    pub labels: Option<PathBuf>,
}

/// The images of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct DataPart {
    /// The folder of the data set.
    pub folder: Option<PathBuf>,
    /// How it is read.
    pub options: DataOptions,
    /// The part configurations are chosen on.
    pub validation: Option<String>,
    /// The part they are compared on.
    pub test: Option<String>,
    /// Of a data set without parts, how many images of each class are for validation.
    pub validation_per_class: Option<usize>,
    /// At most this many images for validation.
    pub validation_images: Option<usize>,
    /// At most this many images to compare on.
    pub test_images: Option<usize>,
    /// Which class is explained.
    pub class: ExplainedClass,
}

/// Which class of an image is explained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExplainedClass {
    /// The label.
    #[default]
    Label,
    /// The predicted class.
    Top,
}

/// The layers of a method's maps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layers {
    /// The default layer of the method.
    Usual,
    /// The image.
    Image,
    /// Every convolution, or this many of them, evenly spaced.
    Convolutions(Option<usize>),
    /// These layers.
    Named(Vec<String>),
}

/// A method with the options to choose from.
#[derive(Clone, Debug, PartialEq)]
pub struct MethodPart {
    /// Its name.
    pub title: Option<String>,
    /// The family it is listed under; that of the catalogue if not given.
    pub family: Option<String>,
    /// The method with its fixed options.
    pub method: String,
    /// Further options, one configuration for each.
    pub formulas: Vec<String>,
    /// The layers, one configuration for each.
    pub layers: Layers,
    /// Whether the absolute value is taken; both if both are listed.
    pub absolute: Vec<bool>,
}

/// How configurations are chosen: for each criterion the one of best average rank over its metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectionPart {
    /// Names of criteria and the metrics of each.
    pub criteria: Vec<(String, Vec<String>)>,
}

/// A fixed configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fixed {
    /// Its name.
    pub title: Option<String>,
    /// The family it is listed under.
    pub family: Option<String>,
    /// The method with its options.
    pub method: String,
    /// The layer.
    pub layers: Layers,
    /// Whether the absolute value is taken.
    pub absolute: bool,
}

/// An ablation: one option varied, all else equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AblationPart {
    /// Its name.
    pub name: String,
    /// The option.
    pub vary: String,
    /// Its values.
    pub values: Vec<String>,
    /// The configuration that is varied.
    pub of: Vec<Fixed>,
    /// The metrics.
    pub metrics: Vec<String>,
    /// Whether on validation images rather than those of the comparison.
    pub on_validation: bool,
}

/// Curves over layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayersPart {
    /// The methods; their layers are those of the curves.
    pub of: Vec<Fixed>,
    /// The metrics.
    pub metrics: Vec<String>,
    /// Whether on validation images, as in the paper, rather than those of the comparison.
    pub on_validation: bool,
}

/// The randomisation check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SanityPart {
    /// How many layers, counted from the last, are randomised.
    pub randomise: usize,
    /// The configurations; those of the comparison if empty.
    pub of: Vec<Fixed>,
    /// The largest number of images.
    pub images: Option<usize>,
}

/// Run times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimingPart {
    /// The configurations; those of the comparison if empty.
    pub of: Vec<Fixed>,
    /// The largest number of images.
    pub images: Option<usize>,
}

const PRESETS: [(&str, Preset); 4] = [
    ("imagenet", Preset::Imagenet),
    ("imagenet-bgr", Preset::ImagenetBgr),
    ("unit", Preset::Unit),
    ("none", Preset::None),
];
const FITS: [(&str, Fit); 3] = [("auto", Fit::Auto), ("crop", Fit::Crop), ("squash", Fit::Squash)];
const FILTERS: [(&str, Filter); 3] =
    [("bilinear", Filter::Bilinear), ("bicubic", Filter::Bicubic), ("nearest", Filter::Nearest)];
const MASKS: [(&str, MissingMask); 3] =
    [("keep", MissingMask::Keep), ("skip", MissingMask::Skip), ("fail", MissingMask::Fail)];
const FILES: [(&str, Unreadable); 2] = [("skip", Unreadable::Skip), ("fail", Unreadable::Fail)];
const CLASSES: [(&str, ExplainedClass); 2] = [("label", ExplainedClass::Label), ("top", ExplainedClass::Top)];
const PARTS: [(&str, bool); 2] = [("validation", true), ("test", false)];
const MOST: usize = 10_000_000;

impl Experiment {
    /// Reads the description in a file.
    pub fn open(path: &Path) -> Result<Self> {
        Experiment::read(&Value::open(path)?)
    }

    /// Parses a description. Relative paths start at `path`, and errors name it.
    pub fn parse(text: &str, path: &Path) -> Result<Self> {
        Experiment::read(&Value::parse(text, path)?)
    }

    /// The complete description, with what it is based on merged in.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The same with this file of class names, for a reader elsewhere.
    pub fn text_with(&self, labels: Option<&Path>) -> String {
        let line = |line: &str| match labels {
            Some(path) if line.starts_with("labels = ") => {
                format!("labels = {:?}\n", path.display().to_string())
            }
            _ => format!("{line}\n"),
        };
        self.text.lines().map(line).collect()
    }

    fn read(value: &Value) -> Result<Self> {
        let root = Section::root(value);
        root.text("base")?;
        let experiment = Experiment {
            name: root.needed("name", "a name for the experiment")?,
            about: root.text("about")?.unwrap_or_default(),
            seed: root.count("seed", 0..=usize::MAX >> 1)?.unwrap_or(0) as u64,
            batch: root.count("batch", 1..=256)?.unwrap_or(4),
            maps: root.count("maps", 1..=256)?.unwrap_or(12),
            model: root.section("model")?.map_or_else(|| Ok(ModelPart::default()), |s| model(&s))?,
            data: data(&root)?,
            methods: root.sections("method")?.iter().map(method).collect::<Result<_>>()?,
            selection: root.section("selection")?.map(|s| selection(&s)).transpose()?,
            comparison: root.section("comparison")?.map(|s| comparison(&s)).transpose()?,
            ablations: root.sections("ablation")?.iter().map(ablation).collect::<Result<_>>()?,
            layers: root.section("layers")?.map(|s| layers_part(&s)).transpose()?,
            sanity: root.section("sanity")?.map(|s| sanity(&s)).transpose()?,
            timing: root.section("timing")?.map(|s| timing(&s)).transpose()?,
            shown: root.count("shown", 0..=64)?.unwrap_or(6),
            text: value.to_toml(),
        };
        root.finish()?;
        experiment.check(&root)?;
        Ok(experiment)
    }

    /// Checks that involve several sections.
    fn check(&self, root: &Section<'_>) -> Result<()> {
        if (self.comparison.is_some() || self.selection.is_some()) && self.methods.is_empty() {
            return Err(root
                .location()
                .error("method: expected at least one [[method]] to compare, found none"));
        }
        let borrows = |of: &Option<Vec<Fixed>>| of.as_ref().is_some_and(Vec::is_empty);
        let sanity = self.sanity.as_ref().map(|part| part.of.clone());
        let timing = self.timing.as_ref().map(|part| part.of.clone());
        for (key, of) in [("sanity", sanity), ("timing", timing)] {
            if borrows(&of) && self.comparison.is_none() {
                return Err(root.error(
                    key,
                    "expected the configurations in `of`, or a [comparison] whose configurations are taken",
                ));
            }
        }
        let asks = self.comparison.is_some() || self.layers.is_some() || !self.ablations.is_empty();
        if !asks && self.sanity.is_none() && self.timing.is_none() && self.selection.is_none() {
            return Err(root.location().error(
                "nothing is asked; expected [comparison], [selection], [[ablation]], [layers], [sanity] or [timing]",
            ));
        }
        Ok(())
    }
}

fn model(section: &Section<'_>) -> Result<ModelPart> {
    let part = ModelPart {
        file: section.path("file")?,
        architecture: section.text("arch")?,
        weights: section.path("weights")?,
        preset: section.one_of("preset", &PRESETS)?,
        fit: section.one_of("fit", &FITS)?.unwrap_or_default(),
        filter: section.one_of("filter", &FILTERS)?.unwrap_or(Filter::Bilinear),
        labels: section.path("labels")?,
    };
    let (key, other) = if part.architecture.is_some() { ("arch", "weights") } else { ("weights", "arch") };
    if part.architecture.is_some() != part.weights.is_some() {
        return Err(section.error(key, format!("expected `{other}` beside it, found none")));
    }
    section.finish()?;
    Ok(part)
}

fn data(root: &Section<'_>) -> Result<DataPart> {
    let section =
        root.section("data")?.ok_or_else(|| root.missing("data", "a table [data] that says which images"))?;
    let part = DataPart {
        folder: section.path("folder")?,
        options: DataOptions {
            layout: section.one_of("layout", &FolderLayout::NAMED)?,
            label_column: section.text("label-column")?,
            missing_mask: section.one_of("missing-mask", &MASKS)?.unwrap_or_default(),
            unreadable: section.one_of("unreadable", &FILES)?.unwrap_or_default(),
        },
        // An empty name removes the value of the base file.
        validation: section.text("validation")?.filter(|name| !name.is_empty()),
        test: section.text("test")?,
        validation_per_class: section.count("validation-per-class", 1..=MOST)?,
        validation_images: section.count("validation-images", 1..=MOST)?,
        test_images: section.count("test-images", 1..=MOST)?,
        class: section.one_of("class", &CLASSES)?.unwrap_or_default(),
    };
    if part.validation_per_class.is_some() && part.validation.is_some() {
        return Err(section.error(
            "validation-per-class",
            "expected either `validation`, the name of a part, or a number of images of each class to take from `test`",
        ));
    }
    section.finish()?;
    Ok(part)
}

fn method(section: &Section<'_>) -> Result<MethodPart> {
    let choices = [("no", vec![false]), ("yes", vec![true]), ("both", vec![false, true])];
    let words: Vec<(&str, usize)> = choices.iter().enumerate().map(|(i, (word, _))| (*word, i)).collect();
    let part = MethodPart {
        title: section.text("title")?,
        family: section.text("family")?,
        method: section.needed("method", "a method, such as \"splitcam:alpha=0.3\"")?,
        formulas: section.texts("formulas")?.unwrap_or_else(|| vec![String::new()]),
        layers: layers(section)?,
        absolute: section.one_of("absolute", &words)?.map_or_else(|| vec![false], |i| choices[i].1.clone()),
    };
    if part.formulas.is_empty() {
        return Err(section.error("formulas", "expected at least one, found an empty list"));
    }
    section.finish()?;
    Ok(part)
}

fn layers(section: &Section<'_>) -> Result<Layers> {
    let most = section.count("at-most", 1..=MOST)?;
    let beside = |found: &str| {
        section.error("at-most", format!("expected `layers = \"convolutions\"` beside it, found {found}"))
    };
    let Some(named) = section.texts("layers")? else {
        return match most {
            None => Ok(Layers::Usual),
            Some(_) => Err(beside("no `layers`")),
        };
    };
    match (&*named, most) {
        ([], _) => Err(section.error("layers", "expected at least one layer, found an empty list")),
        ([one], most) if one == "convolutions" => Ok(Layers::Convolutions(most)),
        ([one], Some(_)) => {
            let close = closest(one, &["convolutions"]);
            Err(beside(&format!(
                "`layers = \"{one}\"`{}",
                if close.is_empty() { String::new() } else { format!("; {close}") }
            )))
        }
        (several, Some(_)) => Err(beside(&format!("a list of {} layers", several.len()))),
        ([one], None) if one == "usual" => Ok(Layers::Usual),
        ([one], None) if one == "image" => Ok(Layers::Image),
        _ => Ok(Layers::Named(named)),
    }
}

fn selection(section: &Section<'_>) -> Result<SelectionPart> {
    let criteria = section.named_texts()?;
    if criteria.is_empty() {
        return Err(section.location().error(
            "selection: expected criteria with their metrics, such as localisation = [\"pointing-game\"], found none",
        ));
    }
    for (name, metrics) in &criteria {
        if metrics.is_empty() {
            return Err(section.error(name, "expected a list of metrics, found an empty list"));
        }
        known(section, name, metrics)?;
    }
    Ok(SelectionPart { criteria })
}

fn metrics(section: &Section<'_>) -> Result<Vec<String>> {
    let metrics = section.needed_texts("metrics", "a list of metrics")?;
    known(section, "metrics", &metrics)?;
    Ok(metrics)
}

/// An error if the text is not a metric.
fn known(section: &Section<'_>, key: &str, metrics: &[String]) -> Result<()> {
    for text in metrics {
        crate::metrics::parse(text).map_err(|error| section.about(key, text, &error))?;
    }
    Ok(())
}

fn comparison(section: &Section<'_>) -> Result<Vec<String>> {
    let metrics = metrics(section)?;
    section.finish()?;
    Ok(metrics)
}

fn fixed(section: &Section<'_>) -> Result<Fixed> {
    let part = Fixed {
        title: section.text("title")?,
        family: section.text("family")?,
        method: section.needed("method", "a method, such as \"splitcam:alpha=0.3\"")?,
        layers: layers(section)?,
        absolute: section.flag("absolute")?.unwrap_or(false),
    };
    section.finish()?;
    Ok(part)
}

fn all_fixed(section: &Section<'_>) -> Result<Vec<Fixed>> {
    section.sections("of")?.iter().map(fixed).collect()
}

fn some_fixed(section: &Section<'_>) -> Result<Vec<Fixed>> {
    match all_fixed(section)? {
        none if none.is_empty() => Err(section.missing("of", "configurations to look at, a list of tables")),
        some => Ok(some),
    }
}

fn ablation(section: &Section<'_>) -> Result<AblationPart> {
    let vary = section.needed("vary", "the option that is varied, such as \"alpha\"")?;
    let part = AblationPart {
        name: section.text("name")?.unwrap_or_else(|| vary.clone()),
        vary,
        values: section.needed_texts("values", "the values the option takes")?,
        of: some_fixed(section)?,
        metrics: metrics(section)?,
        on_validation: section.one_of("images", &PARTS)?.unwrap_or(false),
    };
    section.finish()?;
    Ok(part)
}

fn layers_part(section: &Section<'_>) -> Result<LayersPart> {
    let part = LayersPart {
        of: some_fixed(section)?,
        metrics: metrics(section)?,
        on_validation: section.one_of("images", &PARTS)?.unwrap_or(true),
    };
    section.finish()?;
    Ok(part)
}

fn sanity(section: &Section<'_>) -> Result<SanityPart> {
    let part = SanityPart {
        randomise: section.count("randomise", 1..=MOST)?.unwrap_or(3),
        of: all_fixed(section)?,
        images: section.count("images", 1..=MOST)?,
    };
    section.finish()?;
    Ok(part)
}

fn timing(section: &Section<'_>) -> Result<TimingPart> {
    let part = TimingPart { of: all_fixed(section)?, images: section.count("images", 1..=MOST)? };
    section.finish()?;
    Ok(part)
}

/// An error about a text of an experiment that the catalogue of methods or metrics refused.
pub(crate) fn about(what: &str, text: &str, error: &Error) -> Error {
    error.clone().context(format!("{what} \"{text}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"
name = "a"
[model]
file = "m.onnx"
[data]
folder = "pets"
validation = "val"
test-images = 3
[[method]]
method = "splitcam"
formulas = ["part=combined", "part=plus"]
layers = "convolutions"
at-most = 4
absolute = "both"
[selection]
localisation = ["pointing-game"]
[comparison]
metrics = ["pointing-game"]
[[ablation]]
vary = "alpha"
values = [0.5, "0.4"]
metrics = ["pointing-game"]
of = [{ method = "splitgrad", layers = "features.14", absolute = true }]
[layers]
metrics = ["pointing-game"]
of = [{ method = "gradcam", layers = "convolutions" }]
[sanity]
[timing]
images = 2
"#;

    fn parse(text: &str) -> Result<Experiment> {
        Experiment::parse(text, Path::new("folder/e.toml"))
    }

    #[test]
    fn a_description_is_read_as_it_is_meant_and_written_out_complete() {
        let read = parse(WHOLE).unwrap();
        assert_eq!(read.model.file, Some(PathBuf::from("folder/m.onnx")));
        assert_eq!(read.methods[0].layers, Layers::Convolutions(Some(4)));
        assert_eq!(read.methods[0].absolute, [false, true]);
        assert_eq!(read.ablations[0].values, ["0.5", "0.4"]);
        assert_eq!(read.ablations[0].of[0].layers, Layers::Named(vec!["features.14".into()]));
        assert!(read.layers.as_ref().unwrap().on_validation && !read.ablations[0].on_validation);
        let again = parse(read.text()).unwrap();
        assert_eq!(Experiment { text: String::new(), ..again }, Experiment { text: String::new(), ..read });
    }

    /// Each mistake with what the answer must hold: the key, what was expected, what is close.
    #[test]
    fn a_mistake_is_answered_with_the_key_what_was_expected_and_what_is_close() {
        let cases = [
            ("test-images = 3", "test-imges = 3", &["line 8", "data.test-imges", "'test-images'"][..]),
            ("test-images = 3", "test-images = \"3\"", &["data.test-images", "whole number", "\"3\""]),
            ("test-images = 3", "test-images = 0", &["from 1 to", "found 0"]),
            ("absolute = \"both\"", "absolute = \"bth\"", &["method[1].absolute", "'both'", "no, yes, both"]),
            ("at-most = 4", "at-mst = 4", &["method[1].at-mst", "'at-most'"]),
            ("[timing]", "[timeing]", &["timeing", "'timing'"]),
            ("vary = \"alpha\"\n", "", &["ablation[1].vary", "expected the option", "nothing"]),
            ("[data]\nfolder = \"pets\"", "[data]\nfolder = 7", &["data.folder", "a text", "found 7"]),
            ("name = \"a\"", "", &["name", "expected a name"]),
            (
                "metrics = [\"pointing-game\"]\n[[ab",
                "metrics = []\n[[ab",
                &["comparison.metrics", "found an empty list"],
            ),
            ("[sanity]", "[sanity", &["line"]),
            ("[comparison]\nmetrics", "[comparison]\nmetrcs", &["line 18", "comparison.metrcs", "'metrics'"]),
            ("values = [", "vales = [", &["ablation[1].vales", "'values'"]),
            ("of = [{ method = \"gradcam\"", "off = [{ method = \"gradcam\"", &["layers.off", "'of'"]),
            ("[data]", "[dat]", &["line 5", "dat", "'data'", "which images"]),
            (
                "\"convolutions\"\nat",
                "\"features.14\"\nat",
                &["method[1].at-most", "beside it", "features.14"],
            ),
            ("\"convolutions\"\nat", "\"convolutons\"\nat", &["did you mean 'convolutions'", "convolutons"]),
            (
                "localisation = [\"pointing-game\"]",
                "localisation = [\"pointing-gane\"]",
                &["line 16", "selection.localisation", "did you mean 'pointing-game'"],
            ),
            (
                "localisation = [\"pointing-game\"]",
                "localisation = []",
                &["selection.localisation", "empty list"],
            ),
            (
                "localisation = [\"pointing-game\"]",
                "localisation = [3]",
                &["selection.localisation", "found 3"],
            ),
            ("file = \"m.onnx\"", "weights = \"m.pth\"", &["model.weights", "`arch` beside it"]),
        ];
        for (right, wrong, words) in cases {
            let message = parse(&WHOLE.replacen(right, wrong, 1)).unwrap_err().to_string();
            for word in words {
                assert!(message.contains(word), "'{word}' is not in: {message}");
            }
            assert_eq!(message.lines().count(), 1, "{message}");
        }
    }

    #[test]
    fn a_base_that_is_not_there_is_answered_with_the_key_and_what_is_close() {
        let scratch = crate::store::tests::Scratch::new("base");
        std::fs::write(scratch.0.join("pets.toml"), "").unwrap();
        let file = scratch.0.join("e.toml");
        std::fs::write(&file, "# a\nbase = \"pet.toml\"\n").unwrap();
        let message = Experiment::open(&file).unwrap_err().to_string();
        for word in ["e.toml, line 2", "base", "did you mean 'pets.toml'?", "expected a file", "pet.toml"] {
            assert!(message.contains(word), "'{word}' is not in: {message}");
        }
    }

    #[test]
    fn an_experiment_that_asks_nothing_is_refused() {
        let message = parse("name = \"a\"\n[data]\nfolder = \"x\"\n").unwrap_err().to_string();
        assert!(message.contains("nothing is asked"), "{message}");
        let message = parse("name = \"a\"\n[data]\n[sanity]\n").unwrap_err().to_string();
        assert!(message.contains("sanity") && message.contains("[comparison]"), "{message}");
    }
}
