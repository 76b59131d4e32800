//! `monosplit figure layers`: one map, layer by layer.

use std::io::Write;

use clap::Args;
use monosplit::catalogue::MethodChoice;
use monosplit::explain::Finish;
use monosplit::explain::layers_by_size;
use monosplit::graph::{Error, Result};
use monosplit::render::Scene;

use crate::commands::drawing::Draws;
use crate::commands::figure_input::FigureInputArgs;
use crate::commands::method::MethodWords;
use crate::commands::panels::{Panel, Panels};
use crate::failure::Failure;

/// Draws one map, layer by layer
#[derive(Args)]
#[command(override_usage = "monosplit figure layers MODEL PICTURE... [OPTIONS]")]
#[command(long_about = "\
Draws one map at several layers, from left to right; one row for each picture.

  monosplit figure layers resnet18.onnx cat.jpg
  monosplit figure layers resnet18.onnx photos/ --layer layer1.0.conv1 --layer layer4.1.conv2

Without --layer: the last convolution of each size of map, from fine to coarse.")]
pub(crate) struct LayersFigure {
    #[command(flatten)]
    pub(super) input: FigureInputArgs,

    /// The method.
    #[arg(long, value_name = "NAME[:KEY=VALUE,…]", default_value = "splitcam")]
    #[arg(value_parser = MethodWords, hide_possible_values = true)]
    method: String,

    /// A layer the map is read off at; may be given several times.
    #[arg(long = "layer", value_name = "NAME[:out]")]
    layers: Vec<String>,
}

impl Draws for LayersFigure {
    fn scene(&self, out: &mut dyn Write) -> Result<Scene, Failure> {
        let mut input = self.input.open()?;
        let chosen = MethodChoice::parse(&self.method, &[])?.resolve(&input.bounds, input.model.graph())?;
        let layers = match &self.layers[..] {
            [] => layers_by_size(input.model.graph()),
            layers => layers.to_vec(),
        };
        if layers.is_empty() {
            return Err(Error::argument(
                "the network has no convolution to look at; name layers with --layer",
            )
            .into());
        }
        let title = match chosen.alpha {
            Some(alpha) => format!("{}, α = {alpha}", chosen.title),
            None => chosen.title.clone(),
        };
        let panel =
            |layer: String| Panel { chosen: chosen.clone(), header: layer.clone(), layer: Some(layer) };
        let panels = layers.into_iter().map(panel).collect();
        let engine = self.input.compute.engine()?;
        let panels = Panels::new(&input.model, panels, Finish::default(), &*engine)?;
        let rows = panels.rows(&mut input, out)?;
        Ok(panels.scene(title, rows, &self.input.drawing.overlay())?)
    }
}
