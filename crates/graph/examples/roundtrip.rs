//! Reads ONNX files.
fn main() {
    for path in std::env::args().skip(1) {
        let t = std::time::Instant::now();
        match monosplit_graph::onnx::open(path.as_ref(), &Default::default()) {
            Ok(g) => println!(
                "{path}: {} nodes {:?} {:?}",
                g.len(),
                g.node(g.outputs()[0].node).shape,
                t.elapsed()
            ),
            Err(e) => println!("{path}: ERROR {e}"),
        }
    }
}
