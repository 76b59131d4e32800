//! `monosplit demo`: the main job on something that is built in.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use monosplit_engine::Cpu;
use monosplit_explain::{Class, Explainer, Request};
use monosplit_graph::onnx::{self, ImportOptions};
use monosplit_graph::{Error, Result};
use monosplit_image::{Filter, Fit, Picture, Preset};
use monosplit_render as render;

use crate::catalogue::{self, Chosen};
use crate::failure::Failure;
use crate::labels::Labels;
use crate::layer_choice::default_layer;
use crate::model::{Model, ModelOptions, Origin};
use crate::prediction::{Meaning, Ranked};

const NETWORK: &[u8] = include_bytes!("../../assets/pets-small.onnx");
const CLASSES: &str = include_str!("../../assets/pets-classes.txt");
const PHOTOGRAPH: &[u8] = include_bytes!("../../assets/chelsea.png");

/// Explains a photograph of a cat with a network that is built in
#[derive(Args)]
#[command(long_about = "\
Explains a photograph of a cat with a network that is built in: there is nothing to set up.

  monosplit demo

A small residual network that knows 37 breeds of cats and dogs looks at the photograph; what it sees
is printed, and where it sees it is drawn: SplitCAM, SplitGrad and SplitLRP, beside the ordinary
gradient, as pictures in the folder demo/.")]
pub(crate) struct Demo {
    /// Write the pictures into this folder, which is made if it is not there.
    #[arg(short = 'o', long, alias = "output", value_name = "DIR", default_value = "demo")]
    out: PathBuf,
}

/// A map of the demonstration: its file, what it shows, and where.
struct Exhibit {
    file: &'static str,
    chosen: Chosen,
    layer: String,
}

impl Demo {
    pub(crate) fn execute(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let graph = onnx::read(NETWORK, None, &ImportOptions::default())?;
        let model = Model::new(Origin::onnx("pets-small.onnx"), graph, &ModelOptions::default())?;
        let labels = Labels::from_text(CLASSES);
        let preprocess = Preset::Imagenet.options().fit(model.picture_input()?.size, Fit::Squash)?;
        let prepared = preprocess.filter(Filter::Bicubic).apply(&Picture::decode(PHOTOGRAPH)?)?;
        let exhibits = exhibits(&model)?;
        let requests: Vec<Request> =
            exhibits.iter().map(|e| Request::of(e.chosen.method.clone(), Some(e.layer.clone()))).collect();
        let explainer = Explainer::new(model.graph(), &requests, &Cpu::default())?;
        let explained = explainer.explain(&prepared.tensor, &Class::Top, &exhibits[0].chosen.settings)?;

        writeln!(out, "A network that knows 37 breeds of cats and dogs looks at a photograph. It sees:")?;
        let best = Ranked::best(&explained.logits.to_f64(), 3, Meaning::Logits);
        let best = best.ok_or_else(|| Error::argument("the network returned numbers that are not finite"))?;
        for ranked in &best {
            let probability = ranked.probability.unwrap_or_default();
            writeln!(out, "  {:>6.2} %  {}", 100.0 * probability, labels.name(ranked.class))?;
        }
        writeln!(out, "\nWhere it sees that:")?;
        std::fs::create_dir_all(&self.out).map_err(|cause| Error::io(&self.out, &cause))?;
        for (exhibit, map) in exhibits.iter().zip(&explained.maps) {
            let map = render::Map::from_tensor(&map.values, 0)?;
            let caption = render::Caption {
                method: exhibit.chosen.title.clone(),
                layer: exhibit.layer.clone(),
                class: labels.name(best[0].class),
                confidence: best[0].probability,
                alpha: exhibit.chosen.alpha,
            };
            let path = self.out.join(exhibit.file);
            draw(&prepared.picture, &map, &caption, &path)?;
            writeln!(out, "  {:<12} {:<18} {}", exhibit.chosen.title, exhibit.layer, path.display())?;
        }
        writeln!(
            out,
            "\nWith a network and a picture of your own:\n  monosplit explain MODEL.onnx PICTURE.jpg"
        )?;
        Ok(())
    }
}

fn exhibits(model: &Model) -> Result<Vec<Exhibit>> {
    let deep =
        default_layer(model.graph()).ok_or_else(|| Error::argument("the network has no layer to look at"))?;
    let exhibit = |file, method: &str, layer: &str| -> Result<Exhibit> {
        Ok(Exhibit { file, chosen: catalogue::parse(method, &[])?, layer: layer.to_owned() })
    };
    Ok(vec![
        exhibit("splitcam.png", "splitcam", &deep)?,
        exhibit("splitcam-h.png", "splitcam:stream=h", &deep)?,
        exhibit("splitgrad.png", "splitgrad", "layer2.0.conv1")?,
        exhibit("splitlrp.png", "splitlrp:map=pos", &deep)?,
        exhibit("gradient.png", "gradient", "layer2.0.conv1")?,
    ])
}

fn draw(picture: &Picture, map: &render::Map, caption: &render::Caption, path: &Path) -> Result<()> {
    let options = render::OverlayOptions { least_side: 256, ..render::OverlayOptions::default() };
    let drawn = render::overlay(picture, map, caption, &options)?;
    monosplit_image::write_png(path, drawn.picture.width(), drawn.picture.height(), (&drawn.picture).into())
}
