//! The predictions of a network for a photograph:
//!
//!     cargo run --release --example predict

use monosplit::engine::Cpu;
use monosplit::image::Picture;
use monosplit::{Inference, Model, RankedClass, Result};

fn main() -> Result<()> {
    let assets = concat!(env!("CARGO_MANIFEST_DIR"), "/assets");
    let model = Model::open(format!("{assets}/pets-small.onnx"))?;
    let cat = model.preprocess()?.apply(&Picture::open(format!("{assets}/chelsea.png"))?)?;

    let scores = Inference::new(&model, &Cpu::default())?.run(&[cat.tensor])?.to_f64();
    let labels = model.labels()?;
    for ranked in RankedClass::best(&scores, 5, model.score_kind()).unwrap_or_default() {
        let percent = 100.0 * ranked.probability.unwrap_or_default();
        println!("{percent:6.2} %  {}", labels.name(ranked.class));
    }
    Ok(())
}
