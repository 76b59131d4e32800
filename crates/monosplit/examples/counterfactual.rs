//! What speaks for a digit, and what is missing for it, by a network that was trained to say so:
//!
//!     cargo run --release --example counterfactual

use monosplit::engine::Cpu;
use monosplit::image::{Fit, Picture, Preset};
use monosplit::train::Counterfactuals;
use monosplit::{Model, Result};

fn main() -> Result<()> {
    let assets = concat!(env!("CARGO_MANIFEST_DIR"), "/assets");
    let model = Model::open(format!("{assets}/digits.onnx"))?;
    let preprocess = Preset::Unit.options().fit(model.picture_input()?.size, Fit::default())?;
    let three = preprocess.apply(&Picture::open(format!("{assets}/digits/3.png"))?)?;

    let found = Counterfactuals::new(model.original(), &Cpu::default())?.of(&three.tensor)?;
    for (class, (present, missing)) in found.present.iter().zip(&found.missing).enumerate() {
        let strongest = |values: &[f32]| values.iter().copied().fold(0f32, f32::max);
        let (there, not_there) = (strongest(present), strongest(missing));
        println!(
            "{class}: one pixel speaks for it by up to {there:.3}, one is missing by up to {not_there:.3}"
        );
    }
    Ok(())
}
