//! One compilation for many classes and values of α, which are inputs of the compiled graph.
//!
//!     cargo run --release --example alphas

use monosplit::engine::Cpu;
use monosplit::explain::methods::SplitCam;
use monosplit::explain::{Class, Explainer, MapRequest, Settings};
use monosplit::image::Picture;
use monosplit::{Model, Result};

fn main() -> Result<()> {
    let assets = concat!(env!("CARGO_MANIFEST_DIR"), "/assets");
    let model = Model::open(format!("{assets}/pets-small.onnx"))?;
    let cat = model.preprocess()?.apply(&Picture::open(format!("{assets}/chelsea.png"))?)?;

    let request = MapRequest::new(SplitCam::default(), "layer3.2.conv2");
    let explainer = Explainer::new(model.graph(), &[request], &Cpu::default())?;
    for alpha in [0.0, 0.25, 0.4, 0.5] {
        for class in [5, 11] {
            let settings = Settings::default().alpha(alpha);
            let explained = explainer.explain(&cat.tensor, &Class::Index(class), &settings)?;
            let largest = explained.maps[0].values.to_f64().iter().copied().fold(f64::NEG_INFINITY, f64::max);
            println!("α = {alpha:<4} class {class:>2}: at most {largest:.3e}");
        }
    }
    Ok(())
}
