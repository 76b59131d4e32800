//! `monosplit report`: a page about a run, and its tables and plots as files.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use monosplit::eval::store::Store;

use super::compute::ComputeArgs;
use crate::failure::{Failure, note, text};
use crate::json::{self, WrittenFiles};
use crate::report::{Report, ReportPictures};
use crate::table::printable;

/// Makes a page of what a run has found
#[derive(Args)]
#[command(override_usage = "monosplit report RUN -o FOLDER [OPTIONS]")]
#[command(long_about = "\
Makes a page of what a run has found.

  monosplit report pets-small-quick.sqlite -o report
  monosplit report all.sqlite -o report --experiment 'ResNet18, quick'

FOLDER/index.html needs no other file. Beside it stand the tables as Markdown and LaTeX and the
figures as SVG. The maps in it are computed anew; where network and images have moved since the run,
--model and --data say where they are, and without them the pictures are left out.")]
pub(crate) struct ReportCommand {
    /// The run store `monosplit evaluate` has written.
    #[arg(value_name = "RUN")]
    run: PathBuf,

    /// Write the page into this folder.
    #[arg(short, long, alias = "output", value_name = "FOLDER")]
    out: PathBuf,

    /// The experiment, where the store holds several [default: the one begun last].
    #[arg(long, value_name = "NAME")]
    experiment: Option<String>,

    /// Where the network is now.
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,

    /// Where the images are now.
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,

    /// Print JSON, for programs.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    compute: ComputeArgs,
}

impl ReportCommand {
    pub(crate) fn execute(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let store = Store::read(&self.run)?;
        let planned = store.planned(self.experiment.as_deref())?;
        let shows = planned.stages.iter().any(|stage| stage.kind == "comparison");
        let pictures = if shows {
            let (model, data) = (self.model.as_deref(), self.data.as_deref());
            let opened = ReportPictures::open(&store, &planned, model, data, self.compute.engine()?);
            opened.map_err(|error| note(&format!("without pictures: {}", text(&error)))).ok()
        } else {
            None
        };
        let names = Report::write(&store, &planned, pictures.as_ref(), &self.out)?;
        let files: Vec<PathBuf> = names.into_iter().map(|name| self.out.join(name)).collect();
        if self.json {
            return json::print(&WrittenFiles::new(&files), out);
        }
        for path in files {
            writeln!(out, "{}", printable(&path.display().to_string()))?;
        }
        Ok(())
    }
}
