//! The two monotone convex networks as graphs of their own, and f = g − h in double precision:
//!
//!     cargo run --release --example split

use monosplit::engine::{Cpu, Engine, Precision};
use monosplit::explain::materialise;
use monosplit::{Inference, Model, Result, Tensor};

fn main() -> Result<()> {
    let network = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/digits.onnx");
    let model = Model::open(network)?;
    let engine = Cpu::default().precision(Precision::F64);
    let image: Vec<f64> = (0..784).map(|i| f64::from(i % 28) / 28.0).collect();
    let (plus, minus): (Vec<f64>, Vec<f64>) = image.iter().map(|v| (v / 2.0, -v / 2.0)).unzip();
    let tensor = |values: Vec<f64>| Tensor::new(vec![1, 1, 28, 28], values);

    let f = Inference::new(&model, &engine)?.run(&[tensor(image)?])?.to_f64();
    let pair = engine.compile(&materialise(model.graph())?.both)?.run(&[tensor(plus)?, tensor(minus)?])?;
    for (class, ((f, g), h)) in f.iter().zip(pair[0].to_f64().iter()).zip(pair[1].to_f64().iter()).enumerate()
    {
        println!("class {class}: {f:9.4} = {g:9.4} − {h:9.4}");
    }
    Ok(())
}
