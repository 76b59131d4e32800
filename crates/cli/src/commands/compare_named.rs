//! `monosplit compare` of inputs by name: token ids as coloured words, several explained inputs below each other.

use std::io::Write;

use monosplit::catalogue::{MethodAtLayer, ValueBounds};
use monosplit::engine::Engine;
use monosplit::explain::{BatchPosition, Explanation, Finish};
use monosplit::graph::{Error, Result};
use monosplit::render::{Caption, OverlayOptions, Page, PageFigure, Scene, Sheet, SheetRow, TokenText};
use monosplit::{InputsExplainer, Labels, Model, Sample, ScoreKind, Vocabulary};

use super::class::Classes;
use super::explain_named::words;
use super::figure_input::{MOST_ROWS, class_words, short_name};
use super::named_inputs::{InputValues, NamedInputs, TokenArgs};
use super::progress::Bar;
use crate::failure::Failure;
use crate::output_style;
use crate::table::printable;

/// What stands before the lines of a text.
const INDENT: &str = "    ";

/// Several methods of named inputs, compiled.
pub(crate) struct NamedComparison {
    of: Vec<String>,
    methods: Vec<InputsExplainer>,
    vocabulary: Vocabulary,
}

/// What a method found in an input.
enum Shown {
    Text(TokenText),
    Figure(Scene),
}

/// What all methods found in an input of a sample.
struct NamedRow {
    label: String,
    shown: Vec<(String, Shown)>,
}

/// The values of all inputs, and what of them is explained.
pub(crate) struct NamedSamples {
    pub(crate) values: InputValues,
    pub(crate) labels: Labels,
    pub(crate) score_kind: ScoreKind,
    pub(crate) classes: Classes,
}

impl NamedComparison {
    /// Compiles methods, each as `NAME[:KEY=VALUE,…]`.
    pub(crate) fn new(
        model: &Model,
        named: &NamedInputs,
        methods: &[String],
        finish: Finish,
        tokens: &TokenArgs,
        engine: &dyn Engine,
    ) -> Result<Self> {
        let of: Vec<&str> = named.of.iter().map(String::as_str).collect();
        let bounds = ValueBounds::of_inputs(model, None)?;
        let compiled = |word: &String| {
            let MethodAtLayer { choice, layer } = MethodAtLayer::parse(word)?;
            let chosen = choice.resolve(&bounds, model.graph())?;
            match (layer, &of[..]) {
                (None, of) => model.configured_inputs_explainer(chosen, of, finish, engine),
                (Some(layer), [input]) => {
                    model.configured_layers_explainer(chosen, input, &[layer], finish, engine)
                }
                (Some(layer), of) => Err(model.unfit(format!(
                    "the layer '{layer}' of '{word}' has no part of its own for each of {}, which are explained together; name one \
                     with --of, or leave out the layer",
                    of.join(", ")
                ))),
            }
        };
        let methods = methods.iter().map(compiled).collect::<Result<Vec<_>>>()?;
        let holds_ids = |method: &InputsExplainer| method.parts().iter().any(|part| part.tokens().is_some());
        let vocabulary = tokens.vocabulary(model, methods.iter().any(holds_ids))?;
        Ok(NamedComparison { of: named.of.clone(), methods, vocabulary })
    }

    /// Whether one of the maps is of a text.
    pub(crate) fn is_text(&self) -> bool {
        self.methods.iter().any(|method| method.tokens().any(|tokens| tokens.is_some()))
    }

    /// All samples as one page.
    pub(crate) fn page(
        &self,
        samples: &NamedSamples,
        options: &OverlayOptions,
        out: &mut dyn Write,
    ) -> Result<String, Failure> {
        let mut page = Page::new("compared");
        for row in self.rows(samples, options, out)? {
            page = page.heading(&row.label);
            for (header, shown) in row.shown {
                page = match shown {
                    Shown::Text(text) => page.paragraph(&header).tokens(&text),
                    Shown::Figure(scene) => page.figure(PageFigure::drawing(&scene)?),
                };
            }
        }
        Ok(page.finish())
    }

    /// All samples as one figure; an error if one of the inputs is a text.
    pub(crate) fn scene(
        &self,
        samples: &NamedSamples,
        options: &OverlayOptions,
        out: &mut dyn Write,
    ) -> Result<Scene, Failure> {
        let mut all = Vec::new();
        for NamedRow { label, shown } in self.rows(samples, options, out)? {
            let figures = shown.into_iter().map(|(_, shown)| match shown {
                Shown::Figure(scene) => Ok(scene),
                Shown::Text(_) => {
                    Err(Error::argument("texts are compared in a page; name a file that ends in .html"))
                }
            });
            all.push(SheetRow { label, figures: figures.collect::<Result<_>>()? });
        }
        Ok(Sheet { title: String::new(), rows: all }.into_scene()?)
    }

    fn rows(
        &self,
        samples: &NamedSamples,
        options: &OverlayOptions,
        out: &mut dyn Write,
    ) -> Result<Vec<NamedRow>, Failure> {
        let count = samples.values.count;
        if count * self.of.len() > MOST_ROWS {
            return Err(Error::argument(format!(
                "a figure has at most {MOST_ROWS} rows, one for each explained input of a sample; give fewer samples"
            ))
            .into());
        }
        let mut all = Vec::new();
        for row in 0..count {
            self.sample_rows(samples, row, options, &mut all, out)?;
            out.flush()?;
        }
        samples.classes.all_used(count)?;
        Ok(all)
    }

    /// The rows of one sample, one for each explained input.
    fn sample_rows(
        &self,
        NamedSamples { values, labels, score_kind, classes }: &NamedSamples,
        row: usize,
        options: &OverlayOptions,
        all: &mut Vec<NamedRow>,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let own = values.row(row)?;
        let position = BatchPosition { offset: row, is_last: row + 1 == values.count };
        let class = classes.of(row, 1)?;
        let mut found = Vec::with_capacity(self.methods.len());
        for method in &self.methods {
            found.push(method.explain_at(&own, &class, position, &Bar::new(1))?);
        }
        let Some(first) = found.first() else {
            return Err(Error::argument("name at least one method").into());
        };
        let scores =
            Explanation { logits: first.logits.clone(), classes: first.classes.clone(), maps: Vec::new() };
        let caption = class_words(labels, *score_kind, &scores);
        for (at, input) in self.of.iter().enumerate() {
            let Some(sample) = values.sample(at, row) else { continue };
            writeln!(out, "{}: {}", printable(&sample.name), printable(&caption))?;
            let mut shown = Vec::new();
            for (method, found) in self.methods.iter().zip(&found) {
                let map = &found.maps[at];
                let header = match (&map.layer, self.of.len()) {
                    (Some(layer), _) => format!("{} {layer}", method.title()),
                    (None, 1) => method.title().to_owned(),
                    (None, _) => format!("{} of {input}", method.title()),
                };
                match self.shown(sample, &header, map, options)? {
                    Some(one) => {
                        print(&header, &one, out)?;
                        shown.push((header, one));
                    }
                    None => writeln!(
                        out,
                        "  {}: there is no drawing of a map of these axes; `monosplit explain --raw FILE` writes its numbers",
                        printable(&header)
                    )?,
                }
            }
            all.push(NamedRow { label: format!("{} {caption}", short_name(sample)), shown });
        }
        Ok(())
    }

    fn shown(
        &self,
        sample: &Sample,
        header: &str,
        map: &monosplit::InputMap,
        options: &OverlayOptions,
    ) -> Result<Option<Shown>> {
        let values = &map.map.values;
        let own = values.clone().reshaped(values.shape().get(1..).unwrap_or_default())?;
        if map.tokens.is_some() {
            let words = words(&self.vocabulary, &sample.tensor);
            if own.shape() == [words.len()] {
                return Ok(Some(Shown::Text(TokenText::new(words, &own.to_f32())?)));
            }
        }
        let caption = Caption { method: header.to_owned(), ..Caption::default() };
        Ok(sample.any_figure(&own, &caption, map.layer.is_some(), options)?.map(Shown::Figure))
    }
}

/// Prints a text; figures have no words to print.
fn print(header: &str, shown: &Shown, out: &mut dyn Write) -> Result<(), Failure> {
    if let Shown::Text(text) = shown {
        writeln!(out, "  {}", printable(header))?;
        let room = output_style::columns().saturating_sub(INDENT.len()).max(1);
        for line in text.to_terminal(room, output_style::colours()).lines() {
            writeln!(out, "{INDENT}{line}")?;
        }
    }
    Ok(())
}
