//! What the theory promises, checked layer by layer:
//!
//!     cargo run --release --example audit

use monosplit::engine::Cpu;
use monosplit::explain::audit;
use monosplit::image::Picture;
use monosplit::{Model, Result};

fn main() -> Result<()> {
    let assets = concat!(env!("CARGO_MANIFEST_DIR"), "/assets");
    let model = Model::open(format!("{assets}/pets-small.onnx"))?;
    let cat = model.preprocess()?.apply(&Picture::open(format!("{assets}/chelsea.png"))?)?;

    let found = audit(model.graph(), &cat.tensor, &Cpu::default())?;
    println!("the prediction has the same bits when it is explained: {}", found.same_bits);
    for layer in found.layers {
        println!(
            "{:<20} a⁺ − a⁻ − a = {:e}, δᵍ − δʰ − d = {:e}",
            layer.layer, layer.forward_error, layer.backward_error
        );
    }
    Ok(())
}
