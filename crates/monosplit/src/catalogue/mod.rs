//! The methods by name, with the options of each and the publication it comes from. Text becomes typed options here; the
//! crates below take types only.

mod alpha;
mod attention;
mod averaged;
mod backpropagation;
mod cam;
mod control;
mod files;
#[cfg(feature = "eval")]
mod finish;
mod gradient;
mod masking_cam;
mod perturbation;
mod propagation;
mod shift;
mod split;

use std::sync::Arc;

use monosplit_explain::methods::Lrp;
use monosplit_explain::{DecomposedMap, Method, Settings, Split};
use monosplit_graph::options::closest;
use monosplit_graph::{Error, Graph, Hint, Result};
use monosplit_image::Preprocess;

use crate::model::Model;

pub use alpha::AlphaChoice;
#[cfg(feature = "eval")]
pub(crate) use control::mask_count;
#[cfg(feature = "eval")]
pub use finish::split_finish;
pub use monosplit_graph::Options;

/// The catalogue tells which methods there are.
const METHODS: Hint = Hint::new("methods", "the catalogue lists them");
/// A layer is not a part of a method's name.
const LAYER_APART: Hint = Hint::new("layer-apart", "a layer is named apart from its method");

/// A method that can be asked for by name.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct MethodEntry {
    /// The name by which it is chosen.
    pub name: &'static str,
    /// The family it is listed under.
    pub family: MethodFamily,
    /// What it shows, in one line.
    pub summary: &'static str,
    /// Where it was published.
    pub citation: &'static str,
    /// Its options.
    pub options: &'static [MethodOption],
    make: fn(&mut Options) -> Result<ConfiguredMethod>,
}

/// An option of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MethodOption {
    /// Its name.
    pub key: &'static str,
    /// Its default value.
    pub default: &'static str,
    /// What it does.
    pub meaning: &'static str,
}

const fn option(key: &'static str, default: &'static str, meaning: &'static str) -> MethodOption {
    MethodOption { key, default, meaning }
}

/// Methods that work alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MethodFamily {
    /// Computed from the two monotone networks of the split.
    Split,
    /// Gradients, alone or averaged.
    Gradient,
    /// Gradients with other rules for ReLUs.
    Backpropagation,
    /// Activations of a layer, weighted and added up.
    Cam,
    /// Attention weights of tokens.
    Attention,
    /// Relevance propagated from layer to layer.
    Propagation,
    /// Perturbations of parts of the image.
    Perturbation,
    /// Maps that explain nothing, to compare with.
    Control,
}

impl MethodFamily {
    /// All families, in the order in which they are listed.
    pub const ALL: [MethodFamily; 8] = [
        MethodFamily::Split,
        MethodFamily::Gradient,
        MethodFamily::Backpropagation,
        MethodFamily::Cam,
        MethodFamily::Attention,
        MethodFamily::Propagation,
        MethodFamily::Perturbation,
        MethodFamily::Control,
    ];

    /// Its title in lists.
    pub fn title(self) -> &'static str {
        match self {
            MethodFamily::Split => "the split",
            MethodFamily::Gradient => "gradients",
            MethodFamily::Backpropagation => "modified backpropagation",
            MethodFamily::Cam => "class activation maps",
            MethodFamily::Attention => "attention",
            MethodFamily::Propagation => "propagation",
            MethodFamily::Perturbation => "perturbation",
            MethodFamily::Control => "controls",
        }
    }
}

/// A method with a value for each of its options.
#[derive(Clone, Debug)]
pub struct ConfiguredMethod {
    /// The name in the catalogue.
    pub name: &'static str,
    /// The title in captions.
    pub title: String,
    /// The values of all options that have an effect, given or default.
    pub options: Vec<(&'static str, String)>,
    /// The method.
    pub method: Arc<dyn Method>,
    /// The numbers it takes at run time.
    pub settings: Settings,
    /// α, where the method has one for all layers.
    pub alpha: Option<f64>,
    /// α by layer, which the settings hold once the network is known: [`ConfiguredMethod::for_network`].
    pub layer_alphas: Option<AlphaChoice>,
    /// The arguments of the closed formula, where it applies to the map.
    pub closed: Option<Closed>,
    /// The rules of relevance propagation, where the method is one.
    pub relevance: Option<Lrp>,
}

/// A map that the closed formula decomposes by layer.
#[derive(Clone, Copy, Debug)]
pub struct Closed {
    /// The options of the split.
    pub split: Split,
    /// The map.
    pub whole: DecomposedMap,
}

impl ConfiguredMethod {
    fn new(method: impl Method + 'static, title: impl Into<String>) -> Self {
        let settings = Settings::default();
        ConfiguredMethod {
            name: "",
            title: title.into(),
            options: Vec::new(),
            method: Arc::new(method),
            settings,
            alpha: None,
            layer_alphas: None,
            closed: None,
            relevance: None,
        }
    }

    /// The method with the numbers that depend on the layers of a network.
    pub fn for_network(mut self, network: &Graph) -> Result<Self> {
        if let Some(alphas) = &self.layer_alphas {
            self.settings.alpha = alphas.of(network)?;
        }
        Ok(self)
    }

    /// The options as they are written after the method's name, `key=value,key=value`.
    pub fn options_text(&self) -> String {
        written(self.options.iter())
    }

    /// The method in one word: its name and the options that differ from their default.
    pub fn canonical(&self) -> String {
        let choices = MethodEntry::find(self.name).map_or(&[][..], |entry| entry.options);
        let is_default = |(key, value): &&(&str, String)| {
            choices.iter().any(|option| option.key == *key && is_same(value, option.default))
        };
        match written(self.options.iter().filter(|option| !is_default(option))) {
            options if options.is_empty() => self.name.to_owned(),
            options => format!("{}:{options}", self.name),
        }
    }
}

fn written<'a>(options: impl Iterator<Item = &'a (&'static str, String)>) -> String {
    options.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

/// Whether two texts of an option have the same value.
fn is_same(value: &str, default: &str) -> bool {
    match (value.parse::<f64>(), default.parse::<f64>()) {
        (Ok(value), Ok(default)) => value == default,
        _ => value.eq_ignore_ascii_case(default),
    }
}

/// All methods, family by family.
pub fn entries() -> impl Iterator<Item = &'static MethodEntry> {
    [
        split::ENTRIES,
        gradient::ENTRIES,
        averaged::ENTRIES,
        backpropagation::ENTRIES,
        cam::ENTRIES,
        masking_cam::ENTRIES,
        attention::ENTRIES,
        propagation::ENTRIES,
        perturbation::ENTRIES,
        control::ENTRIES,
    ]
    .into_iter()
    .flatten()
}

impl MethodEntry {
    /// The entry of that name; the error for an unknown name suggests the closest one.
    pub fn find(name: &str) -> Result<&'static MethodEntry> {
        let wanted = name.trim().to_ascii_lowercase().replace('_', "-");
        entries().find(|entry| entry.name == wanted).ok_or_else(|| {
            let names: Vec<&str> = entries().map(|entry| entry.name).collect();
            match (wanted.split_once('@'), name.split_once('@')) {
                (Some((method, _)), Some((_, layer))) if names.contains(&method) => {
                    Error::argument(format!("there is no method '{name}'")).hint(LAYER_APART.about(layer))
                }
                _ => {
                    let close = closest(&wanted, &names);
                    let close = if close.is_empty() { close } else { format!("; {}", close.trim_end()) };
                    Error::argument(format!("there is no method '{name}'{close}")).hint(METHODS)
                }
            }
        })
    }

    /// The method with the given options; an option that it does not have is an error.
    pub fn configure(&'static self, options: Options) -> Result<ConfiguredMethod> {
        let mut options = options.of(self.name, self.options.iter().map(|option| option.key));
        let chosen = (self.make)(&mut options)?;
        options.all_used()?;
        chosen.settings.check()?;
        let read = self.options.iter().filter(|option| options.is_read(option.key));
        let settled =
            read.map(|option| (option.key, options.settled(option.key).unwrap_or(option.default).to_owned()));
        let settled = settled.filter(|(_, value)| !value.is_empty()).collect();
        Ok(ConfiguredMethod { name: self.name, options: settled, ..chosen })
    }
}

/// A method by name with the options that were given. [`resolve`](MethodChoice::resolve) adds the options that follow from
/// the preprocessing of the images.
#[derive(Clone, Debug)]
pub struct MethodChoice {
    entry: &'static MethodEntry,
    given: Options,
    configured: ConfiguredMethod,
}

impl MethodChoice {
    /// Reads a method as it is written in one word, `lrp:gamma=0.1,composite=epsilon-plus`, with further options after
    /// those. All options are checked.
    pub fn parse(text: &str, further: &[(String, String)]) -> Result<Self> {
        let (name, inline) = text.split_once(':').unwrap_or((text, ""));
        let mut given = Options::parse(inline)?;
        further.iter().try_for_each(|(key, value)| given.add(key, value))?;
        let entry = MethodEntry::find(name)?;
        let configured = entry.configure(given.clone())?;
        Ok(MethodChoice { entry, given, configured })
    }

    /// The same with further options.
    pub fn with(&self, further: &[(String, String)]) -> Result<Self> {
        let mut given = self.given.clone();
        further.iter().try_for_each(|(key, value)| given.add(key, value))?;
        let configured = self.entry.configure(given.clone())?;
        Ok(MethodChoice { entry: self.entry, given, configured })
    }

    /// The entry in the catalogue.
    pub fn entry(&self) -> &'static MethodEntry {
        self.entry
    }

    /// The name in the catalogue.
    pub fn name(&self) -> &'static str {
        self.entry.name
    }

    /// Whether an option was given.
    pub fn is_given(&self, key: &str) -> bool {
        self.given.is_given(key)
    }

    /// The method for images of unknown bounds.
    pub fn configured(&self) -> &ConfiguredMethod {
        &self.configured
    }

    /// The method for images with these bounds and this network.
    pub fn resolve(&self, bounds: &ValueBounds, network: &Graph) -> Result<ConfiguredMethod> {
        let has = |key: &str| self.entry.options.iter().any(|option| option.key == key);
        let implied = bounds.options.iter().filter(|(key, _)| has(key) && !self.is_given(key));
        let mut options = self.given.clone();
        let mut is_changed = false;
        for (key, value) in implied {
            options.set(key, value);
            is_changed = true;
        }
        let configured = if is_changed { self.entry.configure(options)? } else { self.configured.clone() };
        configured.for_network(network)
    }
}

/// A method and the layer it is asked for at.
#[derive(Clone, Debug)]
pub struct MethodAtLayer {
    /// The method.
    pub choice: MethodChoice,
    /// The layer that was named, if one was.
    pub layer: Option<String>,
}

impl MethodAtLayer {
    /// Reads `NAME[:KEY=VALUE,…][@LAYER]`. The layer begins at the first `@` with a method before it: names of files in options
    /// may have one too.
    pub fn parse(text: &str) -> Result<Self> {
        let mut refused = None;
        for (at, _) in text.match_indices('@') {
            match MethodChoice::parse(&text[..at], &[]) {
                Ok(choice) => return Ok(MethodAtLayer { choice, layer: Some(text[at + 1..].to_owned()) }),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        match MethodChoice::parse(text, &[]) {
            Ok(choice) => Ok(MethodAtLayer { choice, layer: None }),
            Err(error) => Err(refused.unwrap_or(error)),
        }
    }
}

/// The least and the largest value that each channel of an image can have, where that is known. Some methods have options
/// for them (`low` and `high`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValueBounds {
    options: Vec<(&'static str, String)>,
}

impl ValueBounds {
    /// The bounds that preprocessing gives to pictures, or those of the bytes that the network reads.
    pub fn of_inputs(model: &Model, preprocess: Option<&Preprocess>) -> Result<Self> {
        let integers = model.integer_input().filter(|_| preprocess.is_none()).map(|input| input.range);
        match integers.filter(|(low, high)| high.saturating_sub(*low) <= i64::from(u8::MAX)) {
            Some((low, high)) => {
                Ok(ValueBounds { options: vec![("low", low.to_string()), ("high", high.to_string())] })
            }
            None => ValueBounds::of(preprocess),
        }
    }

    /// The bounds that preprocessing gives to images; none are known without it.
    pub fn of(preprocess: Option<&Preprocess>) -> Result<Self> {
        let Some(preprocess) = preprocess else { return Ok(ValueBounds::default()) };
        let bounds = preprocess.bounds()?;
        let written = |end: fn(&(f32, f32)) -> f32| {
            let numbers: Vec<String> = bounds.iter().map(|pair| end(pair).to_string()).collect();
            numbers.join("/")
        };
        Ok(ValueBounds { options: vec![("low", written(|pair| pair.0)), ("high", written(|pair| pair.1))] })
    }
}

/// The method that a text names, for images of unknown bounds. Short for [`MethodChoice::parse`].
pub fn parse(text: &str, further: &[(String, String)]) -> Result<ConfiguredMethod> {
    MethodChoice::parse(text, further).map(|choice| choice.configured)
}

/// A method's name and the options that differ from their default, in alphabetical order. Two texts that mean the same give
/// the same result.
pub fn tidied(text: &str) -> Result<(&'static str, String)> {
    let (name, inline) = text.split_once(':').unwrap_or((text, ""));
    let entry = MethodEntry::find(name)?;
    let mut given = Options::parse(inline)?;
    let mut kept = Vec::new();
    for MethodOption { key, default, .. } in entry.options {
        if let Some(value) = given.text(key).filter(|value| !is_same(value, default)) {
            let value = value.parse::<f64>().map_or(value, |number| number.to_string());
            kept.push(format!("{key}={value}"));
        }
    }
    kept.sort();
    Ok((entry.name, kept.join(",")))
}

/// Methods separated by commas, one text each. A word with an equals sign and no colon is an option of the method before
/// it.
pub fn words(text: &str) -> Result<Vec<String>> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        match words.last_mut() {
            Some(last) if word.contains('=') && !word.contains(':') => {
                last.push(',');
                last.push_str(word);
            }
            _ => words.push(word.to_owned()),
        }
    }
    match words.is_empty() {
        true => Err(Error::argument("expected the names of methods, separated by commas")),
        false => Ok(words),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart() {
        let names: Vec<&str> = entries().map(|entry| entry.name).collect();
        let distinct: std::collections::HashSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), names.len());
    }

    #[test]
    fn every_method_is_what_its_documented_defaults_say() {
        for entry in entries() {
            let plain = entry.configure(Options::default()).unwrap();
            let mut written = Options::default();
            entry.options.iter().for_each(|option| written.set(option.key, option.default));
            let spelled_out = entry.configure(written).unwrap();
            assert_eq!(format!("{plain:?}"), format!("{spelled_out:?}"), "{}", entry.name);
        }
    }

    #[test]
    fn what_options_came_to_gives_the_same_method_again() {
        let texts = [
            "splitcam:stabiliser=none,ALPHA=0.30",
            "splitlrp:map=Pos,theta=0.5",
            "lrp:composite=alpha-beta,alpha=3",
            "lrp:rules=conv1=zbox;fc=epsilon(0.01),low=-1/-2/-3",
        ];
        for text in texts.into_iter().chain(entries().map(|entry| entry.name)) {
            let chosen = parse(text, &[]).unwrap();
            let again = parse(&format!("{}:{}", chosen.name, chosen.options_text()), &[]).unwrap();
            assert_eq!(format!("{chosen:?}"), format!("{again:?}"));
        }
        let of = |text: &str| parse(text, &[]).unwrap().options_text();
        assert_eq!(
            of("splitlrp:map=Pos"),
            "map=pos,stabiliser=scale,theta=0.1,limit=10,correction=both,repeat=no,scale-over=sample,\
             threshold=absolute,pool=convex,input-split=half,relu=max"
        );
        assert!(!of("splitcam:stabiliser=none").contains("theta"));
        assert!(of("lrp:composite=alpha-beta,alpha=3").contains("beta=2"));
    }

    #[test]
    fn options_of_other_methods_are_refused_by_name() {
        for entry in entries() {
            let refused = parse(entry.name, &[("warp".into(), "9".into())]).unwrap_err().to_string();
            assert!(refused.contains(entry.name) && refused.contains("warp"), "{refused}");
        }
    }

    #[test]
    fn texts_that_mean_the_same_are_tidied_to_the_same() {
        for text in ["splitcam:part=plus,alpha=0.30", "SplitCAM: alpha=0.3 ,part=plus,stream=g,theta=0.10"] {
            assert_eq!(tidied(text).unwrap(), ("splitcam", "alpha=0.3,part=plus".to_owned()));
        }
        assert_eq!(tidied("splitcam:alpha=0.40").unwrap(), ("splitcam", String::new()));
    }

    #[test]
    fn a_layer_stands_behind_its_method() {
        let read = |text: &str| {
            let found = MethodAtLayer::parse(text).unwrap();
            (found.choice.configured().canonical(), found.layer)
        };
        assert_eq!(read("splitcam"), ("splitcam".to_owned(), None));
        let (method, layer) = read("splitcam:alpha=0.3@block.1:out#2");
        assert_eq!((&*method, layer.as_deref()), ("splitcam:alpha=0.3", Some("block.1:out#2")));
        let refused = |text: &str| MethodAtLayer::parse(text).unwrap_err().to_string();
        assert!(refused("splitcan@conv").contains("'splitcan'"), "{}", refused("splitcan@conv"));
        assert!(refused("splitcam:alpha=x@conv").contains("'x'"), "{}", refused("splitcam:alpha=x@conv"));
    }

    #[test]
    fn a_misspelt_method_is_answered_with_the_closest() {
        let refused = parse("splitcan", &[]).unwrap_err().to_string();
        assert!(refused.contains("splitcam"), "{refused}");
    }
}
