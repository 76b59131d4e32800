//! Reads the parts of an experiment from the tables of its description.

use monosplit_graph::Result;
use monosplit_graph::options::closest;
use monosplit_image::{Filter, Fit, OrientationChoice, Preset};

use super::parts::{
    AblationPart, BatchNorms, DataPart, ExplainedClass, Fixed, LayerSide, LayersPart, MapLayers, MapsFrom,
    MethodPart, ModelPart, SanityPart, SelectionPart, TimingPart,
};
use super::section::Section;
use crate::dataset::{DataOptions, FolderLayout, MissingMask, Unreadable};

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
const ORIENTATIONS: [(&str, OrientationChoice); 2] =
    [("upright", OrientationChoice::Upright), ("ignore", OrientationChoice::Ignore)];
const CLASSES: [(&str, ExplainedClass); 2] = [("label", ExplainedClass::Label), ("top", ExplainedClass::Top)];
const BATCH_NORMS: [(&str, BatchNorms); 2] = [("fold", BatchNorms::Fold), ("keep", BatchNorms::Keep)];
const PARTS: [(&str, bool); 2] = [("validation", true), ("test", false)];
const SIDES: [(&str, LayerSide); 3] =
    [("input", LayerSide::Input), ("output", LayerSide::Output), ("activation", LayerSide::Activation)];
const MOST: usize = 10_000_000;

pub(super) fn model(section: &Section<'_>) -> Result<ModelPart> {
    let part = ModelPart {
        file: section.path("file")?,
        architecture: section.text("arch")?,
        weights: section.path("weights")?,
        preset: section.one_of("preset", &PRESETS)?,
        fit: section.one_of("fit", &FITS)?.unwrap_or_default(),
        filter: section.one_of("filter", &FILTERS)?.unwrap_or(Filter::Bilinear),
        labels: section.path("labels")?,
        output: section.text("output")?,
        batch_norms: section.one_of("batch-norms", &BATCH_NORMS)?.unwrap_or_default(),
        target: section.text("target")?,
        target_folder: section.folder("target"),
        inputs: section.paths_by_name("inputs")?,
    };
    let (key, other) = if part.architecture.is_some() { ("arch", "weights") } else { ("weights", "arch") };
    if part.architecture.is_some() != part.weights.is_some() {
        return Err(section.error(key, format!("expected `{other}` beside it, found none")));
    }
    section.finish()?;
    Ok(part)
}

pub(super) fn data(root: &Section<'_>) -> Result<DataPart> {
    let section =
        root.section("data")?.ok_or_else(|| root.missing("data", "a table [data] that says which images"))?;
    let part = DataPart {
        folder: section.path("folder")?,
        options: DataOptions {
            layout: section.one_of("layout", &FolderLayout::NAMED)?,
            label_column: section.text("label-column")?,
            missing_mask: section.one_of("missing-mask", &MASKS)?.unwrap_or_default(),
            unreadable: section.one_of("unreadable", &FILES)?.unwrap_or_default(),
            orientation: section.one_of("orientation", &ORIENTATIONS)?.unwrap_or_default(),
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

/// What makes the maps of a method: `method`, or `maps` without anything that changes how maps are computed.
fn maps_from(section: &Section<'_>) -> Result<MapsFrom> {
    let Some(path) = section.path("maps")? else {
        let method =
            section.needed("method", "a method, such as \"splitcam:alpha=0.3\", or `maps` of your own")?;
        return Ok(MapsFrom::Method(method));
    };
    for key in ["method", "formulas", "layers", "at-most", "side"] {
        if section.has(key) {
            return Err(section.error(key, "expected no such key beside `maps`, which were made elsewhere"));
        }
    }
    Ok(MapsFrom::Files(path))
}

pub(super) fn method(section: &Section<'_>) -> Result<MethodPart> {
    let choices = [("no", vec![false]), ("yes", vec![true]), ("both", vec![false, true])];
    let words: Vec<(&str, usize)> = choices.iter().enumerate().map(|(i, (word, _))| (*word, i)).collect();
    let part = MethodPart {
        title: section.text("title")?,
        family: section.text("family")?,
        source: maps_from(section)?,
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

fn layers(section: &Section<'_>) -> Result<MapLayers> {
    let layers = all_layers(section)?;
    let side = section.one_of("side", &SIDES)?;
    match (layers, side) {
        (MapLayers::Convolutions(most, _), Some(side)) => Ok(MapLayers::Convolutions(most, side)),
        (_, Some(_)) => Err(section.error(
            "side",
            "expected `layers = \"convolutions\"` beside it; write `NAME:out` for the output of a layer",
        )),
        (layers, None) => Ok(layers),
    }
}

fn all_layers(section: &Section<'_>) -> Result<MapLayers> {
    let most = section.count("at-most", 1..=MOST)?;
    let beside = |found: &str| {
        section.error("at-most", format!("expected `layers = \"convolutions\"` beside it, found {found}"))
    };
    let Some(named) = section.texts("layers")? else {
        return match most {
            None => Ok(MapLayers::Usual),
            Some(_) => Err(beside("no `layers`")),
        };
    };
    match (&*named, most) {
        ([], _) => Err(section.error("layers", "expected at least one layer, found an empty list")),
        ([one], most) if one == "convolutions" => Ok(MapLayers::Convolutions(most, LayerSide::Input)),
        ([one], Some(_)) => {
            let close = closest(one, &["convolutions"]);
            Err(beside(&format!(
                "`layers = \"{one}\"`{}",
                if close.is_empty() { String::new() } else { format!("; {close}") }
            )))
        }
        (several, Some(_)) => Err(beside(&format!("a list of {} layers", several.len()))),
        ([one], None) if one == "usual" => Ok(MapLayers::Usual),
        ([one], None) if one == "image" => Ok(MapLayers::Image),
        _ => Ok(MapLayers::Named(named)),
    }
}

pub(super) fn selection(section: &Section<'_>) -> Result<SelectionPart> {
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

pub(super) fn comparison(section: &Section<'_>) -> Result<Vec<String>> {
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

pub(super) fn ablation(section: &Section<'_>) -> Result<AblationPart> {
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

pub(super) fn layers_part(section: &Section<'_>) -> Result<LayersPart> {
    let part = LayersPart {
        of: some_fixed(section)?,
        metrics: metrics(section)?,
        on_validation: section.one_of("images", &PARTS)?.unwrap_or(true),
    };
    section.finish()?;
    Ok(part)
}

/// `own`, or the standard deviation of random weights.
fn deviation(section: &Section<'_>) -> Result<Option<f64>> {
    let Some(texts) = section.texts("deviation")? else { return Ok(None) };
    match &*texts {
        [own] if own == "own" => Ok(None),
        [text] => match text.parse::<f64>() {
            Ok(number) if number > 0.0 && number.is_finite() => Ok(Some(number)),
            _ => {
                Err(section.error("deviation", format!("expected \"own\" or a number above 0, found {text}")))
            }
        },
        _ => Err(section.error("deviation", "expected \"own\" or one number, found a list")),
    }
}

pub(super) fn sanity(section: &Section<'_>) -> Result<SanityPart> {
    let part = SanityPart {
        randomise: section.count("randomise", 1..=MOST)?.unwrap_or(3),
        deviation: deviation(section)?,
        of: all_fixed(section)?,
        images: section.count("images", 1..=MOST)?,
    };
    section.finish()?;
    Ok(part)
}

pub(super) fn timing(section: &Section<'_>) -> Result<TimingPart> {
    let part = TimingPart { of: all_fixed(section)?, images: section.count("images", 1..=MOST)? };
    section.finish()?;
    Ok(part)
}
