//! A map drawn into the terminal:
//!
//!     cargo run --release --example terminal

use monosplit::engine::Cpu;
use monosplit::explain::methods::SplitCam;
use monosplit::explain::{Class, Explainer, MapRequest, Settings};
use monosplit::image::Picture;
use monosplit::render::{ScalarField, Scale, TerminalColours, terminal_map, terminal_picture, terminal_row};
use monosplit::{Model, Result};

fn main() -> Result<()> {
    let assets = concat!(env!("CARGO_MANIFEST_DIR"), "/assets");
    let model = Model::open(format!("{assets}/pets-small.onnx"))?;
    let cat = model.preprocess()?.apply(&Picture::open(format!("{assets}/chelsea.png"))?)?;

    let request = MapRequest::new(SplitCam::default(), "layer4.2.conv2");
    let explainer = Explainer::new(model.graph(), &[request], &Cpu::default())?;
    let explained = explainer.explain(&cat.tensor, &Class::Top, &Settings::default())?;
    let map = ScalarField::from_tensor(&explained.maps[0].values, 0)?;
    let colours = TerminalColours::True;
    let drawings = [
        ("the photograph", terminal_picture(&cat.picture, 38, colours)?),
        ("SplitCAM", terminal_map(&map, &Scale::new(&map, None)?, 38, colours)?),
    ];
    print!("{}", terminal_row(&drawings, 38));
    Ok(())
}
