//! The pictures of a report: maps beside originals, and the best and worst images of each method. They are computed again from
//! the network and the images of the run.

use std::collections::HashMap;
use std::path::Path;

use monosplit::EvaluationContext;
use monosplit::engine::Engine;
use monosplit::eval::dataset::{DataSet, DatasetSample};
use monosplit::eval::experiment::{Experiment, MapsFrom};
use monosplit::eval::protocol::{Catalogue, GIVEN_MAPS, Images};
use monosplit::eval::store::{Member, Planned, Store};
use monosplit::eval::{
    Better, Candidate, EvaluatedModel, ImageFacts, MapSource, MappedImages, Source, StageSummary,
};
use monosplit::explain::{Finish, Settings};
use monosplit::graph::{Error, Result};
use monosplit::image::{Filter, Picture};
use monosplit::render::{Grid, GridCell, GridRow, OverlayOptions, ScalarField};

use crate::commands::is_ranked;
use crate::failure::note;

/// The longest side of a picture in a report.
const SIDE: usize = 144;
/// Columns that fit on a page.
pub(super) const MOST_COLUMNS: usize = 9;

/// The network and the images that pictures are computed from.
pub(crate) struct ReportPictures {
    context: EvaluationContext,
    engine: Box<dyn Engine>,
    test: DataSet,
    shown: usize,
    /// The hashes of the measured images, by their numbers.
    hashes: HashMap<i64, String>,
    /// Maps that were made elsewhere.
    given: Vec<MapSource>,
    /// The part of the data set as given maps name it.
    part: Option<String>,
}

/// An image that is shown: its sample, and its id, name and class in the store.
#[derive(Clone, Copy)]
struct Shown<'a> {
    sample: &'a DatasetSample,
    image: &'a (i64, String, usize),
}

/// The pictures of a comparison.
pub(crate) struct Drawn {
    /// Maps beside originals.
    pub(super) grid: Grid,
    /// The metric that says which image is best.
    pub(super) metric: usize,
    /// For each method the image it is best and the one it is worst on.
    pub(super) extremes: Vec<GridRow>,
}

impl ReportPictures {
    /// Opens the network and the images of a run, which must be those that were measured.
    pub(crate) fn open(
        store: &Store,
        planned: &Planned,
        model: Option<&Path>,
        data: Option<&Path>,
        engine: Box<dyn Engine>,
    ) -> Result<Self> {
        let record = &planned.record;
        let mut experiment = Experiment::parse(&record.text, Path::new(&record.name))?;
        if let Some(labels) = experiment.model.labels.take_if(|path| !path.exists()) {
            note(&format!("classes go without their names: {} is not there", labels.display()));
        }
        let stored = Path::new(&record.model_path);
        let context = match experiment.model.architecture {
            Some(_) if model.is_none() => EvaluationContext::open(&experiment, None)?,
            _ => EvaluationContext::open(&experiment, Some(model.unwrap_or(stored)))?,
        };
        if context.hash != store.model_hash(record.model)? {
            let path = context.path.display();
            return Err(Error::argument(format!(
                "{path} is not the network that was measured: it has changed"
            )));
        }
        let folder = data.unwrap_or(Path::new(&record.data_path));
        let named_by = if data.is_some() { "--data" } else { "data.folder" };
        let Images { test, .. } = Images::open(&experiment, (folder, named_by))?;
        let mut given = Vec::new();
        for method in &experiment.methods {
            if let MapsFrom::Files(path) = &method.source {
                given.push(MapSource::open(path)?);
            }
        }
        Ok(ReportPictures {
            context,
            engine,
            test,
            shown: experiment.shown,
            hashes: store.image_hashes()?,
            given,
            part: experiment.data.test,
        })
    }

    /// The maps of a member that were made elsewhere.
    fn given_maps(&self, member: &Member, images: &[Shown<'_>]) -> Result<Source> {
        let configuration = &member.configuration;
        let source = self.given.iter().find(|source| source.identity == configuration.options);
        let source = source.ok_or_else(|| {
            Error::argument(format!(
                "the maps of '{}' are not those that were measured: they have changed",
                member.title
            ))
        })?;
        let place = |one: &Shown<'_>| {
            let index = (0..self.test.len()).find(|&index| self.test.name(index) == one.image.1);
            Some((one.image.0, index?))
        };
        let parts = [MappedImages {
            part: self.part.as_deref(),
            data: &self.test,
            images: images.iter().filter_map(place).collect(),
        }];
        let size =
            images.first().map_or([1, 1], |one| [one.sample.picture.height(), one.sample.picture.width()]);
        Ok(Source::Given(source.read(&parts, &[], size)?.0))
    }

    fn sample(&self, (id, name, _): &(i64, String, usize)) -> Result<DatasetSample> {
        let index = (0..self.test.len()).find(|&index| self.test.name(index) == *name);
        let index = index.ok_or_else(|| Error::argument(format!("there is no image '{name}' any more")))?;
        let photograph = self
            .test
            .load(index)?
            .map_err(|out| Error::malformed(format!("image '{}' {}", out.name, out.issue)))?;
        if self.hashes.get(id) != Some(&photograph.hash) {
            return Err(Error::argument(format!(
                "image '{name}' is not the one that was measured: it has changed"
            )));
        }
        DatasetSample::new(&photograph, &self.context.preprocess)
    }

    fn candidate(&self, member: &Member, images: &[Shown<'_>]) -> Result<Candidate> {
        let configuration = &member.configuration;
        if configuration.method == GIVEN_MAPS {
            let source = self.given_maps(member, images)?;
            return Ok(candidate(member, source, Finish::default(), Settings::default()));
        }
        let text = match configuration.options.is_empty() {
            true => configuration.method.clone(),
            false => format!("{}:{}", configuration.method, configuration.options),
        };
        let known = self.context.method(&text)?;
        let layer = Some(configuration.layer.clone()).filter(|layer| !layer.is_empty());
        let source = known.method.map_or(Source::Mask, |method| Source::Method(method, layer));
        Ok(candidate(member, source, known.finish, known.settings))
    }

    /// The overlay of each of some images with a member's map.
    fn overlays(
        &self,
        evaluated_model: &EvaluatedModel<'_>,
        member: &Member,
        images: &[Shown<'_>],
    ) -> Result<Vec<Option<GridCell>>> {
        let candidate = self.candidate(member, images)?;
        let compiled_group = evaluated_model.compile_group(&[&candidate])?;
        let mut cells = Vec::new();
        for Shown { sample, image } in images {
            let maps = compiled_group.maps(&sample.tensor, &[image.2])?;
            let facts = ImageFacts { id: image.0, mask: sample.mask.as_deref() };
            let Some(map) = compiled_group.of(&maps, 0, 0, &facts)? else {
                cells.push(None);
                continue;
            };
            let (height, width) = (sample.picture.height(), sample.picture.width());
            let map = ScalarField::from_tensor(&map.reshaped([1, height, width])?, 0)?;
            let picture = small(&sample.picture)?;
            let map = map.resized(picture.width(), picture.height())?;
            cells.push(Some(GridCell::overlay(&picture, &map, &OverlayOptions::default())?));
        }
        Ok(cells)
    }

    /// All pictures of a comparison.
    pub(crate) fn draw(&self, summary: &StageSummary) -> Result<Drawn> {
        let metric = self.judged_by(summary);
        Ok(Drawn { grid: self.grid(summary)?, metric, extremes: self.extremes(summary, metric)? })
    }

    /// Images in rows, the original and then a column for each method.
    fn grid(&self, summary: &StageSummary) -> Result<Grid> {
        let count = self.shown.min(summary.images.len()).max(1);
        let step = summary.images.len() / count;
        let images: Vec<&(i64, String, usize)> =
            summary.images.iter().step_by(step.max(1)).take(count).collect();
        let samples = images.iter().map(|image| self.sample(image)).collect::<Result<Vec<_>>>()?;
        let asked: Vec<Shown<'_>> =
            samples.iter().zip(&images).map(|(sample, &image)| Shown { sample, image }).collect();
        let evaluated_model = EvaluatedModel::new(self.context.graph(), &*self.engine)?;
        let mut rows: Vec<GridRow> = Vec::new();
        for (sample, (_, name, class)) in samples.iter().zip(&images) {
            rows.push(GridRow {
                label: self.context.labels.name(*class),
                caption: name.clone(),
                cells: vec![Some(GridCell::picture(small(&sample.picture)?))],
            });
        }
        let mut columns = vec!["picture".to_owned()];
        for member in ranked(summary).map(|(_, member)| member).take(MOST_COLUMNS) {
            columns.push(heading(member));
            for (row, cell) in rows.iter_mut().zip(self.overlays(&evaluated_model, member, &asked)?) {
                row.cells.push(cell);
            }
        }
        Ok(Grid { columns, rows, least_side: 1, ..Grid::default() })
    }

    /// The metric that ranks images: the last of pixel flipping, else the first metric.
    fn judged_by(&self, summary: &StageSummary) -> usize {
        let mut names = summary.stage.metrics.iter().map(|(_, name, _)| name);
        names.rposition(|name| name.starts_with("pixel-flipping")).unwrap_or(0)
    }

    /// For each method the image it is best and the one it is worst on.
    fn extremes(&self, summary: &StageSummary, metric: usize) -> Result<Vec<GridRow>> {
        let evaluated_model = EvaluatedModel::new(self.context.graph(), &*self.engine)?;
        let lower = summary.stage.metrics[metric].2 == Better::Lower;
        let mut rows = Vec::new();
        for (index, member) in ranked(summary) {
            let mut valued: Vec<(f64, &(i64, String, usize))> = summary
                .images
                .iter()
                .filter_map(|image| Some((*summary.rows[index][metric].values.get(&image.0)?, image)))
                .collect();
            valued.sort_by(|a, b| if lower { a.0.total_cmp(&b.0) } else { b.0.total_cmp(&a.0) });
            let (Some(best), Some(worst)) = (valued.first(), valued.last()) else { continue };
            let mut cells = Vec::new();
            for (value, image) in [best, worst] {
                let sample = self.sample(image)?;
                let shown = [Shown { sample: &sample, image }];
                let overlay = self.overlays(&evaluated_model, member, &shown)?.into_iter().next();
                cells.push(Some(GridCell::picture(small(&sample.picture)?).labelled(format!("{value:.3}"))));
                cells.push(overlay.flatten());
            }
            rows.push(GridRow { label: member.title.clone(), caption: place(member), cells });
        }
        Ok(rows)
    }
}

/// A candidate for a member of a stage.
fn candidate(member: &Member, source: Source, finish: Finish, settings: Settings) -> Candidate {
    Candidate {
        configuration: member.configuration.clone(),
        family: member.family.clone(),
        title: member.title.clone(),
        place: member.place.clone(),
        note: String::new(),
        source,
        finish,
        settings,
    }
}

/// Rows of best and worst images under their headers.
pub(super) fn best_and_worst(rows: &[GridRow]) -> Grid {
    let columns = ["best image", "its map", "worst image", "its map"].map(str::to_owned).to_vec();
    Grid { columns, rows: rows.to_vec(), least_side: 1, ..Grid::default() }
}

/// The members that are ranked.
pub(super) fn ranked(summary: &StageSummary) -> impl Iterator<Item = (usize, &Member)> {
    let members = summary.stage.members.iter().enumerate();
    members.filter(|(row, _)| is_ranked(&summary.stage, *row))
}

/// The layer of a configuration, and whether its map has absolute values.
fn place(member: &Member) -> String {
    let layer = member.configuration.layer.as_str();
    let abs = if member.configuration.absolute { ["abs"].as_slice() } else { &[] };
    [layer].iter().chain(abs).filter(|word| !word.is_empty()).copied().collect::<Vec<_>>().join(", ")
}

fn heading(member: &Member) -> String {
    format!("{} {}", member.title, place(member)).trim_end().to_owned()
}

/// A picture as large as a report shows it: scaled down if it is larger, or up by a whole number if it is much smaller.
pub(crate) fn small(picture: &Picture) -> Result<Picture> {
    let longest = picture.width().max(picture.height());
    let times = SIDE / longest;
    if times > 1 {
        return picture.resize(picture.width() * times, picture.height() * times, Filter::Nearest);
    }
    if longest <= SIDE {
        return Ok(picture.clone());
    }
    let scaled = |side: usize| (side * SIDE / longest).max(1);
    picture.resize(scaled(picture.width()), scaled(picture.height()), Filter::Bicubic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_shown_large_enough_to_be_seen() {
        let shown = |width: usize, height: usize| {
            let picture = Picture::new(width, height, vec![9; 3 * width * height]).unwrap();
            let small = small(&picture).unwrap();
            (small.width(), small.height())
        };
        assert_eq!(shown(28, 28), (140, 140));
        assert_eq!(shown(8, 6), (144, 108));
        assert_eq!(shown(100, 60), (100, 60));
        assert_eq!(shown(224, 112), (144, 72));
    }
}
