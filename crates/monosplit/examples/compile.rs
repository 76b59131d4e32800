//! A network and its explanation as one ONNX file:
//!
//!     cargo run --release --example compile -- explained.onnx

use monosplit::explain::MapRequest;
use monosplit::graph::onnx;
use monosplit::{ClassSource, Compilation, Error, Model, Result, catalogue};

fn main() -> Result<()> {
    let Some(path) = std::env::args().nth(1) else {
        return Err(Error::argument("name the file to write: compile FILE.onnx"));
    };
    let network = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/pets-small.onnx");
    let model = Model::open(network)?;
    let chosen = catalogue::parse("splitcam", &[])?;
    let request = MapRequest::of(chosen.method.clone(), Some("layer4.2.conv2".into()));
    let maps = [(&chosen, request)];
    let precision = Compilation::own_precision(&model, &maps);
    let compiled = Compilation::new(&model, ClassSource::Input, &maps, precision)?;
    onnx::save(compiled.graph(), path.as_ref(), &compiled.export_options())
}
