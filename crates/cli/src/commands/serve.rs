//! `monosplit serve`: the explorer's page in a browser of this machine, with the engine of this program behind it.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use monosplit::graph::{Error, FileBytes, Result};
use monosplit::image::is_picture_name;
use monosplit::{InputFile, InputList};
use monosplit_explorer::{BrowserPage, Exhibit, Server};

use super::compute::ComputeArgs;
use super::network::NetworkArgs;
use super::network_input;
use super::served_run::{ServedRun, is_run_store};
use crate::failure::{Failure, note};

/// Shows networks and pictures in the browser: drop them, move α, see why
#[derive(Args)]
#[command(override_usage = "monosplit serve [RUN] [MODEL] [PICTURE]... [OPTIONS]")]
#[command(long_about = "\
Serves the explorer to a browser on this machine, and computes what its page asks for.

  monosplit serve                               the built-in network and photograph
  monosplit serve resnet18.onnx cat.jpg         a network and a picture of yours
  monosplit serve resnet18.onnx photos/         the pictures of a folder as a gallery
  monosplit serve run.sqlite                    what a run has found; a click opens its maps

The address is printed, with a random token in it that is new every time: whoever knows it can use
the page. Nothing but this machine can connect, and nothing is sent anywhere. Other networks and
pictures can be dropped on the page. Ctrl-C ends it.")]
pub(crate) struct Serve {
    /// A run store that `monosplit evaluate` has written, the network, an ONNX file (not with
    /// --arch), then pictures and folders of pictures. Without a network that of the run is
    /// shown, and without a run the built-in one.
    #[arg(value_name = "RUN MODEL PICTURE", verbatim_doc_comment)]
    files: Vec<PathBuf>,

    /// The experiment of the run store, where it holds several [default: the one begun last].
    #[arg(long, value_name = "NAME")]
    experiment: Option<String>,

    #[command(flatten)]
    network: NetworkArgs,

    /// Listen on this port [default: any that is free].
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    port: u16,

    /// Also show the pictures in the folders of a folder.
    #[arg(long)]
    recursive: bool,

    /// The largest file that can be dropped on the page, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=65536))]
    upload: u32,

    /// Compute in the browser, by WebAssembly, instead of with this machine's engine: the page
    /// that scripts/build_web.sh has built in FOLDER [default: target/explorer], with its threads
    /// where they were built. Nothing but files is sent.
    #[arg(
        long,
        value_name = "FOLDER",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "target/explorer",
        conflicts_with_all = [
            "experiment", "arch", "input_shape", "batch_norms", "output", "precision", "accurate", "threads", "simd",
            "engine", "provider", "device", "upload",
        ],
        verbatim_doc_comment
    )]
    in_browser: Option<PathBuf>,

    /// End as soon as standard input ends, and so with the program that started this one.
    #[arg(long)]
    attached: bool,

    #[command(flatten)]
    compute: ComputeArgs,
}

impl Serve {
    pub(crate) fn execute(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let (run, network, pictures) = self.files();
        let mut exhibit = Exhibit::default();
        if let Some(folder) = &self.in_browser {
            if let Some(run) = run {
                let said = "a run is shown with this machine's engine: leave out --in-browser";
                return Err(Error::argument(format!("{}: {said}", run.display())).into());
            }
            let page = BrowserPage::open(folder)?;
            exhibit.in_browser = Some(match network {
                Some(file) => {
                    FileBytes::read(file)?;
                    page.network(file)
                }
                None => page,
            });
        } else if network.is_some() || self.network.arch.is_some() {
            let origin = self.network.origin(network)?;
            let name = origin.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
            let options = self.network.options_for(self.compute.precision());
            exhibit.network = Some((name, network_input::open(&options, origin)?));
        }
        exhibit.pictures = gallery(pictures, self.recursive)?;
        if let Some(path) = run {
            let served = ServedRun::open(path, self.experiment.as_deref(), exhibit.network.is_none())?;
            exhibit.network = exhibit.network.or(served.network);
            exhibit.run = Some(served.run);
            // Behind the run's own, which its tables know by number.
            exhibit.pictures.splice(..0, served.pictures);
        } else if self.experiment.is_some() {
            return Err(Error::argument("--experiment names one of a run store: give the store first").into());
        }
        exhibit.engine = self.compute.engine()?.into();
        exhibit.processor = self.compute.processor();
        exhibit.upload_bytes = (self.upload as usize) << 20;
        let server = Server::bind(self.port, exhibit)?;
        writeln!(out, "{}", server.address())?;
        out.flush()?;
        note("open this address in a browser; Ctrl-C ends it");
        if !self.attached {
            server.run();
            return Ok(());
        }
        let running = server.start();
        // What arrives means nothing; that no more will come does.
        std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
        drop(running);
        Ok(())
    }

    /// The run store's file and the network's, if they were named, and the rest.
    fn files(&self) -> (Option<&Path>, Option<&Path>, &[PathBuf]) {
        let (run, files) = match self.files.split_first() {
            Some((first, rest)) if is_run_store(first) => (Some(first.as_path()), rest),
            _ => (None, &self.files[..]),
        };
        match files.split_first() {
            Some((first, rest))
                if self.network.arch.is_none() && !is_picture_name(first) && !first.is_dir() =>
            {
                (run, Some(first), rest)
            }
            _ => (run, None, files),
        }
    }
}

/// The pictures of the gallery.
fn gallery(paths: &[PathBuf], recursive: bool) -> Result<Vec<PathBuf>> {
    let listed = InputList::of(paths, recursive)?;
    let picture = |file: InputFile| match file {
        InputFile::Picture(path) => Ok(path),
        InputFile::Batch(path) => {
            Err(Error::argument(format!("{}: the page shows pictures, not arrays", path.display())))
        }
        _ => Err(Error::argument("the page shows pictures in files, not what standard input holds")),
    };
    listed.files.into_iter().map(picture).collect()
}
