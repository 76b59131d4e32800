//! The columns and rows of figures with several maps.

use std::io::Write;

use monosplit::catalogue::{ConfiguredMethod, MethodAtLayer, ValueBounds};
use monosplit::engine::Engine;
use monosplit::explain::{BatchPosition, Class, Explanation, Finish, SaliencyMap, chosen_layer};
use monosplit::graph::{Error, Result};
use monosplit::image::Picture;
use monosplit::render;
use monosplit::render::{Caption, Grid, GridCell, GridRow, OverlayOptions, Scene, Sheet, SheetRow};
use monosplit::{MethodSet, Model, Sample};

use super::figure_input::{FigureInput, short_name};
use super::progress::Bar;
use crate::failure::Failure;
use crate::table::printable;

/// A column of a figure: a method at a layer.
pub(crate) struct Panel {
    pub(crate) chosen: ConfiguredMethod,
    /// The layer; none is the image.
    pub(crate) layer: Option<String>,
    /// The header of the column.
    pub(crate) header: String,
}

impl Panel {
    /// A column for each word. Columns that would have equal headers show their options too.
    pub(crate) fn parse_all(model: &Model, words: &[&str], bounds: &ValueBounds) -> Result<Vec<Self>> {
        let parsed = words.iter().map(|word| Panel::parse(model, word, bounds));
        let mut panels = parsed.collect::<Result<Vec<_>>>()?;
        let headers: Vec<String> = panels.iter().map(|panel| panel.header.clone()).collect();
        for (panel, word) in panels.iter_mut().zip(words) {
            let repeated = headers.iter().filter(|header| **header == panel.header).count() > 1;
            let options = word.split('@').next().and_then(|method| method.split_once(':'));
            if let (true, Some((_, options))) = (repeated, options) {
                panel.header += &format!(" {}", options.replace(',', ", "));
            }
        }
        Ok(panels)
    }

    /// `NAME[:KEY=VALUE,…][@LAYER]`
    pub(crate) fn parse(model: &Model, word: &str, bounds: &ValueBounds) -> Result<Self> {
        let MethodAtLayer { choice, layer } = MethodAtLayer::parse(word)?;
        let chosen = choice.resolve(bounds, model.graph())?;
        let default = || chosen_layer(model.graph(), chosen.method.default_layer()).map(|layer| layer.name);
        let layer = layer.or_else(default);
        let header = match &layer {
            Some(layer) => format!("{} {layer}", chosen.title),
            None => chosen.title.clone(),
        };
        Ok(Panel { chosen, layer, header })
    }
}

/// The columns of a figure, compiled.
pub(crate) struct Panels {
    columns: Vec<Panel>,
    methods: MethodSet,
}

impl Panels {
    pub(crate) fn new(
        model: &Model,
        columns: Vec<Panel>,
        finish: Finish,
        engine: &dyn Engine,
    ) -> Result<Self> {
        let methods: Vec<_> =
            columns.iter().map(|column| (&column.chosen, column.layer.as_deref())).collect();
        let methods = MethodSet::new(model, &methods, finish, engine)?;
        Ok(Panels { columns, methods })
    }

    /// The explanation of a sample, with its maps in the order of the columns.
    pub(crate) fn of(&self, sample: &Sample, class: &Class) -> Result<Explanation> {
        self.at_position(sample, class, BatchPosition::default())
    }

    /// The same for one of several samples.
    fn at_position(&self, sample: &Sample, class: &Class, position: BatchPosition) -> Result<Explanation> {
        self.methods.explain(&sample.tensor, class, position, || Box::new(Bar::new(1)))
    }

    /// The headers of the columns, that of the picture first.
    pub(crate) fn headers(&self) -> Vec<String> {
        let own = self.columns.iter().map(|column| column.header.clone());
        std::iter::once("picture".to_owned()).chain(own).collect()
    }

    /// The maps of all samples. Prints the predictions to `out`.
    pub(crate) fn rows(
        &self,
        input: &mut FigureInput,
        out: &mut dyn Write,
    ) -> Result<Vec<ExplainedRow>, Failure> {
        let mut rows = Vec::new();
        input.check_rows()?;
        let mut next = input.next_sample()?;
        while let Some(sample) = next {
            next = input.next_sample()?;
            let position = BatchPosition { offset: rows.len(), is_last: next.is_none() };
            let explained = self.at_position(&sample, &input.classes.of(rows.len(), 1)?, position)?;
            let caption = input.named(&explained);
            writeln!(out, "{}: {}", printable(&sample.name), printable(&caption))?;
            for (column, map) in self.columns.iter().zip(&explained.maps) {
                if !is_drawn(&sample, map, column) {
                    writeln!(
                        out,
                        "  {}: there is no drawing of a map of these axes; its place stays empty",
                        printable(&column.header)
                    )?;
                }
            }
            out.flush()?;
            rows.push(ExplainedRow { sample, caption, maps: explained.maps });
        }
        input.classes.all_used(rows.len())?;
        Ok(rows)
    }

    /// The figure of all rows: pictures with their maps in columns, or, where a sample is no picture, the figures that
    /// `monosplit explain` draws of it side by side.
    pub(crate) fn scene(
        &self,
        title: String,
        rows: Vec<ExplainedRow>,
        options: &OverlayOptions,
    ) -> Result<Scene> {
        if rows.iter().all(|row| row.sample.picture.is_some()) {
            let rows = rows.into_iter().map(|found| row(&found.sample, found.caption, &found.maps, options));
            return scene(title, self.headers(), rows.collect::<Result<_>>()?);
        }
        let mut all = Vec::new();
        for ExplainedRow { sample, caption, maps } in &rows {
            let mut figures = Vec::new();
            for (column, map) in self.columns.iter().zip(maps) {
                let own = map.values.shape().get(1..).unwrap_or_default();
                let words = Caption { method: column.header.clone(), ..Caption::default() };
                let own = map.values.clone().reshaped(own)?;
                figures.extend(sample.any_figure(&own, &words, column.layer.is_some(), options)?);
            }
            all.push(SheetRow { label: format!("{} {caption}", short_name(sample)), figures });
        }
        Sheet { title, rows: all }.into_scene()
    }
}

/// A sample with its maps.
pub(crate) struct ExplainedRow {
    sample: Sample,
    caption: String,
    maps: Vec<SaliencyMap>,
}

/// Whether there is a drawing of a map.
fn is_drawn(sample: &Sample, map: &SaliencyMap, column: &Panel) -> bool {
    let (own, of_map) = (sample.tensor.shape(), map.values.shape());
    match of_map.len() {
        3 => true,
        _ if sample.picture.is_some() => false,
        2 => own.len() == 3 || (own.len() == 2 && (column.layer.is_some() || own == of_map)),
        4 => own.len() == 5,
        _ => false,
    }
}

/// The finished figure. The label and caption of a single row go into the title, which leaves its pictures more room.
pub(crate) fn scene(title: String, columns: Vec<String>, mut rows: Vec<GridRow>) -> Result<Scene> {
    let title = match &mut rows[..] {
        [row] => {
            let (label, caption) = (std::mem::take(&mut row.label), std::mem::take(&mut row.caption));
            let words = [title, label, caption].map(|words| words.trim().to_owned());
            words.into_iter().filter(|words| !words.is_empty()).collect::<Vec<_>>().join(" · ")
        }
        _ => title,
    };
    Grid { title, columns, rows, ..Grid::default() }.into_scene()
}

/// The picture of a sample; an error if it has none.
pub(crate) fn picture_of(sample: &Sample) -> Result<&Picture> {
    sample.picture.as_ref().ok_or_else(|| {
        Error::argument(format!(
            "{} is no picture; `monosplit compare` and `monosplit explain` draw the maps of arrays",
            sample.name
        ))
    })
}

/// A row with a picture and its maps. The cell of a map without two axes stays empty.
pub(crate) fn row(
    sample: &Sample,
    caption: String,
    maps: &[SaliencyMap],
    options: &OverlayOptions,
) -> Result<GridRow> {
    let picture = picture_of(sample)?;
    let mut cells = vec![Some(GridCell::picture(picture.clone()))];
    for map in maps {
        cells.push(match map.values.shape().len() {
            3 => {
                Some(GridCell::overlay(picture, &render::ScalarField::from_tensor(&map.values, 0)?, options)?)
            }
            _ => None,
        });
    }
    Ok(GridRow { label: short_name(sample), caption, cells })
}
