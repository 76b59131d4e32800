//! The methods by name: what a person may ask for, the options each has, and what it goes back to. Text becomes typed
//! options here and nowhere below.

mod attention;
mod averaged;
mod backpropagation;
mod cam;
mod control;
mod files;
mod gradient;
mod masking_cam;
mod perturbation;
mod propagation;
mod split;

use std::sync::Arc;

use monosplit_explain::methods::Lrp;
use monosplit_explain::{DecomposedMap, Method, Settings, Split};
use monosplit_graph::options::closest;
use monosplit_graph::{Error, Result};
use monosplit_image::Preprocess;

pub use monosplit_graph::Options;

/// A method that can be asked for by name.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The name on the command line.
    pub name: &'static str,
    /// The family it is listed under.
    pub family: Family,
    /// What it shows, in one line.
    pub summary: &'static str,
    /// Where it was published.
    pub citation: &'static str,
    /// Its options.
    pub options: &'static [Choice],
    make: fn(&mut Options) -> Result<Chosen>,
}

/// An option of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Its name.
    pub key: &'static str,
    /// What it is unless given.
    pub default: &'static str,
    /// What it does.
    pub meaning: &'static str,
}

const fn choice(key: &'static str, default: &'static str, meaning: &'static str) -> Choice {
    Choice { key, default, meaning }
}

/// Methods that work alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// Read off the pair of monotone networks.
    Split,
    /// Gradients, alone or averaged.
    Gradient,
    /// Gradients with other rules for ReLUs.
    Backpropagation,
    /// Activations of a layer, weighted and added up.
    Cam,
    /// What tokens attend to.
    Attention,
    /// Relevance handed down from layer to layer.
    Propagation,
    /// Parts of the image taken away.
    Perturbation,
    /// Maps that explain nothing, to compare with.
    Control,
}

impl Family {
    /// All of them, in the order they are listed.
    pub const ALL: [Family; 8] = [
        Family::Split,
        Family::Gradient,
        Family::Backpropagation,
        Family::Cam,
        Family::Attention,
        Family::Propagation,
        Family::Perturbation,
        Family::Control,
    ];

    /// What it is called.
    pub fn title(self) -> &'static str {
        match self {
            Family::Split => "the split",
            Family::Gradient => "gradients",
            Family::Backpropagation => "modified backpropagation",
            Family::Cam => "class activation maps",
            Family::Attention => "attention",
            Family::Propagation => "propagation",
            Family::Perturbation => "perturbation",
            Family::Control => "controls",
        }
    }
}

/// A method with its options settled.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The name it was asked for by.
    pub name: &'static str,
    /// What it is called in pictures.
    pub title: String,
    /// What its options came to, those that were not given too; those that mean nothing beside the others are left out.
    pub options: Vec<(&'static str, String)>,
    /// The method.
    pub method: Arc<dyn Method>,
    /// The numbers it takes at run time.
    pub settings: Settings,
    /// α, where the method has one.
    pub alpha: Option<f64>,
    /// The sum it is by the closed formula, where it is one.
    pub closed: Option<Closed>,
    /// The rules by which relevance is handed down, where it is.
    pub relevance: Option<Lrp>,
}

/// A map the closed formula takes apart.
#[derive(Clone, Copy, Debug)]
pub struct Closed {
    /// The choices of the split.
    pub split: Split,
    /// The map.
    pub whole: DecomposedMap,
}

impl Chosen {
    fn new(method: impl Method + 'static, title: impl Into<String>) -> Self {
        let settings = Settings::default();
        Chosen {
            name: "",
            title: title.into(),
            options: Vec::new(),
            method: Arc::new(method),
            settings,
            alpha: None,
            closed: None,
            relevance: None,
        }
    }

    /// The options as they are written after the method's name, `key=value,key=value`.
    pub fn options_text(&self) -> String {
        written(self.options.iter())
    }

    /// The method as it is asked for: its name, and those of its options that are not what they are by default.
    pub fn canonical(&self) -> String {
        let choices = Entry::find(self.name).map_or(&[][..], |entry| entry.options);
        let is_default = |(key, value): &&(&str, String)| {
            choices.iter().any(|choice| choice.key == *key && is_same(value, choice.default))
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

/// Whether two texts of an option mean the same.
fn is_same(value: &str, default: &str) -> bool {
    match (value.parse::<f64>(), default.parse::<f64>()) {
        (Ok(value), Ok(default)) => value == default,
        _ => value.eq_ignore_ascii_case(default),
    }
}

/// All methods, family by family.
pub fn entries() -> impl Iterator<Item = &'static Entry> {
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

impl Entry {
    /// The entry of that name; an error that names those there are.
    pub fn find(name: &str) -> Result<&'static Entry> {
        let wanted = name.trim().to_ascii_lowercase().replace('_', "-");
        entries().find(|entry| entry.name == wanted).ok_or_else(|| {
            let names: Vec<&str> = entries().map(|entry| entry.name).collect();
            let hint = match (wanted.split_once('@'), name.split_once('@')) {
                (Some((method, _)), Some((_, layer))) if names.contains(&method) => {
                    format!("a layer is named apart: --layer {layer}; ")
                }
                _ => closest(&wanted, &names),
            };
            Error::argument(format!("there is no method '{name}'; {hint}`monosplit methods` lists them"))
        })
    }

    /// The method with the given options, which must all be its own.
    pub fn choose(&'static self, options: Options) -> Result<Chosen> {
        let mut options = options.of(self.name, self.options.iter().map(|choice| choice.key));
        let chosen = (self.make)(&mut options)?;
        options.all_used()?;
        chosen.settings.check()?;
        let read = self.options.iter().filter(|choice| options.is_read(choice.key));
        let settled =
            read.map(|choice| (choice.key, options.settled(choice.key).unwrap_or(choice.default).to_owned()));
        let settled = settled.filter(|(_, value)| !value.is_empty()).collect();
        Ok(Chosen { name: self.name, options: settled, ..chosen })
    }
}

/// A method as it is written in one word: `lrp:gamma=0.1,composite=epsilon-plus`, with further options after those.
pub fn parse(text: &str, further: &[(String, String)]) -> Result<Chosen> {
    parse_knowing(text, further, &[])
}

/// Like [`parse`], with what is `known` of the images: options of that name that nobody gave, where the method has them.
pub fn parse_knowing(
    text: &str,
    further: &[(String, String)],
    known: &[(&'static str, String)],
) -> Result<Chosen> {
    let (name, inline) = text.split_once(':').unwrap_or((text, ""));
    let mut options = Options::parse(inline)?;
    further.iter().try_for_each(|(key, value)| options.add(key, value))?;
    let entry = Entry::find(name)?;
    for (key, value) in known {
        if entry.options.iter().any(|choice| choice.key == *key) && !options.is_given(key) {
            options.set(key, value);
        }
    }
    entry.choose(options)
}

/// The least and the largest value of each channel after `preprocess`, as the options `low` and `high` that some methods
/// have.
pub fn known_bounds(preprocess: Option<&Preprocess>) -> Result<Vec<(&'static str, String)>> {
    let Some(preprocess) = preprocess else { return Ok(Vec::new()) };
    let bounds = preprocess.bounds()?;
    let written = |end: fn(&(f32, f32)) -> f32| {
        let numbers: Vec<String> = bounds.iter().map(|pair| end(pair).to_string()).collect();
        numbers.join("/")
    };
    Ok(vec![("low", written(|pair| pair.0)), ("high", written(|pair| pair.1))])
}

/// A method's name and those of its options that are not what they are by default, in alphabetical order: two texts that
/// mean the same have the same.
pub fn tidied(text: &str) -> Result<(&'static str, String)> {
    let (name, inline) = text.split_once(':').unwrap_or((text, ""));
    let entry = Entry::find(name)?;
    let mut given = Options::parse(inline)?;
    let mut kept = Vec::new();
    for Choice { key, default, .. } in entry.options {
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
            let plain = entry.choose(Options::default()).unwrap();
            let mut written = Options::default();
            entry.options.iter().for_each(|choice| written.set(choice.key, choice.default));
            let spelled_out = entry.choose(written).unwrap();
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
            "map=pos,stabiliser=scale,theta=0.1,limit=10,pool=convex,input-split=half,relu=max"
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
    fn a_misspelt_method_is_answered_with_the_closest() {
        let refused = parse("splitcan", &[]).unwrap_err().to_string();
        assert!(refused.contains("splitcam"), "{refused}");
    }
}
