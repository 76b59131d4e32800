//! Methods by name, side by side, as a PDF:
//!
//!     cargo run --release --example compare -- compared.pdf

use monosplit::image::Picture;
use monosplit::render::{Grid, GridCell, OverlayOptions, ScalarField};
use monosplit::{Error, Model, Result};

fn main() -> Result<()> {
    let Some(path) = std::env::args().nth(1) else {
        return Err(Error::argument("name the figure to write: compare FILE.pdf"));
    };
    let assets = concat!(env!("CARGO_MANIFEST_DIR"), "/assets");
    let model = Model::open(format!("{assets}/pets-small.onnx"))?;
    let cat = Picture::open(format!("{assets}/chelsea.png"))?;
    let seen = model.preprocess()?.apply(&cat)?.picture;

    let mut cells = Vec::new();
    for method in ["splitcam", "gradcam", "guided-backprop", "lrp:composite=epsilon-plus"] {
        let explanation = model.explainer(method).explain(&cat)?;
        let map = ScalarField::from_tensor(&explanation.map.values, 0)?;
        cells.push((explanation.title, GridCell::overlay(&seen, &map, &OverlayOptions::default())?));
    }
    Grid::strip("Four methods", cells).into_scene()?.write(path)
}
