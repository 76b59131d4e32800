//! What a network takes a photograph for:
//!
//!     cargo run --release --example predict

use monosplit::engine::Cpu;
use monosplit::image::{Fit, Picture, Preset};
use monosplit::{Inference, Labels, Model, RankedClass, Result, ScoreKind};

fn main() -> Result<()> {
    let assets = concat!(env!("CARGO_MANIFEST_DIR"), "/assets");
    let model = Model::open(format!("{assets}/pets-small.onnx"))?;
    let preprocess = Preset::Imagenet.options().fit(model.picture_input()?.size, Fit::default())?;
    let cat = preprocess.apply(&Picture::open(format!("{assets}/chelsea.png"))?)?;

    let scores = Inference::new(&model, &Cpu::default())?.run(&[cat.tensor])?.to_f64();
    let labels = Labels::of(&model, scores.len());
    for ranked in RankedClass::best(&scores, 5, ScoreKind::Logits).unwrap_or_default() {
        let percent = 100.0 * ranked.probability.unwrap_or_default();
        println!("{percent:6.2} %  {}", labels.name(ranked.class));
    }
    Ok(())
}
