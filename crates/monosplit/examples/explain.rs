//! Explains one picture:
//!
//!     cargo run --release --example explain -- resnet18.onnx cat.jpg

use monosplit::image::Picture;
use monosplit::{Error, Model, Result};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [network, picture] = &arguments[..] else {
        return Err(Error::argument("name a network and a picture: explain MODEL.onnx PICTURE"));
    };
    let model = Model::open(network)?;
    let explanation = model.explainer("splitcam").alpha(0.4).explain(&Picture::open(picture)?)?;
    for ranked in explanation.ranking.iter().take(5) {
        println!("class {:>4}: {:.3}", ranked.class, ranked.score);
    }
    println!("{} at {}", explanation.title, explanation.layer.as_deref().unwrap_or("the image"));
    explanation.save("explained.png")
}
