//! What speaks for a digit, and what is missing for it, by a network that was trained to say so:
//!
//!     cargo run --release --example counterfactual

use monosplit::engine::Cpu;
use monosplit::image::{Fit, Picture, Preset};
use monosplit::train::Counterfactuals;
use monosplit::{Model, ModelOptions, Origin, Result};

fn main() -> Result<()> {
    let assets = concat!(env!("CARGO_MANIFEST_DIR"), "/assets");
    let model = Model::open(Origin::onnx(format!("{assets}/digits.onnx")), &ModelOptions::default())?;
    let preprocess = Preset::Unit.options().fit(model.picture_input()?.size, Fit::default())?;
    let three = preprocess.apply(&Picture::open(format!("{assets}/digits/3.png"))?)?;

    let found = Counterfactuals::new(model.original(), &Cpu::default())?.of(&three.tensor)?;
    for (class, (present, missing)) in found.present.iter().zip(&found.missing).enumerate() {
        let sum = |values: &[f32]| values.iter().sum::<f32>();
        println!("{class}: {:7.3} speaks for it, {:7.3} is missing", sum(present), sum(missing));
    }
    Ok(())
}
