//! Methods by name, side by side, as a PDF:
//!
//!     cargo run --release --example compare -- compared.pdf

use monosplit::engine::Cpu;
use monosplit::explain::{Class, Explainer, MapRequest};
use monosplit::image::{Fit, Picture, Preset};
use monosplit::render::{Cell, Grid, Map, OverlayOptions};
use monosplit::{Error, Model, Result, catalogue, chosen_layer};

fn main() -> Result<()> {
    let Some(path) = std::env::args().nth(1) else {
        return Err(Error::argument("name the figure to write: compare FILE.pdf"));
    };
    let assets = concat!(env!("CARGO_MANIFEST_DIR"), "/assets");
    let model = Model::open(format!("{assets}/pets-small.onnx"))?;
    let preprocess = Preset::Imagenet.options().fit(model.picture_input()?.size, Fit::default())?;
    let cat = preprocess.apply(&Picture::open(format!("{assets}/chelsea.png"))?)?;

    let mut cells = Vec::new();
    for word in ["splitcam", "gradcam", "guided-backprop", "lrp:composite=epsilon-plus"] {
        let chosen = catalogue::parse(word, &[])?;
        let layer = chosen_layer(model.graph(), chosen.method.default_layer());
        let request = MapRequest::of(chosen.method.clone(), layer);
        let explainer = Explainer::new(model.graph(), &[request], &Cpu::default())?;
        let explained = explainer.explain(&cat.tensor, &Class::Top, &chosen.settings)?;
        let map = Map::from_tensor(&explained.maps[0].values, 0)?;
        cells.push((chosen.title, Cell::overlay(&cat.picture, &map, &OverlayOptions::default())?));
    }
    Grid::strip("Four methods", cells).into_scene()?.write(path)
}
