//! Explains one picture with the library:
//!
//!     cargo run --release --example explain -- resnet18.onnx cat.jpg

use monosplit::engine::Cpu;
use monosplit::explain::methods::SplitCam;
use monosplit::explain::{Class, Explainer, MapRequest, Settings};
use monosplit::image::{Fit, Picture, Preset, write_png};
use monosplit::render::{Caption, Map, OverlayOptions, overlay};
use monosplit::{Error, Model, Result, default_layer};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [network, picture] = &arguments[..] else {
        return Err(Error::argument("name a network and a picture: explain MODEL.onnx PICTURE"));
    };
    let model = Model::open(network)?;
    let layer = default_layer(model.graph()).unwrap_or_default();
    let request = MapRequest::new(SplitCam::default(), &layer);
    let explainer = Explainer::new(model.graph(), &[request], &Cpu::default())?;

    let size = model.picture_input()?.size;
    let prepared = Preset::Imagenet.options().fit(size, Fit::default())?.apply(&Picture::open(picture)?)?;
    let explained = explainer.explain(&prepared.tensor, &Class::Top, &Settings::default().alpha(0.4))?;

    let map = Map::from_tensor(&explained.maps[0].values, 0)?;
    let caption = Caption { layer, class: explained.classes[0].to_string(), ..Caption::default() };
    let drawn = overlay(&prepared.picture, &map, &caption, &OverlayOptions::default())?.picture;
    write_png("explained.png", drawn.width(), drawn.height(), (&drawn).into())
}
