//! An experiment, described by one TOML file: the network, the images, the methods with the options to choose from, and the
//! stages to run.

mod nesting;
mod parts;
mod readers;
mod section;
pub mod value;

use std::path::Path;

use monosplit_graph::{Error, Result};

use readers::{ablation, comparison, data, layers_part, method, model, sanity, selection, timing};
use section::Section;
use value::Value;

pub use parts::{
    AblationPart, BatchNorms, DataPart, ExplainedClass, Fixed, LayerSide, LayersPart, MapLayers, MapsFrom,
    MethodPart, ModelPart, SanityPart, SelectionPart, TimingPart,
};

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
    whole_paths: String,
    elsewhere: String,
}

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

    /// The same for another target: as it was given, and with the whole path of its file.
    pub fn with_target(mut self, given: &str, whole: &str) -> Result<Self> {
        let changed = |text: &str, target: &str| {
            Ok::<_, Error>(Value::parse(text, Path::new(""))?.with_text("model", "target", target).to_toml())
        };
        self.text = changed(&self.text, given)?;
        self.whole_paths = changed(&self.whole_paths, whole)?;
        self.elsewhere = changed(&self.elsewhere, whole)?;
        self.model.target = Some(whole.to_owned());
        Ok(self)
    }

    /// The same with the whole paths of the files that it names, for a reader elsewhere.
    pub fn text_with_whole_paths(&self) -> &str {
        &self.whole_paths
    }

    /// The same for another process that runs the experiment: also with the whole paths of the network and of the data set.
    pub fn text_for_others(&self) -> &str {
        &self.elsewhere
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
            whole_paths: value.with_whole_paths(&["labels", "maps", "inputs"]).to_toml(),
            elsewhere: value
                .with_whole_paths(&["labels", "maps", "inputs", "file", "weights", "folder"])
                .to_toml(),
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

/// An error about a text of an experiment that the catalogue of methods or metrics refused.
pub(crate) fn about(what: &str, text: &str, error: &Error) -> Error {
    error.clone().context(format!("{what} \"{text}\""))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

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
        assert_eq!(read.methods[0].layers, MapLayers::Convolutions(Some(4), LayerSide::Input));
        assert_eq!(read.methods[0].absolute, [false, true]);
        assert_eq!(read.ablations[0].values, ["0.5", "0.4"]);
        assert_eq!(read.ablations[0].of[0].layers, MapLayers::Named(vec!["features.14".into()]));
        assert!(read.layers.as_ref().unwrap().on_validation && !read.ablations[0].on_validation);
        let again = parse(read.text()).unwrap();
        let plain = |of: Experiment| Experiment { text: String::new(), whole_paths: String::new(), ..of };
        assert_eq!(plain(again), plain(read));
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
