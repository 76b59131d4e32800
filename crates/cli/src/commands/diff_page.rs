//! The page of `monosplit diff`: the worst pictures with the maps of both networks and their difference.

use std::path::Path;

use monosplit::graph::{Result, write_atomically};
use monosplit::image::Picture;
use monosplit::render::{
    Best, Caption, Grid, GridCell, GridRow, OverlayOptions, Page, PageFigure, ScalarField, Table, TableEntry,
    TokenText, number,
};
use monosplit::{DifferenceMeasure, MapDifference};

use super::diff_result::{Compared, DiffContext, limit_words};
use crate::report::small;

/// Writes the page.
pub(super) fn write(path: &Path, context: &DiffContext, compared: &[Compared]) -> Result<()> {
    let shown = &compared[..compared.len().min(context.worst)];
    let [a, b] = &context.networks;
    let mut page = Page::new("Two networks compared").paragraph(&format!(
        "A is {a}, B is {b}. {}. {}.",
        context.heading(),
        context.summary(compared)
    ));
    for limit in &context.limits {
        page = page.paragraph(&format!("{}.", limit_words(limit, compared)));
    }
    page = page.heading("Numbers").paragraph(
        "The worst first. Score is the largest difference of a score over the largest magnitude of a score, map the \
         relative difference ‖a − b‖ / max(‖a‖, ‖b‖) of the maps; the last two are 1 less the rank correlation and 1 less \
         the structural similarity. All are 0 where the networks agree.",
    );
    page = page.table(&table(context, shown));
    let rows = shown.iter().map(|one| row(context, one)).collect::<Result<Vec<_>>>()?;
    let rows: Vec<GridRow> = rows.into_iter().flatten().collect();
    if !rows.is_empty() {
        let columns = ["picture".to_owned()].into_iter().chain(columns(context)).collect();
        let scene = Grid { columns, rows, ..Grid::default() }.into_scene()?;
        let about = "Each map is on its own scale, the difference of the two as well.";
        page = page.heading("Maps").figure(PageFigure::drawing(&scene)?.across().caption(about));
    }
    for one in shown {
        page = others(page, context, one)?;
    }
    write_atomically(path, page.finish().as_bytes())
}

fn table(context: &DiffContext, shown: &[Compared]) -> Table {
    let columns = ["input", "class", "score of A", "score of B", "score", "map", "spearman", "ssim"];
    let row = |one: &Compared| {
        let measured = |measure| one.measure(measure).map_or(TableEntry::Absent, TableEntry::Number);
        vec![
            TableEntry::Words(one.input.clone()),
            TableEntry::Words(context.class_words(one)),
            TableEntry::Number(one.scores[0]),
            TableEntry::Number(one.scores[1]),
            measured(DifferenceMeasure::Score),
            measured(DifferenceMeasure::Map),
            measured(DifferenceMeasure::Spearman),
            measured(DifferenceMeasure::Ssim),
        ]
    };
    Table {
        columns: columns.map(|name| (name.to_owned(), Best::None)).to_vec(),
        rows: shown.iter().map(row).collect(),
        ..Table::default()
    }
}

fn columns(context: &DiffContext) -> Vec<String> {
    let of = |(a, b): &(Option<String>, Option<String>)| {
        let name = |layer: &Option<String>| layer.clone().unwrap_or_else(|| "the image".to_owned());
        [format!("A {}", name(a)), format!("B {}", name(b)), "A − B".to_owned()]
    };
    context.layers.iter().flat_map(of).collect()
}

/// Adds the maps of an input that have no place among pictures: words on the colours of their values, and the figures that
/// `monosplit explain` draws.
fn others(mut page: Page, context: &DiffContext, one: &Compared) -> Result<Page> {
    let Some(drawn) = &one.drawn else { return Ok(page) };
    let layers = columns(context);
    let mut headed = false;
    for (at, map) in drawn.maps.iter().enumerate() {
        let (words, Some(sample)) = (drawn.words(at), drawn.sample(at)) else { continue };
        if words.is_none() && map.maps[0].shape().len() == 3 {
            continue;
        }
        if !std::mem::replace(&mut headed, true) {
            page = page.heading(&format!("{} {}", one.input, context.class_words(one)));
        }
        for (values, header) in
            [&map.maps[0], &map.maps[1], &map.difference()?].into_iter().zip(&layers[3 * at..])
        {
            let own = values.clone().reshaped(values.shape().get(1..).unwrap_or_default())?;
            if let Some(words) = words.filter(|words| own.shape() == [words.len()]) {
                page = page.paragraph(header).tokens(&TokenText::new(words.to_vec(), &own.to_f32())?);
                continue;
            }
            let caption = Caption { method: header.clone(), ..Caption::default() };
            let of_layer = !drawn.is_of_inputs() && context.layers[at].0.is_some();
            match sample.any_figure(&own, &caption, of_layer, &OverlayOptions::default())? {
                Some(scene) => page = page.figure(PageFigure::drawing(&scene)?),
                None => {
                    page = page.paragraph(&format!("{header}: there is no drawing of a map of these axes."))
                }
            }
        }
    }
    Ok(page)
}

/// The row of an input; none where there is nothing to draw.
fn row(context: &DiffContext, one: &Compared) -> Result<Option<GridRow>> {
    let Some(drawn) = &one.drawn else { return Ok(None) };
    let is_drawn = |at: usize| drawn.maps[at].maps[0].shape().len() == 3 && drawn.words(at).is_none();
    if !(0..drawn.maps.len()).any(is_drawn) {
        return Ok(None);
    }
    let under =
        |at: usize| drawn.sample(at).and_then(|sample| sample.picture.as_ref()).map(small).transpose();
    let mut cells = vec![under(0)?.map(GridCell::picture)];
    for (at, map) in drawn.maps.iter().enumerate() {
        cells.extend(map_cells(map, under(at)?.as_ref())?);
    }
    let label = Path::new(&one.input).file_name().map(|name| name.to_string_lossy().into_owned());
    let label = label.unwrap_or_else(|| one.input.clone());
    Ok(Some(GridRow { label, caption: context.class_words(one), cells }))
}

/// Both maps and their difference, over the picture where there is one.
fn map_cells(map: &MapDifference, under: Option<&Picture>) -> Result<Vec<Option<GridCell>>> {
    if map.maps[0].shape().len() != 3 {
        return Ok(vec![None, None, None]);
    }
    let mut cells = Vec::new();
    for values in [&map.maps[0], &map.maps[1], &map.difference()?] {
        let field = ScalarField::from_tensor(values, 0)?;
        let options = match under {
            Some(_) => OverlayOptions::default(),
            None => OverlayOptions { opacity: 1.0, ..OverlayOptions::default() },
        };
        let white = || {
            let (width, height) = (field.width(), field.height());
            Picture::new(width, height, vec![0xff; 3 * width * height])
        };
        let under = under.cloned().map_or_else(white, Ok)?;
        cells.push(GridCell::overlay(&under, &field, &options)?);
    }
    let difference = cells.pop().map(|cell| cell.labelled(format!("map {}", number(map.relative))));
    Ok(cells.into_iter().map(Some).chain([difference]).collect())
}
