//! `monosplit results`: the rows of a run store, printed or as a file.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use monosplit::eval::store::{RowFilter, Store, StoredRow, columns};
use monosplit::eval::{Column, Estimate, parquet};
use monosplit::graph::options::closest;
use monosplit::graph::{CsvCell, Error, Result, write_atomically, write_csv};
use serde::{Serialize, Serializer};

use super::run::check_writable;
use crate::failure::Failure;
use crate::json::{self, WrittenFiles};
use crate::table::{Align, TextTable, grouped, printable};

/// Shows what a run store holds, or writes it as CSV, JSON or Parquet
#[derive(Args)]
#[command(override_usage = "monosplit results RUN [OPTIONS]")]
#[command(long_about = "\
Shows what a run store holds: the mean of every configuration by every metric, of validation and
of test images apart, and so of networks and seeds where the store holds several.

  monosplit results run.sqlite --part test --method splitcam --metric pointing
  monosplit results run.sqlite --layer layer4 -o rows.csv
  monosplit results run.sqlite -o rows.parquet

Options choose rows whose text holds the given words, whatever their case. With -o all rows that
fit, one for each image, are written, as the ending of the file says.")]
pub(crate) struct Results {
    /// The run store.
    #[arg(value_name = "RUN")]
    run: PathBuf,

    /// Rows of this model: a part of its file name or hash.
    #[arg(long, value_name = "WORD")]
    model: Option<String>,

    /// Rows of this method.
    #[arg(long, value_name = "WORD")]
    method: Option<String>,

    /// Rows whose options hold this, alpha=0.3 for instance.
    #[arg(long, value_name = "WORD")]
    options: Option<String>,

    /// Rows of this layer.
    #[arg(long, value_name = "WORD")]
    layer: Option<String>,

    /// Rows of images of this part: validation or test.
    #[arg(long, value_name = "WORD")]
    part: Option<String>,

    /// Rows of this image.
    #[arg(long, value_name = "WORD")]
    image: Option<String>,

    /// Rows of this metric.
    #[arg(long, value_name = "WORD")]
    metric: Option<String>,

    /// Rows of this seed.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Write the rows to this file, .csv, .json or .parquet.
    #[arg(short, long, alias = "output", value_name = "FILE")]
    out: Option<PathBuf>,

    /// Print JSON, for programs.
    #[arg(long)]
    json: bool,
}

/// The parts of a data set.
const PARTS: [&str; 2] = ["validation", "test"];

impl Results {
    pub(crate) fn execute(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let format = self.out.as_deref().map(Format::of).transpose()?;
        if let Some(part) = self.part.as_deref().filter(|part| !PARTS.iter().any(|name| name.contains(part)))
        {
            let close = closest(part, &PARTS);
            let said = format!("--part {part}: {close}expected {}", PARTS.join(" or "));
            return Err(Error::argument(said).into());
        }
        let store = Store::read(&self.run)?;
        let rows = store.rows(&RowFilter {
            model: self.model.clone(),
            method: self.method.clone(),
            options: self.options.clone(),
            layer: self.layer.clone(),
            part: self.part.clone(),
            image: self.image.clone(),
            metric: self.metric.clone(),
            seed: self.seed,
        })?;
        if let (Some(path), Some(format)) = (&self.out, format) {
            check_writable(path)?;
            let bytes = match format {
                Format::Csv => csv(&rows)?.into_bytes(),
                Format::Json => json_rows(&rows)?,
                Format::Parquet => parquet(&columns(&rows))?,
            };
            write_atomically(path, &bytes)?;
            if self.json {
                let files = WrittenFiles::new([path]);
                return json::print(&RowsOutput { files, rows: rows.len() }, out);
            }
            let shown = printable(&path.display().to_string());
            writeln!(out, "{shown}: {} rows", grouped(rows.len()))?;
            return Ok(());
        }
        let means = means(&rows);
        if self.json {
            return json::print(&means.iter().map(Mean::output).collect::<Vec<_>>(), out);
        }
        if rows.is_empty() {
            writeln!(out, "no row fits")?;
        }
        for line in table(&means).lines() {
            writeln!(out, "{line}")?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum Format {
    Csv,
    Json,
    Parquet,
}

impl Format {
    fn of(path: &Path) -> Result<Self> {
        let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase());
        match ending.as_deref() {
            Some("csv") => Ok(Format::Csv),
            Some("json") => Ok(Format::Json),
            Some("parquet") => Ok(Format::Parquet),
            _ => Err(Error::argument(format!(
                "{}: expected a file that ends in .csv, .json or .parquet",
                path.display()
            ))),
        }
    }
}

/// The key columns of means, named as the columns of rows: the name of each, its largest width, and whether it is shown where
/// all values are equal.
const KEYS: [(&str, usize, bool); 11] = [
    ("model", 24, true),
    ("model_hash", 8, false),
    ("preprocessing", 40, false),
    ("method", 24, true),
    ("title", 24, true),
    ("options", 30, true),
    ("layer", 24, true),
    ("absolute", 8, true),
    ("metric", 72, true),
    ("part", 20, true),
    ("seed", 20, false),
];

/// The mean of a configuration by a metric, over the images of a part.
struct Mean {
    /// Its key, in the order of `KEYS`.
    key: [String; KEYS.len()],
    estimate: Option<Estimate>,
    images: usize,
    undefined: usize,
}

/// A mean for programs.
#[derive(Serialize)]
struct MeanOutput<'a> {
    model: &'a str,
    model_hash: &'a str,
    preprocessing: &'a str,
    method: &'a str,
    title: &'a str,
    options: &'a str,
    layer: &'a str,
    absolute: bool,
    metric: &'a str,
    part: &'a str,
    seed: Option<i64>,
    mean: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    images: usize,
    undefined_images: usize,
}

impl Mean {
    fn output(&self) -> MeanOutput<'_> {
        let [model, model_hash, preprocessing, method, title, options, layer, absolute, metric, part, seed] =
            self.key.each_ref().map(String::as_str);
        let number = |of: fn(&Estimate) -> f64| self.estimate.as_ref().map(of);
        MeanOutput {
            model,
            model_hash,
            preprocessing,
            method,
            title,
            options,
            layer,
            absolute: absolute == "yes",
            metric,
            part,
            seed: seed.parse().ok(),
            mean: number(|found| found.mean),
            low: number(|found| found.low),
            high: number(|found| found.high),
            images: self.images,
            undefined_images: self.undefined,
        }
    }
}

fn means(rows: &[StoredRow]) -> Vec<Mean> {
    let mut all: BTreeMap<[String; KEYS.len()], (Vec<f64>, usize)> = BTreeMap::new();
    for row in rows {
        let abs = if row.absolute { "yes" } else { "no" };
        let seed = row.seed.to_string();
        let StoredRow {
            model, model_hash, preprocessing, method, title, options, layer, metric, part, ..
        } = row;
        let key =
            [model, model_hash, preprocessing, method, title, options, layer, abs, metric, part, &*seed]
                .map(str::to_owned);
        let (values, undefined) = all.entry(key).or_default();
        match row.value {
            Some(value) => values.push(value),
            None => *undefined += 1,
        }
    }
    let mean = |(key, (values, undefined)): (_, (Vec<f64>, usize))| Mean {
        key,
        estimate: Estimate::of(&values),
        images: values.len(),
        undefined,
    };
    all.into_iter().map(mean).collect()
}

/// One line for each mean. Key columns with equal values are left out.
fn table(means: &[Mean]) -> TextTable {
    let differs = |column: usize| means.iter().any(|mean| mean.key[column] != means[0].key[column]);
    let shown: Vec<usize> = (0..KEYS.len()).filter(|&column| KEYS[column].2 || differs(column)).collect();
    let titles = KEYS.map(|(name, ..)| name.replace('_', " "));
    let mut columns: Vec<(&str, Align, usize)> =
        shown.iter().map(|&column| (titles[column].as_str(), Align::Left, KEYS[column].1)).collect();
    columns.extend([
        ("mean", Align::Right, 12),
        ("95 % interval", Align::Right, 22),
        ("images", Align::Right, 8),
        ("undefined", Align::Right, 9),
    ]);
    let mut table = TextTable::new(&columns);
    for Mean { key, estimate, images, undefined } in means {
        let estimate = estimate.as_ref();
        let mut cells: Vec<String> = shown.iter().map(|&column| key[column].clone()).collect();
        cells.push(estimate.map_or_else(|| "–".into(), |found| format!("{:.4}", found.mean)));
        cells
            .push(estimate.map_or_else(String::new, |found| format!("{:.4} … {:.4}", found.low, found.high)));
        cells.extend([images.to_string(), undefined.to_string()]);
        table.row(cells);
    }
    table
}

/// The file that rows were written to.
#[derive(Serialize)]
struct RowsOutput {
    #[serde(flatten)]
    files: WrittenFiles,
    rows: usize,
}

/// The rows as a list of objects.
fn json_rows(rows: &[StoredRow]) -> Result<Vec<u8>, Failure> {
    let columns = columns(rows);
    let rows: Vec<_> = (0..rows.len()).map(|row| RowOutput { columns: &columns, row }).collect();
    let mut bytes = Vec::new();
    json::print(&rows, &mut bytes)?;
    Ok(bytes)
}

/// A row for programs, with the columns of the other formats.
struct RowOutput<'a> {
    columns: &'a [(&'static str, Column)],
    row: usize,
}

impl Serialize for RowOutput<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let cells = self.columns.iter().map(|(name, column)| (name, CellOutput(column, self.row)));
        serializer.collect_map(cells)
    }
}

/// One number or text of a row.
struct CellOutput<'a>(&'a Column, usize);

impl Serialize for CellOutput<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Column::Text(values) => values[self.1].serialize(serializer),
            Column::Real(values) => values[self.1].serialize(serializer),
            Column::Whole(values) => values[self.1].serialize(serializer),
            Column::Flag(values) => values[self.1].serialize(serializer),
        }
    }
}

/// The rows as comma-separated values.
fn csv(rows: &[StoredRow]) -> Result<String> {
    let columns = columns(rows);
    let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    let row = |row: usize| columns.iter().map(|(_, column)| cell(column, row)).collect();
    write_csv(&names, (0..rows.len()).map(row))
}

fn cell(column: &Column, row: usize) -> CsvCell {
    match column {
        Column::Text(values) => values[row].clone().map_or(CsvCell::Empty, CsvCell::Text),
        Column::Real(values) => values[row].map_or(CsvCell::Empty, CsvCell::number),
        Column::Whole(values) => CsvCell::number(values[row]),
        Column::Flag(values) => CsvCell::number(values[row]),
    }
}
