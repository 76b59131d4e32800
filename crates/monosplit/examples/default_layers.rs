//! Prints the default layers of networks: `FILE<tab>PLACE<tab>NAME<tab>SHAPE<tab>WHAT`, one line for each kind of method.
//! `ARCHITECTURE=FILE` names a file of weights and the network they belong to. Used by `scripts/check_default_layers.py`.

use monosplit::explain::{DefaultLayer, chosen_layer};
use monosplit::graph::LayerName;
use monosplit::{Model, Origin, Result};

fn main() -> Result<()> {
    for file in std::env::args().skip(1) {
        let model = match file.split_once('=') {
            Some((architecture, weights)) => Model::open(Origin::architecture(architecture, weights)),
            None => Model::open(&file),
        };
        let model = match model {
            Ok(model) => model,
            Err(error) => {
                println!("{file}\tfailed\t{error}\t\t");
                continue;
            }
        };
        for place in [DefaultLayer::LastFeatures, DefaultLayer::LastMixingInput] {
            let Some(layer) = chosen_layer(model.graph(), place) else {
                println!("{file}\t{place:?}\tthe image\t\t");
                continue;
            };
            let value = LayerName::parse(&layer.name).value(model.graph())?;
            let shape = &model.graph().node(value).shape;
            println!("{file}\t{place:?}\t{}\t{shape}\t{}", layer.name, layer.what);
        }
    }
    Ok(())
}
