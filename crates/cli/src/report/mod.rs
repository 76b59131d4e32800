//! The report of a run: an HTML page of the rows of its store, and the same tables and plots as files.

mod pictures;
mod tables;

use std::path::Path;

use monosplit::eval::store::{Planned, RecordedIssue, Stage, Store};
use monosplit::eval::{Better, StageSummary, metric_title};
use monosplit::graph::{Error, Result, shown, write_atomically};
use monosplit::render::{Format, LinePlot, Page, PageFigure, Scene, Series, Table};

use crate::failure::{note, text};

use pictures::{Drawn, MOST_COLUMNS, best_and_worst, ranked};
pub(crate) use pictures::{ReportPictures, small};
use tables::{ablation, comparison, sanity, timing, verdicts};

/// The largest number of curves in a plot.
const MOST_CURVES: usize = 12;

/// A report under construction: a page and the files beside it.
pub(crate) struct Report {
    page: Page,
    /// The files beside the page: names and contents.
    files: Vec<(String, Vec<u8>)>,
}

impl Report {
    /// Writes the report of an experiment into `folder`, with the maps of `pictures` where there are some; returns the names of
    /// the files. Nothing is written before all of it is made, and the page, which holds everything, is written first.
    pub(crate) fn write(
        store: &Store,
        planned: &Planned,
        pictures: Option<&ReportPictures>,
        folder: &Path,
    ) -> Result<Vec<String>> {
        let files = Report::files(store, planned, pictures)?;
        std::fs::create_dir_all(folder).map_err(|cause| Error::io(folder, cause))?;
        for (name, content) in &files {
            write_atomically(folder.join(name), content)?;
        }
        Ok(files.into_iter().map(|(name, _)| name).collect())
    }

    /// The files of a report by their names, the page first.
    pub(crate) fn files(
        store: &Store,
        planned: &Planned,
        pictures: Option<&ReportPictures>,
    ) -> Result<Vec<(String, Vec<u8>)>> {
        let page = Page::new(&shown(&planned.record.name));
        let mut report = Report { page, files: Vec::new() };
        report.opening(store, planned)?;
        for (position, stage) in planned.stages.iter().enumerate() {
            if stage.members.is_empty() || stage.metrics.is_empty() {
                continue;
            }
            let summary = StageSummary::of(store, planned, stage)?;
            if let Some(note) = tables::missing_values_note(&summary) {
                report.paragraph(&note);
            }
            match stage.kind.as_str() {
                "selection" => report.selection(&summary, planned),
                "comparison" => report.comparison(&summary, pictures)?,
                "ablation" => report.ablation(&summary, position),
                "layers" => report.layers(&summary)?,
                "sanity" => report.sanity(&summary),
                "timing" => report.timing(&summary),
                _ => {}
            }
        }
        report.image_issues(&store.image_issues(planned.id)?);
        let Report { page, mut files } = report;
        files.insert(0, ("index.html".into(), page.finish().into_bytes()));
        Ok(files)
    }

    fn paragraph(&mut self, words: &str) {
        self.with(|page| page.paragraph(words));
    }

    fn heading(&mut self, words: &str) {
        self.with(|page| page.heading(words));
    }

    fn with(&mut self, change: impl FnOnce(Page) -> Page) {
        let page = std::mem::replace(&mut self.page, Page::new(""));
        self.page = change(page);
    }

    /// A table on the page, and as Markdown and LaTeX beside it.
    fn table(&mut self, name: &str, table: &Table) {
        self.with(|page| page.table(table));
        for (ending, text) in [("md", table.to_markdown()), ("tex", table.to_latex())] {
            self.files.push((format!("{name}.{ending}"), text.into_bytes()));
        }
    }

    /// A drawing on the page, and as SVG beside it.
    fn figure(&mut self, name: &str, scene: &Scene, caption: &str) -> Result<()> {
        let figure = PageFigure::drawing(scene)?.caption(caption);
        self.with(|page| page.figure(figure));
        self.written_figure(name, scene)
    }

    /// A drawing as SVG beside the page.
    fn written_figure(&mut self, name: &str, scene: &Scene) -> Result<()> {
        self.files.push((format!("{name}.svg"), scene.encode(Format::Svg)?));
        Ok(())
    }

    fn opening(&mut self, store: &Store, planned: &Planned) -> Result<()> {
        let record = &planned.record;
        let about = about(&record.text);
        if !about.is_empty() {
            self.paragraph(&about);
        }
        let file = |path: &str| {
            Path::new(path).file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
        };
        let issues = store.image_issues(planned.id)?;
        let with_issues = |part: &str, kept: bool, what: &str| {
            let found = issues.iter().filter(|one| one.part == part && one.kept == kept).count();
            if found > 0 { format!(" ({found} {what})") } else { String::new() }
        };
        let mut parts = Vec::new();
        for part in ["validation", "test"] {
            let count = store.images(planned.id, part)?.len();
            if count > 0 {
                let unmasked = with_issues(part, true, "of them without a mask or with an empty one");
                let left_out = with_issues(part, false, "left out");
                parts.push(format!("{count} images for {part}{unmasked}{left_out}"));
            }
        }
        self.paragraph(&format!(
            "Network {}, data set {}: {}. Seed {}, monosplit {}. Numbers are means over images; behind them stands the 95 % \
             confidence interval (percentile bootstrap over images). The best of a column is bold and underlined; controls, \
             which explain nothing, take no part.",
            file(&record.model_path),
            file(&record.data_path),
            parts.join(", "),
            record.seed,
            record.version
        ));
        Ok(())
    }

    /// Lists the images with problems.
    fn image_issues(&mut self, issues: &[RecordedIssue]) {
        if issues.is_empty() {
            return;
        }
        self.heading("Images with something wrong");
        self.paragraph(
            "Those that were left out count nowhere. On those that are kept without a mask, metrics that need one have no \
             value.",
        );
        self.table("images", &tables::image_issues(issues));
    }

    fn selection(&mut self, summary: &StageSummary, planned: &Planned) {
        self.heading("What was chosen");
        self.paragraph(
            "For each method and criterion, the layer, formula and sign of best average rank over the criterion's metrics on \
             the validation images.",
        );
        let chosen = planned.stages.iter().find(|stage| stage.kind == "comparison");
        let table = tables::selection(summary, chosen);
        if table.rows.is_empty() {
            self.paragraph(
                "A choice is kept with the comparison it is made for, and nothing has been compared yet.",
            );
            return;
        }
        self.table("selection", &table);
    }

    fn comparison(&mut self, summary: &StageSummary, pictures: Option<&ReportPictures>) -> Result<()> {
        self.heading("Comparison");
        self.table("comparison", &comparison(summary));
        if let Some(table) = verdicts(summary) {
            self.heading("Who wins");
            self.paragraph(
                "The best configuration of the split methods against every other, image by image: won or lost where the 95 % \
                 confidence interval of the mean difference leaves out zero, else tied. Difference and interval are given so \
                 that more is better for the split. That configuration is picked on these very images, which favours the \
                 split where it has several.",
            );
            self.table("verdicts", &table);
        }
        let left_out = |error: Error| {
            note(&format!("without pictures: {}", text(&error)));
            error
        };
        let drawn = pictures.map(|pictures| pictures.draw(summary).map_err(left_out));
        match drawn {
            Some(Ok(drawn)) => self.pictures(summary, drawn),
            Some(Err(_)) | None => {
                self.paragraph(
                    "Pictures are left out: the network or the images are not those that were measured.",
                );
                Ok(())
            }
        }
    }

    fn pictures(&mut self, summary: &StageSummary, drawn: Drawn) -> Result<()> {
        let Drawn { grid, metric, extremes: rows } = drawn;
        self.heading("Maps");
        let scene = grid.into_scene()?;
        let all = ranked(summary).count();
        let some = match all > MOST_COLUMNS {
            true => format!(" The first {MOST_COLUMNS} of {all} configurations."),
            false => String::new(),
        };
        let about = format!(
            "Each map is on its own scale; where it has both signs, red speaks for the class and blue against it.{some}"
        );
        self.figure("maps", &scene, &about)?;
        if rows.is_empty() {
            return Ok(());
        }
        self.heading("Best and worst images");
        self.paragraph(&format!(
            "For each method the image it does best and the image it does worst on by {}, whose value stands above each.",
            metric_title(&summary.stage.metrics[metric].1)
        ));
        self.written_figure("extremes", &best_and_worst(&rows).into_scene()?)?;
        // Two columns of a page, or one below the other on a telephone.
        for half in rows.chunks(rows.len().div_ceil(2)) {
            let figure = PageFigure::drawing(&best_and_worst(half).into_scene()?)?.beside();
            self.with(|page| page.figure(figure));
        }
        Ok(())
    }

    fn ablation(&mut self, summary: &StageSummary, position: usize) {
        let name = &summary.stage.name;
        let mut letters = name.chars();
        let first = letters.next().map(|letter| letter.to_uppercase().to_string());
        self.heading(&format!("{}{}", first.unwrap_or_default(), letters.as_str()));
        for (number, table) in ablation(summary).iter().enumerate() {
            self.table(&format!("ablation-{position}-{}", number + 1), table);
        }
    }

    fn layers(&mut self, summary: &StageSummary) -> Result<()> {
        self.heading("Dependence on the layer");
        for (metric, (_, name, _)) in summary.stage.metrics.iter().enumerate() {
            let scene = curves(summary, metric)?.into_scene()?;
            let note = tables::undefined_by_metric(summary, metric);
            let caption = format!("{}: means over {}. {note}", metric_title(name), summary.extent());
            let figure = PageFigure::drawing(&scene)?.beside().caption(caption.trim_end());
            self.with(|page| page.figure(figure));
            self.written_figure(&format!("layers-{}", metric + 1), &scene)?;
        }
        Ok(())
    }

    fn sanity(&mut self, summary: &StageSummary) {
        self.heading("Randomisation check");
        self.paragraph(
            "How alike a map is to that of the same network with its last layers drawn anew from a normal distribution. A \
             method that depends on what those layers have learnt has low numbers; a high number says that the map would look \
             the same without them. (Top-down randomisation has known limits: Binder et al. 2023.)",
        );
        self.table("sanity", &sanity(summary));
    }

    fn timing(&mut self, summary: &StageSummary) {
        self.heading("Times");
        self.paragraph(
            "Seconds for one map of one image, prediction included, and once for making the method ready.",
        );
        self.table("timing", &timing(summary));
    }
}

/// The description of an experiment.
fn about(text: &str) -> String {
    monosplit::eval::experiment::Experiment::parse(text, Path::new("experiment"))
        .map(|experiment| experiment.about)
        .unwrap_or_default()
}

/// The curves of one metric over the layers.
fn curves(summary: &StageSummary, metric: usize) -> Result<LinePlot> {
    let stage: &Stage = &summary.stage;
    let mut layers: Vec<&str> = Vec::new();
    for member in &stage.members {
        if !layers.contains(&member.place.as_str()) {
            layers.push(&member.place);
        }
    }
    let mut series: Vec<Series> = Vec::new();
    for (member, row) in stage.members.iter().zip(&summary.rows) {
        let x = layers.iter().position(|layer| *layer == member.place).unwrap_or(0) as f64;
        let known = series.iter().position(|one| one.name == member.title);
        let at = known.unwrap_or_else(|| {
            series.push(Series { name: member.title.clone(), ..Series::default() });
            series.len() - 1
        });
        // A layer without a value leaves a gap.
        let [mean, low, high] = row[metric].estimate.map_or([f64::NAN; 3], |e| [e.mean, e.low, e.high]);
        series[at].points.push((x, mean));
        series[at].band.push((low, high));
    }
    series.retain(|one| one.points.iter().any(|point| point.1.is_finite()));
    if series.is_empty() {
        return Err(Error::argument("there is nothing to draw over layers yet; let the run finish"));
    }
    if series.len() > 4 {
        series.iter_mut().for_each(|one| one.band.clear());
    }
    series.truncate(MOST_CURVES);
    let x_names = layers.iter().enumerate().map(|(i, layer)| (i as f64, (*layer).to_owned())).collect();
    Ok(LinePlot {
        title: metric_title(&stage.metrics[metric].1),
        x_label: "layer".into(),
        y_label: match stage.metrics[metric].2 {
            Better::Higher => "more is better".into(),
            Better::Lower => "less is better".into(),
        },
        series,
        x_names,
        width: 460.0,
        height: 260.0,
        ..LinePlot::default()
    })
}
