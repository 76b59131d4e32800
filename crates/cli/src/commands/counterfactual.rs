//! `monosplit counterfactual`: what is present for each class in a picture and what is missing, read off the gradients of a
//! trained difference of networks.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use monosplit::graph::{Error, Result, Tensor};
use monosplit::render::{FigureOptions, Format, Scene, tile_scene};
use monosplit::train::{Counterfactuals, Separation, Share, TrainingData, restriction_of};
use monosplit::{Labels, Model, counterfactual_tiles};
use serde::Serialize;

use super::compute::ComputeArgs;
use super::drawing::Draws;
use super::preprocessing::PreprocessingArgs;
use super::progress::Bar;
use super::run::check_writable;
use crate::failure::Failure;
use crate::json::{self, WrittenFiles};

/// Draws what speaks for each class, and what is missing for it
#[derive(Args)]
#[command(override_usage = "monosplit counterfactual MODEL IMAGE --out FIGURE.png [OPTIONS]
       monosplit counterfactual MODEL DATA --measure N [OPTIONS]")]
#[command(long_about = "\
Draws what speaks for each class, and what is missing for it.

  monosplit counterfactual model.onnx three.png --out figure.png
  monosplit counterfactual model.onnx mnist/ --index 18 --out figure.svg
  monosplit counterfactual model.onnx mnist/ --measure 1000

MODEL was written by `monosplit train`. Of a difference of networks g − h, the gradient of g is
red (what is there and speaks for the class) and the gradient of h with respect to what it sees is
blue (for DICIN and DMIN: what is missing). Of a single network, red is the positive and blue the
negative part of the gradient. Shown is what exceeds the threshold, as a share of the largest
gradient of that colour over all classes; brightness follows ranks.

--measure prints, with 95 % intervals over N test pictures, the share of red mass for the true class
that lies on strokes and the share of blue mass of all classes that lies off them.")]
pub(crate) struct CounterfactualCommand {
    /// The network, an ONNX file written by `monosplit train`.
    #[arg(value_name = "MODEL")]
    model: PathBuf,

    /// A picture or .npy array; or a folder of data as `monosplit train` reads it.
    #[arg(value_name = "IMAGE")]
    image: PathBuf,

    /// Which test picture of a folder of data.
    #[arg(long, value_name = "N", default_value_t = 0)]
    index: usize,

    /// Write the figure to this .png, .svg or .pdf file; may be given several times.
    #[arg(short = 'o', long, alias = "output", value_name = "FILE")]
    out: Vec<PathBuf>,

    /// Show gradients above this share of the largest.
    #[arg(long, value_name = "X", default_value_t = 0.2)]
    threshold: f32,

    /// Measure how well N test pictures are separated.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    measure: Option<u32>,

    /// Print JSON, for programs.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    compute: ComputeArgs,

    #[command(flatten)]
    preprocessing: PreprocessingArgs,
}

impl CounterfactualCommand {
    pub(crate) fn execute(&self, out: &mut dyn Write) -> Result<(), Failure> {
        for path in &self.out {
            check_writable(path)?;
            Format::of(path)?;
        }
        if !(0.0..=1.0).contains(&self.threshold) {
            return Err(Error::argument(format!(
                "--threshold is {}, expected a share of the largest gradient from 0 to 1",
                self.threshold
            ))
            .into());
        }
        if self.out.is_empty() && self.measure.is_none() {
            return Err(Error::argument("name the figure with --out, or measure with --measure").into());
        }
        let (mut separation, mut files) = (None, None);
        if let Some(count) = self.measure {
            let (_, counterfactuals) = self.open()?;
            let data = self.data()?.ok_or_else(|| Error::argument("--measure needs a folder of data"))?;
            let bar = Bar::counting("pictures");
            let progress = |done, total| bar.show(done, total);
            let found = Separation::measure(&counterfactuals, &data.test, count as usize, progress)?;
            if self.json {
                separation = Some(SeparationOutput::from(&found));
            } else {
                print(&found, out)?;
            }
        }
        if !self.out.is_empty() {
            let scene = self.scene(out)?;
            for path in &self.out {
                scene.write(path)?;
                if !self.json {
                    writeln!(out, "{}", path.display())?;
                }
            }
            files = Some(WrittenFiles::new(&self.out));
        }
        if self.json {
            json::print(&CounterfactualOutput { separation, files }, out)?;
        }
        Ok(())
    }

    fn open(&self) -> Result<(Model, Counterfactuals)> {
        let mut model = Model::open(&self.model)?;
        // All classes are one batch, so the batch axis must be open.
        if matches!(model.fixed_batch(), Ok(Some(_))) {
            model = model.with_open_batch().unwrap_or(model);
        }
        let counterfactuals = Counterfactuals::new(model.original(), &*self.compute.engine()?)?;
        Ok((model, counterfactuals))
    }

    fn data(&self) -> Result<Option<TrainingData>> {
        self.image.is_dir().then(|| TrainingData::open(&self.image)).transpose()
    }

    /// The picture to draw.
    fn image(&self, model: &Model) -> Result<Tensor> {
        match self.data()? {
            None => self.preprocessing.one_sample(model, Some(&self.image)),
            Some(data) if self.index < data.test.len() => data.test.images(&[self.index]),
            Some(data) => Err(Error::argument(format!("there are only {} test pictures", data.test.len()))),
        }
    }
}

impl Draws for CounterfactualCommand {
    fn scene(&self, _: &mut dyn Write) -> Result<Scene, Failure> {
        let (model, counterfactuals) = self.open()?;
        let image = self.image(&model)?;
        let found = counterfactuals.of(&image)?;
        let restriction = restriction_of(model.original())?.map_or("", |r| r.name());
        let labels = Labels::of(&model, counterfactuals.classes());
        let tiles = counterfactual_tiles(&image, &found, &labels, self.threshold)?;
        let options = FigureOptions {
            columns: Some(tiles.len().div_ceil(2).max(1)),
            title: format!("{restriction} present red, missing blue").trim().to_owned(),
            least_side: 224,
        };
        Ok(tile_scene(&tiles, &options)?)
    }
}

fn print(found: &Separation, out: &mut dyn Write) -> Result<(), Failure> {
    let percent = |share: Share| match (share.mean.is_finite(), share.half_width.is_finite()) {
        (true, true) => format!("{:5.1} % ± {:.1}", 100.0 * share.mean, 100.0 * share.half_width),
        (true, false) => format!("{:5.1} %", 100.0 * share.mean),
        (false, _) => "    –".to_owned(),
    };
    writeln!(out, "{} test pictures, means with 95 % intervals:", found.pictures)?;
    writeln!(out, "g-gradient of the true class on strokes  {}", percent(found.present_on_strokes))?;
    writeln!(out, "h-gradient of all classes off strokes    {}", percent(found.missing_off_strokes))?;
    writeln!(out, "strokes cover                            {}", percent(found.strokes))?;
    Ok(())
}

/// What was measured and written, for programs.
#[derive(Serialize)]
struct CounterfactualOutput {
    #[serde(skip_serializing_if = "Option::is_none")]
    separation: Option<SeparationOutput>,
    #[serde(flatten)]
    files: Option<WrittenFiles>,
}

#[derive(Serialize)]
struct SeparationOutput {
    pictures: usize,
    present_on_strokes: ShareOutput,
    missing_off_strokes: ShareOutput,
    strokes: ShareOutput,
}

#[derive(Serialize)]
struct ShareOutput {
    mean: f64,
    half_width: f64,
}

impl From<&Separation> for SeparationOutput {
    fn from(found: &Separation) -> Self {
        let share = |share: Share| ShareOutput { mean: share.mean, half_width: share.half_width };
        SeparationOutput {
            pictures: found.pictures,
            present_on_strokes: share(found.present_on_strokes),
            missing_off_strokes: share(found.missing_off_strokes),
            strokes: share(found.strokes),
        }
    }
}
